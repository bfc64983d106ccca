//! The place that answered an access, as reported by a PMU.

#![warn(missing_docs)]

use crate::model::coded::varint::Malformed;
use crate::model::coded::{Coded, In, Out};

/// The place that answered an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessClass {
    /// The sampled instruction accessed no memory.
    NoAccess,
    /// A device.
    Device,
    /// A cache of the own node; `modified`: the line was dirty there.
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

/// Its number among all; a later version may know more of them.
impl Coded for AccessClass {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number(AccessClass::ALL.iter().position(|one| one == self).unwrap_or(0) as u64);
    }

    fn get(input: &mut In<'_, '_>) -> Result<AccessClass, Malformed> {
        let class = AccessClass::ALL.get(input.count(u32::MAX as usize)?);
        Ok(class.copied().unwrap_or(AccessClass::Unknown))
    }
}

impl AccessClass {
    /// All of them; recordings number them by their place here.
    pub const ALL: [AccessClass; 13] = [
        AccessClass::NoAccess,
        AccessClass::Device,
        AccessClass::LocalCache { modified: false },
        AccessClass::LocalCache { modified: true },
        AccessClass::RemoteCache { modified: false },
        AccessClass::RemoteCache { modified: true },
        AccessClass::Dram { remote: false },
        AccessClass::Dram { remote: true },
        AccessClass::Cxl { remote: false },
        AccessClass::Cxl { remote: true },
        AccessClass::Remote,
        AccessClass::LevelUnknown,
        AccessClass::Unknown,
    ];

    /// Its name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            AccessClass::NoAccess => "no_access",
            AccessClass::Device => "device",
            AccessClass::LocalCache { modified: false } => "local_cache",
            AccessClass::LocalCache { modified: true } => "local_cache_modified",
            AccessClass::RemoteCache { modified: false } => "remote_cache",
            AccessClass::RemoteCache { modified: true } => "remote_cache_modified",
            AccessClass::Dram { remote: false } => "local_dram",
            AccessClass::Dram { remote: true } => "remote_dram",
            AccessClass::Cxl { remote: false } => "local_cxl",
            AccessClass::Cxl { remote: true } => "remote_cxl",
            AccessClass::Remote => "remote",
            AccessClass::LevelUnknown => "level_unknown",
            AccessClass::Unknown => "unknown",
        }
    }

    /// Memory, not a cache: whether it is that of another node. `None` for all else.
    pub fn memory_is_remote(self) -> Option<bool> {
        match self {
            AccessClass::Dram { remote } | AccessClass::Cxl { remote } => Some(remote),
            _ => None,
        }
    }
}
