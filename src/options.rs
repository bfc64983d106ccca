//! From the command line to its meaning: checks every value, resolves names, fills in defaults.

mod events;
mod exporter;
mod recordings;
mod run;
mod settings;
mod show;
mod simulated;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Error;
use jiff::tz::TimeZone;

use crate::calibrate::store::{self, Wanted};
use crate::cli::{
    ContainerArgs, CountArgs, DisplayArgs, HostArgs, JsonArgs, MeasureArgs, NamedGroups, OutputArgs,
    PlacesArg, ProfileArgs, RecordLimits, ScopeArgs, WatchArgs,
};
use crate::collect::placement;
use crate::container::runtime;
use crate::container::scope::Scope;
use crate::container::select::{Want, Wants};
use crate::export::{FORMATS, Format, Part, flags_that_carry, json};
use crate::host::cgroups::{self, Hierarchy};
use crate::host::privileges::Privileges;
use crate::host::roots::{self, Roots};
use crate::host::users::{self, Getent};
use crate::host::{isolation, processes};
use crate::model::group;
use crate::model::topology::{Division, Topology, format_cpulist};
use crate::model::units::NodeId;
use crate::record::aggregate::Keep;
use crate::record::dir::is_ring;
use crate::record::recorder::RecordOptions;
use crate::record::time::{self, TimeError};
use crate::snapshot::RowKind;
use crate::source::live::LiveOptions;
use crate::text::rfc3339;

pub use self::exporter::{addresses, limits};
pub use self::recordings::{
    Layout, Stretch, Tables, TraceChoice, check_no_tables, compared, fails_on, no_page_on_a_terminal,
    no_parquet, no_rule, no_trace_on_a_terminal, report, rules, several_hosts, several_hosts_in_a_file,
    sides, tables, trace, zone,
};
pub use events::{budget, catalog, choose, event_sets, marked_catalog};
pub use run::{place, user_of_sudo};
pub use settings::{check_settings, with_settings};
pub use show::{
    columns, container_selection, filter, node_columns, place_kind, place_selection, selection, sort,
};
pub use simulated::simulated;

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

/// Options of the live source.
///
/// # Errors
/// An unknown task, user or event, or a path that is not a socket.
pub fn live(args: &WatchArgs) -> Result<LiveOptions, BadValue> {
    let WatchArgs { scope, measure, hot } = args;
    let options = watched(scope, measure)?;
    Ok(LiveOptions { sampling: events::sampling(&hot.stacks, &measure.counters.tables)?, ..options })
}

/// The same without stacks.
///
/// # Errors
/// As of [`live`].
pub fn watched(tasks: &ScopeArgs, measure: &MeasureArgs) -> Result<LiveOptions, BadValue> {
    let containers = &tasks.containers;
    let host_root = host_root(&measure.host)?;
    let own = Path::new("/");
    let roots = Roots::new(own, host_root.as_deref().unwrap_or(own));
    let mut scope = Scope {
        pids: tasks.pids.iter().copied().collect(),
        tids: tasks.tids.iter().copied().collect(),
        trees: tasks.trees.iter().copied().collect(),
        ..Scope::default()
    };
    processes::lead(host_root.as_deref());
    check_tasks(tasks, processes::root())?;
    let names = if tasks.users.is_empty() { BTreeMap::new() } else { users::read(roots.host) };
    for user in &tasks.users {
        let known = users::resolve(user, &names);
        // Users of another root are not those of our own services.
        let ask = || (roots.host == roots.own).then(|| Getent::default().id_of(user)).flatten();
        let uid = known.or_else(ask).ok_or_else(|| bad("--user", no_user(user, roots.host)))?;
        scope.uids.insert(uid);
    }
    if let Some(path) = containers.runtime_sockets.iter().find(|path| runtime::is_no_socket(path)) {
        let path = crate::text::clean_str(&path.to_string_lossy());
        return Err(bad(
            "--runtime-socket",
            format!("{path} is not a socket: docker listens on /run/docker.sock"),
        ));
    }
    let event_turn = events::turn(measure, &isolation::quiet_cpus(own))?;
    let events = events::of(&measure.counters)?;
    let (wants, hierarchy) = wants(containers, roots)?;
    let placement_budget = match measure.placement_budget {
        Some(ms) => placement::Budget::Fixed(Duration::from_millis(ms)),
        None => placement::Budget::Small,
    };
    let scope_text = scope_text(tasks, &wants);
    Ok(LiveOptions {
        scope,
        scope_text,
        wants,
        hierarchy,
        runtime_sockets: containers.runtime_sockets.clone(),
        events,
        event_turn,
        sets: Vec::new(),
        placement_budget,
        division: match measure.places {
            None => Division::Usual,
            Some(PlacesArg::Node) => Division::Nodes,
            Some(PlacesArg::L3) => Division::Places,
        },
        flush_isolated: measure.flush_isolated,
        host_name: host_name(measure, std::env::var("NUMATOP_HOST_NAME").ok())
            .or_else(|| roots::host_name(host_root.as_deref()?)),
        host_root,
        group_limits: true,
        profile: machine_profile(&measure.profile)?,
        ..LiveOptions::default()
    })
}

/// The name of the machine that was given: by flag, or by the `environment`.
fn host_name(measure: &MeasureArgs, environment: Option<String>) -> Option<String> {
    measure.host_name.clone().or(environment).filter(|name| !name.is_empty())
}

/// The root of the host's files that `--host-root` names.
///
/// # Errors
/// It is no directory.
pub fn host_root(args: &HostArgs) -> Result<Option<PathBuf>, BadValue> {
    let read = |path: &PathBuf| {
        let root = roots::of_host(path).map_err(|error| {
            bad("--host-root", format!("{}: {error}", crate::text::clean_str(&path.to_string_lossy())))
        })?;
        roots::check_copy(&root).map_err(|why| bad("--host-root", crate::text::clean_str(&why)))?;
        Ok(root)
    };
    args.host_root.as_ref().map(read).transpose()
}

fn no_user(user: &str, host_root: &Path) -> String {
    let user = crate::text::clean_str(user);
    if host_root == Path::new("/") {
        return format!(
            "no user '{user}': neither /etc/passwd nor getent(1) returned one within three seconds"
        );
    }
    let file = host_root.join("etc/passwd");
    format!(
        "no user '{user}' in {}; use the number of a user from a directory service (sssd, LDAP), as 'id -u \
         NAME' prints it",
        crate::text::clean_str(&file.to_string_lossy())
    )
}

/// The profile that `--machine-profile` names.
///
/// # Errors
/// The file does not exist, or is not a profile: a mistake in the flag is not a reason to use another
/// profile.
pub fn machine_profile(args: &ProfileArgs) -> Result<Wanted, BadValue> {
    match &args.machine_profile {
        None => Ok(Wanted::Stored),
        Some(path) if path.is_empty() => Ok(Wanted::Nothing),
        Some(path) => {
            let path = PathBuf::from(path);
            store::read(&path).map_err(|error| bad("--machine-profile", format!("{error:#}")))?;
            Ok(Wanted::File(path))
        }
    }
}

/// The format of batch output, text unless one is given.
///
/// # Errors
/// Another format than JSON is to be JSON in full.
pub fn batch_format(args: &OutputArgs) -> Result<&'static Format, BadValue> {
    match args.format {
        None if args.json.json_full => Ok(&json::FULL),
        None => Ok(FORMATS[0]),
        Some(format) => shape(format, &args.json),
    }
}

/// The shape of `format` that is asked for.
///
/// # Errors
/// As of [`batch_format`].
pub fn shape(format: &'static Format, args: &JsonArgs) -> Result<&'static Format, BadValue> {
    match (args.json_full, format.name == json::FORMAT.name) {
        (false, _) => Ok(format),
        (true, true) => Ok(&json::FULL),
        (true, false) => check_no_json(args).map(|()| format),
    }
}

/// Refuses to write in full what is no JSON.
///
/// # Errors
/// It is asked for.
pub fn check_no_json(args: &JsonArgs) -> Result<(), BadValue> {
    match args.json_full {
        true => Err(bad("--json-full", format!("works only with --format {}", json::FORMAT.name))),
        false => Ok(()),
    }
}

/// Refuses what batch output in `format` has no place for. `kept`: stacks go into a recording.
///
/// # Errors
/// Names the formats that support it.
pub fn check_places(format: &Format, hot: bool, overhead: bool, kept: bool) -> Result<(), BadValue> {
    if hot && !kept && !format.carries(Part::HotSpots) {
        let flags = flags_that_carry(Part::HotSpots);
        return Err(bad(
            "--hot",
            format!("works with record and with {flags}; on the screen, p shows hot spots"),
        ));
    }
    if overhead && !format.carries(Part::Overhead) {
        let flags = flags_that_carry(Part::Overhead);
        return Err(bad(
            "--overhead",
            format!("works with {flags}; in the live view, press o to see the cost of numatop-ng"),
        ));
    }
    Ok(())
}

/// Refuses ids that no task below `root` has: they would show an empty screen for ever.
fn check_tasks(args: &ScopeArgs, root: &Path) -> Result<(), BadValue> {
    // Programs filter by ids of the machine, and those of a container are others.
    let given = [("--pid", &args.pids), ("--tree", &args.trees), ("--tid", &args.tids)];
    if let Some((flag, _)) = given.into_iter().find(|(_, ids)| !ids.is_empty())
        && root == Path::new("/")
        && Privileges::read(root).host_pid_namespace.is(&false)
    {
        return Err(bad(
            flag,
            "ids of this pid namespace (a container's) differ from the machine's. Select with --container, or run \
             in the host's namespace (docker run --pid=host), or mount the host's /proc (--host-root)",
        ));
    }
    // A fact that cannot be found out decides nothing.
    let pids = args.pids.iter().map(|pid| ("--pid", pid));
    for (flag, pid) in pids.chain(args.trees.iter().map(|pid| ("--tree", pid))) {
        match processes::process_of(root, *pid) {
            Ok(None) => return Err(bad(flag, format!("there is no process {pid}"))),
            Ok(Some(process)) if process != *pid => {
                return Err(bad(
                    flag,
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
/// Names the existing nodes.
pub fn check_node(args: &DisplayArgs, topology: &Topology) -> Result<(), BadValue> {
    let Some(node) = args.node else { return Ok(()) };
    let online: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    if online.contains(&NodeId(node)) || topology.offline_nodes.contains(&NodeId(node)) {
        return Ok(());
    }
    let has = format_cpulist(online.iter().map(|id| id.0));
    Err(bad("--node", format!("the machine has no node {node}: its nodes are {has}")))
}

/// Refuses `--iterations` where a recording is shown on the screen: the user decides when it continues.
///
/// # Errors
/// Names the modes that count intervals.
pub fn check_by_hand(args: &CountArgs) -> Result<(), BadValue> {
    match args.iterations {
        Some(_) => Err(bad(
            "--iterations",
            "limits the intervals of batch output (--batch); on the screen, q ends a replay",
        )),
        None => Ok(()),
    }
}

/// The wanted cgroups, and the hierarchy that contains a full path of `--cgroup`. The source resolves names.
///
/// # Errors
/// A path in a hierarchy that cannot be watched, or paths in several hierarchies.
fn wants(args: &ContainerArgs, roots: Roots<'_>) -> Result<(Wants, Option<Hierarchy>), BadValue> {
    let mut wants = Vec::new();
    let mut chosen: Option<Hierarchy> = None;
    for path in &args.named.cgroups {
        let bytes = group::to_bytes(path);
        let mut below = path.trim_end_matches('/').to_string();
        let full = below.starts_with("/sys/fs/cgroup");
        if let Some((hierarchy, rest)) = cgroups::containing(roots, Path::new(OsStr::from_bytes(&bytes))) {
            if chosen.as_ref().is_some_and(|other| *other != hierarchy) {
                return Err(bad("--cgroup", "all paths must be in one hierarchy"));
            }
            below = group::from_bytes(rest.as_os_str().as_bytes()).trim_end_matches('/').to_string();
            chosen = Some(hierarchy);
        } else if full {
            let path = group::show(path);
            return Err(bad("--cgroup", format!("{path} is in no hierarchy with a controller")));
        }
        wants.push(Want::Cgroup(format!("/{}", below.trim_start_matches('/'))));
    }
    wants.extend(named_wants(&args.named));
    Ok((Wants { wants, host: args.host, wait: args.wait }, chosen))
}

/// Groups by name, without paths of cgroups.
fn named_wants(named: &NamedGroups) -> impl Iterator<Item = Want> {
    let pod = |name: &String| match name.split_once('/') {
        Some((namespace, name)) => Want::Pod { namespace: Some(namespace.into()), name: name.into() },
        None => Want::Pod { namespace: None, name: name.clone() },
    };
    let containers = named.containers.iter().cloned().map(Want::Container);
    let namespaces = named.namespaces.iter().cloned().map(Want::Namespace);
    let units = named.units.iter().cloned().map(Want::Unit);
    let machines = named.machines.iter().cloned().map(Want::Machine);
    containers.chain(named.pods.iter().map(pod)).chain(namespaces).chain(units).chain(machines)
}

fn scope_text(args: &ScopeArgs, wants: &Wants) -> String {
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut words = Vec::new();
    if !args.pids.is_empty() {
        words.push(format!("pid {}", list(&args.pids)));
    }
    if !args.tids.is_empty() {
        words.push(format!("tid {}", list(&args.tids)));
    }
    if !args.trees.is_empty() {
        words.push(format!("tree {}", list(&args.trees)));
    }
    if !args.users.is_empty() {
        words.push(format!("user {}", crate::text::clean_str(&args.users.join(","))));
    }
    if !wants.is_empty() {
        words.push(wants.describe());
    }
    words.join(", ")
}

/// The limits of a recording at `path`.
///
/// # Errors
/// It is one file, and a limit is given that only directories of files keep.
pub fn recording(limits: &RecordLimits, path: &Path, interval: Duration) -> Result<RecordOptions, BadValue> {
    let of_rings = [
        ("--record-max-size", limits.record_max_size.is_some()),
        ("--record-max-age", limits.record_max_age.is_some()),
    ];
    if let Some((flag, _)) = of_rings.iter().find(|(_, is_given)| *is_given && !is_ring(path)) {
        let path = crate::text::clean_str(&path.to_string_lossy());
        let why = format!(
            "{path} is one file, but this limit applies to directories: give a directory, as in {path}/"
        );
        return Err(bad(flag, why));
    }
    Ok(RecordOptions {
        interval,
        max_bytes: limits.record_max_size.unwrap_or(RecordOptions::MAX_BYTES),
        max_age: limits.record_max_age,
        keep: Keep { top: limits.record_top.map(|top| top as usize), min_cpu_pct: limits.record_min_cpu },
        lines: limits.record_cmdline.map(Into::into),
    })
}

/// A moment of a recording that lasts from the first to the second of `span`.
///
/// # Errors
/// The text is no time (a [`BadValue`]), or the recording does not say which day it is a time of ([`TimeError`]).
pub fn moment(flag: &'static str, text: Option<&str>, span: (i64, i64)) -> Result<Option<i64>, Error> {
    moment_in(flag, text, span, &TimeZone::system())
}

fn moment_in(
    flag: &'static str,
    text: Option<&str>,
    span: (i64, i64),
    zone: &TimeZone,
) -> Result<Option<i64>, Error> {
    let moment = text.map(|text| time::parse(text, span, zone)).transpose();
    moment.map_err(|error| match error {
        TimeError::NotATime(_) => bad(flag, error.to_string()).into(),
        TimeError::NoLastDay { .. } => error.into(),
    })
}

/// The moments of `--from` and `--to` in a recording that lasts from the first to the second of `span`.
///
/// # Errors
/// As of [`moment`], or the second moment is before the first.
pub fn stretch(
    from: Option<&str>,
    to: Option<&str>,
    span: (i64, i64),
) -> Result<(Option<i64>, Option<i64>), Error> {
    stretch_in(from, to, span, &TimeZone::system())
}

/// The same with times of this zone.
///
/// # Errors
/// As of [`stretch`].
pub fn stretch_in(
    from: Option<&str>,
    to: Option<&str>,
    span: (i64, i64),
    zone: &TimeZone,
) -> Result<(Option<i64>, Option<i64>), Error> {
    let (from, to) = (moment_in("--from", from, span, zone)?, moment_in("--to", to, span, zone)?);
    match (from, to) {
        (Some(begin), Some(end)) if end < begin => {
            Err(bad("--to", format!("{} is before --from, {}", rfc3339(end), rfc3339(begin))).into())
        }
        _ => Ok((from, to)),
    }
}

/// The kind of a row. `scope`: that of the live source, in which naming threads implies rows of threads.
pub fn grain(threads: bool, scope: Option<&ScopeArgs>) -> RowKind {
    let named = scope.is_some_and(|scope| !scope.tids.is_empty());
    if threads || named { RowKind::Threads } else { RowKind::Processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, LiveArgs};
    use clap::Parser;

    pub(super) fn args(words: &[&str]) -> LiveArgs {
        Cli::try_parse_from(std::iter::once(&"numatop-ng").chain(words)).unwrap().live
    }

    fn watched(words: &[&str]) -> Result<LiveOptions, BadValue> {
        live(&args(words).watch)
    }

    #[test]
    fn the_flag_names_the_machine_before_the_environment_does() {
        let name = |words: &[&str], environment: Option<&str>| {
            host_name(&args(words).watch.measure, environment.map(str::to_owned))
        };
        assert_eq!(name(&["--host-name", "db-1"], Some("node-7")).as_deref(), Some("db-1"));
        assert_eq!(name(&[], Some("node-7")).as_deref(), Some("node-7"));
        assert_eq!((name(&[], Some("")), name(&[], None)), (None, None));
    }

    #[test]
    fn users_and_names_are_those_of_the_host_in_whose_container_it_runs() {
        let root = std::env::temp_dir().join(format!("numatop-host-root-{}", std::process::id()));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/passwd"), "guest-of-host:x:4242:7::/:\n").unwrap();
        std::fs::write(root.join("etc/hostname"), "node-3\n").unwrap();
        let words = |more: &[&'static str]| {
            let root = root.to_str().unwrap().to_owned();
            let mut words = vec!["--host-root".to_owned(), root];
            words.extend(more.iter().map(|word| (*word).to_owned()));
            let args = args(&words.iter().map(String::as_str).collect::<Vec<_>>());
            live(&args.watch)
        };
        let found = words(&["-u", "guest-of-host"]);
        let unknown = words(&["-u", "stranger-of-host"]);
        let named = words(&["--host-name", "db-1"]);
        std::fs::remove_dir_all(&root).unwrap();
        let gone = words(&[]);
        let found = found.unwrap();
        assert_eq!(found.scope.uids, [4242].into());
        assert_eq!(found.host_name.as_deref(), Some("node-3"));
        assert_eq!(found.roots().host, root);
        assert_eq!(named.unwrap().host_name.as_deref(), Some("db-1"));
        let file = root.join("etc/passwd").display().to_string();
        assert!(unknown.unwrap_err().to_string().contains(&file));
        let gone = gone.unwrap_err().to_string();
        assert!(gone.starts_with("--host-root: ") && gone.contains("os error 2"), "{gone}");
    }

    #[test]
    fn a_stretch_does_not_end_before_it_begins() {
        let span = (0, 60_000_000_000);
        assert!(stretch(Some("@10"), Some("@20"), span).is_ok());
        let why = stretch(Some("@20"), Some("@10"), span).unwrap_err().to_string();
        assert!(why.contains("is before --from"), "{why}");
    }

    #[test]
    fn names_of_containers_and_pods_are_taken_apart() {
        let args = args(&["--container", "web", "--pod", "shop/cart", "--cgroup", "system.slice/", "--wait"]);
        let (wants, hierarchy) =
            wants(&args.watch.scope.containers, Path::new("/nonexistent").into()).unwrap();
        assert!(wants.wait && hierarchy.is_none());
        assert_eq!(wants.describe(), "cgroup /system.slice, container web, pod shop/cart");
        assert_eq!(wants.wants[2], Want::Pod { namespace: Some("shop".into()), name: "cart".into() });
    }

    #[test]
    fn a_replay_by_hand_counts_no_intervals() {
        assert!(check_by_hand(&args(&[]).output.count).is_ok());
        assert!(check_by_hand(&args(&["-n", "3"]).output.count).unwrap_err().to_string().contains("--batch"));
    }

    #[test]
    fn parts_that_only_json_has_are_refused_elsewhere() {
        use crate::export::{csv, json, text};
        for (format, hot, overhead) in [
            (&text::FORMAT, true, false),
            (&text::FORMAT, false, true),
            (&csv::FORMAT, true, false),
            (&csv::FORMAT, false, true),
        ] {
            let error = check_places(format, hot, overhead, false).unwrap_err().to_string();
            assert!(error.contains("with --format json"), "{error}");
        }
        assert!(check_places(&json::FORMAT, true, true, false).is_ok());
        assert!(check_places(&csv::FORMAT, true, false, true).is_ok(), "a recording keeps stacks");
        assert!(
            check_places(&csv::FORMAT, true, true, true).is_err(),
            "no recording keeps the cost of programs"
        );
    }

    #[test]
    fn what_is_not_there_is_named() {
        // Above the largest pid that Linux gives (PID_MAX_LIMIT).
        for (words, why) in [
            (["-p", "4194305"], "there is no process 4194305"),
            (["-t", "4194305"], "there is no thread 4194305"),
        ] {
            let error = watched(&words).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let topology = crate::host::topology::read(Path::new("/")).unwrap();
        let error = check_node(&args(&["--node", "4194305"]).display, &topology).unwrap_err().to_string();
        assert!(error.contains("the machine has no node 4194305: its nodes are 0"), "{error}");
        let own = std::process::id();
        assert!(watched(&["-p", &own.to_string()]).is_ok());
    }

    #[test]
    fn a_thread_is_no_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = wait.recv();
        });
        let tid = receive.recv().unwrap().to_string();
        let error = watched(&["-p", &tid]).unwrap_err().to_string();
        assert!(error.contains(&format!("{tid} is a thread of process {}", std::process::id())), "{error}");
        assert!(watched(&["-t", &tid]).is_ok());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn users_resolve_by_name_and_number() {
        let scope = watched(&["-u", "root,33"]).unwrap().scope;
        assert_eq!(scope.uids, [0, 33].into());
        let error = watched(&["-u", "nobody-here"]).unwrap_err().to_string();
        assert!(error.contains("nobody-here"), "{error}");
    }
}
