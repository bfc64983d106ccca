//! The part of the demo machine that flags of scope and counters choose.

use std::time::Duration;

use super::{BadValue, bad, named_wants};
use crate::cli::{MeasureArgs, ScopeArgs};
use crate::container::select::{Want, Wants};
use crate::pmu::sets::SETS;
use crate::source::demo::DemoOptions;

/// Where the tree of cgroups is mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The demo machine as it was asked for. `every`: the time between samples, which need not be waited for.
///
/// # Errors
/// `--events` names something else than a set.
pub fn simulated(
    tasks: &ScopeArgs,
    measure: &MeasureArgs,
    every: Option<Duration>,
) -> Result<DemoOptions, BadValue> {
    let containers = &tasks.containers;
    let path = |path: &String| {
        let below = path.strip_prefix(MOUNT).unwrap_or(path);
        Want::Cgroup(format!("/{}", below.trim_matches('/')))
    };
    let wants = containers.named.cgroups.iter().map(path).chain(named_wants(&containers.named)).collect();
    let set = |word: &str| {
        let known = SETS.iter().map(|(set, ..)| *set).find(|set| *set == word);
        let sets = || SETS.map(|(set, ..)| set).join(", ");
        known.ok_or_else(|| bad("--events", format!("the demo counts only sets of events: {}", sets())))
    };
    let words = measure.counters.events.split(',').map(str::trim).filter(|word| !word.is_empty());
    Ok(DemoOptions {
        wants: Wants { wants, host: containers.host, wait: false },
        sets: words.map(set).collect::<Result<_, _>>()?,
        every,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;

    fn options(words: &[&str]) -> Result<DemoOptions, String> {
        let args = args(&[&["--demo"], words].concat());
        simulated(&args.watch.scope, &args.watch.measure, None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_demo_takes_names_of_containers_and_sets_of_events() {
        let words =
            ["--container", "web", "--cgroup", "/sys/fs/cgroup/system.slice/", "--events", "stalls,tlb"];
        let options = options(&words).unwrap();
        assert_eq!(options.wants.describe(), "cgroup /system.slice, container web");
        assert_eq!(options.sets, ["stalls", "tlb"]);
    }

    #[test]
    fn a_demo_counts_no_event_by_name() {
        let why = options(&["--events", "branch-misses"]).unwrap_err();
        assert!(why.contains("--events") && why.contains("auto, basic, numa"), "{why}");
    }
}
