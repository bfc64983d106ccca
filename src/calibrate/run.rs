//! The measurement, job by job, as planned.

use std::collections::BTreeMap;
use std::time::Instant;

use super::job::{Answer, Job, SmtLoad, Walk};
use super::plan::{
    EACH, EACH_LINE_MS, LINE_MS, LOOK_MS, LOOKS, PAGES, PairKind, Plan, ROUND_MS, Stage, WINDOW_MS,
};
use super::results::{Cell, Results, line};
use super::stats::median;
use super::worker::{Ended, Second, Worker};
use crate::known::stream::Stream;
use crate::model::profile::Loaded;

/// Part of the pages that has to be on its node, before and after.
const ON_NODE: f64 = 0.99;

/// Does all of a plan. Returns what was measured, and why it ended early if it did.
pub fn run(plan: &Plan, worker: &mut Worker, force: bool) -> (Results, Option<Ended>) {
    let mut runner = Runner { plan, worker, results: Results::default(), begin: Instant::now(), force };
    let ended = runner.stages().err();
    runner.results.judge(ended.is_none());
    (runner.results, ended)
}

struct Runner<'a> {
    plan: &'a Plan,
    worker: &'a mut Worker,
    results: Results,
    begin: Instant,
    force: bool,
}

type Step = Result<(), Ended>;

impl Runner<'_> {
    fn stages(&mut self) -> Step {
        for (stage, _) in &self.plan.stages {
            match stage {
                Stage::Latency => self.latency()?,
                Stage::Bandwidth => self.bandwidth()?,
                Stage::Cores => self.cores()?,
                Stage::Smt => self.smt()?,
                Stage::Pages => self.pages()?,
                Stage::Loaded => self.loaded()?,
            }
            self.judge(true)?;
        }
        while self.plan.wanders.is_some() && (self.results.looks_ns.len() as u32) < LOOKS {
            self.look()?;
        }
        Ok(())
    }

    /// Does a job, looks at the machine, and at two CPUs now and then.
    fn ask(&mut self, job: &Job) -> Result<Answer, Ended> {
        let answer = self.worker.ask(job)?;
        let done = self.begin.elapsed().as_secs_f64() / self.plan.seconds().max(0.1);
        if self.plan.wanders.is_some()
            && f64::from(self.results.looks_ns.len() as u32) < done * f64::from(LOOKS)
        {
            self.look()?;
        }
        Ok(answer)
    }

    fn look(&mut self) -> Step {
        let Some((first, second)) = self.plan.wanders else { return Ok(()) };
        let job = Job::Line { first, second, two_lines: false, ms: LOOK_MS };
        // A look that did not come off counts, so that there is an end of them.
        let ns = match self.worker.ask(&job)? {
            Answer::Times { ns } => line(&ns).unwrap_or(0.0),
            _ => 0.0,
        };
        self.results.looks_ns.push(ns);
        Ok(())
    }

    /// Judges rounds by the second that is over, or that is to be over `now`.
    fn judge(&mut self, now: bool) -> Step {
        match self.worker.watch(now)? {
            Second::Lasts => {}
            Second::Quiet => self.results.judge(true),
            Second::Bad(_) if self.force => {
                // The rounds count, and the profile says that they were disturbed.
                self.results.disturbed += 1;
                self.results.judge(true);
            }
            Second::Bad(_) => self.results.judge(false),
        }
        Ok(())
    }

    /// Whether there is time for more than was planned.
    fn has_time(&self) -> bool {
        self.begin.elapsed().as_secs_f64() < self.plan.seconds()
    }

    fn latency(&mut self) -> Step {
        for column in &self.plan.columns {
            let job = Job::Walk {
                walk: Walk::Flushed,
                node: column.node,
                bytes: self.plan.walk_bytes.min(column.bytes),
                cpu: column.touched_by,
                limits: column.limits,
            };
            match self.ask(&job)? {
                Answer::Memory { huge_share, .. } => {
                    self.results.huge_share = lesser(self.results.huge_share, huge_share);
                }
                other => self.lacks(|node| Cell::Latency(node, column.node), &other),
            }
        }
        let cells = self.cells();
        for row in &self.plan.rows {
            self.ask(&Job::Warm { cpu: row.cpus[0], ms: 50 })?;
        }
        let least = self.plan.rounds as usize;
        for round in 0.. {
            let wanted: Vec<_> = cells
                .iter()
                .filter(|(_, from, to)| self.results.wants_more(Cell::Latency(*from, *to), least))
                .copied()
                .collect();
            if wanted.is_empty() && round >= least {
                break;
            }
            // Half as many again as planned, where there is time; cells that others disturbed need some, too.
            if round >= least && (round >= 2 * least + 5 || !self.has_time() && self.all_have(&cells, 3)) {
                break;
            }
            for (cpu, from, to) in wanted {
                let awake = (from != to).then(|| self.cpu_of(to)).flatten();
                self.round(Cell::Latency(from, to), cpu, to, awake)?;
            }
            self.judge(round + 1 >= least)?;
        }
        for (cpu, from, to) in cells {
            if from != to && self.cpu_of(to).is_some() {
                self.round(Cell::Asleep(from, to), cpu, to, None)?;
            }
        }
        self.evicted()?;
        self.judge(false)
    }

    /// A local cell once more, with a walk that no cache holds in the place of flushing.
    fn evicted(&mut self) -> Step {
        let (Some(bytes), Some(column)) = (self.plan.evicted_bytes, self.plan.columns.first()) else {
            return Ok(());
        };
        let (walk, node, limits) = (Walk::Evicted, column.node, column.limits);
        let Some(cpu) = self.cpu_of(node) else { return Ok(()) };
        self.ask(&Job::Walk { walk, node, bytes, cpu: column.touched_by, limits })?;
        let (traffic, traffic_node, awake) = (Vec::new(), 0, None);
        let job = Job::Latency { walk, node, cpu, ms: ROUND_MS, awake, traffic, traffic_node };
        if let Answer::Round { round, on_node, .. } = self.ask(&job)? {
            self.results.evicted = Some(round.ns).filter(|_| round.samples > 0 && on_node >= ON_NODE);
        }
        self.ask(&Job::Forget { walk: Some(walk) }).map(drop)
    }

    fn all_have(&self, cells: &[(u32, u32, u32)], least: usize) -> bool {
        cells.iter().all(|(_, from, to)| {
            let cell = Cell::Latency(*from, *to);
            self.results.rounds(cell).len() >= least || !self.results.wants_more(cell, least)
        })
    }

    /// CPU, its node, node of the memory: all cells, in an order in which neighbours share as little as may be.
    fn cells(&self) -> Vec<(u32, u32, u32)> {
        let rows = self.plan.rows.iter().enumerate();
        let mut cells: Vec<(usize, (u32, u32, u32))> = rows
            .flat_map(|(at, row)| {
                let columns = self.plan.columns.iter().enumerate();
                columns.map(move |(to, column)| {
                    (
                        (to + self.plan.columns.len() - at % self.plan.columns.len())
                            % self.plan.columns.len(),
                        (row.cpus[0], row.node, column.node),
                    )
                })
            })
            .collect();
        cells.sort_by_key(|(diagonal, _)| *diagonal);
        cells.into_iter().map(|(_, cell)| cell).collect()
    }

    fn cpu_of(&self, node: u32) -> Option<u32> {
        self.plan.rows.iter().find(|row| row.node == node).map(|row| row.cpus[0])
    }

    fn round(&mut self, cell: Cell, cpu: u32, node: u32, awake: Option<u32>) -> Step {
        let (traffic, traffic_node) = (Vec::new(), 0);
        let job = Job::Latency { walk: Walk::Flushed, node, cpu, ms: ROUND_MS, awake, traffic, traffic_node };
        match self.ask(&job)? {
            Answer::Round { on_node, .. } if on_node < ON_NODE => {
                self.results
                    .lacks(cell, format!("only {:.0} % of the memory is on node {node}", 100.0 * on_node));
            }
            Answer::Round { round, .. } if round.samples > 0 => self.results.take(cell, round.ns),
            Answer::Round { .. } => {
                self.results.lacks(cell, "other tasks ran on the CPU in every sample".into());
            }
            other => self.results.lacks(cell, why(&other)),
        }
        Ok(())
    }

    /// The cells of a column have no number.
    fn lacks(&mut self, cell: impl Fn(u32) -> Cell, answer: &Answer) {
        self.plan.rows.iter().for_each(|row| self.results.lacks(cell(row.node), why(answer)));
    }

    fn bandwidth(&mut self) -> Step {
        for column in &self.plan.columns {
            let wanted = self.plan.stream_bytes.values().max().copied().unwrap_or(0);
            let bytes = self.plan.streams_of(column);
            let (node, cpu, limits) = (column.node, column.touched_by, column.limits);
            if bytes < wanted {
                let (bytes, wanted) = (bytes >> 20, wanted >> 20);
                self.results.notes.push(format!(
                    "bandwidth of node {node}: partly from caches, {bytes} MiB of {wanted} wanted"
                ));
            }
            match self.ask(&Job::Streams { node, bytes, cpu, limits })? {
                Answer::Memory { .. } => {}
                other => self.lacks(|from| Cell::Read(from, node), &other),
            }
        }
        for _ in 0..self.plan.windows {
            for row in &self.plan.rows {
                for column in &self.plan.columns {
                    let cell = Cell::Read(row.node, column.node);
                    if let Some(gbs) = self.stream(Stream::Read, column.node, &row.cpus, Some(cell))? {
                        self.results.take(cell, gbs);
                    }
                }
            }
            self.judge(false)?;
        }
        for row in &self.plan.rows {
            let node = row.node;
            if !self.plan.columns.iter().any(|column| column.node == node) {
                continue;
            }
            let mut counts = BTreeMap::new();
            let most = row.cpus.len();
            for count in (0..).map(|power| 1usize << power).take_while(|count| *count < most).chain([most]) {
                let gbs = self.stream(Stream::Read, node, &row.cpus[..count], None)?;
                counts.extend(gbs.map(|gbs| (count as u32, gbs)));
            }
            self.results.by_cores.insert(node, counts);
            let mut streams = BTreeMap::new();
            for kind in [Stream::Write, Stream::WriteNt, Stream::Copy, Stream::Triad] {
                streams.extend(self.stream(kind, node, &row.cpus, None)?.map(|gbs| (kind, gbs)));
            }
            self.results.local.insert(node, streams);
        }
        self.ask(&Job::Forget { walk: None }).map(drop)
    }

    /// Two windows of a stream; the reason for none is that of `cell`.
    fn stream(
        &mut self,
        kind: Stream,
        node: u32,
        cpus: &[u32],
        cell: Option<Cell>,
    ) -> Result<Option<f64>, Ended> {
        let job = Job::Bandwidth { kind, node, cpus: cpus.to_vec(), windows: 1, ms: WINDOW_MS };
        let lacking = match self.ask(&job)? {
            Answer::Speeds { on_node, .. } if on_node < ON_NODE => {
                format!("only {:.0} % of the memory is on node {node}", 100.0 * on_node)
            }
            Answer::Speeds { gbs, .. } => return Ok(median(&gbs)),
            other => why(&other),
        };
        if let Some(cell) = cell {
            self.results.lacks(cell, lacking);
        }
        Ok(None)
    }

    fn cores(&mut self) -> Step {
        for pair in &self.plan.pairs {
            let ms = if pair.kind == PairKind::Every { EACH_LINE_MS } else { LINE_MS };
            let (first, second) = pair.cpus;
            match self.ask(&Job::Line { first, second, two_lines: false, ms })? {
                Answer::Times { ns } => {
                    self.results.lines.extend(line(&ns).map(|ns| (pair.kind, pair.cpus, ns)));
                }
                other => drop(self.results.missing.insert(format!("lines_ns.{first}.{second}"), why(&other))),
            }
        }
        if let Some(pair) = self.plan.pairs.iter().find(|pair| pair.kind != PairKind::Core) {
            let (first, second) = pair.cpus;
            if let Answer::Times { ns } =
                self.ask(&Job::Line { first, second, two_lines: true, ms: LINE_MS })?
            {
                self.results.two_lines = line(&ns);
            }
        }
        Ok(())
    }

    fn smt(&mut self) -> Step {
        const MS: u32 = 40;
        let (Some((first, second)), Some(column)) = (self.plan.siblings, self.plan.columns.first()) else {
            return Ok(());
        };
        for load in SmtLoad::ALL {
            let (node, ms, limits) = (column.node, MS, column.limits);
            let mut sum = |cpus: Vec<u32>| -> Result<Option<f64>, Ended> {
                Ok(match self.ask(&Job::Rates { load, cpus, node, ms, limits })? {
                    Answer::Rates { rates } => Some(rates.iter().sum()),
                    _ => None,
                })
            };
            let (one, both) = (sum(vec![first])?, sum(vec![first, second])?);
            self.results
                .smt
                .extend(one.zip(both).filter(|(one, _)| *one > 0.0).map(|(one, both)| (load, both / one)));
        }
        Ok(())
    }

    fn pages(&mut self) -> Step {
        let Some(column) = self.plan.columns.first() else { return Ok(()) };
        let (node, cpu, limits) = (column.node, column.touched_by, column.limits);
        let mut measured = [None; 2];
        for (walk, ns) in [Walk::SmallPages, Walk::HugePages].into_iter().zip(&mut measured) {
            let bytes = PAGES.min(column.bytes);
            let got = self.ask(&Job::Walk { walk, node, bytes, cpu, limits })?;
            if !matches!(got, Answer::Memory { .. }) {
                self.results.missing.insert("walk_ns".into(), why(&got));
                continue;
            }
            let mut rounds = Vec::new();
            for _ in 0..3 {
                let (traffic, traffic_node, awake) = (Vec::new(), 0, None);
                let job = Job::Latency { walk, node, cpu, ms: ROUND_MS, awake, traffic, traffic_node };
                if let Answer::Round { round, .. } = self.ask(&job)?
                    && round.samples > 0
                {
                    rounds.push(round.ns);
                }
            }
            *ns = median(&rounds);
            self.ask(&Job::Forget { walk: Some(walk) })?;
        }
        self.results.walks = (measured[0], measured[1]);
        if self.plan.hidden
            && let Answer::Times { ns } = self.ask(&Job::EachPage { node, pages: EACH, cpu, limits })?
        {
            self.results.each_page = ns;
        }
        Ok(())
    }

    fn loaded(&mut self) -> Step {
        let Some(row) = self.plan.rows.first() else { return Ok(()) };
        let (near, far) = (self.plan.columns.first(), self.plan.columns.last());
        let mut columns: Vec<_> = near.into_iter().chain(far).collect();
        columns.dedup_by_key(|column| column.node);
        for column in columns {
            let (node, limits) = (column.node, column.limits);
            let bytes = self.plan.streams_of(column).max(64 << 20).min(column.bytes / 2);
            let got = self.ask(&Job::Streams { node, bytes, cpu: column.touched_by, limits })?;
            if !matches!(got, Answer::Memory { .. }) {
                self.results.missing.insert("loaded".into(), why(&got));
                continue;
            }
            let job = Job::Walk {
                walk: Walk::Flushed,
                node,
                bytes: self.plan.walk_bytes,
                cpu: column.touched_by,
                limits,
            };
            self.ask(&job)?;
            let others = row.cpus.len() - 1;
            let counts =
                [0].into_iter().chain((0..).map(|power| 1usize << power).take_while(|count| *count < others));
            let mut points = Vec::new();
            for count in counts.chain((others > 0).then_some(others)) {
                let traffic = row.cpus[1..=count].to_vec();
                let job = Job::Latency {
                    walk: Walk::Flushed,
                    node,
                    cpu: row.cpus[0],
                    ms: ROUND_MS,
                    awake: None,
                    traffic,
                    traffic_node: node,
                };
                let mut rounds = Vec::new();
                for _ in 0..3 {
                    if let Answer::Round { round, traffic_gbs, .. } = self.ask(&job)? {
                        rounds.push((traffic_gbs, round.ns));
                    }
                }
                let of = |part: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(part).collect::<Vec<_>>());
                points.extend(of(|point| point.0).zip(of(|point| point.1)));
            }
            self.results.loaded.push(Loaded { from: row.node, to: node, points });
            self.ask(&Job::Forget { walk: None })?;
        }
        Ok(())
    }
}

fn why(answer: &Answer) -> String {
    match answer {
        Answer::Failed { why } => why.clone(),
        other => format!("an answer that was not expected: {other:?}"),
    }
}

fn lesser(first: Option<f64>, second: Option<f64>) -> Option<f64> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    }
}
