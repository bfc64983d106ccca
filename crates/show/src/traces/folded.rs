//! Folded stacks: a line for each, `program;outermost;…;innermost COUNT`, as stackcollapse of the FlameGraph tools writes them.

use std::collections::HashMap;
use std::io::{self, Write};

use super::stacks::Stacks;

/// The mark of a function of the kernel, which flame graphs colour by.
const KERNEL: &str = "_[k]";

/// Writes all stacks, in the order of their text. Processes of one name are one, as are stacks of the same functions. A
/// semicolon in a name becomes a colon.
///
/// # Errors
/// The errno of the output.
pub fn write(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    let counted = stacks.counted();
    // Text of each frame once: a stack is numbers until it is written.
    let mut words = Words::default();
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let mut sums: HashMap<Vec<u32>, u64> = HashMap::new();
    for counted in &counted {
        let mut line = vec![words.number(word(&counted.subject.comm, false))];
        for frame in counted.frames.iter().rev() {
            let number = *numbers.entry(*frame).or_insert_with(|| {
                let function = stacks.frame(*frame).function;
                words.number(word(&function.to_string(), function.kernel))
            });
            line.push(number);
        }
        let sum = sums.entry(line).or_default();
        *sum = sum.saturating_add(counted.count.samples);
    }
    let ranks = words.ranks();
    let rank = |line: &Vec<u32>| -> Vec<u32> { line.iter().map(|word| ranks[*word as usize]).collect() };
    let mut lines: Vec<(Vec<u32>, u64)> = sums.into_iter().collect();
    lines.sort_by_cached_key(|(line, _)| rank(line));
    for (line, samples) in lines {
        for (at, word) in line.iter().enumerate() {
            write!(out, "{}{}", if at > 0 { ";" } else { "" }, words.all[*word as usize])?;
        }
        writeln!(out, " {samples}")?;
    }
    Ok(())
}

fn word(text: &str, kernel: bool) -> String {
    format!("{}{}", text.replace(';', ":"), if kernel { KERNEL } else { "" })
}

/// Different words, by number.
#[derive(Default)]
struct Words {
    numbers: HashMap<String, u32>,
    all: Vec<String>,
}

impl Words {
    fn number(&mut self, word: String) -> u32 {
        let next = self.all.len() as u32;
        if let Some(number) = self.numbers.get(&word) {
            return *number;
        }
        self.all.push(word.clone());
        self.numbers.insert(word, next);
        next
    }

    /// The place of each in the order of text.
    fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|at| &self.all[*at]);
        let mut ranks = vec![0; order.len()];
        order.into_iter().enumerate().for_each(|(rank, at)| ranks[at] = rank as u32);
        ranks
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::sample::{Comm, Names};
    use crate::model::stacks::{BuildId, CodePlace, Frame, Function, Stack, StackBatch};

    const FILE: BuildId = BuildId([1; 20]);

    fn stack(pid: u32, comm: &str, samples: u64, frames: Vec<Frame>) -> Stack {
        Stack { process: (pid, 1), tid: pid, cgroup_id: 0, comm: Comm::new(comm), samples, frames }
    }

    #[test]
    fn stacks_are_outermost_first_and_names_cannot_break_a_line() {
        let function = |name: &str, kernel| {
            let module = if kernel { "kernel" } else { "app" };
            Arc::new(Function { name: Some(name.into()), module: module.into(), kernel })
        };
        // Places of callers are one byte before their address.
        let names = vec![
            (CodePlace::File(FILE, 10), function("main", false)),
            (CodePlace::File(FILE, 20), function("f(a; b) 7", false)),
            (CodePlace::File(FILE, 20 - 1), function("f(a; b) 7", false)),
            (CodePlace::Kernel(30), function("schedule", true)),
        ];
        let in_kernel = vec![Frame::Kernel(30), Frame::File(FILE, 20), Frame::File(FILE, 11)];
        let in_f = vec![Frame::File(FILE, 20), Frame::File(FILE, 11)];
        let stacks = vec![
            stack(1, "a;b", 2, in_kernel.clone()),
            stack(2, "a;b", 3, in_kernel),
            stack(1, "a;b", 4, in_f),
            stack(3, "x", 1, Vec::new()),
        ];
        let batch = StackBatch { event: "cpu-clock".into(), hz: 1, stacks, names, ..StackBatch::default() };
        let mut all = Stacks::default();
        all.add(&batch, &Names::default(), &|_| true);
        let mut text = Vec::new();
        write(&all, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "a:b;main;f(a: b) 7 4\na:b;main;f(a: b) 7;schedule_[k] 5\nx;? in [no stack] 1\n"
        );
    }
}
