//! Do the probes of NUMA balancing load on this kernel, whether or not there is anything to balance?

use anyhow::{Result, ensure};

use numatop_ng::collect::numa::NumaProbe;
use numatop_ng::collect::records::{Layout, create};

pub fn the_probe_of_tasks_that_are_sent_loads() -> Result<()> {
    let records = create(Layout::new(1, false, &[]))?;

    let probe = NumaProbe::start(&records)?;

    let names: Vec<&str> = probe.programs().iter().map(|(name, _)| *name).collect();
    ensure!(names == ["on_move_numa", "on_swap_numa", "on_stick_numa"], "{names:?}");
    Ok(())
}
