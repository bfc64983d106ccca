//! Letters, or kinds with numbers, that replace names in findings and reports for others: of processes,
//! containers, cgroups, functions and the machine. Names are replaced before rules run, so no text contains
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::group::{Group, GroupKind};
use crate::model::sample::{Comm, HostFacts, Names, Sample, TaskRaw};
use crate::model::stacks::{Function, StackBatch};

/// Parts of cgroup paths that are the same on all machines, and decide which command fits.
const COMMON: [&str; 10] = [
    "",
    "docker",
    "machine.slice",
    "system.slice",
    "user.slice",
    "init.scope",
    "libpod_parent",
    "lxc",
    "garden",
    "kubepods",
];

/// Endings of parts of paths that say what they are.
const ENDINGS: [&str; 4] = [".service", ".scope", ".slice", ".mount"];

/// Beginnings of names of our own processes, which rules leave out.
const OWN: [&[u8]; 2] = [b"numatop-ng", b"nng-"];

/// The kind of programs.
const PROGRAM: &str = "program";

/// Words in place of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Style {
    /// `A`, `B`: one row of letters for names of all kinds.
    #[default]
    Letters,
    /// `program-1`, `container-1`: a row of numbers for each kind.
    Kinds,
}

/// Gives each name a word, the same one as long as it lives.
#[derive(Debug, Default)]
pub struct Redactor {
    style: Style,
    words: BTreeMap<(&'static str, Vec<u8>), String>,
    /// Numbers that were given, by kind.
    given: BTreeMap<&'static str, usize>,
    /// Names that were replaced last, and what they are now.
    names: Option<(Arc<Names>, Arc<Names>)>,
}

/// `A` to `Z`, then `AA`.
fn letter(mut at: usize) -> String {
    let mut text = Vec::new();
    loop {
        text.push(b'A' + (at % 26) as u8);
        if at < 26 {
            break;
        }
        at = at / 26 - 1;
    }
    text.iter().rev().map(|byte| char::from(*byte)).collect()
}

impl Redactor {
    /// A redactor that puts kinds with numbers in place of names: `program-3`.
    pub fn by_kind() -> Redactor {
        Redactor { style: Style::Kinds, ..Redactor::default() }
    }

    fn word(&mut self, kind: &'static str, name: &[u8]) -> String {
        let kind = if self.style == Style::Letters { "" } else { kind };
        if let Some(word) = self.words.get(&(kind, name.to_vec())) {
            return word.clone();
        }
        let number = self.given.entry(kind).or_default();
        let word = if kind.is_empty() { letter(*number) } else { format!("{kind}-{}", *number + 1) };
        *number += 1;
        self.words.insert((kind, name.to_vec()), word.clone());
        word
    }

    fn text(&mut self, kind: &'static str, name: &str) -> String {
        if name.is_empty() { String::new() } else { self.word(kind, name.as_bytes()) }
    }

    fn optional(&mut self, kind: &'static str, name: Option<&String>) -> Option<String> {
        name.map(|name| self.text(kind, name))
    }

    /// A path with words in place of the names in it.
    fn path(&mut self, path: &str) -> String {
        self.path_of("cgroup", path)
    }

    fn path_of(&mut self, kind: &'static str, path: &str) -> String {
        let part = |part: &str| {
            if COMMON.contains(&part) || part.starts_with("kubepods") && part.len() < 20 {
                return part.to_owned();
            }
            let ending = ENDINGS.into_iter().find(|ending| part.ends_with(ending)).unwrap_or_default();
            // Units of a user are no units of the machine.
            let begin = if part.starts_with("user@") { "user@" } else { "" };
            format!("{begin}{}{ending}", self.text(kind, part))
        };
        path.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    fn group(&mut self, group: &Group) -> Group {
        let kind = match group.kind {
            GroupKind::Container | GroupKind::Machine => "container",
            GroupKind::Pod => "pod",
            _ => "cgroup",
        };
        Group {
            name: self.path_of(kind, &group.name),
            user: self.optional("user", group.user.as_ref()),
            id: self.optional("id", group.id.as_ref()),
            pod: self.optional("pod", group.pod.as_ref()),
            pod_uid: self.optional("id", group.pod_uid.as_ref()),
            namespace: self.optional("namespace", group.namespace.as_ref()),
            unit: group.unit.as_ref().map(|name| self.path(name)),
            ..group.clone()
        }
    }

    fn names(&mut self, names: &Arc<Names>) -> Arc<Names> {
        if let Some((before, after)) = &self.names
            && Arc::ptr_eq(before, names)
        {
            return Arc::clone(after);
        }
        let redacted = Arc::new(Names {
            users: BTreeMap::new(),
            cgroups: names.cgroups.iter().map(|(id, path)| (*id, self.path(path))).collect(),
            groups: names.groups.iter().map(|(id, group)| (*id, Arc::new(self.group(group)))).collect(),
        });
        self.names = Some((Arc::clone(names), Arc::clone(&redacted)));
        redacted
    }

    fn task(&mut self, task: &mut Arc<TaskRaw>) {
        let comm = task.comm;
        // Kernel threads have the same names everywhere.
        if task.kthread || OWN.iter().any(|own| comm.bytes().starts_with(own)) {
            return;
        }
        Arc::make_mut(task).comm = self.comm(comm);
    }

    fn comm(&mut self, comm: Comm) -> Comm {
        Comm::new(&self.word(PROGRAM, comm.bytes()))
    }

    /// Names of programs by the words in their place, clean as rows have them. Names that were kept are not in it; letters stand
    /// for names of all kinds.
    pub fn programs(&self) -> BTreeMap<String, String> {
        let replaced = self.words.iter().filter(|((kind, _), _)| kind.is_empty() || *kind == PROGRAM);
        replaced.map(|((_, name), word)| (word.clone(), crate::text::clean(name))).collect()
    }

    /// Replaces the names in stacks. Functions of the kernel have the same names everywhere.
    pub fn stacks(&mut self, batch: &mut StackBatch) {
        for stack in &mut batch.stacks {
            stack.comm = self.comm(stack.comm);
        }
        for (_, function) in batch.names.iter_mut().filter(|(_, function)| !function.kernel) {
            *function = Arc::new(Function {
                name: self.optional("function", function.name.as_ref()),
                module: self.text("file", &function.module),
                kernel: false,
            });
        }
    }

    /// Replaces the names in a sample.
    pub fn sample(&mut self, sample: &mut Sample) {
        sample.names = self.names(&sample.names);
        sample.tasks.iter_mut().chain(&mut sample.exited).for_each(|task| self.task(task));
        // Notes contain names of new and ended things. No text of findings contains command lines.
        sample.notes.clear();
    }

    /// The facts of the machine without its name.
    pub fn host(&self, host: &HostFacts) -> HostFacts {
        let hostname = if self.style == Style::Letters { "host" } else { "host-1" };
        HostFacts { hostname: hostname.into(), scope: String::new(), ..host.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_on_behind_the_last() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(letter), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }

    #[test]
    fn kinds_are_numbered_each_for_itself() {
        let mut redactor = Redactor::by_kind();
        assert_eq!(redactor.word("program", b"mysqld"), "program-1");
        assert_eq!(redactor.word("container", b"mysqld"), "container-1");
        assert_eq!(redactor.word("program", b"redis"), "program-2");
        assert_eq!(redactor.word("program", b"mysqld"), "program-1");
        assert_eq!(redactor.path("/system.slice/mysql.service"), "/system.slice/cgroup-1.service");
    }

    #[test]
    fn words_of_programs_lead_back_to_them() {
        let mut redactor = Redactor::by_kind();
        redactor.comm(Comm::new("mysqld"));
        redactor.comm(Comm::new("redis"));
        redactor.path("/system.slice/mysql.service");
        let found: Vec<(String, String)> = redactor.programs().into_iter().collect();
        let wanted = [("program-1", "mysqld"), ("program-2", "redis")];
        assert_eq!(found, wanted.map(|(word, name)| (word.to_owned(), name.to_owned())));
    }

    #[test]
    fn a_path_keeps_its_kind_only() {
        let mut redactor = Redactor::default();
        assert_eq!(redactor.path("/system.slice/mysql.service"), "/system.slice/A.service");
        assert_eq!(redactor.path("/docker/3c0f6a4c"), "/docker/B");
        assert_eq!(redactor.path("/user.slice/user@1000.service"), "/user.slice/user@C.service");
        assert_eq!(redactor.path("/system.slice/mysql.service"), "/system.slice/A.service");
        assert_eq!(redactor.path("/"), "/");
    }
}
