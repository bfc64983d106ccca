//! Options of the command line.

use std::path::PathBuf;

use crate::kernels::Arch;
use crate::plan::{Variant, Wanted};

pub const USAGE: &str = "\
usage: vmtests/run [--core | --all] [options]      run cases in guests (default: --core)
       vmtests/run --shell [options]               sit in a guest with the tool and busybox
       vmtests/run --list [options]                say what would run
       vmtests/run --matrix FILE                   print the support matrix from results
       vmtests/run --fetch                         get all kernels, newest point release
       vmtests/run --layouts                       compare bpf/core_compat.bpf.h with the types of each kernel

  --kernel NAME      5.10, 6.1, 6.12, 7.x (names of vmtests/KERNELS); may be repeated, as the next four
  --arch ARCH        amd64 or arm64
  --topology NAME    1, 2, 4, 16, 2+1, … (names of vmtests/topologies.toml)
  --variant NAME     plain, icount0, icount1, icount2, nopmu, integrity, confidentiality
  --case NAME        only this case
  --jobs N           guests at a time (default: one for each CPU, at most 4; one guest keeps one CPU busy)
  --json FILE        add every result line to FILE
  --again            run only what has not passed by the results in FILE (of --json)
  --accept           take what was seen as the new vmtests/snapshots
  --verbose          print every check, not only the failed ones

A shell takes --kernel, --arch, --topology and --variant, once each.

Exit status: 0 all that was asked for ran and passed, 1 something failed or was skipped, or nothing passed, 2 wrong usage
or no such guest, 3 what ran passed, but a kernel or the binaries of an architecture could not be had (\"not covered\").";

/// Default number of guests at a time: the largest has 2 GiB.
const JOBS_MAX: usize = 4;

#[derive(Debug, PartialEq)]
pub enum Mode {
    Run,
    Shell,
    List,
    Fetch,
    Layouts,
    Matrix(PathBuf),
    /// For `build-static`: sources of the standard library for this version of the compiler.
    RustSrc(String),
    Help,
}

#[derive(Debug)]
pub struct Options {
    pub mode: Mode,
    pub wanted: Wanted,
    /// Guests at a time, from 1 on.
    pub jobs: usize,
    pub json: Option<PathBuf>,
    /// Leaves out the cases that passed by the results in `json`.
    pub again: bool,
    pub accept: bool,
    pub verbose: bool,
    /// Only check whether the requested things are available. Set by `vmtests/run`, before it builds.
    pub check: bool,
    /// Directory with the static binaries: `DIR/ARCH/{guest,numatop-ng}`. Set by `vmtests/run`.
    pub binaries: PathBuf,
    /// Architectures whose binaries this machine cannot build: their guests are not covered.
    /// Set by `vmtests/run`.
    pub not_built: Vec<Arch>,
    /// Directory of the reviewed snapshots.
    pub snapshots: PathBuf,
}

pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        mode: Mode::Run,
        wanted: Wanted::default(),
        jobs: std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(JOBS_MAX)),
        json: None,
        again: false,
        accept: false,
        verbose: false,
        check: false,
        binaries: PathBuf::from("target/static/vm"),
        not_built: Vec::new(),
        snapshots: PathBuf::from("vmtests/snapshots"),
    };
    let mut all = false;
    // Options that a shell has no use for, as they were named.
    let mut of_runs = None;
    // Directory that the caller's paths are relative to. Set by `vmtests/run`, which changes its own.
    let mut from = PathBuf::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        if matches!(
            name.as_str(),
            "--case" | "--jobs" | "--json" | "--again" | "--accept" | "--verbose" | "--core" | "--all"
        ) {
            of_runs.get_or_insert(name.clone());
        }
        if flag(&mut options, &mut all, &name) {
            match inline {
                Some(value) => return Err(format!("{name} takes no value, and got {value:?}")),
                None => continue,
            }
        }
        let mut value =
            || inline.clone().or_else(|| arguments.next()).ok_or_else(|| format!("{name} wants a value"));
        match name.as_str() {
            "--kernel" => options.wanted.kernels.push(value()?),
            "--arch" => options.wanted.archs.push(Arch::parse(&value()?)?),
            "--topology" => options.wanted.topologies.push(value()?),
            "--variant" => options.wanted.variants.push(Variant::parse(&value()?)?),
            "--case" => options.wanted.cases.push(value()?),
            "--jobs" => {
                let text = value()?;
                let jobs = text.parse().ok().filter(|&jobs| jobs > 0);
                options.jobs =
                    jobs.ok_or_else(|| format!("--jobs wants a number from 1 on, not {text:?}"))?;
            }
            "--json" => options.json = Some(value()?.into()),
            "--from" => from = value()?.into(),
            "--binaries" => options.binaries = value()?.into(),
            "--matrix" => options.mode = Mode::Matrix(value()?.into()),
            "--rust-src" => options.mode = Mode::RustSrc(value()?),
            "--not-built" => options.not_built.push(Arch::parse(&value()?)?),
            other => return Err(format!("{other:?} is not an option")),
        }
    }
    options.json = options.json.map(|path| from.join(path));
    if let Mode::Matrix(path) = &mut options.mode {
        *path = from.join(&path);
    }
    let wanted = &mut options.wanted;
    let narrowed = !(wanted.kernels.is_empty()
        && wanted.archs.is_empty()
        && wanted.topologies.is_empty()
        && wanted.variants.is_empty()
        && wanted.cases.is_empty());
    if options.mode == Mode::Shell {
        if let Some(name) = of_runs {
            return Err(format!("{name} is for runs, and --shell is none"));
        }
        for (what, asked) in [
            ("--kernel", wanted.kernels.len()),
            ("--arch", wanted.archs.len()),
            ("--topology", wanted.topologies.len()),
            ("--variant", wanted.variants.len()),
        ] {
            if asked > 1 {
                return Err(format!("{what} was given {asked} times, and a shell is in one guest"));
            }
        }
    }
    if options.again && options.json.is_none() {
        return Err("--again wants the results of the run before: --json FILE".to_owned());
    }
    if all && wanted.core {
        return Err("--core and --all exclude each other".to_owned());
    }
    // A guest that is named is wanted, in the core set or not.
    wanted.core |= !all && !narrowed;
    Ok(options)
}

/// Takes an option that has no value. False for all others.
fn flag(options: &mut Options, all: &mut bool, name: &str) -> bool {
    match name {
        "--again" => options.again = true,
        "--accept" => options.accept = true,
        "--verbose" => options.verbose = true,
        "--check" => options.check = true,
        "--core" => options.wanted.core = true,
        "--all" => *all = true,
        "--shell" => options.mode = Mode::Shell,
        "--list" => options.mode = Mode::List,
        "--fetch" => options.mode = Mode::Fetch,
        "--layouts" => options.mode = Mode::Layouts,
        "--help" | "-h" => options.mode = Mode::Help,
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Options, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_core_set_is_the_default_and_a_name_lifts_it() {
        assert!(of("").unwrap().wanted.core);
        assert!(!of("--all").unwrap().wanted.core);
        assert!(!of("--kernel 5.10").unwrap().wanted.core);
        assert!(of("--core --arch arm64").unwrap().wanted.core);
        assert!(of("--core --all").is_err());
    }

    #[test]
    fn values_come_with_a_space_or_an_equals_sign() {
        let options = of("--kernel=6.12 --arch aarch64 --topology 2+1 --case nodes").unwrap();
        assert_eq!(options.wanted.kernels, ["6.12"]);
        assert_eq!(options.wanted.archs, [Arch::Arm64]);
        assert_eq!(of("--kernel").unwrap_err(), "--kernel wants a value");
        assert_eq!(of("--jobs 3").unwrap().jobs, 3);
        assert_eq!(of("--jobs 0").unwrap_err(), "--jobs wants a number from 1 on, not \"0\"");
        assert_eq!(of("--kernle 6.1").unwrap_err(), "\"--kernle\" is not an option");
    }

    #[test]
    fn a_flag_takes_no_value() {
        assert_eq!(of("--accept=no").unwrap_err(), "--accept takes no value, and got \"no\"");
        assert!(of("--all=false").is_err());
        assert!(of("--accept").unwrap().accept);
    }

    #[test]
    fn a_repeat_needs_the_results_that_it_goes_by() {
        assert!(of("--all --again").unwrap_err().contains("--json FILE"));
        assert!(of("--all --again --json results.jsonl").unwrap().again);
    }

    #[test]
    fn a_shell_is_in_one_guest_and_runs_no_cases() {
        assert_eq!(of("--shell --topology 16 --arch arm64").unwrap().mode, Mode::Shell);
        assert_eq!(of("--case load --shell").unwrap_err(), "--case is for runs, and --shell is none");
        assert!(of("--shell --kernel 6.1 --kernel 6.12").unwrap_err().contains("2 times"));
    }

    #[test]
    fn files_are_those_of_the_caller_s_directory() {
        let options = of("--from /home/user --json results.jsonl").unwrap();
        assert_eq!(options.json, Some("/home/user/results.jsonl".into()));
        let options = of("--from /home/user --matrix=/tmp/results.jsonl").unwrap();
        assert_eq!(options.mode, Mode::Matrix("/tmp/results.jsonl".into()));
    }
}
