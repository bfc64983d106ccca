//! Up to 64 bytes of a vector register, each known or not.

/// A register of 64 bytes.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// 0 where it is not known.
    bytes: [u8; 64],
    /// A bit for each byte that is known.
    known: u64,
}

/// The lowest `count` bits, of 64 at most.
pub(super) fn ones(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Bytes {
    pub(super) const UNKNOWN: Bytes = Bytes { bytes: [0; 64], known: 0 };
    pub(super) const ZERO: Bytes = Bytes { bytes: [0; 64], known: u64::MAX };

    /// A word of `size` bytes, followed by zeros.
    pub(super) fn of_word(word: Option<u64>, size: usize) -> Bytes {
        let mut all = Bytes::ZERO;
        all.set_word(0, size, word);
        all
    }

    pub(super) fn get(&self, at: usize) -> Option<u8> {
        (self.known >> at & 1 == 1).then(|| self.bytes[at])
    }

    pub(super) fn set(&mut self, at: usize, byte: Option<u8>) {
        self.bytes[at] = byte.unwrap_or(0);
        self.known = self.known & !(1 << at) | u64::from(byte.is_some()) << at;
    }

    /// The word of `size` bytes from the byte `at` on; eight bytes at most.
    pub(super) fn word(&self, at: usize, size: usize) -> Option<u64> {
        let wanted = ones(size) << at;
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes[at..at + size]);
        (self.known & wanted == wanted).then(|| u64::from_le_bytes(word))
    }

    pub(super) fn set_word(&mut self, at: usize, size: usize, word: Option<u64>) {
        for byte in 0..size {
            self.set(at + byte, word.map(|word| (word >> (8 * byte)) as u8));
        }
    }

    /// Its first bytes, and zero behind them.
    pub(super) fn first(mut self, length: usize) -> Bytes {
        if length < 64 {
            self.bytes[length..].fill(0);
            self.known |= !ones(length);
        }
        self
    }

    /// Each byte, where any is known.
    pub(super) fn known(&self) -> Option<[Option<u8>; 64]> {
        (self.known != 0).then(|| std::array::from_fn(|at| self.get(at)))
    }
}
