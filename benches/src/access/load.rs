//! A program that accesses two regions of its memory in a known way, and reports how often and for how long.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use numatop_ng::collect::placement::draw::Random;
use numatop_ng::host::clock::thread_time;

use super::case::{Backing, Case, Kind, Pages};
use crate::process::Process;
use crate::work;

/// Bytes of a region, which is much more than a cache holds.
const REGION: usize = 256 << 20;
const WORDS: usize = REGION / 8;
const PAGE: usize = 4096;
const PAGES: usize = REGION / PAGE;
/// Words of a cache line.
const LINE: usize = 8;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Accesses of one phase, or between two looks at the clock.
const PHASE: usize = 20_000;
/// Entries of a table of pages, each drawn by the law of the program.
const TABLE: usize = 1 << 20;

/// Such a program, from the command line.
#[derive(Args, Clone, Debug)]
pub struct Load {
    #[arg(long, value_enum)]
    kind: Kind,
    #[arg(long)]
    threads: usize,
    #[arg(long, value_enum)]
    pages: Pages,
    #[arg(long, value_enum)]
    backing: Backing,
    #[arg(long)]
    tenths: u64,
    /// Access one region for a phase, then one for another, and time each.
    #[arg(long)]
    phases: bool,
}

/// Sums of a program since it began: time in ns and number of accesses by region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth {
    pub times: [f64; 2],
    pub counts: [f64; 2],
}

impl Truth {
    /// The part that came after `before`.
    pub fn since(&self, before: &Truth) -> Truth {
        let less = |now: [f64; 2], then: [f64; 2]| [now[0] - then[0], now[1] - then[1]];
        Truth { times: less(self.times, before.times), counts: less(self.counts, before.counts) }
    }
}

/// A program that runs.
pub struct Running {
    process: Process,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Addresses of the two regions.
    pub regions: [Range<u64>; 2],
}

impl Running {
    /// Starts it and waits until its memory is allocated.
    ///
    /// # Errors
    /// It did not start.
    pub fn start(case: &Case, phases: bool) -> Result<Running> {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_string()).unwrap_or_default()
        };
        let kind = name(&|| case.kind.to_possible_value());
        let pages = name(&|| case.pages.to_possible_value());
        let backing = name(&|| case.backing.to_possible_value());
        let (threads, tenths) = (case.threads.to_string(), case.tenths.to_string());
        let mut words = vec!["access", "--kind", &kind, "--threads", &threads, "--pages", &pages];
        words.extend(["--backing", &backing, "--tenths", &tenths]);
        words.extend(phases.then_some("--phases"));
        let mut command = work::command(&words)?;
        let mut process = Process::start_with_input(command.stdout(Stdio::piped()))?;
        let child = process.child();
        let questions = child.stdin.take().context("a pipe was asked for")?;
        let mut answers = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
        let starts: Vec<u64> = numbers(&mut answers)?;
        let region = |at: usize| {
            let start = *starts.get(at).context("an address")?;
            Ok::<_, anyhow::Error>(start..start + REGION as u64)
        };
        Ok(Running { process, questions, answers, regions: [region(0)?, region(1)?] })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its sums up to now, within a phase of each thread.
    ///
    /// # Errors
    /// It has ended.
    pub fn truth(&mut self) -> Result<Truth> {
        self.questions.write_all(b"\n")?;
        let sums: Vec<u64> = numbers(&mut self.answers)?;
        ensure!(sums.len() == 4, "{} sums", sums.len());
        let sum = |at: usize| sums[at] as f64;
        Ok(Truth { times: [sum(0), sum(1)], counts: [sum(2), sum(3)] })
    }
}

fn numbers(from: &mut impl BufRead) -> Result<Vec<u64>> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    ensure!(!line.is_empty(), "the program has ended");
    line.split_whitespace().map(|word| word.parse().context("a number")).collect()
}

/// Memory of a region, and tables of pages in it or in both.
struct World {
    bases: [usize; 2],
    /// Pages by the law of the program: of the first region, of the second, of both. Empty where each word is as likely.
    tables: [Vec<u32>; 3],
}

/// Time in ns, and accesses, by region.
type Sums = [AtomicU64; 4];

impl Load {
    /// Runs until its standard input is closed.
    ///
    /// # Errors
    /// No memory is available.
    pub fn run(self) -> Result<()> {
        let huge = |first: bool| match self.pages {
            Pages::Small => false,
            Pages::Huge => true,
            Pages::Both => !first,
        };
        let bases = [region(self.backing, huge(true))?, region(self.backing, huge(false))?];
        if self.kind == Kind::Lists {
            bases.iter().for_each(|base| link(*base));
        }
        let world = Arc::new(World { bases, tables: tables(self.kind) });
        let sums: Arc<Vec<Sums>> = Arc::new((0..self.threads).map(|_| Sums::default()).collect());
        for at in 0..self.threads {
            let (load, world, sums) = (self.clone(), Arc::clone(&world), Arc::clone(&sums));
            thread::spawn(move || load.work(&world, &sums[at], at as u64));
        }
        println!("{} {}", bases[0], bases[1]);
        for line in std::io::stdin().lines() {
            line?;
            let sum = |of: usize| sums.iter().map(|sums| sums[of].load(Ordering::Relaxed)).sum::<u64>();
            println!("{} {} {} {}", sum(0), sum(1), sum(2), sum(3));
        }
        Ok(())
    }

    fn work(&self, world: &World, sums: &Sums, seed: u64) {
        let mut state = Random(seed + 1).number() | 1;
        let mut at = [0; 2];
        loop {
            let began = thread_time();
            let (second, counts) = match self.phases {
                true => {
                    // At random: an order that repeats would do so in step with the clock.
                    let second = usize::from((state >> 32) % 10 >= self.tenths);
                    (state, at[second]) = phase(self.kind, world, second, state, at[second]);
                    let mut counts = [0; 2];
                    counts[second] = PHASE as u64;
                    (second, counts)
                }
                false => {
                    let first;
                    (state, first) = mixed(self.kind, world, self.tenths, state);
                    (0, [first, PHASE as u64 - first])
                }
            };
            let took = thread_time().saturating_sub(began).as_nanos() as u64;
            sums[second].fetch_add(took, Ordering::Relaxed);
            sums[2].fetch_add(counts[0], Ordering::Relaxed);
            sums[3].fetch_add(counts[1], Ordering::Relaxed);
        }
    }
}

/// A region with every page touched.
fn region(backing: Backing, huge: bool) -> Result<usize> {
    let (flags, file) = match backing {
        Backing::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None),
        Backing::Shared => {
            // SAFETY: a name that ends with NUL, and no flags; the descriptor is new and owned by nothing else.
            let file = unsafe {
                let fd = libc::memfd_create(c"bench".as_ptr(), 0);
                ensure!(fd >= 0, "making shared memory: {}", std::io::Error::last_os_error());
                File::from_raw_fd(fd)
            };
            (libc::MAP_SHARED, Some(file))
        }
        Backing::File => {
            let path = std::env::temp_dir().join(format!("numatop-bench-{}", std::process::id()));
            let mut options = File::options();
            let file = options.read(true).write(true).create_new(true).open(&path);
            let file = file.with_context(|| format!("making {}", path.display()))?;
            std::fs::remove_file(&path)?;
            (libc::MAP_SHARED, Some(file))
        }
    };
    // Room to begin at a huge page.
    let bytes = REGION + 2 * HUGE;
    if let Some(file) = &file {
        file.set_len(bytes as u64)?;
    }
    let fd = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping, written within its length.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), bytes, rights, flags, fd, 0);
        ensure!(at != libc::MAP_FAILED, "mapping a region: {}", std::io::Error::last_os_error());
        let at = (at as usize + HUGE) & !(HUGE - 1);
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        libc::madvise(at as *mut libc::c_void, REGION, advice);
        std::ptr::write_bytes(at as *mut u8, 0, REGION);
        Ok(at)
    }
}

/// Makes one list of all cache lines of a region, in an order that no prefetcher guesses (Sattolo).
fn link(base: usize) {
    let lines = WORDS / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = Random(base as u64);
    for at in (1..lines).rev() {
        order.swap(at, random.below(at as u64) as usize);
    }
    for (at, to) in order.into_iter().enumerate() {
        // SAFETY: both are lines of the region.
        unsafe { word(base, at * LINE).write(u64::from(to) * LINE as u64) };
    }
}

/// A word of a region.
fn word(base: usize, at: usize) -> *mut u64 {
    (base as *mut u64).wrapping_add(at)
}

/// Draws pages by the law of a kind.
fn tables(kind: Kind) -> [Vec<u32>; 3] {
    let mut random = Random(42);
    let weights: Vec<f64> = match (kind.zipf(), kind.hot()) {
        (Some(exponent), _) => {
            let mut weights: Vec<f64> = (1..=2 * PAGES).map(|rank| (rank as f64).powf(-exponent)).collect();
            for at in (1..weights.len()).rev() {
                weights.swap(at, random.below(at as u64 + 1) as usize);
            }
            weights
        }
        (_, Some(hot)) => {
            let hot = (hot * 2.0 * PAGES as f64) as usize;
            let all = 2 * PAGES;
            (0..all)
                .map(|page| 0.05 / all as f64 + if page < hot { 0.95 / hot as f64 } else { 0.0 })
                .collect()
        }
        _ => return [Vec::new(), Vec::new(), Vec::new()],
    };
    let mut draw = |from: usize, to: usize| {
        let mut sum = 0.0;
        let sums: Vec<f64> = weights[from..to]
            .iter()
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        let mut page = |_| {
            let drawn = random.number() as f64 / u64::MAX as f64 * sum;
            (from + sums.partition_point(|sum| *sum < drawn).min(to - from - 1)) as u32
        };
        (0..TABLE).map(&mut page).collect()
    };
    [draw(0, PAGES), draw(PAGES, 2 * PAGES), draw(0, 2 * PAGES)]
}

/// The next random number (xorshift), which instructions without a multiplication make.
#[inline(always)]
fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// Loads a word. Compilers often load into the register that the address came from, which is then gone: here it stays.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load(place: *mut u64) -> u64 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        std::arch::asm!(
            "mov {value}, [{place}]",
            value = out(reg) value,
            place = in(reg) place,
            options(nostack, preserves_flags, readonly)
        );
    }
    value
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn load(place: *mut u64) -> u64 {
    // SAFETY: the caller's.
    unsafe { place.read_volatile() }
}

/// One access of a kind to a word, which gives the state after it.
#[inline(always)]
fn access(kind: Kind, place: *mut u64, state: u64) -> u64 {
    // SAFETY: callers give words of a region.
    unsafe {
        match kind {
            // The words are zero, so that the next address waits for this one and is random all the same.
            Kind::Dependent => state ^ load(place),
            Kind::Stores => {
                place.write_volatile(state);
                state
            }
            Kind::ReadModifyWrite => {
                place.write_volatile(place.read_volatile().wrapping_add(1));
                state
            }
            _ => {
                load(place);
                state
            }
        }
    }
}

/// Accesses to one region, from a place in it on; gives the state and the place after them.
fn phase(kind: Kind, world: &World, second: usize, state: u64, at: usize) -> (u64, usize) {
    let (base, table) = (world.bases[second], &world.tables[second]);
    match kind {
        Kind::Lists => walk(base, state, at),
        Kind::Streams => stream(base, state, at),
        Kind::Dependent => (words(base, state, |place, state| access(Kind::Dependent, place, state)), at),
        Kind::Stores => (words(base, state, |place, state| access(Kind::Stores, place, state)), at),
        Kind::ReadModifyWrite => {
            (words(base, state, |place, state| access(Kind::ReadModifyWrite, place, state)), at)
        }
        _ if !table.is_empty() => (pages(base, table, second * PAGES, state), at),
        _ => (words(base, state, |place, state| access(Kind::Random, place, state)), at),
    }
}

#[inline(never)]
fn walk(base: usize, state: u64, mut at: usize) -> (u64, usize) {
    for _ in 0..PHASE {
        // SAFETY: links lead to lines of the region.
        at = unsafe { word(base, at).read_volatile() } as usize;
    }
    (next(state), at)
}

#[inline(never)]
fn stream(base: usize, state: u64, mut at: usize) -> (u64, usize) {
    for _ in 0..PHASE {
        // SAFETY: the place is below the words of the region.
        unsafe { load(word(base, at)) };
        at = (at + 1) & (WORDS - 1);
    }
    (next(state), at)
}

#[inline(always)]
fn words(base: usize, mut state: u64, access: impl Fn(*mut u64, u64) -> u64) -> u64 {
    for _ in 0..PHASE {
        state = next(state);
        state = access(word(base, state as usize & (WORDS - 1)), state);
    }
    state
}

#[inline(never)]
fn pages(base: usize, table: &[u32], from: usize, mut state: u64) -> u64 {
    for _ in 0..PHASE {
        state = next(state);
        let page = table[state as usize & (TABLE - 1)] as usize - from;
        let place = word(base, page * (PAGE / 8) + (state >> 40) as usize % (PAGE / 8));
        state = access(Kind::Random, place, state);
    }
    state
}

/// Accesses with the region chosen before each; gives the state and the number of those to the first.
fn mixed(kind: Kind, world: &World, tenths: u64, state: u64) -> (u64, u64) {
    let below = (1 << 24) * tenths / 10;
    let (bases, table) = (world.bases, &world.tables[2]);
    match kind {
        Kind::Dependent => chosen(bases, below, state, |place, state| access(Kind::Dependent, place, state)),
        Kind::Stores => chosen(bases, below, state, |place, state| access(Kind::Stores, place, state)),
        Kind::ReadModifyWrite => {
            chosen(bases, below, state, |place, state| access(Kind::ReadModifyWrite, place, state))
        }
        Kind::OwnCode => own_code(bases, below, state),
        _ if !table.is_empty() => pages_of_both(bases, table, state),
        _ => chosen(bases, below, state, |place, state| access(Kind::Random, place, state)),
    }
}

/// The base of one of two regions, without a branch: one instruction accesses both.
#[inline(always)]
fn base_of(bases: [usize; 2], second: bool) -> usize {
    bases[0].wrapping_add(bases[1].wrapping_sub(bases[0]) & usize::from(second).wrapping_neg())
}

#[inline(always)]
fn chosen(
    bases: [usize; 2],
    below: u64,
    mut state: u64,
    access: impl Fn(*mut u64, u64) -> u64,
) -> (u64, u64) {
    let mut first = 0;
    for _ in 0..PHASE {
        state = next(state);
        let second = state >> 40 >= below;
        first += u64::from(!second);
        state = access(word(base_of(bases, second), state as usize & (WORDS - 1)), state);
    }
    (state, first)
}

#[inline(never)]
fn pages_of_both(bases: [usize; 2], table: &[u32], mut state: u64) -> (u64, u64) {
    let mut first = 0;
    for _ in 0..PHASE {
        state = next(state);
        let page = table[state as usize & (TABLE - 1)] as usize;
        let second = page >= PAGES;
        first += u64::from(!second);
        let inside = (page % PAGES) * (PAGE / 8) + (state >> 40) as usize % (PAGE / 8);
        state = access(Kind::Random, word(base_of(bases, second), inside), state);
    }
    (state, first)
}

#[inline(never)]
fn load_of_the_first(place: *mut u64) -> u64 {
    // SAFETY: callers give words of a region.
    unsafe { load(place) }
}

/// Not the same code, or a compiler makes one of both.
#[inline(never)]
fn load_of_the_second(place: *mut u64) -> u64 {
    // SAFETY: callers give words of a region.
    unsafe { load(place) ^ 1 }
}

#[inline(never)]
fn own_code(bases: [usize; 2], below: u64, mut state: u64) -> (u64, u64) {
    let mut first = 0;
    for _ in 0..PHASE {
        state = next(state);
        let inside = state as usize & (WORDS - 1);
        if state >> 40 < below {
            first += 1;
            std::hint::black_box(load_of_the_first(word(bases[0], inside)));
        } else {
            std::hint::black_box(load_of_the_second(word(bases[1], inside)));
        }
    }
    (state, first)
}
