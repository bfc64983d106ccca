//! Memory in use, beside programs that time their own accesses and hide a number.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{intervals, numatop};
use crate::until::until;
use crate::workload::Workload;
use numatop_ng::access::follow::by_count::{ByTime, Evidence, by_count};
use numatop_ng::access::sample::{Attribution, Decoders};
use numatop_ng::access::self_check::Verdict;
use numatop_ng::access::window::{AccessPlace, Places, Tally};
use numatop_ng::collect::access::follow::{Job, follow};
use numatop_ng::collect::access::{AccessProbe, self_check};
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::placement::draw::Random;
use numatop_ng::model::access::MemoryUse;
use numatop_ng::model::units::CpuId;

/// Samples a second: the error of a share depends on this number.
const HZ: u32 = 997;
/// Samples in the two regions that a comparison needs.
const SAMPLES: usize = 1500;
/// Points between the share of samples and the share of time.
const TOLERANCE: f64 = 5.0;

/// Bytes of each of the two regions.
const REGION: usize = 256 << 20;
/// Accesses of one phase.
const PHASE: u64 = 20_000;
/// Bytes of a page on the machines that have a follower.
const PAGE: u64 = 4096;

/// The shares of one run.
struct Shares {
    /// Share of the first region in the samples of both, and in the time that the program measured, in per cent.
    sampled: f64,
    timed: f64,
    /// Samples in both regions.
    samples: usize,
}

/// A sampler that is not attached yet, and the result of its self-check.
fn sampler() -> Result<(AccessProbe, Result<Verdict, String>)> {
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    let probe = AccessProbe::load(&store, HZ, 1)?;
    let verdict = self_check::run(&probe).map_err(|why| why.to_string());
    Ok((probe, verdict))
}

/// An emulator is the only place where the self-check may refuse.
pub fn is_emulated() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("QEMU") || text.contains("TCG"))
}

fn compare(kind: &str, tenths: u32) -> Result<Option<Shares>> {
    let (mut probe, verdict) = sampler()?;
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(why) if is_emulated() => {
            println!("not compared: {why}");
            return Ok(None);
        }
        Err(why) => bail!("{why}"),
    };
    let mut workload = Workload::start_with(kind, |command| {
        command.env("NUMATOP_NG_TEST_TENTHS", tenths.to_string());
    })?;
    let words = workload.line()?;
    let starts: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let region = |start: u64| start..start + REGION as u64;
    let regions: [Range<u64>; 2] = [region(starts[0]), region(starts[1])];
    let online: Vec<CpuId> =
        numatop_ng::host::topology::read("/".as_ref())?.online_cpus().map(|cpu| cpu.id).collect();
    probe.follow(&online)?;
    let mut decoders = Decoders::default();
    let mut counts = [0.0; 2];
    let (mut user, mut known, mut kernel) = (0, 0, 0);
    workload.go()?;
    until("the workload is sampled", || {
        for sample in probe.take()?.iter().filter(|sample| sample.process.0 == workload.pid()) {
            let Some(state) = &sample.user else {
                kernel += 1;
                continue;
            };
            user += 1;
            let outcome = decoders.outcome(state, verdict.attribution);
            for (address, part) in outcome.addresses() {
                known += 1;
                let found = regions.iter().position(|region| region.contains(&address));
                found.into_iter().for_each(|at| counts[at] += part);
            }
        }
        Ok(counts[0] + counts[1] >= SAMPLES as f64)
    })?;
    workload.go()?;
    let words = workload.line()?;
    let times: Vec<f64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let share = |of: &[f64]| 100.0 * of[0] / (of[0] + of[1]);
    let shares =
        Shares { sampled: share(&counts), timed: share(&times), samples: (counts[0] + counts[1]) as usize };
    println!(
        "{kind} {tenths}/10: {:.1} % of {} samples, {:.1} % of the time; {known} of {user} samples have an address, \
         {kernel} more are in the kernel; self-check {:.0} %",
        shares.sampled, shares.samples, shares.timed, verdict.pct
    );
    Ok(Some(shares))
}

fn shares_by_time_are_right(kind: &str, tenths: u32) -> Result<()> {
    if let Some(Shares { sampled, timed, samples }) = compare(kind, tenths)? {
        ensure!(samples >= SAMPLES, "{samples} samples");
        ensure!(
            (sampled - timed).abs() <= TOLERANCE,
            "{kind}: {sampled:.1} % of samples, {timed:.1} % of the time"
        );
    }
    Ok(())
}

pub fn random_loads_have_the_share_of_their_time() -> Result<()> {
    shares_by_time_are_right("memory-random", 9)?;
    shares_by_time_are_right("memory-random", 5)
}

pub fn dependent_loads_have_the_share_of_their_time() -> Result<()> {
    shares_by_time_are_right("memory-dependent", 1)
}

pub fn stores_have_the_share_of_their_time() -> Result<()> {
    shares_by_time_are_right("memory-stores", 3)
}

/// Samples followed that a comparison by count needs.
const FOLLOWED: u64 = 1500;

/// Samples of one run that were followed.
struct Followed {
    /// Sums, with the regions as mappings.
    found: MemoryUse,
    /// Where the first region begins.
    first: u64,
    /// Share of the first region in the accesses that the workload counted, in per cent.
    counted: f64,
}

/// Follows samples of a workload with two regions; the first gets this many tenths of the accesses.
fn followed(kind: &str, tenths: u32) -> Result<Option<Followed>> {
    let (probe, verdict) = sampler()?;
    match verdict {
        Ok(verdict) => each_followed(probe, verdict.attribution, (kind, tenths), |_, _| {}).map(Some),
        Err(why) if is_emulated() => {
            println!("not compared: {why}");
            Ok(None)
        }
        Err(why) => bail!("{why}"),
    }
}

/// The same, with a look at each sample that was followed: its region, and those of the next two runs.
fn each_followed(
    mut probe: AccessProbe,
    attribution: Attribution,
    (kind, tenths): (&str, u32),
    mut look: impl FnMut(Option<usize>, [Option<usize>; 2]),
) -> Result<Followed> {
    let mut workload = Workload::start_with(kind, |command| {
        command.env("NUMATOP_NG_TEST_TENTHS", tenths.to_string());
    })?;
    let words = workload.line()?;
    let starts: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let region_of =
        |address: u64| starts.iter().position(|start| (*start..start + REGION as u64).contains(&address));
    let online: Vec<CpuId> =
        numatop_ng::host::topology::read("/".as_ref())?.online_cpus().map(|cpu| cpu.id).collect();
    probe.follow(&online)?;
    let (mut decoders, mut random, mut tally) = (Decoders::default(), Random(1), Tally::default());
    let (mut resolved, mut took) = (0, Duration::ZERO);
    workload.go()?;
    until("the workload is sampled and followed", || {
        let mut jobs = Vec::new();
        for sample in probe.take()?.into_iter().filter(|sample| sample.process.0 == workload.pid()) {
            let Some(state) = sample.user else { continue };
            let outcome = decoders.outcome(&state, attribution);
            if outcome.is_memory() {
                jobs.push(Job { process: sample.process, state, outcome, cpu_node: None });
            }
        }
        let began = std::time::Instant::now();
        // The budget of the product is for release builds.
        let budget = Duration::from_secs(1);
        for (_, next) in follow("/".as_ref(), jobs, attribution, PAGE, budget, &mut random) {
            if let Some(next) = next {
                resolved += u64::from(next.runs[0].is_some());
                let own = next.outcome.addresses().find_map(|(address, _)| region_of(address));
                look(own, next.runs.map(|run| run.and_then(region_of)));
                tally.add_next(&next, PAGE.trailing_zeros());
            }
        }
        took += began.elapsed();
        Ok(resolved >= FOLLOWED)
    })?;
    workload.go()?;
    let words = workload.line()?;
    let counts: Vec<f64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let of_page = |page: u64| Some((page, AccessPlace { mapping: region_of(page * PAGE)?, node: None }));
    let places = Places {
        mappings: starts.iter().map(|start| (*start, REGION as u64, String::new())).collect(),
        pages: tally.pages().into_iter().filter_map(of_page).collect(),
        no_nodes: None,
    };
    let found = tally.place(&places);
    let runs = &found.next_runs;
    println!(
        "{kind} {tenths}/10: {} followed in {took:?}, {} resolved, {} of them gone",
        runs.followed, runs.resolved, runs.gone_resolved
    );
    let counted = 100.0 * counts[0] / (counts[0] + counts[1]);
    Ok(Followed { found, first: starts[0], counted })
}

fn shares_by_count_are_right(kind: &str, tenths: u32) -> Result<Option<MemoryUse>> {
    let Some(Followed { found, first, counted }) = followed(kind, tenths)? else { return Ok(None) };
    let evidence = Evidence::of_mappings(&found);
    let of_first = found.mappings.iter().filter(|mapping| mapping.start == first);
    let sampled = 100.0 * of_first.map(|mapping| mapping.followed()).sum::<f64>() / found.placed_by_count();
    println!(
        "{sampled:.1} % of {:.0} samples, {counted:.1} % of the accesses; {evidence:?}",
        evidence.samples
    );
    by_count(&evidence).map_err(|why| anyhow::anyhow!("{kind}: {why}"))?;
    ensure!(evidence.samples >= 1000.0, "{} samples", evidence.samples);
    ensure!(
        (sampled - counted).abs() <= TOLERANCE,
        "{kind}: {sampled:.1} % of samples, {counted:.1} % of the accesses"
    );
    Ok(Some(found))
}

pub fn random_loads_have_the_share_of_their_count() -> Result<()> {
    shares_by_count_are_right("memory-mixed-random", 9).map(drop)
}

pub fn a_pointer_chase_has_the_share_of_its_count() -> Result<()> {
    let Some(found) = shares_by_count_are_right("memory-mixed-chase", 1)? else { return Ok(()) };
    let runs = found.next_runs;
    ensure!(runs.gone_resolved * 2 > runs.resolved, "{runs:?}: its addresses are overwritten");
    Ok(())
}

pub fn stores_have_the_share_of_their_count() -> Result<()> {
    shares_by_count_are_right("memory-mixed-stores", 3).map(drop)
}

/// A function is called with the first region and with the second one by turns, from two places. The return
/// address is on the stack, and soon replaced by another one. If it is read later than the sample was taken,
/// half of the ways go wrong. The self-check does not matter: a way is right wherever it begins.
pub fn returns_go_where_they_went_at_the_sample() -> Result<()> {
    if is_emulated() {
        println!(
            "not compared: samples of an emulator fall on the heads of its blocks, and none behind the load"
        );
        return Ok(());
    }
    let (probe, _) = sampler()?;
    let (mut right, mut wrong) = (0, Vec::new());
    let followed = each_followed(probe, Attribution::Behind, ("memory-turns", 5), |own, [next, then]| {
        let (Some(own), Some(next)) = (own, next) else { return };
        let is_right = next != own && then.is_none_or(|then| then == own);
        if is_right { right += 1 } else { wrong.push((own, next, then)) }
    })?;
    let runs = followed.found.next_runs;
    println!("{right} by turns, {} not; {} of {} resolved", wrong.len(), runs.resolved, runs.followed);
    ensure!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), right + wrong.len(), wrong.first());
    ensure!(right >= 1000, "{right}");
    Ok(())
}

pub fn phases_are_said_to_be_by_time() -> Result<()> {
    let Some(Followed { found, .. }) = followed("memory-random", 5)? else { return Ok(()) };
    let evidence = Evidence::of_mappings(&found);
    println!("{evidence:?}");
    let said = by_count(&evidence);
    ensure!(matches!(said, Err(ByTime::Correlated(correlation)) if correlation > 0.9), "{said:?}");
    Ok(())
}

/// A number that is in every register of the workload, and on its stack.
const MAGIC: u64 = 0x5ca1_ab1e_c0ff_ee42;
/// Place in a mapping that the workload accesses.
const PLACE: u64 = 0x12_3458;

/// A number as recordings have it: seven bits a byte, the lowest first.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The payloads of a recording as they are before compression.
fn payloads(file: &str) -> Result<Vec<u8>> {
    let recording = fs::read(file)?;
    let mut payloads = Vec::new();
    // Frames of zstd begin with this number (RFC 8878, 3.1.1).
    for at in recording.windows(4).enumerate().filter(|(_, four)| *four == [0x28, 0xb5, 0x2f, 0xfd]) {
        let mut frame = zstd::stream::read::Decoder::new(&recording[at.0..])?.single_frame();
        std::io::Read::read_to_end(&mut frame, &mut payloads)?;
    }
    Ok(payloads)
}

pub fn a_number_in_registers_and_on_the_stack_is_in_no_output() -> Result<()> {
    let mut workload = Workload::start("memory-secret")?;
    let start: u64 = workload.line()?.parse()?;
    let pid = workload.pid().to_string();
    let place = crate::recording::Place::new("access", None)?;
    let (beside, alone) = (place.path.join("beside"), place.path.join("alone"));
    let (beside, alone) = (crate::recording::text(&beside)?, crate::recording::text(&alone)?);
    let live = numatop(&[
        "-b", "--format", "json", "--access", "-n", "4", "-d", "0.5", "-p", &pid, "--record", beside,
    ])?;
    let record = numatop(&["record", alone, "--access", "-n", "4", "-d", "0.5", "-p", &pid])?;
    let mut said = Vec::new();
    for output in [live, record] {
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        said.extend([output.stdout, output.stderr]);
    }
    for file in [beside, alone] {
        let exported = numatop(&["export", file, "--format", "json"])?.stdout;
        let text = String::from_utf8_lossy(&exported);
        ensure!(text.contains("\"access\":{"), "{file} has no samples: {text}");
        let payloads = payloads(file)?;
        // A recording without samples would prove nothing.
        let told = payloads.windows(9).any(|bytes| bytes == b"ring_full".as_slice());
        ensure!(told, "the payloads of {file} have no memory use");
        let replayed = numatop(&["replay", file, "-b", "--format", "json"])?.stdout;
        said.extend([fs::read(file)?, payloads, exported, replayed]);
    }
    ensure!(String::from_utf8_lossy(&said[0]).contains("\"access\":{"), "it was not sampled");
    for secret in [MAGIC, start + PLACE] {
        for bytes in &said {
            let forms = [
                format!("{secret:x}").into_bytes(),
                format!("{secret:X}").into_bytes(),
                secret.to_string().into_bytes(),
                secret.to_le_bytes()[..6].to_vec(),
                secret.to_be_bytes()[2..].to_vec(),
                varint(secret),
            ];
            for form in &forms {
                let found = bytes.windows(form.len()).any(|window| window == &form[..]);
                ensure!(!found, "{} is in the output", String::from_utf8_lossy(form));
            }
        }
    }
    Ok(())
}

pub fn json_has_the_mapping_that_is_used() -> Result<()> {
    let mut workload = Workload::start_with("memory-random", |command| {
        command.env("NUMATOP_NG_TEST_TENTHS", "9");
    })?;
    let words = workload.line()?;
    let start: u64 = words.split(' ').next().context("a start")?.parse()?;
    let pid = workload.pid().to_string();
    workload.go()?;
    let lines = intervals(&["-b", "--format", "json", "--access", "-n", "12", "-d", "0.5", "-p", &pid])?;
    let access = &lines.last().context("an interval")?["tasks"][0]["access"];
    if is_emulated() && access.is_null() {
        return Ok(());
    }
    println!("{access}");
    let why = access["missing"]["by_count"].as_str().context("phases are by time")?;
    ensure!(access["by"] == "time" && (why.starts_with("correlated") || why.starts_with("too few")), "{why}");
    ensure!(access["followed"]["resolved"].as_u64() > Some(0), "{access}");
    // A busy machine gives the workload little time; then the reason replaces mappings.
    let Some(mappings) = access["mappings"].as_array() else {
        let why = access["missing"]["mappings"].as_str().context("neither mappings nor a reason")?;
        ensure!(why.contains("shares need"), "{why}");
        return Ok(());
    };
    let (from, bytes) = (mappings[0]["start"].as_str().context("start")?, mappings[0]["bytes"].as_u64());
    let from = u64::from_str_radix(from, 16)?;
    ensure!((from..from + bytes.context("bytes")?).contains(&start), "{access}");
    ensure!(mappings[0]["use_pct"].as_f64() > Some(60.0), "{access}");
    Ok(())
}

pub fn no_memory_use_is_sampled_unless_asked_for() -> Result<()> {
    let lines = intervals(&["-b", "-n", "1", "-d", "0.2", "--format", "json"])?;
    let tasks = lines[0]["tasks"].as_array().context("tasks")?;
    ensure!(tasks.iter().all(|task| task.get("access").is_none() && task["access_source"].is_null()));
    Ok(())
}

/// Memory of a separate mapping, with every page touched.
fn region(advice: libc::c_int) -> *mut u64 {
    // SAFETY: a new mapping, which is written within its length.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // Guards keep it apart from its neighbours.
        let at = libc::mmap(std::ptr::null_mut(), REGION + (4 << 20), libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let at = (at as usize + (2 << 20)) & !((2 << 20) - 1);
        let at = at as *mut libc::c_void;
        assert_eq!(libc::mprotect(at, REGION, protection), 0);
        libc::madvise(at, REGION, advice);
        std::ptr::write_bytes(at.cast::<u8>(), 0, REGION);
        at.cast()
    }
}

/// Time that this thread has run, in ns.
fn thread_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is a local that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The next of `{state}`, through `{at}`: xorshift, 13, 7 and 17 (G. Marsaglia, Xorshift RNGs, 2003).
#[cfg(target_arch = "x86_64")]
macro_rules! next_state {
    () => {
        "mov {at}, {state}
        shl {at}, 13
        xor {state}, {at}
        mov {at}, {state}
        shr {at}, 7
        xor {state}, {at}
        mov {at}, {state}
        shl {at}, 17
        xor {state}, {at}"
    };
}

/// A loop of random accesses: `$access` is given the address as `{base} + {at} * 8`.
macro_rules! random_loop {
    ($base:expr, $seed:expr, $access:literal) => {{
        let mut state: u64 = $seed;
        // SAFETY: the index is below the words of the region.
        unsafe {
            std::arch::asm!(
                "2:",
                next_state!(),
                "mov {at}, {state}",
                "and {at}, {mask}",
                $access,
                "dec {steps}",
                "jnz 2b",
                at = out(reg) _,
                state = inout(reg) state,
                mask = in(reg) (REGION / 8 - 1) as u64,
                base = in(reg) $base,
                steps = inout(reg) PHASE => _,
                other = out(reg) _,
                options(nostack),
            );
        }
        state
    }};
}

/// As [`random_loop`], with the region chosen again before each access: the first one in this many tenths.
/// Returns the state of the random numbers and the accesses to the first region.
#[cfg(target_arch = "x86_64")]
macro_rules! mixed_loop {
    ($regions:expr, $tenths:expr, $seed:expr, $access:literal, $then:literal) => {{
        let mut state: u64 = $seed;
        let mut count: u64 = 0;
        // SAFETY: the index is below the words of a region, and both regions are as long.
        unsafe {
            std::arch::asm!(
                "2:",
                next_state!(),
                "mov {at}, {state}",
                "shr {at}, 40",
                "cmp {at}, {below}",
                "mov {base}, {first}",
                "cmovae {base}, {second}",
                "adc {count}, 0",
                "mov {at}, {state}",
                "and {at}, {mask}",
                $access,
                $then,
                "dec {steps}",
                "jnz 2b",
                at = out(reg) _,
                base = out(reg) _,
                state = inout(reg) state,
                mask = in(reg) (REGION / 8 - 1) as u64,
                first = in(reg) $regions[0],
                second = in(reg) $regions[1],
                below = in(reg) (1u64 << 24) * $tenths / 10,
                count = inout(reg) count,
                steps = inout(reg) PHASE => _,
                other = out(reg) _,
                options(nostack),
            );
        }
        (state, count)
    }};
}

/// Random loads of both regions by turns, in a function that is called from two places.
#[cfg(target_arch = "x86_64")]
fn turns(regions: [*mut u64; 2], seed: u64) -> (u64, u64) {
    let mut state = seed;
    // SAFETY: the index is below the words of a region, both regions are as long, and the stack may be used.
    unsafe {
        std::arch::asm!(
            "2:",
            next_state!(),
            "mov {at}, {state}",
            "and {at}, {mask}",
            "mov {base}, {first}",
            "call 5f",
            "mov {base}, {second}",
            "call 5f",
            "dec {steps}",
            "jnz 2b",
            "jmp 6f",
            "5:",
            "mov {other}, [{base} + {at} * 8]",
            "add {state}, {other}",
            "nop",
            "ret",
            "6:",
            at = out(reg) _,
            base = out(reg) _,
            state = inout(reg) state,
            mask = in(reg) (REGION / 8 - 1) as u64,
            first = in(reg) regions[0],
            second = in(reg) regions[1],
            steps = inout(reg) PHASE / 2 => _,
            other = out(reg) _,
        );
    }
    (state, PHASE / 2)
}

/// Runs as the workload of this kind; false for an unknown kind.
#[cfg(target_arch = "x86_64")]
pub fn run(kind: &str) -> bool {
    match kind {
        "memory-random" => phases(|base, seed| random_loop!(base, seed, "mov {other}, [{base} + {at} * 8]")),
        // The words are zero, so that each address depends on the load before and is random all the same.
        "memory-dependent" => {
            phases(|base, seed| random_loop!(base, seed, "add {state}, [{base} + {at} * 8] // {other}"));
        }
        "memory-stores" => {
            phases(|base, seed| random_loop!(base, seed, "mov [{base} + {at} * 8], {at} // {other}"));
        }
        "memory-mixed-random" => mixed(|regions, tenths, seed| {
            mixed_loop!(regions, tenths, seed, "mov {other}, [{base} + {at} * 8]", "")
        }),
        // The load overwrites its own index, and the next address depends on its result.
        "memory-mixed-chase" => mixed(|regions, tenths, seed| {
            mixed_loop!(
                regions,
                tenths,
                seed,
                "mov {at}, [{base} + {at} * 8] // {other}",
                "add {state}, {at}"
            )
        }),
        "memory-mixed-stores" => mixed(|regions, tenths, seed| {
            mixed_loop!(regions, tenths, seed, "mov [{base} + {at} * 8], {at} // {other}", "")
        }),
        "memory-turns" => mixed(|regions, _, seed| turns(regions, seed)),
        "memory-secret" => secret(),
        _ => return false,
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub fn run(_: &str) -> bool {
    false
}

/// Waits for a line, and sets `done` at the next one.
#[cfg(target_arch = "x86_64")]
fn begin(done: &'static AtomicBool) {
    let _ = std::io::stdin().read_line(&mut String::new());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        done.store(true, Ordering::SeqCst);
    });
}

/// Two regions in phases, the first one in this many tenths of them. Prints where they are, begins at a line
/// of input, and at the next line prints how long each was accessed. Pages of the first are small ones, so
/// that it is slower.
#[cfg(target_arch = "x86_64")]
fn phases(access: impl Fn(*mut u64, u64) -> u64) {
    static DONE: AtomicBool = AtomicBool::new(false);
    let tenths: u64 = std::env::var("NUMATOP_NG_TEST_TENTHS").unwrap().parse().unwrap();
    // Fast stores leave more of their time to the loop around them, which is no memory use: both are as fast then.
    let stores = std::env::var("NUMATOP_NG_TEST_WORKLOAD").is_ok_and(|name| name == "memory-stores");
    let second = if stores { libc::MADV_NOHUGEPAGE } else { libc::MADV_HUGEPAGE };
    let regions = [region(libc::MADV_NOHUGEPAGE), region(second)];
    println!("ready");
    println!("{} {}", regions[0] as u64, regions[1] as u64);
    begin(&DONE);
    let (mut times, mut seed) = ([0; 2], 88_172_645_463_325_252_u64);
    loop {
        // At random: an order that repeats would do so in step with the clock.
        let which = usize::from((seed >> 32) % 10 >= tenths);
        let began = thread_ns();
        seed = access(regions[which], seed);
        times[which] += thread_ns() - began;
        if DONE.load(Ordering::SeqCst) {
            break;
        }
    }
    println!("{} {}", times[0], times[1]);
    std::thread::sleep(Duration::from_secs(1));
}

/// Two regions, chosen again before each access. Prints where they are, begins at a line of input, and at the
/// next line prints how often each was accessed. Pages of the first are small ones, so that it is slower.
#[cfg(target_arch = "x86_64")]
fn mixed(access: impl Fn([*mut u64; 2], u64, u64) -> (u64, u64)) {
    static DONE: AtomicBool = AtomicBool::new(false);
    let tenths: u64 = std::env::var("NUMATOP_NG_TEST_TENTHS").unwrap().parse().unwrap();
    let regions = [region(libc::MADV_NOHUGEPAGE), region(libc::MADV_HUGEPAGE)];
    println!("ready");
    println!("{} {}", regions[0] as u64, regions[1] as u64);
    begin(&DONE);
    let (mut counts, mut seed) = ([0; 2], 88_172_645_463_325_252_u64);
    while !DONE.load(Ordering::SeqCst) {
        let first;
        (seed, first) = access(regions, tenths, seed);
        counts = [counts[0] + first, counts[1] + PHASE - first];
    }
    println!("{} {}", counts[0], counts[1]);
    std::thread::sleep(Duration::from_secs(1));
}

/// Loads from one place with the magic number in all other registers and on the stack.
#[cfg(target_arch = "x86_64")]
fn secret() {
    let start = region(libc::MADV_NOHUGEPAGE);
    let stack = [MAGIC; 512];
    println!("ready");
    println!("{}", start as u64);
    loop {
        std::hint::black_box(&stack);
        // SAFETY: the place is inside of the region, and registers that change are named.
        unsafe {
            std::arch::asm!(
                "2: add qword ptr [rdi], 1",
                "cmp byte ptr [rdi + 3], 0",
                "je 2b",
                "mov qword ptr [rdi], 0",
                in("rdi") start as u64 + PLACE,
                inout("rax") MAGIC => _, inout("rcx") MAGIC => _, inout("rdx") MAGIC => _,
                inout("rsi") MAGIC => _, inout("r8") MAGIC => _, inout("r9") MAGIC => _,
                inout("r10") MAGIC => _, inout("r11") MAGIC => _, inout("r12") MAGIC => _,
                inout("r13") MAGIC => _, inout("r14") MAGIC => _, inout("r15") MAGIC => _,
                options(nostack),
            );
        }
    }
}
