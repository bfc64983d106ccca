//! Messages of doctor and refusals: on imagined hosts word for word, on this machine as far as it is known.

use std::io;

use crate::fake_hosts;
use fake_hosts::{bare_metal, default_container, linux_5_10, user_with, without_btf, without_pmu};
use numatop_ng::doctor::{Probe, Report, Trial, render_json, render_text};
use numatop_ng::error::{Exit, explain, preflight};
use numatop_ng::host::fact::Fact;
use numatop_ng::host::privileges::{CapSet, Capability};
use numatop_ng::metric::{node::NODE_METRICS, task::TASK_METRICS};
use numatop_ng::model::event::Role;
use numatop_ng::model::facility::Facility;

/// The kernel's answers to a user without capabilities.
fn eperm() -> anyhow::Error {
    anyhow::Error::from(io::Error::from_raw_os_error(libc::EPERM))
        .context("loading the BTF of the task storage map")
}

/// Text without its line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A first step that failed so.
fn failed(error: anyhow::Error) -> Vec<Trial> {
    let log = vec!["libbpf: BTF loading error: -EPERM".to_string()];
    vec![Trial { name: "task storage", parts: &Facility::ESSENTIAL, outcome: Err(error), log }]
}

/// Every step done.
fn passed() -> Vec<Trial> {
    vec![Trial {
        name: "all probes",
        parts: &[
            Facility::CpuTime,
            Facility::TaskWalk,
            Facility::Exits,
            Facility::Reclaim,
            Facility::NewPages,
            Facility::MovedPages,
            Facility::Placement,
            Facility::SentTasks,
            Facility::DiskTraffic,
            Facility::SocketTraffic,
            Facility::Accelerators,
        ],
        outcome: Ok("loaded, attached, run on 64 CPUs".into()),
        log: Vec::new(),
    }]
}

#[test]
fn message_without_privileges() {
    insta::assert_snapshot!(explain(&eperm(), &user_with(CapSet::default())));
}

#[test]
fn message_in_a_default_container() {
    insta::assert_snapshot!(preflight(&default_container()).unwrap_err());
}

#[test]
fn message_without_btf() {
    insta::assert_snapshot!(preflight(&without_btf()).unwrap_err());
}

#[test]
fn the_page_about_kernels_quotes_the_refusal() {
    let page = include_str!("../../docs/kernels.md");
    let refusal = preflight(&linux_5_10()).unwrap_err();
    let quoted = format!("numatop-ng: {}: {}", refusal.what, refusal.why.unwrap());
    assert!(page.contains(&quoted), "docs/kernels.md does not have: {quoted}");
}

#[test]
fn message_on_linux_5_10() {
    insta::assert_snapshot!(preflight(&linux_5_10()).unwrap_err());
}

#[test]
fn message_of_a_failure_no_rule_knows() {
    let error =
        anyhow::Error::from(io::Error::from_raw_os_error(libc::ENOMEM)).context("loading sched.bpf.o");
    let refusal = explain(&error, &bare_metal());
    assert_eq!(refusal.exit, Exit::CouldNotMeasure);
    insta::assert_snapshot!(refusal);
}

#[test]
fn message_where_a_seccomp_filter_refuses_what_capabilities_allow() {
    let mut host = bare_metal();
    host.privileges.seccomp_filter = Fact::Known(true);
    let refusal = explain(&eperm(), &host);
    assert_eq!(refusal.exit, Exit::Privilege);
    insta::assert_snapshot!(refusal);
    // Another errno is not from a filter, and missing capabilities are not a filter.
    let other = anyhow::Error::from(io::Error::from_raw_os_error(libc::ENOMEM));
    assert!(!explain(&other, &host).to_string().contains("seccomp filter is"));
    let lacking = explain(&eperm(), &default_container()).to_string();
    assert!(!lacking.contains("seccomp filter is"), "{lacking}");
}

#[test]
fn a_refusal_passed_up_as_an_error_stays_what_it_is() {
    let refusal = preflight(&linux_5_10()).unwrap_err();
    let error = anyhow::Error::new(refusal.clone()).context("starting the live view");
    assert_eq!(explain(&error, &bare_metal()), refusal);
}

#[test]
fn text_on_a_good_host() {
    let report = Report::new(bare_metal(), passed());
    assert_eq!(report.exit(), Exit::Ok);
    insta::assert_snapshot!(render_text(&report, 80, true));
}

#[test]
fn text_for_an_ordinary_user_of_a_virtual_machine() {
    let mut host = without_pmu();
    host.privileges = user_with(CapSet::default()).privileges;
    let report = Report::new(host, failed(eperm()));
    assert_eq!(report.exit(), Exit::Privilege);
    insta::assert_snapshot!(render_text(&report, 80, true));
}

#[test]
fn text_on_linux_5_10() {
    let einval = anyhow::Error::from(io::Error::from_raw_os_error(libc::EINVAL));
    let report = Report::new(linux_5_10(), failed(einval.context("creating the task storage map")));
    assert_eq!(report.exit(), Exit::Kernel);
    insta::assert_snapshot!(render_text(&report, 80, true));
}

#[test]
fn the_short_report_has_the_verdict_first_and_fits_a_screen() {
    for (name, report) in [
        ("good", Report::new(bare_metal(), passed())),
        ("without_pmu", Report::new(without_pmu(), passed())),
        ("refused", Report::new(user_with(CapSet::default()), failed(eperm()))),
    ] {
        let text = render_text(&report, 80, false);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("The live view works here.") == report.live.works, "{text}");
        assert!(text.lines().count() <= 40 && text.contains("--all also shows"), "{text}");
        assert!(!text.contains("\nok "), "{text}");
        insta::assert_snapshot!(format!("short_{name}"), text);
    }
}

#[test]
fn what_was_tried_counts_more_than_what_was_expected() {
    // Rules refuse, but the kernel allows it: with a BPF token, for example.
    let report = Report::new(user_with(CapSet::default()), passed());
    assert!(report.live.works && report.exit() == Exit::Ok);
    assert!(report.task_metrics.iter().all(|line| line.available));

    // Rules allow it, but the kernel refuses: its words are shown, with libbpf's.
    let report = Report::new(bare_metal(), failed(eperm()));
    assert_eq!(report.exit(), Exit::CouldNotMeasure);
    let text = unwrapped(&render_text(&report, 80, true));
    assert!(text.contains("Operation not permitted (os error 1)") && text.contains("BTF loading error"));
    assert!(report.task_metrics.iter().all(|line| !line.available));
}

#[test]
fn a_first_step_that_works_does_not_hide_why_the_next_one_fails() {
    let mut trials = passed();
    trials[0].name = "task storage";
    let eperm = anyhow::Error::from(io::Error::from_raw_os_error(libc::EPERM)).context("loading sched.bpf.o");
    trials.push(Trial {
        name: "sched_switch",
        parts: &[Facility::CpuTime],
        outcome: Err(eperm),
        log: Vec::new(),
    });

    let report = Report::new(user_with(CapSet::of(&[Capability::Bpf])), trials);

    assert_eq!(report.exit(), Exit::Privilege);
    let pid = report.task_metrics.iter().find(|line| line.id == "pid").unwrap();
    assert_eq!(pid.missing.as_ref().unwrap().to_string(), "CAP_PERFMON is missing (uid 1000)");
}

#[test]
fn counters_that_fail_on_a_cpu_do_not_stop_the_live_view() {
    let mut trials = passed();
    let refused = anyhow::Error::msg("opening a counter on CPU 1 cycles: Too many open files (os error 24)");
    let parts = &[Facility::Counters, Facility::Counter(Role::Cycles), Facility::Counter(Role::Instructions)];
    trials.push(Trial { name: "counters on each CPU", parts, outcome: Err(refused), log: Vec::new() });

    let report = Report::new(bare_metal(), trials);

    assert_eq!(report.exit(), Exit::Ok);
    let ipc = report.task_metrics.iter().find(|line| line.id == "ipc").unwrap();
    assert!(ipc.missing.as_ref().is_some_and(|why| why.to_string().contains("os error 24")));
}

#[test]
fn a_sandbox_that_forbids_move_pages_takes_placement_away_and_nothing_else() {
    let mut trials = passed();
    let refused = anyhow::Error::msg("locating pages of the process: Operation not permitted (os error 1)");
    trials.push(Trial {
        name: "location of memory by node",
        parts: &[Facility::Placement],
        outcome: Err(refused),
        log: Vec::new(),
    });

    let report = Report::new(bare_metal(), trials);

    assert_eq!(report.exit(), Exit::Ok);
    let lost: Vec<&str> =
        report.task_metrics.iter().filter(|line| !line.available).map(|line| line.id).collect();
    assert_eq!(
        lost,
        ["mem_pct_by_node", "mem_bytes_by_node", "mem_error_points", "mem_age_ms", "remote_best_pct"]
    );
}

#[test]
fn text_fits_its_width() {
    let mut nothing_known = bare_metal();
    nothing_known.topology = Fact::unknown("opening /sys/devices/system/cpu/online: no such file");
    nothing_known.privileges.effective = Fact::unknown("/proc/self/status: No such file (os error 2)");
    for host in [bare_metal(), without_pmu(), without_btf(), linux_5_10(), default_container(), nothing_known]
    {
        for width in [60, 80, 120] {
            let report = Report::new(host.clone(), failed(eperm()));
            for line in render_text(&report, width, true).lines() {
                let command =
                    line.trim_start().starts_with("sudo ") || line.trim_start().starts_with("docker ");
                // An obstacle to the live view is written as on stderr, for 80 columns.
                assert!(
                    line.chars().count() <= if command { 80 } else { width.max(80) },
                    "{width}: {line:?}"
                );
                assert_eq!(line, line.trim_end());
            }
        }
    }
}

#[test]
fn json_has_every_metric() {
    for report in [Report::new(bare_metal(), passed()), Report::new(without_btf(), Vec::new())] {
        let json = render_json(&report);
        assert_eq!(json["schema"], 1);
        for metric in TASK_METRICS {
            assert_eq!(json["task_metrics"][metric.id]["available"], report.live.works, "{}", metric.id);
        }
        for metric in NODE_METRICS {
            assert_eq!(json["node_metrics"][metric.id]["available"], report.live.works, "{}", metric.id);
        }
    }
}

#[test]
fn json_names_what_scripts_look_up() {
    let json = render_json(&Report::new(user_with(CapSet::default()), failed(eperm())));
    assert_eq!(json["live"]["works"], false);
    assert_eq!(json["live"]["exit"], 3);
    let command = &json["live"]["refusal"]["advice"][1]["command"];
    assert_eq!(command, "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep $(command -v numatop-ng)");
    assert_eq!(json["facts"]["kernel"]["perf_event_paranoid"], 2);
    assert_eq!(json["facts"]["kernel"]["lockdown"], "none");
    assert_eq!(json["facts"]["privileges"]["uid"], 1000);
    assert_eq!(json["facts"]["privileges"]["effective"], serde_json::json!([]));
    assert_eq!(json["facts"]["topology"]["nodes"], 2);
    assert_eq!(json["facts"]["cgroups"]["mode"], "unified");
    assert_eq!(json["probes"][0]["works"], false);
    assert_eq!(json["task_metrics"]["pid"]["why"], "CAP_BPF and CAP_PERFMON are missing (uid 1000)");
}

#[test]
fn this_machine() {
    let report = Report::gather(None);

    let text = render_text(&report, 80, true);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped in part: what root sees needs root");
        return;
    }
    assert!(report.live.works, "{text}");
    let failed: Vec<_> = report.probes.iter().filter(|probe| !probe.works).collect();
    // Most virtual machines have none of these: the reason is shown, and nothing depends on it.
    const USUAL: [(&str, &str); 2] = [
        ("accesses sampled by the PMU", "no PMU here samples accesses"),
        ("memory controllers", "no PMU of memory controllers"),
    ];
    let is_usual =
        |probe: &Probe| USUAL.iter().any(|(name, why)| probe.probe == *name && probe.detail.contains(why));
    assert!(failed.iter().all(|probe| is_usual(probe)), "{text}");
    assert!(text.contains("ok    type information (BTF)"), "{text}");
    for trial in &report.facts.pmu.trials {
        // A counter counts, or the errno is shown.
        match &trial.outcome {
            Ok(()) => assert!(unwrapped(&text).contains(&format!("{}: counts", trial.event.name)), "{text}"),
            Err(why) => assert!(unwrapped(&text).contains(&why.to_string()), "{why} in {text}"),
        }
    }
    let nodes = report.facts.topology.known().expect("sysfs is there").nodes.len();
    assert!(text.contains(&format!("ok    {nodes} node")), "{text}");
}
