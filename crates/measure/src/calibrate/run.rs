//! The measurement, job by job, as planned.

use std::collections::BTreeMap;
use std::time::Instant;

use super::job::{Answer, Job, SmtLoad, Walk};
use super::plan::{
    Column, EACH_LINE_MS, LINE_MS, LOOK_MS, LOOKS, MatrixRow, Pair, PairKind, Plan, ROUND_MS, Stage,
    WINDOW_MS,
};
use super::results::{Cell, Results, line, line_key};
use super::stats::median;
use super::worker::{Ended, Second, Worker};
use crate::known::stream::Stream;
use crate::model::profile::Loaded;

/// Part of the pages that has to be on its node, before and after.
const ON_NODE: f64 = 0.99;

/// Times that something is measured again because others worked meanwhile.
const AGAIN: u32 = 2;

/// Pairs of CPUs that are measured between two looks at the machine.
const PAIRS: usize = 25;

/// Runs a whole plan. Returns the measurements, and why it ended early if it did.
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

/// GB/s of reads by a number of cores, and of other streams by all of them.
type Inside = (BTreeMap<u32, f64>, BTreeMap<Stream, f64>);

/// ns a load: small pages at random, huge pages in groups.
type Walks = (Option<f64>, Option<f64>);

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
        // A failed look counts, so that looking ends.
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
                // The rounds count, and the profile is marked as disturbed.
                self.results.disturbed += 1;
                self.results.judge(true);
            }
            Second::Bad(_) => self.results.judge(false),
        }
        Ok(())
    }

    /// Measures something in a time in which others did not work: again where they did, and not at all if they always do. The
    /// keys then have that reason.
    fn undisturbed<T>(
        &mut self,
        keys: &[&str],
        mut measure: impl FnMut(&mut Self) -> Result<T, Ended>,
    ) -> Result<Option<T>, Ended> {
        // Rounds that wait for a look at the machine are not judged by the time of this.
        if self.results.has_pending() {
            self.judge(true)?;
        } else {
            self.worker.watch(false)?;
        }
        let mut last = String::new();
        for _ in 0..=AGAIN {
            let measured = measure(self)?;
            match self.worker.watch(true)? {
                Second::Bad(_) if self.force => {
                    self.results.disturbed += 1;
                    return Ok(Some(measured));
                }
                Second::Bad(why) => last = why,
                Second::Quiet | Second::Lasts => return Ok(Some(measured)),
            }
        }
        for key in keys {
            self.results.missing.insert(
                (*key).to_string(),
                format!("measured {} times and rejected each time; last reason: {last}", AGAIN + 1),
            );
        }
        Ok(None)
    }

    /// Whether time is left for more than was planned.
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
                orders: self.plan.orders,
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
            // Half as many more than planned, if time allows; cells that others disturbed need some, too.
            if round >= least && (round >= 2 * least + 5 || !self.has_time() && self.all_have(&cells, 3)) {
                break;
            }
            for (cpu, from, to) in wanted {
                let awake = (from != to).then(|| self.cpu_of(to)).flatten();
                self.round(Cell::Latency(from, to), cpu, to, awake)?;
            }
            self.judge(round + 1 >= least)?;
        }
        for _ in 0..=AGAIN {
            for (cpu, from, to) in &cells {
                let cell = Cell::Asleep(*from, *to);
                let wanted = from != to && self.cpu_of(*to).is_some() && !self.results.is_lacking(cell);
                if wanted && self.results.taken(cell) == 0 {
                    self.round(cell, *cpu, *to, None)?;
                }
            }
            self.judge(true)?;
        }
        let evicted = self.undisturbed(&[], Self::evicted)?;
        self.results.evicted = evicted.flatten();
        self.ask(&Job::Forget { walk: Some(Walk::Flushed) }).map(drop)
    }

    /// A local cell again, with a walk that fits in no cache instead of flushing.
    fn evicted(&mut self) -> Result<Option<f64>, Ended> {
        let (Some(bytes), Some(column)) = (self.plan.evicted_bytes, self.plan.columns.first()) else {
            return Ok(None);
        };
        let (walk, node, limits) = (Walk::Evicted, column.node, column.limits);
        let Some(cpu) = self.cpu_of(node) else { return Ok(None) };
        self.ask(&Job::Walk { walk, node, bytes, cpu: column.touched_by, orders: 1, limits })?;
        let ns = self.walked(walk, node, cpu)?.ok();
        self.ask(&Job::Forget { walk: Some(walk) })?;
        Ok(ns)
    }

    /// One round of a walk, or the reason why its number is missing.
    fn walked(&mut self, walk: Walk, node: u32, cpu: u32) -> Result<Result<f64, String>, Ended> {
        let (traffic, traffic_node, awake) = (Vec::new(), 0, None);
        let job = Job::Latency { walk, node, cpu, ms: ROUND_MS, awake, traffic, traffic_node };
        Ok(match self.ask(&job)? {
            Answer::Round { on_node, .. } if on_node < ON_NODE => Err(elsewhere(on_node, node)),
            Answer::Round { round, .. } if round.samples > 0 => Ok(round.ns),
            Answer::Round { .. } => Err(CROWDED.into()),
            other => Err(why(&other)),
        })
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
                self.results.lacks(cell, elsewhere(on_node, node));
            }
            Answer::Round { round, .. } if round.samples > 0 => self.results.take(cell, round.ns),
            Answer::Round { .. } => self.results.lacks(cell, CROWDED.into()),
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
                    "bandwidth of node {node}: includes cache hits; the test used {bytes} MiB of {wanted} \
                     MiB needed"
                ));
            }
            match self.ask(&Job::Streams { node, bytes, cpu, limits })? {
                Answer::Memory { .. } => {}
                other => self.lacks(|from| Cell::Read(from, node), &other),
            }
        }
        // Windows that others disturbed are measured again: each cell loses some twice at most.
        loop {
            let mut wanted = false;
            for row in &self.plan.rows {
                for column in &self.plan.columns {
                    let cell = Cell::Read(row.node, column.node);
                    let taken = self.results.taken(cell);
                    if self.results.is_lacking(cell) || taken >= self.plan.windows as usize {
                        continue;
                    }
                    wanted = true;
                    match self.stream(Stream::Read, column.node, &row.cpus)? {
                        Ok(gbs) => self.results.take(cell, gbs),
                        Err(why) => self.results.lacks(cell, why),
                    }
                }
            }
            self.judge(!wanted || self.plan.columns.len() * self.plan.rows.len() > 8)?;
            if !wanted && !self.plan.rows.iter().any(|row| self.wants_reads(row)) {
                break;
            }
        }
        for row in &self.plan.rows {
            if !self.plan.columns.iter().any(|column| column.node == row.node) {
                continue;
            }
            let key = format!("local.{}", row.node);
            if let Some((counts, streams)) = self.undisturbed(&[&key], |runner| runner.inside(row))? {
                self.results.by_cores.insert(row.node, counts);
                self.results.local.insert(row.node, streams);
            }
        }
        self.ask(&Job::Forget { walk: None }).map(drop)
    }

    fn wants_reads(&self, row: &MatrixRow) -> bool {
        self.plan.columns.iter().any(|column| {
            let cell = Cell::Read(row.node, column.node);
            !self.results.is_lacking(cell) && self.results.taken(cell) < self.plan.windows as usize
        })
    }

    /// Streams inside of a node: reads by 1, 2, 4 and more cores, and the other kinds by all of them.
    fn inside(&mut self, row: &MatrixRow) -> Result<Inside, Ended> {
        let (node, most) = (row.node, row.cpus.len());
        let mut failed = None;
        let mut counts = BTreeMap::new();
        for count in (0..).map(|power| 1usize << power).take_while(|count| *count < most).chain([most]) {
            match self.stream(Stream::Read, node, &row.cpus[..count])? {
                Ok(gbs) => drop(counts.insert(count as u32, gbs)),
                Err(why) => failed = Some(why),
            }
        }
        let mut streams = BTreeMap::new();
        for kind in [Stream::Write, Stream::WriteNt, Stream::Copy, Stream::Triad] {
            match self.stream(kind, node, &row.cpus)? {
                Ok(gbs) => drop(streams.insert(kind, gbs)),
                Err(why) => failed = Some(why),
            }
        }
        self.results.missing.extend(failed.map(|why| (format!("local.{node}"), why)));
        Ok((counts, streams))
    }

    /// GB/s of a stream, or the reason why its number is missing.
    fn stream(&mut self, kind: Stream, node: u32, cpus: &[u32]) -> Result<Result<f64, String>, Ended> {
        let job = Job::Bandwidth { kind, node, cpus: cpus.to_vec(), windows: 1, ms: WINDOW_MS };
        Ok(match self.ask(&job)? {
            Answer::Speeds { on_node, .. } if on_node < ON_NODE => Err(elsewhere(on_node, node)),
            Answer::Speeds { gbs, .. } => {
                median(&gbs).ok_or_else(|| "none of the measuring periods is complete".to_string())
            }
            other => Err(why(&other)),
        })
    }

    fn cores(&mut self) -> Step {
        let pairs = &self.plan.pairs;
        for some in pairs.chunks(PAIRS) {
            let keys: Vec<String> = some.iter().map(line_key).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let lines = self.undisturbed(&keys, |runner| {
                some.iter().map(|pair| runner.line(pair, false)).collect::<Result<Vec<_>, Ended>>()
            })?;
            for (pair, ns) in some.iter().zip(lines.into_iter().flatten()) {
                match ns {
                    Ok(ns) => self.results.lines.push((pair.kind, pair.cpus, ns)),
                    Err(why) => drop(self.results.missing.insert(line_key(pair), why)),
                }
            }
        }
        if let Some(pair) = pairs.iter().find(|pair| pair.kind != PairKind::Core) {
            const KEY: &str = "lines_ns.two_lines";
            match self.undisturbed(&[KEY], |runner| runner.line(pair, true))? {
                Some(Ok(ns)) => self.results.two_lines = Some(ns),
                Some(Err(why)) => drop(self.results.missing.insert(KEY.into(), why)),
                None => {}
            }
        }
        Ok(())
    }

    /// Time that a line takes between two CPUs, ns, or the reason why its number is missing.
    fn line(&mut self, pair: &Pair, two_lines: bool) -> Result<Result<f64, String>, Ended> {
        let ms = if pair.kind == PairKind::Every { EACH_LINE_MS } else { LINE_MS };
        let (first, second) = pair.cpus;
        Ok(match self.ask(&Job::Line { first, second, two_lines, ms })? {
            Answer::Times { ns } => line(&ns).ok_or_else(|| "none of the samples is complete".to_string()),
            other => Err(why(&other)),
        })
    }

    fn smt(&mut self) -> Step {
        let Some((first, second)) = self.plan.siblings else { return Ok(()) };
        let column = self.plan.columns.iter().find(|column| Some(column.node) == self.plan.siblings_node);
        for (load, key) in [
            (SmtLoad::Waiting, "smt.waiting"),
            (SmtLoad::Additions, "smt.additions"),
            (SmtLoad::Branches, "smt.branches"),
            (SmtLoad::Memory, "smt.memory"),
        ] {
            let (column, bytes) = match (column, load.work()) {
                (Some(column), _) => (column, self.plan.thread_bytes(column)),
                (None, Some(_)) => (&self.plan.columns[0], 0),
                (None, None) => {
                    let why = format!("the memory of CPU {first}'s node is not measured");
                    self.results.missing.insert(key.into(), why);
                    continue;
                }
            };
            let rates = self.undisturbed(&[key], |runner| {
                let one = runner.rates(load, vec![first], column, bytes)?;
                Ok((one, runner.rates(load, vec![first, second], column, bytes)?))
            })?;
            match rates {
                Some((Ok(one), Ok(both))) if one > 0.0 => drop(self.results.smt.insert(load, both / one)),
                Some((Ok(_), Ok(_))) => {
                    self.results.missing.insert(key.into(), format!("CPU {first} did not run"));
                }
                Some((Err(why), _) | (_, Err(why))) => drop(self.results.missing.insert(key.into(), why)),
                None => {}
            }
        }
        Ok(())
    }

    /// Pieces of a load that CPUs do together, per µs, or the reason why the number is missing.
    fn rates(
        &mut self,
        load: SmtLoad,
        cpus: Vec<u32>,
        column: &Column,
        bytes: u64,
    ) -> Result<Result<f64, String>, Ended> {
        const MS: u32 = 40;
        let job = Job::Rates { load, cpus, node: column.node, bytes, ms: MS, limits: column.limits };
        Ok(match self.ask(&job)? {
            Answer::Rates { rates } => Ok(rates.iter().sum()),
            other => Err(why(&other)),
        })
    }

    fn pages(&mut self) -> Step {
        const KEY: &str = "walk_ns";
        let Some(column) = self.plan.columns.first() else { return Ok(()) };
        match self.undisturbed(&[KEY], |runner| runner.both_walks(column))? {
            Some(Ok(walks)) => self.results.walks = walks,
            Some(Err(why)) => drop(self.results.missing.insert(KEY.into(), why)),
            None => {}
        }
        if self.plan.hidden {
            const KEY: &str = "hidden_nodes";
            let (node, bytes) = (column.node, self.plan.each_of(column));
            let (cpu, limits) = (column.touched_by, column.limits);
            if bytes == 0 {
                let room = column.bytes >> 20;
                self.results.missing.insert(KEY.into(), format!("too few huge pages: {room} MiB"));
                return Ok(());
            }
            let job = Job::EachPage { node, bytes, cpu, limits };
            match self.undisturbed(&[KEY], |runner| runner.ask(&job))? {
                Some(Answer::Times { ns }) => self.results.each_page = ns,
                Some(other) => drop(self.results.missing.insert(KEY.into(), why(&other))),
                None => {}
            }
        }
        Ok(())
    }

    /// Latency of small pages at random and of huge pages in groups, ns, or the reason why a number is
    /// missing.
    fn both_walks(&mut self, column: &Column) -> Result<Result<Walks, String>, Ended> {
        let (node, cpu, limits) = (column.node, column.touched_by, column.limits);
        let mut measured = [None; 2];
        for (walk, ns) in [Walk::SmallPages, Walk::HugePages].into_iter().zip(&mut measured) {
            let bytes = self.plan.pages_of(column);
            let got = self.ask(&Job::Walk { walk, node, bytes, cpu, orders: 1, limits })?;
            if !matches!(got, Answer::Memory { .. }) {
                return Ok(Err(why(&got)));
            }
            let (mut rounds, mut failed) = (Vec::new(), None);
            for _ in 0..3 {
                match self.walked(walk, node, cpu)? {
                    Ok(ns) => rounds.push(ns),
                    Err(why) => failed = Some(why),
                }
            }
            self.ask(&Job::Forget { walk: Some(walk) })?;
            *ns = median(&rounds);
            if let (None, Some(why)) = (*ns, failed) {
                return Ok(Err(why));
            }
        }
        Ok(Ok((measured[0], measured[1])))
    }

    fn loaded(&mut self) -> Step {
        let Some(row) = self.plan.rows.first() else { return Ok(()) };
        let (near, far) = (self.plan.columns.first(), self.plan.columns.last());
        let mut columns: Vec<_> = near.into_iter().chain(far).collect();
        columns.dedup_by_key(|column| column.node);
        for column in columns {
            let (node, limits) = (column.node, column.limits);
            let key = format!("loaded.{}.{node}", row.node);
            let (bytes, cpu) = (self.plan.traffic_of(column), column.touched_by);
            let streams = self.ask(&Job::Streams { node, bytes, cpu, limits })?;
            let (walk, bytes, orders) = (Walk::Flushed, self.plan.walk_bytes, self.plan.orders);
            let walks = self.ask(&Job::Walk { walk, node, bytes, cpu, orders, limits })?;
            let failed = [&streams, &walks].into_iter().find(|got| !matches!(got, Answer::Memory { .. }));
            match failed {
                Some(got) => drop(self.results.missing.insert(key, why(got))),
                None => {
                    let points = self.undisturbed(&[&key], |runner| runner.beside_traffic(row, node))?;
                    let points = points.map(|points| Loaded { from: row.node, to: node, points });
                    self.results.loaded.extend(points);
                }
            }
            self.ask(&Job::Forget { walk: None })?;
            self.ask(&Job::Forget { walk: Some(Walk::Flushed) })?;
        }
        Ok(())
    }

    /// GB/s and ns of a walk on the first core, while 0, 1, 2, 4 and all others of its node read.
    fn beside_traffic(&mut self, row: &MatrixRow, node: u32) -> Result<Vec<(f64, f64)>, Ended> {
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
                if let Answer::Round { round, traffic_gbs, on_node } = self.ask(&job)?
                    && round.samples > 0
                    && on_node >= ON_NODE
                {
                    rounds.push((traffic_gbs, round.ns));
                }
            }
            let of = |part: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(part).collect::<Vec<_>>());
            points.extend(of(|point| point.0).zip(of(|point| point.1)));
        }
        Ok(points)
    }
}

/// The reason of a cell whose CPU was never ours for a sample.
const CROWDED: &str = "other tasks ran on the CPU in every sample";

fn elsewhere(on_node: f64, node: u32) -> String {
    format!("only {:.0} % of the test memory is on node {node}", 100.0 * on_node)
}

fn why(answer: &Answer) -> String {
    match answer {
        Answer::Failed { why } => why.clone(),
        other => format!("unexpected answer: {other:?}"),
    }
}

fn lesser(first: Option<f64>, second: Option<f64>) -> Option<f64> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    }
}
