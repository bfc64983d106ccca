//! Memory in use against programs that time and count their own accesses to two regions, which stand in place of two nodes.

pub mod case;
pub mod cost;
mod draws;
pub mod load;
mod sampled;

use anyhow::Result;
use numatop_ng::access::follow::by_count::by_count;

use crate::Plan;
use crate::report::{Cell, Report, Table};

use self::case::{CASES, Case};
use self::draws::{Held, holds};
use self::load::Running;
use self::sampled::{Sampler, Samples};

/// Points between a share of samples and the truth.
const POINTS: f64 = 5.0;
/// Draws of a hundred whose own error must hold the truth.
const HOLDS: f64 = 95.0;
/// Samples in the two regions; a busy machine may give fewer within the time limit.
const SAMPLES: usize = 3000;

/// The comparison of one way of sampling with its truth, in per cent of the first region.
struct Compared {
    truth: f64,
    share: f64,
    /// Draws of a hundred that hold the truth.
    held: Held,
}

impl Compared {
    fn of(samples: &[bool], unknown: f64, truth: [f64; 2], seed: u64) -> Option<Compared> {
        let whole = truth[0] + truth[1];
        let truth = 100.0 * truth[0] / whole;
        let share = 100.0 * samples.iter().filter(|first| **first).count() as f64 / samples.len() as f64;
        let held = holds(samples, unknown, truth, seed)?;
        Some(Compared { truth, share, held })
    }

    fn points(&self) -> f64 {
        (self.share - self.truth).abs()
    }
}

/// Three cells of a comparison.
fn cells(compared: Option<&Compared>) -> [Cell; 3] {
    match compared {
        None => [Cell::Nothing, Cell::Nothing, Cell::Nothing],
        Some(Compared { truth, share, held }) => {
            [Cell::Number(*truth, 1), Cell::Number(*share, 1), Cell::Number(held.by_error as f64, 0)]
        }
    }
}

/// Phases of accesses to one region, each timed: own addresses of samples are shares of that time.
fn by_time(case: &Case, sampler: &mut Sampler, wanted: usize) -> Result<(Option<Compared>, Samples)> {
    let mut running = Running::start(case, true)?;
    let (samples, truth) = sampler.beside(&mut running, wanted)?;
    let compared = match samples.has_addresses() {
        true => Compared::of(&samples.own, samples.unknown(), truth.times, 1),
        false => None,
    };
    Ok((compared, samples))
}

/// Accesses with the region chosen before each: the next runs of instructions are shares of their number.
fn by_number(case: &Case, sampler: &mut Sampler, wanted: usize) -> Result<(Option<Compared>, Samples)> {
    let mut running = Running::start(case, false)?;
    let (samples, truth) = sampler.beside(&mut running, wanted)?;
    Ok((Compared::of(&samples.next, 0.0, truth.counts, 2), samples))
}

/// Samples programs whose accesses are known, one after the other.
///
/// # Errors
/// The self-check refuses this CPU, or a program could not be started.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Memory in use: shares of one of two regions");
    let mut sampler = Sampler::start()?;
    report.note(format!(
        "Self-check: {:.0} % of samples behind the slow instruction. {} samples a second on each CPU, some {SAMPLES} \
         samples in each comparison. A number of draws: of a hundred draws of {} samples, those within whose own error \
         (Wilson) the truth is.",
        sampler.check_pct(),
        sampled::HZ,
        draws::DRAW
    ));
    let mut table = Table::new(
        "Share of the first region in per cent. By time: phases of accesses to one region, timed by the program, beside \
         addresses of samples. By number: the region is chosen before each access, counted by the program, beside the next \
         runs of sampled instructions.",
        &[
            "accesses",
            "threads",
            "memory",
            "timed",
            "by time",
            "draws",
            "counted",
            "by number",
            "draws",
            "said to be by",
            "resolved",
        ],
    );
    let (mut worst, mut draws): ([f64; 2], [Vec<f64>; 2]) = ([0.0; 2], [Vec::new(), Vec::new()]);
    let (mut misjudged, mut bounds) = (0, Vec::new());
    for case in CASES.iter().filter(|case| !plan.quick || case.is_quick()) {
        let wanted = if plan.quick { SAMPLES / 2 } else { SAMPLES };
        let phases = case.kind.has_phases().then(|| by_time(case, &mut sampler, wanted)).transpose()?;
        let mixed = case.kind.is_mixed().then(|| by_number(case, &mut sampler, wanted)).transpose()?;
        let judged = mixed.as_ref().or(phases.as_ref()).map(|(_, samples)| by_count(&samples.evidence));
        let is_by_count = judged.as_ref().is_some_and(Result::is_ok);
        let timed = phases.as_ref().and_then(|(compared, _)| compared.as_ref());
        // Shares of programs that are by time are not shares of their accesses, and claim nothing.
        let counted = mixed.as_ref().and_then(|(compared, _)| compared.as_ref());
        for (at, compared) in [timed, counted.filter(|_| is_by_count)].into_iter().enumerate() {
            if let Some(compared) = compared {
                worst[at] = worst[at].max(compared.points());
                draws[at].push(compared.held.by_error as f64);
            }
        }
        bounds.extend(timed.map(|compared| compared.held.by_bounds as f64));
        misjudged += usize::from(is_by_count != case.kind.is_by_count());
        let samples = mixed.as_ref().or(phases.as_ref()).map(|(_, samples)| samples);
        let mut row = vec![
            Cell::text(case.kind.name()),
            Cell::text(case.threads.to_string()),
            Cell::text(case.memory()),
        ];
        row.extend(cells(timed));
        row.extend(cells(counted));
        row.push(Cell::text(match judged {
            Some(Ok(())) => "number".into(),
            Some(Err(why)) => format!("time ({})", why.to_string().split(':').next().unwrap_or_default()),
            None => "–".into(),
        }));
        row.push(samples.map_or(Cell::Nothing, |samples| Cell::Number(samples.resolved_pct(), 0)));
        eprintln!("{}", row.iter().map(|cell| format!("{cell:?}")).collect::<Vec<_>>().join(" "));
        table.rows.push(row);
    }
    report.tables.push(table);
    report.at_most("points off the timed share, worst", POINTS, worst[0], 1);
    report.at_most("points off the counted share, worst of those by number", POINTS, worst[1], 1);
    for (way, draws) in ["time", "number"].into_iter().zip(draws) {
        let mean = draws.iter().sum::<f64>() / draws.len().max(1) as f64;
        report.at_least(
            format!("draws of a hundred with the truth in their error, by {way}, mean"),
            HOLDS,
            mean,
            1,
        );
    }
    let mean = bounds.iter().sum::<f64>() / bounds.len().max(1) as f64;
    report.at_least("draws of a hundred with the timed share between their bounds, mean", HOLDS, mean, 1);
    report.at_most("cases called by time that are by number, or the reverse", 0.0, misjudged as f64, 0);
    Ok(report)
}
