//! Bytes that processes receive from and send to IP sockets (`sockets.bpf.c`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use libbpf_rs::Object;

use super::uses::{Sender, Uses};
use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::object;
use crate::collect::skel::sockets::{SocketsSkel, SocketsSkelBuilder};
use crate::host::btf::Feature;
use crate::model::facility::Facility;
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::model::sockets::{SocketRoute, SocketTraffic, SocketUse};
use crate::model::units::NodeId;
use crate::model::wire::{NO_NODE, SOCKET_USES_MAX, SocketKey, SocketMoved};
use crate::sys;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::SocketLength, Feature::CurrentTask],
    ..Probe::new("socket traffic by process", Facility::SocketTraffic, start)
};

struct SocketProbe {
    programs: Attached<SocketsSkel<'static>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    uses: Uses<SocketKey, (), SocketUse>,
    /// Traffic of the last sample.
    told: Arc<BTreeMap<ProcessId, Arc<SocketTraffic>>>,
}

impl Sender for SocketKey {
    type Sent = SocketMoved;
    const MOST: usize = SOCKET_USES_MAX;

    fn sender(&self) -> (u32, u64) {
        (self.pid, self.start)
    }
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let mut open = object::open("sockets", SocketsSkelBuilder::default())?;
    let cpu_topo = shared.maps()?.cpu_topo;
    open.maps.cpu_topo.reuse_fd(cpu_topo).context("sharing the table of CPU places with the BPF program")?;
    let skel = object::load("sockets", open)?;
    let programs = Attached::all(skel, "loaded, attached to sock_recv_length and sock_send_length")?;
    Ok(Box::new(SocketProbe { programs, state: RefCell::default() }))
}

impl Running for SocketProbe {
    fn object(&self) -> Option<&Object> {
        self.programs.object()
    }

    fn words(&self) -> String {
        self.programs.words()
    }

    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        let maps = &self.programs.skel.maps;
        let State { uses, told } = &mut *self.state.borrow_mut();
        uses.read(&maps.socket_uses, readings.mono_ns, "reading socket traffic", |_| ())
            .map_err(|error| Missing::Lost(format!("{error:#}")))?;
        *told = Arc::new(uses.by_sender(told, |key, ()| {
            let from = (key.from != NO_NODE).then_some(NodeId(key.from));
            ((key.pid, key.start), SocketRoute { from, to: NodeId(key.to) })
        }));
        readings.inputs.socket_traffic = Arc::clone(told);
        if let Some(bss) = maps.bss_data.as_deref() {
            readings
                .lost
                .insert("calls_on_sockets_of_uncounted_processes".into(), sys::read_variable(&bss.uses_full));
        }
        Ok(())
    }
}
