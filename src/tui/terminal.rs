//! The terminal as we found it and as we use it: entering, leaving, and leaving whatever happens.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};

use super::app::App;
use super::view;

/// Clicks and wheel, with coordinates as text (xterm's modes 1000 and 1006). Not movements, which
/// would wake us for nothing.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

/// Whether the terminal is ours now. Global, because a panic anywhere must give it back.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The terminal while it shows our screen. Dropped, it gives the terminal back.
pub struct Tty {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    mouse: bool,
}

impl Tty {
    /// Takes the terminal. From here on a panic in any thread gives it back before it is reported.
    ///
    /// # Errors
    /// Standard output is not a terminal that can be written to.
    pub fn enter(mouse: bool) -> Result<Tty> {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            report(info);
        }));
        let out = BufWriter::with_capacity(64 * 1024, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out)).context("opening the terminal")?;
        let mut tty = Tty { terminal, mouse };
        tty.resume()?;
        Ok(tty)
    }

    /// Takes the terminal, again or anew, and forgets what was on it.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn resume(&mut self) -> Result<()> {
        ENTERED.store(true, Ordering::SeqCst);
        // Without a terminal to read from there are no keys, but the screen is as good.
        let _ = enable_raw_mode();
        let mut out = io::stdout();
        execute!(out, EnterAlternateScreen, Hide).context("writing to the terminal")?;
        if self.mouse {
            out.write_all(MOUSE_ON.as_bytes())
                .and_then(|()| out.flush())
                .context("writing to the terminal")?;
        }
        self.redraw()
    }

    /// Draws every cell at the next [`Tty::draw`].
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn redraw(&mut self) -> Result<()> {
        // Not Terminal::clear, which asks the terminal where the cursor is: the input thread would get
        // the answer.
        let size = self.terminal.size().context("asking for the size of the terminal")?;
        self.terminal.resize(size.into()).context("clearing the screen")
    }

    /// Brings the screen up to date.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn draw(&mut self, app: &mut App) -> Result<()> {
        if !ENTERED.load(Ordering::SeqCst) {
            // A thread panicked: what it has to say must stay readable.
            return Ok(());
        }
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate).context("writing to the terminal")?;
        self.terminal
            .draw(|frame| {
                let area = frame.area();
                app.resize(area);
                view::draw(app, area, frame.buffer_mut());
            })
            .context("drawing the screen")?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate).context("writing to the terminal")
    }

    /// Stops the process as Ctrl-Z does, and takes the terminal again when it goes on.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn suspend(&mut self) -> Result<()> {
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

/// Gives the terminal back, once. Errors are ignored: there is nobody left to tell.
pub fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = out.write_all(MOUSE_OFF.as_bytes());
        let _ = execute!(out, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
