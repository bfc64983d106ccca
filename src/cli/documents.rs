//! Man page and shell completions, made from the definition of the command line.

use std::io::{self, Write};

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Cli;
use crate::error::Exit;

/// A document that `generate` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Document {
    /// Man page of all commands, numatop-ng.1
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh, _numatop-ng
    Zsh,
    /// Completions for fish, numatop-ng.fish
    Fish,
}

const EXITS: [(Exit, &str); 6] = [
    (Exit::Ok, "Done."),
    (Exit::CouldNotMeasure, "The measurement failed, or a recording is damaged."),
    (Exit::Usage, "Wrong usage."),
    (Exit::Privilege, "A privilege is missing."),
    (Exit::Kernel, "The kernel is not supported."),
    (Exit::Found, "diagnose reported findings, or diff --fail-on found a metric that is worse."),
];

/// Commands to begin with, and what each does.
const EXAMPLES: [(&str, &str); 7] = [
    ("numatop-ng --demo", "The live view of a simulated machine, without root."),
    ("sudo numatop-ng", "The live view of this machine."),
    ("sudo numatop-ng run -- make -j8", "A command and all its descendants: one page when the command ends."),
    (
        "sudo numatop-ng diagnose",
        "The problems, their cost and the commands that fix them; the exit code is for scripts.",
    ),
    (
        "sudo numatop-ng --record /var/log/numa/",
        "The live view, which also keeps a ring of hourly recordings.",
    ),
    ("numatop-ng replay /var/log/numa/ --at 03:12", "The live view of a past time."),
    ("numatop-ng report /var/log/numa/ -o report.html", "One page that needs no numatop-ng to read."),
];

const FILES: [(&str, &str); 3] = [
    (
        "~/.config/numatop-ng/config.toml",
        "Default values for flags of the screen. The key W in the live view writes the file; --config names \
         another file.",
    ),
    (
        "/var/lib/numatop-ng/machine.json",
        "Costs between nodes, measured by calibrate as root; for other users: \
         ~/.local/state/numatop-ng/machine.json.",
    ),
    (
        "/var/lib/numatop-ng/selftest.json",
        "Events that selftest compared with known work, in the same directories.",
    ),
];

const ENVIRONMENT: [(&str, &str); 6] = [
    ("NUMATOP_NG_CONFIG", "Path of a settings file, like --config."),
    ("NUMATOP_HOST_NAME", "Name of this machine in all output, like --host-name."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "Directories in place of ~/.config and ~/.local/state."),
    ("NO_COLOR", "If not empty, output has no colour unless --color requests it."),
    (
        "LC_ALL, LC_CTYPE, LANG, TERM",
        "Without UTF-8, and on the Linux console, the screen is drawn in ASCII.",
    ),
    ("TZ", "Time zone for times on the screen, in reports and in flags."),
];

const DESCRIPTION: &str = "Without a command, numatop-ng shows a live view of this machine, or writes batch output \
                           if standard output is not a terminal. The live view needs root, or the capabilities \
                           CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; replay, export, verify and --demo need no \
                           privilege. 'numatop-ng doctor' prints what works on this machine; '?' in the live view \
                           explains keys and columns.";

impl Document {
    /// The text of the document. `keys` are those of the live view, each with its meaning.
    ///
    /// # Errors
    /// Errors of writing to memory: none are known.
    pub fn render(self, keys: &[(String, &str)]) -> io::Result<Vec<u8>> {
        let mut command = Cli::command();
        let shell = match self {
            Document::Man => return man(command, keys),
            Document::Bash => Shell::Bash,
            Document::Zsh => Shell::Zsh,
            Document::Fish => Shell::Fish,
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "numatop-ng", &mut text);
        Ok(if shell == Shell::Bash { without_mixed_names(&text) } else { text })
    }
}

/// clap_complete (4.6.11) stores the dash of our name as `__` and compares it with `__subcmd__`, so that no subcommand
/// would be completed.
fn without_mixed_names(script: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(script).replace("numatop__subcmd__ng", "numatop__ng").into_bytes()
}

/// One page: the options of the live view, then each subcommand with its own.
fn man(command: Command, keys: &[(String, &str)]) -> io::Result<Vec<u8>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<Command> = command.get_subcommands().flat_map(leaves).cloned().collect();
    let synopsis = std::iter::once("numatop-ng [OPTIONS]".to_string())
        .chain(subcommands.iter().map(usage))
        .collect::<Vec<_>>()
        .join("\n");
    let page = Man::new(command.override_usage(synopsis));
    let mut out = Vec::new();
    // clap_mangen leaves out an empty date, and the next field moves up.
    writeln!(out, ".TH numatop-ng 1 \"\" \"numatop-ng {}\" \"User Commands\"", env!("CARGO_PKG_VERSION"))?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    description().to_writer(&mut out)?;
    page.render_options_section(&mut out)?;
    for subcommand in subcommands {
        section(subcommand, &mut out)?;
    }
    of_keys(keys).to_writer(&mut out)?;
    terms("EXAMPLES", &EXAMPLES).to_writer(&mut out)?;
    terms("FILES", &FILES).to_writer(&mut out)?;
    terms("ENVIRONMENT", &ENVIRONMENT).to_writer(&mut out)?;
    exit_status().to_writer(&mut out)?;
    Ok(out)
}

/// The subcommands of `command`, or the command itself where it has none.
fn leaves(command: &Command) -> Vec<&Command> {
    let below: Vec<&Command> = command.get_subcommands().collect();
    if below.is_empty() { vec![command] } else { below }
}

fn description() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(DESCRIPTION)]);
    roff
}

fn usage(subcommand: &Command) -> String {
    let usage = subcommand.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_string()
}

/// The section of a subcommand, with a subsection for each role of its flags.
fn section(subcommand: Command, out: &mut Vec<u8>) -> io::Result<()> {
    // Described once, for the live view.
    let subcommand = subcommand.mut_arg("help", |help| help.hide(true));
    let mut head = Roff::new();
    head.control("SH", [subcommand.get_bin_name().unwrap_or_default().to_uppercase().as_str()]);
    for text in [subcommand.get_about(), subcommand.get_after_help()].into_iter().flatten() {
        head.text([roman(format!("{}.", text.to_string().trim_end_matches('.')))]);
    }
    head.to_writer(out)?;
    let mut options = Vec::new();
    Man::new(subcommand).render_options_section(&mut options)?;
    for line in options.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_prefix(b".SH ") {
            Some(title) => out.extend([b".SS ", title].concat()),
            None => out.extend(line),
        }
    }
    Ok(())
}

fn of_keys(keys: &[(String, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["KEYS OF THE LIVE VIEW"]);
    for (key, meaning) in keys {
        roff.control("TP", []);
        roff.text([bold(key)]);
        roff.text([roman(format!("{meaning}."))]);
    }
    roff
}

/// A section of words, each with its meaning.
fn terms(title: &str, terms: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, meaning) in terms {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*meaning)]);
    }
    roff
}

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, meaning) in EXITS {
        roff.control("TP", []);
        roff.text([bold((exit as u8).to_string())]);
        roff.text([roman(meaning)]);
    }
    roff.control("PP", []);
    roff.text([roman("128 plus the number of the signal, if a signal ended the live view.")]);
    roff
}
