use super::*;
use clap::error::ErrorKind;

fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
    Cli::from_words(std::iter::once(&"numatop-ng").chain(words))
}

fn refused(words: &[&str]) -> clap::Error {
    parse(words).map(|cli| panic!("{words:?}: {cli:?}")).unwrap_err()
}

#[test]
fn flags_are_consistent() {
    Cli::command().debug_assert();
}

/// Long flags of a command, by heading.
fn flags<'a>(command: &'a clap::Command, headings: &'a [&str]) -> impl Iterator<Item = &'a clap::Arg> {
    command.get_arguments().filter(|arg| {
        arg.get_help_heading().is_some_and(|heading| headings.iter().any(|begin| heading.starts_with(begin)))
    })
}

/// Words that give a flag, with a value that it takes.
fn typed(arg: &clap::Arg) -> Vec<String> {
    let long = format!("--{}", arg.get_long().unwrap());
    let takes_value = arg.get_action().takes_values();
    let choice = arg.get_possible_values().first().map(|value| value.get_name().to_owned());
    if takes_value { vec![long, choice.unwrap_or_else(|| "1".into())] } else { vec![long] }
}

#[test]
fn a_demo_takes_no_flag_of_scope_and_measurement() {
    let command = Cli::command();
    let has_a_use = [
        "--delay",
        "--events",
        "--hot",
        "--container",
        "--pod",
        "--k8s-namespace",
        "--cgroup",
        "--unit",
        "--machine",
        "--host",
    ];
    let mut refusals = 0;
    for arg in flags(&command, &["Scope", MEASUREMENT, "Hot spots"]) {
        let words = typed(arg);
        let all: Vec<&str> = std::iter::once("--demo").chain(words.iter().map(String::as_str)).collect();
        if has_a_use.contains(&all[1]) {
            assert!(parse(&all).is_ok(), "{all:?}");
            continue;
        }
        // --wait needs a name beside it.
        let error =
            refused(&if all[1] == "--wait" { [&all[..], &["--unit", "x"]].concat() } else { all.clone() });
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{text}");
        assert!(text.contains(all[1]) && text.contains("--demo measures nothing"), "{text}");
        refusals += 1;
    }
    assert_eq!(refusals, 19);
    for words in [&["--hot"][..], &["-b", "-n", "3", "-d", "2", "-H"], &["--node", "2"], &["--record", "x"]] {
        assert!(parse(&[&["--demo"], words].concat()).is_ok(), "{words:?}");
    }
}

#[test]
fn a_demo_before_a_command_names_what_to_type() {
    for (name, tip) in
        [("diagnose", "numatop-ng diagnose --demo"), ("report", "record --demo -n 180 demo.nrec")]
    {
        let text = refused(&["--demo", name]).to_string();
        assert!(text.contains(tip), "{text}");
    }
}

#[test]
fn turns_are_of_events_that_were_asked_for() {
    let error = refused(&["--events-rotate", "5s"]);
    assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
    assert!(error.to_string().contains("--events <LIST>"), "{error}");
    assert!(parse(&["--events", "auto,tlb", "--events-rotate", "5s"]).is_ok());
    assert!(
        refused(&["--events", "auto", "--events-rotate", "often"]).to_string().contains("length of time")
    );
}

#[test]
fn an_unknown_flag_names_the_commands_that_have_it() {
    for (words, tips) in [
        (
            &["replay", "x", "--pid", "7"][..],
            &["numatop-ng, record, exporter and diagnose have '--pid'", "measured again"][..],
        ),
        (
            &["replay", "x", "-d", "1"],
            &["numatop-ng, record, run, exporter and diagnose have '-d'", "measured again"],
        ),
        (&["replay", "x", "--hot"], &["numatop-ng and record have '--hot'"]),
        (&["export", "x", "--format", "csv", "--ascii"], &["numatop-ng and replay have '--ascii'"]),
        (
            &["record", "x", "--sort", "ipc"],
            &["numatop-ng, replay and export have '--sort'", "Everything is recorded"],
        ),
        (&["record", "x", "-H"], &["numatop-ng, replay and export have '-H'"]),
        (&["record", "x", "--by-container"], &["numatop-ng, replay and export have '--by-container'"]),
        (&["record", "x", "--overhead"], &["numatop-ng has '--overhead'"]),
        (&["--follow"], &["replay has '--follow'"]),
        (&["report", "--demo"], &["have '--demo'", "record --demo -n 180 demo.nrec"]),
        (&["diagnose", "-n", "3"], &["diagnose counts seconds, not intervals: --for SECONDS"]),
        (&["diagnose", "--iterations", "3"], &["diagnose counts seconds, not intervals: --for SECONDS"]),
        (
            &["list", "metrics", "--pmu-dir", "x"],
            &["numatop-ng, list events, record, run, exporter, diagnose and selftest have '--pmu-dir'"],
        ),
    ] {
        let error = refused(words);
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{text}");
        assert!(tips.iter().all(|tip| text.contains(tip)), "{words:?}: {text}");
        assert!(!text.contains("similar"), "{text}");
    }
    let text = refused(&["record", "x", "--frobnicate"]).to_string();
    assert!(!text.contains(" has '") && !text.contains(" have '"), "{text}");
}

#[test]
fn a_flag_that_would_be_ignored_is_refused() {
    for (words, named) in [
        (&["--wait"][..], "--container <NAME|ID>"),
        (&["--wait", "--host"], "--container <NAME|ID>"),
        (&["record", "x", "--wait"], "--container <NAME|ID>"),
        (&["--record-top", "5"], "--record <FILE|DIR>"),
        (&["--record-max-size", "1G", "-b"], "--record <FILE|DIR>"),
        (&["--container", ""], "--container"),
        (&["--cgroup="], "--cgroup"),
        (&["--by-container", "--comm", "x"], "--comm"),
        (&["--by-container", "--node", "0"], "--node"),
        (&["--by-container", "--tid", "1"], "--tid"),
        (&["replay", "x", "--by-container", "-H"], "--threads"),
        (&["--host", "--unit", "x"], "--unit"),
    ] {
        let text = refused(words).to_string();
        assert!(text.contains(named), "{words:?}: {text}");
    }
    for words in [
        &["--record", "x", "--record-top", "5"][..],
        &["record", "x", "--record-top", "5"],
        &["record", "x", "-p", "7", "-n", "1", "--hot"],
        &["--wait", "--unit", "x"],
        &["--events", ""],
        &["--by-container", "--sort", "-cpu_pct"],
        &["export", "x", "--format", "csv", "-o", "y", "--columns", "pid"],
    ] {
        assert!(parse(words).is_ok(), "{words:?}: {}", refused(words));
    }
}

#[test]
fn no_flag_stands_outside_the_role_that_it_has_elsewhere() {
    let command = Cli::command();
    let live: Vec<_> = command.get_arguments().map(|arg| (arg.get_long(), arg.get_help_heading())).collect();
    for role in ["Output", "Rows and columns", "Screen", "Scope", MEASUREMENT, "Hot spots", RECORDING] {
        assert!(flags(&command, &[role]).count() > 0, "{role}");
    }
    for subcommand in ["record", "replay", "export"] {
        let subcommand = command.find_subcommand(subcommand).unwrap();
        let of_role = |heading: Option<&str>| heading.is_some_and(|heading| heading != recordings::TABLES);
        for arg in subcommand.get_arguments().filter(|arg| of_role(arg.get_help_heading())) {
            let known = (arg.get_long(), arg.get_help_heading());
            assert!(live.contains(&known), "{} {known:?}", subcommand.get_name());
        }
    }
}
