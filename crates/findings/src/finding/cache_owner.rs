//! The cgroups whose page cache fills a node.

use super::command::line;
use super::env::{Env, env};
use super::text::name;
use super::view::View;
use super::{Command, Scope, When};
use crate::model::group::DEPTH_MAX;
use crate::model::sample::{CgroupMode, GroupReclaim, NodeRaw};
use crate::model::units::NodeId;
use crate::snapshot::Container;

/// A group is the owner where it has so large a part of its parent's page cache.
const OF_PARENT: f64 = 0.8;

/// One owner is named where it has so large a part of the node's page cache; else the first three are.
const OF_NODE: f64 = 0.5;

/// Maximum part of a group's page cache that a command asks for: for all of it the kernel reports EAGAIN.
const RECLAIMED_MOST: f64 = 0.9;

/// A group with page cache on the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) row: &'a Container,
    /// Its page cache on the node, bytes.
    pub(super) bytes: f64,
    /// The same on all nodes.
    pub(super) all_bytes: f64,
}

/// Owners of a node's page cache, the largest first, and what no group with tasks is charged for, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners<'a> {
    pub(super) groups: Vec<Owner<'a>>,
    pub(super) unowned_bytes: f64,
    /// The node's page cache, bytes.
    pub(super) all_bytes: f64,
}

impl<'a> Owners<'a> {
    /// Owners on this node; `None` where its page cache or that of no group is known.
    pub(super) fn of(view: &View<'a>, node: &NodeRaw) -> Option<Owners<'a>> {
        let all_bytes = lists(node)?;
        let rows = &view.snapshot.containers;
        // The root has all.
        let is_root =
            |row: &Container| view.snapshot.names.cgroups.get(&row.id).is_some_and(|path| path == "/");
        let owner = |row: &'a Container| -> Option<Owner<'a>> {
            let by_node = row.raw.as_ref()?.cache_by_node.as_ref().ok().filter(|_| !is_root(row))?;
            let bytes = by_node.get(&node.id).copied().unwrap_or(0) as f64;
            Some(Owner { row, bytes, all_bytes: by_node.values().map(|bytes| *bytes as f64).sum() })
        };
        // Groups in between may have no reading.
        let above =
            |row: &'a Container| row.and_above(rows).skip(1).find_map(owner).map(|owner| owner.row.id);
        let all: Vec<(Option<u64>, Owner<'_>)> =
            rows.iter().filter_map(|row| Some((above(row), owner(row)?))).collect();
        let tops: Vec<Owner<'_>> =
            all.iter().filter(|(above, _)| above.is_none()).map(|(_, owner)| *owner).collect();
        if tops.is_empty() {
            return None;
        }
        let owned: f64 = tops.iter().map(|top| top.bytes).sum();
        let below = |parent: &Owner<'a>| {
            let children =
                all.iter().filter(|(above, _)| *above == Some(parent.row.id)).map(|(_, owner)| *owner);
            let most = children.max_by(|a, b| a.bytes.total_cmp(&b.bytes));
            most.filter(|child| child.bytes >= parent.bytes * OF_PARENT && child.bytes > 0.0)
        };
        let deepest =
            |top: Owner<'a>| std::iter::successors(Some(top), below).take(DEPTH_MAX).last().unwrap_or(top);
        let mut groups: Vec<Owner<'_>> =
            tops.into_iter().filter(|top| top.bytes > 0.0).map(deepest).collect();
        groups.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then(a.row.id.cmp(&b.row.id)));
        Some(Owners { groups, unowned_bytes: (all_bytes - owned).max(0.0), all_bytes })
    }

    /// The group with at least half of the node's page cache.
    pub(super) fn main(&self) -> Option<Owner<'a>> {
        self.groups.first().filter(|first| first.bytes >= self.all_bytes * OF_NODE).copied()
    }

    /// ` (86 % mysql.service)`: the main owner, for the middle of a sentence. Without one, the first two and
    /// the part that no group with tasks is charged for.
    pub(super) fn words(&self) -> String {
        let named =
            |bytes: f64, name: &str| format!("{:.0} % {name}", 100.0 * bytes / self.all_bytes.max(1.0));
        let some = if self.main().is_some() { 1 } else { 2 };
        let owners = self.groups.iter().take(some);
        let mut parts: Vec<String> = owners.map(|owner| named(owner.bytes, &label(owner.row))).collect();
        if self.unowned_bytes >= self.all_bytes * OF_NODE {
            parts.push(named(self.unowned_bytes, "not charged to a group with tasks"));
        }
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }
}

/// The lists of a node's page cache, bytes: without shared memory.
fn lists(node: &NodeRaw) -> Option<f64> {
    let pages = node.file_pages?;
    let bytes = pages.active_bytes as f64 + pages.inactive_bytes as f64;
    (bytes > 0.0).then_some(bytes)
}

/// The group's name for a sentence.
fn label(row: &Container) -> String {
    row.group.as_ref().map_or_else(|| format!("cgroup {}", row.id), |group| name(&group.name))
}

/// Frees `mib` on a node by reclaiming page cache of its main owner; `None` without `memory.reclaim`. A group loses cache on all
/// nodes in proportion, so the command asks for more by the inverse of the share on this node.
pub(super) fn reclaim(view: &View<'_>, owner: Owner<'_>, node: NodeId, mib: u64) -> Option<Command> {
    let host = &view.snapshot.host;
    let is_v2 = host.cgroups.is_some_and(|cgroups| cgroups.mode == CgroupMode::V2);
    let takes = host.group_reclaim.filter(|takes| *takes != GroupReclaim::Absent && is_v2)?;
    let path = view.snapshot.names.cgroups.get(&owner.row.id)?;
    let share = owner.bytes / owner.all_bytes.max(1.0);
    let all_mib = (RECLAIMED_MOST * owner.all_bytes / (1u64 << 20) as f64) as u64;
    let mib = ((mib as f64 / share.max(0.01)).ceil() as u64).min(all_mib);
    let elsewhere = (mib as f64 * (1.0 - share)).round();
    let mut words = format!("drops page cache of {} only", label(owner.row));
    if elsewhere >= 1.0 {
        words += &format!("; includes {elsewhere:.0} MiB on nodes other than {node}");
    }
    let line = match takes {
        GroupReclaim::Swappiness => line("echo").amount_of_cache(mib),
        _ => {
            words += "; can also swap anonymous memory of the group";
            line("echo").amount(mib)
        }
    };
    Some(Command::new(When::Now, Scope::Container, line.into_file_of(path, "memory.reclaim"), words))
}

/// The limit that keeps the owner's page cache from filling the node again, for good.
pub(super) fn limit(view: &View<'_>, owner: Owner<'_>, bytes: f64) -> Command {
    let path = view.snapshot.names.cgroups.get(&owner.row.id);
    let charged =
        owner.row.raw.as_ref().and_then(|raw| raw.mem_bytes.as_ref().ok()).map_or(0.0, |all| *all as f64);
    let mib = ((charged - bytes).max(0.0) / (1u64 << 20) as f64) as u64;
    let words = "page cache above the limit is reclaimed first; direct I/O does not fill the cache";
    match env(owner.row.group.as_deref(), path.map(String::as_str)) {
        Env::Unit(unit) if mib > 0 => {
            let line = line("systemctl set-property").name(&unit).property("MemoryHigh", mib);
            Command::new(When::ForGood, Scope::Container, line, words)
        }
        _ => Command::words(
            When::ForGood,
            Scope::Container,
            format!("set a soft limit (memory.high) for {}: {words}", label(owner.row)),
        ),
    }
}
