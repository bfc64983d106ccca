//! Mapped memory that unmaps itself, and the heap of the C library: one for all threads, with free memory given back.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use bytemuck::Pod;

use super::{WORD, checked};

/// A read-only mapping of memory that the kernel writes to.
pub struct Mapping {
    at: NonNull<c_void>,
    len: usize,
}

// SAFETY: it points to memory that is ours as long as it lives, whatever the thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of the file behind `fd`, in whole pages.
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
        const { assert!(size_of::<T>().is_multiple_of(WORD), "memory read word by word") };
        let end = at.checked_add(size_of::<T>())?;
        if end > self.len || !at.is_multiple_of(WORD) {
            return None;
        }
        let mut value = T::zeroed();
        for (place, word) in
            (at..).step_by(WORD).zip(bytemuck::bytes_of_mut(&mut value).chunks_exact_mut(WORD))
        {
            // SAFETY: the word is inside the mapping, which begins with a page, so the word is aligned.
            // Nothing in this process writes to it, and it is read with one load.
            let read = unsafe { self.at.as_ptr().cast::<u8>().add(place).cast::<u64>().read_volatile() };
            word.copy_from_slice(&read.to_ne_bytes());
        }
        Some(value)
    }

    /// Replaces `bytes` by a copy of `len` bytes from byte `at` on, which must not be written to meanwhile.
    /// Bytes beyond the end are left out.
    pub fn copy_to(&self, bytes: &mut Vec<u8>, at: usize, len: usize) {
        bytes.clear();
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        bytes.reserve(len);
        // SAFETY: the source is inside the mapping, the destination has room for it, and they do not overlap.
        // The caller knows that the kernel has finished with it.
        unsafe {
            ptr::copy_nonoverlapping(self.at.as_ptr().cast::<u8>().add(at), bytes.as_mut_ptr(), len);
            bytes.set_len(len);
        }
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
    /// Replaces present small pages by huge pages now (MADV_COLLAPSE, Linux 6.1).
    Collapse,
}

/// Anonymous memory of this process, aligned to huge pages of 2 MiB. It has no pages and reads as 0 until it
/// is written to.
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
        // SAFETY: this many words are mapped and readable as long as `self` lives, and any bits are a u64.
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
        // SAFETY: the range is a mapping of this process. The mask has the bits that are passed (the kernel
        // takes one less, see mbind(2)), and outlives the call.
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

/// A range of addresses that shows the same memory of [`Region::ALIGN`] bytes over and over, in small pages. Words are stored one by one, and
/// no reference to them exists: two addresses may be the same word.
pub struct Mirror {
    mapped: NonNull<c_void>,
    len: usize,
}

// SAFETY: it owns its mapping, whatever the thread.
unsafe impl Send for Mirror {}

impl Mirror {
    /// `views` views of new memory, one after the other.
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
            // SAFETY: the view is within our own mapping, and replaces a part of it.
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
        // Where shmem has huge pages (shmem_enabled), one entry of the TLB would hold a whole view.
        // SAFETY: the mapping is ours. A kernel without huge pages refuses, and needs no advice.
        unsafe { libc::madvise(mapped.as_ptr(), len, libc::MADV_NOHUGEPAGE) };
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
        // SAFETY: the word is within the mapping, which is writable, and no reference to it exists.
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

/// Memory of instructions, in small pages: written once, then executable and read-only.
pub struct Code {
    mapped: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its mapping, whatever the thread.
unsafe impl Send for Code {}

impl Code {
    /// `len` bytes, with `instruction` at each of these places, in bytes from the beginning.
    ///
    /// # Errors
    /// EINVAL where a place is outside; else the errno of mmap(2) or mprotect(2): EACCES where memory may not be made executable.
    pub fn new(len: usize, instruction: &[u8], places: &[usize]) -> io::Result<Code> {
        let fits = |at: &usize| at.checked_add(instruction.len()).is_some_and(|end| end <= len);
        if len == 0 || !places.iter().all(fits) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), len, read_write, private, -1, 0) };
        let mapped = match NonNull::new(mapped.cast::<u8>()) {
            Some(at) if mapped != libc::MAP_FAILED => at,
            _ => return Err(io::Error::last_os_error()),
        };
        let code = Code { mapped, len };
        // SAFETY: the mapping is ours. A kernel without huge pages refuses, and needs no advice.
        unsafe { libc::madvise(mapped.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        for at in places {
            // SAFETY: place and length are within the mapping, as checked above, which is writable and not
            // shared yet.
            unsafe {
                ptr::copy_nonoverlapping(instruction.as_ptr(), mapped.as_ptr().add(*at), instruction.len());
            }
        }
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: the mapping is ours, and nothing writes to it from here on.
        match unsafe { libc::mprotect(mapped.as_ptr().cast(), len, executable) } {
            0 => Ok(code),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address of a place, in bytes from the beginning; `None` outside.
    pub fn address(&self, at: usize) -> Option<*const u8> {
        // SAFETY: it is within the mapping.
        (at < self.len).then(|| unsafe { self.mapped.as_ptr().add(at).cast_const() })
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and unmapped once: nothing borrows from it.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.len) };
    }
}

/// Makes all threads share one heap. By default glibc gives each thread one; threads with little work keep 2
/// MB unused. Also, malloc_trim(3) gives back the free end of the first heap only, while a burst of tasks
/// leaves most free memory in the others.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes the lock of the heap, and any number.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Makes each block of a quarter of a megabyte or more a mapping, which is given back when it is freed and
/// grows without a copy. By default glibc stops doing so after the first such block is freed (mallopt(3),
/// `M_MMAP_THRESHOLD`).
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes the lock of the heap, and any number.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
    }
}

/// Gives memory behind free parts of the heap back to the kernel. Takes about a millisecond for ten megabytes.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the lock of each heap.
    unsafe {
        libc::malloc_trim(0);
    }
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
    fn no_view_of_a_mirror_has_huge_pages() {
        const VIEWS: usize = 3;
        let mirror = Mirror::new(VIEWS).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let flags = |view: usize| {
            let begin = format!("{:x}-", mirror.address() as usize + view * Region::ALIGN);
            let mapping = smaps.split_once(&format!("\n{begin}")).expect("each view is a mapping").1;
            let flags = mapping.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
            flags.split_whitespace().any(|flag| flag == "nh")
        };
        // A kernel without huge pages has no such flag.
        let has_huge = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert!((0..VIEWS).all(|view| flags(view) == has_huge));
    }

    /// Bytes that are allocated, blocks with a mapping of their own included.
    fn heap_in_use() -> u64 {
        // The fields of mallinfo2 are wider, but it needs glibc 2.33. SAFETY: mallinfo takes the lock of each
        // heap, and fills the structure that it returns.
        let found = unsafe { libc::mallinfo() };
        let bytes = |field: libc::c_int| u64::from(field.cast_unsigned());
        bytes(found.uordblks) + bytes(found.hblkhd)
    }

    /// Pages among these that have memory behind them: mincore(2).
    fn resident(pages: &[usize]) -> usize {
        let is_resident = |page: &&usize| {
            let mut found = 0u8;
            // SAFETY: it writes one byte for one page, and fails where nothing is mapped.
            let done = unsafe { libc::mincore(std::ptr::without_provenance_mut(**page), 1, &raw mut found) };
            done == 0 && found & 1 == 1
        };
        pages.iter().filter(is_resident).count()
    }

    #[test]
    fn free_parts_are_given_back_though_blocks_between_them_stay() {
        let page = rustix::param::page_size();
        // Small blocks, so that each is a part of the heap, and far more than tests beside this one take meanwhile.
        let mut blocks: Vec<Box<[u8; 1000]>> = (0..160_000).map(|_| Box::new([1; 1000])).collect();
        let full = heap_in_use();
        assert!(full >= 160_000_000, "{full}");
        let mut at = 0;
        let mut pages: Vec<usize> = Vec::new();
        blocks.retain(|block| {
            at += 1;
            pages.push(block.as_ptr().addr().next_multiple_of(page));
            at % 50 == 0
        });
        pages.dedup();
        let before = resident(&pages);
        let left = heap_in_use();
        assert!(left + 80_000_000 <= full, "{full} bytes in use, and then {left}");
        trim_heap();
        let after = resident(&pages);
        assert!(before * 10 > pages.len() * 9, "{before} of {} pages were resident", pages.len());
        assert!(after * 3 < pages.len(), "{after} of {} pages are resident still", pages.len());
        assert_eq!(blocks.len(), 3200);
    }
}
