//! Cost of numatop-ng itself: each BPF program, reading counters, and the cost of other sets of them. Statistics are
//! kept while the view is open.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Screen, Subject};
use crate::overhead::{Cost, Statistics, costs};
use crate::pmu::sets::SETS;
use crate::snapshot::Snapshot;
use crate::text::quantity::{bytes, count, percent};
use crate::tui::input::Effect;
use crate::tui::input::keymap::context;
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::pen::Pen;

/// Cells of a name and of each number after it.
const NAME: u16 = 24;
const NUMBER: u16 = 10;

/// One line: a name, numbers or words, and how it looks.
struct Line {
    name: String,
    numbers: Vec<String>,
    text: String,
    role: Role,
}

fn line(name: &str, numbers: &[String], text: &str, role: Role) -> Line {
    Line { name: name.into(), numbers: numbers.to_vec(), text: text.into(), role }
}

#[derive(Default)]
pub struct Overhead {
    now: Option<Statistics>,
    /// Over the last interval.
    costs: Vec<Cost>,
}

impl Overhead {
    /// Takes statistics of another moment.
    pub fn take(&mut self, now: Statistics) {
        if let Some(before) = &self.now {
            self.costs = costs(before, &now);
        }
        self.now = Some(now);
    }
}

impl Screen for Overhead {
    fn context(&self) -> u16 {
        context::OVERHEAD
    }

    fn contexts_of_time(&self) -> u16 {
        0
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        let (Some(snapshot), theme) = (state.snapshot(), &state.theme) else { return };
        for (row, line) in (0..area.height).zip(lines(snapshot, self)) {
            let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
            pen.gap(1).write_within(&line.name, NAME, theme.style(line.role));
            if !line.numbers.is_empty() {
                pen.column(area.x, NAME + 1);
            }
            for number in &line.numbers {
                pen.write_right(number, NUMBER, theme.style(line.role));
            }
            let role = if line.role == Role::Plain { Role::Dim } else { line.role };
            pen.gap(1).write(&line.text, theme.style(role));
        }
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn open(&mut self, _subject: Option<Subject>, state: &State) -> Result<Option<Effect>, String> {
        if state.replay.is_some() {
            return Err("a replay has no measurement cost".into());
        }
        *self = Overhead::default();
        Ok(Some(Effect::SetStatistics(true)))
    }

    /// Keeping statistics ends.
    fn close(&mut self) -> Option<Effect> {
        Some(Effect::SetStatistics(false))
    }
}

fn lines(snapshot: &Snapshot, overhead: &Overhead) -> Vec<Line> {
    let own = &snapshot.own;
    let share = snapshot.share(own.cpu_ns).map_or("-".into(), percent);
    let used = format!(
        "{share}% of a CPU, {} of memory; the last sample took {:.1} ms",
        bytes(own.raw.rss_bytes as f64),
        own.raw.sample_ns as f64 / 1e6
    );
    let mut lines = vec![line("numatop-ng itself", &[], &used, Role::Title), line("", &[], "", Role::Plain)];
    let titles = ["NS/RUN", "RUNS/S", "CPU%"].map(String::from);
    lines.push(line("BPF PROGRAM", &titles, "of one CPU", Role::Header));
    if overhead.costs.is_empty() {
        lines.push(line("", &[], "collecting statistics: wait for one interval", Role::Dim));
    }
    lines.extend(overhead.costs.iter().filter(|cost| cost.probe_ns.is_some()).map(of_program));
    let idle = overhead.costs.iter().filter(|cost| cost.probe_ns.is_none()).count();
    if !overhead.costs.is_empty() {
        let sum = crate::metric::sum(overhead.costs.iter().map(|cost| cost.cpu_pct));
        let numbers = [String::new(), String::new(), small(sum)];
        let rest = if idle > 0 { format!("{idle} programs did not run") } else { String::new() };
        lines.push(line("all programs", &numbers, &rest, Role::Plain));
        lines.push(line(
            "",
            &[],
            "While this view is open, statistics add about 70 ns to each program run.",
            Role::Dim,
        ));
    }
    if let Some(now) = &overhead.now {
        lines.push(line("", &[], "", Role::Plain));
        lines.extend(of_counters(snapshot, now));
    }
    lines
}

fn of_program(cost: &Cost) -> Line {
    let ns = cost.probe_ns.map_or("-".into(), count);
    line(&cost.program, &[ns, count(cost.probe_runs_per_s), small(cost.cpu_pct)], "", Role::Plain)
}

/// The cost of counters, and of each set of `--events`.
fn of_counters(snapshot: &Snapshot, now: &Statistics) -> Vec<Line> {
    let Some(read) = now.read else {
        let why = "no counters open";
        return vec![line("counters", &[], why, Role::Dim)];
    };
    let words = if now.scaled {
        format!("{}, each read in {:.0} ns at every switch (multiplexed)", now.counters, read.scaled_ns)
    } else {
        format!(
            "{}, each read in {:.0} ns at every switch ({:.0} ns if multiplexed)",
            now.counters, read.count_ns, read.scaled_ns
        )
    };
    let mut lines = vec![line("counters", &[], &words, Role::Title)];
    lines.push(line("EVENTS", &["NS/SWITCH".into(), "CPU%".into()], "including all events", Role::Header));
    let seconds = snapshot.interval_ns.unwrap_or(0) as f64 / 1e9;
    let switches = if seconds > 0.0 { snapshot.on_cpus.switches as f64 / seconds } else { 0.0 };
    for (name, roles, what) in SETS {
        if let Some((ns, pct)) = now.reading(roles.len(), switches) {
            lines.push(line(name, &[count(ns), small(pct)], what, Role::Plain));
        }
    }
    lines
}

/// Per cent with two decimals: most programs take less than a tenth.
fn small(pct: f64) -> String {
    format!("{pct:.2}")
}
