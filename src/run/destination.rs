//! The place for a page or another form of it: a new file, or standard output.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::print;
use crate::options;
use crate::program::output::{self, Form};
use crate::record::dir::Dir;

/// A place that was typed.
pub(super) enum Out {
    Standard,
    /// A new file, or one that replaces an existing one.
    File(PathBuf, Existing),
}

/// The fate of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    Kept,
    Overwritten,
}

impl Out {
    /// The place named by `-o`. A page is not written to a terminal.
    ///
    /// # Errors
    /// A file of this name exists, or the page would go to a terminal.
    pub(super) fn of(typed: Option<&Path>, is_page: bool, existing: Existing) -> Result<Out> {
        match typed {
            Some(path) if path.as_os_str() == "-" => Ok(Out::Standard),
            Some(path) => {
                // Better now than after minutes of reading; making it fails then, too.
                if existing == Existing::Kept && path.symlink_metadata().is_ok() {
                    bail!("{} exists: name a new file, or overwrite it with --force", path.display());
                }
                Ok(Out::File(path.to_owned(), existing))
            }
            None if is_page && io::stdout().is_terminal() => Err(options::no_page_on_a_terminal().into()),
            None => Ok(Out::Standard),
        }
    }

    /// Writes the whole text: a file appears when it is complete.
    ///
    /// # Errors
    /// It cannot be made, or standard output is closed.
    pub(super) fn write(&self, text: &str, form: Form) -> Result<()> {
        match self {
            Out::Standard => print(text, form),
            Out::File(path, existing) => publish(path, text.as_bytes(), *existing),
        }
    }

    /// The same for binary data.
    ///
    /// # Errors
    /// As of [`Out::write`].
    pub(super) fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        match self {
            Out::Standard => output::bytes(bytes).context("writing to standard output"),
            Out::File(path, existing) => publish(path, bytes, *existing),
        }
    }
}

impl Existing {
    /// The fate that `--force` chooses.
    pub(super) fn forced(force: bool) -> Existing {
        if force { Existing::Overwritten } else { Existing::Kept }
    }
}

/// The message where an output that must be new cannot be created.
pub(super) fn must_be_new(path: &Path) -> String {
    format!("creating {}: it must be a new file in an existing directory", path.display())
}

fn publish(path: &Path, bytes: &[u8], existing: Existing) -> Result<()> {
    let making = || match existing {
        Existing::Kept => must_be_new(path),
        Existing::Overwritten => format!("writing {}", path.display()),
    };
    let name = path.file_name().with_context(making)?;
    let dir = Dir::for_file(path.parent().unwrap_or(Path::new("."))).with_context(making)?;
    match existing {
        Existing::Kept => dir.publish(Path::new(name), bytes),
        Existing::Overwritten => dir.replace(Path::new(name), bytes),
    }
    .with_context(making)
}

/// A word of a command line as typed in a shell. Clean.
pub(super) fn quoted(word: &str) -> String {
    let word = crate::text::one_line(word);
    let is_plain =
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,:@=".contains(c));
    if is_plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("/var/log/numa/"), "/var/log/numa/");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
