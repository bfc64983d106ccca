//! The x86 instruction that ran before an interrupted one, found in the bytes around it.

#![warn(missing_docs)]

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::sample::Code;

/// The most bytes of code in front that are looked at.
pub const BEFORE: usize = 48;
/// The most bytes of code from the interrupted instruction on that are looked at.
pub const FROM: usize = 80;

/// Instructions that a conditional branch behind them is fused with, so that both retire as one.
const FUSED: [Mnemonic; 9] = [
    Mnemonic::Cmp,
    Mnemonic::Test,
    Mnemonic::Add,
    Mnemonic::Sub,
    Mnemonic::And,
    Mnemonic::Inc,
    Mnemonic::Dec,
    Mnemonic::Or,
    Mnemonic::Xor,
];

/// The way to the interrupted instruction.
#[derive(Debug, PartialEq, Eq)]
pub enum Previous {
    /// This instruction ran before it.
    Instruction(Instruction),
    /// A conditional branch that is fused with nothing.
    Branch,
    /// A call, a return, a jump or a system call.
    Elsewhere,
    /// No chain of instructions ends there.
    Unknown,
}

/// The first instruction in `bytes`; `None` where it is invalid or cut off.
pub fn decode(bits: u32, bytes: &[u8], ip: u64) -> Option<Instruction> {
    let instruction = Decoder::with_ip(bits, bytes, ip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Whether a call of 64-bit code ends with these bytes.
pub fn ends_with_call(bytes: &[u8]) -> bool {
    // The shortest one has two bytes, the longest one a prefix, a SIB byte and four bytes of displacement.
    (2..=8).filter_map(|len| bytes.len().checked_sub(len)).any(|from| {
        let call = decode(64, &bytes[from..], 0);
        call.is_some_and(|call| {
            let is_call = matches!(call.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            is_call && call.len() == bytes.len() - from
        })
    })
}

/// The instruction that ran before the one at `ip`, in code of `bits` (64 or 32).
pub fn previous(bits: u32, code: Code<'_>, ip: u64) -> Previous {
    if let Some((branch, before)) = end_of_loop(bits, code.from, ip) {
        return judge(branch, || before);
    }
    match ending_at(bits, code.before, ip) {
        None => Previous::Unknown,
        Some(last) => judge(last, || {
            let shorter = code.before.len() - last.len();
            ending_at(bits, &code.before[..shorter], last.ip())
        }),
    }
}

fn judge(last: Instruction, before: impl FnOnce() -> Option<Instruction>) -> Previous {
    match last.flow_control() {
        FlowControl::Next => Previous::Instruction(last),
        FlowControl::ConditionalBranch => match before() {
            Some(flags) if FUSED.contains(&flags.mnemonic()) => Previous::Instruction(flags),
            _ => Previous::Branch,
        },
        _ => Previous::Elsewhere,
    }
}

/// A direct branch to `ip` in the code from `ip` on, and the instruction before it: `ip` is the head of a
/// loop.
fn end_of_loop(bits: u32, from: &[u8], ip: u64) -> Option<(Instruction, Option<Instruction>)> {
    let mut decoder = Decoder::with_ip(bits, &from[..from.len().min(FROM)], ip, DecoderOptions::NONE);
    let mut before = None;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let branch = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let direct = matches!(
            instruction.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        );
        if branch && direct && instruction.near_branch_target() == ip {
            return Some((instruction, before));
        }
        before = Some(instruction);
    }
    None
}

/// The last instruction of the code that ends at `ip`. Lengths vary, so chains are decoded from every offset.
/// Each chain that ends at `ip` votes for its last instruction. Chains that begin inside an instruction soon
/// fall in step with the right one.
fn ending_at(bits: u32, before: &[u8], ip: u64) -> Option<Instruction> {
    let before = &before[before.len().saturating_sub(BEFORE)..];
    let length = before.len();
    let start = ip.wrapping_sub(length as u64);
    // The last instruction of the chain from each offset, from the end to the front.
    let mut last_of = [None::<u8>; BEFORE];
    let mut votes = [0u8; BEFORE];
    // One decoder for all: making one takes longer than decoding.
    let mut decoder = Decoder::with_ip(bits, before, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    for offset in (0..length).rev() {
        if decoder.set_position(offset).is_err() {
            continue;
        }
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            continue;
        }
        let next = offset + instruction.len();
        last_of[offset] =
            if next == length { Some(offset as u8) } else { last_of.get(next).copied().flatten() };
        if let Some(last) = last_of[offset] {
            votes[usize::from(last)] += 1;
        }
    }
    // Of two with as many votes the longer one: the other lacks its prefix.
    let best = (0..length).rev().max_by_key(|offset| votes[*offset])?;
    if votes[best] == 0 {
        return None;
    }
    decode(bits, &before[best..], start.wrapping_add(best as u64))
}
