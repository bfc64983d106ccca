//! Stacks of a recording, added up in bounded memory: process, place, number of samples, and the CPU time
//! that they represent.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use crate::model::group::GroupKind;
use crate::model::process::ProcessId;
use crate::model::sample::{Comm, Names};
use crate::model::stacks::{CodePlace, Function, Stack, StackBatch};
use crate::text::clean;

/// Bounds of the memory that stacks take. Samples beyond them are counted, with less detail.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processes; all beyond are one.
    pub subjects: usize,
    /// Different places; all beyond are one.
    pub places: usize,
    /// Frames of all stacks together; stacks beyond keep their innermost frame.
    pub frames: usize,
    /// Different stacks; stacks beyond have no frame.
    pub stacks: usize,
    /// Bytes of names; functions beyond have none.
    pub name_bytes: usize,
}

/// Some 300 MB where all of them are reached.
const LIMITS: Limits = Limits {
    subjects: 200_000,
    places: 500_000,
    frames: 16_000_000,
    stacks: 1_000_000,
    name_bytes: 64 << 20,
};

/// The process that was sampled. All text is clean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    /// Name of the process.
    pub comm: String,
    /// Its id; `None` for processes that are one because there are too many.
    pub pid: Option<u32>,
    /// Name of the container or machine that it is in.
    pub container: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Kubernetes namespace of the pod.
    pub namespace: Option<String>,
}

impl Subject {
    /// The process of a stack.
    pub fn of(stack: &Stack, names: &Names) -> Subject {
        let group = names.groups.get(&stack.cgroup_id).map(Arc::as_ref);
        let name_of = |kinds: &[GroupKind]| {
            let of_kind = group.filter(|group| kinds.contains(&group.kind));
            of_kind.map(|group| group.name.clone())
        };
        Subject {
            comm: clean(stack.comm.bytes()),
            pid: Some(stack.process.0),
            container: name_of(&[GroupKind::Container, GroupKind::Machine]),
            pod: group.and_then(|group| group.pod.clone()).or_else(|| name_of(&[GroupKind::Pod])),
            namespace: group.and_then(|group| group.namespace.clone()),
        }
    }
}

/// Samples, and the CPU time that they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub samples: u64,
    /// Each sample is the time from one to the next: 1 s / rate, ns.
    pub cpu_ns: u64,
}

impl Count {
    fn add(&mut self, more: Count) {
        self.samples = self.samples.saturating_add(more.samples);
        self.cpu_ns = self.cpu_ns.saturating_add(more.cpu_ns);
    }
}

/// A frame: a place, as far as one is known, and its function.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    pub place: Option<CodePlace>,
    pub function: &'a Function,
}

/// A stack and its count. Frames are numbers for [`Stacks::frame`], innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    pub subject: &'a Subject,
    pub frames: &'a [u32],
    pub count: Count,
}

/// Frames without a place.
static NOWHERE: LazyLock<Function> = LazyLock::new(|| said("[no stack]"));
static TOO_MANY: LazyLock<Function> = LazyLock::new(|| said("[too many different stacks]"));
static UNNAMED: LazyLock<Function> = LazyLock::new(|| said("[not named]"));

fn said(module: &str) -> Function {
    Function { name: None, module: module.into(), kernel: false }
}

/// Numbers of the first two; places come behind them.
const NO_STACK: u32 = 0;
const LEFT_OUT: u32 = 1;
const FIRST_PLACE: u32 = 2;

/// The sum of the stacks of intervals.
#[derive(Debug)]
pub struct Stacks {
    limits: Limits,
    numbers: HashMap<CodePlace, u32>,
    places: Vec<(CodePlace, Option<Arc<Function>>)>,
    functions: HashSet<Arc<Function>>,
    name_bytes: usize,
    subjects: HashMap<Subject, u32>,
    by_number: Vec<Subject>,
    counts: HashMap<(u32, Box<[u32]>), Count>,
    frames: usize,
    /// Events that were sampled.
    events: Vec<String>,
    hz: u32,
    lost: BTreeMap<String, u64>,
    lost_before: BTreeMap<String, u64>,
    total: Count,
    /// Samples of stacks that were cut, for want of room.
    cut: u64,
}

impl Default for Stacks {
    fn default() -> Stacks {
        Stacks::within(LIMITS)
    }
}

impl Stacks {
    /// Nothing yet, and never more than `limits`.
    pub fn within(limits: Limits) -> Stacks {
        Stacks {
            limits,
            numbers: HashMap::new(),
            places: Vec::new(),
            functions: HashSet::new(),
            name_bytes: 0,
            subjects: HashMap::new(),
            by_number: Vec::new(),
            counts: HashMap::new(),
            frames: 0,
            events: Vec::new(),
            hz: 0,
            lost: BTreeMap::new(),
            lost_before: BTreeMap::new(),
            total: Count::default(),
            cut: 0,
        }
    }

    /// Notes the losses so far, where a run begins: those are of the time before.
    pub fn begin(&mut self, batch: Option<&StackBatch>) {
        self.lost_before = batch.map(|batch| batch.lost.clone()).unwrap_or_default();
    }

    /// Adds the stacks of an interval that `wanted` chooses by the name of their process.
    pub fn add(&mut self, batch: &StackBatch, names: &Names, wanted: &dyn Fn(&str) -> bool) {
        if !self.events.contains(&batch.event) {
            self.events.push(batch.event.clone());
        }
        self.hz = batch.hz;
        for (cause, count) in &batch.lost {
            let more = count.saturating_sub(self.lost_before.get(cause).copied().unwrap_or(0));
            if more > 0 {
                let sum = self.lost.entry(cause.clone()).or_default();
                *sum = sum.saturating_add(more);
            }
        }
        self.lost_before.clone_from(&batch.lost);
        let mut known: HashMap<(ProcessId, Comm, u64), Option<u32>> = HashMap::new();
        for stack in &batch.stacks {
            let subject = known.entry((stack.process, stack.comm, stack.cgroup_id)).or_insert_with(|| {
                let subject = Subject::of(stack, names);
                wanted(&subject.comm).then(|| self.subject(subject))
            });
            if let Some(subject) = *subject {
                let cpu_ns = stack.samples.saturating_mul(1_000_000_000).checked_div(batch.hz.into());
                let count = Count { samples: stack.samples, cpu_ns: cpu_ns.unwrap_or(0) };
                self.count(subject, stack, count);
            }
        }
        // Names come with the stacks or later, and may be repeated.
        for (place, function) in &batch.names {
            self.name(place, function);
        }
    }

    fn count(&mut self, subject: u32, stack: &Stack, count: Count) {
        self.total.add(count);
        let mut frames: Vec<u32> = stack.places().map(|place| self.number(place)).collect();
        if frames.is_empty() {
            frames.push(NO_STACK);
        }
        let mut key = (subject, frames.into_boxed_slice());
        if !self.has_room(&key) {
            // The innermost frame alone, or else none.
            key.1 = key.1.first().copied().into_iter().collect();
            if !self.has_room(&key) {
                key.1 = Box::new([LEFT_OUT]);
            }
            self.cut = self.cut.saturating_add(count.samples);
        }
        let (known, frames) = (self.counts.len(), key.1.len());
        self.counts.entry(key).or_default().add(count);
        self.frames += (self.counts.len() - known) * frames;
    }

    /// Whether a stack is known, or can be added.
    fn has_room(&self, key: &(u32, Box<[u32]>)) -> bool {
        let has_room =
            self.counts.len() < self.limits.stacks && self.frames + key.1.len() <= self.limits.frames;
        has_room || self.counts.contains_key(key)
    }

    fn subject(&mut self, subject: Subject) -> u32 {
        if let Some(number) = self.subjects.get(&subject) {
            return *number;
        }
        let subject = match self.by_number.len() < self.limits.subjects {
            true => subject,
            false => Subject { comm: "[too many processes]".into(), ..Subject::default() },
        };
        let next = self.by_number.len() as u32;
        let number = *self.subjects.entry(subject.clone()).or_insert(next);
        if number == next {
            self.by_number.push(subject);
        }
        number
    }

    fn number(&mut self, place: CodePlace) -> u32 {
        if let Some(number) = self.numbers.get(&place) {
            return *number;
        }
        if self.places.len() >= self.limits.places {
            return LEFT_OUT;
        }
        let number = FIRST_PLACE + self.places.len() as u32;
        self.places.push((place, None));
        self.numbers.insert(place, number);
        number
    }

    fn name(&mut self, place: &CodePlace, function: &Arc<Function>) {
        let Some(number) = self.numbers.get(place) else { return };
        let known = &mut self.places[(number - FIRST_PLACE) as usize].1;
        if known.as_ref() == Some(function) {
            return;
        }
        if let Some(shared) = self.functions.get(function) {
            *known = Some(Arc::clone(shared));
        } else if self.name_bytes + function.bytes() <= self.limits.name_bytes {
            self.name_bytes += function.bytes();
            self.functions.insert(Arc::clone(function));
            *known = Some(Arc::clone(function));
        }
    }

    /// The frame of this number, which a stack has.
    pub fn frame(&self, number: u32) -> Named<'_> {
        match number {
            NO_STACK => Named { place: None, function: &NOWHERE },
            LEFT_OUT => Named { place: None, function: &TOO_MANY },
            place => {
                let (place, function) = &self.places[(place - FIRST_PLACE) as usize];
                Named { place: Some(*place), function: function.as_deref().unwrap_or(&UNNAMED) }
            }
        }
    }

    /// All stacks, in an order that is the same for the same recording.
    pub fn counted(&self) -> Vec<Counted<'_>> {
        let entries = self.counts.iter();
        let mut all: Vec<(u32, &[u32], Count)> =
            entries.map(|((subject, frames), count)| (*subject, &**frames, *count)).collect();
        all.sort_unstable_by_key(|(subject, frames, _)| (*subject, *frames));
        let subject = |number: u32| &self.by_number[number as usize];
        all.into_iter()
            .map(|(number, frames, count)| Counted { subject: subject(number), frames, count })
            .collect()
    }

    /// All samples.
    pub fn total(&self) -> Count {
        self.total
    }

    /// Events at whose overflows stacks were sampled, and the rate of the last interval, Hz.
    pub fn events(&self) -> (&[String], u32) {
        (&self.events, self.hz)
    }

    /// Whether samples stand for CPU time: those of cycles and of the clock do, those of misses do not.
    pub fn is_time(&self) -> bool {
        !self.events.is_empty() && self.events.iter().all(|event| event == "cycles" || event == "cpu-clock")
    }

    /// Samples that are missing or not whole, by cause. Clean.
    pub fn lost(&self) -> impl Iterator<Item = (String, u64)> {
        self.lost.iter().map(|(cause, count)| (crate::text::one_line(cause), *count))
    }

    /// Samples whose stacks were cut, because there were too many different ones.
    pub fn cut(&self) -> u64 {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::{BuildId, Frame};

    fn stack(pid: u32, samples: u64, offsets: &[u64]) -> Stack {
        let frames = offsets.iter().map(|offset| Frame::File(BuildId([7; 20]), *offset)).collect();
        Stack { process: (pid, 1), tid: pid, cgroup_id: 0, comm: Comm::new("x"), samples, frames }
    }

    fn batch(stacks: Vec<Stack>, lost: u64) -> StackBatch {
        let lost = [("ring_full".to_string(), lost)].into();
        StackBatch { event: "cpu-clock".into(), hz: 100, stacks, names: Vec::new(), lost }
    }

    fn all(_: &str) -> bool {
        true
    }

    #[test]
    fn losses_are_those_of_the_time_and_a_sample_is_the_time_to_the_next() {
        let (mut stacks, names) = (Stacks::default(), Names::default());
        stacks.begin(Some(&batch(vec![stack(1, 1000, &[1])], 50)));
        stacks.add(&batch(vec![stack(1, 3, &[1])], 52), &names, &all);
        stacks.begin(None);
        stacks.add(&batch(vec![stack(1, 2, &[1])], 4), &names, &all);
        assert_eq!(stacks.lost().collect::<Vec<_>>(), [("ring_full".to_string(), 6)]);
        assert_eq!(stacks.total(), Count { samples: 5, cpu_ns: 50_000_000 });
        assert!(stacks.is_time());
        let misses = StackBatch { event: "cache-misses".into(), ..batch(Vec::new(), 4) };
        stacks.add(&misses, &names, &all);
        assert!(!stacks.is_time(), "a part of the samples is no time");
    }

    #[test]
    fn a_name_that_comes_later_is_that_of_stacks_before() {
        let mut stacks = Stacks::default();
        stacks.add(&batch(vec![stack(1, 1, &[5])], 0), &Names::default(), &all);
        let text = |stacks: &Stacks| stacks.frame(stacks.counted()[0].frames[0]).function.to_string();
        assert_eq!(text(&stacks), "? in [not named]");
        let function = Function { name: Some("f".into()), module: "m".into(), kernel: false };
        let names = vec![(CodePlace::File(BuildId([7; 20]), 5), Arc::new(function))];
        stacks.add(&StackBatch { names, ..batch(Vec::new(), 0) }, &Names::default(), &all);
        assert_eq!(text(&stacks), "f");
    }

    #[test]
    fn beyond_the_limits_samples_are_counted_with_less_said_of_them() {
        let limits = Limits { subjects: 2, places: 6, frames: 8, stacks: 5, name_bytes: 0 };
        let mut stacks = Stacks::within(limits);
        let many = (0..50u32).map(|at| stack(at % 5, 1, &[u64::from(at), 100, 101, 102])).collect();
        stacks.add(&batch(many, 0), &Names::default(), &all);
        let counted = stacks.counted();
        let sum: u64 = counted.iter().map(|counted| counted.count.samples).sum();
        assert_eq!((sum, stacks.total().samples), (50, 50), "every sample is counted");
        assert!(stacks.cut() > 0 && stacks.places.len() <= 6, "{stacks:?}");
        // One more for each process: samples whose stack has no room.
        assert!(counted.len() <= 5 + 3, "{counted:?}");
        let frames: usize = counted.iter().map(|counted| counted.frames.len()).sum();
        assert!(frames <= 8 + 3, "{frames}");
        let others: Vec<&str> =
            counted.iter().filter(|one| one.subject.pid.is_none()).map(|one| &*one.subject.comm).collect();
        assert!(others.iter().all(|comm| *comm == "[too many processes]") && !others.is_empty());
    }

    #[test]
    fn processes_have_the_names_of_what_they_are_in() {
        let group = |kind, name: &str, pod: Option<&str>| {
            let text = |text: &str| Some(text.to_string());
            let group = crate::model::group::Group {
                kind,
                engine: None,
                name: name.into(),
                id: None,
                pod: pod.and_then(text),
                pod_uid: None,
                user: None,
                namespace: pod.and_then(|_| text("shop")),
                unit: None,
                top: 0,
                parent: None,
            };
            Names { groups: [(0, Arc::new(group))].into(), ..Names::default() }
        };
        let of = |names: &Names| {
            let Subject { container, pod, namespace, .. } = Subject::of(&stack(1, 1, &[]), names);
            [container, pod, namespace].map(Option::unwrap_or_default)
        };
        assert_eq!(of(&group(GroupKind::Container, "web", Some("cart"))), ["web", "cart", "shop"]);
        assert_eq!(of(&group(GroupKind::Pod, "cart", None)), ["", "cart", ""]);
        assert_eq!(of(&group(GroupKind::Unit, "ssh.service", None)), ["", "", ""]);
        assert_eq!(of(&Names::default()), ["", "", ""]);
    }
}
