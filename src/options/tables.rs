//! Choices of tables and their files, from the flags of `export`.

use std::path::{Path, PathBuf};

use super::{BadValue, bad};
use crate::cli::{ExportArgs, LayoutArg, PerArg};
use crate::record::dir::is_ring;
use crate::tables::Table;

/// Tables, and the place of their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Each once, in the order of [`Table::ALL`].
    pub tables: Vec<Table>,
    /// The directory of all files.
    pub out: PathBuf,
    pub layout: Layout,
    /// Rows of tasks that rested, too.
    pub all: bool,
    /// Rows of threads.
    pub threads: bool,
}

/// Names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Folders by table, day and host; a file covers this many ns, which divide a day.
    Hive { period_ns: i64 },
    /// One file by table.
    Flat,
}

const HOUR_NS: i64 = 3600 * 1_000_000_000;

/// The choices for Parquet files.
///
/// # Errors
/// No directory is given, or a flag is of other formats or of the other layout.
pub fn tables(args: &ExportArgs) -> Result<Tables, BadValue> {
    let display = &args.display;
    for (flag, is_typed) in [
        ("--by-container", display.by_container),
        ("--by-llc", display.by_llc),
        ("--by-socket", display.by_socket),
        ("--columns", !display.columns.is_empty()),
        ("--sort", display.sort.is_some()),
        ("--top", display.top.is_some()),
        ("--comm", display.comm.is_some()),
        ("--node", display.node.is_some()),
    ] {
        if is_typed {
            return Err(bad(
                flag,
                "Parquet files have all columns and rows of their tables: choose them in the query",
            ));
        }
    }
    let layout = match (args.tables.layout, args.tables.per) {
        (Some(LayoutArg::Flat), Some(_)) => {
            return Err(bad("--per", "--layout flat writes one file for the whole time"));
        }
        (Some(LayoutArg::Flat), None) => Layout::Flat,
        (_, Some(PerArg::Day)) => Layout::Hive { period_ns: 24 * HOUR_NS },
        _ => Layout::Hive { period_ns: HOUR_NS },
    };
    if layout != Layout::Flat && (args.from.is_some() || args.to.is_some()) {
        return Err(bad(
            "--from, --to",
            "they are for --layout flat: otherwise an existing file covers its whole time",
        ));
    }
    let chosen = &args.tables.tables;
    let is_chosen = |table: &Table| chosen.is_empty() || chosen.contains(table);
    Ok(Tables {
        tables: Table::ALL.into_iter().filter(is_chosen).collect(),
        out: directory(args.output.as_deref())?,
        layout,
        all: args.tables.all,
        threads: display.threads,
    })
}

/// The directory of `-o`, which is one, or is to become one.
fn directory(path: Option<&Path>) -> Result<PathBuf, BadValue> {
    let tables = "Parquet is several files, one for each table and time: name a directory, as in -o fleet/";
    match path {
        Some(path) if is_ring(path) => Ok(path.to_owned()),
        Some(path) => Err(bad(
            "-o",
            format!("{} is not a directory. {tables}", crate::text::clean_str(&path.to_string_lossy())),
        )),
        None => Err(bad("-o", tables)),
    }
}

/// Refuses flags of Parquet files for other formats.
///
/// # Errors
/// The first of these flags.
pub fn check_no_tables(args: &ExportArgs) -> Result<(), BadValue> {
    let typed = [
        ("--layout", args.tables.layout.is_some()),
        ("--per", args.tables.per.is_some()),
        ("--tables", !args.tables.tables.is_empty()),
        ("--all", args.tables.all),
    ];
    match typed.into_iter().find(|(_, is_typed)| *is_typed) {
        Some((flag, _)) => Err(bad(flag, "works only with --format parquet")),
        None => Ok(()),
    }
}

/// The refusal of Parquet files by a build that cannot make them.
pub fn no_parquet() -> BadValue {
    bad(
        "--format",
        "this numatop-ng is built without Parquet: release packages have it, as has cargo install --features parquet",
    )
}

/// The refusal of recordings of several hosts in one file of a table.
pub fn several_hosts_in_a_file(names: &[String]) -> BadValue {
    bad(
        "--layout",
        format!(
            "it has recordings of {} hosts ({}), but a flat file holds one: leave flat out, or name the files of \
             one host",
            names.len(),
            names.join(", ")
        ),
    )
}
