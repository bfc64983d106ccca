//! What the tool says when it is not given what it needs.

use std::io;
use std::os::unix::process::CommandExt;

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::report::Report;
use crate::tool::{self, Output};

pub const CASE: Case = Case {
    name: "degraded",
    about: "without privilege it says which capabilities to give and exits 3; without BTF it says so and exits 4",
    run,
};

pub const TOO_OLD: Case = Case {
    name: "too_old",
    about: "on a kernel without what the probes need it exits 4, and says what is missing and which kernel has it",
    run: |report, _| {
        let output = tool::run(&ONE_INTERVAL)?;
        let words = ["bpf task storage", "the kernel's answer", "use linux 6.1 or newer"];
        says(report, "on this kernel", &output, 4, &words);
        Ok(())
    },
};

const NOBODY: u32 = 65534;
const ONE_INTERVAL: [&str; 7] = ["--batch", "--format", "json", "-n", "1", "-d", "0.2"];

fn run(report: &mut Report, _plan: &Plan) -> Result<(), Stop> {
    let mut command = tool::command(&ONE_INTERVAL)?;
    command.uid(NOBODY).gid(NOBODY);
    let output = tool::finish(command)?;
    says(report, "as a user without capabilities", &output, 3, &["cap_bpf", "cap_perfmon", "setcap"]);

    let mut command = tool::command(&ONE_INTERVAL)?;
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(hide_btf);
    }
    let output = tool::finish(command)?;
    says(report, "without BTF", &output, 4, &["btf"]);

    let output = tool::run(&["--batch", "-d", "0"])?;
    says(report, "with a delay of 0", &output, 2, &["delay", "0.1"]);
    Ok(())
}

fn says(report: &mut Report, when: &str, output: &Output, code: i32, words: &[&str]) {
    report.say(format_args!("{when}: {}", output.brief()));
    let found = output.code.map_or("a signal".to_owned(), |code| code.to_string());
    report.equal(format_args!("exit code {when}"), code.to_string(), found);
    let said = output.stderr.to_lowercase();
    for word in words {
        report.check(
            said.contains(word),
            format_args!("its message {when} has the word {word:?}"),
            true,
            said.contains(word),
        );
    }
    report.equal(format_args!("lines on standard output {when}"), 0, output.stdout.lines().count());
}

/// An empty file system over /sys/kernel/btf, for this process only.
fn hide_btf() -> io::Result<()> {
    // SAFETY: all strings are constants that end in a zero; no data is passed.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) < 0 {
            return Err(io::Error::last_os_error());
        }
        let tmpfs = c"tmpfs".as_ptr();
        match libc::mount(tmpfs, c"/sys/kernel/btf".as_ptr(), tmpfs, 0, std::ptr::null()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
