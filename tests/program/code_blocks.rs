//! Commands of the documents. Each one is parsed by the program's own command line. Commands that need no
//! privilege run as pasted, on recordings of the demo machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use clap::Parser;
use numatop_ng::cli::Cli;

use crate::program;
use crate::scratch::Scratch;

/// Rings that documents name, as they may begin a word.
const RINGS: [&str; 3] = ["/var/log/numatop-ng/", "/var/log/numatop-ng", "/var/log/numa/"];

/// README.md and all pages of docs/, with their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The code blocks of a document: language and text.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
            found.push((language, inside.map(|line| format!("{line}\n")).collect()));
        }
    }
    found
}

/// Splits text of a shell into its commands and their words. Redirections are left out; nothing is expanded.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut redirected = false;
    let mut chars = text.chars().peekable();
    let end = |word: &mut Option<String>, redirected: &mut bool, all: &mut Vec<Vec<String>>| {
        if let Some(word) = word.take()
            && !std::mem::take(redirected)
        {
            all.last_mut().unwrap().push(word);
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '"')),
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            '>' | '<' => {
                // The number of a descriptor is no word.
                word.take_if(|word| word.chars().all(|c| c.is_ascii_digit()));
                end(&mut word, &mut redirected, &mut all);
                redirected = true;
            }
            '|' | '&' | ';' | '\n' => {
                end(&mut word, &mut redirected, &mut all);
                all.push(Vec::new());
            }
            c if c.is_whitespace() => end(&mut word, &mut redirected, &mut all),
            c => word.get_or_insert_default().push(c),
        }
    }
    end(&mut word, &mut redirected, &mut all);
    all.retain(|words| !words.is_empty());
    all
}

/// The words of a command of numatop-ng, and whether it is typed with sudo.
fn ours(mut words: Vec<String>) -> Option<(Vec<String>, bool)> {
    let sudo = words[0] == "sudo";
    if sudo {
        words.remove(0);
    }
    // The process id of the shell.
    words.iter_mut().filter(|word| *word == "$$").for_each(|word| *word = "4711".into());
    (words.first().is_some_and(|word| word == "numatop-ng")).then_some((words, sudo))
}

/// Every command of numatop-ng in code blocks, with its document.
fn typed() -> Vec<(String, Vec<String>, bool)> {
    let mut all = Vec::new();
    for (path, text) in documents() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (_, block) in blocks(&text).into_iter().filter(|(language, _)| *language == "sh") {
            let found = commands(&block).into_iter().filter_map(ours);
            all.extend(found.map(|(words, sudo)| (name.clone(), words, sudo)));
        }
    }
    all
}

fn parses(words: &[String]) -> Result<(), String> {
    match Cli::try_parse_from(words) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[test]
fn each_code_block_has_a_language_and_bash_reads_those_of_a_shell() {
    for (path, text) in documents() {
        for (language, block) in blocks(&text) {
            let known = ["sh", "text", "toml", "json", "yaml", "promql", "sql"];
            assert!(known.contains(&language), "{}: '{language}'\n{block}", path.display());
            if language == "sh" {
                let read = Command::new("bash").args(["-n", "-c", &block]).output().unwrap();
                let complaint = String::from_utf8_lossy(&read.stderr);
                assert!(read.status.success() && complaint.is_empty(), "{}: {complaint}", path.display());
            }
        }
    }
}

#[test]
fn each_command_of_a_code_block_is_one() {
    let all = typed();
    assert!(all.len() > 70, "{} commands", all.len());
    for (document, words, _) in all {
        let parsed = parses(&words);
        assert!(parsed.is_ok(), "{document}: {}\n{}", words.join(" "), parsed.unwrap_err());
    }
}

/// Commands within sentences. A placeholder such as `FILE|DIR...` is no argument, and ends the look.
#[test]
fn each_command_in_a_sentence_is_one() {
    let mut looked_at = 0;
    for (path, text) in documents() {
        let mut inside = false;
        for line in text.lines() {
            inside ^= line.trim_start().starts_with("```");
            let spans = line.split('`').skip(1).step_by(2).filter(|_| !inside);
            for span in spans.filter(|span| !span.contains(['|', '…', '&']) && !span.contains("...")) {
                let Some((words, _)) = commands(span).into_iter().next().and_then(ours) else { continue };
                let words: Vec<String> =
                    words.into_iter().map(|word| if word == "PID" { "4711".into() } else { word }).collect();
                let parsed = parses(&words);
                assert!(parsed.is_ok(), "{}: {span}\n{}", path.display(), parsed.unwrap_err());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 15, "{looked_at} commands");
}

/// Whether a command ends by itself without a privilege, on the recordings made here.
fn runs(words: &[String]) -> bool {
    let has = |flag: &str| words.iter().any(|word| word == flag);
    let path = words.get(2).is_some_and(|word| !word.starts_with('-'));
    let enough = match words.get(1).map_or("", String::as_str) {
        "export" if !cfg!(feature = "parquet") => !has("parquet"),
        "replay" | "export" | "report" | "diff" => true,
        "diagnose" => path || has("--explain") || has("--demo"),
        "list" | "topology" => true,
        "selftest" => has("--list"),
        "--demo" => has("-b") && has("-n"),
        _ => false,
    };
    enough && !has("--follow")
}

/// Makes a recording of the demo machine.
fn record(path: &Path, flags: &[&str]) {
    let made = Command::new(program::beside_tests())
        .args(["--demo", "-b", "--format", "csv", "--top", "1", "--record"])
        .arg(path)
        .args(flags)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success(), "{}", path.display());
}

/// Recordings of the demo machine, in place of the ones named in documents.
struct Recorded {
    /// A ring of a day and two hours, as stretches like @-26h need.
    day: PathBuf,
    /// A ring of an hour and a half: what reads all of a ring reads this one.
    short: PathBuf,
    /// A file with stacks.
    file: PathBuf,
}

/// Runs a command exactly as typed, except for the places of recordings.
fn run(words: &[String], recorded: &Recorded) {
    let here = Scratch::new();
    let at_times = words.iter().any(|word| word == "--at" || word.contains("/@"));
    let ring = if at_times { &recorded.day } else { &recorded.short };
    let mut args: Vec<String> = Vec::new();
    for word in &words[1..] {
        let before = args.last().map_or("", String::as_str);
        if word.ends_with(".nrec") && !["--record", "-o"].contains(&before) {
            let _ = fs::hard_link(&recorded.file, here.join(word));
        }
        let known = RINGS.iter().find_map(|known| word.strip_prefix(known));
        args.push(match known {
            Some(rest) => format!("{}/{rest}", ring.display()),
            None if word == "/srv/fleet/" => "fleet/".into(),
            None => word.clone(),
        });
    }
    // The first intervals show as much as all of a day.
    if words[1] == "replay" {
        args.extend(["-n".into(), "3".into()]);
    }
    let ran = Command::new(program::beside_tests())
        .args(&args)
        .env("TZ", "UTC")
        .current_dir(here.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let found = ["diagnose", "diff"].contains(&words[1].as_str()) && ran.status.code() == Some(5);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() || found, "{}: {:?}\n{said}", words.join(" "), ran.status.code());
}

#[test]
fn commands_that_need_no_privilege_run_as_pasted() {
    let top = Scratch::new();
    let recorded = Recorded { day: top.join("day"), short: top.join("short"), file: top.join("hour.nrec") };
    fs::create_dir(&recorded.day).unwrap();
    fs::create_dir(&recorded.short).unwrap();
    record(&recorded.day, &["-n", "1600", "-d", "60", "--record-top", "5"]);
    record(&recorded.short, &["-n", "90", "-d", "60"]);
    record(&recorded.file, &["-n", "130", "-d", "30", "--hot"]);
    let commands: BTreeSet<Vec<String>> = typed()
        .into_iter()
        .filter(|(_, words, sudo)| !sudo && runs(words))
        .map(|(_, words, _)| words)
        .collect();
    assert!(commands.len() > 30, "{} commands", commands.len());
    let commands = Mutex::new(commands.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(words) = { commands.lock().unwrap().next() } {
                    run(&words, &recorded);
                }
            });
        }
    });
}

/// Options are checked before privileges, so that a refusal for the privilege means that the options are right. Names of
/// containers, processes and nodes are those of another machine.
#[test]
fn commands_for_root_have_options_that_fit_together() {
    let elsewhere =
        ["container", "process", "pod", "unit", "cgroup"].map(|kind| format!("there is no {kind}"));
    let elsewhere = [&elsewhere[..], &["the machine has no ".to_owned()]].concat();
    let commands: BTreeSet<Vec<String>> = typed()
        .into_iter()
        .filter(|(_, words, sudo)| {
            *sudo
                && !words
                    .get(1)
                    .is_some_and(|word| ["selftest", "doctor", "calibrate"].contains(&word.as_str()))
        })
        .map(|(_, words, _)| words)
        .collect();
    assert!(commands.len() > 20, "{} commands", commands.len());
    for words in commands {
        let here = Scratch::new();
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program::beside_tests()]);
            command
        } else {
            Command::new(program::beside_tests())
        };
        let ran = command.args(&words[1..]).current_dir(here.path()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        let wrong =
            ran.status.code() == Some(2) && !elsewhere.iter().any(|name| said.contains(name.as_str()));
        assert!(!ran.status.success() && !wrong, "{}: {:?}\n{said}", words.join(" "), ran.status.code());
    }
}
