//! What /proc says of processes whose command line, affinity or huge pages somebody asked for: too costly for every
//! process at every refresh, so it is read in turns, within a budget of time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inspect::{self, Texts};
use super::placement::Process;
use crate::sample::{Missing, Reading};

/// Time for each sample. One reading may take longer; the samples after it then make up for it.
const BUDGET: Duration = Duration::from_millis(20);
/// As much of it as those in focus may use while others wait. The others are read too: an order by what is read here
/// is an order of all, and those in focus now are only those that were ahead so far.
const FOCUS_BUDGET: Duration = Duration::from_millis(10);

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Command lines, and where processes may run and take memory from.
    pub texts: bool,
    /// Shares of huge pages, for which the kernel looks at every page table.
    pub huge: bool,
}

/// What was read of one process: what columns show of it, since samples are kept for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    pub texts: Reading<Arc<Texts>>,
    /// Share of its resident memory in huge pages, in percent.
    pub huge_pct: Reading<f64>,
}

/// What was read, or why it could not be, by process.
pub type Abouts = BTreeMap<Process, Reading<Arc<About>>>;

/// Reads about processes in turns.
pub struct AboutReader {
    root: PathBuf,
    asked: Asked,
    /// Who comes before others; `None`: nobody does.
    focus: Option<BTreeSet<Process>>,
    /// Shared with samples, as far as nothing has changed since them.
    known: Arc<Abouts>,
    /// In which turn each was read.
    turns: BTreeMap<Process, u64>,
    turn: u64,
    /// Time that those in focus and the others used beyond their shares of the budget, not yet made up for.
    debts: [Duration; 2],
}

impl AboutReader {
    /// A reader of /proc below `root` (`/`) that is asked for nothing.
    pub fn new(root: &Path) -> AboutReader {
        AboutReader {
            root: root.to_path_buf(),
            asked: Asked::default(),
            focus: None,
            known: Arc::default(),
            turns: BTreeMap::new(),
            turn: 0,
            debts: [Duration::ZERO; 2],
        }
    }

    /// From now on `asked` is read: of `processes` first, of all alike if that is `None`, and of nobody if there are
    /// none, since nobody looks.
    pub fn focus(&mut self, processes: Option<Vec<Process>>, asked: Asked) {
        if asked != self.asked {
            self.known = Arc::default();
            self.turns.clear();
        }
        (self.focus, self.asked) = (processes.map(BTreeSet::from_iter), asked);
    }

    /// Reads what the budget allows, those first that were read longest ago; gives what is known of those `alive`.
    pub fn look(&mut self, alive: impl Iterator<Item = Process>) -> Arc<Abouts> {
        if self.asked == Asked::default() {
            return Arc::default();
        }
        let alive: BTreeSet<Process> = alive.collect();
        self.turns.retain(|process, _| alive.contains(process));
        if self.known.len() > self.turns.len() {
            Arc::make_mut(&mut self.known).retain(|process, _| alive.contains(process));
        }
        if self.focus.as_ref().is_none_or(|focus| !focus.is_empty()) {
            self.read_in_turns(alive);
        }
        Arc::clone(&self.known)
    }

    fn read_in_turns(&mut self, alive: BTreeSet<Process>) {
        let mut turns: Vec<Process> = alive.into_iter().collect();
        turns.sort_by_key(|process| self.turns.get(process).copied().unwrap_or(0));
        let is_first = |process: &Process| self.focus.as_ref().is_some_and(|focus| focus.contains(process));
        let (first, others): (Vec<Process>, Vec<Process>) = turns.into_iter().partition(is_first);
        let for_first = if others.is_empty() { BUDGET } else { FOCUS_BUDGET };
        self.turn += 1;
        let used = self.spend(for_first, self.debts[0], first);
        self.debts[0] = used.saturating_sub(for_first);
        let for_others = BUDGET - used.min(for_first);
        let used = self.spend(for_others, self.debts[1], others);
        self.debts[1] = used.saturating_sub(for_others);
    }

    /// Reads about `processes` until `budget` is used, of which `debt` was used before; gives what is used now.
    fn spend(&mut self, budget: Duration, debt: Duration, processes: Vec<Process>) -> Duration {
        let began = Instant::now();
        for process in processes {
            if debt + began.elapsed() >= budget {
                break;
            }
            self.turns.insert(process, self.turn);
            let about = self.read(process);
            self.note(process, about);
        }
        debt + began.elapsed()
    }

    /// Keeps what was read, or what was known before where that is the same.
    fn note(&mut self, process: Process, about: Reading<About>) {
        let before = self.known.get(&process);
        let about = about.map(|mut about| {
            if let Some(Ok(before)) = before
                && before.texts == about.texts
            {
                about.texts.clone_from(&before.texts);
            }
            Arc::new(about)
        });
        if before != Some(&about) {
            Arc::make_mut(&mut self.known).insert(process, about);
        }
    }

    fn read(&self, (pid, start_ns): Process) -> Reading<About> {
        let lost = |error: anyhow::Error| Missing::Lost(format!("{error:#}"));
        let not_asked = || Missing::NotCollected("it was not asked for".into());
        inspect::check_start(&self.root.join(format!("proc/{pid}")), pid, start_ns).map_err(lost)?;
        Ok(About {
            texts: match self.asked.texts {
                true => Ok(Arc::new(inspect::texts(&self.root, pid))),
                false => Err(not_asked()),
            },
            huge_pct: match self.asked.huge {
                true => inspect::huge_pct(&self.root, pid).map_err(lost),
                false => Err(not_asked()),
            },
        })
    }
}

/// Bytes that `abouts` hold, but for what they share with those `before`.
pub fn own_bytes(abouts: &Arc<Abouts>, before: Option<&Arc<Abouts>>) -> usize {
    if before.is_some_and(|before| Arc::ptr_eq(before, abouts)) {
        return 0;
    }
    let own = |(process, about): (&Process, &Reading<Arc<About>>)| {
        let before = before.and_then(|before| before.get(process)?.as_ref().ok());
        size_of::<(Process, Reading<Arc<About>>)>()
            + match about {
                Err(why) => why.to_string().len(),
                Ok(about) if before.is_some_and(|before| Arc::ptr_eq(before, about)) => 0,
                Ok(about) => size_of::<About>() + own_text_bytes(about, before.map(Arc::as_ref)),
            }
    };
    abouts.iter().map(own).sum()
}

fn own_text_bytes(about: &About, before: Option<&About>) -> usize {
    let Ok(texts) = &about.texts else { return 0 };
    if before.and_then(|before| before.texts.as_ref().ok()).is_some_and(|before| Arc::ptr_eq(before, texts)) {
        return 0;
    }
    let bytes = |text: &Reading<String>| text.as_ref().map_or_else(|why| why.to_string().len(), String::len);
    size_of::<Texts>()
        + [&texts.cmdline, &texts.cpus_allowed, &texts.mems_allowed].into_iter().map(bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::inspect::tests::{PID, process};
    use super::*;

    fn ourselves() -> Process {
        let pid = std::process::id();
        (pid, inspect::start_ns(pid).expect("we run"))
    }

    const THREE: [Process; 3] = [(7, 1), (8, 1), (9, 1)];

    /// Below its root are no processes: to each it is asked for it has a reason.
    fn reader_of_nothing() -> AboutReader {
        AboutReader::new(Path::new("/nonexistent"))
    }

    #[test]
    fn nothing_is_read_that_nobody_asked_for() {
        assert!(AboutReader::new(Path::new("/")).look([ourselves()].into_iter()).is_empty());
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let process = ourselves();
        let mut reader = AboutReader::new(Path::new("/"));
        reader.focus(None, Asked { texts: true, huge: true });
        let abouts = reader.look([process].into_iter());
        let about = abouts[&process].as_ref().expect("it is our own process");
        let texts = about.texts.as_ref().expect("it was asked for");
        assert!(texts.cmdline.as_ref().is_ok_and(|text| !text.is_empty()), "{about:?}");
        assert!(texts.cpus_allowed.is_ok(), "{about:?}");
        assert!(about.huge_pct.as_ref().is_ok_and(|pct| (0.0..=100.0).contains(pct)), "{about:?}");
    }

    #[test]
    fn those_in_focus_come_first_and_the_others_after_them() {
        let mut reader = reader_of_nothing();
        reader.focus(Some(vec![THREE[2]]), Asked { texts: true, huge: false });
        // The share of the others is used up, then that of those in focus.
        reader.debts = [Duration::ZERO, BUDGET * 9];
        assert!(reader.look(THREE.into_iter()).keys().eq([&THREE[2]]));
        reader.debts = [BUDGET * 9, Duration::ZERO];
        assert!(reader.look(THREE.into_iter()).keys().eq(&THREE), "nobody waits for ever");
    }

    #[test]
    fn what_is_known_outlives_the_focus_but_not_the_process() {
        let mut reader = reader_of_nothing();
        let asked = Asked { texts: true, huge: false };
        reader.focus(None, asked);
        reader.look(THREE.into_iter());
        reader.focus(Some(vec![THREE[0]]), asked);
        reader.debts = [BUDGET * 9; 2];
        assert!(reader.look(THREE[..2].iter().copied()).keys().eq(&THREE[..2]));
    }

    #[test]
    fn nothing_is_read_where_nobody_is_looked_at() {
        let mut reader = reader_of_nothing();
        reader.focus(Some(Vec::new()), Asked { texts: true, huge: true });
        assert!(reader.look(THREE.into_iter()).is_empty());
    }

    #[test]
    fn samples_share_what_did_not_change() {
        let rollup = "Rss: 4096 kB\nAnonHugePages: 2048 kB\n";
        let files =
            [("cmdline", "java\0-Xmx4g\0"), ("status", "Cpus_allowed_list:\t0\n"), ("smaps_rollup", rollup)];
        let root = process("shared", &files);
        let mut reader = AboutReader::new(&root);
        reader.focus(None, Asked { texts: true, huge: true });
        let mut look = || reader.look([(PID, 0)].into_iter());
        let (first, second) = (look(), look());
        assert!(Arc::ptr_eq(&first, &second) && own_bytes(&second, Some(&first)) == 0);

        std::fs::write(root.join("proc/7/smaps_rollup"), "Rss: 4096 kB\nAnonHugePages: 0 kB\n").unwrap();
        let third = look();
        let texts = |abouts: &Abouts| abouts[&(PID, 0)].clone().unwrap().texts.clone().unwrap();
        assert_eq!(third[&(PID, 0)].as_ref().unwrap().huge_pct, Ok(0.0));
        assert!(Arc::ptr_eq(&texts(&first), &texts(&third)));
        assert!(own_bytes(&third, Some(&second)) < own_bytes(&third, None));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn another_process_with_the_same_id_has_a_reason() {
        let (pid, start_ns) = ourselves();
        let other = (pid, start_ns + 5_000_000_000);
        let mut reader = AboutReader::new(Path::new("/"));
        reader.focus(None, Asked { texts: true, huge: false });
        let abouts = reader.look([other].into_iter());
        assert!(matches!(&abouts[&other], Err(Missing::Lost(why)) if why.contains("has ended")));
    }

    #[test]
    fn a_long_reading_is_made_up_for() {
        let mut reader = AboutReader::new(Path::new("/"));
        reader.focus(None, Asked { texts: true, huge: false });
        reader.debts[1] = BUDGET * 2;
        assert!(reader.look([ourselves()].into_iter()).is_empty());
        assert!(reader.look([ourselves()].into_iter()).is_empty());
        assert_eq!(reader.look([ourselves()].into_iter()).len(), 1);
    }
}
