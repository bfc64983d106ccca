//! Names of containers for the sampling thread: it asks, continues, and takes the answers with a later
//! sample.
//!
//! Files of engines, files of users and runtimes have a thread and a helper process each ([`main`]), so a
//! source that hangs delays no other. That process reads files of users and waits for runtimes, which the tool's own
//! threads never do. A home directory that did not answer is skipped for a while, longer each time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::names::{ContainerNames, Name};
use super::runtime;
use crate::host::users;
use crate::model::group::{Engine, Group};
use crate::program::helper::{self, Failure, HelperProcess};
use crate::program::served;

/// The stack of the thread: the usual one would count 2 MiB against a limit on data.
const STACK_BYTES: usize = 512 << 10;

/// A source of names of containers and pods.
pub trait Book {
    /// The name of a container by its full id; `owner` is the user who made its cgroup, `None` for the system.
    fn container(&mut self, engine: Engine, id: &str, owner: Option<u32>) -> Option<Name>;
    /// Name and namespace of a pod of the system by its uid.
    fn pod(&mut self, uid: &str) -> Option<Name>;
}

/// Waits for whatever it reads: for helper processes and tests.
impl Book for ContainerNames {
    fn container(&mut self, engine: Engine, id: &str, owner: Option<u32>) -> Option<Name> {
        self.in_files(engine, id, owner).or_else(|| self.of_runtimes(id))
    }

    fn pod(&mut self, uid: &str) -> Option<Name> {
        ContainerNames::pod(self, uid)
    }
}

/// Containers of one user without a name that are asked about; others of that user have none.
const OF_A_USER_MAX: usize = 256;

/// Containers and pods of the system without a name that are asked about.
const OF_SYSTEM_MAX: usize = 20_000;

/// A name that is not found is asked for again after this, then after twice as long each time.
const AGAIN: Duration = Duration::from_secs(1);

const AGAIN_MAX: Duration = Duration::from_secs(64);

/// Containers that can be renamed are asked about again after this.
const RENEW: Duration = Duration::from_secs(30);

/// An answer from files of the system, and from a home, takes this at most.
const SYSTEM_MAX: Duration = Duration::from_secs(5);

const HOME_MAX: Duration = Duration::from_millis(700);

/// A filesystem that did not answer is asked again after this, then after twice as long each time.
const HUNG: Duration = Duration::from_secs(60);

/// After an answer from a home that took a time t, the next question about that user waits for this many times t.
const REST: u32 = 20;

/// Processes that wait for one filesystem which does not answer.
const OF_A_DEVICE_MAX: usize = 2;

/// Maximum processes left behind in total: after this many hung filesystems none is asked.
const LEFT_BEHIND_MAX: usize = 16;

/// The same trouble is reported again after this time, and at most this many different ones meanwhile.
const SAY_AGAIN: Duration = Duration::from_secs(600);

const SAID_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum AskedKey {
    Container(Engine, String, Option<u32>),
    Pod(String),
}

impl AskedKey {
    fn owner(&self) -> Option<u32> {
        match self {
            AskedKey::Container(_, _, owner) => *owner,
            AskedKey::Pod(_) => None,
        }
    }
}

/// A container of the system whose engine can rename it.
fn renamable(group: &Group) -> Option<AskedKey> {
    let engine = group.engine.filter(|engine| matches!(engine, Engine::Docker | Engine::Podman))?;
    let id = group.id.clone().filter(|_| group.user.is_none())?;
    Some(AskedKey::Container(engine, id, None))
}

/// One that has no name yet.
struct Asked {
    /// The number of the tree that it was in last.
    seen: u64,
    /// An answer is on the way.
    open: bool,
    next: Instant,
    pause: Duration,
}

/// Names that were asked for.
pub struct AskedNames {
    program: PathBuf,
    root: PathBuf,
    sockets: Vec<PathBuf>,
    system: Option<Lane>,
    homes: Option<Lane>,
    runtimes: Option<Lane>,
    found: HashMap<AskedKey, (u64, Name)>,
    asked: HashMap<AskedKey, Asked>,
    by_owner: HashMap<Option<u32>, usize>,
    pending: Vec<AskedKey>,
    /// Counts the trees that names were looked up for.
    tree: u64,
    /// New names are waiting.
    fresh: bool,
    renewed: Instant,
    troubles: Vec<String>,
    said: HashMap<String, Instant>,
}

impl AskedNames {
    /// Names from files below `root` ("/" for this machine). `program` is numatop-ng itself, which is started as the helper
    /// at the first question.
    pub fn new(program: PathBuf, root: &Path) -> AskedNames {
        AskedNames {
            program,
            root: root.to_owned(),
            sockets: Vec::new(),
            system: None,
            homes: None,
            runtimes: None,
            found: HashMap::new(),
            asked: HashMap::new(),
            by_owner: HashMap::new(),
            pending: Vec::new(),
            tree: 0,
            fresh: false,
            renewed: Instant::now(),
            troubles: Vec::new(),
            said: HashMap::new(),
        }
    }

    /// The runtimes listening on these sockets are asked for names that no file has.
    pub fn asking(mut self, sockets: &[PathBuf]) -> AskedNames {
        self.sockets = sockets.to_vec();
        self
    }

    /// Takes the answers so far. True if names are to be looked up again: new ones are available, or it is
    /// time to ask again.
    pub fn is_due(&mut self) -> bool {
        self.receive();
        let now = Instant::now();
        self.fresh || self.asked.values().any(|asked| !asked.open && asked.next <= now)
    }

    /// Asks twice a minute for the names of those of `groups` that their engine can rename.
    pub fn renew<'a>(&mut self, groups: impl Iterator<Item = &'a Group>) {
        if self.renewed.elapsed() < RENEW {
            return;
        }
        self.renewed = Instant::now();
        let keys: BTreeSet<AskedKey> = groups.filter_map(renamable).collect();
        self.put(None, &Vec::from_iter(keys));
    }

    /// Whether the engine has renamed the container of `group`, as far as answers have come.
    pub fn is_renamed(&self, group: &Group) -> bool {
        let found = renamable(group).and_then(|key| self.found.get(&key));
        found.is_some_and(|(_, name)| name.name != group.name)
    }

    /// Whether answers are on the way.
    pub fn is_waiting(&self) -> bool {
        self.asked.values().any(|asked| asked.open)
    }

    /// Why names are missing, since the call before.
    pub fn take_troubles(&mut self) -> Vec<String> {
        self.receive();
        std::mem::take(&mut self.troubles)
    }

    /// Names are looked up for a tree of cgroups from here on, until [`AskedNames::end`].
    pub fn begin(&mut self) {
        self.receive();
        self.tree += 1;
        self.fresh = false;
        self.by_owner.clear();
    }

    /// Asks for missing names, and forgets cgroups that have left the tree.
    pub fn end(&mut self) {
        let tree = self.tree;
        self.found.retain(|_, (seen, _)| *seen == tree);
        self.asked.retain(|_, asked| asked.open || asked.seen == tree);
        let mut by_owner: BTreeMap<Option<u32>, Vec<AskedKey>> = BTreeMap::new();
        for key in std::mem::take(&mut self.pending) {
            by_owner.entry(key.owner()).or_default().push(key);
        }
        for (owner, keys) in by_owner {
            self.put(owner, &keys);
        }
    }

    fn put(&mut self, owner: Option<u32>, keys: &[AskedKey]) {
        for keys in keys.chunks(BATCH) {
            let question = self.question(owner, keys, false);
            self.ask(Asking { question, keys: keys.to_vec() });
        }
    }

    fn question(&self, owner: Option<u32>, keys: &[AskedKey], of_runtimes: bool) -> Question {
        let mut question = Question { root: self.root.clone(), owner, ..Question::default() };
        if of_runtimes {
            question.sockets.clone_from(&self.sockets);
        }
        for key in keys {
            match key {
                AskedKey::Container(engine, id, _) => question.containers.push((*engine, id.clone())),
                AskedKey::Pod(uid) => question.pods.push(uid.clone()),
            }
        }
        question
    }

    fn ask(&mut self, asking: Asking) {
        let lane = match (asking.question.sockets.is_empty(), asking.question.owner) {
            (false, _) => &mut self.runtimes,
            (true, None) => &mut self.system,
            (true, Some(_)) => &mut self.homes,
        };
        if lane.is_none() {
            *lane = Lane::start(&self.program);
        }
        if let Some(asking) = lane.as_ref().map_or(Some(asking.clone()), |lane| lane.ask(asking)) {
            let failed = Told { asking, answer: Answer::default(), pause: None };
            self.take(failed);
            self.say("names of containers are missing: the thread that looks them up could not start".into());
        }
    }

    fn receive(&mut self) {
        let lanes = [&self.system, &self.homes, &self.runtimes];
        let told: Vec<Told> = lanes.into_iter().flatten().flat_map(|lane| lane.answers.try_iter()).collect();
        told.into_iter().for_each(|told| self.take(told));
    }

    fn take(&mut self, told: Told) {
        let Told { asking, answer, pause } = told;
        let now = Instant::now();
        let mut containers = answer.containers.into_iter();
        let mut pods = answer.pods.into_iter();
        let mut missing = Vec::new();
        for key in &asking.keys {
            let name = match key {
                AskedKey::Container(..) => containers.next(),
                AskedKey::Pod(_) => pods.next(),
            };
            if let Some(name) = name.flatten() {
                self.asked.remove(key);
                self.found.insert(key.clone(), (self.tree, name));
                self.fresh = true;
                continue;
            }
            let is_container = matches!(key, AskedKey::Container(..));
            if is_container && !self.sockets.is_empty() && asking.question.sockets.is_empty() {
                missing.push(key.clone());
            } else if let Some(asked) = self.asked.get_mut(key) {
                asked.open = false;
                asked.next = now + pause.unwrap_or(asked.pause);
                asked.pause = (asked.pause * 2).min(AGAIN_MAX);
            }
        }
        answer.troubles.into_iter().for_each(|trouble| self.say(trouble));
        if !missing.is_empty() {
            let question = self.question(asking.question.owner, &missing, true);
            self.ask(Asking { question, keys: missing });
        }
    }

    fn say(&mut self, trouble: String) {
        let is_old = |said: &Instant| said.elapsed() >= SAY_AGAIN;
        if self.said.get(&trouble).is_some_and(|said| !is_old(said)) {
            return;
        }
        self.said.retain(|_, said| !is_old(said));
        if self.said.len() < SAID_MAX {
            self.said.insert(trouble.clone(), Instant::now());
            self.troubles.push(trouble);
        }
    }

    fn look_up(&mut self, key: AskedKey) -> Option<Name> {
        if let Some((seen, name)) = self.found.get_mut(&key) {
            *seen = self.tree;
            return Some(name.clone());
        }
        let owner = key.owner();
        let count = self.by_owner.entry(owner).or_default();
        *count += 1;
        if *count > if owner.is_some() { OF_A_USER_MAX } else { OF_SYSTEM_MAX } {
            if let Some(uid) = owner.filter(|_| *count == OF_A_USER_MAX + 1) {
                self.say(format!(
                    "user {uid} has more than {OF_A_USER_MAX} containers without a name: the remaining names are not looked up"
                ));
            }
            return None;
        }
        let now = Instant::now();
        let asked =
            self.asked.entry(key.clone()).or_insert(Asked { seen: 0, open: false, next: now, pause: AGAIN });
        asked.seen = self.tree;
        if !asked.open && asked.next <= now {
            asked.open = true;
            self.pending.push(key);
        }
        None
    }
}

impl Book for AskedNames {
    fn container(&mut self, engine: Engine, id: &str, owner: Option<u32>) -> Option<Name> {
        let is_named = crate::model::group::is_id(id) && !engine.is_machine();
        if is_named { self.look_up(AskedKey::Container(engine, id.to_owned(), owner)) } else { None }
    }

    fn pod(&mut self, uid: &str) -> Option<Name> {
        self.look_up(AskedKey::Pod(uid.to_owned()))
    }
}

/// A question, and what it is about.
#[derive(Clone)]
struct Asking {
    question: Question,
    keys: Vec<AskedKey>,
}

/// An answer; `pause`: ask again only after this.
struct Told {
    asking: Asking,
    answer: Answer,
    pause: Option<Duration>,
}

/// A thread with a helper process. Dropped, it ends them.
struct Lane {
    questions: Sender<Asking>,
    answers: Receiver<Told>,
}

impl Lane {
    fn start(program: &Path) -> Option<Lane> {
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        let mut desk = Desk::new(program.to_owned());
        let work = move || {
            for asking in asked {
                let told = desk.answer(asking);
                if sender.send(told).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("containers".into()).stack_size(STACK_BYTES).spawn(work).ok()?;
        Some(Lane { questions, answers })
    }

    /// Returns the question if no thread can answer it.
    fn ask(&self, asking: Asking) -> Option<Asking> {
        self.questions.send(asking).err().map(|error| error.0)
    }
}

/// A filesystem that did not answer.
struct Hung {
    until: Instant,
    pause: Duration,
}

/// Puts questions to the helper, within budgets for each user and each filesystem.
struct Desk {
    helper: HelperProcess,
    hung: HashMap<u32, Hung>,
    /// Users whose homes took a while.
    resting: HashMap<u32, Instant>,
}

impl Desk {
    fn new(program: PathBuf) -> Desk {
        let helper = HelperProcess::new(program, NAME, SYSTEM_MAX).with_left_behind_max(LEFT_BEHIND_MAX);
        Desk { helper, hung: HashMap::new(), resting: HashMap::new() }
    }

    fn answer(&mut self, asking: Asking) -> Told {
        let question = &asking.question;
        let now = Instant::now();
        let device = question
            .owner
            .filter(|_| question.sockets.is_empty())
            .and_then(|uid| device(&question.root, uid));
        if let Some(pause) = self.wait_for(question.owner, device, now) {
            return Told { asking, answer: Answer::default(), pause: Some(pause) };
        }
        let most = match (question.sockets.len() as u32, question.owner) {
            (0, Some(_)) => HOME_MAX,
            (0, None) => SYSTEM_MAX,
            (sockets, _) => runtime::DEADLINE * sockets + Duration::from_secs(1),
        };
        let told = self.helper.ask_blaming::<Answer>(question, None, most, device);
        if let Some(uid) = question.owner {
            self.resting.retain(|_, until| *until > now);
            self.resting.insert(uid, Instant::now() + now.elapsed() * REST);
        }
        match told {
            Ok(answer) => {
                device.map(|device| self.hung.remove(&device));
                Told { asking, answer, pause: None }
            }
            Err(failure) => {
                let pause = device.filter(|_| failure == Failure::Slow).map(|device| self.note_hung(device));
                let answer = Answer { troubles: vec![reason(question, failure)], ..Answer::default() };
                Told { asking, answer, pause }
            }
        }
    }

    /// Time in which a question is of no use; `None`: it may be put.
    fn wait_for(&mut self, owner: Option<u32>, device: Option<u32>, now: Instant) -> Option<Duration> {
        self.helper.reap();
        let left = |until: Instant| until.saturating_duration_since(now);
        if let Some(device) = device {
            if self.helper.left_behind(Some(device)) >= OF_A_DEVICE_MAX {
                return Some(HUNG);
            }
            if let Some(hung) = self.hung.get(&device).filter(|hung| hung.until > now) {
                return Some(left(hung.until));
            }
        }
        self.resting.get(&owner?).filter(|until| **until > now).map(|until| left(*until))
    }

    fn note_hung(&mut self, device: u32) -> Duration {
        let pause = self.hung.get(&device).map_or(HUNG, |hung| hung.pause * 2).min(HUNG * 60);
        self.hung.insert(device, Hung { until: Instant::now() + pause, pause });
        pause
    }
}

fn reason(question: &Question, failure: Failure) -> String {
    let whose = match (question.sockets.is_empty(), question.owner) {
        (false, _) => "names of containers are missing: the container runtime".to_owned(),
        (true, Some(uid)) => {
            format!("names of containers of user {uid} are missing: that user's home directory")
        }
        (true, None) => "names of containers are missing: the directory of a container engine".to_owned(),
    };
    let why = match failure {
        Failure::Slow => "does not respond",
        Failure::Died => "cannot be read",
        Failure::NotStarted | Failure::GivenUp => {
            "cannot be read, because no helper process could be started"
        }
    };
    format!("{whose} {why}")
}

/// The device of the filesystem that lists of rootless containers of a user are on, found without asking it.
fn device(root: &Path, uid: u32) -> Option<u32> {
    let homes = users::homes(root);
    let home = homes.iter().find(|(user, _)| *user == uid)?.1.strip_prefix("/").ok()?.to_owned();
    let place = root.join(home).join(".local/share/containers/storage");
    let mounts = served::own_mounts();
    let (major, minor) = served::mount_of(&place, &mounts)?.device;
    Some(major << 20 | minor)
}

/// The name under which the tool starts itself to look for names of containers.
pub const NAME: &str = "numatop-ng-containers";

/// Containers asked about together: their names fit one packet.
pub(super) const BATCH: usize = 64;

/// Containers and pods of one owner that are looked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Question {
    /// The root that files are below.
    pub root: PathBuf,
    /// The user in whose home names are; `None`: those of engines of the system.
    pub owner: Option<u32>,
    /// Runtimes that are asked, instead of files being read.
    pub sockets: Vec<PathBuf>,
    pub containers: Vec<(Engine, String)>,
    /// Uids of pods.
    pub pods: Vec<String>,
}

/// Names that were found, by place in the lists of the question.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub containers: Vec<Option<Name>>,
    pub pods: Vec<Option<Name>>,
    /// Why names are missing.
    pub troubles: Vec<String>,
}

/// Answers questions until the input ends.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"nng-containers");
    let mut books: HashMap<(PathBuf, Vec<PathBuf>), ContainerNames> = HashMap::new();
    helper::serve(
        NAME,
        || Ok(()),
        |question: Question, _| {
            let book = books
                .entry((question.root.clone(), question.sockets.clone()))
                .or_insert_with(|| ContainerNames::new(&question.root).asking(&question.sockets));
            answer(book, &question)
        },
    )
}

fn answer(book: &mut ContainerNames, question: &Question) -> Answer {
    book.renew_budgets();
    let mut find = |(engine, id): &(Engine, String)| match question.sockets.is_empty() {
        true => book.in_files(*engine, id, question.owner),
        false => book.of_runtimes(id),
    };
    let containers = question.containers.iter().map(&mut find).collect();
    let pods = question.pods.iter().map(|uid| book.pod(uid)).collect();
    Answer { containers, pods, troubles: book.take_troubles() }
}
