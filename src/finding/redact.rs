//! Letters in place of names, for findings that are shown to others: of processes, containers, cgroups and the machine. Names are
//! replaced before rules look, so that no text is made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::group::Group;
use crate::model::sample::{Comm, HostFacts, Names, Sample, TaskRaw};

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

/// Gives each name a letter, the same one as long as it lives.
#[derive(Debug, Default)]
pub struct Redactor {
    letters: BTreeMap<Vec<u8>, String>,
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
    fn letter(&mut self, name: &[u8]) -> String {
        let next = self.letters.len();
        self.letters.entry(name.to_vec()).or_insert_with(|| letter(next)).clone()
    }

    fn text(&mut self, name: &str) -> String {
        if name.is_empty() { String::new() } else { self.letter(name.as_bytes()) }
    }

    fn optional(&mut self, name: Option<&String>) -> Option<String> {
        name.map(|name| self.text(name))
    }

    /// A path with letters in place of the names in it.
    fn path(&mut self, path: &str) -> String {
        let part = |part: &str| {
            if COMMON.contains(&part) || part.starts_with("kubepods") && part.len() < 20 {
                return part.to_owned();
            }
            let ending = ENDINGS.into_iter().find(|ending| part.ends_with(ending)).unwrap_or_default();
            // Units of a user are no units of the machine.
            let begin = if part.starts_with("user@") { "user@" } else { "" };
            format!("{begin}{}{ending}", self.text(part))
        };
        path.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    fn group(&mut self, group: &Group) -> Group {
        let unit = |redactor: &mut Redactor, name: &str| redactor.path(name);
        Group {
            name: unit(self, &group.name),
            id: self.optional(group.id.as_ref()),
            pod: self.optional(group.pod.as_ref()),
            pod_uid: self.optional(group.pod_uid.as_ref()),
            namespace: self.optional(group.namespace.as_ref()),
            unit: group.unit.as_ref().map(|name| unit(self, name)),
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
        let letter = self.letter(comm.bytes());
        Arc::make_mut(task).comm = Comm::new(&letter);
    }

    /// Replaces the names in a sample.
    pub fn sample(&mut self, sample: &mut Sample) {
        sample.names = self.names(&sample.names);
        sample.tasks.iter_mut().chain(&mut sample.exited).for_each(|task| self.task(task));
        // Names are in notes of what came and went. Command lines are in no text of findings.
        sample.notes.clear();
    }

    /// The facts of the machine without its name.
    pub fn host(&self, host: &HostFacts) -> HostFacts {
        HostFacts { hostname: "host".into(), scope: String::new(), ..host.clone() }
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
    fn a_path_keeps_its_kind_only() {
        let mut redactor = Redactor::default();
        assert_eq!(redactor.path("/system.slice/mysql.service"), "/system.slice/A.service");
        assert_eq!(redactor.path("/docker/3c0f6a4c"), "/docker/B");
        assert_eq!(redactor.path("/user.slice/user@1000.service"), "/user.slice/user@C.service");
        assert_eq!(redactor.path("/system.slice/mysql.service"), "/system.slice/A.service");
        assert_eq!(redactor.path("/"), "/");
    }
}
