//! Command lines of processes in a recording: only where they are asked for, and without secrets unless all of them is asked for.

use std::sync::Arc;

use crate::model::process::{CommandLines, ProcessId};
use crate::model::sample::Sample;

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

/// The command lines of the processes in a sample. Processes that end have their line from the sample
/// `before`.
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
}
