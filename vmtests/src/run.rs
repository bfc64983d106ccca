//! Runs guests one after the other and draws the sum.

use std::collections::btree_map::{BTreeMap, Entry};
use std::time::{Duration, Instant};

use serde_json::Value;
use vmtests_protocol::{CASE_LIMIT, Event, Plan};

use crate::boot::{self, End, Guest};
use crate::debian;
use crate::image::Programs;
use crate::kernels::Arch;
use crate::options::Options;
use crate::plan::Job;
use crate::qemu::{self, Start};
use crate::record::{GuestEnd, GuestId, Record, What};
use crate::snapshots::{self, Verdict};
use crate::story::{Story, Tally};

/// A boot takes 2 to 12 s on a quiet host. The limit is for what hangs.
const BOOT: Duration = Duration::from_secs(180);
/// Beyond the limit that the guest has for a case: it can say which one hangs.
const CASE: Duration = CASE_LIMIT.saturating_add(Duration::from_secs(10));
/// Console lines that are printed of a guest that failed.
const CONSOLE_LINES: usize = 60;

const FAILED: u8 = 1;
const PARTIAL: u8 = 3;

pub fn all(jobs: &[Job], options: &Options) -> Result<u8, String> {
    let started = Instant::now();
    let mut record = Record::open(options.json.as_deref())?;
    let mut programs = BTreeMap::new();
    let mut sum = Tally::default();
    let mut broken = Vec::new();
    let mut not_covered = Vec::new();
    for job in jobs {
        let arch = job.kernel.arch;
        let id = GuestId::of(job);
        println!("{id}");
        if options.not_built.contains(&arch) {
            let why = format!("the binaries for {arch} cannot be built here; build-static says why");
            println!("  not covered: {why}");
            not_covered.push(format!("{id}: {why}"));
            record.add(&id, What::Guest(GuestEnd::not_covered(why)))?;
            continue;
        }
        let programs = match programs.entry(arch) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                place.insert(Programs::read(&options.binaries.join(arch.machine()), None)?)
            }
        };
        let (tally, end) = one(job, &id, programs, options, &mut record)?;
        sum.passed += tally.passed;
        sum.failed += tally.failed;
        sum.skipped += tally.skipped;
        if let Some(why) = &end.failed {
            println!("  FAILED  the guest: {why}");
            broken.push(format!("{id}: {why}"));
        }
        if let Some(why) = &end.not_covered {
            println!("  not covered: {why}");
            not_covered.push(format!("{id}: {why}"));
        }
        record.add(&id, What::Guest(end))?;
    }
    for why in &broken {
        println!("guest failed: {why}");
    }
    for why in &not_covered {
        println!("not covered: {why}");
    }
    if !not_covered.is_empty() {
        println!("PARTIAL: {} of {} guests were not covered", not_covered.len(), jobs.len());
    }
    println!("{} guests in {:.0} s", jobs.len(), started.elapsed().as_secs_f64());
    // A guest that ends badly fails like a case, or the sum would hide it.
    sum.failed += broken.len() as u32;
    // The last line, and nothing else on it: other programs read it.
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    if sum.failed > 0 {
        Ok(FAILED)
    } else if !not_covered.is_empty() {
        Ok(PARTIAL)
    } else {
        Ok(0)
    }
}

fn one(
    job: &Job,
    id: &GuestId,
    programs: &Programs,
    options: &Options,
    record: &mut Record,
) -> Result<(Tally, GuestEnd), String> {
    let mut end = GuestEnd::default();
    let kernel = match debian::kernel(&job.kernel, false) {
        Ok((path, package)) => {
            end.package = Some(package);
            path
        }
        Err(why) => {
            return Ok((Tally::default(), GuestEnd::not_covered(why)));
        }
    };
    let plan = plan(job, programs);
    let initramfs = programs.initramfs(&plan);
    let start = Start {
        arch: job.kernel.arch,
        machine: &plan.machine,
        kernel: &kernel,
        processor: &job.kernel.processor,
    };
    let guest = Guest { start, initramfs: &initramfs, deadline: BOOT + CASE * plan.cases.len() as u32 };
    loop {
        let mut story = Story::new(options.verbose);
        let mut trouble = None;
        let mut load = None;
        let ran = boot::run(&guest, |event| {
            for line in story.follow(&event) {
                println!("{line}");
            }
            if let Event::Data { key, value, .. } = &event
                && key == "load"
            {
                load = Some(value.clone());
            }
            trouble = record.add(id, What::Event(event)).err().or(trouble.take());
        })?;
        if let Some(why) = trouble {
            return Err(why);
        }
        end.seconds += ran.seconds;
        if let Some(load) = &load {
            compare_snapshot(id, load, options, &mut story.tally)?;
        }
        let why = match (&ran.end, story.unfinished()) {
            (End::Exit(0), None) if story.tally.failed == 0 => None,
            // The cases that failed say why; the guest itself did its work.
            (End::Exit(_), None) if story.tally.failed > 0 => None,
            (End::Exit(code), _) => Some(format!("EXIT {code} does not fit what its cases said")),
            (End::Died(status), at) => Some(format!("{status}{}", during(at))),
            (End::Deadline(limit), at) => Some(format!("no end after {} s{}", limit.as_secs(), during(at))),
            (End::Noise(why), at) => Some(format!("{why}{}", during(at))),
        };
        if let Some(why) = why {
            for line in story.rest() {
                println!("{line}");
            }
            print_console(&ran.console);
            // Some boots die under TCG through no fault of what is tested; a guest that came
            // to user space has no such excuse.
            if !ran.ready && end.retries == 0 {
                println!("  the guest did not come up ({why}); once more");
                end.retries += 1;
                continue;
            }
            end.failed = Some(why);
        } else if story.tally.failed > 0 {
            print_console(&ran.console);
        }
        return Ok((story.tally, end));
    }
}

/// The snapshot is a case of its own: what a kernel takes may change only by a reviewed commit.
fn compare_snapshot(id: &GuestId, load: &Value, options: &Options, tally: &mut Tally) -> Result<(), String> {
    match snapshots::check(&options.snapshots, id, load, options.accept)? {
        Verdict::Same => {
            tally.passed += 1;
            println!("  passed  snapshot");
        }
        Verdict::Written(path) => println!("  written {}", path.display()),
        Verdict::Different(lines) => {
            tally.failed += 1;
            println!("  FAILED  snapshot: what this kernel takes has changed; --accept after a review");
            for line in lines {
                println!("      {line}");
            }
        }
    }
    Ok(())
}

fn during(case: Option<&str>) -> String {
    case.map(|case| format!(", during case {case}")).unwrap_or_default()
}

fn plan(job: &Job, programs: &Programs) -> Plan {
    let arch: Arch = job.kernel.arch;
    Plan {
        results: Some(qemu::results(arch).to_owned()),
        console: format!("/dev/{}", qemu::console(arch)),
        cases: job.cases.clone(),
        machine: job.topology.machine(job.variant.pmu(arch), job.variant.lockdown()),
        tool: programs.tool.is_some(),
        shell: None,
    }
}

fn print_console(console: &str) {
    let lines: Vec<&str> = console.lines().collect();
    if lines.is_empty() {
        println!("  the console stayed empty");
        return;
    }
    let shown = lines.len().min(CONSOLE_LINES);
    println!("  console, last {shown} of {} lines:", lines.len());
    for line in &lines[lines.len() - shown..] {
        println!("  | {}", printable(line));
    }
}

/// The console is the guest's to write; nothing in it may reach this terminal as a command.
fn printable(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).collect()
}
