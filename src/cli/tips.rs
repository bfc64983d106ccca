//! Advice that clap lacks in messages of wrong usage.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// Commands that read recordings, and so show the demo from one.
const READS: [&str; 5] = ["replay", "export", "report", "diff", "verify"];
const RECORD_IT: &str =
    "record the demo first, then give the file: numatop-ng record --demo -n 180 demo.nrec";

/// Adds tips to `error`. Flags and subcommands exclude each other. So a subcommand is the first of `words`
/// after the name of the program, and its own subcommand the next.
pub(super) fn add(error: &mut clap::Error, command: &mut Command, words: &[OsString]) {
    let mut here = &*command;
    let mut path: Vec<String> = Vec::new();
    for word in words.iter().skip(1).map_while(|word| word.to_str()) {
        let Some(subcommand) = here.find_subcommand(word) else { break };
        here = subcommand;
        path.push(word.to_owned());
    }
    let tips = match error.kind() {
        ErrorKind::UnknownArgument if path == ["run"] => behind_dashes(error, command, here),
        ErrorKind::UnknownArgument if path == ["diagnose"] && is_count(error) => {
            vec!["diagnose counts seconds, not intervals: --for SECONDS".to_owned()]
        }
        ErrorKind::UnknownArgument => elsewhere(error, command, here),
        ErrorKind::InvalidSubcommand if !path.is_empty() => below(here).into_iter().collect(),
        ErrorKind::ArgumentConflict => demo(error, command).into_iter().collect(),
        _ => Vec::new(),
    };
    if tips.is_empty() {
        return;
    }
    if error.kind() == ErrorKind::UnknownArgument {
        // clap suggests a flag that is only similar, and makes it a part of the usage.
        error.remove(ContextKind::SuggestedArg);
        let here = path
            .iter()
            .fold(command, |command, name| command.find_subcommand_mut(name).expect("it was found above"));
        error.insert(ContextKind::Usage, ContextValue::StyledStr(here.render_usage()));
    }
    let tips = tips.into_iter().map(Into::into).collect();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

/// Whether the flag is a number of intervals.
fn is_count(error: &clap::Error) -> bool {
    let flag = error.get(ContextKind::InvalidArg);
    matches!(flag, Some(ContextValue::String(flag)) if flag == "-n" || flag == "--iterations")
}

/// The subcommands that `here` has.
fn below(here: &Command) -> Option<String> {
    let names: Vec<String> =
        here.get_subcommands().map(|command| format!("'{}'", command.get_name())).collect();
    let [others @ .., last] = names.as_slice() else { return None };
    Some(format!("{} has {} and {last}", here.get_name(), others.join(", ")))
}

/// The commands that have a flag which the one at hand does not have, and why that is so.
fn elsewhere(error: &clap::Error, command: &Command, here: &Command) -> Vec<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return Vec::new() };
    let named = |arg: &Arg| match flag.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| flag.strip_prefix('-') == Some(&short.to_string())),
    };
    let mut having: Vec<String> = Vec::new();
    if command.get_arguments().any(named) {
        having.push(command.get_name().to_owned());
    }
    for subcommand in command.get_subcommands() {
        if subcommand.get_arguments().any(named) {
            having.push(subcommand.get_name().to_owned());
        }
        let below = subcommand.get_subcommands().filter(|below| below.get_arguments().any(named));
        having.extend(below.map(|below| format!("{} {}", subcommand.get_name(), below.get_name())));
    }
    let names = match having.as_slice() {
        [] => return Vec::new(),
        [only] => format!("{only} has"),
        [others @ .., last] => format!("{} and {last} have", others.join(", ")),
    };
    let why = match here.get_name() {
        name if flag == "--demo" && READS.contains(&name) => Some(RECORD_IT.to_owned()),
        "record" | "replay" | "export" => here.get_after_help().map(ToString::to_string),
        _ => None,
    };
    std::iter::once(format!("{names} '{flag}'")).chain(why).collect()
}

/// The place of a command's words; for a flag that another command has, that one.
fn behind_dashes(error: &clap::Error, command: &Command, here: &Command) -> Vec<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => {
            vec![format!("the command goes after two dashes: numatop-ng run -- {word}")]
        }
        _ => elsewhere(error, command, here),
    }
}

/// Advice for `--demo` with a flag of measurement or scope, or before a subcommand.
fn demo(error: &clap::Error, command: &Command) -> Option<String> {
    let is_demo = |kind| match error.get(kind) {
        Some(ContextValue::String(flag)) => flag == "--demo",
        Some(ContextValue::Strings(flags)) => flags.iter().any(|flag| flag == "--demo"),
        _ => false,
    };
    if !is_demo(ContextKind::InvalidArg) && !is_demo(ContextKind::PriorArg) {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return Some(
            "--demo measures nothing; --container, --comm and --node select what is shown".to_string(),
        );
    };
    let has_it = |here: &Command| here.get_arguments().any(|arg| arg.get_long() == Some("demo"));
    match command.find_subcommand(name) {
        Some(here) if has_it(here) => Some(format!("put --demo after the command: numatop-ng {name} --demo")),
        _ => READS.contains(&name.as_str()).then(|| RECORD_IT.to_owned()),
    }
}
