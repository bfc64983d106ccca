//! Memory policies of mappings (`policies.bpf.c`): an iterator for each process that is looked at. It also answers on which nodes
//! pages of shared memory are.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;

use super::{Otherwise, Probe, Running, Shared};
use crate::collect::placement::draw;
use crate::collect::placement::objects::{Drawn, Wanted};
use crate::collect::skel::policies::{PoliciesSkel, PoliciesSkelBuilder, types};
use crate::collect::{machine, object};
use crate::host::page_nodes::PageFacts;
use crate::host::types::Types;
use crate::model::facility::Facility;
use crate::sys::{self, read_variable};

pub(super) static PROBE: Probe = Probe {
    otherwise: Otherwise::From("/proc/PID/numa_maps, only where reading it takes at most half a second"),
    several_nodes: true,
    ..Probe::new("memory policies of mappings", Facility::MappingPolicies, start)
};

struct PolicyProbe {
    skel: PoliciesSkel<'static>,
    /// Why nodes of pages are not known.
    no_nodes: Option<String>,
    /// Objects that are asked for.
    wanted: usize,
}

/// A page of an answer (`NT_DRAWN_HOLE`, `NT_DRAWN_MEANT`).
const HOLE: u16 = 0xffff;
const MEANT: u16 = 0x8000;

/// `enum nt_draw_state`.
const NONE: u32 = 0;
const WANTED: u32 = 1;
const DONE: u32 = 3;

const _: () = assert!(size_of::<types::nt_draw>() == 24 + 10 * draw::PAGES);

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    // Without this member an address space can be freed while it is iterated over: fixed in 6.1 and brought back to it.
    let is_safe = shared.types()?.has_member("bpf_iter_seq_task_vma_info", "mm");
    ensure!(is_safe, "this kernel's iterator over mappings does not pin the address space");
    let mut open = object::open("policies", PoliciesSkelBuilder::default())?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("policies.bpf.o has no .rodata")?;
    rodata.page_size = machine::page_size();
    let shift = shared.types().and_then(node_shift);
    rodata.node_shift = *shift.as_ref().unwrap_or(&u64::BITS);
    let no_nodes = shift.err().map(|error| format!("{error:#}"));
    let probe = PolicyProbe { skel: object::load("policies", open)?, no_nodes, wanted: 0 };
    // Some hosts load it, and let nothing be attached.
    probe.rows_of(std::process::id()).context("attaching the iterator over the mappings of a process")?;
    Ok(Box::new(probe))
}

/// The lowest bit of the node in the flags of a page of the page cache.
fn node_shift(types: &Types) -> Result<u32> {
    for (name, member) in [("address_space", "i_pages"), ("xarray", "xa_head"), ("xa_node", "slots")] {
        ensure!(types.has_member(name, member), "struct {name} of this kernel has no {member}");
    }
    PageFacts::of(types)?.node_shift()
}

impl PolicyProbe {
    /// The link lives as long as its iterator.
    fn rows_of(&self, tid: u32) -> io::Result<OwnedFd> {
        let link = sys::attach_to_thread(&self.skel.progs.on_mapping, tid)?;
        sys::iterator(&link)
    }
}

impl Running for PolicyProbe {
    fn object(&self) -> Option<&Object> {
        Some(self.skel.object())
    }

    fn words(&self) -> String {
        let nodes = self.no_nodes.as_ref();
        let nodes = nodes.map(|why| format!("; nodes of shared memory come only from page tables: {why}"));
        format!("loaded as an iterator over mappings{}", nodes.unwrap_or_default())
    }

    fn mappings_of(&self, tid: u32) -> Option<io::Result<OwnedFd>> {
        Some(self.rows_of(tid))
    }

    fn draw(&mut self, wanted: &[Wanted]) {
        let Some(bss) = self.skel.maps.bss_data.as_deref_mut() else { return };
        bss.draws.iter_mut().for_each(|draw| draw.state = NONE);
        self.wanted = wanted.len();
        for (draw, Wanted { object, round }) in bss.draws.iter_mut().zip(wanted) {
            draw.object = u64::from(object.device) << 32 | u64::from(object.generation);
            draw.inode = object.inode;
            draw.nr = round.pages.len() as u32;
            draw.pages.iter_mut().zip(&round.pages).for_each(|(to, page)| *to = *page);
            draw.state = WANTED;
        }
    }

    fn drawn(&self) -> Option<Vec<Option<Vec<Drawn>>>> {
        if self.no_nodes.is_some() {
            return None;
        }
        let bss = self.skel.maps.bss_data.as_deref()?;
        let pages = |draw: &types::nt_draw| {
            (read_variable(&draw.state) == DONE).then(|| {
                let nodes = read_variable(&draw.nodes);
                nodes.into_iter().take(draw.nr as usize).map(page).collect()
            })
        };
        Some(bss.draws.iter().take(self.wanted).map(pages).collect())
    }
}

fn page(answer: u16) -> Drawn {
    (answer != HOLE).then_some((u32::from(answer & !MEANT), answer & MEANT != 0))
}
