//! Settings of the user among the words that were typed.

use std::ffi::OsString;

use super::show::{columns, node_columns, sort};
use crate::cli::{Cli, Command};
use crate::settings::{BadLine, Setting};

/// Refuses a setting that its flag would not take.
///
/// # Errors
/// The line, and the message of the flag.
pub fn check_settings(settings: &[Setting]) -> Result<(), BadLine> {
    settings.iter().try_for_each(|setting| {
        let bad = |why: String| BadLine { line: setting.line, why };
        let Some(word) = setting.word() else { return Ok(()) };
        let cli = Cli::from_words(["numatop-ng".into(), word]).map_err(|error| bad(first_line(&error)))?;
        let display = &cli.live.display;
        columns(display).and(sort(display).map(drop)).map_err(|error| bad(error.to_string()))?;
        node_columns(&cli.live.screen).map_err(|error| bad(error.to_string()))?;
        Ok(())
    })
}

/// The words of clap, without the way to ask for help that is added below them.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// The command line with `settings` before the `typed` words. A typed flag wins over the setting of its name,
/// and over settings that exclude it; so does a command that has no such flag.
pub fn with_settings(typed: &[OsString], settings: &[Setting]) -> Option<Cli> {
    let mut cli = Cli::from_words(typed).ok()?;
    let at = match &cli.command {
        None => 1,
        Some(Command::Replay(_)) => 2,
        Some(_) => return Some(cli),
    };
    let flags = Cli::flags_in(typed);
    let mut words = typed.to_vec();
    for setting in settings {
        let Some(word) = setting.word().filter(|_| !flags.iter().any(|flag| flag == setting.flag)) else {
            continue;
        };
        let mut more = words.clone();
        more.insert(at.min(more.len()), word.into());
        if let Ok(taken) = Cli::from_words(&more) {
            (words, cli) = (more, taken);
        }
    }
    Some(cli)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ColourArg, LiveArgs, ReplayArgs};
    use crate::settings::parse;

    fn with(file: &str, words: &[&str]) -> Cli {
        let typed: Vec<OsString> = std::iter::once(&"numatop-ng").chain(words).map(OsString::from).collect();
        with_settings(&typed, &parse(file).unwrap()).unwrap()
    }

    fn live(file: &str, words: &[&str]) -> LiveArgs {
        with(file, words).live
    }

    fn replay(file: &str, words: &[&str]) -> ReplayArgs {
        match with(file, &[&["replay"], words].concat()).command {
            Some(Command::Replay(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_setting_is_a_flag_that_was_not_typed() {
        let file = "delay = 2.5\ncolumns = [\"pid\", \"comm\"]\nthreads = true\ncolor = \"never\"\n";
        let args = live(file, &["-p", "1"]);
        assert_eq!(args.watch.measure.delay, 2.5);
        assert_eq!(args.display.columns, ["pid", "comm"]);
        assert!(args.display.threads && args.screen.color == ColourArg::Never);
        assert_eq!(args.watch.scope.pids, [1]);
    }

    #[test]
    fn what_is_typed_goes_before_settings_and_before_those_that_cannot_be_beside_it() {
        let file = "delay = 2\ncolumns = [\"pid\"]\nthreads = true\nsort = \"ipc\"\nno-access = true\n";
        let args = live(file, &["-d", "3", "-o", "comm", "--by-container", "-s", "-pid", "--access"]);
        assert_eq!(args.watch.measure.delay, 3.0);
        assert_eq!(args.display.columns, ["comm"]);
        assert!(args.display.by_container && !args.display.threads);
        assert_eq!(args.display.sort.as_deref(), Some("-pid"));
        assert!(args.access && !args.no_access);
    }

    #[test]
    fn a_replay_takes_the_settings_that_it_has_flags_for() {
        let args = replay("delay = 2\nsort = \"-ipc\"\nascii = true\n", &["a.nrec", "--at", "-10m"]);
        assert!(args.screen.ascii);
        assert_eq!((args.display.sort.as_deref(), args.at.as_deref()), (Some("-ipc"), Some("-10m")));
    }

    #[test]
    fn a_value_that_its_flag_does_not_take_is_named_with_its_line() {
        for (file, line, why) in [
            ("\ndelay = 0.01\n", 2, "0.1 to 60 seconds"),
            ("color = \"blue\"\n", 1, "blue"),
            ("ascii = true\ncolumns = [\"cpu_percent\"]\n", 2, "cpu_pct"),
            ("sort = \"nonsense\"\n", 1, "no metric 'nonsense'"),
            ("node-columns = [\"comm\"]\n", 1, "comm"),
        ] {
            let bad = check_settings(&parse(file).unwrap()).unwrap_err();
            assert_eq!(bad.line, line, "{bad}");
            assert!(bad.why.contains(why), "{bad}");
        }
        let file = "delay = 2\ncolumns = [\"pid\"]\nnode-columns = [\"node\"]\nsort = \"-ipc\"\nthreads = true\nby-container = true\ncolor = \"always\"\ntheme = \"okabe-ito\"\nremote-from = 5\ndim-below = 64\nascii = true\nno-mouse = true\nno-access = true\n";
        assert_eq!(check_settings(&parse(file).unwrap()), Ok(()));
    }
}
