//! `export --format parquet`: the columns, their values beside those of JSON, and the files.

mod files;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value as Json;

use numatop_ng::tables::{Table, parquet as format};

use crate::program;
use crate::scratch;
use scratch::Scratch;

/// A row by the names of its columns.
type Row = BTreeMap<String, Field>;

fn numatop(words: &[&str]) -> Output {
    Command::new(program::beside_tests()).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it and returns its messages.
fn export(from: &Path, out: &Path, flags: &[&str]) -> String {
    let words =
        ["export", from.to_str().unwrap(), "--format", "parquet", "-o", &format!("{}/", out.display())];
    let output = numatop(&[&words, flags].concat());
    let message = text(&output.stderr);
    assert!(output.status.success() && output.stdout.is_empty(), "{flags:?}: {message}");
    message
}

/// The lines of `export --json-full`.
fn json(from: &Path, flags: &[&str]) -> Vec<Json> {
    let output =
        numatop(&[&["export", from.to_str().unwrap(), "--format", "json", "--json-full"], flags].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings").join(name)
}

/// A recording of the made-up machine with four nodes: `intervals` intervals of `seconds` seconds.
fn demo(scratch: &Scratch, intervals: &str, seconds: &str) -> PathBuf {
    let path = scratch.join("demo.nrec");
    let words = [
        "--demo", "-b", "-n", intervals, "-d", seconds, "--hot", "--format", "csv", "--top", "1", "--record",
    ];
    let output = numatop(&[&words[..], &[path.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    path
}

/// All files below a folder, by name.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn reader(path: &Path) -> SerializedFileReader<fs::File> {
    SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap()
}

/// The rows of a table in all files of `out`, in the order of the names of files.
fn rows(out: &Path, table: Table) -> Vec<Row> {
    let below = match out.join(format!("{}.parquet", table.name())) {
        flat if flat.exists() => vec![flat],
        _ => files_below(&out.join(table.name())),
    };
    let mut rows = Vec::new();
    for path in below {
        for row in reader(&path).get_row_iter(None).unwrap() {
            rows.push(row.unwrap().into_columns().into_iter().collect());
        }
    }
    rows
}

/// The number in a column; `None` where it could not be measured.
fn int(row: &Row, column: &str) -> Option<i64> {
    match row.get(column).unwrap_or_else(|| panic!("no column {column}")) {
        Field::Long(value) | Field::TimestampMicros(value) => Some(*value),
        Field::Null => None,
        other => panic!("{column}: {other:?}"),
    }
}

fn word(row: &Row, column: &str) -> Option<String> {
    match row.get(column).unwrap_or_else(|| panic!("no column {column}")) {
        Field::Str(value) => Some(value.clone()),
        Field::Null => None,
        other => panic!("{column}: {other:?}"),
    }
}

/// The sum of a column, in which what could not be measured is nothing.
fn sum(rows: &[Row], column: &str) -> i64 {
    rows.iter().filter_map(|row| int(row, column)).sum()
}

#[test]
fn columns_are_those_that_others_rely_on() {
    // Columns may be added, never renamed or removed: `SCHEMA` would be another one.
    let schemas: Vec<String> = Table::ALL.map(|table| format::schema(table).replace("; ", ";\n  ")).to_vec();
    insta::assert_snapshot!(schemas.join("\n"));
}

#[test]
fn files_have_these_columns_and_facts_and_no_date() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    export(&fixture("demo.nrec"), &out, &["--layout", "flat"]);
    for table in Table::ALL {
        let reader = reader(&out.join(format!("{}.parquet", table.name())));
        let metadata = reader.metadata().file_metadata();
        let names: Vec<&str> =
            metadata.schema_descr().root_schema().get_fields().iter().map(|field| field.name()).collect();
        let expected: Vec<&str> = table.columns().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected);
        assert_eq!(names[..4], ["time", "interval_ns", "hostname", "boot_id"]);
        let facts = metadata.key_value_metadata().unwrap().iter();
        let facts: BTreeMap<&str, &str> =
            facts.map(|fact| (fact.key.as_str(), fact.value.as_deref().unwrap())).collect();
        assert_eq!(facts["numatop.schema"], "1");
        assert_eq!(facts["numatop.boot_id"], "00000000-0000-0000-0000-000000000de0");
        assert_eq!(facts["numatop.rows"], "processes");
        for fact in ["hostname", "kernel", "cpu_model", "version"] {
            assert!(!facts[format!("numatop.{fact}").as_str()].is_empty(), "{fact}");
        }
        assert_eq!(metadata.created_by(), Some(concat!("numatop-ng ", env!("CARGO_PKG_VERSION"))));
    }
}
