//! The units of pkg/systemd: systemd takes them without a word, they keep little open, and the program takes their flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use numatop_ng::cli::Cli;

use crate::program;

const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pkg/systemd");
const SERVICES: [&str; 2] = ["numatop-ng-record.service", "numatop-ng-exporter.service"];

/// systemd-analyze with these words. A program that is not installed fails the test.
fn analyze(words: &[&str], files: &[PathBuf]) -> Output {
    let output = Command::new("systemd-analyze").args(words).args(files).output();
    output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; scripts/install-deps test installs it"))
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// The lines of a unit that set `key`, in order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(UNITS).join(unit)).unwrap();
    let front = format!("{key}=");
    text.lines().filter_map(|line| line.strip_prefix(&front)).map(str::to_owned).collect()
}

/// Copies of all units, and the drop-in in its place, with the program that was built in place of the installed one.
struct Copies(PathBuf);

impl Copies {
    fn new() -> Copies {
        let folder = std::env::temp_dir().join(format!("numatop-units-{}", std::process::id()));
        let drop_in = folder.join("numatop-ng-record.service.d");
        fs::create_dir_all(&drop_in).unwrap();
        for entry in fs::read_dir(UNITS).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
            let place = if name == "hot-spots.conf" { &drop_in } else { &folder };
            let text = fs::read_to_string(&path).unwrap().replace("/usr/bin/numatop-ng", program::path());
            fs::write(place.join(name), text).unwrap();
        }
        Copies(folder)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn systemd_takes_the_units_without_a_word() {
    let copies = Copies::new();
    let names = ["numatop-ng-record.service", "numatop-ng-exporter.service", "numatop-ng-exporter.socket"];
    let verify = || analyze(&["verify", "--man=no"], &names.map(|name| copies.0.join(name)));
    let output = verify();
    assert!(output.status.success() && text(&output).is_empty(), "{}", text(&output));
    // A key that does not exist is seen, so that silence means something.
    let drop_in = copies.0.join("numatop-ng-record.service.d/hot-spots.conf");
    let more = fs::read_to_string(&drop_in).unwrap() + "ProtectEverything=yes\n";
    fs::write(&drop_in, more).unwrap();
    assert!(text(&verify()).contains("ProtectEverything"), "{}", text(&verify()));
}

#[test]
fn the_services_keep_little_open() {
    for service in SERVICES {
        // Exposure from 0 to 10, times ten.
        let words = ["security", "--offline=yes", "--threshold=20", "--no-pager"];
        let output = analyze(&words, &[Path::new(UNITS).join(service)]);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("Overall exposure level"), "{text}");
    }
}

#[test]
fn the_program_takes_the_flags_of_the_units_and_of_the_file_of_flags() {
    let flags = fs::read_to_string(Path::new(UNITS).join("numatop-ng.default")).unwrap();
    for service in SERVICES {
        let [start] = &values(service, "ExecStart")[..] else { panic!("{service} has one command") };
        let set = values(service, "Environment");
        let (variable, value) = set[0].trim_matches('"').split_once('=').unwrap();
        assert!(start.contains(&format!("${variable}")), "{service}: {start}");
        let words = start.replace(&format!("${variable}"), value);
        Cli::from_words(words.split_whitespace()).unwrap_or_else(|error| panic!("{service}: {error}"));
        // The file of flags shows the defaults.
        assert!(flags.contains(&format!("#{variable}=\"{value}\"")), "{variable} in numatop-ng.default");
    }
}

#[test]
fn the_services_can_do_what_the_program_needs_and_see_what_it_measures() {
    for service in SERVICES {
        for key in ["CapabilityBoundingSet", "AmbientCapabilities"] {
            let set = values(service, key).join(" ");
            for needed in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"] {
                assert!(set.split(' ').any(|word| word == needed), "{service}: {key} has no {needed}");
            }
        }
        for hides in ["ProtectProc", "ProcSubset", "PrivateUsers", "PrivatePIDs"] {
            assert!(values(service, hides).is_empty(), "{service}: {hides} hides processes of others");
        }
    }
}
