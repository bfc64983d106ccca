//! The next two runs of a sampled instruction: the addresses that it will access.

#![warn(missing_docs)]

use super::follow::{Follower, Read};
use super::sample::{Attribution, Decoders, Outcome, Registers, UserState};
use crate::model::access::next_runs::GaveUp;
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
    /// Why that of the next run is not known; `None` also where the program could not be followed at all.
    pub end: Option<GaveUp>,
}

/// Addresses that the instruction of a sample accesses in its next two runs, and why it has none. `read` reads memory of the program;
/// code is that of the sample, as far as it goes.
pub fn next_runs(
    decoders: &Decoders,
    state: &UserState,
    attribution: Attribution,
    read: &mut Read<'_>,
) -> ([Option<u64>; 2], Option<GaveUp>) {
    const NOWHERE: ([Option<u64>; 2], Option<GaveUp>) = ([None; 2], None);
    let Registers::X86(registers) = &state.registers else { return NOWHERE };
    let Some(target) = decoders.target(state, attribution) else { return NOWHERE };
    let Some(mut follower) = Follower::new(registers, state.stack.clone()) else { return NOWHERE };
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
    match follower.next_address(target, &mut read) {
        Ok(first) => ([Some(first), follower.next_address(target, &mut read).ok()], None),
        Err(why) => ([None; 2], Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::decode_x86::{self, RSP};
    use crate::access::sample::Stack;

    const STACK: u64 = 0x7ffd_0000_1000;

    fn state(code: &[u8], before: usize) -> UserState {
        let mut registers = decode_x86::Registers { ip: 0x1000 + before as u64, ..Default::default() };
        registers.general[3] = 0x7000;
        registers.general[RSP] = STACK;
        // Room for the longest instruction: with less, the last ones are read from memory.
        let mut code = code.to_vec();
        code.resize(40, 0x90);
        UserState { registers: Registers::X86(registers), code: code.into(), before, stack: Stack::default() }
    }

    #[test]
    fn a_list_is_followed_through_memory() {
        // 1000: mov rbx,[rbx]; inc rcx; jmp 1000: the address is gone, and the loop continues.
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
        let (runs, _) = next_runs(&decoders, &state, Attribution::Behind, &mut read);
        assert_eq!(runs, [Some(0x7000), Some(0x8000)]);
        let (runs, _) = next_runs(&decoders, &state, Attribution::Behind, &mut |_, _| false);
        assert_eq!(runs, [Some(0x7000), None], "memory cannot be read");
    }

    /// 1000: mov rax,[rdi]; inc rcx (interrupted here); ret. The stack has another return address when it is read later.
    #[test]
    fn a_return_goes_where_it_went_at_the_sample_and_nowhere_without() {
        let mut state = state(&[0x48, 0x8b, 0x07, 0x48, 0xff, 0xc1, 0xc3], 3);
        // Two callers: each calls the function again, the first with 0x9000 and the second with 0xb000.
        let caller = |rdi: u8, at: u64| {
            // mov edi, …; call 1000
            let mut code = vec![0xbf, 0, rdi, 0, 0, 0xe8];
            code.extend((0x1000_u64.wrapping_sub(at + 10) as u32).to_le_bytes());
            code.resize(32, 0x90);
            code
        };
        let (first, second) = (caller(0x90, 0x2000), caller(0xb0, 0x3000));
        let mut read = |address: u64, bytes: &mut [u8]| {
            let code = match address & !0xfff {
                0x2000 => &first,
                0x3000 => &second,
                // The thread continued: its stack now has the second caller.
                _ if address == STACK && bytes.len() == 8 => {
                    bytes.copy_from_slice(&0x3000_u64.to_le_bytes());
                    return true;
                }
                _ => return false,
            };
            let from = (address & 0xfff) as usize;
            let Some(part) = code.get(from..from + bytes.len()) else { return false };
            bytes.copy_from_slice(part);
            true
        };
        let decoders = Decoders::default();
        let (runs, end) = next_runs(&decoders, &state, Attribution::Behind, &mut read);
        assert_eq!(runs, [None; 2], "the stack of later may be that of another call");
        assert_eq!(end, Some(GaveUp::Return));
        state.stack = Stack { start: STACK, bytes: Box::from(0x2000_u64.to_le_bytes()) };
        let (runs, _) = next_runs(&decoders, &state, Attribution::Behind, &mut read);
        assert_eq!(runs[0], Some(0x9000));
    }

    /// 1000: mov rax,[rdi]; inc rcx (interrupted here); mov rdi,[rsp+8]; jmp 1000.
    #[test]
    fn a_variable_on_the_stack_is_that_of_the_sample() {
        let code = [0x48, 0x8b, 0x07, 0x48, 0xff, 0xc1, 0x48, 0x8b, 0x7c, 0x24, 0x08, 0xeb, 0xf3];
        let mut state = state(&code, 3);
        let mut later = |address: u64, bytes: &mut [u8]| {
            let is_variable = address == STACK + 8 && bytes.len() == 8;
            if is_variable {
                bytes.copy_from_slice(&0xbad0_u64.to_le_bytes());
            }
            is_variable
        };
        let decoders = Decoders::default();
        let (runs, end) = next_runs(&decoders, &state, Attribution::Behind, &mut later);
        assert_eq!((runs, end), ([None; 2], Some(GaveUp::Address)));
        let bytes: Vec<u8> = [0_u64, 0x9000].iter().flat_map(|word| word.to_le_bytes()).collect();
        state.stack = Stack { start: STACK, bytes: bytes.into() };
        assert_eq!(next_runs(&decoders, &state, Attribution::Behind, &mut later).0, [Some(0x9000); 2]);
    }

    /// 1000: mov rax,[rdi]; inc rcx (interrupted here); mov rdi,fs:[-8]; jmp 1000.
    #[test]
    fn a_variable_of_the_thread_behind_its_stack_is_read() {
        let code = [
            0x48, 0x8b, 0x07, 0x48, 0xff, 0xc1, 0x64, 0x48, 0x8b, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0xeb,
            0xef,
        ];
        let mut state = state(&code, 3);
        let Registers::X86(registers) = &mut state.registers else { unreachable!() };
        registers.fs_base = STACK + 0x1000;
        let mut read = |address: u64, bytes: &mut [u8]| {
            let is_variable = address == STACK + 0x1000 - 8 && bytes.len() == 8;
            if is_variable {
                bytes.copy_from_slice(&0x9000_u64.to_le_bytes());
            }
            is_variable
        };
        let (runs, _) = next_runs(&Decoders::default(), &state, Attribution::Behind, &mut read);
        assert_eq!(runs, [Some(0x9000); 2]);
    }

    #[test]
    fn a_string_instruction_is_not_followed() {
        // mov rbx,[rbx]; rep movsb
        let mut state = state(&[0x48, 0x8b, 0x1b, 0xf3, 0xa4, 0x90, 0x90], 3);
        let Registers::X86(registers) = &mut state.registers else { unreachable!() };
        registers.general[1] = 100;
        let (runs, _) = next_runs(&Decoders::default(), &state, Attribution::Behind, &mut |_, _| false);
        assert_eq!(runs, [None; 2]);
    }
}
