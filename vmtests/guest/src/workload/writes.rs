//! New files whose bytes are known: one that stays in the page cache until the kernel writes it back, and one that is synced.

use std::fs::File;
use std::io::Write;

use serde_json::{Value, json};

use super::{say, wait_for_end, wait_for_go, wait_for_line};

const BLOCK: usize = 64 << 10;

/// Files of `blocks` and of `synced` blocks, whose names begin with `file`. Reports each, waits for a line before each, and
/// stays until its input ends. The files are new, because closing a truncated and rewritten file flushes it.
pub fn run(file: &str, blocks: u64, synced: u64) -> Result<Value, String> {
    wait_for_go(&json!({"pid": std::process::id()}));
    write(&format!("{file}.cached"), blocks)?;
    say(&json!({"cached": blocks * BLOCK as u64}));
    wait_for_line();
    let synced_file = write(&format!("{file}.synced"), synced)?;
    synced_file.sync_all().map_err(|error| format!("fsync of {file}.synced: {error}"))?;
    say(&json!({"synced": synced * BLOCK as u64}));
    wait_for_end();
    Ok(json!({}))
}

fn write(path: &str, blocks: u64) -> Result<File, String> {
    let failed = |error| format!("writing {path}: {error}");
    let mut file = File::create_new(path).map_err(failed)?;
    for _ in 0..blocks {
        file.write_all(&[7; BLOCK]).map_err(failed)?;
    }
    Ok(file)
}
