//! Things of a process that must not become more with time.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::resident;

/// Looks at the descriptors, and the time between them; the smallest number counts. A sample opens files and
/// iterators, and with ten samples a second one look in a thousand sees one of them.
const LOOKS: usize = 5;
const BETWEEN: Duration = Duration::from_millis(30);

/// Things that a process holds.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Resident memory in MB: all, and the part that is not of a file. Pages of the program are resident as
    /// the machine's page cache allows.
    pub rss: f64,
    /// See `rss`.
    pub anonymous: f64,
    pub descriptors: usize,
    pub mappings: usize,
    /// Memory of the BPF maps behind its descriptors, as reported by the kernel, kB.
    pub bpf_maps: f64,
}

impl Held {
    /// # Errors
    /// The process does not exist, or its files are not readable.
    pub fn read(pid: u32) -> Result<Held> {
        let fds = format!("/proc/{pid}/fd");
        let maps = format!("/proc/{pid}/maps");
        let status = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&status).with_context(|| format!("reading {status}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let anonymous = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        let about = Path::new("/proc").join(pid.to_string()).join("fdinfo");
        let open = || fs::read_dir(&fds).with_context(|| format!("reading {fds}"));
        let mut descriptors = open()?.count();
        for _ in 1..LOOKS {
            sleep(BETWEEN);
            descriptors = descriptors.min(open()?.count());
        }
        let mut bytes = 0;
        for fd in open()? {
            // It may have been closed since.
            bytes += fs::read_to_string(about.join(fd?.file_name())).map_or(0, |text| bytes_of_map(&text));
        }
        Ok(Held {
            rss: resident(pid)?.0 as f64 / 1e6,
            anonymous: anonymous.with_context(|| format!("no RssAnon in {status}"))? * 1024.0 / 1e6,
            descriptors,
            mappings: fs::read_to_string(&maps).with_context(|| format!("reading {maps}"))?.lines().count(),
            bpf_maps: bytes as f64 / 1e3,
        })
    }
}

/// Bytes of the BPF map that a file of fdinfo is about; 0 of anything else.
fn bytes_of_map(fdinfo: &str) -> u64 {
    let field = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name));
    let bytes = field("map_type:").and_then(|_| field("memlock:"));
    bytes.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_maps_have_bytes() {
        assert_eq!(bytes_of_map("pos:\t0\nmap_type:\t2\nkey_size:\t4\nmemlock:\t8192\nmap_id:\t7\n"), 8192);
        assert_eq!(bytes_of_map("pos:\t0\nprog_type:\t2\nmemlock:\t4096\n"), 0);
    }

    #[test]
    fn we_hold_something() {
        let held = Held::read(std::process::id()).unwrap();
        assert!(
            held.anonymous > 0.0 && held.rss > held.anonymous && held.descriptors > 2 && held.mappings > 2
        );
    }
}
