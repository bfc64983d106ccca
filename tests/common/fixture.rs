//! Trees of files that tests read: a machine or a container engine of tests/fixtures, unpacked below target/.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The root of the tree tests/fixtures/NAME.tree, for example `hosts/cxl`. It is shared by all tests: none may write to it.
pub(crate) fn tree(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // The benchmarks are a package one level below.
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let project =
        above.find(|folder| folder.join("tests/fixtures").is_dir()).expect("tests have their fixtures");
    let file = project.join(format!("tests/fixtures/{name}.tree"));
    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("reading {}: {error}", file.display()));

    // A change of the tree or of this file gives a new directory.
    let mut hasher = DefaultHasher::new();
    (include_str!("fixture.rs"), &text).hash(&mut hasher);
    let root = project.join(format!("target/fixtures/{name}-{:016x}", hasher.finish()));
    if root.is_dir() {
        return root;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let unfinished = root.with_extension(format!("{}-{number}", std::process::id()));
    unpack(&text, &unfinished);
    if let Err(error) = fs::rename(&unfinished, &root) {
        // Another test was faster.
        assert!(root.is_dir(), "making {}: {error}", root.display());
        fs::remove_dir_all(&unfinished).unwrap();
    }
    root
}

/// Writes the entries of `text` below `root`. The format is described in tests/fixtures/tree.py.
pub(crate) fn unpack(text: &str, root: &Path) {
    fs::create_dir_all(root).unwrap();
    let place = |path: &str| {
        let path = root.join(path_of(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let mut file: Option<File> = None;
    for line in text.lines() {
        if let Some(more) = line.strip_prefix('|') {
            write_line(file.as_mut().expect("a file begins above"), more.strip_prefix(' ').unwrap_or(more));
            continue;
        }
        file = None;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let value = line.split_once(" = ");
        let link = line.split_once(" -> ");
        match (value, link) {
            (Some((path, value)), link) if link.is_none_or(|(other, _)| path.len() < other.len()) => {
                write_line(&mut File::create(place(path)).unwrap(), value);
            }
            (_, Some((path, target))) => std::os::unix::fs::symlink(path_of(target), place(path)).unwrap(),
            _ => match (line.strip_suffix(" ="), line.strip_suffix('/')) {
                (Some(path), _) => file = Some(File::create(place(path)).unwrap()),
                (_, Some(folder)) => fs::create_dir_all(place(folder)).unwrap(),
                _ => panic!("{line:?} is no entry of a tree"),
            },
        }
    }
}

fn write_line(file: &mut File, text: &str) {
    let (text, end) = text.strip_suffix("\\c").map_or((text, "\n"), |text| (text, ""));
    file.write_all(&unescape(text)).unwrap();
    file.write_all(end.as_bytes()).unwrap();
}

fn path_of(text: &str) -> PathBuf {
    std::ffi::OsString::from_vec(unescape(text)).into()
}

/// `\\` and `\xNN` as their bytes.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        let (byte, after) = match escape.strip_prefix('\\') {
            Some(after) => (b'\\', after),
            None => {
                let digits = escape.strip_prefix('x').and_then(|digits| digits.get(..2));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                (byte.unwrap_or_else(|| panic!("no escape: \\{escape}")), &escape[3..])
            }
        };
        bytes.push(byte);
        rest = after;
    }
    bytes.extend(rest.as_bytes());
    bytes
}
