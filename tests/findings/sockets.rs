//! Packets that arrive on another node than the one where their process runs.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Finding, Severity};
use numatop_ng::model::sample::Missing;
use numatop_ng::model::sockets::{SocketRoute, SocketUse};
use numatop_ng::model::topology::DeviceClass;
use numatop_ng::model::units::NodeId;

use crate::sick_worlds::device;
use crate::world::{Actor, GIB, Machine, PLAIN, TWO, blind, commands, found, machine, pages};

pub mod far_network {
    use super::*;

    const ID: &str = "far-network";
    const MB: u64 = 1_000_000;

    /// A proxy on node 1 that receives so much: node of the packets, bytes and reads per second.
    fn receiving(routes: &[(Option<u32>, u64, u64)]) -> Machine {
        let actor = Actor { rss: GIB, memory: pages(100), cgroup: PLAIN, ..Actor::new(4242, "haproxy") };
        let mut world = machine(TWO, vec![actor.runs(&[(1, 90.0)])]);
        let rate = |(from, received, reads): &(Option<u32>, u64, u64)| {
            let route = SocketRoute { from: from.map(NodeId), to: NodeId(1) };
            (4242, route, SocketUse { received: *received, reads: *reads, sent: 0 })
        };
        world.socket_rates = routes.iter().map(rate).collect();
        world
    }

    pub fn world() -> Machine {
        receiving(&[(Some(0), 90 * MB, 9_000), (Some(1), 10 * MB, 1_000)])
    }

    fn it(world: Machine) -> Vec<Finding> {
        found(world, 70, ID)
    }

    #[test]
    fn fires() {
        let found = it(world());
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "haproxy runs on node 1, and CPUs of node 0 process 90.0 % of the 95.4 MiB/s that it receives."
        );
        assert!(!commands(&found[0]).is_empty() && !found[0].advice.undo.is_empty());
        assert_eq!(found[0].advice.check[0].metric, "net_far_pct");
    }

    #[test]
    fn not_little() {
        let few = it(receiving(&[(Some(0), 2 * MB, 19_000)]));
        let many = it(receiving(&[(Some(0), 2 * MB, 20_500)]));
        assert_eq!((few.len(), many.len()), (0, 1));
        assert_eq!(many[0].evidence[1].metric, "net_reads_per_s");
    }

    #[test]
    fn not_several_nodes() {
        let mut world = world();
        let actor = world.actors.remove(0);
        world.actors.push(actor.runs(&[(0, 30.0), (1, 60.0)]));
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_near() {
        assert!(it(receiving(&[(Some(0), 70 * MB, 700), (Some(1), 30 * MB, 300)])).is_empty());
    }

    #[test]
    fn packets_of_an_unknown_cpu_have_no_share() {
        assert!(it(receiving(&[(None, 90 * MB, 900)])).is_empty());
    }

    #[test]
    fn not_interrupts() {
        let mut world = world();
        let host = Arc::make_mut(&mut world.host);
        host.topology.nodes[1].devices.push(device("eth0", DeviceClass::Net, 1, &[0]));
        host.missing.insert("device_irqs_per_s".into(), Missing::NotCollected("not recorded".into()));
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world();
        Arc::make_mut(&mut world.host).isolated_cpus = (0..32).collect();
        assert!(it(world).is_empty());
    }

    #[test]
    fn a_kernel_without_the_tracepoint_makes_it_blind() {
        let mut world = world();
        let why = Missing::Unsupported("the kernel has no sock_recv_length tracepoint".into());
        for id in ["net_far_pct", "net_recv_bytes_per_s", "net_reads_per_s"] {
            Arc::make_mut(&mut world.host).missing.insert(id.into(), why.clone());
        }
        assert!(blind(world, 70, ID).unwrap().contains("sock_recv_length"));
    }
}
