//! Runs guests, several at a time, and draws the sum.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt::{Display, Write};
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vmtests_protocol::{CASE_LIMIT, Plan};

use crate::boot::{self, End, Guest, Limits};
use crate::debian;
use crate::image::{self, Programs};
use crate::kernels::Arch;
use crate::options::Options;
use crate::plan::Job;
use crate::qemu::{self, Start};
use crate::record::{GuestEnd, GuestId, Record, What};
use crate::report;
use crate::snapshots;
use crate::summary::Sum;
use crate::transcript::{Story, Tally};

/// To the ready line. A boot takes 2 to 12 s on a quiet host with up to 16 CPUs.
const BOOT: Duration = Duration::from_secs(180);
/// The same for each CPU: one thread of the host brings all of them up, in 53 s for 128.
const BOOT_OF_A_CPU: Duration = Duration::from_secs(3);
/// Beyond the limit that the guest has for a case: it can say which one hangs.
const CASE: Duration = CASE_LIMIT.saturating_add(Duration::from_secs(10));
/// Console lines that are printed of a guest that failed.
const CONSOLE_LINES: usize = 60;

/// Runs the guests, as many at a time as asked for.
pub fn all(jobs: &[Job], options: &Options) -> Result<u8, String> {
    let started = Instant::now();
    let run = Run::new(jobs, options)?;
    let at_once = options.jobs.min(jobs.len()).max(1);
    let broken_off = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(|| run.work(at_once > 1))).collect();
        // The first that failed; a worker that panicked takes us with it.
        let ends =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ends.filter_map(Result::err).next()
    });
    let sum = run.sum.into_inner().expect("no worker panicked");
    // Also after an interruption: the results of the guests so far.
    report::print(sum.text(jobs.len(), started.elapsed()));
    match broken_off {
        Some(why) => Err(why),
        None => Ok(sum.status()),
    }
}

/// The shared state of the workers.
struct Run<'a> {
    jobs: &'a [Job],
    options: &'a Options,
    programs: BTreeMap<Arch, Programs>,
    /// The job that the next free worker takes.
    next: AtomicUsize,
    record: Mutex<Record>,
    sum: Mutex<Sum>,
}

/// Lines of one guest: as they come when it runs alone, in one piece otherwise.
struct Teller {
    held: Option<String>,
}

impl<'a> Run<'a> {
    fn new(jobs: &'a [Job], options: &'a Options) -> Result<Run<'a>, String> {
        let mut programs = BTreeMap::new();
        for arch in jobs.iter().map(|job| job.kernel.arch).filter(|arch| !options.not_built.contains(arch)) {
            if let Entry::Vacant(place) = programs.entry(arch) {
                place.insert(Programs::read(&options.binaries.join(arch.machine()))?);
            }
        }
        Ok(Run {
            jobs,
            options,
            programs,
            next: AtomicUsize::new(0),
            record: Mutex::new(Record::open(options.json.as_deref())?),
            sum: Mutex::default(),
        })
    }

    /// Takes jobs until none is left, or until something fails that is not a guest's fault.
    fn work(&self, several: bool) -> Result<(), String> {
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if several {
                // Its output comes when it has ended, minutes later.
                eprintln!("vmtests: {} begins", GuestId::of(job));
            }
            let mut teller = Teller { held: several.then(String::new) };
            let done = self.guest(job, &mut teller);
            teller.end();
            if let Err(why) = done {
                self.next.store(self.jobs.len(), Ordering::Relaxed);
                self.break_off(&GuestId::of(job), &why);
                return Err(why);
            }
        }
        Ok(())
    }

    /// One guest, from its name to its verdict.
    fn guest(&self, job: &Job, teller: &mut Teller) -> Result<(), String> {
        let arch = job.kernel.arch;
        let id = GuestId::of(job);
        teller.say(&id);
        let (tally, end) = match self.programs.get(&arch) {
            Some(programs) => self.boot(job, &id, programs, teller)?,
            None => {
                let why = format!("the binaries for {arch} cannot be built here; build-static says why");
                (Tally::default(), GuestEnd::not_covered(why))
            }
        };
        let mut sum = self.sum.lock().expect("no worker panicked");
        sum.ended += 1;
        sum.booted_twice += end.retries;
        sum.tally += tally;
        if let Some(why) = &end.failed {
            teller.say(format_args!("  FAILED  the guest: {why}"));
            sum.broken.push(format!("{id}: {why}"));
        }
        if let Some(why) = &end.not_covered {
            teller.say(format_args!("  not covered: {why}"));
            sum.not_covered.push(format!("{id}: {why}"));
        }
        drop(sum);
        self.add(&id, What::Guest(end))
    }

    /// A guest that was not seen to its end has failed, also in the results, if those can still be written.
    fn break_off(&self, id: &GuestId, why: &str) {
        self.sum.lock().expect("no worker panicked").broken.push(format!("{id}: {why}"));
        let end = GuestEnd { failed: Some(why.to_owned()), ..GuestEnd::default() };
        let _ = self.add(id, What::Guest(end));
    }

    fn add(&self, id: &GuestId, what: What) -> Result<(), String> {
        self.record.lock().expect("no worker panicked").add(id, what)
    }
}

impl Teller {
    fn say(&mut self, line: impl Display) {
        let line = report::printable(&line.to_string());
        match &mut self.held {
            Some(text) => writeln!(text, "{line}").expect("a string takes all"),
            None => report::print(format_args!("{line}\n")),
        }
    }

    /// No other output comes in between: standard output is locked for one call.
    fn end(self) {
        if let Some(text) = self.held {
            report::print(text);
        }
    }
}

impl Run<'_> {
    /// Boots it, a second time if it does not come up, and follows its output.
    fn boot(
        &self,
        job: &Job,
        id: &GuestId,
        programs: &Programs,
        teller: &mut Teller,
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
        // Lines about devices are loops of a shell.
        let shell = plan.machine.disk_node.map(|_| debian::busybox(job.kernel.arch));
        let busybox = match shell.transpose().and_then(|path| path.as_deref().map(image::read).transpose()) {
            Ok(busybox) => busybox,
            Err(why) => return Ok((Tally::default(), GuestEnd::not_covered(why))),
        };
        let initramfs = programs.initramfs(&plan, busybox.as_deref());
        let start = Start {
            arch: job.kernel.arch,
            machine: &plan.machine,
            kernel: &kernel,
            processor: &job.kernel.processor,
        };
        let guest = Guest { start, initramfs: &initramfs };
        let limits = Limits { boot: BOOT.max(BOOT_OF_A_CPU * plan.machine.cpus()), case: CASE };
        loop {
            let mut story = Story::new(self.options.verbose, &plan.cases);
            let mut trouble = None;
            let mut load = snapshots::Seen::default();
            let ran = boot::run(&guest, limits, |event| {
                for line in story.follow(&event) {
                    teller.say(line);
                }
                load.follow(&event);
                trouble = self.add(id, What::Event(event)).err().or(trouble.take());
            })?;
            if let Some(why) = trouble {
                return Err(why);
            }
            end.seconds += ran.seconds;
            if let Some(verdict) = load.verdict(&self.options.snapshots, id, self.options.accept)? {
                if let Some(event) = verdict.end() {
                    for line in story.follow(&event) {
                        teller.say(line);
                    }
                    self.add(id, What::Event(event))?;
                }
                for line in verdict.lines() {
                    teller.say(line);
                }
            }
            let why = story.fault(&ran.end);
            if let Some(why) = why {
                // Some boots die under TCG, which is not a fault of the code under test; a guest that came to
                // user space has no such excuse.
                if !ran.ready && end.retries == 0 && matches!(ran.end, End::Died(_)) {
                    print_console(&ran.console, teller);
                    teller.say(format_args!("  the guest did not come up ({why}); once more"));
                    end.retries += 1;
                    continue;
                }
                for event in story.missing_ends(&why) {
                    for line in story.follow(&event) {
                        teller.say(line);
                    }
                    self.add(id, What::Event(event))?;
                }
                print_console(&ran.console, teller);
                end.failed = Some(why);
            } else if story.tally.failed > 0 {
                print_console(&ran.console, teller);
            }
            return Ok((story.tally, end));
        }
    }
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

fn print_console(console: &str, teller: &mut Teller) {
    let lines: Vec<&str> = console.lines().collect();
    if lines.is_empty() {
        teller.say("  the console stayed empty");
        return;
    }
    let shown = lines.len().min(CONSOLE_LINES);
    teller.say(format_args!("  console, last {shown} of {} lines:", lines.len()));
    for line in &lines[lines.len() - shown..] {
        teller.say(format_args!("  | {line}"));
    }
}
