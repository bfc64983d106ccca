//! The ways to hook a function of the kernel, best first, and which of them the kernel takes.

use anyhow::{Error, Result, anyhow};

use crate::host::kernel::ftrace_is_off;

/// A way to hook a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// By a trampoline at its entry or exit: some nanoseconds.
    Fentry,
    /// By a breakpoint.
    Kprobe,
}

impl Rung {
    pub const ALL: [Rung; 2] = [Rung::Fentry, Rung::Kprobe];

    /// What BPF calls it.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Fentry => "fentry",
            Rung::Kprobe => "kprobe",
        }
    }
}

/// A probe on the first rung that held, and why those above it did not.
pub struct Ladder<P> {
    pub probe: Option<(Rung, P)>,
    /// One reason for each rung above; for all of them without a probe.
    pub refused: Vec<(Rung, Error)>,
}

impl<P> Ladder<P> {
    /// Tries the rungs in turn with `start`.
    pub fn climb(start: impl Fn(Rung) -> Result<P>) -> Ladder<P> {
        let mut refused = Vec::new();
        for rung in Rung::ALL {
            // What attaches and is never called would be a zero that nobody measured.
            let started = match ftrace_is_off() {
                true => Err(anyhow!("kernel.ftrace_enabled is 0")),
                false => start(rung),
            };
            match started {
                Ok(probe) => return Ladder { probe: Some((rung, probe)), refused },
                Err(error) => refused.push((rung, error)),
            }
        }
        Ladder { probe: None, refused }
    }

    /// The rung in use, or what there is `instead`; and why not a better one.
    pub fn words(&self, instead: &str) -> String {
        let rung = self.probe.as_ref().map_or(instead, |(rung, _)| rung.name());
        std::iter::once(format!("by {rung}")).chain(self.reasons()).collect::<Vec<_>>().join("; ")
    }

    /// Why the rungs were refused.
    fn reasons(&self) -> impl Iterator<Item = String> + '_ {
        self.refused.iter().map(|(rung, error)| format!("not by {}: {error:#}", rung.name()))
    }

    /// The probe, or all reasons why there is none.
    ///
    /// # Errors
    /// No rung held.
    pub fn into_probe(self) -> Result<(Rung, P)> {
        let why = self.reasons().collect::<Vec<_>>().join("; ");
        self.probe.ok_or_else(|| Error::msg(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_holds_is_taken() {
        let ladder = Ladder::climb(|rung| match rung {
            Rung::Fentry => anyhow::bail!("EPERM"),
            Rung::Kprobe => Ok("probe"),
        });
        assert_eq!(ladder.words("nothing"), "by kprobe; not by fentry: EPERM");
        assert_eq!(ladder.into_probe().unwrap(), (Rung::Kprobe, "probe"));
    }

    #[test]
    fn without_any_there_are_reasons() {
        let ladder = Ladder::climb(|rung| Err::<(), _>(Error::msg(format!("no {}s", rung.name()))));
        assert_eq!(
            ladder.words("counting"),
            "by counting; not by fentry: no fentrys; not by kprobe: no kprobes"
        );
        let why = ladder.into_probe().err().map(|error| error.to_string());
        assert_eq!(why.as_deref(), Some("not by fentry: no fentrys; not by kprobe: no kprobes"));
    }
}
