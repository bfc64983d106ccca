//! Parts of pkg that are neither units nor manifests: the command of kubectl, against a kubectl that prints
//! its arguments, and the list of files of the crate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::scratch;
use numatop_ng::cli::{Cli, Command as Subcommand, MeasureArgs, ScopeArgs};
use scratch::Scratch;

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pkg/kubernetes/kubectl-numatop");

/// Answers like a cluster with the pods cart of the namespace shop, in which we are, and waiting, which is on no node. Words of debug
/// go into the file that LOG names, one a line; it ends as numatop-ng does that found something.
const KUBECTL: &str = r#"#!/bin/sh
case "$1 $2" in
"get pod") ;;
debug*) printf '%s\n' "$@" >"$LOG"; exit 5 ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac
case "$3 $*" in
"cart "*--namespace=other*) echo 'pod "cart" not found' >&2; exit 1 ;;
"cart "*) printf 'shop db-node-2' ;;
"waiting "*) printf 'shop ' ;;
*) echo "pod \"$3\" not found" >&2; exit 1 ;;
esac
"#;

/// The run of the plugin with these words, and the words that it gave to kubectl debug.
fn run(words: &[&str]) -> (Output, Vec<String>) {
    let place = Scratch::new();
    let kubectl = place.join("kubectl");
    fs::write(&kubectl, KUBECTL).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let log = place.join("log");
    let folder = kubectl.parent().unwrap().display().to_string();
    let output = Command::new(PLUGIN)
        .args(words)
        .env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()))
        .env("LOG", &log)
        .env("NUMATOP_NAMESPACE", "tools")
        .env("NUMATOP_IMAGE", "registry.example/numatop-ng:7")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let asked = fs::read_to_string(&log).unwrap_or_default();
    (output, asked.lines().map(str::to_owned).collect())
}

/// The words before and after "--"; the latter are a command line of numatop-ng.
fn debugged(words: &[&str]) -> (Vec<String>, Cli) {
    let (output, asked) = run(words);
    assert_eq!(output.status.code(), Some(5), "its own exit code is that of numatop-ng: {output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("node-debugger-db-node-2-"), "{output:?}");
    let at = asked.iter().position(|word| word == "--").unwrap();
    assert_eq!(asked[at + 1], "/usr/bin/numatop-ng", "where the image has it");
    let cli = Cli::from_words(&asked[at + 1..]).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    (asked[..at].to_vec(), cli)
}

fn of_host(measure: &MeasureArgs) {
    assert_eq!(measure.host.host_root.as_deref(), Some("/host".as_ref()));
    assert_eq!(measure.host_name.as_deref(), Some("db-node-2"));
}

fn pods(scope: &ScopeArgs) -> &[String] {
    &scope.containers.named.pods
}

#[test]
fn a_pod_is_watched_from_its_node() {
    for pod in ["cart", "shop/cart"] {
        let (debug, cli) = debugged(&[pod, "--sort", "-cpu_pct", "-d", "2"]);
        let wanted = [
            "debug",
            "node/db-node-2",
            "-i",
            "--profile=sysadmin",
            "--image=registry.example/numatop-ng:7",
            "--namespace=tools",
        ];
        assert_eq!(debug, wanted, "{pod}");
        of_host(&cli.live.watch.measure);
        assert_eq!(pods(&cli.live.watch.scope), ["shop/cart"], "{pod}");
        assert_eq!(cli.live.watch.measure.delay, 2.0);
    }
}

#[test]
fn a_command_goes_before_the_flags_of_the_node() {
    let (_, cli) = debugged(&["shop/cart", "diagnose", "--for", "30"]);
    let Some(Subcommand::Diagnose(args)) = cli.command else { panic!("{cli:?}") };
    of_host(&args.measure);
    assert_eq!((pods(&args.scope), args.seconds), (&["shop/cart".to_owned()][..], Some(30)));
}

#[test]
fn a_node_is_watched_whole() {
    let (debug, cli) = debugged(&["--node", "db-node-2"]);
    assert_eq!(debug[1], "node/db-node-2");
    of_host(&cli.live.watch.measure);
    assert!(pods(&cli.live.watch.scope).is_empty());
}

#[test]
fn a_pod_that_is_nowhere_is_no_reason_to_start_anything() {
    for (words, code, why) in [
        (&["waiting"][..], 1, "on no node"),
        (&["none"], 1, "not found"),
        (&["other/cart"], 1, "not found"),
        (&[], 2, "usage"),
        (&["--node"], 2, "usage"),
        (&["--help"], 2, "usage"),
    ] {
        let (output, asked) = run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
        assert!(asked.is_empty(), "{words:?}: {asked:?}");
    }
}

#[test]
fn crates_are_packed_with_what_their_builds_need_and_without_tests() {
    let packed = |package: &str, needed: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(["package", "--list", "--locked", "--offline", "--allow-dirty", "-p", package])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let files = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for needed in needed {
            assert!(files.lines().any(|file| file == *needed), "{needed} is not in {package}: {files}");
        }
        assert!(!files.lines().any(|file| file.starts_with("tests/")), "tests are packed in {package}");
    };
    packed("numatop-ng", &["src/main.rs", "LICENSE-MIT"]);
    let build = ["build.rs", "build/bpf.rs", "build/counters.rs", "bpf/sched.bpf.c", "bpf/LICENSE"];
    packed("numatop-ng-measure", &build);
}
