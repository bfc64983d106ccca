//! Refusal of a scope whose name nothing has.

use crate::collect::plan::Advice;
use crate::container::select::Unmatched;
use crate::error::{Exit, Refusal};
use crate::model::group::Engine;

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
pub(super) fn refuse(missing: &Unmatched, machine: &str, troubles: &[String], may_wait: bool) -> Refusal {
    let closest = match missing.closest.as_slice() {
        [] => format!("{machine} has no {}", missing.want.noun()),
        names => format!("closest names: {}", names.join(", ")),
    };
    let reasons: Vec<String> = std::iter::once(closest).chain(troubles.iter().cloned()).collect();
    let wait = Advice::say("--wait starts without it and waits until it exists");
    let engine = missing.nameless.filter(|_| may_wait).and_then(ask_engine);
    Refusal {
        exit: Exit::Usage,
        what: format!("there is no {}", missing.want),
        why: Some(reasons.join("; ")),
        said: None,
        advice: engine.into_iter().chain(may_wait.then_some(wait)).collect(),
    }
}
