//! From what was typed to what it means: checks every value, resolves names, fills in defaults.

mod hot;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use regex_lite::Regex;

use crate::cli::{BatchFormat, RecordLimits, ViewArgs};
use crate::collect::placement;
use crate::collect::scope::Scope;
use crate::container::select::{Want, Wants};
use crate::export::{ContainerSelection, Selection, all_columns, rfc3339};
use crate::filter::RowFilter;
use crate::host::cgroups::{self, Hierarchy};
use crate::host::topology::{Topology, format_cpulist};

use crate::host::{processes, users};
use crate::metric::Metric;
use crate::metric::container::{self, CONTAINER_METRICS};
use crate::metric::task::{TASK_METRICS, by_id};
use crate::pmu::budget::{Budget, general_by_cpuid};
use crate::pmu::catalog::Catalog;
use crate::pmu::open::try_together;
use crate::pmu::sets::{Choice, Chooser, SETS};
use crate::record::fold::Keep;
use crate::record::recorder::RecordOptions;
use crate::record::time;
use crate::snapshot::{Grain, Task};
use crate::source::live::LiveOptions;
use crate::units::Nid;

/// A value that cannot be used; names the flag, the value and what would do.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}")]
pub struct BadValue {
    pub flag: &'static str,
    pub why: String,
}

fn bad(flag: &'static str, why: impl Into<String>) -> BadValue {
    BadValue { flag, why: why.into() }
}

/// Columns of a text table when none are asked for.
const TEXT_COLUMNS: [&str; 11] = [
    "pid",
    "user",
    "state",
    "cpu_pct",
    "home_node",
    "ipc",
    "node_migrations_per_s",
    "runq_wait_pct",
    "switches_per_s",
    "rss_bytes",
    "comm",
];

/// The metrics of `--columns`, or `None` when it was not given.
///
/// # Errors
/// An unknown id, or one given twice.
pub fn columns(args: &ViewArgs) -> Result<Option<Vec<&'static Metric<Task>>>, BadValue> {
    let mut metrics: Vec<&'static Metric<Task>> = Vec::new();
    for id in &args.columns {
        let metric = metric("--columns", id.trim())?;
        if metrics.iter().any(|other| other.id == metric.id) {
            return Err(bad("--columns", format!("'{id}' is given twice")));
        }
        metrics.push(metric);
    }
    Ok((!metrics.is_empty()).then_some(metrics))
}

/// The metric of `--sort` and whether its order is reversed.
///
/// # Errors
/// An unknown id.
pub fn sort(args: &ViewArgs) -> Result<Option<(&'static Metric<Task>, bool)>, BadValue> {
    let Some(text) = &args.sort else { return Ok(None) };
    let (id, reversed) = text.strip_prefix('-').map_or((text.as_str(), false), |id| (id, true));
    Ok(Some((metric("--sort", id)?, reversed)))
}

fn metric(flag: &'static str, id: &str) -> Result<&'static Metric<Task>, BadValue> {
    by_id(id).ok_or_else(|| {
        let near: Vec<&str> =
            TASK_METRICS.iter().map(|metric| metric.id).filter(|known| alike(known, id)).collect();
        let hint =
            if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(" or ")) };
        bad(
            flag,
            format!(
                "there is no metric '{}'{hint} (numatop-ng list metrics shows all)",
                crate::text::clean_str(id)
            ),
        )
    })
}

/// A word of at least three letters in common.
fn alike(known: &str, typed: &str) -> bool {
    let typed = typed.to_lowercase();
    typed.split('_').any(|word| {
        word.len() >= 3
            && known
                .split('_')
                .any(|part| part.starts_with(word) || word.starts_with(part) && part.len() >= 3)
    })
}

/// Columns of a text table of containers when none are asked for.
const CONTAINER_COLUMNS: [&str; 9] = [
    "container",
    "kind",
    "processes",
    "cpu_pct",
    "home_node",
    "ipc",
    "mem_bytes",
    "mem_bytes_by_node",
    "cpus_allowed",
];

/// What batch output with rows of containers contains.
///
/// # Errors
/// An unknown metric.
pub fn container_selection(args: &ViewArgs, machine_readable: bool) -> Result<ContainerSelection, BadValue> {
    let find = |flag, id: &str| {
        container::by_id(id)
            .ok_or_else(|| bad(flag, format!("containers have no metric '{}'", crate::text::clean_str(id))))
    };
    let mut columns = Vec::new();
    for id in &args.columns {
        columns.push(find("--columns", id.trim())?);
    }
    if columns.is_empty() && machine_readable {
        columns.extend(CONTAINER_METRICS);
    } else if columns.is_empty() {
        columns.extend(CONTAINER_COLUMNS.into_iter().filter_map(container::by_id));
    }
    let sort = args.sort.as_deref().unwrap_or("cpu_pct");
    let (id, reversed) = sort.strip_prefix('-').map_or((sort, false), |id| (id, true));
    Ok(ContainerSelection {
        columns,
        sort: find("--sort", id)?,
        reversed,
        top: args.top.map(|top| top as usize),
    })
}

/// The part of the selection that user space applies.
///
/// # Errors
/// `--comm` is not a regular expression.
pub fn filter(args: &ViewArgs) -> Result<RowFilter, BadValue> {
    let comm = match &args.comm {
        Some(text) => Some(Regex::new(text).map_err(|error| bad("--comm", error.to_string()))?),
        None => None,
    };
    Ok(RowFilter { comm, node: args.node.map(Nid), top: args.top.map(|top| top as usize) })
}

/// What batch output contains. `machine_readable` output has all metrics unless columns are named.
///
/// # Errors
/// See [`columns`], [`sort`], [`filter`].
pub fn selection(args: &ViewArgs, machine_readable: bool) -> Result<Selection, BadValue> {
    let default = || {
        if machine_readable {
            return all_columns();
        }
        let tid = args.threads.then_some("tid");
        tid.into_iter().chain(TEXT_COLUMNS).filter_map(by_id).collect()
    };
    let mut columns = columns(args)?.unwrap_or_else(default);
    if machine_readable {
        // A row must say whose it is.
        for id in ["tid", "pid"] {
            if (id == "pid" || args.threads) && !columns.iter().any(|metric| metric.id == id) {
                columns.insert(0, by_id(id).expect("pid and tid are metrics"));
            }
        }
    }
    let (sort, reversed) = sort(args)?.unwrap_or((by_id("cpu_pct").expect("cpu_pct is a metric"), false));
    Ok(Selection { filter: filter(args)?, columns, sort, reversed })
}

/// What the live source is to watch. `names` are the users of this machine. `recorded`: all of it goes into a
/// recording, from the first interval on.
///
/// # Errors
/// An unknown task, node, user or event.
pub fn live(args: &ViewArgs, names: &BTreeMap<u32, String>, recorded: bool) -> Result<LiveOptions, BadValue> {
    let mut scope = Scope {
        pids: args.pids.iter().copied().collect(),
        tids: args.tids.iter().copied().collect(),
        ..Scope::default()
    };
    check_tasks(args, Path::new("/"))?;
    if let (Some(_), Ok(topology)) = (args.node, Topology::read(Path::new("/"))) {
        check_node(args, &topology)?;
    }
    for user in &args.users {
        let uid = users::resolve(user, names).ok_or_else(|| {
            bad("--user", format!("no user '{}' in /etc/passwd", crate::text::clean_str(user)))
        })?;
        scope.uids.insert(uid);
    }
    let events = events(args)?;
    let (wants, hierarchy) = wants(args, Path::new("/"))?;
    let sampling = hot::sampling(args, recorded)?;
    if args.overhead && args.format != Some(BatchFormat::Json) {
        return Err(bad("--overhead", "is for --format json; on the screen, o shows what numatop-ng costs"));
    }
    let placement_budget = match args.placement_budget {
        Some(ms) => placement::Budget::Fixed(Duration::from_millis(ms)),
        None => placement::Budget::Small,
    };
    let scope_text = scope_text(args, &wants);
    Ok(LiveOptions {
        scope,
        scope_text,
        wants,
        hierarchy,
        runtime_sockets: args.runtime_sockets.clone(),
        events,
        sets: Vec::new(),
        sampling,
        placement_budget,
        group_limits: true,
        ..LiveOptions::default()
    })
}

/// Refuses ids that no task below `root` has: they would show an empty screen for ever.
fn check_tasks(args: &ViewArgs, root: &Path) -> Result<(), BadValue> {
    // What cannot be found out decides nothing.
    for pid in &args.pids {
        match processes::process_of(root, *pid) {
            Ok(None) => return Err(bad("--pid", format!("there is no process {pid}"))),
            Ok(Some(process)) if process != *pid => {
                return Err(bad(
                    "--pid",
                    format!("{pid} is a thread of process {process}: --tid takes threads"),
                ));
            }
            Ok(_) | Err(_) => {}
        }
    }
    match args.tids.iter().find(|tid| matches!(processes::process_of(root, **tid), Ok(None))) {
        Some(tid) => Err(bad("--tid", format!("there is no thread {tid}"))),
        None => Ok(()),
    }
}

/// Refuses a `--node` that the machine does not have.
///
/// # Errors
/// Says which it has.
pub fn check_node(args: &ViewArgs, topology: &Topology) -> Result<(), BadValue> {
    let Some(node) = args.node else { return Ok(()) };
    let online: Vec<Nid> = topology.nodes.iter().map(|node| node.id).collect();
    if online.contains(&Nid(node)) || topology.offline_nodes.contains(&Nid(node)) {
        return Ok(());
    }
    let has = format_cpulist(online.iter().map(|id| id.0));
    Err(bad("--node", format!("the machine has no node {node}: its nodes are {has}")))
}

/// What each set of events counts on this machine. Asked before counters are opened: those in use cannot be tried.
///
/// # Errors
/// An event table of the user is not sound.
pub fn event_sets(args: &ViewArgs) -> Result<Vec<(&'static str, Choice)>, BadValue> {
    let root = Path::new("/");
    let catalog = catalog(root, args.pmu_dir.as_deref())?;
    let choose = |set: &'static str| choose(root, &catalog, set).map(|choice| (set, choice));
    let sets: anyhow::Result<_> = SETS.iter().map(|(set, ..)| choose(set)).collect();
    sets.map_err(|error| bad("--pmu-dir", format!("{error:#}")))
}

/// What `--events` means on this machine: tries events to find out.
///
/// # Errors
/// An unknown event, or an event table of the user that is not sound.
fn events(args: &ViewArgs) -> Result<Choice, BadValue> {
    let root = Path::new("/");
    let catalog = catalog(root, args.pmu_dir.as_deref())?;
    choose(root, &catalog, &args.events).map_err(|error| bad("--events", error.to_string()))
}

/// The event catalogue of the machine below `root`, with the tables of `--pmu-dir`.
///
/// # Errors
/// An event table of the user cannot be read or is not sound.
pub fn catalog(root: &Path, pmu_dir: Option<&Path>) -> Result<Catalog, BadValue> {
    Catalog::read(root, pmu_dir).map_err(|error| bad("--pmu-dir", format!("{error:#}")))
}

/// The counters of the machine below `root`, which is the one that this runs on.
pub fn budget(root: &Path, catalog: &Catalog) -> Budget {
    let smt = Topology::read(root).ok().is_none_or(|topology| topology.smt());
    Budget::read(root, catalog, smt, general_by_cpuid())
}

/// Chooses events for the machine below `root`, which is the one that this runs on.
///
/// # Errors
/// As [`Chooser::choose`].
pub fn choose(root: &Path, catalog: &Catalog, list: &str) -> anyhow::Result<Choice> {
    // Without a topology nothing can be counted anyway, and the live source says why.
    let subnuma = Topology::read(root).is_ok_and(|topology| {
        let with_cpus = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
        topology.sockets > 0 && with_cpus > topology.sockets as usize
    });
    Chooser { catalog, budget: budget(root, catalog), subnuma, opens: &mut try_together }.choose(list)
}

/// What of cgroups is wanted, and the hierarchy that a full path of `--cgroup` lies in. Names are resolved
/// by the source. Mounts are read below `root`.
///
/// # Errors
/// A path in a hierarchy that cannot be watched, or paths in several hierarchies.
fn wants(args: &ViewArgs, root: &Path) -> Result<(Wants, Option<Hierarchy>), BadValue> {
    let mut wants = Vec::new();
    let mut chosen: Option<Hierarchy> = None;
    for path in &args.cgroups {
        let mut below = path.trim_end_matches('/');
        let full = below.starts_with("/sys/fs/cgroup");
        if let Some((hierarchy, rest)) = cgroups::containing(root, Path::new(path)) {
            if chosen.as_ref().is_some_and(|other| *other != hierarchy) {
                return Err(bad("--cgroup", "all paths must lie in one hierarchy"));
            }
            below = rest.to_str().unwrap_or_default().trim_end_matches('/');
            chosen = Some(hierarchy);
        } else if full {
            let path = crate::text::clean_str(path);
            return Err(bad("--cgroup", format!("{path} lies in no hierarchy with a controller")));
        }
        wants.push(Want::Cgroup(format!("/{}", below.trim_start_matches('/'))));
    }
    wants.extend(args.containers.iter().map(|name| Want::Container(name.clone())));
    wants.extend(args.pods.iter().map(|name| match name.split_once('/') {
        Some((namespace, name)) => Want::Pod { namespace: Some(namespace.into()), name: name.into() },
        None => Want::Pod { namespace: None, name: name.clone() },
    }));
    wants.extend(args.namespaces.iter().map(|name| Want::Namespace(name.clone())));
    wants.extend(args.units.iter().map(|name| Want::Unit(name.clone())));
    wants.extend(args.machines.iter().map(|name| Want::Machine(name.clone())));
    Ok((Wants { wants, host: args.host, wait: args.wait }, chosen))
}

fn scope_text(args: &ViewArgs, wants: &Wants) -> String {
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut words = Vec::new();
    if !args.pids.is_empty() {
        words.push(format!("pid {}", list(&args.pids)));
    }
    if !args.tids.is_empty() {
        words.push(format!("tid {}", list(&args.tids)));
    }
    if !args.users.is_empty() {
        words.push(format!("user {}", crate::text::clean_str(&args.users.join(","))));
    }
    if !wants.is_empty() {
        words.push(wants.describe());
    }
    words.join(", ")
}

/// How to record.
pub fn recording(limits: &RecordLimits, args: &ViewArgs) -> RecordOptions {
    RecordOptions {
        interval: interval(args),
        max_bytes: limits.record_max_size,
        max_age: limits.record_max_age,
        keep: Keep { top: limits.record_top.map(|top| top as usize), min_cpu_pct: limits.record_min_cpu },
    }
}

/// A moment of a recording that lasts from the first to the second of `span`.
///
/// # Errors
/// The text is no time.
pub fn moment(flag: &'static str, text: Option<&str>, span: (i64, i64)) -> Result<Option<i64>, BadValue> {
    let zone = jiff::tz::TimeZone::system();
    text.map(|text| time::parse(text, span, &zone)).transpose().map_err(|why| bad(flag, why))
}

/// The moments of `--from` and `--to` in a recording that lasts from the first to the second of `span`.
///
/// # Errors
/// A text is no time, or the second moment is before the first.
pub fn stretch(
    from: Option<&str>,
    to: Option<&str>,
    span: (i64, i64),
) -> Result<(Option<i64>, Option<i64>), BadValue> {
    let (from, to) = (moment("--from", from, span)?, moment("--to", to, span)?);
    match (from, to) {
        (Some(begin), Some(end)) if end < begin => {
            Err(bad("--to", format!("{} is before --from, {}", rfc3339(end), rfc3339(begin))))
        }
        _ => Ok((from, to)),
    }
}

/// The interval of `--delay`.
pub fn interval(args: &ViewArgs) -> Duration {
    Duration::from_secs_f64(args.delay)
}

/// What a row stands for: naming threads implies rows of threads.
pub fn grain(args: &ViewArgs) -> Grain {
    if args.threads || !args.tids.is_empty() { Grain::Threads } else { Grain::Processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn args(words: &[&str]) -> ViewArgs {
        Cli::try_parse_from(std::iter::once(&"numatop-ng").chain(words)).unwrap().view
    }

    #[test]
    fn a_misspelt_metric_names_its_neighbours() {
        let error = selection(&args(&["--sort", "cpu_percent"]), true).err().unwrap().to_string();
        assert!(error.contains("'cpu_percent'") && error.contains("cpu_pct"), "{error}");
    }

    #[test]
    fn a_stretch_does_not_end_before_it_begins() {
        let span = (0, 60_000_000_000);
        assert!(stretch(Some("@10"), Some("@20"), span).is_ok());
        let why = stretch(Some("@20"), Some("@10"), span).unwrap_err().to_string();
        assert!(why.contains("is before --from"), "{why}");
    }

    #[test]
    fn a_leading_minus_reverses() {
        let (metric, reversed) = sort(&args(&["--sort", "-rss_bytes"])).unwrap().unwrap();
        assert_eq!((metric.id, reversed), ("rss_bytes", true));
    }

    #[test]
    fn machine_readable_rows_say_whose_they_are() {
        let selection = selection(&args(&["--threads", "--columns", "ipc"]), true).unwrap();
        let ids: Vec<&str> = selection.columns.iter().map(|metric| metric.id).collect();
        assert_eq!(ids, ["pid", "tid", "ipc"]);
    }

    #[test]
    fn names_of_containers_and_pods_are_taken_apart() {
        let args = args(&["--container", "web", "--pod", "shop/cart", "--cgroup", "system.slice/", "--wait"]);
        let (wants, hierarchy) = wants(&args, Path::new("/nonexistent")).unwrap();
        assert!(wants.wait && hierarchy.is_none());
        assert_eq!(wants.describe(), "cgroup /system.slice, container web, pod shop/cart");
        assert_eq!(wants.wants[2], Want::Pod { namespace: Some("shop".into()), name: "cart".into() });
    }

    #[test]
    fn what_only_json_has_is_refused_elsewhere() {
        for words in [&["--hot"][..], &["--overhead", "-b"], &["--hot", "--format", "csv"]] {
            let error = live(&args(words), &BTreeMap::new(), false).unwrap_err().to_string();
            assert!(error.contains("for --format json"), "{error}");
        }
        assert!(live(&args(&["--hot", "--overhead", "--format", "json"]), &BTreeMap::new(), false).is_ok());
        assert!(live(&args(&["--hot"]), &BTreeMap::new(), true).is_ok(), "a recording keeps stacks");
    }

    #[test]
    fn what_is_not_there_is_named() {
        // Above the largest pid that Linux gives (PID_MAX_LIMIT).
        for (words, why) in [
            (["-p", "4194305"], "there is no process 4194305"),
            (["-t", "4194305"], "there is no thread 4194305"),
            (["--node", "4194305"], "the machine has no node 4194305: its nodes are 0"),
        ] {
            let error = live(&args(&words), &BTreeMap::new(), false).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let own = std::process::id();
        assert!(live(&args(&["-p", &own.to_string()]), &BTreeMap::new(), false).is_ok());
    }

    #[test]
    fn a_thread_is_no_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            send.send(unsafe { libc::gettid() }).unwrap();
            let _ = wait.recv();
        });
        let tid = receive.recv().unwrap().to_string();
        let error = live(&args(&["-p", &tid]), &BTreeMap::new(), false).unwrap_err().to_string();
        assert!(error.contains(&format!("{tid} is a thread of process {}", std::process::id())), "{error}");
        assert!(live(&args(&["-t", &tid]), &BTreeMap::new(), false).is_ok());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn users_resolve_by_name_and_number() {
        let names = [(33, "web".to_string())].into();
        let scope = live(&args(&["-u", "web,0"]), &names, false).unwrap().scope;
        assert_eq!(scope.uids, [0, 33].into());
        let error = live(&args(&["-u", "nobody-here"]), &names, false).unwrap_err().to_string();
        assert!(error.contains("nobody-here"), "{error}");
    }
}
