//! Memory in use by the code that touched it first: a program with three regions; one of them was touched
//! early.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::access::is_emulated;
use crate::program;
use crate::until::PATIENCE;
use crate::workload::Workload;

/// The workload of this test.
pub const NAME: &str = "first-touches";
/// Bytes of a region: more than a cache holds, and enough that pages touched after the last sample are few.
const REGION: usize = 192 << 20;
const PAGE: usize = 4096;
/// Tenths of the loads that go to each region.
const TENTHS: [u64; 3] = [2, 5, 3];
/// Shares of an object and of its mapping are of the same samples. They differ, in percentage points, by
/// pages at the ends of a region, beyond the first and the last sampled touch. With huge pages a region has
/// about twenty.
const CLOSE: f64 = 5.0;

/// A region followed by an inaccessible page, so that it is a separate mapping.
fn region() -> *mut u8 {
    // SAFETY: the kernel chooses a place where nothing is mapped; the part that is made accessible is within it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), REGION + PAGE, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(at, REGION, libc::PROT_READ | libc::PROT_WRITE), 0);
        at.cast()
    }
}

#[inline(never)]
fn touched_by_a_loop(at: *mut u8) {
    for place in (0..REGION).step_by(64) {
        // SAFETY: within the region. A store of this function itself, also without optimisation.
        unsafe { *at.add(place) = 1 };
    }
    std::hint::black_box(at);
}

/// The function of the C library that touches the memory has no frame.
#[inline(never)]
fn touched_by_memset(at: *mut u8) {
    // SAFETY: within the region.
    unsafe { libc::memset(at.cast(), 1, REGION) };
    // Else the call would be a jump.
    std::hint::black_box(at);
}

/// Runs as the workload: prints where the regions are, touches two at a line of input, and uses all three.
pub fn run() {
    let regions = [region(), region(), region()];
    touched_by_a_loop(regions[0]);
    println!("ready");
    println!("{}", regions.map(|region| format!("{:x}", region as usize)).join(" "));
    let _ = std::io::stdin().read_line(&mut String::new());
    touched_by_a_loop(regions[1]);
    // Touches that follow each other are sampled more often after a rest.
    std::thread::sleep(Duration::from_secs(1));
    touched_by_memset(regions[2]);
    let mut state = 88_172_645_463_325_252_u64;
    loop {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let tenth = (state >> 40) % 10;
        let which = usize::from(tenth >= TENTHS[0]) + usize::from(tenth >= TENTHS[0] + TENTHS[1]);
        let place = (state >> 8) as usize % (REGION / 8) * 8;
        // SAFETY: within the region, and a multiple of eight.
        std::hint::black_box(unsafe { std::ptr::read_volatile(regions[which].add(place).cast::<u64>()) });
    }
}

pub fn memory_has_the_function_that_touched_it_first() -> Result<()> {
    let mut workload = Workload::start(NAME)?;
    let words = workload.line()?;
    let starts: Vec<&str> = words.split(' ').collect();
    let pid = workload.pid().to_string();
    let mut child = Command::new(program::path())
        .args(["-b", "--json-full", "--access", "-d", "0.5", "-p", &pid])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let shown = judge(&mut workload, &starts, child.stdout.take().context("stdout")?);
    child.kill()?;
    child.wait()?;
    shown
}

fn judge(workload: &mut Workload, starts: &[&str], out: impl std::io::Read) -> Result<()> {
    let (limit, mut told) = (Instant::now() + PATIENCE, false);
    let mut found = Value::Null;
    for line in BufReader::new(out).lines() {
        let interval: Value = serde_json::from_str(&line?)?;
        if let Some(why) = interval["missing"]["mem_time_pct"].as_str().filter(|_| is_emulated()) {
            println!("not compared: {why}");
            return Ok(());
        }
        // The sampler is loaded with the first interval.
        if !std::mem::replace(&mut told, true) {
            workload.go()?;
        }
        let row = interval["tasks"].as_array().and_then(|rows| rows.first());
        found = row.map(|row| row["access"].clone()).unwrap_or_default();
        // Samples from before the regions were touched have left the window.
        let has_all = found["objects"].as_array().is_some_and(|objects| objects.len() >= 2);
        if has_all && found["window_s"].as_f64() > Some(10.0) && found["samples"].as_u64() > Some(500) {
            break;
        }
        ensure!(Instant::now() < limit, "waited {} s in vain: {found}", PATIENCE.as_secs());
    }
    println!("{}", found["objects"]);
    let mappings = found["mappings"].as_array().context("no mappings")?;
    let objects = found["objects"].as_array().context("no objects")?;
    // Without optimisation most loads overwrite the register with their address: their share is by count alone.
    let share = |part: &Value| part["use_pct"].as_f64().or(part["accesses_pct"].as_f64());
    let of_mapping = |start: &str| {
        let mapping = mappings.iter().find(|mapping| mapping["start"] == start);
        mapping.and_then(share).with_context(|| format!("no mapping {start}: {found}"))
    };
    let of_object = |function: &str| {
        let is_its = |object: &&Value| {
            object["functions"][0]["function"].as_str().is_some_and(|name| name.contains(function))
        };
        let object = objects.iter().find(is_its).with_context(|| format!("no {function}: {found}"))?;
        ensure!(object["first_touches"].as_u64() > Some(5), "{object}");
        share(object).context("no share")
    };
    for (start, function) in [(starts[1], "touched_by_a_loop"), (starts[2], "touched_by_memset")] {
        let (its, all) = (of_object(function)?, of_mapping(start)?);
        println!("{function}: {its} of {all} %");
        ensure!(its <= all + 0.1 && its >= all - CLOSE, "{function}: {its} % and {all} % of its mapping");
    }
    // The same function touched the first region before sampling began.
    let old = of_mapping(starts[0])?;
    let known: f64 = objects.iter().filter_map(share).sum();
    if old < 5.0 || known > 101.0 - old {
        bail!("{known} % known, and {old} % in memory that was touched before: {found}");
    }
    Ok(())
}
