//! The heap of the C library: one for all threads, with free memory given back.

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

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

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
