//! Perf events and their rings.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::libbpf_sys as sys;

use super::{checked, owned};

/// perf_event_open(2), in the group of `leader` or without one; the size of `attr` is filled in.
///
/// # Errors
/// Its errno.
pub fn perf_event_open(
    mut attr: sys::perf_event_attr,
    pid: i32,
    cpu: i32,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    let group = leader.map_or(-1, |leader| leader.as_raw_fd());
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    // SAFETY: attr has the size that it states, and outlives the call. The kernel copies whatever else it points to, and
    // fails with EFAULT where it cannot.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC)
    })?;
    // SAFETY: perf_event_open(2) made it.
    Ok(unsafe { owned(fd as c_int) })
}

/// Starts or stops counting or sampling of an event. When an event stops, the ring gets records of everything
/// written to its AUX area (`perf_aux_output_end` of kernel/events/ring_buffer.c).
///
/// # Errors
/// The errno of ioctl(2).
pub fn perf_event_run(fd: impl AsFd, on: bool) -> io::Result<()> {
    /// `_IO('$', 0)` and `_IO('$', 1)`.
    const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
    const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
    let request = if on { PERF_EVENT_IOC_ENABLE } else { PERF_EVENT_IOC_DISABLE };
    // SAFETY: an ioctl(2) that has a number as its argument.
    checked(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, 0) }.into())?;
    Ok(())
}

/// The ring of a perf event, and the AUX area beside it, which the CPU itself writes to. Offsets count on beyond the size of
/// the area (perf_event_open(2), "MMAP layout").
pub struct AuxRing {
    /// The page of the kernel's words, and the ring behind it.
    head: NonNull<u8>,
    ring_bytes: usize,
    /// None where the event has no AUX area.
    aux: Option<NonNull<u8>>,
    aux_bytes: usize,
}

// SAFETY: it points to memory that is ours as long as it lives, whatever the thread.
unsafe impl Send for AuxRing {}

/// Words of `struct perf_event_mmap_page`, by their first byte: include/uapi/linux/perf_event.h.
#[derive(Clone, Copy)]
enum RingWord {
    DataHead = 1024,
    DataTail = 1032,
    AuxHead = 1056,
    AuxTail = 1064,
    AuxOffset = 1072,
    AuxSize = 1080,
}

impl AuxRing {
    /// Maps the ring of the event behind `fd`, with an AUX area of `aux_pages` pages or without one, and
    /// starts the event. Both numbers of pages are powers of two.
    ///
    /// # Errors
    /// The errno of mmap(2) or ioctl(2).
    pub fn new(fd: impl AsFd, ring_pages: usize, aux_pages: usize) -> io::Result<AuxRing> {
        let page = rustix::param::page_size();
        let (ring_bytes, aux_bytes) = (ring_pages * page, aux_pages * page);
        let fd = fd.as_fd();
        let map = |len: usize, offset: usize| {
            let (rights, at) = (libc::PROT_READ | libc::PROT_WRITE, offset as libc::off_t);
            // SAFETY: a new mapping at an address of the kernel's choice.
            let at =
                unsafe { libc::mmap(ptr::null_mut(), len, rights, libc::MAP_SHARED, fd.as_raw_fd(), at) };
            match NonNull::new(at.cast::<u8>()) {
                Some(mapped) if at != libc::MAP_FAILED => Ok(mapped),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let mut ring = AuxRing { head: map(page + ring_bytes, 0)?, ring_bytes, aux: None, aux_bytes };
        if aux_pages > 0 {
            let offset = page + ring_bytes;
            ring.word(RingWord::AuxOffset).store(offset as u64, Ordering::Relaxed);
            ring.word(RingWord::AuxSize).store(aux_bytes as u64, Ordering::Relaxed);
            ring.aux = Some(map(aux_bytes, offset)?);
        }
        perf_event_run(fd, true)?;
        Ok(ring)
    }

    fn word(&self, word: RingWord) -> &AtomicU64 {
        // SAFETY: inside of the first page, which is mapped as long as this lives, and aligned to eight bytes. The kernel
        // reads and writes these words as a whole.
        unsafe { AtomicU64::from_ptr(self.head.as_ptr().add(word as usize).cast()) }
    }

    /// Takes the records out of the ring, as the kernel wrote them.
    pub fn take(&mut self) -> Vec<u8> {
        let head = self.word(RingWord::DataHead).load(Ordering::Acquire);
        let tail = self.word(RingWord::DataTail).load(Ordering::Relaxed);
        // SAFETY: the ring is behind the first page, and the kernel writes nothing between tail and head.
        let bytes = unsafe {
            let ring = self.head.add(rustix::param::page_size());
            copied(ring, self.ring_bytes, tail, head.wrapping_sub(tail))
        };
        self.word(RingWord::DataTail).store(head, Ordering::Release);
        bytes
    }

    /// A copy of the stretch of the AUX area that begins at `offset`, as given by a record of the ring.
    pub fn aux(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let Some(aux) = self.aux else { return Vec::new() };
        // SAFETY: the area is mapped with this length as long as this lives; the CPU writes to no stretch before it is
        // released.
        unsafe { copied(aux, self.aux_bytes, offset, bytes) }
    }

    /// Lets the CPU write to the AUX area again up to `offset`.
    pub fn release(&mut self, offset: u64) {
        self.word(RingWord::AuxTail).store(offset, Ordering::Release);
    }

    /// The offset up to which the CPU has written.
    pub fn aux_head(&self) -> u64 {
        self.word(RingWord::AuxHead).load(Ordering::Acquire)
    }
}

/// A copy of `bytes` bytes from `offset` on of a ring of `len` bytes, at most the whole ring.
///
/// # Safety
/// The ring is mapped, and not written to meanwhile where it is copied.
unsafe fn copied(ring: NonNull<u8>, len: usize, offset: u64, bytes: u64) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    let bytes = bytes.min(len as u64) as usize;
    let from = (offset % len as u64) as usize;
    let first = bytes.min(len - from);
    let mut copy = vec![0; bytes];
    // SAFETY: both parts lie inside of the ring and of the copy, and add up to its length.
    unsafe {
        ptr::copy_nonoverlapping(ring.as_ptr().add(from), copy.as_mut_ptr(), first);
        ptr::copy_nonoverlapping(ring.as_ptr(), copy.as_mut_ptr().add(first), bytes - first);
    }
    copy
}

impl Drop for AuxRing {
    fn drop(&mut self) {
        // SAFETY: both were mapped by us with these lengths, and are unmapped once: nothing borrows from them.
        unsafe {
            if let Some(aux) = self.aux {
                libc::munmap(aux.as_ptr().cast(), self.aux_bytes);
            }
            libc::munmap(self.head.as_ptr().cast(), rustix::param::page_size() + self.ring_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PageAdvice, Region, WORD};
    use super::*;

    #[test]
    fn a_ring_has_the_records_of_its_event() {
        // PERF_COUNT_SW_PAGE_FAULTS_MIN, each of them, of this thread.
        let mut attr = sys::perf_event_attr { type_: 1, config: 5, ..Default::default() };
        attr.__bindgen_anon_1.sample_period = 1;
        attr.sample_type = u64::from(sys::PERF_SAMPLE_IP);
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        let Ok(fd) = perf_event_open(attr, 0, -1, None) else {
            println!("perf events are not permitted here: the ring is tested by root only");
            return;
        };
        let mut ring = AuxRing::new(&fd, 1, 0).unwrap();
        let page = rustix::param::page_size();
        let mut bytes = Vec::new();
        // Enough for the ring to wrap around: a record of 16 bytes for each fault.
        for _ in 0..12 {
            let mut region = Region::new(1).unwrap();
            region.advise(PageAdvice::Small).unwrap();
            let words = region.words_mut();
            words[..64 * page / WORD].iter_mut().step_by(page / WORD).for_each(|word| *word = 1);
            bytes.extend(ring.take());
        }
        // PERF_RECORD_SAMPLE is 9; its size is in the last two bytes of the header.
        let samples =
            bytes.chunks_exact(16).filter(|record| record[..8] == [9, 0, 0, 0, 2, 0, 16, 0]).count();
        assert!(samples >= 12 * 64, "{samples} samples in {} bytes", bytes.len());
        assert!(ring.aux(0, 100).is_empty() && ring.aux_head() == 0);
        let mut touched = || {
            let mut region = Region::new(1).unwrap();
            region.advise(PageAdvice::Small).unwrap();
            region.words_mut()[0] = 1;
            ring.take().len()
        };
        perf_event_run(&fd, false).unwrap();
        touched();
        assert_eq!(touched(), 0, "it was stopped");
        perf_event_run(&fd, true).unwrap();
        assert!(touched() > 0);
        // Software events have no AUX area.
        assert!(AuxRing::new(&fd, 1, 2).is_err());
    }

    #[test]
    fn a_ring_is_copied_around_its_end() {
        let mut bytes: Vec<u8> = (0..16).collect();
        let ring = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the vector is as long as that, and nothing else uses it.
        let of = |offset, bytes| unsafe { copied(ring, 16, offset, bytes) };
        assert_eq!(of(3, 2), [3, 4]);
        assert_eq!(of(14 + 32, 4), [14, 15, 0, 1]);
        assert_eq!(of(8, 999), [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(of(u64::MAX, 0).is_empty());
    }
}
