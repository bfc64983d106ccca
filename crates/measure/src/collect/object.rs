//! BPF objects: storage for them, the programs of a loaded one, messages of libbpf, kept instead of printed over the screen, and the
//! kernel's own statistics of runs and run time, which cost some 70 ns per run of every program on the machine.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, Object, OpenObject, PrintLevel, Program, ProgramMut, set_print};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io;

use crate::overhead::Runs;
use crate::sys;

/// Opens the skeleton of `name`.bpf.o.
///
/// A skeleton borrows the place of its object for as long as it lives, and drops the object itself. A struct
/// that owned both would borrow from itself, which safe Rust does not allow. So each opening leaks the place:
/// one pointer of eight bytes. A run opens about ten objects, and one more each time hot spots are shown.
///
/// # Errors
/// libbpf could not read the object.
pub(super) fn open<B: SkelBuilder<'static>>(name: &str, builder: B) -> Result<B::Output> {
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    builder.open(place).with_context(|| format!("opening {name}.bpf.o"))
}

/// Programs that debug builds refuse to load, to simulate a kernel that refuses them: a variable with their
/// names, separated by commas. For tests of the remaining ones.
const REFUSE: &str = "NUMATOP_NG_REFUSE";

/// Loads the programs of an open skeleton that are not left out.
///
/// # Errors
/// The kernel refused one, or this process may not have its files: the errno is in the chain.
pub(super) fn load<S: OpenSkel<'static>>(name: &str, open: S) -> Result<S::Output> {
    let object = open.open_object();
    let files = object.maps().count() + object.progs().filter(|program| program.autoload()).count();
    have_room(files + TRIALS).with_context(|| format!("opening the {files} descriptors of {name}.bpf.o"))?;
    let loaded = match refused(open.open_object()) {
        Some(_) => Err(libbpf_rs::Error::from_raw_os_error(libc::EPERM)),
        None => open.load(),
    };
    loaded.with_context(|| format!("loading {name}.bpf.o"))
}

/// Files that libbpf has open at once where it tries what the kernel can do.
const TRIALS: usize = 4;

/// Opens this number of files and closes them. If libbpf's feature trial fails for lack of files, libbpf
/// assumes that the kernel lacks the feature. Then it loads a program that the kernel refuses with EINVAL
/// (`kernel_supports`, `bpf_object__sanitize_prog` of libbpf.c).
fn have_room(files: usize) -> io::Result<()> {
    let held: io::Result<Vec<OwnedFd>> = (0..files).map(|_| eventfd(0, EventfdFlags::CLOEXEC)).collect();
    held.map(drop)
}

/// The first program to load that [`REFUSE`] names.
fn refused(object: &OpenObject) -> Option<OsString> {
    let names = std::env::var(REFUSE).ok().filter(|_| cfg!(debug_assertions))?;
    let mut wanted =
        object.progs().filter(|program| program.autoload()).map(|program| program.name().to_owned());
    wanted.find(|program| names.split(',').any(|name| program == name))
}

/// The programs of an object that are loaded.
pub(super) fn programs(object: &Object) -> impl Iterator<Item = Program<'_>> {
    object.progs().filter(Program::autoload)
}

/// Reads what an iterator writes to its end, in pieces of at most the length of `buffer`: whole rows, as it writes each at
/// once.
///
/// # Errors
/// The errno of the kernel, or the error of `each`.
pub(super) fn read_iterator(
    link: &Link,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut iterator = Iter::new(link).context("starting the BPF iterator")?;
    loop {
        match iterator.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => each(&buffer[..got])?,
            // After a million elements without a row, the kernel wants to be asked again.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error).context("reading the BPF iterator"),
        }
    }
}

/// Attaches all programs that are loaded. Ends of functions come before begins: a stretch whose begin was not seen is
/// left out.
///
/// # Errors
/// The errno of the first that does not attach.
pub(super) fn attach(object: &Object) -> Result<Vec<Link>> {
    let mut programs: Vec<ProgramMut<'_>> = object.progs_mut().filter(|program| program.autoload()).collect();
    programs.sort_by_key(|program| !is_at_end(section(program)));
    programs.iter().map(attach_one).collect()
}

fn attach_one(program: &ProgramMut<'_>) -> Result<Link> {
    // tp_btf/sched_move_numa is attached to sched_move_numa.
    let (_, to) = section(program).rsplit_once('/').unwrap_or_default();
    program.attach().with_context(|| format!("attaching to {to}"))
}

fn section<'obj>(program: &ProgramMut<'obj>) -> &'obj str {
    program.section().to_str().unwrap_or_default()
}

fn is_at_end(section: &str) -> bool {
    section.starts_with("fexit/") || section.starts_with("kretprobe/")
}

/// Lines kept; a verifier's log can have thousands, and the error is at its end.
const KEPT: usize = 200;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// From now on libbpf prints nothing: [`take`] returns its warnings.
pub fn keep() {
    set_print(Some((PrintLevel::Warn, |_, text| remember(&text))));
}

/// The last warnings, line by line, oldest first; each is handed out once.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner)).into()
}

fn remember(text: &str) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(crate::text::clean_str(line));
    }
}

/// Keeps statistics on until it is dropped. Others may keep them on too.
pub struct Recording {
    _on: OwnedFd,
}

impl Recording {
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn start() -> Result<Recording> {
        let on =
            sys::enable_bpf_stats().context("enabling statistics of BPF programs (needs CAP_SYS_ADMIN)")?;
        Ok(Recording { _on: on })
    }
}

/// Statistics of a program.
///
/// # Errors
/// The kernel refused to tell.
pub fn runs(program: BorrowedFd<'_>) -> Result<Runs> {
    let info = sys::bpf_program_info(program).context("reading the statistics of a BPF program")?;
    Ok(Runs { count: info.run_cnt, ns: info.run_time_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_functions_are_told_by_their_section() {
        let at_end = |section: &&str| is_at_end(section);
        let sections = ["fentry/a", "fexit/a", "kprobe/a", "kretprobe/a", "tp_btf/a", "fentry", ""];
        assert_eq!(sections.iter().filter(|section| at_end(section)).count(), 2);
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        for i in 0..KEPT {
            remember(&format!("line {i}\n\n"));
        }
        remember("R1 invalid mem access\n\x1b[2Jdone\n");
        let lines = take();
        assert_eq!(lines.len(), KEPT);
        assert_eq!(lines.first().unwrap(), "line 2");
        assert_eq!(lines[KEPT - 2..], ["R1 invalid mem access", "\\x1b[2Jdone"]);
        assert!(take().is_empty());
    }
}
