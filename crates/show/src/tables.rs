//! Recordings as tables for query engines: the rows of an interval, with typed columns. Pure.
//!
//! All amounts are sums of the interval and none is a percentage: a quotient of two sums is right over any
//! time and any set of hosts. A missing value could not be measured, and 0 was measured. Columns may be
//! added, never renamed or removed.

#![warn(missing_docs)]

pub mod cells;
mod column;
mod containers;
mod fold;
mod host;
mod hot;
mod interval;
mod nodes;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod place;
mod tasks;

pub use column::{Column, ColumnKind, Get, Stamp};
pub use fold::{Fold, Groups};
pub use interval::{Gap, Interval, Losses};

use cells::RowGroup;

/// Version of the columns.
pub const SCHEMA: u32 = 1;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// A process, or a thread, that ran, waited or ended in the interval.
    Tasks,
    /// The same on a node.
    TaskNodes,
    /// A row of the containers view, with all below it.
    Containers,
    /// The same on a node.
    ContainerNodes,
    /// A NUMA node.
    Nodes,
    /// A socket, where sockets are not the nodes.
    Sockets,
    /// An L3 domain, where these are not the nodes.
    Llcs,
    /// An event that was asked for by name, of a task that ran.
    Events,
    /// A pair of nodes.
    Matrix,
    /// A recording, or its part in one file.
    Host,
    /// A cause of losses, or a gap.
    Lost,
    /// An episode of a finding.
    Findings,
    /// A stack of a process.
    Hot,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 13] = [
        Table::Tasks,
        Table::TaskNodes,
        Table::Containers,
        Table::ContainerNodes,
        Table::Nodes,
        Table::Sockets,
        Table::Llcs,
        Table::Events,
        Table::Matrix,
        Table::Host,
        Table::Lost,
        Table::Findings,
        Table::Hot,
    ];

    /// The name, which is that of its folder or file.
    pub fn name(self) -> &'static str {
        match self {
            Table::Tasks => "tasks",
            Table::TaskNodes => "task_nodes",
            Table::Containers => "containers",
            Table::ContainerNodes => "container_nodes",
            Table::Nodes => "nodes",
            Table::Sockets => "sockets",
            Table::Llcs => "llcs",
            Table::Events => "events",
            Table::Matrix => "matrix",
            Table::Host => "host",
            Table::Lost => "lost",
            Table::Findings => "findings",
            Table::Hot => "hot",
        }
    }

    /// The table with this name.
    pub fn named(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Names and kinds of its columns, in their order.
    pub fn columns(self) -> Vec<(&'static str, ColumnKind)> {
        fn all<R>(columns: &[Column<R>]) -> Vec<(&'static str, ColumnKind)> {
            let own = columns.iter().map(|column| (column.name, column.get.kind()));
            column::STAMP.iter().map(|column| (column.name, column.get.kind())).chain(own).collect()
        }
        match self {
            Table::Tasks => all(&tasks::TASKS),
            Table::TaskNodes => all(tasks::TASK_NODES),
            Table::Containers => all(&containers::CONTAINERS),
            Table::ContainerNodes => all(containers::CONTAINER_NODES),
            Table::Nodes => all(&nodes::NODES),
            Table::Sockets => all(nodes::SOCKETS),
            Table::Llcs => all(nodes::LLCS),
            Table::Events => all(tasks::EVENTS),
            Table::Matrix => all(nodes::MATRIX),
            Table::Host => all(host::HOST),
            Table::Lost => all(host::LOST),
            Table::Findings => all(host::FINDINGS),
            Table::Hot => all(hot::HOT),
        }
    }

    /// An empty group of its rows.
    fn rows(self) -> RowGroup {
        RowGroup::new(self.columns().into_iter().map(|(_, kind)| kind))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tables_and_their_columns_have_names_of_their_own() {
        for table in Table::ALL {
            assert_eq!(Table::named(table.name()), Some(table));
            let columns = table.columns();
            let names: BTreeSet<&str> = columns.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), columns.len(), "{}", table.name());
            // Names that need no quotes in any dialect of SQL.
            let is_plain = |name: &&&str| name.bytes().all(|c| c == b'_' || c.is_ascii_lowercase());
            assert_eq!(names.iter().filter(is_plain).count(), names.len(), "{names:?}");
        }
    }
}
