//! The output to the terminal: a separate thread writes, because a terminal may block for hours and must
//! delay nothing else.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys;

/// A frame may wait behind the one being written, if at most this is queued before it.
const LITTLE: usize = 1 << 10;

/// So much is written at a time: a terminal that was emptied has room for it (the kernel keeps 8 KiB for it).
const CHUNK: usize = 4 << 10;

/// Called when what waited is being written, or when it cannot be.
type Tell = Box<dyn Fn() + Send>;

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    writing: bool,
    /// The current write is to be left where it is.
    discarded: bool,
    failed: Option<(io::ErrorKind, String)>,
    /// A frame was left out: `tell` must be called when there is room.
    left_out: bool,
    tell: Option<Tell>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something waits, or something was written.
    changed: Condvar,
    /// The thread that writes, from its first moment on.
    tid: OnceLock<i32>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes bytes and never waits. On a flush it hands them to the thread, except while it is held. Clones write
/// to the same place.
#[derive(Clone)]
pub(super) struct ScreenWriter {
    shared: Arc<Shared>,
    gathered: Vec<u8>,
    held: Arc<AtomicBool>,
}

impl ScreenWriter {
    /// Starts a thread that writes to `out`; it ends with the process.
    ///
    /// # Errors
    /// The descriptor cannot be copied, or no thread can be started.
    pub(super) fn start(out: impl AsFd) -> io::Result<ScreenWriter> {
        let out = File::from(out.as_fd().try_clone_to_owned()?);
        let shared = Arc::new(Shared::default());
        let given = Arc::clone(&shared);
        thread::Builder::new().name("terminal".into()).spawn(move || write(out, &given))?;
        Ok(ScreenWriter { shared, gathered: Vec::new(), held: Arc::default() })
    }

    /// Turns on or off keeping what all clones gather, flushed or not, so that a frame wakes the thread once.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// Hands the gathered bytes to the thread.
    pub(super) fn hand_over(&mut self) {
        let mut state = self.shared.lock();
        if state.failed.is_none() && !self.gathered.is_empty() {
            if state.waiting.is_empty() {
                // Both buffers are used over and over.
                std::mem::swap(&mut state.waiting, &mut self.gathered);
            } else {
                state.waiting.extend_from_slice(&self.gathered);
            }
            self.shared.changed.notify_all();
        }
        self.gathered.clear();
    }

    /// Discards waiting bytes, and the rest of the current write. `empty` has to make room for [`CHUNK`]
    /// bytes.
    pub(super) fn discard(&self, empty: impl FnOnce()) {
        {
            let mut state = self.shared.lock();
            state.waiting.clear();
            state.discarded = state.writing;
        }
        empty();
        // A blocked write does not check again by itself (n_tty_write): a signal with a handler makes it
        // check.
        if let Some(tid) = self.shared.tid.get() {
            sys::signal_thread(*tid, libc::SIGCONT);
        }
    }

    /// Sets the function to call when a frame was left out and there is room again, and when writing fails.
    /// It must not wait, and must not call the writer.
    pub(super) fn on_change(&self, tell: impl Fn() + Send + 'static) {
        self.shared.lock().tell = Some(Box::new(tell));
    }

    /// Whether a frame would be accepted soon. If not, `tell` is called once it would.
    pub(super) fn has_room(&self) -> bool {
        let mut state = self.shared.lock();
        let room = state.waiting.len() <= LITTLE;
        state.left_out |= !room;
        room
    }

    /// Waits until all was written, or `patience` is over, or writing fails. Whether all was.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.shared.lock();
        while state.writing || !state.waiting.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || state.failed.is_some() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Why writing failed, if it did.
    ///
    /// # Errors
    /// That failure.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.shared.lock().failed {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }
}

impl Write for ScreenWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.held.load(Ordering::SeqCst) {
            self.hand_over();
        }
        Ok(())
    }
}

/// Writes what waits, until the process ends.
fn write(mut out: File, shared: &Shared) {
    let _ = shared.tid.set(rustix::thread::gettid().as_raw_nonzero().get());
    let mut bytes = Vec::new();
    let mut state = shared.lock();
    loop {
        while state.waiting.is_empty() {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        bytes.clear();
        std::mem::swap(&mut bytes, &mut state.waiting);
        state.writing = true;
        if std::mem::take(&mut state.left_out)
            && let Some(tell) = &state.tell
        {
            tell();
        }
        drop(state);
        let written = write_chunks(&mut out, &bytes, shared);
        state = shared.lock();
        (state.writing, state.discarded) = (false, false);
        if let Err(error) = written {
            state.failed = Some((error.kind(), error.to_string()));
            state.waiting.clear();
            if let Some(tell) = &state.tell {
                tell();
            }
        }
        shared.changed.notify_all();
    }
}

/// Writes all bytes, unless they are discarded meanwhile.
fn write_chunks(out: &mut File, bytes: &[u8], shared: &Shared) -> io::Result<()> {
    for chunk in bytes.chunks(CHUNK) {
        out.write_all(chunk)?;
        if shared.lock().discarded {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    /// More than a pipe holds.
    const MUCH: usize = 1 << 20;

    #[test]
    fn what_is_flushed_is_written_in_order() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = ScreenWriter::start(writer).unwrap();
        for piece in ["first ", "second ", "third"] {
            writer.write_all(piece.as_bytes()).unwrap();
            writer.flush().unwrap();
        }
        assert!(writer.wait(LONG));
        let mut text = [0; "first second third".len()];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"first second third");
    }

    #[test]
    fn a_reader_that_takes_nothing_keeps_no_writer_and_is_told_of() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = ScreenWriter::start(writer).unwrap();
        let (sender, told) = channel();
        writer.on_change(move || {
            let _ = sender.send(());
        });
        writer.write_all(&vec![b'x'; MUCH]).unwrap();
        writer.flush().unwrap();
        // Until the thread has taken it and waits for room in the pipe.
        while !writer.has_room() {
            thread::yield_now();
        }
        let _ = told.try_iter().count();
        writer.write_all(&vec![b'y'; MUCH]).unwrap();
        writer.flush().unwrap();
        assert!(!writer.has_room() && !writer.wait(Duration::from_millis(10)));
        let reading =
            thread::spawn(move || io::copy(&mut reader.by_ref().take(2 * MUCH as u64), &mut io::sink()));
        told.recv_timeout(LONG).unwrap();
        assert!(writer.wait(LONG) && writer.has_room());
        assert_eq!(reading.join().unwrap().unwrap(), 2 * MUCH as u64);
    }

    #[test]
    fn a_reader_that_is_gone_is_told_of_and_is_an_error_from_then_on() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut writer = ScreenWriter::start(writer).unwrap();
        let (sender, told) = channel();
        writer.on_change(move || {
            let _ = sender.send(());
        });
        writer.write_all(b"x").unwrap();
        writer.flush().unwrap();
        told.recv_timeout(LONG).unwrap();
        assert_eq!(writer.check().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
