//! Numbers in as few bytes as they need, and reading them back without trusting a byte.

/// Seven bits per byte, lowest first; the high bit is set if more follow.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The difference `a - b`, wrapping, so that small ones of either sign are small numbers.
pub fn difference(a: u64, b: u64) -> u64 {
    let delta = a.wrapping_sub(b) as i64;
    ((delta << 1) ^ (delta >> 63)) as u64
}

/// The inverse of [`difference`], given the same `b`.
pub fn undo_difference(coded: u64, b: u64) -> u64 {
    b.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The rest to read.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// # Errors
    /// The bytes end inside the number, or it does not fit.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        match self.0.split_first() {
            // Most numbers are small.
            Some((first, rest)) if first & 0x80 == 0 => {
                self.0 = rest;
                Ok(u64::from(*first))
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, Malformed> {
        if let Some(eight) = self.0.first_chunk() {
            let word = u64::from_le_bytes(*eight);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bytes = ends.trailing_zeros() / 8 + 1;
                self.0 = &self.0[bytes as usize..];
                return Ok(joined(word & (u64::MAX >> (64 - 8 * bytes))));
            }
        }
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Malformed("the data ends inside a number"))?;
            self.0 = rest;
            let bits = u64::from(first & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number has more than 64 bits"))
    }

    /// Numbers in the remaining bytes, which end with the last byte of one.
    pub fn numbers(&self) -> usize {
        let (words, rest) = self.0.as_chunks();
        words.iter().map(|word| ends_in(*word)).sum::<usize>()
            + rest.iter().filter(|byte| is_end(byte)).count()
    }

    /// Numbers at the beginning that are 0: at most 8, even if more follow.
    #[inline]
    pub fn zeros(&self) -> usize {
        match self.0.first_chunk() {
            Some(word) => (u64::from_le_bytes(*word).trailing_zeros() / 8) as usize,
            None => usize::from(self.0.first() == Some(&0)),
        }
    }

    /// The next `count` numbers, unread.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take_numbers(&mut self, count: usize) -> Result<Bytes<'a>, Malformed> {
        let (mut end, mut left) = (0, count);
        // The last number may end within a word.
        for word in self.0.as_chunks().0 {
            let ends = ends_in(*word);
            if ends >= left {
                break;
            }
            (end, left) = (end + word.len(), left - ends);
        }
        while left > 0 {
            let byte = self.0.get(end).ok_or(Malformed("the data end too early"))?;
            (end, left) = (end + 1, left - usize::from(is_end(byte)));
        }
        self.take(end).map(Bytes)
    }

    /// A number that counts things: refused above `limit`, before anything is made room for.
    ///
    /// # Errors
    /// As [`Bytes::number`], and above the limit.
    pub fn count(&mut self, limit: usize) -> Result<usize, Malformed> {
        let count = self.number()?;
        if count > limit as u64 {
            return Err(Malformed("a count exceeds its limit"));
        }
        Ok(count as usize)
    }

    /// # Errors
    /// There are fewer than `len`.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed("the data end too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Text with its length in front.
    ///
    /// # Errors
    /// Too long, cut off, or not UTF-8.
    pub fn text(&mut self, limit: usize) -> Result<&'a str, Malformed> {
        let len = self.count(limit)?;
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed("a string is not UTF-8"))
    }

    /// # Errors
    /// Something is left.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("extra bytes follow the last field")) }
    }
}

/// Whether a byte is the last one of a number.
fn is_end(byte: &u8) -> bool {
    *byte < 0x80
}

/// Numbers that end in these bytes.
fn ends_in(bytes: [u8; 8]) -> usize {
    let ends = (!u64::from_le_bytes(bytes) & 0x8080_8080_8080_8080) >> 7;
    // The highest byte of the product is the sum of all bytes.
    (ends.wrapping_mul(0x0101_0101_0101_0101) >> 56) as usize
}

/// The number whose bits are the lower seven of each byte.
fn joined(word: u64) -> u64 {
    let halves = |word: u64, low: u64, high: u64, by: u32| (word & low) | ((word & high) >> by);
    let pairs = halves(word, 0x007f_007f_007f_007f, 0x7f00_7f00_7f00_7f00, 1);
    let fours = halves(pairs, 0x0000_3fff_0000_3fff, 0x3fff_0000_3fff_0000, 2);
    halves(fours, 0x0000_0000_0fff_ffff, 0x0fff_ffff_0000_0000, 4)
}

/// Text with its length in front.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u64>(), base in any::<u64>()) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut input = Bytes(&bytes);
            prop_assert_eq!(input.number().unwrap(), value);
            prop_assert!(input.finish().is_ok());
            prop_assert_eq!(undo_difference(difference(value, base), base), value);
        }

        #[test]
        fn numbers_are_parted_where_they_end(
            values in proptest::collection::vec(prop_oneof![0u64..3, any::<u64>()], 0..40),
            at in 0usize..41,
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(&mut bytes, *value));
            let mut rest = Bytes(&bytes);
            let Ok(mut taken) = rest.take_numbers(at) else {
                prop_assert!(at > values.len());
                return Ok(());
            };
            for (i, value) in values.iter().enumerate() {
                let from = if i < at { &mut taken } else { &mut rest };
                prop_assert_eq!(from.number(), Ok(*value));
            }
            prop_assert!(taken.finish().is_ok() && rest.finish().is_ok());
        }

        #[test]
        fn any_bytes_are_a_number_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let _ = Bytes(&bytes).number();
        }
    }

    #[test]
    fn small_differences_of_either_sign_take_one_byte() {
        for (a, b) in [(5, 3), (3, 5), (0, u64::MAX), (7, 7)] {
            assert!(difference(a, b) < 0x80, "{a} - {b}");
        }
    }

    #[test]
    fn eleven_bytes_are_no_number() {
        assert!(Bytes(&[0x80; 11]).number().is_err());
        assert!(Bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number().is_err());
    }

    #[test]
    fn a_count_is_refused_before_room_is_made() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1 << 40);
        assert!(Bytes(&bytes).count(1 << 20).is_err());
    }
}
