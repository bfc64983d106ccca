//! Bytes written back by the kernel for cgroups, and bytes synced by a process.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::disk::{Disk, Filesystem};
use crate::groups::{self, Groups};
use crate::intervals::Totals;
use crate::report::Report;
use crate::rest::come_to_rest;
use crate::setting::Setting;
use crate::sysfs;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "disk_writeback",
    about: "bytes of files that two groups leave in the page cache are written back for these groups, bytes that a process syncs are \
            its own, and both are what io.stat counts",
    run,
};

/// Where the file system is mounted.
const MOUNT: &str = "/mnt";
/// Groups, and the blocks of 64 KiB that each leaves in the page cache.
const ABOVE: &str = "/disk";
const GROUPS: [(&str, u64); 2] = [("/disk/a", 320), ("/disk/b", 160)];
/// Blocks that the process of the first group syncs.
const SYNCED: u64 = 160;
const BLOCK: u64 = 64 << 10;
/// Hundredths of a second between two looks of the kernel at dirty pages: an hour.
const LATER: &str = "360000";
/// Time for write-back that begins at once.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.disk_format.as_deref() != Some("ext4") {
        return Err(Stop::skip("needs a file system on a disk"));
    }
    Disk::find(plan)?;
    let _filesystem = Filesystem::mount(MOUNT)?;
    // Nothing is written back before the interval changes, and then all of it.
    let periodic = Setting::begin("/proc/sys/vm/dirty_writeback_centisecs", LATER)?;
    let _expire = Setting::begin("/proc/sys/vm/dirty_expire_centisecs", "1")?;
    warm_up()?;
    let _groups = Groups::make(&["io", "memory"], &[ABOVE, GROUPS[0].0, GROUPS[1].0])?;
    let mut works = Vec::new();
    for (group, blocks) in GROUPS {
        let file = format!("{MOUNT}/{}", group.replace('/', ""));
        let work = Work::start("writes", &[&file, &blocks.to_string(), &SYNCED.to_string()])?;
        groups::write(group, "cgroup.procs", &work.pid().to_string())?;
        works.push(work);
    }
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    for work in &mut works {
        work.go();
        work.said()?;
    }
    report.equal("bytes that reached the disk before write-back began", 0, written()?.iter().sum::<u64>());
    periodic.set("10")?;
    let began = Instant::now();
    while dirty()? > 0 {
        if began.elapsed() > PATIENCE {
            return Err(Stop::fail(format!("{} bytes are still to be written", dirty()?)));
        }
        thread::sleep(Duration::from_millis(100));
    }
    periodic.set(LATER)?;
    come_to_rest(&mut batch, &mut totals, written)?;
    for ((group, blocks), work) in GROUPS.iter().zip(&works) {
        let [process, back] = shown(&totals, group, work.pid());
        report.equal(format_args!("bytes written back for {group}"), blocks * BLOCK, back);
        report.equal(format_args!("bytes that the process of {group} submitted"), 0, process);
    }
    works[0].go();
    works[0].said()?;
    let [io_stat, _] = come_to_rest(&mut batch, &mut totals, written)?;
    batch.stop()?;
    let (group, blocks) = GROUPS[0];
    let [process, back] = shown(&totals, group, works[0].pid());
    report.equal("bytes of the process that called fsync", SYNCED * BLOCK, process);
    report.equal(format_args!("bytes written back for {group} after fsync"), blocks * BLOCK, back);
    report.equal(format_args!("process and write-back, of io.stat of {group}"), io_stat, process + back);
    no_losses(report, &totals);
    for work in works {
        work.stop()?;
    }
    Ok(())
}

/// Reads the metadata that a new file needs, for no group.
fn warm_up() -> Result<(), Stop> {
    let path = format!("{MOUNT}/first");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&[1; 1 << 16])?;
        file.sync_all()
    });
    written.and_then(|()| fs::remove_file(&path)).map_err(|error| format!("writing {path}: {error}"))?;
    Ok(())
}

/// Bytes that the groups wrote to the disk, by the kernel's count.
fn written() -> Result<[u64; 2], String> {
    let of = |group: &str| -> Result<u64, String> {
        let text = groups::read(group, "io.stat")?;
        let words = text.split_whitespace().filter_map(|word| word.strip_prefix("wbytes="));
        Ok(words.filter_map(|bytes| bytes.parse::<u64>().ok()).sum())
    };
    Ok([of(GROUPS[0].0)?, of(GROUPS[1].0)?])
}

/// Bytes of the machine that are to be written, or on their way.
fn dirty() -> Result<u64, String> {
    let text = sysfs::read("/proc/meminfo")?;
    let kib = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
    };
    let both = kib("Dirty:").zip(kib("Writeback:")).map(|(dirty, writeback)| (dirty + writeback) * 1024);
    both.ok_or_else(|| "/proc/meminfo has no Dirty or Writeback".to_owned())
}

/// Bytes that the tool shows of a process, and as written back for a group.
fn shown(totals: &Totals, group: &str, pid: i32) -> [u64; 2] {
    let of = |rows: &str, is: &dyn Fn(&Value) -> bool, key: &str| {
        totals.sum_of_rates(|interval| {
            let rows = interval[rows].as_array().into_iter().flatten();
            rows.filter(|row| is(row)).filter_map(|row| row[key].as_f64()).sum()
        })
    };
    [
        of("tasks", &|row| row["pid"] == pid, "disk_bytes_per_s"),
        of("containers", &|row| row["cgroup"] == group, "writeback_bytes_per_s"),
    ]
}
