//! Command lines for people to type. A line is made of words that are quoted as they are added: no line is made from
//! text.

use std::fmt;

use crate::model::topology::format_cpulist;
use crate::model::units::NodeId;

/// Bytes that a line may have.
const LINE_MAX: usize = 512;

/// Bytes beside letters and digits that a name may have.
const NAME_BYTES: &[u8] = b" ._:@/+=,-\\";

/// One command line, complete by itself: ASCII, at most 512 bytes, every name quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellLine(String);

impl fmt::Display for ShellLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A line in the making. A name that is refused makes it no line.
#[derive(Clone, Debug)]
pub struct Words(Option<String>);

/// A line that begins with these words, which are our own.
pub fn line(words: &'static str) -> Words {
    Words(Some(words.to_owned()))
}

impl Words {
    fn push(mut self, word: &str) -> Words {
        if let Some(line) = &mut self.0 {
            line.push(' ');
            line.push_str(word);
        }
        self
    }

    /// Adds words of our own.
    #[must_use]
    pub fn word(self, word: &'static str) -> Words {
        self.push(word)
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u64) -> Words {
        self.push(&number.to_string())
    }

    /// Adds a list of nodes.
    #[must_use]
    pub fn nodes(self, nodes: &[NodeId]) -> Words {
        self.push(&node_list(nodes))
    }

    /// Adds a list of CPUs.
    #[must_use]
    pub fn cpus(self, cpus: &[u32]) -> Words {
        self.push(&cpu_list(cpus))
    }

    /// Adds a word of our own with a list or a number behind it, as in `AllowedCPUs=0-7`.
    #[must_use]
    pub fn joined(self, word: &'static str, list: &str) -> Words {
        // Lists and numbers are digits, commas, dashes and percent signs.
        let fits = list.bytes().all(|byte| byte.is_ascii_digit() || b",-%.".contains(&byte));
        if fits { self.push(&format!("{word}{list}")) } else { Words(None) }
    }

    /// Adds a name that anyone may have chosen, quoted; refuses one with unusual bytes.
    #[must_use]
    pub fn name(self, name: &str) -> Words {
        match quoted(name) {
            Some(word) => self.push(&word),
            None => Words(None),
        }
    }

    /// Adds `> ` and a file below a cgroup, whose path anyone may have chosen.
    #[must_use]
    pub fn into_file_of(self, cgroup: &str, file: &'static str) -> Words {
        let path = format!("/sys/fs/cgroup/{}/{file}", cgroup.trim_matches('/'));
        match quoted(&path) {
            Some(word) => self.push(&format!("> {word}")),
            None => Words(None),
        }
    }

    /// Adds a quota in a period, microseconds of each, as `cpu.max` takes them.
    #[must_use]
    pub fn quota(self, quota_us: u64, period_us: u64) -> Words {
        self.push(&format!("\"{quota_us} {period_us}\""))
    }

    /// Adds an amount of page cache as files named `reclaim` take it, in MiB: no anonymous memory.
    #[must_use]
    pub fn amount_of_cache(self, mib: u64) -> Words {
        self.push(&format!("\"{mib}M swappiness=0\""))
    }

    /// Adds an amount of memory in MiB.
    #[must_use]
    pub fn amount(self, mib: u64) -> Words {
        self.push(&format!("{mib}M"))
    }

    /// Adds a property of a unit in MiB, as in `MemoryHigh=512M`.
    #[must_use]
    pub fn property(self, name: &'static str, mib: u64) -> Words {
        self.push(&format!("{name}={mib}M"))
    }

    /// Adds `> ` and a file of a node.
    #[must_use]
    pub fn into_node_file(self, node: NodeId, file: &'static str) -> Words {
        self.push(&format!("> /sys/devices/system/node/node{node}/{file}"))
    }

    /// Adds `> ` and the size of a node's pool of huge pages of `kib` KiB.
    #[must_use]
    pub fn into_pool(self, node: NodeId, kib: u64) -> Words {
        self.push(&format!("> /sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages"))
    }

    /// Adds a loop that writes a list of CPUs into the affinity of each message-signalled interrupt of a PCI
    /// function. Its address is digits, colons and a dot.
    #[must_use]
    pub fn interrupts_of(self, address: &str, cpus: &[u32]) -> Words {
        let fits = address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
        if address.is_empty() || !fits || cpus.is_empty() {
            return Words(None);
        }
        let list = cpu_list(cpus);
        let irqs = format!("/sys/bus/pci/devices/{address}/msi_irqs/*;");
        self.push(&format!("{irqs} do echo {list} > /proc/irq/${{i##*/}}/smp_affinity_list; done"))
    }

    /// The line; `None` where a name was refused or it is too long.
    pub fn done(self) -> Option<ShellLine> {
        self.0.filter(|line| line.len() <= LINE_MAX && line.is_ascii()).map(ShellLine)
    }
}

/// The name as one word of a shell; `None` for a name with other bytes than those of most names.
fn quoted(name: &str) -> Option<String> {
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || NAME_BYTES.contains(&byte));
    // A name that begins with a dash would be an option.
    if name.is_empty() || name.starts_with('-') || !fits || name.split('/').any(|part| part == "..") {
        return None;
    }
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@/+=,-".contains(&byte));
    Some(if plain { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) })
}

/// Nodes as the kernel writes them: `0-1,4`.
pub fn node_list(nodes: &[NodeId]) -> String {
    let mut ids: Vec<u32> = nodes.iter().map(|node| node.0).collect();
    ids.sort_unstable();
    ids.dedup();
    format_cpulist(ids)
}

/// CPUs as the kernel writes them: `0-7,32-39`.
pub fn cpu_list(cpus: &[u32]) -> String {
    let mut ids = cpus.to_vec();
    ids.sort_unstable();
    ids.dedup();
    format_cpulist(ids)
}

/// The time at which a command is to be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// While it runs.
    Now,
    /// Where it is started.
    NextStart,
    /// So that it stays.
    ForGood,
}

impl When {
    /// The word in JSON.
    pub fn id(self) -> &'static str {
        match self {
            When::Now => "now",
            When::NextStart => "next_start",
            When::ForGood => "for_good",
        }
    }
}

/// The part of the machine that a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// A process.
    Process,
    /// A container, unit or another cgroup.
    Container,
    /// The whole machine.
    Host,
}

impl Scope {
    /// The word in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Scope::Process => "process",
            Scope::Container => "container",
            Scope::Host => "host",
        }
    }
}

/// A command, or words where no command can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// When to type it.
    pub when: When,
    /// The line; `None`: words only.
    pub line: Option<ShellLine>,
    /// Its meaning, or the thing to do where no line is; may be empty.
    pub words: String,
    /// The part of the machine that it changes.
    pub scope: Scope,
}

impl Command {
    /// A command with its meaning. Where a name in it was refused, the words say so.
    pub fn new(when: When, scope: Scope, line: Words, words: impl Into<String>) -> Command {
        let (line, mut words) = (line.done(), words.into());
        if line.is_none() {
            const REFUSED: &str =
                "the name contains characters that are unsafe in a command: look it up yourself";
            words = if words.is_empty() { REFUSED.to_owned() } else { format!("{words} ({REFUSED})") };
        }
        Command { when, line, words, scope }
    }

    /// Words in place of a command.
    pub fn words(when: When, scope: Scope, words: impl Into<String>) -> Command {
        Command { when, line: None, words: words.into(), scope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_word_or_refused() {
        let of = |name: &str| line("docker update").name(name).done().map(|line| line.to_string());
        assert_eq!(of("3c0f6a4c2b9f").as_deref(), Some("docker update 3c0f6a4c2b9f"));
        assert_eq!(of("my db").as_deref(), Some("docker update 'my db'"));
        assert_eq!(of(r"a\x2db").as_deref(), Some(r"docker update 'a\x2db'"));
        for name in ["$(reboot)", "a;b", "it's", "a\nb", "`x`", "--rm", "", "Ünï", "a/../b", "a|b", "a&b"] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn lists_are_those_of_the_kernel() {
        let nodes = [NodeId(3), NodeId(1), NodeId(2)];
        let text =
            line("migratepages").number(7).nodes(&nodes).nodes(&[NodeId(0)]).done().map(|l| l.to_string());
        assert_eq!(text.as_deref(), Some("migratepages 7 1-3 0"));
        assert!(line("x").joined("AllowedCPUs=", "0-7;reboot").done().is_none());
    }

    #[test]
    fn a_line_that_is_too_long_is_none() {
        let cpus: Vec<u32> = (0..500).map(|cpu| cpu * 2).collect();
        assert!(line("taskset -acp").cpus(&cpus).number(7).done().is_none());
    }

    #[test]
    fn a_refused_name_is_said() {
        let command = Command::new(When::Now, Scope::Container, line("docker update").name("$(x)"), "");
        assert!(command.line.is_none() && command.words.contains("look it up yourself"));
    }
}
