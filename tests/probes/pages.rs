//! Pages that tasks are given, and pages that are moved, are counted once each: beside the number of pages the test
//! touches, and beside /proc/vmstat.

use std::fs;
use std::ptr;

use anyhow::{Context, Result, ensure};

use crate::sample;
use numatop_ng::collect::probes::page_allocs::PageBudget;
use numatop_ng::metric::needs::Demand;
use numatop_ng::metric::pages::PAGES_MIGRATED;
use numatop_ng::metric::task::CPU_PCT;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::Counts;
use numatop_ng::model::sample::Missing;
use numatop_ng::model::sample::Sample;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::bounds::around;
use crate::until::until;

/// Pages that are touched: 64 MiB of 4 KiB.
const PAGES: usize = 16 * 1024;
/// The most that are touched to have something to move: 1 GiB.
const MOST: usize = 16 * PAGES;
/// Number of moved pages that is enough.
const ENOUGH: u64 = 500;
/// Writing here moves pages together to make room for large ones (Documentation/admin-guide/sysctl/vm.rst).
const COMPACT: &str = "/proc/sys/vm/compact_memory";

fn watch() -> Result<LiveSource> {
    watch_within(PageBudget::ALL)
}

fn watch_within(page_budget: PageBudget) -> Result<LiveSource> {
    LiveSource::start(LiveOptions { count_pages: true, page_budget, ..LiveOptions::default() })
}

fn own_pages(sample: &Sample) -> (u64, u64) {
    let own = sample.tasks.iter().filter(|task| task.pid == std::process::id());
    own.fold((0, 0), |(pages, crossed), task| {
        (pages + task.counts.pages.iter().sum::<u64>(), crossed + task.counts[Counter::CrossAllocs])
    })
}

/// Small pages of our own, touched once each, and unmapped at the end.
struct Touched {
    at: *mut libc::c_void,
    pages: usize,
    page: usize,
}

impl Touched {
    fn new(pages: usize) -> Result<Touched> {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let len = pages * page;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice, written within its length.
        let at = unsafe {
            let at = libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0);
            ensure!(at != libc::MAP_FAILED, "mapping {len} bytes: {}", std::io::Error::last_os_error());
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            for offset in (0..len).step_by(page) {
                at.cast::<u8>().add(offset).write_volatile(1);
            }
            at
        };
        Ok(Touched { at, pages, page })
    }

    /// Gives back every second page, so that compaction has something to move.
    fn thin_out(&self) {
        for at in (0..self.pages).step_by(2) {
            // SAFETY: a page of our mapping, which is not read.
            unsafe { libc::madvise(self.at.add(at * self.page), self.page, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, unmapped once.
        unsafe { libc::munmap(self.at, self.pages * self.page) };
    }
}

pub fn pages_that_are_touched_are_counted_on_their_node() -> Result<()> {
    let mut source = watch()?;
    let (before, _) = own_pages(&sample(&mut source)?);
    drop(Touched::new(PAGES)?);
    let (after, crossed) = own_pages(&sample(&mut source)?);

    let counted = after - before;
    println!("{PAGES} pages touched, {counted} counted, {crossed} of all on another node");
    ensure!(counted >= PAGES as u64, "{PAGES} pages were touched and {counted} counted");
    ensure!(counted <= PAGES as u64 * 101 / 100, "{PAGES} pages were touched and {counted} counted");
    let nodes = source.host().topology.nodes.len();
    ensure!(nodes > 1 || crossed == 0, "{crossed} pages came from another node than the only one");
    Ok(())
}

pub fn pages_beyond_the_budget_are_sampled_and_add_up() -> Result<()> {
    // A tenth to a hundredth of the rate that a CPU can touch. The first look learns the rate, and reports
    // this.
    let mut source = watch_within(PageBudget(10_000))?;
    sample(&mut source)?;
    until("a CPU allocates more than the budget", || {
        drop(Touched::new(PAGES)?);
        Ok(sample(&mut source)?.notes.iter().any(|note| note.contains("at random, is counted")))
    })?;
    let (before, _) = own_pages(&sample(&mut source)?);
    let rounds = 20;
    for _ in 0..rounds {
        drop(Touched::new(PAGES)?);
        sample(&mut source)?;
    }
    let (after, _) = own_pages(&sample(&mut source)?);
    let (touched, counted) = ((rounds * PAGES) as f64, (after - before) as f64);
    // Each interval is sampled by the rate of the previous one: one in 256 is for 2.5 million a second. Five
    // standard errors of a sum of chosen pages; one run in a million exceeds this.
    let allowed = 5.0 * (touched * 256.0).sqrt();
    println!("{touched} pages touched, {counted} counted, {allowed:.0} allowed");
    ensure!((counted - touched).abs() <= allowed, "{touched} pages were touched and {counted} counted");
    ensure!(counted != touched, "every allocation was counted: {counted}");
    Ok(())
}

/// Names of the programs that are loaded for this demand, and why pages on another node are not counted.
fn loaded_for(demand: Demand) -> Result<(Vec<String>, Option<Missing>)> {
    let mut source = LiveSource::start(LiveOptions { count_pages: true, demand, ..LiveOptions::default() })?;
    source.set_statistics(true)?;
    let statistics = source.statistics()?.context("statistics are on")?;
    let missing = source.host().missing.get(PAGES_MIGRATED.id).cloned();
    Ok((statistics.programs.into_keys().collect(), missing))
}

pub fn probes_that_no_column_asks_for_are_not_loaded() -> Result<()> {
    let (all, missing) = loaded_for(Demand::Everything)?;
    let (few, why) = loaded_for(Demand::of([&&CPU_PCT]))?;

    for name in ["on_page_alloc", "on_migrate_pages", "on_shrink"] {
        ensure!(all.iter().any(|loaded| loaded == name), "{name} is not loaded: {all:?}");
        ensure!(!few.iter().any(|loaded| loaded == name), "{name} is loaded: {few:?}");
    }
    ensure!(few.iter().any(|loaded| loaded == "on_sched_switch"), "{few:?}");
    ensure!(missing.is_none(), "moved pages are missing where all is asked for: {missing:?}");
    let why = why.context("moved pages are not missing")?.to_string();
    ensure!(why == "not collected: no visible column needs it", "{why}");
    Ok(())
}

fn moved_by_vmstat() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    Ok(line.context("/proc/vmstat has no pgmigrate_success")?.parse()?)
}

fn compact() -> Result<()> {
    fs::write(COMPACT, "1").with_context(|| format!("writing to {COMPACT}"))
}

pub fn moved_pages_are_those_of_vmstat() -> Result<()> {
    let mut source = watch()?;
    let truth = || Ok(vec![moved_by_vmstat()?]);
    let (first, begin) = around(truth, || sample(&mut source))?;
    let start = moved_by_vmstat()?;
    // The number of moved pages depends on free memory, and on the first large folio that does not fit: there
    // the kernel gives up. Each attempt uses more pages, until enough were moved. Every moved page is worth a
    // comparison.
    let mut pages = PAGES;
    while moved_by_vmstat()? - start < ENOUGH && pages <= MOST {
        let memory = Touched::new(pages)?;
        compact()?;
        memory.thin_out();
        compact()?;
        drop(memory);
        compact()?;
        pages *= 2;
    }
    let (last, end) = around(truth, || sample(&mut source))?;

    // A task that ended before the first sample is not in the last one.
    let moved = |pages: fn(&Counts) -> u64| {
        let before: u64 = first.tasks.iter().map(|task| pages(&task.counts)).sum();
        let after: u64 = last.tasks.iter().chain(&last.exited).map(|task| pages(&task.counts)).sum();
        after - before
    };
    for truth in begin.to(&end) {
        ensure!(truth.least > 0, "compaction moved nothing: there is nothing to compare");
        truth.hold("moved pages", moved(|counts| counts[Counter::MigratedPages]), 0.01, 0)?;
    }
    let (balanced, asked) =
        (moved(|counts| counts[Counter::BalancedPages]), moved(|counts| counts[Counter::AskedPages]));
    ensure!(
        balanced + asked == 0,
        "of compaction {balanced} pages count for balancing, {asked} as asked for"
    );
    Ok(())
}
