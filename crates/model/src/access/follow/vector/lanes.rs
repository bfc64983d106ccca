//! Instructions that do the same with each element of two vectors: what they do with one.

use iced_x86::Mnemonic as M;

use super::super::integer::extended;

/// The result for two elements of this many bytes; bits beyond them are cut off.
pub(super) type Lane = fn(u64, u64, usize) -> u64;

/// Whether two elements of this many bytes are related.
pub(super) type Relation = fn(u64, u64, usize) -> bool;

/// Bytes of an element, and the result for two of them.
pub(super) fn arithmetic(mnemonic: M) -> Option<(usize, Lane)> {
    let add: Lane = |one, other, _| one.wrapping_add(other);
    let subtract: Lane = |one, other, _| one.wrapping_sub(other);
    let saturating: Lane = |one, other, _| one.saturating_sub(other);
    let least: Lane = |one, other, _| one.min(other);
    let most: Lane = |one, other, _| one.max(other);
    let least_signed: Lane = |one, other, size| if greater(one, other, size) { other } else { one };
    let most_signed: Lane = |one, other, size| if greater(one, other, size) { one } else { other };
    Some(match mnemonic {
        M::Paddb | M::Vpaddb => (1, add),
        M::Paddw | M::Vpaddw => (2, add),
        M::Paddd | M::Vpaddd => (4, add),
        M::Paddq | M::Vpaddq => (8, add),
        M::Psubb | M::Vpsubb => (1, subtract),
        M::Psubw | M::Vpsubw => (2, subtract),
        M::Psubd | M::Vpsubd => (4, subtract),
        M::Psubq | M::Vpsubq => (8, subtract),
        M::Psubusb | M::Vpsubusb => (1, saturating),
        M::Psubusw | M::Vpsubusw => (2, saturating),
        M::Pminub | M::Vpminub => (1, least),
        M::Pminuw | M::Vpminuw => (2, least),
        M::Pminud | M::Vpminud => (4, least),
        M::Pmaxub | M::Vpmaxub => (1, most),
        M::Pmaxuw | M::Vpmaxuw => (2, most),
        M::Pmaxud | M::Vpmaxud => (4, most),
        M::Pminsb | M::Vpminsb => (1, least_signed),
        M::Pminsw | M::Vpminsw => (2, least_signed),
        M::Pminsd | M::Vpminsd => (4, least_signed),
        M::Pmaxsb | M::Vpmaxsb => (1, most_signed),
        M::Pmaxsw | M::Vpmaxsw => (2, most_signed),
        M::Pmaxsd | M::Vpmaxsd => (4, most_signed),
        _ => return None,
    })
}

/// Whether a result of two equal operands is the same whatever they are.
pub(super) fn cancels(mnemonic: M) -> bool {
    matches!(
        mnemonic,
        M::Psubb
            | M::Vpsubb
            | M::Psubw
            | M::Vpsubw
            | M::Psubd
            | M::Vpsubd
            | M::Psubq
            | M::Vpsubq
            | M::Psubusb
            | M::Vpsubusb
            | M::Psubusw
            | M::Vpsubusw
    )
}

fn greater(one: u64, other: u64, size: usize) -> bool {
    extended(one, size) as i64 > extended(other, size) as i64
}

/// Bytes of an element, and the relation of two of them: comparisons whose result is a vector or a mask.
pub(super) fn comparison(mnemonic: M) -> Option<(usize, Relation)> {
    let equal: Relation = |one, other, _| one == other;
    let more: Relation = greater;
    Some(match mnemonic {
        M::Pcmpeqb | M::Vpcmpeqb => (1, equal),
        M::Pcmpeqw | M::Vpcmpeqw => (2, equal),
        M::Pcmpeqd | M::Vpcmpeqd => (4, equal),
        M::Pcmpeqq | M::Vpcmpeqq => (8, equal),
        M::Pcmpgtb | M::Vpcmpgtb => (1, more),
        M::Pcmpgtw | M::Vpcmpgtw => (2, more),
        M::Pcmpgtd | M::Vpcmpgtd => (4, more),
        M::Pcmpgtq | M::Vpcmpgtq => (8, more),
        _ => return None,
    })
}

/// The same of comparisons whose result is a mask only. `predicate` is the number at their end.
pub(super) fn mask_comparison(mnemonic: M, predicate: u8) -> Option<(usize, Relation)> {
    let common: Relation = |one, other, _| one & other != 0;
    let apart: Relation = |one, other, _| one & other == 0;
    let (size, signed) = match mnemonic {
        M::Vptestmb => return Some((1, common)),
        M::Vptestmw => return Some((2, common)),
        M::Vptestmd => return Some((4, common)),
        M::Vptestmq => return Some((8, common)),
        M::Vptestnmb => return Some((1, apart)),
        M::Vptestnmw => return Some((2, apart)),
        M::Vptestnmd => return Some((4, apart)),
        M::Vptestnmq => return Some((8, apart)),
        M::Vpcmpub => (1, false),
        M::Vpcmpuw => (2, false),
        M::Vpcmpud => (4, false),
        M::Vpcmpuq => (8, false),
        M::Vpcmpb => (1, true),
        M::Vpcmpw => (2, true),
        M::Vpcmpd => (4, true),
        M::Vpcmpq => (8, true),
        _ => return None,
    };
    // Intel SDM, volume 2, VPCMPB: the lowest three bits.
    let relation: Relation = match (predicate & 7, signed) {
        (0, _) => |one, other, _| one == other,
        (1, false) => |one, other, _| one < other,
        (1, true) => |one, other, size| greater(other, one, size),
        (2, false) => |one, other, _| one <= other,
        (2, true) => |one, other, size| !greater(one, other, size),
        (3, _) => |_, _, _| false,
        (4, _) => |one, other, _| one != other,
        (5, false) => |one, other, _| one >= other,
        (5, true) => |one, other, size| !greater(other, one, size),
        (6, false) => |one, other, _| one > other,
        (6, true) => greater,
        _ => |_, _, _| true,
    };
    Some((size, relation))
}

/// A function of two bytes at the same place.
pub(super) type ByteByByte = fn(u8, u8) -> u8;

/// Bytes of an element for masks, and what becomes of two bytes bit by bit.
pub(super) fn logic(mnemonic: M) -> Option<(usize, ByteByByte)> {
    let and: fn(u8, u8) -> u8 = |one, other| one & other;
    let or: fn(u8, u8) -> u8 = |one, other| one | other;
    let xor: fn(u8, u8) -> u8 = |one, other| one ^ other;
    let and_not: fn(u8, u8) -> u8 = |one, other| !one & other;
    Some(match mnemonic {
        M::Pand | M::Vpand | M::Andps | M::Vandps | M::Vpandd => (4, and),
        M::Andpd | M::Vandpd | M::Vpandq => (8, and),
        M::Por | M::Vpor | M::Orps | M::Vorps | M::Vpord => (4, or),
        M::Orpd | M::Vorpd | M::Vporq => (8, or),
        M::Pxor | M::Vpxor | M::Xorps | M::Vxorps | M::Vpxord => (4, xor),
        M::Xorpd | M::Vxorpd | M::Vpxorq => (8, xor),
        M::Pandn | M::Vpandn | M::Andnps | M::Vandnps | M::Vpandnd => (4, and_not),
        M::Andnpd | M::Vandnpd | M::Vpandnq => (8, and_not),
        _ => return None,
    })
}

/// Bytes of an element that a number at the end shifts, and the result.
pub(super) fn shift(mnemonic: M) -> Option<(usize, Lane)> {
    let left: Lane = |value, count, size| if count >= 8 * size as u64 { 0 } else { value << count };
    let right: Lane = |value, count, size| if count >= 8 * size as u64 { 0 } else { value >> count };
    Some(match mnemonic {
        M::Psllw | M::Vpsllw => (2, left),
        M::Pslld | M::Vpslld => (4, left),
        M::Psllq | M::Vpsllq => (8, left),
        M::Psrlw | M::Vpsrlw => (2, right),
        M::Psrld | M::Vpsrld => (4, right),
        M::Psrlq | M::Vpsrlq => (8, right),
        _ => return None,
    })
}

/// Bytes of the elements of a move, which its mask is about.
pub(super) fn move_of(mnemonic: M) -> Option<usize> {
    Some(match mnemonic {
        M::Vmovdqu8 => 1,
        M::Vmovdqu16 => 2,
        M::Movaps
        | M::Movups
        | M::Movdqa
        | M::Movdqu
        | M::Lddqu
        | M::Movntdqa
        | M::Movntdq
        | M::Movntps
        | M::Vmovaps
        | M::Vmovups
        | M::Vmovdqa
        | M::Vmovdqu
        | M::Vlddqu
        | M::Vmovntdqa
        | M::Vmovntdq
        | M::Vmovntps
        | M::Vmovdqa32
        | M::Vmovdqu32 => 4,
        M::Movapd
        | M::Movupd
        | M::Movntpd
        | M::Vmovapd
        | M::Vmovupd
        | M::Vmovntpd
        | M::Vmovdqa64
        | M::Vmovdqu64 => 8,
        _ => return None,
    })
}

/// Bytes of the elements that two halves are interleaved by, and whether it is the upper ones.
pub(super) fn interleaved(mnemonic: M) -> Option<(usize, bool)> {
    Some(match mnemonic {
        M::Punpcklbw | M::Vpunpcklbw => (1, false),
        M::Punpcklwd | M::Vpunpcklwd => (2, false),
        M::Punpckldq | M::Vpunpckldq => (4, false),
        M::Punpcklqdq | M::Vpunpcklqdq => (8, false),
        M::Punpckhbw | M::Vpunpckhbw => (1, true),
        M::Punpckhwd | M::Vpunpckhwd => (2, true),
        M::Punpckhdq | M::Vpunpckhdq => (4, true),
        M::Punpckhqdq | M::Vpunpckhqdq => (8, true),
        _ => return None,
    })
}
