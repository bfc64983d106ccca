//! A page of counters for Prometheus.
//!
//! Sums and never percentages: a quotient of two rates is right over any window and any set of hosts, a mean of percentages
//! is not. Rows partition the machine: the CPU time of programs adds up to that of containers, and that of nodes. The page is
//! made once an interval and served from memory, so that no number of readers makes the measuring work.

mod families;
mod ledger;
mod page;
mod places;
mod request;
pub mod server;
mod top;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::time::ClockId;

use self::ledger::Ledger;
use self::page::{Family, Form};
use crate::export::{Export, Quiet};
use crate::finding::Engine;
use crate::host::clock::clock;
use crate::model::process::Asked;
use crate::program::guard;
use crate::snapshot::Snapshot;
use crate::text::clean_str;

/// Bounds of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Programs, and containers, with series of their own; the rest is one series.
    pub programs: usize,
    pub containers: usize,
    /// Series at most: families are left out beyond that.
    pub series: usize,
}

/// The page as of the last interval, in both forms, and when it was made.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub text: Arc<str>,
    pub open_metrics: Arc<str>,
    /// Wall clock of the sample, ns since 1970; 0 before the first.
    pub made_wall_ns: i64,
    /// Length of its interval, ns.
    pub interval_ns: u64,
}

/// The page that readers get, replaced once an interval.
pub type Shared = Arc<RwLock<Page>>;

/// Adds intervals up, and makes the page. Its output has notes only.
pub struct Exporter {
    ledger: Ledger,
    engine: Engine,
    /// Fields of processes that rules need.
    asked: Asked,
    limits: Limits,
    page: Shared,
    textfile: Option<PathBuf>,
    /// Parts of the page that are left out.
    left_out: usize,
    /// The last reason why the file could not be written, which is reported once.
    failed: Option<String>,
    notes: Quiet,
    own: Option<Own>,
}

impl Exporter {
    /// Makes `page` from now on, and the same in `textfile`.
    pub fn new(
        limits: Limits,
        (engine, asked): (Engine, Asked),
        page: Shared,
        textfile: Option<PathBuf>,
    ) -> Exporter {
        let ledger = Ledger::new(limits);
        Exporter {
            ledger,
            engine,
            asked,
            limits,
            page,
            textfile,
            left_out: 0,
            failed: None,
            notes: Quiet::default(),
            own: None,
        }
    }

    /// With what only the process that measures can say of itself.
    #[must_use]
    pub fn of_this_process(self) -> Exporter {
        Exporter { own: Some(Own::begin()), ..self }
    }

    /// Writes the file, if one is wanted, without families that its reader, node_exporter, has about itself.
    fn keep(&mut self, mut families: Vec<Family>, dropped: usize, out: &mut dyn Write) -> io::Result<()> {
        let Some(path) = &self.textfile else { return Ok(()) };
        families.retain(|family| !family.name.starts_with("process_"));
        let text = page::render(&families, dropped, Form::Text);
        let failed = guard::replace(path, &text).err().map(|error| error.to_string());
        if let Some(why) = failed.as_ref().filter(|why| self.failed.as_ref() != Some(why)) {
            let path = clean_str(&path.to_string_lossy());
            writeln!(out, "numatop-ng: cannot write {path}: {why}; retried every interval")?;
        }
        self.failed = failed;
        Ok(())
    }
}

impl Export for Exporter {
    fn wants_containers(&self) -> bool {
        true
    }

    fn engine(&mut self) -> Option<&mut Engine> {
        Some(&mut self.engine)
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        self.ledger.take(snapshot);
        let most = self.limits.series;
        let (mut families, dropped) =
            families::bounded(&self.ledger, &self.engine, snapshot, most, &mut self.left_out);
        families.extend(self.own.iter().flat_map(Own::families));
        let (text, open) = (
            page::render(&families, dropped, Form::Text),
            page::render(&families, dropped, Form::OpenMetrics),
        );
        self.keep(families, dropped, out)?;
        self.notes.write(out, snapshot)?;
        let page = Page {
            text: text.into(),
            open_metrics: open.into(),
            made_wall_ns: snapshot.wall_ns,
            interval_ns: snapshot.interval_ns.unwrap_or_default(),
        };
        *self.page.write().unwrap_or_else(PoisonError::into_inner) = page;
        Ok(())
    }

    fn asked(&self) -> Asked {
        self.asked
    }
}

/// This process since it began.
struct Own {
    /// Since 1970, seconds.
    started: f64,
}

impl Own {
    fn begin() -> Own {
        Own { started: clock(ClockId::Realtime).as_secs_f64() }
    }

    /// In the names that Prometheus has for them; without what /proc does not say.
    fn families(&self) -> Vec<Family> {
        let start = Family::gauge("process_start_time_seconds", "Unix time of the start of numatop-ng.");
        // The directory is open while it is read.
        let files = fs::read_dir("/proc/self/fd").ok().map(|open| open.count().saturating_sub(1) as f64);
        let files =
            files.map(|open| Family::gauge("process_open_fds", "Open files of numatop-ng itself.").of(open));
        [start.of(self.started)].into_iter().chain(files).collect()
    }
}
