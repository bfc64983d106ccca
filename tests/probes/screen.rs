//! The real binary in a real pseudo-terminal: what it draws, and how it leaves the terminal behind.

use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

use crate::attack::Attacker;
use crate::locking::Locked;
use crate::until::PATIENCE;
use crate::workload::{ForEverybody, Workload};

/// numatop-ng in a pseudo-terminal, with a model of the screen behind it.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    raw: Vec<u8>,
}

pub fn model(rows: u16, cols: u16) -> Result<vt100::Parser> {
    let size = |cells| NonZero::new(cells).context("a screen has cells");
    Ok(vt100::Parser::new(size(rows)?, size(cols)?, 0))
}

impl Terminal {
    pub fn start(words: &[&str], rows: u16, cols: u16) -> Result<Terminal> {
        let pty = native_pty_system().openpty(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 })?;
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_numatop-ng"));
        command.args(words);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pty.slave.spawn_command(command)?;
        let mut reader = pty.master.try_clone_reader()?;
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(got @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..got].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pty.master.take_writer()?;
        let screen = model(rows, cols)?;
        Ok(Terminal { master: pty.master, child, keys, output, screen, raw: Vec::new() })
    }

    /// False when there is nothing more to come: the program and its terminal are gone.
    fn take_in(&mut self, wait: Duration) -> bool {
        let got = self.output.recv_timeout(wait);
        if let Ok(bytes) = &got {
            self.raw.extend(bytes);
            self.screen.process(bytes);
        }
        got != Err(RecvTimeoutError::Disconnected)
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen fulfils `wanted`.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !wanted(&self.text()) {
            ensure!(Instant::now() < end, "no {what} on the screen:\n{}", self.text());
            ensure!(self.take_in(Duration::from_millis(50)), "it ended without {what}:\n{}", self.text());
        }
        Ok(())
    }

    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes())?;
        self.keys.flush().context("pressing a key")
    }

    pub fn pid(&self) -> Result<u32> {
        self.child.process_id().context("the child has ended")
    }

    pub fn signal(&self, signal: libc::c_int) -> Result<()> {
        let pid = self.pid()?;
        // SAFETY: the child is ours and not reaped yet.
        unsafe { libc::kill(pid as libc::pid_t, signal) };
        Ok(())
    }

    /// Waits for its end, and takes in all that it wrote until then.
    pub fn ended(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if !self.take_in(Duration::from_millis(20)) {
                return Ok(self.child.wait()?);
            }
        }
        self.child.kill()?;
        bail!("it did not end; the screen:\n{}", self.text())
    }

    /// The terminal is as a shell wants it back.
    fn is_sane(&self) -> Result<()> {
        let screen = self.screen.screen();
        ensure!(!screen.alternate_screen(), "the alternate screen is left on");
        ensure!(!screen.hide_cursor(), "the cursor is left hidden");
        ensure!(screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None, "mouse reports are left on");
        Ok(())
    }
}

pub fn the_live_view_comes_up_and_goes_away() -> Result<()> {
    // On a busy machine it is not among the first rows.
    let mut terminal = Terminal::start(&["-d", "0.3", "--comm", "^numatop-ng$"], 24, 80)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND") && text.contains("CPU%"))?;
    terminal
        .until("row of numatop-ng itself", |text| text.contains("numatop-ng") && text.contains("root"))?;
    terminal.press("\t")?;
    terminal.until("view of nodes", |text| text.contains("TOTAL") && text.contains("FREE"))?;
    terminal.press("?")?;
    terminal.until("help", |text| text.contains("This help"))?;
    terminal.press("\u{1b}")?;
    terminal.until("view of nodes again", |text| !text.contains("This help"))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.exit_code() == 0);
    terminal.is_sane()
}

pub fn it_closes_by_itself_after_n_intervals() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.2", "-n", "2"], 24, 80)?;
    ensure!(terminal.ended()?.exit_code() == 0);
    // Two intervals may have come and gone before we looked once.
    ensure!(String::from_utf8_lossy(&terminal.raw).contains("COMMAND"), "it showed no table of tasks");
    terminal.is_sane()
}

pub fn a_signal_leaves_a_sane_terminal() -> Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR2, libc::SIGALRM] {
        let mut terminal = Terminal::start(&["-d", "0.3"], 24, 80)?;
        terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
        terminal.signal(signal)?;
        let code = terminal.ended()?.exit_code();
        ensure!(code == 128 + signal as u32, "signal {signal}: exit code {code}");
        terminal.is_sane()?;
    }
    Ok(())
}

pub fn stopped_and_continued_it_draws_again() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.3"], 24, 80)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    // In raw mode Ctrl-Z is a key. Nobody is there to continue us but this test.
    terminal.press("\u{1a}")?;
    let stat = format!("/proc/{}/stat", terminal.child.process_id().context("it has ended")?);
    let end = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&stat)?.contains(") T ") {
        ensure!(Instant::now() < end, "Ctrl-Z did not stop it");
        terminal.take_in(Duration::from_millis(20));
    }
    // What it wrote before it stopped may still be on its way to us.
    while terminal.is_sane().is_err() {
        ensure!(Instant::now() < end, "while it is stopped: {:#}", terminal.is_sane().unwrap_err());
        terminal.take_in(Duration::from_millis(20));
    }
    terminal.signal(libc::SIGCONT)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    ensure!(terminal.screen.screen().alternate_screen());
    terminal.press("q")?;
    ensure!(terminal.ended()?.exit_code() == 0);
    terminal.is_sane()
}

pub fn resizing_redraws_at_every_size() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.2"], 24, 80)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    for (rows, cols) in [(1, 1), (3, 10), (50, 160), (2, 200), (24, 80)] {
        terminal.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 })?;
        let size = |cells| NonZero::new(cells).context("a screen has cells");
        terminal.screen.screen_mut().set_size(size(rows)?, size(cols)?);
        terminal.take_in(Duration::from_millis(300));
    }
    terminal.until("table of tasks", |text| text.contains("COMMAND") && text.contains("q Quit"))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.exit_code() == 0);
    Ok(())
}

pub fn hostile_names_do_not_reach_the_terminal() -> Result<()> {
    let hostile = Workload::start_with("hog", |command| {
        command.env("NUMATOP_NG_TEST_COMM", "\u{1b}]0;PWNED\u{7}");
    })?;
    let pid = hostile.pid().to_string();
    let mut terminal = Terminal::start(&["-d", "0.2", "-p", &pid], 24, 80)?;
    terminal.until("escaped name", |text| text.contains("\\x1b]0;PWNED"))?;
    let sequence = b"\x1b]0;PWNED";
    ensure!(!terminal.raw.windows(sequence.len()).any(|window| window == sequence), "the name set the title");
    terminal.press("q")?;
    terminal.ended().map(drop)
}

pub fn hot_spots_of_a_library_that_is_truncated_leave_the_screen_alive() -> Result<()> {
    let attacker = Attacker::start("hostile-truncating")?;
    let pid = attacker.pid().to_string();
    let mut terminal = Terminal::start(&["-d", "0.3", "-p", &pid, "--hot-event", "cpu-clock"], 24, 100)?;
    terminal.until("row of the hostile program", |text| text.contains(&pid))?;
    terminal.press("h")?;
    terminal.until("function of the hostile library", |text| text.contains("bus.so"))?;
    terminal.press("q")?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    terminal.is_sane()
}

pub fn no_colour_means_no_colour() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.2", "--color", "never", "--ascii"], 24, 80)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND") && text.contains("q Quit"))?;
    let text = String::from_utf8_lossy(&terminal.raw).into_owned();
    let coloured =
        text.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m')).find(|(codes, _)| {
            let mut codes = codes.split(';').map(|code| code.parse::<u16>().unwrap_or(0));
            codes.any(|code| {
                (30..=38).contains(&code) || (40..=48).contains(&code) || (90..=107).contains(&code)
            })
        });
    ensure!(coloured.is_none(), "a colour was set: {:?}", coloured.map(|(codes, _)| codes));
    ensure!(terminal.text().is_ascii(), "not ASCII:\n{}", terminal.text());
    terminal.press("q")?;
    terminal.ended().map(drop)
}

pub fn without_capabilities_the_screen_is_given_back_first() -> Result<()> {
    let mut command = CommandBuilder::new("setpriv");
    let copy = ForEverybody::copy(Path::new(env!("CARGO_BIN_EXE_numatop-ng")))?;
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&copy.program);
    let pty = native_pty_system().openpty(PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 })?;
    let mut child = pty.slave.spawn_command(command)?;
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader()?;
    let mut raw = Vec::new();
    // A pseudo-terminal whose other side is closed ends in EIO.
    let _ = reader.read_to_end(&mut raw);
    ensure!(child.wait()?.exit_code() == 3);
    let mut screen = model(24, 80)?;
    screen.process(&raw);
    let text = screen.screen().contents();
    ensure!(!screen.screen().alternate_screen() && text.contains("CAP_BPF"), "{text}");
    Ok(())
}

pub fn a_locked_process_is_looked_at_closely_and_the_screen_goes_on() -> Result<()> {
    let locked = Locked::start(1)?;
    let mut terminal = Terminal::start(&["-d", "0.3", "-p", &locked.pids[0].to_string()], 24, 100)?;
    terminal.until("its row", |text| text.contains("nobody") || text.contains("65534"))?;
    terminal.press("\r")?;
    terminal.until("why it has no command line", |text| text.contains("its address space is locked"))?;
    terminal.press("m")?;
    terminal.until("that its mappings are read", |text| text.contains("reading its mappings"))?;
    let pid = locked.pids[0].to_string();
    terminal.until("why it has none", |text| text.matches("its address space is locked").count() == 2)?;
    let began = Instant::now();
    terminal.press("m")?;
    terminal.until("threads", |text| text.contains("TID") && text.contains(&pid))?;
    ensure!(began.elapsed() < Duration::from_secs(2), "a key took {:?}", began.elapsed());
    // Read again, and not waited for.
    terminal.press("m")?;
    terminal.until("that its mappings are read", |text| text.contains("reading its mappings"))?;
    let began = Instant::now();
    terminal.signal(libc::SIGTERM)?;
    terminal.ended()?;
    ensure!(began.elapsed() < Duration::from_secs(2), "its end took {:?}", began.elapsed());
    terminal.is_sane()
}
