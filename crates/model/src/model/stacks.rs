//! Stacks that were sampled, and the names of their frames.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::coded::{Numbered, coded};
use super::process::ProcessId;
use super::sample::Comm;

/// The GNU build id, by which a linker identifies a file; shorter ones are filled with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BuildId(pub [u8; 20]);

impl fmt::Display for BuildId {
    /// As file(1) and the folders of debug files write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One frame of a stack, as the kernel saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// An address of the kernel.
    Kernel(u64),
    /// An offset into the file with this build id.
    File(BuildId, u64),
    /// An address of the process, in memory that is no file or one without a build id.
    Address(u64),
}

/// The stack of one task at one sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stack {
    /// The process of the task.
    pub process: ProcessId,
    /// Thread id.
    pub tid: u32,
    /// Id of its cgroup.
    pub cgroup_id: u64,
    /// Of the process, not of the thread.
    pub comm: Comm,
    /// Number of samples that saw it so.
    pub samples: u64,
    /// Innermost first, the kernel before the user's.
    pub frames: Vec<Frame>,
}

/// Something that has a name: a frame, and for an address whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CodePlace {
    /// An address of the kernel.
    Kernel(u64),
    /// An offset into the file with this build id.
    File(BuildId, u64),
    /// An address of this process.
    Address(ProcessId, u64),
}

/// The name of a place. Texts are clean: they can be shown as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Function {
    /// `None`: the name is unknown.
    pub name: Option<String>,
    /// The file, "kernel", or a word in brackets for anything else.
    pub module: String,
    /// It is a part of the kernel.
    pub kernel: bool,
}

// Accesses are those of user code.
coded!(Function { name: Numbered, module: Numbered }, rest Function::default(), most 1000, "functions");

impl Function {
    /// Memory that it takes, in bytes, including the overhead of each in a set of shared ones.
    pub fn bytes(&self) -> usize {
        let shared = 4 * size_of::<usize>();
        size_of::<Function>() + shared + self.name.as_ref().map_or(0, String::len) + self.module.len()
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "? in {}", self.module),
        }
    }
}

/// Stacks that were sampled since the last question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackBatch {
    /// The event, and how often a second each CPU is sampled.
    pub event: String,
    /// See `event`.
    pub hz: u32,
    /// Each different stack once.
    pub stacks: Vec<Stack>,
    /// Places that have a name now. Places of one function share it.
    pub names: Vec<(CodePlace, Arc<Function>)>,
    /// Samples that are missing or not whole since the start, by cause.
    pub lost: BTreeMap<String, u64>,
}

impl Stack {
    /// The frames as something to be named. A caller is where it will go on: its call is the byte before.
    pub fn places(&self) -> impl Iterator<Item = CodePlace> + '_ {
        let process = self.process;
        let mut inside_kernel = None;
        self.frames.iter().map(move |frame| {
            let is_kernel = matches!(frame, Frame::Kernel(_));
            // The first of each kind was interrupted there; the others called.
            let back = u64::from(inside_kernel == Some(is_kernel));
            inside_kernel = Some(is_kernel);
            match frame {
                Frame::Kernel(address) => CodePlace::Kernel(address.saturating_sub(back)),
                Frame::File(id, offset) => CodePlace::File(*id, offset.saturating_sub(back)),
                Frame::Address(address) => CodePlace::Address(process, address.saturating_sub(back)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_looked_up_where_they_call() {
        let id = BuildId([1; 20]);
        let frames = vec![Frame::Kernel(10), Frame::Kernel(20), Frame::File(id, 30), Frame::Address(40)];
        let stack = Stack { process: (1, 2), tid: 1, cgroup_id: 0, comm: Comm::new("x"), samples: 1, frames };
        let places: Vec<CodePlace> = stack.places().collect();
        let expected = [
            CodePlace::Kernel(10),
            CodePlace::Kernel(19),
            CodePlace::File(id, 30),
            CodePlace::Address((1, 2), 39),
        ];
        assert_eq!(places, expected);
    }
}
