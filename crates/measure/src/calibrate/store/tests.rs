use std::fs;

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

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
    assert!(format!("{:#}", read(&path).unwrap_err()).contains("is not a file"));
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
    assert!(why.contains("it is from an unknown CPU"), "{why}");
    assert!(other.nodes.iter().all(|node| node.measured.is_empty()));
}
