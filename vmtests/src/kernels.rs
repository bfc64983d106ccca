//! The kernels that guests boot: reads `KERNELS`, and chooses among package names.

use std::cmp::Ordering;
use std::fmt;

/// A processor architecture, by Debian's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    pub fn debian(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// The name that `uname -m` and Rust use.
    pub fn machine(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64",
            Arch::Arm64 => "aarch64",
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "amd64" | "x86_64" => Ok(Arch::Amd64),
            "arm64" | "aarch64" => Ok(Arch::Arm64),
            other => Err(format!("architecture {other:?} is not known: amd64 or arm64")),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.debian())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Its name for people and in the matrix, for example `6.12`.
    pub name: String,
    pub arch: Arch,
    pub suite: String,
    /// Package name with `*` for any run of characters.
    pub package: String,
    /// Further options of QEMU's `-cpu`, empty for most.
    pub processor: String,
}

pub fn parse(text: &str) -> Result<Vec<Kernel>, String> {
    let mut kernels: Vec<Kernel> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let at = |why: String| format!("KERNELS, line {}: {why}", index + 1);
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, arch, suite, package, processor) = match *words.as_slice() {
            [name, arch, suite, package] => (name, arch, suite, package, ""),
            [name, arch, suite, package, processor] => (name, arch, suite, package, processor),
            _ => return Err(at(format!("{} words, not name, architecture, suite and package", words.len()))),
        };
        let kernel = Kernel {
            name: name.to_owned(),
            arch: Arch::parse(arch).map_err(at)?,
            suite: suite.to_owned(),
            package: package.to_owned(),
            processor: processor.to_owned(),
        };
        if kernels.iter().any(|other| other.name == kernel.name && other.arch == kernel.arch) {
            return Err(at(format!("{name} {arch} stands here twice")));
        }
        kernels.push(kernel);
    }
    Ok(kernels)
}

/// The newest package name that the pattern allows.
pub fn newest<'a>(pattern: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().filter(|name| matches(pattern, name)).max_by(|a, b| by_version(a, b))
}

/// Whether `name` matches `pattern`, in which `*` matches any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| matches(tail, &rest[at..]))
        }),
    }
}

/// Compares numbers as numbers: 6.12.94 is older than 6.12.107.
fn by_version(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(&pieces(b))
}

fn pieces(name: &str) -> Vec<(u64, String)> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let text = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (word, after) = after.split_at(text);
        pieces.push((number.parse().unwrap_or(0), word.to_owned()));
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_has_four_kernels_for_each_architecture() {
        let kernels = parse(include_str!("../KERNELS")).unwrap();
        for arch in [Arch::Amd64, Arch::Arm64] {
            let names: Vec<_> =
                kernels.iter().filter(|kernel| kernel.arch == arch).map(|kernel| &kernel.name).collect();
            assert_eq!(names, ["5.10", "6.1", "6.12", "7.x"]);
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(
            parse("# x\n6.1 amd64 bookworm\n").unwrap_err(),
            "KERNELS, line 2: 3 words, not name, architecture, suite and package"
        );
        assert!(parse("6.1 mips bookworm x").unwrap_err().contains("mips"));
        assert!(parse("6.1 amd64 a x\n6.1 amd64 b y").unwrap_err().contains("twice"));
    }

    #[test]
    fn the_newest_package_is_chosen_by_number_and_never_an_unsigned_or_debug_one() {
        let names = [
            "linux-image-6.12.94+deb13-cloud-amd64",
            "linux-image-6.12.107+deb13-cloud-amd64",
            "linux-image-6.12.200+deb13-cloud-amd64-dbg",
            "linux-image-6.12.200+deb13-cloud-amd64-unsigned",
            "linux-image-6.1.0-50-cloud-amd64",
        ];
        assert_eq!(newest("linux-image-6.12.*-cloud-amd64", names), Some(names[1]));
        assert_eq!(newest("linux-image-6.1.*-cloud-amd64", names), Some(names[4]));
        assert_eq!(newest("linux-image-5.10.*-cloud-amd64", names), None);
    }
}
