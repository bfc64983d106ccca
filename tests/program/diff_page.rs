//! The page of a diff against its JSON and its text, hostile names, and the command beside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use numatop_ng::model::sample::{Comm, HostFacts, Missing, Names};
use numatop_ng::report::shell::SCRIPT_HASH;
use numatop_ng::source::synthetic::{Actor, Machine, demo_machine};
use serde_json::Value as Json;

use crate::pages;
use crate::scratch::Scratch;
use pages::{demo, elements, hostile, numatop, record, seconds, stdout, text};

fn diff(a: &Path, b: &Path, flags: &[&str]) -> String {
    stdout(&[&["diff", text(a), text(b)], flags].concat())
}

fn object(a: &Path, b: &Path, flags: &[&str]) -> Json {
    serde_json::from_str(&diff(a, b, &[&["--format", "json"], flags].concat())).unwrap()
}

fn page(a: &Path, b: &Path, flags: &[&str]) -> String {
    diff(a, b, &[&["--format", "html", "-o", "-"], flags].concat())
}

fn comparisons(object: &Json) -> &Vec<Json> {
    object["comparisons"].as_array().unwrap()
}

/// Two recordings: `postgres` gets more done in the second, `sshd` is gone, and a wide interval makes its
/// change uncertain.
fn before_and_after(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (before, after) = (scratch.join("before.nrec"), scratch.join("after.nrec"));
    record(&before, &seconds(&mut demo_machine(), 300));
    let mut machine = demo_machine();
    for actor in machine.actors.iter_mut().filter(|actor| actor.comm == Comm::new("postgres")) {
        actor.ipc *= 1.5;
    }
    machine.actors.retain(|actor| actor.comm != Comm::new("sshd"));
    record(&after, &seconds(&mut machine, 300));
    (before, after)
}

/// The text of markup: without tags, and with characters in place of their names.
fn plain(markup: &str) -> String {
    let parts = markup.split('<').enumerate();
    let text: String = parts
        .map(|(at, part)| if at == 0 { part } else { part.split_once('>').map_or("", |(_, text)| text) })
        .collect();
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// A row of the page: its class, the title above it, and the text of its cells.
fn row(page: &str, at: usize) -> (String, String, Vec<String>) {
    let begin = page.find(&format!("<tr id=\"r{at}\"")).unwrap_or_else(|| panic!("row {at} is on the page"));
    let row = &page[begin..][..page[begin..].find("</tr>").unwrap()];
    let class = row.split("class=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let title = page[..begin].rsplit("<tr class=\"who\">").next().unwrap();
    let title = plain(title.split("<b>").nth(1).unwrap().split("</b>").next().unwrap());
    let cells = row.split("<td").skip(1).map(|cell| plain(&format!("<td{cell}")));
    let name = plain(row.split("<code>").nth(1).unwrap().split("</code>").next().unwrap());
    (class, title, std::iter::once(name).chain(cells).collect())
}

/// A change in percent, in the form of the page.
fn signed(pct: f64) -> String {
    match pct {
        _ if pct >= 900.0 => "× ".into(),
        _ if pct.abs() < 0.05 => "0.0 %".into(),
        _ => format!("{pct:+.1} %"),
    }
}

#[test]
fn a_page_has_what_json_and_text_have() {
    let scratch = Scratch::new();
    let (before, after) = before_and_after(&scratch);
    let (object, page) = (object(&before, &after, &[]), page(&before, &after, &[]));
    let text = diff(&before, &after, &["--all"]);
    let is_row =
        |line: &&str| line.starts_with("  ") && line[2..].starts_with(|c: char| c.is_ascii_lowercase());
    let lines: Vec<&str> = text.lines().filter(is_row).collect();
    let comparisons = comparisons(&object);
    assert!(comparisons.len() > 40, "{}", comparisons.len());
    assert_eq!(lines.len(), comparisons.len());
    let mut verdicts = BTreeSet::new();
    for (at, wanted) in comparisons.iter().enumerate() {
        let (class, title, cells) = row(&page, at);
        assert_eq!(class, wanted["verdict"], "{wanted}");
        verdicts.insert(class.clone());
        let who = match (wanted["by"].as_str().unwrap(), wanted["who"].as_str().unwrap()) {
            ("host", _) => "the machine".to_owned(),
            ("node", id) => format!("node {id}"),
            (_, name) => name.to_owned(),
        };
        assert_eq!(title, who);
        let [metric, a, b, change, ends, _, verdict] = &cells[..] else { panic!("{cells:?}") };
        assert_eq!(wanted["metric"], metric.as_str());
        match wanted["change_pct"].as_f64() {
            Some(pct) => assert!(change.starts_with(&signed(pct)), "{change}: {wanted}"),
            None => assert!(change == "was 0" || change == "now 0", "{change}: {wanted}"),
        }
        match (wanted["low_pct"].as_f64(), wanted["high_pct"].as_f64()) {
            (Some(low), Some(high)) if class != "too_short" => {
                let (begin, end) = ends.split_once(" … ").unwrap_or_else(|| panic!("{ends}: {wanted}"));
                assert!(
                    begin.starts_with(&signed(low)) && end.starts_with(&signed(high)),
                    "{ends}: {wanted}"
                );
            }
            _ => assert!(ends == "–" || ends == "?", "{ends}: {wanted}"),
        }
        assert!(verdict.contains(&class.replace('_', " ")), "{verdict}");
        let line = lines[at];
        assert!([metric, a, b].iter().all(|cell| line.contains(cell.as_str())), "{line}: {cells:?}");
    }
    assert!(verdicts.len() >= 3, "{verdicts:?}");
    for side in ["appeared", "gone"] {
        for one in object[side].as_array().unwrap() {
            let name = one["who"].as_str().unwrap();
            assert!(plain(&page).contains(name), "{side}: {name}");
        }
    }
    for (metric, why) in object["not_compared"].as_object().unwrap() {
        let cells = format!("<code>{metric}</code></td><td>");
        let found = page.split(&cells).nth(1).unwrap_or_else(|| panic!("{metric} is on the page"));
        assert!(plain(found).starts_with(why.as_str().unwrap()), "{metric}");
    }
    for warning in object["warnings"].as_array().unwrap() {
        assert!(plain(&page).contains(warning.as_str().unwrap()), "{warning}");
    }
    assert!(object["gone"].to_string().contains("sshd"));
}

#[test]
fn rows_that_are_the_same_are_one_click_away() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let folded = page(&path, &path, &[]);
    assert!(folded.contains("id=\"all-rows\">"), "not checked");
    assert!(page(&path, &path, &["--all"]).contains("id=\"all-rows\" checked>"));
    let rows = comparisons(&object(&path, &path, &[])).len();
    assert_eq!(folded.matches("class=\"same\"").count(), rows, "they are on the page");
}

#[test]
fn names_of_strangers_are_text() {
    let scratch = Scratch::new();
    let (before, after) = before_and_after(&scratch);
    let plain = elements(&page(&before, &after, &[]));
    let strange = hostile(&scratch);
    let path = scratch.join("\"><script>alert(1)<");
    std::fs::copy(&strange, &path).unwrap();
    let page = page(&strange, &path, &["--all"]);
    let (tags, attributes) = elements(&page);
    assert!(tags.is_subset(&plain.0), "{:?}", tags.difference(&plain.0));
    assert!(attributes.iter().all(|name| !name.starts_with("on")), "{attributes:?}");
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("&lt;img src=x"), "they are shown");
}

#[test]
fn a_page_loads_nothing_and_runs_one_script() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let page = page(&path, &path, &[]);
    assert!(
        page.contains(&format!("script-src '{}'", SCRIPT_HASH.trim())) && page.contains("default-src 'none'")
    );
    for address in ["http:", "https:", "url(", "@import", "<link", "<iframe", "<object", "srcset"] {
        assert!(!page.contains(address), "{address}");
    }
    assert!(page.split("href=\"").skip(1).all(|rest| rest.starts_with('#')));
}

#[test]
fn a_page_is_a_new_file() {
    let scratch = Scratch::new();
    let (path, out) = (demo(&scratch), scratch.join("out.html"));
    let write = || numatop(&["diff", text(&path), text(&path), "--format", "html", "-o", text(&out)]);
    assert!(write().status.success());
    let made = std::fs::read_to_string(&out).unwrap();
    assert!(made.starts_with("<!DOCTYPE html>") && made.ends_with("</html>"));
    let again = write();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists: name a new file"));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), made);
    std::fs::write(&out, "old").unwrap();
    let forced = ["diff", text(&path), text(&path), "--format", "html", "-o", text(&out), "--force"];
    assert!(numatop(&forced).status.success());
    assert_eq!(std::fs::read_to_string(&out).unwrap().len(), made.len());
}

#[test]
fn short_recordings_are_one_line_until_all_is_asked_for() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.join("a.nrec"), scratch.join("b.nrec"));
    record(&a, &seconds(&mut demo_machine(), 7));
    let mut other = demo_machine();
    other.actors.iter_mut().for_each(|actor| actor.ipc *= 1.5);
    record(&b, &seconds(&mut other, 9));
    let short = diff(&a, &b, &[]);
    assert!(
        short.contains("too short: A has 6 intervals, B has 8; 120 are needed (--all shows numbers)"),
        "{short}"
    );
    assert!(short.lines().count() < 12, "{short}");
    let all = diff(&a, &b, &["--all"]);
    assert!(all.contains("120 intervals are needed, but there are 6") && all.lines().count() > 40, "{all}");
}

#[test]
fn the_beginning_can_be_left_out() {
    let scratch = Scratch::new();
    let path = scratch.join("seconds.nrec");
    record(&path, &seconds(&mut demo_machine(), 61));
    let intervals = |flags: &[&str]| object(&path, &path, flags)["a"]["intervals"].clone();
    assert_eq!(intervals(&[]), 60);
    assert_eq!(intervals(&["--skip", "15s"]), 45);
    let all = numatop(&["diff", text(&path), text(&path), "--skip", "5m"]);
    assert!(!all.status.success() && String::from_utf8_lossy(&all.stderr).contains("no data"));
}

/// A machine of one program whose CPU time wanders around `pct`.
fn wandering(pct: f64, seed: u64) -> Machine {
    let actor = Actor::new(100, "worker").runs(&[(0, pct)]);
    let base = demo_machine();
    let mut machine = Machine::new(HostFacts::clone(&base.host), Names::default(), vec![actor]);
    let mut state = seed;
    machine.plan = Some(Box::new(move |machine, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 33) as f64 / (1u64 << 31) as f64;
        machine.actors[0].runs[0].1 = pct * (0.8 + 0.4 * uniform);
    }));
    machine
}

fn verdict_of<'a>(object: &'a Json, who: &str, metric: &str) -> &'a Json {
    let is_it = |row: &&Json| row["who"] == who && row["metric"] == metric;
    comparisons(object).iter().find(is_it).unwrap_or_else(|| panic!("{who} {metric}: {object}"))
}

fn wandered(scratch: &Scratch, name: &str, pct: f64, seed: u64) -> PathBuf {
    let path = scratch.join(name);
    record(&path, &seconds(&mut wandering(pct, seed), 241));
    path
}

#[test]
fn a_recording_differs_neither_from_itself_nor_by_its_halves() {
    let scratch = Scratch::new();
    let path = wandered(&scratch, "one.nrec", 50.0, 1);
    for row in comparisons(&object(&path, &path, &[])) {
        assert_eq!(row["verdict"], "same", "{row}");
    }
    // It begins at 03:04:05 and has four minutes.
    let half = |part: &str| format!("{}@{part}", text(&path));
    let (first, second) = (half("..2026-01-02 03:06:05"), half("2026-01-02 03:06:05.."));
    let halves = object(Path::new(&first), Path::new(&second), &[]);
    for row in comparisons(&halves) {
        let verdict = row["verdict"].as_str().unwrap();
        assert!(["same", "unclear", "too_short"].contains(&verdict), "{row}");
    }
}

#[test]
fn a_known_change_is_within_its_interval() {
    let scratch = Scratch::new();
    let (a, b) = (wandered(&scratch, "a.nrec", 40.0, 1), wandered(&scratch, "b.nrec", 48.0, 2));
    let found = object(&a, &b, &["--metrics", "cpu_pct"]);
    let row = verdict_of(&found, "worker", "cpu_pct");
    assert_eq!(row["verdict"], "changed", "{row}");
    assert!(row["low_pct"].as_f64().unwrap() < 20.0 && row["high_pct"].as_f64().unwrap() > 20.0, "{row}");
    assert!(row["high_pct"].as_f64().unwrap() - row["low_pct"].as_f64().unwrap() < 10.0, "{row}");
}

#[test]
fn three_recordings_a_side_are_three_draws() {
    let scratch = Scratch::new();
    let path = |name: &str, pct, seed| wandered(&scratch, name, pct, seed);
    let before = [path("a1", 40.0, 1), path("a2", 41.0, 2), path("a3", 39.0, 3)];
    let after = [path("b1", 60.0, 4), path("b2", 61.0, 5), path("b3", 59.0, 6)];
    let mut words = vec!["diff", "--format", "json", "--metrics", "cpu_pct"];
    words.extend(before.iter().flat_map(|path| ["--before", text(path)]));
    words.extend(after.iter().flat_map(|path| ["--after", text(path)]));
    let found: Json = serde_json::from_str(&stdout(&words)).unwrap();
    let row = verdict_of(&found, "worker", "cpu_pct");
    assert_eq!(row["verdict"], "changed", "{row}");
    assert_eq!((row["cliff"].is_null(), &row["tau"]), (true, &Json::from(1.0)), "{row}");
    assert!(!found["warnings"].to_string().contains("how runs differ"), "{}", found["warnings"]);
    assert_eq!(row["unit"], "percent");
    let page = stdout(&[&words[..1], &["--format", "html"], &words[3..]].concat());
    assert!(page.contains("counts each recording as one observation") && page.contains("a1 and 2 more"));
}

/// The exit code, and standard error.
fn ended(words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = numatop(words);
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn worse_is_an_exit_code() {
    let scratch = Scratch::new();
    let waits = |name: &str, pct: f64| {
        let path = scratch.join(name);
        let mut machine = wandering(50.0, 9);
        machine.actors[0].wait_pct = pct;
        record(&path, &seconds(&mut machine, 241));
        path
    };
    let (a, b) = (waits("a.nrec", 10.0), waits("b.nrec", 30.0));
    let of = |from: &Path, to: &Path, fail_on| ended(&["diff", text(from), text(to), "--fail-on", fail_on]).0;
    assert_eq!(of(&a, &b, "worse"), Some(5));
    assert_eq!(of(&a, &b, "worse=runq_wait_pct"), Some(5));
    assert_eq!(of(&b, &a, "worse"), Some(0));
    // Better or not, others are not asked for.
    assert_eq!(of(&a, &b, "worse=ipc"), Some(0));
}

#[test]
fn what_one_side_lacks_is_said_with_its_reason() {
    let scratch = Scratch::new();
    let (a, b) = (wandered(&scratch, "a.nrec", 50.0, 1), scratch.join("b.nrec"));
    let mut machine = wandering(50.0, 2);
    let mut host = HostFacts::clone(&machine.host);
    host.hostname = "another".into();
    host.missing.insert("ipc".into(), Missing::Unsupported("no counters in this guest".into()));
    machine.host = Arc::new(host);
    record(&b, &seconds(&mut machine, 241));
    let found = object(&a, &b, &[]);
    let why = found["not_compared"]["ipc"].as_str().unwrap_or_default();
    assert!(why.contains("no counters in this guest"), "{}", found["not_compared"]);
    assert!(found["warnings"].to_string().contains("different hosts"), "{}", found["warnings"]);
    let page = page(&a, &b, &[]);
    assert!(page.contains("no counters in this guest") && page.contains("different hosts"));
}
