//! Vector instructions, executed on bytes that may be unknown: moves, comparisons, and the others of string functions.
//! None computes with floating-point numbers: their rounding is in a register that samples do not have.

mod lanes;
mod masks;

use std::cmp::Ordering;

use iced_x86::{EncodingKind, Instruction, Mnemonic as M, OpKind, Register};

use super::Read;
use super::values::{Bytes, Flags, Values, ones};

/// Bytes of the parts that most instructions treat alike.
const LANE: usize = 16;

/// An instruction, and what it reads and changes.
struct Run<'a, 'r> {
    instruction: &'a Instruction,
    values: &'a mut Values,
    flags: &'a mut Flags,
    read: &'a mut Read<'r>,
}

/// Executes an instruction; for any other kind, returns false and changes nothing.
pub(super) fn execute(
    instruction: &Instruction,
    values: &mut Values,
    flags: &mut Flags,
    read: &mut Read<'_>,
) -> bool {
    let registers = (0..instruction.op_count())
        .filter(|at| instruction.op_kind(*at) == OpKind::Register)
        .map(|at| instruction.op_register(at));
    let (mut vectors, mut all_known) = (false, true);
    for register in registers {
        vectors |= register.is_vector_register() || register.is_k();
        // MMX, x87 and tiles are not kept.
        all_known &= register.is_vector_register() || register.is_k() || register.is_gpr();
    }
    let is_zeroing = matches!(instruction.mnemonic(), M::Vzeroupper | M::Vzeroall);
    if !(all_known && vectors || is_zeroing) || instruction.is_vsib() {
        return false;
    }
    masks::execute(instruction, values, flags, read) || Run { instruction, values, flags, read }.execute()
}

impl Run<'_, '_> {
    fn execute(&mut self) -> bool {
        let instruction = self.instruction;
        let (mnemonic, count) = (instruction.mnemonic(), instruction.op_count());
        if let Some(element) = lanes::move_of(mnemonic) {
            self.copy(element);
        } else if let Some((element, lane)) = lanes::arithmetic(mnemonic) {
            self.arithmetic(element, lane);
        } else if let Some((element, relation)) = lanes::comparison(mnemonic) {
            self.compare(element, relation);
        } else if let Some((element, relation)) = lanes::mask_comparison(mnemonic, self.number()) {
            self.compare(element, relation);
        } else if let Some((element, logic)) = lanes::logic(mnemonic) {
            self.logic(element, logic);
        } else if let Some((element, upper)) = lanes::interleaved(mnemonic) {
            self.interleave(element, upper);
        } else if let Some((element, shift)) = lanes::shift(mnemonic).filter(|_| self.has_number()) {
            self.shift(element, shift);
        } else {
            match mnemonic {
                M::Movd | M::Vmovd => self.word(4),
                M::Movq | M::Vmovq => self.word(8),
                M::Movss | M::Vmovss | M::Movsd | M::Vmovsd if self.is_masked() => return false,
                M::Movss | M::Vmovss => self.scalar(4),
                M::Movsd | M::Vmovsd => self.scalar(8),
                M::Movlps | M::Movlpd if count == 2 => self.half(0),
                M::Movhps | M::Movhpd if count == 2 => self.half(8),
                M::Movhlps if count == 2 => self.move_half(8, 0),
                M::Movlhps if count == 2 => self.move_half(0, 8),
                M::Pmovmskb | M::Vpmovmskb => self.signs(1),
                M::Movmskps | M::Vmovmskps => self.signs(4),
                M::Movmskpd | M::Vmovmskpd => self.signs(8),
                M::Ptest | M::Vptest => self.test(),
                M::Vpternlogd => self.ternary(4),
                M::Vpternlogq => self.ternary(8),
                M::Pslldq | M::Vpslldq | M::Psrldq | M::Vpsrldq => self.shift_bytes(),
                M::Palignr | M::Vpalignr => self.align(),
                M::Pshufb | M::Vpshufb => self.shuffle_bytes(),
                M::Pshufd | M::Vpshufd => self.shuffle_words(),
                M::Vpbroadcastb => self.broadcast(1),
                M::Vpbroadcastw => self.broadcast(2),
                M::Vpbroadcastd | M::Vbroadcastss => self.broadcast(4),
                M::Vpbroadcastq | M::Vbroadcastsd => self.broadcast(8),
                M::Vbroadcastf128 | M::Vbroadcasti128 => self.broadcast(LANE),
                M::Vinserti128 | M::Vinsertf128 => self.insert_lane(),
                M::Vextracti128 | M::Vextractf128 => self.extract_lane(),
                M::Pinsrb | M::Vpinsrb => self.insert(1),
                M::Pinsrw | M::Vpinsrw => self.insert(2),
                M::Pinsrd | M::Vpinsrd => self.insert(4),
                M::Pinsrq | M::Vpinsrq => self.insert(8),
                M::Pextrb | M::Vpextrb => self.extract(1),
                M::Pextrw | M::Vpextrw => self.extract(2),
                M::Pextrd | M::Vpextrd => self.extract(4),
                M::Pextrq | M::Vpextrq => self.extract(8),
                M::Comiss | M::Ucomiss | M::Vcomiss | M::Vucomiss => self.compare_floats(4),
                M::Comisd | M::Ucomisd | M::Vcomisd | M::Vucomisd => self.compare_floats(8),
                M::Vzeroupper => self.zero_from(LANE),
                M::Vzeroall => self.zero_from(0),
                _ => return false,
            }
        }
        true
    }

    /// The number at the end of an instruction, where it has one.
    fn number(&self) -> u8 {
        if self.has_number() { self.instruction.immediate8() } else { 0 }
    }

    fn has_number(&self) -> bool {
        let last = self.instruction.op_count().checked_sub(1);
        last.is_some_and(|last| self.instruction.op_kind(last) == OpKind::Immediate8)
    }

    fn is_masked(&self) -> bool {
        self.instruction.op_mask() != Register::None
    }

    /// A bit for each element that is written or read; `None`: the mask is not known.
    fn mask(&self) -> Option<u64> {
        match self.instruction.op_mask() {
            Register::None => Some(u64::MAX),
            mask => self.values.masks[mask.number()],
        }
    }

    /// Bytes of the register at a place.
    fn length(&self, at: u32) -> usize {
        self.instruction.op_register(at).size().min(64)
    }

    /// A vector, a general register, or memory, of `length` bytes and of elements that a mask may exclude.
    fn get(&mut self, at: u32, length: usize, element: usize) -> Bytes {
        let register = self.instruction.op_register(at);
        match self.instruction.op_kind(at) {
            OpKind::Memory => self.memory(length, element),
            _ if register.is_vector_register() => self.values.vectors[register.number()].first(length),
            _ => Bytes::of_word(self.values.register(register), register.size()),
        }
    }

    fn memory(&mut self, length: usize, element: usize) -> Bytes {
        let address = self.values.operand_address(self.instruction);
        let size = self.instruction.memory_size();
        if self.instruction.is_broadcast() {
            let size = size.element_size().clamp(1, 8);
            let word = self.values.load(address, size, self.read);
            let mut all = Bytes::ZERO;
            (0..length / size).for_each(|at| all.set_word(at * size, size, word));
            return all;
        }
        // An element that is not wanted is not read, and may be where nothing is mapped.
        let size = size.size().min(length);
        let wanted = self.mask().map_or(0, |mask| bytes_of(mask, element)) & ones(size);
        self.values.load_bytes(address, wanted, self.read).first(size)
    }

    /// Writes a vector register: elements of a mask only, and zero or what was there behind its length.
    fn put(&mut self, result: &Bytes, length: usize, element: usize) {
        let register = self.instruction.op0_register();
        if !register.is_vector_register() {
            return;
        }
        let old = self.values.vectors[register.number()];
        let keeps = self.instruction.encoding() == EncodingKind::Legacy;
        let (mask, zeroing) = (self.mask(), self.instruction.zeroing_masking());
        let mut new = if keeps { old } else { Bytes::ZERO };
        for byte in 0..length {
            let value = match mask.map(|mask| mask >> (byte / element) & 1 == 1) {
                None => None,
                Some(true) => result.get(byte),
                Some(false) if zeroing => Some(0),
                Some(false) => old.get(byte),
            };
            new.set(byte, value);
        }
        self.values.vectors[register.number()] = new;
    }

    fn put_mask(&mut self, mask: Option<u64>) {
        self.values.masks[self.instruction.op0_register().number()] = mask;
    }

    /// Stores the first bytes of a vector where the first operand is.
    fn store(&mut self, bytes: &Bytes, length: usize, element: usize) {
        let address = self.values.operand_address(self.instruction);
        match self.mask() {
            Some(mask) => self.values.store_bytes(address, bytes, bytes_of(mask, element) & ones(length)),
            None => self.values.store_bytes(address, &Bytes::UNKNOWN, ones(length)),
        }
    }

    /// The places of the two vectors that a result is made of: with two operands the first is one of them.
    fn sources(&self) -> (u32, u32) {
        let takes_number = self.has_number();
        if self.instruction.op_count() - u32::from(takes_number) >= 3 { (1, 2) } else { (0, 1) }
    }

    fn two(&mut self, length: usize, element: usize) -> (Bytes, Bytes) {
        let (one, other) = self.sources();
        (self.get(one, length, element), self.get(other, length, element))
    }

    /// Whether both vectors are one register.
    fn with_itself(&self) -> bool {
        let (one, other) = self.sources();
        self.instruction.op_kind(other) == OpKind::Register
            && self.instruction.op_register(one) == self.instruction.op_register(other)
    }

    fn copy(&mut self, element: usize) {
        if self.instruction.op0_kind() == OpKind::Memory {
            let length = self.length(1);
            let bytes = self.get(1, length, element);
            return self.store(&bytes, length, element);
        }
        let length = self.length(0);
        let bytes = self.get(1, length, element);
        self.put(&bytes, length, element);
    }

    fn arithmetic(&mut self, element: usize, lane: lanes::Lane) {
        let length = self.length(0);
        let is_zero = self.with_itself() && lanes::cancels(self.instruction.mnemonic());
        let (one, other) = if is_zero { (Bytes::ZERO, Bytes::ZERO) } else { self.two(length, element) };
        let mut result = Bytes::ZERO;
        for at in (0..length).step_by(element) {
            let word = one.word(at, element).zip(other.word(at, element));
            result.set_word(at, element, word.map(|(one, other)| lane(one, other, element)));
        }
        self.put(&result, length, element);
    }

    /// Into a mask, or into a vector with all bits of an element.
    fn compare(&mut self, element: usize, relation: lanes::Relation) {
        let (first, _) = self.sources();
        let length = self.length(first);
        // Of an element and itself all that relations differ in is whether they include equality; vptestm does not compare.
        let is_test = matches!(
            self.instruction.mnemonic(),
            M::Vptestmb
                | M::Vptestmw
                | M::Vptestmd
                | M::Vptestmq
                | M::Vptestnmb
                | M::Vptestnmw
                | M::Vptestnmd
                | M::Vptestnmq
        );
        let (one, other) = if self.with_itself() && !is_test {
            (Bytes::ZERO, Bytes::ZERO)
        } else {
            self.two(length, element)
        };
        let holds = |at: usize| {
            let words = one.word(at * element, element).zip(other.word(at * element, element));
            words.map(|(one, other)| relation(one, other, element))
        };
        let elements = length / element;
        if !self.instruction.op0_register().is_k() {
            let mut result = Bytes::ZERO;
            for at in 0..elements {
                result.set_word(
                    at * element,
                    element,
                    holds(at).map(|holds| if holds { u64::MAX } else { 0 }),
                );
            }
            return self.put(&result, length, element);
        }
        let mask = self.mask().and_then(|mask| {
            (0..elements)
                .filter(|at| mask >> at & 1 == 1)
                .try_fold(0, |found, at| Some(found | u64::from(holds(at)?) << at))
        });
        self.put_mask(mask);
    }

    fn logic(&mut self, element: usize, logic: fn(u8, u8) -> u8) {
        let length = self.length(0);
        // Zero with itself is zero for all that do not depend on it, and for no other.
        let is_zero = self.with_itself() && logic(0, 0) == logic(0xff, 0xff);
        let (one, other) = if is_zero { (Bytes::ZERO, Bytes::ZERO) } else { self.two(length, element) };
        let mut result = Bytes::ZERO;
        (0..length).for_each(|at| result.set(at, of_bits(one.get(at), other.get(at), logic)));
        self.put(&result, length, element);
    }

    fn ternary(&mut self, element: usize) {
        let (length, table) = (self.length(0), self.number());
        let first = self.get(0, length, element);
        let (second, third) = (self.get(1, length, element), self.get(2, length, element));
        let mut result = Bytes::ZERO;
        for at in 0..length {
            let value = match table {
                0 | 0xff => Some(table),
                _ => first.get(at).zip(second.get(at)).zip(third.get(at)).map(|((first, second), third)| {
                    let place =
                        |bit: u32| (first >> bit & 1) << 2 | (second >> bit & 1) << 1 | (third >> bit & 1);
                    (0..8).map(|bit| (table >> place(bit) & 1) << bit).fold(0, |all, bit| all | bit)
                }),
            };
            result.set(at, value);
        }
        self.put(&result, length, element);
    }

    /// From or to a general register, memory, or the first bytes of a vector.
    fn word(&mut self, size: usize) {
        let value = match self.instruction.op1_kind() {
            OpKind::Memory => {
                self.values.load(self.values.operand_address(self.instruction), size, self.read)
            }
            _ => self.get(1, LANE, size).word(0, size),
        };
        self.put_word(size, value);
    }

    /// Writes the first operand: a vector gets zero behind the word.
    fn put_word(&mut self, size: usize, value: Option<u64>) {
        match self.instruction.op0_kind() {
            OpKind::Memory => {
                self.values.store(self.values.operand_address(self.instruction), size, value);
            }
            _ if self.instruction.op0_register().is_gpr() => {
                self.values.set_register(self.instruction.op0_register(), value);
            }
            _ => self.put(&Bytes::of_word(value, size), LANE, LANE),
        }
    }

    /// From or to memory as [`Run::word`]; from a register the rest of the first source stays.
    fn scalar(&mut self, size: usize) {
        let of_memory = (0..2).any(|at| self.instruction.op_kind(at) == OpKind::Memory);
        if of_memory {
            return self.word(size);
        }
        let (mut one, other) = self.two(LANE, size);
        one.set_word(0, size, other.word(0, size));
        self.put(&one, LANE, LANE);
    }

    /// Eight bytes of a vector from or to memory; the others stay.
    fn half(&mut self, at: usize) {
        let address = self.values.operand_address(self.instruction);
        if self.instruction.op0_kind() == OpKind::Memory {
            let word = self.get(1, LANE, 8).word(at, 8);
            return self.values.store(address, 8, word);
        }
        let word = self.values.load(address, 8, self.read);
        let mut all = self.get(0, LANE, 8);
        all.set_word(at, 8, word);
        self.put(&all, LANE, 8);
    }

    fn move_half(&mut self, from: usize, to: usize) {
        let word = self.get(1, LANE, 8).word(from, 8);
        let mut all = self.get(0, LANE, 8);
        all.set_word(to, 8, word);
        self.put(&all, LANE, 8);
    }

    /// The uppermost bits of all elements, in a general register.
    fn signs(&mut self, element: usize) {
        let length = self.length(1);
        let bytes = self.get(1, length, element);
        let sign = |at: usize| bytes.get(at * element + element - 1).map(|byte| u64::from(byte >> 7));
        let signs = (0..length / element).try_fold(0, |found, at| Some(found | sign(at)? << at));
        self.values.set_register(self.instruction.op0_register(), signs);
    }

    fn test(&mut self) {
        let length = self.length(0);
        let (one, other) = (self.get(0, length, 1), self.get(1, length, 1));
        self.flags.clear();
        (self.flags.sf, self.flags.of, self.flags.pf) = (Some(false), Some(false), Some(false));
        let none = |logic: fn(u8, u8) -> u8| {
            (0..length)
                .try_fold(true, |none, at| Some(none & (of_bits(one.get(at), other.get(at), logic)? == 0)))
        };
        self.flags.zf = none(|one, other| one & other);
        self.flags.cf = none(|one, other| !one & other);
    }

    fn shift(&mut self, element: usize, lane: lanes::Lane) {
        let (length, count) = (self.length(0), u64::from(self.number()));
        // The vector is in front of the number: with two operands the first one.
        let from = self.instruction.op_count() - 2;
        let bytes = self.get(from, length, element);
        let mut result = Bytes::ZERO;
        for at in (0..length).step_by(element) {
            result.set_word(at, element, bytes.word(at, element).map(|word| lane(word, count, element)));
        }
        self.put(&result, length, element);
    }

    /// Writes a vector whose bytes come from others: of each byte its lane, and its place there.
    fn arrange(&mut self, length: usize, element: usize, from: impl Fn(usize, usize) -> Option<u8>) {
        let mut result = Bytes::ZERO;
        for at in 0..length {
            result.set(at, from(at / LANE * LANE, at % LANE));
        }
        self.put(&result, length, element);
    }

    fn shift_bytes(&mut self) {
        let left = matches!(self.instruction.mnemonic(), M::Pslldq | M::Vpslldq);
        let (length, count) = (self.length(0), usize::from(self.number()).min(LANE));
        let from = self.instruction.op_count() - 2;
        let bytes = self.get(from, length, 1);
        self.arrange(length, 1, |lane, at| {
            let from = if left { at.checked_sub(count) } else { Some(at + count) };
            match from.filter(|from| *from < LANE) {
                Some(from) => bytes.get(lane + from),
                None => Some(0),
            }
        });
    }

    fn align(&mut self) {
        let (length, count) = (self.length(0), usize::from(self.number()));
        let (upper, lower) = self.two(length, 1);
        self.arrange(length, 1, |lane, at| match at + count {
            from if from < LANE => lower.get(lane + from),
            from if from < 2 * LANE => upper.get(lane + from - LANE),
            _ => Some(0),
        });
    }

    fn shuffle_bytes(&mut self) {
        let length = self.length(0);
        let (bytes, places) = self.two(length, 1);
        self.arrange(length, 1, |lane, at| match places.get(lane + at)? {
            place if place & 0x80 != 0 => Some(0),
            place => bytes.get(lane + usize::from(place & 15)),
        });
    }

    fn shuffle_words(&mut self) {
        let (length, places) = (self.length(0), usize::from(self.number()));
        let bytes = self.get(1, length, 4);
        self.arrange(length, 4, |lane, at| {
            let from = places >> (at / 4 * 2) & 3;
            bytes.get(lane + from * 4 + at % 4)
        });
    }

    fn interleave(&mut self, element: usize, upper: bool) {
        let length = self.length(0);
        let (one, other) = self.two(length, element);
        let start = if upper { LANE / 2 } else { 0 };
        self.arrange(length, element, |lane, at| {
            let word = at / element;
            let from = lane + start + word / 2 * element + at % element;
            if word.is_multiple_of(2) { one.get(from) } else { other.get(from) }
        });
    }

    fn broadcast(&mut self, element: usize) {
        let length = self.length(0);
        let from = match self.instruction.op1_kind() {
            // A mask selects elements to write. All elements are read.
            OpKind::Memory => {
                let address = self.values.operand_address(self.instruction);
                self.values.load_bytes(address, ones(element), self.read)
            }
            _ => self.get(1, LANE, element),
        };
        let mut result = Bytes::ZERO;
        (0..length).for_each(|at| result.set(at, from.get(at % element)));
        self.put(&result, length, element);
    }

    fn insert_lane(&mut self) {
        let length = self.length(0);
        let at = usize::from(self.number() & 1) * LANE;
        let (mut all, lane) = (self.get(1, length, LANE), self.get(2, LANE, LANE));
        (0..LANE).for_each(|byte| all.set(at + byte, lane.get(byte)));
        self.put(&all, length, LANE);
    }

    fn extract_lane(&mut self) {
        let at = usize::from(self.number() & 1) * LANE;
        let all = self.get(1, 2 * LANE, LANE);
        let mut lane = Bytes::ZERO;
        (0..LANE).for_each(|byte| lane.set(byte, all.get(at + byte)));
        match self.instruction.op0_kind() {
            OpKind::Memory => self.store(&lane, LANE, LANE),
            _ => self.put(&lane, LANE, LANE),
        }
    }

    /// A word from a general register or memory into a vector.
    fn insert(&mut self, size: usize) {
        let (one, other) = self.sources();
        let at = usize::from(self.number()) % (LANE / size) * size;
        let word = self.get(other, size, size).word(0, size);
        let mut all = self.get(one, LANE, size);
        all.set_word(at, size, word);
        self.put(&all, LANE, LANE);
    }

    /// A word of a vector into a general register or memory.
    fn extract(&mut self, size: usize) {
        let at = usize::from(self.number()) % (LANE / size) * size;
        let word = self.get(1, LANE, size).word(at, size);
        self.put_word(size, word);
    }

    /// Comparison of two floating-point numbers: flags by Intel SDM, volume 2, UCOMISD. Numbers so small that a mode of the
    /// processor may take them for zero decide nothing.
    fn compare_floats(&mut self, size: usize) {
        let (one, other) = (self.get(0, LANE, size).word(0, size), self.get(1, LANE, size).word(0, size));
        self.flags.clear();
        (self.flags.sf, self.flags.of) = (Some(false), Some(false));
        let float = |word: u64| {
            let (value, is_small) = if size == 4 {
                let value = f32::from_bits(word as u32);
                (f64::from(value), value.is_subnormal())
            } else {
                let value = f64::from_bits(word);
                (value, value.is_subnormal())
            };
            (!is_small).then_some(value)
        };
        if let Some((one, other)) = one.and_then(float).zip(other.and_then(float)) {
            let (zero, parity, carry) = match one.partial_cmp(&other) {
                None => (true, true, true),
                Some(Ordering::Greater) => (false, false, false),
                Some(Ordering::Less) => (false, false, true),
                Some(Ordering::Equal) => (true, false, false),
            };
            (self.flags.zf, self.flags.pf, self.flags.cf) = (Some(zero), Some(parity), Some(carry));
        }
    }

    /// Zero behind the first bytes of the sixteen registers that both instructions reach.
    fn zero_from(&mut self, length: usize) {
        for vector in &mut self.values.vectors[..16] {
            *vector = vector.first(length);
        }
    }
}

/// The bytes of the elements of a mask.
fn bytes_of(mask: u64, element: usize) -> u64 {
    if mask == u64::MAX {
        return mask;
    }
    let elements = 64 / element.max(1);
    (0..elements)
        .filter(|at| mask >> at & 1 == 1)
        .fold(0, |bytes, at| bytes | ones(element) << (at * element))
}

/// The result of two bytes, bit by bit: known also where one of them alone decides it.
fn of_bits(one: Option<u8>, other: Option<u8>, logic: fn(u8, u8) -> u8) -> Option<u8> {
    match (one, other) {
        (Some(one), Some(other)) => Some(logic(one, other)),
        (Some(one), None) => Some(logic(one, 0)).filter(|result| *result == logic(one, 0xff)),
        (None, Some(other)) => Some(logic(0, other)).filter(|result| *result == logic(0xff, other)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
