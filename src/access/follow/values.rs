//! Registers and memory of a program that is followed: each value is known or not.

use std::collections::HashMap;

use iced_x86::{Instruction, OpKind, Register};

use super::Read;
use crate::access::decode_x86::{RSP, Registers};

pub(super) struct Values {
    pub(super) general: [Option<u64>; 16],
    fs_base: Option<u64>,
    /// Bytes that were stored on the way; `None`: an unknown value. Sizes overlap, so each byte is kept.
    stored: HashMap<u64, Option<u8>>,
    /// A store went to an unknown address: no byte of memory is known any more, unless it was stored since.
    lost: bool,
}

/// The lowest bits of a value of so many bytes.
pub(super) fn clipped(value: u64, bytes: usize) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (bytes * 8)) - 1) }
}

impl Values {
    pub(super) fn new(registers: &Registers) -> Values {
        Values {
            general: registers.general.map(Some),
            fs_base: Some(registers.fs_base),
            stored: HashMap::new(),
            lost: false,
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

    /// The address of the memory operand; `None` also for those that are no sum of registers.
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

    /// Bytes of an operand; 0 where it is none of general registers and memory.
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
                let size = instruction.memory_size().size();
                self.load(self.operand_address(instruction), size, read)
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
        let address = address?;
        let at = |byte: usize| address.wrapping_add(byte as u64);
        let mut bytes = [0; 8];
        if (0..size).any(|byte| !self.stored.contains_key(&at(byte)))
            && (self.lost || !read(address, &mut bytes[..size]))
        {
            return None;
        }
        for (place, byte) in bytes.iter_mut().enumerate().take(size) {
            if let Some(stored) = self.stored.get(&at(place)) {
                *byte = (*stored)?;
            }
        }
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn store(&mut self, address: Option<u64>, size: usize, value: Option<u64>) {
        let Some(address) = address else {
            self.lost = true;
            self.stored.clear();
            return;
        };
        for byte in 0..size {
            let value = value.filter(|_| byte < 8).map(|value| (value >> (byte * 8)) as u8);
            self.stored.insert(address.wrapping_add(byte as u64), value);
        }
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

    pub(super) fn move_stack(&mut self, by: u64) {
        self.general[RSP] = self.general[RSP].map(|rsp| rsp.wrapping_add(by));
    }
}

/// ah, ch, dh, bh.
fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::CH | Register::DH | Register::BH)
}
