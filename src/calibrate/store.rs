//! The profile on the disk: where it is looked for, how it is read, and how it takes the place of an older one.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::geteuid;

use super::machine;
use crate::host::kernel::read_trimmed;
use crate::model::profile::{Profile, SCHEMA};
use crate::model::topology::Topology;

/// The name of the file.
const NAME: &str = "machine.json";

/// The folder of the machine.
const OF_MACHINE: &str = "/var/lib/numatop-ng";

/// A file that is larger is none of ours: 16 nodes take 20 kB.
const MOST_BYTES: u64 = 4 << 20;

/// Readable by everybody: it names no host, no user and no program.
const MODE: u32 = 0o644;

/// Files in which a profile is looked for, in this order.
pub fn places() -> Vec<PathBuf> {
    let machine = Some(PathBuf::from(OF_MACHINE));
    machine.into_iter().chain(of_user()).map(|folder| folder.join(NAME)).collect()
}

fn of_user() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("numatop-ng"))
}

/// The file that a profile of this user is stored in: the machine's for root, or `$STATE_DIRECTORY` of a service.
///
/// # Errors
/// The user has no home.
pub fn own_place() -> Result<PathBuf> {
    let service = env::var_os("STATE_DIRECTORY").filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = match service {
        Some(folder) => folder,
        None if geteuid().is_root() => PathBuf::from(OF_MACHINE),
        None => of_user().context("neither XDG_STATE_HOME nor HOME says where")?,
    };
    Ok(folder.join(NAME))
}

/// Reads a profile.
///
/// # Errors
/// There is no such file, or it is damaged, or of a schema that is not known.
pub fn read(path: &Path) -> Result<Profile> {
    let reading = || format!("reading {}", path.display());
    let file = File::open(path).with_context(reading)?;
    ensure!(file.metadata().with_context(reading)?.is_file(), "{} is no file", path.display());
    let mut text = String::new();
    let read = file.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(reading)?;
    ensure!(read as u64 <= MOST_BYTES, "{} is too large to be a profile", path.display());
    let profile: Profile =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    ensure!(
        profile.schema == SCHEMA,
        "{} has schema {}, and this version knows {SCHEMA}",
        path.display(),
        profile.schema
    );
    Ok(profile)
}

/// A stored profile, and whether it is about this machine.
#[derive(Clone, Debug)]
pub struct Stored {
    pub path: PathBuf,
    pub profile: Profile,
    /// Why it says nothing about this machine now; `None` if it does.
    pub inapplicable: Option<String>,
}

/// The first profile there is, and a word on each file that could not be read. A damaged one is no error.
pub fn find(topology: &Topology) -> (Option<Stored>, Vec<String>) {
    find_in(&places(), topology)
}

fn find_in(places: &[PathBuf], topology: &Topology) -> (Option<Stored>, Vec<String>) {
    let mut notes = Vec::new();
    for path in places {
        let none = |error: &anyhow::Error| {
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        match read(path) {
            Ok(profile) => {
                let key = machine::key(Path::new("/"), topology);
                let inapplicable = profile.inapplicable(&key, &boot_id());
                return (Some(Stored { path: path.clone(), profile, inapplicable }), notes);
            }
            Err(error) if none(&error) => {}
            Err(error) => notes.push(format!("{error:#}")),
        }
    }
    (None, notes)
}

/// The run of the kernel.
pub fn boot_id() -> String {
    read_trimmed("/proc/sys/kernel/random/boot_id")
}

/// Writes a profile beside `path` and gives it that name. The folder is made if it is not there.
///
/// # Errors
/// The folder or the file belongs to somebody else, or cannot be written.
pub fn write(path: &Path, profile: &Profile) -> Result<()> {
    let folder = path.parent().context("a profile needs a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    ours(folder)?;
    if path.symlink_metadata().is_ok() {
        ours(path)?;
    }
    let mut text = serde_json::to_string(profile).context("writing JSON")?;
    text.push('\n');
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&beside);
    let mut file = made.with_context(|| format!("making {}", beside.display()))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let named = written.and_then(|()| fs::rename(&beside, path));
    if named.is_err() {
        let _ = fs::remove_file(&beside);
    }
    named.with_context(|| format!("storing {}", path.display()))
}

/// Refuses what another user made or may write to.
fn ours(path: &Path) -> Result<()> {
    let meta = path.symlink_metadata().with_context(|| format!("looking at {}", path.display()))?;
    let euid = geteuid().as_raw();
    if meta.is_symlink() {
        bail!("{} is a symbolic link", path.display());
    }
    ensure!(meta.uid() == euid, "{} belongs to user {}, not to user {euid}", path.display(), meta.uid());
    ensure!(
        meta.mode() & 0o022 == 0,
        "other users can write to {} (mode {:04o})",
        path.display(),
        meta.mode() & 0o7777
    );
    Ok(())
}

/// Held while the machine is loaded, so that two calibrations do not measure each other.
pub struct Lock(#[expect(dead_code, reason = "closed when it is dropped")] UnixListener);

impl Lock {
    /// Takes it. The lock is an abstract socket: every user of the machine sees it, and no file is left.
    ///
    /// # Errors
    /// Another process has it: [`io::ErrorKind::AddrInUse`].
    pub fn take() -> io::Result<Lock> {
        let address = SocketAddr::from_abstract_name("numatop-ng-known-load")?;
        UnixListener::bind_addr(&address).map(Lock)
    }
}

#[cfg(test)]
mod tests;
