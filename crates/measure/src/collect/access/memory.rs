//! Memory of a program that is followed: read with process_vm_readv(2), a page at a time and each page once.
//!
//! Unlike /proc/PID/mem, this never reads from a device. The entry of pagemap is read first and absent pages
//! are skipped, so that nothing is faulted in. While that read waits for the lock of an address space, the
//! tool can still be killed.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::collect::placement::target::Target;
use crate::model::process::ProcessId;
use crate::sys;

/// Bit 63 of an entry of pagemap: see the kernel's admin-guide/mm/pagemap.
const PRESENT: u64 = 1 << 63;

/// Memory of one process while a batch is followed.
pub struct Memory {
    /// Absent where it has ended or may not be read: registers alone are left then.
    files: Option<(Target, File)>,
    page_size: u64,
    pages: HashMap<u64, Option<Box<[u8]>>>,
}

impl Memory {
    /// Opens its files below `root` (`/`).
    pub fn open(root: &Path, (pid, start_ns): ProcessId, page_size: u64) -> Memory {
        let target = Target::open(root, pid, start_ns).ok();
        let files = target.and_then(|target| {
            let pagemap = target.file(c"pagemap").ok()?;
            Some((target, pagemap))
        });
        Memory { files, page_size, pages: HashMap::new() }
    }

    /// Whether the process still exists, so that all memory read was its own.
    pub fn is_there(&self) -> bool {
        self.files.as_ref().is_none_or(|(target, _)| target.check().is_ok())
    }

    /// Fills `bytes` from `address` on, if all of them are present and `left` more pages may be kept.
    pub fn read(&mut self, mut address: u64, bytes: &mut [u8], left: &mut usize) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, from) = (address / self.page_size, (address % self.page_size) as usize);
            let Some(page) = self.page(number, left) else { return false };
            let length = rest.len().min(page.len() - from);
            let (part, more) = rest.split_at_mut(length);
            part.copy_from_slice(&page[from..from + length]);
            (rest, address) = (more, address.wrapping_add(length as u64));
        }
        true
    }

    fn page(&mut self, number: u64, left: &mut usize) -> Option<&[u8]> {
        let (target, pagemap) = self.files.as_ref()?;
        let (size, left) = (self.page_size, left);
        let page = self.pages.entry(number).or_insert_with(|| {
            *left = left.checked_sub(1)?;
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, number.checked_mul(8)?).ok()?;
            if u64::from_ne_bytes(entry) & PRESENT == 0 {
                return None;
            }
            let mut bytes = vec![0; size as usize].into_boxed_slice();
            let got = sys::read_memory(target.pid, number.checked_mul(size)?, &mut bytes).ok()?;
            (got == bytes.len()).then_some(bytes)
        });
        page.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::proc_details;
    use crate::collect::self_usage::page_size;

    fn own() -> ProcessId {
        let pid = std::process::id();
        (pid, proc_details::start_ns(pid).unwrap())
    }

    #[test]
    fn memory_is_read_across_pages_and_never_faulted_in() {
        let size = page_size();
        let bytes: Vec<u8> = (0..4 * size).map(|at| (at % 251) as u8).collect();
        let mut memory = Memory::open(Path::new("/"), own(), size);
        let at = bytes.as_ptr() as u64;
        let inside = (at / size + 1) * size - 3;
        let mut word = [0; 8];
        assert!(memory.read(inside, &mut word, &mut 9));
        assert_eq!(word[..], bytes[(inside - at) as usize..][..8]);
        assert!(memory.is_there());
        assert!(!memory.read(8, &mut word, &mut 9), "nothing is mapped there");
        assert!(!memory.read(u64::MAX - 3, &mut word, &mut 9));
        let untouched: Vec<u8> = Vec::with_capacity(64 << 20);
        assert!(!memory.read(untouched.as_ptr() as u64 + (32 << 20), &mut word, &mut 9));
        let mut fresh = Memory::open(Path::new("/"), own(), size);
        assert!(!fresh.read(inside, &mut word, &mut 1), "the second page is one too many");
    }

    #[test]
    fn a_process_that_has_ended_has_registers_alone() {
        let mut memory = Memory::open(Path::new("/"), (u32::MAX - 1, 1), 4096);
        assert!(!memory.read(0x1000, &mut [0; 8], &mut 9));
        assert!(memory.is_there());
    }
}
