//! The instructions at which programs cannot be followed further. For a branch this is the instruction that
//! set its flags, and the last one that left a register unknown. Ends after a return from the sampled
//! function are listed separately: its stack may have changed since the sample.

use std::collections::BTreeMap;

use numatop_ng::access::follow::{Follower, GaveUp, STEPS_MAX};
use numatop_ng::access::sample::{Attribution, Decoders, Registers, UserState};
use numatop_ng::sys::read_memory;

/// Kinds of ends that are listed.
const LISTED: usize = 10;

/// Samples by the end of their way.
#[derive(Default)]
pub(super) struct Ends {
    by_end: BTreeMap<String, u64>,
    samples: u64,
}

impl Ends {
    /// Follows a sample of `pid` to the next run of its instruction.
    pub(super) fn add(&mut self, decoders: &Decoders, state: &UserState, attribution: Attribution, pid: u32) {
        self.samples += 1;
        let (end, returned) = end(decoders, state, attribution, pid);
        let end = if returned { format!("{end} (returned)") } else { end };
        *self.by_end.entry(end).or_default() += 1;
    }

    /// The most frequent ends, with their share of all samples in per cent.
    pub(super) fn words(&self) -> String {
        let mut ends: Vec<_> = self.by_end.iter().collect();
        ends.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let share = |count: u64| 100.0 * count as f64 / self.samples.max(1) as f64;
        let words = ends.into_iter().take(LISTED).map(|(end, count)| format!("{end} {:.0}", share(*count)));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The end, and whether the way left the function that was sampled.
fn end(decoders: &Decoders, state: &UserState, attribution: Attribution, pid: u32) -> (String, bool) {
    let mut returned = false;
    let end = end_of(decoders, state, attribution, pid, &mut returned);
    (end, returned)
}

fn end_of(
    decoders: &Decoders,
    state: &UserState,
    attribution: Attribution,
    pid: u32,
    returned: &mut bool,
) -> String {
    let Registers::X86(registers) = &state.registers else { return "arm64".into() };
    let Some(target) = decoders.target(state, attribution) else { return "no target".into() };
    let Some(mut follower) = Follower::new(registers, state.stack.clone()) else { return "32 bits".into() };
    // Calls that were entered and not left again.
    let mut depth = 0_u32;
    let mut read =
        |address: u64, bytes: &mut [u8]| read_memory(pid, address, bytes).is_ok_and(|got| got == bytes.len());
    // The last instruction that made flags, and the last one that made a register unknown.
    let mut flags_from = "its registers".to_string();
    let mut unknown_from = String::new();
    let known = |follower: &Follower| (0..16).filter(|number| follower.register(*number).is_some()).count();
    for _ in 0..STEPS_MAX {
        let Ok(instruction) = follower.fetch(&mut read) else { return "code".into() };
        let mnemonic = format!("{:?}", instruction.mnemonic()).to_lowercase();
        let before = known(&follower);
        match follower.step(&mut read) {
            Ok(()) if known(&follower) < before => unknown_from = format!(" after {mnemonic}"),
            Ok(()) => {}
            Err(GaveUp::Branch) if instruction.is_jcc_short_or_near() => {
                return format!("branch on {flags_from}{unknown_from}");
            }
            Err(GaveUp::Branch) => return format!("target of {mnemonic}"),
            Err(GaveUp::Return) => return "a return further up the stack than the sample".into(),
            Err(_) => return mnemonic,
        }
        match mnemonic.as_str() {
            "call" => depth += 1,
            "ret" if depth == 0 => *returned = true,
            "ret" => depth -= 1,
            _ => {}
        }
        if instruction.rflags_modified() != 0 {
            flags_from = mnemonic;
        }
        if follower.ip() == target {
            let known = follower.fetch(&mut read).ok().and_then(|next| follower.address(&next));
            return if known.is_some() { "resolved".into() } else { "address".into() };
        }
    }
    format!("{STEPS_MAX} steps")
}
