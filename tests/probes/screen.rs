//! The real binary in a real pseudo-terminal: what it draws, and how it leaves the terminal behind.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use portable_pty::CommandBuilder;

use crate::attack::Attacker;
use crate::locking::Locked;
use crate::program;
use crate::terminal::Terminal;
use crate::until::PATIENCE;
use crate::workload::{ForEverybody, Workload};

/// Sends a signal to the program of a terminal.
pub fn send(terminal: &Terminal, signal: libc::c_int) -> Result<()> {
    let pid = terminal.pid()?;
    // SAFETY: the child is ours and not reaped yet.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
    Ok(())
}

/// The terminal is as a shell wants it back.
fn is_sane(terminal: &Terminal) -> Result<()> {
    let screen = terminal.screen.screen();
    ensure!(!screen.alternate_screen(), "the alternate screen is left on");
    ensure!(!screen.hide_cursor(), "the cursor is left hidden");
    ensure!(screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None, "mouse reports are left on");
    Ok(())
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
    is_sane(&terminal)
}

pub fn it_closes_by_itself_after_n_intervals() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.2", "-n", "2"], 24, 80)?;
    ensure!(terminal.ended()?.exit_code() == 0);
    // Two intervals may have come and gone before we looked once.
    ensure!(String::from_utf8_lossy(&terminal.raw).contains("COMMAND"), "it showed no table of tasks");
    is_sane(&terminal)
}

pub fn a_signal_leaves_a_sane_terminal() -> Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR2, libc::SIGALRM] {
        let mut terminal = Terminal::start(&["-d", "0.3"], 24, 80)?;
        terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
        send(&terminal, signal)?;
        let code = terminal.ended()?.exit_code();
        ensure!(code == 128 + signal as u32, "signal {signal}: exit code {code}");
        is_sane(&terminal)?;
    }
    Ok(())
}

pub fn stopped_and_continued_it_draws_again() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.3"], 24, 80)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    // In raw mode Ctrl-Z is a key. Only this test can continue the program.
    terminal.press("\u{1a}")?;
    let stat = format!("/proc/{}/stat", terminal.pid()?);
    let end = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&stat)?.contains(") T ") {
        ensure!(Instant::now() < end, "Ctrl-Z did not stop it");
        terminal.take_in(Duration::from_millis(20));
    }
    // Its output from before the stop may still be on its way to us.
    while is_sane(&terminal).is_err() {
        ensure!(Instant::now() < end, "while it is stopped: {:#}", is_sane(&terminal).unwrap_err());
        terminal.take_in(Duration::from_millis(20));
    }
    send(&terminal, libc::SIGCONT)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    ensure!(terminal.screen.screen().alternate_screen());
    terminal.press("q")?;
    ensure!(terminal.ended()?.exit_code() == 0);
    is_sane(&terminal)
}

pub fn resizing_redraws_at_every_size() -> Result<()> {
    let mut terminal = Terminal::start(&["-d", "0.2"], 24, 80)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    for (rows, cols) in [(1, 1), (3, 10), (50, 160), (2, 200), (24, 80)] {
        terminal.resize(rows, cols)?;
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
    terminal.press("p")?;
    terminal.until("function of the hostile library", |text| text.contains("bus.so"))?;
    terminal.press("q")?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    is_sane(&terminal)
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
    let copy = ForEverybody::copy(Path::new(program::path()))?;
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&copy.program);
    let mut terminal = Terminal::run(command, 24, 80)?.0;
    ensure!(terminal.ended()?.exit_code() == 3);
    let text = terminal.text();
    ensure!(!terminal.screen.screen().alternate_screen() && text.contains("CAP_BPF"), "{text}");
    Ok(())
}

pub fn a_locked_process_is_looked_at_closely_and_the_screen_goes_on() -> Result<()> {
    let locked = Locked::start(1)?;
    let mut terminal = Terminal::start(&["-d", "0.3", "-p", &locked.pids[0].to_string()], 24, 100)?;
    terminal.until("its row", |text| text.contains("nobody") || text.contains("65534"))?;
    terminal.press("\r")?;
    terminal.until("why it has no command line", |text| text.contains("address space is locked"))?;
    terminal.press("m")?;
    terminal.until("that its mappings are read", |text| text.contains("reading the mappings"))?;
    let pid = locked.pids[0].to_string();
    terminal.until("why it has none", |text| text.matches("address space is locked").count() == 2)?;
    let began = Instant::now();
    terminal.press("m")?;
    terminal.until("threads", |text| text.contains("TID") && text.contains(&pid))?;
    ensure!(began.elapsed() < Duration::from_secs(2), "a key took {:?}", began.elapsed());
    // Read again, and not waited for.
    terminal.press("m")?;
    terminal.until("that its mappings are read", |text| text.contains("reading the mappings"))?;
    let began = Instant::now();
    send(&terminal, libc::SIGTERM)?;
    terminal.ended()?;
    ensure!(began.elapsed() < Duration::from_secs(2), "its end took {:?}", began.elapsed());
    is_sane(&terminal)
}
