//! A loop of every vector instruction that the follower executes, on bytes of few values, so that comparisons hold and do not.

use std::arch::asm;

/// Executes instructions with `xmm4`, or what it becomes, as their result and two loaded vectors as their sources; general
/// registers are results as well.
macro_rules! run {
    ($one:expr, $other:expr, $out:expr, $index:expr, [$($line:expr),* $(,)?]) => {
        // SAFETY: each of the three has 256 bytes, registers that change are named, and the compiler has no others in use.
        unsafe {
            asm!(
                $($line,)*
                inout("rax") $index => _, out("rcx") _, out("rdx") _,
                in("rsi") $one, in("rdi") $other, in("r8") $out,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
    };
}

/// Instructions with two operands.
macro_rules! legacy {
    ($one:expr, $other:expr, $out:expr, [$($name:literal),* $(,)?]) => {
        run!($one, $other, $out, 0_u64, [
            "movdqu xmm0, [rsi]",
            "movups xmm1, [rdi]",
            $(concat!("movdqa xmm4, xmm0\n", $name, " xmm4, xmm1"),)*
            $(concat!("lddqu xmm5, [rdi + 16]\n", $name, " xmm5, xmm0"),)*
            "movups [r8], xmm4",
        ])
    };
}

/// Instructions with three operands.
macro_rules! vex {
    ($one:expr, $other:expr, $out:expr, [$($name:literal),* $(,)?]) => {
        run!($one, $other, $out, 0_u64, [
            "vmovdqu ymm0, [rsi]",
            "vmovups ymm1, [rdi]",
            $(concat!($name, " ymm4, ymm0, ymm1"),)*
            $(concat!($name, " xmm5, xmm0, [rdi + 16]"),)*
            "vmovdqu [r8], ymm4",
            "vzeroupper",
        ])
    };
}

/// The same with masks, from registers and from memory.
macro_rules! masked {
    ($one:expr, $other:expr, $out:expr, $mask:expr, [$($name:literal),* $(,)?]) => {
        run!($one, $other, $out, $mask, [
            "vmovdqu8 zmm16, [rsi]",
            "vmovdqu64 zmm17, [rdi]",
            "kmovq k2, rax",
            $(concat!($name, " zmm18{{k2}}, zmm16, zmm17"),)*
            $(concat!($name, " ymm19{{k2}}{{z}}, ymm16, [rdi + 32]"),)*
            "vmovdqu8 [r8]{{k2}}, zmm18",
            "vmovdqu16 zmm20{{k2}}{{z}}, [r8]",
            "vmovdqu32 zmm20{{k2}}, [rsi + 64]",
            "vzeroupper",
        ])
    };
}

/// Comparisons into masks, and operations on masks.
macro_rules! compared {
    ($one:expr, $other:expr, $out:expr, $mask:expr, [$($name:literal $(, $number:literal)?);* $(;)?]) => {
        run!($one, $other, $out, $mask, [
            "vmovdqu8 zmm16, [rsi]",
            "vmovdqu64 zmm17, [rdi]",
            "kmovq k2, rax",
            $(concat!($name, " k3, zmm16, zmm17" $(, ", ", $number)?),)*
            $(concat!($name, " k4{{k2}}, ymm16, [rdi + 32]" $(, ", ", $number)?),)*
            "kmovd ecx, k4",
        ])
    };
}

/// A place for results: some stores need it aligned.
#[repr(align(64))]
pub struct Out(pub [u8; 256]);

/// Executes all of them that this processor has once.
pub fn run(one: &[u8; 256], other: &[u8; 256], out: &mut Out, mask: u64) {
    let (one, other, out) = (one.as_ptr(), other.as_ptr(), out.0.as_mut_ptr());
    if std::arch::is_x86_feature_detected!("sse4.2") {
        legacy!(
            one,
            other,
            out,
            [
                "paddb",
                "paddw",
                "paddd",
                "paddq",
                "psubb",
                "psubw",
                "psubd",
                "psubq",
                "psubusb",
                "psubusw",
                "pminub",
                "pminuw",
                "pminud",
                "pmaxub",
                "pmaxuw",
                "pmaxud",
                "pminsb",
                "pminsw",
                "pminsd",
                "pmaxsb",
                "pmaxsw",
                "pmaxsd",
                "pcmpeqb",
                "pcmpeqw",
                "pcmpeqd",
                "pcmpeqq",
                "pcmpgtb",
                "pcmpgtw",
                "pcmpgtd",
                "pcmpgtq",
                "pand",
                "andps",
                "andpd",
                "por",
                "orps",
                "orpd",
                "pxor",
                "xorps",
                "xorpd",
                "pandn",
                "andnps",
                "andnpd",
                "punpcklbw",
                "punpcklwd",
                "punpckldq",
                "punpcklqdq",
                "punpckhbw",
                "punpckhwd",
                "punpckhdq",
                "punpckhqdq",
                "pshufb",
                "movhlps",
                "movlhps",
                "movss",
                "movsd",
            ]
        );
        run!(
            one,
            other,
            out,
            0_u64,
            [
                "movdqu xmm0, [rsi]",
                "movdqu xmm1, [rdi]",
                "movdqa xmm4, xmm0",
                "psllw xmm4, 3",
                "pslld xmm4, 9",
                "psllq xmm4, 33",
                "psrlw xmm4, 5",
                "psrld xmm4, 7",
                "psrlq xmm4, 11",
                "psllw xmm4, 16",
                "movdqa xmm4, xmm0",
                "pslldq xmm4, 3",
                "psrldq xmm4, 5",
                "palignr xmm0, xmm1, 5",
                "palignr xmm0, xmm1, 21",
                "pshufd xmm5, xmm1, 0x1b",
                "pinsrb xmm5, ecx, 3",
                "mov ecx, [rsi + 40]",
                "pinsrb xmm5, ecx, 3",
                "pinsrw xmm5, ecx, 6",
                "pinsrd xmm5, [rdi + 8], 2",
                "pinsrq xmm5, rsi, 1",
                "pextrb eax, xmm5, 3",
                "pextrw eax, xmm5, 6",
                "pextrw [r8], xmm5, 1",
                "pextrd ecx, xmm5, 2",
                "pextrq rdx, xmm5, 1",
                "movd eax, xmm1",
                "movq rcx, xmm1",
                "movd xmm6, eax",
                "movq xmm7, rcx",
                "movq xmm8, [rdi + 3]",
                "movq [r8 + 8], xmm8",
                "movd [r8 + 20], xmm8",
                "movss xmm9, [rsi + 1]",
                "movsd xmm10, [rsi + 9]",
                "movss [r8 + 30], xmm9",
                "movsd [r8 + 40], xmm10",
                "movlps xmm10, [rdi + 5]",
                "movhps xmm10, [rdi + 50]",
                "movhpd [r8 + 60], xmm10",
                "movlpd [r8 + 70], xmm10",
                "pmovmskb eax, xmm5",
                "movmskps ecx, xmm1",
                "movmskpd edx, xmm0",
                "ptest xmm0, xmm1",
                "sete al",
                "setb cl",
                "ptest xmm7, [r8 + 16]",
                "setne al",
                "comisd xmm0, xmm1",
                "seta al",
                "ucomiss xmm1, [rdi + 4]",
                "setb cl",
                "movdqu xmm11, [r8]",
                "movntps [r8], xmm11",
            ]
        );
    }
    if std::arch::is_x86_feature_detected!("avx2") {
        vex!(
            one,
            other,
            out,
            [
                "vpaddb",
                "vpaddw",
                "vpaddd",
                "vpaddq",
                "vpsubb",
                "vpsubw",
                "vpsubd",
                "vpsubq",
                "vpsubusb",
                "vpsubusw",
                "vpminub",
                "vpminuw",
                "vpminud",
                "vpmaxub",
                "vpmaxuw",
                "vpmaxud",
                "vpminsb",
                "vpminsw",
                "vpminsd",
                "vpmaxsb",
                "vpmaxsw",
                "vpmaxsd",
                "vpcmpeqb",
                "vpcmpeqw",
                "vpcmpeqd",
                "vpcmpeqq",
                "vpcmpgtb",
                "vpcmpgtw",
                "vpcmpgtd",
                "vpcmpgtq",
                "vpand",
                "vandps",
                "vandpd",
                "vpor",
                "vorps",
                "vorpd",
                "vpxor",
                "vxorps",
                "vxorpd",
                "vpandn",
                "vandnps",
                "vandnpd",
                "vpunpcklbw",
                "vpunpcklwd",
                "vpunpckldq",
                "vpunpcklqdq",
                "vpunpckhbw",
                "vpunpckhwd",
                "vpunpckhdq",
                "vpunpckhqdq",
                "vpshufb",
            ]
        );
        run!(
            one,
            other,
            out,
            0_u64,
            [
                "vmovdqu ymm0, [rsi]",
                "vmovdqu ymm1, [rdi]",
                "vpsllw ymm4, ymm0, 3",
                "vpslld ymm4, ymm1, 9",
                "vpsllq ymm4, ymm0, 33",
                "vpsrlw ymm4, ymm0, 5",
                "vpsrld ymm4, ymm1, 7",
                "vpsrlq ymm4, ymm0, 11",
                "vpslldq ymm4, ymm0, 3",
                "vpsrldq ymm4, ymm1, 5",
                "vpalignr ymm4, ymm0, ymm1, 5",
                "vpshufd ymm5, ymm1, 0x1b",
                "vpbroadcastb ymm6, xmm1",
                "vpbroadcastw ymm6, [rdi + 3]",
                "vpbroadcastd ymm7, xmm0",
                "vpbroadcastq xmm7, [rsi + 1]",
                "vbroadcastss ymm8, xmm1",
                "vbroadcastsd ymm8, [rdi + 9]",
                "vbroadcasti128 ymm9, [rsi + 7]",
                "vinserti128 ymm9, ymm0, xmm1, 1",
                "vextracti128 xmm10, ymm9, 1",
                "vextracti128 [r8 + 16], ymm9, 0",
                "vpinsrb xmm11, xmm1, [rdi], 9",
                "vpinsrq xmm11, xmm1, rsi, 0",
                "vpextrq rcx, xmm11, 1",
                "vmovd xmm12, ecx",
                "vmovq rdx, xmm11",
                "vmovss xmm13, xmm0, xmm1",
                "vmovsd xmm13, xmm1, xmm0",
                "vmovss xmm13, [rsi]",
                "vpmovmskb eax, ymm1",
                "vmovmskps ecx, ymm1",
                "vmovmskpd edx, ymm0",
                "vptest ymm0, ymm1",
                "setb al",
                "vcomisd xmm0, [rdi]",
                "vmovdqa ymm14, ymm1",
                "paddb xmm14, xmm0",
                "vpcmpeqd ymm15, ymm15, ymm15",
                "vzeroupper",
                "vzeroall",
            ]
        );
    }
    let has_512 = std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("avx512dq");
    if has_512 {
        masked!(
            one,
            other,
            out,
            mask,
            [
                "vpaddb",
                "vpaddw",
                "vpaddd",
                "vpaddq",
                "vpsubb",
                "vpsubw",
                "vpsubd",
                "vpsubq",
                "vpsubusb",
                "vpsubusw",
                "vpminub",
                "vpminuw",
                "vpminud",
                "vpmaxub",
                "vpmaxuw",
                "vpmaxud",
                "vpminsb",
                "vpminsw",
                "vpminsd",
                "vpmaxsb",
                "vpmaxsw",
                "vpmaxsd",
                "vpandd",
                "vpandq",
                "vpord",
                "vporq",
                "vpxord",
                "vpxorq",
                "vpandnd",
                "vpandnq",
                "vandps",
                "vorpd",
                "vpunpcklbw",
                "vpunpckhdq",
                "vpshufb",
            ]
        );
        compared!(one, other, out, mask, [
            "vpcmpeqb"; "vpcmpeqw"; "vpcmpeqd"; "vpcmpeqq"; "vpcmpgtb"; "vpcmpgtw"; "vpcmpgtd"; "vpcmpgtq"; "vptestmb";
            "vptestmw"; "vptestmd"; "vptestmq"; "vptestnmb"; "vptestnmw"; "vptestnmd"; "vptestnmq";
            "vpcmpub", 1; "vpcmpub", 2; "vpcmpub", 4; "vpcmpub", 5; "vpcmpub", 6; "vpcmpuw", 1; "vpcmpud", 2;
            "vpcmpuq", 4; "vpcmpb", 1; "vpcmpb", 2; "vpcmpb", 5; "vpcmpb", 6; "vpcmpw", 1; "vpcmpd", 2; "vpcmpq", 6;
            "vpcmpud", 3; "vpcmpud", 7;
        ]);
        run!(
            one,
            other,
            out,
            mask,
            [
                "vmovdqu8 zmm16, [rsi]",
                "vmovdqu64 zmm17, [rdi]",
                "kmovq k2, rax",
                "kmovd ecx, k2",
                "kmovw k3, ecx",
                "kmovb k4, k2",
                "vpternlogd zmm18, zmm16, zmm17, 0xde",
                "vpternlogq zmm18{{k2}}, zmm17, [rsi], 0x1e",
                "vpternlogd zmm19, zmm16, zmm17, 0xff",
                "vpbroadcastb ymm20, ecx",
                "vpbroadcastq zmm20, rsi",
                "vpbroadcastd zmm21{{k2}}{{z}}, xmm17",
                "vpaddd zmm22, zmm16, dword ptr [rdi + 4]{{1to16}}",
                "vpandq ymm22{{k2}}, ymm17, qword ptr [rsi + 8]{{1to4}}",
                "kandq k5, k2, k3",
                "korq k5, k2, k4",
                "kxorq k5, k2, k3",
                "kxnorw k6, k2, k3",
                "kandnd k6, k2, k3",
                "knotd k6, k2",
                "kaddb k6, k2, k3",
                "kshiftlq k6, k2, 13",
                "kshiftrd k6, k2, 40",
                "kshiftrw k6, k2, 3",
                "kunpckbw k7, k2, k3",
                "kunpckwd k7, k2, k3",
                "kunpckdq k7, k2, k3",
                "kortestq k2, k7",
                "sete al",
                "setb cl",
                "kortestb k6, k6",
                "setb cl",
                "ktestd k2, k3",
                "sete al",
                "setb cl",
                "kmovq [r8 + 8], k7",
                "kmovd k1, [r8 + 8]",
                "kxorq k1, k1, k1",
                "kxnorb k1, k1, k1",
                "vmovdqu64 [r8 + 64]{{k2}}, ymm16",
                "vmovups zmm23, [r8 + 64]",
                "vpshufd zmm24{{k2}}{{z}}, zmm16, 0x4e",
                "vpslld zmm25{{k2}}, zmm17, 5",
                "vpalignr zmm26, zmm16, zmm17, 9",
                "vzeroupper",
            ]
        );
    }
}
