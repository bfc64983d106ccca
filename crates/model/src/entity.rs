//! Rows that stay from one run to the next, and their names: the machine, nodes, containers, programs.

use std::fmt;

use crate::model::group::{self, Group, GroupKind};
use crate::snapshot::{Container, Snapshot, Task};

/// Kinds of rows, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    Host,
    Node,
    Container,
    Program,
}

impl By {
    pub const ALL: [By; 4] = [By::Host, By::Node, By::Container, By::Program];

    /// The word on the command line and in JSON.
    pub fn id(self) -> &'static str {
        match self {
            By::Host => "host",
            By::Node => "node",
            By::Container => "container",
            By::Program => "program",
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    pub by: By,
    /// Clean: safe to show.
    pub name: String,
}

impl Who {
    pub fn new(by: By, name: impl Into<String>) -> Who {
        Who { by, name: name.into() }
    }

    /// The program of this name, in this container if it is in one.
    pub fn program(container: Option<&str>, comm: &str) -> Who {
        Who::new(By::Program, container.map_or_else(|| comm.to_owned(), |name| format!("{name} · {comm}")))
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Host => f.write_str("the machine"),
            By::Node => write!(f, "node {}", self.name),
            By::Container | By::Program => f.write_str(&self.name),
        }
    }
}

/// Letters and digits of random names that Kubernetes makes (k8s.io/apimachinery/pkg/util/rand): without
/// vowels and characters that look alike.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
/// The length of the random end of a pod's name.
const POD_END: usize = 5;
/// Lengths of the hash of a pod template in it.
const HASH: std::ops::RangeInclusive<usize> = 6..=10;

/// A pod's name without what changes when it is made again: `cart-7d9f4c-x2x9z` is `cart`. The number of a pod of a stateful
/// set stays.
pub fn pod_prefix(pod: &str) -> &str {
    let is_random = |word: &str| word.chars().all(|letter| RANDOM.contains(letter));
    let Some((front, end)) = pod.rsplit_once('-') else { return pod };
    if end.len() != POD_END || !is_random(end) {
        return pod;
    }
    match front.rsplit_once('-') {
        Some((set, hash)) if HASH.contains(&hash.len()) && is_random(hash) => set,
        _ => front,
    }
}

/// The name of a container's row that stays from run to run; `None` where its cgroup was removed before it was read.
pub fn container_name(row: &Container, snapshot: &Snapshot) -> Option<String> {
    let group = row.group.as_ref()?;
    match group.kind {
        // Groups of one name in two places are two.
        GroupKind::Group => snapshot.names.cgroups.get(&row.id).map(|path| group::show(path)),
        _ => Some(group_name(group)),
    }
}

/// The namespace, the pod as long as its name is not random, and the name.
fn group_name(group: &Group) -> String {
    let (pod, own) = match group.kind {
        GroupKind::Pod => (None, pod_prefix(&group.name)),
        _ => (group.pod.as_deref().map(pod_prefix), group.name.as_str()),
    };
    let parts = [group.namespace.as_deref(), pod, Some(own)];
    let words: Vec<&str> = parts.into_iter().flatten().filter(|word| !word.is_empty()).collect();
    words.join("/")
}

/// The program that a task is a part of.
pub fn program(task: &Task, snapshot: &Snapshot) -> Who {
    let (container, comm) = program_of(task, snapshot);
    Who::program(container.as_deref(), &comm)
}

/// The same in its parts: the container that it is in, and its name.
pub fn program_of(task: &Task, snapshot: &Snapshot) -> (Option<String>, String) {
    let group = snapshot.names.groups.get(&task.raw.cgroup_id);
    let container = group.filter(|group| matches!(group.kind, GroupKind::Container | GroupKind::Machine));
    (container.map(|group| group_name(group)), crate::text::clean(task.raw.comm.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_made_again_has_the_same_name() {
        let pods = [
            "cart-7d9f4c-x2x9z",
            "cart-bcd24f5-qqqqq",
            "agent-x2x9z",
            "postgres-0",
            "web",
            "etl-2873122",
            "a-table",
        ];
        assert_eq!(
            pods.map(pod_prefix),
            ["cart", "cart", "agent", "postgres-0", "web", "etl-2873122", "a-table"]
        );
    }

    #[test]
    fn programs_of_one_name_in_two_containers_are_two() {
        assert_eq!(Who::program(Some("cart"), "java").to_string(), "cart · java");
        assert_eq!(Who::program(None, "java").to_string(), "java");
    }
}
