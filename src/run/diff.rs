//! Comparing recordings: each is read twice, first for its rows and then for the series of the rows that are
//! shown.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::command::COMMAND_SCOPE;
use super::destination::{Existing, Out, quoted};
use super::replay::{Read, samples};
use super::{ran, stop_signals, terminal_width};
use crate::cli::{DiffArgs, DiffFormat};
use crate::diff::elapsed::{Elapsed, Run};
use crate::diff::json::{self, SideWords};
use crate::diff::page::{self, View};
use crate::diff::series::{POINTS, Side};
use crate::diff::stats::{Limits, Verdict};
use crate::diff::warnings::{Circumstances, warnings};
use crate::diff::{Diff, diff, text};
use crate::entity::{By, Who};
use crate::error::Exit;
use crate::metric::{Metric, task};
use crate::model::sample::{HostFacts, Sample};
use crate::options::{self, Stretch};
use crate::outcome::totals::{Sums, Totals};
use crate::program::output::{self, Form};
use crate::program::signals;
use crate::snapshot::{RowKind, Snapshot, Task, derive};

pub(super) fn run(args: &DiffArgs) -> Result<ExitCode> {
    let typed = options::sides(args, |path| Path::new(path).exists())?;
    let (mut wanted, fails_on) = (options::compared(args)?, options::fails_on(args)?);
    wanted.extend(fails_on.iter().flatten());
    let out = Out::of(args.output.as_deref(), args.format == DiffFormat::Html, Existing::forced(args.force))?;
    let skip_ns = args.skip.map_or(0, |skip| i64::try_from(skip.as_nanos()).unwrap_or(i64::MAX));
    let stop = stop_signals()?;
    let mut looks = [Vec::new(), Vec::new()];
    for (side, looks) in typed.iter().zip(&mut looks) {
        for one in side {
            looks.push(First::look(one, skip_ns, stop)?);
        }
        if signals::ended_by().is_some() {
            return Ok(ran());
        }
    }
    let by =
        if args.by.is_empty() { By::ALL.to_vec() } else { args.by.iter().map(|by| (*by).into()).collect() };
    let chosen = chosen(&looks, &by, args.rows);
    let step_ns = step_ns(&looks);
    let mut sides = Vec::new();
    for (stretches, looks) in typed.iter().zip(&looks) {
        let mut side = Vec::new();
        for (stretch, look) in stretches.iter().zip(looks) {
            let each = (step_ns / look.side.mean_ns().max(1.0)).round() as usize;
            let mut series = Side::of(wanted.clone(), chosen.clone(), each);
            read(stretch, skip_ns, stop, |snapshot, _| {
                snapshot.into_iter().for_each(|snapshot| series.take(snapshot));
            })?;
            side.push(series);
        }
        if signals::ended_by().is_some() {
            return Ok(ran());
        }
        sides.push(side);
    }
    let limits = Limits { same: args.same / 100.0 };
    let mut found = diff(&sides[0], &sides[1], &limits);
    let runs = looks.each_ref().map(|looks| looks.iter().map(|look| look.run).collect::<Option<Vec<_>>>());
    if let [Some(a), Some(b)] = runs {
        found.elapsed = Elapsed::of(&a, &b);
    }
    if found.rows.is_empty() && found.zeros == 0 && found.elapsed.is_none() {
        output::message("numatop-ng: nothing to compare: no row has a value on both sides");
        return Ok(Exit::CouldNotMeasure.into());
    }
    let of = |looks: &[First]| looks.iter().map(|look| look.circumstances.clone()).collect::<Vec<_>>();
    let said = warnings(&sides[0], &sides[1], &of(&looks[0]), &of(&looks[1]));
    let words: Vec<SideWords> =
        looks.iter().zip(&typed).map(|(looks, typed)| side_words(looks, typed)).collect();
    let sides = [&words[0], &words[1]];
    let (text, form) = match args.format {
        DiffFormat::Text => {
            let how = (limits.same, args.all);
            (text::render(&found, sides, &said, how, terminal_width().max(80)), Form::Text)
        }
        DiffFormat::Json => (format!("{:#}\n", json::object(&found, sides, &said)), Form::Json),
        DiffFormat::Html => {
            let (same, all, command) = (limits.same, args.all, command(args));
            let view = View { diff: &found, sides, warnings: &said, same, all, command };
            (page::render(&view), Form::Text)
        }
    };
    out.write(&text, form)?;
    for metric in fails_on.iter().flatten() {
        if !found.rows.iter().any(|row| row.metric == *metric && limits.too_short(row).is_none()) {
            output::message(format!("numatop-ng: --fail-on: {metric} was not compared"));
        }
    }
    Ok(exit(&found, fails_on.as_ref()).into())
}

fn exit(found: &Diff, fails_on: Option<&BTreeSet<&'static str>>) -> Exit {
    let fails = |metric: &str| fails_on.is_some_and(|ids| ids.is_empty() || ids.contains(metric));
    let failed = found.rows.iter().any(|row| row.verdict == Verdict::Worse && fails(row.metric));
    if failed { Exit::Found } else { Exit::Ok }
}

/// The command that compares the same again.
fn command(args: &DiffArgs) -> String {
    let mut words: Vec<String> = ["numatop-ng", "diff"].map(String::from).into();
    words.extend(args.a.iter().chain(&args.b).map(|path| quoted(path)));
    for (flag, paths) in [("--before", &args.before), ("--after", &args.after)] {
        words.extend(paths.iter().flat_map(|path| [flag.to_owned(), quoted(path)]));
    }
    words.join(" ")
}

/// The first look at a stretch: its rows, its length, its circumstances.
struct First {
    side: Side,
    circumstances: Circumstances,
    /// Ends of its first and last interval, ns since 1970.
    span: (i64, i64),
    /// The totals of a command that `run` recorded.
    run: Option<Run>,
}

impl First {
    fn look(stretch: &Stretch, skip_ns: i64, stop: BorrowedFd<'_>) -> Result<First> {
        let mut side = Side::first_look();
        let (mut host, mut span) = (None, None::<(i64, i64)>);
        let (mut totals, mut begun) = (Totals::default(), None);
        let mut elapsed_ns = 0;
        read(stretch, skip_ns, stop, |snapshot, sample| {
            totals.take(sample, None);
            elapsed_ns = sample.mono_ns - *begun.get_or_insert(sample.mono_ns);
            let Some(snapshot) = snapshot else { return };
            side.take(snapshot);
            host = Some(Arc::clone(&snapshot.host));
            span = Some((span.map_or(sample.wall_ns, |(first, _)| first), sample.wall_ns));
        })?;
        let host = host.with_context(|| {
            let time = match (&stretch.from, &stretch.to) {
                (None, None) => String::new(),
                (from, to) => format!(
                    " between {} and {}",
                    from.as_deref().unwrap_or("the beginning"),
                    to.as_deref().unwrap_or("the end")
                ),
            };
            format!("{}: no data{time}; an interval needs two samples", stretch.path.display())
        })?;
        let mean_ns = side.mean_ns();
        // A part of a run has another length.
        let is_whole = skip_ns == 0 && stretch.from.is_none() && stretch.to.is_none();
        let run = (is_whole && host.scope.starts_with(COMMAND_SCOPE))
            .then(|| of_run(totals, &host, elapsed_ns))
            .flatten();
        Ok(First {
            run,
            side,
            circumstances: Circumstances::of(&host, mean_ns),
            span: span.unwrap_or_default(),
        })
    }
}

/// The totals of a command; `None` where its recording has no interval.
fn of_run(totals: Totals, host: &Arc<HostFacts>, elapsed_ns: u64) -> Option<Run> {
    let Sums { machine, row, .. } = totals.finish(host).ok()?;
    let count = |metric: &Metric<Task>| {
        let value =
            metric.read(&row.sum, &machine).ok().filter(|_| machine.host_missing(metric.id).is_none());
        value.and_then(|value| value.number()).filter(|count| *count > 0.0)
    };
    let counted = count(&task::INSTRUCTIONS_TOTAL).zip(count(&task::CYCLES_TOTAL));
    Some(Run {
        elapsed_s: elapsed_ns as f64 / 1e9,
        cpu_s: row.sum.run_ns() as f64 / 1e9,
        counted: counted.map(|(instructions, cycles)| [instructions, cycles]),
    })
}

/// Nodes at most: a recording may name any.
const NODES_MAX: usize = 1024;

/// Reads the intervals of a stretch, except those that begin in its first `skip_ns`.
fn read(
    stretch: &Stretch,
    skip_ns: i64,
    stop: BorrowedFd<'_>,
    mut take: impl FnMut(Option<&Snapshot>, &Sample),
) -> Result<()> {
    let (mut begun, mut previous) = (None, None::<Sample>);
    let moments = (stretch.from.as_deref(), stretch.to.as_deref());
    samples(&stretch.path, moments, stop, |Read { host, sample, goes_on, .. }| {
        let before = previous.take().filter(|_| goes_on);
        let snapshot = before.map(|previous| derive(&host, Some(&previous), &sample, RowKind::Processes));
        take(snapshot.as_ref(), &sample);
        let begun = *begun.get_or_insert(sample.wall_ns);
        previous = (sample.wall_ns.saturating_sub(begun) >= skip_ns).then_some(sample);
        Ok(())
    })
}

/// The time of a point: that of the longest intervals, and long enough to keep the number of points of a side
/// small.
fn step_ns(looks: &[Vec<First>; 2]) -> f64 {
    let longest = looks.iter().flatten().map(|look| look.side.mean_ns()).fold(0.0, f64::max);
    let of_side = |side: &Vec<First>| side.iter().map(|look| look.side.interval_ns).sum::<f64>() / POINTS;
    looks.iter().map(of_side).fold(longest, f64::max)
}

/// Rows of the wanted kinds: the machine, all nodes, and the programs and containers with the most CPU time on either side.
fn chosen(looks: &[Vec<First>; 2], by: &[By], rows: usize) -> BTreeSet<Who> {
    let mut chosen = BTreeSet::new();
    for look in looks.iter().flatten() {
        for by in by {
            let most = if matches!(by, By::Host | By::Node) { NODES_MAX } else { rows };
            chosen.extend(look.side.top(*by, most).cloned());
        }
    }
    chosen
}

fn side_words(looks: &[First], typed: &[Stretch]) -> SideWords {
    SideWords {
        paths: typed.iter().map(|one| crate::text::one_line(&one.typed)).collect(),
        intervals: looks.iter().map(|look| look.side.intervals).sum(),
        from_wall_ns: looks.iter().map(|look| look.span.0).min().unwrap_or_default(),
        to_wall_ns: looks.iter().map(|look| look.span.1).max().unwrap_or_default(),
    }
}
