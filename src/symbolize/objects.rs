//! Which file has this build id? The files that processes have mapped, held open so that a name can be looked up
//! when the process, its container or the file are gone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::elf::Elf;
use super::split;
use crate::collect::inspect;
use crate::hot::{BuildId, ProcessId};
use crate::text;

/// Files held open at most; then all are closed and looked for again.
const OBJECTS_MAX: usize = 512;
/// Processes in which a build id is looked for before it is given up.
const TRIES: u32 = 3;
/// Bytes read of `/proc/PID/maps`: some 160,000 mappings.
const MAPS_MAX: u64 = 16 << 20;

/// A file with code.
pub struct Object {
    file: File,
    elf: Elf,
    /// The last part of its path; clean.
    pub name: String,
    /// The file with its symbols, where they were split from it.
    debug: Option<File>,
}

impl Object {
    /// A path to the file as it is held open, whatever has its name now.
    pub fn path(&self) -> PathBuf {
        held(&self.file)
    }

    /// A path to the split symbols.
    pub fn debug_path(&self) -> Option<PathBuf> {
        self.debug.as_ref().map(held)
    }

    /// The address that symbols have for an offset into the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.elf.address_of(offset)
    }
}

/// Files by build id.
#[derive(Default)]
pub struct Objects {
    known: HashMap<BuildId, Object>,
    tried: HashMap<BuildId, u32>,
}

impl Objects {
    /// The file with this build id, which `process` has mapped.
    pub fn find(&mut self, id: BuildId, process: ProcessId) -> Option<&Object> {
        if !self.known.contains_key(&id) {
            let tries = self.tried.entry(id).or_default();
            if *tries >= TRIES {
                return None;
            }
            *tries += 1;
            if self.known.len() >= OBJECTS_MAX {
                self.known.clear();
            }
            self.scan(process);
        }
        self.known.get(&id)
    }

    /// Opens what `process` has mapped for execution and is not known yet.
    fn scan(&mut self, process: ProcessId) -> Option<()> {
        let proc = open_process(process)?;
        let mut maps = Vec::new();
        File::open(proc.join("maps")).ok()?.take(MAPS_MAX).read_to_end(&mut maps).ok()?;
        let mut seen = HashSet::new();
        for mapping in maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse) {
            if !seen.insert(mapping.inode) || self.known.len() >= OBJECTS_MAX {
                continue;
            }
            // The first is the file itself, even when it was removed; it needs CAP_CHECKPOINT_RESTORE. The path is
            // one in the container of the process.
            let file = open_file(&proc.join("map_files").join(mapping.range))
                .or_else(|| open_file(&proc.join("root").join(mapping.path.strip_prefix('/')?)));
            let Some(file) = file else { continue };
            let Some(elf) = Elf::read(&file) else { continue };
            let Some(id) = elf.build_id else { continue };
            if let Entry::Vacant(free) = self.known.entry(id) {
                let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(mapping.path);
                let name = text::clean_str(path.rsplit('/').next().unwrap_or(path));
                let debug = split::find(&file, id, path, &proc.join("root"));
                free.insert(Object { file, elf, name, debug });
            }
        }
        Some(())
    }
}

/// A folder `/proc/PID` that stays that of this process, whoever has its id later.
pub struct ProcDir(File);

impl ProcDir {
    pub fn join(&self, name: &str) -> PathBuf {
        held(&self.0).join(name)
    }
}

/// `None` when the process has ended.
pub fn open_process((pid, start_ns): ProcessId) -> Option<ProcDir> {
    let dir = File::open(format!("/proc/{pid}")).ok()?;
    inspect::check_start(&held(&dir), pid, start_ns).ok()?;
    Some(ProcDir(dir))
}

fn held(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens a regular file. What a container offers may be a pipe that nobody writes to, or a device.
pub fn open_file(path: &Path) -> Option<File> {
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// One line of `/proc/PID/maps` that is code of a file.
struct Mapping<'a> {
    range: &'a str,
    inode: (&'a str, &'a str),
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.splitn(6, ' ');
        let (range, rights) = (words.next()?, words.next()?);
        let (_, device, inode) = (words.next()?, words.next()?, words.next()?);
        let path = words.next()?.trim_start();
        (rights.contains('x') && path.starts_with('/')).then_some(Mapping {
            range,
            inode: (device, inode),
            path,
        })
    }
}

/// The perf map of a process that compiles as it runs, as the process sees it; `true` when it is a file that can be
/// read in time.
pub fn has_perf_map(proc: &ProcDir) -> bool {
    const MOST: u64 = 256 << 20;
    let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let Some(pid) = pids.and_then(|pids| pids.split_whitespace().last()) else { return false };
    let path = proc.join("root").join(format!("tmp/perf-{pid}.map"));
    open_file(&path).and_then(|file| file.metadata().ok()).is_some_and(|meta| meta.size() <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_a_mapping() {
        let line = b"7f00-7f10 r-xp 00001000 08:01 1234                       /usr/lib/a b.so (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.range, mapping.inode), ("7f00-7f10", ("08:01", "1234")));
        assert_eq!(mapping.path, "/usr/lib/a b.so (deleted)");
        for line in [
            &b"7f00-7f10 r--p 00001000 08:01 1234    /usr/lib/a.so"[..],
            b"7ffe-7fff r-xp 00000000 00:00 0       [vdso]",
            b"7ffe-7fff r-xp 00000000 00:00 0 ",
            b"7ffe-7fff r-xp",
            b"\xff",
        ] {
            assert!(Mapping::parse(line).is_none(), "{line:?}");
        }
    }

    #[test]
    fn a_pipe_is_no_file() {
        let dir = std::env::temp_dir().join(format!("numatop-ng-pipe-{}", std::process::id()));
        let path = std::ffi::CString::new(dir.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let opened = open_file(&dir);
        std::fs::remove_file(&dir).unwrap();
        assert!(opened.is_none());
    }
}
