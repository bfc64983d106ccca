//! Parts of an address space that may hold present pages, found without reading all of it.
//!
//! Since Linux 6.7 the ioctl PAGEMAP_SCAN skips ranges without page tables and stops after some pages: a
//! terabyte that is reserved and never touched costs a few calls. On older kernels only /proc/PID/pagemap has
//! this, eight bytes for each page, present or not. Either way the returned ranges contain every present
//! page. They may contain absent pages too; the caller has to handle these.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::draw::Ranges;
use super::maps::Mapping;
use crate::sys::{self, PageRegion, PageScan};

/// A block of memory in which pages were found is taken as a whole: at least this much, at most that.
const BLOCK_MIN: u64 = 2 << 20;
const BLOCK_MAX: u64 = 1 << 30;
/// Blocks that all resident memory would fill, if it were dense: each costs a call.
const BLOCKS: u64 = 256;
/// Mappings up to this are taken whole: to look would cost as much as to draw a few holes.
const WHOLE_MAX: u64 = 64 << 10;
/// Pages that a call returns at most before the rest of its block is taken whole.
const LISTED: usize = 64;
/// The first call covers this much, and four times as much after it found nothing: the lock of the address
/// space is held meanwhile.
const SPAN: u64 = 256 << 20;
const SPAN_MAX: u64 = 64 << 30;
/// Without the ioctl, larger mappings are taken whole: a gigabyte is two megabytes of pagemap to read.
const READ_MAX: u64 = 64 << 20;
/// Entries of pagemap that one read returns: one page table.
const ENTRIES: usize = 512;

const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// Bit 63 of an entry of pagemap: see the kernel's admin-guide/mm/pagemap.
const ENTRY_PRESENT: u64 = 1 << 63;

/// Looks for present pages of one process.
pub struct Finder {
    pagemap: File,
    scans: bool,
    page_size: u64,
    block: u64,
}

impl Finder {
    /// Looks with `pagemap`, for a process with so much resident memory. `scans`: try the ioctl.
    pub fn new(pagemap: File, scans: bool, rss_bytes: u64, page_size: u64) -> Finder {
        let block = (rss_bytes / BLOCKS).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
        Finder { pagemap, scans, page_size, block }
    }

    /// Whether the kernel has the ioctl, as far as we know by now.
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// Waits for the lock of the address space in a way that lets the process be killed. move_pages(2) waits
    /// for it uninterruptibly, so a locked address space should be met here.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn wait_for_lock(&self, page: u64) -> io::Result<()> {
        self.pagemap.read_at(&mut [0; 8], page * 8).map(drop)
    }

    /// Adds the parts of a mapping that may hold pages to `ranges`.
    ///
    /// # Errors
    /// The errno of the kernel; ESRCH when the process has ended.
    pub fn add(&mut self, mapping: &Mapping<'_>, ranges: &mut Ranges) -> io::Result<()> {
        let (start, end) = (mapping.start, mapping.end);
        if mapping.is_kernels() {
            return Ok(());
        }
        if end - start <= WHOLE_MAX {
            ranges.push(start / self.page_size, end / self.page_size);
            return Ok(());
        }
        if self.scans {
            match self.scan(start, end, ranges) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                    self.scans = false;
                }
                done => return done,
            }
        }
        if mapping.is_reserved() {
            // Address space that allocators hold in reserve; what they gave back may still be there, which is
            // an error we prefer to asking for holes.
            return Ok(());
        }
        if end - start > READ_MAX {
            ranges.push(start / self.page_size, end / self.page_size);
            return Ok(());
        }
        self.read(start, end, ranges)
    }

    fn scan(&self, start: u64, end: u64, ranges: &mut Ranges) -> io::Result<()> {
        let mut regions = [PageRegion::default(); LISTED];
        let (mut at, mut span) = (start, SPAN);
        while at < end {
            let until = end.min(at.saturating_add(span));
            let scan = PageScan {
                start: at,
                end: until,
                max_pages: LISTED as u64,
                category_inverted: PAGE_IS_PFNZERO,
                category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO,
                return_mask: PAGE_IS_PRESENT,
            };
            let (count, walk_end) = sys::pagemap_scan(&self.pagemap, &scan, &mut regions)?;
            let found = &regions[..count];
            let Some(last) = found.last() else {
                (at, span) = (until, (span * 4).min(SPAN_MAX));
                continue;
            };
            span = SPAN;
            let is_all = walk_end >= until;
            for region in found {
                ranges.push(region.start / self.page_size, region.end / self.page_size);
            }
            if is_all {
                at = until;
                continue;
            }
            // More may follow: the rest of the block is taken whole.
            let block_end = end.min((last.end / self.block + 1) * self.block);
            ranges.push(last.end / self.page_size, block_end / self.page_size);
            at = block_end;
        }
        Ok(())
    }

    fn read(&self, start: u64, end: u64, ranges: &mut Ranges) -> io::Result<()> {
        let mut bytes = [0; ENTRIES * 8];
        let (mut page, last) = (start / self.page_size, end / self.page_size);
        while page < last {
            let want = (last - page).min(ENTRIES as u64) as usize * 8;
            let got = self.pagemap.read_at(&mut bytes[..want], page * 8)? / 8;
            if got == 0 {
                return Ok(());
            }
            let mut run = None;
            for (at, entry) in bytes[..got * 8].chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().expect("chunks have eight bytes"));
                match (entry & ENTRY_PRESENT != 0, run) {
                    (true, None) => run = Some(at),
                    (false, Some(from)) => {
                        ranges.push(page + from as u64, page + at as u64);
                        run = None;
                    }
                    _ => {}
                }
            }
            if let Some(from) = run {
                ranges.push(page + from as u64, page + got as u64);
            }
            page += got as u64;
        }
        Ok(())
    }
}
