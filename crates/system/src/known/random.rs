//! Numbers that look random and are the same in every run, so that a load can be made again.

/// A generator of 64-bit numbers: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators").
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of this seed; 0 is taken as another one, because it would stay there.
    pub fn new(seed: u64) -> Random {
        Random(if seed == 0 { 0x9e37_79b9_7f4a_7c15 } else { seed })
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 where `end` is 0. The bias is below `end` / 2^64.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_everything_once_and_is_no_order() {
        let mut items: Vec<usize> = (0..1000).collect();
        Random::new(0).shuffle(&mut items);
        let in_place = items.iter().enumerate().filter(|(at, item)| at == *item).count();
        assert!(in_place < 10, "{in_place}");
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..1000));
    }

    #[test]
    fn numbers_below_an_end_reach_all_of_it() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[random.below(7)] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
