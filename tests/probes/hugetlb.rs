//! Pages of hugetlbfs are found, and weigh what they hold. They are in no count of resident memory.

use std::path::Path;
use std::{fs, process};

use anyhow::{Context, Result, ensure};

use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::mappings::{self, Mapping};
use numatop_ng::collect::proc_details::start_ns;

const POOL: &str = "/proc/sys/vm/nr_hugepages";
const PAGES: usize = 4;

/// Why this cannot be tried here and now.
pub fn obstacle() -> Option<String> {
    if !Path::new(POOL).exists() {
        return Some("the kernel has no hugetlbfs".into());
    }
    Pool::grow().err().map(|error| format!("{error:#}"))
}

/// Pages added to the pool.
struct Pool {
    before: usize,
}

impl Pool {
    fn grow() -> Result<Pool> {
        let now = || -> Result<usize> { Ok(fs::read_to_string(POOL)?.trim().parse()?) };
        let pool = Pool { before: now()? };
        fs::write(POOL, (pool.before + PAGES).to_string()).with_context(|| format!("writing {POOL}"))?;
        ensure!(now()? == pool.before + PAGES, "the kernel has no {PAGES} huge pages to give now");
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Pages that cannot be given back now stay in the pool: nothing to be done about it here.
        let _ = fs::write(POOL, self.before.to_string());
    }
}

/// Bytes of a huge page of the default size.
fn huge_size() -> Result<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
    let kib: usize = line.context("no Hugepagesize")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

pub fn pages_of_hugetlbfs_are_found_and_weigh_what_they_hold() -> Result<()> {
    let _pool = Pool::grow()?;
    let bytes = PAGES * huge_size()?;
    // SAFETY: a new, unowned mapping; it is unmapped below.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    ensure!(start != libc::MAP_FAILED, "mapping huge pages: {}", std::io::Error::last_os_error());
    // Three quarters of them.
    for page in 0..PAGES * 3 / 4 {
        // SAFETY: inside the mapping.
        unsafe { start.cast::<u8>().add(page * bytes / PAGES).write_volatile(1) };
    }

    let own = (process::id(), start_ns(process::id()).context("our own start")?);
    let sampled = mappings::sampled(Path::new("/"), own, 64 << 20, page_size());
    let counted = mappings::exact(Path::new("/"), own);
    // SAFETY: the mapping is ours and no references to it remain.
    unsafe { libc::munmap(start, bytes) };

    let resident = |found: mappings::Mappings| -> Option<f64> {
        found.rows.iter().find(|row| row.start == start as u64).map(Mapping::resident)
    };
    let truth = (bytes * 3 / 4) as f64;
    let counted = resident(counted.map_err(|why| anyhow::anyhow!("counting: {why}"))?);
    ensure!(counted == Some(truth), "{counted:?} bytes were counted of {truth}");
    let sampled = resident(sampled.map_err(|why| anyhow::anyhow!("sampling: {why}"))?).unwrap_or(0.0);
    ensure!((sampled - truth).abs() / truth < 0.1, "{sampled} bytes by the sample of {truth}");
    Ok(())
}
