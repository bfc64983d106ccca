//! Nothing stays in the kernel after the tool has ended, in whatever way.
//!
//! Programs, maps and links are listed by libbpf's iterators over ids: bpftool's own system calls, without a package that
//! a test would need. Other processes may load programs at the same time, so ids are looked for that the tool held.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};

use crate::command::Ours;
use crate::program;
use crate::screen::send;
use crate::terminal::Terminal;
use crate::until::until;

/// Ids of a process's objects in the kernel.
#[derive(Debug, Default)]
struct Held {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl Held {
    /// Adds what `pid` has a descriptor of at this moment; nothing once it has ended.
    fn add(&mut self, pid: u32) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return };
        for entry in entries.flatten() {
            let Ok(text) = fs::read_to_string(entry.path()) else { continue };
            for (field, ids) in
                [("prog_id:", &mut self.programs), ("map_id:", &mut self.maps), ("link_id:", &mut self.links)]
            {
                ids.extend(
                    text.lines().filter_map(|line| line.strip_prefix(field)?.trim().parse::<u32>().ok()),
                );
            }
        }
    }

    /// The ids in a process that measures.
    fn of(pid: u32) -> Result<Held> {
        let mut held = Held::default();
        held.add(pid);
        ensure!(!held.programs.is_empty() && !held.maps.is_empty() && !held.links.is_empty(), "{held:?}");
        Ok(held)
    }

    /// The part that the kernel still has.
    fn left(&self) -> Held {
        Held {
            programs: ProgInfoIter::default()
                .map(|it| it.id)
                .filter(|id| self.programs.contains(id))
                .collect(),
            maps: MapInfoIter::default().map(|it| it.id).filter(|id| self.maps.contains(id)).collect(),
            links: LinkInfoIter::default().map(|it| it.id).filter(|id| self.links.contains(id)).collect(),
        }
    }

    /// The kernel frees them a grace period after the last descriptor is closed.
    fn is_gone(&self, end: &str) -> Result<()> {
        let gone = until("programs, maps and links are freed", || {
            let left = self.left();
            Ok(left.programs.is_empty() && left.maps.is_empty() && left.links.is_empty())
        });
        gone.with_context(|| format!("{end}: {:?} are left", self.left()))
    }
}

pub fn nothing_stays_loaded_after_any_end() -> Result<()> {
    let ends = [
        ("q", None),
        ("SIGINT", Some(libc::SIGINT)),
        ("SIGTERM", Some(libc::SIGTERM)),
        ("SIGKILL", Some(libc::SIGKILL)),
    ];
    for (name, signal) in ends {
        let mut terminal = Terminal::start(&["-d", "0.3"], 24, 80)?;
        terminal.until("table of tasks", |text| text.contains("COMMAND") && text.contains("CPU%"))?;
        let held = Held::of(terminal.pid()?)?;
        // Or the list would be empty for another reason.
        let there = held.left();
        ensure!(there.programs.contains(held.programs.first().context("a program")?), "{name}: {there:?}");
        ensure!(there.maps.len() == held.maps.len(), "{name}: {there:?} of {held:?}");
        ensure!(there.links.len() == held.links.len(), "{name}: {there:?} of {held:?}");
        match signal {
            None => terminal.press("q")?,
            Some(signal) => send(&terminal, signal)?,
        }
        terminal.ended()?;
        held.is_gone(name)?;
    }
    Ok(())
}

pub fn a_start_that_fails_leaves_nothing_loaded() -> Result<()> {
    let mut loaded = 0;
    // From no descriptor for a program to enough for everything: it fails before, between and after loads.
    for limit in (8..4096).step_by(4) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}")).args([program::path(), "-b", "-n", "1", "-d", "0.1"]);
        let mut child =
            Ours(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let mut held = Held::default();
        let status = loop {
            held.add(child.0.id());
            if let Some(status) = child.0.try_wait()? {
                break status;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        held.is_gone(&format!("{limit} open files"))?;
        if status.success() {
            ensure!(loaded > 0, "no start failed with a program loaded");
            return Ok(());
        }
        loaded += held.programs.len();
    }
    anyhow::bail!("4096 open files are not enough")
}
