//! A disk that is read through the page cache, once.

use std::fs::File;
use std::io::Read;

use serde_json::{Value, json};

use super::{say, wait_for_end, wait_for_go};
use crate::affinity;
use crate::disk::DEVICE;

const CHUNK: usize = 256 << 10;

/// Reads the first `mib` MiB on `cpu`, whose node the kernel fills first. Reports this, and stays until its
/// input ends.
pub fn run(cpu: u32, mib: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let failed = |what: &'static str| move |error| format!("{what} {DEVICE}: {error}");
    let mut disk = File::open(DEVICE).map_err(failed("opening"))?;
    wait_for_go(&json!({"pid": std::process::id()}));
    let mut chunk = vec![0; CHUNK];
    for _ in 0..(mib as usize) << 20 >> CHUNK.trailing_zeros() {
        disk.read_exact(&mut chunk).map_err(failed("reading"))?;
    }
    say(&json!({"read_mib": mib}));
    wait_for_end();
    Ok(json!({}))
}
