//! The page about a command, and the table of its bindings.

use std::collections::{BTreeMap, BTreeSet};

use super::measures::{CPU, ELAPSED, IPC, MEASURES, Measure, REMOTE, WAIT};
use super::{Outcome, Series, spread};
use crate::metric::Value;
use crate::model::sample::Reading;
use crate::model::units::NodeId;
use crate::text::{hanging, one_line, plural, words};

/// Columns of a page.
const WIDTH: usize = 100;

/// Columns of the words in front of values.
const TITLE: usize = 34;

/// Columns of the table of bindings.
const COMPARED: [Measure; 5] = [ELAPSED, CPU, IPC, REMOTE, WAIT];

/// The page. `command` is the command line.
pub fn render(command: &str, series: &[Series]) -> String {
    match series {
        [only] if only.binding.is_none() => page(command, &only.runs),
        several => table(command, several),
    }
}

fn page(command: &str, runs: &[Outcome]) -> String {
    let head = match runs {
        [only] => format!("{}: {}", one_line(command), only.end),
        several => {
            format!("{}: {}, mean and standard deviation", one_line(command), plural(several.len(), "run"))
        }
    };
    let mut out = format!("\n{}\n", hanging("", words(&head), WIDTH));
    let mut notes = Notes::default();
    for measure in &MEASURES {
        let prefix = format!("  {:TITLE$}", measure.title);
        let text = cell(measure, runs).unwrap_or_else(|why| notes.absent(&why.to_string()));
        out += &hanging(&prefix, words(&one_line(&text)), WIDTH);
    }
    if runs.len() > 1 {
        let times: Vec<String> = runs.iter().map(|run| ELAPSED.show(run.elapsed_ns as f64 / 1e9)).collect();
        out += &hanging(&format!("  {:TITLE$}", "runs"), words(&times.join(", ")), WIDTH);
    }
    out.push('\n');
    out + &notes.render() + &remarks(runs)
}

/// Reasons for values that are absent, each once.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    /// Text for a missing value.
    fn absent(&mut self, why: &str) -> String {
        let at = self.0.iter().position(|known| known == why).unwrap_or_else(|| {
            self.0.push(why.to_owned());
            self.0.len() - 1
        });
        format!("- [{}]", at + 1)
    }

    fn render(&self) -> String {
        let note =
            |(at, why): (usize, &String)| hanging(&format!("[{}] ", at + 1), words(&one_line(why)), WIDTH);
        self.0.iter().enumerate().map(note).collect()
    }
}

/// Findings, losses and verdicts, each once.
fn remarks(runs: &[Outcome]) -> String {
    let mut said: Vec<String> = Vec::new();
    for run in runs {
        said.extend(run.findings.iter().map(|finding| {
            let severity = finding.severity.name().to_uppercase();
            format!("{severity} {} {}: {}", finding.key.id, finding.identity.label, finding.advice.sentence)
        }));
        said.extend(run.lost.iter().map(|(cause, lost)| format!("lost: {cause} {lost}")));
        said.push(run.verdict.clone());
    }
    let mut seen = BTreeSet::new();
    said.retain(|line| seen.insert(line.clone()));
    said.iter().map(|line| hanging("", words(&one_line(line)), WIDTH)).collect()
}

/// The value of one run, or what several come to.
fn cell(measure: &Measure, runs: &[Outcome]) -> Reading<String> {
    let values = runs.iter().map(|run| measure.read(run)).collect::<Reading<Vec<Value>>>()?;
    let [first, others @ ..] = values.as_slice() else { return Ok(String::new()) };
    Ok(match first {
        first if others.iter().all(|other| other == first) => measure.show_value(first),
        Value::Text(_) => "different in each run".into(),
        Value::ByNode(_) => measure.show_value(&Value::ByNode(mean_by_node(&values))),
        _ => {
            let numbers: Vec<f64> = values.iter().filter_map(Value::number).collect();
            let spread = spread(&numbers);
            let show = |number: Option<f64>| number.map(|number| measure.show(number)).unwrap_or_default();
            let [mean, deviation] = [spread.map(|of| of.mean), spread.and_then(|of| of.deviation)].map(show);
            format!("{mean} +- {deviation}")
        }
    })
}

fn mean_by_node(values: &[Value]) -> Vec<(NodeId, f64)> {
    let mut sums = BTreeMap::new();
    for value in values {
        if let Value::ByNode(parts) = value {
            parts.iter().for_each(|(node, part)| *sums.entry(*node).or_insert(0.0) += part);
        }
    }
    sums.into_iter().map(|(node, sum)| (node, sum / values.len() as f64)).collect()
}

/// A line for each binding.
fn table(command: &str, series: &[Series]) -> String {
    let runs = series.first().map_or(0, |first| first.runs.len());
    let mut head = one_line(command);
    if runs > 1 {
        head += &format!(": {} per binding, with mean and standard deviation", plural(runs, "run"));
    }
    let mut out = format!("\n{}\n", hanging("", words(&head), WIDTH));
    let mut lines = vec![vec!["binding".to_owned()]];
    lines[0].extend(COMPARED.iter().map(|measure| measure.title.to_owned()));
    lines[0].push("end".into());
    let mut notes = Notes::default();
    for one in series {
        let mut line = vec![one_line(one.binding.as_deref().unwrap_or("none"))];
        for measure in &COMPARED {
            line.push(cell(measure, &one.runs).unwrap_or_else(|why| notes.absent(&why.to_string())));
        }
        line.push(one.runs.iter().map(|run| run.end.to_string()).next_back().unwrap_or_default());
        lines.push(line);
    }
    let columns = lines[0].len();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(
            |(at, (cell, width))| if at == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") },
        );
        out += &format!("  {}\n", cells.collect::<Vec<_>>().join("  "));
    }
    out.push('\n');
    out + &notes.render()
}
