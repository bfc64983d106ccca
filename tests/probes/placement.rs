//! A sample of the pages of a process beside a walk over all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::placement::draw::{Found, Random};
use numatop_ng::collect::placement::{Walk, once};
use numatop_ng::collect::proc_details;
use numatop_ng::model::process::ProcessId;
use numatop_ng::model::sample::Missing;

const MIB: usize = 1 << 20;
const TICK_NS: u64 = 10_000_000;

/// Anonymous memory that goes away with it.
struct Memory {
    start: *mut u8,
    len: usize,
}

impl Memory {
    fn map(len: usize) -> Result<Memory> {
        // SAFETY: a new, unowned mapping.
        let start = unsafe {
            let (all, private) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), len, all, private | libc::MAP_NORESERVE, -1, 0)
        };
        ensure!(start != libc::MAP_FAILED, "mapping {len} bytes: {}", std::io::Error::last_os_error());
        Ok(Memory { start: start.cast(), len })
    }

    fn advise(&self, advice: i32) {
        // SAFETY: the range is the mapping. Where advice is not taken, pages are small.
        unsafe { libc::madvise(self.start.cast(), self.len, advice) };
    }

    /// Touches `every`-th page of the part from `from` to `to`.
    fn touch(&self, from: usize, to: usize, every: usize) {
        for at in (from..to.min(self.len)).step_by(every * 4096) {
            // SAFETY: inside the mapping.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no references to it remain.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Id and start of a process, in ticks from the kernel's account.
fn process(pid: u32) -> Result<ProcessId> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit(')').next().context("no name in stat")?;
    let ticks: u64 = rest.split_whitespace().nth(19).context("no start in stat")?.parse()?;
    Ok((pid, ticks * TICK_NS))
}

fn me() -> Result<ProcessId> {
    process(std::process::id())
}

fn rss(pid: u32) -> Result<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    Ok(statm.split(' ').nth(1).context("no rss in statm")?.parse::<u64>()? * page_size())
}

fn sample(process: ProcessId, seed: u64) -> Result<Found, Missing> {
    let rss = rss(process.0).unwrap_or(0);
    once(Path::new("/"), process, rss, page_size(), &mut Random(seed))
}

/// Bytes by node, by numa_maps.
fn truth(pid: u32) -> Result<BTreeMap<usize, f64>> {
    let mut bytes = BTreeMap::new();
    for line in fs::read_to_string(format!("/proc/{pid}/numa_maps"))?.lines() {
        let size =
            line.split(' ').find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<f64>().ok());
        for word in line.split(' ').filter_map(|word| word.strip_prefix('N')) {
            if let Some((Ok(node), Ok(pages))) =
                word.split_once('=').map(|(n, p)| (n.parse(), p.parse::<f64>()))
            {
                *bytes.entry(node).or_default() += pages * size.unwrap_or(4.0) * 1024.0;
            }
        }
    }
    Ok(bytes)
}

/// Resident memory by the sample differs from numa_maps by at most `share`; so do the shares.
fn agrees(process: ProcessId, share: f64) -> Result<Found> {
    let found = sample(process, 11).map_err(|missing| anyhow::anyhow!("no placement: {missing}"))?;
    let truth = truth(process.0)?;
    let all: f64 = truth.values().sum();
    let estimate = found.pages() as f64 * found.space as f64 / f64::from(found.asked) * page_size() as f64;
    let off = (estimate - all).abs() / all;
    ensure!(
        off <= share,
        "{estimate:.0} bytes of {all:.0} are resident: {:.1} % off; {found:?}",
        off * 100.0
    );
    for (node, bytes) in &truth {
        let got = f64::from(found.by_node.get(*node).copied().unwrap_or(0)) * 100.0 / found.pages() as f64;
        let want = bytes * 100.0 / all;
        ensure!((got - want).abs() <= 2.0 * found.error_points + 0.5, "node {node}: {got} and not {want}");
    }
    Ok(found)
}

pub fn resident_memory_is_that_of_numa_maps() -> Result<()> {
    let dense = Memory::map(300 * MIB)?;
    dense.advise(libc::MADV_NOHUGEPAGE);
    dense.touch(0, 300 * MIB, 1);
    agrees(me()?, 0.04).map(drop)
}

pub fn a_terabyte_that_was_never_touched_does_not_hide_what_was() -> Result<()> {
    let sparse = Memory::map(1 << 40)?;
    sparse.advise(libc::MADV_NOHUGEPAGE);
    // Sixty-four islands of one megabyte, far from each other.
    for island in 0..64 {
        sparse.touch(island << 34, (island << 34) + MIB, 1);
    }
    agrees(me()?, 0.15).map(drop)
}

pub fn memory_full_of_holes_is_estimated_without_them() -> Result<()> {
    let sparse = Memory::map(256 * MIB)?;
    sparse.advise(libc::MADV_NOHUGEPAGE);
    sparse.touch(0, 256 * MIB, 5);
    agrees(me()?, 0.15).map(drop)
}

pub fn huge_pages_weigh_what_they_hold() -> Result<()> {
    let (huge, small) = (Memory::map(128 * MIB)?, Memory::map(64 * MIB)?);
    huge.advise(libc::MADV_HUGEPAGE);
    small.advise(libc::MADV_NOHUGEPAGE);
    huge.touch(0, 128 * MIB, 512);
    huge.touch(0, 128 * MIB, 1);
    small.touch(0, 64 * MIB, 1);
    agrees(me()?, 0.06)?;
    // The ends of the mapping are no whole huge pages, and the kernel may not have found enough that were free.
    let (share, of_all) =
        (proc_details::huge_pct(Path::new("/"), std::process::id())?, rss(std::process::id())?);
    let most = (128 * MIB) as f64 * 100.0 / of_all as f64;
    ensure!((most * 0.5..most * 1.01).contains(&share), "{share} % huge, at most {most}");
    Ok(())
}

pub fn twenty_thousand_mappings_are_no_obstacle() -> Result<()> {
    let many = Memory::map(40_000 * 4096)?;
    for page in (0..40_000).step_by(2) {
        // SAFETY: a page of the mapping.
        unsafe { libc::mprotect(many.start.add(page * 4096).cast(), 4096, libc::PROT_READ) };
    }
    many.touch(4096, 40_000 * 4096, 2);
    let walk = Walk::open(Path::new("/"), me()?, rss(std::process::id())?, page_size(), true);
    let mut walk = walk.map_err(|missing| anyhow::anyhow!("{missing}"))?;
    let mut steps = 1;
    // A deadline that has passed: a step each time.
    while !walk.step(Some(std::time::Instant::now())).map_err(|missing| anyhow::anyhow!("{missing}"))? {
        steps += 1;
    }
    ensure!(walk.mappings() > 40_000 && steps > 500, "{} mappings in {steps} steps", walk.mappings());
    agrees(me()?, 0.15).map(drop)
}

pub fn without_the_ioctl_pagemap_says_the_same() -> Result<()> {
    let memory = Memory::map(48 * MIB)?;
    memory.advise(libc::MADV_NOHUGEPAGE);
    memory.touch(0, 24 * MIB, 1);
    memory.touch(24 * MIB, 48 * MIB, 3);
    let resident = |scans| -> Result<f64> {
        let walk = Walk::open(Path::new("/"), me()?, rss(std::process::id())?, page_size(), scans);
        let mut walk = walk.map_err(|missing| anyhow::anyhow!("{missing}"))?;
        walk.step(None).map_err(|missing| anyhow::anyhow!("{missing}"))?;
        let found = walk
            .draw(&mut Random(5), page_size(), |_, _| {})
            .map_err(|missing| anyhow::anyhow!("{missing}"))?;
        Ok(found.pages() as f64 * found.space as f64 / f64::from(found.asked))
    };
    let (with, without) = (resident(true)?, resident(false)?);
    ensure!((with - without).abs() / with < 0.1, "{with} pages with the ioctl and {without} without");
    Ok(())
}

pub fn a_process_that_ended_is_a_reason() -> Result<()> {
    let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn()?;
    let process = process(child.id())?;
    let walk = Walk::open(Path::new("/"), process, MIB as u64, page_size(), true);
    let mut walk = walk.map_err(|missing| anyhow::anyhow!("{missing}"))?;
    child.kill()?;
    child.wait()?;
    let ended = walk.step(None).and_then(|_| walk.draw(&mut Random(1), page_size(), |_, _| {}));
    ensure!(matches!(ended, Err(Missing::Lost(_) | Missing::NotCollected(_))), "{ended:?}");
    ensure!(matches!(sample(process, 1), Err(Missing::Lost(_))), "it can still be sampled");
    Ok(())
}

pub fn an_id_that_was_used_again_is_another_process() -> Result<()> {
    let (pid, start_ns) = me()?;
    let other = sample((pid, start_ns + 1000 * TICK_NS), 1);
    ensure!(matches!(other, Err(Missing::Lost(_))), "{other:?}");
    Ok(())
}

pub fn kernel_threads_have_no_memory() -> Result<()> {
    let found = sample(process(2)?, 1);
    ensure!(found.is_err(), "{found:?}");
    Ok(())
}

pub fn without_privilege_the_reason_names_the_capability() -> Result<()> {
    let asked = thread::spawn(|| {
        // SAFETY: as a system call this changes the calling thread only, which ends with it.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        (changed, process(1).map(|init| sample(init, 1)))
    });
    let (changed, found) = asked.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?;
    ensure!(changed == 0, "could not become nobody");
    match found? {
        Err(Missing::NotPermitted(why)) if why.contains("CAP_SYS_PTRACE") => Ok(()),
        other => bail!("{other:?}"),
    }
}

pub fn every_process_here_is_placed_or_has_a_reason() -> Result<()> {
    let mut placed = 0;
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(process) = process(pid) else { continue };
        match sample(process, pid.into()) {
            Ok(found) => {
                placed += 1;
                ensure!(found.error_points < 50.0 || found.pages() < 100, "{pid}: {found:?}");
            }
            // Some hosts keep their first process even from root.
            Err(Missing::Lost(_) | Missing::NotCollected(_) | Missing::NotPermitted(_)) => {}
            Err(missing) => bail!("{pid}: {missing}"),
        }
    }
    ensure!(placed > 1, "only {placed} processes were placed");
    Ok(())
}
