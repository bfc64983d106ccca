//! String instructions that copy or fill, repeated or not.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::Read;
use super::flags::Flags;
use super::values::Values;

/// Bytes that string instructions copy or fill on the way from one sample, at most: each takes as long as an instruction.
pub(super) const BYTES_MAX: u64 = 4096;

const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;

/// Executes an instruction; for any other kind, or if its direction is unknown, returns false and changes
/// nothing.
pub(super) fn execute(
    instruction: &Instruction,
    values: &mut Values,
    flags: &Flags,
    read: &mut Read<'_>,
) -> bool {
    let (size, copies) = match instruction.mnemonic() {
        Mnemonic::Movsb => (1, true),
        Mnemonic::Movsw => (2, true),
        Mnemonic::Movsd => (4, true),
        Mnemonic::Movsq => (8, true),
        Mnemonic::Stosb => (1, false),
        Mnemonic::Stosw => (2, false),
        Mnemonic::Stosd => (4, false),
        Mnemonic::Stosq => (8, false),
        _ => return false,
    };
    let is_plain = (0..instruction.op_count()).all(|at| match instruction.op_kind(at) {
        OpKind::MemorySegRSI => !matches!(instruction.memory_segment(), Register::FS | Register::GS),
        OpKind::MemoryESRDI | OpKind::Register => true,
        // With addresses of 32 bits.
        _ => false,
    });
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let count = if repeats { values.general[RCX] } else { Some(1) };
    let (Some(count), Some(to), Some(false)) = (count, values.general[RDI], flags.df) else { return false };
    let from = values.general[RSI];
    let bytes = count.saturating_mul(size);
    if !is_plain || copies && from.is_none() || !values.may_copy(bytes) {
        return false;
    }
    let of_register = [Register::AL, Register::AX, Register::EAX, Register::RAX];
    // Where both sides overlap, later words are copies of earlier ones.
    for at in (0..bytes).step_by(size as usize) {
        let word = match from {
            Some(from) if copies => values.load(Some(from.wrapping_add(at)), size as usize, read),
            _ => values.register(of_register[size.trailing_zeros() as usize]),
        };
        values.store(Some(to.wrapping_add(at)), size as usize, word);
    }
    values.general[RDI] = Some(to.wrapping_add(bytes));
    if copies {
        values.general[RSI] = from.map(|from| from.wrapping_add(bytes));
    }
    if repeats {
        values.general[RCX] = Some(0);
    }
    true
}
