//! Flags of `export` for tables.

use clap::{Args, ValueEnum};

use super::parse;
use crate::tables::Table;

/// The heading of flags that only `export` has.
pub(super) const TABLES: &str = "Parquet";

/// Tables, and the files that they are in.
#[derive(Args, Debug)]
#[command(next_help_heading = TABLES)]
pub struct TableArgs {
    /// hive, if not given: OUT/TABLE/date=DAY/host=NAME/, which query engines read as columns. flat: OUT/TABLE.parquet, of one
    /// host.
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub layout: Option<LayoutArg>,

    /// Time span of one file, in UTC; an hour if not given.
    #[arg(long, value_enum, value_name = "TIME")]
    pub per: Option<PerArg>,

    /// Tables to write, all if not given: tasks, task_nodes, containers, container_nodes, nodes, sockets, llcs, events, matrix, host, lost, findings, hot.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse::tables(), hide_possible_values = true)]
    pub tables: Vec<Table>,

    /// Also write rows of idle tasks.
    #[arg(long)]
    pub all: bool,
}

/// Names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    // Folders by table, day and host. Documents of values would make help long.
    Hive,
    // One file by table.
    Flat,
}

/// Time of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PerArg {
    Hour,
    Day,
}
