//! A report as text for a ticket or a chat: the summary and the findings, at most 60 lines.

use super::clock::Clock;
use super::lanes::Lane;
use super::{Report, words};
use crate::finding::details::{Content, Section, short};
use crate::finding::{Finding, text};
use crate::text::{hanging, one_line, words as pieces};

/// Lines at most.
pub const LINES_MAX: usize = 60;
/// Columns of the text.
const WIDTH: usize = 100;
/// Programs that are named.
const PROGRAMS: usize = 5;

/// The text.
pub fn render(report: &Report, clock: &Clock) -> String {
    let mut out = hanging("", pieces(&words::title(report, clock)), WIDTH);
    out += &hanging("", pieces(&words::subtitle(report, clock)), WIDTH);
    out.push('\n');
    out += &hanging("", pieces(&words::lede(report)), WIDTH);
    for said in words::caveat(report, clock) {
        out += &hanging("", pieces(&said), WIDTH);
    }
    out.push('\n');
    out += &summary(report, clock);
    out.push('\n');
    out += &programs(report);
    out.push('\n');
    let findings: Vec<String> = report
        .findings
        .iter()
        .filter(|finding| finding.counts())
        .enumerate()
        .map(|(at, found)| finding(at + 1, found, clock))
        .collect();
    let rules = hanging("", pieces(&words::rules(report)), WIDTH);
    let mut left = LINES_MAX.saturating_sub(out.lines().count() + rules.lines().count() + 2);
    let mut shown = 0;
    for block in &findings {
        let lines = block.lines().count();
        if lines > left {
            break;
        }
        (left, shown) = (left - lines, shown + 1);
        out += block;
    }
    if shown < findings.len() {
        let more = findings.len() - shown;
        out += &format!(
            "{} more: --format html or json has all of them.\n",
            crate::text::plural(more, "finding")
        );
    }
    cut(&(out + &rules))
}

/// At most as many lines as there may be: names of strangers may be long.
fn cut(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = lines[..lines.len().min(LINES_MAX)].to_vec();
    if lines.len() > LINES_MAX {
        kept[LINES_MAX - 1] = "(cut: --format html or json has all of it)";
    }
    kept.join("\n") + "\n"
}

fn summary(report: &Report, clock: &Clock) -> String {
    let worst = format!("worst {}", words::worst_span(report));
    let mut out = format!("{:<34}{:>11}  {:>17}  {:>18}\n", "", "median", "5th-95th perc.", worst);
    for lane in &report.lanes {
        if let Some(line) = line(report, lane, clock) {
            out += &line;
        }
    }
    out
}

fn line(report: &Report, lane: &Lane, clock: &Clock) -> Option<String> {
    let name = words::summary_name(lane.id, report.has_nodes());
    if lane.id.needs_nodes() && !report.has_nodes() {
        return None;
    }
    if let Some(why) = &lane.missing {
        return Some(hanging(&format!("{name:<34}"), pieces(&format!("not measured: {why}")), WIDTH));
    }
    let unit = lane.id.unit();
    let track = &lane.machine;
    let (median, low, high) = (track.quantile(0.5)?, track.quantile(0.05)?, track.quantile(0.95)?);
    let (at, worst) = track.worst(lane.id.least_is_worst())?;
    let worst = format!("{} {}", words::value(worst, unit), clock.time(report.grid.begins(at)));
    let (median, range) = (words::value(median, unit), words::range(low, high, unit));
    Some(format!("{name:<34}{median:>11}  {range:>17}  {worst:>18}\n"))
}

fn programs(report: &Report) -> String {
    let mut out = String::new();
    for row in report.programs.rows.iter().take(PROGRAMS) {
        let pct = report.cpus_of(row.sums.run_ns) * 100.0;
        let whose = row.container.as_ref().map_or(String::new(), |name| format!(" in {name}"));
        let remote = if report.has_nodes() {
            format!(", {} % remote", words::remote(&row.sums))
        } else {
            String::new()
        };
        let text = format!("{}{whose}: {} % CPU{remote}", row.name, words::short(pct));
        out += &hanging("  ", pieces(&text), WIDTH);
    }
    let title = "Programs with the most CPU time (100 % is one CPU):\n";
    if out.is_empty() { out } else { format!("{title}{out}") }
}

fn finding(number: usize, finding: &Finding, clock: &Clock) -> String {
    let (sign, word) = words::severity(finding.severity);
    let head =
        format!("{sign} F{number} {word}, {}, {}: ", finding.confidence.name(), words::when(finding, clock));
    let mut out = hanging("", pieces(&format!("{head}{}", one_line(&finding.advice.sentence))), WIDTH);
    for paragraph in short(finding) {
        let line = match (paragraph.section, paragraph.content) {
            (Section::Gain, Content::Words(gain)) => hanging("     gain: ", pieces(&one_line(&gain)), WIDTH),
            // A command line is copied whole.
            (Section::Type, Content::Line(line)) => format!("     run: {}\n", one_line(&line)),
            _ => continue,
        };
        out += &line;
    }
    if finding.times > 1 {
        out += &format!("  {} times, {} in all\n", finding.times, text::duration(finding.held_ns));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_longer_than_a_ticket_takes() {
        assert_eq!(cut("a\nb\n"), "a\nb\n");
        let long = cut(&"x\n".repeat(200));
        assert_eq!(long.lines().count(), LINES_MAX);
        assert!(long.ends_with("all of it)\n"), "{long}");
    }
}
