//! The probes of NUMA balancing load on this kernel, or say why not, also without anything to balance.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use numatop_ng::collect::attach::AttachMethod;
use numatop_ng::collect::maps::{RecordLayout, create};
use numatop_ng::collect::probes::{self, Probes, Shared};
use numatop_ng::model::facility::Facility;

/// Room for pages by node, as on a machine with several.
fn layout() -> RecordLayout {
    RecordLayout { pages: true, ..RecordLayout::new(1, false, &[]) }
}

pub fn the_probe_of_tasks_that_are_sent_loads() -> Result<()> {
    let (layout, mut probes) = (layout(), Probes::default());
    let records = create(layout)?;

    probes.start(&Shared::new(Path::new("/"), &records, layout), |facility| facility == Facility::SentTasks);

    ensure!(probes.missing().is_empty(), "{:?}", probes.missing());
    let names: Vec<String> =
        probes.programs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    ensure!(names == ["on_move_numa", "on_swap_numa", "on_stick_numa"], "{names:?}");
    Ok(())
}

pub fn hinting_faults_are_attached_and_say_why_not_in_a_better_way() -> Result<()> {
    holds_or_says_why(Facility::HintFaults)
}

pub fn time_of_balancing_is_attached_or_each_way_says_why_not() -> Result<()> {
    holds_or_says_why(Facility::BalancingTime)
}

fn holds_or_says_why(facility: Facility) -> Result<()> {
    let layout = layout();
    let records = create(layout)?;
    let probe = probes::of(facility).context("no probe brings this")?;

    let words = match (probe.start)(&Shared::new(Path::new("/"), &records, layout)) {
        Ok(running) => running.words(),
        Err(error) => format!("{error:#}"),
    };

    println!("{words}");
    let by = |method: &AttachMethod| words.starts_with(&format!("by {}", method.name()));
    let above = AttachMethod::ALL.iter().take_while(|method| !by(method)).count();
    ensure!(words.matches("not by ").count() == above, "{above} better ways were refused: {words}");
    ensure!(words.matches("os error").count() == above, "no errno in: {words}");
    Ok(())
}

pub fn pages_that_balancing_moves_are_hooked_or_each_way_says_why_not() -> Result<()> {
    let layout = layout();
    let records = create(layout)?;
    let probe = probes::of(Facility::PageFlows).context("no probe brings this")?;

    match (probe.start)(&Shared::new(Path::new("/"), &records, layout)) {
        Ok(running) => {
            let words = running.words();
            println!("{words}");
            ensure!(words.contains(" of migrate_misplaced_"), "{words}");
        }
        Err(error) => {
            let words = format!("{error:#}");
            println!("{words}");
            ensure!(
                words.matches("os error").count() == AttachMethod::ALL.len(),
                "not each way has its errno: {words}"
            );
        }
    }
    Ok(())
}
