//! The terminal as we found it and as we use it: entering, its size, leaving, and leaving whatever happens. Serial consoles have
//! no size, and a wrong ioctl can make any.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use crossterm::clipboard::CopyToClipboard;
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use ratatui::layout::{Position, Size};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::QueueSelector;

use super::screen_writer::ScreenWriter;
use super::update::App;
use crate::tui;

/// Clicks and wheel, with coordinates as text (xterm's modes 1000 and 1006). Not movements, which
/// would wake us for nothing.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";

const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

/// When a terminal that accepted nothing for this long is given back, the pending frame is dropped, to make
/// room for the closing sequences.
const PATIENCE: Duration = Duration::from_millis(600);

/// Room was made: what fits is taken in far less, but on a busy machine the thread that writes may wait for a CPU.
const A_MOMENT: Duration = Duration::from_millis(800);

/// Whether the view holds the terminal now. Global, because a panic anywhere must give it back.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The output to the terminal, for the code that gives it back.
static OUTLET: Mutex<Option<ScreenWriter>> = Mutex::new(None);

/// The terminal while it shows our screen. Dropped, it gives the terminal back.
pub(super) struct Tty {
    terminal: Terminal<Sized<ScreenWriter>>,
    outlet: ScreenWriter,
    mouse: bool,
}

impl Tty {
    /// Takes the terminal. From here on a panic in any thread gives it back before it is reported. `redraw` is called
    /// when a frame was left out and the terminal takes something again, and when it has become unusable.
    ///
    /// # Errors
    /// Standard output is not a terminal that can be written to.
    pub(super) fn enter(mouse: bool, redraw: impl Fn() + Send + 'static) -> Result<Tty> {
        let outlet =
            ScreenWriter::start(io::stdout()).context("starting the thread that writes to the terminal")?;
        outlet.on_change(redraw);
        *OUTLET.lock().unwrap_or_else(PoisonError::into_inner) = Some(outlet.clone());
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            report(info);
        }));
        let terminal =
            Terminal::new(Sized(CrosstermBackend::new(outlet.clone()))).context("opening the terminal")?;
        let mut tty = Tty { terminal, outlet, mouse };
        tty.resume()?;
        Ok(tty)
    }

    /// Takes the terminal, the first time or again, and forgets its content.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub(super) fn resume(&mut self) -> Result<()> {
        ENTERED.store(true, Ordering::SeqCst);
        // Without a terminal to read from there are no keys, but the screen is as good.
        let _ = enable_raw_mode();
        queue!(self.outlet, EnterAlternateScreen, Hide).context("writing to the terminal")?;
        if self.mouse {
            self.outlet.write_all(MOUSE_ON.as_bytes()).context("writing to the terminal")?;
        }
        self.outlet.hand_over();
        self.redraw()
    }

    /// Draws every cell at the next [`Tty::draw`].
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub(super) fn redraw(&mut self) -> Result<()> {
        // Not Terminal::clear, which asks the terminal where the cursor is: the input thread would get
        // the answer.
        let size = self.terminal.size().context("reading the size of the terminal")?;
        self.terminal.resize(size.into()).context("clearing the screen")
    }

    /// Brings the screen up to date, unless the terminal has not taken the frames before.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub(super) fn draw(&mut self, app: &mut App) -> Result<()> {
        if !ENTERED.load(Ordering::SeqCst) {
            // A thread panicked: what it has to say must stay readable.
            return Ok(());
        }
        self.outlet.check().context("writing to the terminal")?;
        if !self.outlet.has_room() {
            return Ok(());
        }
        // A frame is handed over as one.
        self.outlet.hold(true);
        queue!(self.terminal.backend_mut().0, BeginSynchronizedUpdate).context("writing to the terminal")?;
        self.terminal
            .draw(|frame| {
                let area = frame.area();
                app.resize(area);
                tui::draw(app, area, frame.buffer_mut());
            })
            .context("drawing the screen")?;
        self.outlet.hold(false);
        execute!(self.terminal.backend_mut().0, EndSynchronizedUpdate).context("writing to the terminal")
    }

    /// Hands a text to the terminal for its clipboard (OSC 52), if it has one.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub(super) fn copy(&mut self, text: &str) -> Result<()> {
        let copy = CopyToClipboard::to_clipboard_from(text);
        execute!(self.terminal.backend_mut().0, copy).context("writing to the terminal")
    }

    /// Stops the process as Ctrl-Z does, and takes the terminal again when it continues.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub(super) fn suspend(&mut self) -> Result<()> {
        leave();
        signal_hook::low_level::emulate_default_handler(libc::SIGTSTP).context("stopping")?;
        self.resume()
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back, once, as far as it takes it. Takes a second and a half at most. Errors are ignored: nothing is left
/// that could show them.
pub(super) fn leave() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    let outlet = OUTLET.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(mut outlet) = outlet {
        give_back(&mut outlet);
        if !outlet.wait(PATIENCE) {
            outlet.discard(|| {
                // Refused where standard output is no terminal.
                let _ = rustix::termios::tcflush(io::stdout(), QueueSelector::OFlush);
            });
            give_back(&mut outlet);
            outlet.wait(A_MOMENT);
        }
    }
    let _ = disable_raw_mode();
}

fn give_back(outlet: &mut ScreenWriter) {
    let _ = outlet.write_all(MOUSE_OFF.as_bytes());
    let _ = queue!(outlet, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
    // Whatever is held for a frame that is not finished.
    outlet.hand_over();
}

/// Waits until the terminal is closed: its window, or the connection to it. Returns at once if standard
/// output is not a terminal, and never while it is one.
pub(super) fn until_closed() {
    let _ = rustix::io::retry_on_intr(|| poll_hang_up(None));
}

/// Whether the terminal is closed.
pub(super) fn is_closed() -> bool {
    poll_hang_up(Some(&Timespec::default())).is_ok_and(|found| found > 0)
}

/// poll(2) of standard output without events: only errors and hang-ups are reported.
fn poll_hang_up(timeout: Option<&Timespec>) -> rustix::io::Result<usize> {
    let out = io::stdout();
    rustix::event::poll(&mut [PollFd::new(&out, PollFlags::empty())], timeout)
}

/// The size of a terminal that does not know its own, unless `COLUMNS` and `LINES` say (as in ncurses).
const USUAL: Size = Size { width: 80, height: 24 };

/// The largest screen that is drawn: a wall of displays with a small font has less.
const LARGEST: Size = Size { width: 1000, height: 400 };

/// The size to draw for a terminal that reports the size `told`, with the values of `COLUMNS` and `LINES`.
pub(super) fn drawn(told: Size, columns: Option<&str>, lines: Option<&str>) -> Size {
    let of = |told: u16, variable: Option<&str>, usual: u16, largest: u16| {
        let wanted = variable.and_then(|text| text.parse().ok()).filter(|number: &u16| *number > 0);
        if told > 0 { told.min(largest) } else { wanted.unwrap_or(usual).min(largest) }
    };
    Size {
        width: of(told.width, columns, USUAL.width, LARGEST.width),
        height: of(told.height, lines, USUAL.height, LARGEST.height),
    }
}

/// A terminal whose size is always one that can be drawn.
pub(super) struct Sized<W: Write>(pub CrosstermBackend<W>);

impl<W: Write> Backend for Sized<W> {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.0.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.0.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        let variable = |name| std::env::var(name).ok();
        // Where the terminal cannot say, the variables do.
        let told = self.0.size().unwrap_or_default();
        Ok(drawn(told, variable("COLUMNS").as_deref(), variable("LINES").as_deref()))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let pixels = self.0.window_size().map(|size| size.pixels).unwrap_or_default();
        Ok(WindowSize { columns_rows: self.size()?, pixels })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_size_has_that_of_the_variables_or_the_usual_one() {
        let size = |width, height| Size { width, height };
        assert_eq!(drawn(size(0, 0), None, None), USUAL);
        assert_eq!(drawn(size(0, 0), Some("132"), Some("43")), size(132, 43));
        assert_eq!(drawn(size(0, 0), Some("nonsense"), Some("0")), USUAL);
        assert_eq!(drawn(size(120, 35), Some("80"), Some("24")), size(120, 35));
        assert_eq!(drawn(size(0, 50), None, None), size(80, 50));
    }

    #[test]
    fn a_size_that_no_screen_has_is_cut() {
        assert_eq!(drawn(Size { width: 65535, height: 65535 }, None, None), LARGEST);
        assert_eq!(drawn(Size { width: 0, height: 0 }, Some("65535"), Some("65535")), LARGEST);
    }
}
