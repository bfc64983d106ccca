//! First touches of one process: the pages that a function touched first, as far as they were sampled.
//!
//! Each sampled touch represents the faults of its thread since the previous one. If those of a function are
//! enough for half of the pages that its touches span, and no touch of another function is between, the rest
//! belongs to it too. A touch of another function inside belongs to that function: memory was given back and
//! taken again. Faults at present pages, as when the kernel moves them, are rare and say nothing about their
//! neighbours. All else is unknown.

#![warn(missing_docs)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::sample::Touch;
use crate::model::access::lines::FUNCTIONS_LISTED;
use crate::model::process::ProcessId;
use crate::model::stacks::{CodePlace, Function};
use crate::model::units::NodeId;

/// Bytes of a huge page as a power of two, where pages are of 4 KiB.
const HUGE_SHIFT: u32 = 21;
/// Pages that touches of one function may span for each fault that they stand for.
const SPAN_PER_FAULT: u64 = 2;
/// Runs of pages that are kept, some 0.7 MB; without room those of one page go, and then all.
const RUNS_MAX: usize = 16 * 1024;
/// Touches of new stacks that wait for names, some 0.6 MB; those beyond are left out.
const WAITING_MAX: usize = 1024;
/// Stacks whose function is remembered, and functions. Beyond that, stacks are named again, and functions
/// have no object.
const STACKS_MAX: usize = 4096;
const OBJECTS_MAX: usize = 1024;
/// Threads whose faults are remembered.
const THREADS_MAX: usize = 16 * 1024;
/// Time that a touch waits for names, ns: they come with the next interval, unless files do not answer or the machine is slow.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Beginnings of the names of C and C++ libraries and allocators: their caller wanted the memory.
const LIBRARIES: [&str; 12] = [
    "libc.so",
    "libc-",
    "libc.musl",
    "ld-linux",
    "ld-musl",
    "libpthread",
    "libm.so",
    "libstdc++",
    "libgcc_s",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
];

/// The number of an object among those of its process.
pub type ObjectId = u32;

/// A stack whose functions are to be named.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TouchStack {
    places: Box<[CodePlace]>,
    /// The caller of the innermost function, which a walk by frame pointers leaves out if that has no frame.
    caller: Option<CodePlace>,
}

/// A touch that waits for names.
struct Waiting {
    first: u64,
    run: Run,
    node: Option<NodeId>,
    stack: TouchStack,
    /// CLOCK_MONOTONIC when its names were asked for; `None`: not yet.
    asked_ns: Option<u64>,
}

/// The last sampled touch of a thread.
struct LastTouch {
    hint_faults: u64,
    faults: u64,
    page: u64,
}

/// Pages that faults of a thread brought.
struct Brought {
    faults: u64,
    each: u64,
}

/// The memory that one stack of functions touched first.
pub struct Touched {
    /// As in [`crate::model::access::lines::Object`].
    pub functions: Vec<Arc<Function>>,
    /// Sampled touches by node of the CPU.
    pub on: BTreeMap<NodeId, u64>,
}

/// First touches of one process.
#[derive(Default)]
pub struct Touches {
    runs: Runs,
    waiting: VecDeque<Waiting>,
    /// Stacks whose functions are known, by their hash: two of a process that have the same would be one object.
    stacks: HashMap<u64, ObjectId>,
    ids: HashMap<Vec<Arc<Function>>, ObjectId>,
    objects: Vec<Touched>,
    count: u64,
    threads: HashMap<u32, LastTouch>,
}

impl Touches {
    /// Takes a touch of a thread of `process` on a CPU of this node. Pages have 2 to the power of `page_shift` bytes.
    pub fn add(
        &mut self,
        process: ProcessId,
        tid: u32,
        touch: &Touch,
        node: Option<NodeId>,
        page_shift: u32,
    ) {
        let page = touch.address >> page_shift;
        let Some(pages) = self.brought(tid, touch, page, 1 << HUGE_SHIFT.saturating_sub(page_shift)) else {
            return;
        };
        // The object is that of the stack, once it has a name.
        let run =
            Run { last: page + pages.each - 1, object: 0, brought: pages.each.saturating_mul(pages.faults) };
        // A caller is where it will go on: its call is the byte before.
        let place = |address: u64, called: bool| {
            CodePlace::Address(process, address.saturating_sub(u64::from(called)))
        };
        let stack = TouchStack {
            places: touch.stack.iter().enumerate().map(|(at, address)| place(*address, at > 0)).collect(),
            caller: touch.caller.map(|behind| place(behind, true)),
        };
        match self.stacks.get(&hash(&stack)) {
            Some(id) => self.take(page, Run { object: *id, ..run }, node),
            None if self.waiting.len() < WAITING_MAX => {
                self.waiting.push_back(Waiting { first: page, run, node, stack, asked_ns: None });
            }
            None => {}
        }
    }

    /// Takes a touch whose object is known.
    fn take(&mut self, first: u64, run: Run, node: Option<NodeId>) {
        self.count += 1;
        self.runs.insert(first, run);
        if let (Some(node), Some(object)) = (node, self.objects.get_mut(run.object as usize)) {
            *object.on.entry(node).or_default() += 1;
        }
    }

    /// The faults that a touch represents, those of the thread since its previous touch, and the pages that
    /// each brought. `None`: NUMA balancing may have caused it; those faults are counted before the sample. A
    /// huge page has `huge` pages.
    fn brought(&mut self, tid: u32, touch: &Touch, page: u64, huge: u64) -> Option<Brought> {
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        let now = LastTouch { hint_faults: touch.hint_faults, faults: touch.faults, page };
        let before = self.threads.insert(tid, now);
        let is_first = touch.hint_faults == 0
            || before.as_ref().is_some_and(|before| before.hint_faults == touch.hint_faults);
        let Some(before) = before else { return is_first.then_some(Brought { faults: 1, each: 1 }) };
        let faults = touch.faults.saturating_sub(before.faults).max(1);
        // Memory that is touched from its beginning on has a fault at the beginning of each huge page.
        let in_order = page.checked_sub(before.page) == faults.checked_mul(huge) && page.is_multiple_of(huge);
        is_first.then_some(Brought { faults, each: if in_order { huge } else { 1 } })
    }

    /// Sampled first touches that have an object.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Places of touches that wait for names.
    pub fn places(&self) -> impl Iterator<Item = CodePlace> + '_ {
        self.waiting
            .iter()
            .flat_map(|waiting| waiting.stack.places.iter().copied().chain(waiting.stack.caller))
    }

    /// Takes the names that are known at `now_ns` of CLOCK_MONOTONIC.
    pub fn settle(&mut self, now_ns: u64, name: impl Fn(&CodePlace) -> Option<Arc<Function>>) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            let asked_ns = *waiting.asked_ns.get_or_insert(now_ns);
            let late = now_ns.saturating_sub(asked_ns) >= PATIENCE_NS;
            let hash = hash(&waiting.stack);
            let known = self.stacks.get(&hash).copied();
            let Some(object) = known.map(Some).or_else(|| self.object_of(&waiting.stack, late, &name)) else {
                self.waiting.push_back(waiting);
                continue;
            };
            let Some(id) = object else { continue };
            // Names that are late or were not found may come for the next touch.
            let has_name =
                |id: ObjectId| self.object(id).is_some_and(|object| object.functions[0].name.is_some());
            if known.is_none() && !late && has_name(id) {
                if self.stacks.len() >= STACKS_MAX {
                    self.stacks.clear();
                }
                self.stacks.insert(hash, id);
            }
            self.take(waiting.first, Run { object: id, ..waiting.run }, waiting.node);
        }
    }

    /// The object of a stack; `Some(None)`: it has none, `None`: names are missing, and may yet come unless it is `late`.
    fn object_of(
        &mut self,
        stack: &TouchStack,
        late: bool,
        name: &impl Fn(&CodePlace) -> Option<Arc<Function>>,
    ) -> Option<Option<ObjectId>> {
        let mut all = stack.places.iter().chain(&stack.caller);
        if !late && !all.all(|place| name(place).is_some()) {
            return None;
        }
        let functions = functions(stack, name);
        if functions.is_empty() {
            return Some(None);
        }
        if let Some(id) = self.ids.get(&functions) {
            return Some(Some(*id));
        }
        if self.objects.len() >= OBJECTS_MAX {
            return Some(None);
        }
        let id = self.objects.len() as ObjectId;
        self.ids.insert(functions.clone(), id);
        self.objects.push(Touched { functions, on: BTreeMap::new() });
        Some(Some(id))
    }

    /// The object that a page belongs to, where that is known.
    pub fn object_at(&self, page: u64) -> Option<ObjectId> {
        self.runs.at(page)
    }

    /// An object.
    pub fn object(&self, id: ObjectId) -> Option<&Touched> {
        self.objects.get(id as usize)
    }
}

fn hash(stack: &TouchStack) -> u64 {
    let mut hasher = DefaultHasher::new();
    stack.hash(&mut hasher);
    hasher.finish()
}

fn is_of_library(function: &Function) -> bool {
    LIBRARIES.iter().any(|library| function.module.starts_with(library))
}

/// The functions of a stack, innermost first, without those of C libraries unless there are no others. A caller without a
/// name ends it: what a register holds that is no frame pointer leads anywhere.
fn functions(stack: &TouchStack, name: impl Fn(&CodePlace) -> Option<Arc<Function>>) -> Vec<Arc<Function>> {
    let Some((innermost, callers)) = stack.places.split_first() else { return Vec::new() };
    let Some(innermost) = name(innermost) else { return Vec::new() };
    let has_name = |function: &Arc<Function>| function.name.is_some();
    let callers = callers.iter().map_while(|place| name(place).filter(has_name));
    // The word on top of the stack of a library's function may be anything: a caller in the same library is not believed.
    let direct = stack.caller.as_ref().filter(|_| is_of_library(&innermost));
    let direct = direct.and_then(&name).filter(has_name);
    let outside = direct.into_iter().chain(callers).filter(|function| !is_of_library(function));
    let mut all: Vec<Arc<Function>> = outside.take(FUNCTIONS_LISTED).collect();
    if all.is_empty() || !is_of_library(&innermost) {
        all.insert(0, innermost);
        all.truncate(FUNCTIONS_LISTED);
    }
    all
}

/// Pages by object, in runs that do not overlap.
#[derive(Default)]
struct Runs(BTreeMap<u64, Run>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Its last page.
    last: u64,
    object: ObjectId,
    /// Pages that the faults brought for which its touches stand.
    brought: u64,
}

impl Run {
    /// The part from `first` to `last`, if it begins at `from`.
    fn part(self, from: u64, first: u64, last: u64) -> Run {
        let pages = |first: u64, last: u64| u128::from(last - first + 1);
        let part = u128::from(self.brought) * pages(first, last) / pages(from, self.last);
        Run { last, brought: part as u64, ..self }
    }

    /// With more faults, if it begins at `from`. They bring at most as many pages as the run has: memory that
    /// is given back and touched again and again says nothing about its surroundings.
    fn with(self, brought: u64, from: u64) -> Run {
        let most = self.brought.max(self.last - from + 1);
        Run { brought: self.brought.saturating_add(brought).min(most), ..self }
    }

    /// Whether it and another run of the same object, which together go from `first` to `last`, were touched densely enough to
    /// be one.
    fn joins(&self, other: &Run, first: u64, last: u64) -> bool {
        let brought = self.brought.saturating_add(other.brought);
        self.object == other.object && last - first < brought.saturating_mul(SPAN_PER_FAULT)
    }
}

impl Runs {
    fn at(&self, page: u64) -> Option<ObjectId> {
        let (_, run) = self.0.range(..=page).next_back()?;
        (page <= run.last).then_some(run.object)
    }

    /// Adds a run of touched pages, which it owns from then on. It also gets the pages between it and its
    /// neighbours if these are of the same object and touched densely enough.
    fn insert(&mut self, mut first: u64, mut new: Run) {
        if let Some((from, run)) = self.before(first + 1)
            && run.object == new.object
            && new.last <= run.last
        {
            self.0.insert(from, run.with(new.brought, from));
            return;
        }
        self.cut(first, new.last);
        loop {
            let before = self.before(first).filter(|(from, run)| new.joins(run, *from, new.last));
            let after = self.after(new.last).filter(|(_, run)| new.joins(run, first, run.last));
            let Some((from, run)) = before.or(after) else { break };
            self.0.remove(&from);
            first = first.min(from);
            new.last = new.last.max(run.last);
            new.brought = new.brought.saturating_add(run.brought);
        }
        self.0.insert(first, new);
        if self.0.len() > RUNS_MAX {
            self.0.retain(|first, run| *first < run.last);
            if self.0.len() > RUNS_MAX / 2 {
                self.0.clear();
            }
        }
    }

    /// The last run that begins before a page.
    fn before(&self, page: u64) -> Option<(u64, Run)> {
        self.0.range(..page).next_back().map(|(first, run)| (*first, *run))
    }

    /// The first run that begins behind a page.
    fn after(&self, page: u64) -> Option<(u64, Run)> {
        self.0.range(page + 1..).next().map(|(first, run)| (*first, *run))
    }

    /// Takes pages out of the runs that have them.
    fn cut(&mut self, first: u64, last: u64) {
        while let Some((from, run)) = self.before(last + 1).filter(|(_, run)| run.last >= first) {
            self.0.remove(&from);
            if run.last > last {
                self.0.insert(last + 1, run.part(from, last + 1, run.last));
            }
            if from < first {
                self.0.insert(from, run.part(from, from, first - 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = (7, 1);
    const SHIFT: u32 = 12;

    /// Functions by the hundreds of their addresses: 1 is of the C library, 9 has no name.
    fn name(place: &CodePlace) -> Option<Arc<Function>> {
        let CodePlace::Address(_, address) = place else { return None };
        let (number, module) = (address / 100, if address / 100 == 1 { "libc.so.6" } else { "app" });
        let name = (number != 9).then(|| format!("f{number}"));
        Some(Arc::new(Function { name, module: module.into(), kernel: false }))
    }

    fn touch(page: u64, stack: &[u64], caller: Option<u64>) -> Touch {
        Touch { address: page << SHIFT | 0x123, stack: stack.to_vec(), caller, hint_faults: 0, faults: 0 }
    }

    /// Touches that stand for ten faults each.
    fn touched(all: &[Touch]) -> Touches {
        let mut touches = Touches::default();
        for (faults, touch) in (1..).zip(all) {
            let touch = Touch { faults: 10 * faults, stack: touch.stack.clone(), ..*touch };
            touches.add(PROCESS, 8, &touch, Some(NodeId(1)), SHIFT);
        }
        touches.settle(0, name);
        touches
    }

    fn names(touches: &Touches, page: u64) -> Option<String> {
        let object = touches.object(touches.object_at(page)?)?;
        let names: Vec<String> = object.functions.iter().map(|function| function.to_string()).collect();
        Some(names.join(" < "))
    }

    #[test]
    fn pages_between_touches_of_one_function_are_its() {
        let found = touched(&[touch(10, &[200], None), touch(20, &[250], None), touch(30, &[300], None)]);
        let expected = [None, Some("f2"), Some("f2"), Some("f2"), None, Some("f3"), None];
        let pages = [9, 10, 15, 20, 25, 30, 31];
        assert_eq!(pages.map(|page| names(&found, page)), expected.map(|name| name.map(str::to_string)));
        assert_eq!(found.object(0).unwrap().on, BTreeMap::from([(NodeId(1), 2)]));
    }

    #[test]
    fn touches_say_of_what_is_between_as_much_as_they_stand_for() {
        // The first touch of a thread represents itself, the second here ten faults: 22 pages.
        let of = |distance: u64| {
            let found = touched(&[touch(10, &[200], None), touch(10 + distance, &[200], None)]);
            names(&found, 11)
        };
        assert_eq!((of(21), of(22)), (Some("f2".into()), None));
        // In whatever order they come, and with what came later.
        let third = |page| {
            let all = [touch(10, &[200], None), touch(45, &[200], None), touch(page, &[200], None)];
            names(&touched(&all), 40)
        };
        assert_eq!((third(30), third(80)), (Some("f2".into()), None));
    }

    #[test]
    fn huge_pages_that_are_touched_in_order_are_told() {
        let found = |pages: &[u64]| {
            let all: Vec<Touch> = pages.iter().map(|page| touch(*page, &[200], None)).collect();
            let found = touched(&all);
            move |page| found.object_at(page).is_some()
        };
        // Ten faults are ten huge pages.
        let in_order = found(&[512, 512 * 11]);
        let is_its = [511, 512, 3000, 512 * 12 - 1, 512 * 12].map(in_order);
        assert_eq!(is_its, [false, true, true, true, false]);
        // Neither at their beginnings nor at the distance of that many huge pages.
        for other in [[513, 513 + 512 * 10], [512, 512 * 12]] {
            let found = found(&other);
            assert!(found(other[1]) && !found(3000) && !found(other[1] + 1), "{other:?}");
        }
    }

    #[test]
    fn memory_that_another_function_touches_is_its_from_then_on() {
        let (a, b) = (&[200][..], &[300][..]);
        let found = touched(&[touch(10, a, None), touch(20, a, None), touch(15, b, None)]);
        let at = |found: &Touches, page| names(found, page).unwrap();
        assert_eq!([14, 15, 16].map(|page| at(&found, page)), ["f2", "f3", "f2"]);
        // Both ends of a run.
        let found =
            touched(&[touch(10, a, None), touch(12, a, None), touch(10, b, None), touch(12, b, None)]);
        assert_eq!([10, 11, 12].map(|page| at(&found, page)), ["f3", "f2", "f3"]);
        // Back again.
        let found =
            touched(&[touch(10, a, None), touch(12, a, None), touch(11, b, None), touch(11, a, None)]);
        assert_eq!((at(&found, 11), found.runs.0.len()), ("f2".into(), 1));
    }

    #[test]
    fn the_function_that_called_the_library_is_named() {
        // A frame's address is behind its call; that of the innermost function is exact.
        let of = |stack: &[u64], caller| names(&touched(&[touch(1, stack, caller)]), 1);
        assert_eq!(of(&[200, 301, 401], None).as_deref(), Some("f2 < f3 < f4"));
        assert_eq!(of(&[110, 301], Some(401)).as_deref(), Some("f4 < f3"), "memset leaves out its caller");
        assert_eq!(of(&[110, 301], None).as_deref(), Some("f3"));
        assert_eq!(of(&[110, 121, 301], Some(131)).as_deref(), Some("f3"), "a word in the library itself");
        assert_eq!(of(&[110], None).as_deref(), Some("f1"), "nothing else is known");
        assert_eq!(of(&[200, 101, 301], None).as_deref(), Some("f2 < f3"), "called by qsort");
        assert_eq!(of(&[200, 901, 301], None).as_deref(), Some("f2"), "a frame without a name is none");
        assert_eq!(of(&[200], Some(401)).as_deref(), Some("f2"), "its stack may hold anything");
        assert_eq!(of(&[], Some(401)), None);
    }

    #[test]
    fn hint_faults_are_no_first_touches() {
        let mut touches = Touches::default();
        let at = |page, hint_faults| Touch { hint_faults, ..touch(page, &[200], None) };
        // The thread got hint faults, and this may be one; the second and the fourth are not.
        for (page, hint_faults) in [(5000, 7), (10_000, 7), (15_000, 8), (20_000, 8)] {
            touches.add(PROCESS, 8, &at(page, hint_faults), None, SHIFT);
        }
        touches.add(PROCESS, 9, &at(25_000, 8), None, SHIFT);
        touches.settle(0, name);
        let found = [5000, 10_000, 15_000, 20_000, 25_000].map(|page| touches.object_at(page).is_some());
        assert_eq!(found, [false, true, false, true, false]);
    }

    #[test]
    fn touches_wait_for_names_and_not_for_ever() {
        let mut touches = Touches::default();
        touches.add(PROCESS, 8, &touch(1, &[200, 301], None), None, SHIFT);
        let wanted: Vec<CodePlace> = touches.places().collect();
        assert_eq!(wanted, [CodePlace::Address(PROCESS, 200), CodePlace::Address(PROCESS, 300)]);
        let innermost = |place: &CodePlace| name(place).filter(|_| *place == wanted[0]);
        for now_ns in [0, PATIENCE_NS - 1] {
            touches.settle(now_ns, innermost);
            assert_eq!((touches.object_at(1), touches.places().count()), (None, 2));
        }
        touches.settle(PATIENCE_NS, innermost);
        assert_eq!(names(&touches, 1).as_deref(), Some("f2"));
        // A name that comes after all counts for the next touch, and is known from then on.
        touches.add(PROCESS, 8, &touch(9000, &[200, 301], None), None, SHIFT);
        touches.settle(PATIENCE_NS, name);
        assert_eq!(names(&touches, 9000).as_deref(), Some("f2 < f3"));
        touches.add(PROCESS, 8, &touch(18_000, &[200, 301], None), None, SHIFT);
        touches.settle(PATIENCE_NS, |_| None);
        assert_eq!(names(&touches, 18_000).as_deref(), Some("f2 < f3"));
    }

    #[test]
    fn a_name_that_was_not_found_may_yet_come() {
        let mut touches = Touches::default();
        touches.add(PROCESS, 8, &touch(1, &[900], None), None, SHIFT);
        touches.settle(0, name);
        assert_eq!(names(&touches, 1).as_deref(), Some("? in app"));
        touches.add(PROCESS, 8, &touch(9000, &[900], None), None, SHIFT);
        touches.settle(1, |_| name(&CodePlace::Address(PROCESS, 200)));
        assert_eq!(names(&touches, 9000).as_deref(), Some("f2"));
    }

    #[test]
    fn memory_that_is_touched_over_and_over_says_nothing_of_the_rest() {
        let mut all: Vec<Touch> = (0..1000).map(|_| touch(10, &[200], None)).collect();
        all.push(touch(15_000, &[200], None));
        let found = touched(&all);
        assert_eq!([10, 11, 15_000].map(|page| found.object_at(page).is_some()), [true, false, true]);
        assert_eq!(found.count(), 1001);
    }

    #[test]
    fn memory_for_touches_is_bounded() {
        let mut touches = Touches::default();
        for page in 0..3 * RUNS_MAX as u64 {
            touches.add(PROCESS, 8, &touch(page, &[200 + page % 2 * 100], None), None, SHIFT);
            if page % 500 == 0 {
                touches.settle(0, name);
            }
            assert!(touches.runs.0.len() <= RUNS_MAX && touches.waiting.len() <= WAITING_MAX);
        }
        touches.settle(0, name);
        let last = 3 * RUNS_MAX as u64 - 1;
        assert!(touches.object_at(last).is_some(), "new ones have room");
    }
}
