//! The environment of a subject, and the commands in it: binding to CPUs and nodes, moving memory, quotas.

use super::command::{Command, Scope, When, Words, cpu_list, line, node_list};
use super::guards::Placed;
use crate::model::group::{Engine, Group, GroupKind};
use crate::model::units::NodeId;

/// The manager of a subject: it decides which command lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Env {
    /// A process of a session, or of a user.
    Session,
    /// A service of systemd.
    Unit(String),
    /// A container of docker, by its id.
    Docker(String),
    /// A container of podman, by its id.
    Podman(String),
    /// A container of containerd outside Kubernetes, by its id.
    Nerdctl(String),
    /// A container of a pod of Kubernetes, by its id.
    Pod(String),
    /// A virtual machine of libvirt, by its name.
    Libvirt(String),
    /// A container of LXC, by its name.
    Lxc(String),
    /// A machine of systemd-nspawn, by its unit.
    Nspawn(String),
    /// A group whose files are written by an engine, the kubelet or one of its slices: no command of ours
    /// lasts.
    Managed,
    /// Any other cgroup, by its path.
    Cgroup(String),
}

/// Characters to which names from cgroup paths are cut.
const NAME_CUT: usize = 128;

/// The unit of systemd that a cgroup is, by its path: its name in full, escapes included. Units of a user are not known to the
/// manager of the machine.
fn unit_of(path: &str) -> Option<String> {
    let mut parts = path.split('/').rev();
    let last = parts.next().filter(|last| last.ends_with(".service") || last.ends_with(".scope"))?;
    let of_user = parts.any(|part| part.starts_with("user@"));
    (!of_user).then(|| last.to_owned())
}

/// The environment of a group; `path` is the unescaped path of its cgroup.
pub fn env(group: Option<&Group>, path: Option<&str>) -> Env {
    let Some(group) = group else { return Env::Session };
    let id = || {
        let id = group.id.clone().unwrap_or_else(|| group.name.clone());
        // One that was escaped or cut is not the name. An empty one is refused.
        if id.contains('\\') || id.chars().count() >= NAME_CUT { String::new() } else { id }
    };
    match (group.kind, group.engine) {
        // The engine of the system knows it not, or knows another by its id.
        (GroupKind::Container | GroupKind::Machine | GroupKind::Pod, _) if group.user.is_some() => {
            Env::Managed
        }
        (GroupKind::Container, _) if group.pod_uid.is_some() => Env::Pod(id()),
        (GroupKind::Container, Some(Engine::Docker)) => Env::Docker(id()),
        (GroupKind::Container, Some(Engine::Podman)) => Env::Podman(id()),
        (GroupKind::Container, Some(Engine::Containerd | Engine::Nerdctl)) => Env::Nerdctl(id()),
        (GroupKind::Machine, Some(Engine::Qemu)) => Env::Libvirt(id()),
        (GroupKind::Machine, Some(Engine::Lxc)) => Env::Lxc(id()),
        (GroupKind::Machine, Some(Engine::Nspawn)) => {
            path.and_then(unit_of).map_or(Env::Managed, Env::Nspawn)
        }
        (GroupKind::Unit, _) => {
            let service = path.and_then(unit_of).filter(|unit| unit.ends_with(".service"));
            service.map_or(Env::Session, Env::Unit)
        }
        (GroupKind::Container | GroupKind::Machine | GroupKind::Pod, _) => Env::Managed,
        (GroupKind::Group, _) => match path {
            None | Some("/") => Env::Session,
            Some(path) if path.ends_with(".slice") || path.contains("kubepods") => Env::Managed,
            Some(path) => Env::Cgroup(path.to_owned()),
        },
    }
}

/// Whether memory follows when the nodes of a subject are set: cpuset.mems of cgroup v2 moves it (S8), that of v1 does with
/// memory_migrate only. `None`: which one the machine has is not known.
pub fn memory_follows(env: &Env, unified: Option<bool>) -> bool {
    !matches!(env, Env::Session | Env::Libvirt(_)) && unified == Some(true)
}

/// Commands that bind a subject to CPUs, and its memory to nodes: at once, and for good. `unified`: the machine has cgroup v2
/// alone, where that is known; `pid` is its main process where it is known.
pub fn bind(
    env: &Env,
    cpus: &[u32],
    nodes: &[NodeId],
    pid: Option<u32>,
    unified: Option<bool>,
) -> Vec<Command> {
    // An empty list binds nothing.
    if nodes.is_empty() { Vec::new() } else { binding(env, cpus, Some(nodes), pid, unified) }
}

/// Binds CPUs only, where nodes are hidden: memory is not moved.
pub fn bind_cpus(env: &Env, cpus: &[u32], pid: Option<u32>, unified: Option<bool>) -> Vec<Command> {
    binding(env, cpus, None, pid, unified)
}

fn binding(
    env: &Env,
    cpus: &[u32],
    nodes: Option<&[NodeId]>,
    pid: Option<u32>,
    unified: Option<bool>,
) -> Vec<Command> {
    // An empty list binds nothing, and process 0 means the caller.
    if cpus.is_empty() {
        return Vec::new();
    }
    let c = cpu_list(cpus);
    let pid = pid.filter(|pid| *pid != 0);
    // A part of a line or of words that is about nodes.
    let of_nodes = |text: &dyn Fn(&[NodeId]) -> String| nodes.map(text).unwrap_or_default();
    let also_on = |words: Words, option: &'static str| match nodes {
        Some(nodes) => words.word(option).nodes(nodes),
        None => words,
    };
    let container = |program, id: &str| {
        let words = line(program).word("--cpuset-cpus").cpus(cpus);
        Command::new(When::Now, Scope::Container, also_on(words, "--cpuset-mems").name(id), "")
    };
    let options = |where_: &str| {
        let mems = of_nodes(&|nodes| format!(" --cpuset-mems {}", node_list(nodes)));
        let which = if nodes.is_some() { "the same options" } else { "the same option" };
        Command::words(
            When::ForGood,
            Scope::Container,
            format!("{which} for {where_}: --cpuset-cpus {c}{mems}"),
        )
    };
    let taskset = |pid: u32| {
        Command::new(When::Now, Scope::Process, line("taskset -acp").cpus(cpus).number(pid.into()), "")
    };
    let unit = |name: &str, runtime: bool| {
        let begin = if runtime { "systemctl set-property --runtime" } else { "systemctl set-property" };
        let words = line(begin).name(name).joined("AllowedCPUs=", &c);
        let words = match nodes {
            Some(nodes) => words.joined("AllowedMemoryNodes=", &node_list(nodes)),
            None => words,
        };
        Command::new(if runtime { When::Now } else { When::ForGood }, Scope::Container, words, "")
    };
    match env {
        Env::Session => {
            let start = match nodes {
                Some(nodes) => {
                    format!(
                        "start the program with numactl --cpunodebind={} {}",
                        node_list(nodes),
                        preferred(nodes)
                    )
                }
                None => format!("start the program with taskset -c {c}"),
            };
            pid.map(taskset)
                .into_iter()
                .chain([Command::words(When::NextStart, Scope::Process, start)])
                .collect()
        }
        // AllowedCPUs needs the unified hierarchy [S11].
        Env::Unit(_) if unified == Some(false) => {
            let mems = of_nodes(&|nodes| format!(", NUMAPolicy=preferred, NUMAMask={}", node_list(nodes)));
            let words = format!("add a drop-in with CPUAffinity={c}{mems} to the unit, then restart it");
            pid.map(taskset)
                .into_iter()
                .chain([Command::words(When::ForGood, Scope::Container, words)])
                .collect()
        }
        Env::Unit(name) => vec![unit(name, true), unit(name, false)],
        Env::Docker(id) => {
            vec![container("docker update", id), options("docker run, or the compose key cpuset")]
        }
        Env::Podman(id) => vec![container("podman update", id), options("podman run, or in the quadlet")],
        Env::Nerdctl(id) => vec![container("nerdctl update", id), options("nerdctl run")],
        Env::Pod(id) => {
            let mut now = container("crictl update", id);
            now.words = "for a short trial: the kubelet restores its own list, by default every 10 s".into();
            let words = match nodes {
                Some(_) => {
                    "give the pod Guaranteed QoS with whole CPUs, and configure the kubelet with \
                     cpuManagerPolicy: static, memoryManagerPolicy: Static, topologyManagerPolicy: \
                     single-numa-node"
                }
                None => {
                    "give the pod Guaranteed QoS with whole CPUs, and configure the kubelet with \
                     cpuManagerPolicy: static"
                }
            };
            vec![now, Command::words(When::ForGood, Scope::Container, words)]
        }
        Env::Libvirt(name) => {
            let now = line("virsh emulatorpin").name(name).cpus(cpus).word("--live");
            let now = Command::new(When::Now, Scope::Container, now, "also run virsh vcpupin for each vCPU");
            let good = match nodes {
                Some(nodes) => {
                    let words = line("virsh numatune").name(name).word("--mode strict --nodeset");
                    let words = words.nodes(nodes).word("--config");
                    Command::new(When::ForGood, Scope::Container, words, "also set <vcpu cpuset=...>")
                }
                None => Command::words(When::ForGood, Scope::Container, format!("<vcpu cpuset='{c}'>")),
            };
            vec![now, good]
        }
        Env::Lxc(name) => {
            let file = |words: Words| Command::new(When::Now, Scope::Container, words, "");
            let begin = || line("lxc-cgroup -n").name(name);
            let mut commands = vec![file(begin().word("cpuset.cpus").cpus(cpus))];
            commands.extend(nodes.map(|nodes| file(begin().word("cpuset.mems").nodes(nodes))));
            let words = "set lxc.cgroup2.cpuset.* in the container's configuration";
            commands.push(Command::words(When::ForGood, Scope::Container, words));
            commands
        }
        Env::Nspawn(name) => vec![unit(name, true)],
        Env::Managed => {
            let mems = of_nodes(&|nodes| format!(" and nodes {}", node_list(nodes)));
            let words = format!(
                "set CPUs {c}{mems} where the group is created: the group's manager restores its own \
                         lists"
            );
            vec![Command::words(When::ForGood, Scope::Container, words)]
        }
        Env::Cgroup(path) if unified == Some(true) => {
            let file = |words: Words, name| {
                Command::new(When::Now, Scope::Container, words.into_file_of(path, name), "")
            };
            let mut commands = vec![file(line("echo").cpus(cpus), "cpuset.cpus")];
            commands.extend(nodes.map(|nodes| file(line("echo").nodes(nodes), "cpuset.mems")));
            commands.push(Command::words(
                When::ForGood,
                Scope::Container,
                "set the same lists where the cgroup is created",
            ));
            commands
        }
        Env::Cgroup(_) => pid.map(taskset).into_iter().collect(),
    }
}

/// The commands of these that work at once: what undoes a change needs no variant for good, but both files of a cgroup.
pub fn at_once(commands: Vec<Command>) -> Vec<Command> {
    commands.into_iter().filter(|command| command.when == When::Now).collect()
}

/// The option of numactl for memory that is preferred on these nodes.
pub fn preferred(nodes: &[NodeId]) -> String {
    match nodes {
        [node] => format!("--preferred={node}"),
        // It needs Linux 5.15 [S8] and a recent numactl.
        _ => format!("--preferred-many={}", node_list(nodes)),
    }
}

/// Moves the memory of a process from all of `from` to `to`. The lists must not overlap: the kernel would rotate pages among
/// nodes that are in both (S8).
pub fn move_memory(pid: u32, from: &[NodeId], to: &[NodeId], words: impl Into<String>) -> Option<Command> {
    let from: Vec<NodeId> = from.iter().filter(|node| !to.contains(node)).copied().collect();
    // Process 0 means the caller.
    if from.is_empty() || to.is_empty() || pid == 0 {
        return None;
    }
    let words_of = line("migratepages").number(pid.into()).nodes(&from).nodes(to);
    Some(Command::new(When::Now, Scope::Process, words_of, words))
}

/// Undoes moving memory of a process from nodes to others. A line only if it is the inverse: one node of
/// origin, and no memory of the process at the target at first, within the error. Otherwise it would move
/// that memory too.
pub fn move_back(pid: u32, placed: &Placed, to: &[NodeId], from: &[NodeId]) -> Command {
    move_back_beside(pid, placed, (to, from), 0.0, "moves the same memory back")
}

/// The same of a member of a group. Its own memory goes along, and so may a part of the shared memory: less than a fifth of all.
pub fn move_back_shared(pid: u32, placed: &Placed, to: &[NodeId], from: &[NodeId]) -> Command {
    const BESIDE_PCT: f64 = 20.0;
    move_back_beside(
        pid,
        placed,
        (to, from),
        BESIDE_PCT,
        "moves all of its memory back, including memory not moved by the first command; run as root",
    )
}

/// The line where at most `beside` percent, or what the error allows, was at the target before.
fn move_back_beside(
    pid: u32,
    placed: &Placed,
    (to, from): (&[NodeId], &[NodeId]),
    beside: f64,
    words: &str,
) -> Command {
    let fits = placed.memory_pct(to) <= placed.error.max(1.0).max(beside);
    let line = (fits && from.len() == 1).then(|| move_memory(pid, to, from, words));
    line.flatten().unwrap_or_else(|| {
        let words =
            "cannot be undone: moved pages mix with pages already on that node; a restart places memory anew";
        Command::words(When::Now, Scope::Process, words)
    })
}

/// Microseconds of the period that the kernel, systemd and engines of containers give a quota.
const PERIOD_US: u64 = 100_000;

/// Commands that set the quota of a subject, in thousandths of a CPU. `unified`: as for [`bind`].
pub fn quota(env: &Env, milli: u64, unified: Option<bool>) -> Vec<Command> {
    let cpus = thousandths(milli);
    let container = |program, id: &str| {
        let words = line(program).joined("--cpus ", &cpus).name(id);
        vec![Command::new(When::Now, Scope::Container, words, "")]
    };
    match env {
        Env::Docker(id) => container("docker update", id),
        Env::Podman(id) => container("podman update", id),
        Env::Nerdctl(id) => container("nerdctl update", id),
        Env::Unit(name) => [true, false]
            .map(|runtime| {
                let begin =
                    if runtime { "systemctl set-property --runtime" } else { "systemctl set-property" };
                let percent = thousandths(milli.saturating_mul(100));
                let words = line(begin).name(name).joined("CPUQuota=", &format!("{percent}%"));
                Command::new(if runtime { When::Now } else { When::ForGood }, Scope::Container, words, "")
            })
            .into(),
        Env::Pod(_) => {
            vec![Command::words(
                When::ForGood,
                Scope::Container,
                format!("limits.cpu: {cpus} in the pod's manifest"),
            )]
        }
        Env::Cgroup(path) if unified == Some(true) => {
            let us = milli.saturating_mul(PERIOD_US / 1000);
            let words = line("echo").quota(us, PERIOD_US).into_file_of(path, "cpu.max");
            let period = "for the default period of 100 ms; scale the quota if cpu.max has another period";
            vec![Command::new(When::Now, Scope::Container, words, period)]
        }
        _ => vec![Command::words(
            When::Now,
            Scope::Container,
            format!("set a quota of {cpus} CPUs where the cgroup is created"),
        )],
    }
}

/// Thousandths as a number with as few digits as possible.
fn thousandths(milli: u64) -> String {
    let digits = format!("{}.{:03}", milli / 1000, milli % 1000);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(kind: GroupKind, engine: Option<Engine>, name: &str, id: Option<&str>) -> Group {
        Group {
            kind,
            engine,
            name: name.into(),
            id: id.map(str::to_owned),
            pod: None,
            pod_uid: None,
            user: None,
            namespace: None,
            unit: None,
            top: 1,
            parent: None,
        }
    }

    fn lines(commands: &[Command]) -> Vec<String> {
        commands.iter().filter_map(|command| Some(command.line.as_ref()?.to_string())).collect()
    }

    #[test]
    fn each_environment_has_its_own_command() {
        let bound = |group: &Group| {
            let path = format!("/{}", group.name);
            lines(&bind(&env(Some(group), Some(&path)), &[0, 1], &[NodeId(0)], Some(7), Some(true)))
        };
        let docker = group(GroupKind::Container, Some(Engine::Docker), "web", Some("3c0f"));
        assert_eq!(bound(&docker), ["docker update --cpuset-cpus 0-1 --cpuset-mems 0 3c0f"]);
        // The engine of the system may have another container of that id.
        let of_user = Group { user: Some("alice".into()), ..docker.clone() };
        assert_eq!(env(Some(&of_user), Some("/user.slice/x")), Env::Managed);
        let pod = Group { pod_uid: Some("uid".into()), ..docker };
        assert_eq!(bound(&pod), ["crictl update --cpuset-cpus 0-1 --cpuset-mems 0 3c0f"]);
        let unit = group(GroupKind::Unit, None, "mysql.service", None);
        assert_eq!(
            bound(&unit),
            [
                "systemctl set-property --runtime mysql.service AllowedCPUs=0-1 AllowedMemoryNodes=0",
                "systemctl set-property mysql.service AllowedCPUs=0-1 AllowedMemoryNodes=0"
            ]
        );
        assert_eq!(bound(&group(GroupKind::Unit, None, "session-3.scope", None)), ["taskset -acp 0-1 7"]);
        assert_eq!(
            bound(&group(GroupKind::Group, None, "x", None)),
            ["echo 0-1 > /sys/fs/cgroup/x/cpuset.cpus", "echo 0 > /sys/fs/cgroup/x/cpuset.mems"]
        );
    }

    #[test]
    fn cpus_are_bound_without_memory() {
        let of = |env: &Env, unified| {
            let commands = bind_cpus(env, &[26, 27, 28], Some(7), unified);
            commands
                .iter()
                .map(|one| one.line.as_ref().map_or(one.words.clone(), ToString::to_string))
                .collect()
        };
        let all: [(Env, &[&str]); 11] = [
            (Env::Session, &["taskset -acp 26-28 7", "start the program with taskset -c 26-28"]),
            (
                Env::Unit("a.service".into()),
                &[
                    "systemctl set-property --runtime a.service AllowedCPUs=26-28",
                    "systemctl set-property a.service AllowedCPUs=26-28",
                ],
            ),
            (
                Env::Docker("3c0f".into()),
                &[
                    "docker update --cpuset-cpus 26-28 3c0f",
                    "the same option for docker run, or the compose key cpuset: --cpuset-cpus 26-28",
                ],
            ),
            (
                Env::Podman("3c0f".into()),
                &[
                    "podman update --cpuset-cpus 26-28 3c0f",
                    "the same option for podman run, or in the quadlet: --cpuset-cpus 26-28",
                ],
            ),
            (
                Env::Nerdctl("3c0f".into()),
                &[
                    "nerdctl update --cpuset-cpus 26-28 3c0f",
                    "the same option for nerdctl run: --cpuset-cpus 26-28",
                ],
            ),
            (
                Env::Pod("3c0f".into()),
                &[
                    "crictl update --cpuset-cpus 26-28 3c0f",
                    "give the pod Guaranteed QoS with whole CPUs, and configure the kubelet with \
                     cpuManagerPolicy: static",
                ],
            ),
            (Env::Libvirt("vm".into()), &["virsh emulatorpin vm 26-28 --live", "<vcpu cpuset='26-28'>"]),
            (
                Env::Lxc("c".into()),
                &[
                    "lxc-cgroup -n c cpuset.cpus 26-28",
                    "set lxc.cgroup2.cpuset.* in the container's configuration",
                ],
            ),
            (
                Env::Nspawn("n.service".into()),
                &["systemctl set-property --runtime n.service AllowedCPUs=26-28"],
            ),
            (
                Env::Managed,
                &["set CPUs 26-28 where the group is created: the group's manager restores its own lists"],
            ),
            (
                Env::Cgroup("/jobs".into()),
                &[
                    "echo 26-28 > /sys/fs/cgroup/jobs/cpuset.cpus",
                    "set the same lists where the cgroup is created",
                ],
            ),
        ];
        for (env, expected) in all {
            let found: Vec<String> = of(&env, Some(true));
            assert_eq!(found, expected, "{env:?}");
        }
        let old: Vec<String> = of(&Env::Unit("a.service".into()), Some(false));
        assert_eq!(
            old,
            ["taskset -acp 26-28 7", "add a drop-in with CPUAffinity=26-28 to the unit, then restart it"]
        );
        assert!(bind_cpus(&Env::Session, &[], Some(7), None).is_empty());
        assert!(bind(&Env::Session, &[0], &[], Some(7), None).is_empty());
    }

    #[test]
    fn quotas_are_those_of_each_environment() {
        let of = |env: Env, milli, unified| lines(&quota(&env, milli, unified));
        let unified = Some(true);
        assert_eq!(of(Env::Docker("3c0f".into()), 3000, unified), ["docker update --cpus 3 3c0f"]);
        assert_eq!(of(Env::Podman("3c0f".into()), 1500, None), ["podman update --cpus 1.5 3c0f"]);
        assert_eq!(of(Env::Nerdctl("3c0f".into()), 2050, None), ["nerdctl update --cpus 2.05 3c0f"]);
        assert_eq!(
            of(Env::Unit("a.service".into()), 1505, unified),
            [
                "systemctl set-property --runtime a.service CPUQuota=150.5%",
                "systemctl set-property a.service CPUQuota=150.5%"
            ]
        );
        // The file of version 1 is another one, in a place that is not known.
        let jobs = || Env::Cgroup("/jobs/one".into());
        assert_eq!(of(jobs(), 1500, unified), ["echo \"150000 100000\" > /sys/fs/cgroup/jobs/one/cpu.max"]);
        assert!(of(jobs(), 1500, Some(false)).is_empty() && of(jobs(), 1500, None).is_empty());
    }

    #[test]
    fn lists_of_a_move_do_not_overlap() {
        let (n, of) =
            (NodeId, |from: &[NodeId], to: &[NodeId]| move_memory(7, from, to, "").map(|c| lines(&[c])));
        assert_eq!(of(&[n(0), n(1), n(2)], &[n(1)]), Some(vec!["migratepages 7 0,2 1".to_owned()]));
        assert_eq!(of(&[n(1)], &[n(1)]), None);
    }

    #[test]
    fn a_move_is_undone_only_by_its_inverse() {
        let placed = |bytes: &[f64]| Placed { bytes: bytes.to_vec(), error: 3.0, ..Placed::default() };
        let [zero, one, two] = [0, 1, 2].map(NodeId);
        let back = |bytes: &[f64], from: &[NodeId]| {
            move_back(700, &placed(bytes), &[two], from).line.map(|line| line.to_string())
        };
        assert_eq!(back(&[100.0, 0.0, 1.0], &[zero]).as_deref(), Some("migratepages 700 2 0"));
        assert_eq!(back(&[60.0, 0.0, 40.0], &[zero]), None, "some was there before");
        assert_eq!(back(&[60.0, 40.0, 0.0], &[zero, one]), None, "from two nodes");
    }
}
