//! Stacks that were sampled in an interval, as bytes and back. Each interval has all that its own stacks need, names
//! included: none depends on another, and no process or file is needed to read it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::format::{MAX_FRAMES, MAX_NAMES, MAX_ROWS, MAX_TEXT};
use super::room::Room;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use crate::model::sample::Comm;
use crate::model::stacks::{BuildId, Frame, Function, Place, Stack, StackBatch};
use crate::text::is_clean;

/// The mapping at an address.
const KERNEL: u64 = 0;
const FILE: u64 = 1;
const ADDRESS: u64 = 2;

/// Bits of a function's flags.
const HAS_NAME: u64 = 1;
const IN_KERNEL: u64 = 2;

/// Writes nothing where nothing was sampled.
pub(super) fn encode(out: &mut Vec<u8>, news: Option<&StackBatch>) {
    let Some(news) = news else { return };
    put_text(out, &news.event);
    put(out, news.hz.into());
    put(out, news.lost.len() as u64);
    for (cause, count) in &news.lost {
        put_text(out, cause);
        put(out, *count);
    }
    let mut files = Numbers::default();
    let mut functions = Numbers::default();
    let (mut names, mut stacks) = (Vec::new(), Vec::new());
    let mut last = 0;
    for (place, function) in &news.names {
        let (frame, process) = match *place {
            Place::Kernel(address) => (Frame::Kernel(address), None),
            Place::File(id, offset) => (Frame::File(id, offset), None),
            Place::Address(process, address) => (Frame::Address(address), Some(process)),
        };
        put_frame(&mut names, frame, &mut files, &mut last);
        if let Some((pid, start_ns)) = process {
            put(&mut names, pid.into());
            put(&mut names, start_ns);
        }
        put(&mut names, functions.of(&**function));
    }
    for stack in &news.stacks {
        put(&mut stacks, stack.process.0.into());
        put(&mut stacks, stack.process.1);
        put(&mut stacks, stack.tid.into());
        put(&mut stacks, stack.cgroup_id);
        stacks.extend_from_slice(&stack.comm.0);
        put(&mut stacks, stack.samples);
        put(&mut stacks, stack.frames.len() as u64);
        for frame in &stack.frames {
            put_frame(&mut stacks, *frame, &mut files, &mut last);
        }
    }
    put(out, files.list.len() as u64);
    files.list.iter().for_each(|id| out.extend_from_slice(&id.0));
    put(out, functions.list.len() as u64);
    for function in &functions.list {
        let has_name = if function.name.is_some() { HAS_NAME } else { 0 };
        put(out, has_name | if function.kernel { IN_KERNEL } else { 0 });
        function.name.iter().for_each(|name| put_text(out, name));
        put_text(out, &function.module);
    }
    put(out, news.names.len() as u64);
    out.append(&mut names);
    put(out, news.stacks.len() as u64);
    out.append(&mut stacks);
}

/// Numbers in the order of first use.
pub(super) struct Numbers<T> {
    pub(super) list: Vec<T>,
    known: HashMap<T, u64>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers { list: Vec::new(), known: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> Numbers<T> {
    pub(super) fn of(&mut self, value: T) -> u64 {
        let next = self.list.len() as u64;
        let number = *self.known.entry(value).or_insert(next);
        if number == next {
            self.list.push(value);
        }
        number
    }
}

/// Neighbours in a stack are often near each other in memory too.
fn put_frame(out: &mut Vec<u8>, frame: Frame, files: &mut Numbers<BuildId>, last: &mut u64) {
    let (kind, file, address) = match frame {
        Frame::Kernel(address) => (KERNEL, None, address),
        Frame::File(id, offset) => (FILE, Some(files.of(id)), offset),
        Frame::Address(address) => (ADDRESS, None, address),
    };
    put(out, kind);
    file.into_iter().for_each(|file| put(out, file));
    put(out, difference(address, *last));
    *last = address;
}

/// The bytes that [`encode`] wrote.
///
/// # Errors
/// The bytes are something else, hold text that no terminal should see, or more frames than the limit.
pub(super) fn decode(mut input: Bytes<'_>, room: &mut Room) -> Result<Option<StackBatch>, Malformed> {
    if input.0.is_empty() {
        return Ok(None);
    }
    let event = clean(&mut input)?;
    let hz = small(&mut input)?;
    let mut lost = BTreeMap::new();
    for _ in 0..input.count(MAX_NAMES)? {
        let cause = clean(&mut input)?;
        lost.insert(cause, input.number()?);
    }
    let files = list(&mut input, |input| {
        let id = input.take(20)?;
        Ok(BuildId(id.try_into().map_err(|_| Malformed("a build id is cut off"))?))
    })?;
    let functions = list(&mut input, |input| {
        let flags = input.number()?;
        let name = if flags & HAS_NAME != 0 { Some(clean(input)?) } else { None };
        Ok(Arc::new(Function { name, module: clean(input)?, kernel: flags & IN_KERNEL != 0 }))
    })?;
    let mut last = 0;
    let names = list(&mut input, |input| {
        let place = match address(input, &files, &mut last)? {
            Frame::Kernel(address) => Place::Kernel(address),
            Frame::File(id, offset) => Place::File(id, offset),
            Frame::Address(address) => Place::Address((small(input)?, input.number()?), address),
        };
        let function = functions.get(input.count(MAX_NAMES)?);
        let function = function.ok_or(Malformed("a place has a function that is not there"))?;
        room.take_named(function)?;
        Ok((place, Arc::clone(function)))
    })?;
    let mut left = MAX_FRAMES;
    let mut stacks = Vec::new();
    for _ in 0..input.count(MAX_ROWS)? {
        let process = (small(&mut input)?, input.number()?);
        let (tid, cgroup_id) = (small(&mut input)?, input.number()?);
        let comm = Comm(input.take(16)?.try_into().map_err(|_| Malformed("a name is cut off"))?);
        let samples = input.number()?;
        let count = input.count(left)?;
        left -= count;
        let frames = (0..count).map(|_| address(&mut input, &files, &mut last)).collect::<Result<_, _>>()?;
        stacks.push(Stack { process, tid, cgroup_id, comm, samples, frames });
    }
    input.finish()?;
    Ok(Some(StackBatch { event, hz, stacks, names, lost }))
}

/// A list with its length in front. Each entry takes a byte at least, so that it cannot be longer than its bytes.
fn list<'a, T>(
    input: &mut Bytes<'a>,
    mut entry: impl FnMut(&mut Bytes<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = input.count(MAX_NAMES)?;
    let mut list = Vec::with_capacity(count.min(input.0.len() / 4));
    for _ in 0..count {
        list.push(entry(input)?);
    }
    Ok(list)
}

fn address(input: &mut Bytes<'_>, files: &[BuildId], last: &mut u64) -> Result<Frame, Malformed> {
    let kind = input.number()?;
    let file = if kind == FILE { Some(input.count(MAX_NAMES)?) } else { None };
    let address = undo_difference(input.number()?, *last);
    *last = address;
    match (kind, file) {
        (KERNEL, None) => Ok(Frame::Kernel(address)),
        (ADDRESS, None) => Ok(Frame::Address(address)),
        (FILE, Some(file)) => {
            let id = files.get(file).ok_or(Malformed("a frame is in a file that is not there"))?;
            Ok(Frame::File(*id, address))
        }
        _ => Err(Malformed("a frame is neither in the kernel nor in a file nor in a process")),
    }
}

fn small(input: &mut Bytes<'_>) -> Result<u32, Malformed> {
    u32::try_from(input.number()?).map_err(|_| Malformed("a number of a stack cannot be"))
}

fn clean(input: &mut Bytes<'_>) -> Result<String, Malformed> {
    let text = input.text(MAX_TEXT)?;
    if is_clean(text) { Ok(text.to_string()) } else { Err(Malformed("a name cannot be shown")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news() -> StackBatch {
        let id = BuildId([7; 20]);
        let stack = |pid: u32, frames| Stack {
            process: (pid, 5),
            tid: pid,
            cgroup_id: 9,
            comm: Comm::new("busy"),
            samples: 3,
            frames,
        };
        let named =
            |name: &str| Function { name: Some(name.into()), module: "/bin/busy".into(), kernel: false };
        StackBatch {
            event: "cpu-clock".into(),
            hz: 97,
            stacks: vec![
                stack(1, vec![Frame::Kernel(u64::MAX), Frame::File(id, 0x1000), Frame::Address(7)]),
                stack(2, vec![]),
            ],
            names: vec![
                (Place::Kernel(u64::MAX), Function { kernel: true, ..named("do_syscall_64") }.into()),
                (Place::File(id, 0x1000), named("main").into()),
                (Place::Address((1, 5), 7), Function { name: None, ..named("") }.into()),
            ],
            lost: [("ring".to_string(), 4)].into(),
        }
    }

    #[test]
    fn what_was_sampled_comes_back() {
        let mut bytes = Vec::new();
        encode(&mut bytes, Some(&news()));
        assert_eq!(decode(Bytes(&bytes), &mut Room::endless()).unwrap(), Some(news()));
        assert_eq!(decode(Bytes(&[]), &mut Room::endless()).unwrap(), None);
    }

    #[test]
    fn no_part_of_it_is_taken_for_the_whole() {
        let mut bytes = Vec::new();
        encode(&mut bytes, Some(&news()));
        for end in 1..bytes.len() {
            assert!(
                decode(Bytes(&bytes[..end]), &mut Room::endless()).is_err(),
                "{end} of {} bytes",
                bytes.len()
            );
        }
    }

    #[test]
    fn a_name_that_would_move_the_cursor_is_refused() {
        let mut news = news();
        Arc::make_mut(&mut news.names[1].1).name = Some("\x1b[2J".into());
        let mut bytes = Vec::new();
        encode(&mut bytes, Some(&news));
        assert!(decode(Bytes(&bytes), &mut Room::endless()).is_err());
    }
}
