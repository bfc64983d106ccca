//! The lines at the top: the machine, its nodes, losses, and the cost of the tool.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use super::pen::{bar, curve, level};
use crate::finding::Severity;
use crate::metric::counters::{ipc, running_pct};
use crate::metric::over::Quotient;
use crate::metric::{pressure, task};
use crate::model::sample::Reading;
use crate::model::units::NodeId;
use crate::snapshot::{Node, RowKind, SetKind, Snapshot, Swapped};
use crate::text::quantity::{bytes, count, duration, length, percent};
use crate::text::{clean_str, plural};
use crate::tui::state::{Replay, State, seconds};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::layout::{LABEL, NodeStyle, Parts, node_style};
use crate::tui::widgets::pen::Pen;

/// Bars longer than this add no information.
const BAR_MAX: u16 = 40;

/// Busy share of the CPUs, and share of the time in which some task waited for one, from which on CPUs are short.
const SHORT_BUSY_PCT: f64 = 90.0;
const SHORT_WAITED_PCT: f64 = 20.0;

/// Facts about the rows of tasks.
pub struct Rows {
    /// Filters, and the order unless a column shows it.
    pub facts: Vec<String>,
    /// Rows that are shown.
    pub shown: usize,
}

/// Everything above the body.
pub fn render(snapshot: &Snapshot, state: &State, rows: &Rows, parts: &Parts, buf: &mut Buffer) {
    let ellipsis = state.theme.glyphs.ellipsis;
    title(snapshot, state, &rows.facts, &mut Pen::new(buf, parts.title, 0, ellipsis));
    if parts.nodes.height > 0 {
        let screen = (parts.title.width, parts.footer.bottom());
        match node_style(snapshot.host.topology.nodes.len(), screen.0, screen.1) {
            NodeStyle::Lines => {
                for (row, node) in (0..parts.nodes.height).zip(&snapshot.nodes) {
                    node_line(snapshot, node, state, &mut Pen::new(buf, parts.nodes, row, ellipsis));
                }
            }
            NodeStyle::Cells(width) => {
                for row in 0..parts.nodes.height {
                    let pen = &mut Pen::new(buf, parts.nodes, row, ellipsis);
                    node_cells(snapshot, row, width, &state.theme, pen);
                }
            }
            NodeStyle::Strip => {
                for row in 0..parts.nodes.height {
                    node_strip(snapshot, row, &state.theme, &mut Pen::new(buf, parts.nodes, row, ellipsis));
                }
            }
        }
    }
    status(snapshot, state, rows.shown, &mut Pen::new(buf, parts.status, 0, ellipsis));
    if let Some(text) = state.notice() {
        let more = if state.note.is_none() && state.warnings.len() > 1 {
            format!(" (+{} more)", state.warnings.len() - 1)
        } else {
            String::new()
        };
        let mut pen = Pen::new(buf, parts.notice, 0, ellipsis);
        let room = pen.room().saturating_sub(more.len() as u16 + 2);
        pen.write("! ", state.theme.style(Role::Alert)).write_within(
            text,
            room,
            state.theme.style(Role::Warn),
        );
        pen.write(&more, state.theme.style(Role::Warn));
    }
}

fn title(snapshot: &Snapshot, state: &State, about_rows: &[String], pen: &mut Pen<'_>) {
    let theme = &state.theme;
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    pen.write("numatop-ng ", theme.style(Role::Title));
    let time = Timestamp::from_nanosecond(i128::from(snapshot.wall_ns))
        .map_or("?".into(), |time| time.to_zoned(state.zone.clone()).strftime("%H:%M:%S").to_string());
    pen.write(&time, plain);
    if state.demo {
        pen.gap(1).write("DEMO", theme.style(Role::Alert));
    }
    if let Some(replay) = &state.replay {
        let motion = match replay {
            Replay { playing: true, speed, .. } => format!("x{speed}"),
            Replay { following: true, .. } => "follows".into(),
            _ => "paused".into(),
        };
        pen.gap(1).write("REPLAY ", theme.style(Role::Alert)).write(&motion, theme.style(Role::Alert)).gap(1);
        let date = Timestamp::from_nanosecond(i128::from(snapshot.wall_ns))
            .map_or("?".into(), |time| time.to_zoned(state.zone.clone()).strftime("%Y-%m-%d").to_string());
        pen.write(&date, plain);
    }
    match &state.recording {
        Some(recording) if recording.waiting > 0 => {
            pen.gap(1).write("REC PAUSED", theme.style(Role::Alert));
        }
        Some(recording) => {
            let size = format!("REC {}", bytes(recording.bytes as f64));
            pen.gap(1).write(&size, theme.style(Role::Title));
        }
        None => {}
    }
    if let Some(behind) = state.behind_ns() {
        let text = format!("PAUSED {} ago", length(behind));
        pen.gap(1).write(&text, theme.style(Role::Alert));
    }
    let host = &snapshot.host;
    let nodes = host.topology.nodes.len();
    let interval = match (&state.replay, snapshot.interval_ns) {
        (Some(_), Some(ns)) => format!("interval {:.1} s", ns as f64 / 1e9),
        (Some(_), None) => "the first sample".into(),
        (None, _) => format!("every {}", seconds(state.interval)),
    };
    let mut facts = vec![
        interval,
        clean_str(&host.hostname),
        format!("{} CPUs", snapshot.online_cpus),
        match nodes {
            1 => "1 node: remote columns are off".into(),
            nodes => format!("{nodes} nodes"),
        },
    ];
    if !host.scope.is_empty() {
        facts.insert(1, format!("only {}", clean_str(&host.scope)));
    }
    facts.splice(1..1, about_rows.iter().cloned());
    if let Some(file) = state.recording.as_ref().and_then(|recording| recording.file.as_ref()) {
        facts.push(format!("into {file}"));
    }
    for fact in &facts {
        pen.write(&format!(" {} ", theme.glyphs.dot), dim).write(fact, plain);
    }
    // A part of a number would be another number: anything that does not fit is left out.
    for forms in &of_machine(snapshot) {
        let Some(fact) = forms.iter().find(|fact| fact.width() as u16 + 3 <= pen.room()) else { break };
        pen.write(&format!(" {} ", theme.glyphs.dot), dim).write(fact, plain);
    }
}

/// Load, swap, uptime, sockets and L3 domains of the machine, as far as they are known; of each the longest form first.
fn of_machine(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let machine = snapshot.machine.as_ref();
    let load = machine.and_then(|machine| machine.load_hundredths);
    let load = load.map(|load| {
        let words = load.map(|load| format!("{:.1}", f64::from(load) / 100.0));
        vec![format!("load {}", words.join(" ")), format!("load {}", words[0])]
    });
    let swap = machine.and_then(|machine| machine.swap_total_bytes.zip(machine.swap_free_bytes));
    let swap = swap.map(|(total, free)| match total {
        0 => "no swap".into(),
        total => format!("swap {} of {}", bytes(total.saturating_sub(free) as f64), bytes(total as f64)),
    });
    let up = (snapshot.boot_ns > 0).then(|| format!("up {}", length(snapshot.boot_ns)));
    let scheduler = snapshot.scheduler().map(|(name, _)| format!("scheduler {name}"));
    let one_form = |fact: Option<String>| fact.map(|fact| vec![fact]);
    [one_form(scheduler), load, one_form(swap), one_form(up), one_form(sets(snapshot))]
        .into_iter()
        .flatten()
        .collect()
}

/// Sockets and L3 domains where they differ from the nodes: `2 sockets, 16 L3`.
fn sets(snapshot: &Snapshot) -> Option<String> {
    let some = |kind| Some(snapshot.sets(kind).count()).filter(|count| *count > 0);
    let sockets = some(SetKind::Socket).map(|count| plural(count, "socket"));
    let llcs = some(SetKind::Llc).map(|count| format!("{count} L3"));
    let sets: Vec<String> = sockets.into_iter().chain(llcs).collect();
    (!sets.is_empty()).then(|| sets.join(", "))
}

/// `node 0  CPU ####....  42.0%  MEM ####==..  free 33M of 128G`
fn node_line(snapshot: &Snapshot, node: &Node, state: &State, pen: &mut Pen<'_>) {
    let theme = &state.theme;
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let fixed = 9 + 4 + 7 + 2 + 4 + 19;
    let width = (pen.room().saturating_sub(fixed) / 2).min(BAR_MAX);
    pen.write(&format!("node {:<4}", node.raw.id), plain).write("CPU ", dim);
    let cpu = cpu_share(node, snapshot);
    let share = cpu.as_ref().ok().copied().unwrap_or(0.0);
    bar(pen, width, &[(share, busy_role(share))], theme);
    let text = cpu.map_or("-".into(), |share| format!("{}%", percent(share * 100.0)));
    pen.write_right(&text, 7, plain).write("  MEM ", dim);
    bar(pen, width, &memory(node), theme);
    let free = format!(
        "  free {} of {}",
        bytes(node.raw.mem_free_bytes as f64),
        bytes(node.raw.mem_total_bytes as f64)
    );
    pen.write_within(&format!("{free:<20}"), 20, plain);
    node_history(node, snapshot, state, pen);
}

/// ` remote 28.1%  CPU ▁▂▅█ remote ▁▁▂▁`, where the screen is wide enough: the last intervals, newest at the right.
fn node_history(node: &Node, snapshot: &Snapshot, state: &State, pen: &mut Pen<'_>) {
    const LABELS: u16 = 8 + 5 + 1 + 8;
    let theme = &state.theme;
    let Some(width) =
        pen.room().checked_sub(LABELS).map(|room| usize::from(room / 2)).filter(|width| *width >= 12)
    else {
        return;
    };
    let of = |share| state.curve.of_node(NodeId(node.raw.id), width, snapshot.wall_ns, share);
    let (cpu, remote) = (of(|shares| shares.cpu), of(|shares| shares.remote));
    let dim = theme.style(Role::Dim);
    pen.write("  CPU ", dim);
    curve(pen, &cpu, Role::Local, theme);
    pen.write(" remote ", dim);
    curve(pen, &remote, Role::Remote, theme);
    let now = remote.last().copied().flatten();
    let now = now.map_or("-".into(), |share| format!("{}%", percent(share * 100.0)));
    pen.write_right(&now, 7, theme.style(Role::Plain));
}

/// Row 0: ids; row 1: CPU; row 2: memory that programs and the kernel use, the darker part of the bar.
fn node_cells(snapshot: &Snapshot, row: u16, width: u16, theme: &Theme, pen: &mut Pen<'_>) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let label = match row {
        0 => "node",
        1 => "CPU%",
        _ if width >= 6 => "used",
        _ => "used%",
    };
    pen.write_within(&format!("{label:LABEL$}", LABEL = usize::from(LABEL)), LABEL, dim);
    for node in &snapshot.nodes {
        // Wide cells have room for a picture beside the number.
        let picture = if width >= 12 { width - 6 } else { 0 };
        pen.gap(1);
        match row {
            0 => {
                pen.gap(picture);
                pen.write_right(&node.raw.id.to_string(), width - 1 - picture, dim);
            }
            1 => {
                let cpu = cpu_share(node, snapshot).ok();
                let share = cpu.unwrap_or(0.0);
                bar(pen, picture, &[(share, busy_role(share))], theme);
                let text = cpu.map_or("-".into(), |share| {
                    if width >= 6 { percent(share * 100.0) } else { format!("{:.0}", share * 100.0) }
                });
                let role = if share >= 0.9 { Role::Warn } else { Role::Plain };
                pen.write_right(&text, width - 1 - picture, theme.style(role));
            }
            _ => {
                bar(pen, picture, &memory(node), theme);
                let used = used_bytes(node) as f64;
                let text = match node.raw.mem_total_bytes {
                    0 => "-".into(),
                    _ if width >= 6 => bytes(used),
                    total => format!("{:.0}", used * 100.0 / total as f64),
                };
                pen.write_right(&text, width - 1 - picture, plain);
            }
        }
    }
}

/// One character per node. Row 0: CPU; row 1: memory in use, page cache included.
fn node_strip(snapshot: &Snapshot, row: u16, theme: &Theme, pen: &mut Pen<'_>) {
    let label = if row == 0 { "CPU" } else { "MEM" };
    pen.write_within(&format!("{label:LABEL$}", LABEL = usize::from(LABEL)), LABEL, theme.style(Role::Dim));
    let hidden = snapshot.nodes.len().saturating_sub(usize::from(pen.room()));
    let more = if hidden > 0 { format!(" +{}", hidden + 5) } else { String::new() };
    let room = usize::from(pen.room()) - more.len().min(usize::from(pen.room()));
    for node in snapshot.nodes.iter().take(room) {
        let share = if row == 0 {
            cpu_share(node, snapshot).ok()
        } else {
            Some(memory(node).iter().map(|(share, _)| share).sum())
        };
        match share {
            Some(share) => pen.repeat(level(share, theme), 1, theme.style(busy_role(share))),
            None => pen.repeat('-', 1, theme.style(Role::Dim)),
        };
    }
    pen.write(&more, theme.style(Role::Warn));
}

/// Busy share of the node's CPUs, 0.0..=1.0.
fn cpu_share(node: &Node, snapshot: &Snapshot) -> Reading<f64> {
    let share = snapshot.share(node.on_cpus.busy_ns)? / 100.0;
    if node.cpus == 0 {
        return Err(crate::model::sample::Missing::NotCollected("the node has no CPUs".into()));
    }
    Ok((share / f64::from(node.cpus)).min(1.0))
}

fn busy_role(share: f64) -> Role {
    if share >= 0.9 { Role::Warn } else { Role::Local }
}

/// Shares of the node's memory: in use by programs and the kernel, then page cache.
fn memory(node: &Node) -> [(f64, Role); 2] {
    let total = node.raw.mem_total_bytes.max(1) as f64;
    [(used_bytes(node) as f64 / total, Role::Local), (cache_bytes(node) as f64 / total, Role::Cache)]
}

/// Memory that programs and the kernel use: neither free nor page cache.
fn used_bytes(node: &Node) -> u64 {
    let raw = &node.raw;
    raw.mem_total_bytes.saturating_sub(raw.mem_free_bytes.saturating_add(cache_bytes(node)))
}

/// Page cache without shared memory and tmpfs, which the kernel cannot drop.
fn cache_bytes(node: &Node) -> u64 {
    let shmem_bytes = node.raw.file_pages.map_or(0, |pages| pages.shmem_bytes);
    node.raw.mem_file_bytes.saturating_sub(shmem_bytes)
}

/// Losses first: the rest must not be taken for complete. Then everything that slows all else.
fn status(snapshot: &Snapshot, state: &State, shown: usize, pen: &mut Pen<'_>) {
    let theme = &state.theme;
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let mut lost: Vec<String> = snapshot
        .lost
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, lost)| format!("{} {}", clean_str(cause), count(*lost as f64)))
        .collect();
    if snapshot.exit_lost_ns > 0 {
        lost.push(format!("{} of ended tasks", duration(snapshot.exit_lost_ns)));
    }
    if !lost.is_empty() {
        pen.write(&format!("LOST {}", lost.join(", ")), theme.style(Role::Alert)).gap(2);
    }
    if let Some(swapped) = snapshot.counts.swapped.filter(|swapped| *swapped != Swapped::default()) {
        let rate = |pages| snapshot.rate(pages).map_or("-".into(), count);
        let text = format!("in {} out {}", rate(swapped.pages_in), rate(swapped.pages_out));
        pen.write("SWAP/s ", dim).write(&text, theme.style(Role::Warn)).gap(2);
    }
    let busy =
        snapshot.share(snapshot.on_cpus.busy_ns).unwrap_or(0.0) / f64::from(snapshot.online_cpus.max(1));
    let waited = pressure::HOST_CPU_SOME.read(snapshot).ok().and_then(|value| value.number());
    if let Some(waited) = waited.filter(|waited| busy >= SHORT_BUSY_PCT && *waited >= SHORT_WAITED_PCT) {
        let text = format!("{}% busy, tasks wait {}% of the time", percent(busy), percent(waited));
        pen.write("CPUS SHORT ", dim).write(&text, theme.style(Role::Warn)).gap(2);
    }
    let verdict = &state.conclusions.verdict;
    let (summary, suspected) = (&verdict.summary, verdict.suspected().count());
    if state.findings {
        pen.write("FINDINGS", dim);
        if summary.critical + summary.warning + suspected == 0 {
            pen.gap(1).write("0", plain);
        }
        for (number, severity) in
            [(summary.critical, Severity::Critical), (summary.warning, Severity::Warning)]
        {
            if number > 0 {
                pen.gap(1).write(&format!("{number}{}", severity.mark()), theme.style(Role::of(severity)));
            }
        }
        if suspected > 0 {
            pen.gap(1).write(&format!("{suspected}?"), theme.style(Role::Warn));
        }
        if summary.info > 0 {
            pen.gap(1).write(&plural(summary.info, "note"), plain);
        }
        pen.gap(2);
    }
    let all = snapshot.tasks.len();
    let what = if snapshot.grain == RowKind::Threads { "threads" } else { "tasks" };
    let rows = if shown == all { count_of(all) } else { format!("{} of {}", count_of(shown), count_of(all)) };
    pen.write(&format!("{what} "), dim).write(&rows, plain);
    let rate = snapshot.rate(snapshot.on_cpus.switches).map_or("-".into(), count);
    pen.gap(2).write("CSW/s ", dim).write(&rate, plain);
    pen.gap(2);
    if lost.is_empty() {
        pen.write("lost ", dim).write("0", plain).gap(2);
    }
    let host_ipc = match snapshot.host_missing(task::IPC.id) {
        Some(why) => Err(why.clone()),
        None => ipc(&snapshot.on_cpus.slots, snapshot.on_cpus.busy_ns, snapshot).map(Quotient::value),
    };
    match host_ipc {
        Ok(ipc) => {
            pen.write("IPC ", dim).write(&format!("{ipc:.2}"), plain);
            match running_pct(&snapshot.on_cpus.slots, snapshot) {
                Ok(share) if share < 99.95 => {
                    pen.write(&format!(" counted {}%", percent(share)), theme.style(Role::Warn))
                }
                _ => pen,
            }
        }
        // Help has the reason.
        Err(_) => pen.write("IPC -", dim),
    };
    let own = snapshot.share(snapshot.own.cpu_ns).map_or("-".into(), |pct| format!("{}%", percent(pct)));
    let memory = bytes(snapshot.own.raw.rss_bytes as f64);
    pen.gap(2).write("self ", dim).write(&own, plain).write(" CPU, ", dim).write(&memory, plain);
}

fn count_of(rows: usize) -> String {
    if rows < 100_000 { rows.to_string() } else { count(rows as f64) }
}
