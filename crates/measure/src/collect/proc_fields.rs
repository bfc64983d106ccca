//! /proc fields of processes whose command line, affinity or huge pages a column asks for. They are too costly for
//! every process at every refresh: the reader of other address spaces reads them in turns, within a budget of time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::mm_reader::MmReader;
use super::mm_reader::wire::{AboutTurn, Answer, JOBS_MAX, Job};
use super::proc_details;
use crate::model::process::Texts;
use crate::model::process::{Asked, ProcFields, ProcFieldsOf, ProcessId};
use crate::model::sample::{Missing, Reading};

/// Time for each sample. One reading may take longer; the samples after it then make up for it.
const BUDGET: Duration = Duration::from_millis(20);
/// The part of this that processes in focus may use while others wait. The others are read too: an order by
/// these fields covers all processes, and those in focus now are only the ones that were ahead so far.
const FOCUS_BUDGET: Duration = Duration::from_millis(10);
/// Time for each sample where nothing but findings asks: a five-hundredth of a CPU at one sample a second.
const SUSPECTS_BUDGET: Duration = Duration::from_millis(2);

/// A process and the user it runs as.
type Alive = (ProcessId, u32);

/// Has processes read about in turns.
#[derive(Default)]
pub struct AboutReader {
    /// Of the rows that are shown.
    columns: Asked,
    /// Of these and of suspects.
    asked: Asked,
    /// Processes that come before others; `None`: all alike.
    focus: Option<BTreeSet<ProcessId>>,
    /// Processes whose texts are read whatever columns show.
    suspects: BTreeSet<ProcessId>,
    /// Shared with samples, as far as nothing has changed since them.
    known: Arc<ProcFieldsOf>,
    /// In which turn each was read.
    turns: BTreeMap<ProcessId, u64>,
    turn: u64,
    /// Time that those in focus and the others used beyond their shares of the budget, not yet made up for.
    debts: [Duration; 2],
}

impl AboutReader {
    /// From now on `asked` is read: of `processes` first; of all alike if that is `None`; of no process if it
    /// is empty, because no row is shown. Texts of `suspects` are always read.
    pub fn focus(&mut self, processes: Option<Vec<ProcessId>>, suspects: Vec<ProcessId>, asked: Asked) {
        (self.focus, self.columns) = (processes.map(BTreeSet::from_iter), asked);
        self.suspects = suspects.into_iter().collect();
        let asked = Asked { texts: asked.texts || !self.suspects.is_empty(), ..asked };
        if asked != self.asked {
            self.turns.clear();
        }
        self.asked = asked;
        // Fields of rows stay until they are read again.
        let suspects = &self.suspects;
        if self.columns == Asked::default() && self.known.keys().any(|process| !suspects.contains(process)) {
            Arc::make_mut(&mut self.known).retain(|process, _| suspects.contains(process));
        }
    }

    /// Whether fields are read of all, those in focus first.
    fn has_viewers(&self) -> bool {
        self.columns != Asked::default() && self.focus.as_ref().is_none_or(|focus| !focus.is_empty())
    }

    /// Forgets processes that are not `alive`, and returns the next ones to read, the oldest reading first.
    /// Results come to [`AboutReader::take`].
    pub fn turn(&mut self, alive: impl Iterator<Item = Alive>, reader: &MmReader) -> Option<AboutTurn> {
        if self.asked == Asked::default() {
            return None;
        }
        let alive: BTreeMap<ProcessId, u32> = alive.collect();
        self.turns.retain(|process, _| alive.contains_key(process));
        if self.known.len() > self.turns.len() {
            Arc::make_mut(&mut self.known).retain(|process, _| alive.contains_key(process));
        }
        let is_wanted = self.has_viewers() || !self.suspects.is_empty();
        (is_wanted && reader.is_free()).then(|| self.next(alive, reader))
    }

    fn next(&mut self, alive: BTreeMap<ProcessId, u32>, reader: &MmReader) -> AboutTurn {
        let mut turns: Vec<Alive> = alive.into_iter().collect();
        turns.sort_by_key(|(process, _)| self.turns.get(process).copied().unwrap_or(0));
        let in_focus = |process: &ProcessId| self.focus.as_ref().is_some_and(|focus| focus.contains(process));
        let is_first = |(process, _): &Alive| self.suspects.contains(process) || in_focus(process);
        let (first, others, for_first, for_all) = if self.has_viewers() {
            let (first, others): (Vec<Alive>, Vec<Alive>) = turns.into_iter().partition(is_first);
            let for_first = if others.is_empty() { BUDGET } else { FOCUS_BUDGET };
            (first, others, for_first, BUDGET)
        } else {
            turns.retain(|(process, _)| self.suspects.contains(process));
            (turns, Vec::new(), SUSPECTS_BUDGET, SUSPECTS_BUDGET)
        };
        self.turn += 1;
        let lists = [first, others].map(|list| {
            let job = |(process, uid)| Job { process, uid, rss_bytes: 0, careful: false };
            let mut jobs: Vec<Job> = list.into_iter().map(job).collect();
            reader.admit(&mut jobs);
            jobs.truncate(JOBS_MAX);
            jobs
        });
        AboutTurn { asked: self.asked, lists, for_first, for_all, debts: self.debts }
    }

    /// Takes the fields read.
    pub fn take(&mut self, answer: &mut Answer) {
        for (process, about) in answer.abouts.drain(..) {
            // Answers to the question before are of no use now.
            if about.as_ref().is_ok_and(|about| asked(about) != self.asked) {
                continue;
            }
            self.turns.insert(process, self.turn);
            self.note(process, about);
        }
        if let Some((asked, debts)) = answer.end.as_ref().and_then(|end| end.about)
            && asked == self.asked
        {
            self.debts = debts;
        }
    }

    /// A process did not let itself be read: what can be known without that, and the reason for the rest.
    pub fn take_locked(&mut self, root: &Path, process: ProcessId, why: &Missing) {
        if self.has_viewers() || self.suspects.contains(&process) {
            self.turns.insert(process, self.turn);
            self.note(process, read_without_memory(root, self.asked, process, why));
        }
    }

    /// The values that are known now.
    pub fn known(&self) -> Arc<ProcFieldsOf> {
        Arc::clone(&self.known)
    }

    /// Keeps the new reading, or the previous one if they are equal.
    fn note(&mut self, process: ProcessId, about: Reading<ProcFields>) {
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
}

/// The fields it was read for.
fn asked(about: &ProcFields) -> Asked {
    let is_asked = |missing: Option<&Missing>| missing.is_none_or(|missing| *missing != not_asked());
    Asked { texts: is_asked(about.texts.as_ref().err()), huge: is_asked(about.huge_pct.as_ref().err()) }
}

fn not_asked() -> Missing {
    Missing::NotCollected("not requested".into())
}

fn lost(error: anyhow::Error) -> Missing {
    Missing::Lost(format!("{error:#}"))
}

/// Reads about one process, below `root` (`/`).
///
/// # Errors
/// It has ended, or another one has its id now.
pub fn read(root: &Path, asked: Asked, process: ProcessId) -> Reading<ProcFields> {
    let pid = process.0;
    read_with(
        root,
        asked,
        process,
        || proc_details::texts(root, pid),
        || proc_details::huge_pct(root, pid).map_err(lost),
    )
}

/// As [`read`], but without what the lock of its address space guards, for this reason.
fn read_without_memory(root: &Path, asked: Asked, process: ProcessId, why: &Missing) -> Reading<ProcFields> {
    let texts = || proc_details::texts_without_memory(root, process.0, why.clone());
    read_with(root, asked, process, texts, || Err(why.clone()))
}

fn read_with(
    root: &Path,
    asked: Asked,
    (pid, start_ns): ProcessId,
    texts: impl FnOnce() -> Texts,
    huge_pct: impl FnOnce() -> Reading<f64>,
) -> Reading<ProcFields> {
    proc_details::check_start(&root.join(format!("proc/{pid}")), pid, start_ns).map_err(lost)?;
    Ok(ProcFields {
        texts: if asked.texts { Ok(Arc::new(texts())) } else { Err(not_asked()) },
        huge_pct: if asked.huge { huge_pct() } else { Err(not_asked()) },
    })
}

/// Bytes that `abouts` hold, except those shared with `before`.
pub fn own_bytes(abouts: &Arc<ProcFieldsOf>, before: Option<&Arc<ProcFieldsOf>>) -> usize {
    if before.is_some_and(|before| Arc::ptr_eq(before, abouts)) {
        return 0;
    }
    let own = |(process, about): (&ProcessId, &Reading<Arc<ProcFields>>)| {
        let before = before.and_then(|before| before.get(process)?.as_ref().ok());
        size_of::<(ProcessId, Reading<Arc<ProcFields>>)>()
            + match about {
                Err(why) => why.to_string().len(),
                Ok(about) if before.is_some_and(|before| Arc::ptr_eq(before, about)) => 0,
                Ok(about) => size_of::<ProcFields>() + own_text_bytes(about, before.map(Arc::as_ref)),
            }
    };
    abouts.iter().map(own).sum()
}

fn own_text_bytes(about: &ProcFields, before: Option<&ProcFields>) -> usize {
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
    use super::proc_details::tests::{PID, process};
    use super::*;
    use crate::collect::mm_reader::child::Reads;
    use crate::collect::mm_reader::wire::Turn;

    fn ourselves() -> ProcessId {
        let pid = std::process::id();
        (pid, proc_details::start_ns(pid).expect("we run"))
    }

    const THREE: [ProcessId; 3] = [(7, 1), (8, 1), (9, 1)];

    /// This root has no processes: each gets a reason.
    const NOTHING: &str = "/nonexistent";

    /// Takes one turn with this reader, and returns what is known then.
    fn look(
        about: &mut AboutReader,
        root: impl AsRef<Path>,
        alive: impl IntoIterator<Item = ProcessId>,
    ) -> Arc<ProcFieldsOf> {
        let reader = MmReader::new("/nonexistent".into());
        if let Some(turn) = about.turn(alive.into_iter().map(|process| (process, 0)), &reader) {
            let turn = Turn { about: Some(turn), ..Turn::default() };
            let mut answers = Vec::new();
            let mut send = |answer: &Answer| {
                answers.push(answer.clone());
                Ok(())
            };
            Reads::new(root.as_ref(), 1).turn(&turn, Vec::new(), &mut |_| {}, &mut send).unwrap();
            answers.iter_mut().for_each(|answer| about.take(answer));
        }
        about.known()
    }

    #[test]
    fn nothing_is_read_that_nobody_asked_for() {
        assert!(look(&mut AboutReader::default(), "/", [ourselves()]).is_empty());
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let process = ourselves();
        let mut reader = AboutReader::default();
        reader.focus(None, Vec::new(), Asked { texts: true, huge: true });
        let abouts = look(&mut reader, "/", [process]);
        let about = abouts[&process].as_ref().expect("it is our own process");
        let texts = about.texts.as_ref().expect("it was asked for");
        assert!(texts.cmdline.as_ref().is_ok_and(|text| !text.is_empty()), "{about:?}");
        assert!(texts.cpus_allowed.is_ok(), "{about:?}");
        assert!(about.huge_pct.as_ref().is_ok_and(|pct| (0.0..=100.0).contains(pct)), "{about:?}");
    }

    #[test]
    fn those_in_focus_come_first_and_the_others_after_them() {
        let mut reader = AboutReader::default();
        reader.focus(Some(vec![THREE[2]]), Vec::new(), Asked { texts: true, huge: false });
        // The share of the others is used up, then that of those in focus.
        reader.debts = [Duration::ZERO, BUDGET * 9];
        assert!(look(&mut reader, NOTHING, THREE).keys().eq([&THREE[2]]));
        reader.debts = [BUDGET * 9, Duration::ZERO];
        assert!(look(&mut reader, NOTHING, THREE).keys().eq(&THREE), "nobody waits for ever");
    }

    #[test]
    fn what_is_known_outlives_the_focus_but_not_the_process() {
        let mut reader = AboutReader::default();
        let asked = Asked { texts: true, huge: false };
        reader.focus(None, Vec::new(), asked);
        look(&mut reader, NOTHING, THREE);
        reader.focus(Some(vec![THREE[0]]), Vec::new(), asked);
        reader.debts = [BUDGET * 9; 2];
        assert!(look(&mut reader, NOTHING, THREE[..2].iter().copied()).keys().eq(&THREE[..2]));
    }

    #[test]
    fn nothing_is_read_where_nobody_is_looked_at() {
        let mut reader = AboutReader::default();
        reader.focus(Some(Vec::new()), Vec::new(), Asked { texts: true, huge: true });
        assert!(look(&mut reader, NOTHING, THREE).is_empty());
    }

    #[test]
    fn texts_of_suspects_are_read_whatever_is_shown() {
        let texts = Asked { texts: true, huge: false };
        let has_texts =
            |known: &ProcFieldsOf, process| known[&process].as_ref().is_ok_and(|of| of.texts.is_ok());
        let (ourselves, another) = (ourselves(), THREE[0]);
        let (all, no_rows, nothing) = (None, Some(Vec::new()), Asked::default());
        for (rows, asked) in [(all, nothing), (no_rows.clone(), nothing), (no_rows, texts)] {
            let mut reader = AboutReader::default();
            reader.focus(rows.clone(), vec![ourselves], asked);
            let known = look(&mut reader, "/", [ourselves, another]);
            assert!(known.keys().eq([&ourselves]) && has_texts(&known, ourselves), "{rows:?} {asked:?}");
            reader.focus(rows, Vec::new(), Asked::default());
            assert!(look(&mut reader, "/", [ourselves, another]).is_empty());
        }
        let mut reader = AboutReader::default();
        let huge = Asked { texts: false, huge: true };
        reader.focus(None, Vec::new(), huge);
        let before = look(&mut reader, "/", [ourselves]);
        assert!(!has_texts(&before, ourselves));
        reader.focus(None, vec![ourselves], huge);
        assert!(reader.known().contains_key(&ourselves), "shares of huge pages do not blink");
        assert!(has_texts(&look(&mut reader, "/", [ourselves]), ourselves));
        reader.focus(None, Vec::new(), huge);
        assert!(!has_texts(&look(&mut reader, "/", [ourselves]), ourselves));
    }

    #[test]
    fn samples_share_what_did_not_change() {
        let rollup = "Rss: 4096 kB\nAnonHugePages: 2048 kB\n";
        let files =
            [("cmdline", "java\0-Xmx4g\0"), ("status", "Cpus_allowed_list:\t0\n"), ("smaps_rollup", rollup)];
        let root = process("shared", &files);
        let mut reader = AboutReader::default();
        reader.focus(None, Vec::new(), Asked { texts: true, huge: true });
        let mut again = || look(&mut reader, &root, [(PID, 0)]);
        let (first, second) = (again(), again());
        assert!(Arc::ptr_eq(&first, &second) && own_bytes(&second, Some(&first)) == 0);

        std::fs::write(root.join("proc/7/smaps_rollup"), "Rss: 4096 kB\nAnonHugePages: 0 kB\n").unwrap();
        let third = again();
        let texts = |abouts: &ProcFieldsOf| abouts[&(PID, 0)].clone().unwrap().texts.clone().unwrap();
        assert_eq!(third[&(PID, 0)].as_ref().unwrap().huge_pct, Ok(0.0));
        assert!(Arc::ptr_eq(&texts(&first), &texts(&third)));
        assert!(own_bytes(&third, Some(&second)) < own_bytes(&third, None));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn another_process_with_the_same_id_has_a_reason() {
        let (pid, start_ns) = ourselves();
        let other = (pid, start_ns + 5_000_000_000);
        let mut reader = AboutReader::default();
        reader.focus(None, Vec::new(), Asked { texts: true, huge: false });
        let abouts = look(&mut reader, "/", [other]);
        assert!(matches!(&abouts[&other], Err(Missing::Lost(why)) if why.contains("has ended")));
    }

    #[test]
    fn a_locked_process_has_what_needs_no_lock_and_a_reason_for_the_rest() {
        let process = ourselves();
        let mut reader = AboutReader::default();
        reader.focus(None, Vec::new(), Asked { texts: true, huge: true });
        let why = Missing::Lost("its address space is locked".into());
        reader.take_locked(Path::new("/"), process, &why);
        let known = reader.known();
        let about = known[&process].as_ref().unwrap();
        let texts = about.texts.as_ref().unwrap();
        assert_eq!((&texts.cmdline, &about.huge_pct), (&Err(why.clone()), &Err(why)));
        assert!(texts.cpus_allowed.is_ok(), "{texts:?}");
    }

    #[test]
    fn a_long_reading_is_made_up_for() {
        let mut reader = AboutReader::default();
        reader.focus(None, Vec::new(), Asked { texts: true, huge: false });
        reader.debts[1] = BUDGET * 2;
        assert!(look(&mut reader, "/", [ourselves()]).is_empty());
        assert!(look(&mut reader, "/", [ourselves()]).is_empty());
        assert_eq!(look(&mut reader, "/", [ourselves()]).len(), 1);
    }
}
