//! The time from exec to the first frame.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::numbers::Spread;
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;

/// A frame that comes later is noticed.
const LIMIT_MS: f64 = 150.0;

/// A frame of the live view has a head line, and a row of a process below it.
fn table_is_there(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| !line.contains("PID"));
    lines.next();
    lines.any(|line| line.split_whitespace().next().is_some_and(|word| word.parse::<u32>().is_ok()))
}

/// From exec to the first line of JSON, less the interval that it is about.
///
/// # Errors
/// The program did not start, or no line came.
pub fn first_line_ms(program: &mut Command) -> Result<f64> {
    let interval = Duration::from_millis(200);
    program.args(["-b", "-n", "1", "-d", "0.2", "--format", "json"]);
    let began = Instant::now();
    let mut frames = Frames::start(program, any_line, |_| ())?;
    let first = frames.next(Duration::from_secs(20))?.at;
    Ok((first - began).saturating_sub(interval).as_secs_f64() * 1e3)
}

/// From exec to the table with rows on the screen.
///
/// # Errors
/// The program did not start, or no table came.
pub fn table_ms(binary: &str, env: &[(&str, &str)]) -> Result<f64> {
    let mut screen = Screen::start(binary, &["-d", "1"], env)?;
    Ok(screen.wait_for(table_is_there, Duration::from_secs(5))?.as_secs_f64() * 1e3)
}

/// # Errors
/// numatop-ng did not start.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Start: time from exec to the first frame");
    let rounds = if plan.quick { 3 } else { 21 };
    let binary = plan.binary.to_string_lossy();
    let (mut batch, mut screens, mut absent) = (Vec::new(), Vec::new(), None);
    for _ in 0..rounds {
        batch.push(first_line_ms(&mut Command::new(&*binary))?);
        match table_ms(&binary, &[]) {
            Ok(ms) => screens.push(ms),
            Err(error) => absent = Some(format!("{error:#}")),
        }
    }
    let mut table =
        Table::new(format!("ms, {rounds} starts in turns."), &["program", "median (quartiles)", "slowest"]);
    let rows = [
        ("batch: first line of JSON, less the interval of 200 ms", &batch),
        ("live view: table with rows on the screen", &screens),
    ];
    for (name, times) in rows.into_iter().filter(|(_, times)| !times.is_empty()) {
        let slowest = times.iter().copied().reduce(f64::max).context("there are times")?;
        table.rows.push(vec![Cell::text(name), Cell::spread(Spread::of(times), 0), Cell::Number(slowest, 0)]);
        report.at_most(format!("ms, median: {name}"), LIMIT_MS, Spread::of(times).median, 0);
    }
    report.tables.push(table);
    if let Some(why) = absent {
        report.note(format!("The live view was missed at least once: {why}"));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_without_rows_is_not_a_table_yet() {
        assert!(!table_is_there("numatop-ng\n  PID USER\n\n F1 Help"));
        assert!(table_is_there("numatop-ng\n  PID USER\n    1 root"));
    }
}
