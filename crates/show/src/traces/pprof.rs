//! A profile of pprof: profile.proto of github.com/google/pprof, compressed as its readers want it.
//!
//! Locations are offsets into files with a build id, each file in a range of made-up addresses. A reader that
//! has the files can look up lines. Addresses of the kernel and of processes are left out: they would reveal
//! where each is loaded.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::{Compression, GzBuilder};

use super::proto::Message;
use super::stacks::{Counted, Named, Stacks};
use crate::model::stacks::{BuildId, CodePlace, Function};

/// The time of the intervals whose stacks are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Wall clock at the beginning of the first, ns since 1970.
    pub begin_wall_ns: i64,
    /// Length of all of them, ns.
    pub length_ns: u64,
}

/// Writes all stacks, in an order that is the same for the same recording: samples, and where they stand for it CPU time, by
/// process.
///
/// # Errors
/// The errno of the output.
pub fn write(stacks: &Stacks, span: Span, out: &mut dyn Write) -> io::Result<()> {
    // No time and no name: the same recording makes the same bytes.
    let mut out = GzBuilder::new().mtime(0).write(out, Compression::default());
    let mut tables = Tables::default();
    let mut head = Message::default();
    let samples = value_type(&mut tables, "samples", "count");
    let cpu = value_type(&mut tables, "cpu", "nanoseconds");
    head = head.message(profile::SAMPLE_TYPE, &samples);
    if stacks.is_time() {
        head = head.message(profile::SAMPLE_TYPE, &cpu).message(profile::PERIOD_TYPE, &cpu);
        let period = 1_000_000_000_i64.checked_div(stacks.events().1.into());
        head = head.int(profile::PERIOD, period.unwrap_or(0));
    }
    head = head.int(profile::TIME_NANOS, span.begin_wall_ns);
    head = head.uint(profile::DURATION_NANOS, span.length_ns.min(i64::MAX as u64));
    for comment in comments(stacks) {
        head = head.uint(profile::COMMENT, tables.text(&comment));
    }
    out.write_all(head.bytes())?;
    for counted in stacks.counted() {
        let sample = sample(&mut tables, stacks, &counted);
        out.write_all(Message::default().message(profile::SAMPLE, &sample).bytes())?;
    }
    tables.write(&mut out)?;
    out.finish().map(drop)
}

fn value_type(tables: &mut Tables, kind: &str, unit: &str) -> Message {
    let (kind, unit) = (tables.text(kind), tables.text(unit));
    Message::default().uint(value_type::TYPE, kind).uint(value_type::UNIT, unit)
}

/// The program, the events, and samples that are missing.
fn comments(stacks: &Stacks) -> Vec<String> {
    let (events, hz) = stacks.events();
    let events = crate::text::one_line(&events.join(", "));
    let mut comments = vec![
        format!("numatop-ng {}", env!("CARGO_PKG_VERSION")),
        format!("sampled: {events}, {hz} times a second on each CPU"),
    ];
    comments.extend(stacks.lost().map(|(cause, count)| format!("samples missing: {count}, {cause}")));
    if stacks.cut() > 0 {
        comments.push(format!("samples without callers, because memory was short: {}", stacks.cut()));
    }
    comments
}

fn sample(tables: &mut Tables, stacks: &Stacks, counted: &Counted<'_>) -> Message {
    let frames = counted.frames.iter();
    let locations: Vec<u64> = frames.map(|frame| tables.location(*frame, stacks.frame(*frame))).collect();
    let mut values = vec![counted.count.samples];
    if stacks.is_time() {
        values.push(counted.count.cpu_ns);
    }
    let most = i64::MAX as u64;
    let mut sample = Message::default()
        .packed(sample::LOCATION_ID, locations)
        .packed(sample::VALUE, values.into_iter().map(|value| value.min(most)));
    let subject = counted.subject;
    let labels = [
        ("comm", Some(&subject.comm)),
        ("container", subject.container.as_ref()),
        ("pod", subject.pod.as_ref()),
        ("namespace", subject.namespace.as_ref()),
    ];
    for (key, value) in labels {
        let Some(value) = value else { continue };
        let (key, value) = (tables.text(key), tables.text(value));
        let label = Message::default().uint(label::KEY, key).uint(label::STR, value);
        sample = sample.message(sample::LABEL, &label);
    }
    if let Some(pid) = subject.pid {
        let label = Message::default().uint(label::KEY, tables.text("pid")).uint(label::NUM, pid.into());
        sample = sample.message(sample::LABEL, &label);
    }
    sample
}

/// Something that code is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Home {
    File(BuildId),
    /// The kernel, one of its modules, or memory without a file: by its name.
    Named(String),
}

/// A mapping in the making.
#[derive(Debug, Default)]
struct Mapping {
    file: Option<String>,
    build_id: Option<BuildId>,
    /// The offset behind the last one that is used.
    end: u64,
    has_unnamed: bool,
}

/// A location: the place of its mapping in the list, its offset into the file, and its function.
type Location = (Option<usize>, Option<u64>, u64);

/// Tables that samples refer to. Numbers of text begin with 0, the empty text; all others with 1.
#[derive(Debug)]
struct Tables {
    texts: HashMap<String, u64>,
    all_texts: Vec<String>,
    functions: HashMap<Function, u64>,
    all_functions: Vec<u64>,
    homes: HashMap<Home, usize>,
    mappings: Vec<Mapping>,
    locations: HashMap<Location, u64>,
    all_locations: Vec<Location>,
    /// Locations of frames, by their number in the stacks.
    of_frames: HashMap<u32, u64>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            texts: [(String::new(), 0)].into(),
            all_texts: vec![String::new()],
            functions: HashMap::new(),
            all_functions: Vec::new(),
            homes: HashMap::new(),
            mappings: Vec::new(),
            locations: HashMap::new(),
            all_locations: Vec::new(),
            of_frames: HashMap::new(),
        }
    }
}

/// Mappings begin at multiples of this, as pages do, and the first one not at 0, which readers take for a mapping of the
/// kernel.
const PAGE: u64 = 4096;

/// Offsets above this are in no file. A recording may say anything, and the ranges of half a million files have to fit 64 bits.
const OFFSET_MAX: u64 = 1 << 43;

impl Tables {
    fn text(&mut self, text: &str) -> u64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.all_texts.len() as u64;
        self.all_texts.push(text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }

    fn function(&mut self, function: &Function) -> u64 {
        if let Some(number) = self.functions.get(function) {
            return *number;
        }
        let name = self.text(&function.to_string());
        self.all_functions.push(name);
        let number = self.all_functions.len() as u64;
        self.functions.insert(function.clone(), number);
        number
    }

    fn location(&mut self, frame: u32, named: Named<'_>) -> u64 {
        if let Some(number) = self.of_frames.get(&frame) {
            return *number;
        }
        let function = named.function;
        let (mapping, offset) = match named.place {
            None => (None, None),
            Some(CodePlace::File(id, offset)) => {
                let offset = offset.min(OFFSET_MAX);
                let at = self.mapping(Home::File(id), function);
                let mapping = &mut self.mappings[at];
                mapping.build_id = Some(id);
                mapping.end = mapping.end.max(offset + 1);
                mapping.has_unnamed |= function.name.is_none();
                (Some(at), Some(offset))
            }
            Some(CodePlace::Kernel(_)) => {
                let module = function.module.trim_matches(['[', ']']);
                (Some(self.mapping(Home::Named(format!("[{module}]")), function)), None)
            }
            Some(CodePlace::Address(..)) => {
                (Some(self.mapping(Home::Named(function.module.clone()), function)), None)
            }
        };
        let location = (mapping, offset, self.function(function));
        let next = self.all_locations.len() as u64 + 1;
        let number = *self.locations.entry(location).or_insert(next);
        if number == next {
            self.all_locations.push(location);
        }
        self.of_frames.insert(frame, number);
        number
    }

    /// The place of a mapping in the list.
    fn mapping(&mut self, home: Home, function: &Function) -> usize {
        let next = self.mappings.len();
        let name = match &home {
            Home::Named(name) => Some(name.clone()),
            // The module of a function without a name may say why it has none.
            Home::File(_) => function.name.as_ref().map(|_| function.module.clone()),
        };
        let at = *self.homes.entry(home).or_insert(next);
        if at == next {
            self.mappings.push(Mapping::default());
        }
        let mapping = &mut self.mappings[at];
        mapping.file = mapping.file.take().or(name);
        at
    }

    /// Writes all tables, the text last.
    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut starts = Vec::new();
        let mut next = PAGE;
        for (at, mapping) in std::mem::take(&mut self.mappings).iter().enumerate() {
            let mut message = Message::default().uint(mapping::ID, at as u64 + 1);
            starts.push(next);
            if mapping.end > 0 {
                let limit = next + mapping.end.next_multiple_of(PAGE);
                message = message.uint(mapping::MEMORY_START, next).uint(mapping::MEMORY_LIMIT, limit);
                // A page between two files: readers make one of mappings that touch.
                next = limit + PAGE;
            }
            if let Some(file) = &mapping.file {
                message = message.uint(mapping::FILENAME, self.text(file));
            }
            if let Some(id) = &mapping.build_id {
                message = message.uint(mapping::BUILD_ID, self.text(&digits(id)));
            }
            // Readers look names up in files of mappings without this.
            message = message.uint(mapping::HAS_FUNCTIONS, u64::from(!mapping.has_unnamed));
            out.write_all(Message::default().message(profile::MAPPING, &message).bytes())?;
        }
        for (at, (mapping, offset, function)) in self.all_locations.iter().enumerate() {
            let mut message = Message::default().uint(location::ID, at as u64 + 1);
            if let Some(mapping) = mapping {
                message = message.uint(location::MAPPING_ID, *mapping as u64 + 1);
                if let Some(offset) = offset {
                    message = message.uint(location::ADDRESS, starts[*mapping] + offset);
                }
            }
            let line = Message::default().uint(line::FUNCTION_ID, *function);
            let message = message.message(location::LINE, &line);
            out.write_all(Message::default().message(profile::LOCATION, &message).bytes())?;
        }
        for (at, name) in self.all_functions.iter().enumerate() {
            let message = Message::default().uint(function::ID, at as u64 + 1).uint(function::NAME, *name);
            out.write_all(Message::default().message(profile::FUNCTION, &message).bytes())?;
        }
        for text in &self.all_texts {
            out.write_all(Message::default().text(profile::STRING_TABLE, text).bytes())?;
        }
        Ok(())
    }
}

/// A build id without the zeros that fill it up: linkers make 8 (lld, fast), 16 (md5, uuid) and 20 bytes (sha1).
fn digits(id: &BuildId) -> String {
    let is_filled = |length: usize| id.0[length..].iter().all(|byte| *byte == 0);
    let length = [8, 16].into_iter().find(|length| is_filled(*length)).unwrap_or(id.0.len());
    id.to_string()[..2 * length].to_owned()
}

mod profile {
    //! Fields of Profile.
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const MAPPING: u64 = 3;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const FUNCTION: u64 = 5;
    pub(super) const STRING_TABLE: u64 = 6;
    pub(super) const TIME_NANOS: u64 = 9;
    pub(super) const DURATION_NANOS: u64 = 10;
    pub(super) const PERIOD_TYPE: u64 = 11;
    pub(super) const PERIOD: u64 = 12;
    pub(super) const COMMENT: u64 = 13;
}

mod value_type {
    //! Fields of ValueType: numbers of text.
    pub(super) const TYPE: u64 = 1;
    pub(super) const UNIT: u64 = 2;
}

mod sample {
    //! Fields of Sample.
    pub(super) const LOCATION_ID: u64 = 1;
    pub(super) const VALUE: u64 = 2;
    pub(super) const LABEL: u64 = 3;
}

mod label {
    //! Fields of Label: numbers of text, and a number.
    pub(super) const KEY: u64 = 1;
    pub(super) const STR: u64 = 2;
    pub(super) const NUM: u64 = 3;
}

mod mapping {
    //! Fields of Mapping.
    pub(super) const ID: u64 = 1;
    pub(super) const MEMORY_START: u64 = 2;
    pub(super) const MEMORY_LIMIT: u64 = 3;
    pub(super) const FILENAME: u64 = 5;
    pub(super) const BUILD_ID: u64 = 6;
    pub(super) const HAS_FUNCTIONS: u64 = 7;
}

mod location {
    //! Fields of Location.
    pub(super) const ID: u64 = 1;
    pub(super) const MAPPING_ID: u64 = 2;
    pub(super) const ADDRESS: u64 = 3;
    pub(super) const LINE: u64 = 4;
}

mod line {
    //! Fields of Line.
    pub(super) const FUNCTION_ID: u64 = 1;
}

mod function {
    //! Fields of Function: numbers of text.
    pub(super) const ID: u64 = 1;
    pub(super) const NAME: u64 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_as_long_as_their_linker_made_them() {
        let id = |bytes: usize| {
            let mut id = [0; 20];
            id[..bytes].fill(0xab);
            digits(&BuildId(id))
        };
        for bytes in [8, 16, 20] {
            assert_eq!(id(bytes), "ab".repeat(bytes));
        }
        assert_eq!(id(12).len(), 32, "a zero at its end is a part of it");
    }

    #[test]
    fn no_recording_makes_addresses_overflow() {
        let mut tables = Tables::default();
        let function = Function { name: None, module: "m".into(), kernel: false };
        for at in 0..100u8 {
            let place = Some(CodePlace::File(BuildId([at; 20]), u64::MAX));
            tables.location(at.into(), Named { place, function: &function });
        }
        let mut bytes = Vec::new();
        tables.write(&mut bytes).unwrap();
        assert!(!bytes.is_empty());
    }
}
