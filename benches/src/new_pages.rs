//! The cost of a page allocation while the tool counts the nodes of new pages: ns in its program, and time to touch a page.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use numatop_ng::collect::probes::page_allocs::PageBudget;
use numatop_ng::host::clock::thread_time;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::Plan;
use crate::empty::{Does, Program};
use crate::numbers::{Spread, median};
use crate::process::pin_thread;
use crate::progs::{self, Counted, RunTime};
use crate::report::{Cell, Report, Table};

/// Pages that one pass touches: 64 MiB.
const PAGES: usize = 16_384;
const PAGE: usize = 4_096;

/// ns above the empty program on a CPU that allocates beyond the budget.
const LIMIT_NS: f64 = 8.0;

/// The program at the allocation of pages.
#[derive(Clone, Copy, PartialEq)]
enum Watcher {
    Nothing,
    Empty,
    /// numatop-ng, which counts this many allocations of each CPU a second one by one.
    Ours(PageBudget),
}

const WATCHERS: [(Watcher, &str); 4] = [
    (Watcher::Nothing, "nothing"),
    (Watcher::Empty, "empty program"),
    (Watcher::Ours(PageBudget::ALL), "numatop-ng, each allocation counted"),
    // By default it is a hundred thousand, which a busy machine does not let one thread exceed.
    (Watcher::Ours(PageBudget(1_000)), "numatop-ng, a thousand of a second counted, the rest left out"),
];

/// A watcher at work; detached when this goes away.
enum Watching {
    Nothing,
    Empty { _program: Program },
    Ours(Box<LiveSource>),
}

impl Watcher {
    fn start(self) -> Result<Watching> {
        match self {
            Watcher::Nothing => Ok(Watching::Nothing),
            Watcher::Empty => Ok(Watching::Empty { _program: Program::attach(Does::NothingAtPages)? }),
            Watcher::Ours(page_budget) => {
                let options = LiveOptions { count_pages: true, page_budget, ..LiveOptions::default() };
                Ok(Watching::Ours(Box::new(LiveSource::start(options)?)))
            }
        }
    }
}

impl Watching {
    fn refresh(&mut self) -> Result<()> {
        if let Watching::Ours(source) = self {
            source.next()?.context("a live source does not end")?;
        }
        Ok(())
    }
}

/// CPU ns to touch a new page of 4 KiB, over one pass.
fn touch() -> Result<f64> {
    let len = PAGES * PAGE;
    // SAFETY: a new mapping at an address of the kernel's choice, written within its length and unmapped once.
    unsafe {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0);
        ensure!(at != libc::MAP_FAILED, "mapping {len} bytes: {}", std::io::Error::last_os_error());
        libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
        let began = thread_time();
        for offset in (0..len).step_by(PAGE) {
            at.cast::<u8>().add(offset).write_volatile(1);
        }
        let took = thread_time() - began;
        libc::munmap(at, len);
        Ok(took.as_nanos() as f64 / PAGES as f64)
    }
}

/// Passes on the first CPU while the tool refreshes on another: ns for each page, the middle one.
fn touched(watching: &mut Watching, passes: usize) -> Result<f64> {
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let passes =
                pin_thread(0).and_then(|()| (0..passes).map(|_| touch()).collect::<Result<Vec<f64>>>());
            let _ = done.send(passes);
        });
        loop {
            match finished.recv_timeout(Duration::from_millis(100)) {
                Ok(passes) => return Ok(median(&passes?)),
                Err(mpsc::RecvTimeoutError::Timeout) => watching.refresh()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    bail!("the thread that touches pages has panicked")
                }
            }
        }
    })
}

/// ns for each run of the program at page allocations between two readings.
fn per_run(before: &BTreeMap<String, Counted>, after: &BTreeMap<String, Counted>) -> Result<f64> {
    let is_ours = |name: &str| name.starts_with("on_page_alloc#") || name.starts_with("mm_page_alloc_e");
    let (name, now) =
        after.iter().find(|(name, _)| is_ours(name)).context("no program at page allocations")?;
    let old = before.get(name).copied().unwrap_or_default();
    ensure!(now.runs > old.runs, "{name} did not run");
    Ok((now.ns - old.ns) as f64 / (now.runs - old.runs) as f64)
}

/// # Errors
/// A program is not permitted, or memory is short.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Hot path: what a page allocation costs");
    let (rounds, passes) = if plan.quick { (3, 10) } else { (9, 30) };
    let mut in_program: Vec<Vec<f64>> = vec![Vec::new(); WATCHERS.len()];
    let mut to_touch: Vec<Vec<f64>> = vec![Vec::new(); WATCHERS.len()];
    pin_thread(1)?;
    for round in 0..rounds {
        for turn in 0..WATCHERS.len() {
            // The order is another one in each round: a machine that gets slower would be in the difference otherwise.
            let at = (round + turn) % WATCHERS.len();
            let mut watching = WATCHERS[at].0.start()?;
            watching.refresh()?;
            // The rate by which the tool decides.
            touched(&mut watching, passes)?;
            to_touch[at].push(touched(&mut watching, passes)?);
            if WATCHERS[at].0 != Watcher::Nothing {
                let _measured = RunTime::measure()?;
                let before = progs::of_process(std::process::id())?;
                touched(&mut watching, passes)?;
                in_program[at].push(per_run(&before, &progs::of_process(std::process::id())?)?);
            }
        }
    }
    let less =
        |of: &[f64], base: &[f64]| -> Vec<f64> { of.iter().zip(base).map(|(of, base)| of - base).collect() };
    let mut table = Table::new(
        format!(
            "ns, median (quartiles) of {rounds} rounds of {passes} passes over {PAGES} new pages of 4 KiB on CPU 0, in an order that \
             changes with each; numatop-ng on CPU 1, ten refreshes a second. *Program* is by BPF run-time statistics, over all \
             allocations of the machine; *page* is CPU time of the thread that touches, without statistics. Differences are within a round."
        ),
        &["watcher", "program", "above empty", "page", "more than without"],
    );
    for (at, (_, name)) in WATCHERS.iter().enumerate() {
        let spread = |values: &[f64], decimals| Cell::spread(Spread::of(values), decimals);
        let measured = !in_program[at].is_empty();
        table.rows.push(vec![
            Cell::text(*name),
            if measured { spread(&in_program[at], 1) } else { Cell::Nothing },
            if at > 1 { spread(&less(&in_program[at], &in_program[1]), 1) } else { Cell::Nothing },
            spread(&to_touch[at], 0),
            if at > 0 { spread(&less(&to_touch[at], &to_touch[0]), 1) } else { Cell::Nothing },
        ]);
    }
    report.tables.push(table);
    let above = median(&less(&in_program[3], &in_program[1]));
    report.at_most("ns above the empty program, beyond the budget", LIMIT_NS, above, 1);
    let above = median(&less(&in_program[2], &in_program[1]));
    report.at_most("ns above the empty program, each allocation counted", LIMIT_NS, above, 1);
    Ok(report)
}
