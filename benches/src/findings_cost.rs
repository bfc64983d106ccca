//! The cost of findings: start, refresh and memory with them and without, of the same binary or beside one of before.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Plan;
use crate::frames::any_line;
use crate::numbers::{Spread, median};
use crate::refresh::{Cost, Limits, on_screen, start_load, stream};
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;
use crate::start::{first_line_ms, table_ms};

/// Leaves findings out: src/run/watch.rs.
const OFF: (&str, &str) = ("NUMATOP_NG_FINDINGS", "off");

/// The most that findings may add, as a ratio.
const LIMIT: f64 = 1.02;

/// Rules ask about no process that is younger than a minute.
const AGE: Duration = Duration::from_secs(65);

/// The first refreshes fill tables and caches; they are not counted.
const WARM_UP: usize = 5;

/// Threads of the load.
const SIZES: [usize; 2] = [100, 10_000];

/// A view whose refreshes are measured: its name, and its arguments; those of the live view have no format.
const VIEWS: [(&str, &[&str]); 3] = [
    ("JSON of threads", &["-b", "-d", "1", "--threads", "--top", "50", "--format", "json"]),
    ("live view of threads", &["-H", "-d", "1"]),
    ("live view of processes", &["-d", "1"]),
];

/// A program that is measured: a binary, and the environment that it is started in.
struct Side {
    binary: String,
    env: Vec<(&'static str, &'static str)>,
}

impl Side {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.envs(self.env.iter().copied());
        command
    }

    /// The cost of one refresh of a view.
    fn refresh(&self, args: &[&str], count: usize) -> Result<Cost> {
        if args.contains(&"-b") {
            return stream(self.command().args(args), any_line, WARM_UP, count);
        }
        on_screen(&mut Screen::start(&self.binary, args, &self.env)?, WARM_UP, count)
    }
}

/// The two programs that take turns.
struct Sides {
    with: Side,
    without: Side,
}

impl Sides {
    /// With findings, and without: the same binary that leaves them out, or one of before there were any.
    fn new(binary: &Path, before: Option<&Path>) -> Sides {
        let side =
            |path: &Path, env: &[_]| Side { binary: path.to_string_lossy().into_owned(), env: env.to_vec() };
        let without = before.map_or_else(|| side(binary, &[OFF]), |path| side(path, &[]));
        Sides { with: side(binary, &[]), without }
    }

    /// The results of both, which are measured in an order that changes from round to round.
    ///
    /// # Errors
    /// The errors of `measure`.
    fn both<T>(&self, round: usize, mut measure: impl FnMut(&Side) -> Result<T>) -> Result<(T, T)> {
        if round.is_multiple_of(2) {
            let with = measure(&self.with)?;
            return Ok((with, measure(&self.without)?));
        }
        let without = measure(&self.without)?;
        Ok((measure(&self.with)?, without))
    }
}

/// Values of each round with findings, and without.
#[derive(Default)]
struct Pairs {
    with: Vec<f64>,
    without: Vec<f64>,
}

impl Pairs {
    fn add(&mut self, with: f64, without: f64) {
        self.with.push(with);
        self.without.push(without);
    }

    /// Of each round: a slow moment of the machine hits both.
    fn ratios(&self) -> Vec<f64> {
        self.with.iter().zip(&self.without).map(|(with, without)| with / without).collect()
    }

    fn row(&self, name: String, decimals: usize) -> Vec<Cell> {
        vec![
            Cell::text(name),
            Cell::spread(Spread::of(&self.without), decimals),
            Cell::spread(Spread::of(&self.with), decimals),
            Cell::spread(Spread::of(&self.ratios()), 3),
        ]
    }

    fn judge(&self, report: &mut Report, what: &str) {
        report.at_most(format!("{what}: with findings, times without"), LIMIT, median(&self.ratios()), 3);
    }
}

/// # Errors
/// numatop-ng did not start, or the threads of the load.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Findings: start, refresh and memory with them and without");
    let sides = Sides::new(&plan.binary, plan.before.as_deref());
    let (rounds, count, starts) = if plan.quick { (3, 5, 5) } else { (7, 10, 21) };
    let columns = ["measured", "without findings", "with", "times without, in each round"];
    let mut table = Table::new(format!("Start, ms; {starts} rounds."), &columns);
    let (mut line, mut screen) = (Pairs::default(), Pairs::default());
    for round in 0..starts {
        let (with, without) = sides.both(round, |side| first_line_ms(&mut side.command()))?;
        line.add(with, without);
        let (with, without) = sides.both(round, |side| table_ms(&side.binary, &side.env))?;
        screen.add(with, without);
    }
    for (name, pairs) in [("first line of JSON", &line), ("table on the screen", &screen)] {
        table.rows.push(pairs.row(name.to_owned(), 0));
        pairs.judge(&mut report, &format!("start, {name}"));
    }
    report.tables.push(table);
    let sizes = plan.threads.map_or_else(|| SIZES.to_vec(), |only| vec![only]);
    let limits = Limits::raise(sizes.iter().copied().max().unwrap_or(0))?;
    let mut cpu = Table::new(format!("CPU ms per refresh; {rounds} rounds."), &columns);
    let mut memory = Table::new(format!("RSS at the end, MB; {rounds} rounds."), &columns);
    for threads in sizes {
        // Ends with its rounds.
        let _load = start_load(threads)?;
        sleep(AGE);
        for (name, args) in VIEWS {
            let what = format!("{name}, {threads} threads");
            let (mut times, mut sizes) = (Pairs::default(), Pairs::default());
            for round in 0..rounds {
                let (with, without) =
                    sides.both(round, |side| side.refresh(args, count)).with_context(|| what.clone())?;
                times.add(with.cpu_ms, without.cpu_ms);
                sizes.add(with.rss / 1e6, without.rss / 1e6);
            }
            cpu.rows.push(times.row(what.clone(), 2));
            memory.rows.push(sizes.row(what.clone(), 1));
            times.judge(&mut report, &format!("refresh, {what}"));
        }
    }
    drop(limits);
    report.tables.extend([cpu, memory]);
    let without = plan.before.as_ref().map_or_else(
        || {
            format!(
                "Both are the same binary; {}={} leaves the engine, its rows and the summary out.",
                OFF.0, OFF.1
            )
        },
        |before| format!("Without is {}, with all else that it does not have.", before.display()),
    );
    report.note(format!(
        "{without} The load of `refresh`, {} s old before the first round, because rules ask about no younger process. CPU time is \
         the process's own clock over {count} refreshes after {WARM_UP} of warm-up; RSS is that a moment later, so that the minutes \
         which the engine remembers are in it only as far as they have passed.",
        AGE.as_secs()
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_goes_first_in_every_other_round_and_values_stay_apart() {
        let sides = Sides::new(Path::new("new"), Some(Path::new("old")));
        for round in 0..2 {
            let mut order = Vec::new();
            let (with, without) = sides
                .both(round, |side| {
                    order.push(side.binary.clone());
                    Ok(if side.binary == "new" { 3.0 } else { 2.0 })
                })
                .unwrap();
            assert_eq!((with, without, order[0].as_str()), (3.0, 2.0, ["new", "old"][round]));
        }
    }

    #[test]
    fn a_binary_of_before_has_nothing_to_leave_out() {
        let of = |before| Sides::new(Path::new("new"), before).without;
        assert_eq!((of(None).binary, of(None).env), ("new".to_owned(), vec![OFF]));
        let before = of(Some(Path::new("old")));
        assert_eq!((before.binary, before.env), ("old".to_owned(), Vec::new()));
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        let mut pairs = Pairs::default();
        pairs.add(2.0, 1.0);
        pairs.add(300.0, 100.0);
        assert_eq!(pairs.ratios(), [2.0, 3.0]);
    }
}
