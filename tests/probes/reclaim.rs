//! Pages that reclaim frees are counted on their node: beside /proc/vmstat, with reclaim that the test
//! asks for.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use numatop_ng::model::sample::Sample;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::sample;

/// Writing a size here reclaims as much (Documentation/ABI/stable/sysfs-devices-node, Linux 6.17).
const ASK: &str = "/sys/devices/system/node/node0/reclaim";
const ASKED: &str = "32M";
/// A quarter of the requested amount, in pages of 4 KiB: the kernel may find less.
const ENOUGH: u64 = 2048;

/// The reason why reclaim cannot be triggered here.
pub fn obstacle() -> Option<&'static str> {
    (!Path::new(ASK).exists()).then_some("the kernel cannot be asked for reclaim (before 6.17)")
}

pub fn reclaimed_pages_are_counted_on_their_node() -> Result<()> {
    let mut source = LiveSource::start(LiveOptions::default())?;
    let before = sample(&mut source)?;
    match fs::write(ASK, ASKED) {
        // Less was found than asked for, as beside builds that write: below it is seen whether that is enough.
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        asked => asked.with_context(|| format!("writing {ASKED} to {ASK}"))?,
    }
    let after = sample(&mut source)?;

    let on_nodes = |sample: &Sample| -> u64 {
        sample.nodes.iter().map(|node| node.kswapd_pages + node.direct_pages).sum()
    };
    let of_all = |sample: &Sample| -> Result<u64> { Ok(sample.vm.context("no vmstat")?.reclaimed()) };
    let counted = on_nodes(&after) - on_nodes(&before);
    let truth = of_all(&after)? - of_all(&before)?;
    println!("{counted} pages counted on the nodes, {truth} by /proc/vmstat");
    ensure!(truth >= ENOUGH, "{ASKED} were asked for and {truth} pages reclaimed: nothing to compare");
    ensure!(counted.abs_diff(truth) <= truth / 100, "counted {counted} pages, the kernel says {truth}");
    ensure!(source.host().missing.keys().all(|id| !id.contains("reclaim")), "reclaim is said to be missing");
    Ok(())
}
