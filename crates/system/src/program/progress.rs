//! Progress of long work: one line on standard error that is written over, where that is a terminal.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::output;

/// Shorter work shows nothing.
const AFTER: Duration = Duration::from_millis(700);

/// The line is written over this often at most.
const EVERY: Duration = Duration::from_millis(200);

/// Cells of the bar.
const BAR: usize = 20;

/// The line of some work. It is erased when this is dropped.
pub struct Progress {
    what: &'static str,
    began: Instant,
    /// The last time that the line was written; `None` before the first time.
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// For work that begins now, in a word such as "reading".
    pub fn new(what: &'static str) -> Progress {
        Progress { what, began: Instant::now(), shown: None, is_terminal: output::is_on_terminal() }
    }

    /// This much is done, 0 to 1; `detail` describes it in the unit of the work. It is called only if the
    /// line is shown.
    pub fn at(&mut self, done: f64, detail: impl FnOnce() -> String) {
        if self.is_due() {
            let left = left(self.began.elapsed(), done);
            self.show(&line(self.what, done, &detail(), left));
        }
    }

    /// The work continues, for an unknown time.
    pub fn say(&mut self, detail: impl FnOnce() -> String) {
        if self.is_due() {
            self.show(&format!("{}  {}", self.what, detail()));
        }
    }

    fn is_due(&self) -> bool {
        self.is_terminal
            && self.began.elapsed() >= AFTER
            && self.shown.is_none_or(|shown| shown.elapsed() >= EVERY)
    }

    fn show(&mut self, text: &str) {
        let width = ratatui::crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let text: String = text.chars().take(width.saturating_sub(1)).collect();
        output::over(&text);
        self.shown = Some(Instant::now());
    }

    /// Erases the line, for a message.
    pub fn erase(&mut self) {
        if self.shown.take().is_some() {
            output::over("");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

/// A line that a thread rewrites once a second while other work of about the expected length runs.
pub struct Ticking {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticking {
    /// For work of about this length. Without a thread there is no line.
    pub fn new(what: &'static str, expected: Duration) -> Ticking {
        let (stop, stopped) = channel();
        let work = move || {
            let mut progress = Progress::new(what);
            while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let (now, all) = (progress.began.elapsed().as_secs_f64(), expected.as_secs_f64());
                progress.at((now / all.max(0.001)).min(0.99), || format!("{now:.0} of about {all:.0} s"));
            }
        };
        let is_terminal = output::is_on_terminal();
        let thread = is_terminal.then(|| thread::Builder::new().name("progress".into()).spawn(work));
        Ticking { stop: Some(stop), thread: thread.and_then(Result::ok) }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// `reading  [####----------------] 21 %  3m12s of 15m00s  12 s left`
fn line(what: &str, done: f64, detail: &str, left: Option<Duration>) -> String {
    let done = if done.is_finite() { done.clamp(0.0, 1.0) } else { 0.0 };
    let full = (done * BAR as f64).round() as usize;
    let bar = "#".repeat(full) + &"-".repeat(BAR - full);
    let left = left.map_or(String::new(), |left| format!("  {} s left", left.as_secs().max(1)));
    format!("{what}  [{bar}] {:.0} %  {detail}{left}", done * 100.0)
}

/// The time left for work whose part `done`, 0 to 1, took `took`; `None` if too little is done.
fn left(took: Duration, done: f64) -> Option<Duration> {
    let is_known = (0.02..1.0).contains(&done);
    is_known.then(|| took.mul_f64((1.0 - done) / done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_bar_a_share_and_the_rest() {
        let text = line("reading", 0.25, "6m of 24m", left(Duration::from_secs(10), 0.25));
        assert_eq!(text, "reading  [#####---------------] 25 %  6m of 24m  30 s left");
        assert_eq!(line("x", f64::NAN, "", None), "x  [--------------------] 0 %  ");
        assert_eq!(left(Duration::from_secs(10), 0.001), None);
        assert_eq!(left(Duration::from_secs(10), 1.0), None);
    }
}
