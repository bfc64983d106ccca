//! Moves of tasks from one last-level cache or socket to another, by the place that they left or came to.

use crate::model::coded::coded;

/// Dispatches of tasks on a place that last ran elsewhere, and on other places of tasks that last ran here, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceMoves {
    /// From another last-level cache.
    pub llc_in: u64,
    /// To another last-level cache.
    pub llc_out: u64,
    /// From another socket.
    pub socket_in: u64,
    /// To another socket.
    pub socket_out: u64,
}

coded!(PlaceMoves { llc_in, llc_out, socket_in, socket_out });
