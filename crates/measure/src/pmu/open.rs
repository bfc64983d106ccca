//! Opening events: tried once on this thread, then on every online CPU, again when a CPU comes back.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bytemuck::{Pod, Zeroable};
use libbpf_rs::libbpf_sys;

use crate::model::event::{Event, Mode, Role};
use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::pmu::memory_event::MemoryEvent;
use crate::pmu::spe::event::SpeEvent;
use crate::sys;

pub use crate::model::wire::SLOTS;

/// Steps of the work in which an event is tried: enough that a working counter cannot stay at zero.
const TRIAL_STEPS: u32 = 20_000;
/// Numbers that it looks at: 1 MiB, more than a cache of the first level holds. A power of two.
const TRIAL_TABLE: u32 = 1 << 18;

/// The place that perf_event_open(2) is asked to count on.
#[derive(Clone, Copy)]
enum Target {
    ThisThread,
    Cpu(CpuId),
}

/// The rate of sampling an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// This many times a second.
    Hz(u32),
    /// Once in this number of events.
    OnceIn(u32),
}

/// Opens an event that is sampled on `cpu`, for a program to be attached to.
///
/// # Errors
/// The reason, ready to be shown.
pub fn open_sampling(event: &Event, cpu: CpuId, often: Often) -> Result<OwnedFd, Missing> {
    let rate = match often {
        Often::Hz(hz) => Rate::of(event, hz),
        Often::OnceIn(times) => Rate::Period(times.into()),
    };
    perf_event_open(event, Target::Cpu(cpu), Some(rate))
        .map_err(|error| refusal(event, &format!("sampling on CPU {cpu}"), &error))
}

/// The same for the calling thread, on whatever CPU it runs.
///
/// # Errors
/// The reason, ready to be shown.
pub fn open_sampling_self(event: &Event, hz: u32) -> Result<OwnedFd, Missing> {
    perf_event_open(event, Target::ThisThread, Some(Rate::of(event, hz)))
        .map_err(|error| refusal(event, "sampling this thread", &error))
}

/// Opens an event: one that counts, or with a `rate` one that is sampled.
fn perf_event_open(event: &Event, target: Target, rate: Option<Rate>) -> io::Result<OwnedFd> {
    let (pid, cpu, encoding) = match target {
        Target::ThisThread => (0, -1, None),
        Target::Cpu(cpu) => (-1, cpu.0 as i32, event.encoding_on(cpu)),
    };
    let mut attr = attributes(event, rate);
    if let Some((kind, [config, config1, config2])) = encoding {
        (attr.type_, attr.config) = (kind, config);
        attr.__bindgen_anon_3.config1 = config1;
        attr.__bindgen_anon_4.config2 = config2;
    }
    sys::perf_event_open(attr, pid, cpu, None)
}

/// An event that counts the thread that opened it.
pub struct OwnCount {
    event: Event,
    fd: OwnedFd,
}

impl OwnCount {
    /// Opens an event on the calling thread.
    ///
    /// # Errors
    /// The reason, ready to be shown.
    pub fn open(event: &Event, mode: Mode) -> Result<OwnCount, Missing> {
        let event = Event { mode, ..event.clone() };
        let fd = perf_event_open(&event, Target::ThisThread, None)
            .map_err(|error| refusal(&event, "opening", &error))?;
        Ok(OwnCount { event, fd })
    }

    /// The count since it was opened, and the part of that time in which it was on the PMU, from 0 to 1.
    ///
    /// # Errors
    /// The reason, ready to be shown.
    pub fn read(&self) -> Result<(u64, f64), Missing> {
        let reading = Reading::of(&self.event, &self.fd)?;
        Ok((reading.count, reading.share()))
    }
}

/// The way in which the kernel gets the sampling rate.
#[derive(Debug, PartialEq)]
enum Rate {
    /// Events from one sample to the next; for a clock, ns. The kernel turns a frequency into a period anyway
    /// (perf_swevent_init_hrtimer of kernel/events/core.c). It refuses with EINVAL a frequency above
    /// kernel.perf_event_max_sample_rate, which it lowers by itself on slow machines.
    Period(u64),
    /// Times a second.
    Frequency(u64),
}

impl Rate {
    fn of(event: &Event, hz: u32) -> Rate {
        match event.is_clock() {
            true => Rate::Period(1_000_000_000 / u64::from(hz.max(1))),
            false => Rate::Frequency(hz.into()),
        }
    }
}

fn attributes(event: &Event, rate: Option<Rate>) -> libbpf_sys::perf_event_attr {
    let times = libbpf_sys::PERF_FORMAT_TOTAL_TIME_ENABLED | libbpf_sys::PERF_FORMAT_TOTAL_TIME_RUNNING;
    let mut attr = libbpf_sys::perf_event_attr {
        type_: event.kind,
        config: event.config,
        __bindgen_anon_3: libbpf_sys::perf_event_attr__bindgen_ty_3 { config1: event.config1 },
        __bindgen_anon_4: libbpf_sys::perf_event_attr__bindgen_ty_4 { config2: event.config2 },
        read_format: u64::from(times),
        ..Default::default()
    };
    attr.set_exclude_guest(0);
    attr.set_exclude_kernel((event.mode == Mode::User).into());
    attr.set_exclude_user((event.mode == Mode::Kernel).into());
    if let Some(rate) = rate {
        match rate {
            Rate::Period(period) => attr.__bindgen_anon_1.sample_period = period,
            Rate::Frequency(hz) => {
                attr.__bindgen_anon_1.sample_freq = hz;
                attr.set_freq(1);
            }
        }
        // PMUs of Arm refuse it; there nothing counts while a CPU waits for an interrupt.
        attr.set_exclude_idle(event.is_software().into());
    }
    attr
}

/// Events of one PMU, open on a CPU as a group: the kernel puts all of them on the PMU, or none.
pub struct OpenGroup {
    name: String,
    /// The leader first.
    fds: Vec<OwnedFd>,
}

/// Counts of a group since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupReading {
    /// Time since it was opened, ns.
    pub enabled_ns: u64,
    /// The part of that on the PMU.
    pub running_ns: u64,
    /// In the order of the events.
    pub counts: Vec<u64>,
}

impl OpenGroup {
    /// Opens `events`, one or more, on `cpu`.
    ///
    /// # Errors
    /// The reason, ready to be shown.
    pub fn open(events: &[Event], cpu: CpuId) -> Result<OpenGroup, Missing> {
        let mut fds: Vec<OwnedFd> = Vec::with_capacity(events.len());
        for event in events {
            let mut attr = attributes(event, None);
            attr.read_format |= u64::from(libbpf_sys::PERF_FORMAT_GROUP);
            let opened = sys::perf_event_open(attr, -1, cpu.0 as i32, fds.first().map(AsFd::as_fd));
            let what = || format!("opening on CPU {cpu}");
            fds.push(opened.map_err(|error| refusal(event, &what(), &error))?);
        }
        Ok(OpenGroup { name: events.first().map_or_else(String::new, |event| event.name.clone()), fds })
    }

    /// Reads all of its counts at once. An interrupt of its CPU does that, unless this thread is there.
    ///
    /// # Errors
    /// The reason, ready to be shown.
    pub fn read(&self) -> Result<GroupReading, Missing> {
        // The number of events, enabled and running time, and the counts (perf_event_open(2)).
        const HEAD: usize = 3;
        let mut words = vec![0u64; HEAD + self.fds.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let (size, leader) = (bytes.len(), &self.fds[0]);
        match rustix::io::read(leader, bytes) {
            Ok(got) if got == size => {}
            Ok(got) => {
                return Err(Missing::Lost(format!("reading {}: {got} of {size} bytes", self.name)));
            }
            Err(error) => return Err(Missing::Lost(format!("reading {}: {error}", self.name))),
        }
        Ok(GroupReading { enabled_ns: words[1], running_ns: words[2], counts: words.split_off(HEAD) })
    }
}

/// An event whose samples have addresses, open on one CPU. Its leader counts as long as this lives.
pub struct OpenMemoryEvent {
    /// The event that is sampled.
    pub fd: OwnedFd,
    /// See [`MemoryEvent::leader`].
    pub leader: Option<OwnedFd>,
}

/// Opens an event whose samples have addresses on `cpu`, for a program to be attached to: `hz` samples a second, which the
/// kernel keeps to by changing the period. A fixed rate of large samples would bypass the program (large PEBS).
///
/// # Errors
/// The reason, ready to be shown.
pub fn open_memory_event(event: &MemoryEvent, cpu: CpuId, hz: u32) -> Result<OpenMemoryEvent, Missing> {
    use libbpf_sys as perf;
    let what = format!("sampling accesses on CPU {cpu}");
    let leader = match &event.leader {
        Some(leader) => {
            let opened = perf_event_open(leader, Target::Cpu(cpu), None);
            Some(opened.map_err(|error| refusal(leader, &what, &error))?)
        }
        None => None,
    };
    let always = perf::PERF_SAMPLE_IP
        | perf::PERF_SAMPLE_TID
        | perf::PERF_SAMPLE_CPU
        | perf::PERF_SAMPLE_ADDR
        | perf::PERF_SAMPLE_DATA_SRC
        | perf::PERF_SAMPLE_WEIGHT_STRUCT;
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    // IBS leaves no kernel out before 7.2, and physical addresses need more permission than the rest.
    for (physical, exclude_kernel) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut attr = attributes(&event.event, Some(Rate::of(&event.event, hz)));
        attr.sample_type = u64::from(always | if physical { perf::PERF_SAMPLE_PHYS_ADDR } else { 0 });
        attr.set_exclude_kernel(exclude_kernel.into());
        attr.set_exclude_idle(0);
        attr.set_precise_ip(event.precise.into());
        let group = leader.as_ref().map(AsFd::as_fd);
        match sys::perf_event_open(attr, -1, cpu.0 as i32, group) {
            Ok(fd) => return Ok(OpenMemoryEvent { fd, leader }),
            Err(error) => last = error,
        }
    }
    Err(refusal(&event.event, &what, &last))
}

/// Opens an SPE PMU on `cpu`, with a sample every `period` operations; it begins when its AUX area is mapped. Physical
/// addresses need more permission than the rest, and are left out where they are refused.
///
/// # Errors
/// The reason, ready to be shown.
pub fn open_spe(spe: &SpeEvent, cpu: CpuId, period: u64) -> Result<OwnedFd, Missing> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for event in [&spe.event, &spe.without_physical] {
        let attr = spe_attributes(event, period);
        match sys::perf_event_open(attr, -1, cpu.0 as i32, None) {
            Ok(fd) => return Ok(fd),
            Err(error) => last = error,
        }
    }
    Err(refusal(&spe.event, &format!("sampling accesses on CPU {cpu}"), &last))
}

/// A frequency is refused with EINVAL (`arm_spe_pmu_event_init` of drivers/perf/arm_spe_pmu.c).
fn spe_attributes(event: &Event, period: u64) -> libbpf_sys::perf_event_attr {
    let mut attr = attributes(event, None);
    attr.__bindgen_anon_1.sample_period = period;
    attr.sample_type = u64::from(libbpf_sys::PERF_SAMPLE_TID | libbpf_sys::PERF_SAMPLE_CPU);
    // The PMU begins with the AUX area: without one it would be stopped at once.
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

/// The data that read(2) gives of an open event, in the order of its read_format.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Reading {
    count: u64,
    enabled_ns: u64,
    running_ns: u64,
}

impl Reading {
    fn of(event: &Event, fd: &OwnedFd) -> Result<Reading, Missing> {
        Self::read(fd).map_err(|error| refusal(event, "reading", &error))
    }

    fn read(fd: &OwnedFd) -> io::Result<Reading> {
        let mut reading = Reading::default();
        let got = rustix::io::read(fd, bytemuck::bytes_of_mut(&mut reading))?;
        if got != size_of::<Reading>() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(reading)
    }

    /// The share of the time in which it was enabled that it was on the PMU, from 0 to 1.
    fn share(&self) -> f64 {
        match self.enabled_ns {
            0 => 1.0,
            enabled_ns => self.running_ns as f64 / enabled_ns as f64,
        }
    }

    /// # Errors
    /// It counted nothing while [`exercise`] ran, although it was on the PMU all the time.
    fn has_counted(&self, event: &Event) -> Result<(), Missing> {
        if self.count == 0 && must_count(event.role) {
            let why = format!("{} can be opened but does not count on this CPU", event.name);
            return Err(Missing::Unsupported(why));
        }
        Ok(())
    }
}

/// The meaning of a failure first, because a narrow screen cuts the end; then what failed and the errno.
fn refusal(event: &Event, what: &str, error: &io::Error) -> Missing {
    let with = |meaning: &str| format!("{meaning} ({what} {}: {error})", event.name);
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO | libc::EINVAL)
            if !event.is_software() =>
        {
            Missing::Unsupported(with("this CPU or hypervisor has no such counter"))
        }
        Some(libc::EACCES | libc::EPERM) => {
            Missing::NotPermitted(with("needs CAP_PERFMON or kernel.perf_event_paranoid ≤ 0"))
        }
        Some(libc::EBUSY) => Missing::Unsupported(with("another tool uses the counter")),
        Some(libc::EMFILE | libc::ENFILE) => {
            Missing::Unsupported(with("too many open files: raise the limit (ulimit -n)"))
        }
        _ => Missing::Unsupported(with("the kernel refused to open the counter")),
    }
}

/// Whether `event` opens and counts here. A hardware counter that opens but stays at zero under load is
/// useless (unimplemented Arm events and some virtual PMUs do that).
///
/// # Errors
/// The reason, ready to be shown.
pub fn try_event(event: &Event) -> Result<(), Missing> {
    let fd = perf_event_open(event, Target::ThisThread, None)
        .map_err(|error| refusal(event, "opening", &error))?;
    if !must_count(event.role) {
        return Ok(());
    }
    exercise();
    let reading = Reading::of(event, &fd)?;
    if reading.share() == 0.0 {
        let why = format!("{} was never scheduled onto the PMU; another tool uses its counters", event.name);
        return Err(Missing::Unsupported(why));
    }
    reading.has_counted(event)
}

/// Do `events` count here, all at the same time? Each alone may, and yet there may not be counters for all.
///
/// # Errors
/// The first event that is refused, does not count, or has to take turns.
pub fn try_together(events: &[Event]) -> Result<(), Missing> {
    if let [event] = events {
        return try_event(event);
    }
    let open = |event: &Event| {
        perf_event_open(event, Target::ThisThread, None).map_err(|error| refusal(event, "opening", &error))
    };
    let open: Vec<OwnedFd> = events.iter().map(open).collect::<Result<_, Missing>>()?;
    exercise();
    // An event without a counter waits for the next turn, milliseconds away. That is far longer than putting
    // the others on the PMU one by one takes.
    for (event, fd) in events.iter().zip(&open) {
        let reading = Reading::of(event, fd)?;
        if reading.share() < 0.9 {
            return Err(Missing::Unsupported(format!(
                "{} would be multiplexed with other events",
                event.name
            )));
        }
        reading.has_counted(event)?;
    }
    Ok(())
}

/// Whether [`exercise`] has something to count for an event of this role, on whatever CPU. It need not reach memory, or
/// another node, or miss a TLB whose entries are large.
fn must_count(role: Role) -> bool {
    matches!(
        role,
        Role::Cycles
            | Role::Instructions
            | Role::Slots
            | Role::StallFrontend
            | Role::StallBackend
            | Role::Branch
    )
}

/// Work with dependent loads, on which the back end stalls, and unpredictable branches, after which the front
/// end restarts.
fn exercise() {
    let table: Vec<u32> = (0..TRIAL_TABLE).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let (mut at, mut taken) = (0, 0u32);
    for step in 0..TRIAL_STEPS {
        at = (table[at as usize] >> 7).wrapping_add(step) % TRIAL_TABLE;
        // A branch, not arithmetic: one of the two ways has a side effect.
        if table[at as usize] & 0x1_0000 != 0 {
            taken = black_box(taken + 1);
        }
    }
    black_box(taken);
}

/// A counter that could not be opened on some CPU.
#[derive(Clone, Debug)]
pub struct Refused {
    pub slot: usize,
    pub why: Missing,
}

/// More events than a context switch can read, over the life of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{SLOTS} different events have been counted since the start, which is the maximum: restart with \
         --events"
)]
pub struct TooMany;

/// The events that work, open on every CPU they could be opened on.
#[derive(Default)]
pub struct Counters {
    events: Vec<Event>,
    /// Bit i: event i is wanted now.
    wanted: u32,
    /// Bit i: event i is wanted, and others have their turn now.
    waiting: u32,
    /// Descriptors of each CPU.
    open: BTreeMap<CpuId, Vec<OwnedFd>>,
}

impl Counters {
    /// Counters for `events` (each known to work, at most [`SLOTS`]); none is open yet.
    pub fn new(events: Vec<Event>) -> Counters {
        assert!(events.len() <= SLOTS, "the caller limits the list");
        let wanted = (1 << events.len()) - 1;
        Counters { events, wanted, waiting: 0, open: BTreeMap::new() }
    }

    /// Wants `events` from now on, and no others. Every event keeps its slot for good, also while it is not
    /// wanted: the count of a slot never becomes that of another event. Takes effect when counters are
    /// reopened.
    ///
    /// # Errors
    /// No slot is left for one of them; then nothing has changed.
    pub fn want(&mut self, events: &[Event]) -> Result<(), TooMany> {
        let is_known = |event: &Event| self.events.iter().any(|known| known.counts_as(event));
        let new: Vec<&Event> = events.iter().filter(|event| !is_known(event)).collect();
        if self.events.len() + new.len() > SLOTS {
            return Err(TooMany);
        }
        self.events.extend(new.into_iter().cloned());
        let is_wanted = |(slot, event): (usize, &Event)| {
            u32::from(events.iter().any(|wanted| wanted.counts_as(event))) << slot
        };
        self.wanted = self.events.iter().enumerate().map(is_wanted).sum();
        self.waiting = 0;
        Ok(())
    }

    /// Opens only the events in these slots from now on, when counters are reopened; the other ones wait.
    pub fn take_turn(&mut self, slots: &[usize]) {
        let all = (1 << self.events.len()) - 1;
        self.wanted = slots.iter().fold(0, |bits, slot| bits | 1 << slot) & all;
        self.waiting = all & !self.wanted;
    }

    /// The slots of events that `cpu` has and that wait for their turn, as a bit mask.
    pub fn waiting_on(&self, cpu: CpuId) -> u32 {
        let here = self.events.iter().enumerate().filter(|(_, event)| event.is_on(cpu));
        self.waiting & here.fold(0, |bits, (slot, _)| bits | 1 << slot)
    }

    /// Whether the event in this slot is wanted now, or when its turn comes.
    pub fn wants(&self, slot: usize) -> bool {
        (self.wanted | self.waiting) >> slot & 1 == 1
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Opens every event that `cpu` has and hands each descriptor to `place` (slot, fd). Returns the open
    /// slots as a bit mask, and those that should be open and are not, with the reason.
    pub fn open_on(
        &mut self,
        cpu: CpuId,
        mut place: impl FnMut(usize, &OwnedFd) -> io::Result<()>,
    ) -> (u32, Vec<Refused>) {
        let mut mask = 0;
        let mut failed = Vec::new();
        let wanted = self.wanted;
        let here = |(slot, event): &(usize, &Event)| wanted >> slot & 1 == 1 && event.is_on(cpu);
        for (slot, event) in self.events.iter().enumerate().filter(here) {
            let opened =
                perf_event_open(event, Target::Cpu(cpu), None).and_then(|fd| place(slot, &fd).map(|()| fd));
            match opened {
                Ok(fd) => {
                    self.open.entry(cpu).or_default().push(fd);
                    mask |= 1 << slot;
                }
                Err(error) => {
                    let why = refusal(event, &format!("opening a counter on CPU {cpu}"), &error);
                    failed.push(Refused { slot, why });
                }
            }
        }
        (mask, failed)
    }

    /// Closes the open events on `cpu`: they died with it when it went offline.
    pub fn close_on(&mut self, cpu: CpuId) {
        self.open.remove(&cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(names: &[&str]) -> Vec<Event> {
        names.iter().map(|name| Event::named(name).unwrap()).collect()
    }

    #[test]
    fn spe_has_a_fixed_period_and_waits_for_its_area() {
        let event = Event { kind: 11, config: 1 << 33, config1: 2, config2: 100, ..Event::default() };
        let attr = spe_attributes(&event, 0x40000);
        assert_eq!((attr.type_, attr.config, attr.freq(), attr.disabled()), (11, 1 << 33, 0, 1));
        assert_eq!((attr.exclude_kernel(), attr.exclude_hv(), attr.inherit()), (1, 1, 0));
    }

    fn wanted(counters: &Counters) -> Vec<&str> {
        let slots = counters.events().iter().enumerate().filter(|(slot, _)| counters.wants(*slot));
        slots.map(|(_, event)| event.name.as_str()).collect()
    }

    #[test]
    fn a_clock_is_sampled_by_its_period_so_that_a_lowered_limit_does_not_refuse_it() {
        let rate = |name: &str| Rate::of(&Event::named(name).unwrap(), 97);
        assert_eq!([rate("cpu-clock"), rate("cycles")], [Rate::Period(10_309_278), Rate::Frequency(97)]);
    }

    #[test]
    fn an_event_that_waits_for_its_turn_is_no_event_that_counts_nothing() {
        let waits = Reading { count: 0, enabled_ns: 1_000_000, running_ns: 0 };
        let is_dead = Reading { count: 0, enabled_ns: 1_000_000, running_ns: 1_000_000 };
        let not_enabled = Reading::default();
        assert_eq!([waits.share(), is_dead.share(), not_enabled.share()], [0.0, 1.0, 1.0]);
        let [cycles, misses] = ["cycles", "cache-misses"].map(|name| Event::named(name).unwrap());
        assert!(is_dead.has_counted(&cycles).unwrap_err().to_string().contains("does not count"));
        // There may have been nothing to count.
        assert!(is_dead.has_counted(&misses).is_ok());
    }

    #[test]
    fn an_event_keeps_its_slot_when_others_are_wanted() {
        let mut counters = Counters::new(events(&["cycles", "instructions", "branches"]));
        counters.want(&events(&["cycles", "cache-misses"])).unwrap();
        assert_eq!(wanted(&counters), ["cycles", "cache-misses"]);
        counters.want(&events(&["branches", "cycles"])).unwrap();
        assert_eq!(wanted(&counters), ["cycles", "branches"]);
        let slots: Vec<&str> = counters.events().iter().map(|event| event.name.as_str()).collect();
        assert_eq!(slots, ["cycles", "instructions", "branches", "cache-misses"]);
    }

    #[test]
    fn without_a_slot_left_nothing_changes() {
        let mut counters =
            Counters::new(events(&["cycles", "instructions", "branches", "cache-misses", "cpu-clock"]));
        let more = events(&["page-faults", "task-clock", "minor-faults", "major-faults"]);
        assert_eq!(counters.want(&more), Err(TooMany));
        assert_eq!(wanted(&counters).len(), 5);
        assert_eq!(counters.want(&more[..3]), Ok(()));
    }
}
