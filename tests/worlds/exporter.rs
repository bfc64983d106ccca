//! The page for Prometheus: sums that partition the machine, and a server that bounds its readers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use numatop_ng::export::{Export, derive_for};
use numatop_ng::exporter::server::{Address, Server};
use numatop_ng::exporter::{Exporter, Limits, Shared};
use numatop_ng::finding::{Engine, Options};
use numatop_ng::model::process::Asked;
use numatop_ng::model::sample::{Comm, Sample};
use numatop_ng::snapshot::RowKind;
use numatop_ng::source::synthetic::demo_machine;

const WIDE: Limits = Limits { programs: 100, containers: 100, series: 10_000 };

/// The series of a page: name with labels, and value.
type Series = BTreeMap<String, f64>;

fn series(text: &str) -> Series {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    let found: Vec<(String, f64)> = lines.map(split).collect();
    let series: Series = found.iter().cloned().collect();
    assert_eq!(series.len(), found.len(), "a series stands there twice");
    series
}

fn sum(series: &Series, family: &str) -> f64 {
    let front = format!("{family}{{");
    series
        .iter()
        .filter(|(name, _)| name.starts_with(&front) || *name == family)
        .map(|(_, value)| value)
        .sum()
}

/// The pages of `intervals` intervals of the made-up machine, after `change` of each sample.
fn pages(limits: Limits, intervals: usize, change: impl Fn(usize, &mut Sample)) -> (Vec<Series>, Shared) {
    let mut machine = demo_machine();
    let page = Shared::default();
    let mut exporter =
        Exporter::new(limits, (Engine::new(Options::default()), Asked::default()), page.clone(), None);
    let mut previous = machine.tick();
    let mut all = Vec::new();
    for at in 0..intervals {
        let mut current = machine.tick();
        change(at, &mut current);
        let snapshot = derive_for(&mut exporter, &machine.host, &previous, &current, RowKind::Processes);
        exporter.write(&mut Vec::new(), &snapshot).unwrap();
        all.push(series(&page.read().unwrap().text));
        previous = current;
    }
    (all, page)
}

#[test]
fn accelerators_have_holders_and_time_far_from_them() {
    let (all, _) = pages(WIDE, 2, |_, _| {});
    let last = all.last().unwrap();
    let held: Vec<_> =
        last.iter().filter(|(name, _)| name.starts_with("numatop_device_processes{")).collect();
    assert!(held.iter().any(|(name, holders)| name.contains("node=\"") && **holders == 1.0), "{held:?}");
    let [all, far] =
        ["", "_far"].map(|kind| sum(last, &format!("numatop_program_accelerator{kind}_cpu_seconds_total")));
    assert!(far > 0.0 && far <= all, "{far} of {all}");
}

#[test]
fn places_are_left_out_first_and_devices_after_them() {
    let count = |limits| {
        let (all, _) = pages(limits, 1, |_, _| {});
        let has = |front: &str| all[0].keys().any(|name| name.starts_with(front));
        ["numatop_place_", "numatop_device_", "numatop_container_memory_bytes"].map(has)
    };
    let [places, devices, memory] = count(WIDE);
    assert!(devices && memory, "{places}, {devices}, {memory}");
    assert_eq!(count(Limits { series: 10, ..WIDE }), [false; 3]);
}

#[test]
fn programs_containers_and_nodes_each_add_up_to_the_machine() {
    for limits in
        [WIDE, Limits { programs: 3, containers: 2, ..WIDE }, Limits { programs: 0, containers: 0, ..WIDE }]
    {
        let (pages, _) = pages(limits, 60, |_, _| {});
        let last = pages.last().unwrap();
        let nodes = sum(last, "numatop_node_cpu_seconds_total");
        assert!(nodes > 60.0, "{nodes} s");
        for family in ["numatop_program_cpu_seconds_total", "numatop_container_cpu_seconds_total"] {
            let all = sum(last, family);
            assert!((all / nodes - 1.0).abs() < 1e-9, "{family}: {all} of {nodes}, {limits:?}");
        }
        let remote = |of: &str| sum(last, &format!("numatop_{of}_remote_cpu_seconds_total"));
        assert!(remote("program") > 1.0);
        assert!((remote("program") / remote("container") - 1.0).abs() < 1e-9);
        for of in ["located", "remote"] {
            let (nodes, programs) = (
                sum(last, &format!("numatop_node_{of}_cpu_seconds_total")),
                sum(last, &format!("numatop_program_{of}_cpu_seconds_total")),
            );
            assert!((nodes / programs - 1.0).abs() < 1e-9, "{of}: {nodes} of {programs}, {limits:?}");
        }
        let matrix = sum(last, "numatop_access_cpu_seconds_total");
        assert!(matrix > 0.9 * sum(last, "numatop_node_located_cpu_seconds_total"), "{matrix}");
    }
}

#[test]
fn what_was_left_out_does_not_come_back() {
    // Programs come in the middle, which is too much, and go again.
    let most = pages(WIDE, 9, |_, _| {}).0.iter().map(|page| page.len()).max().unwrap() + 20;
    let (pages, _) = pages(Limits { series: most, ..WIDE }, 30, |at, sample| {
        if (10..12).contains(&at) {
            for (number, task) in sample.tasks.iter_mut().enumerate() {
                let mut comm = [0; 16];
                comm[..2].copy_from_slice(&[b'a' + (number % 26) as u8, b'a' + (number / 26 % 26) as u8]);
                Arc::make_mut(task).comm = Comm(comm);
            }
        }
    });
    let memory = |at: usize| sum(&pages[at], "numatop_container_memory_bytes");
    assert!(memory(9) > 0.0 && memory(11) == 0.0, "{} and {}", memory(9), memory(11));
    assert!(pages[12..].iter().all(|page| sum(page, "numatop_container_memory_bytes") == 0.0));
}

#[test]
fn counters_never_go_down_and_hold_what_the_intervals_had() {
    let (pages, _) = pages(Limits { programs: 2, containers: 2, ..WIDE }, 120, |_, _| {});
    let mut highest = Series::new();
    for page in &pages {
        for (name, value) in page.iter().filter(|(name, _)| name.contains("_total")) {
            let before = highest.insert(name.clone(), *value).unwrap_or(0.0);
            assert!(*value >= before, "{name} went from {before} to {value}");
        }
    }
    assert_eq!(pages.last().unwrap()["numatop_intervals_total"], 120.0);
}

#[test]
fn a_process_that_measures_tells_its_start_and_its_files() {
    let mut machine = demo_machine();
    let (first, second) = (machine.tick(), machine.tick());
    let own = |exporter: Exporter, page: Shared| {
        let mut exporter = exporter;
        let snapshot = derive_for(&mut exporter, &machine.host, &first, &second, RowKind::Processes);
        exporter.write(&mut Vec::new(), &snapshot).unwrap();
        let found = series(&page.read().unwrap().text);
        ["process_start_time_seconds", "process_open_fds"].map(|name| found.get(name).copied())
    };
    let exporter = |page: &Shared| {
        Exporter::new(WIDE, (Engine::new(Options::default()), Asked::default()), page.clone(), None)
    };
    let page = Shared::default();
    assert_eq!(own(exporter(&page), page), [None, None], "of a recording");
    let page = Shared::default();
    let [start, files] = own(exporter(&page).of_this_process(), page).map(Option::unwrap);
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((now - 60.0..=now).contains(&start), "{start} at {now}");
    assert!((3.0..10_000.0).contains(&files), "{files}");
}

#[test]
fn too_many_series_are_left_out_in_an_order_and_counted() {
    let whole = pages(WIDE, 30, |_, _| {}).0.pop().unwrap();
    assert_eq!(whole["numatop_series_dropped"], 0.0);
    let page = |most| pages(Limits { series: most, ..WIDE }, 30, |_, _| {}).0.pop().unwrap();
    let by_node = |page: &Series| {
        page.keys()
            .any(|name| name.starts_with("numatop_container_cpu_seconds_total{") && name.contains(",node="))
    };
    // One of the series counts the left-out ones, and is always present.
    let memory = "numatop_container_memory_bytes";
    let mut first = page(whole.len() - 2);
    // Places and devices go before.
    while sum(&first, memory) > 0.0 {
        assert!(!first.keys().any(|name| name.starts_with("numatop_place_")), "{first:?}");
        first = page(first.len() - 2);
    }
    assert!(sum(&whole, memory) > 0.0 && sum(&first, memory) == 0.0 && by_node(&first));
    let second = page(first.len() - 2);
    assert!(!by_node(&second) && sum(&second, "numatop_program_cycles_total") > 0.0);
    let mut left = second.len();
    for (most, gone) in
        [(second.len() - 2, "numatop_program_cycles_total"), (1, "numatop_access_cpu_seconds_total")]
    {
        let page = page(most);
        assert!(sum(&whole, gone) > 0.0 && sum(&page, gone) == 0.0, "{gone}");
        assert!(page["numatop_series_dropped"] > first["numatop_series_dropped"] && page.len() < left);
        left = page.len();
        for kept in ["numatop_node_cpu_seconds_total", "numatop_container_cpu_seconds_total"] {
            assert!((sum(&page, kept) / sum(&whole, kept) - 1.0).abs() < 1e-9, "{kept}");
        }
    }
}

#[test]
fn names_of_strangers_stay_in_their_quotes() {
    let (pages, page) = pages(WIDE, 3, |_, sample| {
        for (at, task) in sample.tasks.iter_mut().enumerate() {
            let names: [&[u8]; 4] = [b"a\"} 1\n# EOF", b"\\", b"(others)", &[0xff, 0xfe, 0x1b, b'[']];
            let mut comm = [0; 16];
            let name = names[at % names.len()];
            comm[..name.len()].copy_from_slice(name);
            std::sync::Arc::make_mut(task).comm = Comm(comm);
        }
    });
    let last = pages.last().unwrap();
    assert!(last.contains_key("numatop_program_processes{comm=\"(others)_\"}"), "{last:?}");
    let text = page.read().unwrap().open_metrics.clone();
    assert_eq!(text.matches("# EOF\n").count(), 1);
    assert!(text.ends_with("# EOF\n") && !text.contains('\u{1b}'));
}

/// A server of a page on a free port, until the end is dropped.
fn served() -> (SocketAddr, OwnedFd, thread::JoinHandle<()>) {
    let (_, page) = pages(WIDE, 3, |_, _| {});
    let server = Server::listen(&[Address::Net("127.0.0.1:0".parse().unwrap())]).unwrap();
    let address = server.ports()[0];
    let (stop, end) = rustix::pipe::pipe().unwrap();
    let thread = thread::spawn(move || server.serve(&page, &stop).unwrap());
    (address, end, thread)
}

fn fetched(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn readers_that_say_nothing_or_too_much_do_not_keep_others_waiting() {
    let (address, end, thread) = served();
    let mut slow: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(b"G").unwrap();
    }
    let huge = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let mut stream = TcpStream::connect(address).unwrap();
    // The server hangs up before it has read everything.
    let _ = stream.write_all(huge.as_bytes());
    // As many as fit are disconnected after 5 s, then come the others.
    let answer = fetched(address, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{}", &answer[..80.min(answer.len())]);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    drop(slow);
    drop(end);
    thread.join().unwrap();
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err());
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_a_file_is_not() {
    let folder = std::env::temp_dir().join(format!("numatop-exporter-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("metrics.sock");
    let listen = || Server::listen(&[Address::Unix(path.clone())]);
    // Dropped without its file being removed, as after SIGKILL.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = listen().unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    let taken = listen().err().unwrap().to_string();
    assert!(taken.contains("Address already in use"), "{taken}");
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "mine").unwrap();
    assert!(listen().is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_address_that_is_taken_says_which_and_why() {
    let (address, end, thread) = served();
    let error = Server::listen(&[Address::Net(address)]).err().unwrap().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("Address already in use"), "{error}");
    drop(end);
    thread.join().unwrap();
}
