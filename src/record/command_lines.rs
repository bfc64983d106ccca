//! Command lines of processes in a recording: only where they are asked for, and without secrets unless all of them is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::MAX_ROWS;
use super::room::Room;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use crate::model::process::{CommandLines, ProcessId};
use crate::model::sample::Sample;
use crate::text::is_clean;

/// Bytes of a line at most; the rest is cut.
pub const LINE_MAX: usize = 512;

/// In place of a secret.
const HIDDEN: &str = "***";

/// Parts of names of flags and variables whose values are secrets.
const SECRETS: [&str; 9] =
    ["pass", "pwd", "secret", "token", "key", "credential", "auth", "signature", "cookie"];

/// The part of command lines that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Values of flags and variables that look secret, and user names and passwords of addresses, become `***`.
    Redacted,
    /// As they are.
    Full,
}

/// The command lines of the processes in a sample. Of those that end, the line of the sample `before`.
pub(super) fn of(sample: &Sample, lines: Lines, before: &CommandLines) -> CommandLines {
    let line = |process: ProcessId| {
        let read = sample.about.get(&process).and_then(|about| about.as_ref().ok());
        let read = read.and_then(|about| about.texts.as_ref().ok()?.cmdline.as_ref().ok());
        let read = read.filter(|line| !line.is_empty());
        let shown = read.map(|line| if lines == Lines::Full { line.clone() } else { redacted(line) });
        match (shown, before.get(&process)) {
            (Some(shown), Some(known)) if cut(&shown) == &**known => Some(Arc::clone(known)),
            (Some(shown), _) => Some(cut(&shown).into()),
            (None, known) => known.cloned(),
        }
    };
    let processes = sample.tasks.iter().chain(&sample.exited).map(|task| task.process());
    processes.filter_map(|process| Some((process, line(process)?))).collect()
}

fn cut(line: &str) -> &str {
    let end = (0..=LINE_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
    &line[..end.unwrap_or(0)]
}

/// The line without values that look secret. It is a guess by names: a secret without one stays.
fn redacted(line: &str) -> String {
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        SECRETS.iter().any(|secret| name.contains(secret))
    };
    let mut hide_next = false;
    let word = |word: &str| {
        if std::mem::take(&mut hide_next) {
            return HIDDEN.to_owned();
        }
        if let Some((name, value)) = word.split_once(['=', ':']).filter(|(name, _)| is_secret(name)) {
            // As in {"token": "abc"}.
            hide_next = value.is_empty();
            return format!("{name}={HIDDEN}");
        }
        hide_next = word.starts_with('-') && is_secret(word);
        // As in https://user:password@host/.
        match word.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
            Some((scheme, (_, host))) => format!("{scheme}://{HIDDEN}@{host}"),
            None => word.to_owned(),
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Writes lines that are gone since `base`, then those that are new or different; nothing where there is no change.
pub(super) fn encode(out: &mut Vec<u8>, base: Option<&Arc<CommandLines>>, lines: &Arc<CommandLines>) {
    if base.map_or(lines.is_empty(), |base| Arc::ptr_eq(base, lines) || base == lines) {
        return;
    }
    let none = CommandLines::new();
    let base = base.map_or(&none, |base| base);
    let gone = base.keys().filter(|process| !lines.contains_key(process));
    let new = lines.iter().filter(|(process, line)| base.get(process) != Some(line));
    put(out, gone.clone().count() as u64);
    gone.for_each(|process| put_process(out, *process));
    put(out, new.clone().count() as u64);
    let mut before = 0;
    for ((pid, start_ns), line) in new {
        put(out, difference(u64::from(*pid), before));
        before = u64::from(*pid);
        put(out, *start_ns);
        put_text(out, line);
    }
}

fn put_process(out: &mut Vec<u8>, (pid, start_ns): ProcessId) {
    put(out, pid.into());
    put(out, start_ns);
}

/// `base` with what [`encode`] wrote.
///
/// # Errors
/// The bytes are something else, or hold text that no terminal should see.
pub(super) fn decode(
    mut input: Bytes<'_>,
    base: Option<&Arc<CommandLines>>,
    room: &mut Room,
) -> Result<Arc<CommandLines>, Malformed> {
    if input.0.is_empty() {
        return Ok(base.cloned().unwrap_or_default());
    }
    let pid = |number: u64| u32::try_from(number).map_err(|_| Malformed("a process id is out of range"));
    room.take_entries(base.map_or(0, |base| base.len()))?;
    let mut lines = base.map_or_else(BTreeMap::new, |base| CommandLines::clone(base));
    for _ in 0..input.count(MAX_ROWS)? {
        lines.remove(&(pid(input.number()?)?, input.number()?));
    }
    let mut before = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        before = undo_difference(input.number()?, before);
        let process = (pid(before)?, input.number()?);
        let line = input.text(LINE_MAX)?;
        if !is_clean(line) {
            return Err(Malformed("a command line cannot be shown"));
        }
        room.take(1, of_line(line))?;
        lines.insert(process, line.into());
    }
    input.finish()?;
    Ok(Arc::new(lines))
}

/// Memory of a line.
pub(super) fn of_line(line: &str) -> usize {
    line.len() + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_secret_are_hidden() {
        for (line, shown) in [
            ("mysqld --port 3306 --password=geheim", "mysqld --port 3306 --password=***"),
            ("curl --token abc -v", "curl --token *** -v"),
            ("env DB_PASSWORD=x AWS_SECRET_KEY=y app", "env DB_PASSWORD=*** AWS_SECRET_KEY=*** app"),
            ("pull https://ada:pw@host/repo.git", "pull https://***@host/repo.git"),
            (
                "java -Xmx4g -Djavax.net.ssl.keyStorePassword=x Main",
                "java -Xmx4g -Djavax.net.ssl.keyStorePassword=*** Main",
            ),
            ("run {\"api_token\": \"abc\"}", "run {\"api_token\"=*** ***"),
            ("postgres: writer", "postgres: writer"),
        ] {
            assert_eq!(redacted(line), shown);
        }
    }

    #[test]
    fn lines_come_back_whatever_the_base_is() {
        let lines = |lines: &[(u32, &str)]| -> Arc<CommandLines> {
            Arc::new(lines.iter().map(|(pid, line)| ((*pid, 9), (*line).into())).collect())
        };
        let now = lines(&[(3, "a b"), (7, "ä")]);
        for base in [None, Some(lines(&[])), Some(lines(&[(1, "x"), (3, "other")])), Some(Arc::clone(&now))] {
            let mut bytes = Vec::new();
            encode(&mut bytes, base.as_ref(), &now);
            assert_eq!(decode(Bytes(&bytes), base.as_ref(), &mut Room::endless()), Ok(Arc::clone(&now)));
        }
        assert!(decode(Bytes(&[0, 1, 2, 9, 1, 0x1b]), None, &mut Room::endless()).is_err());
    }
}
