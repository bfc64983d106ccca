//! Names of places: the choice of their file, and the questions to the symbolizer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use super::client::{Answer, Client, Found, PLACES_MAX, Question};
use super::objects::{Object, Objects, Scan, Scanned};
use super::open::{Mounts, Reach};
use super::process::{Mapping, Process};
use crate::model::process::ProcessId;
use crate::model::stacks::{BuildId, CodePlace, Function};
use crate::program::helper::Failure;
use crate::text;

/// Bytes of a vDSO: real ones have two pages.
const VDSO_MAX: u64 = 1 << 20;

/// Names of places. Some of those without one may have one later.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Answers {
    pub names: Vec<(CodePlace, Function)>,
    /// Places that are worth another question.
    pub again: Vec<CodePlace>,
    /// Places in files on served filesystems: they come after all local ones.
    pub later: Vec<CodePlace>,
    /// Whether a file made the symbolizer end.
    pub died: bool,
}

/// A message of the process that opens files.
#[derive(Serialize, Deserialize)]
pub(super) enum Said {
    /// It opens a file of this device, or follows paths of a user: that may take for ever.
    Opens(String),
    /// That is done.
    Opened,
    Names(Answers),
}

/// The way to say it.
pub(super) type Say<'a> = &'a dyn Fn(&Said);

/// Functions of neighbouring places, or the module and why it has no names.
type Told = Result<Vec<Function>, (String, Option<Failure>)>;

impl Answers {
    /// Answers for places without names, all for this reason.
    pub(super) fn without(places: &[CodePlace], module: &str, failure: Failure) -> Answers {
        let mut answers = Answers::default();
        answers.add(places, Err((module.into(), Some(failure))));
        answers
    }

    fn add(&mut self, places: &[CodePlace], told: Told) {
        match told {
            Ok(functions) => self.names.extend(places.iter().copied().zip(functions)),
            Err((module, failure)) => {
                self.died |= failure == Some(Failure::Died);
                // One that could not be started is no fault of the file.
                if failure.is_some_and(|failure| failure.may_pass() || failure == Failure::NotStarted) {
                    self.again.extend(places);
                }
                let function = unnamed(module, failure);
                self.names.extend(places.iter().map(|place| (*place, function.clone())));
            }
        }
    }
}

/// Everything that is looked up in, with its caches.
pub(super) struct Names {
    client: Client,
    objects: Objects,
    kallsyms: Option<File>,
    vdso: Option<File>,
    mounts: Mounts,
}

impl Names {
    /// `program` is numatop-ng itself, which is started as the symbolizer.
    pub(super) fn new(program: PathBuf) -> Names {
        Names {
            client: Client::new(program),
            objects: Objects::default(),
            kallsyms: File::open("/proc/kallsyms").ok(),
            vdso: own_vdso(),
            mounts: Mounts::default(),
        }
    }

    /// Names of addresses of the kernel.
    pub(super) fn in_kernel(&mut self, addresses: &[u64]) -> Answers {
        let found = match &self.kallsyms {
            Some(file) => ask(&mut self.client, addresses, Question::Kernel, file, false).unwrap_or_default(),
            None => Vec::new(),
        };
        let mut found = found.into_iter();
        let function = |found: Found| Function {
            name: found.name,
            module: found.module.unwrap_or_else(|| "kernel".into()),
            kernel: true,
        };
        let one = |address: &u64| (CodePlace::Kernel(*address), function(found.next().unwrap_or_default()));
        Answers { names: addresses.iter().map(one).collect(), ..Answers::default() }
    }

    /// Names of places that were sampled in one process.
    pub(super) fn in_process(
        &mut self,
        id: ProcessId,
        places: &[CodePlace],
        reach: &Reach,
        say: Say<'_>,
    ) -> Answers {
        let mut by_file: BTreeMap<BuildId, Vec<u64>> = BTreeMap::new();
        let mut addresses = Vec::new();
        for place in places {
            match place {
                CodePlace::File(file, offset) => by_file.entry(*file).or_default().push(*offset),
                CodePlace::Address(_, address) => addresses.push(*address),
                CodePlace::Kernel(_) => {}
            }
        }
        let mut answers = Answers::default();
        for (file, offsets) in by_file {
            let places: Vec<CodePlace> =
                offsets.iter().map(|offset| CodePlace::File(file, *offset)).collect();
            match self.in_file(file, &offsets, id, reach, say) {
                Some(told) => answers.add(&places, told),
                None => answers.later.extend(places),
            }
        }
        if !addresses.is_empty() {
            self.at_addresses(id, addresses, reach, say, &mut answers);
        }
        answers
    }

    /// Functions at offsets into the file with this build id. Otherwise the name of the file, and why it has
    /// no names. `None`: the file may be on a served filesystem, which this reach excludes.
    fn in_file(
        &mut self,
        id: BuildId,
        offsets: &[u64],
        seen_in: ProcessId,
        reach: &Reach,
        say: Say<'_>,
    ) -> Option<Told> {
        let unknown = || format!("[build id {id}]");
        if self.objects.known(id).is_none() && self.objects.may_try(id) {
            let Some(process) = Process::open(seen_in) else { return Some(Err((unknown(), None))) };
            let owner = process.owner().unwrap_or(u32::MAX);
            let scan = Scan { client: &mut self.client, mounts: &mut self.mounts, reach, say };
            let scanned = self.objects.scan(scan, &process, owner);
            if self.objects.known(id).is_none() {
                match scanned {
                    Ok(Scanned { left_out: true }) if !reach.served => return None,
                    Ok(_) => self.objects.tried(id),
                    Err(failure) => {
                        if failure != Failure::NotStarted {
                            self.objects.tried(id);
                        }
                        return Some(Err((unknown(), Some(failure))));
                    }
                }
            }
        }
        let Some(object) = self.objects.known(id) else { return Some(Err((unknown(), None))) };
        let found = match in_object(&mut self.client, object, offsets) {
            Ok(found) => found,
            Err(failure) => return Some(Err((object.name.clone(), Some(failure)))),
        };
        let function = |found: Found| of_file(found, &object.name);
        Some(Ok(found.into_iter().map(function).collect()))
    }

    /// Code compiled at run time, the vDSO, or files without a build id: only while the process exists.
    fn at_addresses(
        &mut self,
        id: ProcessId,
        mut addresses: Vec<u64>,
        reach: &Reach,
        say: Say<'_>,
        answers: &mut Answers,
    ) {
        let places = |addresses: &[u64]| -> Vec<CodePlace> {
            addresses.iter().map(|address| CodePlace::Address(id, *address)).collect()
        };
        let gone = || Err(("[process has ended]".into(), None));
        let Some(process) = Process::open(id) else { return answers.add(&places(&addresses), gone()) };
        let maps = process.maps().unwrap_or_default();
        for mapping in maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse) {
            let (within, rest): (Vec<u64>, Vec<u64>) =
                addresses.into_iter().partition(|at| (mapping.start..mapping.end).contains(at));
            addresses = rest;
            if within.is_empty() {
                continue;
            }
            let Some(told) = self.in_mapping(&process, &mapping, &within, reach, say) else {
                answers.later.extend(places(&within));
                continue;
            };
            // If the id was reused meanwhile, the names would belong to another process.
            answers.add(&places(&within), if process.is_there() { told } else { gone() });
        }
        answers.add(&places(&addresses), Err(("[unknown]".into(), None)));
    }

    /// `None`: others serve the file, which this reach leaves out.
    fn in_mapping(
        &mut self,
        process: &Process,
        mapping: &Mapping<'_>,
        addresses: &[u64],
        reach: &Reach,
        say: Say<'_>,
    ) -> Option<Told> {
        let served = mapping.is_file() && !self.mounts.has(mapping.device());
        if served && !reach.served {
            return None;
        }
        if served && reach.refuses(mapping.device()) {
            return Some(Err((text::clean_str(mapping.file_name()), Some(Failure::GivenUp))));
        }
        Some(self.in_open_mapping(process, mapping, addresses, served, reach, say))
    }

    fn in_open_mapping(
        &mut self,
        process: &Process,
        mapping: &Mapping<'_>,
        addresses: &[u64],
        served: bool,
        reach: &Reach,
        say: Say<'_>,
    ) -> Told {
        let client = &mut self.client;
        let opened = || {
            let file = if served {
                say(&Said::Opens(mapping.device().to_owned()));
                let file = process.mapped(mapping, reach.paths);
                say(&Said::Opened);
                file
            } else {
                process
                    .mapped(mapping, false)
                    .or_else(|_| by_path(process, reach, say, |process| process.mapped(mapping, true)))
            };
            file.ok()
        };
        let (module, found) = if mapping.path == "[vdso]" {
            let offsets: Vec<u64> = addresses.iter().map(|at| at - mapping.start).collect();
            let same = |vdso: &&File| vdso.metadata().is_ok_and(|m| m.len() == mapping.end - mapping.start);
            let vdso = self.vdso.as_ref().filter(same).ok_or_else(|| ("[vdso]".to_string(), None))?;
            ("[vdso]".into(), ask(client, &offsets, Question::Offsets, vdso, false))
        } else if let Some(file) = mapping.is_file().then(opened).flatten() {
            let offset = |at: &u64| (at - mapping.start).saturating_add(mapping.offset);
            let offsets: Vec<u64> = addresses.iter().map(offset).collect();
            (text::clean_str(mapping.file_name()), ask(client, &offsets, Question::Offsets, &file, served))
        } else {
            let map =
                by_path(process, reach, say, |process| process.perf_map().ok_or(ErrorKind::NotFound.into()));
            let map = map.map_err(|_| ("[unknown]".to_string(), None))?;
            ("[jit]".into(), ask(client, addresses, Question::PerfMap, &map, true))
        };
        let mut found = found.map_err(|failure| (module.clone(), Some(failure)))?;
        // Code compiled at run time may be in a file (.NET uses one in memory): its names are in the map.
        let mut compiled = vec![false; found.len()];
        if mapping.is_file() && found.iter().any(|found| found.name.is_none()) {
            let map =
                by_path(process, reach, say, |process| process.perf_map().ok_or(ErrorKind::NotFound.into()));
            if let Ok(map) = map {
                let without: Vec<usize> = (0..found.len()).filter(|at| found[*at].name.is_none()).collect();
                let asked: Vec<u64> = without.iter().map(|at| addresses[*at]).collect();
                let named = ask(client, &asked, Question::PerfMap, &map, true).unwrap_or_default();
                for (at, named) in without.into_iter().zip(named).filter(|(_, named)| named.name.is_some()) {
                    (found[at], compiled[at]) = (named, true);
                }
            }
        }
        // Memory that is no file and not in the map either is not known to be compiled code.
        let function = |(found, compiled): (Found, bool)| match (&found.name, module.as_str()) {
            (Some(_), _) if compiled => of_file(found, "[jit]"),
            (None, "[jit]") if found.module.is_none() => of_file(found, "[unknown]"),
            _ => of_file(found, &module),
        };
        Ok(found.into_iter().zip(compiled).map(function).collect())
    }
}

/// A function of a file, or the reason for which it has no name.
fn of_file(found: Found, file: &str) -> Function {
    let module = match found.module {
        Some(why) if found.name.is_none() => format!("{file} ({why})"),
        _ => file.to_owned(),
    };
    Function { name: found.name, module, kernel: false }
}

/// Opens something by a path in the root of a process, whose user chooses what is mounted there.
pub(super) fn by_path<T>(
    process: &Process,
    reach: &Reach,
    say: Say<'_>,
    open: impl FnOnce(&Process) -> io::Result<T>,
) -> io::Result<T> {
    let what = format!("paths of user {}", process.owner().unwrap_or(u32::MAX));
    if !reach.paths || reach.refuses(&what) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    say(&Said::Opens(what));
    let opened = open(process);
    say(&Said::Opened);
    opened
}

/// Functions at offsets into a file: by its own symbols, or by separate debug symbols.
fn in_object(client: &mut Client, object: &Object, offsets: &[u64]) -> Result<Vec<Found>, Failure> {
    let mut found = ask(client, offsets, Question::Offsets, &object.file, object.served)?;
    if let Some(debug) = &object.debug {
        let without = |found: &Found| found.name.is_none().then_some(found.address).flatten();
        let addresses: Vec<u64> = found.iter().filter_map(without).collect();
        let mut split =
            ask(client, &addresses, Question::Addresses, debug, true).unwrap_or_default().into_iter();
        for found in found.iter_mut().filter(|found| without(found).is_some()) {
            let split = split.next().unwrap_or_default();
            (found.name, found.module) = (split.name, split.module.or(found.module.take()));
        }
    }
    Ok(found)
}

/// Asks about all places, a packet at a time. The answer of the symbolizer is checked like that of any stranger.
fn ask(
    client: &mut Client,
    places: &[u64],
    question: fn(Vec<u64>) -> Question,
    file: &File,
    served: bool,
) -> Result<Vec<Found>, Failure> {
    let mut all = Vec::with_capacity(places.len());
    for places in places.chunks(PLACES_MAX) {
        match client.ask(&question(places.to_vec()), file, served)? {
            Answer::Found(found) if found.len() == places.len() => all.extend(found),
            _ => return Err(Failure::Died),
        }
    }
    for found in &mut all {
        found.name = found.name.take().filter(|name| text::is_clean(name));
        found.module = found.module.take().filter(|module| text::is_clean(module));
    }
    Ok(all)
}

fn unnamed(module: String, failure: Option<Failure>) -> Function {
    let module = match failure {
        Some(failure) => format!("{module} ({failure})"),
        None => module,
    };
    Function { name: None, module, kernel: false }
}

/// The vDSO of this process as a file: that of every process with words as long as ours.
fn own_vdso() -> Option<File> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let mut mappings = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse);
    let vdso = mappings.find(|mapping| mapping.path == "[vdso]")?;
    let mut bytes = vec![0; (vdso.end - vdso.start).min(VDSO_MAX) as usize];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, vdso.start).ok()?;
    let mut file = File::from(rustix::fs::memfd_create("vdso", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(&bytes).ok()?;
    file.seek(SeekFrom::Start(0)).ok()?;
    Some(file)
}
