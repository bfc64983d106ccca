//! Where are the symbols that were split from a file? By its build id, and by the name that the file itself has for
//! them (GDB manual, "Separate Debug Files").

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::elf::{Elf, u16_at, u32_at, u64_at};
use super::objects::open_file;
use crate::hot::BuildId;

/// Section headers, bytes of their names, and bytes of a link that are looked at; real files have some forty, some
/// hundred, and less than a hundred.
const SECTIONS_MAX: usize = 1024;
const NAMES_MAX: u64 = 64 << 10;
const LINK_MAX: u64 = 1024;

/// Bytes of the file header and of one section header (elf(5), 64 bit).
const EHDR: usize = 64;
const SHDR: usize = 64;

const LINK: &[u8] = b".gnu_debuglink";

/// The split symbols of `file`, which has this build id and lies at `path` below `root`: there, or on the host. They
/// have to have the same build id, which says more than the checksum of the link.
pub fn find(file: &File, id: BuildId, path: &str, root: &Path) -> Option<File> {
    let relative = places(id, path, link_of(file).as_deref());
    let all =
        [root, Path::new("/")].into_iter().flat_map(|below| relative.iter().map(|place| below.join(place)));
    all.filter_map(|path| open_file(&path))
        .find(|debug| Elf::read(debug).and_then(|elf| elf.build_id) == Some(id))
}

/// Where to look, below a root.
fn places(id: BuildId, path: &str, link: Option<&str>) -> Vec<PathBuf> {
    let debug = Path::new("usr/lib/debug");
    let hex = id.to_string();
    // Shorter ids were filled up with zeros.
    let short = hex.trim_end_matches("00");
    let mut places = Vec::new();
    for hex in [hex.as_str(), short] {
        if let Some((first, rest)) = hex.split_at_checked(2) {
            places.push(debug.join(".build-id").join(first).join(format!("{rest}.debug")));
        }
    }
    let program = Path::new(path.trim_start_matches('/'));
    if let (Some(link), Some(dir)) = (link, program.parent()) {
        // A program may be linked to a file of its own name, in another directory.
        places.extend([dir.join(link), dir.join(".debug").join(link), debug.join(dir).join(link)]);
        places.retain(|place| place != program);
    }
    places
}

/// The name in `.gnu_debuglink`: a name only, because what a container offers may point anywhere.
fn link_of(file: &File) -> Option<String> {
    let section = section(file)?;
    let mut bytes = vec![0; section.size.min(LINK_MAX) as usize];
    file.read_exact_at(&mut bytes, section.offset).ok()?;
    let name = bytes.split(|byte| *byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    (!matches!(name, "" | "." | "..") && !name.contains('/')).then(|| name.to_string())
}

#[derive(Clone, Copy)]
struct Section {
    name: u32,
    offset: u64,
    size: u64,
}

/// The section with the link. `file` is known to be a 64-bit ELF file in this machine's byte order.
fn section(file: &File) -> Option<Section> {
    let mut head = [0; EHDR];
    file.read_exact_at(&mut head, 0).ok()?;
    let (at, size) = (u64_at(&head, 40)?, u16_at(&head, 58)?);
    let (count, names) = (u16_at(&head, 60)?, u16_at(&head, 62)?);
    if usize::from(size) != SHDR {
        return None;
    }
    let mut headers = vec![0; usize::from(count).min(SECTIONS_MAX) * SHDR];
    file.read_exact_at(&mut headers, at).ok()?;
    let section = |header: &[u8]| {
        Some(Section { name: u32_at(header, 0)?, offset: u64_at(header, 24)?, size: u64_at(header, 32)? })
    };
    let sections: Vec<Section> = headers.chunks_exact(SHDR).filter_map(section).collect();
    let names = sections.get(usize::from(names))?;
    let mut table = vec![0; names.size.min(NAMES_MAX) as usize];
    file.read_exact_at(&mut table, names.offset).ok()?;
    let is_link = |section: &&Section| {
        let name = table.get(section.name as usize..).unwrap_or_default();
        name.split(|byte| *byte == 0).next() == Some(LINK)
    };
    sections.iter().find(is_link).copied()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

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
        link_of(&file_of(&bytes))
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
    fn symbols_are_looked_for_by_build_id_first_and_then_by_name() {
        let mut id = [0; 20];
        id[..3].copy_from_slice(&[0xab, 0xcd, 0xef]);
        let found = places(BuildId(id), "/opt/db/mysqld", Some("mysqld.debug"));
        let found: Vec<&str> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            found,
            [
                &format!("usr/lib/debug/.build-id/ab/cdef{}.debug", "00".repeat(17)),
                "usr/lib/debug/.build-id/ab/cdef.debug",
                "opt/db/mysqld.debug",
                "opt/db/.debug/mysqld.debug",
                "usr/lib/debug/opt/db/mysqld.debug",
            ]
        );
        let own_name = places(BuildId(id), "/opt/db/mysqld", Some("mysqld"));
        assert!(!own_name.contains(&PathBuf::from("opt/db/mysqld")), "{own_name:?}");
    }
}
