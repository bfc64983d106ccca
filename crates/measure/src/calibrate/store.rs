//! The profile on the disk: where it is looked for, how it is read, and how it takes the place of an older one.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::Mode;
use rustix::process::geteuid;
use serde::Serialize;

use super::machine;
use crate::host::kernel::read_trimmed;
use crate::model::profile::{Profile, SCHEMA};
use crate::model::topology::{Calibration, Topology};
use crate::program::guard::{self, Folder, Owner};
use crate::program::sockets;

/// The name of the file.
const NAME: &str = "machine.json";

/// The folder of the machine.
const OF_MACHINE: &str = "/var/lib/numatop-ng";

/// A larger file is not a profile: 16 nodes take 20 kB.
const MOST_BYTES: u64 = 4 << 20;

/// Files and their folder are readable by all users: they name no host, no user and no program.
const FOLDER_MODE: u32 = 0o755;

/// Files in which a profile is looked for, in this order: of the service that we are, of the machine, of the user.
pub fn places() -> Vec<PathBuf> {
    let machine = Some(PathBuf::from(OF_MACHINE));
    let mut places: Vec<PathBuf> =
        of_service().into_iter().chain(machine).chain(of_user()).map(|folder| folder.join(NAME)).collect();
    places.dedup();
    places
}

/// The first folder of `$STATE_DIRECTORY`, which systemd separates with colons.
fn of_service() -> Option<PathBuf> {
    first_folder(&env::var_os("STATE_DIRECTORY")?)
}

fn first_folder(folders: &OsStr) -> Option<PathBuf> {
    let first = env::split_paths(folders).next()?;
    (!first.as_os_str().is_empty()).then_some(first)
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
    let folder = match of_service() {
        Some(folder) => folder,
        None if geteuid().is_root() => PathBuf::from(OF_MACHINE),
        None => of_user().context("neither XDG_STATE_HOME nor HOME is set")?,
    };
    Ok(folder.join(NAME))
}

/// Reads a profile.
///
/// # Errors
/// The file does not exist, is damaged, or has an unknown schema.
pub fn read(path: &Path) -> Result<Profile> {
    let profile: Profile =
        serde_json::from_str(&text_of(path)?).with_context(|| format!("{} is damaged", path.display()))?;
    ensure!(
        profile.schema == SCHEMA,
        "{} has schema {}, and this version knows {SCHEMA}",
        path.display(),
        profile.schema
    );
    Ok(profile)
}

/// The text of a file that is stored here.
///
/// # Errors
/// The file does not exist, is not a regular file, or is too large.
pub fn text_of(path: &Path) -> Result<String> {
    guard::read_text(path, MOST_BYTES, Owner::OfFolder).map_err(|error| {
        let name = path.display();
        match error.kind() {
            io::ErrorKind::InvalidInput => anyhow::anyhow!("{name} is not a file"),
            io::ErrorKind::FileTooLarge => anyhow::anyhow!("{name} is too large for a profile"),
            _ => anyhow::Error::from(error).context(format!("reading {name}")),
        }
    })
}

/// A stored profile, and whether it is about this machine.
#[derive(Clone, Debug)]
pub struct Stored {
    pub path: PathBuf,
    pub profile: Profile,
    /// The reason why it does not apply to this machine now; `None` if it does.
    pub inapplicable: Option<String>,
}

/// The profile that is to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The stored profile, see [`places`].
    #[default]
    Stored,
    /// Nothing: distances are those of the firmware.
    Nothing,
    /// This file.
    File(PathBuf),
}

/// The first profile about this machine, or else the first one, and a note on each file that could not be
/// read. A damaged file is not an error.
pub fn find(wanted: &Wanted, topology: &Topology) -> (Option<Stored>, Vec<String>) {
    match wanted {
        Wanted::Stored => find_in(&places(), topology),
        Wanted::Nothing => (None, Vec::new()),
        Wanted::File(path) => find_in(std::slice::from_ref(path), topology),
    }
}

fn find_in(places: &[PathBuf], topology: &Topology) -> (Option<Stored>, Vec<String>) {
    let mut notes = Vec::new();
    let mut other = None;
    for path in places {
        let none = |error: &anyhow::Error| {
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        match read(path) {
            Ok(profile) => {
                let key = machine::key(Path::new("/"), topology);
                let inapplicable = profile.inapplicable(&key, &boot_id());
                let applies = inapplicable.is_none();
                let stored = Stored { path: path.clone(), profile, inapplicable };
                if applies {
                    return (Some(stored), notes);
                }
                other = other.or(Some(stored));
            }
            Err(error) if none(&error) => {}
            Err(error) => notes.push(format!("{error:#}")),
        }
    }
    (other, notes)
}

/// The topology of this machine, with the measured costs of its nodes, if any.
pub fn with_costs(wanted: &Wanted, mut topology: Topology) -> Topology {
    let (found, _) = find(wanted, &topology);
    let Some(stored) = found else { return topology };
    match stored.inapplicable {
        None => stored.profile.measure(&mut topology),
        why @ Some(_) => {
            let time = stored.profile.time;
            topology.calibration = Some(Calibration { time, unused: why, ..Calibration::default() });
        }
    }
    topology
}

/// The run of the kernel.
pub fn boot_id() -> String {
    read_trimmed("/proc/sys/kernel/random/boot_id")
}

/// Creates the folder of a file if it is missing, and checks whether a profile can be stored there: before
/// minutes are spent on measuring.
///
/// # Errors
/// As those of [`write()`].
pub fn prepare(path: &Path) -> Result<()> {
    let folder = path.parent().context("a profile needs a folder")?;
    let making = || format!("making {}", folder.display());
    let is_new = !folder.exists();
    let mode = Mode::from_raw_mode(FOLDER_MODE);
    let held = Folder::make(folder, mode, Owner::Caller).with_context(making)?;
    if is_new {
        // Whatever the umask: others read it, and do not write to it.
        rustix::fs::fchmod(&held, mode).map_err(io::Error::from).with_context(making)?;
    }
    ours(folder)?;
    if path.symlink_metadata().is_ok() {
        ours(path)?;
    }
    let beside = beside(path);
    let tried = held.create_new(&beside, Mode::RUSR | Mode::WUSR);
    tried.and_then(|_| held.remove(&beside)).with_context(making)
}

/// The name under which it is tried whether a file can be made.
fn beside(path: &Path) -> OsString {
    path.with_extension(format!("new-{}", std::process::id())).file_name().unwrap_or_default().to_owned()
}

/// Writes a profile, or another value as JSON, beside `path` and gives it that name. The folder is made if it is not there.
///
/// # Errors
/// The folder or the file belongs to another user, or cannot be written.
pub fn write(path: &Path, stored: &impl Serialize) -> Result<()> {
    prepare(path)?;
    let mut text = serde_json::to_string(stored).context("writing JSON")?;
    text.push('\n');
    guard::replace(path, &text).with_context(|| format!("storing {}", path.display()))
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
pub struct Lock(#[expect(dead_code, reason = "closed when it is dropped")] Option<UnixListener>);

impl Lock {
    /// Takes it. The lock is an abstract socket: every user of the machine sees it, and no file is left. One
    /// held by another user, except root, is ignored: anyone can make it.
    ///
    /// # Errors
    /// Another process of this user or of root holds it: [`io::ErrorKind::AddrInUse`].
    pub fn take() -> io::Result<Lock> {
        const NAME: &str = "numatop-ng-known-load";
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(NAME)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                match sockets::owner_of_abstract(NAME) {
                    Some(uid) if uid == 0 || uid == geteuid().as_raw() => Err(error),
                    _ => Ok(Lock(None)),
                }
            }
            taken => Ok(Lock(Some(taken?))),
        }
    }
}

#[cfg(test)]
mod tests;
