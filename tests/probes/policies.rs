//! Policies of mappings from the BPF iterator, compared with /proc/PID/numa_maps.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::program;
use crate::until::until;
use crate::workload::Workload;
use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::mm_reader::MmReader;
use numatop_ng::collect::mm_reader::wire::{Job, PlacementTurn, Turn};
use numatop_ng::collect::placement::draw::{Random, Ranges, Round};
use numatop_ng::collect::placement::objects::Wanted;
use numatop_ng::collect::placement::rows::{Counted, Mappings};
use numatop_ng::collect::probes::{Running, Shared, of};
use numatop_ng::collect::proc_details::start_ns;
use numatop_ng::model::facility::Facility;
use numatop_ng::model::memory::ObjectId;
use numatop_ng::model::process::ProcessId;
use numatop_ng::model::sample::PagesByPolicy;

const PAGES: usize = 32;

/// The reason why the iterator is unavailable here.
pub fn obstacle() -> Option<String> {
    with_probe(|_| Ok(())).err().map(|error| format!("{error:#}"))
}

fn with_probe<T>(then: impl FnOnce(&mut dyn Running) -> Result<T>) -> Result<T> {
    let probe = of(Facility::MappingPolicies).context("no such probe")?;
    let layout = RecordLayout::new(1, false, &[]);
    let store = maps::create(layout)?;
    then(&mut *(probe.start)(&Shared::new(Path::new("/"), &store, layout))?)
}

fn mappings_of(probe: &dyn Running, tid: u32) -> Result<Mappings> {
    let rows = probe.mappings_of(tid).context("it has no iterator")?.context("making an iterator")?;
    Ok(Mappings::read(File::from(rows), page_size())?)
}

/// A mapping of [`PAGES`] pages. It lives until the test ends.
fn map(flags: i32, file: Option<&OwnedFd>) -> Result<usize> {
    let (flags, fd) = match file {
        Some(file) => (flags, file.as_raw_fd()),
        None => (flags | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new, unowned mapping.
    let at =
        unsafe { libc::mmap(null_mut(), PAGES * 4096, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    ensure!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    touch(at as usize);
    Ok(at as usize)
}

fn touch(at: usize) {
    for page in 0..PAGES {
        // SAFETY: inside a mapping of this test.
        unsafe { ((at + page * 4096) as *mut u8).write_volatile(1) };
    }
}

/// Gives pages a policy of this mode that names node 0.
fn bind(at: usize, pages: usize, mode: i32) -> Result<()> {
    let nodes: u64 = u64::from(mode != libc::MPOL_LOCAL);
    // SAFETY: the range is a mapping of this test.
    let result = unsafe { libc::syscall(libc::SYS_mbind, at, pages * 4096, mode, &nodes, 64, 0) };
    ensure!(result == 0, "mbind with mode {mode}: {}", std::io::Error::last_os_error());
    Ok(())
}

fn segment() -> Result<usize> {
    // SAFETY: a new segment, which is removed when it is detached.
    let at = unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, PAGES * 4096, 0o600);
        ensure!(id >= 0, "shmget: {}", std::io::Error::last_os_error());
        let at = libc::shmat(id, null_mut(), 0);
        libc::shmctl(id, libc::IPC_RMID, null_mut());
        at
    };
    ensure!(at as isize != -1, "shmat: {}", std::io::Error::last_os_error());
    touch(at as usize);
    Ok(at as usize)
}

fn memory_file() -> Result<OwnedFd> {
    // SAFETY: a new, unowned descriptor.
    let fd = unsafe { libc::memfd_create(c"numatop-ng-test".as_ptr(), libc::MFD_CLOEXEC) };
    ensure!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    // SAFETY: as above.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    File::from(fd.try_clone()?).set_len((PAGES * 4096) as u64)?;
    Ok(fd)
}

fn file_in(folder: &str) -> Result<OwnedFd> {
    let path = Path::new(folder).join(format!("numatop-ng-policies-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.set_len((PAGES * 4096) as u64)?;
    Ok(file.into())
}

/// Policies that numa_maps names, by address.
fn numa_maps() -> Result<BTreeMap<usize, String>> {
    let text = String::from_utf8_lossy(&fs::read("/proc/self/numa_maps")?).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let known = lines.filter_map(|(at, rest)| {
        let policy = rest.split(' ').next()?;
        Some((usize::from_str_radix(at, 16).ok()?, policy.to_owned()))
    });
    Ok(known.collect())
}

/// The pages of a mapping by policy, as if all were on node 0.
fn counted(mappings: &Mappings, at: usize) -> PagesByPolicy {
    let mut counted = Counted::new(mappings);
    (0..PAGES).for_each(|page| counted.add((at / 4096 + page) as u64, 0));
    counted.finish(0)
}

fn explicit(mappings: &Mappings, at: usize) -> u32 {
    counted(mappings, at).explicit.first().copied().unwrap_or(0)
}

pub fn policies_of_mappings_are_those_of_numa_maps() -> Result<()> {
    let modes = [libc::MPOL_PREFERRED, libc::MPOL_BIND, libc::MPOL_INTERLEAVE, libc::MPOL_LOCAL];
    let mut at = vec![map(libc::MAP_PRIVATE, None)?, map(libc::MAP_SHARED, None)?, segment()?];
    for mode in modes {
        for new in [map(libc::MAP_PRIVATE, None)?, map(libc::MAP_SHARED, None)?, segment()?] {
            bind(new, PAGES, mode)?;
            at.push(new);
        }
    }
    for folder in ["/dev/shm", "/var/tmp"] {
        let file = file_in(folder)?;
        at.push(map(libc::MAP_SHARED, Some(&file))?);
        at.push(map(libc::MAP_PRIVATE, Some(&file))?);
        let bound = file_in(folder)?;
        let first = map(libc::MAP_SHARED, Some(&bound))?;
        bind(first, PAGES, libc::MPOL_BIND)?;
        at.extend([first, map(libc::MAP_SHARED, Some(&bound))?, map(libc::MAP_PRIVATE, Some(&bound))?]);
    }
    let mappings = with_probe(|probe| mappings_of(probe, std::process::id()))?;
    let known = numa_maps()?;
    for at in at {
        let policy = known.get(&at).with_context(|| format!("numa_maps has no mapping at {at:x}"))?;
        let wanted = if matches!(policy.as_str(), "default" | "local") { 0 } else { PAGES as u32 };
        let found = explicit(&mappings, at);
        ensure!(found == wanted, "{found} of {PAGES} pages at {at:x} with the policy {policy}");
    }
    Ok(())
}

pub fn a_policy_of_a_part_of_a_file_holds_in_all_mappings() -> Result<()> {
    let file = memory_file()?;
    let [first, other] = [map(libc::MAP_SHARED, Some(&file))?, map(libc::MAP_SHARED, Some(&file))?];
    bind(first + 8 * 4096, 16, libc::MPOL_BIND)?;
    let mappings = with_probe(|probe| mappings_of(probe, std::process::id()))?;
    ensure!(numa_maps()?[&other] == "default", "numa_maps names the policy of the first page");
    let of_parts: u32 = [first, first + 8 * 4096, first + 24 * 4096]
        .iter()
        .zip([8, 16, 8])
        .map(|(at, pages)| {
            let mut counted = Counted::new(&mappings);
            (0..pages).for_each(|page| counted.add((at / 4096 + page) as u64, 0));
            counted.finish(0).explicit.first().copied().unwrap_or(0)
        })
        .sum();
    ensure!(
        (of_parts, explicit(&mappings, other)) == (16, 16),
        "{of_parts} and {}",
        explicit(&mappings, other)
    );
    let found = counted(&mappings, other);
    ensure!(found.shared.is_empty(), "one process alone maps it: {found:?}");
    Ok(())
}

pub fn a_thread_that_ended_has_no_mappings() -> Result<()> {
    let ended = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
    let tid = ended.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?;
    with_probe(|probe| {
        let found = mappings_of(probe, tid);
        ensure!(found.as_ref().is_err(), "{found:?}");
        Ok(())
    })
}

pub fn policies_of_several_processes_come_with_their_pages() -> Result<()> {
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(Workload::start("hog")?);
    }
    let processes = children
        .iter()
        .map(|child| Ok((child.pid(), start_ns(child.pid()).context("the process has ended")?)))
        .collect::<Result<Vec<ProcessId>>>()?;
    let mut reader = MmReader::new(PathBuf::from(program::path()));
    with_probe(|probe| {
        let made = processes
            .iter()
            .map(|(pid, _)| probe.mappings_of(*pid).context("it has no iterator")?.context("making one"));
        let iterators = made.collect::<Result<Vec<OwnedFd>>>()?;
        let job = |process: &ProcessId| Job { process: *process, uid: 0, rss_bytes: 1 << 20, careful: false };
        let placement = PlacementTurn {
            jobs: processes.iter().map(job).collect(),
            budget: Duration::from_millis(500),
            iterators: processes.iter().map(|process| (*process, process.0)).collect(),
            policies: None,
        };
        reader.ask(Turn { placement: Some(placement), ..Turn::default() }, &iterators);
        Ok(())
    })?;
    let mut placed = Vec::new();
    until("all have an answer", || {
        placed.extend(reader.take().answers.into_iter().flat_map(|answer| answer.placed));
        Ok(placed.len() == 3)
    })?;
    for placed in placed {
        let Some(Ok(pages)) = &placed.by_policy else { bail!("{placed:?}") };
        let all: u32 = placed.found.map_err(|missing| anyhow::anyhow!("{missing}"))?.by_node.iter().sum();
        ensure!(pages.by_node.iter().sum::<u32>() + pages.unmatched == all, "{pages:?} of {all}");
        ensure!(pages.mappings > 10 && pages.explicit.is_empty() && pages.unmatched == 0, "{pages:?}");
    }
    Ok(())
}

pub fn iterators_can_be_made_again_and_again() -> Result<()> {
    with_probe(|probe| {
        for turn in 0..200 {
            let found = mappings_of(probe, std::process::id()).with_context(|| format!("turn {turn}"))?;
            ensure!(format!("{found:?}").len() > 100);
        }
        Ok(())
    })
}

/// A file in memory of 64 MiB whose last quarter is a hole, with its mapping. None of its pages is in a page
/// table. Its seal makes the kernel hide its number of mappings, so that it counts as shared.
fn untouched_file() -> Result<(OwnedFd, usize)> {
    const BYTES: usize = 64 << 20;
    // SAFETY: a new, unowned descriptor.
    let fd = unsafe {
        libc::memfd_create(c"numatop-ng-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    ensure!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    // SAFETY: as above.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut file = File::from(fd.try_clone()?);
    file.set_len(BYTES as u64)?;
    file.write_all(&vec![1; BYTES / 4 * 3])?;
    // SAFETY: takes numbers only.
    let sealed = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    ensure!(sealed == 0, "F_SEAL_WRITE: {}", std::io::Error::last_os_error());
    // SAFETY: a new, unowned mapping.
    let at = unsafe { libc::mmap(null_mut(), BYTES, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    ensure!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    Ok((fd, at as usize))
}

pub fn nodes_of_shared_memory_are_found_that_no_process_has_touched() -> Result<()> {
    let (_file, at) = untouched_file()?;
    let pages = (64 << 20) / page_size();
    bind(at, 8 << 20 >> 12, libc::MPOL_BIND)?;
    let addresses: Vec<usize> = (0..1024).map(|page| at + page * 4096).collect();
    let mut status = [0i32; 1024];
    // SAFETY: both arrays have the given number of entries; without nodes nothing moves.
    let asked = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, 1024, addresses.as_ptr(), null_mut::<i32>(), &mut status, 0)
    };
    ensure!(asked == 0 && status.iter().all(|node| *node < 0), "it has touched pages: {status:?}");
    let mut ranges = Ranges::default();
    ranges.push(0, pages);
    let round = Round::new(&ranges, &mut Random(pages));
    let (drawn, none) = with_probe(|probe| {
        let found = counted(&mappings_of(probe, std::process::id())?, at);
        let object = found.objects.first().with_context(|| format!("no object in {found:?}"))?.id();
        let other = ObjectId { generation: object.generation ^ 1, ..object };
        let want = |object| Wanted { object, round: round.clone() };
        probe.draw(&[want(other), want(object)]);
        mappings_of(probe, std::process::id())?;
        let mut drawn = probe.drawn().context("this kernel does not tell nodes of pages")?;
        Ok((drawn.pop().flatten().context("no answer")?, drawn.pop().flatten()))
    })?;
    ensure!(none.is_none(), "an answer for an object that is not there");
    let nodes: Vec<i32> = drawn.iter().map(|page| page.map_or(-1, |(node, _)| node as i32)).collect();
    let found = round.found(&nodes);
    ensure!(found.asked == 1024 && (760..=776).contains(&found.pages()), "{found:?}");
    ensure!(found.error_points <= 3.1, "{found:?}");
    for (index, page) in round.pages.iter().zip(&drawn) {
        let is_there = *index < pages / 4 * 3;
        let is_bound = page.is_some_and(|(node, meant)| meant && node == 0);
        ensure!(page.is_some() == is_there, "page {index}: {page:?}");
        ensure!(is_bound == (*index < pages / 8), "page {index} with a policy up to {}: {page:?}", pages / 8);
    }
    Ok(())
}
