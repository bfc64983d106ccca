//! Loads from two parts of memory on two nodes; the number of loads from each is counted.
//!
//! An emulator looks for interrupts between blocks of instructions, and a block ends with its page. So the load is the last
//! instruction of a page: it is interrupted behind the load as a processor is that waits for memory.

use std::arch::global_asm;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::pages::Pages;
use super::{say, stop_flag, wait_for_go};
use crate::affinity;

/// Loads between two looks at whether to stop.
const ROUNDS: u64 = 100_000;

/// A part of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub mib: u64,
    pub node: u32,
}

unsafe extern "C" {
    /// Loads `rounds` words: those of the first `first` bytes with a probability of `chance` in 65,536, else those of the
    /// `second` bytes behind. Returns how many loads went to the first. `state` is that of xorshift64 (Marsaglia 2003).
    fn vmtests_loads(
        memory: *const u64,
        first: usize,
        second: usize,
        chance: u64,
        rounds: u64,
        state: *mut u64,
    ) -> u64;
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.vmtests_loads, \"ax\"",
    ".globl vmtests_loads",
    "vmtests_loads:",
    "push rbx",
    "push r12",
    "xor ebx, ebx",
    "mov r10, rdx",
    "mov r11, [r9]",
    "jmp 2f",
    ".balign 4096",
    ".skip 4096 - (3f - 2f)",
    "2:",
    "mov rax, r11",
    "shl rax, 13",
    "xor r11, rax",
    "mov rax, r11",
    "shr rax, 7",
    "xor r11, rax",
    "mov rax, r11",
    "shl rax, 17",
    "xor r11, rax",
    // The part, its length and where it begins.
    "movzx eax, r11w",
    "xor edx, edx",
    "cmp rax, rcx",
    "setb dl",
    "add rbx, rdx",
    "mov r12, rsi",
    "xor eax, eax",
    "test edx, edx",
    "cmovz r12, r10",
    "cmovz rax, rsi",
    // A word of this part.
    "mov rdx, r11",
    "shr rdx, 32",
    "imul rdx, r12",
    "shr rdx, 32",
    "and rdx, -8",
    "add rax, rdx",
    "mov r12, [rdi + rax]",
    "3:",
    "dec r8",
    "jnz 2b",
    "mov [r9], r11",
    "mov rax, rbx",
    "pop r12",
    "pop rbx",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.vmtests_loads, \"ax\"",
    ".globl vmtests_loads",
    "vmtests_loads:",
    "mov x9, xzr",
    "ldr x10, [x5]",
    "b 2f",
    ".balign 4096",
    ".skip 4096 - (3f - 2f)",
    "2:",
    "eor x10, x10, x10, lsl #13",
    "eor x10, x10, x10, lsr #7",
    "eor x10, x10, x10, lsl #17",
    // The part, its length and where it begins.
    "and x11, x10, #0xffff",
    "cmp x11, x3",
    "cinc x9, x9, lo",
    "csel x12, x1, x2, lo",
    "csel x13, xzr, x1, lo",
    // A word of this part.
    "lsr x11, x10, #32",
    "mul x11, x11, x12",
    "lsr x11, x11, #32",
    "and x11, x11, #0xfffffffffffffff8",
    "add x13, x13, x11",
    "ldr x14, [x0, x13]",
    "3:",
    "subs x4, x4, #1",
    "b.ne 2b",
    "str x10, [x5]",
    "mov x0, x9",
    "ret",
    ".popsection",
);

/// A thread on `cpu` makes `pct` per cent of its loads from the first part, and all others from the second.
pub fn run(cpu: u32, parts: [Part; 2], pct: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let [first, second] = parts.map(|part| (part.mib as usize) << 20);
    let pages = Pages::map(first + second)?;
    pages.bind(0..first, parts[0].node)?;
    pages.bind(first..first + second, parts[1].node)?;
    wait_for_go(&json!({"pid": std::process::id()}));
    pages.at().for_each(|page| pages.touch(page));
    // Other uses are over: all later ones are counted.
    say(&json!({"touched": true}));
    let [first, second] = load(&pages, first, pct, &stop_flag());
    Ok(json!({"first": first, "second": second}))
}

/// Loads until `stop`; returns the number of loads from the first `first` bytes, and from the rest.
fn load(pages: &Pages, first: usize, pct: u64, stop: &AtomicBool) -> [u64; 2] {
    let (mut state, mut firsts, mut all) = (0x9e37_79b9_7f4a_7c15_u64, 0, 0);
    let (memory, second) = (pages.words(), pages.bytes() - first);
    while !stop.load(Ordering::Relaxed) {
        // SAFETY: both parts together are the mapping, which lives as long as `pages`. Offsets are below
        // their length, and multiples of eight as the parts are.
        firsts += unsafe { vmtests_loads(memory, first, second, pct * 65_536 / 100, ROUNDS, &mut state) };
        all += ROUNDS;
    }
    [firsts, all - firsts]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_loads_go_to_the_first_part() {
        let memory = vec![0u64; 3000];
        let (mut state, rounds) = (1, 1_000_000);
        // SAFETY: 8,000 and 16,000 bytes are the 3,000 words.
        let firsts = unsafe { vmtests_loads(memory.as_ptr(), 8_000, 16_000, 62_259, rounds, &mut state) };
        let pct = 100.0 * firsts as f64 / rounds as f64;
        assert!((pct - 95.0).abs() < 0.2, "{pct}");
    }
}
