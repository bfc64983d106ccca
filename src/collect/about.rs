//! What /proc says of processes whose command line, affinity or huge pages somebody asked for: too costly for every
//! process at every refresh, so it is read in turns, within a budget of time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inspect::{self, Details};
use super::placement::Process;
use crate::sample::{Missing, Reading};

/// Time for each sample. One reading may take longer; the samples after it then make up for it.
const BUDGET: Duration = Duration::from_millis(20);

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Command lines, and where processes may run and take memory from.
    pub texts: bool,
    /// Shares of huge pages, for which the kernel looks at every page table.
    pub huge: bool,
}

/// What was read of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    pub details: Details,
    /// Share of its resident memory in huge pages, in percent.
    pub huge_pct: Reading<f64>,
}

/// What was read, or why it could not be, by process.
pub type Abouts = BTreeMap<Process, Reading<Arc<About>>>;

/// Reads about processes in turns.
pub struct AboutReader {
    root: PathBuf,
    asked: Asked,
    /// The processes it is asked for; all if empty.
    focus: Vec<Process>,
    /// With the turn in which it was read.
    known: BTreeMap<Process, (u64, Reading<Arc<About>>)>,
    turn: u64,
    /// Time that was used and has not been made up for.
    debt: Duration,
}

impl AboutReader {
    /// A reader of /proc below `root` (`/`) that is asked for nothing.
    pub fn new(root: &Path) -> AboutReader {
        AboutReader {
            root: root.to_path_buf(),
            asked: Asked::default(),
            focus: Vec::new(),
            known: BTreeMap::new(),
            turn: 0,
            debt: Duration::ZERO,
        }
    }

    /// From now on `asked` is read of `processes`, or of all if there are none.
    pub fn focus(&mut self, processes: Vec<Process>, asked: Asked) {
        if asked != self.asked {
            self.known.clear();
        }
        (self.focus, self.asked) = (processes, asked);
    }

    /// Reads what the budget allows, those first that were read longest ago; gives what is known of those among
    /// `alive` that are asked for.
    pub fn look(&mut self, alive: impl Iterator<Item = Process>) -> Arc<Abouts> {
        if self.asked == Asked::default() {
            return Arc::default();
        }
        let asked_for = |process: &Process| self.focus.is_empty() || self.focus.contains(process);
        let wanted: BTreeSet<Process> = alive.filter(asked_for).collect();
        self.known.retain(|process, _| wanted.contains(process));
        let mut wanted: Vec<Process> = wanted.into_iter().collect();
        wanted.sort_by_key(|process| self.known.get(process).map_or(0, |(turn, _)| *turn));
        self.turn += 1;
        self.debt = self.debt.saturating_sub(BUDGET);
        for process in wanted {
            if self.debt >= BUDGET {
                break;
            }
            let began = Instant::now();
            self.known.insert(process, (self.turn, self.read(process)));
            self.debt += began.elapsed();
        }
        Arc::new(self.known.iter().map(|(process, (_, about))| (*process, about.clone())).collect())
    }

    fn read(&self, (pid, start_ns): Process) -> Reading<Arc<About>> {
        let lost = |error: anyhow::Error| Missing::Lost(format!("{error:#}"));
        let details = inspect::read(&self.root, pid, start_ns).map_err(lost)?;
        let huge_pct = match self.asked.huge {
            true => inspect::huge_pct(&self.root, pid).map_err(lost),
            false => Err(Missing::NotCollected("it was not asked for".into())),
        };
        Ok(Arc::new(About { details, huge_pct }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> Process {
        let pid = std::process::id();
        (pid, inspect::start_ns(pid).expect("we run"))
    }

    #[test]
    fn nothing_is_read_that_nobody_asked_for() {
        assert!(AboutReader::new(Path::new("/")).look([ourselves()].into_iter()).is_empty());
    }

    #[test]
    fn what_is_asked_for_is_read_of_all_or_of_some() {
        let process = ourselves();
        let mut reader = AboutReader::new(Path::new("/"));
        reader.focus(Vec::new(), Asked { texts: true, huge: true });
        let abouts = reader.look([process].into_iter());
        let about = abouts[&process].as_ref().expect("it is our own process");
        assert!(!about.details.cmdline.is_empty() && !about.details.cpus_allowed.is_empty(), "{about:?}");
        assert!(about.huge_pct.as_ref().is_ok_and(|pct| (0.0..=100.0).contains(pct)), "{about:?}");
        reader.focus(vec![(1, 1)], Asked { texts: true, huge: false });
        assert!(reader.look([process].into_iter()).is_empty(), "another process is asked for");
    }

    #[test]
    fn another_process_with_the_same_id_has_a_reason() {
        let (pid, start_ns) = ourselves();
        let other = (pid, start_ns + 5_000_000_000);
        let mut reader = AboutReader::new(Path::new("/"));
        reader.focus(Vec::new(), Asked { texts: true, huge: false });
        let abouts = reader.look([other].into_iter());
        assert!(matches!(&abouts[&other], Err(Missing::Lost(why)) if why.contains("has ended")));
    }

    #[test]
    fn a_long_reading_is_made_up_for() {
        let mut reader = AboutReader::new(Path::new("/"));
        reader.focus(Vec::new(), Asked { texts: true, huge: false });
        reader.debt = BUDGET * 3;
        assert!(reader.look([ourselves()].into_iter()).is_empty());
        assert!(reader.look([ourselves()].into_iter()).is_empty());
        assert_eq!(reader.look([ourselves()].into_iter()).len(), 1);
    }
}
