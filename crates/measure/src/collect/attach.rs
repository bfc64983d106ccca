//! The ways to attach a program to a function of the kernel, best first, and the first that the kernel takes.

use anyhow::{Error, Result, anyhow};
use libbpf_rs::OpenObject;

use crate::host::kernel::ftrace_is_off;

/// A way to attach to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMethod {
    /// By a trampoline at its entry or exit: some nanoseconds.
    Fentry,
    /// By a breakpoint.
    Kprobe,
}

impl AttachMethod {
    /// All methods, best first.
    pub const ALL: [AttachMethod; 2] = [AttachMethod::Fentry, AttachMethod::Kprobe];

    /// Its name in BPF.
    pub fn name(self) -> &'static str {
        match self {
            AttachMethod::Fentry => "fentry",
            AttachMethod::Kprobe => "kprobe",
        }
    }

    /// Has libbpf load the programs of this method and no others.
    pub fn select(self, object: &mut OpenObject) {
        for mut program in object.progs_mut() {
            let own = program.section().to_str().is_some_and(|section| self.has(section));
            program.set_autoload(own);
        }
    }

    /// Whether programs of a section, "fexit/task_numa_work", are attached in this way.
    fn has(self, section: &str) -> bool {
        let kind = section.split('/').next().unwrap_or_default();
        match self {
            AttachMethod::Fentry => ["fentry", "fexit"].contains(&kind),
            AttachMethod::Kprobe => ["kprobe", "kretprobe"].contains(&kind),
        }
    }
}

/// A probe that is attached, and why better methods were refused.
#[derive(Debug)]
pub struct Fallback<P> {
    pub probe: P,
    pub method: AttachMethod,
    refused: Vec<Refused>,
}

type Refused = (AttachMethod, Error);

impl<P> Fallback<P> {
    /// The method in use, and why no better one.
    pub fn words(&self) -> String {
        let method = format!("by {}", self.method.name());
        std::iter::once(method).chain(self.refused.iter().map(reason)).collect::<Vec<_>>().join("; ")
    }
}

/// Tries `methods` in turn with `start`, until one holds.
///
/// # Errors
/// None holds: the reasons of all.
pub fn attach_with_fallback<P>(
    methods: &[AttachMethod],
    start: impl Fn(AttachMethod) -> Result<P>,
) -> Result<Fallback<P>> {
    let mut refused = Vec::new();
    for method in methods.iter().copied() {
        // A program that attaches and is never called would be a zero that was not measured.
        let started = match ftrace_is_off() {
            true => Err(anyhow!("kernel.ftrace_enabled is 0")),
            false => start(method),
        };
        match started {
            Ok(probe) => return Ok(Fallback { probe, method, refused }),
            Err(error) => refused.push((method, error)),
        }
    }
    Err(Error::msg(refused.iter().map(reason).collect::<Vec<_>>().join("; ")))
}

fn reason((method, error): &Refused) -> String {
    format!("not by {}: {error:#}", method.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_holds_is_taken() {
        let attached = attach_with_fallback(&AttachMethod::ALL, |method| match method {
            AttachMethod::Fentry => anyhow::bail!("EPERM"),
            AttachMethod::Kprobe => Ok("probe"),
        });
        let attached = attached.unwrap();
        assert_eq!(attached.words(), "by kprobe; not by fentry: EPERM");
        assert_eq!((attached.method, attached.probe), (AttachMethod::Kprobe, "probe"));
    }

    #[test]
    fn without_any_there_are_reasons() {
        let none = attach_with_fallback(&AttachMethod::ALL, |method| {
            Err::<(), _>(Error::msg(format!("no {}s", method.name())))
        });
        let why = none.unwrap_err().to_string();
        assert_eq!(why, "not by fentry: no fentrys; not by kprobe: no kprobes");
    }

    #[test]
    fn programs_are_told_by_the_kind_of_their_section() {
        let of = |method: AttachMethod| {
            let sections =
                ["fentry/f", "fexit/f", "kprobe/f", "kretprobe/f", "fentry", "kprobe", "tp_btf/kprobe"];
            sections.into_iter().filter(|section| method.has(section)).collect::<Vec<_>>()
        };
        assert_eq!(of(AttachMethod::Fentry), ["fentry/f", "fexit/f", "fentry"]);
        assert_eq!(of(AttachMethod::Kprobe), ["kprobe/f", "kretprobe/f", "kprobe"]);
    }
}
