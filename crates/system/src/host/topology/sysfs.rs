//! Small files below an injectable root, and errors that name the expected format.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

/// The directory that holds `sys/` and `proc/`: `/` on the real machine, a fixture in tests.
pub(super) struct Root<'a>(pub &'a Path);

impl Root<'_> {
    /// The full path of `relative` ("sys/devices/…"), as errors name it.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// The file's text, or `None` if the file does not exist.
    ///
    /// ENODEV and ENXIO count as absent: sysfs answers so when the CPU or device went away between listing
    /// and reading.
    pub(super) fn text(&self, relative: &str) -> Result<Option<String>> {
        let path = self.path(relative);
        match fs::read(&path) {
            // Garbage bytes survive as U+FFFD, so that the parser's error can show them.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if absent(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// The file's value, or `None` if the file does not exist. If `parse` refuses the text, the error names
    /// the file, what was `expected` and the text.
    pub(super) fn value<T, E: Into<anyhow::Error>>(
        &self,
        relative: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(relative)? else { return Ok(None) };
        match parse(text.trim()) {
            Ok(value) => Ok(Some(value)),
            Err(cause) => Err(self.garbled(relative, expected, &text, cause)),
        }
    }

    /// Like [`Root::value`] for a file that every kernel has.
    pub(super) fn required<T, E: Into<anyhow::Error>>(
        &self,
        relative: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T> {
        match self.value(relative, expected, parse)? {
            Some(value) => Ok(value),
            None => bail!(
                "reading {}: expected {expected}, but there is no such file",
                self.path(relative).display()
            ),
        }
    }

    /// Names of the entries of a directory, sorted; empty if the directory does not exist.
    pub(super) fn entries(&self, relative: &str) -> Result<Vec<String>> {
        let path = self.path(relative);
        let listing = match fs::read_dir(&path) {
            Ok(listing) => listing,
            Err(error) if absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("listing {}", path.display())),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.with_context(|| format!("listing {}", path.display()))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn garbled(
        &self,
        relative: &str,
        expected: &str,
        text: &str,
        cause: impl Into<anyhow::Error>,
    ) -> anyhow::Error {
        /// Enough to recognise the text; a garbled file may be long.
        const SHOWN: usize = 80;
        let mut read: String = text.trim_end().chars().take(SHOWN).collect();
        if read.len() < text.trim_end().len() {
            read.push('…');
        }
        let path = self.path(relative);
        anyhow!("reading {}: expected {expected}, read {read:?}: {:#}", path.display(), cause.into())
    }
}

fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// The number in a directory name such as `cpu12`, `node3` or `index0`.
pub(super) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
