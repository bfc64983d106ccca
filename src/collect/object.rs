//! BPF objects: storage for them, and the programs of a loaded one.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::SkelBuilder;
use libbpf_rs::{Link, Object, OpenObject, Program, ProgramMut};

/// Opens the skeleton of `name`.bpf.o.
///
/// A skeleton borrows the place of its object for as long as it lives, and drops the object itself. A place that is
/// owned beside the skeleton would be a struct that borrows from itself, which safe Rust does not have, so each opening
/// leaks the place: one pointer of eight bytes. A run opens some ten objects, and one more for each time that hot spots
/// are looked at.
///
/// # Errors
/// libbpf could not read the object.
pub(super) fn open<B: SkelBuilder<'static>>(name: &str, builder: B) -> Result<B::Output> {
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    builder.open(place).with_context(|| format!("opening {name}.bpf.o"))
}

/// The programs of an object that are loaded.
pub(super) fn programs(object: &Object) -> impl Iterator<Item = Program<'_>> {
    object.progs().filter(Program::autoload)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_functions_are_told_by_their_section() {
        let at_end = |section: &&str| is_at_end(section);
        let sections = ["fentry/a", "fexit/a", "kprobe/a", "kretprobe/a", "tp_btf/a", "fentry", ""];
        assert_eq!(sections.iter().filter(|section| at_end(section)).count(), 2);
    }
}
