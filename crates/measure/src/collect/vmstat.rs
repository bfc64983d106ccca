//! Memory counters of the whole machine (/proc/vmstat), and whether nodes reclaim before an allocation goes elsewhere.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::kept_file::KeptFile;
pub use crate::model::sample::VmStat;
use crate::model::sample::{Hints, Missing};

/// Reads the files again with each sample.
pub struct VmStatReader {
    vmstat: KeptFile,
    zone_reclaim: KeptFile,
}

impl VmStatReader {
    /// # Errors
    /// The file cannot be opened.
    pub fn open(root: &Path) -> Result<VmStatReader> {
        let path = root.join("proc/vmstat");
        let opening = format!("opening {}", path.display());
        Ok(VmStatReader {
            vmstat: KeptFile::open(path).context(opening)?,
            zone_reclaim: KeptFile::new(root.join("proc/sys/vm/zone_reclaim_mode")),
        })
    }

    /// Why pages in swap are not counted; `None` where they are, and without CONFIG_SWAP, where 0 is true.
    ///
    /// # Errors
    /// The file cannot be read again.
    pub fn no_swap_counts(&mut self, has_swap: bool) -> io::Result<Option<Missing>> {
        let text = self.vmstat.read()?;
        let is_counted =
            ["pswpin ", "pswpout "].iter().all(|name| text.lines().any(|line| line.starts_with(name)));
        let why = || Missing::Unsupported("/proc/vmstat has no pswpin and pswpout".into());
        Ok((has_swap && !is_counted).then(why))
    }

    /// # Errors
    /// The file cannot be read again.
    pub fn read(&mut self) -> io::Result<VmStat> {
        let mode = self.zone_reclaim.read().ok().and_then(|text| text.trim().parse().ok());
        Ok(VmStat { zone_reclaim_mode: mode, ..parse(self.vmstat.read()?) })
    }
}

fn parse(text: &str) -> VmStat {
    let mut stat = VmStat::default();
    let (mut faults, mut local) = (None, 0);
    for line in text.lines() {
        let Some((name, Ok(value))) = line.split_once(' ').map(|(name, value)| (name, value.parse())) else {
            continue;
        };
        match name {
            // Not there without CONFIG_SWAP: then nothing is ever swapped, and 0 is the truth.
            "pswpin" => stat.swapped_in = value,
            "pswpout" => stat.swapped_out = value,
            "pgsteal_kswapd" => stat.kswapd_pages = value,
            // 6.1 and later count these separately; older kernels include them in the direct ones.
            "pgsteal_direct" | "pgsteal_khugepaged" | "pgsteal_proactive" => {
                stat.direct_pages = stat.direct_pages.saturating_add(value);
            }
            "numa_hint_faults" => faults = Some(value),
            "numa_hint_faults_local" => local = value,
            _ => {}
        }
    }
    stat.hints = faults.map(|faults| Hints { faults, remote: faults.saturating_sub(local) });
    stat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_linux_6_18() {
        let stat = parse(
            "nr_free_pages 1\npswpin 3\npswpout 4\npgsteal_kswapd 7910857\npgsteal_direct 611784\n\
             pgsteal_khugepaged 6\npgsteal_proactive 10\npgsteal_anon 99\nnuma_hint_faults 50\n\
             numa_hint_faults_local 20\n",
        );
        assert_eq!((stat.swapped_in, stat.swapped_out), (3, 4));
        assert_eq!((stat.kswapd_pages, stat.direct_pages), (7_910_857, 611_800));
        assert_eq!(stat.hints, Some(Hints { faults: 50, remote: 30 }));
    }

    #[test]
    fn a_machine_with_swap_whose_file_lacks_it_has_a_reason() {
        let root = std::env::temp_dir().join(format!("numatop-vmstat-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let why = |text: &str, has_swap: bool| {
            std::fs::write(root.join("proc/vmstat"), text).unwrap();
            VmStatReader::open(&root).unwrap().no_swap_counts(has_swap).unwrap()
        };
        assert!(why("nr_free_pages 1\n", true).is_some_and(|why| why.to_string().contains("pswpin")));
        assert_eq!(why("nr_free_pages 1\n", false), None);
        assert_eq!(why("pswpin 0\npswpout 0\n", true), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn more_pages_than_can_be_counted_are_as_many_as_can() {
        let text = format!("pgsteal_direct {}\npgsteal_khugepaged 6\n", u64::MAX);
        assert_eq!(parse(&text).direct_pages, u64::MAX);
    }

    #[test]
    fn without_balancing_there_are_no_hinting_faults_to_count() {
        assert_eq!(parse("nr_free_pages 1\n").hints, None);
    }
}
