//! The address that an x86 instruction accesses, from its bytes and the registers around it.

#![warn(missing_docs)]

use iced_x86::{
    Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::code_x86::{Previous, decode, previous};
use super::sample::{Attribution, Code, Moment, Outcome};

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
mod tests {
    use super::*;
    use crate::access::sample::Outcome::{Address, Gone, Nowhere, Pair, Plain, Unknown};

    const RBX: u64 = 0x7f00_0000_3000;

    const RSP: u64 = 0x7ffd_1234_5678;

    const RSI: u64 = 0x7f11_2222_6000;

    const RDI: u64 = 0x7f22_3333_7000;

    const RCX: u64 = 0x1_0001;

    const RAX: u64 = 0x55aa_0000_1000;

    const FS: u64 = 0x7f33_0000_0740;

    const IP: u64 = 0x5555_0000_4000;

    /// Branches of the rule: name, bits, text, code in front of the interrupted instruction (`here`) and from it on, answer.
/// Three other instructions come first.
#[rustfmt::skip]
const CASES: &[(&str, u32, &str, &str, &str, Outcome)] = &[
    ("base index scale", 64, "mov 0x10(%rbx,%rcx,8),%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 44 cb 10", "90", Address(0x10 + RBX + RCX * 8)),
    ("negative displacement", 64, "movzbl -1(%rsi),%edx; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 0f b6 56 ff", "90", Address(RSI - 1)),
    ("store", 64, "mov %rax,(%rdi); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 89 07", "90", Address(RDI)),
    ("relative to ip", 64, "mov 0x100(%rip),%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 05 00 01 00 00", "90", Address(IP + 0x100)),
    ("thread local", 64, "mov %fs:0x28,%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 64 48 8b 04 25 28 00 00 00", "90", Address(FS + 0x28)),
    ("thread local with base", 64, "mov %fs:(%rbx),%eax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 64 8b 03", "90", Address(FS + RBX)),
    ("gs is not sampled", 64, "mov %gs:(%rbx),%eax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 65 8b 03", "90", Unknown),
    ("own base overwritten", 64, "mov (%rax),%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 00", "90", Gone),
    ("own base overwritten by half", 64, "mov (%rax),%eax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 8b 00", "90", Gone),
    ("own index overwritten", 64, "mov (%rbx,%rcx),%rcx; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 0c 0b", "90", Gone),
    ("conditional move may overwrite", 64, "cmovne (%rax),%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 0f 45 00", "90", Gone),
    ("exchange", 64, "lock xadd %rax,(%rdi); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 f0 48 0f c1 07", "90", Address(RDI)),
    ("gather", 64, "vpgatherdd %ymm2,(%rax,%ymm1,4),%ymm0; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 c4 e2 6d 90 04 88", "90", Gone),
    ("vector load", 64, "vmovdqu 0x20(%rdi),%ymm0; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 c5 fe 6f 47 20", "90", Address(RDI + 0x20)),
    ("masked vector store", 64, "maskmovdqu %xmm1,%xmm0; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 66 0f f7 c1", "90", Address(RDI)),
    ("push", 64, "push %rbx; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 53", "90", Address(RSP)),
    ("push of memory", 64, "push 8(%rax); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 ff 70 08", "90", Address(RAX + 8)),
    ("push of stack memory", 64, "push 8(%rsp); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 ff 74 24 08", "90", Gone),
    ("pop", 64, "pop %rbx; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 5b", "90", Address(RSP - 8)),
    ("pop of rsp", 64, "pop %rsp; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 5c", "90", Gone),
    ("leave", 64, "leave; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 c9", "90", Address(RSP - 8)),
    ("no memory", 64, "add %rbx,%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 01 d8", "90", Plain),
    ("lea", 64, "lea 8(%rbx),%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8d 43 08", "90", Plain),
    ("long nop", 64, "nopw 0x0(%rax,%rax,1); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 66 0f 1f 04 00", "90", Plain),
    ("prefetch", 64, "prefetcht0 (%rdi); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 0f 18 0f", "90", Plain),
    ("after a return", 64, "ret; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 c3", "90", Nowhere),
    ("after a call", 64, "call .+0x100; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 e8 fb 00 00 00", "90", Nowhere),
    ("after an indirect call", 64, "call *(%rax); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 ff 10", "90", Nowhere),
    ("after an indirect jump", 64, "jmp *%rax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 ff e0", "90", Nowhere),
    ("after a jump", 64, "jmp .+0x100; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 e9 fb 00 00 00", "90", Nowhere),
    ("after a system call", 64, "syscall; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 0f 05", "90", Nowhere),
    ("fused compare", 64, "cmp %rax,(%rdi); jne .+0x40; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 39 07 75 3e", "90", Address(RDI)),
    ("fused test without memory", 64, "test %rax,%rax; jne .+0x40; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 85 c0 75 3e", "90", Plain),
    ("fused add to its base", 64, "add (%rax),%rax; jne .+0x40; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 03 00 75 3e", "90", Gone),
    ("branch without flags before", 64, "mov (%rdi),%rax; jne .+0x40; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 07 75 3e", "90", Plain),
    ("head of a loop", 64, "ret; here: add $8,%rdi; cmp %rax,-8(%rdi); jne here; nop",
     "31 c0 48 89 d5 48 83 c5 10 c3", "48 83 c7 08 48 39 47 f8 75 f6 90", Address(RDI - 8)),
    ("head of a loop without memory", 64, "mov (%rdi),%rax; here: add $8,%rdi; dec %rcx; jne here; nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 07", "48 83 c7 08 48 ff c9 75 f7 90", Plain),
    ("head of a loop with jump", 64, "mov (%rdi),%rax; here: add $8,%rdi; jmp here; nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 07", "48 83 c7 08 eb fa 90", Nowhere),
    ("head of a counted loop", 64, "mov (%rdi),%rax; here: add $8,%rdi; loop here; nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 07", "48 83 c7 08 e2 fa 90", Plain),
    ("loop that ends too far away", 64, "mov (%rsi),%rax; here: .rept 20; mov $1,%ebx; .endr; jne here; nop",
     "31 c0 48 89 d5 48 83 c5 10 48 8b 06", "bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 \
                                             00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb \
                                             01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 \
                                             00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 \
                                             00 00 00 bb 01 00 00 00 75 9a 90", Address(RSI)),
    ("copy inside", 64, "nop; here: rep movsb",
     "31 c0 48 89 d5 48 83 c5 10 90", "f3 a4", Pair(RSI, RDI)),
    ("copy with thread local source", 64, "nop; here: rep movsb %fs:(%rsi),%es:(%rdi)",
     "31 c0 48 89 d5 48 83 c5 10 90", "64 f3 a4", Pair(FS + RSI, RDI)),
    ("fill inside", 64, "nop; here: rep stosq",
     "31 c0 48 89 d5 48 83 c5 10 90", "f3 48 ab", Address(RDI)),
    ("compare inside", 64, "nop; here: repe cmpsb",
     "31 c0 48 89 d5 48 83 c5 10 90", "f3 a6", Pair(RSI, RDI)),
    ("scan inside", 64, "nop; here: repne scasb",
     "31 c0 48 89 d5 48 83 c5 10 90", "f2 ae", Address(RDI)),
    ("load inside", 64, "nop; here: rep lodsb",
     "31 c0 48 89 d5 48 83 c5 10 90", "f3 ac", Address(RSI)),
    ("copy of one", 64, "movsb; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 a4", "90", Gone),
    ("bit string", 64, "bt %rcx,(%rdi); here: nop",
     "31 c0 48 89 d5 48 83 c5 10 48 0f a3 0f", "90", Address(RDI + (RCX >> 6) * 8)),
    ("short address", 64, "mov (%esi),%eax; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 67 8b 06", "90", Address(RSI & 0xffff_ffff)),
    ("table look up by byte", 64, "xlat; here: nop",
     "31 c0 48 89 d5 48 83 c5 10 d7", "90", Gone),
    ("of 32 bits", 32, "mov 4(%esi),%eax; here: nop",
     "31 c0 89 d5 83 c5 10 8b 46 04", "90", Address((RSI + 4) & 0xffff_ffff)),
    ("of 32 bits push", 32, "push %ebx; here: nop",
     "31 c0 89 d5 83 c5 10 53", "90", Address(RSP & 0xffff_ffff)),
    ("of 32 bits pop", 32, "pop %ebx; here: nop",
     "31 c0 89 d5 83 c5 10 5b", "90", Address((RSP - 4) & 0xffff_ffff)),
    ("of 32 bits absolute", 32, "mov 0x12345678,%ebx; here: nop",
     "31 c0 89 d5 83 c5 10 8b 1d 78 56 34 12", "90", Address(0x1234_5678)),
    ("of 32 bits thread local", 32, "mov %gs:0x14,%eax; here: nop",
     "31 c0 89 d5 83 c5 10 65 a1 14 00 00 00", "90", Unknown),
    ("of 32 bits increment", 32, "incl (%edi); here: nop",
     "31 c0 89 d5 83 c5 10 ff 07", "90", Address(RDI & 0xffff_ffff)),
];

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    fn registers(compat: bool) -> Registers {
        let mut general = [0xdead; 16];
        for (number, value) in [(0, RAX), (RCX_NUMBER, RCX), (3, RBX), (4, RSP), (6, RSI), (7, RDI)] {
            general[number] = value;
        }
        Registers { general, ip: IP, flags: 0, fs_base: FS, compat }
    }

    const RCX_NUMBER: usize = super::RCX;

    #[test]
    fn every_branch_of_the_rule() {
        let mut decoder = Decoder::default();
        for (name, bits, text, before, from, expected) in CASES {
            let (before, from) = (bytes(before), bytes(from));
            let code = Code { before: &before, from: &from };
            let outcome = decoder.outcome(&registers(*bits == 32), code, Attribution::Behind);
            assert_eq!(outcome, *expected, "{name}: {text}");
        }
    }

    #[test]
    fn an_instruction_that_has_not_run_has_not_lost_its_address() {
        let mut decoder = Decoder::default();
        let mut at = |from: &str| {
            let from = bytes(from);
            decoder.outcome(&registers(false), Code { before: &[], from: &from }, Attribution::At)
        };
        assert_eq!(at("48 8b 00"), Address(RAX), "mov (%rax),%rax");
        assert_eq!(at("53"), Address(RSP - 8), "push %rbx");
        assert_eq!(at("5b"), Address(RSP), "pop %rbx");
        assert_eq!(at("c3"), Address(RSP), "ret");
        assert_eq!(at("a4"), Pair(RDI, RSI), "movsb");
        assert_eq!(at("ff"), Unknown, "cut off");
    }

    #[test]
    fn a_repetition_that_is_done_is_not_in_progress() {
        let mut state = registers(false);
        state.general[super::RCX] = 0;
        let (before, from) = (bytes("48 8b 03"), bytes("f3 a4"));
        let code = Code { before: &before, from: &from };
        assert_eq!(Decoder::default().outcome(&state, code, Attribution::Behind), Address(RBX));
    }

    #[test]
    fn code_that_could_not_be_read_has_no_answer() {
        let mut decoder = Decoder::default();
        let from = bytes("90");
        for code in [Code { before: &[], from: &[] }, Code { before: &[], from: &from }] {
            assert_eq!(decoder.outcome(&registers(false), code, Attribution::Behind), Unknown);
        }
    }

    #[test]
    fn calls_are_told_from_what_looks_like_them() {
        use crate::access::code_x86::ends_with_call;
        // call rel32; call rax; call r8; call [rip + 8]; call [rax + rcx * 8 + 0x1000] behind a nop.
        for call in [
            &[0x90, 0x90, 0x90, 0xe8, 0x10, 0, 0, 0][..],
            &[0xff, 0xd0],
            &[0x90, 0x41, 0xff, 0xd0],
            &[0xff, 0x15, 8, 0, 0, 0],
            &[0x90, 0xff, 0x94, 0xc8, 0, 0x10, 0, 0],
        ] {
            assert!(ends_with_call(call), "{call:x?}");
        }
        // nops; jmp rel32; jmp rax; ret; a call that ends earlier; nothing.
        for other in [
            &[0x90; 8][..],
            &[0x90, 0x90, 0x90, 0xe9, 0x10, 0, 0, 0],
            &[0xff, 0xe0],
            &[0x90, 0xc3],
            &[0xe8, 0x10, 0, 0, 0, 0x90],
            &[],
        ] {
            assert!(!ends_with_call(other), "{other:x?}");
        }
    }
}
