//! Lines of /proc/PID/maps, read from a file without end in sight.

use std::io::{self, Read};

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
