//! The mappings of one process: size, placement by node, policy, use, and how long loads took that memory of the own node, or of
//! another one, answered.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::maps::Maps;
use crate::access::follow::by_count::{Evidence, by_count};
use crate::collect::mappings::{Mapping, Mappings, walk_ns};
use crate::model::access::answers::MemoryAnswers;
use crate::model::access::{ByNodes, ENOUGH, MappingUse, MemoryUse};
use crate::model::share::{wilson, wilson_farther};
use crate::snapshot::{SampledUse, Task};
use crate::text::plural;
use crate::text::quantity::{bytes, count, percent};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// Cells of numbers, policies at least, shares by node, a share, and its error or a share without decimals.
const NUMBER: u16 = 7;

const POLICY: u16 = 12;

/// The policy of a mapping without its own policy (mpol_to_str() of mm/mempolicy.c).
const DEFAULT: &str = "default";

pub(super) const NODES: u16 = 16;

pub(super) const SHARE: u16 = 5;

pub(super) const ERROR: u16 = 4;

/// Share of remote samples of a mapping from which on it is emphasised, percent: as that of a process.
const REMOTE_MIN: f64 = 20.0;

/// Part of the addresses in known mappings, percent: shown if it is less.
const PLACED_MIN: f64 = 90.0;

/// From this share of samples with an address on, the share is not shown, percent.
const ADDRESSES_MIN: f64 = 99.5;

/// Cells from which on size and policy stand beside the use, and from which on shares of accesses do, too.
const WIDE: u16 = 120;

const WIDER: u16 = 136;

/// Lines above the mappings: the source of the list, and titles.
pub(super) const HEAD: u16 = 2;

/// Mappings, and the use of each where it is sampled.
struct List<'a> {
    rows: Vec<(Option<&'a Mapping>, Option<&'a MappingUse>)>,
    /// Samples in all mappings; `None` if use is not sampled, or too few samples exist.
    placed: Option<f64>,
    /// Followed samples in all mappings, if their shares are by count and fit.
    counted: Option<f64>,
    /// Accesses that a PMU sampled, if they fit.
    answered: Option<f64>,
    /// Latencies beside it, if a PMU sampled loads and they fit.
    latencies: Option<LatencyColumns>,
    /// Sizes are shown.
    whole: bool,
    /// Cells of policies, where they are shown.
    policy: Option<u16>,
    /// Memory by node is shown.
    nodes: bool,
}

/// Samples of a process in its mappings, where their shares say something: of the clock by time, followed by count, and of
/// a PMU. One may say something where the others do not.
pub(super) struct Wholes {
    pub(super) placed: Option<f64>,
    pub(super) counted: Option<f64>,
    answered: Option<f64>,
}

impl Wholes {
    pub(super) fn of(used: Option<&MemoryUse>) -> Wholes {
        let is_counted =
            |used: &&MemoryUse| used.complete().is_ok() && by_count(&Evidence::of_mappings(used)).is_ok();
        Wholes {
            placed: used.filter(|used| used.sound().is_ok()).map(MemoryUse::placed),
            counted: used.filter(is_counted).map(MemoryUse::placed_by_count),
            answered: used.map(|used| used.answers.accesses() as f64).filter(|all| *all >= ENOUGH),
        }
    }

    /// The part of a mapping in the first of these that is meaningful.
    fn part(&self, used: Option<&MappingUse>) -> f64 {
        let Some(used) = used else { return 0.0 };
        match (self.placed, self.counted) {
            (Some(_), _) => used.samples(),
            (None, Some(_)) => used.followed(),
            (None, None) => used.answers.accesses() as f64,
        }
    }
}

impl<'a> List<'a> {
    /// The mappings that were found, in their order; those in use first where it is sampled.
    fn of(found: &'a Mappings, used: Option<&'a MemoryUse>, (width, ghz): (u16, Option<f64>)) -> List<'a> {
        let wholes = Wholes::of(used);
        let Wholes { placed, counted, answered } = wholes;
        let says_something = placed.or(counted).or(answered).is_some();
        let uses = used.filter(|_| says_something).map_or(&[][..], |used| &used.mappings);
        let use_of = |mapping: &Mapping| uses.iter().find(|one| one.start == mapping.start);
        let mut rows: Vec<_> = found.rows.iter().map(|mapping| (Some(mapping), use_of(mapping))).collect();
        // Mappings that are newer than the list, or too small for it.
        let listed = |one: &MappingUse| found.rows.iter().any(|mapping| mapping.start == one.start);
        rows.extend(uses.iter().filter(|one| !listed(one)).map(|one| (None, Some(one))));
        rows.sort_by(|a, b| wholes.part(b.1).total_cmp(&wholes.part(a.1)));
        // Beside shares of time other columns have little room; without those they have all the room.
        let has_room = |from: u16| width >= from || placed.is_none();
        let latencies = LatencyColumns::of(uses, ghz).filter(|_| has_room(WIDE));
        let [counted, answered] = [counted, answered].map(|all| all.filter(|_| has_room(WIDER)));
        let whole = !says_something || width >= WIDE;
        // A narrow screen has policies in place of memory by node, where there are any: use is by node, too.
        let policies = || found.rows.iter().filter_map(|mapping| mapping.policy.as_deref());
        let longest = policies().map(|policy| policy.chars().count() as u16).max().unwrap_or(0);
        let shown = whole || policies().any(|policy| policy != DEFAULT);
        let policy = shown.then_some(longest.clamp(POLICY, POLICY.max(width / 3)));
        List { rows, placed, counted, answered, latencies, whole, policy, nodes: whole || !shown }
    }

    /// Titles, with the cells that each takes; a title at the right of its column is that of a number.
    fn titles(&self) -> Vec<(&'static str, u16, bool)> {
        let mut titles = vec![("SIZE", NUMBER, true), ("RES", NUMBER, true)];
        if self.placed.is_some() {
            titles.extend([("USE%", SHARE, true), ("ERR", ERROR, true)]);
            titles.extend([("REM%", ERROR, true), ("USED ON", NODES, false)]);
        }
        titles.extend(self.counted.map(|_| ("ACC%", SHARE, true)));
        titles.extend(self.answered.map(|_| ("PMU%", SHARE, true)));
        for title in self.latencies.into_iter().flat_map(LatencyColumns::titles) {
            titles.push((title, WIDTH, true));
        }
        titles.extend(self.policy.map(|width| ("POLICY", width, false)));
        titles.extend(self.nodes.then_some(("MEM BY NODE", NODES, false)));
        titles.retain(|(title, ..)| self.whole || *title != "SIZE");
        titles
    }
}

/// Mappings in the list.
pub(super) fn rows(maps: &Maps, task: Option<&Task>) -> usize {
    let used = task.and_then(|task| task.memory_use()).map(|used| &*used.found);
    match &maps.found {
        Some(Ok(found)) => List::of(found, used, (0, None)).rows.len(),
        _ => 0,
    }
}

/// Facts about the process and the interval.
pub(super) struct About {
    /// Why the mappings have no use, though it was asked for.
    pub(super) use_missing: Option<String>,
    /// Its clock frequency in GHz, where cycles are counted.
    pub(super) ghz: Option<f64>,
}

/// The source of the list, titles, and mappings in view.
pub(super) fn render(maps: &Maps, task: &Task, about: About, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let ellipsis = theme.glyphs.ellipsis;
    let found = match &maps.found {
        Some(Ok(found)) => found,
        other => {
            let (text, role) = match other {
                Some(Err(why)) => (why.as_str(), Role::Warn),
                _ => ("reading the mappings", Role::Dim),
            };
            Pen::new(buf, area, 0, ellipsis).gap(1).write(text, theme.style(role));
            return;
        }
    };
    let used = task.memory_use().map(|used| &*used.found);
    let list = List::of(found, used, (area.width, about.ghz));
    let mut summary = match maps.recorded {
        true => format!("{} recorded", plural(list.rows.len(), "mapping")),
        false => summary(found, task.rss_bytes),
    };
    let use_words = task.memory_use().map(use_words);
    if let Some(use_words) = use_words.or(about.use_missing.map(|why| format!("use unavailable: {why}"))) {
        summary = format!("{use_words}; {summary}");
    }
    Pen::new(buf, area, 0, ellipsis).gap(1).write(&summary, theme.style(Role::Dim));
    let mut pen = Pen::new(buf, area, 1, ellipsis);
    let header = theme.style(Role::Header);
    pen.repeat(' ', area.width, header).column(area.x, 1);
    for (title, width, right) in list.titles() {
        match right {
            true => pen.write_right(title, width, header).gap(1),
            false => pen.write(&format!("{title:width$}", width = usize::from(width)), header).gap(1),
        };
    }
    pen.write("MAPPING", header);
    for (row, (mapping, used)) in (HEAD..area.height).zip(list.rows.iter().skip(maps.offset)) {
        line(*mapping, *used, &list, theme, &mut Pen::new(buf, area, row, ellipsis));
    }
}

/// The samples of its use, or why they say nothing. In place of their shares those of accesses may be known.
fn use_words(used: &SampledUse) -> String {
    let found = &used.found;
    match found.sound() {
        Err(why) => {
            let wholes = Wholes::of(Some(found.as_ref()));
            let counted = wholes.counted.map(|all| format!("{} samples followed, ACC% by count", count(all)));
            let source = used.event.map_or("a PMU", |event| event.source.id());
            let answered = wholes.answered.map(|all| format!("{} accesses of {source}", count(all)));
            match [counted, answered].into_iter().flatten().collect::<Vec<_>>() {
                none if none.is_empty() => format!("use: {why}"),
                some => format!("{}; time: {why}", some.join(", ")),
            }
        }
        Ok(()) => {
            let memory = (found.at_memory() + found.nowhere + found.unknown) as f64;
            let known = wilson(found.with_address as f64, memory).map_or(0.0, |(pct, _)| pct);
            // The reader of pages has little time for each of many processes.
            let in_mappings = 100.0 * found.placed() / found.with_address.max(1) as f64;
            let in_mappings = match in_mappings < PLACED_MIN {
                true => format!(", {in_mappings:.0}% of the addresses in a known mapping"),
                false => String::new(),
            };
            let addresses = match known < ADDRESSES_MIN || !in_mappings.is_empty() {
                true => format!(", {known:.0}% with address{in_mappings}"),
                false => String::new(),
            };
            format!(
                "USE% = share of memory-access time ({} samples, {:.0} s{addresses})",
                count(found.samples as f64),
                used.window_s
            )
        }
    }
}

fn summary(found: &Mappings, rss_bytes: u64) -> String {
    let all = plural(found.count, "mapping");
    let shown = if found.rows.len() < found.count { format!("{} of {all}", found.rows.len()) } else { all };
    match found.error_points {
        None => format!("{shown}, every page counted"),
        Some(points) => {
            let ms = walk_ns(rss_bytes).div_ceil(1_000_000);
            // A process that has ended has no pages left. A narrow screen may cut the cost: M repeats it.
            let more = if ms > 0 {
                format!("; M counts every page and reads POLICY, {ms} ms")
            } else {
                String::new()
            };
            format!("{shown}, +-{points:.1} points{more}")
        }
    }
}

/// One mapping. A mapping that is not in the list has no size, and one that was not sampled no use.
fn line(
    mapping: Option<&Mapping>,
    used: Option<&MappingUse>,
    list: &List<'_>,
    theme: &Theme,
    pen: &mut Pen<'_>,
) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let resident = mapping.map(Mapping::resident);
    let size = mapping.map(|mapping| mapping.bytes).or(used.map(|used| used.bytes)).unwrap_or(0);
    pen.gap(1);
    if list.whole {
        pen.write_right(&bytes(size as f64), NUMBER, plain).gap(1);
    }
    let text = resident.map_or("-".into(), bytes);
    pen.write_right(&text, NUMBER, if resident > Some(0.0) { plain } else { dim }).gap(1);
    if let Some(placed) = list.placed {
        let share = used.and_then(|used| wilson_farther(used.samples(), placed));
        let (pct, error) =
            share.map_or(("-".into(), String::new()), |(pct, error)| (percent(pct), percent(error)));
        pen.write_right(&pct, SHARE, if share.is_some() { plain } else { dim }).gap(1);
        pen.write_right(&error, ERROR, dim).gap(1);
        remote(used.map(MappingUse::remote).unwrap_or_default(), theme, pen);
        by_node(used.map(|used| on_nodes(&used.by_node)).unwrap_or_default(), NODES, theme, pen);
    }
    let parts = used.map(|used| (used.followed(), used.answers.accesses() as f64)).unwrap_or_default();
    for (part, whole) in [(parts.0, list.counted), (parts.1, list.answered)] {
        let Some(whole) = whole else { continue };
        let share = (part > 0.0 && whole > 0.0).then(|| percent(100.0 * part / whole));
        let role = if share.is_some() { Role::Plain } else { Role::Dim };
        pen.write_right(share.as_deref().unwrap_or("-"), SHARE, theme.style(role)).gap(1);
    }
    if let Some(columns) = list.latencies {
        let answers = used.map(|used| [&used.answers.local, &used.answers.remote]);
        for at in 0..2 {
            let words = answers.and_then(|answers| columns.words(answers[at]));
            let role = if words.is_some() { Role::Plain } else { Role::Dim };
            pen.write_right(words.as_deref().unwrap_or("-"), WIDTH, theme.style(role)).gap(1);
        }
    }
    if let Some(width) = list.policy {
        let policy = mapping.and_then(|mapping| mapping.policy.as_deref()).unwrap_or("-");
        pen.write_within(&format!("{policy:width$}", width = usize::from(width)), width, dim).gap(1);
    }
    if list.nodes {
        let nodes = mapping.map(|mapping| mapping.by_node.iter().copied().enumerate().collect());
        by_node(nodes.unwrap_or_default(), NODES, theme, pen);
    }
    let (start, name) = match (mapping, used) {
        (Some(mapping), _) => (mapping.start, mapping.name.as_str()),
        (None, Some(used)) => (used.start, used.name.as_str()),
        (None, None) => return,
    };
    let name = if name.is_empty() { "anonymous" } else { name };
    pen.write(&format!("{start:x} "), dim).write(name, plain);
}

/// The share of samples from another node in all samples with a known node, and a gap.
pub(super) fn remote((remote, known): (f64, f64), theme: &Theme, pen: &mut Pen<'_>) {
    let (text, role) = match (known > 0.0).then(|| remote * 100.0 / known) {
        None => ("-".into(), Role::Dim),
        Some(pct) => (format!("{pct:.0}"), if pct >= REMOTE_MIN { Role::Remote } else { Role::Plain }),
    };
    pen.write_right(&text, ERROR, theme.style(role)).gap(1);
}

/// Samples by node of the page, those of unknown nodes left out.
pub(super) fn on_nodes(by_node: &ByNodes) -> Vec<(usize, f64)> {
    let mut nodes: Vec<(usize, f64)> = Vec::new();
    for ((page, _), samples) in by_node {
        let Some(page) = page.map(|page| page.0 as usize) else { continue };
        match nodes.iter_mut().find(|(node, _)| *node == page) {
            Some((_, sum)) => *sum += samples,
            None => nodes.push((page, *samples)),
        }
    }
    nodes
}

/// Shares by node, the largest first, as many as `width` cells hold, and a gap.
pub(super) fn by_node(mut nodes: Vec<(usize, f64)>, width: u16, theme: &Theme, pen: &mut Pen<'_>) {
    nodes.retain(|(_, on)| *on > 0.0);
    nodes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = nodes.iter().map(|(_, on)| on).sum();
    let mut left = width;
    for (i, (node, on)) in nodes.into_iter().enumerate() {
        let word = format!("{node}:{:.0} ", on * 100.0 / all);
        let cells = word.len() as u16;
        if cells > left {
            break;
        }
        pen.write(&word, theme.style(if i == 0 { Role::Local } else { Role::Remote }));
        left -= cells;
    }
    pen.gap(left + 1);
}

/// Loads below which a mapping has no latency: the 95th percentile would be one of the two slowest.
const LOADS_MIN: u64 = 50;

/// Cells of a column.
pub(super) const WIDTH: u16 = 9;

/// The columns, where a PMU sampled loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatencyColumns {
    /// Cycles of a nanosecond; `None`: latencies are in cycles.
    ghz: Option<f64>,
}

impl LatencyColumns {
    /// The columns of these mappings; `None` where none of them has enough loads.
    pub(super) fn of(mappings: &[MappingUse], ghz: Option<f64>) -> Option<LatencyColumns> {
        let has_any = |answers: &MemoryAnswers| answers.latencies.loads() >= LOADS_MIN;
        let has = |mapping: &MappingUse| has_any(&mapping.answers.local) || has_any(&mapping.answers.remote);
        let ghz = ghz.filter(|ghz| *ghz > 0.0);
        mappings.iter().any(has).then_some(LatencyColumns { ghz })
    }

    /// Titles of the local and the remote one, with their unit.
    pub(super) fn titles(self) -> [&'static str; 2] {
        match self.ghz {
            Some(_) => ["LOCAL NS", "REMOTE NS"],
            None => ["LOCAL CY", "REMOTE CY"],
        }
    }

    /// The median and the 95th percentile; `None` where loads are too few.
    pub(super) fn words(self, answers: &MemoryAnswers) -> Option<String> {
        let latencies = &answers.latencies;
        if latencies.loads() < LOADS_MIN {
            return None;
        }
        let of = |pct| latencies.percentile(pct).map(|cycles| cycles / self.ghz.unwrap_or(1.0));
        Some(format!("{:.0}/{:.0}", of(50.0)?, of(95.0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::answers::AccessClass;
    use crate::model::access::answers::Answers;

    fn mapping(loads: u32) -> MappingUse {
        let mut answers = Answers::default();
        for load in 0..loads {
            let cycles = if load % 10 == 9 { 900 } else { 300 };
            answers.add(AccessClass::Dram { remote: true }, None, Some(cycles));
        }
        let (by_node, next_by_node) = Default::default();
        MappingUse { start: 0, bytes: 0, name: String::new(), by_node, next_by_node, answers }
    }

    #[test]
    fn latencies_are_in_ns_where_the_frequency_is_known() {
        let mapping = mapping(200);
        let words = |ghz| {
            let columns = LatencyColumns::of(std::slice::from_ref(&mapping), ghz).unwrap();
            (columns.titles()[1], columns.words(&mapping.answers.remote))
        };
        // Steps of 6 %: 300 is in 288 to 304, 900 in 896 to 928.
        assert_eq!(words(None), ("REMOTE CY", Some("297/912".into())));
        assert_eq!(words(Some(3.0)), ("REMOTE NS", Some("99/304".into())));
        assert_eq!(words(Some(0.0)).0, "REMOTE CY");
        let columns = LatencyColumns::of(std::slice::from_ref(&mapping), None).unwrap();
        assert_eq!(columns.words(&mapping.answers.local), None, "no load was local");
    }

    #[test]
    fn few_loads_have_no_columns() {
        assert_eq!(LatencyColumns::of(&[mapping(49)], Some(3.0)), None);
        assert!(LatencyColumns::of(&[mapping(49), mapping(50)], Some(3.0)).is_some());
    }
}
