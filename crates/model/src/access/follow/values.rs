//! Registers, memory and flags of a program that is followed: each value, byte and flag is known or not.

use std::collections::HashMap;

use iced_x86::{ConditionCode, Instruction, OpKind, Register, RflagsBits};

use super::{BYTES_MAX, Read};
use crate::access::decode_x86::{RSP, Registers};
use crate::access::sample::Stack;

/// Bytes on both sides of the stack pointer that change with each call: a later value tells nothing about the
/// time of the sample.
const STACK_NEAR: u64 = 64 * 1024;

/// Bytes of the smallest page: a read that fails may succeed in part up to its end.
const PAGE: u64 = 4096;

pub(super) struct Values {
    pub(super) general: [Option<u64>; 16],
    /// zmm0 to zmm31; xmm and ymm are their first bytes. Samples do not have them.
    pub(super) vectors: [Bytes; 32],
    /// k0 to k7. Samples do not have them either.
    pub(super) masks: [Option<u64>; 8],
    fs_base: Option<u64>,
    /// Bytes that were stored on the way; `None`: an unknown value. Sizes overlap, so each byte is kept.
    stored: HashMap<u64, Option<u8>>,
    /// A store went to an unknown address: no byte of memory is known, unless it was stored since.
    lost: bool,
    /// Bytes that string instructions may still copy.
    copies_left: u64,
    /// The top of the stack at the sample, and the stack pointer then.
    stack: Stack,
    stack_pointer: u64,
}

/// A byte of memory.
enum Own {
    /// Stored on the way, or on the stack of the sample.
    Known(u8),
    /// Stored on the way, or somewhere: its value is not known.
    Unknown,
    /// On the stack, where the sample does not have it: reading it now would say nothing.
    OfLater,
    /// To be read.
    Elsewhere,
}

/// The lowest `bytes` bytes of a value.
pub(super) fn clipped(value: u64, bytes: usize) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (bytes * 8)) - 1) }
}

impl Values {
    pub(super) fn new(registers: &Registers, stack: Stack) -> Values {
        Values {
            general: registers.general.map(Some),
            vectors: [Bytes::UNKNOWN; 32],
            masks: [None; 8],
            fs_base: Some(registers.fs_base),
            stored: HashMap::new(),
            lost: false,
            copies_left: BYTES_MAX,
            stack,
            stack_pointer: registers.general[RSP],
        }
    }

    pub(super) fn forget_fs(&mut self) {
        self.fs_base = None;
    }

    /// A register as a part of an address: general ones of 32 or 64 bits, and bases of segments.
    pub(super) fn for_address(&self, register: Register) -> Option<u64> {
        match register {
            Register::FS => self.fs_base,
            Register::GS => None,
            _ if register.is_segment_register() => Some(0),
            _ if register.is_gpr64() => self.general[register.number()],
            _ if register.is_gpr32() => self.general[register.number()].map(|value| clipped(value, 4)),
            _ => None,
        }
    }

    /// The address of the memory operand; `None` also if it is not a sum of registers.
    pub(super) fn operand_address(&self, instruction: &Instruction) -> Option<u64> {
        let address = self.sum_of_operand(instruction)?;
        Some(address.wrapping_add(self.for_address(instruction.memory_segment())?))
    }

    /// The sum that `lea` gives.
    pub(super) fn sum_of_operand(&self, instruction: &Instruction) -> Option<u64> {
        if instruction.is_vsib() {
            return None;
        }
        let mut address = instruction.memory_displacement64();
        let mut short = instruction.memory_base() == Register::EIP;
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        for (register, scale) in [(base, 1), (index, instruction.memory_index_scale())] {
            if matches!(register, Register::None | Register::RIP | Register::EIP) {
                continue;
            }
            address = address.wrapping_add(self.for_address(register)?.wrapping_mul(u64::from(scale)));
            short |= register.is_gpr32();
        }
        Some(if short { clipped(address, 4) } else { address })
    }

    /// Bytes of an operand; 0 unless it is a general register or memory.
    pub(super) fn size(&self, instruction: &Instruction, at: u32) -> usize {
        match instruction.op_kind(at) {
            OpKind::Register if instruction.op_register(at).is_gpr() => instruction.op_register(at).size(),
            OpKind::Memory => instruction.memory_size().size(),
            _ => 0,
        }
    }

    /// The value of an operand: a general register, memory of up to eight bytes, or a number.
    pub(super) fn read(&self, instruction: &Instruction, at: u32, read: &mut Read<'_>) -> Option<u64> {
        match instruction.op_kind(at) {
            OpKind::Register => self.register(instruction.op_register(at)),
            OpKind::Memory => {
                let (address, size) = (self.operand_address(instruction), instruction.memory_size().size());
                if size == 0 || size > 8 {
                    return None;
                }
                let is_of_thread = instruction.memory_segment() == Register::FS;
                self.bytes_at(address, ones(size), is_of_thread, read).word(0, size)
            }
            _ => instruction.try_immediate(at).ok(),
        }
    }

    /// A general register of any size.
    pub(super) fn register(&self, register: Register) -> Option<u64> {
        if !register.is_gpr() {
            return None;
        }
        let value = self.general[register.full_register().number()]?;
        Some(if is_high(register) { value >> 8 & 0xff } else { clipped(value, register.size()) })
    }

    /// Writes an operand: as the processor does, 32 bits clear the upper half and fewer keep the others.
    pub(super) fn write(&mut self, instruction: &Instruction, at: u32, value: Option<u64>) {
        match instruction.op_kind(at) {
            OpKind::Register => self.set_register(instruction.op_register(at), value),
            OpKind::Memory => {
                self.store(self.operand_address(instruction), instruction.memory_size().size(), value);
            }
            _ => {}
        }
    }

    pub(super) fn set_register(&mut self, register: Register, value: Option<u64>) {
        if !register.is_gpr() {
            return;
        }
        let full = &mut self.general[register.full_register().number()];
        let merge = |mask: u64, shift: u32| Some(((*full)? & !mask) | (value? << shift & mask));
        *full = match register.size() {
            8 => value,
            4 => value.map(|value| clipped(value, 4)),
            2 => merge(0xffff, 0),
            _ if is_high(register) => merge(0xff00, 8),
            _ => merge(0xff, 0),
        };
    }

    pub(super) fn load(&self, address: Option<u64>, size: usize, read: &mut Read<'_>) -> Option<u64> {
        if size == 0 || size > 8 {
            return None;
        }
        self.load_bytes(address, ones(size), read).word(0, size)
    }

    /// The bytes at an address selected by the bits of `wanted`, as far as they are known; all others are
    /// unknown.
    pub(super) fn load_bytes(&self, address: Option<u64>, wanted: u64, read: &mut Read<'_>) -> Bytes {
        self.bytes_at(address, wanted, false, read)
    }

    /// The same. Thread-local variables are behind the thread's stack, and not part of it.
    fn bytes_at(&self, address: Option<u64>, wanted: u64, is_of_thread: bool, read: &mut Read<'_>) -> Bytes {
        let mut found = Bytes::UNKNOWN;
        let Some(address) = address.filter(|_| wanted != 0) else { return found };
        let at = |byte: usize| address.wrapping_add(byte as u64);
        let mut missing = 0_u64;
        for byte in (0..64).filter(|byte| wanted >> byte & 1 == 1) {
            match self.own(at(byte)) {
                Own::Known(value) => found.set(byte, Some(value)),
                Own::Elsewhere => missing |= 1 << byte,
                Own::OfLater if is_of_thread => missing |= 1 << byte,
                Own::OfLater | Own::Unknown => {}
            }
        }
        if missing == 0 {
            return found;
        }
        let (first, end) = (missing.trailing_zeros() as usize, 64 - missing.leading_zeros() as usize);
        let mut bytes = [0; 64];
        let mut readable = [false; 64];
        if read(at(first), &mut bytes[first..end]) {
            readable[first..end].fill(true);
        } else {
            // One of two pages may be there.
            let border = first + (PAGE - at(first) % PAGE) as usize;
            if border < end {
                for part in [first..border, border..end] {
                    let is_there = read(at(part.start), &mut bytes[part.clone()]);
                    readable[part].fill(is_there);
                }
            }
        }
        for byte in (first..end).filter(|byte| missing >> byte & 1 == 1 && readable[*byte]) {
            found.set(byte, Some(bytes[byte]));
        }
        found
    }

    /// A byte, if it is known without a read of memory.
    fn own(&self, address: u64) -> Own {
        match self.stored.get(&address) {
            Some(Some(stored)) => return Own::Known(*stored),
            Some(None) => return Own::Unknown,
            None if self.lost => return Own::Unknown,
            None => {}
        }
        if let Some(value) = self.stack.get(address) {
            return Own::Known(value);
        }
        let is_near = address.wrapping_sub(self.stack_pointer.wrapping_sub(STACK_NEAR)) < 2 * STACK_NEAR;
        // The descriptor of a thread, which ends its stack.
        let is_behind = self.fs_base.is_some_and(|base| base > self.stack_pointer && address >= base);
        if is_near && !is_behind { Own::OfLater } else { Own::Elsewhere }
    }

    /// The word at an address, if the sample or a store on the way has all its bytes.
    fn own_word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        for (byte, place) in bytes.iter_mut().zip(0..) {
            let Own::Known(value) = self.own(address.wrapping_add(place)) else { return None };
            *byte = value;
        }
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn store(&mut self, address: Option<u64>, size: usize, value: Option<u64>) {
        let Some(address) = address else { return self.lose() };
        for byte in 0..size {
            let value = value.filter(|_| byte < 8).map(|value| (value >> (byte * 8)) as u8);
            self.stored.insert(address.wrapping_add(byte as u64), value);
        }
    }

    /// Stores the bytes selected by the bits of `wanted`.
    pub(super) fn store_bytes(&mut self, address: Option<u64>, bytes: &Bytes, wanted: u64) {
        let Some(address) = address else { return self.lose() };
        for byte in (0..64).filter(|byte| wanted >> byte & 1 == 1) {
            self.stored.insert(address.wrapping_add(byte as u64), bytes.get(byte));
        }
    }

    /// Whether a string instruction may copy this many bytes; they count from now on.
    pub(super) fn may_copy(&mut self, bytes: u64) -> bool {
        let left = self.copies_left.checked_sub(bytes);
        self.copies_left = left.unwrap_or(self.copies_left);
        left.is_some()
    }

    fn lose(&mut self) {
        self.lost = true;
        self.stored.clear();
    }

    pub(super) fn push(&mut self, value: Option<u64>, size: usize) {
        self.move_stack((size as u64).wrapping_neg());
        self.store(self.general[RSP], size, value);
    }

    pub(super) fn pop(&mut self, size: usize, read: &mut Read<'_>) -> Option<u64> {
        let value = self.load(self.general[RSP], size, read);
        self.move_stack(size as u64);
        value
    }

    /// The address that a return goes to: from the sample, or from a call on the way. Read late, it may be that of another
    /// call.
    pub(super) fn pop_return(&mut self) -> Option<u64> {
        let target = self.general[RSP].and_then(|rsp| self.own_word(rsp));
        self.move_stack(8);
        target
    }

    pub(super) fn move_stack(&mut self, by: u64) {
        self.general[RSP] = self.general[RSP].map(|rsp| rsp.wrapping_add(by));
    }
}

/// ah, ch, dh, bh.
fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::CH | Register::DH | Register::BH)
}

/// A register of 64 bytes.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// 0 where it is not known.
    bytes: [u8; 64],
    /// A bit for each byte that is known.
    known: u64,
}

/// The lowest `count` bits, of 64 at most.
pub(super) fn ones(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Bytes {
    pub(super) const UNKNOWN: Bytes = Bytes { bytes: [0; 64], known: 0 };
    pub(super) const ZERO: Bytes = Bytes { bytes: [0; 64], known: u64::MAX };

    /// A word of `size` bytes, followed by zeros.
    pub(super) fn of_word(word: Option<u64>, size: usize) -> Bytes {
        let mut all = Bytes::ZERO;
        all.set_word(0, size, word);
        all
    }

    pub(super) fn get(&self, at: usize) -> Option<u8> {
        (self.known >> at & 1 == 1).then(|| self.bytes[at])
    }

    pub(super) fn set(&mut self, at: usize, byte: Option<u8>) {
        self.bytes[at] = byte.unwrap_or(0);
        self.known = self.known & !(1 << at) | u64::from(byte.is_some()) << at;
    }

    /// The word of `size` bytes from the byte `at` on; eight bytes at most.
    pub(super) fn word(&self, at: usize, size: usize) -> Option<u64> {
        let wanted = ones(size) << at;
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes[at..at + size]);
        (self.known & wanted == wanted).then(|| u64::from_le_bytes(word))
    }

    pub(super) fn set_word(&mut self, at: usize, size: usize, word: Option<u64>) {
        for byte in 0..size {
            self.set(at + byte, word.map(|word| (word >> (8 * byte)) as u8));
        }
    }

    /// Its first bytes, and zero behind them.
    pub(super) fn first(mut self, length: usize) -> Bytes {
        if length < 64 {
            self.bytes[length..].fill(0);
            self.known |= !ones(length);
        }
        self
    }

    /// Each byte, where any is known.
    pub(super) fn known(&self) -> Option<[Option<u8>; 64]> {
        (self.known != 0).then(|| std::array::from_fn(|at| self.get(at)))
    }
}

/// Carry, parity, zero, sign and overflow, and the direction of string instructions. The auxiliary carry decides no
/// branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) cf: Option<bool>,
    pub(super) pf: Option<bool>,
    pub(super) zf: Option<bool>,
    pub(super) sf: Option<bool>,
    pub(super) of: Option<bool>,
    /// String instructions go down.
    pub(super) df: Option<bool>,
}

impl Flags {
    /// From rflags.
    pub(super) fn from_bits(bits: u64) -> Flags {
        let bit = |at: u32| Some(bits >> at & 1 == 1);
        Flags { cf: bit(0), pf: bit(2), zf: bit(6), sf: bit(7), of: bit(11), df: bit(10) }
    }

    /// Makes all but the direction unknown.
    pub(super) fn clear(&mut self) {
        *self = Flags { df: self.df, ..Flags::default() };
    }

    /// Zero, sign and parity of a result of `bits` bits.
    pub(super) fn set_result(&mut self, result: u64, bits: u32) {
        self.zf = Some(result == 0);
        self.sf = Some(result >> (bits - 1) & 1 == 1);
        self.pf = Some((result as u8).count_ones().is_multiple_of(2));
    }

    /// Makes those in a set of [`RflagsBits`] unknown.
    pub(super) fn forget(&mut self, modified: u32) {
        for (flag, bit) in [
            (&mut self.cf, RflagsBits::CF),
            (&mut self.pf, RflagsBits::PF),
            (&mut self.zf, RflagsBits::ZF),
            (&mut self.sf, RflagsBits::SF),
            (&mut self.of, RflagsBits::OF),
            (&mut self.df, RflagsBits::DF),
        ] {
            if modified & bit != 0 {
                *flag = None;
            }
        }
    }

    /// Whether a condition holds, where that is known.
    pub(super) fn holds(&self, condition: ConditionCode) -> Option<bool> {
        let either = |one: Option<bool>, other: Option<bool>| match (one, other) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        let less = || Some(self.sf? != self.of?);
        let not = |value: Option<bool>| value.map(|value| !value);
        match condition {
            ConditionCode::None => None,
            ConditionCode::o => self.of,
            ConditionCode::no => not(self.of),
            ConditionCode::b => self.cf,
            ConditionCode::ae => not(self.cf),
            ConditionCode::e => self.zf,
            ConditionCode::ne => not(self.zf),
            ConditionCode::be => either(self.cf, self.zf),
            ConditionCode::a => not(either(self.cf, self.zf)),
            ConditionCode::s => self.sf,
            ConditionCode::ns => not(self.sf),
            ConditionCode::p => self.pf,
            ConditionCode::np => not(self.pf),
            ConditionCode::l => less(),
            ConditionCode::ge => not(less()),
            ConditionCode::le => either(self.zf, less()),
            ConditionCode::g => not(either(self.zf, less())),
        }
    }
}
