//! Gets files out of Debian packages of any suite and architecture, without touching what this
//! machine has installed or where its apt looks.
//!
//! Each (suite, architecture) has an apt root of its own in the cache; apt checks the signatures
//! with the keyring of the package debian-archive-keyring, and asks the mirror that this machine
//! is set up for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::kernels::{self, Arch, Kernel};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// `$XDG_CACHE_HOME/numatop-ng/vm`, or the same under `~/.cache`.
pub fn cache() -> Result<PathBuf, String> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))
        .ok_or("no place for the kernels: neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("numatop-ng/vm"))
}

/// The kernel image, from the cache or else from Debian; with the package it came from.
pub fn kernel(kernel: &Kernel, refresh: bool) -> Result<(PathBuf, String), String> {
    let keep = cache()?.join("kernels").join(format!("{}.{}", kernel.name, kernel.arch));
    file_from_package(&keep, "vmlinuz", kernel.arch, &kernel.suite, &kernel.package, refresh, |path| {
        path.rsplit('/').next().is_some_and(|name| name.starts_with("vmlinuz"))
    })
}

/// A static busybox, for the person in a shell guest.
pub fn busybox(arch: Arch) -> Result<PathBuf, String> {
    let keep = cache()?.join("busybox").join(arch.debian());
    let is_it = |path: &str| path.ends_with("/bin/busybox");
    Ok(file_from_package(&keep, "busybox", arch, "bookworm", "busybox-static", false, is_it)?.0)
}

/// The library of Rust's sources for exactly this version of the compiler, for `-Zbuild-std`.
///
/// # Errors
/// When the suite cannot be read or has another version only: a standard library of another
/// version does not build with this compiler.
pub fn rust_src(version: &str) -> Result<PathBuf, String> {
    const SUITE: &str = "trixie-backports";
    let keep = cache()?.join("rust-src").join(version);
    let library = keep.join(format!("usr/src/rustc-{version}/library"));
    if library.join("std/Cargo.toml").exists() {
        return Ok(library);
    }
    let elsewhere = format!(
        "the standard library cannot be built with rustc {version}; `rustup component add rust-src` is \
         another way to its sources"
    );
    let get = |root: &AptRoot| {
        let package = root.version("rust-src", version)?;
        eprintln!("vmtests: getting rust-src {package} ({SUITE})");
        let deb = root.download(&format!("rust-src={package}"))?;
        // What is there is whole: it gets its name when all of it is unpacked.
        let part = keep.with_extension("part");
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part).map_err(|error| format!("creating {}: {error}", part.display()))?;
        run(Command::new("dpkg").arg("-x").arg(&deb).arg(&part))?;
        let _ = fs::remove_dir_all(&keep);
        fs::rename(&part, &keep).map_err(|error| format!("naming {}: {error}", keep.display()))?;
        let _ = fs::remove_file(&deb);
        if library.join("std/Cargo.toml").exists() {
            Ok(library.clone())
        } else {
            Err(format!("rust-src {package} has no {}", library.display()))
        }
    };
    AptRoot::with(SUITE, Arch::Amd64, false, get).map_err(|why| format!("{why}: {elsewhere}"))
}

fn file_from_package(
    keep: &Path,
    file: &str,
    arch: Arch,
    suite: &str,
    pattern: &str,
    refresh: bool,
    wanted: impl Fn(&str) -> bool,
) -> Result<(PathBuf, String), String> {
    let path = keep.join(file);
    let note = keep.join("package");
    if !refresh
        && path.exists()
        && let Ok(text) = fs::read_to_string(&note)
        && let Some(package) = cached(&text, pattern, suite)
    {
        return Ok((path, package.to_owned()));
    }
    let (package, deb) = AptRoot::with(suite, arch, refresh, |root| {
        let package = root.newest(pattern)?;
        eprintln!("vmtests: getting {package} ({suite}, {arch})");
        let deb = root.download(&package)?;
        Ok((package, deb))
    })?;
    let contents = extract(&deb, wanted)?;
    fs::create_dir_all(keep).map_err(|error| format!("creating {}: {error}", keep.display()))?;
    // A file that is there is whole: it gets its name when all of it is written.
    let part = keep.join(format!("{file}.part"));
    fs::write(&part, contents).map_err(|error| format!("writing {}: {error}", part.display()))?;
    // While it takes the place of an old one, no note says what it is.
    let _ = fs::remove_file(&note);
    fs::rename(&part, &path).map_err(|error| format!("naming {}: {error}", path.display()))?;
    fs::write(&note, format!("{package} {suite} {pattern}\n"))
        .map_err(|error| format!("writing {}: {error}", note.display()))?;
    let _ = fs::remove_file(&deb);
    Ok((path, package))
}

/// The package that a note names, if it was taken for what is asked for now: KERNELS may have changed since. A note
/// without suite and pattern is of an older runner; there, the name has to do.
fn cached<'a>(note: &'a str, pattern: &str, suite: &str) -> Option<&'a str> {
    let words: Vec<&str> = note.split_whitespace().collect();
    match *words.as_slice() {
        [package] if kernels::matches(pattern, package) => Some(package),
        [package, of_suite, for_pattern] if of_suite == suite && for_pattern == pattern => Some(package),
        _ => None,
    }
}

/// An apt configuration, its package lists and nothing else.
struct AptRoot {
    directory: PathBuf,
    suite: String,
    /// Its package lists were fetched by this process.
    updated: bool,
}

impl AptRoot {
    /// Gets something of a suite. What old package lists name may have left the mirror when a point release came, and
    /// what is new is not in them: what fails with them is tried once more with new ones.
    fn with<T>(
        suite: &str,
        arch: Arch,
        refresh: bool,
        get: impl Fn(&AptRoot) -> Result<T, String>,
    ) -> Result<T, String> {
        let root = AptRoot::open(suite, arch, refresh)?;
        match get(&root) {
            Err(_) if !root.updated => get(&AptRoot::open(suite, arch, true)?),
            done => done,
        }
    }

    fn open(suite: &str, arch: Arch, refresh: bool) -> Result<Self, String> {
        let directory = cache()?.join("apt").join(format!("{suite}.{arch}"));
        for part in [
            "etc/apt/preferences.d",
            "etc/apt/apt.conf.d",
            "etc/apt/sources.list.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg",
            "debs",
        ] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(|error| format!("creating {}: {error}", path.display()))?;
        }
        let root = directory.display();
        let configuration = format!(
            "Dir \"{root}\";\n\
             Dir::State::status \"{root}/var/lib/dpkg/status\";\n\
             Dir::Etc::trustedparts \"/etc/apt/trusted.gpg.d\";\n\
             APT::Architecture \"{arch}\";\n\
             APT::Architectures {{ \"{arch}\"; }};\n\
             APT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\n\
             // Suites in development and frozen mirrors have Release files past their date;\n\
             // their signatures are checked all the same.\n\
             Acquire::Check-Valid-Until \"false\";\n"
        );
        let sources = format!("deb [arch={arch} signed-by={KEYRING}] {} {suite} main\n", mirror()?);
        for (name, text) in [
            ("apt.conf", configuration.as_str()),
            ("etc/apt/sources.list", &sources),
            ("var/lib/dpkg/status", ""),
        ] {
            let path = directory.join(name);
            fs::write(&path, text).map_err(|error| format!("writing {}: {error}", path.display()))?;
        }
        let stamp = directory.join("updated");
        let updated = refresh || !stamp.exists();
        let root = AptRoot { directory, suite: suite.to_owned(), updated };
        if updated {
            // --error-on=any: apt-get update returns 0 when a suite could not be fetched.
            run(root.apt("apt-get").args(["update", "-qq", "--error-on=any"]))
                .map_err(|error| format!("suite {suite} cannot be read: {error}"))?;
            let _ = fs::write(stamp, "");
        }
        Ok(root)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.directory.join("apt.conf")).env("LC_ALL", "C");
        command.current_dir(self.directory.join("debs"));
        command
    }

    fn newest(&self, pattern: &str) -> Result<String, String> {
        let stem = pattern.split('*').next().unwrap_or(pattern);
        let names = run(self.apt("apt-cache").args(["pkgnames", stem]))?;
        let names = String::from_utf8_lossy(&names);
        kernels::newest(pattern, names.lines())
            .map(str::to_owned)
            .ok_or_else(|| format!("suite {} has no package {pattern}", self.suite))
    }

    /// The Debian version of `package` whose upstream version is `upstream`.
    fn version(&self, package: &str, upstream: &str) -> Result<String, String> {
        let table = run(self.apt("apt-cache").args(["madison", package]))?;
        let table = String::from_utf8_lossy(&table);
        let versions: Vec<&str> =
            table.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
        versions
            .iter()
            .find(|version| is_release(version, upstream))
            .map(|version| (*version).to_owned())
            .ok_or_else(|| {
                let there = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
                format!("suite {} has no {package} {upstream} (it has {there})", self.suite)
            })
    }

    fn download(&self, package: &str) -> Result<PathBuf, String> {
        let debs = self.directory.join("debs");
        let _ = fs::remove_dir_all(&debs);
        fs::create_dir_all(&debs).map_err(|error| format!("creating {}: {error}", debs.display()))?;
        run(self.apt("apt-get").args(["download", "-qq", package]))?;
        fs::read_dir(&debs)
            .ok()
            .and_then(|entries| entries.flatten().map(|entry| entry.path()).find(|path| is_deb(path)))
            .ok_or_else(|| format!("apt-get download {package} left no file"))
    }
}

/// Whether a Debian version such as `1.95.0+dfsg1-2~bpo13+1` is a package of this upstream release.
fn is_release(version: &str, upstream: &str) -> bool {
    version.strip_prefix(upstream).is_some_and(|rest| rest.starts_with(['+', '-']))
}

fn is_deb(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "deb")
}

/// The mirror that this machine itself uses.
fn mirror() -> Result<String, String> {
    let output = run(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN)"]))?;
    let output = String::from_utf8_lossy(&output);
    let debian =
        output.lines().filter_map(|line| line.split_once(' ')).filter(|(_, origin)| *origin == "Debian");
    debian
        .map(|(uri, _)| uri)
        .find(|uri| !uri.contains("-security"))
        .map(str::to_owned)
        .ok_or_else(|| "apt knows no Debian mirror here: run apt-get update once, as root".to_owned())
}

/// The one file of a package whose name is wanted.
fn extract(deb: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<u8>, String> {
    let names = pipe_tar(deb, &["-t"])?;
    let names = String::from_utf8_lossy(&names);
    let name = names
        .lines()
        .find(|name| wanted(name))
        .ok_or_else(|| format!("{} does not contain the file looked for", deb.display()))?;
    pipe_tar(deb, &["-x", "-O", name])
}

fn pipe_tar(deb: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let mut unpack = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("dpkg-deb cannot be run: {error}; install dpkg"))?;
    let tar = unpack.stdout.take().expect("stdout was asked for");
    let output = run(Command::new("tar").args(arguments).stdin(tar));
    let _ = unpack.wait();
    output
}

fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = format!("{command:?}").replace('"', "");
    let output = command.output().map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed ({}): {}", output.status, said.trim().replace('\n', "; ")));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_release_of_the_compiler_will_do() {
        assert!(is_release("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(is_release("1.95.0-1", "1.95.0"));
        assert!(!is_release("1.95.0~rc1-1", "1.95.0"));
        assert!(!is_release("1.95.01-1", "1.95.0"));
        assert!(!is_release("1.96.0+dfsg1-1", "1.95.0"));
    }

    #[test]
    fn a_kept_file_is_used_only_if_it_is_what_kernels_asks_for_now() {
        let (package, pattern) = ("linux-image-6.12.94+deb13-cloud-amd64", "linux-image-6.12.*-cloud-amd64");
        let note = format!("{package} trixie {pattern}\n");
        assert_eq!(cached(&note, pattern, "trixie"), Some(package));
        // The generic kernel, whose pattern the cloud kernel matches as well.
        assert_eq!(cached(&note, "linux-image-6.12.*-amd64", "trixie"), None);
        assert_eq!(cached(&note, pattern, "trixie-backports"), None);
        assert_eq!(cached(package, pattern, "trixie"), Some(package));
        assert_eq!(cached(package, "linux-image-6.13.*-cloud-amd64", "trixie"), None);
        assert_eq!(cached("", pattern, "trixie"), None);
    }
}
