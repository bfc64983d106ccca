//! Advice in messages of wrong usage that clap does not have of its own.

use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// Adds tips to `error`. Flags and subcommands exclude each other, so that a subcommand is the first word after the
/// name of the program.
pub(super) fn add(error: &mut clap::Error, command: &mut Command, first: Option<&OsStr>) {
    let first = first.and_then(OsStr::to_str);
    let tips = match error.kind() {
        ErrorKind::UnknownArgument => elsewhere(error, command, first),
        ErrorKind::ArgumentConflict => demo(error).into_iter().collect(),
        _ => Vec::new(),
    };
    if tips.is_empty() {
        return;
    }
    if error.kind() == ErrorKind::UnknownArgument {
        // clap suggests a flag that is only similar, and makes it a part of the usage.
        error.remove(ContextKind::SuggestedArg);
        let here = match first.filter(|name| command.find_subcommand(name).is_some()) {
            Some(name) => command.find_subcommand_mut(name).expect("it was found above"),
            None => command,
        };
        error.insert(ContextKind::Usage, ContextValue::StyledStr(here.render_usage()));
    }
    let tips = tips.into_iter().map(Into::into).collect();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

/// The commands that have a flag which the one at hand does not have, and why that is so.
fn elsewhere(error: &clap::Error, command: &Command, first: Option<&str>) -> Vec<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return Vec::new() };
    let named = |arg: &Arg| match flag.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| flag.strip_prefix('-') == Some(&short.to_string())),
    };
    let commands = std::iter::once(command).chain(command.get_subcommands());
    let having = commands.filter(|command| command.get_arguments().any(named));
    let having: Vec<&str> = having.map(Command::get_name).collect();
    let names = match having.as_slice() {
        [] => return Vec::new(),
        [only] => format!("{only} has"),
        [others @ .., last] => format!("{} and {last} have", others.join(", ")),
    };
    let here = first.and_then(|name| command.find_subcommand(name));
    let why = here.and_then(Command::get_after_help).map(ToString::to_string);
    std::iter::once(format!("{names} '{flag}'")).chain(why).collect()
}

/// The reason why flags of measurement and scope exclude `--demo`.
fn demo(error: &clap::Error) -> Option<String> {
    let is_demo = |kind| match error.get(kind) {
        Some(ContextValue::String(flag)) => flag == "--demo",
        Some(ContextValue::Strings(flags)) => flags.iter().any(|flag| flag == "--demo"),
        _ => false,
    };
    let of_a_flag = error.get(ContextKind::InvalidSubcommand).is_none();
    (of_a_flag && (is_demo(ContextKind::InvalidArg) || is_demo(ContextKind::PriorArg)))
        .then(|| "--demo measures nothing; --comm and --node choose rows".to_string())
}
