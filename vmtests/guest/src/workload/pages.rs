//! Memory of workloads in small pages, on nodes that are known.

pub const PAGE: usize = 4096;
/// linux/mempolicy.h.
const MPOL_BIND: libc::c_int = 2;

/// Small pages, given back when this is dropped.
pub struct Pages {
    start: usize,
    bytes: usize,
}

impl Pages {
    /// A mapping whose pages are not touched yet.
    pub fn map(bytes: usize) -> Result<Pages, String> {
        let (all, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a place where nothing is mapped.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, all, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(format!("mapping memory: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping made above. Refused where there are no huge pages.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Pages { start: start as usize, bytes })
    }

    /// Pages that are touched, where the kernel likes.
    pub fn take(bytes: usize) -> Result<Pages, String> {
        let pages = Pages::map(bytes)?;
        pages.at().for_each(|page| pages.touch(page));
        Ok(pages)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of each page.
    pub fn at(&self) -> impl Iterator<Item = usize> + use<> {
        (self.start..self.start + self.bytes).step_by(PAGE)
    }

    /// Writes to the page at an address.
    pub fn touch(&self, page: usize) {
        assert!((self.start..self.start + self.bytes).contains(&page), "not a page of these: {page:#x}");
        // SAFETY: within the mapping, which is for writing and in which nothing else of the program is.
        unsafe { std::ptr::write_volatile(page as *mut u8, 1) };
    }

    /// The first of its words.
    pub fn words(&self) -> *const u64 {
        self.start as *const u64
    }

    /// Binds a part to a node, where its pages will be unless it was touched already.
    pub fn bind(&self, part: std::ops::Range<usize>, node: u32) -> Result<(), String> {
        assert!(part.end <= self.bytes, "not a part: {part:?}");
        let mask = 1u64 << node;
        let (from, len) = (self.start + part.start, part.len());
        // SAFETY: the range is ours, and mask has the given number of bits.
        let bound = unsafe { libc::syscall(libc::SYS_mbind, from, len, MPOL_BIND, &mask, 64, 0) };
        if bound < 0 {
            return Err(format!("binding to node {node}: {}", std::io::Error::last_os_error()));
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        unsafe { libc::munmap(self.start as *mut _, self.bytes) };
    }
}
