//! Gets files out of Debian packages of any suite and architecture, without touching what this
//! machine has installed, and keeps them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::apt::{AptRoot, run};
use crate::kernels::{Arch, Kernel};

/// `$XDG_CACHE_HOME/numatop-ng/vm`, or the same under `~/.cache`.
pub fn cache() -> Result<PathBuf, String> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))
        .ok_or("no place for the kernels: neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("numatop-ng/vm"))
}

/// The holder of this is the only one that changes the cache, of all runs on this machine.
fn alone() -> Result<File, String> {
    let cache = cache()?;
    fs::create_dir_all(&cache).map_err(|error| format!("creating {}: {error}", cache.display()))?;
    let path = cache.join("lock");
    let lock = File::create(&path).map_err(|error| format!("creating {}: {error}", path.display()))?;
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| format!("locking {}: {error}", path.display()))?;
    Ok(lock)
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
    let _alone = alone()?;
    let elsewhere = format!(
        "the standard library cannot be built with rustc {version}; `rustup component add rust-src` is \
         another way to its sources"
    );
    let get = |root: &AptRoot| {
        let package = root.version("rust-src", version)?;
        eprintln!("vmtests: getting rust-src {package} ({SUITE})");
        let deb = root.download(&format!("rust-src={package}"))?;
        // An existing package is complete: it gets its name when it is fully unpacked.
        let part = keep.with_file_name(format!("{version}.part"));
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part).map_err(|error| format!("creating {}: {error}", part.display()))?;
        if let Err(why) = run(Command::new("dpkg").arg("-x").arg(&deb).arg(&part)) {
            let _ = fs::remove_dir_all(&part);
            return Err(why);
        }
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
    let kept = || {
        let text = fs::read_to_string(&note).ok().filter(|_| path.exists() && !refresh)?;
        cached(&text, pattern, suite).map(|package| (path.clone(), package.to_owned()))
    };
    if let Some(kept) = kept() {
        return Ok(kept);
    }
    let _alone = alone()?;
    // Another run may have been faster.
    if let Some(kept) = kept() {
        return Ok(kept);
    }
    let (package, deb) = AptRoot::with(suite, arch, refresh, |root| {
        let package = root.newest(pattern)?;
        eprintln!("vmtests: getting {package} ({suite}, {arch})");
        let deb = root.download(&package)?;
        Ok((package, deb))
    })?;
    let contents = extract(&deb, wanted)?;
    fs::create_dir_all(keep).map_err(|error| format!("creating {}: {error}", keep.display()))?;
    // An existing file is complete: it gets its name when it is fully written.
    let part = keep.join(format!("{file}.part"));
    if let Err(error) = fs::write(&part, contents) {
        let _ = fs::remove_file(&part);
        return Err(format!("writing {}: {error}", part.display()));
    }
    // While it replaces an old one, no note describes it.
    let _ = fs::remove_file(&note);
    fs::rename(&part, &path).map_err(|error| format!("naming {}: {error}", path.display()))?;
    fs::write(&note, format!("{package} {suite} {pattern}\n"))
        .map_err(|error| format!("writing {}: {error}", note.display()))?;
    let _ = fs::remove_file(&deb);
    Ok((path, package))
}

/// The package that a note names, if it was fetched for the current request: KERNELS may have changed since.
fn cached<'a>(note: &'a str, pattern: &str, suite: &str) -> Option<&'a str> {
    let words: Vec<&str> = note.split_whitespace().collect();
    match *words.as_slice() {
        [package, of_suite, for_pattern] if of_suite == suite && for_pattern == pattern => Some(package),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_is_used_only_if_it_is_what_kernels_asks_for_now() {
        let (package, pattern) = ("linux-image-6.12.94+deb13-cloud-amd64", "linux-image-6.12.*-cloud-amd64");
        let note = format!("{package} trixie {pattern}\n");
        assert_eq!(cached(&note, pattern, "trixie"), Some(package));
        // The generic kernel, whose pattern the cloud kernel matches as well.
        assert_eq!(cached(&note, "linux-image-6.12.*-amd64", "trixie"), None);
        assert_eq!(cached(&note, pattern, "trixie-backports"), None);
        assert_eq!(cached("", pattern, "trixie"), None);
    }
}
