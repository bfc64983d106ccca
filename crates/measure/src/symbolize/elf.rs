//! The headers of an ELF file: its build id, and where its parts are in memory.
//!
//! The file may belong to any user and change while it is read. So it is read piece by piece into buffers of
//! a bounded size, never through a mapping, and no number in it sizes an allocation.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::model::stacks::BuildId;

/// Program headers and bytes of notes that are looked at; real files have a dozen and some hundred.
const HEADERS_MAX: usize = 64;
const NOTES_MAX: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// Bytes of the file header and of one program header (elf(5), 64 bit).
const EHDR: usize = 64;
const PHDR: usize = 56;

/// A part of the file that is mapped into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    offset: u64,
    address: u64,
    size: u64,
}

/// A 64-bit ELF file in this machine's byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    pub build_id: Option<BuildId>,
    loads: Vec<Load>,
}

impl Elf {
    /// Reads the headers of `file`; `None` when it is something else or damaged.
    pub fn read(file: &File) -> Option<Elf> {
        let mut head = [0; EHDR];
        file.read_exact_at(&mut head, 0).ok()?;
        let native = if cfg!(target_endian = "little") { 1 } else { 2 };
        // Magic, ELFCLASS64, byte order.
        if head[..4] != *b"\x7fELF" || head[4] != 2 || head[5] != native {
            return None;
        }
        let (at, size, count) = (u64_at(&head, 32)?, u16_at(&head, 54)?, u16_at(&head, 56)?);
        if usize::from(size) != PHDR {
            return None;
        }
        let mut headers = vec![0; usize::from(count).min(HEADERS_MAX) * PHDR];
        file.read_exact_at(&mut headers, at).ok()?;
        let mut elf = Elf { build_id: None, loads: Vec::new() };
        for header in headers.chunks_exact(PHDR) {
            let (offset, address, size) = (u64_at(header, 8)?, u64_at(header, 16)?, u64_at(header, 32)?);
            match u32_at(header, 0)? {
                PT_LOAD => elf.loads.push(Load { offset, address, size }),
                PT_NOTE if elf.build_id.is_none() => {
                    let mut notes = vec![0; size.min(NOTES_MAX as u64) as usize];
                    if file.read_exact_at(&mut notes, offset).is_ok() {
                        elf.build_id = build_id(&notes);
                    }
                }
                _ => {}
            }
        }
        Some(elf)
    }

    /// The address, in terms of the file's symbols, of the byte at `offset` in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let load = self
            .loads
            .iter()
            .find(|load| offset.checked_sub(load.offset).is_some_and(|at| at < load.size))?;
        load.address.checked_add(offset - load.offset)
    }
}

/// The build id among the notes: name size, description size, type, name, description, each filled up to four bytes.
fn build_id(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let (name, size) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let kind = u32_at(notes, 8)?;
        let rest = notes.get(12..)?;
        let body = rest.get(name.checked_next_multiple_of(4)?..)?;
        let value = body.get(..size)?;
        if kind == NT_GNU_BUILD_ID && rest.get(..4) == Some(b"GNU\0") && (1..=20).contains(&size) {
            let mut id = [0; 20];
            id[..size].copy_from_slice(value);
            return Some(BuildId(id));
        }
        notes = body.get(size.checked_next_multiple_of(4)?..)?;
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, value.len() as u32, kind] {
            bytes.extend(word.to_ne_bytes());
        }
        for part in [name, value] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let mut notes = note(5, b"GNU\0", &[7; 16]);
        notes.extend(note(3, b"GNU\0", &[9; 16]));
        let mut expected = [0; 20];
        expected[..16].fill(9);
        assert_eq!(build_id(&notes), Some(BuildId(expected)));
        assert_eq!(build_id(&note(3, b"Go\0\0", &[9; 20])), None);
    }

    #[test]
    fn cut_and_absurd_notes_are_none() {
        let whole = note(3, b"GNU\0", &[9; 20]);
        for cut in 0..whole.len() {
            assert_eq!(build_id(&whole[..cut]), None, "cut at {cut}");
        }
        assert_eq!(build_id(&[0xff; 64]), None);
        assert_eq!(build_id(&note(3, b"GNU\0", &[9; 24])), None);
    }

    #[test]
    fn offsets_are_translated_by_the_part_they_lie_in() {
        let load = |offset, address| Load { offset, address, size: 0x1000 };
        let elf = Elf { build_id: None, loads: vec![load(0, 0x40_0000), load(0x1000, 0x40_2000)] };
        assert_eq!(elf.address_of(0x1234), Some(0x40_2234));
        assert_eq!(elf.address_of(0x2000), None);
    }

    #[test]
    fn this_test_is_an_elf_file_and_its_source_is_not() {
        let me = Elf::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(!me.loads.is_empty());
        assert_eq!(Elf::read(&File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap()), None);
    }
}
