//! A trace for Perfetto: counters of nodes, containers and programs, slices of findings and gaps, and notes.
//!
//! The value of an interval is written at its beginning, because a line is drawn from there to the next
//! value. The last value of a stretch is repeated at its end. Values are written at once: packets of any
//! number of intervals take no memory. Fields and their numbers are those of protos/perfetto/trace in
//! github.com/google/perfetto.

mod fields;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use fields::{Child, Event, Unit, packet};

use super::proto::Message;
use super::tracks::{Chosen, Group, Line, TrackRow, has_all_rows, rank, rows};
use crate::finding::{Change, Engine, Finding, FindingKey};
use crate::model::sample::{HostFacts, Sample};
use crate::snapshot::Snapshot;
use crate::text::{clean_str, one_line};

/// A trace in the making.
pub struct Trace<W> {
    out: W,
    chosen: Chosen,
    tracks: Tracks,
    time: Option<Time>,
    /// End of the last interval, ns of the trace.
    now_ns: u64,
    /// Intervals so far.
    intervals: u64,
    /// Lines with a value in the last interval, by the number of their track.
    lines: BTreeMap<u64, Drawn>,
    engine: Engine,
    /// Open findings, and their beginnings.
    open: BTreeMap<FindingKey, (u64, u64)>,
    /// Ends of slices, by track: those of one track do not overlap.
    ended: HashMap<u64, u64>,
    /// Cumulative losses of the sample before.
    lost: BTreeMap<String, u64>,
    /// Notes of the sample before.
    said: Vec<String>,
    values: u64,
}

/// A line with a value.
#[derive(Clone, Copy)]
struct Drawn {
    value: f64,
    /// The interval of the value.
    interval: u64,
    /// It is CPU time of a container or a program: one without a row used none.
    is_time_of_row: bool,
}

/// Numbers of a whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub intervals: u64,
    /// Values of counters.
    pub values: u64,
}

impl<W: Write> Trace<W> {
    /// An empty trace with tracks of these rows.
    pub fn new(out: W, chosen: Chosen) -> Trace<W> {
        Trace {
            out,
            chosen,
            tracks: Tracks::default(),
            time: None,
            now_ns: 0,
            intervals: 0,
            lines: BTreeMap::new(),
            engine: Engine::default(),
            open: BTreeMap::new(),
            ended: HashMap::new(),
            lost: BTreeMap::new(),
            said: Vec::new(),
            values: 0,
        }
    }

    /// Takes a sample without an interval before it: the first of all, or of another run.
    ///
    /// # Errors
    /// The errno of the output.
    pub fn begin(&mut self, host: &HostFacts, sample: &Sample) -> io::Result<()> {
        match &mut self.time {
            None => {
                let time = Time::new(host, sample);
                self.now_ns = time.last_ns;
                self.tracks.number(host, sample.wall_ns);
                let clocks = fields::clocks(time.boot_ns, time.wall_ns.try_into().unwrap_or(0));
                self.packet(time.boot_ns, packet::CLOCK_SNAPSHOT, &clocks)?;
                self.time = Some(time);
                self.group(&Group::Host, &format!("numatop-ng {}", clean_str(&host.hostname)), 0)?;
                sample.notes.iter().try_for_each(|note| self.note(&one_line(note)))?;
            }
            Some(time) => {
                let is_restart = time.last_boot_id != host.boot_id;
                let to_ns = time.of(host, sample.boot_ns, sample.wall_ns);
                self.close()?;
                self.engine.interrupt();
                let what = if is_restart { "the machine was restarted" } else { "the recording was paused" };
                let mut words = vec![what.to_owned()];
                words.extend(sample.notes.iter().map(|note| one_line(note)));
                self.gap(to_ns, &words.join("; "))?;
                self.now_ns = to_ns;
            }
        }
        self.lost.clone_from(&sample.lost);
        self.said = sample.notes.iter().map(|note| gist(note)).collect();
        Ok(())
    }

    /// Takes the next interval, whose rows are processes. `is_interrupted`: samples are missing in it.
    ///
    /// # Errors
    /// The errno of the output.
    pub fn interval(&mut self, snapshot: &Snapshot, is_interrupted: bool) -> io::Result<()> {
        let Some(time) = &mut self.time else { return Ok(()) };
        let (from_ns, to_ns) = (self.now_ns, time.of(&snapshot.host, snapshot.boot_ns, snapshot.wall_ns));
        self.intervals += 1;
        for row in rows(snapshot, &self.chosen) {
            self.row(&row, from_ns)?;
        }
        self.end_lines(from_ns, has_all_rows(snapshot))?;
        if is_interrupted {
            let notes: Vec<String> = snapshot.notes.iter().map(|note| one_line(note)).collect();
            let why = if notes.is_empty() { "samples are missing".to_owned() } else { notes.join("; ") };
            self.gap(to_ns, &why)?;
        }
        self.now_ns = to_ns;
        for change in self.engine.take(snapshot) {
            match change {
                Change::Began(finding) => self.finding_began(&finding, snapshot.mono_ns)?,
                Change::Ended(finding) => self.finding_ended(&finding, snapshot.mono_ns)?,
            }
        }
        self.notes(snapshot, is_interrupted)
    }

    /// Ends all lines and slices, and returns the amount written.
    ///
    /// # Errors
    /// The errno of the output.
    pub fn finish(mut self) -> io::Result<Written> {
        self.close()?;
        self.out.flush()?;
        Ok(Written { intervals: self.intervals, values: self.values })
    }

    fn row(&mut self, row: &TrackRow, from_ns: u64) -> io::Result<()> {
        let is_row = !matches!(row.group, Group::Node(_));
        for (line, value) in &row.values {
            let track = self.line(row, *line)?;
            self.value(track, from_ns, *value)?;
            let is_time_of_row = is_row && *line == Line::Cpu;
            self.lines.insert(track, Drawn { value: *value, interval: self.intervals, is_time_of_row });
        }
        Ok(())
    }

    /// Ends lines without a value in this interval. A program without a row used no CPU, unless a recording has left rows out.
    fn end_lines(&mut self, from_ns: u64, all_rows: bool) -> io::Result<()> {
        let now = self.intervals;
        let over: Vec<(u64, Drawn)> = self
            .lines
            .iter()
            .filter(|(_, drawn)| drawn.interval != now)
            .map(|(at, drawn)| (*at, *drawn))
            .collect();
        for (track, drawn) in over {
            if drawn.is_time_of_row && all_rows {
                if drawn.value != 0.0 {
                    self.value(track, from_ns, 0.0)?;
                }
                self.lines.insert(track, Drawn { value: 0.0, interval: now, ..drawn });
            } else {
                self.value(track, from_ns, drawn.value)?;
                self.lines.remove(&track);
            }
        }
        Ok(())
    }

    /// Ends everything still open, at the end of the last interval.
    fn close(&mut self) -> io::Result<()> {
        for (track, drawn) in std::mem::take(&mut self.lines) {
            self.value(track, self.now_ns, drawn.value)?;
        }
        for (track, begin_ns) in std::mem::take(&mut self.open).into_values() {
            self.end(track, self.now_ns.max(begin_ns))?;
        }
        self.said.clear();
        Ok(())
    }

    fn value(&mut self, track: u64, at_ns: u64, value: f64) -> io::Result<()> {
        self.values += 1;
        self.packet(at_ns, packet::TRACK_EVENT, &fields::value(track, value))
    }

    /// A slice from the end of the last interval to `to_ns`.
    fn gap(&mut self, to_ns: u64, why: &str) -> io::Result<()> {
        let track = self.track(Slices::Gaps, &Group::Host, "gaps", rank::GAPS)?;
        self.packet(self.now_ns, packet::TRACK_EVENT, &fields::event(Event::Begin, track, Some(why)))?;
        self.end(track, to_ns)
    }

    fn end(&mut self, track: u64, at_ns: u64) -> io::Result<()> {
        self.ended.insert(track, at_ns);
        self.packet(at_ns, packet::TRACK_EVENT, &fields::event(Event::End, track, None))
    }

    /// Notes that the sample before did not have, and losses.
    fn notes(&mut self, snapshot: &Snapshot, are_told: bool) -> io::Result<()> {
        let mut words: Vec<String> = Vec::new();
        if !are_told {
            let new = snapshot.notes.iter().filter(|note| !self.said.contains(&gist(note)));
            words.extend(new.map(|note| one_line(note)));
        }
        for (cause, count) in &snapshot.lost {
            let more = count.saturating_sub(self.lost.get(cause).copied().unwrap_or(0));
            if more > 0 {
                words.push(format!("lost: {more} {}", one_line(cause)));
            }
        }
        self.said = snapshot.notes.iter().map(|note| gist(note)).collect();
        self.lost.clone_from(&snapshot.lost);
        words.iter().try_for_each(|words| self.note(words))
    }

    fn note(&mut self, words: &str) -> io::Result<()> {
        let track = self.track(Slices::Notes, &Group::Host, "notes", rank::NOTES)?;
        self.packet(self.now_ns, packet::TRACK_EVENT, &fields::event(Event::Instant, track, Some(words)))
    }

    /// A slice begins where the episode of the finding did, or behind the one before of the same finding.
    fn finding_began(&mut self, finding: &Finding, mono_ns: u64) -> io::Result<()> {
        if self.open.contains_key(&finding.key) {
            return Ok(());
        }
        let name = format!("{}: {}", finding.title, one_line(&finding.identity.label));
        let rank = self.tracks.all.len() as u64;
        let track = self.track(Slices::Finding(finding.key.clone()), &Group::Findings, &name, rank)?;
        let first_ns = self.time.as_ref().map_or(0, |time| time.boot_ns);
        let since_ns = self.now_ns.saturating_sub(mono_ns.saturating_sub(finding.since_mono_ns));
        let at_ns = since_ns.max(first_ns).max(self.ended.get(&track).copied().unwrap_or(0));
        self.open.insert(finding.key.clone(), (track, at_ns));
        let words = one_line(&finding.advice.sentence);
        self.packet(at_ns, packet::TRACK_EVENT, &fields::event(Event::Begin, track, Some(&words)))
    }

    fn finding_ended(&mut self, finding: &Finding, mono_ns: u64) -> io::Result<()> {
        let Some((track, begin_ns)) = self.open.remove(&finding.key) else { return Ok(()) };
        let until_ns = finding.until_mono_ns.unwrap_or(mono_ns);
        let at_ns = self.now_ns.saturating_sub(mono_ns.saturating_sub(until_ns));
        self.end(track, at_ns.max(begin_ns))
    }

    /// The track of a group, which is described when it is new, behind the groups that it is in.
    fn group(&mut self, group: &Group, name: &str, rank: u64) -> io::Result<u64> {
        let key = Track::Group(group.clone());
        if let Some(track) = self.tracks.all.get(&key) {
            return Ok(*track);
        }
        let parent = match group.parent() {
            None => None,
            Some(above) => Some(self.holder(&above)?),
        };
        let track = self.tracks.add(key);
        let child = Child { track, parent, name, rank };
        self.packet(self.now_ns, packet::TRACK_DESCRIPTOR, &fields::group(&child))?;
        Ok(track)
    }

    /// The track of a group that holds others.
    fn holder(&mut self, group: &Group) -> io::Result<u64> {
        let (name, rank) = group.holds();
        self.group(group, name, rank)
    }

    fn line(&mut self, row: &TrackRow, line: Line) -> io::Result<u64> {
        let key = Track::Line(row.group.clone(), line);
        if let Some(track) = self.tracks.all.get(&key) {
            return Ok(*track);
        }
        let parent = Some(self.group(&row.group, &row.name, row.rank)?);
        let track = self.tracks.add(key);
        let child = Child { track, parent, name: line.name(), rank: line as u64 };
        let unit = line.unit(&row.group).map_or(Unit::Bytes, Unit::Named);
        self.packet(self.now_ns, packet::TRACK_DESCRIPTOR, &fields::counter(&child, unit))?;
        Ok(track)
    }

    fn track(&mut self, slices: Slices, group: &Group, name: &str, rank: u64) -> io::Result<u64> {
        let key = Track::Slices(slices);
        if let Some(track) = self.tracks.all.get(&key) {
            return Ok(*track);
        }
        let parent = Some(self.holder(group)?);
        let track = self.tracks.add(key);
        let child = Child { track, parent, name, rank };
        self.packet(self.now_ns, packet::TRACK_DESCRIPTOR, &fields::slices(&child))?;
        Ok(track)
    }

    fn packet(&mut self, at_ns: u64, field: u64, message: &Message) -> io::Result<()> {
        self.out.write_all(fields::packet(at_ns, self.tracks.sequence, field, message).bytes())
    }
}

/// A note without its end: "… 12 samples not recorded" grows with every interval.
fn gist(note: &str) -> String {
    note.split(';').next().unwrap_or_default().to_owned()
}

/// A track. Descriptions of known ones were written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Group(Group),
    Line(Group, Line),
    Slices(Slices),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slices {
    Gaps,
    Notes,
    Finding(FindingKey),
}

/// Numbers of tracks, and of the sequence of packets. They follow from the recording, so that traces of
/// several can be concatenated, and joined with those of other programs. They are small, because each value
/// has both.
#[derive(Default)]
struct Tracks {
    first: u64,
    sequence: u64,
    all: BTreeMap<Track, u64>,
}

/// Bits of the number of a track: four bytes in a packet.
const TRACK_BITS: u32 = 28;

/// Bits of the number of the sequence: two bytes in a packet.
const SEQUENCE_BITS: u32 = 14;

impl Tracks {
    /// Chooses the numbers by the host, its boot and the first sample.
    fn number(&mut self, host: &HostFacts, wall_ns: i64) {
        let words = [host.hostname.as_bytes(), host.boot_id.as_bytes(), &wall_ns.to_le_bytes()].concat();
        let hash = u64::from(crc32fast::hash(&words));
        // The upper half of the numbers, half of which is for later ones.
        let (tracks, sequences) = (1 << (TRACK_BITS - 1), 1 << (SEQUENCE_BITS - 1));
        self.first = tracks + hash % (tracks / 2);
        self.sequence = sequences + hash % sequences;
    }

    fn add(&mut self, track: Track) -> u64 {
        let number = self.first + self.all.len() as u64;
        self.all.insert(track, number);
        number
    }
}

/// The mapping from times of samples to those of the trace: CLOCK_BOOTTIME of the first boot, continued by
/// the wall clock in later boots. It never goes back.
struct Time {
    boot_id: String,
    /// The boot of the last sample.
    last_boot_id: String,
    /// Both clocks at the first sample.
    boot_ns: u64,
    wall_ns: i64,
    last_ns: u64,
}

impl Time {
    fn new(host: &HostFacts, sample: &Sample) -> Time {
        // A recording may say anything.
        let boot_ns = sample.boot_ns.min(i64::MAX as u64);
        let boot_id = host.boot_id.clone();
        Time { last_boot_id: boot_id.clone(), boot_id, boot_ns, wall_ns: sample.wall_ns, last_ns: boot_ns }
    }

    fn of(&mut self, host: &HostFacts, boot_ns: u64, wall_ns: i64) -> u64 {
        let at_ns = if host.boot_id == self.boot_id {
            boot_ns
        } else {
            self.boot_ns.saturating_add_signed(wall_ns.saturating_sub(self.wall_ns))
        };
        if self.last_boot_id != host.boot_id {
            self.last_boot_id.clone_from(&host.boot_id);
        }
        self.last_ns = self.last_ns.max(at_ns.min(i64::MAX as u64));
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::demo;

    fn sample() -> Sample {
        Sample { boot_ns: 3_600_000_000_000, wall_ns: 1_767_261_600_000_000_000, ..Sample::default() }
    }

    #[test]
    fn time_goes_on_by_the_wall_clock_in_another_boot_and_never_back() {
        let sample = sample();
        let mut host = demo::facts();
        let mut time = Time::new(&host, &sample);
        assert_eq!(time.of(&host, sample.boot_ns + 5, sample.wall_ns + 7), sample.boot_ns + 5);
        host.boot_id = "another".into();
        assert_eq!(time.of(&host, 3, sample.wall_ns + 90), sample.boot_ns + 90);
        assert_eq!(time.of(&host, 3, sample.wall_ns - 90), sample.boot_ns + 90, "the clock was set back");
        assert_eq!(time.of(&demo::facts(), u64::MAX, 0), i64::MAX as u64, "a recording may say anything");
    }

    #[test]
    fn numbers_of_tracks_and_sequences_are_short() {
        let (sample, host) = (sample(), demo::facts());
        let mut seen = std::collections::HashSet::new();
        for at in 0..1000 {
            let mut tracks = Tracks::default();
            tracks.number(&host, sample.wall_ns + at);
            assert!(tracks.first >= 1 << 27 && tracks.first + (1 << 26) <= 1 << 28, "{}", tracks.first);
            assert!(tracks.sequence >= 1 << 13 && tracks.sequence < 1 << 14, "{}", tracks.sequence);
            seen.insert(tracks.first);
        }
        assert!(seen.len() > 990, "two traces share numbers: {}", seen.len());
    }
}
