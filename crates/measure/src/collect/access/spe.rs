//! Sampling with Arm's SPE: an event, its ring and its AUX area on each CPU, and the records that the CPU wrote there.
//!
//! Not verified on hardware.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::pmu::open::open_spe;
use crate::pmu::spe::event::{RingRecord, SpeEvent, records, source_codes};
use crate::pmu::spe::source::SourceCodes;
use crate::pmu::spe::{Records, SpeAccess};
use crate::sys::{AuxRing, perf_event_run};

/// Bytes of the AUX area of a CPU: some 4,000 records.
const AUX_BYTES: usize = 256 * 1024;
/// Pages of the ring beside it: room for a hundred stretches and more.
const RING_PAGES: usize = 1;
/// Accesses of all CPUs that are taken at once; more are left out.
const ACCESSES_MAX: usize = 40_000;
/// Operations from one sample to the next, at most.
const PERIOD_MAX: u64 = 1 << 31;

/// The area was full, and samples behind it are missing: stretches.
const TRUNCATED: &str = "spe_truncated";
/// An operation was chosen while another one was sampled: stretches in which samples are missing.
const COLLISION: &str = "spe_collision";
/// Stretches that the ring did not report.
const RING_FULL: &str = "spe_ring_full";
/// Bytes that belong to no packet.
const BAD_BYTES: &str = "spe_bad_bytes";
/// Accesses beyond the number that is taken at once.
const LEFT_OUT: &str = "spe_left_out";
/// Time in which CPUs sampled nothing because their area was read: microseconds.
const PAUSED: &str = "spe_paused_us";

/// The event of one CPU with its ring and AUX area.
pub trait Area: Send {
    /// Stops the CPU. The ring then has records of everything it wrote.
    ///
    /// # Errors
    /// The errno of ioctl(2).
    fn stop(&mut self) -> io::Result<()>;

    /// Has the CPU go on.
    ///
    /// # Errors
    /// The errno of ioctl(2).
    fn resume(&mut self) -> io::Result<()>;

    /// Takes the records out of the ring.
    fn take(&mut self) -> Vec<u8>;

    /// A copy of `bytes` bytes of the area from an offset on.
    fn copy(&self, offset: u64, bytes: u64) -> Vec<u8>;

    /// The offset up to which the CPU has written.
    fn head(&self) -> u64;

    /// Lets the CPU write over all in front of an offset.
    fn release(&mut self, offset: u64);
}

/// Opens a PMU on a CPU, with a sampling period in operations.
pub type Open = dyn FnMut(&SpeEvent, CpuId, u64) -> Result<Box<dyn Area>, Missing> + Send;

/// Order matters: the areas go before their event.
struct OpenEvent {
    ring: AuxRing,
    event: OwnedFd,
}

impl Area for OpenEvent {
    fn stop(&mut self) -> io::Result<()> {
        perf_event_run(&self.event, false)
    }

    fn resume(&mut self) -> io::Result<()> {
        perf_event_run(&self.event, true)
    }

    fn take(&mut self) -> Vec<u8> {
        self.ring.take()
    }

    fn copy(&self, offset: u64, bytes: u64) -> Vec<u8> {
        self.ring.aux(offset, bytes)
    }

    fn head(&self) -> u64 {
        self.ring.aux_head()
    }

    fn release(&mut self, offset: u64) {
        self.ring.release(offset);
    }
}

fn open(spe: &SpeEvent, cpu: CpuId, period: u64) -> Result<Box<dyn Area>, Missing> {
    let event = open_spe(spe, cpu, period)?;
    let pages = AUX_BYTES / rustix::param::page_size();
    let ring = AuxRing::new(&event, RING_PAGES, pages.max(2)).map_err(|error| {
        let what = format!("mapping the AUX area of {} on CPU {cpu}: {error}", spe.event.name);
        Missing::Unsupported(what)
    })?;
    Ok(Box::new(OpenEvent { ring, event }))
}

/// The open events. Dropped, they are closed.
pub struct SpeProbe {
    open: Box<Open>,
    cpus: BTreeMap<CpuId, OnCpu>,
    /// Operations from one sample to the next, where they have become more than a PMU begins with.
    period: Option<u64>,
    lost: BTreeMap<&'static str, u64>,
}

struct OnCpu {
    area: Box<dyn Area>,
    codes: Option<SourceCodes>,
}

impl SpeProbe {
    /// Samples on these CPUs, as far as they have one of the PMUs. Files are below `root`.
    ///
    /// # Errors
    /// One of them cannot be sampled.
    pub fn start(root: &Path, cpus: &[CpuId], events: &[SpeEvent]) -> Result<SpeProbe, Missing> {
        let mut probe = SpeProbe::opened_by(Box::new(open));
        probe.follow(root, cpus, events)?;
        Ok(probe)
    }

    /// Samples nothing yet, and will on areas that `open` opens.
    pub fn opened_by(open: Box<Open>) -> SpeProbe {
        SpeProbe { open, cpus: BTreeMap::new(), period: None, lost: BTreeMap::new() }
    }

    /// Samples on these CPUs; stops on CPUs that went offline.
    ///
    /// # Errors
    /// One of them cannot be sampled; the others are.
    pub fn follow(&mut self, root: &Path, cpus: &[CpuId], events: &[SpeEvent]) -> Result<(), Missing> {
        self.cpus.retain(|cpu, _| cpus.contains(cpu));
        let mut refused = None;
        for spe in events {
            for cpu in cpus.iter().filter(|cpu| spe.event.is_on(**cpu)) {
                if self.cpus.contains_key(cpu) {
                    continue;
                }
                match (self.open)(spe, *cpu, self.period.unwrap_or(0).max(spe.period)) {
                    Ok(area) => {
                        self.cpus.insert(*cpu, OnCpu { area, codes: source_codes(root, *cpu) });
                    }
                    Err(why) => refused = refused.or(Some(why)),
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// The accesses of programs since the previous call, with their CPU. A CPU that cannot be stopped or
    /// resumed is closed: the next [`SpeProbe::follow`] reopens it.
    pub fn take(&mut self) -> Vec<(CpuId, SpeAccess)> {
        let (mut found, mut count, mut left_out) = (Vec::new(), 0, 0);
        let lost = &mut self.lost;
        self.cpus.retain(|cpu, OnCpu { area, codes }| {
            let (told, goes_on) = read(area.as_mut(), lost);
            let accesses = accesses(&told, *codes, lost);
            count += accesses.len();
            found.push((*cpu, accesses));
            // The parts of CPUs become smaller with each further one: what is beyond now stays so.
            if count > 2 * ACCESSES_MAX {
                let beyond = share(&mut found, ACCESSES_MAX);
                (count, left_out) = (count - beyond, left_out + beyond);
            }
            goes_on
        });
        self.leave_out(left_out + share(&mut found, ACCESSES_MAX));
        let of_cpu =
            |(cpu, accesses): (CpuId, Vec<SpeAccess>)| accesses.into_iter().map(move |access| (cpu, access));
        found.into_iter().flat_map(of_cpu).collect()
    }

    /// Counts accesses that were taken and are not kept.
    pub fn leave_out(&mut self, accesses: usize) {
        if accesses > 0 {
            *self.lost.entry(LEFT_OUT).or_default() += accesses as u64;
        }
    }

    /// CPUs whose records do not say that the cache of another core answered.
    pub fn without_transfers(&self) -> impl Iterator<Item = CpuId> {
        let tells = |on: &OnCpu| on.codes.is_some_and(SourceCodes::tells_transfers);
        self.cpus.iter().filter(move |(_, on)| !tells(on)).map(|(cpu, _)| *cpu)
    }

    /// Losses since the start, by cause.
    pub fn lost(&self) -> &BTreeMap<&'static str, u64> {
        &self.lost
    }

    /// Whether more was written than was taken, so far: stretches and accesses.
    pub fn overwhelmed(&self) -> u64 {
        [TRUNCATED, LEFT_OUT].iter().filter_map(|cause| self.lost.get(cause)).sum()
    }

    /// Samples half as often from the next [`SpeProbe::follow`] on: more was written than was taken.
    pub fn slow_down(&mut self, events: &[SpeEvent]) {
        let now = events.iter().map(|event| event.period).max().unwrap_or(0).max(self.period.unwrap_or(0));
        self.period = Some(now.saturating_mul(2).min(PERIOD_MAX));
        self.cpus = BTreeMap::new();
    }
}

/// Leaves `most` entries of all lists together. Each list has an equal share, and what one does not need is
/// shared among the others. Returns the number of dropped entries.
fn share<T>(lists: &mut [(CpuId, Vec<T>)], most: usize) -> usize {
    let mut lengths: Vec<usize> = lists.iter().map(|(_, list)| list.len()).collect();
    lengths.sort_unstable();
    let (mut room, mut left) = (most, lengths.len());
    for length in lengths {
        let part = room / left;
        if length > part {
            return lists.iter_mut().map(|(_, list)| thin(list, part)).sum();
        }
        (room, left) = (room - length, left - 1);
    }
    0
}

/// Leaves `most` entries of a list, evenly spread: the first and the last ones alone would cover only one
/// part of an interval. Returns the number of dropped ones.
pub fn thin<T>(list: &mut Vec<T>, most: usize) -> usize {
    let (all, mut at) = (list.len(), 0);
    if all <= most {
        return 0;
    }
    list.retain(|_| {
        at += 1;
        at * most / all > (at - 1) * most / all
    });
    all - most
}

/// The offset behind a stretch.
fn end(record: &RingRecord) -> Option<u64> {
    match record {
        RingRecord::Stretch { offset, bytes, .. } => Some(offset.wrapping_add(*bytes)),
        RingRecord::Lost(_) => None,
    }
}

/// Records of the ring, each with a copy of its stretch, and whether the CPU resumes.
///
/// The kernel reports what a CPU has written when half of the area is full, and when the event stops
/// (`arm_spe_perf_aux_output_end` of drivers/perf/arm_spe_pmu.c). So each reading stops it. This also resumes
/// an event that the kernel stopped because its area was full.
fn read(area: &mut dyn Area, lost: &mut BTreeMap<&'static str, u64>) -> (Vec<(RingRecord, Vec<u8>)>, bool) {
    let began = Instant::now();
    let stopped = area.stop();
    let told = records(&area.take());
    let copied = |record: &RingRecord| match *record {
        RingRecord::Stretch { offset, bytes, .. } => area.copy(offset, bytes),
        RingRecord::Lost(_) => Vec::new(),
    };
    let copies: Vec<Vec<u8>> = told.iter().map(copied).collect();
    match told.iter().rev().find_map(end) {
        Some(end) => area.release(end),
        // The written length is unknown: without this it would stay full.
        None if told.iter().any(|record| matches!(record, RingRecord::Lost(_))) => {
            let head = area.head();
            area.release(head);
        }
        None => {}
    }
    let goes_on = stopped.and_then(|()| area.resume()).is_ok();
    *lost.entry(PAUSED).or_default() += u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    (told.into_iter().zip(copies).collect(), goes_on)
}

/// Accesses in the stretches reported by the ring, and losses.
fn accesses(
    told: &[(RingRecord, Vec<u8>)],
    codes: Option<SourceCodes>,
    lost: &mut BTreeMap<&'static str, u64>,
) -> Vec<SpeAccess> {
    let mut found = Vec::new();
    let mut lose = |cause: &'static str, count: u64| {
        if count > 0 {
            *lost.entry(cause).or_default() += count;
        }
    };
    for (record, stretch) in told {
        match *record {
            RingRecord::Stretch { offset, truncated, collision, .. } => {
                lose(TRUNCATED, truncated.into());
                lose(COLLISION, collision.into());
                let mut records = Records::new(stretch, offset);
                found.extend(records.by_ref().filter_map(|record| SpeAccess::of(&record, codes)));
                lose(BAD_BYTES, records.bad());
            }
            RingRecord::Lost(count) => lose(RING_FULL, count),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::model::access::answers::AccessClass;
    use crate::model::access::lines::Transfer;
    use crate::model::event::Event;

    /// A load of user mode by task 0x1234 that a peer core answered, and a store. Written by hand after the
    /// manual: context, code, operation, events, source, address, latency, end.
    const LOAD: &[u8] = &[
        0x65, 0x34, 0x12, 0, 0, 0xb0, 0, 0x10, 0x40, 0, 0, 0, 0, 0x80, 0x49, 0, 0x52, 6, 0, 0x43, 9, 0xb2, 8,
        0x20, 0, 0, 0, 0, 0, 0, 0x98, 200, 0, 0x01,
    ];
    const STORE: &[u8] = &[0x65, 0x35, 0x12, 0, 0, 0x49, 1, 0xb2, 0x10, 0x20, 0, 0, 0, 0, 0, 0, 0x01];

    fn stretch(offset: u64, bytes: usize, missing: bool) -> RingRecord {
        RingRecord::Stretch { offset, bytes: bytes as u64, truncated: missing, collision: missing }
    }

    /// A CPU that writes `fresh` to its area; the ring reports it when the CPU is stopped and not earlier.
    /// Calls go into `deeds`.
    #[derive(Default)]
    struct Written {
        fresh: Vec<u8>,
        area: Vec<u8>,
        ring: Vec<u8>,
        released: u64,
        deeds: Arc<Mutex<Vec<&'static str>>>,
        fails: Option<&'static str>,
    }

    impl Written {
        fn does(&self, what: &'static str) -> io::Result<()> {
            self.deeds.lock().unwrap().push(what);
            let fails = self.fails == Some(what);
            if fails { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
        }
    }

    impl Area for Written {
        fn stop(&mut self) -> io::Result<()> {
            let words = [self.area.len() as u64, self.fresh.len() as u64, 0];
            // PERF_RECORD_AUX is 11.
            self.ring.extend([11_u32.to_ne_bytes(), [0, 0, 32, 0]].concat());
            words.iter().for_each(|word| self.ring.extend(word.to_ne_bytes()));
            self.area.append(&mut self.fresh);
            self.does("stop")
        }

        fn resume(&mut self) -> io::Result<()> {
            self.does("resume")
        }

        fn take(&mut self) -> Vec<u8> {
            std::thread::sleep(std::time::Duration::from_millis(2));
            std::mem::take(&mut self.ring)
        }

        fn copy(&self, offset: u64, bytes: u64) -> Vec<u8> {
            self.does("copy").unwrap();
            self.area[offset as usize..][..bytes as usize].to_vec()
        }

        fn head(&self) -> u64 {
            self.area.len() as u64
        }

        fn release(&mut self, offset: u64) {
            self.does("release").unwrap();
            self.released = offset;
        }
    }

    fn event() -> SpeEvent {
        let (event, without_physical) = (Event::default(), Event::default());
        SpeEvent { event, without_physical, period: 0x40000, threshold: None }
    }

    /// A probe on CPUs that have written these.
    fn probe(areas: Vec<Written>) -> SpeProbe {
        let cpus: Vec<CpuId> = (0..areas.len() as u32).map(CpuId).collect();
        let mut areas = areas.into_iter();
        let mut probe = SpeProbe::opened_by(Box::new(move |_, _, _| {
            let gone = || Missing::Unsupported("it is gone".into());
            Ok(Box::new(areas.next().ok_or_else(gone)?) as Box<dyn Area>)
        }));
        probe.follow(Path::new("/nonexistent"), &cpus, &[event()]).unwrap();
        probe
    }

    #[test]
    fn what_half_an_area_does_not_hold_is_taken_while_the_cpu_stands_still() {
        let deeds = Arc::default();
        let mut probe =
            probe(vec![Written { fresh: LOAD.to_vec(), deeds: Arc::clone(&deeds), ..Written::default() }]);
        assert_eq!(probe.take().iter().map(|(_, access)| access.tid).collect::<Vec<_>>(), [Some(0x1234)]);
        assert_eq!(*deeds.lock().unwrap(), ["stop", "copy", "release", "resume"]);
        assert!(probe.lost()[PAUSED] >= 2_000, "{:?}", probe.lost());
        assert_eq!(probe.lost().len(), 1, "{:?}", probe.lost());
    }

    #[test]
    fn cpus_have_equal_parts_of_the_room_and_what_others_leave() {
        let of = |lengths: &[usize], most: usize| {
            let lists = lengths.iter().map(|length| (CpuId(0), (0..*length).collect::<Vec<usize>>()));
            let mut lists: Vec<_> = lists.collect();
            let gone = share(&mut lists, most);
            let left: Vec<usize> = lists.iter().map(|(_, list)| list.len()).collect();
            assert_eq!(gone + left.iter().sum::<usize>(), lengths.iter().sum::<usize>());
            left
        };
        assert_eq!(of(&[50, 50, 50, 50], 100), [25, 25, 25, 25]);
        assert_eq!(of(&[90, 4, 0, 90], 100), [48, 4, 0, 48]);
        assert_eq!((of(&[30, 30], 60), of(&[], 9)), (vec![30, 30], vec![]));
        assert_eq!(of(&[7, 7, 7], 2), [0, 0, 0], "less than one each");
        // No part of the interval is left out alone.
        let mut list: Vec<usize> = (0..1000).collect();
        assert_eq!(thin(&mut list, 300), 700);
        assert!((0..10).all(|part| list.iter().filter(|at| **at / 100 == part).count() == 30), "{list:?}");
    }

    #[test]
    fn the_highest_cpus_are_not_left_out_where_all_write_much() {
        let cpus = 9;
        let written = |_| Written { fresh: LOAD.repeat(ACCESSES_MAX / 2), ..Written::default() };
        let mut probe = probe((0..cpus).map(written).collect());
        let found = probe.take();
        for cpu in (0..cpus as u32).map(CpuId) {
            assert_eq!(found.iter().filter(|(of, _)| *of == cpu).count(), ACCESSES_MAX / cpus);
        }
        assert_eq!(probe.lost()[LEFT_OUT], (ACCESSES_MAX / 2 * cpus - found.len()) as u64);
    }

    #[test]
    fn a_cpu_that_does_not_go_on_is_opened_again() {
        for fails in ["stop", "resume"] {
            let fresh = LOAD.to_vec();
            let mut probe = probe(vec![Written { fresh, fails: Some(fails), ..Written::default() }]);
            assert_eq!(probe.take().len(), 1, "what it had written counts");
            assert!(probe.cpus.is_empty(), "{fails}");
        }
    }

    #[test]
    fn stretches_become_accesses_with_their_task() {
        let (area, mut lost) = ([LOAD, STORE, &[0xff], LOAD].concat(), BTreeMap::new());
        let copied = |record: RingRecord| match record {
            RingRecord::Stretch { offset, bytes, .. } => {
                (record, area[offset as usize..][..bytes as usize].to_vec())
            }
            RingRecord::Lost(_) => (record, Vec::new()),
        };
        let first = LOAD.len() + STORE.len();
        let told =
            [stretch(0, first, false), stretch(first as u64, area.len() - first, true), RingRecord::Lost(4)];
        let found = accesses(&told.map(copied), Some(SourceCodes::Common), &mut lost);
        let tids: Vec<_> = found.iter().map(|access| access.tid).collect();
        assert_eq!(tids, [Some(0x1234), Some(0x1235), Some(0x1234)]);
        let load = &found[0];
        assert_eq!((load.address, load.code, load.cycles), (Some(0x2008), 0x40_1000, Some(200)));
        assert_eq!(load.class, AccessClass::LocalCache { modified: false });
        assert_eq!((load.transfer, found[1].store, found[1].transfer), (Some(Transfer::Near), true, None));
        assert_eq!(lost, [(TRUNCATED, 1), (COLLISION, 1), (BAD_BYTES, 1), (RING_FULL, 4)].into());
        assert_eq!(told.iter().rev().find_map(end), Some(area.len() as u64));
    }

    #[test]
    fn a_stretch_that_is_not_there_has_no_accesses() {
        let mut lost = BTreeMap::new();
        let told = [(stretch(0, 100, false), Vec::new())];
        assert!(accesses(&told, None, &mut lost).is_empty() && lost.is_empty());
    }

    #[test]
    fn each_time_that_too_much_is_written_the_period_doubles() {
        let (event, mut probe) = (event(), probe(Vec::new()));
        probe.slow_down(std::slice::from_ref(&event));
        assert_eq!(probe.period, Some(0x80000));
        (0..40).for_each(|_| probe.slow_down(std::slice::from_ref(&event)));
        assert_eq!((probe.period, probe.overwhelmed()), (Some(PERIOD_MAX), 0));
    }
}
