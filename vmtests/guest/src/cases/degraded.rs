//! Messages of the tool when it lacks something that it needs.

use std::io;
use std::os::unix::process::CommandExt;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::capabilities;
use crate::report::Report;
use crate::tool::{self, Output};

pub const CASE: Case = Case {
    name: "degraded",
    about: "without capabilities, or one of them, it says which to give and exits 3; with those of the README it works; without BTF it says so and exits 4",
    run,
};

pub const TOO_OLD: Case = Case {
    name: "too_old",
    about: "on a kernel without what the probes need it and doctor exit 4, and say what is missing and which kernel has it",
    run: |report, _| {
        let output = tool::run(&ONE_INTERVAL)?;
        let words = ["bpf task storage", "error from the kernel", "use linux 6.1 or newer"];
        says(report, "on this kernel", &output, 4, &words);
        let doctor = tool::run(&["doctor", "--all"])?;
        report.equal("exit code of doctor", "4".to_owned(), show_code(&doctor));
        let line = "BPF task storage in tracing programs (since Linux 5.13)";
        let told = doctor.stdout.contains(line);
        report.check(told, "doctor names what is missing", line, told);
        Ok(())
    },
};

const NOBODY: u32 = 65534;
const ONE_INTERVAL: [&str; 6] = ["--batch", "--json-full", "-n", "1", "-d", "0.2"];

fn run(report: &mut Report, _plan: &Plan) -> Result<(), Stop> {
    let output = with_capabilities(&[])?;
    says(report, "as a user without capabilities", &output, 3, &["cap_bpf", "cap_perfmon", "setcap"]);

    let output = with_capabilities(&[capabilities::BPF])?;
    says(report, "as a user with CAP_BPF only", &output, 3, &["cap_perfmon", "setcap"]);
    let output = with_capabilities(&[capabilities::BPF, capabilities::PERFMON, capabilities::SYS_PTRACE])?;
    report.say(format_args!("as a user with the capabilities of the README: {}", output.brief()));
    report.equal("exit code with those", "0".to_owned(), show_code(&output));
    let rows = output.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tasks: usize = rows.map(|interval| interval["tasks"].as_array().map_or(0, Vec::len)).sum();
    report.check(tasks > 0, "rows with those", "some", tasks);

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
    report.equal(format_args!("exit code {when}"), code.to_string(), show_code(output));
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

fn show_code(output: &Output) -> String {
    output.code.map_or("a signal".to_owned(), |code| code.to_string())
}

/// Runs the tool as a user who has these capabilities, as file capabilities would give them.
fn with_capabilities(numbers: &'static [u32]) -> Result<Output, Stop> {
    let mut command = tool::command(&ONE_INTERVAL)?;
    // SAFETY: the closure makes system calls and allocates nothing.
    unsafe {
        command.pre_exec(|| become_nobody(numbers));
    }
    tool::finish(command)
}

/// Gives up the user root and all capabilities but these, which exec(2) leaves to the program: they are ambient, see
/// capabilities(7).
fn become_nobody(numbers: &[u32]) -> io::Result<()> {
    let checked = |result: libc::c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: all arguments are numbers.
    unsafe {
        checked(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        checked(libc::setresgid(NOBODY, NOBODY, NOBODY))?;
        checked(libc::setresuid(NOBODY, NOBODY, NOBODY))?;
    }
    capabilities::keep(numbers)?;
    for &number in numbers {
        let number = libc::c_ulong::from(number);
        // SAFETY: as above.
        checked(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, number, 0, 0) })?;
    }
    Ok(())
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
