//! The tool's test of itself, on this machine.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::numatop;

pub fn no_number_is_wrong_here() -> Result<()> {
    let output = numatop(&["selftest", "--format", "json"])?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let comparisons = said["comparisons"].as_array().context("there are no comparisons")?;
    let with = |verdict: &str| comparisons.iter().filter(|one| one["verdict"] == verdict).collect::<Vec<_>>();
    ensure!(with("wrong").is_empty(), "{:?}", with("wrong"));
    for id in ["minor_faults", "switches", "cpu_time"] {
        let ok = with("ok").iter().any(|one| one["check"] == id);
        ensure!(ok, "{id} was not tested: {:?}", with("untested"));
    }
    ensure!(output.status.success(), "{}", output.status);
    Ok(())
}
