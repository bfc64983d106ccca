//! The address that an arm64 instruction accesses, from its word and the registers around it. Fields are as in ARM DDI
//! 0487, C4.1, "Loads and Stores".

#![warn(missing_docs)]

use super::sample::{Attribution, Code, Moment, Outcome};

/// Bytes of code from the interrupted instruction on that are looked at for the end of a loop.
const FROM: usize = 64;

/// Registers of an interrupted thread.
#[derive(Clone, Default)]
pub struct Registers {
    /// x0 to x30.
    pub general: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// Address of the interrupted instruction.
    pub pc: u64,
}

impl Registers {
    /// A base register: number 31 is the stack pointer.
    fn base(&self, number: u32) -> u64 {
        self.general.get(number as usize).copied().unwrap_or(self.sp)
    }

    /// An index register: number 31 is zero.
    fn index(&self, number: u32) -> u64 {
        self.general.get(number as usize).copied().unwrap_or(0)
    }
}

/// Whether an instruction is a call: BL, or BLR with or without authentication (Arm ARM, C4.1.92 and C4.1.93).
pub fn is_call(word: u32) -> bool {
    word & 0xfc00_0000 == 0x9400_0000 || word & 0xfeff_f000 == 0xd63f_0000
}

/// The address that a thread was held up by.
pub fn outcome(registers: &Registers, code: Code<'_>, attribution: Attribution) -> Outcome {
    let word = |bytes: Option<&[u8]>| Some(u32::from_le_bytes(bytes?.try_into().ok()?));
    match attribution {
        Attribution::At => match word(code.from.get(..4)) {
            Some(next) => address(next, registers, registers.pc, Moment::Before),
            None => Outcome::Unknown,
        },
        Attribution::Behind => {
            if let Some(conditional) = end_of_loop(code.from) {
                return if conditional { Outcome::Plain } else { Outcome::Nowhere };
            }
            match word(code.before.len().checked_sub(4).and_then(|at| code.before.get(at..))) {
                Some(last) if leaves(last) => Outcome::Nowhere,
                Some(last) => address(last, registers, registers.pc.wrapping_sub(4), Moment::After),
                None => Outcome::Unknown,
            }
        }
    }
}

/// A direct branch back to the first word of `from`, which is then the head of a loop. Inside: whether the branch is conditional.
fn end_of_loop(from: &[u8]) -> Option<bool> {
    from[..from.len().min(FROM)].chunks_exact(4).enumerate().find_map(|(at, bytes)| {
        let word = u32::from_le_bytes(bytes.try_into().ok()?);
        let (conditional, distance) = direct_branch(word)?;
        let own = (at * 4) as i64;
        (own + distance == 0).then_some(conditional)
    })
}

/// A direct branch without link: whether it is conditional, and how many bytes ahead it goes.
fn direct_branch(word: u32) -> Option<(bool, i64)> {
    let signed = |low: u32, bits: u32| i64::from((word << (32 - low - bits)) as i32 >> (32 - bits)) * 4;
    match word >> 24 {
        0x14..=0x17 => Some((false, signed(0, 26))),
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => Some((true, signed(5, 19))),
        0x36 | 0x37 | 0xb6 | 0xb7 => Some((true, signed(5, 14))),
        _ => None,
    }
}

/// Whether an instruction goes elsewhere in any case: a jump, a call, a return, a system call.
fn leaves(word: u32) -> bool {
    matches!(word >> 24, 0x14..=0x17 | 0x94..=0x97 | 0xd4 | 0xd6 | 0xd7)
}

/// Offset of an address from its base.
enum Offset {
    None,
    Bytes(i64),
    Register { number: u32, option: u32, shift: u32 },
}

/// The moment at which the offset is added to the base register, if at all.
#[derive(PartialEq, Eq)]
enum Writeback {
    No,
    /// After the access, of the offset.
    Post,
    /// Before the access.
    Pre,
}

/// The memory that an instruction accesses.
enum Operand {
    /// `base` and `offset`; `written` are the general registers that are loaded.
    Memory {
        base: u32,
        offset: Offset,
        writeback: Writeback,
        written: [Option<u32>; 2],
    },
    /// Relative to the instruction.
    Literal(i64),
    /// Memory whose address is not computed.
    Other,
    None,
}

fn bits(word: u32, high: u32, low: u32) -> u32 {
    (word >> low) & ((1 << (high - low + 1)) - 1)
}

fn signed(word: u32, high: u32, low: u32) -> i64 {
    i64::from((word << (31 - high)) as i32 >> (31 - high + low))
}

/// The address that the instruction `word` at `pc` accesses, from registers before or after it has run.
pub fn address(word: u32, registers: &Registers, pc: u64, moment: Moment) -> Outcome {
    let (base, offset, writeback, written) = match operand(word) {
        Operand::None => return Outcome::Plain,
        Operand::Other => return Outcome::Gone,
        Operand::Literal(distance) => return Outcome::Address(pc.wrapping_add_signed(distance)),
        Operand::Memory { base, offset, writeback, written } => (base, offset, writeback, written),
    };
    // Number 31 is the zero register where it is loaded.
    let lost = |number: u32| moment == Moment::After && number != 31 && written.contains(&Some(number));
    let index = match offset {
        Offset::Register { number, .. } => Some(number),
        _ => None,
    };
    if lost(base) || index.is_some_and(lost) {
        return Outcome::Gone;
    }
    let now = registers.base(base);
    let added = match offset {
        Offset::None => 0,
        Offset::Bytes(bytes) => bytes as u64,
        Offset::Register { number, option, shift } => {
            let value = registers.index(number);
            let value = match option {
                2 => u64::from(value as u32),
                6 => i64::from(value as i32) as u64,
                _ => value,
            };
            value << shift
        }
    };
    Outcome::Address(match (writeback, moment) {
        (Writeback::Post, Moment::Before) | (Writeback::Pre, Moment::After) => now,
        (Writeback::Post, Moment::After) => now.wrapping_sub(added),
        (Writeback::No, _) | (Writeback::Pre, Moment::Before) => now.wrapping_add(added),
    })
}

fn operand(word: u32) -> Operand {
    let base = bits(word, 9, 5);
    let target = bits(word, 4, 0);
    let vector = bits(word, 26, 26) == 1;
    let size = bits(word, 31, 30);
    let plain = |offset, written| Operand::Memory { base, offset, writeback: Writeback::No, written };
    // DC ZVA, DC GVA and DC GZVA take an address in their target register.
    if matches!(word & !0x1f, 0xd50b_7420 | 0xd50b_7460 | 0xd50b_7480) {
        let (offset, written) = (Offset::None, [None; 2]);
        return Operand::Memory { base: target, offset, writeback: Writeback::No, written };
    }
    // SVE loads and stores, whose addresses need the length of vectors; SME.
    if matches!(word >> 24, 0x84 | 0x85 | 0xa4 | 0xa5 | 0xc4 | 0xc5 | 0xe4 | 0xe5 | 0xe0 | 0xe1) {
        return Operand::Other;
    }
    match bits(word, 29, 24) {
        0b001100 | 0b001101 if size < 2 => structures(word, base),
        // Exclusive, ordered, compare and swap.
        0b001000 => plain(Offset::None, [Some(target), Some(bits(word, 20, 16))]),
        0b011001 | 0b011101 => unscaled_ordered(word, base, target),
        group if group & 0b111011 == 0b011000 => {
            let prefetch = size == 3 && !vector;
            if prefetch { Operand::None } else { Operand::Literal(signed(word, 23, 5) * 4) }
        }
        group if group & 0b111010 == 0b101000 => pairs(word, base, target),
        group if group & 0b111011 == 0b111001 => {
            let offset = Offset::Bytes(i64::from(bits(word, 21, 10)) << access_log2(word));
            if is_prefetch(word) { Operand::None } else { plain(offset, loaded(word, target)) }
        }
        group if group & 0b111011 == 0b111000 => one_register(word, base, target),
        _ => Operand::None,
    }
}

/// Binary logarithm of the bytes of an access of one register.
fn access_log2(word: u32) -> u32 {
    let vector = bits(word, 26, 26) == 1;
    if vector { bits(word, 23, 23) << 2 | bits(word, 31, 30) } else { bits(word, 31, 30) }
}

fn is_prefetch(word: u32) -> bool {
    bits(word, 31, 30) == 3 && bits(word, 26, 26) == 0 && bits(word, 23, 22) == 2
}

/// The general register that an instruction of the group with one register loads.
fn loaded(word: u32, target: u32) -> [Option<u32>; 2] {
    let vector = bits(word, 26, 26) == 1;
    let load = bits(word, 23, 22) != 0;
    [(load && !vector).then_some(target), None]
}

/// Vector structures: LD1 to LD4 and ST1 to ST4.
fn structures(word: u32, base: u32) -> Operand {
    let post = bits(word, 23, 23) == 1;
    let index = bits(word, 20, 16);
    let (offset, writeback) = match (post, index) {
        (false, _) => (Offset::None, Writeback::No),
        (true, 31) => (Offset::Bytes(structure_bytes(word)), Writeback::Post),
        (true, number) => (Offset::Register { number, option: 3, shift: 0 }, Writeback::Post),
    };
    Operand::Memory { base, offset, writeback, written: [None; 2] }
}

/// Bytes that a vector structure takes.
fn structure_bytes(word: u32) -> i64 {
    let quad = bits(word, 30, 30);
    if bits(word, 24, 24) == 0 {
        let registers = match bits(word, 15, 12) {
            0b0000 | 0b0010 => 4,
            0b0100 | 0b0110 => 3,
            0b1000 | 0b1010 => 2,
            _ => 1,
        };
        return registers * (8 << quad);
    }
    let elements = i64::from((bits(word, 13, 13) << 1 | bits(word, 21, 21)) + 1);
    let log2 = match bits(word, 15, 14) {
        0 => 0,
        1 => 1,
        2 => 2 + (bits(word, 11, 10) & 1),
        _ => bits(word, 11, 10),
    };
    elements << log2
}

/// LDAPUR and STLUR; memory tags; memory copy and set.
fn unscaled_ordered(word: u32, base: u32, target: u32) -> Operand {
    let offset = signed(word, 20, 12);
    let mode = bits(word, 11, 10);
    let vector = bits(word, 26, 26) == 1;
    let plain = |offset, written| Operand::Memory { base, offset, writeback: Writeback::No, written };
    if word >> 24 == 0xd9 && bits(word, 21, 21) == 1 {
        let writeback = match mode {
            0 if bits(word, 23, 22) == 1 => return plain(Offset::Bytes(offset * 16), [Some(target), None]),
            // LDGM, STGM, STZGM.
            0 => return plain(Offset::None, [Some(target), None]),
            1 => Writeback::Post,
            2 => Writeback::No,
            _ => Writeback::Pre,
        };
        return Operand::Memory { base, offset: Offset::Bytes(offset * 16), writeback, written: [None; 2] };
    }
    match (bits(word, 21, 21), mode, vector) {
        (0, 0, false) | (0, 2, true) => plain(Offset::Bytes(offset), loaded(word, target)),
        // CPY and SET move both of their addresses.
        (0, 1, _) => Operand::Other,
        _ => Operand::None,
    }
}

/// Two registers: LDP, STP, LDPSW, STGP.
fn pairs(word: u32, base: u32, target: u32) -> Operand {
    let size = bits(word, 31, 30);
    let vector = bits(word, 26, 26) == 1;
    let load = bits(word, 22, 22) == 1;
    let log2 = match (vector, size, load) {
        (true, size, _) => 2 + size,
        (false, 0, _) | (false, 1, true) => 2,
        (false, 1, false) => 4,
        _ => 3,
    };
    let writeback = match bits(word, 24, 23) {
        1 => Writeback::Post,
        3 => Writeback::Pre,
        _ => Writeback::No,
    };
    let written = if load && !vector { [Some(target), Some(bits(word, 14, 10))] } else { [None; 2] };
    Operand::Memory { base, offset: Offset::Bytes(signed(word, 21, 15) << log2), writeback, written }
}

/// One register, with an offset that is not scaled or is a register; atomic operations; LDRAA.
fn one_register(word: u32, base: u32, target: u32) -> Operand {
    let written = loaded(word, target);
    let unscaled = Offset::Bytes(signed(word, 20, 12));
    let memory = |offset, writeback| Operand::Memory { base, offset, writeback, written };
    match (bits(word, 21, 21), bits(word, 11, 10)) {
        (0, 0) if is_prefetch(word) => Operand::None,
        (0, 0 | 2) => memory(unscaled, Writeback::No),
        (0, 1) => memory(unscaled, Writeback::Post),
        (0, _) => memory(unscaled, Writeback::Pre),
        (_, 2) if is_prefetch(word) => Operand::None,
        (_, 2) => {
            let shift = if bits(word, 12, 12) == 1 { access_log2(word) } else { 0 };
            let offset = Offset::Register { number: bits(word, 20, 16), option: bits(word, 15, 13), shift };
            memory(offset, Writeback::No)
        }
        // Atomic operations load the register at the place of the target.
        (_, 0) => Operand::Memory {
            base,
            offset: Offset::None,
            writeback: Writeback::No,
            written: [Some(target), None],
        },
        // LDRAA takes a sealed pointer: what a register holds is no address.
        _ => Operand::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::sample::Outcome::{Address, Gone, Nowhere, Plain, Unknown};

    const X1: u64 = 0xffff_8000_1000;

    const X2: u64 = 0xffff_ffff_8000_0010;

    const SP: u64 = 0xffff_fff0_0000;

    const PC: u64 = 0xaaaa_0000_4000;

    const NOP: u32 = 0xd503_201f;

    /// Each kind of load and store: text, word, answer where it ran before the interrupted instruction.
#[rustfmt::skip]
const CASES: &[(&str, u32, Outcome)] = &[
    ("ldr x0, [x1, #16]", 0xf9400820, Address(X1 + 16)),
    ("ldr x0, [sp, #8]", 0xf94007e0, Address(SP + 8)),
    ("ldrb w0, [x1, x2]", 0x38626820, Address(X1.wrapping_add(X2))),
    ("ldr x0, [x1, x2, lsl #3]", 0xf8627820, Address(X1.wrapping_add(X2 << 3))),
    ("ldr w0, [x1, w2, uxtw #2]", 0xb8625820, Address(X1 + ((X2 & 0xffff_ffff) << 2))),
    ("ldr w0, [x1, w2, sxtw]", 0xb862c820, Address(X1.wrapping_add_signed(X2 as i32 as i64))),
    ("ldr q0, [x1, #32]", 0x3dc00820, Address(X1 + 32)),
    ("ldr q0, [x1, x2, lsl #4]", 0x3ce27820, Address(X1.wrapping_add(X2 << 4))),
    ("ldur x0, [x1, #-8]", 0xf85f8020, Address(X1 - 8)),
    ("ldr x0, [x1], #8", 0xf8408420, Address(X1 - 8)),
    ("str x0, [x1, #-16]!", 0xf81f0c20, Address(X1)),
    ("ldp x29, x30, [sp], #32", 0xa8c27bfd, Address(SP - 32)),
    ("stp x29, x30, [sp, #-32]!", 0xa9be7bfd, Address(SP)),
    ("ldp q0, q1, [x1, #-64]", 0xad7e0420, Address(X1 - 64)),
    ("ldpsw x0, x3, [x1, #8]", 0x69410c20, Address(X1 + 8)),
    ("ldr x1, [x1]", 0xf9400021, Gone),
    ("ldr x2, [x1, x2]", 0xf8626822, Gone),
    ("ldp x0, x1, [x1]", 0xa9400420, Gone),
    ("str x1, [x1]", 0xf9000021, Address(X1)),
    ("ldr x0, .+0x100", 0x58000800, Address(PC - 4 + 0x100)),
    ("ldxr x0, [x1]", 0xc85f7c20, Address(X1)),
    ("ldar w0, [x1]", 0x88dffc20, Address(X1)),
    ("stlxr w0, x3, [x1]", 0xc800fc23, Address(X1)),
    ("cas x0, x3, [x1]", 0xc8a07c23, Address(X1)),
    ("ldadd x0, x3, [x1]", 0xf8200023, Address(X1)),
    ("ldadd x0, x1, [x1]", 0xf8200021, Gone),
    ("stadd x0, [x1]", 0xf820003f, Address(X1)),
    ("ldapr x0, [x1]", 0xf8bfc020, Address(X1)),
    ("ldapur x0, [x1, #-4]", 0xd95fc020, Address(X1 - 4)),
    ("ld1 {v0.16b, v1.16b}, [x1], #32", 0x4cdfa020, Address(X1 - 32)),
    ("ld1 {v0.16b}, [x1], x2", 0x4cc27020, Address(X1.wrapping_sub(X2))),
    ("st1 {v0.s}[1], [x1], #4", 0x0d9f9020, Address(X1 - 4)),
    ("ld4r {v0.8h, v1.8h, v2.8h, v3.8h}, [x1], #8", 0x4dffe420, Address(X1 - 8)),
    ("prfm pldl1keep, [x1, #64]", 0xf9802020, Plain),
    ("dc zva, x1", 0xd50b7421, Address(X1)),
    ("add x0, x1, x2", 0x8b020020, Plain),
    ("ld1d {z0.d}, p0/z, [x1]", 0xa5e0a020, Gone),
    ("ret", 0xd65f03c0, Nowhere),
    ("bl .+64", 0x94000010, Nowhere),
    ("b .+64", 0x14000010, Nowhere),
    ("blr x1", 0xd63f0020, Nowhere),
    ("svc #0", 0xd4000001, Nowhere),
    ("b.ne .+64", 0x54000201, Plain),
    ("cbz x0, .+64", 0xb4000200, Plain),
];

    fn registers() -> Registers {
        let mut general = [0xdead; 31];
        (general[1], general[2]) = (X1, X2);
        Registers { general, sp: SP, pc: PC }
    }

    fn behind(before: &[u32], from: &[u32]) -> Outcome {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (before, from) = (bytes(before), bytes(from));
        outcome(&registers(), Code { before: &before, from: &from }, Attribution::Behind)
    }

    #[test]
    fn every_kind_of_load_and_store() {
        for (text, word, expected) in CASES {
            assert_eq!(behind(&[*word], &[NOP]), *expected, "{text}");
        }
    }

    #[test]
    fn a_head_of_a_loop_was_reached_by_its_branch() {
        let load = 0xf940_0020;
        // `b.ne .-8` and `b .-8`, two words behind the head.
        assert_eq!(behind(&[load], &[NOP, NOP, 0x54ff_ffc1]), Plain);
        assert_eq!(behind(&[load], &[NOP, NOP, 0x17ff_fffe]), Nowhere);
        // `cbnz x0, .-4` does not go so far back.
        assert_eq!(behind(&[load], &[NOP, NOP, 0xb5ff_ffe0]), Address(X1));
    }

    #[test]
    fn an_instruction_that_has_not_run_has_not_lost_its_address() {
        let at = |word: u32| address(word, &registers(), PC, Moment::Before);
        assert_eq!(at(0xf940_0021), Address(X1), "ldr x1, [x1]");
        assert_eq!(at(0xf840_8420), Address(X1), "ldr x0, [x1], #8");
        assert_eq!(at(0xf81f_0c20), Address(X1 - 16), "str x0, [x1, #-16]!");
    }

    #[test]
    fn code_that_could_not_be_read_has_no_answer() {
        assert_eq!(behind(&[], &[NOP]), Unknown);
    }

    #[test]
    fn calls_are_told_from_jumps_and_returns() {
        // bl, blr x3, blraaz x3, blraa x3, x4; b, br x3, ret, ldr.
        for call in [0x9400_0010, 0xd63f_0060, 0xd63f_087f, 0xd73f_0864] {
            assert!(is_call(call), "{call:x}");
        }
        for other in [0x1400_0010, 0xd61f_0060, 0xd65f_03c0, 0xf940_0000] {
            assert!(!is_call(other), "{other:x}");
        }
    }
}
