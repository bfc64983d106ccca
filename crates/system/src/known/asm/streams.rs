//! Streams: memory that is read or written in order.

use std::arch::asm;

/// Bytes that one round reads or writes of each array; a shorter rest at the end of a slice is not used.
pub const BLOCK: usize = 128;

/// Whole blocks of a slice.
fn blocks(words: &[u64]) -> usize {
    size_of_val(words) / BLOCK
}

/// Reads all blocks of `words` in order, 16 bytes a load (32 on arm64, where a load has two registers).
pub fn read(words: &[u64]) {
    let rounds = blocks(words);
    if rounds == 0 {
        return;
    }
    // SAFETY: `rounds` blocks are inside of the slice.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "2:",
            "movups xmm0, [{at}]",
            "movups xmm1, [{at} + 16]",
            "movups xmm2, [{at} + 32]",
            "movups xmm3, [{at} + 48]",
            "movups xmm0, [{at} + 64]",
            "movups xmm1, [{at} + 80]",
            "movups xmm2, [{at} + 96]",
            "movups xmm3, [{at} + 112]",
            "add {at}, 128",
            "sub {rounds}, 1",
            "jnz 2b",
            at = inout(reg) words.as_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack, readonly),
        );
    }
    // SAFETY: as on x86.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "2:",
            "ldp q0, q1, [{at}]",
            "ldp q2, q3, [{at}, #32]",
            "ldp q0, q1, [{at}, #64]",
            "ldp q2, q3, [{at}, #96]",
            "add {at}, {at}, #128",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            at = inout(reg) words.as_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, readonly),
        );
    }
}

/// Writes zeros to all blocks of `words` in order.
pub fn write(words: &mut [u64]) {
    let rounds = blocks(words);
    if rounds == 0 {
        return;
    }
    // SAFETY: `rounds` blocks are inside of the slice.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "xorps xmm0, xmm0",
            "2:",
            "movups [{at}], xmm0",
            "movups [{at} + 16], xmm0",
            "movups [{at} + 32], xmm0",
            "movups [{at} + 48], xmm0",
            "movups [{at} + 64], xmm0",
            "movups [{at} + 80], xmm0",
            "movups [{at} + 96], xmm0",
            "movups [{at} + 112], xmm0",
            "add {at}, 128",
            "sub {rounds}, 1",
            "jnz 2b",
            at = inout(reg) words.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("xmm0") _,
            options(nostack),
        );
    }
    // SAFETY: as on x86.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "movi v0.2d, #0",
            "movi v1.2d, #0",
            "2:",
            "stp q0, q1, [{at}]",
            "stp q0, q1, [{at}, #32]",
            "stp q0, q1, [{at}, #64]",
            "stp q0, q1, [{at}, #96]",
            "add {at}, {at}, #128",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            at = inout(reg) words.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("v0") _, out("v1") _,
            options(nostack),
        );
    }
}

/// Writes zeros to all blocks of `words` in order, past the caches. `words` must begin at a multiple of 16 bytes, or
/// nothing is written and the answer is false.
pub fn write_past_caches(words: &mut [u64]) -> bool {
    let rounds = blocks(words);
    if rounds == 0 || !words.as_ptr().addr().is_multiple_of(16) {
        return false;
    }
    // SAFETY: `rounds` blocks are inside the slice, which is aligned as movntps needs it. The fence orders
    // these writes before later code, as the rest of the program expects of writes.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "xorps xmm0, xmm0",
            "2:",
            "movntps [{at}], xmm0",
            "movntps [{at} + 16], xmm0",
            "movntps [{at} + 32], xmm0",
            "movntps [{at} + 48], xmm0",
            "movntps [{at} + 64], xmm0",
            "movntps [{at} + 80], xmm0",
            "movntps [{at} + 96], xmm0",
            "movntps [{at} + 112], xmm0",
            "add {at}, 128",
            "sub {rounds}, 1",
            "jnz 2b",
            "sfence",
            at = inout(reg) words.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("xmm0") _,
            options(nostack),
        );
    }
    // SAFETY: `rounds` blocks are inside of the slice.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "movi v0.2d, #0",
            "movi v1.2d, #0",
            "2:",
            "stnp q0, q1, [{at}]",
            "stnp q0, q1, [{at}, #32]",
            "stnp q0, q1, [{at}, #64]",
            "stnp q0, q1, [{at}, #96]",
            "add {at}, {at}, #128",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            "dmb ish",
            at = inout(reg) words.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("v0") _, out("v1") _,
            options(nostack),
        );
    }
    true
}

/// Copies all blocks that both slices have.
pub fn copy(from: &[u64], to: &mut [u64]) {
    let rounds = blocks(from).min(blocks(to)) * 2;
    if rounds == 0 {
        return;
    }
    // SAFETY: this number of half blocks is inside both slices, which do not overlap.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "2:",
            "movups xmm0, [{from}]",
            "movups xmm1, [{from} + 16]",
            "movups xmm2, [{from} + 32]",
            "movups xmm3, [{from} + 48]",
            "movups [{to}], xmm0",
            "movups [{to} + 16], xmm1",
            "movups [{to} + 32], xmm2",
            "movups [{to} + 48], xmm3",
            "add {from}, 64",
            "add {to}, 64",
            "sub {rounds}, 1",
            "jnz 2b",
            from = inout(reg) from.as_ptr() => _,
            to = inout(reg) to.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack),
        );
    }
    // SAFETY: as on x86.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "2:",
            "ldp q0, q1, [{from}]",
            "ldp q2, q3, [{from}, #32]",
            "stp q0, q1, [{to}]",
            "stp q2, q3, [{to}, #32]",
            "add {from}, {from}, #64",
            "add {to}, {to}, #64",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            from = inout(reg) from.as_ptr() => _,
            to = inout(reg) to.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack),
        );
    }
}

/// Sets `to` to `left` + 3 × `right`, all taken as numbers of 64 bits with a fraction, for all blocks that the slices have.
pub fn triad(left: &[u64], right: &[u64], to: &mut [u64]) {
    let rounds = blocks(left).min(blocks(right)).min(blocks(to)) * 2;
    if rounds == 0 {
        return;
    }
    let factor = 3.0f64;
    // SAFETY: this number of half blocks is inside all slices, and the written slice does not overlap with
    // the others.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "unpcklpd xmm4, xmm4",
            "2:",
            "movups xmm0, [{right}]",
            "movups xmm1, [{right} + 16]",
            "movups xmm2, [{right} + 32]",
            "movups xmm3, [{right} + 48]",
            "mulpd xmm0, xmm4",
            "mulpd xmm1, xmm4",
            "mulpd xmm2, xmm4",
            "mulpd xmm3, xmm4",
            "movups xmm5, [{left}]",
            "addpd xmm0, xmm5",
            "movups xmm5, [{left} + 16]",
            "addpd xmm1, xmm5",
            "movups xmm5, [{left} + 32]",
            "addpd xmm2, xmm5",
            "movups xmm5, [{left} + 48]",
            "addpd xmm3, xmm5",
            "movups [{to}], xmm0",
            "movups [{to} + 16], xmm1",
            "movups [{to} + 32], xmm2",
            "movups [{to} + 48], xmm3",
            "add {left}, 64",
            "add {right}, 64",
            "add {to}, 64",
            "sub {rounds}, 1",
            "jnz 2b",
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            to = inout(reg) to.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            inout("xmm4") factor => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm5") _,
            options(nostack),
        );
    }
    // SAFETY: as on x86.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "2:",
            "ldp q0, q1, [{left}]",
            "ldp q2, q3, [{left}, #32]",
            "ldp q4, q5, [{right}]",
            "ldp q6, q7, [{right}, #32]",
            "fmla v0.2d, v4.2d, v16.d[0]",
            "fmla v1.2d, v5.2d, v16.d[0]",
            "fmla v2.2d, v6.2d, v16.d[0]",
            "fmla v3.2d, v7.2d, v16.d[0]",
            "stp q0, q1, [{to}]",
            "stp q2, q3, [{to}, #32]",
            "add {left}, {left}, #64",
            "add {right}, {right}, #64",
            "add {to}, {to}, #64",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            to = inout(reg) to.as_mut_ptr() => _,
            rounds = inout(reg) rounds => _,
            inout("v16") factor => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Region;

    #[test]
    fn streams_do_what_they_say_to_whole_blocks() {
        let block = BLOCK / 8;
        let mut region = Region::new(1).unwrap();
        let words = &mut region.words_mut()[..4 * block];
        words.fill(9);
        write(&mut words[..2 * block + 3]);
        assert_eq!((words[2 * block - 1], words[2 * block]), (0, 9), "a part of a block is left alone");
        assert!(write_past_caches(&mut words[2 * block..]));
        assert!(words.iter().all(|word| *word == 0));
        assert!(!write_past_caches(&mut words[1..]), "not aligned");
        let from: Vec<u64> = (1..=4 * block as u64).collect();
        copy(&from, words);
        assert_eq!(words, from);
        read(words);
        assert_eq!(words, from);
        let number = |value: f64| value.to_bits();
        let (left, right) = (vec![number(1.5); 2 * block], vec![number(2.0); 2 * block]);
        triad(&left, &right, words);
        assert!(words[..2 * block].iter().all(|word| *word == number(7.5)));
        assert_eq!(words[2 * block..], from[2 * block..]);
        for empty in [&mut [][..], &mut [1; 3][..]] {
            read(empty);
            write(empty);
            assert!(!write_past_caches(empty));
        }
    }
}
