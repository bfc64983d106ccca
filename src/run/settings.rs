//! The file of settings: where it is, and how it is read and written.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::wants_batch;
use crate::cli::{Cli, Command, ScreenArgs};
use crate::options;
use crate::program::{asked_file, output};
use crate::settings::{self, Setting, Value};
use crate::text::clean_str;
use crate::tui::Keeper;

/// The command line with the settings of the user, if a screen is shown; `None`: unchanged. A bad file
/// changes nothing: see [`keeper`].
pub(super) fn applied(cli: &Cli) -> Option<Cli> {
    let screen = match &cli.command {
        None if !wants_batch(&cli.live.output) => &cli.live.screen,
        Some(Command::Replay(args)) if !wants_batch(&args.output) => &args.screen,
        _ => {
            tell_unread(cli);
            return None;
        }
    };
    let settings = read(&place(screen)?).ok()?;
    let typed: Vec<_> = env::args_os().collect();
    options::with_settings(&typed, &settings)
}

/// Reports that a file on the command line is not read, because no screen is shown.
fn tell_unread(cli: &Cli) {
    let typed = match &cli.command {
        None => &cli.live.screen.config,
        Some(Command::Replay(args)) => &args.screen.config,
        Some(_) => &None,
    };
    if let Some(path) = typed {
        let name = clean_str(&path.to_string_lossy());
        output::message(format!(
            "numatop-ng: {name} is not read: settings apply to the screen; batch output uses only flags"
        ));
    }
}

/// Keeps the choices of the view in the file, and reports its current errors.
pub(super) fn keeper(screen: &ScreenArgs) -> Keeper {
    let Some(path) = place(screen) else {
        let why = "settings cannot be stored: neither XDG_CONFIG_HOME nor HOME is set; --config names a file";
        return Keeper { keep: Box::new(move |_| anyhow::bail!(why)), told: None };
    };
    let told = match read_whole(&path) {
        Err(error) => Some(format!("{error:#}; the defaults are used")),
        // A variable may name the place of all users of a machine, and most of them keep nothing there.
        Ok(None) if screen.config.is_some() => {
            let name = clean_str(&path.to_string_lossy());
            Some(format!("the file {name} does not exist: defaults are used; the key W creates the file"))
        }
        Ok(_) => None,
    };
    if let Some(told) = &told {
        // The message is printed after the view is closed, too.
        output::message(format!("numatop-ng: {told}"));
    }
    Keeper { keep: Box::new(move |chosen| keep(&path, chosen)), told }
}

/// The file that was named, or the one of the user.
fn place(screen: &ScreenArgs) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    screen.config.clone().or_else(|| set("NUMATOP_NG_CONFIG")).or_else(|| {
        let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        Some(folder.join("numatop-ng/config.toml"))
    })
}

/// The settings of a file, checked; none of one that is not there.
fn read(path: &Path) -> Result<Vec<Setting>> {
    Ok(read_whole(path)?.map(|(_, settings)| settings).unwrap_or_default())
}

/// The text of a file, and its settings, checked; `None` if the file is missing.
fn read_whole(path: &Path) -> Result<Option<(String, Vec<Setting>)>> {
    let name = || clean_str(&path.to_string_lossy());
    let text = match asked_file::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("reading settings of {}", name()))?,
    };
    let settings = settings::parse_bytes(text.as_bytes()).with_context(name)?;
    options::check_settings(&settings).with_context(name)?;
    Ok(Some((text, settings)))
}

/// Writes the choices, beside the settings already in the file.
fn keep(path: &Path, chosen: &[(&'static str, Option<Value>)]) -> Result<String> {
    let name = || clean_str(&path.to_string_lossy());
    // A file with a mistake is the user's to mend.
    let (text, settings) = read_whole(path)?.unwrap_or_default();
    ensure!(
        !settings.is_empty() || text.trim().is_empty(),
        "{} has no setting of numatop-ng and is not changed: add one, or choose another file (--config)",
        name()
    );
    let settings = settings::changed(settings, chosen);
    let place = asked_file::replace(path, &settings::render(&settings));
    let place = place.with_context(|| format!("writing {}", name()))?;
    Ok(clean_str(&place.to_string_lossy()))
}
