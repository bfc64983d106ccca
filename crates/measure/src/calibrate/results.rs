//! Results of jobs, and the profile that they make. Pure.

use std::collections::BTreeMap;

use super::job::SmtLoad;
use super::plan::{Pair, PairKind, Plan, ROUND_MS, Stage};
use super::stats::{self, Value, classes, median, two_peaks};
use crate::known::stream::Stream;
use crate::model::profile::{
    Lines, Loaded, Local, MachineKey, Matrix, Method, Profile, SCHEMA, Smt, State, Wandering,
};

/// A number that is measured in rounds: a node of CPUs, a node of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// Latency, ns.
    Latency(u32, u32),
    /// Latency while the node of the memory sleeps, ns.
    Asleep(u32, u32),
    /// Reads, GB/s.
    Read(u32, u32),
}

impl Cell {
    /// Its key in `missing`, without the name of the matrix.
    fn key(self) -> String {
        let (name, from, to) = match self {
            Cell::Latency(from, to) => ("latency_ns", from, to),
            Cell::Asleep(from, to) => ("latency_asleep_ns", from, to),
            Cell::Read(from, to) => ("read_gbs", from, to),
        };
        format!("{name}.{from}.{to}")
    }
}

/// Times a cell is measured again because it was disturbed.
const AGAIN: u32 = 2;

/// Looks fall into classes a factor apart.
const APART: f64 = 1.7;

/// A core more has to add so much of the bandwidth.
const GAIN: f64 = 1.03;

/// All measured values.
#[derive(Clone, Debug, Default)]
pub struct Results {
    rounds: BTreeMap<Cell, Vec<f64>>,
    /// Rounds since the machine was looked at last.
    pending: Vec<(Cell, f64)>,
    dropped: BTreeMap<Cell, u32>,
    /// Rounds that others disturbed, and that count for want of better ones.
    pub disturbed: u32,
    /// Reads by a number of cores of a node, GB/s.
    pub by_cores: BTreeMap<u32, BTreeMap<u32, f64>>,
    /// Other streams inside of a node, GB/s.
    pub local: BTreeMap<u32, BTreeMap<Stream, f64>>,
    /// Lines between CPUs, ns.
    pub lines: Vec<(PairKind, (u32, u32), f64)>,
    /// Two lines with flags, ns.
    pub two_lines: Option<f64>,
    /// Work of both threads in parts of that of one.
    pub smt: BTreeMap<SmtLoad, f64>,
    /// Small pages at random and huge pages in groups, ns a load.
    pub walks: (Option<f64>, Option<f64>),
    /// Latency of each huge page.
    pub each_page: Vec<f64>,
    /// A local cell with eviction instead of flushing, ns.
    pub evicted: Option<f64>,
    /// Latency beside traffic.
    pub loaded: Vec<Loaded>,
    /// Looks at two CPUs.
    pub looks_ns: Vec<f64>,
    /// Part of the walks in huge pages.
    pub huge_share: Option<f64>,
    /// Lines could not be flushed.
    pub not_flushed: bool,
    /// Why numbers are missing, by key.
    pub missing: BTreeMap<String, String>,
    /// Words on the measurement.
    pub notes: Vec<String>,
}

impl Results {
    /// Takes a round of a cell, to be judged with the next look at the machine.
    pub fn take(&mut self, cell: Cell, value: f64) {
        self.pending.push((cell, value));
    }

    /// The look at the machine: rounds since the one before count, if nothing disturbed them. Disturbed ones count after a
    /// cell has lost rounds twice.
    pub fn judge(&mut self, quiet: bool) {
        let pending = std::mem::take(&mut self.pending);
        if quiet {
            pending.into_iter().for_each(|(cell, value)| self.rounds.entry(cell).or_default().push(value));
            return;
        }
        let mut cells: Vec<Cell> = pending.iter().map(|(cell, _)| *cell).collect();
        cells.sort_unstable();
        cells.dedup();
        for cell in cells {
            let lost = self.dropped.entry(cell).or_default();
            *lost += 1;
            if *lost > AGAIN {
                let values: Vec<f64> =
                    pending.iter().filter(|(of, _)| *of == cell).map(|(_, value)| *value).collect();
                self.disturbed += values.len() as u32;
                self.rounds.entry(cell).or_default().extend(values);
            }
        }
    }

    /// Whether rounds wait for the next look at the machine.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Rounds of a cell that count.
    pub fn rounds(&self, cell: Cell) -> &[f64] {
        self.rounds.get(&cell).map_or(&[], Vec::as_slice)
    }

    /// Rounds of a cell, including pending ones, which are kept only if the machine was idle.
    pub fn taken(&self, cell: Cell) -> usize {
        self.rounds(cell).len() + self.pending.iter().filter(|(of, _)| *of == cell).count()
    }

    /// Whether a cell has been given up, with a reason.
    pub fn is_lacking(&self, cell: Cell) -> bool {
        self.missing.contains_key(&cell.key())
    }

    /// Whether a cell is to be measured again. `least` rounds are wanted.
    pub fn wants_more(&self, cell: Cell, least: usize) -> bool {
        !self.missing.contains_key(&cell.key())
            && !self.pending.iter().any(|(pending, _)| *pending == cell)
            && stats::wants_more(self.rounds(cell), least)
    }

    /// A cell has no number, for this reason.
    pub fn lacks(&mut self, cell: Cell, why: String) {
        self.missing.insert(cell.key(), why);
    }

    /// The profile of these results. `took_s` and the facts of the run come from the caller.
    pub fn profile(self, plan: &Plan, machine: MachineKey, run: Run) -> Profile {
        let ids: Vec<u32> = machine.nodes.iter().map(|node| node.node).collect();
        let matrix = |of: &dyn Fn(u32, u32) -> Option<f64>| -> Matrix {
            ids.iter().map(|from| ids.iter().map(|to| of(*from, *to)).collect()).collect()
        };
        let value = |cell: Cell| Value::of(self.rounds(cell));
        let of = |cell: fn(u32, u32) -> Cell| move |from, to| value(cell(from, to)).map(|value| value.value);
        let error =
            |cell: fn(u32, u32) -> Cell| move |from, to| value(cell(from, to)).and_then(|value| value.error);
        let mut missing = plan.missing.clone();
        missing.extend(self.missing.clone());
        // A round that went wrong takes no number away that others gave.
        let mut incomplete = Vec::new();
        for (cell, rounds) in &self.rounds {
            if let Some(why) = missing.remove(&cell.key()).filter(|_| !rounds.is_empty()) {
                incomplete.push(format!("{}: from {} rounds only: {why}", cell.key(), rounds.len()));
            }
        }
        missing.extend(self.unnamed(plan));
        missing.extend(
            plan.left_out
                .iter()
                .chain(&plan.absent)
                .map(|(stage, why)| (stage.word().to_string(), why.clone())),
        );
        let wandering = plan.wanders.filter(|_| !self.looks_ns.is_empty()).map(|cpus| Wandering {
            cpus,
            looks_ns: self.looks_ns.clone(),
            classes: classes(&self.looks_ns, APART),
        });
        // Without any successful look, wandering is unknown: the CPUs are treated as wandering.
        let wanders = wandering.as_ref().is_some_and(|wandering| wandering.classes.len() != 1);
        if let Some(wandering) = wandering.as_ref().filter(|wandering| wandering.classes.is_empty()) {
            let (first, second) = wandering.cpus;
            missing
                .insert("wandering".into(), format!("CPUs {first} and {second} never ran at the same time"));
        }
        let latency_ns = matrix(&of(Cell::Latency));
        let (has_rows, has_columns) = (plan.rows.len(), plan.columns.len());
        let absent = |stage: &Stage| plan.absent.iter().any(|(absent, _)| absent == stage);
        let whole = Stage::USUAL.iter().all(|stage| plan.has(*stage) || absent(stage))
            && has_rows == machine.nodes.iter().filter(|node| !node.cpus.is_empty()).count()
            && latency_ns.iter().flatten().flatten().count() == has_rows * has_columns
            && missing
                .keys()
                .all(|key| key == "wandering" || Stage::by_word(key).is_some_and(|stage| absent(&stage)))
            && !run.cut_short;
        let state = match () {
            () if run.forced || self.disturbed > 0 => State::Disturbed,
            () if wanders => State::Wandering,
            () if !whole => State::Partial,
            () => State::Good,
        };
        let mut notes = self.notes.clone();
        notes.extend(incomplete);
        if plan.walk_bytes < plan.walk_wanted && plan.orders > 1 {
            let (bytes, wanted) = (plan.walk_bytes >> 20, plan.walk_wanted >> 20);
            notes.push(format!(
                "latency values include system cache hits: the test memory is too small ({bytes} MiB, \
                 {wanted} MiB needed); raise --memory (at most 2 GiB per node)"
            ));
        }
        notes.extend(self.flushing(&latency_ns, plan, &ids));
        rounded(Profile {
            schema: SCHEMA,
            tool: env!("CARGO_PKG_VERSION").into(),
            measured: plan
                .stages
                .iter()
                .map(|(stage, _)| (stage.word().to_string(), run.time.clone()))
                .collect(),
            time: run.time,
            origins: BTreeMap::new(),
            took_s: (run.took_s * 10.0).round() / 10.0,
            boot_id: run.boot_id,
            kernel: run.kernel,
            state,
            method: Method {
                latency: if self.not_flushed { "evicted" } else { "flushed" }.into(),
                buffer_bytes: plan.walk_bytes,
                huge_share: self.huge_share,
                rounds: plan.rounds,
                round_ms: ROUND_MS,
            },
            others_pct: run.others_pct,
            latency_error: matrix(&error(Cell::Latency)),
            latency_asleep_ns: matrix(&of(Cell::Asleep)),
            latency_ns,
            read_gbs: matrix(&of(Cell::Read)),
            read_error: matrix(&error(Cell::Read)),
            local: ids.iter().filter_map(|node| self.local(*node)).collect(),
            lines_ns: self.lines(&ids, plan),
            smt: Smt {
                additions: self.smt.get(&SmtLoad::Additions).copied(),
                waiting: self.smt.get(&SmtLoad::Waiting).copied(),
                branches: self.smt.get(&SmtLoad::Branches).copied(),
                memory: self.smt.get(&SmtLoad::Memory).copied(),
            },
            walk_ns: self.walks.0.zip(self.walks.1).map(|(small, huge)| (small - huge).max(0.0)),
            loaded: self.loaded.clone(),
            hidden_nodes: two_peaks(&self.each_page).map(Vec::from),
            wandering,
            missing,
            notes,
            machine,
        })
    }

    /// Reasons for numbers that the stages of a plan are to have, and that are missing without one.
    fn unnamed(&self, plan: &Plan) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut lacks = |stage: Stage, key: &str, has: bool| {
            if plan.has(stage) && !has && !self.missing.contains_key(key) {
                found.insert(key.to_string(), "no result".to_string());
            }
        };
        for (load, key) in [
            (SmtLoad::Waiting, "smt.waiting"),
            (SmtLoad::Additions, "smt.additions"),
            (SmtLoad::Branches, "smt.branches"),
            (SmtLoad::Memory, "smt.memory"),
        ] {
            lacks(Stage::Smt, key, self.smt.contains_key(&load));
        }
        lacks(Stage::Pages, "walk_ns", self.walks.0.is_some() && self.walks.1.is_some());
        lacks(Stage::Pages, "hidden_nodes", !plan.hidden || !self.each_page.is_empty());
        for pair in &plan.pairs {
            let has = self.lines.iter().any(|(kind, cpus, _)| (*kind, *cpus) == (pair.kind, pair.cpus));
            lacks(Stage::Cores, &line_key(pair), has);
        }
        found
    }

    /// Streams inside a node; `None` without a measurement.
    fn local(&self, node: u32) -> Option<Local> {
        let (counts, streams) = (self.by_cores.get(&node), self.local.get(&node));
        if counts.is_none() && streams.is_none() {
            return None;
        }
        let stream = |kind| streams.and_then(|streams| streams.get(&kind)).copied();
        Some(Local {
            node,
            one_core_gbs: counts.and_then(|counts| counts.get(&1)).copied(),
            cores_to_fill: counts.and_then(cores_to_fill),
            write_gbs: stream(Stream::Write),
            write_nt_gbs: stream(Stream::WriteNt),
            copy_gbs: stream(Stream::Copy),
            triad_gbs: stream(Stream::Triad),
        })
    }

    fn lines(&self, ids: &[u32], plan: &Plan) -> Lines {
        let of = |kind: PairKind| self.lines.iter().find(|(known, ..)| *known == kind).map(|(_, _, ns)| *ns);
        let place = |node: u32| plan.rows.iter().position(|row| row.node == node);
        let between = |from: &u32, to: &u32| match (place(*from)?, place(*to)?) {
            (a, b) if a == b => of(PairKind::Llc).or_else(|| of(PairKind::Node)),
            (a, b) => of(PairKind::Nodes(a, b)),
        };
        let every = self.lines.iter().filter(|(kind, ..)| *kind == PairKind::Every);
        let measured = !self.lines.is_empty() && ids.len() > 1;
        let rows = ids.iter().map(|from| ids.iter().map(|to| between(from, to)).collect());
        Lines {
            core: of(PairKind::Core),
            llc: of(PairKind::Llc),
            node: of(PairKind::Node),
            two_lines: self.two_lines,
            nodes: if measured { rows.collect() } else { Matrix::new() },
            pairs: every.map(|(_, (a, b), ns)| (*a, *b, *ns)).collect(),
        }
    }

    /// A word where eviction and flushing disagree on a local cell.
    fn flushing(&self, latency: &Matrix, plan: &Plan, ids: &[u32]) -> Option<String> {
        let node = plan.columns.first()?.node;
        let at = ids.iter().position(|id| *id == node)?;
        let (flushed, evicted) = (latency[at][at]?, self.evicted?);
        let apart = 100.0 * (evicted / flushed - 1.0);
        (apart.abs() > 3.0).then(|| {
            format!(
                "reading a flushed cache line takes {flushed:.1} ns, an evicted one {evicted:.1} ns \
                     ({apart:+.0} %)"
            )
        })
    }
}

/// The run that results are of.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its end, RFC 3339.
    pub time: String,
    pub took_s: f64,
    pub boot_id: String,
    pub kernel: String,
    /// On a busy machine, by `--force`.
    pub forced: bool,
    /// It ended before everything was done.
    pub cut_short: bool,
    pub others_pct: f64,
}

/// The fewest cores from which on more of them gain less than 3 %.
fn cores_to_fill(counts: &BTreeMap<u32, f64>) -> Option<u32> {
    let points: Vec<(u32, f64)> = counts.iter().map(|(cores, gbs)| (*cores, *gbs)).collect();
    let fills = |at: usize| points[at + 1..].iter().all(|(_, gbs)| *gbs < GAIN * points[at].1);
    (0..points.len()).find(|at| fills(*at)).map(|at| points[at].0)
}

/// The same with as many digits as mean something, so that files are small and differences can be read.
fn rounded(mut profile: Profile) -> Profile {
    let short = |value: &mut f64| *value = (*value * 100.0).round() / 100.0;
    let all = [
        &mut profile.latency_ns,
        &mut profile.latency_error,
        &mut profile.latency_asleep_ns,
        &mut profile.read_gbs,
        &mut profile.read_error,
        &mut profile.lines_ns.nodes,
    ];
    all.into_iter().flatten().flatten().flatten().for_each(short);
    let local = profile.local.iter_mut().flat_map(|local| {
        [
            &mut local.one_core_gbs,
            &mut local.write_gbs,
            &mut local.write_nt_gbs,
            &mut local.copy_gbs,
            &mut local.triad_gbs,
        ]
    });
    local.flatten().for_each(short);
    let lines = &mut profile.lines_ns;
    let single =
        [&mut lines.core, &mut lines.llc, &mut lines.node, &mut lines.two_lines, &mut profile.walk_ns];
    single.into_iter().flatten().for_each(short);
    let smt = &mut profile.smt;
    [&mut smt.additions, &mut smt.waiting, &mut smt.branches, &mut smt.memory]
        .into_iter()
        .flatten()
        .for_each(short);
    lines.pairs.iter_mut().for_each(|(_, _, ns)| short(ns));
    profile.wandering.iter_mut().flat_map(|wandering| &mut wandering.looks_ns).for_each(short);
    profile.hidden_nodes.iter_mut().flatten().for_each(short);
    profile.loaded.iter_mut().flat_map(|loaded| &mut loaded.points).for_each(|(gbs, ns)| {
        short(gbs);
        short(ns);
    });
    short(&mut profile.others_pct);
    profile
}

/// The key of a line's way in `missing`.
pub fn line_key(pair: &Pair) -> String {
    let (first, second) = pair.cpus;
    match pair.kind {
        PairKind::Core => "lines_ns.core".into(),
        PairKind::Llc => "lines_ns.llc".into(),
        PairKind::Node => "lines_ns.node".into(),
        PairKind::Nodes(..) => format!("lines_ns.nodes.{first}.{second}"),
        PairKind::Every => format!("lines_ns.pairs.{first}.{second}"),
    }
}

/// One number of the samples of a line's way; `None` without any.
pub fn line(samples: &[f64]) -> Option<f64> {
    median(samples)
}

#[cfg(test)]
mod tests;
