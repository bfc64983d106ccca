//! The place and the user of a command.

use std::collections::BTreeSet;
use std::path::Path;

use super::{BadValue, bad};
use crate::cli::{Binding, Bound};
use crate::host::users;
use crate::model::topology::{Topology, format_cpulist};
use crate::program::guard;
use crate::program::launch::{Order, User};

/// The CPUs and nodes of a place on this machine.
///
/// # Errors
/// The machine has no such node, core or CPU.
pub fn place(binding: &Binding, topology: &Topology) -> Result<Order, BadValue> {
    let mut order = Order::default();
    let mut cpus = BTreeSet::new();
    for (bound, ids) in &binding.parts {
        for id in ids {
            let of_part: Vec<u32> = match bound {
                Bound::Memory => {
                    let node = topology.nodes.iter().find(|node| node.id.0 == *id);
                    if node.is_none_or(|node| node.mem_total_bytes == 0) {
                        return Err(bad("--bind", format!("the machine has no node {id} with memory")));
                    }
                    order.nodes.push(*id);
                    continue;
                }
                Bound::Node => topology
                    .online_cpus()
                    .filter(|cpu| cpu.node.is_some_and(|node| node.0 == *id))
                    .map(|cpu| cpu.id.0)
                    .collect(),
                Bound::Core => {
                    topology.online_cpus().filter(|cpu| cpu.core == *id).map(|cpu| cpu.id.0).collect()
                }
                Bound::Cpu => topology.online_cpus().map(|cpu| cpu.id.0).filter(|cpu| cpu == id).collect(),
            };
            if of_part.is_empty() {
                return Err(bad("--bind", none(*bound, *id, topology)));
            }
            cpus.extend(of_part);
        }
    }
    order.cpus = cpus.into_iter().collect();
    Ok(order)
}

fn none(bound: Bound, id: u32, topology: &Topology) -> String {
    match bound {
        Bound::Node => {
            let nodes = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id.0);
            format!("the machine has no node {id} with CPUs: nodes with CPUs are {}", format_cpulist(nodes))
        }
        Bound::Core => {
            format!("the machine has no core {id}: its cores are {} (numatop-ng topology)", topology.cores)
        }
        Bound::Cpu | Bound::Memory => {
            let online = topology.online_cpus().map(|cpu| cpu.id.0);
            format!("CPU {id} is not online: online CPUs are {}", format_cpulist(online))
        }
    }
}

/// The user behind sudo.
///
/// # Errors
/// The user is unknown.
pub fn user_of_sudo() -> Result<User, BadValue> {
    let Some((uid, gid)) = guard::sudo_user() else {
        return Err(bad("--as-user", "numatop-ng was not started by sudo, which sets SUDO_UID"));
    };
    Ok(User { uid, gid, name: users::read(Path::new("/")).remove(&uid) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::cli::Command;
    use clap::Parser;

    fn binding(text: &str) -> Binding {
        let cli = Cli::try_parse_from(["numatop-ng", "run", "--bind", text, "--", "true"]).unwrap();
        match cli.command {
            Some(Command::Run(args)) => args.bindings.into_iter().next().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_is_made_of_cpus_and_memory() {
        let topology = crate::host::topology::read(Path::new("/")).unwrap();
        let cpu = topology.online_cpus().next().unwrap();
        let node = cpu.node.unwrap().0;
        let order = place(&binding(&format!("cpu:{},mem:{node}", cpu.id.0)), &topology).unwrap();
        assert_eq!((order.cpus, order.nodes), (vec![cpu.id.0], vec![node]));
        let siblings: Vec<u32> = cpu.siblings.iter().map(|cpu| cpu.0).collect();
        assert_eq!(place(&binding(&format!("core:{}", cpu.core)), &topology).unwrap().cpus, siblings);
        for (text, why) in [
            ("node:4094", "no node 4094 with CPUs"),
            ("mem:4094", "no node 4094 with memory"),
            ("core:9999", "no core 9999"),
            ("cpu:9999", "CPU 9999 is not online"),
        ] {
            let error = place(&binding(text), &topology).unwrap_err().to_string();
            assert!(error.starts_with("--bind: ") && error.contains(why), "{error}");
        }
    }
}
