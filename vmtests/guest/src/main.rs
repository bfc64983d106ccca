//! One static program with three lives: process 1 of a guest, one case, one workload.
#![expect(unsafe_code, reason = "calls C")]

mod affinity;
mod bpf;
mod capabilities;
mod cases;
mod cpuacct;
mod disk;
mod drivers;
mod groups;
mod init;
mod intervals;
mod procfs;
mod report;
mod rest;
mod screen;
mod setting;
mod span;
mod sysfs;
mod tiers;
mod tool;
mod tracefs;
mod tty;
mod work;
mod workload;

use std::process::ExitCode;

const USAGE: &str = "\
usage: guest case NAME                run one case (in a guest)
       guest workload NAME [...]      run a workload until its input ends, then print what it did
       guest workloads                list the workloads";

fn main() -> ExitCode {
    // SAFETY: getpid has no preconditions.
    if unsafe { libc::getpid() } == 1 {
        init::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["case", name] => cases::run(name),
        ["workload", name, rest @ ..] => workload::run(name, rest),
        ["workloads"] => {
            for (name, about) in workload::NAMES {
                println!("{name:<12}{about}");
            }
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
