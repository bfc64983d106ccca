//! Instructions of mask registers, k0 to k7.

use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

use super::super::Read;
use super::super::values::Values;
use crate::access::follow::values::{Flags, ones};

/// The result of two masks of this many bits.
type Mask = fn(u64, u64, usize) -> u64;

/// Bits of a mask that is moved.
fn moved(mnemonic: M) -> Option<usize> {
    Some(match mnemonic {
        M::Kmovb => 8,
        M::Kmovw => 16,
        M::Kmovd => 32,
        M::Kmovq => 64,
        _ => return None,
    })
}

/// Bits of two masks, and their result.
fn combined(mnemonic: M) -> Option<(usize, Mask)> {
    let and: Mask = |one, other, _| one & other;
    let or: Mask = |one, other, _| one | other;
    let xor: Mask = |one, other, _| one ^ other;
    let same: Mask = |one, other, _| !(one ^ other);
    let and_not: Mask = |one, other, _| !one & other;
    let add: Mask = |one, other, _| one.wrapping_add(other);
    // The first one goes above the second, which has half of the bits.
    let unpack: Mask = |one, other, bits| one << (bits / 2) | other & ones(bits / 2);
    Some(match mnemonic {
        M::Kandb => (8, and),
        M::Kandw => (16, and),
        M::Kandd => (32, and),
        M::Kandq => (64, and),
        M::Korb => (8, or),
        M::Korw => (16, or),
        M::Kord => (32, or),
        M::Korq => (64, or),
        M::Kxorb => (8, xor),
        M::Kxorw => (16, xor),
        M::Kxord => (32, xor),
        M::Kxorq => (64, xor),
        M::Kxnorb => (8, same),
        M::Kxnorw => (16, same),
        M::Kxnord => (32, same),
        M::Kxnorq => (64, same),
        M::Kandnb => (8, and_not),
        M::Kandnw => (16, and_not),
        M::Kandnd => (32, and_not),
        M::Kandnq => (64, and_not),
        M::Kaddb => (8, add),
        M::Kaddw => (16, add),
        M::Kaddd => (32, add),
        M::Kaddq => (64, add),
        M::Kunpckbw => (16, unpack),
        M::Kunpckwd => (32, unpack),
        M::Kunpckdq => (64, unpack),
        _ => return None,
    })
}

/// Bits of one mask that is inverted, or shifted by a number at the end.
fn changed(mnemonic: M) -> Option<(usize, Mask)> {
    let not: Mask = |one, _, _| !one;
    let left: Mask = |one, count, bits| if count >= bits as u64 { 0 } else { one << count };
    let right: Mask = |one, count, bits| if count >= bits as u64 { 0 } else { one >> count };
    Some(match mnemonic {
        M::Knotb => (8, not),
        M::Knotw => (16, not),
        M::Knotd => (32, not),
        M::Knotq => (64, not),
        M::Kshiftlb => (8, left),
        M::Kshiftlw => (16, left),
        M::Kshiftld => (32, left),
        M::Kshiftlq => (64, left),
        M::Kshiftrb => (8, right),
        M::Kshiftrw => (16, right),
        M::Kshiftrd => (32, right),
        M::Kshiftrq => (64, right),
        _ => return None,
    })
}

/// Bits of two masks that flags are made of, and whether by their union (kortest) or by their difference (ktest).
fn tested(mnemonic: M) -> Option<(usize, bool)> {
    Some(match mnemonic {
        M::Kortestb => (8, true),
        M::Kortestw => (16, true),
        M::Kortestd => (32, true),
        M::Kortestq => (64, true),
        M::Ktestb => (8, false),
        M::Ktestw => (16, false),
        M::Ktestd => (32, false),
        M::Ktestq => (64, false),
        _ => return None,
    })
}

/// Executes an instruction; for any other kind, returns false and changes nothing.
pub(super) fn execute(
    instruction: &Instruction,
    values: &mut Values,
    flags: &mut Flags,
    read: &mut Read<'_>,
) -> bool {
    let mnemonic = instruction.mnemonic();
    // A mask; a general register as far as it goes.
    let mask = |values: &Values, at: u32, bits: usize| {
        let register = instruction.op_register(at);
        let value = if register.is_k() { values.masks[register.number()] } else { values.register(register) };
        value.map(|value| value & ones(bits))
    };
    if let Some(bits) = moved(mnemonic) {
        let value = match instruction.op1_kind() {
            OpKind::Memory => values.load(values.operand_address(instruction), bits / 8, read),
            _ => mask(values, 1, bits),
        };
        match instruction.op0_kind() {
            OpKind::Memory => values.store(values.operand_address(instruction), bits / 8, value),
            _ => put(values, instruction.op0_register(), value),
        }
    } else if let Some((bits, combine)) = combined(mnemonic) {
        let is_same = instruction.op1_register() == instruction.op2_register();
        let operands = match mnemonic {
            // Of one mask twice the result does not depend on it.
            M::Kxorb | M::Kxorw | M::Kxord | M::Kxorq | M::Kxnorb | M::Kxnorw | M::Kxnord | M::Kxnorq
                if is_same =>
            {
                Some((0, 0))
            }
            _ => mask(values, 1, bits).zip(mask(values, 2, bits)),
        };
        let value = operands.map(|(one, other)| combine(one, other, bits) & ones(bits));
        put(values, instruction.op0_register(), value);
    } else if let Some((bits, change)) = changed(mnemonic) {
        let count = u64::from(instruction.immediate8());
        let value = mask(values, 1, bits).map(|one| change(one, count, bits) & ones(bits));
        put(values, instruction.op0_register(), value);
    } else if let Some((bits, by_union)) = tested(mnemonic) {
        flags.clear();
        (flags.sf, flags.of, flags.pf) = (Some(false), Some(false), Some(false));
        if let Some((one, other)) = mask(values, 0, bits).zip(mask(values, 1, bits)) {
            let (zero, carry) = if by_union {
                (one | other == 0, one | other == ones(bits))
            } else {
                (one & other == 0, !one & other == 0)
            };
            (flags.zf, flags.cf) = (Some(zero), Some(carry));
        }
    } else {
        return false;
    }
    true
}

fn put(values: &mut Values, register: Register, value: Option<u64>) {
    if register.is_k() {
        values.masks[register.number()] = value;
    } else {
        values.set_register(register, value);
    }
}
