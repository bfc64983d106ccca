//! Recording this machine: a replay shows the same as the live view, and a full disk is survived.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use numatop_ng::model::sample::Sample;
use numatop_ng::record::format::End;
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::record::verify::verify;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::source::recording::Recording;

use crate::command::Ours;
use crate::program;
use crate::until::until;

/// A directory of this test's own, with a file system on it if it has a size.
pub struct Place {
    pub path: PathBuf,
    mounted: bool,
}

impl Place {
    pub fn new(name: &str, bytes: Option<u32>) -> Result<Place> {
        let path = std::env::temp_dir().join(format!("numatop-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        let mut place = Place { path, mounted: false };
        if let Some(bytes) = bytes {
            let at = CString::new(place.path.to_str().context("the path is not UTF-8")?)?;
            let options = CString::new(format!("size={bytes},mode=0700"))?;
            // SAFETY: all strings end with NUL and outlive the call.
            let mounted = unsafe {
                libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
            };
            ensure!(mounted == 0, "mounting a tmpfs: {}", std::io::Error::last_os_error());
            place.mounted = true;
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted
            && let Ok(at) = CString::new(self.path.as_os_str().as_encoded_bytes())
        {
            // SAFETY: the string ends with NUL.
            unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

pub fn numatop(words: &[&str]) -> Result<String> {
    let output = Command::new(program::path()).args(words).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

pub fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

pub fn a_replay_is_what_was_shown() -> Result<()> {
    let place = Place::new("replay", None)?;
    let path = place.path.join("file");
    // An object for each of five intervals; a line of titles, and one for each container at least.
    for (rows, lines) in [
        (&["--format", "json"][..], 5..=5),
        (&["--format", "json", "--threads"], 5..=5),
        (&["--format", "csv", "--by-container"], 6..=usize::MAX),
    ] {
        let live = [&["-b", "-n", "5", "-d", "0.2", "--record", text(&path)?], rows].concat();
        let live = numatop(&live)?;
        let replayed = numatop(&[&["replay", text(&path)?], rows].concat())?;
        ensure!(lines.contains(&live.lines().count()) && live == replayed, "{rows:?}: the replay differs");
        fs::remove_file(&path)?;
    }
    Ok(())
}

pub fn samples_of_this_machine_come_back() -> Result<()> {
    let place = Place::new("samples", None)?;
    let path = place.path.join("file");
    let mut source = LiveSource::start(LiveOptions::default())?;
    let mut recorder = Recorder::open(&path, options())?;
    let mut taken: Vec<Sample> = Vec::new();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(50));
        let sample = source.next()?.context("no sample")?;
        recorder.record(&source.host(), &sample)?;
        taken.push(sample);
    }
    recorder.finish()?;
    let mut recording = Recording::open(&path)?;
    ensure!(recording.host() == source.host(), "the host differs");
    for sample in taken {
        ensure!(recording.next()?.as_ref() == Some(&sample), "a sample differs");
    }
    ensure!(recording.next()?.is_none());
    Ok(())
}

pub fn options() -> RecordOptions {
    RecordOptions::every(Duration::from_millis(50))
}

pub fn a_full_disk_pauses_the_recording() -> Result<()> {
    let place = Place::new("full", Some(2 << 20))?;
    let path = place.path.join("file");
    let filler = place.path.join("filler");
    let mut source = LiveSource::start(LiveOptions::default())?;
    let mut recorder = Recorder::open(&path, options())?;
    let (mut recorded, mut paused, mut after) = (Vec::new(), 0u64, 0);
    let (mut words, mut ended) = (Vec::new(), Vec::new());
    while after < 5 {
        // Another file takes the rest of the disk; the last page of the recording stays.
        if recorded.len() == 10 && paused == 0 {
            let _ = fs::write(&filler, vec![1; 4 << 20]);
        }
        if paused == 3 {
            Command::new("true").status().context("running true")?;
        }
        if paused == 5 && filler.exists() {
            fs::remove_file(&filler)?;
        }
        let mut sample = source.next()?.context("no sample")?;
        words = recorder.record(&source.host(), &sample)?;
        if words.iter().any(|word| word.contains("paused")) {
            ensure!(words[0].contains("No space left on device"), "{words:?}");
            paused += 1;
            ended.append(&mut sample.exited);
        } else {
            ensure!(paused == 0 || after > 0 || !ended.is_empty(), "no process ended during the pause");
            // Tasks that ended during the pause are reported after it.
            sample.exited.splice(0..0, ended.drain(..));
            recorded.push(sample);
            after += u32::from(paused > 0);
        }
        ensure!(recorded.len() < 1000, "the disk is never full");
        ensure!(paused < 1000, "the pause does not end: {words:?}");
    }
    ensure!(words.is_empty(), "it does not go on: {words:?}");
    recorder.finish()?;
    let report = verify(&path)?;
    ensure!(report.is_intact(), "{report}");
    ensure!(report.gaps.len() == 1 && report.gaps[0].samples == paused, "{:?}", report.gaps);
    let mut recording = Recording::open(&path)?;
    let mut told = 0;
    for sample in &recorded {
        let mut read = recording.next()?.context("a recorded sample is not there")?;
        let own = sample.notes.len();
        told += read.notes.len() - own;
        read.notes.drain(..read.notes.len() - own);
        ensure!(read == *sample, "a sample differs");
    }
    ensure!(told == 1, "the pause is told {told} times");
    Ok(())
}

pub fn a_recording_belongs_to_who_called_sudo() -> Result<()> {
    const USER: u32 = 65534;
    let place = Place::new("sudo", None)?;
    let (his, ours) = (place.path.join("his"), place.path.join("ours"));
    for dir in [&his, &ours] {
        fs::create_dir(dir)?;
    }
    std::os::unix::fs::chown(&his, Some(USER), Some(USER))?;
    for (dir, owner) in [(&his, USER), (&ours, 0)] {
        for path in [dir.join("file"), dir.clone(), dir.join("ring/")] {
            let status = Command::new(program::path())
                .args(["record", "-n", "1", "-d", "0.1", text(&path)?])
                .env("SUDO_UID", USER.to_string())
                .env("SUDO_GID", USER.to_string())
                .status()?;
            ensure!(status.success(), "{}: {status}", path.display());
        }
        for entry in fs::read_dir(dir)? {
            let meta = entry?.metadata()?;
            let mode = if meta.is_dir() { 0o700 } else { 0o600 };
            ensure!(meta.uid() == owner && meta.mode() & 0o777 == mode, "{}: {meta:?}", dir.display());
        }
    }
    Ok(())
}

/// The unit of docs/recordings.md, with its folder somewhere else and a short interval.
pub fn the_documented_service_records_until_it_is_stopped() -> Result<()> {
    const FOLDER: &str = "/var/log/numatop-ng/";
    const EVERY: &str = "-d 5 ";
    let unit = include_str!("../../pkg/systemd/numatop-ng-record.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
    let flags = value("Environment=\"RECORD_FLAGS=").context("no RECORD_FLAGS")?.trim_end_matches('"');
    ensure!(flags.starts_with(EVERY), "{flags} does not begin with {EVERY}");
    // A tenth of a second instead of five; the rest as installed.
    let flags = flags.replacen(EVERY, "-d 0.1 ", 1);
    let line = value("ExecStart=").context("no ExecStart")?.replace("$RECORD_FLAGS", &flags);
    let mut words = line.split(' ');
    let program = words.next().context("an empty ExecStart")?;
    ensure!(program.ends_with("/numatop-ng"), "{program} is started");
    let place = Place::new("service", None)?;
    let ring = place.path.join("ring/");
    let words: Vec<&str> =
        words.map(|word| if word == FOLDER { text(&ring) } else { Ok(word) }).collect::<Result<_>>()?;
    ensure!(words.contains(&text(&ring)?), "{line} does not record into {FOLDER}");
    let child = Command::new(program::path()).args(words).stdin(Stdio::null()).spawn()?;
    let mut child = Ours(child);
    let mut recorded = None;
    until("the service has recorded samples", || {
        if let Some(status) = child.0.try_wait()? {
            anyhow::bail!("the service ended by itself: {status}");
        }
        let Ok(mut entries) = fs::read_dir(&ring) else { return Ok(false) };
        recorded = entries.find_map(|entry| {
            let path = entry.ok()?.path();
            verify(&path).is_ok_and(|report| report.samples > 1).then_some(path)
        });
        Ok(recorded.is_some())
    })?;
    child.signal(libc::SIGTERM)?;
    let status = child.ended()?;
    ensure!(status.code() == Some(0), "{status}");
    let report = verify(&recorded.context("until it has one")?)?;
    ensure!(report.is_intact() && report.end == Some(End::Stopped), "{report}");
    Ok(())
}

pub fn a_signal_rotates_and_another_ends_a_recording() -> Result<()> {
    let place = Place::new("signals", None)?;
    let path = place.path.join("file");
    let child = Command::new(program::path())
        .args(["record", "-d", "0.1", text(&path)?])
        .stdin(Stdio::null())
        .spawn()?;
    let mut child = Ours(child);
    let has_samples = |file: &Path| Ok(verify(file).is_ok_and(|report| report.samples > 1));
    until("the recording has samples", || has_samples(&path))?;
    child.signal(libc::SIGUSR1)?;
    let next = place.path.join("file.1");
    until("the next file has samples", || has_samples(&next))?;
    child.signal(libc::SIGTERM)?;
    let status = child.ended()?;
    ensure!(status.success(), "{status}");
    for (file, end) in [(&path, End::Rotated), (&next, End::Stopped)] {
        let report = verify(file)?;
        ensure!(report.is_intact() && report.end == Some(end), "{report}");
    }
    Ok(())
}
