//! Contended lines from samples that carry addresses: page faults of two functions at one line. The faults,
//! their addresses and code are real. The transfer from another core is injected, because no event here
//! reports it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::program;
use numatop_ng::access::lines::{LineSample, LineWindow, place};
use numatop_ng::access::window::{AccessPlace as PagePlace, Places};
use numatop_ng::collect::access::AccessProbe;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::proc_details;
use numatop_ng::hot::frame_names::KnownNames;
use numatop_ng::model::access::AccessSource;
use numatop_ng::model::access::lines::Transfer;
use numatop_ng::model::event::Event;
use numatop_ng::model::stacks::CodePlace;
use numatop_ng::model::units::CpuId;
use numatop_ng::pmu::memory_event::MemoryEvent;
use numatop_ng::symbolize::Namer;

const PAGE: usize = 4096;
/// Faults of each function.
const FAULTS: usize = 4000;
/// Samples a second: more than there are faults.
const HZ: u32 = 20_000;
/// Samples of each function that a comparison needs.
const SAMPLES: u64 = 20;
/// The line in its page, and the bytes in it that the two functions access.
const LINE: usize = 5 * 64;
const LOADED: usize = 8;
const STORED: usize = 40;

/// Loads a byte of a page that is not there.
#[inline(never)]
fn load_of_a_contended_line(at: *mut u8) -> u8 {
    // SAFETY: inside of the mapping.
    unsafe { *at.add(LINE + LOADED) }
}

/// Stores to another byte of the same line.
#[inline(never)]
fn store_to_a_contended_line(at: *mut u8) {
    // SAFETY: inside of the mapping.
    unsafe { *at.add(LINE + STORED) = 1 }
}

pub fn both_sides_of_a_line_have_their_function() -> Result<()> {
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    let mut probe = AccessProbe::load(&store, HZ, 1)?;
    let topology = numatop_ng::host::topology::read("/".as_ref())?;
    let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
    let event = Event::named("minor-faults")?;
    let event = MemoryEvent { source: AccessSource::Pebs, event, leader: None, precise: 0, threshold: None };
    probe.follow_events(&online, &[event]).map_err(|why| anyhow::anyhow!("{why}"))?;
    // SAFETY: a new mapping of one page.
    let at = unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>()
    };
    for _ in 0..FAULTS {
        // SAFETY: the page of the mapping, which holds nothing that is needed.
        let forget = || unsafe { libc::madvise(at.cast(), PAGE, libc::MADV_DONTNEED) };
        forget();
        std::hint::black_box(load_of_a_contended_line(at));
        forget();
        store_to_a_contended_line(at);
    }
    let line = at as u64 + LINE as u64;
    let me = (std::process::id(), proc_details::start_ns(std::process::id()).context("our own start")?);
    let (mut samples, mut loads, mut stores) = (Vec::new(), 0, 0);
    for sample in probe.take()? {
        let Some(event) = sample.event.filter(|_| sample.process.0 == me.0) else { continue };
        let Some(address) = event.address.filter(|address| (line..line + 64).contains(address)) else {
            continue;
        };
        ensure!(event.code != 0, "a fault of a program without the address of its code");
        let offset = (address - line) as usize;
        ensure!(offset == LOADED || offset == STORED, "byte {offset} was not accessed");
        let is_load = offset == LOADED;
        (loads, stores) = (loads + u64::from(is_load), stores + u64::from(!is_load));
        // Injected: the report of a PMU for a load whose line another core held.
        let transfer = is_load.then_some(Transfer::Far);
        let cpu_node = topology.cpu(sample.cpu).and_then(|cpu| cpu.node);
        samples.push(LineSample { address, code: event.code, cpu_node, page_node: None, transfer });
    }
    println!("{loads} faults of loads, {stores} of stores; {:?} lost", probe.lost());
    ensure!(loads >= SAMPLES && stores >= SAMPLES, "too few of them");
    let page = at as u64 / PAGE as u64;
    let places = Places {
        mappings: vec![(at as u64, PAGE as u64, "a page of this test".into())],
        pages: [(page, PagePlace { mapping: 0, node: None })].into(),
        no_nodes: None,
    };
    let mut window = LineWindow::default();
    window.add(1, [(me, place(samples, &places, PAGE.trailing_zeros()))].into());
    let mut namer = Namer::start(PathBuf::from(program::path())).context("naming functions")?;
    namer.ask(window.code().map(|(process, code)| (CodePlace::Address(process, code), process)));
    let mut names = KnownNames::default();
    names.extend(namer.answers(Duration::from_secs(60)));
    let name = |process, code| names.get(&CodePlace::Address(process, code)).cloned();
    let found = window.sum(name).remove(&me).context("no line is contended")?;
    let [line] = &found.listed[..] else { anyhow::bail!("{} lines", found.listed.len()) };
    ensure!((line.loads, line.far, line.stores) == (loads, loads, stores), "{line:?}");
    ensure!(
        line.mapping == "a page of this test" && line.offsets() == [LOADED as u8, STORED as u8],
        "{line:?}"
    );
    for side in &line.sides {
        let expected = if side.store { "store_to_a_contended_line" } else { "load_of_a_contended_line" };
        let function = side.function.as_ref().map(|function| function.to_string()).unwrap_or_default();
        ensure!(function.contains(expected), "{function} in place of {expected}");
    }
    Ok(())
}
