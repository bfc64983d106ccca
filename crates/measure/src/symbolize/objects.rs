//! Files with code by build id, and places of their separate debug symbols (GDB manual, "Separate Debug Files"). Processes have
//! them mapped. They are held open, so that names can be looked up after the process, its container or the file is gone.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::client::{Answer, Client, Question};
use super::names::{Said, Say, by_path};
use super::open::{self, LastLink, Mounts, Reach, below};
use super::process::{Mapping, Process};
use crate::model::stacks::BuildId;
use crate::program::helper::Failure;
use crate::text;

/// Descriptors that files are held open with at most; then those of the user who has most are closed.
const DESCRIPTORS_MAX: usize = 512;

/// Their largest share, as a divisor, of the files that the tool may open (`ulimit -n`), since it needs
/// others.
const SHARE: usize = 4;

/// Files of one process that are looked at.
const MAPPINGS_MAX: usize = 2048;

/// Processes in which a build id is looked for before it is given up.
const TRIES: u32 = 3;

/// Build ids that are remembered as given up.
const TRIED_MAX: usize = 65_536;

/// A file with code.
pub(super) struct Object {
    pub file: File,
    /// The last part of its path; clean.
    pub name: String,
    /// The file with its symbols, where they were split from it.
    pub debug: Option<File>,
    /// Others serve its filesystem.
    pub served: bool,
    /// The user who runs it.
    owner: u32,
}

/// The means of a scan.
pub(super) struct Scan<'a> {
    pub client: &'a mut Client,
    pub mounts: &'a mut Mounts,
    pub reach: &'a Reach,
    pub say: Say<'a>,
}

/// Files of a process that were looked at.
pub(super) struct Scanned {
    /// Files that others serve were not.
    pub left_out: bool,
}

impl Object {
    /// Descriptors that it takes.
    fn descriptors(&self) -> usize {
        1 + usize::from(self.debug.is_some())
    }
}

/// Files by build id.
pub(super) struct Objects {
    known: HashMap<BuildId, Object>,
    tried: HashMap<BuildId, u32>,
    /// Descriptors that they may take.
    most: usize,
}

impl Default for Objects {
    fn default() -> Objects {
        let all = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        Objects { known: HashMap::new(), tried: HashMap::new(), most: (all / SHARE).min(DESCRIPTORS_MAX) }
    }
}

impl Objects {
    /// The file with this build id, if known.
    pub(super) fn known(&self, id: BuildId) -> Option<&Object> {
        self.known.get(&id)
    }

    /// Whether this build id is worth another search.
    pub(super) fn may_try(&self, id: BuildId) -> bool {
        self.tried.get(&id).is_none_or(|tries| *tries < TRIES)
    }

    /// Notes that it was looked for in vain.
    pub(super) fn tried(&mut self, id: BuildId) {
        if self.tried.len() >= TRIED_MAX {
            self.tried.clear();
        }
        *self.tried.entry(id).or_default() += 1;
    }

    /// Opens what `process`, which belongs to `owner`, has mapped for execution and is not known yet.
    ///
    /// # Errors
    /// A file could not be read; the others were looked at.
    pub(super) fn scan(&mut self, scan: Scan<'_>, process: &Process, owner: u32) -> Result<Scanned, Failure> {
        let Scan { client, mounts, reach, say } = scan;
        let mut scanned = Scanned { left_out: false };
        let (Ok(maps), root) = (process.maps(), process.root().ok()) else { return Ok(scanned) };
        let roots: Vec<OwnedFd> = root.into_iter().chain(open::host_root()).collect();
        let mut seen = HashSet::new();
        let mut failed = Ok(());
        let mappings = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse);
        for mapping in mappings.filter(Mapping::is_file) {
            if seen.len() >= MAPPINGS_MAX || !seen.insert(mapping.inode) {
                continue;
            }
            let served = !mounts.has(mapping.device());
            if served && (!reach.served || reach.refuses(mapping.device())) {
                scanned.left_out = true;
                continue;
            }
            let opened = if served {
                say(&Said::Opens(mapping.device().to_owned()));
                let opened = process.mapped(&mapping, reach.paths);
                say(&Said::Opened);
                opened
            } else {
                let again = |_| by_path(process, reach, say, |process| process.mapped(&mapping, true));
                process.mapped(&mapping, false).or_else(again)
            };
            let Ok(file) = opened else { continue };
            let identity = match client.ask(&Question::Identify, &file, served) {
                Ok(Answer::Identity(Some(identity))) => identity,
                Ok(_) => continue,
                Err(failure) => {
                    failed = Err(failure);
                    continue;
                }
            };
            let id = BuildId(identity.build_id);
            if self.known.contains_key(&id) {
                continue;
            }
            let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(mapping.path);
            let link = identity.link.as_deref();
            let split = by_path(process, reach, say, |_| Ok(find_split(client, id, path, link, &roots)));
            let debug = split.ok().flatten();
            let name = text::clean_str(mapping.file_name());
            self.make_room();
            self.tried.remove(&id);
            self.known.insert(id, Object { file, name, debug, served, owner });
        }
        failed.map(|()| scanned)
    }

    /// Sees to it that one more file can be held.
    fn make_room(&mut self) {
        if self.known.values().map(Object::descriptors).sum::<usize>() + 2 <= self.most {
            return;
        }
        let mut by_owner: HashMap<u32, usize> = HashMap::new();
        for object in self.known.values() {
            *by_owner.entry(object.owner).or_default() += object.descriptors();
        }
        if let Some((most, _)) = by_owner.into_iter().max_by_key(|(_, descriptors)| *descriptors) {
            self.known.retain(|_, object| object.owner != most);
        }
    }
}

/// The separate debug symbols of the file with this build id at `path`, below the first of `roots` or another
/// one. They must have the same build id, which is a stronger check than the checksum of the link.
fn find_split(
    client: &mut Client,
    id: BuildId,
    path: &str,
    link: Option<&str>,
    roots: &[OwnedFd],
) -> Option<File> {
    let places = places(id, path, link);
    roots.iter().flat_map(|root| places.iter().map(move |place| (root, place))).find_map(|(root, place)| {
        let file = below(root.as_fd(), place, LastLink::Followed).ok()?;
        match client.ask(&Question::Identify, &file, true) {
            Ok(Answer::Identity(Some(found))) if found.build_id == id.0 => Some(file),
            _ => None,
        }
    })
}

/// Where to look, below a root, for the symbols of the file at `path` there, whose debug link is `link`.
pub(super) fn places(id: BuildId, path: &str, link: Option<&str>) -> Vec<PathBuf> {
    let debug = Path::new("usr/lib/debug");
    let hex = id.to_string();
    // Shorter ids were filled up with zeros.
    let short = hex.trim_end_matches("00");
    let mut places = Vec::new();
    for hex in [hex.as_str(), short] {
        if let Some((first, rest)) = hex.split_at_checked(2) {
            places.push(debug.join(".build-id").join(first).join(format!("{rest}.debug")));
        }
    }
    places.dedup();
    let program = Path::new(path.trim_start_matches('/'));
    if let (Some(link), Some(dir)) = (link, program.parent()) {
        // A program may be linked to a file with the same name, in another directory.
        places.extend([dir.join(link), dir.join(".debug").join(link), debug.join(dir).join(link)]);
        places.retain(|place| place != program);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_many_files_closes_those_of_no_other() {
        let mut objects = Objects::default();
        let id = |number: u32| {
            let mut id = [0; 20];
            id[..4].copy_from_slice(&number.to_ne_bytes());
            BuildId(id)
        };
        let null = || File::open("/dev/null").unwrap();
        for number in 0..2000 {
            objects.make_room();
            let owner = if number < 10 { 0 } else { 1000 };
            let debug = (number % 2 == 0).then(null);
            let object = Object { file: null(), name: String::new(), debug, served: false, owner };
            objects.known.insert(id(number), object);
            let held: usize = objects.known.values().map(Object::descriptors).sum();
            assert!(held <= objects.most, "{held}");
        }
        assert!((0..10).all(|number| objects.known(id(number)).is_some()));
    }

    #[test]
    fn a_build_id_is_looked_for_three_times() {
        let mut objects = Objects::default();
        let id = BuildId([1; 20]);
        let mut once = || {
            let may = objects.may_try(id);
            objects.tried(id);
            may
        };
        let tries: Vec<bool> = (0..5).map(|_| once()).collect();
        assert_eq!(tries, [true, true, true, false, false]);
    }

    #[test]
    fn symbols_are_looked_for_by_build_id_first_and_then_by_name() {
        let mut id = [0; 20];
        id[..3].copy_from_slice(&[0xab, 0xcd, 0xef]);
        let found = places(BuildId(id), "/opt/db/mysqld", Some("mysqld.debug"));
        let found: Vec<&str> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            found,
            [
                &format!("usr/lib/debug/.build-id/ab/cdef{}.debug", "00".repeat(17)),
                "usr/lib/debug/.build-id/ab/cdef.debug",
                "opt/db/mysqld.debug",
                "opt/db/.debug/mysqld.debug",
                "usr/lib/debug/opt/db/mysqld.debug",
            ]
        );
        let own_name = places(BuildId(id), "/opt/db/mysqld", Some("mysqld"));
        assert!(!own_name.contains(&PathBuf::from("opt/db/mysqld")), "{own_name:?}");
    }
}
