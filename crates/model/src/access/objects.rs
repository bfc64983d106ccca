//! Use of memory by the code that touched it first, added up over the window.

#![warn(missing_docs)]

use std::collections::{BTreeMap, VecDeque};

use super::touches::{ObjectId, Touches};
use super::window::WINDOW_NS;
use crate::model::access::lines::{OBJECTS_LISTED, Object};
use crate::model::access::{ByNodes, add_by_nodes};
use crate::model::process::ProcessId;
use crate::model::units::NodeId;

/// Whether a mapping is of a file or shared, as named ones are. At a page of these each process has a
/// separate fault, and another process may have placed the page.
pub(super) fn is_shared(mapping: &str) -> bool {
    mapping.starts_with('/')
}

/// Samples in the memory of one object.
#[derive(Clone, Debug, Default, PartialEq)]
struct InObject {
    by_node: ByNodes,
    next_by_node: ByNodes,
    /// Samples by name of the mapping.
    mappings: BTreeMap<String, f64>,
}

/// Samples of one process and interval by object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedObjects(BTreeMap<ObjectId, InObject>);

impl PlacedObjects {
    /// Adds samples in a page of an object, in a mapping of this name, by the nodes of page and CPU; `followed`: of the next
    /// run of their instruction.
    pub(super) fn add(
        &mut self,
        object: ObjectId,
        mapping: &str,
        nodes: (Option<NodeId>, Option<NodeId>),
        samples: f64,
        followed: bool,
    ) {
        let found = self.0.entry(object).or_default();
        let by_node = if followed { &mut found.next_by_node } else { &mut found.by_node };
        *by_node.entry(nodes).or_default() += samples;
        match found.mappings.get_mut(mapping) {
            Some(sum) => *sum += samples,
            None => drop(found.mappings.insert(mapping.to_string(), samples)),
        }
    }
}

/// Samples of the last ten seconds.
#[derive(Default)]
pub struct ObjectWindow {
    intervals: VecDeque<(u64, BTreeMap<ProcessId, PlacedObjects>)>,
}

impl ObjectWindow {
    /// Adds an interval that ended at `to_ns`, and forgets the intervals that ended ten seconds earlier.
    pub fn add(&mut self, to_ns: u64, placed: BTreeMap<ProcessId, PlacedObjects>) {
        self.intervals.push_back((to_ns, placed));
        while self.intervals.front().is_some_and(|(end_ns, _)| end_ns + WINDOW_NS <= to_ns) {
            self.intervals.pop_front();
        }
    }

    /// The most used objects of each process that has any.
    pub fn sum(&self, touches: &BTreeMap<ProcessId, Touches>) -> BTreeMap<ProcessId, Vec<Object>> {
        let mut sums: BTreeMap<ProcessId, BTreeMap<ObjectId, InObject>> = BTreeMap::new();
        for (process, placed) in self.intervals.iter().flat_map(|(_, placed)| placed) {
            let of_process = sums.entry(*process).or_default();
            for (id, found) in &placed.0 {
                let sum = of_process.entry(*id).or_default();
                add_by_nodes(&mut sum.by_node, &found.by_node);
                add_by_nodes(&mut sum.next_by_node, &found.next_by_node);
                for (name, samples) in &found.mappings {
                    *sum.mappings.entry(name.clone()).or_default() += samples;
                }
            }
        }
        let listed = |(process, sums): (ProcessId, BTreeMap<ObjectId, InObject>)| {
            let of_process = touches.get(&process)?;
            let mut objects: Vec<Object> = sums
                .into_iter()
                .filter_map(|(id, sum)| {
                    let touched = of_process.object(id)?;
                    let most = sum.mappings.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
                    Some(Object {
                        functions: touched.functions.clone(),
                        touched_on: touched.on.clone(),
                        mapping: most.map(|(name, _)| name).unwrap_or_default(),
                        by_node: sum.by_node,
                        next_by_node: sum.next_by_node,
                    })
                })
                .collect();
            let used = |object: &Object| (object.samples(), object.followed());
            objects.sort_by(|one, other| {
                let (one, other) = (used(one), used(other));
                other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
            });
            objects.truncate(OBJECTS_LISTED);
            (!objects.is_empty()).then_some((process, objects))
        };
        sums.into_iter().filter_map(listed).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::sample::Touch;
    use crate::model::stacks::{CodePlace, Function};

    const PROCESS: ProcessId = (7, 1);
    const S: u64 = 1_000_000_000;

    /// Pages 10 to 20 were touched by one function on node 0, and 30 by another.
    fn touches() -> BTreeMap<ProcessId, Touches> {
        let mut touches = Touches::default();
        for (page, function, faults) in [(10, 0x100, 1), (20, 0x100, 11), (30, 0x200, 12)] {
            let touch =
                Touch { address: page << 12, stack: vec![function], caller: None, hint_faults: 0, faults };
            touches.add(PROCESS, 8, &touch, Some(NodeId(0)), 12);
        }
        touches.settle(0, |place| {
            let CodePlace::Address(_, address) = place else { return None };
            Some(Arc::new(Function {
                name: Some(format!("f{address:x}")),
                module: "app".into(),
                kernel: false,
            }))
        });
        BTreeMap::from([(PROCESS, touches)])
    }

    fn placed(samples: &[(u64, &str, f64, bool)]) -> BTreeMap<ProcessId, PlacedObjects> {
        let touches = touches();
        let mut placed = PlacedObjects::default();
        for (page, mapping, samples, followed) in samples {
            let object = touches[&PROCESS].object_at(*page).unwrap();
            placed.add(object, mapping, (Some(NodeId(0)), Some(NodeId(1))), *samples, *followed);
        }
        BTreeMap::from([(PROCESS, placed)])
    }

    #[test]
    fn samples_of_the_window_go_to_the_object_of_their_page() {
        let mut window = ObjectWindow::default();
        window.add(S, placed(&[(30, "", 100.0, false)]));
        window.add(2 * S, placed(&[(12, "[heap]", 3.0, false), (19, "", 2.0, false), (12, "", 4.0, true)]));
        window.add(11 * S, placed(&[(30, "", 1.0, false)]));
        let found = window.sum(&touches()).remove(&PROCESS).unwrap();
        let of = |object: &Object| {
            let function = object.functions[0].to_string();
            (function, object.mapping.clone(), object.samples(), object.followed(), object.remote())
        };
        assert_eq!(of(&found[0]), ("f100".into(), String::new(), 5.0, 4.0, (5.0, 5.0)));
        assert_eq!(of(&found[1]), ("f200".into(), String::new(), 1.0, 0.0, (1.0, 1.0)));
        assert_eq!((found.len(), &found[0].touched_on), (2, &BTreeMap::from([(NodeId(0), 2)])));
        assert!(window.sum(&BTreeMap::new()).is_empty(), "the process has ended");
    }

    #[test]
    fn memory_of_files_and_shared_memory_is_told_by_its_name() {
        let shared =
            ["/usr/lib/libc.so.6", "/dev/shm/ring", "/memfd:buffers (deleted)", "/SYSV0000 (deleted)"];
        assert!(shared.into_iter().all(is_shared));
        assert!(!["", "[heap]", "[anon:jemalloc]"].into_iter().any(is_shared));
    }
}
