//! The support matrix: the features proved to work on each kernel, from a file of results. Markdown.

use std::collections::{BTreeMap, BTreeSet};

use vmtests_protocol::{Event, Outcome};

use crate::features;
use crate::plan::Job;
use crate::record::{GuestId, Line, Standing, What};
use crate::transcript::Tally;

/// The matrix is between these lines in docs/kernels.md.
const BEGIN: &str = "<!-- printed by vmtests/run --matrix -->\n";
const END: &str = "<!-- end of the matrix -->\n";

const LEGEND: &str = "\
yes: compared with a truth and right, on two nodes or on the [machines](../vmtests/topologies.toml) in parentheses. Machines behind
“some” ran a part of the cases. partly: some cases were skipped or not run. –: not run there. [lab.md](lab.md) lists the cases.
";

/// The source of one cell of the table: every run of the cases of a row on a kernel and architecture.
#[derive(Default)]
struct Cell {
    /// The cases that passed, by topology, and these by their first number.
    passed: BTreeMap<(u32, String), BTreeSet<String>>,
    failed: BTreeSet<String>,
    skipped: BTreeSet<String>,
    refused: BTreeSet<String>,
}

/// A column: kernel as in KERNELS, then architecture.
type Column = (Vec<u32>, String, String);

/// A row: its position, and its name.
type Row = (usize, String);

/// Renders the matrix of docs/kernels.md; each kernel and architecture is a column, and each row comes from
/// [`features`]. `planned` is everything that could run: a planned case without a result is not a yes.
pub fn render(lines: &[Line], planned: &[Job]) -> String {
    let planned = cases_of(planned);
    let standing = Standing::of(lines);
    let mut columns: BTreeSet<Column> = BTreeSet::new();
    let mut rows: BTreeSet<Row> = BTreeSet::new();
    let mut cells: BTreeMap<(Row, Column), Cell> = BTreeMap::new();
    let mut releases: BTreeMap<Column, BTreeSet<String>> = BTreeMap::new();
    for line in lines {
        let column = column(&line.guest);
        columns.insert(column.clone());
        match &line.what {
            What::Event(Event::Ready { kernel, .. }) => {
                releases.entry(column).or_default().insert(kernel.clone());
            }
            What::Event(Event::Data { case, key, value }) if key == "load" => {
                if let Some(why) = value["refused"].as_str() {
                    let row = features::row(case, &line.guest);
                    cells.entry((row, column)).or_default().refused.insert(why.to_owned());
                }
            }
            What::Event(_) | What::Guest(_) => {}
        }
    }
    let mut tally = Tally::default();
    for ((guest, case), (outcome, reason)) in &standing.cases {
        tally.count(*outcome);
        let row = features::row(case, guest);
        rows.insert(row.clone());
        let reason = || format!("{case}, {}: {}", place(guest), reason.unwrap_or("no reason given"));
        let cell = cells.entry((row, column(guest))).or_default();
        match outcome {
            Outcome::Passed => drop(cell.passed.entry(topology(guest)).or_default().insert(case.clone())),
            Outcome::Failed => drop(cell.failed.insert(reason())),
            Outcome::Skipped => drop(cell.skipped.insert(reason())),
        }
    }
    let mut broken: BTreeSet<String> = BTreeSet::new();
    let mut not_covered: BTreeMap<Column, String> = BTreeMap::new();
    for (guest, end) in &standing.guests {
        if let Some(why) = &end.failed {
            broken.insert(format!("{guest}: {why}"));
        }
        if let Some(why) = &end.not_covered {
            not_covered.insert(column(guest), why.clone());
        }
    }
    let mut notes = Notes::default();
    let mut text = format!("{BEGIN}\n| |");
    for (_, kernel, arch) in &columns {
        text.push_str(&format!(" {kernel} {arch} |"));
    }
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(columns.len())));
    for row in &rows {
        text.push_str(&format!("| {} |", row.1));
        for column in &columns {
            let place = (row.clone(), column.clone());
            let word = match (cells.get(&place), not_covered.get(column)) {
                (Some(cell), _) => cell.word(planned.get(&place).unwrap_or(&BTreeSet::new()), &mut notes),
                (None, Some(why)) => notes.mark("not covered", why),
                (None, None) => "–".to_owned(),
            };
            text.push_str(&format!(" {word} |"));
        }
        text.push('\n');
    }
    let Tally { passed, failed, skipped } = tally;
    let releases: Vec<&str> = releases.values().flatten().map(String::as_str).collect();
    text.push_str(&format!(
        "\n{LEGEND}\nMade from {} guests: {passed} cases passed, {failed} failed, {skipped} skipped. Kernels: {}.\n",
        standing.guests.len(),
        releases.join(", ")
    ));
    if !standing.repeated.is_empty() {
        let repeated: Vec<String> =
            standing.repeated.iter().map(|(guest, case)| format!("{case} ({guest})")).collect();
        text.push_str(&format!("\nPassed when repeated, and not at first: {}.\n", repeated.join("; ")));
    }
    if !broken.is_empty() {
        let broken: Vec<String> = broken.iter().map(|why| one_line(why)).collect();
        text.push_str(&format!("\n**Guests that failed**: {}.\n", broken.join("; ")));
    }
    text.push('\n');
    for (index, note) in notes.0.iter().enumerate() {
        // A message of the tool is code: what it names is no Markdown.
        let quote = if note.starts_with("numatop-ng: ") { "`" } else { "" };
        text.push_str(&format!("* [{}] {quote}{note}{quote}\n", index + 1));
    }
    text.push('\n');
    text + END
}

/// The cases of each row on each kernel and architecture, whatever the topology.
fn cases_of(planned: &[Job]) -> BTreeMap<(Row, Column), BTreeSet<String>> {
    let mut cases: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for job in planned {
        let guest = GuestId::of(job);
        for case in &job.cases {
            let place = (features::row(case, &guest), column(&guest));
            cases.entry(place).or_default().insert(case.clone());
        }
    }
    cases
}

impl Cell {
    /// The text of a cell for which these cases are planned.
    fn word(&self, planned: &BTreeSet<String>, notes: &mut Notes) -> String {
        let passed: BTreeSet<String> = self.passed.values().flatten().cloned().collect();
        let not_run: Vec<&str> = planned.difference(&passed).map(String::as_str).collect();
        let all = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join("; ");
        if !self.failed.is_empty() {
            notes.mark("**no**", &all(&self.failed))
        } else if !self.refused.is_empty() {
            notes.mark("refused", &all(&(&self.refused | &self.skipped)))
        } else if !self.passed.is_empty() && !self.skipped.is_empty() {
            notes.mark("partly", &all(&self.skipped))
        } else if self.passed.is_empty() {
            notes.mark("skipped", &all(&self.skipped))
        } else if !not_run.is_empty() {
            notes.mark("partly", &format!("not run: {}", not_run.join(", ")))
        } else {
            match self.machines(planned).as_str() {
                "2" => "yes".to_owned(),
                machines => format!("yes ({machines})"),
            }
        }
    }

    /// Topologies on which all of these cases passed, and then those on which some did.
    fn machines(&self, planned: &BTreeSet<String>) -> String {
        let names = |whole: bool| {
            let of = self.passed.iter().filter(|(_, cases)| cases.is_superset(planned) == whole);
            of.map(|((_, name), _)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        match (names(true), names(false)) {
            (whole, some) if some.is_empty() => whole,
            (whole, some) if whole.is_empty() => format!("some: {some}"),
            (whole, some) => format!("{whole}; some: {some}"),
        }
    }
}

/// Reasons, each written once and pointed at by number.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn mark(&mut self, word: &str, why: &str) -> String {
        let why = one_line(why);
        let index = self.0.iter().position(|note| *note == why).unwrap_or_else(|| {
            self.0.push(why);
            self.0.len() - 1
        });
        format!("{word} [{}]", index + 1)
    }
}

/// The text in a cell or a note, on one line.
fn one_line(text: &str) -> String {
    text.replace('|', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// 16 comes after 2+1.
fn topology(guest: &GuestId) -> (u32, String) {
    let name = &guest.topology;
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    (name[..digits].parse().unwrap_or(u32::MAX), name.clone())
}

fn column(guest: &GuestId) -> Column {
    // 5.10 comes after 5.9 and before 6.1.
    let order = guest.kernel.split('.').map(|part| part.parse().unwrap_or(u32::MAX)).collect();
    (order, guest.kernel.clone(), guest.arch.clone())
}

fn place(guest: &GuestId) -> String {
    if guest.variant == "plain" {
        format!("topology {}", guest.topology)
    } else {
        format!("topology {}, {}", guest.topology, guest.variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::GuestEnd;

    fn guest(kernel: &str) -> GuestId {
        GuestId { arch: "amd64".into(), kernel: kernel.into(), topology: "2".into(), variant: "plain".into() }
    }

    fn end(kernel: &str, outcome: Outcome, reason: Option<&str>) -> Line {
        let event =
            Event::End { case: "moving".into(), outcome, reason: reason.map(Into::into), seconds: 1.0 };
        Line { guest: guest(kernel), what: What::Event(event) }
    }

    #[test]
    fn a_skipped_or_missing_kernel_is_never_a_yes() {
        let gone = GuestEnd::not_covered("suite forky cannot be read".into());
        let lines = [
            end("6.12", Outcome::Passed, None),
            end("5.10", Outcome::Skipped, Some("one node")),
            end("6.1", Outcome::Passed, None),
            end("6.1", Outcome::Failed, Some("2 checks")),
            Line { guest: guest("7.x"), what: What::Guest(gone) },
        ];
        let text = render(&lines, &[]);
        assert!(text.contains("\n\n| | 5.10 amd64 | 6.1 amd64 | 6.12 amd64 | 7.x amd64 |\n"), "{text}");
        assert!(text.contains("| CPU time by node: pinned and moving threads | skipped [1] | **no** [2] | yes | not covered [3] |"), "{text}");
        assert!(text.contains("\n* [2] moving, topology 2: 2 checks"), "{text}");
    }

    #[test]
    fn a_guest_that_died_is_seen_in_the_rows_it_did_not_reach_and_below() {
        let fails = |case: &str, outcome, reason: &str| {
            let reason = Some(reason.to_owned());
            Line {
                guest: guest("6.12"),
                what: What::Event(Event::End { case: case.into(), outcome, reason, seconds: 0.0 }),
            }
        };
        let died = GuestEnd { failed: Some("QEMU ended, during case exits".into()), ..GuestEnd::default() };
        let lines = [
            end("6.12", Outcome::Passed, None),
            fails("pinned", Outcome::Skipped, "was not reached"),
            fails("load", Outcome::Passed, ""),
            fails("snapshot", Outcome::Failed, "what this kernel takes has changed"),
            Line { guest: guest("6.12"), what: What::Guest(died) },
        ];
        let text = render(&lines, &[]);
        assert!(text.contains("has its reason | **no** [1] |\n"), "{text}");
        assert!(text.contains("pinned and moving threads | partly [2] |\n"), "{text}");
        assert!(text.contains("\n* [2] pinned, topology 2: was not reached"), "{text}");
        assert!(
            text.contains("**Guests that failed**: 6.12 amd64, topology 2: QEMU ended, during case exits."),
            "{text}"
        );
    }

    #[test]
    fn a_machine_on_which_some_of_a_row_ran_is_not_among_those_with_all_of_it() {
        let planned = crate::plan::shipped(&Default::default()).unwrap();
        let passed = |topology: &str, case: &str| Line {
            guest: GuestId { topology: topology.into(), ..guest("6.12") },
            what: What::Event(Event::End {
                case: case.into(),
                outcome: Outcome::Passed,
                reason: None,
                seconds: 1.0,
            }),
        };
        let word = |lines: &[Line]| {
            let text = render(lines, &planned);
            let row = text.lines().find(|line| line.starts_with("| CPU time by node")).unwrap().to_owned();
            row.rsplit('|').nth(1).unwrap().trim().to_owned()
        };
        let mut lines = vec![passed("2", "pinned"), passed("16", "pinned")];
        assert_eq!(word(&lines), "partly [1]");
        lines.push(passed("4", "moving"));
        assert_eq!(word(&lines), "yes (some: 2, 4, 16)");
        lines.push(passed("2", "moving"));
        assert_eq!(word(&lines), "yes (2; some: 4, 16)");
        assert_eq!(word(&[passed("2", "moving"), passed("2", "pinned")]), "yes");
    }

    #[test]
    fn a_repeat_counts_once_and_is_named() {
        let lines = [
            end("6.12", Outcome::Failed, Some("2 checks")),
            end("6.1", Outcome::Passed, None),
            end("6.12", Outcome::Passed, None),
        ];
        let text = render(&lines, &[]);
        assert!(text.contains("2 cases passed, 0 failed, 0 skipped."), "{text}");
        assert!(
            text.contains("Passed when repeated, and not at first: moving (6.12 amd64, topology 2)."),
            "{text}"
        );
    }

    #[test]
    fn each_point_release_is_named() {
        let ready = |kernel: &str| Line {
            guest: guest("6.12"),
            what: What::Event(Event::Ready { kernel: kernel.into(), arch: "x86_64".into(), uptime: 2.0 }),
        };
        let text = render(&[ready("6.12.94"), ready("6.12.107"), end("6.12", Outcome::Passed, None)], &[]);
        assert!(
            text.contains("1 cases passed, 0 failed, 0 skipped. Kernels: 6.12.107, 6.12.94.\n"),
            "{text}"
        );
    }

    #[test]
    fn the_document_has_these_columns_rows_and_this_legend() {
        let document = include_str!("../../docs/kernels.md");
        let (_, matrix) = document.split_once(BEGIN).expect("the matrix begins");
        let (matrix, _) = matrix.split_once(END).expect("the matrix ends");
        let kernels = crate::kernels::parse(include_str!("../KERNELS")).unwrap();
        let columns: BTreeSet<Column> = kernels
            .iter()
            .map(|kernel| column(&GuestId { arch: kernel.arch.debian().into(), ..guest(&kernel.name) }))
            .collect();
        let columns: Vec<String> =
            columns.iter().map(|(_, kernel, arch)| format!("{kernel} {arch}")).collect();
        let mut lines = matrix.lines().filter(|line| line.starts_with('|'));
        assert_eq!(lines.next(), Some(format!("| | {} |", columns.join(" | ")).as_str()));
        let rows: Vec<&str> =
            lines.skip(1).filter_map(|line| line.split(" | ").next()?.strip_prefix("| ")).collect();
        assert_eq!(rows, features::rows().collect::<Vec<_>>());
        assert!(matrix.contains(LEGEND));
    }
}
