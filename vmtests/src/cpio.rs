//! Writes the initramfs: a "newc" cpio archive, built in memory.

use std::collections::BTreeSet;

/// An archive in the format that `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel
/// describes. Directories come before their content, as the kernel requires.
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    pub fn new() -> Self {
        Archive { bytes: Vec::new(), directories: BTreeSet::new(), inode: 0 }
    }

    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.directories.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.directories.insert(path.to_owned());
        self.entry(path, DIRECTORY, &[], (0, 0));
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: &str, contents: &[u8]) {
        let path = self.with_parent(path);
        self.entry(&path, PROGRAM, contents, (0, 0));
    }

    pub fn symlink(&mut self, path: &str, target: &str) {
        let path = self.with_parent(path);
        self.entry(&path, SYMLINK, target.as_bytes(), (0, 0));
    }

    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        let path = self.with_parent(path);
        self.entry(&path, CHARACTER_DEVICE, &[], (major, minor));
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self.bytes
    }

    fn with_parent(&mut self, path: &str) -> String {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        path.to_owned()
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        self.inode += 1;
        let size = u32::try_from(data.len()).expect("a file of the initramfs is below 4 GiB");
        let header = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // mtime
            size,
            0, // device the archive was made on
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // checksum, unused in newc
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back as (name, mode, data).
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701", "magic at {at}");
            let field = |index: usize| {
                let start = at + 6 + 8 * index;
                u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name_at = at + 110;
            let name = String::from_utf8(bytes[name_at..name_at + name_size - 1].to_vec()).unwrap();
            let data_at = (name_at + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return found;
            }
            found.push((name, mode, bytes[data_at..data_at + size].to_vec()));
            at = (data_at + size).next_multiple_of(4);
        }
    }

    #[test]
    fn directories_come_before_their_files_and_once() {
        let mut archive = Archive::new();
        archive.program("/usr/bin/a", b"abc");
        archive.program("/usr/bin/b", b"");
        archive.symlink("/bin", "usr/bin");
        let names: Vec<_> = entries(&archive.finish()).into_iter().map(|entry| (entry.0, entry.1)).collect();
        let expected = [
            ("usr", DIRECTORY),
            ("usr/bin", DIRECTORY),
            ("usr/bin/a", PROGRAM),
            ("usr/bin/b", PROGRAM),
            ("bin", SYMLINK),
        ];
        assert_eq!(names, expected.map(|(name, mode)| (name.to_owned(), mode)));
    }

    #[test]
    fn data_of_every_length_is_kept() {
        for length in 0..9 {
            let data = vec![7; length];
            let mut archive = Archive::new();
            archive.program("init", &data);
            archive.character_device("dev/console", 5, 1);
            let bytes = archive.finish();
            assert_eq!(bytes.len() % 512, 0);
            let read = entries(&bytes);
            assert_eq!(read[0].2, data);
            assert_eq!(read[2].0, "dev/console");
        }
    }
}
