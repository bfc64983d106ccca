//! The place that answered an access, as a PMU says it.

#![warn(missing_docs)]

/// The place that answered an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessClass {
    /// The sampled instruction accessed no memory.
    NoAccess,
    /// A device.
    Device,
    /// A cache of the own node; `modified` says that the line was dirty there.
    LocalCache {
        /// The line was dirty in that cache.
        modified: bool,
    },
    /// A cache of another node.
    RemoteCache {
        /// The line was dirty in that cache.
        modified: bool,
    },
    /// DRAM or persistent memory.
    Dram {
        /// It is that of another node.
        remote: bool,
    },
    /// Memory behind CXL.
    Cxl {
        /// It is that of another node.
        remote: bool,
    },
    /// Another node, cache or memory.
    Remote,
    /// A cache was missed; the place beyond is not known.
    LevelUnknown,
    /// Nothing is known.
    Unknown,
}

impl AccessClass {
    /// Memory, not a cache: whether it is that of another node. `None` for all else.
    pub fn memory_is_remote(self) -> Option<bool> {
        match self {
            AccessClass::Dram { remote } | AccessClass::Cxl { remote } => Some(remote),
            _ => None,
        }
    }
}
