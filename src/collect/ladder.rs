//! Of several ways to the same end, which is the best that the host takes, and why not a better one?

use anyhow::Result;

/// How a program comes to run when the kernel calls one of its functions, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// By a trampoline.
    Fentry,
    /// By a breakpoint.
    Kprobe,
}

impl Hook {
    pub const ALL: [Hook; 2] = [Hook::Fentry, Hook::Kprobe];

    /// What it is, in a word.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Fentry => "fentry",
            Hook::Kprobe => "kprobe",
        }
    }
}

/// The first of `rungs` on which `start` succeeds, and those before it with the whole chain of causes.
pub fn climb<R: Copy, P>(
    rungs: impl IntoIterator<Item = R>,
    start: impl Fn(R) -> Result<P>,
) -> (Option<P>, Vec<(R, String)>) {
    let mut refused = Vec::new();
    for rung in rungs {
        match start(rung) {
            Ok(probe) => return (Some(probe), refused),
            Err(error) => refused.push((rung, format!("{error:#}"))),
        }
    }
    (None, refused)
}

/// Why not on a better rung: "not by fentry: …; not by kprobe: …".
pub fn refusals<R: Copy>(refused: &[(R, String)], name: impl Fn(R) -> &'static str) -> String {
    let words = refused.iter().map(|(rung, why)| format!("not by {}: {why}", name(*rung)));
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn the_first_rung_that_holds_is_taken() {
        let start = |hook| if hook == Hook::Kprobe { Ok("probe") } else { Err(anyhow!("no trampolines")) };

        let (probe, refused) = climb(Hook::ALL, start);

        assert_eq!(probe, Some("probe"));
        assert_eq!(refusals(&refused, Hook::name), "not by fentry: no trampolines");
    }

    #[test]
    fn where_none_holds_all_say_why() {
        let (probe, refused) = climb(Hook::ALL, |hook| Err::<(), _>(anyhow!("{} refused", hook.name())));

        assert_eq!(probe, None);
        let words = refusals(&refused, Hook::name);
        assert_eq!(words, "not by fentry: fentry refused; not by kprobe: kprobe refused");
    }
}
