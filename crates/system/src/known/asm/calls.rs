//! Calls of one-instruction functions, each on a separate page.

use std::io;

use crate::known::random::Random;
use crate::sys::Code;

/// The instruction that a function returns with.
#[cfg(target_arch = "x86_64")]
const RETURN: &[u8] = &[0xc3];
#[cfg(target_arch = "aarch64")]
const RETURN: &[u8] = &0xd65f_03c0_u32.to_le_bytes();

/// Bytes between the places of functions in their pages, so that they do not share the same few sets of a cache.
const LINE: usize = 64;

/// Functions in a random order.
pub struct Calls {
    code: Code,
    /// Places of functions, in bytes.
    order: Vec<usize>,
}

impl Calls {
    /// `functions` functions, a page each, in the order of this seed.
    ///
    /// # Errors
    /// The errno of mmap(2) or mprotect(2): EACCES where memory may not be made executable.
    pub fn new(functions: usize, seed: u64) -> io::Result<Calls> {
        let page = rustix::param::page_size();
        let mut order: Vec<usize> = (0..functions).map(|at| at * page + at * LINE % page).collect();
        let code = Code::new(functions * page, RETURN, &order)?;
        Random::new(seed).shuffle(&mut order);
        sync(&code, &order);
        Ok(Calls { code, order })
    }

    /// Calls of a pass.
    pub fn count(&self) -> u64 {
        self.order.len() as u64
    }

    /// Calls each of them once.
    pub fn pass(&self) {
        for at in &self.order {
            let Some(address) = self.code.address(*at) else { continue };
            // SAFETY: the memory is executable and holds a return there, which takes nothing and changes nothing; it lives as
            // long as `self`.
            let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn()>(address) };
            function();
        }
    }
}

/// Makes instructions that were just written visible to instruction fetches; x86 does so by itself.
#[cfg(target_arch = "x86_64")]
fn sync(_: &Code, _: &[usize]) {}

#[cfg(target_arch = "aarch64")]
fn sync(code: &Code, places: &[usize]) {
    for address in places.iter().filter_map(|at| code.address(*at)) {
        // SAFETY: maintenance of one line of our own memory.
        unsafe {
            std::arch::asm!(
                "dc cvau, {at}",
                "dsb ish",
                "ic ivau, {at}",
                "dsb ish",
                "isb",
                at = in(reg) address,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_on_a_page_of_its_own_and_returns() {
        let calls = Calls::new(512, 1).unwrap();
        calls.pass();
        let page = rustix::param::page_size();
        let mut pages: Vec<usize> = calls.order.iter().map(|at| at / page).collect();
        assert_ne!(pages[..8], [0, 1, 2, 3, 4, 5, 6, 7], "no stride that a prefetcher knows");
        pages.sort_unstable();
        assert_eq!(pages, (0..512).collect::<Vec<_>>());
        assert!(calls.order.iter().all(|at| at % LINE == 0));
        assert_eq!(calls.count(), 512);
    }
}
