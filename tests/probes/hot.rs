//! Hot spots compared with the known shares of time that a program spends in its functions.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{intervals, last_interval, numatop};
use crate::program;
use crate::workload::{ForEverybody, Workload};

/// The work of the workload "shares": functions, and their share of its time in per cent.
const TRUTH: [(&str, f64); 3] = [("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)];
/// 95 of 100 times the share of 60 % is within 2.2 points with this many samples a second, for two seconds.
const RATE: &str = "997";
const TOLERANCE: f64 = 3.0;

/// Flags of batch output with functions, in intervals of two seconds.
const FLAGS: [&str; 12] = [
    "-b",
    "-d",
    "2",
    "--format",
    "json",
    "--hot",
    "--hot-event",
    "cpu-clock",
    "--hot-rate",
    RATE,
    "--events",
    "",
];

/// Samples the workload for two seconds. A busy machine may take longer than an interval to look for names: they are in the
/// next one.
fn hot(words: &[&str]) -> Result<Value> {
    let mut lines = intervals(&[&["-n", "2"], &FLAGS[..], words].concat())?;
    ensure!(lines.len() == 2, "{} intervals", lines.len());
    Ok(lines.remove(1)["hot"].take())
}

fn functions(hot: &Value, pid: u32) -> Result<&Vec<Value>> {
    let processes = hot["processes"].as_array().context("processes")?;
    let process = processes.iter().find(|process| process["pid"] == pid);
    process.context("the workload was not sampled")?["functions"].as_array().context("functions")
}

fn function<'a>(functions: &'a [Value], name: &str) -> Result<&'a Value> {
    let is = |found: &&Value| {
        let found = found["function"].as_str().unwrap_or_default();
        found == name || found.ends_with(&format!("::{name}"))
    };
    functions.iter().find(is).with_context(|| format!("no {name} among {functions:?}"))
}

fn shares_are_right(hot: &Value, pid: u32) -> Result<()> {
    let functions = functions(hot, pid)?;
    for (name, truth) in TRUTH {
        let found = function(functions, name)?;
        let share = found["own_pct"].as_f64().context("own_pct")?;
        let error = found["own_error_pct"].as_f64().context("own_error_pct")?;
        println!("{name}: {share:.1} % ± {error:.1}, truth {truth} %");
        // On a busy machine the workload gets little time, and few samples.
        let allowed = TOLERANCE.max(1.6 * error);
        ensure!((share - truth).abs() <= allowed, "{name} has {share:.1} %, truth {truth} %: {functions:#?}");
        ensure!(found["kernel"] == false);
    }
    ensure!(hot["lost"].as_object().is_some_and(|lost| lost.values().all(|count| count == 0)), "{hot}");
    Ok(())
}

pub fn functions_have_the_shares_they_burn() -> Result<()> {
    let workload = Workload::start("shares")?;
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    ensure!(hot["event"] == "cpu-clock" && hot["rate_hz"] == 997, "{hot}");
    let processes = hot["processes"].as_array().context("processes")?;
    ensure!(processes.len() == 1, "{} processes in a scope of one", processes.len());
    shares_are_right(&hot, workload.pid())
}

pub fn a_recording_names_functions_of_a_process_that_is_gone() -> Result<()> {
    let file = std::env::temp_dir().join(format!("numatop-ng-hot-{}.nrec", std::process::id()));
    let path = file.to_str().context("a temporary directory in UTF-8")?;
    let workload = Workload::start("shares")?;
    let pid = workload.pid();
    // A busy machine may take longer than the first interval to look for names: they are in the next one.
    let words = ["-d", "3", "-n", "2", "--hot", "--hot-event", "cpu-clock", "--hot-rate", RATE, "-p"];
    let output = numatop(&[&["record", path], &words[..], &[&pid.to_string()]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(workload);
    let lines = intervals(&["export", path, "--format", "json"])?;
    fs::remove_file(&file)?;
    ensure!(lines.len() == 2, "{} intervals", lines.len());
    shares_are_right(&lines[1]["hot"], pid)
}

pub fn kernel_functions_are_named() -> Result<()> {
    let workload = Workload::start("faulter")?;
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    let functions = functions(&hot, workload.pid())?;
    let fault = functions.iter().find(|found| found["function"] == "handle_mm_fault");
    let fault = fault.with_context(|| format!("no handle_mm_fault among {functions:?}"))?;
    ensure!(fault["kernel"] == true && fault["total_pct"].as_f64() > Some(10.0), "{fault}");
    Ok(())
}

/// A directory that a program runs in as its root: the program and its libraries.
struct Root {
    dir: PathBuf,
}

impl Root {
    fn make(program: &Path) -> Result<Root> {
        let root = Root { dir: std::env::temp_dir().join(format!("numatop-ng-root-{}", std::process::id())) };
        fs::create_dir(&root.dir)?;
        let listed = Command::new("ldd").arg(program).output().context("running ldd")?;
        let listed = String::from_utf8(listed.stdout)?;
        let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
        for library in libraries {
            root.copy(Path::new(library), library)?;
        }
        root.copy(program, "/workload")?;
        Ok(root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }

    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.at(to);
        fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
        fs::copy(from, &to).with_context(|| format!("copying {}", from.display()))?;
        Ok(())
    }

    fn start(&self, name: &str) -> Result<Workload> {
        let dir = self.dir.clone();
        Workload::start_program(Path::new("/workload"), name, |command| {
            // SAFETY: chroot and chdir are safe to call between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    std::os::unix::fs::chroot(&dir)?;
                    std::env::set_current_dir("/")
                });
            }
        })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn functions_are_named_inside_another_root() -> Result<()> {
    let root = Root::make(&std::env::current_exe()?)?;
    let workload = root.start("shares")?;
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    shares_are_right(&hot, workload.pid())?;
    ensure!(function(functions(&hot, workload.pid())?, "sixty")?["module"] == "workload");
    Ok(())
}

pub fn a_program_that_was_removed_has_names() -> Result<()> {
    let copy = ForEverybody::copy(&std::env::current_exe()?)?;
    let workload = Workload::start_program(&copy.program, "shares", |_| {})?;
    drop(copy);
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    shares_are_right(&hot, workload.pid())
}

/// The needs of a stripped program and its split symbols.
pub fn no_binutils() -> Option<&'static str> {
    let runs = |tool| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    let all = ["objcopy", "ldd", "xz"].into_iter().all(runs);
    (!all).then_some("objcopy, ldd or xz is not installed (binutils, libc-bin, xz-utils)")
}

fn objcopy(words: &[&str], from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("objcopy").args(words).arg(from).arg(to).status().context("running objcopy")?;
    ensure!(status.success(), "objcopy {words:?}: {status}");
    Ok(())
}

pub fn a_stripped_program_has_the_names_of_its_debug_file() -> Result<()> {
    let program = std::env::current_exe()?;
    let root = Root::make(&program)?;
    objcopy(&["--strip-all"], &program, &root.at("/workload"))?;
    let without = {
        let workload = root.start("shares")?;
        let hot = hot(&["-p", &workload.pid().to_string()])?;
        function(functions(&hot, workload.pid())?, "sixty").is_ok()
    };
    ensure!(!without, "it was not stripped");
    let id = build_id(&program)?;
    let debug = root.at(&format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    fs::create_dir_all(debug.parent().context("a file is in a directory")?)?;
    objcopy(&["--only-keep-debug"], &program, &debug)?;
    let workload = root.start("shares")?;
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    shares_are_right(&hot, workload.pid())
}

pub fn a_stripped_program_has_the_names_of_the_file_it_is_linked_to() -> Result<()> {
    let program = std::env::current_exe()?;
    let root = Root::make(&program)?;
    fs::create_dir(root.at("/.debug"))?;
    let debug = root.at("/.debug/symbols");
    objcopy(&["--only-keep-debug"], &program, &debug)?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &program, &root.at("/workload"))?;
    let workload = root.start("shares")?;
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    shares_are_right(&hot, workload.pid())
}

pub fn a_stripped_program_has_the_names_in_its_packed_symbols() -> Result<()> {
    let program = std::env::current_exe()?;
    let root = Root::make(&program)?;
    let (debug, symbols) = (root.at("/debug"), root.at("/symbols"));
    objcopy(&["--only-keep-debug"], &program, &debug)?;
    // As rpm's find-debuginfo makes it, with few functions.
    let words = ["sixty", "thirty", "ten"].map(|name| format!("--keep-symbol=*{name}*"));
    let words: Vec<&str> =
        ["--strip-all", "--wildcard"].into_iter().chain(words.iter().map(String::as_str)).collect();
    objcopy(&words, &debug, &symbols)?;
    let packed = Command::new("xz").arg(&symbols).status().context("running xz")?;
    ensure!(packed.success(), "xz: {packed}");
    let section = format!("--add-section=.gnu_debugdata={}.xz", symbols.display());
    objcopy(&["--strip-all", &section], &program, &root.at("/workload"))?;
    let workload = root.start("shares")?;
    let hot = hot(&["-p", &workload.pid().to_string()])?;
    shares_are_right(&hot, workload.pid())
}

fn build_id(program: &Path) -> Result<String> {
    let notes = Command::new("readelf").arg("-n").arg(program).output().context("running readelf")?;
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let line = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    Ok(line.context("the test binary has no build id")?.to_string())
}

pub fn a_compiler_at_run_time_names_its_code() -> Result<()> {
    names_of_a_compiler("jit")
}

pub fn a_compiler_names_its_code_in_a_file_of_memory() -> Result<()> {
    names_of_a_compiler("jit-in-memfd")
}

fn names_of_a_compiler(workload: &str) -> Result<()> {
    let mut workload = Workload::start(workload)?;
    let place = workload.line()?;
    let map = format!("/tmp/perf-{}.map", workload.pid());
    fs::write(&map, format!("{place} Interpreter::loop\n"))?;
    let hot = hot(&["-p", &workload.pid().to_string()]);
    fs::remove_file(&map)?;
    let hot = hot?;
    let found = function(functions(&hot, workload.pid())?, "loop")?.clone();
    ensure!(found["own_pct"].as_f64() > Some(90.0) && found["module"] == "[jit]", "{found}");
    Ok(())
}

pub fn nothing_is_sampled_unless_asked_for() -> Result<()> {
    let lines = intervals(&["-b", "-n", "1", "-d", "0.2", "--format", "json"])?;
    ensure!(lines[0].get("hot").is_none(), "{}", lines[0]["hot"]);
    Ok(())
}

pub fn hot_spots_are_those_of_the_rows_that_are_shown() -> Result<()> {
    let named = |comm: &str| {
        Workload::start_with("hog", |command| {
            command.env("NUMATOP_NG_TEST_COMM", comm);
        })
    };
    let (ours, other) = (named("shown-hog")?, named("hidden-hog")?);
    let pids = format!("{},{}", ours.pid(), other.pid());
    let place = crate::recording::Place::new("hot-rows", None)?;
    let file = place.path.join("file");
    let file = crate::recording::text(&file)?;
    let sampled = ["--hot", "--hot-event", "cpu-clock", "-n", "2", "-d", "0.5", "-p", &pids];
    let live = [&["-b", "--format", "json"][..], &sampled].concat();
    let recorded = numatop(&[&["record", file][..], &sampled].concat())?;
    ensure!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let filter = ["--comm", "^shown-"];
    for (all, names) in [
        (live, "batch"),
        (vec!["replay", file, "-b", "--format", "json"], "replay"),
        (vec!["export", file, "--format", "json"], "export"),
    ] {
        let pids = |words: &[&str]| -> Result<Vec<u64>> {
            let lines = intervals(words)?;
            let processes = |line: &Value| line["hot"]["processes"].as_array().cloned().unwrap_or_default();
            let mut pids: Vec<u64> =
                lines.iter().flat_map(processes).filter_map(|process| process["pid"].as_u64()).collect();
            pids.sort_unstable();
            pids.dedup();
            Ok(pids)
        };
        let both = pids(&all)?;
        ensure!(both.len() == 2, "{names}: {both:?} were sampled");
        let shown = pids(&[&all[..], &filter].concat())?;
        ensure!(shown == [u64::from(ours.pid())], "{names}: {shown:?} instead of {}", ours.pid());
    }
    Ok(())
}

pub fn functions_are_named_in_a_time_namespace() -> Result<()> {
    let workload = Workload::start("shares")?;
    for offset in ["864000", "-1"] {
        let output = Command::new("unshare")
            .args(["--time", "--boottime", offset, "--monotonic", offset])
            .arg(program::path())
            .args(["-n", "4"])
            .args(FLAGS)
            .stdin(Stdio::null())
            .output()
            .context("starting unshare")?;
        let line = last_interval(&output)?;
        shares_are_right(&line["hot"], workload.pid()).with_context(|| format!("{offset} s"))?;
    }
    Ok(())
}
