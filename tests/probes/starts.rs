//! Obstacles to a start are named, with the remedy.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::program;

/// The message of a start, in one line.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A short run under a limit.
fn limited(resource: libc::__rlimit_resource_t, limit: u64) -> Result<Output> {
    let mut command = Command::new(program::path());
    command.args(["-b", "-n", "1", "-d", "0.1"]).stdin(Stdio::null()).stdout(Stdio::null());
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: setrlimit is async-signal-safe, and the struct is a private copy.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.stderr(Stdio::piped()).output().context("starting numatop-ng")
}

pub fn too_few_open_files_are_named_with_the_limit() -> Result<()> {
    // libbpf takes a trial that fails for lack of files as a feature that the kernel lacks: 20 on Linux 6.18.
    for limit in (6..=40).chain([50, 64, 72]) {
        let output = limited(libc::RLIMIT_NOFILE, limit)?;
        let said = said(&output);
        if limit > 40 && output.status.success() {
            continue;
        }
        ensure!(output.status.code() == Some(1), "limit {limit}: {}: {said}", output.status);
        for word in ["Too many open files", &format!("only {limit}"), "ulimit -n 4096"] {
            ensure!(said.contains(word), "limit {limit}: '{word}' is not said: {said}");
        }
        ensure!(!said.contains("please report"), "limit {limit}: {said}");
    }
    // The limit of a login shell is enough.
    let output = limited(libc::RLIMIT_NOFILE, 1024)?;
    ensure!(output.status.success(), "limit 1024: {}: {}", output.status, said(&output));
    Ok(())
}

pub fn too_little_address_space_is_named_with_the_limit() -> Result<()> {
    let mut named = 0;
    // From too little for BTF, and for the stack of a thread, to enough.
    for mib in (40..400).step_by(10) {
        let limit = mib << 20;
        let output = limited(libc::RLIMIT_AS, limit)?;
        let said = said(&output);
        if output.status.success() {
            ensure!(named > 0, "{mib} MiB are enough, and less was not tried");
            return Ok(());
        }
        // Less than what it takes to say anything. A program that has no room for its own segments is killed by exec(2).
        let is_killed = named == 0 && said.is_empty() && output.status.signal() == Some(libc::SIGSEGV);
        if is_killed || said.contains("memory allocation of") || said.contains("loading shared libraries") {
            continue;
        }
        named += 1;
        for word in [&format!("limited to {limit} bytes of address space"), "ulimit -v unlimited"] {
            ensure!(said.contains(word), "{mib} MiB: '{word}' is not said: {}: {said}", output.status);
        }
        ensure!(!said.contains("please report"), "{mib} MiB: {said}");
    }
    anyhow::bail!("400 MiB are not enough")
}

pub fn an_empty_proc_is_named() -> Result<()> {
    ensure!(fs::exists("/proc/self")?, "this test has no /proc either");
    for words in [&["-b", "-n", "1", "-d", "0.1"][..], &["doctor"]] {
        let mut command = Command::new(program::path());
        command.args(words).stdin(Stdio::null());
        // SAFETY: unshare and mount are system calls with constant arguments.
        unsafe {
            command.pre_exec(|| {
                let done = libc::unshare(libc::CLONE_NEWNS) == 0
                    && mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)
                    && mount(c"none", c"/proc", c"tmpfs", 0);
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let output = command.output().context("starting numatop-ng without /proc")?;
        let all = Output { stderr: [&output.stdout[..], &output.stderr].concat(), ..output };
        let said = said(&all);
        ensure!(all.status.code() == Some(1), "{words:?}: {}", all.status);
        ensure!(said.contains("/proc is not mounted here"), "{words:?}: {said}");
        ensure!(said.contains("mount -t proc proc /proc"), "{words:?}: {said}");
    }
    Ok(())
}

fn mount(what: &std::ffi::CStr, at: &std::ffi::CStr, kind: &std::ffi::CStr, flags: libc::c_ulong) -> bool {
    // SAFETY: all strings end with NUL and outlive the call; no kind of file system here takes data.
    unsafe { libc::mount(what.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) == 0 }
}
