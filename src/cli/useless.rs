//! Which flags would do nothing where they are typed? They are refused, and not in the help of a subcommand that has no
//! use for them.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// Flags that a subcommand has no use for, by field of [`ViewArgs`](super::ViewArgs), and why.
struct Without {
    subcommand: &'static str,
    why: &'static str,
    flags: &'static [&'static str],
}

const WITHOUT: [Without; 2] = [
    Without {
        subcommand: "record",
        why: "chooses what is shown, and record shows nothing: all metrics and rows are kept, for replay and export \
              to choose from",
        flags: &[
            "batch",
            "format",
            "threads",
            "by_container",
            "columns",
            "sort",
            "top",
            "comm",
            "node",
            "overhead",
            "color",
            "ascii",
            "no_mouse",
        ],
    },
    Without {
        subcommand: "replay",
        why: "chooses what is measured, and a recording was measured already (--comm and --node choose rows)",
        flags: &[
            "delay",
            "placement_budget",
            "pids",
            "tids",
            "users",
            "containers",
            "pods",
            "namespaces",
            "cgroups",
            "units",
            "machines",
            "host",
            "wait",
            "runtime_sockets",
            "events",
            "pmu_dir",
            "hot",
            "hot_event",
            "hot_rate",
            "overhead",
        ],
    },
];

/// Flags without use for the demo machine, and why.
const WITH_DEMO: (&[&str], &str) = (
    &[
        "placement_budget",
        "pids",
        "tids",
        "users",
        "containers",
        "pods",
        "namespaces",
        "cgroups",
        "units",
        "machines",
        "host",
        "wait",
        "runtime_sockets",
        "events",
        "pmu_dir",
        "hot_event",
        "hot_rate",
        "overhead",
    ],
    "chooses what is measured, and --demo measures nothing (--comm and --node choose rows)",
);

/// Flags that mean something only beside one of others, and why.
struct Needs {
    flags: &'static [&'static str],
    one_of: &'static [&'static str],
    why: &'static str,
}

/// Of the live view and batch mode.
const NEEDS: [Needs; 2] = [
    Needs {
        flags: &["wait"],
        one_of: &["containers", "pods", "namespaces", "cgroups", "units", "machines"],
        why: "waits for what is named by --container, --pod, --k8s-namespace, --cgroup, --unit or --machine",
    },
    Needs {
        flags: &["record_max_size", "record_max_age", "record_top", "record_min_cpu"],
        one_of: &["record"],
        why: "is about a recording, and only --record makes one",
    },
];

/// Takes them out of the help of subcommands.
pub(super) fn hide(mut command: Command) -> Command {
    for Without { subcommand, flags, .. } in &WITHOUT {
        let hide = |arg: Arg| if flags.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg };
        command = command.mut_subcommand(subcommand, |subcommand| subcommand.mut_args(hide));
    }
    command
}

/// A flag that was typed and would do nothing, and why. The command itself tells which flags it has: `ArgMatches` knows
/// it in builds with debug assertions only.
pub(super) fn find(command: &Command, matches: &ArgMatches) -> Option<(&'static str, &'static str)> {
    let known = |flag: &str| command.get_arguments().any(|arg| arg.get_id() == flag);
    let typed = |flag: &&str| known(flag) && matches.value_source(flag) == Some(ValueSource::CommandLine);
    let first = |flags: &'static [&'static str]| flags.iter().copied().find(typed);
    let without = WITHOUT.iter().find(|without| without.subcommand == command.get_name());
    let refused = without.and_then(|without| Some((first(without.flags)?, without.why)));
    let demo = || first(&["demo"]).and_then(|_| Some((first(WITH_DEMO.0)?, WITH_DEMO.1)));
    refused.or_else(demo).or_else(|| {
        let alone =
            |needs: &&Needs| needs.one_of.iter().any(|flag| known(flag)) && first(needs.one_of).is_none();
        NEEDS.iter().filter(alone).find_map(|needs| Some((first(needs.flags)?, needs.why)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn what_is_without_use_is_a_flag() {
        let command = Cli::command();
        for Without { subcommand, flags, .. } in &WITHOUT {
            let known = command.find_subcommand(subcommand).unwrap();
            for flag in *flags {
                assert!(known.get_arguments().any(|arg| arg.get_id() == flag), "{subcommand} {flag}");
            }
        }
    }

    #[test]
    fn what_chooses_the_measurement_is_refused_in_replay() {
        for words in [
            &["--pid", "7"][..],
            &["-d", "1"],
            &["--container", "web"],
            &["--events", "auto"],
            &["--host"],
            &["--hot"],
        ] {
            let typed = ["numatop-ng", "replay", "x"].iter().chain(words);
            let why = Cli::from_words(typed).unwrap_err().to_string();
            let flag = if words[0] == "-d" { "--delay" } else { words[0] };
            assert!(why.contains(&format!("{flag}: chooses what is measured")), "{why}");
        }
    }

    #[test]
    fn what_chooses_the_measurement_is_refused_in_a_demo() {
        let command = Cli::command();
        for flag in WITH_DEMO.0 {
            let arg = command.get_arguments().find(|arg| arg.get_id() == flag).unwrap();
            let long = format!("--{}", arg.get_long().unwrap());
            let value = match *flag {
                "host" | "wait" | "overhead" => &[][..],
                _ => &["1"],
            };
            let typed = ["numatop-ng", "--demo", &long].into_iter().chain(value.iter().copied());
            let why = Cli::from_words(typed).unwrap_err().to_string();
            assert!(why.contains(&format!("{long}: chooses what is measured")), "{why}");
        }
        for words in
            [&["--hot"][..], &["-b", "-n", "3", "-d", "2", "-H"], &["--node", "2"], &["--record", "x"]]
        {
            assert!(Cli::from_words(["numatop-ng", "--demo"].iter().chain(words)).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn what_chooses_the_screen_is_refused_in_record() {
        for words in [&["--sort", "ipc"][..], &["-H"], &["--format", "json"], &["--by-container"]] {
            let typed = ["numatop-ng", "record", "x"].iter().chain(words);
            let why = Cli::from_words(typed).unwrap_err().to_string();
            assert!(why.contains("chooses what is shown"), "{why}");
        }
        assert!(Cli::from_words(["numatop-ng", "record", "x", "-p", "7", "-n", "1", "--hot"]).is_ok());
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (words, why) in [
            (&["--wait"][..], "--wait: waits for what is named"),
            (&["--wait", "--host"], "--wait: waits for what is named"),
            (&["record", "x", "--wait"], "--wait: waits for what is named"),
            (&["--record-top", "5"], "--record-top: is about a recording"),
            (&["--record-max-size", "1G", "-b"], "--record-max-size: is about a recording"),
            (&["--container", ""], "--container"),
            (&["--cgroup="], "--cgroup"),
            (&["--by-container", "--comm", "x"], "--comm"),
            (&["--by-container", "--node", "0"], "--node"),
        ] {
            let error = Cli::from_words(["numatop-ng"].iter().chain(words)).unwrap_err().to_string();
            assert!(error.contains(why), "{words:?}: {error}");
        }
        for words in [
            &["--record", "x", "--record-top", "5"][..],
            &["record", "x", "--record-top", "5"],
            &["--wait", "--unit", "x"],
            &["--events", ""],
        ] {
            assert!(Cli::from_words(["numatop-ng"].iter().chain(words)).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn help_lists_what_is_of_use() {
        let help = |words: &[&str]| Cli::from_words(words).unwrap_err().to_string();
        let record = help(&["numatop-ng", "record", "--help"]);
        let replay = help(&["numatop-ng", "replay", "--help"]);
        assert!(
            record.contains("--pid") && !record.contains("--sort") && !record.contains("--ascii"),
            "{record}"
        );
        assert!(
            replay.contains("--sort") && !replay.contains("--pid") && !replay.contains("--hot"),
            "{replay}"
        );
        assert!(help(&["numatop-ng", "--help"]).contains("--sort"));
    }
}
