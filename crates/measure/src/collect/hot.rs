//! The stack sampler: loads `hot.bpf.c`, opens its event on every CPU, empties its ring. It exists only while
//! hot spots are shown. Dropping it removes it from the kernel.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::Program;
use libbpf_rs::skel::Skel;

use super::sampler::{CpuLinks, SampleRing, ring_bytes};
use super::skel::hot::{HotSkel, HotSkelBuilder};
use super::{maps, object};
use crate::model::event::Event;
use crate::model::sample::Comm;
use crate::model::stacks::{BuildId, Frame, Stack};
use crate::model::units::CpuId;
use crate::model::wire::Wire;
use crate::model::wire::samples::{
    FRAME_HAS_ADDRESS, FRAME_HAS_BUILD_ID, HOT_FRAMES, HOT_LOSSES, HotHead, UserFrame,
};
use crate::pmu::open::Often;
use crate::sys;

/// Maximum samples a second of all CPUs together: user space reads each of them.
const SAMPLES_PER_S: u32 = 20_000;

/// Default samples per second on each CPU. Not a round number: work that is done a hundred times a second
/// would always or never be sampled.
pub const SAMPLES_HZ: u32 = 97;

/// Room for samples between two reads of user space, per CPU. A stack of 16 user and 8 kernel frames takes
/// 632 bytes. At 97 a second the ring is half full after two seconds.
const RING_PER_CPU: u32 = 256 * 1024;
const RING_MAX: u32 = 32 * 1024 * 1024;

/// The event that is sampled, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    pub event: Event,
    /// Times a second on each CPU.
    pub hz: u32,
}

impl Default for Sampling {
    /// A clock, which every machine has.
    fn default() -> Sampling {
        Sampling { event: Event::named("cpu-clock").unwrap_or_default(), hz: SAMPLES_HZ }
    }
}

impl Sampling {
    /// The same for a machine with `cpus` CPUs: bounded in total.
    pub fn bounded(self, cpus: u32) -> Sampling {
        Sampling { hz: self.hz.min((SAMPLES_PER_S / cpus.max(1)).max(1)), ..self }
    }
}

/// The loaded and attached sampler. Dropping it detaches everything.
pub struct HotProbe {
    // Order matters: links go before the object they belong to.
    links: CpuLinks,
    ring: SampleRing<Stack>,
    sampling: Sampling,
    skel: HotSkel<'static>,
}

impl HotProbe {
    /// Loads the sampler and starts it on `cpus`. `records` is the task storage map: with `scoped`, a task
    /// that has a record is in scope. `cgroup_subsys` is as for [`super::tasks::TaskProbe::start`].
    ///
    /// # Errors
    /// Loading failed, or the event cannot be sampled on one of the CPUs.
    pub fn start(
        sampling: Sampling,
        records: &OwnedFd,
        scoped: bool,
        cgroup_subsys: Option<u32>,
        cpus: &[CpuId],
    ) -> Result<HotProbe> {
        let mut open = object::open("hot", HotSkelBuilder::default())?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("hot.bpf.o has no section .rodata")?;
        rodata.cgroup_subsys = cgroup_subsys.map_or(-1, |index| index as i32);
        maps::share(&mut open.maps.task_recs, records)?;
        open.maps.samples.set_max_entries(ring_bytes(cpus.len() as u32, RING_PER_CPU, RING_MAX))?;
        let skel = object::load("hot", open)?;
        let ring = SampleRing::new(&skel.maps.samples, "stacks", parse)?;
        let mut probe = HotProbe { links: CpuLinks::default(), ring, sampling, skel };
        probe.set_scoped(scoped);
        probe.follow(cpus)?;
        Ok(probe)
    }

    /// Samples on these CPUs; stops on CPUs that went offline.
    ///
    /// # Errors
    /// The event cannot be sampled on one of them.
    pub fn follow(&mut self, cpus: &[CpuId]) -> Result<()> {
        let often = Often::Hz(self.sampling.hz);
        self.links.follow(cpus, &self.sampling.event, often, &self.skel.progs.on_sample)
    }

    /// Sets whether tasks without a record are out of scope from now on.
    pub fn set_scoped(&mut self, scoped: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.scoped = u32::from(scoped);
        }
    }

    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The programs that are attached.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        object::programs(self.skel.object())
    }

    /// Moves the content of the ring to our own memory.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn gather(&self) -> Result<()> {
        self.ring.gather()
    }

    /// Becomes readable when the ring is half full.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The samples since the call before.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn take(&self) -> Result<Vec<Stack>> {
        self.ring.take()
    }

    /// Samples that are missing or not whole since the start, by cause.
    pub fn lost(&self) -> BTreeMap<String, u64> {
        let counts = self.skel.maps.bss_data.as_deref().map(|bss| sys::read_variable(&bss.hot_lost));
        HOT_LOSSES
            .iter()
            .zip(counts.unwrap_or_default())
            .map(|(name, count)| (name.to_string(), count))
            .collect()
    }
}

/// A sample as the kernel wrote it. `None` when it contradicts itself.
fn parse(bytes: &[u8]) -> Option<Stack> {
    let head = HotHead::from_bytes(bytes)?;
    let frames = bytes.get(size_of::<HotHead>()..)?;
    let (kernel, user) = frames.split_at_checked(head.kernel_bytes as usize)?;
    let user = user.get(..head.user_bytes as usize)?;
    let address = |word: &[u8]| Some(u64::from_ne_bytes(word.try_into().ok()?));
    let kernel = kernel.chunks_exact(size_of::<u64>()).filter_map(address).map(Frame::Kernel);
    let user =
        user.chunks_exact(size_of::<UserFrame>()).filter_map(UserFrame::from_bytes).filter_map(|frame| {
            match frame.status {
                FRAME_HAS_BUILD_ID => Some(Frame::File(BuildId(frame.build_id), frame.offset_or_ip)),
                FRAME_HAS_ADDRESS if frame.offset_or_ip != 0 => Some(Frame::Address(frame.offset_or_ip)),
                _ => None,
            }
        });
    Some(Stack {
        process: (head.pid, head.leader_start_ns),
        tid: head.tid,
        cgroup_id: head.cgroup_id,
        comm: Comm(head.comm),
        samples: 1,
        frames: kernel.chain(user).take(2 * HOT_FRAMES).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kernel: &[u64], user: &[UserFrame]) -> Vec<u8> {
        let head = HotHead {
            pid: 7,
            tid: 8,
            leader_start_ns: 9,
            cgroup_id: 10,
            comm: *b"postgres\0\0\0\0\0\0\0\0",
            kernel_bytes: kernel.len() as u32 * 8,
            user_bytes: user.len() as u32 * 32,
        };
        let mut bytes = head.as_bytes().to_vec();
        kernel.iter().for_each(|address| bytes.extend(address.to_ne_bytes()));
        user.iter().for_each(|frame| bytes.extend(frame.as_bytes()));
        bytes
    }

    #[test]
    fn kernel_frames_come_before_user_frames() {
        let frame = |status, at| UserFrame { status, build_id: [3; 20], offset_or_ip: at };
        let stack = parse(&bytes(&[1, 2], &[frame(1, 30), frame(2, 40), frame(0, 0)])).unwrap();
        assert_eq!((stack.process, stack.tid, stack.cgroup_id), ((7, 9), 8, 10));
        let expected =
            [Frame::Kernel(1), Frame::Kernel(2), Frame::File(BuildId([3; 20]), 30), Frame::Address(40)];
        assert_eq!(stack.frames[..], expected);
    }

    #[test]
    fn a_cut_sample_is_none() {
        let whole = bytes(&[1], &[UserFrame { status: 1, build_id: [3; 20], offset_or_ip: 5 }]);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn many_cpus_are_sampled_less_often() {
        let sampling = |hz| Sampling { event: Event::named("cpu-clock").unwrap(), hz };
        assert_eq!(sampling(97).bounded(2).hz, 97);
        assert_eq!(sampling(97).bounded(1024).hz, 19);
        assert_eq!(sampling(97).bounded(u32::MAX).hz, 1);
    }
}
