//! One process whose pages are read: its files in /proc, and move_pages(2); lines of its maps, read from a file without end in
//! sight; and parts of its address space that may hold present pages, found without reading all of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

use super::draw::Ranges;
use crate::collect::proc_details::is_process;
use crate::host::processes;
use crate::model::sample::Missing;
use crate::sys::{self, PageRegion, PageScan};

/// A process that cannot be mistaken for another one: its directory in /proc is open, and after the process
/// has ended nothing can be opened there.
pub struct Target {
    /// Its id in our own pid namespace, as system calls take it.
    pub pid: u32,
    dir: OwnedFd,
}

impl Target {
    /// Process `pid` that started at `start_ns` since boot, below `root` (`/`).
    ///
    /// # Errors
    /// ESRCH: it has ended, or another one has its id now.
    pub fn open(root: &Path, pid: u32, start_ns: u64) -> io::Result<Target> {
        let dir = File::open(root.join(format!("proc/{pid}")))?;
        let target = Target { pid: processes::own_id(root, pid).ok_or_else(gone)?, dir: dir.into() };
        let mut stat = target.file(c"stat")?;
        if is_process(&mut stat, start_ns)? { Ok(target) } else { Err(gone()) }
    }

    /// Opens a file of its directory.
    ///
    /// # Errors
    /// The errno of openat(2); ESRCH when it has ended.
    pub fn file(&self, name: &std::ffi::CStr) -> io::Result<File> {
        Ok(openat(&self.dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Whether it is still there. When it is, everything that its id answered before was its own answer.
    ///
    /// # Errors
    /// ESRCH: it has ended.
    pub fn check(&self) -> io::Result<()> {
        self.file(c"comm").and_then(|mut comm| io::Read::read(&mut comm, &mut [0; 1])).map(|_| ())
    }

    /// The nodes of pages (numbers of `page_size` bytes), or a negative errno for each that is not there. Moves nothing.
    ///
    /// # Errors
    /// The errno of move_pages(2).
    pub fn nodes(&self, pages: &[u64], page_size: u64) -> io::Result<Vec<i32>> {
        let addresses: Vec<u64> = pages.iter().map(|page| page * page_size).collect();
        sys::nodes_of_pages(self.pid, &addresses)
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// The reason why its placement is unavailable, from an error while `doing` something.
pub fn reason(doing: &str, error: &io::Error) -> Missing {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => {
            Missing::Lost("the process ended while its pages were located".into())
        }
        Some(libc::EPERM | libc::EACCES) => Missing::NotPermitted(format!(
            "{doing}: {error}; pages of other users' processes need CAP_SYS_PTRACE"
        )),
        Some(libc::ENOSYS) => {
            Missing::Unsupported(format!("{doing}: {error}; the kernel has no page migration"))
        }
        _ => Missing::Lost(format!("{doing}: {error}")),
    }
}

/// Bytes of one line that are kept. Addresses and flags take under a hundred, a path up to 4,096 times four
/// when its bytes are escaped. A longer line is cut.
const LINE_MAX: usize = 16 << 10;

/// One read of a `seq_file` returns a page at most; more room only saves copies.
const CHUNK: usize = 16 << 10;

/// One mapping of a process, as proc_pid_maps(5) describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address, and the first one after it.
    pub start: u64,
    pub end: u64,
    /// `rwxp` or `rwxs`, with `-` for a denied access.
    pub perms: [u8; 4],
    /// Path or name as the kernel escapes it; empty for anonymous memory. Anybody may choose it.
    pub name: &'a [u8],
}

impl Mapping<'_> {
    /// Pages of the kernel that it shows to every process (vdso, vvar, vsyscall): memory of no process.
    pub fn is_kernels(&self) -> bool {
        self.name.starts_with(b"[v")
    }

    /// Reserved address space: no access is allowed until its protection changes.
    pub fn is_reserved(&self) -> bool {
        &self.perms[..3] == b"---"
    }
}

/// Takes a line without its newline apart; `None` for anything that is no mapping.
pub fn parse_line(line: &[u8]) -> Option<Mapping<'_>> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let range = fields.next()?;
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let perms: [u8; 4] = fields.next()?.try_into().ok()?;
    // Offset, device, inode: numbers of the file, which we do not need.
    for _ in 0..3 {
        fields.next()?;
    }
    let name = fields.next().unwrap_or_default();
    let name = &name[name.iter().take_while(|byte| **byte == b' ').count()..];
    (start < end).then_some(Mapping { start, end, perms, name })
}

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits[0] == b'+' {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Lines of a file, one at a time. So twenty thousand mappings are never in memory at once, and reading can
/// stop between any two of them and resume later.
pub struct Lines<R> {
    file: R,
    chunk: Box<[u8; CHUNK]>,
    /// The part of `chunk` that was read and not yet returned.
    from: usize,
    to: usize,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub fn new(file: R) -> Lines<R> {
        Lines { file, chunk: Box::new([0; CHUNK]), from: 0, to: 0, line: Vec::new() }
    }

    /// The next line without its newline, or `None` at the end of the file.
    ///
    /// # Errors
    /// The errno of reading the file.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        loop {
            let rest = &self.chunk[self.from..self.to];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let part = &rest[..end.unwrap_or(rest.len())];
            let room = LINE_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if let Some(end) = end {
                self.from += end + 1;
                return Ok(Some(&self.line));
            }
            (self.from, self.to) = (0, 0);
            self.to = match self.file.read(&mut self.chunk[..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if self.to == 0 {
                return Ok((!self.line.is_empty()).then_some(&self.line));
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_may_have_spaces_and_may_be_missing() {
        let line =
            b"7f1c8000-7f1ca000 r--p 00000000 08:01 131090                     /opt/a b/lib.so (deleted)";
        let mapping = parse_line(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f1c_8000, 0x7f1c_a000));
        assert_eq!(mapping.name, b"/opt/a b/lib.so (deleted)");
        let anonymous = parse_line(b"00400000-00452000 ---p 00000000 00:00 0").unwrap();
        assert!(anonymous.name.is_empty() && anonymous.is_reserved());
        let vdso = b"7ffd0000-7ffd2000 r-xp 00000000 00:00 0                          [vdso]";
        assert!(parse_line(vdso).unwrap().is_kernels());
    }

    #[test]
    fn what_is_no_mapping_is_nothing() {
        for line in ["", "x", "5-4 rw-p 0 0:0 0", "4-5 rw 0 0:0 0", "4-5 rw-p 0 0:0", "+4-5 rw-p 0 0:0 0"] {
            assert_eq!(parse_line(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let mut lines = Lines::new(io::repeat(b'a').take(10 << 20));
        assert_eq!(lines.next_line().unwrap().map(<[u8]>::len), Some(LINE_MAX));
        assert_eq!(lines.next_line().unwrap(), None);
    }

    proptest! {
        #[test]
        fn every_mapping_comes_back(
            mappings in prop::collection::vec(
                (0u64..1 << 47, 1u64..1 << 30, prop::array::uniform4(prop::bool::ANY), "[ -~]{0,200}"), 0..200),
        ) {
            let mut text = Vec::new();
            let mut wanted = Vec::new();
            for (start, len, allowed, name) in &mappings {
                let flag = |at: usize, c| if allowed[at] { c } else { b'-' };
                let perms = [flag(0, b'r'), flag(1, b'w'), flag(2, b'x'), if allowed[3] { b's' } else { b'p' }];
                let name = name.trim();
                let flags = String::from_utf8_lossy(&perms);
                let line = format!("{start:08x}-{:08x} {flags} 00000000 00:00 0 {name}\n", start + len);
                text.extend_from_slice(line.as_bytes());
                wanted.push((*start, start + len, perms, name.as_bytes()));
            }
            let mut lines = Lines::new(&text[..]);
            for (start, end, perms, name) in wanted {
                let line = lines.next_line().unwrap().unwrap();
                prop_assert_eq!(parse_line(line), Some(Mapping { start, end, perms, name }));
            }
            prop_assert!(lines.next_line().unwrap().is_none());
        }

        #[test]
        fn hostile_bytes_do_no_harm(text in prop::collection::vec(any::<u8>(), 0..4000)) {
            let mut lines = Lines::new(&text[..]);
            let mut count = 0;
            while let Some(line) = lines.next_line().unwrap() {
                parse_line(line);
                count += 1;
            }
            prop_assert!(count <= text.len());
        }
    }
}
