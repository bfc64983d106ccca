//! A walk through memory in which each load waits for the one before.

use std::arch::asm;

use crate::sys::{Mirror, Region};

/// Loads of one round of [`Cycle::walk`].
pub const LOADS: u64 = 16;

/// A closed walk through a region: each of its words holds the address of the next one.
pub struct Cycle {
    region: Region,
    /// Indices of one word of each line, in no order that matters; what [`Cycle::flush`] goes through.
    words: Vec<u32>,
    at: u64,
}

impl Cycle {
    /// The walk through the words of `region` with these indices, in this order, and from the last to the
    /// first again. Its first `lines` words are one of each line, to which later words return. `None` if a
    /// word is outside the region or there are none.
    pub fn new(mut region: Region, mut words: Vec<u32>, lines: usize) -> Option<Cycle> {
        let base = region.address();
        let memory = region.words_mut();
        if lines == 0 || words.is_empty() || words.iter().any(|word| *word as usize >= memory.len()) {
            return None;
        }
        let address = |word: u32| base + u64::from(word) * size_of::<u64>() as u64;
        let next = words.iter().skip(1).chain(words.first());
        words.iter().zip(next).for_each(|(word, next)| memory[*word as usize] = address(*next));
        let at = address(words[0]);
        words.truncate(lines);
        words.shrink_to_fit();
        Some(Cycle { region, words, at })
    }

    /// Lines of the walk: loads before it comes to a line for the second time.
    pub fn lines(&self) -> u64 {
        self.words.len() as u64
    }

    /// Memory that it goes through.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Continues by `rounds` times [`LOADS`] loads, each dependent on the previous one.
    pub fn walk(&mut self, rounds: u64) {
        if rounds > 0 {
            // SAFETY: `at` is the address of a word of the region, and so is the content of each such word.
            // Only new() writes them, and the region lives as long as `self`.
            self.at = unsafe { walk(self.at, rounds) };
        }
    }

    /// Writes every line of the walk again, so that only the cache of this CPU holds them.
    pub fn rewrite(&mut self) {
        let memory = self.region.words_mut();
        for word in &self.words {
            // Storing the same value is still a store.
            memory[*word as usize] = std::hint::black_box(memory[*word as usize]);
        }
    }

    /// Takes every line of the walk out of all caches, and waits until that is done. False on CPUs where we know no way.
    pub fn flush(&self) -> bool {
        let words = self.region.words();
        self.words.iter().all(|word| flush_line(&words[*word as usize])) && wait_for_flushes()
    }
}

/// A closed walk through a mirror: each load is of another page, and all of them are in one piece of memory.
pub struct Far {
    #[expect(dead_code, reason = "the memory that is walked through")]
    mirror: Mirror,
    loads: u64,
    at: u64,
}

impl Far {
    /// The walk through the words with these indices, in this order. The caller ensures that no two of them
    /// are the same word of memory. `None` if one is outside or there are none.
    pub fn new(mut mirror: Mirror, words: &[u32]) -> Option<Far> {
        let base = mirror.address();
        let address = |word: u32| base + u64::from(word) * size_of::<u64>() as u64;
        let next = words.iter().skip(1).chain(words.first());
        let stored = words.iter().zip(next).all(|(word, next)| mirror.store(*word as usize, address(*next)));
        let at = address(*words.first()?);
        stored.then_some(Far { mirror, loads: words.len() as u64, at })
    }

    /// Loads of a pass, each of another page.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// Continues by `rounds` times [`LOADS`] loads.
    pub fn walk(&mut self, rounds: u64) {
        if rounds > 0 {
            // SAFETY: as in Cycle::walk: only new() writes the words, and each holds the address of another.
            self.at = unsafe { walk(self.at, rounds) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn walk(mut at: u64, rounds: u64) -> u64 {
    // SAFETY: the caller promises that every word of the chain holds the address of the next.
    unsafe {
        asm!(
            "2:",
            ".rept 16",
            "mov {at}, qword ptr [{at}]",
            ".endr",
            "sub {rounds}, 1",
            "jnz 2b",
            at = inout(reg) at,
            rounds = inout(reg) rounds => _,
            options(nostack, readonly),
        );
    }
    at
}

#[cfg(target_arch = "aarch64")]
unsafe fn walk(mut at: u64, rounds: u64) -> u64 {
    // SAFETY: the caller promises that every word of the chain holds the address of the next.
    unsafe {
        asm!(
            "2:",
            ".rept 16",
            "ldr {at}, [{at}]",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            at = inout(reg) at,
            rounds = inout(reg) rounds => _,
            options(nostack, readonly),
        );
    }
    at
}

#[cfg(target_arch = "x86_64")]
fn flush_line(word: &u64) -> bool {
    // SAFETY: a flush changes no memory; every CPU of x86-64 has clflush.
    unsafe { std::arch::x86_64::_mm_clflush(std::ptr::from_ref(word).cast()) };
    true
}

#[cfg(target_arch = "aarch64")]
fn flush_line(word: &u64) -> bool {
    // SAFETY: cleaning a line to the point of coherency changes no memory; Linux allows it in user space (SCTLR_EL1.UCI).
    unsafe { asm!("dc civac, {}", in(reg) std::ptr::from_ref(word), options(nostack)) };
    true
}

#[cfg(target_arch = "x86_64")]
fn wait_for_flushes() -> bool {
    // SAFETY: a barrier.
    unsafe { std::arch::x86_64::_mm_mfence() };
    true
}

#[cfg(target_arch = "aarch64")]
fn wait_for_flushes() -> bool {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack)) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_through_a_mirror_comes_back() {
        // The same memory is seen twice: word 5 of the second view is word 5 of the first.
        let second = (Region::ALIGN / size_of::<u64>()) as u32;
        let mut far = Far::new(Mirror::new(2).unwrap(), &[0, second + 5, 9, second + 700]).unwrap();
        let begin = far.at;
        far.walk(3);
        assert_eq!((far.at, far.loads()), (begin, 4));
        assert!(Far::new(Mirror::new(1).unwrap(), &[second]).is_none());
        assert!(Far::new(Mirror::new(1).unwrap(), &[]).is_none());
        assert!(Mirror::new(0).is_err());
    }

    #[test]
    fn a_walk_comes_back_and_stays_inside() {
        let order = vec![0, 512, 64, 1024];
        let mut cycle = Cycle::new(Region::new(1).unwrap(), order, 4).unwrap();
        let start = cycle.at;
        cycle.walk(1);
        assert_eq!(cycle.at, start, "16 loads are four times the four words");
        assert!(cycle.flush());
        cycle.walk(25);
        assert_eq!(cycle.at, start);
        let mut three = Cycle::new(Region::new(1).unwrap(), vec![0, 8, 16], 3).unwrap();
        three.walk(1);
        assert_eq!(three.at, three.region().address() + 8 * 8, "16 loads are five times three, and one");
        let words = three.region().words().len() as u32;
        assert!(Cycle::new(Region::new(1).unwrap(), vec![0, words], 2).is_none());
        assert!(Cycle::new(Region::new(1).unwrap(), vec![], 0).is_none());
    }
}
