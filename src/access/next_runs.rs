//! The next two runs of a sampled instruction: the addresses that it will access.

#![warn(missing_docs)]

use super::follow::{Follower, Read};
use super::outcome::{Attribution, Outcome};
use super::sample::{Decoders, Registers, UserState};
use crate::model::units::NodeId;

/// A sample whose program was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRun {
    /// The address of the sampled run.
    pub outcome: Outcome,
    /// Node of the CPU that it ran on.
    pub cpu_node: Option<NodeId>,
    /// The address of the next run, and that of the run after it, as far as they are known.
    pub runs: [Option<u64>; 2],
}

/// Addresses that the instruction of a sample accesses in its next two runs. `read` reads memory of the program; code
/// is that of the sample, as far as it goes.
pub fn next_runs(
    decoders: &Decoders,
    state: &UserState,
    attribution: Attribution,
    read: &mut Read<'_>,
) -> [Option<u64>; 2] {
    let Registers::X86(registers) = &state.registers else { return [None; 2] };
    let Some(target) = decoders.target(state, attribution) else { return [None; 2] };
    let Some(mut follower) = Follower::new(registers) else { return [None; 2] };
    let start = registers.ip.wrapping_sub(state.before as u64);
    let mut read = |address: u64, bytes: &mut [u8]| {
        let from = address.wrapping_sub(start) as usize;
        match from.checked_add(bytes.len()).and_then(|to| state.code.get(from..to)) {
            Some(code) => {
                bytes.copy_from_slice(code);
                true
            }
            None => read(address, bytes),
        }
    };
    let first = follower.next_address(target, &mut read).ok();
    [first, first.and_then(|_| follower.next_address(target, &mut read).ok())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::decode_x86;

    fn state(code: &[u8], before: usize) -> UserState {
        let mut registers = decode_x86::Registers { ip: 0x1000 + before as u64, ..Default::default() };
        registers.general[3] = 0x7000;
        // Room for the longest instruction: with less, the last ones are read from memory.
        let mut code = code.to_vec();
        code.resize(40, 0x90);
        UserState { registers: Registers::X86(registers), code: code.into(), before }
    }

    #[test]
    fn a_list_is_followed_through_memory() {
        // 1000: mov rbx,[rbx]; inc rcx; jmp 1000: the address is gone, and the loop goes on.
        let code = [0x48, 0x8b, 0x1b, 0x48, 0xff, 0xc1, 0xeb, 0xf8];
        let state = state(&code, 3);
        let mut decoders = Decoders::default();
        assert_eq!(decoders.outcome(&state, Attribution::Behind), Outcome::Gone);
        let mut read = |address: u64, bytes: &mut [u8]| {
            let word = (address == 0x7000).then(|| 0x8000u64.to_le_bytes());
            word.is_some_and(|word| {
                bytes.copy_from_slice(&word[..bytes.len()]);
                true
            })
        };
        let runs = next_runs(&decoders, &state, Attribution::Behind, &mut read);
        assert_eq!(runs, [Some(0x7000), Some(0x8000)]);
        let runs = next_runs(&decoders, &state, Attribution::Behind, &mut |_, _| false);
        assert_eq!(runs, [Some(0x7000), None], "memory cannot be read");
    }

    #[test]
    fn a_string_instruction_is_not_followed() {
        // mov rbx,[rbx]; rep movsb
        let mut state = state(&[0x48, 0x8b, 0x1b, 0xf3, 0xa4, 0x90, 0x90], 3);
        let Registers::X86(registers) = &mut state.registers else { unreachable!() };
        registers.general[1] = 100;
        let runs = next_runs(&Decoders::default(), &state, Attribution::Behind, &mut |_, _| false);
        assert_eq!(runs, [None; 2]);
    }
}
