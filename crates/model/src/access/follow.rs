//! A program followed from the registers of a sample: instructions are executed as far as their values are known, until
//! one runs again. Nothing is guessed: a value is known or not. String instructions that copy or fill are executed here.
//! For x86-64.

#![warn(missing_docs)]

pub mod by_count;
mod integer;
mod values;
mod vector;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use self::values::{Bytes, Flags, Values};
use super::code_x86::decode;
use super::decode_x86::Registers;
use super::sample::Stack;

pub use crate::model::access::next_runs::GaveUp;

/// Steps after which a program is followed no further.
pub const STEPS_MAX: usize = 1000;

/// Bytes of the longest instruction.
const LONGEST: usize = 15;

/// Reads memory of the program: fills the bytes from the address on, or returns false.
pub type Read<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// A program on its way.
pub struct Follower {
    values: Values,
    flags: Flags,
    ip: u64,
    info: InstructionInfoFactory,
}

impl Follower {
    /// From these registers on, with the top of the stack as it was then; `None` for programs of 32 bits.
    pub fn new(registers: &Registers, stack: Stack) -> Option<Follower> {
        (!registers.compat).then(|| Follower {
            values: Values::new(registers, stack),
            flags: Flags::from_bits(registers.flags),
            ip: registers.ip,
            info: InstructionInfoFactory::new(),
        })
    }

    /// The address of the next instruction.
    pub fn ip(&self) -> u64 {
        self.ip
    }

    /// The value of a general register, where it is known.
    pub fn register(&self, number: usize) -> Option<u64> {
        self.values.general.get(number).copied().flatten()
    }

    /// The bytes of a vector register, zmm0 to zmm31, each where it is known; `None` where none is.
    pub fn vector(&self, number: usize) -> Option<[Option<u8>; 64]> {
        self.values.vectors.get(number)?.known()
    }

    /// The value of a mask register, k0 to k7, where it is known.
    pub fn mask(&self, number: usize) -> Option<u64> {
        self.values.masks.get(number).copied().flatten()
    }

    /// The address that the instruction at `target` accesses when it runs next: at least one step from here.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn next_address(&mut self, target: u64, read: &mut Read<'_>) -> Result<u64, GaveUp> {
        for _ in 0..STEPS_MAX {
            self.step(read)?;
            if self.ip == target {
                let instruction = self.fetch(read)?;
                return self.address(&instruction).ok_or(GaveUp::Address);
            }
        }
        Err(GaveUp::Steps)
    }

    /// The next instruction.
    ///
    /// # Errors
    /// It cannot be read or decoded.
    pub fn fetch(&self, read: &mut Read<'_>) -> Result<Instruction, GaveUp> {
        let mut bytes = [0; LONGEST];
        // The last instruction of a mapping has nothing behind it.
        let to_page_end = (4096 - self.ip % 4096) as usize;
        let length = if read(self.ip, &mut bytes) {
            LONGEST
        } else if to_page_end < LONGEST && read(self.ip, &mut bytes[..to_page_end]) {
            to_page_end
        } else {
            return Err(GaveUp::Code);
        };
        decode(64, &bytes[..length], self.ip).ok_or(GaveUp::Code)
    }

    /// The address of the memory operand of an instruction before it runs, where it has one and it is known.
    pub fn address(&self, instruction: &Instruction) -> Option<u64> {
        let explicit = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
        if explicit { self.values.operand_address(instruction) } else { None }
    }

    /// Executes one instruction.
    ///
    /// # Errors
    /// Why the program cannot be followed.
    pub fn step(&mut self, read: &mut Read<'_>) -> Result<(), GaveUp> {
        let instruction = self.fetch(read)?;
        let next = match instruction.flow_control() {
            FlowControl::Next => {
                self.execute(&instruction, read)?;
                Some(instruction.next_ip())
            }
            FlowControl::UnconditionalBranch => Some(instruction.near_branch_target()),
            FlowControl::ConditionalBranch => self.conditional(&instruction),
            FlowControl::IndirectBranch => self.values.read(&instruction, 0, read),
            FlowControl::Call | FlowControl::IndirectCall => self.call(&instruction, read)?,
            FlowControl::Return => Some(self.return_from(&instruction)?),
            _ => return Err(GaveUp::Instruction),
        };
        self.ip = next.ok_or(GaveUp::Branch)?;
        Ok(())
    }

    fn conditional(&mut self, instruction: &Instruction) -> Option<u64> {
        let taken = match instruction.code() {
            Code::Jrcxz_rel8_64 => self.values.general[1]? == 0,
            Code::Loop_rel8_64_RCX => {
                let left = self.values.general[1]?.wrapping_sub(1);
                self.values.general[1] = Some(left);
                left != 0
            }
            _ if instruction.is_jcc_short_or_near() => self.flags.holds(instruction.condition_code())?,
            _ => return None,
        };
        Some(if taken { instruction.near_branch_target() } else { instruction.next_ip() })
    }

    fn call(&mut self, instruction: &Instruction, read: &mut Read<'_>) -> Result<Option<u64>, GaveUp> {
        let target = match instruction.op0_kind() {
            OpKind::NearBranch64 if instruction.mnemonic() == Mnemonic::Call => {
                Some(instruction.near_branch_target())
            }
            OpKind::Register | OpKind::Memory if instruction.is_call_near_indirect() => {
                self.values.read(instruction, 0, read)
            }
            // System calls, and calls of another segment.
            _ => return Err(GaveUp::Instruction),
        };
        self.values.push(Some(instruction.next_ip()), 8);
        Ok(target)
    }

    fn return_from(&mut self, instruction: &Instruction) -> Result<u64, GaveUp> {
        if !matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) {
            return Err(GaveUp::Instruction);
        }
        let target = self.values.pop_return();
        if instruction.code() == Code::Retnq_imm16 {
            let more = instruction.immediate(0);
            self.values.move_stack(more);
        }
        target.ok_or(GaveUp::Return)
    }

    fn execute(&mut self, instruction: &Instruction, read: &mut Read<'_>) -> Result<(), GaveUp> {
        if instruction.is_string_instruction() {
            let is_done = execute_string(instruction, &mut self.values, &self.flags, read);
            return is_done.then_some(()).ok_or(GaveUp::Instruction);
        }
        if integer::execute(instruction, &mut self.values, &mut self.flags, read)
            || vector::execute(instruction, &mut self.values, &mut self.flags, read)
        {
            return Ok(());
        }
        // The last ones touch more than they name (xrstor).
        if instruction.is_stack_instruction()
            || instruction.is_privileged()
            || instruction.is_save_restore_instruction()
        {
            return Err(GaveUp::Instruction);
        }
        self.forget_results(instruction);
        Ok(())
    }

    /// Marks everything that an instruction writes as unknown.
    fn forget_results(&mut self, instruction: &Instruction) {
        let writes = |access| {
            !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
        };
        let info = self.info.info(instruction);
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let full = used.register().full_register();
            if full.is_gpr64() {
                self.values.general[full.number()] = None;
            } else if full.is_vector_register() {
                self.values.vectors[full.number()] = Bytes::UNKNOWN;
            } else if full.is_k() {
                self.values.masks[full.number()] = None;
            }
            // The base moves on a system call only.
            if full == Register::FS {
                self.values.forget_fs();
            }
        }
        for memory in info.used_memory().iter().filter(|memory| writes(memory.access())) {
            let size = memory.memory_size().size();
            let single = !instruction.is_vsib() && size > 0;
            let address = memory.virtual_address(0, |register, _, _| self.values.for_address(register));
            match address.filter(|_| single) {
                Some(address) => self.values.store(Some(address), size, None),
                None => self.values.store(None, 0, None),
            }
        }
        // A gather clears the bits of its mask.
        if instruction.is_vsib() && instruction.op_mask() != Register::None {
            self.values.masks[instruction.op_mask().number()] = None;
        }
        let modified = instruction.rflags_modified();
        if modified != RflagsBits::NONE {
            self.flags.forget(modified);
        }
    }
}

/// Bytes that string instructions copy or fill on the way from one sample, at most: each takes as long as an instruction.
const BYTES_MAX: u64 = 4096;

const RCX: usize = 1;

const RSI: usize = 6;

const RDI: usize = 7;

/// Executes an instruction; for any other kind, or if its direction is unknown, returns false and changes
/// nothing.
fn execute_string(
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
