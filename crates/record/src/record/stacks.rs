//! Stacks that were sampled in an interval, as bytes and back. Each interval holds everything that its stacks
//! need, names included. None depends on another, and reading needs no process or file.

use std::sync::Arc;

use super::format::{MAX_FRAMES, MAX_ROWS};
use crate::model::coded::varint::{Malformed, difference, put, undo_difference};
use crate::model::coded::{Coded, In, MAX_NAMES, Numbers, Out, TooLarge};
use crate::model::sample::Comm;
use crate::model::stacks::{BuildId, CodePlace, Frame, Function, Stack, StackBatch};

/// The mapping at an address.
const KERNEL: u64 = 0;
const FILE: u64 = 1;
const ADDRESS: u64 = 2;

/// Bits of a function's flags.
const HAS_NAME: u64 = 1;
const IN_KERNEL: u64 = 2;

/// Writes nothing where nothing was sampled.
pub(super) fn encode<'v>(out: &mut Out<'v>, news: Option<&'v StackBatch>) {
    let Some(news) = news else { return };
    news.event.put(out);
    news.hz.put(out);
    news.lost.put(out);
    let mut files = Numbers::default();
    let mut functions = Numbers::default();
    let (mut names, mut stacks) = (Vec::new(), Vec::new());
    let (mut last, mut frames) = (0, 0);
    for (place, function) in &news.names {
        let (frame, process) = match *place {
            CodePlace::Kernel(address) => (Frame::Kernel(address), None),
            CodePlace::File(id, offset) => (Frame::File(id, offset), None),
            CodePlace::Address(process, address) => (Frame::Address(address), Some(process)),
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
        frames += stack.frames.len();
        for frame in &stack.frames {
            put_frame(&mut stacks, *frame, &mut files, &mut last);
        }
    }
    out.count(files.list.len(), MAX_NAMES, "names");
    files.list.iter().for_each(|id| out.bytes.extend_from_slice(&id.0));
    out.count(functions.list.len(), MAX_NAMES, "names");
    for function in &functions.list {
        let has_name = if function.name.is_some() { HAS_NAME } else { 0 };
        out.number(has_name | if function.kernel { IN_KERNEL } else { 0 });
        function.name.iter().for_each(|name| name.put(out));
        function.module.put(out);
    }
    out.count(news.names.len(), MAX_NAMES, "names");
    news.names.iter().for_each(|(_, function)| out.take(1, of_named(function)));
    out.bytes.append(&mut names);
    out.count(news.stacks.len(), MAX_ROWS, "stacks");
    out.bytes.append(&mut stacks);
    if frames > MAX_FRAMES {
        out.beyond.get_or_insert(TooLarge("frames of stacks"));
    }
}

/// Memory that a name of a place takes.
fn of_named(function: &Function) -> usize {
    size_of::<(CodePlace, Function)>() + function.name.as_ref().map_or(0, String::len) + function.module.len()
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
pub(super) fn decode(input: &mut In<'_, '_>) -> Result<Option<StackBatch>, Malformed> {
    if input.is_empty() {
        return Ok(None);
    }
    let (event, hz, lost) = (Coded::get(input)?, Coded::get(input)?, Coded::get(input)?);
    let files = input.list(MAX_NAMES, |input| {
        let id = input.take(20)?;
        Ok(BuildId(id.try_into().map_err(|_| Malformed("a build id is cut off"))?))
    })?;
    let functions = input.list(MAX_NAMES, |input| {
        let flags = input.number()?;
        let name = (flags & HAS_NAME != 0).then(|| String::get(input)).transpose()?;
        Ok(Arc::new(Function { name, module: String::get(input)?, kernel: flags & IN_KERNEL != 0 }))
    })?;
    let mut last = 0;
    let names = input.list(MAX_NAMES, |input| {
        let place = match address(input, &files, &mut last)? {
            Frame::Kernel(address) => CodePlace::Kernel(address),
            Frame::File(id, offset) => CodePlace::File(id, offset),
            Frame::Address(address) => CodePlace::Address(Coded::get(input)?, address),
        };
        let function = functions.get(input.count(MAX_NAMES)?);
        let function = function.ok_or(Malformed("a stack frame refers to a missing function"))?;
        input.room.take(1, of_named(function))?;
        Ok((place, Arc::clone(function)))
    })?;
    let mut left = MAX_FRAMES;
    let stacks = input.list(MAX_ROWS, |input| {
        let (process, (tid, cgroup_id)) = (Coded::get(input)?, Coded::get(input)?);
        let comm = Comm(input.take(16)?.try_into().map_err(|_| Malformed("a name is cut off"))?);
        let samples = input.number()?;
        let frames = input.list(left, |input| address(input, &files, &mut last))?;
        left -= frames.len();
        Ok(Stack { process, tid, cgroup_id, comm, samples, frames })
    })?;
    Ok(Some(StackBatch { event, hz, stacks, names, lost }))
}

fn address(input: &mut In<'_, '_>, files: &[BuildId], last: &mut u64) -> Result<Frame, Malformed> {
    let kind = input.number()?;
    let file = if kind == FILE { Some(input.count(MAX_NAMES)?) } else { None };
    let address = undo_difference(input.number()?, *last);
    *last = address;
    match (kind, file) {
        (KERNEL, None) => Ok(Frame::Kernel(address)),
        (ADDRESS, None) => Ok(Frame::Address(address)),
        (FILE, Some(file)) => {
            let id = files.get(file).ok_or(Malformed("a stack frame refers to a missing file"))?;
            Ok(Frame::File(*id, address))
        }
        _ => Err(Malformed("a stack frame is neither in the kernel nor in a file nor in a process")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::coded::Room;
    use crate::model::coded::varint::Bytes;

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
                (CodePlace::Kernel(u64::MAX), Function { kernel: true, ..named("do_syscall_64") }.into()),
                (CodePlace::File(id, 0x1000), named("main").into()),
                (CodePlace::Address((1, 5), 7), Function { name: None, ..named("") }.into()),
            ],
            lost: [("ring".to_string(), 4)].into(),
        }
    }

    fn bytes(news: &StackBatch) -> Vec<u8> {
        let mut out = Out::default();
        encode(&mut out, Some(news));
        out.bytes
    }

    fn back(bytes: &[u8]) -> Result<Option<StackBatch>, Malformed> {
        let mut room = Room::endless();
        let mut input = In::new(Bytes(bytes), &mut room);
        let read = decode(&mut input)?;
        input.bytes.finish().map(|()| read)
    }

    #[test]
    fn what_was_sampled_comes_back() {
        assert_eq!(back(&bytes(&news())).unwrap(), Some(news()));
        assert_eq!(back(&[]).unwrap(), None);
    }

    #[test]
    fn no_part_of_it_is_taken_for_the_whole() {
        let bytes = bytes(&news());
        for end in 1..bytes.len() {
            assert!(back(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn a_name_that_would_move_the_cursor_is_refused() {
        let mut news = news();
        Arc::make_mut(&mut news.names[1].1).name = Some("\x1b[2J".into());
        assert!(back(&bytes(&news)).is_err());
    }
}
