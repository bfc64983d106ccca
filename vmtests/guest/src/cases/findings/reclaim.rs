//! A node that is cleaned up while another one has room, because vm.zone_reclaim_mode is 1: `zone-reclaim`.
//!
//! This guest has no disk, so its page cache cannot be dropped; slab caches can. The share of slab that the kernel leaves
//! alone is set to none, so each allocation on the full node tries.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{Loop, SLACK, shell};
use crate::report::Report;
use crate::setting::Setting;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_reclaim",
    about: "node 0 is full, vm.zone_reclaim_mode is 1 and node 1 has room: the finding comes, its command ends the reclaim and \
            the finding, and the way back restores the value",
    run,
};

const MODE: &str = "/proc/sys/vm/zone_reclaim_mode";
const SLAB: &str = "/proc/sys/vm/min_slab_ratio";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(15);
/// MiB that are taken and given back on the full node.
const MIB: &str = "24";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.nodes.len() != 2 {
        return Err(Stop::skip("needs two nodes"));
    }
    let _slab = Setting::begin(SLAB, "0")?;
    let mode = Setting::begin(MODE, "1")?;
    let mut watch = Watch::start()?;
    let work = Work::start_now("overflow", &["0", MIB])?;
    let finding = Loop::of("zone-reclaim").close(report, &mut watch, HELD + SLACK + SLACK)?;
    report.equal("the mode after the command", "0".to_owned(), mode.get()?);
    let undo = finding["undo"][0]["line"].as_str().unwrap_or_default();
    shell::execute(undo)?;
    report.equal(format_args!("the mode after {undo:?}"), "1".to_owned(), sysfs::read(MODE)?);
    watch.stop()?;
    work.stop()?;
    Ok(())
}
