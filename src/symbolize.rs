//! What is a place in a stack called? Looks at files and processes on a thread of its own, so that neither samples nor
//! the screen wait for it.

mod elf;
mod objects;
mod split;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};

use self::objects::{Objects, has_perf_map, open_process};
use crate::hot::{Function, Place, ProcessId};
use crate::text::clean_str;

/// Places that are remembered as asked for; then all may be asked for again.
const ASKED_MAX: usize = 200_000;
/// Places whose names are handed over together.
const BATCH: usize = 256;
/// Characters of a name; C++ has some of many thousand.
const NAME_MAX: usize = 400;

/// A place, and the process it was seen in.
type Question = (Place, ProcessId);
type Answers = Vec<(Place, Function)>;

/// Asks the thread that knows names. Dropped, it ends the thread.
pub struct Namer {
    questions: Sender<Vec<Question>>,
    answers: Receiver<Answers>,
    asked: HashSet<Place>,
    /// Places that have no answer yet.
    open: usize,
}

impl Namer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start() -> io::Result<Namer> {
        let (questions, asked) = channel::<Vec<Question>>();
        let (sender, answers) = channel();
        thread::Builder::new().name("symbols".into()).spawn(move || {
            let mut names = Names::default();
            for questions in asked {
                for batch in questions.chunks(BATCH) {
                    if sender.send(names.name(batch)).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(Namer { questions, answers, asked: HashSet::new(), open: 0 })
    }

    /// Asks for the names of places that were not asked for before.
    pub fn ask(&mut self, places: impl Iterator<Item = Question>) {
        if self.asked.len() > ASKED_MAX {
            self.asked.clear();
        }
        let new: Vec<Question> = places.filter(|(place, _)| self.asked.insert(*place)).collect();
        let count = new.len();
        if count > 0 && self.questions.send(new).is_ok() {
            self.open += count;
        }
    }

    /// The names that are known by now; waits up to `patience` for those that are not.
    pub fn answers(&mut self, patience: Duration) -> Answers {
        let until = Instant::now() + patience;
        let mut answers = Vec::new();
        while self.open > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(more) = self.answers.recv_timeout(left) else { break };
            self.open = self.open.saturating_sub(more.len());
            answers.extend(more);
        }
        answers
    }
}

/// Everything that is looked up in, with its caches.
struct Names {
    symbolizer: Symbolizer,
    objects: Objects,
}

impl Default for Names {
    fn default() -> Names {
        // Lines and inlined functions would need the debug information of every file in memory.
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        Names { symbolizer, objects: Objects::default() }
    }
}

impl Names {
    fn name(&mut self, questions: &[Question]) -> Answers {
        let mut answers = Vec::with_capacity(questions.len());
        let mut kernel = Vec::new();
        let mut of_process: BTreeMap<ProcessId, Vec<u64>> = BTreeMap::new();
        for (place, seen_in) in questions {
            match place {
                Place::Kernel(address) => kernel.push(*address),
                Place::Address(process, address) => of_process.entry(*process).or_default().push(*address),
                Place::File(id, offset) => {
                    answers.push((*place, self.in_file(*id, *offset, *seen_in)));
                }
            }
        }
        let functions = self.in_kernel(&kernel);
        answers.extend(kernel.into_iter().map(Place::Kernel).zip(functions));
        for (process, addresses) in of_process {
            let functions = self.in_process(process, &addresses);
            let places = addresses.into_iter().map(|address| Place::Address(process, address));
            answers.extend(places.zip(functions));
        }
        answers
    }

    fn in_kernel(&self, addresses: &[u64]) -> Vec<Function> {
        let source =
            Source::Kernel(Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() });
        let function = |found: Option<&Sym<'_>>| Function {
            name: found.map(name_of),
            module: found.and_then(|sym| sym.module.as_deref()).map_or("kernel".into(), file_name),
            kernel: true,
        };
        match self.symbolizer.symbolize(&source, Input::AbsAddr(addresses)) {
            Ok(found) => found.iter().map(|found| function(found.as_sym())).collect(),
            Err(_) => vec![function(None); addresses.len()],
        }
    }

    fn in_file(&mut self, id: crate::hot::BuildId, offset: u64, seen_in: ProcessId) -> Function {
        let Some(object) = self.objects.find(id, seen_in) else {
            return Function { name: None, module: format!("[build id {id}]"), kernel: false };
        };
        let look = |path, input| {
            let source = Source::Elf(Elf { debug_syms: false, ..Elf::new(path) });
            let found = self.symbolizer.symbolize_single(&source, input).ok()?;
            // A symbol without a size may be far below the place.
            found.into_sym().filter(|sym| sym.size.is_some_and(|size| size > 0)).map(|sym| name_of(&sym))
        };
        let split = || look(object.debug_path()?, Input::VirtOffset(object.address_of(offset)?));
        let name = look(object.path(), Input::FileOffset(offset)).or_else(split);
        Function { name, module: object.name.clone(), kernel: false }
    }

    /// Compiled as it runs, the vDSO, or files without a build id: only while the process is there.
    fn in_process(&self, process: ProcessId, addresses: &[u64]) -> Vec<Function> {
        let unknown = Function { name: None, module: "[unknown]".into(), kernel: false };
        let gone = Function { module: "[process has ended]".into(), ..unknown.clone() };
        let Some(proc) = open_process(process) else { return vec![gone; addresses.len()] };
        let mut source = Process::new(Pid::from(process.0));
        source.debug_syms = false;
        source.perf_map = has_perf_map(&proc);
        // Without CAP_CHECKPOINT_RESTORE there are paths only.
        source.map_files = std::fs::read_dir(proc.join("map_files")).is_ok();
        let found = self.symbolizer.symbolize(&Source::Process(source), Input::AbsAddr(addresses));
        let Ok(found) = found else { return vec![unknown; addresses.len()] };
        // Had the id changed hands meanwhile, the names would be another's.
        if open_process(process).is_none() {
            return vec![gone; addresses.len()];
        }
        let function = |found: &Symbolized<'_>| match found.as_sym() {
            Some(sym) => Function {
                name: Some(name_of(sym)),
                module: sym.module.as_deref().map_or("[jit]".into(), file_name),
                kernel: false,
            },
            None => unknown.clone(),
        };
        found.iter().map(function).collect()
    }
}

fn name_of(sym: &Sym<'_>) -> String {
    let name = clean_str(&sym.name);
    match name.char_indices().nth(NAME_MAX) {
        Some((cut, _)) => name[..cut].to_string(),
        None => name,
    }
}

fn file_name(module: &OsStr) -> String {
    let path = module.to_string_lossy();
    clean_str(path.rsplit('/').next().unwrap_or(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::inspect;
    use crate::hot::BuildId;

    fn me() -> ProcessId {
        let pid = std::process::id();
        (pid, inspect::start_ns(pid).unwrap())
    }

    #[test]
    fn a_function_of_this_process_has_its_name() {
        let mut namer = Namer::start().unwrap();
        let address = a_function_of_this_process_has_its_name as fn() as usize as u64;
        let place = Place::Address(me(), address);
        namer.ask([(place, me())].into_iter());
        let answers = namer.answers(Duration::from_secs(30));
        assert_eq!(answers.len(), 1);
        let name = answers[0].1.name.as_deref().unwrap_or_default();
        assert!(name.contains("a_function_of_this_process_has_its_name"), "{answers:?}");
        // Nobody is asked twice.
        namer.ask([(place, me())].into_iter());
        assert!(namer.answers(Duration::ZERO).is_empty());
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let mut namer = Namer::start().unwrap();
        let (pid, start_ns) = me();
        let other = (pid, start_ns + 5_000_000_000);
        let places =
            [Place::Address(other, 4096), Place::File(BuildId([7; 20]), 4096), Place::Address(me(), 1)];
        namer.ask(places.into_iter().map(|place| (place, me())));
        let answers: BTreeMap<Place, Function> = namer.answers(Duration::from_secs(30)).into_iter().collect();
        assert_eq!(answers[&places[0]].module, "[process has ended]");
        assert!(answers[&places[1]].module.starts_with("[build id 0707"), "{answers:?}");
        assert_eq!((answers[&places[2]].name.clone(), answers.len()), (None, 3));
    }
}
