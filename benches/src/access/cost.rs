//! Cost of sampling by default: to a program that is sampled, in turns with and without, and of the live view itself.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::case::{Backing, Case, Kind, Pages};
use super::load::Running;
use crate::Plan;
use crate::numbers::Spread;
use crate::process::{below, cpu_time};
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;
use numatop_ng::collect::access::AccessProbe;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::model::units::CpuId;

/// The default rate, and one that is high enough to separate a sample from noise.
const RATES: [u32; 2] = [97, 4999];
/// A window with or without samples, and its pieces between which the ring is emptied. A sample that finds
/// the ring full costs less than one that is taken.
const WINDOW: Duration = Duration::from_millis(500);
const PIECES: u32 = 10;
const ROUNDS: usize = 60;
/// The goals: slowdown of the program, and CPU time of the tool, in per cent.
const SLOWDOWN_MAX: f64 = 0.5;
const OWN_MAX: f64 = 1.0;
/// Time of the live view in each of its turns, after it is up.
const VIEW: Duration = Duration::from_secs(15);
const VIEWS: usize = 3;

/// # Errors
/// The sampler, the program or the live view could not be started.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Memory in use: cost of sampling");
    victims(plan, &mut report)?;
    view(plan, &mut report)?;
    Ok(report)
}

fn case(kind: Kind) -> Case {
    Case { kind, threads: 1, pages: Pages::Small, backing: Backing::Anonymous, tenths: 5 }
}

fn victims(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        "A program of one thread in half-second windows with and without samples by turns: accesses in a second of its CPU \
         time, slowdown in per cent against the windows before and after; µs of each of the samples that came by that. A kernel that is \
         built with CONFIG_IRQ_TIME_ACCOUNTING leaves interrupts out of CPU time, and shows less.",
        &[
            "accesses",
            "samples/s",
            "came, in a second of its CPU time",
            "slowdown %, median (quartiles)",
            "mean %",
            "standard error",
            "µs a sample",
        ],
    );
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    let cpus: Vec<CpuId> =
        numatop_ng::host::topology::read(Path::new("/"))?.online_cpus().map(|cpu| cpu.id).collect();
    for kind in [Kind::Random, Kind::Streams] {
        let mut running = Running::start(&case(kind), kind == Kind::Streams)?;
        let (pid, mut by_sample) = (running.pid(), None);
        for hz in RATES {
            let mut probe = AccessProbe::load(&store, hz, cpus.len() as u32)?;
            // Fewer come where the kernel throttles them, or something else runs on the CPU.
            let (mut came, mut sampled_ns) = (0, 0.0);
            let mut window = |on: bool| -> Result<f64> {
                probe.set_rate(if on { hz } else { 0 });
                probe.follow(&cpus)?;
                let before = running.truth()?;
                for _ in 0..PIECES {
                    thread::sleep(WINDOW / PIECES);
                    came += probe.take()?.iter().filter(|sample| sample.process.0 == pid).count();
                }
                let truth = running.truth()?.since(&before);
                sampled_ns += if on { truth.times[0] + truth.times[1] } else { 0.0 };
                Ok((truth.counts[0] + truth.counts[1]) / (truth.times[0] + truth.times[1]))
            };
            let mut slowdowns = Vec::new();
            let mut before = window(false)?;
            for _ in 0..if plan.quick { ROUNDS / 10 } else { ROUNDS } {
                let (with, after) = (window(true)?, window(false)?);
                slowdowns.push(100.0 * (1.0 - with * 2.0 / (before + after)));
                before = after;
            }
            let lost: u64 = probe.lost().values().sum();
            if lost > 0 {
                report.note(format!(
                    "{}: {lost} samples were lost at {hz} Hz; each of them costs less than one that is taken.",
                    kind.name()
                ));
            }
            let count = slowdowns.len() as f64;
            let mean = slowdowns.iter().sum::<f64>() / count;
            let variance = slowdowns.iter().map(|slowdown| (slowdown - mean).powi(2)).sum::<f64>() / count;
            let spread = Spread::of(&slowdowns);
            let rate = came as f64 / (sampled_ns / 1e9);
            ensure!(rate > 0.0, "no sample of {} came at {hz} Hz", kind.name());
            let micros = spread.median / 100.0 * 1e6 / rate;
            by_sample = Some(micros);
            table.rows.push(vec![
                Cell::text(kind.name()),
                Cell::text(hz.to_string()),
                Cell::Number(rate, 1),
                Cell::spread(spread, 2),
                Cell::Number(mean, 2),
                Cell::Number((variance / count).sqrt(), 2),
                Cell::Number(micros, 1),
            ]);
            if hz == RATES[0] {
                report.at_most(
                    format!("{}: slowdown at {hz} Hz, median, %", kind.name()),
                    SLOWDOWN_MAX,
                    spread.median,
                    2,
                );
            }
        }
        if let Some(micros) = by_sample {
            let slowdown = micros * f64::from(RATES[0]) / 1e4;
            let words = format!("{}: slowdown at 97 Hz by the cost of a sample at 4,999 Hz, %", kind.name());
            report.at_most(words, SLOWDOWN_MAX, slowdown, 2);
        }
    }
    report.tables.push(table);
    Ok(())
}

/// CPU time of the live view on the details of a program, with its reader of pages, in per cent of a CPU.
fn share(plan: &Plan, pid: &str, more: &[&str]) -> Result<f64> {
    let binary = plan.binary.to_string_lossy();
    let words = [&["-d", "1", "-p", pid], more].concat();
    let mut screen = Screen::start(&binary, &words, &[])?;
    screen.wait_for(|text| text.contains("COMMAND"), Duration::from_secs(20))?;
    screen.press("\r")?;
    screen.wait_for(|text| text.contains("cgroup"), Duration::from_secs(20))?;
    thread::sleep(Duration::from_secs(3));
    let uses = |screen: &Screen| -> Result<Duration> {
        let readers = below(screen.pid(), "nng-pages").into_iter();
        Ok(cpu_time(screen.pid())? + readers.filter_map(|pid| cpu_time(pid).ok()).sum::<Duration>())
    };
    let (from, began) = (uses(&screen)?, Instant::now());
    thread::sleep(if plan.quick { VIEW / 5 } else { VIEW });
    Ok(100.0 * (uses(&screen)? - from).as_secs_f64() / began.elapsed().as_secs_f64())
}

fn view(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        "The live view on the details of a program of one thread, once a second: % of a CPU, with its reader of pages and without \
         the BPF programs, by turns.",
        &["accesses", "with --no-access", "by default", "more"],
    );
    for kind in [Kind::Random, Kind::Zipf09] {
        let running = Running::start(&case(kind), false)?;
        let pid = running.pid().to_string();
        let (mut without, mut with, mut more) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..if plan.quick { 1 } else { VIEWS } {
            without.extend([share(plan, &pid, &["--no-access"])?]);
            with.extend([share(plan, &pid, &[])?]);
            more.extend(with.last().zip(without.last()).map(|(with, without)| with - without));
        }
        let spread = Spread::of(&more);
        table.rows.push(vec![
            Cell::text(kind.name()),
            Cell::spread(Spread::of(&without), 2),
            Cell::spread(Spread::of(&with), 2),
            Cell::spread(spread, 2),
        ]);
        report.at_most(format!("{}: more of a CPU by default, %", kind.name()), OWN_MAX, spread.median, 2);
    }
    report.tables.push(table);
    Ok(())
}
