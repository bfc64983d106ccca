//! Sampling with Arm's SPE: an event, its ring and its AUX area on each CPU, and the records that the CPU wrote there.
//!
//! Not verified on hardware.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::pmu::open::open_spe;
use crate::pmu::spe::event::{SpeEvent, source_codes};
use crate::pmu::spe::ring::{RingRecord, records};
use crate::pmu::spe::source::SourceCodes;
use crate::pmu::spe::{Records, SpeAccess};
use crate::sys::AuxRing;

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
/// Stretches of which nothing was told.
const RING_FULL: &str = "spe_ring_full";
/// Bytes that belong to no packet.
const BAD_BYTES: &str = "spe_bad_bytes";
/// Accesses beyond those that are taken at once.
const LEFT_OUT: &str = "spe_left_out";

/// The open events. Dropped, they are closed.
pub struct SpeProbe {
    cpus: BTreeMap<CpuId, OnCpu>,
    /// Operations from one sample to the next, where they have become more than a PMU begins with.
    period: Option<u64>,
    lost: BTreeMap<&'static str, u64>,
}

/// Order matters: the areas go before their event.
struct OnCpu {
    ring: AuxRing,
    _event: OwnedFd,
    codes: Option<SourceCodes>,
}

impl SpeProbe {
    /// Samples on these CPUs, as far as they have one of the PMUs. Files are below `root`.
    ///
    /// # Errors
    /// One of them cannot be sampled.
    pub fn start(root: &Path, cpus: &[CpuId], events: &[SpeEvent]) -> Result<SpeProbe, Missing> {
        let mut probe = SpeProbe { cpus: BTreeMap::new(), period: None, lost: BTreeMap::new() };
        probe.follow(root, cpus, events)?;
        Ok(probe)
    }

    /// Samples on these CPUs, and on those that went offline no longer.
    ///
    /// # Errors
    /// One of them cannot be sampled.
    pub fn follow(&mut self, root: &Path, cpus: &[CpuId], events: &[SpeEvent]) -> Result<(), Missing> {
        self.cpus.retain(|cpu, _| cpus.contains(cpu));
        for spe in events {
            for cpu in cpus.iter().filter(|cpu| spe.event.is_on(**cpu)) {
                if self.cpus.contains_key(cpu) {
                    continue;
                }
                let event = open_spe(spe, *cpu, self.period.unwrap_or(0).max(spe.period))?;
                let pages = AUX_BYTES / rustix::param::page_size();
                let ring = AuxRing::new(&event, RING_PAGES, pages.max(2)).map_err(|error| {
                    let what = format!("mapping the AUX area of {} on CPU {cpu}: {error}", spe.event.name);
                    Missing::Unsupported(what)
                })?;
                self.cpus.insert(*cpu, OnCpu { ring, _event: event, codes: source_codes(root, *cpu) });
            }
        }
        Ok(())
    }

    /// The accesses of programs since the call before, with their CPU.
    pub fn take(&mut self) -> Vec<(CpuId, SpeAccess)> {
        let mut found = Vec::new();
        for (cpu, OnCpu { ring, codes, .. }) in &mut self.cpus {
            let told = records(&ring.take());
            let read = |offset, bytes| ring.aux(offset, bytes);
            let mut accesses = accesses(&told, read, *codes, &mut self.lost);
            match told.iter().rev().find_map(end) {
                Some(end) => ring.release(end),
                // Nothing says how far it was written: without this it would stay full.
                None if told.iter().any(|record| matches!(record, RingRecord::Lost(_))) => {
                    let head = ring.aux_head();
                    ring.release(head);
                }
                None => {}
            }
            let room = ACCESSES_MAX - found.len();
            if accesses.len() > room {
                *self.lost.entry(LEFT_OUT).or_default() += (accesses.len() - room) as u64;
                accesses.truncate(room);
            }
            found.extend(accesses.into_iter().map(|access| (*cpu, access)));
        }
        found
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

/// The offset behind a stretch.
fn end(record: &RingRecord) -> Option<u64> {
    match record {
        RingRecord::Stretch { offset, bytes, .. } => Some(offset.wrapping_add(*bytes)),
        RingRecord::Lost(_) => None,
    }
}

/// Accesses in the stretches that the ring told of, and losses; `read` copies a stretch of the area.
fn accesses(
    told: &[RingRecord],
    read: impl Fn(u64, u64) -> Vec<u8>,
    codes: Option<SourceCodes>,
    lost: &mut BTreeMap<&'static str, u64>,
) -> Vec<SpeAccess> {
    let mut found = Vec::new();
    let mut lose = |cause: &'static str, count: u64| {
        if count > 0 {
            *lost.entry(cause).or_default() += count;
        }
    };
    for record in told {
        match *record {
            RingRecord::Stretch { offset, bytes, truncated, collision } => {
                lose(TRUNCATED, truncated.into());
                lose(COLLISION, collision.into());
                let stretch = read(offset, bytes);
                let mut records = Records::new(&stretch, offset);
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
    use super::*;
    use crate::model::access::class::AccessClass;
    use crate::model::access::lines::Transfer;
    use crate::model::event::Event;

    /// A load of user mode by task 0x1234 that a peer core answered, and a store; written by hand after the manual: context,
    /// code, operation, events, source, address, latency, end.
    const LOAD: &[u8] = &[
        0x65, 0x34, 0x12, 0, 0, 0xb0, 0, 0x10, 0x40, 0, 0, 0, 0, 0x80, 0x49, 0, 0x52, 6, 0, 0x43, 9, 0xb2, 8,
        0x20, 0, 0, 0, 0, 0, 0, 0x98, 200, 0, 0x01,
    ];
    const STORE: &[u8] = &[0x65, 0x35, 0x12, 0, 0, 0x49, 1, 0xb2, 0x10, 0x20, 0, 0, 0, 0, 0, 0, 0x01];

    fn stretch(offset: u64, bytes: usize, missing: bool) -> RingRecord {
        RingRecord::Stretch { offset, bytes: bytes as u64, truncated: missing, collision: missing }
    }

    #[test]
    fn stretches_become_accesses_with_their_task() {
        let (area, mut lost) = ([LOAD, STORE, &[0xff], LOAD].concat(), BTreeMap::new());
        let read = |offset: u64, bytes: u64| area[offset as usize..][..bytes as usize].to_vec();
        let first = LOAD.len() + STORE.len();
        let told =
            [stretch(0, first, false), stretch(first as u64, area.len() - first, true), RingRecord::Lost(4)];
        let found = accesses(&told, read, Some(SourceCodes::Common), &mut lost);
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
        let told = [stretch(0, 100, false)];
        assert!(accesses(&told, |_, _| Vec::new(), None, &mut lost).is_empty() && lost.is_empty());
    }

    #[test]
    fn each_time_that_too_much_is_written_the_period_doubles() {
        let (event, without_physical) = (Event::default(), Event::default());
        let event = SpeEvent { event, without_physical, period: 0x40000, threshold: None };
        let mut probe = SpeProbe { cpus: BTreeMap::new(), period: None, lost: BTreeMap::new() };
        probe.slow_down(std::slice::from_ref(&event));
        assert_eq!(probe.period, Some(0x80000));
        (0..40).for_each(|_| probe.slow_down(std::slice::from_ref(&event)));
        assert_eq!((probe.period, probe.overwhelmed()), (Some(PERIOD_MAX), 0));
    }
}
