//! The sections of an ELF file: its functions, and the name of the file with its split symbols; and MiniDebugInfo, an
//! xz-compressed section of a stripped program with its static functions (GDB manual, "MiniDebugInfo"), with which Fedora and RHEL
//! build their packages.
//!
//! As in `elf.rs`, nothing is trusted: buffers are of a bounded size, and a file that changes meanwhile has
//! wrong names at worst.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;

use lzma_rust2::XzReader;

use super::elf::{u16_at, u32_at, u64_at};
use super::table::{Symbol, Table};

/// Limits for section headers, bytes of their names, and bytes of a link. Real files have about forty, about
/// a hundred, and less than a hundred.
const SECTIONS_MAX: usize = 1024;

const NAMES_MAX: u64 = 64 << 10;

const LINK_MAX: u64 = 1024;

/// Symbols that are looked at in one table. A browser with all its symbols has two million.
const SYMBOLS_MAX: u64 = 4 << 20;

/// Bytes of a mangled name; longer ones are no name.
const MANGLED_MAX: usize = 4096;

/// Bytes that are searched for the ends of names in memory. The names of a valid file take only a part of
/// this.
const SCANNED_MAX: usize = 16 << 20;

/// Bytes of the file header, of one section header and of one symbol (elf(5), 64 bit).
const EHDR: usize = 64;

const SHDR: usize = 64;

const SYM: usize = 24;

const SHT_SYMTAB: u32 = 2;

const SHT_DYNSYM: u32 = 11;

const STT_FUNC: u8 = 2;

const STT_GNU_IFUNC: u8 = 10;

const LINK: &[u8] = b".gnu_debuglink";

/// Bytes that can be read anywhere: a file, or a part of one that was unpacked.
pub(super) trait Bytes {
    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// There are fewer bytes, or they cannot be read.
    fn read_all(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl Bytes for File {
    fn read_all(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }
}

impl Bytes for [u8] {
    fn read_all(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let found = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(super) struct Section {
    name: u32,
    kind: u32,
    pub offset: u64,
    pub size: u64,
    /// For symbols: which section has their names.
    link: u32,
}

/// The sections of `file`, which is known to be a 64-bit ELF file in this machine's byte order, and which of them has
/// their names.
fn sections(file: &(impl Bytes + ?Sized)) -> Option<(Vec<Section>, usize)> {
    let mut head = [0; EHDR];
    file.read_all(&mut head, 0).ok()?;
    let (at, size) = (u64_at(&head, 40)?, u16_at(&head, 58)?);
    let (count, names) = (u16_at(&head, 60)?, u16_at(&head, 62)?);
    if usize::from(size) != SHDR {
        return None;
    }
    let mut headers = vec![0; usize::from(count).min(SECTIONS_MAX) * SHDR];
    file.read_all(&mut headers, at).ok()?;
    let section = |header: &[u8]| {
        Some(Section {
            name: u32_at(header, 0)?,
            kind: u32_at(header, 4)?,
            offset: u64_at(header, 24)?,
            size: u64_at(header, 32)?,
            link: u32_at(header, 40)?,
        })
    };
    Some((headers.chunks_exact(SHDR).filter_map(section).collect(), names.into()))
}

/// The section of `file` with this name.
pub(super) fn named(file: &File, name: &[u8]) -> Option<Section> {
    let (sections, names) = sections(file)?;
    let names = sections.get(names)?;
    let mut table = vec![0; names.size.min(NAMES_MAX) as usize];
    file.read_exact_at(&mut table, names.offset).ok()?;
    let has_name = |section: &Section| {
        let found = table.get(section.name as usize..).unwrap_or_default();
        found.split(|byte| *byte == 0).next() == Some(name)
    };
    sections.into_iter().find(has_name)
}

/// The name in `.gnu_debuglink`. It is a name only: a path could lead anywhere.
pub fn debug_link(file: &File) -> Option<String> {
    let section = named(file, LINK)?;
    let mut bytes = vec![0; section.size.min(LINK_MAX) as usize];
    file.read_exact_at(&mut bytes, section.offset).ok()?;
    let name = bytes.split(|byte| *byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    is_file_name(name).then(|| name.to_string())
}

/// Whether `name` is that of something in a directory, and no path to elsewhere.
pub fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/')
}

/// One of the two symbol tables of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbols {
    /// All, where the file was not stripped.
    All,
    /// Functions that other files may use.
    Dynamic,
}

impl Symbols {
    fn section(self) -> u32 {
        match self {
            Symbols::All => SHT_SYMTAB,
            Symbols::Dynamic => SHT_DYNSYM,
        }
    }
}

/// Bytes that [`functions`] of `file` take at most.
pub fn room(file: &File, which: Symbols) -> usize {
    let count = symbols(file, which.section()).map_or(0, |(section, _)| section.size / SYM as u64);
    // A table grows by a quarter.
    (count.min(SYMBOLS_MAX) as usize + 1024) * size_of::<Symbol>() * 5 / 4
}

/// The functions of `file` by address, in `room` bytes. Their names are offsets for [`name_at`].
pub fn functions(file: &File, which: Symbols, room: usize) -> Table {
    let mut table = Table::with_room(room);
    let Some((section, names)) = symbols(file, which.section()) else { return table };
    table.names_at = names.map(|names| names.offset);
    each_function(file, section, |value, size, name| table.add(value, size, name));
    table.finish();
    table
}

/// The functions of an ELF file in memory, with their names, in `room` bytes.
pub(super) fn functions_of(file: &[u8], room: usize) -> Table {
    let mut table = Table::with_room(room);
    let Some((section, Some(names))) = symbols(file, SHT_SYMTAB) else { return table };
    let names = usize::try_from(names.offset).ok().and_then(|at| file.get(at..)).unwrap_or_default();
    let (mut left, mut is_cut) = (SCANNED_MAX, false);
    each_function(file, section, |value, size, name| {
        let name = names.get(name as usize..).unwrap_or_default();
        let end = name.iter().take(MANGLED_MAX).position(|byte| *byte == 0);
        let scanned = end.unwrap_or_else(|| name.len().min(MANGLED_MAX));
        is_cut = scanned > left;
        left = left.saturating_sub(scanned);
        let length = end.unwrap_or_default();
        !is_cut && (length == 0 || table.add_named(value, size, &name[..length]))
    });
    if is_cut {
        table.cut();
    }
    table.finish();
    table
}

/// The section with symbols of this kind, and the one with their names.
fn symbols(file: &(impl Bytes + ?Sized), kind: u32) -> Option<(Section, Option<Section>)> {
    let (all, _) = sections(file)?;
    let section = *all.iter().find(|section| section.kind == kind)?;
    Some((section, all.get(section.link as usize).copied()))
}

/// Calls `take` with address, size and place of the name of each function, until it has no room.
fn each_function(
    file: &(impl Bytes + ?Sized),
    section: Section,
    mut take: impl FnMut(u64, u64, u32) -> bool,
) {
    let mut buffer = vec![0; SYM * 4096];
    let mut left = (section.size / SYM as u64).min(SYMBOLS_MAX);
    let mut at = section.offset;
    while left > 0 {
        let wanted = left.min(4096) as usize * SYM;
        if file.read_all(&mut buffer[..wanted], at).is_err() {
            return;
        }
        for symbol in buffer[..wanted].chunks_exact(SYM) {
            let kind = symbol[4] & 0xf;
            // Undefined ones are functions of other files.
            if !matches!(kind, STT_FUNC | STT_GNU_IFUNC) || symbol[6..8] == [0, 0] {
                continue;
            }
            let (Some(name), Some(value), Some(size)) =
                (u32_at(symbol, 0), u64_at(symbol, 8), u64_at(symbol, 16))
            else {
                continue;
            };
            if !take(value, size, name) {
                return;
            }
        }
        left -= (wanted / SYM) as u64;
        at = at.saturating_add(wanted as u64);
    }
}

/// The name at offset `name` of the names that begin at `names`, as the compiler made it.
pub fn name_at(file: &File, names: u64, name: u32) -> Option<Vec<u8>> {
    let mut bytes = vec![0; MANGLED_MAX];
    let read = file.read_at(&mut bytes, names.checked_add(name.into())?).ok()?;
    let length = bytes[..read].iter().position(|byte| *byte == 0)?;
    bytes.truncate(length);
    (length > 0).then_some(bytes)
}

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

/// Bytes that [`mini_functions`] of `file` take at most: the file, and the dictionary or the table.
pub(super) fn mini_room(file: &File) -> usize {
    section(file).map_or(0, |(_, most)| 2 * most)
}

/// Functions in the packed symbols of `file`, by address, in `room` bytes. They do not repeat the dynamic symbols.
pub(super) fn mini_functions(file: &File, room: usize) -> Table {
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
    use std::{fs, thread};

    use super::*;

    /// A file that is already removed.
    fn file_of(bytes: &[u8]) -> File {
        let name = format!("numatop-ng-link-{}-{:?}", std::process::id(), thread::current().id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file
    }

    /// A file with a section of this content, called like a link; `damage` may then change it.
    fn link(content: &[u8], damage: impl FnOnce(&mut Vec<u8>)) -> Option<String> {
        let names = b"\0.text\0.gnu_debuglink\0";
        let contents_at = EHDR + names.len();
        let headers_at = contents_at + content.len();
        let mut bytes = vec![0; EHDR];
        bytes[40..48].copy_from_slice(&(headers_at as u64).to_ne_bytes());
        for (at, word) in [(58, SHDR as u16), (60, 2), (62, 0)] {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes.extend(names);
        bytes.extend(content);
        for (name, offset, size) in [(0u32, EHDR, names.len()), (7, contents_at, content.len())] {
            let mut header = [0; SHDR];
            header[..4].copy_from_slice(&name.to_ne_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_ne_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_ne_bytes());
            bytes.extend(header);
        }
        damage(&mut bytes);
        debug_link(&file_of(&bytes))
    }

    #[test]
    fn the_link_is_the_name_before_the_checksum() {
        assert_eq!(link(b"mysqld.debug\0\0\0\0\x12\x34\x56\x78", |_| ()), Some("mysqld.debug".into()));
    }

    #[test]
    fn a_link_to_somewhere_else_is_none() {
        for name in [&b"../../etc/shadow\0"[..], b"/etc/shadow\0", b"..\0", b"\0", b"", b"\xff\xfe\0"] {
            assert_eq!(link(name, |_| ()), None, "{name:?}");
        }
    }

    #[test]
    fn cut_and_absurd_files_have_no_link() {
        let content = b"a.debug\0\x12\x34\x56\x78";
        let whole = EHDR + 22 + content.len() + 2 * SHDR;
        for cut in 0..whole {
            assert_eq!(link(content, |bytes| bytes.truncate(cut)), None, "cut at {cut}");
        }
        // An offset, a count, an index or a size that points out of the file.
        for (at, length) in [(40, 8), (60, 2), (62, 2), (whole - 2 * SHDR + 24, 8), (whole - SHDR + 24, 8)] {
            assert_eq!(link(content, |bytes| bytes[at..at + length].fill(0xff)), None, "at {at}");
        }
    }

    #[test]
    fn functions_of_this_test_are_found() {
        let me = File::open("/proc/self/exe").unwrap();
        let table = functions(&me, Symbols::All, room(&me, Symbols::All));
        assert!(!table.is_cut());
        let names = table.names_at.unwrap();
        let known = table.symbols().iter().take(5000).filter_map(|symbol| name_at(&me, names, symbol.name));
        assert!(known.into_iter().any(|name| name.starts_with(b"_")), "a program has functions with names");
        assert!(functions(&File::open("/dev/null").unwrap(), Symbols::All, 0).is_empty());
    }

    #[test]
    fn names_without_an_end_are_not_searched_for_ever() {
        let count = 1 << 19;
        let (symbols_at, names_at) = (EHDR + 3 * SHDR, EHDR + 3 * SHDR + count * SYM);
        let mut file = vec![0; EHDR];
        file[40..48].copy_from_slice(&(EHDR as u64).to_ne_bytes());
        for (at, word) in [(58, SHDR as u16), (60, 3), (62, 0)] {
            file[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        for (kind, offset, size, link) in
            [(0, 0, 0, 0), (SHT_SYMTAB, symbols_at, count * SYM, 2u32), (3, names_at, 2 * MANGLED_MAX, 0)]
        {
            let mut header = [0; SHDR];
            header[4..8].copy_from_slice(&kind.to_ne_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_ne_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_ne_bytes());
            header[40..44].copy_from_slice(&link.to_ne_bytes());
            file.extend(header);
        }
        for at in 0..count as u64 {
            let mut symbol = [0; SYM];
            (symbol[4], symbol[6]) = (STT_FUNC, 1);
            symbol[8..16].copy_from_slice(&at.to_ne_bytes());
            symbol[16..24].copy_from_slice(&1u64.to_ne_bytes());
            file.extend(symbol);
        }
        file.extend([b'x'; 2 * MANGLED_MAX]);
        let table = functions_of(&file, 1 << 20);
        assert!(table.is_empty() && table.is_cut(), "all of its names were searched");
    }

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
        let table = mini_functions(&file, mini_room(&file));
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
