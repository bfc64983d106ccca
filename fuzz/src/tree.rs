//! Directories in one input: files of /proc, /sys and container engines.
//!
//! A line `@@ PATH` begins a file; the lines after it are its content. `@@ PATH => TARGET` is a link. Both
//! are paths below the root of the tree, so no input reaches a file of this machine.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const MARK: &[u8] = b"@@ ";
const ARROW: &[u8] = b" => ";

/// Files made at most, and components of a path: more would only cost time.
const FILES_MAX: usize = 300;
const DEPTH_MAX: usize = 12;

/// One entry of an input.
pub struct Entry<'a> {
    pub path: PathBuf,
    pub content: Content<'a>,
}

/// A file or a link.
pub enum Content<'a> {
    File(&'a [u8]),
    /// To a path below the root.
    Link(PathBuf),
}

/// The entries of an input, and the bytes before the first one.
pub fn entries(input: &[u8]) -> (&[u8], Vec<Entry<'_>>) {
    let marks: Vec<usize> = (0..input.len())
        .filter(|at| input[*at..].starts_with(MARK) && (*at == 0 || input[at - 1] == b'\n'))
        .take(FILES_MAX + 1)
        .collect();
    let before = &input[..marks.first().copied().unwrap_or(input.len())];
    let ends = marks.iter().skip(1).copied().chain([input.len()]);
    let entry = |(at, end): (&usize, usize)| {
        let text = &input[at + MARK.len()..end];
        let line_end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let (line, content) = (&text[..line_end], text.get(line_end + 1..).unwrap_or_default());
        match line.windows(ARROW.len()).position(|window| window == ARROW) {
            Some(at) => Some(Entry {
                path: below(&line[..at])?,
                content: Content::Link(below(&line[at + ARROW.len()..])?),
            }),
            None => Some(Entry { path: below(line)?, content: Content::File(content) }),
        }
    };
    (before, marks.iter().zip(ends).take(FILES_MAX).filter_map(entry).collect())
}

/// `path` without components that lead out of the tree.
fn below(path: &[u8]) -> Option<PathBuf> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"." | b".."));
    let path: PathBuf =
        parts.take(DEPTH_MAX).map(|part| OsStr::from_bytes(&part[..part.len().min(200)])).collect();
    (!path.as_os_str().is_empty() && !path.as_os_str().as_bytes().contains(&0)).then_some(path)
}

/// The entries of an input as a directory, which is removed when this is dropped.
pub struct Tree {
    pub root: PathBuf,
}

impl Tree {
    /// Makes the directory. An entry that cannot be made, as below a file, is left out.
    pub fn new(entries: &[Entry<'_>]) -> Tree {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = above.join(format!("numatop-ng-fuzz-{}-{number}", std::process::id()));
        // From a process with the same id that was killed.
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).expect("memory takes a directory");
        let tree = Tree { root };
        for entry in entries {
            tree.add(entry);
        }
        tree
    }

    fn add(&self, entry: &Entry<'_>) {
        let path = self.root.join(&entry.path);
        // A link to a directory would be followed, but only to elsewhere in the tree.
        if path.parent().is_none_or(|above| fs::create_dir_all(above).is_err()) {
            return;
        }
        let _ = match &entry.content {
            Content::File(content) => fs::write(&path, content),
            Content::Link(target) => symlink(self.root.join(target), &path),
        };
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
