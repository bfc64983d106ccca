//! Answers of cases: events as JSON lines on the result channel.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use serde_json::Value;
use vmtests_protocol::Event;

use crate::tty;

/// The second serial line, or standard output without one.
pub struct Channel(Option<File>);

impl Channel {
    pub fn open(path: &str) -> Result<Self, String> {
        let line = tty::open(path).map_err(|error| format!("opening {path}: {error}"))?;
        tty::make_raw(line.as_raw_fd()).map_err(|error| format!("making {path} raw: {error}"))?;
        Ok(Channel(Some(line)))
    }

    pub fn stdout() -> Self {
        Channel(None)
    }

    pub fn send(&self, event: &Event) {
        let text = serde_json::to_string(event).expect("an event is JSON");
        // Without the channel nothing can be reported; the runner notices the missing EXIT.
        let _ = self.raw_line(&text);
    }

    pub fn raw_line(&self, text: &str) -> Result<(), String> {
        let line = format!("{text}\n");
        match &self.0 {
            Some(file) => (&mut &*file).write_all(line.as_bytes()),
            None => io::stdout().write_all(line.as_bytes()),
        }
        .map_err(|error| format!("writing a result: {error}"))
    }

    pub fn drain(&self) {
        if let Some(line) = &self.0 {
            tty::drain(line.as_raw_fd());
        }
    }
}

/// The report of one case.
pub struct Report {
    case: String,
    channel: Channel,
    pub wrong: u32,
    pub checks: u32,
}

impl Report {
    pub fn new(case: &str, channel: Channel) -> Self {
        Report { case: case.to_owned(), channel, wrong: 0, checks: 0 }
    }

    /// A sentence of the story.
    pub fn say(&self, text: impl Display) {
        self.channel.send(&Event::Say { case: self.case.clone(), text: text.to_string() });
    }

    /// A value to keep.
    pub fn data(&self, key: &str, value: impl Into<Value>) {
        self.channel.send(&Event::Data { case: self.case.clone(), key: key.to_owned(), value: value.into() });
    }

    /// Compares the result with the truth.
    pub fn equal<T: PartialEq + Display>(&mut self, what: impl Display, want: T, got: T) {
        let ok = want == got;
        self.check(ok, what, want, got);
    }

    /// Expects `got` within `share` (0.01 is one percent) of `want`.
    pub fn close(&mut self, what: impl Display, want: f64, got: f64, share: f64) {
        let ok = (got - want).abs() <= want.abs() * share;
        let percent = share * 100.0;
        self.check(ok, what, format_args!("{want:.4} ± {percent} %"), format_args!("{got:.4}"));
    }

    /// Expects seconds of CPU time within one percent, plus a constant. A task's time between the kernel's
    /// last account of it and its last switch counts too, and lasts as long as the host delays the emulator.
    pub fn cpu_seconds(&mut self, what: impl Display, want: f64, got: f64) {
        self.cpu_seconds_between(what, (want, want), got);
    }

    /// The same where the truth is known to be between two.
    pub fn cpu_seconds_between(&mut self, what: impl Display, (least, most): (f64, f64), got: f64) {
        let slack = most.abs() * 0.01 + 0.06;
        let ok = (least - slack..=most + slack).contains(&got);
        let want = if least == most { format!("{most:.3} s") } else { format!("{least:.3} to {most:.3} s") };
        self.check(ok, what, format_args!("{want} ± {slack:.3}"), format_args!("{got:.3} s"));
    }

    /// Records a comparison that the caller made.
    pub fn check(&mut self, ok: bool, what: impl Display, want: impl Display, got: impl Display) {
        self.checks += 1;
        self.wrong += u32::from(!ok);
        self.channel.send(&Event::Check {
            case: self.case.clone(),
            ok,
            what: what.to_string(),
            want: want.to_string(),
            got: got.to_string(),
        });
    }

    pub fn send(&self, event: &Event) {
        self.channel.send(event);
    }
}
