//! Cgroups, their names, and whether they are in scope: followed while they come and go. Another thread reads the tree of
//! cgroups, and is given only a moment.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::limits::LimitReader;
use super::scope::Scope;
use crate::container::asked::AskedNames;
use crate::container::group::{Makers, describe_made};
use crate::container::select::{Tree, Unmatched, Want, Wants};
use crate::host::cgroup_walk::{Budget, Walk, find_ids, walk};
use crate::host::cgroups::Hierarchy;
use crate::host::roots::Roots;
use crate::model::group::Group;
use crate::model::sample::{GroupRaw, Missing, Names, TaskRaw};
use crate::program::signals;

/// After a reading that took a time t, the next one comes after this many times t. So thousands of
/// short-lived cgroups cost a small share of one CPU.
const PAUSE: u32 = 20;

/// Groups whose files are read with each sample: five to eleven files each, some microseconds per file.
const PER_SAMPLE: usize = 10;

/// The number of these for rows on the screen, if there are that many.
const IN_VIEW: usize = 8;

/// Settings of a group (quota, limit, allowed CPUs and nodes) are read again after this time, ns: every five
/// seconds, with slightly irregular samples.
const SETTINGS_NS: u64 = 4_500_000_000;

/// Readings that are farther apart have settings of their own, ns.
const APART_NS: u64 = 2_500_000_000;

/// A group first read less than this time ago, ns, may still be getting its settings.
const NEW_NS: u64 = 10_000_000_000;

/// Names of removed cgroups are kept as long: tasks that ended in them are still shown.
const KEEP_REMOVED: Duration = Duration::from_secs(60);

/// A reading of the tree that takes longer is taken in with a later sample.
const READING: Duration = Duration::from_millis(20);

/// The first one is waited for; and names, for longer where one is on the command line.
const FIRST_READING: Duration = Duration::from_secs(10);

const FIRST_NAMES: Duration = Duration::from_millis(200);

const ASKED_NAMES: Duration = Duration::from_secs(5);

const STEP: Duration = Duration::from_millis(5);

/// Different notes on omissions.
const NOTES_MAX: usize = 20;

/// When settings of a group were read, CLOCK_MONOTONIC, ns.
#[derive(Clone, Copy, Debug)]
struct SettingsRead {
    first_ns: u64,
    last_ns: u64,
}

impl SettingsRead {
    /// Whether those of the reading `before` still hold.
    fn hold(self, before: &GroupRaw, now_ns: u64) -> bool {
        let age = |ns| now_ns.saturating_sub(ns);
        let missing = [
            before.cpus.as_ref().err(),
            before.mems.as_ref().err(),
            before.cpu_quota_milli.as_ref().err(),
            before.mem_limit_bytes.as_ref().err(),
        ];
        !missing.into_iter().flatten().any(|why| matches!(why, Missing::Lost(_)))
            && age(self.first_ns) >= NEW_NS
            && age(self.last_ns) < SETTINGS_NS
            && age(before.read_ns) < APART_NS
    }
}

/// The tree of one hierarchy.
pub struct CgroupTracker {
    reader: TreeReader,
    book: AskedNames,
    pub wants: Wants,
    /// From the command line.
    asked: Wants,
    /// The part of the scope that cgroups do not decide.
    base: Scope,
    scope: Scope,
    paths: BTreeMap<u64, String>,
    makers: BTreeMap<u64, u32>,
    /// The last reading left cgroups out.
    is_cut: bool,
    notes: Vec<String>,
    /// Notes that were made already.
    noted: BTreeSet<String>,
    /// The ids of `paths`, and of cgroups whose names are kept: asked for with each row of each sample.
    named: HashSet<u64>,
    removed: Vec<(Instant, u64)>,
    /// The kernel's count of changes at the last reading.
    changes: Option<u32>,
    not_before: Option<Instant>,
    limits: LimitReader,
    /// The cgroups that tasks were in with the last sample, and the tops of their groups and of those above.
    /// Computed again only when these change.
    occupied: Vec<u64>,
    tops: BTreeSet<u64>,
    /// Limits as last read.
    known: BTreeMap<u64, Arc<GroupRaw>>,
    settings: BTreeMap<u64, SettingsRead>,
    /// Whose are read next, of all and of those in view.
    next: u64,
    next_in_view: u64,
    in_view: BTreeSet<u64>,
}

impl CgroupTracker {
    /// Reads nothing yet. Files of the kernel are looked for below `roots`, names in `book`.
    pub fn new(
        roots: Roots<'_>,
        hierarchy: Hierarchy,
        book: AskedNames,
        wants: Wants,
        base: Scope,
    ) -> CgroupTracker {
        CgroupTracker {
            limits: LimitReader::new(roots, &hierarchy, rustix::param::page_size() as u64),
            occupied: Vec::new(),
            tops: BTreeSet::new(),
            known: BTreeMap::new(),
            settings: BTreeMap::new(),
            next: 0,
            next_in_view: 0,
            in_view: BTreeSet::new(),
            reader: TreeReader::new(&hierarchy),
            book,
            asked: wants.clone(),
            wants,
            scope: base.clone(),
            base,
            paths: BTreeMap::new(),
            makers: BTreeMap::new(),
            is_cut: false,
            notes: Vec::new(),
            noted: BTreeSet::new(),
            named: HashSet::new(),
            removed: Vec::new(),
            changes: None,
            not_before: None,
        }
    }

    /// The scope as of the last reading.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// True when it is time to read again. The kernel counted `changes`, a task is in an `unknown` cgroup,
    /// new names are available, or names have been kept long enough.
    fn is_due(&mut self, changes: u32, unknown: bool) -> bool {
        let stale = unknown || self.changes != Some(changes) || self.has_stale_names();
        stale && self.not_before.is_none_or(|at| Instant::now() >= at)
    }

    /// True when the cgroup of this id has a name, as of the last reading.
    pub fn knows(&self, cgroup: u64) -> bool {
        self.named.contains(&cgroup)
    }

    /// Reads the tree where it may have changed, completes `names`, and finds the wanted cgroups: at once, or
    /// with a later call where reading takes a while. `changes` is the kernel's count from before the
    /// reading, so that no change during it is missed. `unknown` are cgroups of tasks without a name. True
    /// when the scope may have changed.
    pub fn follow(&mut self, changes: u32, unknown: &[u64], names: &mut Arc<Names>) -> bool {
        self.book.renew(names.groups.values().map(Arc::as_ref));
        if !self.reader.is_reading() {
            if !self.is_due(changes, !unknown.is_empty()) {
                return false;
            }
            self.reader.begin(changes, unknown);
        }
        let reading = self.reader.take(READING);
        reading.map(|reading| self.apply(reading, names)).is_some()
    }

    /// As [`CgroupTracker::follow`], and waits: to be called before sampling begins. Returns the wanted names
    /// that do not exist.
    pub fn read(&mut self, changes: u32, names: &mut Arc<Names>) -> Vec<Unmatched> {
        self.reader.begin(changes, &[]);
        let until = Instant::now() + FIRST_READING;
        let mut reading = None;
        while reading.is_none() && self.reader.is_reading() && is_waited_for(until) {
            reading = self.reader.take(STEP);
        }
        if let Some(reading) = reading {
            self.apply(reading, names);
        }
        let mut unmatched = self.resolve(names);
        // Names come from a helper. A name on the command line is waited for until it first appears.
        let patience = if self.wants.wants.is_empty() { FIRST_NAMES } else { ASKED_NAMES };
        let until = Instant::now() + patience;
        let lacks = |unmatched: &[Unmatched], wants: &Wants| wants.wants.is_empty() || !unmatched.is_empty();
        while lacks(&unmatched, &self.wants) && self.book.is_waiting() && is_waited_for(until) {
            std::thread::sleep(STEP);
            if self.book.is_due() {
                let paths = std::mem::take(&mut self.paths);
                self.rename(&paths, names);
                self.paths = paths;
                unmatched = self.resolve(names);
            }
        }
        unmatched
    }

    fn apply(&mut self, reading: Reading, names: &mut Arc<Names>) {
        let began = Instant::now();
        let Reading { walk, changes, took } = reading;
        self.changes = Some(changes);
        self.is_cut = !walk.notes.is_empty();
        for note in walk.notes {
            if self.noted.len() < NOTES_MAX && self.noted.insert(note.clone()) {
                self.notes.push(note);
            }
        }
        let is_other = walk.paths != self.paths || walk.makers != self.makers;
        self.makers = walk.makers;
        if is_other || names.groups.is_empty() || self.has_stale_names() {
            self.rename(&walk.paths, names);
        }
        self.paths = walk.paths;
        self.resolve(names);
        self.not_before = Some(Instant::now() + (took + began.elapsed()) * PAUSE);
    }

    /// Whether cgroups were left out when the tree was read last, so that tasks may be in one without a name.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Troubles while names were looked for, since the call before.
    pub fn take_troubles(&mut self) -> Vec<String> {
        let mut troubles = std::mem::take(&mut self.notes);
        troubles.extend(self.book.take_troubles());
        troubles
    }

    /// Finds the wanted ones among the known cgroups.
    pub fn resolve(&mut self, names: &Names) -> Vec<Unmatched> {
        let tree = Tree { paths: &self.paths, groups: &names.groups };
        let (scope, unmatched) = self.wants.resolve(&tree, &self.base);
        self.scope = scope;
        unmatched
    }

    /// Groups, by their tops, whose files are read more often than those of others.
    pub fn focus(&mut self, groups: Vec<u64>) {
        self.in_view = groups.into_iter().collect();
    }

    /// Limits and memory of the groups that `tasks` are in, and of those above. Of many, some are read with each
    /// sample, in turns, those in view before others.
    pub fn limits(
        &mut self,
        tasks: &[Arc<TaskRaw>],
        names: &Names,
        now_ns: u64,
    ) -> BTreeMap<u64, Arc<GroupRaw>> {
        let mut ids: Vec<u64> = tasks.iter().map(|task| task.cgroup_id).collect();
        // Neighbours are often in the same one.
        ids.dedup();
        ids.sort_unstable();
        ids.dedup();
        if ids != self.occupied {
            self.find_tops(ids, names);
        }
        let is_seen = |id: &&u64| self.in_view.contains(id);
        let mut turn = in_turn(&self.tops, is_seen, &mut self.next_in_view, IN_VIEW);
        let left = PER_SAMPLE - turn.len();
        turn.extend(in_turn(&self.tops, |id| !is_seen(id), &mut self.next, left));
        for id in &turn {
            if let Some(path) = names.cgroups.get(id) {
                let before = self.known.get(id).map(Arc::as_ref);
                let read =
                    self.settings.entry(*id).or_insert(SettingsRead { first_ns: now_ns, last_ns: now_ns });
                let hold = before.is_some_and(|before| read.hold(before, now_ns));
                if !hold {
                    read.last_ns = now_ns;
                }
                let raw = self.limits.read(path, now_ns, before, hold);
                self.known.insert(*id, Arc::new(raw));
            }
        }
        self.known.clone()
    }

    fn find_tops(&mut self, occupied: Vec<u64>, names: &Names) {
        let mut tops = BTreeSet::new();
        for id in &occupied {
            // Cgroups above have rows of their own.
            let mut next = names.groups.get(id).map(|group| group.top);
            while let Some(id) = next.filter(|id| tops.insert(*id)) {
                next = names.groups.get(&id).and_then(|group| group.parent);
            }
        }
        self.known.retain(|id, _| tops.contains(id));
        self.settings.retain(|id, _| tops.contains(id));
        (self.occupied, self.tops) = (occupied, tops);
    }

    /// Watches the cgroup at `path` instead of the scope of the start, or (`None`) returns to the latter.
    pub fn narrow(&mut self, path: Option<String>, names: &Names) {
        self.wants = match path {
            None => self.asked.clone(),
            Some(path) => Wants { wants: vec![Want::Exactly(path)], wait: true, ..Wants::default() },
        };
        self.resolve(names);
    }

    /// Whether names are due for a new look-up, or names of removed cgroups can be dropped. Otherwise those
    /// would stay until cgroups change again, which on a quiet machine is never.
    fn has_stale_names(&mut self) -> bool {
        self.book.is_due() || self.removed.first().is_some_and(|(at, _)| at.elapsed() >= KEEP_REMOVED)
    }

    fn rename(&mut self, paths: &BTreeMap<u64, String>, names: &mut Arc<Names>) {
        let names = Arc::make_mut(names);
        let now = Instant::now();
        // Ids may have other groups now.
        self.occupied.clear();
        let gone = self.paths.keys().filter(|id| !paths.contains_key(id));
        self.removed.extend(gone.map(|id| (now, *id)));
        self.removed.retain(|(at, id)| {
            let keep = now.duration_since(*at) < KEEP_REMOVED;
            if !keep {
                names.cgroups.remove(id);
                names.groups.remove(id);
            }
            keep
        });
        // A path may change with a renaming, and a name may have been written after its cgroup was made.
        self.book.begin();
        let stale = |id: &u64, group: &Group| {
            let is_old = group.is_nameless() || self.book.is_renamed(group);
            is_old || paths.get(id).is_some_and(|path| names.cgroups.get(id) != Some(path))
        };
        let keep: BTreeMap<u64, Arc<Group>> = names
            .groups
            .iter()
            .filter(|(id, group)| !stale(id, group))
            .map(|(id, group)| (*id, Arc::clone(group)))
            .collect();
        let users = names.users.clone();
        let makers = Makers { of: &self.makers, users: &users };
        names.groups.extend(describe_made(paths, makers, &keep, &mut self.book));
        self.book.end();
        names.cgroups.extend(paths.iter().map(|(id, path)| (*id, path.clone())));
        self.named = names.cgroups.keys().copied().collect();
    }
}

/// Whether time is left and the program has not been asked to end.
fn is_waited_for(until: Instant) -> bool {
    Instant::now() < until && signals::ended_by().is_none()
}

/// Up to `count` of those `ids` that are `wanted`, from `next` on and around, and moves `next` behind them.
fn in_turn(ids: &BTreeSet<u64>, wanted: impl Fn(&&u64) -> bool, next: &mut u64, count: usize) -> Vec<u64> {
    let around = ids.range(*next..).chain(ids.range(..*next));
    let turn: Vec<u64> = around.filter(wanted).take(count).copied().collect();
    *next = turn.last().map_or(0, |last| last.wrapping_add(1));
    turn
}

/// The stack of the thread: the usual one would count 2 MiB against a limit on data.
const STACK_BYTES: usize = 512 << 10;

/// Cgroups that are looked up by id, in one reading.
const IDS_MAX: usize = 4096;

/// A reading of the tree.
pub(super) struct Reading {
    pub walk: Walk,
    /// The kernel's count of changes before it.
    pub changes: u32,
    pub took: Duration,
}

struct Wanted {
    changes: u32,
    ids: Vec<u64>,
}

/// Reads the tree of one hierarchy. Dropped, it ends the thread.
pub(super) struct TreeReader {
    mount: Option<PathBuf>,
    thread: Option<(Sender<Wanted>, Receiver<Reading>)>,
    is_reading: bool,
}

impl TreeReader {
    pub(super) fn new(hierarchy: &Hierarchy) -> TreeReader {
        TreeReader { mount: hierarchy.mount.clone(), thread: None, is_reading: false }
    }

    /// Whether a reading is on the way.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Begins a reading, unless one is running. `ids`: cgroups of tasks without a name.
    pub(super) fn begin(&mut self, changes: u32, ids: &[u64]) {
        if self.is_reading {
            return;
        }
        if self.thread.is_none() {
            let (wanted, questions) = channel::<Wanted>();
            let (sender, readings) = channel();
            let mount = self.mount.clone();
            let work = move || {
                let mut by_id = BTreeSet::new();
                for wanted in questions {
                    if sender.send(read(mount.as_ref(), &wanted, &mut by_id)).is_err() {
                        return;
                    }
                }
            };
            let started = thread::Builder::new().name("cgroups".into()).stack_size(STACK_BYTES).spawn(work);
            self.thread = started.is_ok().then_some((wanted, readings));
        }
        let ids = ids.iter().copied().take(IDS_MAX).collect();
        let thread = self.thread.as_ref();
        self.is_reading = thread.is_some_and(|(wanted, _)| wanted.send(Wanted { changes, ids }).is_ok());
    }

    /// The reading that is on the way, if it comes within `patience`.
    pub(super) fn take(&mut self, patience: Duration) -> Option<Reading> {
        let (_, readings) = self.thread.as_ref().filter(|_| self.is_reading)?;
        match readings.recv_timeout(patience) {
            Ok(reading) => {
                self.is_reading = false;
                Some(reading)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                (self.thread, self.is_reading) = (None, false);
                None
            }
        }
    }
}

/// `by_id`: cgroups that were left out before and found by their ids.
fn read(mount: Option<&PathBuf>, wanted: &Wanted, by_id: &mut BTreeSet<u64>) -> Reading {
    let began = Instant::now();
    let mut found = Walk::default();
    if let Some(mount) = mount {
        found = walk(mount, Budget::default());
        by_id.extend(&wanted.ids);
        by_id.retain(|id| !found.paths.contains_key(id));
        if !by_id.is_empty() && !found.notes.is_empty() {
            let unknown: Vec<u64> = by_id.iter().copied().collect();
            find_ids(mount, &unknown, &mut found);
        }
        by_id.retain(|id| found.paths.contains_key(id));
        while by_id.len() > IDS_MAX {
            by_id.pop_first();
        }
    }
    Reading { walk: found, changes: wanted.changes, took: began.elapsed() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::host::cgroups::Mode;

    #[test]
    fn names_of_removed_cgroups_go_without_another_change() {
        let mount = std::env::temp_dir().join(format!("numatop-groups-{}", std::process::id()));
        fs::create_dir_all(mount.join("job")).unwrap();
        let hierarchy = Hierarchy { mode: Mode::Unified, controller: None, mount: Some(mount.clone()) };
        let roots = Roots::from(Path::new("/"));
        let book = AskedNames::new("/nowhere".into(), Path::new("/nowhere"));
        let mut tracker = CgroupTracker::new(roots, hierarchy, book, Wants::default(), Scope::default());
        let mut names = Arc::default();
        let is_named = |names: &Names| names.cgroups.values().any(|path| path == "/job");
        tracker.read(1, &mut names);
        assert!(is_named(&names));
        fs::remove_dir(mount.join("job")).unwrap();
        tracker.read(2, &mut names);
        tracker.not_before = None;
        assert!(is_named(&names) && !tracker.is_due(2, false), "tasks that ended in it are still shown");

        tracker.removed[0].0 -= KEEP_REMOVED;
        assert!(tracker.is_due(2, false));
        tracker.read(2, &mut names);
        tracker.not_before = None;
        assert!(!is_named(&names) && names.groups.len() == 1 && !tracker.is_due(2, false));
        fs::remove_dir(mount).unwrap();
    }

    #[test]
    fn settings_hold_for_some_seconds_of_a_group_that_is_not_new() {
        const S: u64 = 1_000_000_000;
        let known = |read_ns| GroupRaw {
            read_ns,
            cpus: Ok("0-3".into()),
            mems: Ok("0".into()),
            cpu_quota_milli: Err(Missing::Unsupported("the cgroup has no cpu.max".into())),
            mem_limit_bytes: Ok(None),
            ..lost()
        };
        let read = SettingsRead { first_ns: 100 * S, last_ns: 200 * S };
        assert!(read.hold(&known(203 * S), 204 * S), "four seconds");
        assert!(!read.hold(&known(204 * S), 205 * S - 1_000_000), "a little less than five");
        assert!(!read.hold(&known(200 * S), 203 * S), "readings three seconds apart");
        assert!(!read.hold(&lost(), S), "an error is no setting");
        let new = SettingsRead { first_ns: 195 * S, ..read };
        assert!(!new.hold(&known(203 * S), 204 * S), "nine seconds old");
    }

    fn lost() -> GroupRaw {
        let reader = LimitReader::new(
            Path::new("/nowhere"),
            &Hierarchy { mode: Mode::Unified, controller: None, mount: Some("/proc/self/maps".into()) },
            4096,
        );
        reader.read("/", 0, None, false)
    }

    #[test]
    fn all_have_their_turn_and_those_wanted_only() {
        let (ids, mut next) = (BTreeSet::from([1, 2, 3, 4, u64::MAX]), 0);
        let mut turn = || in_turn(&ids, |id| **id != 3, &mut next, 3);
        assert_eq!(turn(), [1, 2, 4]);
        assert_eq!(turn(), [u64::MAX, 1, 2]);
    }
}
