//! Threads that read a disk past the page cache: requests and bytes whose number is known.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{say, stop_flag, wait_for_flag, wait_for_go};
use crate::affinity;

/// Addresses of buffers are multiples of this.
const ALIGNED: usize = 4096;

/// `threads` threads on these CPUs; each reads `kib` KiB of a disk at a time, `each` times or until the end.
pub fn run(disk: &str, cpus: &[u32], kib: u64, threads: u64, each: Option<u64>) -> Result<Value, String> {
    affinity::pin(cpus).map_err(|error| format!("pinning to CPUs {cpus:?}: {error}"))?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(disk)
        .map_err(|error| format!("opening {disk}: {error}"))?;
    let file = Arc::new(file);
    wait_for_go(&json!({"pid": std::process::id()}));
    let stop = stop_flag();
    let requests = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..threads)
        .map(|_| {
            let (file, stop, requests) = (Arc::clone(&file), Arc::clone(&stop), Arc::clone(&requests));
            thread::spawn(move || -> Result<(), String> {
                let mut buffer = vec![0; kib as usize * 1024 + ALIGNED];
                let from = buffer.as_ptr().align_offset(ALIGNED);
                let buffer = &mut buffer[from..from + kib as usize * 1024];
                let mut left = each.unwrap_or(u64::MAX);
                while left > 0 && !stop.load(Ordering::Relaxed) {
                    left -= 1;
                    // The begin of the disk.
                    file.read_exact_at(buffer, 0).map_err(|error| format!("reading: {error}"))?;
                    requests.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    for reader in readers {
        reader.join().map_err(|_| "a thread panicked".to_owned())??;
    }
    let requests = requests.load(Ordering::Relaxed);
    if each.is_some() {
        say(&json!({"requests": requests}));
        wait_for_flag(&stop);
    }
    Ok(json!({"requests": requests, "bytes": requests * kib * 1024}))
}
