//! Refusal of a scope whose name nothing has.

use crate::collect::plan::Advice;
use crate::container::select::Unmatched;
use crate::error::{Exit, Refusal};
use crate::model::group::Engine;

/// The way to names that no file has.
fn ask_engine(engine: Engine) -> Option<Advice> {
    let socket = match engine {
        Engine::Docker | Engine::Unknown => "/run/docker.sock",
        Engine::Podman => "/run/podman/podman.sock",
        _ => return None,
    };
    let words = format!(
        "some containers of {} have no name in its files; --runtime-socket {socket} looks them up",
        engine.name()
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
