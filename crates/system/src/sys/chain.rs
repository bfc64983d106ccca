//! Dependent loads that no compiler and no processor can shorten.

/// Places that each name the next one.
pub struct Chain {
    next: Vec<u64>,
    /// The place that comes next.
    at: u64,
}

impl Chain {
    /// `None` where a place names one that is not there.
    pub fn new(next: Vec<u64>) -> Option<Chain> {
        let length = next.len() as u64;
        (length > 0 && next.iter().all(|place| *place < length)).then_some(Chain { next, at: 0 })
    }

    /// The loop of the self-check of clock samples: takes `steps` steps along the chain, at least one. It
    /// starts where the previous call ended: the same places again would be in the nearest cache. Each step
    /// is a load that depends on the previous one, and additions that do not depend on it. The first addition
    /// comes before the load, because emulators interrupt at targets of jumps, and the load must not be one.
    /// Returns the addresses of the load and of the instruction after it; `None` on CPUs other than x86-64
    /// and arm64.
    pub fn run(&mut self, steps: u64) -> Option<(u64, u64)> {
        chase(&self.next, &mut self.at, steps.max(1))
    }
}

#[cfg(target_arch = "x86_64")]
fn chase(next: &[u64], at: &mut u64, steps: u64) -> Option<(u64, u64)> {
    let (load, behind): (u64, u64);
    // SAFETY: the first place and all loaded ones are below the length of the slice, as [`Chain::new`] has
    // checked, so each load is in bounds. Changed registers are named; the stack is not touched.
    unsafe {
        std::arch::asm!(
            "lea {load}, [rip + 4f]",
            "lea {behind}, [rip + 3f]",
            ".p2align 6",
            "2: add {sum}, 1",
            "4: mov {at}, qword ptr [{base} + {at} * 8]",
            "3: add {sum}, 1",
            ".rept 39",
            "add {sum}, 1",
            ".endr",
            "sub {steps}, 1",
            "jnz 2b",
            load = out(reg) load,
            behind = out(reg) behind,
            at = inout(reg) *at,
            base = in(reg) next.as_ptr(),
            sum = inout(reg) 0u64 => _,
            steps = inout(reg) steps => _,
            options(nostack, readonly),
        );
    }
    Some((load, behind))
}

#[cfg(target_arch = "aarch64")]
fn chase(next: &[u64], at: &mut u64, steps: u64) -> Option<(u64, u64)> {
    let (load, behind): (u64, u64);
    // SAFETY: as on x86.
    unsafe {
        std::arch::asm!(
            "adr {load}, 4f",
            "adr {behind}, 3f",
            "2: add {sum}, {sum}, #1",
            "4: ldr {at}, [{base}, {at}, lsl #3]",
            "3: add {sum}, {sum}, #1",
            ".rept 39",
            "add {sum}, {sum}, #1",
            ".endr",
            "subs {steps}, {steps}, #1",
            "b.ne 2b",
            load = out(reg) load,
            behind = out(reg) behind,
            at = inout(reg) *at,
            base = in(reg) next.as_ptr(),
            sum = inout(reg) 0u64 => _,
            steps = inout(reg) steps => _,
            options(nostack, readonly),
        );
    }
    Some((load, behind))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn chase(_: &[u64], _: &mut u64, _: u64) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_on_where_it_ended() {
        let mut chain = Chain::new(vec![2, 0, 3, 1]).unwrap();
        let places = [1, 1, 3, 1].map(|steps| chain.run(steps).map(|_| chain.at));
        assert_eq!(places, [Some(2), Some(3), Some(2), Some(3)]);
        assert!(Chain::new(vec![1, 2]).is_none());
    }
}
