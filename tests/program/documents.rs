//! Man page and completions that `generate` prints: groff and bash take them, and every flag is in them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;
use numatop_ng::cli::Cli;

use crate::program;

fn generate(what: &str) -> String {
    let output = Command::new(program::path()).args(["generate", what]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{what}");
    assert!(output.stderr.is_empty(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a program that reads `input`. A program that is not installed fails the test.
fn run(program: &[&str], input: &str) -> Output {
    let mut child = Command::new(program[0])
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; scripts/install-deps test installs it", program[0]));
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let input = input.to_string();
        move || stdin.write_all(input.as_bytes())
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

/// The long flags of a command, without --help.
fn flags(command: &clap::Command) -> Vec<&str> {
    command.get_arguments().filter_map(|arg| arg.get_long()).filter(|long| *long != "help").collect()
}

/// All subcommands, also those of `list`, by the words that are typed.
fn subcommands(command: &clap::Command) -> Vec<(String, &clap::Command)> {
    let mut all = Vec::new();
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name();
        let below: Vec<_> = subcommand.get_subcommands().collect();
        if below.is_empty() {
            all.push((name.to_string(), subcommand));
        }
        all.extend(below.into_iter().map(|below| (format!("{name} {}", below.get_name()), below)));
    }
    all
}

#[test]
fn the_man_page_has_every_flag_of_every_command() {
    let output = run(&["groff", "-man", "-Tascii", "-P-c", "-ww", "-rLL=200n"], &generate("man"));
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    // Bold is overstruck: a character, a backspace, the character.
    let text = String::from_utf8(output.stdout).unwrap();
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '\u{8}' => _ = plain.pop(),
            c => plain.push(c),
        }
    }
    // Headings begin in the first column, those of subsections in the fourth.
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in plain.lines() {
        match (line.chars().next(), sections.last_mut()) {
            (Some(c), _) if c != ' ' => sections.push((line.to_string(), String::new())),
            (_, Some((_, body))) => *body += &format!("{line}\n"),
            _ => {}
        }
    }
    let has =
        |body: &str, flag: &str| body.split([' ', ',', '\n', '[']).any(|word| word == format!("--{flag}"));
    let command = Cli::command();
    let live = sections.iter().take_while(|(heading, _)| !heading.starts_with("NUMATOP-NG "));
    let live: String = live.map(|(_, body)| body.as_str()).collect();
    for flag in flags(&command) {
        assert!(has(&live, flag), "--{flag}\n{plain}");
    }
    for (name, subcommand) in subcommands(&command) {
        let heading = format!("numatop-ng {name}").to_uppercase();
        let found = sections.iter().find(|(known, _)| *known == heading);
        let (_, body) = found.unwrap_or_else(|| panic!("{heading} is missing\n{plain}"));
        for flag in flags(subcommand) {
            assert!(has(body, flag), "{heading}: --{flag}\n{body}");
        }
    }
    let head = plain.lines().next().unwrap();
    assert!(head.contains("User Commands"), "{head}");
}

/// Answers of the bash completion for words, the last of them incomplete.
fn complete_in_bash(script: &str, words: &[&str]) -> Vec<String> {
    let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
    let asked = format!(
        "{script}\nCOMP_WORDS=({}) COMP_CWORD={}\n\
         _numatop__ng numatop-ng '{last}' '{before}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1
    );
    let output = run(&["bash", "--norc", "-u", "-s"], &asked);
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaints.is_empty(), "{words:?}: {complaints}");
    String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
}

#[test]
fn bash_completes_the_flags_of_each_command() {
    let script = generate("bash");
    for (words, answers) in [
        (&["numatop-ng", "re"][..], &["record", "replay", "report"][..]),
        (&["numatop-ng", "replay", "--fo"], &["--format", "--follow"]),
        (
            &["numatop-ng", "record", "--record-m"],
            &["--record-max-size", "--record-max-age", "--record-min-cpu"],
        ),
        (
            &["numatop-ng", "export", "--format", ""],
            &["text", "json", "csv", "perfetto", "folded", "pprof", "parquet"],
        ),
        (&["numatop-ng", "generate", "m"], &["man"]),
        (&["numatop-ng", "list", "e"], &["events"]),
        (&["numatop-ng", "list", "events", "--p"], &["--pmu-dir"]),
    ] {
        let mut found = complete_in_bash(&script, words);
        let mut expected: Vec<String> = answers.iter().map(ToString::to_string).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{words:?}");
    }
    assert!(!complete_in_bash(&script, &["numatop-ng", "replay", "--p"]).contains(&"--pid".to_string()));
}

/// Neither shell is needed: each has a line or a word for a flag.
#[test]
fn zsh_and_fish_have_the_flags_of_each_command() {
    let (zsh, fish) = (generate("zsh"), generate("fish"));
    assert!(zsh.starts_with("#compdef numatop-ng\n"), "{zsh}");
    let command = Cli::command();
    for (name, subcommand) in subcommands(&command) {
        let name = name.rsplit(' ').next().unwrap();
        // A case of zsh ends with ;;.
        let case = zsh.split(&format!("({name})\n")).nth(1).unwrap().split("\n;;").next().unwrap();
        for flag in flags(subcommand) {
            assert!(
                case.contains(&format!("--{flag}=[")) || case.contains(&format!("--{flag}[")),
                "{name} {flag}: {case}"
            );
            // Flags of a list are behind the condition of `list` itself.
            let condition = format!("seen_subcommand_from {name}\"");
            let using = format!("using_subcommand {name}\"");
            let word = format!(" -l {flag} ");
            assert!(
                fish.lines().any(|line| {
                    (line.contains(&condition) || line.contains(&using)) && line.contains(&word)
                }),
                "{name} {flag}: {fish}"
            );
        }
    }
    for flag in flags(&command) {
        assert!(zsh.contains(&format!("--{flag}")) && fish.contains(&format!(" -l {flag} ")), "{flag}");
    }
}
