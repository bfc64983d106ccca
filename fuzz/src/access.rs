//! Samples of memory use with any registers and any code: decoders and the follower end, soon, and say the same twice.

use numatop_ng::access::decode_a64;
use numatop_ng::access::decode_x86::{Decoder, RSP, Registers};
use numatop_ng::access::follow::Follower;
use numatop_ng::access::sample::{Attribution, Code, Outcome, Stack};

/// Runs of an instruction that are followed.
const RUNS: usize = 4;
/// Bytes of the stack below its pointer.
const RED_ZONE: u64 = 128;

/// A byte of choices, a byte for the length of code before the instruction, registers, and code. Memory is
/// the input, repeated. Returns the number of addresses found.
pub fn read(input: &[u8]) -> usize {
    let [choices, length, rest @ ..] = input else { return 0 };
    let mut words =
        rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let mut word = || words.next().unwrap_or(0);
    let (ip, flags, fs_base) = (word(), word(), word());
    let general: [u64; 16] = std::array::from_fn(|_| word());
    let code = rest.get(19 * 8..).unwrap_or(&[]);
    let (before, from) = code.split_at(usize::from(*length).min(code.len()));
    let code = Code { before, from };
    let attribution = if choices & 1 == 0 { Attribution::Behind } else { Attribution::At };
    let registers = Registers { general, ip, flags, fs_base, compat: choices & 2 != 0 };
    let mut decoder = Decoder::default();
    let outcome = decoder.outcome(&registers, code, attribution);
    assert_eq!(decoder.outcome(&registers, code, attribution), outcome);
    check(outcome);
    let a64 = decode_a64::Registers {
        general: std::array::from_fn(|number| general[number % 16]),
        sp: fs_base,
        pc: ip,
    };
    let of_a64 = decode_a64::outcome(&a64, code, attribution);
    check(of_a64);
    // Half of the inputs have a stack, of the same bytes.
    let bytes: Box<[u8]> = if choices & 4 == 0 { rest.into() } else { Box::default() };
    let stack = Stack { start: registers.general[RSP].wrapping_sub(RED_ZONE), bytes };
    let followed = follow(&registers, stack, from);
    followed + outcome.addresses().count() + of_a64.addresses().count()
}

fn check(outcome: Outcome) {
    let shares: f64 = outcome.addresses().map(|(_, share)| share).sum();
    assert!(shares == 0.0 || shares == 1.0, "{outcome:?}");
}

/// Follows to the first instruction of the code, some times.
fn follow(registers: &Registers, stack: Stack, code: &[u8]) -> usize {
    let Some(mut follower) = Follower::new(registers, stack) else { return 0 };
    let mut reads = 0usize;
    let mut memory = |address: u64, bytes: &mut [u8]| {
        reads += 1;
        assert!(bytes.len() <= 64, "{} bytes at once", bytes.len());
        for (at, byte) in bytes.iter_mut().enumerate() {
            let from = address.wrapping_sub(registers.ip).wrapping_add(at as u64);
            let Some(place) = from.checked_rem(code.len() as u64) else { return false };
            *byte = code[place as usize];
        }
        true
    };
    let found = (0..RUNS).map_while(|_| follower.next_address(registers.ip, &mut memory).ok()).count();
    // An instruction is fetched twice at most, and has two operands in memory at most; each of these may be on two pages.
    // String instructions copy 4096 bytes at most.
    assert!(reads <= RUNS * 1000 * 12 + 3 * 4096, "{reads} reads");
    found
}
