//! Files with code by build id. They are those that processes have mapped, held open so that a name can be looked up
//! when the process, its container or the file are gone.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Resource, getrlimit};

use super::client::Client;
use super::open::{self, LastLink, below};
use super::process::{Mapping, Process};
use super::split;
use super::wire::{Answer, Question};
use crate::model::stacks::BuildId;
use crate::program::helper::Failure;
use crate::text;

/// Descriptors that files are held open with at most; then those of the user who has most are closed.
const DESCRIPTORS_MAX: usize = 512;
/// They are no more than one of so many that the tool may have (`ulimit -n`): it needs others.
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
    /// The user who runs it.
    owner: u32,
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
    /// The file with this build id that was seen before.
    pub(super) fn known(&self, id: BuildId) -> Option<&Object> {
        self.known.get(&id)
    }

    /// Whether this build id is worth looking for once more.
    pub(super) fn try_again(&mut self, id: BuildId) -> bool {
        if self.tried.len() >= TRIED_MAX {
            self.tried.clear();
        }
        let tries = self.tried.entry(id).or_default();
        *tries += 1;
        *tries <= TRIES
    }

    /// Opens what `process`, which belongs to `owner`, has mapped for execution and is not known yet.
    ///
    /// # Errors
    /// A file could not be read; the others were looked at.
    pub(super) fn scan(&mut self, client: &mut Client, process: &Process, owner: u32) -> Result<(), Failure> {
        let (Ok(maps), root) = (process.maps(), process.root().ok()) else { return Ok(()) };
        let roots: Vec<OwnedFd> = root.into_iter().chain(open::host_root()).collect();
        let mut seen = HashSet::new();
        let mut failed = Ok(());
        let mappings = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse);
        for mapping in mappings.filter(Mapping::is_file) {
            if seen.len() >= MAPPINGS_MAX || !seen.insert(mapping.inode) {
                continue;
            }
            let Ok(file) = process.mapped(&mapping) else { continue };
            let identity = match client.ask(&Question::Identify, &file) {
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
            let debug = find_split(client, id, path, identity.link.as_deref(), &roots);
            let name = text::clean_str(mapping.file_name());
            self.make_room();
            self.tried.remove(&id);
            self.known.insert(id, Object { file, name, debug, owner });
        }
        failed
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

/// The split symbols of the file with this build id at `path` below the first of `roots`: there, or below another. They
/// have to have the same build id, which says more than the checksum of the link.
fn find_split(
    client: &mut Client,
    id: BuildId,
    path: &str,
    link: Option<&str>,
    roots: &[OwnedFd],
) -> Option<File> {
    let places = split::places(id, path, link);
    roots.iter().flat_map(|root| places.iter().map(move |place| (root, place))).find_map(|(root, place)| {
        let file = below(root.as_fd(), place, LastLink::Followed).ok()?;
        match client.ask(&Question::Identify, &file) {
            Ok(Answer::Identity(Some(found))) if found.build_id == id.0 => Some(file),
            _ => None,
        }
    })
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
            let object = Object { file: null(), name: String::new(), debug, owner };
            objects.known.insert(id(number), object);
            let held: usize = objects.known.values().map(Object::descriptors).sum();
            assert!(held <= objects.most, "{held}");
        }
        assert!((0..10).all(|number| objects.known(id(number)).is_some()));
    }

    #[test]
    fn a_build_id_is_looked_for_three_times() {
        let mut objects = Objects::default();
        let tries: Vec<bool> = (0..5).map(|_| objects.try_again(BuildId([1; 20]))).collect();
        assert_eq!(tries, [true, true, true, false, false]);
    }
}
