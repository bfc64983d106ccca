//! Samples that carry addresses, as those of a PMU do: page faults, whose addresses the kernel gives in the same way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use numatop_ng::access::window::{AccessPlace, EventAt, Places, Tally};
use numatop_ng::collect::access::AccessProbe;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::host::page_nodes::MemoryBlocks;
use numatop_ng::model::access::AccessSource;
use numatop_ng::model::access::answers::AccessClass;
use numatop_ng::model::event::Event;
use numatop_ng::model::units::{CpuId, NodeId};
use numatop_ng::pmu::data_src;
use numatop_ng::pmu::memory_event::MemoryEvent;
use numatop_ng::sys::nodes_of_pages;

/// Bytes that are touched for the first time: a fault for each page.
const REGION: usize = 128 << 20;
const PAGE: usize = 4096;
/// Samples a second: more than there are faults.
const HZ: u32 = 20_000;
/// Samples that a comparison needs.
const SAMPLES: usize = 200;

/// Faults that needed no disk, after which the page is present (`PERF_COUNT_SW_PAGE_FAULTS_MIN`).
fn page_faults() -> Result<MemoryEvent> {
    let event = Event::named("minor-faults")?;
    Ok(MemoryEvent { source: AccessSource::Pebs, event, leader: None, precise: 0, threshold: None })
}

/// Memory with a separate page for each 4096 bytes, none of them touched.
fn untouched() -> *mut u8 {
    // SAFETY: a new mapping.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), REGION, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::madvise(at, REGION, libc::MADV_NOHUGEPAGE);
        at.cast()
    }
}

/// The physical address of a page of this process, from /proc/self/pagemap (bits 0 to 54 are the number of the frame).
fn physical(pagemap: &File, address: u64) -> Result<u64> {
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, address / PAGE as u64 * 8).context("reading the page map")?;
    let frame = u64::from_ne_bytes(entry) & ((1 << 55) - 1);
    Ok(frame * PAGE as u64 + address % PAGE as u64)
}

pub fn addresses_of_page_faults_are_on_the_node_of_their_page() -> Result<()> {
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    let mut probe = AccessProbe::load(&store, HZ, 1)?;
    let topology = numatop_ng::host::topology::read("/".as_ref())?;
    let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
    probe.follow_events(&online, &[page_faults()?]).map_err(|why| anyhow::anyhow!("{why}"))?;
    let start = untouched();
    for at in (0..REGION).step_by(PAGE) {
        // SAFETY: inside of the mapping.
        unsafe { start.add(at).write_volatile(1) };
    }
    let region = start as u64..start as u64 + REGION as u64;
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let blocks = MemoryBlocks::read(Path::new("/"), PAGE as u64);
    let pagemap = File::open("/proc/self/pagemap")?;
    let (mut compared, mut without, mut tally) = (0, 0, Tally::default());
    for sample in probe.take()?.iter().filter(|sample| sample.tid == tid) {
        let event = sample.event.as_ref().context("a sample of the clock, which does not run")?;
        ensure!(sample.user.is_none(), "it has registers");
        let Some(address) = event.address.filter(|address| region.contains(address)) else { continue };
        ensure!(event.source.map(data_src::class).is_none_or(|class| class == AccessClass::NoAccess));
        let Some(found) = event.physical else {
            // The kernel prepares the whole sample from 6.12 at the latest; 6.1 does not.
            without += 1;
            continue;
        };
        ensure!(found == physical(&pagemap, address)?, "another page than that of the page map");
        let page_node = blocks.node(found);
        let moved = nodes_of_pages(std::process::id(), &[address])?[0];
        ensure!(page_node == u32::try_from(moved).ok().map(NodeId), "{page_node:?}, move_pages says {moved}");
        compared += 1;
        let cpu_node = topology.cpu(sample.cpu).and_then(|cpu| cpu.node);
        let class = AccessClass::Dram { remote: false };
        tally.add_event(EventAt {
            page: Some(address / PAGE as u64),
            page_node,
            cpu_node,
            class,
            cycles: Some(300),
        });
    }
    println!("{compared} faults with a physical address, {without} without; {:?} lost", probe.lost());
    if without > 0 && compared == 0 {
        println!("this kernel gives no physical address to programs: nodes come from move_pages");
        return Ok(());
    }
    ensure!(compared >= SAMPLES, "{compared} samples");
    // The way on: all of them are in one mapping, by the nodes of their addresses.
    let pages = tally.pages();
    let places = Places {
        mappings: vec![(region.start, REGION as u64, String::new())],
        pages: pages.iter().map(|page| (*page, AccessPlace { mapping: 0, node: None })).collect(),
        no_nodes: None,
    };
    let found = tally.place(&places);
    ensure!(found.mappings[0].answers.memory().1 == compared as u64, "{:?}", found.mappings[0].answers);
    ensure!(
        found.answers.local.latencies.loads() + found.answers.remote.latencies.loads() == compared as u64
    );
    if topology.nodes.len() == 1 {
        ensure!(found.answers.memory().0 == 0, "remote on the only node");
    }
    Ok(())
}
