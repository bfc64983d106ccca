//! Nodes of objects of shared memory: which are asked for with the next look, and the answers.
//!
//! A process that maps an object has some of its pages in its page tables. The kernel has all of them in the page cache, where
//! the iterator over mappings (`policies.bpf.c`) finds them through any process that maps the object.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draw::{Random, Ranges, Round, count};
use super::policies::OLD_NS;
use crate::model::memory::{ObjectId, ObjectNodes};
use crate::model::sample::SharedObject;

/// Objects asked for in a turn at most (`NT_DRAWS_MAX`).
pub const WANTED_MAX: usize = 8;
/// The interval between two questions about an object, ns.
const REST_NS: u64 = 30_000_000_000;
/// Turns without an answer after which an object rests, too.
const TRIES_MAX: u32 = 3;
/// Larger sizes of an object are no sizes, bytes.
const BYTES_MAX: u64 = 1 << 52;

/// Pages of an object whose nodes are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub object: ObjectId,
    pub round: Round,
}

/// The answer for a page: in memory or not, and if so, whether its policy names that node.
pub type Drawn = Option<(u32, bool)>;

/// When an object was asked for last.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    at_ns: u64,
    /// Turns without an answer since the last one.
    tries: u32,
}

impl Asked {
    /// Whether the question is repeated at once.
    fn has_no_answer(&self) -> bool {
        (1..TRIES_MAX).contains(&self.tries)
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.has_no_answer() || now_ns.saturating_sub(self.at_ns) >= REST_NS
    }
}

/// The known nodes of objects, and the order of questions.
pub struct Draws {
    known: Arc<BTreeMap<ObjectId, Arc<ObjectNodes>>>,
    asked: BTreeMap<ObjectId, Asked>,
    wanted: Vec<Wanted>,
    random: Random,
    /// The kernel does not tell them.
    is_off: bool,
}

impl Draws {
    /// `seed` makes draws differ from run to run.
    pub fn new(seed: u64) -> Draws {
        Draws {
            known: Arc::default(),
            asked: BTreeMap::new(),
            wanted: Vec::new(),
            random: Random(seed),
            is_off: false,
        }
    }

    /// Whether a process is to be looked at for the sake of this object alone.
    pub fn is_urgent(&self, object: &SharedObject) -> bool {
        !self.is_off && has_size(object) && self.asked.get(&object.id()).is_none_or(Asked::has_no_answer)
    }

    /// Chooses among the objects of the processes that are looked at in a turn, and draws pages of each.
    pub fn begin<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a SharedObject>,
        page_size: u64,
        now_ns: u64,
    ) {
        self.give_up();
        if self.is_off {
            return;
        }
        let is_due = |object: &&SharedObject| {
            let asked = self.asked.get(&object.id());
            has_size(object) && asked.is_none_or(|asked| asked.is_due(now_ns))
        };
        let due: BTreeMap<ObjectId, &SharedObject> =
            objects.filter(is_due).map(|object| (object.id(), object)).collect();
        let mut due: Vec<&SharedObject> = due.into_values().collect();
        due.sort_by_key(|object| std::cmp::Reverse(object.resident_bytes));
        for object in due.into_iter().take(WANTED_MAX) {
            let mut ranges = Ranges::default();
            ranges.push(0, object.bytes.div_ceil(page_size));
            let asked = self.asked.entry(object.id()).or_default();
            *asked = Asked { at_ns: now_ns, tries: asked.tries.saturating_add(1) };
            self.wanted.push(Wanted { object: object.id(), round: Round::new(&ranges, &mut self.random) });
        }
    }

    /// The questions of this turn.
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// Takes the answers to these questions. An object without an answer has `None`; all are `None` where the
    /// kernel does not report nodes.
    pub fn end(&mut self, drawn: Option<Vec<Option<Vec<Drawn>>>>, now_ns: u64) {
        let wanted = std::mem::take(&mut self.wanted);
        let Some(drawn) = drawn else {
            self.is_off |= !wanted.is_empty();
            return;
        };
        for (Wanted { object, round }, pages) in wanted.into_iter().zip(drawn) {
            let Some(pages) = pages else { continue };
            let nodes: Vec<i32> = pages.iter().map(|page| page.map_or(-1, |(node, _)| node as i32)).collect();
            let found = round.found(&nodes).to_raw(1);
            let mut meant = Vec::new();
            let is_meant = |page: &Drawn| page.and_then(|(node, meant)| meant.then_some(node));
            pages.iter().filter_map(is_meant).for_each(|node| count(&mut meant, node));
            let nodes = ObjectNodes {
                read_ns: now_ns,
                asked: found.asked,
                by_node: found.by_node,
                meant,
                error_hundredths: found.error_hundredths,
            };
            Arc::make_mut(&mut self.known).insert(object, Arc::new(nodes));
            self.asked.insert(object, Asked { at_ns: now_ns, tries: 0 });
        }
    }

    /// No answer will come.
    pub fn give_up(&mut self) {
        self.wanted.clear();
    }

    /// Forgets objects that have not been asked for in a long time: they are gone.
    pub fn forget(&mut self, now_ns: u64) {
        let is_old = |at_ns: u64| now_ns.saturating_sub(at_ns) >= OLD_NS;
        self.asked.retain(|_, asked| !is_old(asked.at_ns));
        if self.known.values().any(|nodes| is_old(nodes.read_ns)) {
            Arc::make_mut(&mut self.known).retain(|_, nodes| !is_old(nodes.read_ns));
        }
    }

    /// The last answers.
    pub fn known(&self) -> Arc<BTreeMap<ObjectId, Arc<ObjectNodes>>> {
        Arc::clone(&self.known)
    }
}

fn has_size(object: &SharedObject) -> bool {
    (1..BYTES_MAX).contains(&object.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const PAGE: u64 = 4096;

    fn object(inode: u64, mib: u64) -> SharedObject {
        SharedObject { inode, bytes: mib << 20, resident_bytes: mib << 20, ..SharedObject::default() }
    }

    fn asked(draws: &mut Draws, objects: &[SharedObject], now_ns: u64) -> Vec<u64> {
        draws.begin(objects.iter(), PAGE, now_ns);
        draws.wanted().iter().map(|wanted| wanted.object.inode).collect()
    }

    /// The same answer for each page.
    fn answers(draws: &Draws, page: Drawn) -> Option<Vec<Option<Vec<Drawn>>>> {
        Some(draws.wanted().iter().map(|wanted| Some(vec![page; wanted.round.pages.len()])).collect())
    }

    #[test]
    fn the_largest_go_first_and_each_once_in_thirty_seconds() {
        let mut draws = Draws::new(1);
        let objects: Vec<SharedObject> = (1..=10).map(|inode| object(inode, 10 * inode)).collect();
        assert_eq!(asked(&mut draws, &objects, S), [10, 9, 8, 7, 6, 5, 4, 3]);
        draws.end(answers(&draws, Some((1, false))), S);
        assert_eq!(asked(&mut draws, &objects, 2 * S), [2, 1]);
        draws.end(answers(&draws, Some((1, false))), 2 * S);
        assert!(asked(&mut draws, &objects, 30 * S).is_empty());
        assert_eq!(asked(&mut draws, &objects[8..], 31 * S), [10, 9]);
    }

    #[test]
    fn an_object_is_asked_for_once_however_many_processes_map_it() {
        let mut draws = Draws::new(1);
        assert_eq!(asked(&mut draws, &[object(1, 50), object(1, 50), object(2, 5000)], S), [2, 1]);
        let small: Vec<u64> = draws.wanted()[1].round.pages.clone();
        assert!(small.len() == 1024 && small.iter().all(|page| *page < 50 << 8), "{small:?}");
        let no_size = [object(3, 0), SharedObject { bytes: 1 << 52, ..object(4, 1) }];
        assert!(asked(&mut draws, &no_size, S).is_empty() && !draws.is_urgent(&no_size[0]));
    }

    #[test]
    fn an_answer_has_nodes_pages_that_are_meant_and_an_error() {
        let mut draws = Draws::new(1);
        asked(&mut draws, &[object(1, 512)], S);
        let page = |index: u64| match index {
            0..32_768 => Some((0, false)),
            32_768..65_536 => Some((1, index < 49_152)),
            _ => None,
        };
        let pages = draws.wanted()[0].round.pages.iter().map(|index| page(*index)).collect();
        draws.end(Some(vec![Some(pages)]), 2 * S);
        let known = draws.known();
        let nodes = &known[&object(1, 512).id()];
        assert_eq!((nodes.read_ns, nodes.asked), (2 * S, 1024));
        assert_eq!((&nodes.by_node[..], &nodes.meant[..]), (&[256, 256][..], &[0, 128][..]));
        // Draws are spread evenly, so the error is below that of 512 independent ones.
        assert!((10..400).contains(&nodes.error_hundredths), "{nodes:?}");
    }

    #[test]
    fn without_an_answer_it_is_asked_for_again_and_then_rests() {
        let (mut draws, one) = (Draws::new(1), [object(1, 50)]);
        for turn in 1..=3 {
            assert!(draws.is_urgent(&one[0]), "turn {turn}");
            assert_eq!(asked(&mut draws, &one, turn * S), [1]);
            draws.end(Some(vec![None]), turn * S);
        }
        assert!(!draws.is_urgent(&one[0]) && asked(&mut draws, &one, 4 * S).is_empty());
        assert_eq!(asked(&mut draws, &one, 33 * S), [1]);
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_asked_once() {
        let (mut draws, one) = (Draws::new(1), [object(1, 50)]);
        draws.end(None, S);
        assert_eq!(asked(&mut draws, &one, S), [1]);
        draws.end(None, S);
        assert!(asked(&mut draws, &one, 99 * S).is_empty() && !draws.is_urgent(&one[0]));
    }

    #[test]
    fn objects_that_are_gone_are_forgotten() {
        let mut draws = Draws::new(1);
        asked(&mut draws, &[object(1, 50)], S);
        draws.end(answers(&draws, Some((0, false))), S);
        draws.forget(300 * S);
        assert_eq!(draws.known().len(), 1);
        draws.forget(301 * S);
        assert!(draws.known().is_empty() && draws.asked.is_empty());
    }
}
