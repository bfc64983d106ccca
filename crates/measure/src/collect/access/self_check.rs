//! The self-check of the sampler: samples of a loop of our own, whose slow instruction is known.

use std::time::{Duration, Instant};

use super::{AccessProbe, clock};
use crate::access::sample::{Attribution, Registers};
use crate::access::self_check::{Landmarks, Verdict, judge};
use crate::host::clock::thread_time;
use crate::model::sample::Missing;
use crate::pmu::open::open_sampling_self;
use crate::sys;

/// Times a second that the loop is sampled.
const HZ: u32 = 4999;
/// CPU time of the loop: the clock counts on while others have the CPU, and samples do not.
const LENGTH: Duration = Duration::from_millis(60);
/// Times that the loop runs while its samples decide nothing. On a host whose other machines use much memory,
/// samples move from behind the slow load onto it for seconds: at first half of them, then all.
const TRIES: usize = 3;
/// The loop ends after this time on the clock, whatever CPU time it got.
const PATIENCE: Duration = Duration::from_millis(600);
/// Places of the chain: one in each cache line of 32 MiB, which is more than a cache of the second level holds. They are
/// freed after the check.
const LINES: usize = 1 << 19;
/// Words of a cache line.
const WORDS: usize = 8;
/// Steps between two looks at the clock.
const STEPS: u64 = 2000;

/// The note for samples that were taken despite a refusal.
pub const OVERRULED: &str =
    "the self-check failed; NUMATOP_NG_ACCESS_CHECK=off skips the check, but numbers can then be wrong";

/// Whether a refusal is overruled. Samples of an emulator do not measure time. But samples of a program that
/// is interrupted after its loads, such as that of a guest test, have its addresses. Users could only get
/// wrong numbers from this.
fn is_overruled() -> bool {
    std::env::var_os("NUMATOP_NG_ACCESS_CHECK").is_some_and(|value| value == "off")
}

/// Runs the loop in the calling thread, sampled by `probe`, which must not be attached to anything yet.
///
/// # Errors
/// Why samples cannot be taken, or say nothing on this CPU.
pub fn run(probe: &AccessProbe) -> Result<Verdict, Missing> {
    let mut chain =
        sys::Chain::new(chain()).ok_or_else(|| Missing::Lost("the self-check found no test loop".into()))?;
    let mut verdict = attempt(probe, &mut chain);
    for _ in 1..TRIES {
        if !matches!(verdict, Err(Missing::NotCollected(_))) {
            break;
        }
        verdict = attempt(probe, &mut chain);
    }
    verdict
}

/// Runs the loop once.
fn attempt(probe: &AccessProbe, chain: &mut sys::Chain) -> Result<Verdict, Missing> {
    let lost =
        |error: anyhow::Error| Missing::Lost(format!("the self-check of the sampler failed: {error:#}"));
    let fd = open_sampling_self(&clock(), HZ)?;
    let link = probe.attach(fd).map_err(lost)?;
    let (began, ran) = (Instant::now(), thread_time());
    let mut landmarks = None;
    while thread_time().saturating_sub(ran) < LENGTH && began.elapsed() < PATIENCE {
        landmarks = chain.run(STEPS);
        if landmarks.is_none() {
            break;
        }
    }
    drop(link);
    let samples = probe.take().map_err(lost)?;
    let Some((load, behind)) = landmarks else {
        return Err(Missing::Unsupported("this CPU's instruction set is not decoded".into()));
    };
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let interrupted: Vec<u64> = samples
        .iter()
        .filter(|sample| sample.tid == tid)
        .filter_map(|sample| match &sample.user.as_ref()?.registers {
            Registers::X86(registers) => Some(registers.ip),
            Registers::A64(registers) => Some(registers.pc),
        })
        .collect();
    judge(&interrupted, Landmarks { load, behind }).or_else(|why| {
        let samples = interrupted.len();
        let overruled = Verdict { attribution: Attribution::Behind, pct: 0.0, samples, is_checked: false };
        if is_overruled() { Ok(overruled) } else { Err(why) }
    })
}

/// One cycle through all lines, in an order that no prefetcher guesses (Sattolo).
fn chain() -> Vec<u64> {
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..LINES).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % at as u64) as usize);
    }
    let mut next = vec![0; LINES * WORDS];
    for (at, to) in order.iter().enumerate() {
        next[at * WORDS] = u64::from(*to) * WORDS as u64;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_cycle() {
        let next = chain();
        let (mut at, mut steps) = (0, 0);
        loop {
            (at, steps) = (next[at] as usize, steps + 1);
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, LINES);
    }
}
