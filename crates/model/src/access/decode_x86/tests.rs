use super::*;
use crate::access::outcome::Outcome::{Address, Gone, Nowhere, Pair, Plain, Unknown};

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
     "31 c0 48 89 d5 48 83 c5 10 48 8b 06", "bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 bb 01 00 00 00 75 9a 90", Address(RSI)),
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
