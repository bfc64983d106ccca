//! The short form of JSON says what the full one says.

use crate::json_reader::{Reader, assert_same, in_full};
use crate::pages::stdout;

/// Compares both forms of the output of a command.
fn compare(words: &[&str]) -> (usize, usize) {
    let short = stdout(&[words, &["--format", "json"]].concat());
    let full = stdout(&[words, &["--format", "json", "--json-full"]].concat());
    assert_eq!(short.lines().count(), full.lines().count(), "{words:?}");
    let mut reader = Reader::default();
    for (at, (short, full)) in short.lines().zip(full.lines()).enumerate() {
        let whole = in_full(reader.read(serde_json::from_str(short).unwrap()));
        let full: serde_json::Value = serde_json::from_str(full).unwrap();
        assert_same(&whole, &full, &format!("{words:?} {at}"));
        let rows = |table: &str| full[table].as_array().map_or(0, Vec::len);
        for table in ["tasks", "nodes", "containers"] {
            for at in 0..rows(table) {
                for key in full[table][at].as_object().unwrap().keys() {
                    assert!(whole[table][at].get(key).is_some(), "{table} has no {key}");
                }
            }
        }
    }
    (short.len(), full.len())
}

#[test]
fn the_demo_is_the_same_in_both_forms() {
    // Findings come and go in these minutes, and compilers begin and end.
    compare(&["--demo", "-b", "-n", "150"]);
    compare(&["--demo", "-b", "-n", "30", "-d", "20"]);
    compare(&["--demo", "-b", "-n", "20", "-H"]);
    compare(&["--demo", "-b", "-n", "20", "--hot"]);
    compare(&["--demo", "-b", "-n", "30", "--top", "3", "--sort", "runq_wait_pct"]);
    compare(&["--demo", "-b", "-n", "5", "--columns", "ipc,rss_bytes"]);
    compare(&["--demo", "-b", "-n", "5", "-H", "--columns", "ipc,rss_bytes", "--comm", "train"]);
    compare(&["--demo", "-b", "-n", "5", "--comm", "no such task"]);
}

#[test]
fn recordings_are_the_same_in_both_forms() {
    for recording in ["plain", "containers", "hot", "top", "demo"] {
        let file = format!("{}/tests/fixtures/recordings/{recording}.nrec", env!("CARGO_MANIFEST_DIR"));
        for flags in [&[][..], &["-H"]] {
            compare(&[&["replay", &file, "-b"], flags].concat());
            compare(&[&["export", &file], flags].concat());
        }
    }
}

#[test]
fn an_interval_of_the_demo_is_a_quarter_of_the_full_one() {
    let lines = stdout(&["--demo", "-b", "-n", "20", "--format", "json"]);
    for line in lines.lines().skip(1) {
        assert!(line.len() < 34_500, "{}", line.len());
    }
    let (short, full) = compare(&["--demo", "-b", "-n", "20"]);
    assert!(4 * short < 7 * full / 5, "{short} and {full}");
}
