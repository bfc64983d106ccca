//! The symbolizer: a separate process that looks for functions in files it is handed, and can do nothing
//! else: no capability, no new file, no new program, little memory.
//!
//! Hostile files can make it crash, hang or starve, and that costs the names in those files. If one made it run other
//! code, that code could compute and answer, and nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::client::{Answer, Found, Identity, Question};
use super::demangle::demangle;
use super::elf::Elf;
use super::sections::{self, Symbols};
use super::table::{Table, Tables};
use super::{NAME_MAX, listing};
use crate::program::helper;
use crate::{sys, text};

/// The name under which the tool starts itself as its symbolizer.
pub const NAME: &str = "numatop-ng-symbols";

/// A module that was loaded is looked for in a listing of the kernel that is this old.
const KERNEL_AGE: Duration = Duration::from_secs(10);

/// Answers questions about files until the input ends.
pub fn main() -> ExitCode {
    let mut symbolizer = Symbolizer::default();
    let _ = rustix::thread::set_name(c"nng-symbols");
    sys::map_large_blocks();
    helper::serve(NAME, confine, |question: Question, file| match file {
        Some(file) => symbolizer.answer(&question, &file),
        None => Answer::Found(Vec::new()),
    })
}

/// The source of a table: a state of a file, and a choice of its functions.
type TableKey = (FileState, FileKind);

/// Device, inode, bytes, and time of the last change in seconds and ns.
type FileState = (u64, u64, u64, i64, i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FileKind {
    Elf(Symbols),
    Mini,
    PerfMap,
    Kernel,
}

/// Looks for functions in files, and keeps what it found in them.
#[derive(Default)]
pub struct Symbolizer {
    tables: Tables<TableKey>,
    /// When the kernel's functions were listed.
    kernel_listed: Option<Instant>,
}

impl Symbolizer {
    /// The answer to a question about `file`, which may be anything.
    pub fn answer(&mut self, question: &Question, file: &File) -> Answer {
        let none = |places: &[u64]| Answer::Found(vec![Found::default(); places.len()]);
        let Some(state) = state_of(file) else {
            return match question {
                Question::Identify => Answer::Identity(None),
                Question::Offsets(places)
                | Question::Addresses(places)
                | Question::PerfMap(places)
                | Question::Kernel(places) => none(places),
            };
        };
        let found = |places: &[u64], mut find: Box<dyn FnMut(u64) -> Found + '_>| {
            Answer::Found(places.iter().map(|place| find(*place)).collect())
        };
        match question {
            Question::Identify => Answer::Identity(identify(file)),
            Question::Offsets(offsets) => match Elf::read(file) {
                Some(elf) => found(
                    offsets,
                    Box::new(|offset| {
                        let address = elf.address_of(offset);
                        let found = address.map(|address| self.in_elf(file, state, address));
                        Found { address, ..found.unwrap_or_default() }
                    }),
                ),
                None => none(offsets),
            },
            Question::Addresses(addresses) => match Elf::read(file) {
                Some(_) => found(addresses, Box::new(|address| self.in_elf(file, state, address))),
                None => none(addresses),
            },
            Question::PerfMap(addresses) => {
                let table = self.tables.get(
                    (state, FileKind::PerfMap),
                    || listing::perf_map_room(file),
                    |room| listing::perf_map(file, room),
                );
                found(
                    addresses,
                    Box::new(|address| {
                        let name = listed(table, address);
                        Found { module: cut(&name, table.is_cut()), name, ..Found::default() }
                    }),
                )
            }
            Question::Kernel(addresses) => {
                let key = (state, FileKind::Kernel);
                let room = || listing::KALLSYMS_ROOM;
                let listed = *self.kernel_listed.get_or_insert_with(Instant::now);
                let table = self.tables.get(key, room, |room| listing::kallsyms(file, room));
                let all_known = addresses.iter().all(|address| table.find(*address).is_some());
                if !all_known && listed.elapsed() > KERNEL_AGE {
                    self.tables.forget(&key);
                    self.kernel_listed = None;
                }
                let table = self.tables.get(key, room, |room| listing::kallsyms(file, room));
                found(addresses, Box::new(|address| in_kernel(table, address)))
            }
        }
    }

    fn in_elf(&mut self, file: &File, state: FileState, address: u64) -> Found {
        let mut is_cut = false;
        let name = [Symbols::All, Symbols::Dynamic]
            .into_iter()
            .find_map(|which| {
                let key = (state, FileKind::Elf(which));
                let table = self.tables.get(
                    key,
                    || sections::room(file, which),
                    |room| sections::functions(file, which, room),
                );
                is_cut |= table.is_cut();
                let name = sections::name_at(file, table.names_at?, table.find(address)?.name)?;
                Some(shown(&name))
            })
            .or_else(|| {
                let key = (state, FileKind::Mini);
                let table = self.tables.get(
                    key,
                    || sections::mini_room(file),
                    |room| sections::mini_functions(file, room),
                );
                is_cut |= table.is_cut();
                listed(table, address)
            });
        Found { module: cut(&name, is_cut), name, address: None }
    }
}

fn state_of(file: &File) -> Option<FileState> {
    let meta = file.metadata().ok()?;
    Some((meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

fn identify(file: &File) -> Option<Identity> {
    let build_id = Elf::read(file)?.build_id?;
    Some(Identity { build_id: build_id.0, link: sections::debug_link(file) })
}

/// The reason for which a name may be missing, where functions were left out.
fn cut(name: &Option<String>, is_cut: bool) -> Option<String> {
    (name.is_none() && is_cut).then(|| "the file has too many functions".into())
}

fn listed(table: &Table, address: u64) -> Option<String> {
    table.name(table.find(address)?.name).map(shown)
}

fn in_kernel(table: &Table, address: u64) -> Found {
    let Some(line) = table.find(address).and_then(|symbol| table.name(symbol.name)) else {
        return Found::default();
    };
    let mut parts = line.split(|byte| *byte == b'\t');
    let name = parts.next().map(shown);
    let module =
        parts.next().and_then(|module| module.strip_prefix(b"[")?.strip_suffix(b"]")).map(text::clean);
    Found { name, module, address: None }
}

/// A name as it may be shown: demangled, clean, and of [`NAME_MAX`] bytes at most.
pub fn shown(name: &[u8]) -> String {
    let mut name = text::clean_str(&demangle(name));
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or_default());
    name.shrink_to_fit();
    name
}

/// Bytes of private memory that it may have.
const MEMORY: u64 = 48 << 20;

/// Its socket, standard output and error, and the file that came with a question.
const FILES: u64 = 16;

/// System calls that it may make: all others fail with EPERM.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_pread64,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Gives up all rights that answering questions does not need, for good. The process must have one thread.
///
/// # Errors
/// The kernel refused one of the walls: nothing hostile may be looked at then.
pub(super) fn confine() -> Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).context("PR_SET_DUMPABLE")?;
    for (resource, most) in
        [(Resource::Core, 0), (Resource::Fsize, 0), (Resource::Data, MEMORY), (Resource::Nofile, FILES)]
    {
        // A limit that is lower already cannot be raised without CAP_SYS_RESOURCE, and need not be.
        let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).with_context(|| format!("setrlimit {resource:?}"))?;
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).context("capset")?;
    seccompiler::apply_filter(&filter()?).context("seccomp")
}

fn filter() -> Result<BpfProgram> {
    let rules: BTreeMap<i64, Vec<_>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().context("seccomp on this architecture")?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(answer: Answer) -> Vec<Option<String>> {
        match answer {
            Answer::Found(found) => found.into_iter().map(|found| found.name).collect(),
            Answer::Identity(_) => panic!("an identity"),
        }
    }

    #[test]
    fn files_that_are_something_else_have_no_names() {
        let text = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let mut symbolizer = Symbolizer::default();
        for question in [Question::Offsets(vec![0, 7]), Question::Addresses(vec![0, 7])] {
            assert_eq!(names(symbolizer.answer(&question, &text)), [None, None]);
        }
        assert_eq!(symbolizer.answer(&Question::Identify, &text), Answer::Identity(None));
        assert_eq!(names(symbolizer.answer(&Question::PerfMap(vec![1]), &text)), [None]);
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(shown("é".repeat(5000).as_bytes()), "é".repeat(NAME_MAX / 2));
        // A character of four bytes takes as much room as four of one.
        assert_eq!(shown(format!("x{}", "🦀".repeat(5000)).as_bytes()).len(), NAME_MAX - 3);
        assert_eq!(shown(b"a\x1b[2Jb"), "a\\x1b[2Jb");
    }
}
