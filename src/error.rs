//! Failures as users see them: an exit code, a reason, advice.

use std::ffi::OsString;
use std::process::ExitCode;
use std::{fmt, io};

use anyhow::Error;
use serde::{Serialize, Serializer};

use crate::collect::check::HostCheck;
use crate::collect::plan::{Advice, Hindrance, plan};
use crate::container::select::Unmatched;
use crate::host::privileges;
use crate::model::group::Engine;
use crate::model::sample::Missing;
use crate::text::{hanging, one_line, printable, words};

/// The command of the advice to run the program as root.
const AS_ROOT: &str = "sudo numatop-ng";

/// Width that messages on stderr are wrapped at.
const WIDTH: usize = 80;

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Ok = 0,
    /// The measurement that was asked for is not possible.
    CouldNotMeasure = 1,
    Usage = 2,
    /// A capability is missing, or a policy of the host forbids it.
    Privilege = 3,
    /// The kernel lacks something that cannot be done without.
    Kernel = 4,
    /// `diagnose` found something.
    Found = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

/// Why the program does not go on, in words for its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refusal {
    pub exit: Exit,
    /// The action that failed.
    pub what: String,
    /// The known part of the cause.
    pub why: Option<String>,
    /// The attempt and the kernel's answer to it, errno included.
    pub said: Option<String>,
    pub advice: Vec<Advice>,
}

impl fmt::Display for Refusal {
    /// Several lines of at most 80 columns; no newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(WIDTH).trim_end())
    }
}

impl Refusal {
    /// As lines of at most `width` columns; commands stand on lines of their own and are never wrapped.
    pub fn render(&self, width: usize) -> String {
        let mut text = match &self.why {
            Some(why) => hanging("", words(&format!("{}: {why}", self.what)), width),
            None => hanging("", words(&self.what), width),
        };
        if let Some(said) = &self.said {
            text += &hanging("  ", words(&format!("error from the kernel: {said}")), width);
        }
        text.extend(self.advice.iter().map(|advice| advice.render("  ", width)));
        text
    }
}

/// Refuses a start that is known to fail, before anything is loaded, so that the message can be a good one. A
/// host without a known obstacle is never refused: no version number and no user id decides.
///
/// # Errors
/// The first reason for which the live view cannot start here.
pub fn preflight(check: &HostCheck) -> Result<(), Refusal> {
    match plan(check).obstacle_to_start() {
        Some(obstacle) => Err(refusal(obstacle)),
        None => Ok(()),
    }
}

/// Turns the failure of a start into advice: a known obstacle of this host with the kernel's answer beside
/// it, or else the failure unchanged. Never a guess.
pub fn explain(error: &Error, check: &HostCheck) -> Refusal {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return refusal.clone();
    }
    let said = chain(error);
    if let Some(refusal) = limited(&said) {
        return refusal;
    }
    match preflight(check) {
        Err(refusal) => Refusal { said: Some(said), ..refusal },
        Ok(()) if is_filtered(&said, check) => Refusal {
            exit: Exit::Privilege,
            what: "cannot start".into(),
            why: Some(
                "a seccomp filter is active, and is the only known cause for the refused bpf(2) or \
                 perf_event_open(2)"
                    .into(),
            ),
            said: Some(said),
            // moby #43987, containerd #7301, containers/common #424.
            advice: vec![
                Advice::command(
                    "run the container without a seccomp filter",
                    "docker run --security-opt seccomp=unconfined ... (also with podman)",
                ),
                Advice::say("in Kubernetes: securityContext.seccompProfile.type: Unconfined"),
                Advice::say(
                    "or use an engine whose filter allows CAP_BPF and CAP_PERFMON: Docker 23, containerd 1.7, \
                     podman and CRI-O since October 2025",
                ),
            ],
        },
        Ok(()) => Refusal {
            exit: Exit::CouldNotMeasure,
            what: "cannot start".into(),
            why: Some(said),
            said: None,
            advice: vec![Advice::command(
                "the cause is unknown; please report this error with the output of",
                "numatop-ng doctor --format json",
            )],
        },
    }
}

/// Whether a filter of system calls explains an answer: no capability is known to be missing, and the errno
/// is that of filters of engines and units.
fn is_filtered(said: &str, check: &HostCheck) -> bool {
    let refused = io::Error::from_raw_os_error(libc::EPERM).to_string();
    check.privileges.seccomp_filter.is(&true) && said.contains(&refused)
}

/// A limit of this process was in the way. Each library has a different error type, but all of them write the
/// errno in the words of the standard library.
fn limited(said: &str) -> Option<Refusal> {
    let is = |errno| said.contains(&io::Error::from_raw_os_error(errno).to_string());
    let (why, advice) = if is(libc::EMFILE) {
        let limit = privileges::open_files().map_or("too few".into(), |limit| format!("only {limit}"));
        (
            format!("this process is limited to {limit} open files"),
            raise("ulimit -n 4096", "LimitNOFILE=4096"),
        )
    } else if let Some(limit) = privileges::address_space()
        && (is(libc::ENOMEM) || (is(libc::EAGAIN) && said.contains("thread")))
    {
        // A thread without room for its stack is EAGAIN.
        let why = format!("this process is limited to {limit} bytes of address space");
        (why, raise("ulimit -v unlimited", "LimitAS=infinity"))
    } else if is(libc::EAGAIN) && said.contains("thread") {
        let limit = privileges::threads().map_or(String::new(), |limit| format!(" ({limit} for this user)"));
        let why = format!("the limit on processes and threads is reached{limit}");
        let mut advice = raise("ulimit -u unlimited", "LimitNPROC=infinity");
        advice.push(Advice::say("or raise pids.max of the cgroup (TasksMax= of a unit)"));
        (why, advice)
    } else {
        return None;
    };
    Some(Refusal {
        exit: Exit::CouldNotMeasure,
        what: "cannot start".into(),
        why: Some(why),
        said: Some(said.to_string()),
        advice,
    })
}

/// The way to raise a limit in a shell and in a unit of systemd.
fn raise(shell: &str, unit: &str) -> Vec<Advice> {
    vec![
        Advice::command("raise the limit in the shell that starts numatop-ng", shell),
        Advice::command("or in the unit of a service", unit),
    ]
}

/// The message of a failure, after the name of the program. A refusal is wrapped. If it advises to run the
/// program as root, it repeats the words on the command line, beginning with the program.
pub fn message(error: &Error, typed: &[OsString]) -> String {
    let refusal = error.downcast_ref::<Refusal>().cloned();
    let refusal = refusal.map(|refusal| Refusal {
        advice: refusal.advice.into_iter().map(|advice| as_typed(advice, typed)).collect(),
        ..refusal
    });
    match refusal.or_else(|| limited(&chain(error))) {
        Some(refusal) => Refusal { what: format!("numatop-ng: {}", refusal.what), ..refusal }.to_string(),
        // A line feed of a name is no line of ours.
        None => format!("numatop-ng: {}", one_line(&chain(error))),
    }
}

/// Advice to run the program as root, with the words that were typed. Words that a shell takes apart are left to the reader.
fn as_typed(advice: Advice, typed: &[OsString]) -> Advice {
    let is_plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,:@=%".contains(c))
    };
    let words: Option<Vec<&str>> =
        typed.iter().skip(1).map(|word| word.to_str().filter(|word| is_plain(word))).collect();
    match words {
        Some(words) if !words.is_empty() && advice.command.as_deref() == Some(AS_ROOT) => {
            Advice { command: Some(format!("{AS_ROOT} {}", words.join(" "))), ..advice }
        }
        _ => advice,
    }
}

/// The whole chain of causes, made safe to show: it contains names of files and words of other libraries.
/// libbpf's own text about an errno is kept unchanged.
pub fn chain(error: &Error) -> String {
    printable(&format!("{error:#}"))
}

fn refusal(obstacle: &Hindrance) -> Refusal {
    // Root is no help against lockdown, or a container's bounding set.
    let helps = obstacle.advice.iter().any(|advice| advice.command.as_deref() == Some(AS_ROOT));
    let what = if helps { "needs root" } else { "cannot watch this machine" };
    Refusal {
        exit: exit_for(&obstacle.missing),
        what: what.into(),
        why: Some(obstacle.missing.to_string()),
        said: None,
        advice: obstacle.advice.clone(),
    }
}

/// The exit code when something essential is missing for this reason.
fn exit_for(missing: &Missing) -> Exit {
    match missing {
        Missing::NotPermitted(_) => Exit::Privilege,
        Missing::KernelTooOld(_) | Missing::Unsupported(_) => Exit::Kernel,
        Missing::FirstInterval | Missing::NotCollected(_) | Missing::Lost(_) => Exit::CouldNotMeasure,
    }
}

/// The way to names that no file has.
fn ask_engine(engine: Engine) -> Option<Advice> {
    let (containers, socket, asked) = match engine {
        Engine::Docker => ("docker containers", "/run/docker.sock", "docker"),
        Engine::Podman => ("podman containers", "/run/podman/podman.sock", "podman"),
        Engine::Unknown => ("containers", "/run/docker.sock", "docker"),
        _ => return None,
    };
    let words = format!(
        "some {containers} have no name on disk; --runtime-socket {socket} asks {asked} for their names"
    );
    Some(Advice::say(words))
}

/// Wrong usage, with the existing names on `machine`, and why names may be missing. `may_wait`: the group may still come.
pub fn unmatched(missing: &Unmatched, machine: &str, troubles: &[String], may_wait: bool) -> Refusal {
    let closest = match missing.closest.as_slice() {
        [] => format!("{machine} has no {}", missing.want.noun()),
        names => format!("closest names: {}", names.join(", ")),
    };
    let reasons: Vec<String> = std::iter::once(closest).chain(troubles.iter().cloned()).collect();
    let wait = Advice::say("--wait starts numatop-ng now and waits for a match");
    let engine = missing.nameless.filter(|_| may_wait).and_then(ask_engine);
    Refusal {
        exit: Exit::Usage,
        what: format!("there is no {}", missing.want),
        why: Some(reasons.join("; ")),
        said: None,
        advice: engine.into_iter().chain(may_wait.then_some(wait)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_wrapped_with_the_name_in_front() {
        let refusal = Refusal {
            exit: Exit::Privilege,
            what: "needs root".into(),
            why: Some("CAP_BPF and CAP_PERFMON are missing (uid 1000)".into()),
            said: None,
            advice: vec![Advice::command("run it as root:", "sudo numatop-ng")],
        };
        let words = ["numatop-ng", "diagnose", "--for", "60"].map(OsString::from);
        let text = message(&refusal.into(), &words);
        assert!(
            text.starts_with("numatop-ng: needs root") && text.contains("sudo numatop-ng diagnose --for 60"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn a_limit_of_threads_is_named_with_the_ways_to_raise_it() {
        let no_thread = io::Error::from_raw_os_error(libc::EAGAIN);
        let error = Error::from(no_thread).context("starting the thread that writes the output");
        let text = message(&error, &[]);
        for word in ["numatop-ng: cannot start", "ulimit -u", "LimitNPROC=", "TasksMax=", "os error 11"] {
            assert!(text.contains(word), "'{word}' is not said: {text}");
        }
        let busy = Error::from(io::Error::from_raw_os_error(libc::EAGAIN)).context("reading a file");
        assert!(!message(&busy, &[]).contains("ulimit"), "a limit that has nothing to do with it");
    }
}
