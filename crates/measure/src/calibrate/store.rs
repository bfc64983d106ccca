//! The profile on the disk: where it is looked for, how it is read, and how it takes the place of an older one.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::{env, io};

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
        "{} has schema {}, but this version supports schema {SCHEMA}",
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
            io::ErrorKind::InvalidInput => anyhow::anyhow!("{name} is not a regular file"),
            io::ErrorKind::FileTooLarge => anyhow::anyhow!("{name} is too large for a calibration profile"),
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
    let folder = path.parent().context("the path of a profile must contain a directory")?;
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
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = env::temp_dir().join(format!("numatop-profile-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn profile() -> Profile {
        Profile { schema: SCHEMA, took_s: 3.5, ..Profile::default() }
    }

    #[test]
    fn a_profile_takes_the_place_of_an_older_one_and_leaves_nothing_beside_it() {
        let folder = Folder::new("replaces");
        let path = folder.0.join("made/machine.json");
        write(&path, &Profile::default()).unwrap();
        write(&path, &profile()).unwrap();
        assert_eq!(read(&path).unwrap(), profile());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_is_no_profile_and_is_not_waited_for() {
        let folder = Folder::new("pipe");
        let path = folder.0.join("machine.json");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("is not a regular file"));
    }

    #[test]
    fn a_profile_of_another_machine_hides_none_of_this_one() {
        let folder = Folder::new("hides");
        let (first, second) = (folder.0.join("first.json"), folder.0.join("second.json"));
        write(&first, &profile()).unwrap();
        let topology = crate::host::topology::read(Path::new("/")).unwrap();
        let machine = machine::key(Path::new("/"), &topology);
        write(&second, &Profile { machine, boot_id: boot_id(), ..profile() }).unwrap();
        let (found, _) = find_in(&[first.clone(), second.clone()], &topology);
        let found = found.unwrap();
        assert_eq!((found.path, found.inapplicable), (second, None));
        assert_eq!(find_in(std::slice::from_ref(&first), &topology).0.unwrap().path, first);
    }

    #[test]
    fn a_place_that_others_write_to_is_refused() {
        let folder = Folder::new("refused");
        let path = folder.0.join("machine.json");
        fs::write(folder.0.join("other"), "kept").unwrap();
        symlink(folder.0.join("other"), &path).unwrap();
        let refused = |path: &Path| format!("{:#}", write(path, &profile()).unwrap_err());
        assert!(refused(&path).contains("symbolic link"));
        assert_eq!(fs::read_to_string(folder.0.join("other")).unwrap(), "kept");
        fs::remove_file(&path).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&path).contains("other users can write to"));
        assert!(!path.exists());
    }

    #[test]
    fn a_damaged_file_is_an_error_with_its_name_and_hides_no_other() {
        let folder = Folder::new("damaged");
        let place = |name: &str, text: &str| {
            let path = folder.0.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let damaged = place("damaged.json", "{\"schema\": ");
        let later = place("later.json", "{\"schema\": 99}");
        let good = folder.0.join("good.json");
        write(&good, &profile()).unwrap();
        assert!(format!("{:#}", read(&later).unwrap_err()).contains("has schema 99"));
        let none = folder.0.join("none.json");
        let topology = crate::host::topology::read(Path::new("/")).unwrap();
        let (found, notes) = find_in(&[none.clone(), damaged, later, good.clone()], &topology);
        let found = found.unwrap();
        assert_eq!(found.path, good);
        assert!(found.inapplicable.is_some(), "it is of a machine without a CPU");
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("damaged.json is damaged"), "{notes:?}");
        let (found, notes) = find_in(&[none], &topology);
        assert!(found.is_none() && notes.is_empty());
    }

    #[test]
    fn a_profile_of_this_machine_applies() {
        let folder = Folder::new("applies");
        let path = folder.0.join("machine.json");
        let topology = crate::host::topology::read(Path::new("/")).unwrap();
        let machine = machine::key(Path::new("/"), &topology);
        write(&path, &Profile { machine, boot_id: boot_id(), ..profile() }).unwrap();
        let (found, notes) = find_in(&[path], &topology);
        assert_eq!((found.unwrap().inapplicable, notes), (None, Vec::new()));
    }

    #[test]
    fn a_service_stores_in_the_first_of_its_folders() {
        let first = |text: &str| first_folder(OsStr::new(text));
        assert_eq!(first("/var/lib/numatop-ng"), Some(PathBuf::from("/var/lib/numatop-ng")));
        assert_eq!(first("/var/lib/one:/var/lib/two"), Some(PathBuf::from("/var/lib/one")));
        assert_eq!((first(""), first(":/var/lib/two")), (None, None), "no folder is not the one we are in");
    }

    #[test]
    fn a_profile_that_is_named_is_the_only_one_that_is_looked_at() {
        let folder = Folder::new("named");
        let path = folder.0.join("named.json");
        let topology = crate::host::topology::read(Path::new("/")).unwrap();
        let machine = machine::key(Path::new("/"), &topology);
        let own = Profile { machine, boot_id: boot_id(), time: "2026-11-22T10:03:00Z".into(), ..profile() };
        write(&path, &own).unwrap();
        let named = with_costs(&Wanted::File(path.clone()), topology.clone());
        let calibration = named.calibration.unwrap();
        assert_eq!((calibration.day(), calibration.unused.as_deref()), ("2026-11-22", None));
        assert_eq!(with_costs(&Wanted::Nothing, topology.clone()).calibration, None);

        write(&path, &Profile { time: own.time, ..profile() }).unwrap();
        let other = with_costs(&Wanted::File(path), topology);
        let why = other.calibration.unwrap().unused.unwrap();
        assert!(why.contains("the profile is from an unknown CPU"), "{why}");
        assert!(other.nodes.iter().all(|node| node.measured.is_empty()));
    }
}
