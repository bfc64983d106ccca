//! Traffic to disks is counted of the process that sends it: direct writes, to the byte.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, id};

use anyhow::{Context, Error, Result, ensure};

use numatop_ng::metric::Value;
use numatop_ng::metric::disks::{PROCESS_BYTES_PER_S, PROCESS_REQUESTS_PER_S, traffic};
use numatop_ng::model::disks::{DiskTraffic, DiskUse};
use numatop_ng::model::traffic::total;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::sample;
use crate::scratch::Scratch;

/// Each request has this size, in bytes.
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 200;

fn direct(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Why nothing can be written to a disk here.
pub fn obstacle() -> Option<String> {
    let folder = Scratch::new();
    let file = folder.join("file");
    match direct(&file).and_then(|opened| opened.metadata()) {
        Err(error) => Some(format!("{} takes no direct writes: {error}", std::env::temp_dir().display())),
        Ok(metadata) => {
            let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
            let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
            let is_hardware = device.is_ok_and(|link| link.iter().all(|part| part != "virtual"));
            (!is_hardware).then(|| format!("{} is on no disk of its own", std::env::temp_dir().display()))
        }
    }
}

pub fn direct_writes_are_counted_to_the_byte() -> Result<()> {
    let mut source = LiveSource::start(LiveOptions::default())?;
    let folder = Scratch::new();
    let file = folder.join("file");
    let mut opened = direct(&file)?;
    // Aligned to a page, as direct writes want it.
    let buffer = vec![1u8; 2 * BLOCK];
    let start = buffer.as_ptr().align_offset(4096);
    let before = sample(&mut source)?;
    for _ in 0..BLOCKS {
        opened.write_all(&buffer[start..start + BLOCK])?;
    }
    let after = sample(&mut source)?;
    let snapshot = derive(&source.host(), Some(&before), &after, RowKind::Processes);
    let own = snapshot.tasks.iter().find(|task| task.raw.pid == id()).context("no row of the test")?;
    let traffic = traffic(own, &snapshot).map_err(Error::msg)?;
    let DiskUse { bytes, requests } = total(traffic.values());
    println!("{bytes} bytes in {requests} requests, {traffic:?}");
    let written = (BLOCK * BLOCKS) as u64;
    // The file system may write another block in between.
    ensure!(bytes >= written && bytes - written <= 64 << 10, "{written} bytes were written, {bytes} counted");
    ensure!(requests >= BLOCKS as u64, "{BLOCKS} requests were made, {requests} counted");
    for metric in [&PROCESS_BYTES_PER_S, &PROCESS_REQUESTS_PER_S] {
        let value = metric.read(own, &snapshot).map_err(Error::msg)?;
        ensure!(matches!(value, Value::F64(rate) if rate > 0.0), "{}: {value:?}", metric.id);
    }
    ensure!(after.lost.get("requests_to_unknown_disks") == Some(&0), "{:?}", after.lost);
    Ok(())
}

/// A process that ends keeps what it sent in its last row.
pub fn a_process_that_ends_keeps_its_traffic() -> Result<()> {
    let mut source = LiveSource::start(LiveOptions::default())?;
    let folder = Scratch::new();
    let file = folder.join("file");
    let before = sample(&mut source)?;
    let child = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "count=200", "oflag=direct", "status=none"])
        .arg(format!("of={}", file.display()))
        .spawn()?;
    let pid = child.id();
    ensure!({ child }.wait()?.success(), "dd failed");
    let after = sample(&mut source)?;
    let snapshot = derive(&source.host(), Some(&before), &after, RowKind::Processes);
    let row = snapshot.tasks.iter().find(|task| task.raw.pid == pid).context("no row of dd")?;
    let DiskUse { bytes, .. } = total(traffic(row, &snapshot).map_err(Error::msg)?.values());
    ensure!(
        (13_107_200..=13_107_200 + (256 << 10)).contains(&bytes),
        "dd wrote 13107200 bytes, {bytes} counted"
    );
    Ok(())
}

/// More senders than fit the buffers of one short read of the table. All write to one file.
pub fn thousands_of_senders_are_counted() -> Result<()> {
    const SENDERS: usize = 2000;
    let mut source = LiveSource::start(LiveOptions::default())?;
    let folder = Scratch::new();
    let file = folder.join("file");
    direct(&file)?;
    let before = sample(&mut source)?;
    let script = format!(
        "for i in $(seq {SENDERS}); do dd if=/dev/zero of={} bs=4k count=1 oflag=direct conv=notrunc status=none; done",
        file.display()
    );
    ensure!(Command::new("sh").args(["-c", &script]).status()?.success(), "dd failed");
    let after = sample(&mut source)?;
    let new = after.inputs.disk_traffic.iter().filter(|(id, _)| !before.inputs.disk_traffic.contains_key(id));
    let wrote = |traffic: &DiskTraffic| traffic.values().any(|used| used.bytes >= 4096);
    let counted = new.filter(|(_, traffic)| wrote(traffic)).count();
    ensure!(counted >= SENDERS, "{counted} of {SENDERS} processes were counted");
    Ok(())
}
