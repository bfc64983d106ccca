//! Wanted tasks: conditions that the kernel programs check, and those checked in user space.

use std::collections::BTreeSet;

use crate::model::wire::{ScopeKey, ScopeKind, Scoped};

/// Ids that the kernel programs compare. Kinds are and-ed; ids of one kind or-ed; an empty kind wants all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Process ids (thread groups).
    pub pids: BTreeSet<u32>,
    pub tids: BTreeSet<u32>,
    pub uids: BTreeSet<u32>,
    /// Processes whose trees are wanted: they, their descendants at the start, and all later descendants.
    /// Fixed for the life of the programs.
    pub trees: BTreeSet<u32>,
    /// Cgroup ids (inode numbers); descendants are included.
    pub cgroups: BTreeSet<u64>,
    /// Cgroup ids whose tasks, and those below, are not wanted.
    pub outside: BTreeSet<u64>,
    /// Only tasks of `cgroups` are wanted, also while the list is empty: the cgroup may still appear.
    pub by_cgroup: bool,
}

impl Scope {
    /// True when every task is wanted.
    pub fn is_everything(&self) -> bool {
        self.kinds() == 0
    }

    /// The scope in the terms of the program at the context switch.
    pub fn at_switches(&self) -> Scoped {
        const CGROUPS: u32 = 1 << ScopeKind::Cgroup as u32 | 1 << ScopeKind::Outside as u32;
        match self.kinds() {
            0 => Scoped::Not,
            kinds if kinds & !CGROUPS == 0 => Scoped::ByCgroup,
            _ => Scoped::Scoped,
        }
    }

    /// Bit k is set when kind k restricts the scope.
    pub fn kinds(&self) -> u32 {
        let waiting = if self.by_cgroup { 1 << ScopeKind::Cgroup as u32 } else { 0 };
        self.keys().iter().fold(waiting, |bits, key| bits | 1 << key.kind)
    }

    /// The keys of the kernel's set of wanted ids.
    pub fn keys(&self) -> Vec<ScopeKey> {
        let key = |kind: ScopeKind, id: u64| ScopeKey { kind: kind as u32, pad: 0, id };
        let mut keys = Vec::new();
        keys.extend(self.pids.iter().map(|id| key(ScopeKind::Pid, u64::from(*id))));
        keys.extend(self.tids.iter().map(|id| key(ScopeKind::Tid, u64::from(*id))));
        keys.extend(self.uids.iter().map(|id| key(ScopeKind::Uid, u64::from(*id))));
        keys.extend(self.trees.iter().map(|id| key(ScopeKind::Tree, u64::from(*id))));
        keys.extend(self.cgroups.iter().map(|id| key(ScopeKind::Cgroup, *id)));
        keys.extend(self.outside.iter().map(|id| key(ScopeKind::Outside, *id)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_scope_is_everything() {
        assert!(Scope::default().is_everything());
        assert_eq!(Scope::default().kinds(), 0);
    }

    #[test]
    fn a_scope_that_waits_for_its_cgroup_wants_nothing_yet() {
        let scope = Scope { by_cgroup: true, ..Scope::default() };
        assert!(!scope.is_everything() && scope.keys().is_empty());
    }

    #[test]
    fn only_cgroups_decide_when_nothing_else_does() {
        let by_cgroup = Scope { outside: [7].into(), ..Scope::default() };
        assert_eq!(Scope::default().at_switches(), Scoped::Not);
        assert_eq!(by_cgroup.at_switches(), Scoped::ByCgroup);
        assert_eq!(Scope { uids: [0].into(), ..by_cgroup }.at_switches(), Scoped::Scoped);
    }

    #[test]
    fn a_tree_decides_more_than_cgroups_do() {
        let scope = Scope { trees: [7, 9].into(), outside: [1].into(), ..Scope::default() };
        assert_eq!(scope.kinds(), 1 << ScopeKind::Tree as u32 | 1 << ScopeKind::Outside as u32);
        assert_eq!((scope.keys().len(), scope.at_switches()), (3, Scoped::Scoped));
    }

    #[test]
    fn each_kind_sets_its_bit() {
        let scope = Scope { pids: [1, 2].into(), uids: [0].into(), ..Scope::default() };
        assert_eq!(scope.kinds(), 1 << ScopeKind::Pid as u32 | 1 << ScopeKind::Uid as u32);
        assert_eq!(scope.keys().len(), 3);
    }
}
