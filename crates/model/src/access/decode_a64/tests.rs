use super::*;
use crate::access::outcome::Outcome::{Address, Gone, Nowhere, Plain, Unknown};

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
