//! Loops in registers, whose instructions are known by construction, and calls of one-instruction functions, each on a
//! separate page.

use std::arch::asm;
use std::io;

use crate::known::random::Random;
use crate::sys::Code;

/// A loop without a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A subtraction and a jump.
    Loop,
    /// Additions that wait for each other.
    Additions,
    /// Additions to eight registers in turn.
    Independent,
    /// A jump on a bit that no predictor knows, with as many instructions on both ways.
    Coin,
    /// Instructions that do nothing.
    Nops,
}

/// Instructions in the body of a loop, where their number is not the point.
const BODY: u64 = 64;

impl Work {
    /// All loops.
    pub const ALL: [Work; 5] = [Work::Loop, Work::Additions, Work::Independent, Work::Coin, Work::Nops];

    /// Instructions of one round.
    pub const fn instructions(self) -> u64 {
        match self {
            Work::Loop => 2,
            Work::Additions | Work::Independent | Work::Nops => BODY + 2,
            // arm64 shifts and combines in one instruction, and tests the bit in the jump.
            Work::Coin if cfg!(target_arch = "x86_64") => 22,
            Work::Coin => 15,
        }
    }

    /// Cycles of one round where every core agrees: an addition takes one cycle.
    pub const fn cycles(self) -> Option<u64> {
        match self {
            Work::Additions => Some(BODY),
            _ => None,
        }
    }
}

/// Does `rounds` rounds of a loop; nothing for 0. Returns a number that depends on all of them, or 0.
pub fn work(kind: Work, rounds: u64) -> u64 {
    if rounds == 0 {
        return 0;
    }
    match kind {
        Work::Loop => empty(rounds),
        Work::Additions => additions(rounds),
        Work::Independent => independent(rounds),
        Work::Coin => coin(rounds),
        Work::Nops => nops(rounds),
    }
}

#[cfg(target_arch = "x86_64")]
fn empty(rounds: u64) -> u64 {
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!("2: sub {n}, 1", "jnz 2b", n = inout(reg) rounds => _, options(nomem, nostack));
    }
    0
}

#[cfg(target_arch = "aarch64")]
fn empty(rounds: u64) -> u64 {
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!("2: subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) rounds => _, options(nomem, nostack));
    }
    0
}

#[cfg(target_arch = "x86_64")]
fn additions(rounds: u64) -> u64 {
    let mut sum = 0u64;
    // SAFETY: registers only, all of them named. The second operand is a register: newer cores add constants where they
    // rename registers, in no cycle at all.
    unsafe {
        asm!(
            "2:",
            ".rept 64",
            "add {sum}, {one}",
            ".endr",
            "sub {n}, 1",
            "jnz 2b",
            sum = inout(reg) sum,
            one = in(reg) 1u64,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    sum
}

#[cfg(target_arch = "aarch64")]
fn additions(rounds: u64) -> u64 {
    let mut sum = 0u64;
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!(
            "2:",
            ".rept 64",
            "add {sum}, {sum}, {one}",
            ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            sum = inout(reg) sum,
            one = in(reg) 1u64,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    sum
}

#[cfg(target_arch = "x86_64")]
fn independent(rounds: u64) -> u64 {
    let mut sum = 0u64;
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!(
            "2:",
            ".rept 8",
            "add {sum}, {one}",
            "add r8, {one}",
            "add r9, {one}",
            "add r10, {one}",
            "add r11, {one}",
            "add rsi, {one}",
            "add rdi, {one}",
            "add rdx, {one}",
            ".endr",
            "sub {n}, 1",
            "jnz 2b",
            sum = inout(reg) sum,
            one = in(reg) 1u64,
            n = inout(reg) rounds => _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("rsi") _, out("rdi") _, out("rdx") _,
            options(nomem, nostack),
        );
    }
    sum
}

#[cfg(target_arch = "aarch64")]
fn independent(rounds: u64) -> u64 {
    let mut sum = 0u64;
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!(
            "2:",
            ".rept 8",
            "add {sum}, {sum}, {one}",
            "add x9, x9, {one}",
            "add x10, x10, {one}",
            "add x11, x11, {one}",
            "add x12, x12, {one}",
            "add x13, x13, {one}",
            "add x14, x14, {one}",
            "add x15, x15, {one}",
            ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            sum = inout(reg) sum,
            one = in(reg) 1u64,
            n = inout(reg) rounds => _,
            out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _, out("x15") _,
            options(nomem, nostack),
        );
    }
    sum
}

/// The state that coins begin with: any number but 0.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// xorshift64 (Marsaglia, 2003) and a jump on its top bit. Ways of nine instructions are too long for a core that turns
/// short ones into conditional moves. Returns nine times the jumps that were taken.
#[cfg(target_arch = "x86_64")]
fn coin(rounds: u64) -> u64 {
    let mut taken = 0u64;
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!(
            "2:",
            "mov {t}, {x}",
            "shl {t}, 13",
            "xor {x}, {t}",
            "mov {t}, {x}",
            "shr {t}, 7",
            "xor {x}, {t}",
            "mov {t}, {x}",
            "shl {t}, 17",
            "xor {x}, {t}",
            "test {x}, {x}",
            "js 3f",
            ".rept 8",
            "add {other}, {one}",
            ".endr",
            "jmp 4f",
            "3:",
            ".rept 9",
            "add {taken}, {one}",
            ".endr",
            "4:",
            "sub {n}, 1",
            "jnz 2b",
            x = inout(reg) SEED => _,
            t = out(reg) _,
            other = inout(reg) 0u64 => _,
            taken = inout(reg) taken,
            one = in(reg) 1u64,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    taken
}

/// As on x86-64.
#[cfg(target_arch = "aarch64")]
fn coin(rounds: u64) -> u64 {
    let mut taken = 0u64;
    // SAFETY: registers only, all of them named.
    unsafe {
        asm!(
            "2:",
            "eor {x}, {x}, {x}, lsl #13",
            "eor {x}, {x}, {x}, lsr #7",
            "eor {x}, {x}, {x}, lsl #17",
            "tbnz {x}, #63, 3f",
            ".rept 8",
            "add {other}, {other}, {one}",
            ".endr",
            "b 4f",
            "3:",
            ".rept 9",
            "add {taken}, {taken}, {one}",
            ".endr",
            "4:",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            x = inout(reg) SEED => _,
            other = inout(reg) 0u64 => _,
            taken = inout(reg) taken,
            one = in(reg) 1u64,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    taken
}

fn nops(rounds: u64) -> u64 {
    // SAFETY: registers only, all of them named.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "2:", ".rept 64", "nop", ".endr", "sub {n}, 1", "jnz 2b",
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    // SAFETY: as on x86.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "2:", ".rept 64", "nop", ".endr", "subs {n}, {n}, #1", "b.ne 2b",
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    0
}

/// The instruction that a function returns with.
#[cfg(target_arch = "x86_64")]
const RETURN: &[u8] = &[0xc3];

#[cfg(target_arch = "aarch64")]
const RETURN: &[u8] = &0xd65f_03c0_u32.to_le_bytes();

/// Bytes between the places of functions in their pages, so that they do not share the same few sets of a cache.
const LINE: usize = 64;

/// Functions in a random order.
pub struct Calls {
    code: Code,
    /// Places of functions, in bytes.
    order: Vec<usize>,
}

impl Calls {
    /// `functions` functions, a page each, in the order of this seed.
    ///
    /// # Errors
    /// The errno of mmap(2) or mprotect(2): EACCES where memory may not be made executable.
    pub fn new(functions: usize, seed: u64) -> io::Result<Calls> {
        let page = rustix::param::page_size();
        let mut order: Vec<usize> = (0..functions).map(|at| at * page + at * LINE % page).collect();
        let code = Code::new(functions * page, RETURN, &order)?;
        Random::new(seed).shuffle(&mut order);
        sync(&code, &order);
        Ok(Calls { code, order })
    }

    /// Calls of a pass.
    pub fn count(&self) -> u64 {
        self.order.len() as u64
    }

    /// Calls each of them once.
    pub fn pass(&self) {
        for at in &self.order {
            let Some(address) = self.code.address(*at) else { continue };
            // SAFETY: the memory is executable and holds a return there, which takes nothing and changes nothing; it lives as
            // long as `self`.
            let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn()>(address) };
            function();
        }
    }
}

/// Makes instructions that were just written visible to instruction fetches; x86 does so by itself.
#[cfg(target_arch = "x86_64")]
fn sync(_: &Code, _: &[usize]) {}

#[cfg(target_arch = "aarch64")]
fn sync(code: &Code, places: &[usize]) {
    for address in places.iter().filter_map(|at| code.address(*at)) {
        // SAFETY: maintenance of one line of our own memory.
        unsafe {
            std::arch::asm!(
                "dc cvau, {at}",
                "dsb ish",
                "ic ivau, {at}",
                "dsb ish",
                "isb",
                at = in(reg) address,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_done_and_counted() {
        assert_eq!(work(Work::Additions, 1000), 64_000);
        assert_eq!(work(Work::Independent, 1000), 8000);
        assert_eq!(Work::ALL.map(|kind| work(kind, 0)), [0; 5]);
        work(Work::Loop, 1000);
        work(Work::Nops, 1000);
        assert_eq!(Work::Additions.instructions(), Work::Additions.cycles().unwrap() + 2);
    }

    #[test]
    fn a_coin_is_fair_and_the_same_in_every_run() {
        let rounds = 1_000_000;
        let taken = work(Work::Coin, rounds);
        assert!(taken.is_multiple_of(9));
        let share = (taken / 9) as f64 / rounds as f64;
        assert!((share - 0.5).abs() < 0.002, "{share}");
        assert_eq!(taken, work(Work::Coin, rounds));
    }

    #[test]
    fn each_function_is_on_a_page_of_its_own_and_returns() {
        let calls = Calls::new(512, 1).unwrap();
        calls.pass();
        let page = rustix::param::page_size();
        let mut pages: Vec<usize> = calls.order.iter().map(|at| at / page).collect();
        assert_ne!(pages[..8], [0, 1, 2, 3, 4, 5, 6, 7], "no stride that a prefetcher knows");
        pages.sort_unstable();
        assert_eq!(pages, (0..512).collect::<Vec<_>>());
        assert!(calls.order.iter().all(|at| at % LINE == 0));
        assert_eq!(calls.count(), 512);
    }
}
