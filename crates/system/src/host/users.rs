//! Names of users: /etc/passwd as a file, and users that a directory service knows (sssd, LDAP, DynamicUser= of systemd). Those
//! come from the program getent(1), because a static binary cannot load NSS modules.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::fs::OFlags;

use super::roots::below;

/// User id → name, from `etc/passwd` below `root`. A missing or odd file gives fewer names, not an error.
pub fn read(root: &Path) -> BTreeMap<u32, String> {
    let bytes = fs::read(below(root, "etc/passwd")).unwrap_or_default();
    parse(&String::from_utf8_lossy(&bytes))
}

/// Lines of passwd(5): `name:password:uid:…`. The first name of an id wins, as in getpwuid(3).
pub(super) fn parse(text: &str) -> BTreeMap<u32, String> {
    let mut users = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(uid)) = (fields.next(), fields.nth(1)) else { continue };
        if let Ok(uid) = uid.parse() {
            users.entry(uid).or_insert_with(|| name.to_string());
        }
    }
    users
}

/// User id and home directory of all users in `etc/passwd` below `root`.
pub fn homes(root: &Path) -> Vec<(u32, PathBuf)> {
    let bytes = fs::read(below(root, "etc/passwd")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let home = |line: &str| {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, PathBuf::from(fields.nth(2)?)))
    };
    text.lines().filter_map(home).collect()
}

/// The id of `user`, a name or a number.
pub fn resolve(user: &str, users: &BTreeMap<u32, String>) -> Option<u32> {
    user.parse().ok().or_else(|| users.iter().find(|(_, name)| *name == user).map(|(uid, _)| *uid))
}

const PROGRAM: &str = "/usr/bin/getent";

/// A directory service that answers later costs names.
const PATIENCE: Duration = Duration::from_secs(3);

/// Users of one question: its answer fits into a pipe, and a slow service has time for all of them.
const AT_ONCE: usize = 16;

/// Maximum users asked about in total. Ids of containers have no names, and their number is unlimited.
const ASKED_MAX: usize = 1000;

/// Killed processes that may still be running before questions stop.
const LEFT_MAX: usize = 2;

/// Names of users by id, asked for without waiting.
#[derive(Debug)]
pub struct Getent {
    program: PathBuf,
    asked: BTreeSet<u32>,
    wanted: BTreeSet<u32>,
    running: Option<Running>,
    left: Vec<Child>,
}

/// A question, the users whose names it asks for, and its start.
#[derive(Debug)]
struct Running {
    child: Child,
    uids: BTreeSet<u32>,
    began: Instant,
}

impl Default for Getent {
    fn default() -> Getent {
        Getent::of(PROGRAM.into())
    }
}

impl Getent {
    fn of(program: PathBuf) -> Getent {
        Getent { program, asked: BTreeSet::new(), wanted: BTreeSet::new(), running: None, left: Vec::new() }
    }

    /// Asks for the name of a user, once.
    pub fn want(&mut self, uid: u32) {
        if self.asked.len() < ASKED_MAX && self.asked.insert(uid) {
            self.wanted.insert(uid);
        }
    }

    /// Names that have come since the last call. Never waits.
    pub fn come(&mut self) -> BTreeMap<u32, String> {
        let mut names = BTreeMap::new();
        if let Some(mut running) = self.running.take() {
            match running.child.try_wait() {
                Ok(Some(_)) => {
                    names = answer(&mut running.child);
                    // A service that names others is not believed.
                    names.retain(|uid, _| running.uids.contains(uid));
                }
                Ok(None) if running.began.elapsed() < PATIENCE => self.running = Some(running),
                Ok(None) => {
                    let _ = running.child.kill();
                    self.left.push(running.child);
                }
                Err(_) => {}
            }
        }
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.running.is_none() && !self.wanted.is_empty() && self.left.len() < LEFT_MAX {
            let uids: BTreeSet<u32> = self.wanted.iter().copied().take(AT_ONCE).collect();
            self.wanted.retain(|uid| !uids.contains(uid));
            let keys: Vec<String> = uids.iter().map(ToString::to_string).collect();
            let child = start(&self.program, &keys);
            self.running = child.map(|child| Running { child, uids, began: Instant::now() });
        }
        names
    }

    /// The id of the user with this name, which the service may spell otherwise (`ada@corp.example`); waits three seconds at most.
    pub fn id_of(&self, name: &str) -> Option<u32> {
        let began = Instant::now();
        let mut child = start(&self.program, &[name.to_owned()])?;
        while began.elapsed() < PATIENCE {
            if child.try_wait().ok()?.is_some() {
                return answer(&mut child).into_keys().next();
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        None
    }
}

impl Drop for Getent {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            let _ = running.child.kill();
        }
    }
}

/// `getent passwd KEY...`; none if the program is missing.
fn start(program: &Path, keys: &[String]) -> Option<Child> {
    let mut command = Command::new(program);
    // A key is no option.
    command.arg("passwd").arg("--").args(keys).env_clear();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    // A process that inherited the pipe could keep it open.
    let out = child.stdout.as_ref()?;
    let flags = rustix::fs::fcntl_getfl(out).ok()?;
    rustix::fs::fcntl_setfl(out, flags | OFlags::NONBLOCK).ok()?;
    Some(child)
}

/// Names that an ended process has printed.
fn answer(child: &mut Child) -> BTreeMap<u32, String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Some(out) = &mut child.stdout {
        match out.read(&mut buffer) {
            Ok(read) if read > 0 => bytes.extend(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    let mut names = parse(&String::from_utf8_lossy(&bytes));
    names.retain(|_, name| crate::text::is_clean(name) && !name.trim().is_empty());
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_name_wins_and_odd_lines_are_skipped() {
        let users =
            parse("root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n+::::::\nweb:x:33:33::/:/bin/sh\nbad\n");
        assert_eq!(users.get(&0).map(String::as_str), Some("root"));
        assert_eq!(users.get(&33).map(String::as_str), Some("web"));
        assert_eq!(users.len(), 2);
    }

    #[test]
    fn names_and_numbers_resolve() {
        let users = parse("web:x:33:33::/:/bin/sh\n");
        assert_eq!(resolve("web", &users), Some(33));
        assert_eq!(resolve("12345", &users), Some(12345));
        assert_eq!(resolve("nobody", &users), None);
    }

    /// A program of this test, removed with its folder.
    struct Script(PathBuf);

    impl Script {
        fn new(name: &str, text: &str) -> Script {
            let folder =
                std::env::temp_dir().join(format!("numatop-ng-getent-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let program = folder.join("getent");
            // Copied by another process: a child of a parallel test may hold our file open for writing (ETXTBSY).
            fs::write(folder.join("text"), format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(folder.join("text"), fs::Permissions::from_mode(0o755)).unwrap();
            let copied = Command::new("cp").arg(folder.join("text")).arg(&program).status().unwrap();
            assert!(copied.success());
            Script(program)
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    fn all(getent: &mut Getent) -> BTreeMap<u32, String> {
        let mut names = BTreeMap::new();
        let began = Instant::now();
        while names.is_empty() && began.elapsed() < Duration::from_secs(20) {
            names = getent.come();
            thread::sleep(Duration::from_millis(5));
        }
        names
    }

    #[test]
    fn each_user_is_asked_about_once() {
        let script = Script::new(
            "once",
            "echo \"$*\" >>\"${0%/*}/calls\"; echo 'evil:x:0:0::/:'; echo ' :x:7:7::/:'; echo \
             'ada:*:61234:100:Ada:/home/ada:/bin/sh'; exit 2",
        );
        let mut getent = Getent::of(script.0.clone());
        for uid in [61234, 7, 61234] {
            getent.want(uid);
        }
        assert_eq!(all(&mut getent), BTreeMap::from([(61234, "ada".to_owned())]));
        getent.want(61234);
        getent.come();
        let calls = fs::read_to_string(script.0.with_file_name("calls")).unwrap();
        assert_eq!(calls, "passwd -- 7 61234\n");
    }

    #[test]
    fn a_name_has_the_id_that_the_service_gives_it() {
        let script =
            Script::new("domain", "[ \"$3\" = Ada ] && echo 'ada@corp.example:*:61234:100::/:' || exit 2");
        let getent = Getent::of(script.0.clone());
        assert_eq!((getent.id_of("Ada"), getent.id_of("bob")), (Some(61234), None));
    }

    #[test]
    fn a_service_that_does_not_answer_delays_nothing() {
        let script = Script::new("hangs", "exec sleep 60");
        let mut getent = Getent::of(script.0.clone());
        getent.want(1);
        let began = Instant::now();
        assert!(getent.come().is_empty() && getent.come().is_empty());
        assert!(getent.running.is_some() && began.elapsed() < PATIENCE);
        getent.running.as_mut().unwrap().began -= PATIENCE;
        assert!(getent.come().is_empty() && getent.running.is_none(), "it is ended");
    }

    #[test]
    fn without_the_program_there_are_no_names() {
        let mut getent = Getent::of("/nonexistent/getent".into());
        getent.want(1);
        assert!(getent.come().is_empty() && getent.id_of("ada").is_none());
    }
}
