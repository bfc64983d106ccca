//! MiniDebugInfo: an xz-compressed section of a stripped program with its static functions (GDB manual, "MiniDebugInfo"). Fedora and
//! RHEL build their packages with it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use lzma_rust2::XzReader;

use super::sections::{Section, functions_of, named};
use super::table::Table;

const SECTION: &[u8] = b".gnu_debugdata";

/// Bytes of the section, and of the file in it; larger ones have no names. Real files have some hundred kilobytes.
const PACKED_MAX: u64 = 8 << 20;
const UNPACKED_MAX: u64 = 10 << 20;
/// Real files have a quarter to an eighth of their size when they are packed.
const RATIO_MAX: u64 = 16;
const UNPACKED_MIN: u64 = 1 << 20;

/// Memory for unpacking, in KiB: the dictionary of `xz -6`, which is the default, and a little.
const MEMORY_KIB: u32 = 10 << 10;

/// The section, and the bytes of the file in it at most.
fn section(file: &File) -> Option<(Section, usize)> {
    let section = named(file, SECTION).filter(|section| section.size <= PACKED_MAX)?;
    let most = (section.size * RATIO_MAX).clamp(UNPACKED_MIN, UNPACKED_MAX);
    Some((section, most as usize))
}

/// Bytes that [`functions`] of `file` take at most: the file, and the dictionary or the table.
pub(super) fn room(file: &File) -> usize {
    section(file).map_or(0, |(_, most)| 2 * most)
}

/// Functions in the packed symbols of `file`, by address, in `room` bytes. They do not repeat the dynamic symbols.
pub(super) fn functions(file: &File, room: usize) -> Table {
    unpacked(file)
        .map_or_else(Table::default, |bytes| functions_of(&bytes, room.saturating_sub(bytes.capacity())))
}

/// The file in the section of `file`, if it has one of this machine's kind.
fn unpacked(file: &File) -> Option<Vec<u8>> {
    let (section, most) = section(file)?;
    let packed = Part { file, at: section.offset, left: section.size };
    // All at once: a growing vector takes up to twice as much for a moment.
    let mut bytes = Vec::with_capacity(most);
    XzReader::new_mem_limit(packed, false, MEMORY_KIB).take(most as u64 - 1).read_to_end(&mut bytes).ok()?;
    let native = if cfg!(target_endian = "little") { 1 } else { 2 };
    // Magic, ELFCLASS64, byte order.
    (bytes.starts_with(b"\x7fELF\x02") && bytes.get(5) == Some(&native)).then_some(bytes)
}

/// A part of a file, as a stream.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(self.left as usize);
        let read = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at = self.at.saturating_add(read as u64);
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// `xz` of the output of `objcopy --strip-all --keep-symbol=packed_function` for a program's debug file.
    const PACKED: &[u8] = include_bytes!("../../../../tests/fixtures/symbols.xz");

    /// The names in a file that has this section.
    fn names(packed: &[u8]) -> Vec<String> {
        let names = b"\0.gnu_debugdata\0";
        let (ehdr, shdr) = (64, 64);
        let (packed_at, headers_at) = (ehdr + names.len(), ehdr + names.len() + packed.len());
        let mut bytes = vec![0; ehdr];
        bytes[40..48].copy_from_slice(&(headers_at as u64).to_ne_bytes());
        for (at, word) in [(58, shdr as u16), (60, 2), (62, 0)] {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes.extend(names);
        bytes.extend(packed);
        for (name, offset, size) in [(0u32, ehdr, names.len()), (1, packed_at, packed.len())] {
            let mut header = vec![0; shdr];
            header[..4].copy_from_slice(&name.to_ne_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_ne_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_ne_bytes());
            bytes.extend(header);
        }
        let file = rustix::fs::memfd_create("mini", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(&bytes).unwrap();
        let table = functions(&file, room(&file));
        let name = |name| String::from_utf8_lossy(table.name(name).unwrap()).into_owned();
        table.symbols().iter().map(|symbol| name(symbol.name)).collect()
    }

    #[test]
    fn packed_functions_have_their_names() {
        assert_eq!(names(PACKED), ["packed_function"]);
    }

    #[test]
    fn cut_and_damaged_sections_have_none() {
        for cut in (0..PACKED.len()).step_by(7) {
            assert!(names(&PACKED[..cut]).is_empty(), "cut at {cut}");
        }
        for at in (0..PACKED.len()).step_by(5) {
            let mut damaged = PACKED.to_vec();
            damaged[at] ^= 0x10;
            assert!(names(&damaged).len() <= 1, "byte {at}");
        }
        assert!(names(b"no xz at all").is_empty());
    }
}
