//! What doctor and the refusals say: on imagined hosts word for word, on this machine as far as it is known.

mod imagined;

use std::io;

use anyhow::Context;
use imagined::{bare_metal, default_container, linux_5_10, user_with, without_btf, without_pmu};
use numatop_ng::collect::plan::Part;
use numatop_ng::doctor::{Report, Trial, render_json, render_text};
use numatop_ng::error::{Exit, Refusal, explain, preflight};
use numatop_ng::host::fact::Fact;
use numatop_ng::host::privileges::CapSet;
use numatop_ng::metric::{node::NODE_METRICS, task::TASK_METRICS};

fn eperm() -> anyhow::Error {
    Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM))
        .context("loading the BTF of the task storage map")
        .unwrap_err()
}

#[test]
fn this_machine() {
    let report = Report::gather();
    println!("{}", render_text(&report, 80));
    println!("{:#}", render_json(&report));
}
