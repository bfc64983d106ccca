//! A process whose code is to be named: its mappings, its root, and the user it runs as.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::open::{self, LastLink, below, held};
use crate::collect::proc_details;
use crate::host::processes;
use crate::model::process::ProcessId;

/// Bytes read of `/proc/PID/maps`: some 160,000 mappings. And of `/proc/PID/status`.
const MAPS_MAX: u64 = 16 << 20;
const STATUS_MAX: u64 = 1 << 20;

/// An open `/proc/PID`. It stays that of this process, also when another one has its id later.
pub struct Process {
    dir: OwnedFd,
    id: ProcessId,
    status: String,
}

impl Process {
    /// `None` when the process has ended.
    pub fn open(id: ProcessId) -> Option<Process> {
        let dir = open::directory(&processes::root().join(format!("proc/{}", id.0))).ok()?;
        let mut process = Process { dir, id, status: String::new() };
        if !process.is_there() {
            return None;
        }
        process.status = String::from_utf8_lossy(&process.read("status", STATUS_MAX).ok()?).into_owned();
        Some(process)
    }

    /// Whether it has not ended.
    pub fn is_there(&self) -> bool {
        proc_details::check_start(&held(&self.dir), self.id.0, self.id.1).is_ok()
    }

    /// The user it runs as.
    pub fn owner(&self) -> Option<u32> {
        self.field("Uid:")?.split_whitespace().nth(1)?.parse().ok()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.status.lines().find_map(|line| line.strip_prefix(name))
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(held(&self.dir).join(name))?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Its mappings with code, as text for [`Mapping::parse`].
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    pub fn maps(&self) -> io::Result<Vec<u8>> {
        self.read("maps", MAPS_MAX)
    }

    /// Its root directory.
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    pub fn root(&self) -> io::Result<OwnedFd> {
        open::directory(&held(&self.dir).join("root"))
    }

    /// The file of a mapping. The file itself, even when it was removed, needs CAP_CHECKPOINT_RESTORE; the path, which is
    /// tried with `by_path`, is one in the container of the process.
    ///
    /// # Errors
    /// It cannot be opened, or is not regular.
    pub fn mapped(&self, mapping: &Mapping<'_>, by_path: bool) -> io::Result<File> {
        open::mapped(&held(&self.dir).join("map_files").join(mapping.map_file())).or_else(|error| {
            if !by_path {
                return Err(error);
            }
            below(self.root()?.as_fd(), Path::new(mapping.path), LastLink::Followed)
        })
    }

    /// The perf map of a process that compiles as it runs, as the process sees it. It has to belong to the user of the
    /// process or to root, and is no link: other users can put names into `/tmp`, too.
    pub fn perf_map(&self) -> Option<File> {
        use std::os::unix::fs::MetadataExt;
        let pid = self.field("NSpid:")?.split_whitespace().last()?;
        let path = format!("tmp/perf-{pid}.map");
        let file = below(self.root().ok()?.as_fd(), Path::new(&path), LastLink::Refused).ok()?;
        let owner = file.metadata().ok()?.uid();
        (owner == 0 || Some(owner) == self.owner()).then_some(file)
    }
}

/// One line of `/proc/PID/maps` that is code.
#[derive(Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    pub start: u64,
    pub end: u64,
    /// Where it begins in its file.
    pub offset: u64,
    pub inode: (&'a str, &'a str),
    /// Empty for memory without a name; a word in brackets for mappings of the kernel.
    pub path: &'a str,
}

impl<'a> Mapping<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.splitn(6, ' ');
        let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
        let (device, inode) = (words.next()?, words.next()?);
        let path = words.next().unwrap_or_default().trim_start();
        let (start, end) = range.split_once('-')?;
        let hex = |word| u64::from_str_radix(word, 16).ok();
        rights.contains('x').then_some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            inode: (device, inode),
            path,
        })
    }

    /// The device that it is on, in the words of `/proc/PID/maps`.
    pub fn device(&self) -> &'a str {
        self.inode.0
    }

    /// Whether it is a file with a path.
    pub fn is_file(&self) -> bool {
        self.inode.1 != "0" && self.path.starts_with('/')
    }

    /// Its name in `/proc/PID/map_files`, where addresses have no leading zeros; in `maps` they have eight digits or more.
    fn map_file(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }

    /// The last part of its path, also when the file was removed.
    pub fn file_name(&self) -> &'a str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_a_mapping() {
        let line = b"7f00-7f10 r-xp 00001000 08:01 1234                       /usr/lib/a b.so (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(mapping.inode, ("08:01", "1234"));
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x7f10, 0x1000));
        assert_eq!((mapping.path, mapping.file_name()), ("/usr/lib/a b.so (deleted)", "a b.so"));
        assert!(mapping.is_file());
        for line in
            [&b"7ffe-7fff r-xp 00000000 00:00 0       [vdso]"[..], b"7ffe-7fff rwxp 00000000 00:00 0 "]
        {
            assert!(!Mapping::parse(line).unwrap().is_file());
        }
        for line in [&b"7f00-7f10 r--p 00001000 08:01 1234    /usr/lib/a.so"[..], b"7ffe-7fff r-xp", b"\xff"]
        {
            assert_eq!(Mapping::parse(line), None);
        }
    }

    #[test]
    fn a_program_at_a_low_address_is_found_in_map_files() {
        let line = b"00401000-00479000 r-xp 00001000 fe:00 9978258        /bin/not-pie";
        assert_eq!(Mapping::parse(line).unwrap().map_file(), "401000-479000");
        let line = b"7f0000401000-7f0000479000 r-xp 00001000 fe:00 1        /lib/a.so";
        assert_eq!(Mapping::parse(line).unwrap().map_file(), "7f0000401000-7f0000479000");
    }

    #[test]
    fn this_process_is_there_and_one_that_began_at_another_time_is_not() {
        let pid = std::process::id();
        let start = proc_details::start_ns(pid).unwrap();
        let me = Process::open((pid, start)).unwrap();
        assert_eq!(me.owner(), Some(rustix::process::geteuid().as_raw()));
        let maps = me.maps().unwrap();
        let code: Vec<Mapping<'_>> = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse).collect();
        let exe = code.iter().find(|mapping| mapping.is_file()).unwrap();
        assert!(me.mapped(exe, true).is_ok());
        assert!(Process::open((pid, start + 5_000_000_000)).is_none());
    }
}
