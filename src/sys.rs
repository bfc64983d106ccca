//! Safe functions for the system calls and C functions that no crate wraps safely. All unsafe code of the crate is here and in
//! known/asm.rs: the lint table denies it elsewhere.
#![expect(unsafe_code, reason = "calls C")]

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use bytemuck::Pod;
use libbpf_rs::libbpf_sys as sys;

const WORD: usize = size_of::<u64>();

/// The result of a C function that returns -1 and sets errno.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The result of a function of libbpf, which returns a negative errno.
fn checked_by_libbpf(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// The descriptor that a system call returned.
///
/// # Safety
/// The call has made it, so that nothing else owns it.
unsafe fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the caller says so.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

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

/// The nodes of the pages at `addresses` of a process, or a negative errno for each that is not there. Moves nothing.
///
/// # Errors
/// The errno of move_pages(2).
pub fn nodes_of_pages(pid: u32, addresses: &[u64]) -> io::Result<Vec<i32>> {
    // Should the kernel leave one as it is, it counts as not there.
    let mut status = vec![-libc::ENOENT; addresses.len()];
    // SAFETY: both arrays have the length that is passed, and outlive the call; without nodes nothing is moved.
    checked(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len() as libc::c_ulong,
            addresses.as_ptr(),
            ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    })?;
    Ok(status)
}

/// Fills `bytes` with memory of a process from `address` on. Returns how many were read: fewer where a page is not there.
/// Memory of devices is not read.
///
/// # Errors
/// The errno of process_vm_readv(2): EFAULT where the first page is not there, EPERM without CAP_SYS_PTRACE.
pub fn read_memory(pid: u32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as usize as *mut c_void, iov_len: bytes.len() };
    // SAFETY: both vectors outlive the call, and the local one names bytes that are ours to write; the kernel checks the
    // other one in the address space of that process.
    let got = checked(unsafe {
        libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0)
            as libc::c_long
    })?;
    Ok(got as usize)
}

/// `struct page_region` of include/uapi/linux/fs.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PageRegion {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// `struct pm_scan_arg` without what [`pagemap_scan`] fills in.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageScan {
    pub start: u64,
    pub end: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub return_mask: u64,
}

/// The ioctl PAGEMAP_SCAN (Linux 6.7): how many of `regions` it filled, and the address at which it stopped.
///
/// # Errors
/// Its errno: ENOTTY or EINVAL before 6.7.
pub fn pagemap_scan(
    pagemap: impl AsFd,
    scan: &PageScan,
    regions: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    /// `struct pm_scan_arg`.
    #[repr(C)]
    struct Arg {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        vec: u64,
        vec_len: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }
    /// `_IOWR('f', 16, struct pm_scan_arg)`, the same on all architectures we run on.
    const PAGEMAP_SCAN: u64 = 0xc060_6610;
    let mut arg = Arg {
        size: size_of::<Arg>() as u64,
        flags: 0,
        start: scan.start,
        end: scan.end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: scan.max_pages,
        category_inverted: scan.category_inverted,
        category_mask: scan.category_mask,
        category_anyof_mask: 0,
        return_mask: scan.return_mask,
    };
    // SAFETY: arg and regions outlive the call and have the sizes that arg states.
    let count = checked(libc::c_long::from(unsafe {
        libc::ioctl(pagemap.as_fd().as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg)
    }))?;
    Ok(((count as usize).min(regions.len()), arg.walk_end))
}

/// Sets the user and group as which this thread meets the file system. Returns those before. The kernel ignores what it
/// does not permit.
pub fn set_fs_ids(uid: u32, gid: u32) -> (u32, u32) {
    // SAFETY: both take any number, and change ids of this thread only. The group comes first: a thread that is another
    // user may not change it.
    let before = unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
    (before.1 as u32, before.0 as u32)
}

/// Closes all descriptors but the standard streams in whatever program this process executes next. Before Linux 5.11
/// there is no such call, and those that were inherited stay open.
pub fn close_on_exec() {
    // SAFETY: a flag of descriptors changes, and none is closed as long as this program runs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Has threads share two heaps: with one for each, as glibc has it, those that do little keep 2 MB that nothing uses.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes the lock of the heap, and any number.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Does `work` while this thread gets no signals.
pub fn with_signals_held<T>(work: impl FnOnce() -> T) -> T {
    /// Puts the mask back, also when `work` panics.
    struct Before(libc::sigset_t);

    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: the set is initialised: the kernel wrote it.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
        }
    }

    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: sigfillset initialises `all`, and both sets outlive the calls. A zeroed set is a valid, empty one.
    let _before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        Before(before.assume_init())
    };
    work()
}

/// From now on `signal` is noted in `first` if that is 0, and makes the other end of `wake` readable.
///
/// # Errors
/// No handler can be set for it.
pub fn note_signal(signal: c_int, first: &'static AtomicI32, wake: &'static UnixStream) -> io::Result<()> {
    let fd = wake.as_raw_fd();
    let note = move || {
        let _ = first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        // SAFETY: errno is a variable of this thread, the byte outlives the call, and the descriptor stays open, as
        // the socket is borrowed for good. A full socket is readable already.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::send(fd, [0u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            *errno = before;
        }
    };
    // SAFETY: an atomic and send(2) are all the handler does, both async-signal-safe, and errno is as it was.
    unsafe { signal_hook::low_level::register(signal, note) }?;
    Ok(())
}

/// From now on `count` goes up with each `signal`.
///
/// # Errors
/// No handler can be set for it.
pub fn count_signal(signal: c_int, count: &'static AtomicU64) -> io::Result<()> {
    let note = || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: an atomic is all the handler touches, which is async-signal-safe.
    unsafe { signal_hook::low_level::register(signal, note) }?;
    Ok(())
}

/// From now on `signal` does nothing.
pub fn ignore_signal(signal: c_int) {
    // SAFETY: no function is handed over; a signal that cannot be ignored is refused.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// From now on `signal` does what it does to a program that has said nothing about it.
pub fn default_signal(signal: c_int) {
    // SAFETY: no function is handed over; a signal without another action is refused.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Sends `signal` to one thread of this process; nothing happens when it has ended.
pub fn signal_thread(tid: i32, signal: c_int) {
    // SAFETY: tgkill(2) takes any numbers, and reaches threads of this process only.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id() as libc::pid_t, tid, signal) };
}

/// The descriptor that becomes readable when a ring has something.
pub fn ring_fd<'a>(ring: &'a libbpf_rs::RingBuffer<'_>) -> BorrowedFd<'a> {
    // SAFETY: the ring owns the descriptor, and closes it when it is dropped, which is after 'a.
    unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }
}

/// A variable of a BPF program, which the kernel may change at any time.
pub fn read_variable<T: Copy>(variable: &T) -> T {
    // SAFETY: a reference is valid and aligned for a read.
    unsafe { ptr::read_volatile(variable) }
}

/// Switches on the kernel's statistics of BPF programs until what is returned is closed.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn enable_bpf_stats() -> io::Result<OwnedFd> {
    // SAFETY: takes a number only.
    let fd = checked_by_libbpf(unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) })?;
    // SAFETY: bpf(2) made it.
    Ok(unsafe { owned(fd) })
}

/// The kernel's information on a BPF program, without its arrays.
///
/// # Errors
/// The errno of BPF_OBJ_GET_INFO_BY_FD.
pub fn bpf_program_info(program: BorrowedFd<'_>) -> io::Result<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: info has the size that is stated, outlives the call, and has no arrays that could be written to.
    let result = unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    checked_by_libbpf(result)?;
    Ok(info)
}

/// The ids of types for keys and values in a [`Btf`] that was loaded.
#[derive(Clone, Copy, Debug)]
pub struct KeyAndValue {
    pub key: u32,
    pub value: u32,
}

/// A BTF that is being made.
pub struct Btf(NonNull<sys::btf>);

impl Btf {
    /// One without types.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Btf> {
        // SAFETY: returns a new object, or null with errno set.
        NonNull::new(unsafe { sys::btf__new_empty() }).map(Btf).ok_or_else(io::Error::last_os_error)
    }

    /// Adds an integer. Returns its id.
    ///
    /// # Errors
    /// libbpf refuses it.
    pub fn add_int(&mut self, name: &CStr, bytes: usize, encoding: u32) -> io::Result<u32> {
        // SAFETY: the object is valid until `self` is dropped, and the name is copied.
        let id = unsafe { sys::btf__add_int(self.0.as_ptr(), name.as_ptr(), bytes as _, encoding as c_int) };
        Ok(checked_by_libbpf(id)? as u32)
    }

    /// Adds an array of `len` elements with an index. Returns its id.
    ///
    /// # Errors
    /// libbpf refuses it.
    pub fn add_array(&mut self, index: u32, element: u32, len: u32) -> io::Result<u32> {
        // SAFETY: the object is valid until `self` is dropped.
        let id = unsafe { sys::btf__add_array(self.0.as_ptr(), index as c_int, element as c_int, len) };
        Ok(checked_by_libbpf(id)? as u32)
    }

    /// Adds a structure with one field, as large as that. Returns its id.
    ///
    /// # Errors
    /// libbpf refuses it.
    pub fn add_struct(&mut self, name: &CStr, bytes: u32, field: (&CStr, u32)) -> io::Result<u32> {
        let (field, kind) = field;
        // SAFETY: the object is valid until `self` is dropped, and names are copied.
        unsafe {
            let id = checked_by_libbpf(sys::btf__add_struct(self.0.as_ptr(), name.as_ptr(), bytes))?;
            let added = sys::btf__add_field(self.0.as_ptr(), field.as_ptr(), kind as c_int, 0, 0);
            checked_by_libbpf(added)?;
            Ok(id as u32)
        }
    }

    /// Hands it to the kernel.
    ///
    /// # Errors
    /// The errno of BPF_BTF_LOAD.
    pub fn load(&mut self) -> io::Result<()> {
        // SAFETY: the object is valid until `self` is dropped.
        checked_by_libbpf(unsafe { sys::btf__load_into_kernel(self.0.as_ptr()) }).map(drop)
    }

    /// Makes a map of task storage with the types of this BTF, which was loaded. The map keeps its own reference to it.
    ///
    /// # Errors
    /// The errno of BPF_MAP_CREATE: EPERM without CAP_BPF, EINVAL before 5.11.
    pub fn task_storage(&self, name: &CStr, value_size: u32, types: KeyAndValue) -> io::Result<OwnedFd> {
        let opts = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
            map_flags: sys::BPF_F_NO_PREALLOC,
            // SAFETY: the object is valid until `self` is dropped.
            btf_fd: unsafe { sys::btf__fd(self.0.as_ptr()) } as u32,
            btf_key_type_id: types.key,
            btf_value_type_id: types.value,
            ..Default::default()
        };
        // SAFETY: the name ends with NUL, opts has the size that it states, and both outlive the call.
        let fd = checked_by_libbpf(unsafe {
            let kind = sys::BPF_MAP_TYPE_TASK_STORAGE;
            sys::bpf_map_create(kind, name.as_ptr(), size_of::<u32>() as u32, value_size, 0, &raw const opts)
        })?;
        // SAFETY: bpf(2) made it.
        Ok(unsafe { owned(fd) })
    }
}

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: made by btf__new_empty, and freed once.
        unsafe { sys::btf__free(self.0.as_ptr()) }
    }
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
    /// Maps the ring of the event behind `fd`, with an AUX area of so many pages, or without one, and has the event begin.
    /// Both numbers of pages are powers of two.
    ///
    /// # Errors
    /// The errno of mmap(2) or ioctl(2).
    pub fn new(fd: impl AsFd, ring_pages: usize, aux_pages: usize) -> io::Result<AuxRing> {
        /// `_IO('$', 0)`.
        const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
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
        // SAFETY: an ioctl(2) that has a number as its argument.
        checked(unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) }.into())?;
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
        // SAFETY: the ring lies behind the first page, and the kernel writes nothing between tail and head.
        let bytes = unsafe {
            let ring = self.head.add(rustix::param::page_size());
            copied(ring, self.ring_bytes, tail, head.wrapping_sub(tail))
        };
        self.word(RingWord::DataTail).store(head, Ordering::Release);
        bytes
    }

    /// A copy of the stretch of the AUX area that begins at `offset`, of which a record of the ring told.
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

/// A copy of `bytes` bytes from `offset` on of a ring of `len` bytes, no more than all of it.
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

/// A read-only mapping of memory that the kernel writes to.
pub struct Mapping {
    at: NonNull<c_void>,
    len: usize,
}

// SAFETY: it points to memory that is ours as long as it lives, whatever the thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of what is behind `fd`, in whole pages.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn new(fd: impl AsFd, len: usize) -> io::Result<Mapping> {
        let len = len.next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd.as_fd().as_raw_fd(), 0)
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Mapping { at, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A copy of the value at byte `at`; `None` beyond the end, or when `at` is no multiple of eight. Each of its words
    /// is as the kernel wrote it; together they may be of two moments.
    pub fn get<T: Pod>(&self, at: usize) -> Option<T> {
        const { assert!(size_of::<T>().is_multiple_of(WORD), "read word by word") };
        let end = at.checked_add(size_of::<T>())?;
        if end > self.len || !at.is_multiple_of(WORD) {
            return None;
        }
        let mut value = T::zeroed();
        for (place, word) in
            (at..).step_by(WORD).zip(bytemuck::bytes_of_mut(&mut value).chunks_exact_mut(WORD))
        {
            // SAFETY: the word is inside of the mapping, which begins with a page, so that it is aligned; nothing in this
            // process writes to it, and it is read with one load.
            let read = unsafe { self.at.as_ptr().cast::<u8>().add(place).cast::<u64>().read_volatile() };
            word.copy_from_slice(&read.to_ne_bytes());
        }
        Some(value)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and unmapped once: nothing borrows from it.
        unsafe { libc::munmap(self.at.as_ptr(), self.len) };
    }
}

/// Advice on the pages of a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAdvice {
    /// Huge pages where the kernel has them (MADV_HUGEPAGE).
    Huge,
    /// Small pages only (MADV_NOHUGEPAGE).
    Small,
    /// Huge pages in place of the small ones that are there, now (MADV_COLLAPSE, Linux 6.1).
    Collapse,
}

/// Anonymous memory of this process, aligned to huge pages of 2 MiB. It reads as 0 until it is written to, and has no
/// pages until then.
pub struct Region {
    mapped: NonNull<c_void>,
    mapped_len: usize,
    at: NonNull<u64>,
    words: usize,
}

// SAFETY: it owns memory that no other value points to, whatever the thread.
unsafe impl Send for Region {}
// SAFETY: shared references only read.
unsafe impl Sync for Region {}

impl Region {
    /// Alignment of every region, in bytes: a huge page of x86-64, and of arm64 with pages of 4 KiB.
    pub const ALIGN: usize = 2 << 20;

    /// A region of `bytes`, rounded up to whole [`Region::ALIGN`].
    ///
    /// # Errors
    /// The errno of mmap(2): ENOMEM beyond the limit of the address space, or for no bytes EINVAL.
    pub fn new(bytes: usize) -> io::Result<Region> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let len = bytes.checked_next_multiple_of(Region::ALIGN).filter(|len| *len > 0).ok_or_else(invalid)?;
        let mapped_len = len.checked_add(Region::ALIGN).ok_or_else(invalid)?;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), mapped_len, access, kind, -1, 0) };
        let mapped = match NonNull::new(mapped) {
            Some(mapped) if mapped.as_ptr() != libc::MAP_FAILED => mapped,
            _ => return Err(io::Error::last_os_error()),
        };
        let skip = mapped.as_ptr().addr().next_multiple_of(Region::ALIGN) - mapped.as_ptr().addr();
        // SAFETY: at most ALIGN - 1 bytes are skipped, and the mapping is ALIGN bytes longer than the region.
        let at = unsafe { mapped.byte_add(skip) }.cast();
        Ok(Region { mapped, mapped_len, at, words: len / WORD })
    }

    /// The address of its first byte.
    pub fn address(&self) -> u64 {
        self.at.as_ptr().addr() as u64
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.words * WORD
    }

    /// Its words. Reading one that was never written gives it the kernel's page of zeros.
    pub fn words(&self) -> &[u64] {
        // SAFETY: so many words are mapped and readable as long as `self` lives, and any bits are a u64.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }

    /// Its words, to be written.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in words(); the exclusive reference makes this one exclusive, too.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.words) }
    }

    /// Its words, for threads that write them at the same time.
    pub fn atomics(&mut self) -> &[AtomicU64] {
        // SAFETY: as in words_mut(); an AtomicU64 has the layout of a u64, and no other reference exists meanwhile.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.words) }
    }

    /// Gives the kernel advice on all of its pages.
    ///
    /// # Errors
    /// The errno of madvise(2): EINVAL from a kernel without huge pages, or before 6.1 without MADV_COLLAPSE.
    pub fn advise(&self, advice: PageAdvice) -> io::Result<()> {
        /// MADV_COLLAPSE of include/uapi/asm-generic/mman-common.h.
        const MADV_COLLAPSE: c_int = 25;
        let advice = match advice {
            PageAdvice::Huge => libc::MADV_HUGEPAGE,
            PageAdvice::Small => libc::MADV_NOHUGEPAGE,
            PageAdvice::Collapse => MADV_COLLAPSE,
        };
        // SAFETY: the range is a mapping of ours, and none of these changes what it holds.
        let done = unsafe { libc::madvise(self.at.as_ptr().cast(), self.bytes(), advice) };
        checked(libc::c_long::from(done)).map(drop)
    }

    /// Has pages that are made from now on come from `node` as long as that has room (MPOL_PREFERRED of mbind(2)), and
    /// from others after that.
    ///
    /// # Errors
    /// The errno of mbind(2): EINVAL for a node that is not online or not in the cpuset, ENOSYS without CONFIG_NUMA.
    pub fn prefer(&self, node: u32) -> io::Result<()> {
        const BITS: usize = u64::BITS as usize;
        let node = node as usize;
        let mut mask = vec![0u64; node / BITS + 1];
        mask[node / BITS] = 1 << (node % BITS);
        // SAFETY: the range is a mapping of ours; the mask has the bits that are passed (the kernel takes one less, see
        // mbind(2)), and outlives the call.
        checked(unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.at.as_ptr(),
                self.bytes(),
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                mask.len() * BITS + 1,
                0,
            )
        })
        .map(drop)
    }

    /// Gives its pages back; it reads as 0 again.
    pub fn clear(&mut self) {
        // SAFETY: private anonymous memory reads as 0 after that, which is a valid u64. It can only fail for a wrong range.
        unsafe { libc::madvise(self.at.as_ptr().cast(), self.bytes(), libc::MADV_DONTNEED) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and unmapped once: nothing borrows from it.
        unsafe { libc::munmap(self.mapped.as_ptr(), self.mapped_len) };
    }
}

/// A range of addresses that shows the same memory of [`Region::ALIGN`] bytes over and over. Words are stored one by one, and
/// no reference to them exists: two addresses may be the same word.
pub struct Mirror {
    mapped: NonNull<c_void>,
    len: usize,
}

// SAFETY: it owns its mapping, whatever the thread.
unsafe impl Send for Mirror {}

impl Mirror {
    /// So many views of new memory, one after the other.
    ///
    /// # Errors
    /// The errno of memfd_create(2) or mmap(2): ENOMEM beyond vm.max_map_count.
    pub fn new(views: usize) -> io::Result<Mirror> {
        let memory = rustix::fs::memfd_create("known-load", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, Region::ALIGN as u64)?;
        let len = views
            .checked_mul(Region::ALIGN)
            .filter(|len| *len > 0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, reserve, -1, 0) };
        let mapped = match NonNull::new(mapped) {
            Some(mapped) if mapped.as_ptr() != libc::MAP_FAILED => mapped,
            _ => return Err(io::Error::last_os_error()),
        };
        let mirror = Mirror { mapped, len };
        for view in 0..views {
            // SAFETY: the view lies within the mapping that is ours, and takes the place of a part of it.
            let made = unsafe {
                libc::mmap(
                    mapped.as_ptr().byte_add(view * Region::ALIGN),
                    Region::ALIGN,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    memory.as_raw_fd(),
                    0,
                )
            };
            if made == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(mirror)
    }

    /// The address of its first byte.
    pub fn address(&self) -> u64 {
        self.mapped.as_ptr().addr() as u64
    }

    /// Stores a word at this distance from the beginning, in words. False where that is outside.
    pub fn store(&mut self, at: usize, word: u64) -> bool {
        if at >= self.len / WORD {
            return false;
        }
        // SAFETY: the word lies within the mapping, which is writable, and no reference to it exists.
        unsafe { self.mapped.as_ptr().cast::<u64>().add(at).write_volatile(word) };
        true
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and unmapped once: nothing borrows from it.
        unsafe { libc::munmap(self.mapped.as_ptr(), self.len) };
    }
}

/// Moves pages of this process to `nodes`, one for each address. Returns the node of each afterwards, or a negative errno.
///
/// # Errors
/// The errno of move_pages(2): EACCES for a node outside of the cpuset, ENODEV for one that is not online.
pub fn move_pages(addresses: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
    const MPOL_MF_MOVE: c_int = 2;
    let count = addresses.len().min(nodes.len());
    let mut status = vec![-libc::ENOENT; count];
    // SAFETY: all arrays have the length that is passed, and outlive the call; contents of pages stay.
    checked(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            count as libc::c_ulong,
            addresses.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    })?;
    Ok(status)
}

/// Events of a thread or of a process since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadEvents {
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because another task ran instead.
    pub involuntary: u64,
    /// Page faults that read nothing from a disk.
    pub minor_faults: u64,
}

/// Events of the calling thread (getrusage(2) with RUSAGE_THREAD).
pub fn thread_events() -> ThreadEvents {
    events_of(libc::RUSAGE_THREAD)
}

/// Events of all threads of this process, ended ones included (RUSAGE_SELF).
pub fn process_events() -> ThreadEvents {
    events_of(libc::RUSAGE_SELF)
}

fn events_of(whose: c_int) -> ThreadEvents {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure that is passed; zeros are valid, should it not.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
    ThreadEvents {
        voluntary: usage.ru_nvcsw as u64,
        involuntary: usage.ru_nivcsw as u64,
        minor_faults: usage.ru_minflt as u64,
    }
}

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// The errno of sched_setaffinity(2): EINVAL where none of them is online and in the cpuset.
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    const BITS: u32 = u64::BITS;
    let words = cpus.iter().max().map_or(1, |most| most / BITS + 1) as usize;
    let mut mask = vec![0u64; words];
    cpus.iter().for_each(|cpu| mask[(cpu / BITS) as usize] |= 1 << (cpu % BITS));
    // SAFETY: the mask has the size that is passed, and outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, words * WORD, mask.as_ptr()) }).map(drop)
}

/// Gives the calling thread, and those that it makes, the least weight of all: nice 19, SCHED_BATCH. A kernel that refuses
/// leaves it as it was.
pub fn stand_back() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, and both calls change this thread only.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter);
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}

/// The CPU that the calling thread runs on at this moment.
pub fn current_cpu() -> Option<u32> {
    // SAFETY: takes nothing.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Places each of which names the one that comes after it.
pub struct Chain(Vec<u64>);

impl Chain {
    /// `None` where a place names one that is not there.
    pub fn new(next: Vec<u64>) -> Option<Chain> {
        let length = next.len() as u64;
        (length > 0 && next.iter().all(|place| *place < length)).then_some(Chain(next))
    }

    /// The loop of the self-check of clock samples: takes `steps` steps along the chain, at least one. Each is a load that
    /// depends on the one before it, and additions that do not depend on it. The first of them stands before the load:
    /// emulators interrupt at targets of jumps, and the load must be none. Returns the addresses of the load and of
    /// the instruction behind it; `None` on other CPUs than x86-64 and arm64.
    pub fn run(&self, steps: u64) -> Option<(u64, u64)> {
        chase(&self.0, steps.max(1))
    }
}

#[cfg(target_arch = "x86_64")]
fn chase(next: &[u64], steps: u64) -> Option<(u64, u64)> {
    let (load, behind): (u64, u64);
    // SAFETY: every place that is loaded is below the length of the slice, as [`Chain::new`] has checked, so that each
    // load is inside of it. Registers that change are named; the stack is not touched.
    unsafe {
        std::arch::asm!(
            "lea {load}, [rip + 4f]",
            "lea {behind}, [rip + 3f]",
            ".p2align 6",
            "2: add {sum}, 1",
            "4: mov {at}, qword ptr [{base} + {at} * 8]",
            "3: add {sum}, 1",
            ".rept 39",
            "add {sum}, 1",
            ".endr",
            "sub {steps}, 1",
            "jnz 2b",
            load = out(reg) load,
            behind = out(reg) behind,
            at = inout(reg) 0u64 => _,
            base = in(reg) next.as_ptr(),
            sum = inout(reg) 0u64 => _,
            steps = inout(reg) steps => _,
            options(nostack, readonly),
        );
    }
    Some((load, behind))
}

#[cfg(target_arch = "aarch64")]
fn chase(next: &[u64], steps: u64) -> Option<(u64, u64)> {
    let (load, behind): (u64, u64);
    // SAFETY: as on x86.
    unsafe {
        std::arch::asm!(
            "adr {load}, 4f",
            "adr {behind}, 3f",
            "2: add {sum}, {sum}, #1",
            "4: ldr {at}, [{base}, {at}, lsl #3]",
            "3: add {sum}, {sum}, #1",
            ".rept 39",
            "add {sum}, {sum}, #1",
            ".endr",
            "subs {steps}, {steps}, #1",
            "b.ne 2b",
            load = out(reg) load,
            behind = out(reg) behind,
            at = inout(reg) 0u64 => _,
            base = in(reg) next.as_ptr(),
            sum = inout(reg) 0u64 => _,
            steps = inout(reg) steps => _,
            options(nostack, readonly),
        );
    }
    Some((load, behind))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn chase(_: &[u64], _: u64) -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_mapping_ends_where_it_ends() {
        let file = rustix::fs::memfd_create("mapped", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(file);
        let page = rustix::param::page_size();
        let words: Vec<u64> = (0..(page / WORD) as u64).collect();
        file.write_all(bytemuck::cast_slice(&words)).unwrap();
        let mapping = Mapping::new(&file, 1).unwrap();
        assert_eq!(mapping.get::<[u64; 2]>(2 * WORD), Some([2, 3]));
        assert_eq!(mapping.get::<u64>(page - WORD), words.last().copied());
        assert_eq!(mapping.get::<[u64; 2]>(page - WORD), None);
        assert_eq!(mapping.get::<u64>(1), None);
        assert_eq!(mapping.get::<u64>(usize::MAX - 7), None);
    }

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
        // Often enough for the ring to begin anew: a record of 16 bytes for each fault.
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

    #[test]
    fn a_mapping_of_nothing_is_refused() {
        let (pipe, _) = io::pipe().unwrap();
        let error = Mapping::new(&pipe, 1).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_region_is_aligned_zero_and_all_there() {
        let mut region = Region::new(3 << 20).unwrap();
        assert_eq!(region.bytes(), 4 << 20);
        assert!(region.address().is_multiple_of(Region::ALIGN as u64));
        let words = region.words_mut();
        assert_eq!((words[0], *words.last().unwrap()), (0, 0));
        *words.last_mut().unwrap() = 7;
        assert_eq!(region.words().last(), Some(&7));
        region.clear();
        assert_eq!(region.words().last(), Some(&0));
        assert!(Region::new(0).is_err() && Region::new(usize::MAX).is_err());
    }

    #[test]
    fn a_thread_knows_its_faults_and_its_cpu() {
        let cpu = current_cpu().unwrap();
        run_on(&[cpu]).unwrap();
        assert_eq!(current_cpu(), Some(cpu));
        assert!(run_on(&[]).is_err());
        let mut region = Region::new(1).unwrap();
        region.advise(PageAdvice::Small).unwrap();
        let before = thread_events();
        let step = rustix::param::page_size() / WORD;
        region.words_mut()[..16 * step].iter_mut().step_by(step).for_each(|word| *word = 1);
        assert!(thread_events().minor_faults - before.minor_faults >= 16);
    }

    #[test]
    fn signals_wait_while_they_are_held() {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        count_signal(libc::SIGURG, &COUNT).unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        with_signals_held(|| {
            signal_thread(tid, libc::SIGURG);
            assert_eq!(COUNT.load(Ordering::SeqCst), 0);
        });
        assert_eq!(COUNT.load(Ordering::SeqCst), 1);
    }
}
