//! A walk through the tree of one cgroup hierarchy, with a budget. Every subtree has its turn, so that one
//! with very many cgroups costs no name in another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fs::{self, File, ReadDir};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::model::group;
use crate::sys;

/// The largest part of a tree that is kept, in units of a cgroup with a path of [`UNIT_BYTES`].
const TREE_MAX: usize = 100_000;
/// The same of cgroups that one user made.
const OF_A_USER_MAX: usize = 16_384;
/// Bytes of a path that count as one cgroup.
const UNIT_BYTES: usize = 256;
/// Entries of a directory that are read in one turn.
const TURN: usize = 256;
/// Directories that are open between two turns.
const OPEN_MAX: usize = 128;

/// Budgets of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub tree: usize,
    pub of_a_user: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { tree: TREE_MAX, of_a_user: OF_A_USER_MAX }
    }
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Id → path (as `cgroup_path` writes it). The id is the directory's inode number; the root is "/".
    pub paths: BTreeMap<u64, String>,
    /// Users who made cgroups, by the id of the cgroup: those of the owner of the hierarchy are not in it.
    pub makers: BTreeMap<u64, u32>,
    /// Why cgroups are missing.
    pub notes: Vec<String>,
}

/// Users who may make cgroups in a directory besides the owner of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makers {
    Nobody,
    /// The user it was delegated to, and anyone permitted by that user.
    User(u32),
    Anybody,
}

enum Listing {
    Unread,
    Reading(ReadDir),
    Done,
}

struct Node {
    place: PathBuf,
    path: String,
    makers: Makers,
    listing: Listing,
    /// Units of its direct entries, and of all below it.
    listed: usize,
    taken: usize,
    /// Directories in it with more to read; the one with the least taken so far is first.
    waiting: BinaryHeap<Reverse<(usize, usize)>>,
}

impl Node {
    fn is_done(&self) -> bool {
        matches!(self.listing, Listing::Done) && self.waiting.is_empty()
    }
}

fn units(path: &str) -> usize {
    1 + path.len() / UNIT_BYTES
}

/// The maker of a directory, and who may make others in it. `above`: who may make directories beside it.
fn makers(above: Makers, meta: &fs::Metadata, owner: u32) -> (Option<u32>, Makers) {
    let foreign = (meta.uid() != owner).then_some(meta.uid());
    let made_by = match above {
        Makers::User(user) => Some(user),
        Makers::Anybody => foreign,
        Makers::Nobody => None,
    };
    let inside = match (made_by.or(foreign), meta.mode() & 0o022) {
        (Some(user), _) => Makers::User(user),
        (None, 0) => Makers::Nobody,
        (None, _) => Makers::Anybody,
    };
    (made_by, inside)
}

/// Every cgroup below `mount`, as far as the budgets go.
pub fn walk(mount: &Path, budget: Budget) -> Walk {
    let mut found = Walk::default();
    let Ok(meta) = fs::symlink_metadata(mount) else { return found };
    let owner = meta.uid();
    found.paths.insert(meta.ino(), "/".to_string());
    let (_, inside) = makers(Makers::Nobody, &meta, owner);
    let root = Node {
        place: mount.to_owned(),
        path: String::new(),
        makers: inside,
        listing: Listing::Unread,
        listed: 0,
        taken: 0,
        waiting: BinaryHeap::new(),
    };
    let mut nodes = vec![root];
    let (mut open, mut left) = (0, budget.tree.saturating_sub(1));
    let mut of_users: HashMap<u32, usize> = HashMap::new();
    let mut full_users: BTreeMap<u32, String> = BTreeMap::new();
    let mut unread: Option<String> = None;
    while left > 0 && !nodes[0].is_done() {
        // Down to the directory whose turn it is.
        let mut way = vec![0];
        let mut at = 0;
        loop {
            let node = &mut nodes[at];
            let own = (!matches!(node.listing, Listing::Done)).then_some(node.listed);
            match node.waiting.peek() {
                Some(Reverse((taken, _))) if own.is_none_or(|own| *taken < own) => {
                    let Some(Reverse((_, next))) = node.waiting.pop() else { break };
                    at = next;
                    way.push(at);
                }
                _ => break,
            }
        }
        let turn = take_turn(&mut nodes[at], &mut open, owner);
        if turn.cut {
            unread.get_or_insert_with(|| nodes[at].path.clone());
        }
        let mut taken = 1;
        for entry in turn.entries {
            let size = units(&entry.path);
            if left < size {
                left = 0;
                break;
            }
            if let Some(user) = entry.maker {
                let count = of_users.entry(user).or_default();
                *count += size;
                if *count > budget.of_a_user {
                    full_users.entry(user).or_insert_with(|| nodes[at].path.clone());
                    continue;
                }
                found.makers.insert(entry.id, user);
            }
            left -= size;
            taken += size;
            nodes[at].listed += size;
            found.paths.insert(entry.id, entry.path.clone());
            let child = nodes.len();
            nodes[at].waiting.push(Reverse((0, child)));
            nodes.push(Node {
                place: entry.place,
                path: entry.path,
                makers: entry.inside,
                listing: Listing::Unread,
                listed: 0,
                taken: 0,
                waiting: BinaryHeap::new(),
            });
        }
        for pair in (0..way.len()).rev() {
            let at = way[pair];
            nodes[at].taken += taken;
            if pair > 0 && !nodes[at].is_done() {
                let entry = Reverse((nodes[at].taken, at));
                nodes[way[pair - 1]].waiting.push(entry);
            }
        }
    }
    if left == 0 && !nodes[0].is_done() {
        let largest = largest(&nodes, owner_of_most(&nodes));
        found.notes.push(format!(
            "only {} cgroups are read: some of those below {} are shown without names",
            budget.tree,
            group::show(&largest)
        ));
    }
    for (user, path) in full_users {
        found.notes.push(format!(
            "user {user} has more than {} cgroups: the rest of this user's cgroups (below {}) are shown \
             without names",
            budget.of_a_user,
            group::show(if path.is_empty() { "/" } else { &path })
        ));
    }
    if let Some(path) = unread {
        let path = if path.is_empty() { "/" } else { &path };
        found.notes.push(format!(
            "some cgroups below {} are shown without names: too many large directories",
            group::show(path)
        ));
    }
    found
}

/// The directory with the most direct entries.
fn owner_of_most(nodes: &[Node]) -> usize {
    (0..nodes.len()).max_by_key(|at| nodes[*at].listed).unwrap_or(0)
}

/// Its path, or that of the directory above where it is one of many of its kind.
fn largest(nodes: &[Node], at: usize) -> String {
    let path = &nodes[at].path;
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    let path = if above.is_empty() { path } else { above };
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

struct Entry {
    id: u64,
    place: PathBuf,
    path: String,
    maker: Option<u32>,
    inside: Makers,
}

struct Turn {
    entries: Vec<Entry>,
    /// The rest of the directory is not read.
    cut: bool,
}

fn take_turn(node: &mut Node, open: &mut usize, owner: u32) -> Turn {
    let (mut listing, was_open) = match std::mem::replace(&mut node.listing, Listing::Done) {
        Listing::Unread => match fs::read_dir(&node.place) {
            Ok(listing) => (listing, false),
            Err(_) => return Turn { entries: Vec::new(), cut: false },
        },
        Listing::Reading(listing) => (listing, true),
        Listing::Done => return Turn { entries: Vec::new(), cut: false },
    };
    let mut entries = Vec::new();
    let mut is_whole = true;
    for entry in listing.by_ref() {
        let Ok(entry) = entry else { break };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(meta) = entry.metadata() else { continue };
        let name = entry.file_name();
        let path = format!("{}/{}", node.path, group::from_bytes(name.as_bytes()));
        let (maker, inside) = makers(node.makers, &meta, owner);
        entries.push(Entry { id: meta.ino(), place: entry.path(), path, maker, inside });
        if entries.len() == TURN {
            is_whole = false;
            break;
        }
    }
    if was_open {
        *open -= 1;
    }
    let cut = !is_whole && *open >= OPEN_MAX;
    if !is_whole && !cut {
        *open += 1;
        node.listing = Listing::Reading(listing);
    }
    Turn { entries, cut }
}

/// Finds cgroups that a walk left out by their ids, and adds them and their parents to `found`. Needs
/// CAP_DAC_READ_SEARCH; an unknown id is left out.
pub fn find_ids(mount: &Path, ids: &[u64], found: &mut Walk) {
    let (Ok(root), Ok(meta)) = (File::open(mount), fs::symlink_metadata(mount)) else { return };
    let Ok(top) = mount.canonicalize() else { return };
    for id in ids {
        let Ok(dir) = sys::open_cgroup(&root, *id) else { continue };
        let Ok(place) = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())) else { continue };
        let Ok(below) = place.strip_prefix(&top) else { continue };
        let (mut place, mut path) = (top.clone(), String::new());
        let (_, mut inside) = makers(Makers::Nobody, &meta, meta.uid());
        for part in below {
            place.push(part);
            path = format!("{path}/{}", group::from_bytes(part.as_bytes()));
            let Ok(part_meta) = fs::symlink_metadata(&place) else { break };
            let (maker, next) = makers(inside, &part_meta, meta.uid());
            inside = next;
            found.paths.insert(part_meta.ino(), path.clone());
            if let Some(maker) = maker {
                found.makers.insert(part_meta.ino(), maker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn with(name: &str, paths: impl IntoIterator<Item = String>) -> Tree {
        let tree = Tree::new(name);
        for path in paths {
            fs::create_dir_all(tree.root().join(path)).unwrap();
        }
        tree
    }

    #[test]
    fn a_large_subtree_hides_no_other() {
        let large = (0..40).flat_map(|at| (0..20).map(move |below| format!("evil/e{at}/s{below}")));
        let flat = (0..700).map(|at| format!("flat/f{at}"));
        let deep = "pods/burstable/pod/container".to_owned();
        let tree = with("cgroup-walk", large.chain(flat).chain([deep]));
        let found = walk(tree.root(), Budget { tree: 600, of_a_user: 600 });
        assert!(found.paths.values().any(|path| path == "/pods/burstable/pod/container"));
        assert!(found.paths.len() <= 600 && found.paths.len() > 500, "{}", found.paths.len());
        assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
        let all = walk(tree.root(), Budget::default());
        assert_eq!((all.paths.len(), all.notes.len()), (1 + 1 + 40 + 800 + 701 + 4, 0));
    }

    #[test]
    fn paths_that_are_long_count_more() {
        let tree = with("cgroup-long", [vec!["x".repeat(200); 8].join("/")]);
        assert_eq!(walk(tree.root(), Budget { tree: 9, of_a_user: 9 }).paths.len(), 4);
    }

    #[test]
    fn what_is_made_in_a_directory_of_a_user_is_made_by_that_user() {
        let tree = with("cgroup-makers", ["mine/a".into(), "theirs/b/c".into()]);
        let hand_over = |path: &str| std::os::unix::fs::chown(tree.root().join(path), Some(1234), None);
        if ["theirs", "theirs/b"].into_iter().any(|path| hand_over(path).is_err()) {
            return;
        }
        let found = walk(tree.root(), Budget::default());
        let by = |path: &str| {
            let id = found.paths.iter().find(|(_, known)| *known == path).unwrap().0;
            found.makers.get(id).copied()
        };
        assert_eq!((by("/mine"), by("/mine/a"), by("/theirs")), (None, None, None));
        assert_eq!((by("/theirs/b"), by("/theirs/b/c")), (Some(1234), Some(1234)));
        let short = walk(tree.root(), Budget { tree: 100, of_a_user: 1 });
        assert_eq!((short.paths.len(), short.notes.len()), (5, 1));
    }
}
