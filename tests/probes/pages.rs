//! Are pages that tasks are given, and pages that are moved, counted once each? Beside the number of pages the test
//! touches, and beside /proc/vmstat.

use std::fs;
use std::ptr;

use anyhow::{Context, Result, ensure};

use numatop_ng::sample::{Counts, Sample};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

/// Pages that are touched: 64 MiB of 4 KiB.
const PAGES: usize = 16 * 1024;
/// Writing here moves pages together to make room for large ones (Documentation/admin-guide/sysctl/vm.rst).
const COMPACT: &str = "/proc/sys/vm/compact_memory";

fn watch() -> Result<LiveSource> {
    LiveSource::start(LiveOptions { count_pages: true, ..LiveOptions::default() })
}

fn sample(source: &mut LiveSource) -> Result<Sample> {
    source.next()?.context("a live source does not end")
}

/// What all tasks did together, those that ended included.
fn all(sample: &Sample) -> Counts {
    let mut sum = Counts::default();
    sample.tasks.iter().chain(&sample.exited).for_each(|task| sum += &task.counts);
    sum
}

fn own_pages(sample: &Sample) -> (u64, u64) {
    let own = sample.tasks.iter().filter(|task| task.pid == std::process::id());
    own.fold((0, 0), |(pages, crossed), task| {
        (pages + task.counts.pages.iter().sum::<u64>(), crossed + task.counts.cross_allocs)
    })
}

/// Small pages of our own, touched once each, and unmapped at the end.
struct Touched {
    at: *mut libc::c_void,
    page: usize,
}

impl Touched {
    fn new() -> Result<Touched> {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let len = PAGES * page;
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
        Ok(Touched { at, page })
    }

    /// Gives back every second page, so that there is something to move together.
    fn thin_out(&self) {
        for at in (0..PAGES).step_by(2) {
            // SAFETY: a page of our mapping, which nobody reads.
            unsafe { libc::madvise(self.at.add(at * self.page), self.page, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, unmapped once.
        unsafe { libc::munmap(self.at, PAGES * self.page) };
    }
}

pub fn pages_that_are_touched_are_counted_on_their_node() -> Result<()> {
    let mut source = watch()?;
    let (before, _) = own_pages(&sample(&mut source)?);
    drop(Touched::new()?);
    let (after, crossed) = own_pages(&sample(&mut source)?);

    let counted = after - before;
    println!("{PAGES} pages touched, {counted} counted, {crossed} of all on another node");
    ensure!(counted >= PAGES as u64, "{PAGES} pages were touched and {counted} counted");
    ensure!(counted <= PAGES as u64 * 101 / 100, "{PAGES} pages were touched and {counted} counted");
    let nodes = source.host().topology.nodes.len();
    ensure!(nodes > 1 || crossed == 0, "{crossed} pages came from another node than the only one");
    Ok(())
}

fn moved_by_vmstat() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    Ok(line.context("/proc/vmstat has no pgmigrate_success")?.parse()?)
}

pub fn moved_pages_are_those_of_vmstat() -> Result<()> {
    let memory = Touched::new()?;
    memory.thin_out();
    let mut source = watch()?;
    let (first, before) = (all(&sample(&mut source)?), moved_by_vmstat()?);
    fs::write(COMPACT, "1").with_context(|| format!("writing to {COMPACT}"))?;
    let (truth, last) = (moved_by_vmstat()? - before, all(&sample(&mut source)?));

    let counted = last.migrated_pages - first.migrated_pages;
    println!("{counted} moved pages counted, {truth} by /proc/vmstat");
    ensure!(truth > 0, "compaction moved nothing: there is nothing to compare");
    ensure!(counted.abs_diff(truth) <= truth / 100, "counted {counted} moved pages, the kernel says {truth}");
    let (balanced, asked) =
        (last.balanced_pages - first.balanced_pages, last.asked_pages - first.asked_pages);
    ensure!(
        balanced + asked == 0,
        "of compaction {balanced} pages count for balancing, {asked} as asked for"
    );
    Ok(())
}
