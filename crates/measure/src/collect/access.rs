//! The clock sampler of memory use: loads `access.bpf.c`, opens a clock on every CPU, empties its ring. It
//! exists only while access sampling is on. Dropping it removes it from the kernel, with the samples in its
//! ring.

pub mod follow;
pub mod lookup;
pub mod self_check;
pub mod spe;

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapCore, MapFlags, Program};

use super::sampler::{self, CpuLinks, SampleRing, ring_bytes};
use super::skel::access::{AccessSkel, AccessSkelBuilder};
use super::{maps, object};
use crate::access::decode_x86::{self, RSP};
use crate::access::sample::{EventAccess, RawSample, Registers, Stack, Touch, UserState};
use crate::access::{code_x86, decode_a64};
use crate::model::event::Event;
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::model::wire::Wire;
use crate::model::wire::samples::{
    ACCESS_AHEAD, ACCESS_BEFORE, ACCESS_BEHIND, ACCESS_CHOSEN, ACCESS_CODE, ACCESS_EVENT, ACCESS_FROM,
    ACCESS_HAS_STACK, ACCESS_KERNEL, ACCESS_KNOWN, ACCESS_LOSSES, ACCESS_RED_ZONE, ACCESS_STACK,
    ACCESS_TOUCH, ACCESS_WORDS, AccessHead, AccessProcess, TOUCH_FRAMES, TouchHead,
};
use crate::pmu::memory_event::MemoryEvent;
use crate::pmu::open::Often;
use crate::sys;

/// Samples a second on the whole machine: decoding them takes less than 1 % of a CPU.
const SAMPLES_PER_S: u32 = 2000;
/// Times a second that each CPU is sampled, at most and at least. Not round numbers: work that is done a hundred times a
/// second would always or never be seen.
const HZ_MAX: u32 = 97;
const HZ_MIN: u32 = 7;

/// A page fault that needed no disk; its sample has the address.
const FIRST_TOUCH: &str = "minor-faults";
/// A fault takes 0.3 µs longer when the program runs, which is a fifth of its time; huge pages are few.
const FAULTS: Often = Often::OnceIn(4);
/// First touches that may be sampled for each sample of the clock, beyond a burst: memory is touched within seconds and used for
/// hours.
const TOUCHES_PER_SAMPLE: u32 = 10;

/// Room for two seconds of samples until the ring is half full: with the top of the stack one takes 1360 bytes.
const RING_PER_CPU: u32 = 512 * 1024;
const RING_MAX: u32 = 8 * 1024 * 1024;

/// Samples per second on each of `cpus` CPUs.
pub fn rate(cpus: u32) -> u32 {
    (SAMPLES_PER_S / cpus.max(1)).clamp(HZ_MIN, HZ_MAX)
}

/// The clock, which every machine has.
fn clock() -> Event {
    Event::named("cpu-clock").unwrap_or_default()
}

/// The loaded sampler. Dropping it detaches everything.
pub struct AccessProbe {
    // Order matters: links go before the object they belong to.
    links: CpuLinks,
    event_links: CpuLinks,
    store_links: CpuLinks,
    touch_links: CpuLinks,
    ring: SampleRing<RawSample>,
    hz: u32,
    /// The processes that are sampled; `None`: all.
    chosen: Option<Vec<ProcessId>>,
    skel: AccessSkel<'static>,
}

impl AccessProbe {
    /// Loads the sampler; [`AccessProbe::follow`] starts it on CPUs, `hz` times a second on each. `records`
    /// is the task storage map: a task with a record is in scope.
    ///
    /// # Errors
    /// Loading failed.
    pub fn load(records: &OwnedFd, hz: u32, cpus: u32) -> Result<AccessProbe> {
        let mut open = object::open("access", AccessSkelBuilder::default())?;
        maps::share(&mut open.maps.task_recs, records)?;
        open.maps.samples.set_max_entries(ring_bytes(cpus, RING_PER_CPU, RING_MAX))?;
        let skel = object::load("access", open)?;
        let ring = SampleRing::new(&skel.maps.samples, "memory samples", parse)?;
        Ok(AccessProbe {
            links: CpuLinks::default(),
            event_links: CpuLinks::default(),
            store_links: CpuLinks::default(),
            touch_links: CpuLinks::default(),
            ring,
            hz,
            chosen: None,
            skel,
        })
    }

    /// Samples these processes only from now on, [`ACCESS_CHOSEN`] at most; `None`: all.
    ///
    /// # Errors
    /// The errno of bpf(2).
    pub fn choose(&mut self, chosen: Option<&[ProcessId]>) -> Result<()> {
        let chosen = chosen.map(|chosen| chosen[..chosen.len().min(ACCESS_CHOSEN)].to_vec());
        let (before, now) = (self.chosen.take().unwrap_or_default(), chosen.clone().unwrap_or_default());
        let map = &self.skel.maps.chosen_processes;
        let key = |process: &ProcessId| AccessProcess { pid: process.0, zero: 0, leader_start_ns: process.1 };
        for process in before.iter().filter(|process| !now.contains(process)) {
            map.delete(key(process).as_bytes()).context("stopping the sampling of a process")?;
        }
        for process in now.iter().filter(|process| !before.contains(process)) {
            map.update(key(process).as_bytes(), &1_u32.to_ne_bytes(), MapFlags::ANY)
                .context("starting the sampling of another process")?;
        }
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.choosy = u32::from(chosen.is_some());
        }
        self.chosen = chosen;
        Ok(())
    }

    /// Sets the samples per second on each CPU from the next [`AccessProbe::follow`] on; 0: none.
    pub fn set_rate(&mut self, hz: u32) {
        if hz != self.hz {
            (self.links, self.event_links) = (CpuLinks::default(), CpuLinks::default());
            (self.store_links, self.touch_links) = (CpuLinks::default(), CpuLinks::default());
            self.hz = hz;
        }
    }

    /// CPU time of the programs since they were loaded, ns.
    pub fn cost_ns(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| sys::read_variable(&bss.access_ns))
    }

    /// Samples on these CPUs; stops on CPUs that went offline.
    ///
    /// # Errors
    /// The clock cannot be sampled on one of them.
    pub fn follow(&mut self, cpus: &[CpuId]) -> Result<()> {
        if self.hz == 0 {
            return Ok(());
        }
        self.links.follow(cpus, &clock(), Often::Hz(self.hz), &self.skel.progs.on_tick)
    }

    /// Samples these events of a PMU, too, on the CPUs that have them.
    ///
    /// # Errors
    /// One of them cannot be sampled on one of the CPUs.
    pub fn follow_events(&mut self, cpus: &[CpuId], events: &[MemoryEvent]) -> Result<(), Missing> {
        if self.hz == 0 {
            return Ok(());
        }
        self.event_links.follow_memory(cpus, events, self.hz, &self.skel.progs.on_access_event)
    }

    /// Samples stores, too, in the same way: the other side of contended lines.
    ///
    /// # Errors
    /// One of them cannot be sampled on one of the CPUs: then none is.
    pub fn follow_stores(&mut self, cpus: &[CpuId], stores: &[MemoryEvent]) -> Result<(), Missing> {
        if self.hz == 0 {
            return Ok(());
        }
        let followed =
            self.store_links.follow_memory(cpus, stores, self.hz, &self.skel.progs.on_access_event);
        if followed.is_err() {
            self.store_links = CpuLinks::default();
        }
        followed
    }

    /// Samples first touches on these CPUs; stops on CPUs that went offline.
    ///
    /// # Errors
    /// Page faults cannot be sampled on one of them: then they are on none.
    pub fn follow_touches(&mut self, cpus: &[CpuId]) -> Result<()> {
        if self.hz == 0 {
            return Ok(());
        }
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.touch_interval_ns = 1_000_000_000 / u64::from(self.hz * TOUCHES_PER_SAMPLE);
        }
        let event = Event::named(FIRST_TOUCH)?;
        let followed = self.touch_links.follow(cpus, &event, FAULTS, &self.skel.progs.on_first_touch);
        if followed.is_err() {
            self.touch_links = CpuLinks::default();
        }
        followed
    }

    fn attach(&self, fd: OwnedFd) -> Result<Link> {
        sampler::attach(&self.skel.progs.on_tick, fd)
    }

    /// Sets whether tasks without a record are out of scope from now on.
    pub fn set_scoped(&mut self, scoped: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.scoped = u32::from(scoped);
        }
    }

    /// The programs that are attached.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        object::programs(self.skel.object())
    }

    /// Becomes readable when the ring is half full.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The samples since the call before.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn take(&self) -> Result<Vec<RawSample>> {
        self.ring.take()
    }

    /// Samples that are missing since the start, by cause.
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.skel.maps.bss_data.as_deref().map(|bss| sys::read_variable(&bss.access_lost));
        ACCESS_LOSSES.iter().copied().zip(counts.unwrap_or_default()).collect()
    }
}

/// A sample as the kernel wrote it. `None` when it contradicts itself.
fn parse(bytes: &[u8]) -> Option<RawSample> {
    let head = AccessHead::from_bytes(bytes)?;
    let process = (head.pid, head.leader_start_ns);
    let cpu = CpuId(head.cpu);
    if head.flags & ACCESS_EVENT != 0 {
        let event = event(head.flags, bytes.get(size_of::<AccessHead>()..)?)?;
        // An access of the kernel itself does not belong to the program.
        let event = if head.flags & ACCESS_KERNEL != 0 { EventAccess::default() } else { event };
        return Some(RawSample { process, tid: head.tid, cpu, user: None, event: Some(event), touch: None });
    }
    if head.flags & ACCESS_TOUCH != 0 {
        let touch = Some(touch(bytes)?);
        return Some(RawSample { process, tid: head.tid, cpu, user: None, event: None, touch });
    }
    let user = if head.flags & ACCESS_KERNEL != 0 {
        None
    } else {
        let rest = bytes.get(size_of::<AccessHead>()..)?;
        let (code, words) = rest.split_at_checked(ACCESS_CODE)?;
        let mut registers = [0; ACCESS_WORDS];
        let (words, stack) = words.split_at_checked(ACCESS_WORDS * size_of::<u64>())?;
        for (register, word) in registers.iter_mut().zip(words.chunks_exact(size_of::<u64>())) {
            *register = u64::from_ne_bytes(word.try_into().ok()?);
        }
        let from = if head.flags & ACCESS_BEHIND != 0 { 0 } else { ACCESS_BEFORE };
        let to = if head.flags & ACCESS_AHEAD != 0 { ACCESS_BEFORE + ACCESS_FROM } else { from };
        let code = code.get(from..to)?.into();
        let registers = named(&registers);
        let stack = match &registers {
            Registers::X86(registers) if head.flags & ACCESS_HAS_STACK != 0 => Stack {
                start: registers.general[RSP].wrapping_sub(ACCESS_RED_ZONE as u64),
                bytes: stack.get(..ACCESS_STACK)?.into(),
            },
            _ => Stack::default(),
        };
        Some(UserState { registers, code, before: ACCESS_BEFORE - from, stack })
    };
    Some(RawSample { process, tid: head.tid, cpu, user, event: None, touch: None })
}

/// The words of a sampled event, as far as they are known.
fn event(flags: u32, words: &[u8]) -> Option<EventAccess> {
    let mut known = [None; ACCESS_KNOWN.len()];
    let (words, rest) = words.split_at_checked(size_of::<u64>() * ACCESS_KNOWN.len())?;
    let code = u64::from_ne_bytes(*rest.first_chunk()?);
    for ((known, flag), word) in known.iter_mut().zip(ACCESS_KNOWN).zip(words.chunks_exact(size_of::<u64>()))
    {
        let word = u64::from_ne_bytes(word.try_into().ok()?);
        *known = Some(word).filter(|_| flags & flag != 0);
    }
    let [address, physical, source, weight] = known;
    // Drivers that know no address say 0.
    let nonzero = |word: &u64| *word != 0;
    Some(EventAccess {
        address: address.filter(nonzero),
        physical: physical.filter(nonzero),
        source,
        cycles: weight.map(|weight| weight as u32),
        code,
    })
}

/// A first touch with its stack.
fn touch(bytes: &[u8]) -> Option<Touch> {
    let head = TouchHead::from_bytes(bytes)?;
    let words = bytes.get(size_of::<TouchHead>()..)?.get(..head.stack_bytes as usize)?;
    let address = |word: &[u8]| Some(u64::from_ne_bytes(word.try_into().ok()?));
    Some(Touch {
        address: head.address,
        stack: words.chunks_exact(size_of::<u64>()).filter_map(address).take(TOUCH_FRAMES).collect(),
        caller: Some(head.caller).filter(|_| is_call(head.call)),
        hint_faults: head.hint_faults,
        faults: head.faults,
    })
}

/// Whether code in front of an address ends with a call.
fn is_call(code: [u8; 8]) -> bool {
    if cfg!(target_arch = "aarch64") {
        let [.., a, b, c, d] = code;
        return decode_a64::is_call(u32::from_le_bytes([a, b, c, d]));
    }
    code_x86::ends_with_call(&code)
}

/// Registers by their numbers in instructions.
fn named(words: &[u64; ACCESS_WORDS]) -> Registers {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    if cfg!(target_arch = "aarch64") {
        let general = std::array::from_fn(word);
        return Registers::A64(decode_a64::Registers { general, sp: word(31), pc: word(32) });
    }
    // Places of rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15 in struct pt_regs.
    const PLACES: [usize; 16] = [10, 11, 12, 5, 19, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0];
    /// Selector of code of 32 bits (arch/x86/include/asm/segment.h).
    const CS_32: u64 = 0x23;
    Registers::X86(decode_x86::Registers {
        general: PLACES.map(word),
        ip: word(16),
        flags: word(18),
        fs_base: word(21),
        compat: word(17) & 0xffff == CS_32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(flags: u32) -> Vec<u8> {
        let head = AccessHead { pid: 7, tid: 8, leader_start_ns: 9, cpu: 1, flags };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend((0..ACCESS_CODE).map(|at| at as u8));
        (0..ACCESS_WORDS as u64).for_each(|word| bytes.extend((word + 1000).to_ne_bytes()));
        bytes
    }

    #[test]
    fn code_is_what_could_be_read() {
        let code = |flags| {
            let user = parse(&bytes(flags)).unwrap().user.unwrap();
            (user.code().before.len(), user.code().from.len())
        };
        assert_eq!(code(ACCESS_AHEAD | ACCESS_BEHIND), (ACCESS_BEFORE, ACCESS_FROM));
        assert_eq!(code(ACCESS_AHEAD), (0, ACCESS_FROM));
        assert_eq!(code(0), (0, 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_stack_begins_below_its_pointer_and_is_there_where_it_was_read() {
        let both = ACCESS_AHEAD | ACCESS_BEHIND;
        let whole = [bytes(both | ACCESS_HAS_STACK), (0..ACCESS_STACK).map(|at| at as u8).collect()].concat();
        let stack = parse(&whole).unwrap().user.unwrap().stack;
        // rsp is the word 19 of pt_regs.
        assert_eq!((stack.start, stack.bytes.len()), (1019 - ACCESS_RED_ZONE as u64, ACCESS_STACK));
        assert_eq!([stack.get(1019), stack.get(1020), stack.get(1019 + 896)], [Some(128), Some(129), None]);
        assert!(parse(&bytes(both)).unwrap().user.unwrap().stack.bytes.is_empty());
        assert!(parse(&whole[..whole.len() - 1]).is_none(), "it is cut off");
    }

    #[test]
    fn a_sample_in_the_kernel_has_no_registers() {
        let sample = parse(&bytes(ACCESS_KERNEL)[..size_of::<AccessHead>()]).unwrap();
        assert!(sample.user.is_none());
        assert_eq!((sample.process, sample.tid, sample.cpu), ((7, 9), 8, CpuId(1)));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_have_the_numbers_of_instructions() {
        let user = parse(&bytes(ACCESS_AHEAD)).unwrap().user.unwrap();
        let Registers::X86(registers) = user.registers else { panic!("not x86") };
        let of = |number: usize| registers.general[number] - 1000;
        // rax, rsp, r8, r15 in the order of struct pt_regs.
        assert_eq!((of(0), of(4), of(8), of(15)), (10, 19, 9, 0));
        assert_eq!((registers.ip, registers.fs_base), (1016, 1021));
    }

    #[test]
    fn an_event_has_the_words_that_are_known() {
        let of = |known: u32| {
            let flags = ACCESS_EVENT | known;
            let head = AccessHead { pid: 7, tid: 8, leader_start_ns: 9, cpu: 1, flags };
            let mut bytes = head.as_bytes().to_vec();
            [0x1000_u64, 0x2000, 0x42, 5 << 32 | 300, 0x4000]
                .iter()
                .for_each(|word| bytes.extend(word.to_ne_bytes()));
            assert!((0..bytes.len()).all(|cut| parse(&bytes[..cut]).is_none()));
            let event = parse(&bytes).unwrap().event.unwrap();
            assert_eq!(event.code, if known & ACCESS_KERNEL != 0 { 0 } else { 0x4000 });
            (event.address, event.physical, event.source, event.cycles)
        };
        assert_eq!(of(16 | 32 | 64 | 128), (Some(0x1000), Some(0x2000), Some(0x42), Some(300)));
        assert_eq!(of(16 | 64), (Some(0x1000), None, Some(0x42), None));
        assert_eq!(of(16 | 32 | 64 | 128 | ACCESS_KERNEL), (None, None, None, None));
    }

    #[test]
    fn a_first_touch_has_its_stack_and_a_caller_only_behind_a_call() {
        let of = |call: [u8; 8], stack: &[u64]| {
            let head = AccessHead { pid: 7, tid: 8, leader_start_ns: 9, cpu: 1, flags: ACCESS_TOUCH };
            let stack_bytes = size_of_val(stack) as u32;
            let touch = TouchHead {
                head,
                address: 0x7000,
                caller: 0x4005,
                call,
                hint_faults: 3,
                stack_bytes,
                faults: 16,
                zero: 0,
            };
            let mut bytes = touch.as_bytes().to_vec();
            stack.iter().for_each(|address| bytes.extend(address.to_ne_bytes()));
            assert!((0..bytes.len()).all(|cut| parse(&bytes[..cut]).is_none()));
            let sample = parse(&bytes).unwrap();
            assert!(sample.user.is_none() && sample.event.is_none());
            sample.touch.unwrap()
        };
        // call rel32 behind three nops; bl behind a nop of arm64.
        let call = if cfg!(target_arch = "aarch64") {
            [0x1f, 0x20, 0x03, 0xd5, 0x10, 0, 0, 0x94]
        } else {
            [0x90, 0x90, 0x90, 0xe8, 0x10, 0, 0, 0]
        };
        let touch = of(call, &[0x100, 0x101]);
        assert_eq!(
            (touch.address, touch.caller, touch.hint_faults, touch.faults),
            (0x7000, Some(0x4005), 3, 16)
        );
        assert_eq!(touch.stack, [0x100, 0x101]);
        assert_eq!(of([0x90; 8], &[]).caller, None);
    }

    #[test]
    fn a_cut_sample_is_none() {
        let whole = bytes(ACCESS_AHEAD);
        (0..whole.len()).for_each(|cut| assert!(parse(&whole[..cut]).is_none(), "cut at {cut}"));
    }

    #[test]
    fn many_cpus_are_sampled_less_often() {
        assert_eq!((rate(2), rate(64), rate(1024)), (97, 31, 7));
    }
}
