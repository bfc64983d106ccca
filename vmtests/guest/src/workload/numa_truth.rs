//! Memory placed on nodes at given shares, and threads that use it from given CPUs. The remote part of that
//! use is counted access by access.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{burn, raise_at_end, wait_for_go, wait_for_line};
use crate::{affinity, sysfs};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
/// Accesses between two looks at where we are and where the pages are.
const BATCH: usize = 64;
/// Work between two accesses, so that the threads do more than ask.
const ROUNDS: u64 = 2_000;
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;

/// The layout of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// One mapping of small pages, bound with mbind(2) in runs.
    Small,
    /// Transparent huge pages, bound in runs.
    Huge,
    /// Pages of hugetlbfs, bound in runs; enough of them are reserved on each node.
    Hugetlb,
    /// As `Small`, locked into memory.
    Locked,
    /// Small pages of a mapping that could be shared, bound in runs.
    Shared,
    /// As many mappings as there are pages, with holes between them.
    Many,
    /// A page on this node, the next on that, as the shares say.
    Mixed,
    /// As `Small`, but placed by a policy of the thread that touches it: NUMA balancing may move it.
    Touched,
    /// The same with transparent huge pages.
    TouchedHuge,
    /// Small pages, placed by a policy of the process that interleaves them over the nodes with a share, and that stays.
    Interleaved,
    /// Pages of hugetlbfs that the kernel takes where it likes, for a thread on the first CPU; the shares say nothing.
    Reserved,
}

impl Layout {
    /// Large pages are asked for.
    fn huge(self) -> bool {
        matches!(self, Layout::Huge | Layout::Hugetlb | Layout::TouchedHuge | Layout::Reserved)
    }

    /// Flags of its mapping.
    fn flags(self) -> libc::c_int {
        libc::MAP_ANONYMOUS
            | match self {
                Layout::Shared => libc::MAP_SHARED,
                // Reserved pages are taken one by one, or those of one node could be promised to another.
                Layout::Hugetlb | Layout::Reserved => {
                    libc::MAP_PRIVATE | libc::MAP_HUGETLB | libc::MAP_NORESERVE
                }
                _ => libc::MAP_PRIVATE,
            }
    }

    /// The policy is the thread's while it touches, and not the mapping's.
    fn by_touch(self) -> bool {
        matches!(self, Layout::Touched | Layout::TouchedHuge)
    }
}

/// The part of the memory that a thread uses.
#[derive(Clone, Copy)]
enum Use {
    /// All memory alike.
    All,
    /// Nineteen of twenty accesses go to the first tenth.
    Skewed,
    /// The part with this number, of this many equal ones.
    Shard(usize, usize),
}

/// Pages, by address.
struct Memory {
    pages: Vec<usize>,
}

/// `cpus`: one thread pinned to each, or `free:N`. `shares`: percent for each node. `layout`, `access`: see the list
/// of workloads.
pub fn run(cpus: &str, shares: &str, mib: u64, layout: &str, access: &str) -> Result<Value, String> {
    let shares: Vec<u32> = shares
        .split(',')
        .map(|share| share.parse().map_err(|_| format!("{share:?} is no share")))
        .collect::<Result<_, _>>()?;
    let layout = match layout {
        "small" => Layout::Small,
        "huge" => Layout::Huge,
        "hugetlb" => Layout::Hugetlb,
        "locked" => Layout::Locked,
        "shared" => Layout::Shared,
        "many" => Layout::Many,
        "mixed" => Layout::Mixed,
        "touched" => Layout::Touched,
        "touched_huge" => Layout::TouchedHuge,
        "interleaved" => Layout::Interleaved,
        "reserved" => Layout::Reserved,
        other => return Err(format!("{other:?} is no layout")),
    };
    let (skewed, settles, sharded) = match access {
        "uniform" => (false, false, false),
        "settled" => (false, true, false),
        "skewed" => (true, false, false),
        "sharded" => (false, false, true),
        other => return Err(format!("{other:?} is no way to access memory")),
    };
    let threads: Vec<Option<u32>> = match cpus.strip_prefix("free:") {
        Some(count) => vec![None; count.parse().map_err(|_| format!("{count:?} is no number"))?],
        None => sysfs::parse_list(cpus)?.into_iter().map(Some).collect(),
    };
    if let (Layout::Reserved, Some(Some(cpu))) = (layout, threads.first()) {
        affinity::pin(&[*cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    }
    let memory = Arc::new(place(&shares, mib << 20, layout)?);
    let (mut by_node, mut holes) = (vec![0u64; shares.len()], 0u64);
    for pages in memory.pages.chunks(1024) {
        for status in nodes_of(pages)? {
            match usize::try_from(status).ok().and_then(|node| by_node.get_mut(node)) {
                Some(count) => *count += 1,
                None => holes += 1,
            }
        }
    }
    wait_for_go(&json!({
        "pid": std::process::id(), "pages_by_node": by_node, "not_there": holes, "mappings": mappings(), "access": access,
    }));
    let stop = Arc::new(AtomicBool::new(false));
    let counting = Arc::new(AtomicBool::new(!settles));
    let counts = Arc::new([const { AtomicU64::new(0) }; 4]);
    let shards = threads.len();
    let workers: Vec<_> = threads
        .into_iter()
        .enumerate()
        .map(|(seed, cpu)| {
            let (memory, counts) = (Arc::clone(&memory), Arc::clone(&counts));
            let flags = (Arc::clone(&counting), Arc::clone(&stop));
            let part = match (skewed, sharded) {
                (true, _) => Use::Skewed,
                (_, true) => Use::Shard(seed, shards),
                _ => Use::All,
            };
            thread::spawn(move || work(cpu, &memory, (part, seed as u64), (&flags.0, &flags.1), &counts))
        })
        .collect();
    if settles {
        // The parent reports that all pages have moved.
        wait_for_line();
        counting.store(true, Ordering::Relaxed);
    }
    raise_at_end(&stop);
    for worker in workers {
        worker.join().map_err(|_| "a thread panicked".to_owned())??;
    }
    let [local, remote, local_ns, remote_ns] = [0, 1, 2, 3].map(|at| counts[at].load(Ordering::Relaxed));
    Ok(
        json!({"local": local, "remote": remote, "local_ns": local_ns, "remote_ns": remote_ns, "cpu_ns": affinity::process_time().as_nanos() as u64}),
    )
}

/// Uses memory until `stop`. Counts accesses to the node it ran on and to others, and the CPU time of each.
/// CPUs of an emulator differ in speed: time does not depend on that.
fn work(
    cpu: Option<u32>,
    memory: &Memory,
    (part, seed): (Use, u64),
    (counting, stop): (&AtomicBool, &AtomicBool),
    counts: &[AtomicU64; 4],
) -> Result<(), String> {
    if let Some(cpu) = cpu {
        affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    }
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut batch = Vec::with_capacity(BATCH);
    let mut since = affinity::thread_time();
    while !stop.load(Ordering::Relaxed) {
        batch.clear();
        for _ in 0..BATCH {
            // xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let all = memory.pages.len();
            let within = match part {
                Use::Skewed if !state.is_multiple_of(20) => 0..all / 10,
                Use::Shard(number, of) => all * number / of..all * (number + 1) / of,
                _ => 0..all,
            };
            let page = memory.pages[within.start + (state >> 16) as usize % within.len().max(1)];
            // SAFETY: the page is mapped for reading and writing as long as the process lives. Racing writes
            // of a byte that is never read do no harm.
            unsafe { std::ptr::write_volatile(page as *mut u8, state as u8) };
            batch.push(page);
            burn(ROUNDS);
        }
        let here = current_node();
        let mut found = [0u64, 0];
        for status in nodes_of(&batch)? {
            found[usize::from(status != here)] += 1;
        }
        let now = affinity::thread_time();
        let spent = (now - since).as_nanos() as u64;
        since = now;
        if !counting.load(Ordering::Relaxed) {
            continue;
        }
        for (at, count) in found.into_iter().enumerate() {
            counts[at].fetch_add(count, Ordering::Relaxed);
            counts[2 + at].fetch_add(spent * count / BATCH as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Maps and touches `bytes` at these shares.
fn place(shares: &[u32], bytes: u64, layout: Layout) -> Result<Memory, String> {
    if shares.iter().sum::<u32>() != 100 {
        return Err("shares do not add up to 100".to_owned());
    }
    let bytes = (bytes as usize).next_multiple_of(HUGE);
    let count = bytes / PAGE;
    let node_of = |page: usize| {
        // In runs from the first node to the last, or mixed page by page (37 has no factor in common with 100).
        let at = match layout {
            Layout::Many | Layout::Mixed => (page * 37 % 100) as u32,
            _ if layout.huge() => (page / 512 * 512 * 100 / count) as u32,
            _ => (page * 100 / count) as u32,
        };
        let sums = shares.iter().scan(0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        sums.take_while(|sum| *sum <= at).count()
    };
    // Twice as much where every second page stays a hole, and room to align.
    let stride = if layout == Layout::Many { 2 * PAGE } else { PAGE };
    let (none, all) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
    let protection = if layout == Layout::Many { none } else { all };
    // SAFETY: a new mapping, unowned.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), count * stride + HUGE, protection, layout.flags(), -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(format!("mapping memory: {}", std::io::Error::last_os_error()));
    }
    let first = (start as usize).next_multiple_of(HUGE);
    let advice = if layout.huge() { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: within the mapping made above. Refused where there are no huge pages: the truth is asked for later.
    unsafe { libc::madvise(first as *mut _, count * stride, advice) };
    let pages: Vec<usize> = (0..count).map(|page| first + page * stride).collect();
    let nodes = shares.iter().enumerate().filter(|(_, share)| **share > 0);
    let shared = nodes.fold(0u64, |mask, (node, _)| mask | 1 << node);
    if layout == Layout::Interleaved {
        // SAFETY: the mask has the given number of bits.
        let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_INTERLEAVE, &shared, 64) };
        check(set, "interleaving")?;
    }
    let mut from = 0;
    while from < count {
        let node = node_of(from);
        let to =
            (from + 1..count).find(|page| node_of(*page) != node || layout == Layout::Many).unwrap_or(count);
        if layout == Layout::Many {
            // SAFETY: a page of the mapping made above.
            let made = unsafe { libc::mprotect(pages[from] as *mut _, PAGE, all) };
            check(i64::from(made), "making a mapping of a page")?;
        }
        let mask = 1u64 << node;
        // SAFETY: the range is ours, and mask has the given number of bits.
        unsafe {
            match layout {
                Layout::Interleaved | Layout::Reserved => {}
                _ if layout.by_touch() => {
                    check(libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, &mask, 64), "choosing a node")?;
                }
                _ => {
                    let len = (to - from) * PAGE;
                    check(
                        libc::syscall(libc::SYS_mbind, pages[from], len, MPOL_BIND, &mask, 64, 0),
                        "binding to a node",
                    )?;
                }
            }
        }
        for page in &pages[from..to] {
            // SAFETY: mapped for writing, and no other reference exists.
            unsafe { std::ptr::write_volatile(*page as *mut u8, 1) };
        }
        from = to;
    }
    if layout == Layout::Locked {
        // SAFETY: within the mapping made above.
        check(i64::from(unsafe { libc::mlock(first as *const _, count * PAGE) }), "locking memory")?;
    }
    if layout == Layout::Interleaved {
        return Ok(Memory { pages });
    }
    // SAFETY: without a mask nothing is read.
    let dropped = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_DEFAULT, std::ptr::null::<u64>(), 0) };
    check(dropped, "dropping the policy")?;
    Ok(Memory { pages })
}

fn check(result: i64, doing: &str) -> Result<(), String> {
    if result < 0 { Err(format!("{doing}: {}", std::io::Error::last_os_error())) } else { Ok(()) }
}

/// The node of each page, or a negative errno.
fn nodes_of(pages: &[usize]) -> Result<Vec<i32>, String> {
    let mut status = vec![-libc::ENOENT; pages.len()];
    // SAFETY: both arrays have the given length; without nodes nothing moves.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    };
    check(asked, "asking where pages are").map(|()| status)
}

fn current_node() -> i32 {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: both are valid places for the answers.
    unsafe { libc::syscall(libc::SYS_getcpu, &mut cpu, &mut node, std::ptr::null::<u8>()) };
    node as i32
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |text| text.lines().count())
}
