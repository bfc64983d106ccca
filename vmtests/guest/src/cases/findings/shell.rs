//! Printed command lines, executed as by a shell: words are split as `sh` splits them, and each program is
//! replaced by its system call, because guests have none of the programs. Loops and patterns are for the
//! shell of guests that have one.

use std::fs;
use std::process::Command;

use crate::{affinity, sysfs};

/// A line of one command.
#[derive(Debug, PartialEq)]
struct Line {
    words: Vec<String>,
    /// The file of `> FILE`.
    into: Option<String>,
}

/// Executes a line exactly as printed.
///
/// # Errors
/// The line is more than one command of plain words and the guest has no shell. Or its program is not known
/// here, or the kernel refuses.
pub fn execute(text: &str) -> Result<(), String> {
    let line = match split(text) {
        Ok(line) => line,
        Err(why) => return by_shell(text).map_err(|error| format!("{error}, and here: {why}")),
    };
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    match (words.as_slice(), &line.into) {
        (["migratepages", pid, from, to], None) => {
            migrate(number(pid)?, mask(&sysfs::parse_list(from)?)?, mask(&sysfs::parse_list(to)?)?)
        }
        (["taskset", "-acp", cpus, pid], None) => pin_all(number(pid)?, &sysfs::parse_list(cpus)?),
        (["sysctl", "-w", setting], None) => {
            let (name, value) = setting.split_once('=').ok_or_else(|| format!("no value in {text:?}"))?;
            sysfs::write(format!("/proc/sys/{}", name.replace('.', "/")), value)
        }
        (["docker", "update", options @ .., id], None) => docker_update(id, options),
        (["echo", words @ ..], Some(file)) => sysfs::write(file, &format!("{}\n", words.join(" "))),
        _ => Err(format!("no program here for {text:?}")),
    }
}

/// Gives a line to a shell.
fn by_shell(text: &str) -> Result<(), String> {
    let output = Command::new("/bin/sh").args(["-c", text]).output();
    let output = output.map_err(|error| format!("/bin/sh cannot be run: {error}"))?;
    // A loop ends with the status of its last round.
    match output.status.success() && output.stderr.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Pins all threads of a process, new ones included.
///
/// # Errors
/// The kernel refuses, or the process has ended.
pub fn pin_all(pid: i32, cpus: &[u32]) -> Result<(), String> {
    let mut pinned = Vec::new();
    loop {
        let before = pinned.len();
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .map_err(|error| format!("threads of {pid}: {error}"))?;
        for tid in tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()) {
            if !pinned.contains(&tid) {
                affinity::pin_task(tid, cpus).map_err(|error| format!("pinning {tid}: {error}"))?;
                pinned.push(tid);
            }
        }
        if pinned.len() == before {
            return Ok(());
        }
    }
}

/// Writes the files of the cgroup of a container, as docker does for these options.
fn docker_update(id: &str, options: &[&str]) -> Result<(), String> {
    let cgroup = format!("/sys/fs/cgroup/docker/{id}");
    let mut options = options.chunks_exact(2);
    for option in options.by_ref() {
        let (file, text) = match *option {
            ["--cpuset-cpus", cpus] => ("cpuset.cpus", cpus.to_owned()),
            ["--cpuset-mems", mems] => ("cpuset.mems", mems.to_owned()),
            _ => return Err(format!("docker update has no option {option:?} here")),
        };
        sysfs::write(format!("{cgroup}/{file}"), &text)?;
    }
    if options.remainder().is_empty() { Ok(()) } else { Err("an option without a value".to_owned()) }
}

fn migrate(pid: i32, from: u64, to: u64) -> Result<(), String> {
    // SAFETY: both masks have the given number of bits.
    let left = unsafe { libc::syscall(libc::SYS_migrate_pages, pid, 64, &from, &to) };
    // More than 0 is the number of pages that stayed: migratepages(8) is content with that, too.
    if left < 0 { Err(format!("migrate_pages: {}", std::io::Error::last_os_error())) } else { Ok(()) }
}

fn mask(nodes: &[u32]) -> Result<u64, String> {
    nodes.iter().try_fold(0, |mask, node| match node {
        0..63 => Ok(mask | 1 << node),
        _ => Err(format!("no room for node {node} in a mask")),
    })
}

fn number(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Words of a line, with quotes taken away.
///
/// # Errors
/// Something else than one command with plain words and at most one `> FILE`: a shell would expand it or run more.
fn split(text: &str) -> Result<Line, String> {
    let refused = |why: &str| Err(format!("{why} in {text:?}"));
    let mut line = Line { words: Vec::new(), into: None };
    let (mut word, mut redirected): (Option<String>, bool) = (None, false);
    let mut rest = text.chars();
    loop {
        let next = rest.next();
        match next {
            None | Some(' ' | '>') => {
                if let Some(word) = word.take() {
                    match (redirected, &line.into) {
                        (false, _) => line.words.push(word),
                        (true, None) => line.into = Some(word),
                        (true, Some(_)) => return refused("words behind a file"),
                    }
                }
                match next {
                    None => break,
                    Some('>') if redirected => return refused("two files"),
                    Some(character) => redirected |= character == '>',
                }
            }
            Some(quote @ ('\'' | '"')) => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some(end) if end == quote => break,
                        Some('\\' | '$' | '`') if quote == '"' => return refused("an expansion"),
                        Some(character) => word.push(character),
                        None => return refused("an open quote"),
                    }
                }
            }
            Some('\\') => match rest.next() {
                Some(character) => word.get_or_insert_default().push(character),
                None => return refused("an open quote"),
            },
            Some(character) if character.is_ascii_alphanumeric() || "._:@/+=,-%".contains(character) => {
                word.get_or_insert_default().push(character);
            }
            Some(_) => return refused("a character with a meaning of its own"),
        }
    }
    if line.words.is_empty() || redirected && line.into.is_none() {
        return refused("no command or no file");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let of = |text| split(text).map(|line| (line.words.join("|"), line.into.unwrap_or_default()));
        let line = |words: &str, into: &str| Ok((words.to_owned(), into.to_owned()));
        assert_eq!(of("migratepages 7 0,2-3 1"), line("migratepages|7|0,2-3|1", ""));
        assert_eq!(of("echo 0-1 > /a/b"), line("echo|0-1", "/a/b"));
        assert_eq!(
            of(r#"echo "9M swappiness=0" > '/a b/it'\''s'"#),
            line("echo|9M swappiness=0", "/a b/it's")
        );
    }

    #[test]
    fn lines_that_a_shell_would_read_in_another_way_are_refused() {
        for text in [
            "",
            "echo a > b > c",
            "echo a >",
            "> b",
            "a; b",
            "a | b",
            "echo $a",
            "echo \"$a\"",
            "echo 'a",
            "a *",
            "echo > a b",
        ] {
            assert!(split(text).is_err(), "{text}");
        }
        for text in
            ["reboot", "migratepages x 0 1", "docker update --name x 3c", "docker update --cpuset-cpus 3c"]
        {
            assert!(execute(text).is_err(), "{text}");
        }
    }
}
