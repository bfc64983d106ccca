//! Do the probes of NUMA balancing load on this kernel, or say why not, whether or not there is anything to balance?

use std::path::Path;

use anyhow::{Result, ensure};

use numatop_ng::collect::balancing_time::TimeProbe;
use numatop_ng::collect::hinting::HintProbe;
use numatop_ng::collect::moved::MoveProbe;
use numatop_ng::collect::numa::NumaProbe;
use numatop_ng::collect::records::{Layout, create};
use numatop_ng::collect::rung::{Ladder, Rung};
use numatop_ng::host::types::Types;

pub fn the_probe_of_tasks_that_are_sent_loads() -> Result<()> {
    let records = create(Layout::new(1, false, &[]))?;

    let probe = NumaProbe::start(&records)?;

    let names: Vec<&str> = probe.programs().iter().map(|(name, _)| *name).collect();
    ensure!(names == ["on_move_numa", "on_swap_numa", "on_stick_numa"], "{names:?}");
    Ok(())
}

pub fn hinting_faults_stand_on_a_rung_and_say_why_not_on_a_better_one() -> Result<()> {
    let records = create(Layout::new(1, false, &[]))?;

    holds_or_says_why(&Ladder::climb(|rung| HintProbe::start(&records, rung)))
}

pub fn time_of_balancing_stands_on_a_rung_or_says_why_on_none() -> Result<()> {
    let records = create(Layout::new(1, false, &[]))?;

    holds_or_says_why(&Ladder::climb(|rung| TimeProbe::start(&records, rung)))
}

fn holds_or_says_why<P>(ladder: &Ladder<P>) -> Result<()> {
    let words = ladder.words("nothing");
    println!("{words}");
    let above = ladder
        .probe
        .as_ref()
        .map_or(Rung::ALL.len(), |(held, _)| Rung::ALL.iter().take_while(|rung| *rung != held).count());
    ensure!(ladder.refused.len() == above, "{} rungs above were refused", ladder.refused.len());
    ensure!(words.matches("os error").count() == above, "no errno in: {words}");
    Ok(())
}

pub fn pages_that_balancing_moves_are_hooked_or_each_way_says_why_not() -> Result<()> {
    let records = create(Layout::new(1, false, &[]))?;

    match MoveProbe::start(&records, &Types::read(Path::new("/"))?) {
        Ok(probe) => {
            println!("{}", probe.words());
            let (name, _) = probe.program();
            ensure!(name.starts_with("on_misplaced"), "{name}");
        }
        Err(error) => {
            let words = format!("{error:#}");
            println!("{words}");
            ensure!(
                words.matches("os error").count() == Rung::ALL.len(),
                "not each way has its errno: {words}"
            );
        }
    }
    Ok(())
}
