//! The address that an x86 instruction accesses, from its bytes and the registers around it.

#![warn(missing_docs)]

use iced_x86::{
    Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::code_x86::{Previous, decode, previous};
use super::outcome::{Attribution, Moment, Outcome};
use super::sample::Code;

/// Registers of an interrupted thread.
#[derive(Clone, Default)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: as instructions number them.
    pub general: [u64; 16],
    /// Address of the interrupted instruction.
    pub ip: u64,
    /// rflags.
    pub flags: u64,
    /// Base of the fs segment, where thread-local storage is.
    pub fs_base: u64,
    /// The thread runs a program of 32 bits.
    pub compat: bool,
}

/// Number of rsp among general registers.
pub const RSP: usize = 4;
const RCX: usize = 1;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;

impl Registers {
    /// Bits of addresses of the program: 64 or 32.
    pub fn bits(&self) -> u32 {
        if self.compat { 32 } else { 64 }
    }

    fn word(&self) -> u64 {
        u64::from(self.bits() / 8)
    }

    fn clip(&self, address: u64) -> u64 {
        if self.compat { address & u64::from(u32::MAX) } else { address }
    }
}

/// A decoder, with memory that it uses for one instruction after the other.
pub struct Decoder {
    info: InstructionInfoFactory,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { info: InstructionInfoFactory::new() }
    }
}

impl Decoder {
    /// The address that a thread was held up by.
    pub fn outcome(&mut self, registers: &Registers, code: Code<'_>, attribution: Attribution) -> Outcome {
        if code.from.is_empty() {
            return Outcome::Unknown;
        }
        let next = decode(registers.bits(), code.from, registers.ip);
        if let Some(outcome) = next.as_ref().and_then(|next| repeated(next, registers)) {
            return outcome;
        }
        match attribution {
            Attribution::At => match &next {
                Some(next) => self.address(next, registers, Moment::Before),
                None => Outcome::Unknown,
            },
            Attribution::Behind => match previous(registers.bits(), code, registers.ip) {
                Previous::Instruction(last) => self.address(&last, registers, Moment::After),
                Previous::Branch => Outcome::Plain,
                Previous::Elsewhere => Outcome::Nowhere,
                Previous::Unknown => Outcome::Unknown,
            },
        }
    }

    /// The address that `instruction` accesses, from registers before or after it has run.
    pub fn address(&mut self, instruction: &Instruction, registers: &Registers, moment: Moment) -> Outcome {
        let info = self.info.info(instruction);
        let accesses = |memory: &UsedMemory| memory.access() != OpAccess::NoMemAccess;
        if !info.used_memory().iter().any(accesses) {
            return Outcome::Plain;
        }
        if instruction.is_vsib() || instruction.mnemonic() == Mnemonic::Enter {
            return Outcome::Gone;
        }
        let explicit = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
        if explicit {
            let (base, index) = (instruction.memory_base(), instruction.memory_index());
            let lost = moment == Moment::After && (is_written(info, base) || is_written(info, index));
            // `pop [rsp+8]` adds before it addresses.
            let moved = instruction.mnemonic() == Mnemonic::Pop && base.full_register() == Register::RSP;
            return if lost || moved { Outcome::Gone } else { operand(instruction, registers) };
        }
        if instruction.is_stack_instruction() {
            return stack(instruction, registers, moment);
        }
        implicit(info, registers, moment)
    }
}

/// The address of the instruction that a thread was held up by; `None` for one that repeats itself or is not known.
pub fn target(registers: &Registers, code: Code<'_>, attribution: Attribution) -> Option<u64> {
    let next = decode(registers.bits(), code.from, registers.ip);
    if next.as_ref().is_some_and(|next| repeated(next, registers).is_some()) {
        return None;
    }
    match attribution {
        Attribution::At => Some(registers.ip),
        Attribution::Behind => match previous(registers.bits(), code, registers.ip) {
            Previous::Instruction(last) => Some(last.ip()),
            _ => None,
        },
    }
}

/// The addresses of a string instruction that is being repeated: it is interrupted inside itself.
fn repeated(next: &Instruction, registers: &Registers) -> Option<Outcome> {
    if !next.is_string_instruction() || !(next.has_rep_prefix() || next.has_repne_prefix()) {
        return None;
    }
    // It is done before it begins.
    if registers.clip(registers.general[RCX]) == 0 {
        return None;
    }
    let address = |register: usize| registers.clip(registers.general[register]);
    let of = |kind: OpKind| (0..next.op_count()).any(|at| next.op_kind(at) == kind);
    let source = of(OpKind::MemorySegRSI) || of(OpKind::MemorySegESI);
    let target = of(OpKind::MemoryESRDI) || of(OpKind::MemoryESEDI);
    let base = if source { segment_base(next.memory_segment(), registers) } else { Some(0) };
    let Some(base) = base else { return Some(Outcome::Unknown) };
    let from = registers.clip(address(RSI).wrapping_add(base));
    Some(match (source, target) {
        (true, true) => Outcome::Pair(from, address(RDI)),
        (true, false) => Outcome::Address(from),
        (false, true) => Outcome::Address(address(RDI)),
        (false, false) => return None,
    })
}

/// Base of a segment; `None` where samples do not have it.
fn segment_base(segment: Register, registers: &Registers) -> Option<u64> {
    match segment {
        // Programs of 32 bits have a base of their own for each.
        Register::FS if !registers.compat => Some(registers.fs_base),
        Register::FS | Register::GS => None,
        _ => Some(0),
    }
}

fn is_written(info: &InstructionInfo, register: Register) -> bool {
    let full = register.full_register();
    register != Register::None
        && info.used_registers().iter().any(|used| {
            used.register().full_register() == full
                && matches!(
                    used.access(),
                    OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                )
        })
}

/// The number of a general register of at least 32 bits, and whether it has 32.
fn general(register: Register) -> Option<(usize, bool)> {
    (register.is_gpr64() || register.is_gpr32()).then(|| (register.number(), register.is_gpr32()))
}

/// Base + index · scale + displacement.
fn operand(instruction: &Instruction, registers: &Registers) -> Outcome {
    let Some(segment) = segment_base(instruction.memory_segment(), registers) else {
        return Outcome::Unknown;
    };
    // Relative to ip: the displacement is the address.
    let mut address = instruction.memory_displacement64();
    let mut short = registers.compat || instruction.memory_base() == Register::EIP;
    for (register, scale) in
        [(instruction.memory_base(), 1), (instruction.memory_index(), instruction.memory_index_scale())]
    {
        if matches!(register, Register::None | Register::RIP | Register::EIP) {
            continue;
        }
        let Some((number, narrow)) = general(register) else { return Outcome::Unknown };
        let value = registers.general[number];
        let value = if narrow { value & u64::from(u32::MAX) } else { value };
        address = address.wrapping_add(value.wrapping_mul(u64::from(scale)));
        short |= narrow;
    }
    address = address.wrapping_add(bit_offset(instruction, registers));
    let address = if short { address & u64::from(u32::MAX) } else { address };
    Outcome::Address(registers.clip(address.wrapping_add(segment)))
}

/// Bytes that the bit number in a register adds to an address (Intel SDM, volume 2, BT).
fn bit_offset(instruction: &Instruction, registers: &Registers) -> u64 {
    let takes_bits =
        matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
    if !takes_bits || instruction.op1_kind() != OpKind::Register {
        return 0;
    }
    let register = instruction.op1_register();
    let value = registers.general[register.number()];
    let offset = match register.size() {
        8 => (value as i64 >> 6) * 8,
        4 => i64::from(value as i32 >> 5) * 4,
        _ => i64::from(value as i16 >> 4) * 2,
    };
    offset as u64
}

/// push, pop and their like, which address the stack only.
fn stack(instruction: &Instruction, registers: &Registers, moment: Moment) -> Outcome {
    let rsp = registers.general[RSP];
    let address = if instruction.mnemonic() == Mnemonic::Leave {
        match moment {
            Moment::Before => registers.general[RBP],
            Moment::After => rsp.wrapping_sub(registers.word()),
        }
    } else {
        let added = i64::from(instruction.stack_pointer_increment()) as u64;
        let pops = instruction.stack_pointer_increment() > 0;
        match (moment, pops) {
            (Moment::Before, true) | (Moment::After, false) => rsp,
            (Moment::Before, false) => rsp.wrapping_add(added),
            // `pop rsp` loads it.
            (Moment::After, true) if instruction.op0_register().full_register() == Register::RSP => {
                return Outcome::Gone;
            }
            (Moment::After, true) => rsp.wrapping_sub(added),
        }
    };
    Outcome::Address(registers.clip(address))
}

/// Instructions whose address is in a register that they do not name.
fn implicit(info: &InstructionInfo, registers: &Registers, moment: Moment) -> Outcome {
    let mut found = Vec::with_capacity(2);
    for memory in info.used_memory() {
        if moment == Moment::After && (is_written(info, memory.base()) || is_written(info, memory.index())) {
            return Outcome::Gone;
        }
        let value = |register: Register, _, _| {
            if register.is_segment_register() {
                return segment_base(register, registers);
            }
            let full = registers.general.get(register.full_register().number()).copied()?;
            let mask = match register.size() {
                8 => u64::MAX,
                4 => u64::from(u32::MAX),
                1 => 0xff,
                _ => return None,
            };
            Some(full & mask)
        };
        match memory.virtual_address(0, value) {
            Some(address) => found.push(registers.clip(address)),
            None => return Outcome::Unknown,
        }
    }
    match found[..] {
        [one] => Outcome::Address(one),
        [one, other] => Outcome::Pair(one, other),
        _ => Outcome::Gone,
    }
}

#[cfg(test)]
mod tests;
