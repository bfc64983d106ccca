//! The parts that samplers have in common: a ring that their program fills, and an event on each CPU that runs it.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, MapCore, ProgramMut, RingBuffer, RingBufferBuilder};

use crate::model::event::Event;
use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::pmu::memory_event::MemoryEvent;
use crate::pmu::open::{Often, OpenMemoryEvent, open_memory_event, open_sampling};
use crate::sys;

/// Bytes of a ring at least.
const RING_MIN: u32 = 1024 * 1024;

/// Bytes of a ring for `cpus` CPUs, with `per_cpu` for each, and `most` at most.
pub(super) fn ring_bytes(cpus: u32, per_cpu: u32, most: u32) -> u32 {
    cpus.saturating_mul(per_cpu).next_power_of_two().clamp(RING_MIN, most)
}

/// Samples on their way from the kernel.
pub(super) struct SampleRing<T> {
    ring: RingBuffer<'static>,
    pending: Arc<Mutex<Vec<T>>>,
    /// The plural of its elements.
    what: &'static str,
}

impl<T: 'static> SampleRing<T> {
    /// Maps the ring. `parse` is `None` for bytes that contradict themselves: they are dropped.
    ///
    /// # Errors
    /// The ring could not be mapped.
    pub(super) fn new(
        map: &impl MapCore,
        what: &'static str,
        parse: fn(&[u8]) -> Option<T>,
    ) -> Result<SampleRing<T>> {
        let pending: Arc<Mutex<Vec<T>>> = Arc::default();
        let sink = Arc::clone(&pending);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes| {
                if let Some(sample) = parse(bytes) {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                }
                0
            })
            .with_context(|| format!("mapping the ring of {what}"))?;
        let ring = builder.build().with_context(|| format!("mapping the ring of {what}"))?;
        Ok(SampleRing { ring, pending, what })
    }

    /// Moves the content of the ring to our own memory.
    ///
    /// # Errors
    /// The ring could not be read.
    pub(super) fn gather(&self) -> Result<()> {
        self.ring.consume().with_context(|| format!("reading the ring of {}", self.what))
    }

    /// The samples since the call before.
    ///
    /// # Errors
    /// The ring could not be read.
    pub(super) fn take(&self) -> Result<Vec<T>> {
        self.gather()?;
        Ok(std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Becomes readable when the ring is half full.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        sys::ring_fd(&self.ring)
    }
}

/// A program on an event of each CPU. Each link owns the descriptor of its event.
#[derive(Default)]
pub(super) struct CpuLinks(BTreeMap<CpuId, OnCpu>);

/// Order matters: the link goes before the leader of its event.
struct OnCpu {
    _link: Link,
    _leader: Option<OwnedFd>,
}

impl CpuLinks {
    /// Samples `event` on these CPUs, where they have it; stops on CPUs that went offline.
    ///
    /// # Errors
    /// The event cannot be sampled on one of them.
    pub(super) fn follow(
        &mut self,
        cpus: &[CpuId],
        event: &Event,
        often: Often,
        program: &ProgramMut<'_>,
    ) -> Result<()> {
        self.keep(cpus);
        for cpu in cpus.iter().filter(|cpu| event.is_on(**cpu)) {
            if self.0.contains_key(cpu) {
                continue;
            }
            match open_sampling(event, *cpu, often) {
                Ok(fd) => self.attach(*cpu, program, (fd, None), &event.name)?,
                Err(why) => bail!("{why}"),
            }
        }
        Ok(())
    }

    /// The same for events whose samples have addresses: each on the CPUs that have it.
    ///
    /// # Errors
    /// An event cannot be sampled on one of them.
    pub(super) fn follow_memory(
        &mut self,
        cpus: &[CpuId],
        events: &[MemoryEvent],
        hz: u32,
        program: &ProgramMut<'_>,
    ) -> Result<(), Missing> {
        self.keep(cpus);
        for event in events {
            for cpu in cpus.iter().filter(|cpu| event.event.is_on(**cpu)) {
                if self.0.contains_key(cpu) {
                    continue;
                }
                let OpenMemoryEvent { fd, leader } = open_memory_event(event, *cpu, hz)?;
                let attached = self.attach(*cpu, program, (fd, leader), &event.event.name);
                attached.map_err(|error| Missing::Unsupported(format!("{error:#}")))?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, cpus: &[CpuId]) {
        self.0.retain(|cpu, _| cpus.contains(cpu));
    }

    fn attach(
        &mut self,
        cpu: CpuId,
        program: &ProgramMut<'_>,
        (fd, leader): (OwnedFd, Option<OwnedFd>),
        name: &str,
    ) -> Result<()> {
        let link = attach(program, fd).with_context(|| format!("attaching to {name} on CPU {cpu}"))?;
        self.0.insert(cpu, OnCpu { _link: link, _leader: leader });
        Ok(())
    }
}

/// Has the program run with each sample of the event behind `fd`.
///
/// # Errors
/// The errno of the kernel.
pub(super) fn attach(program: &ProgramMut<'_>, fd: OwnedFd) -> Result<Link> {
    let link = program.attach_perf_event(fd.as_raw_fd())?;
    // libbpf closes it with the link.
    let _ = fd.into_raw_fd();
    Ok(link)
}
