//! The layers of the library: who may use whom, and in which rooms the machine and the clock are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules from the bottom to the top, across crates. A module uses those in lines above its own only. The compiler holds the
/// order of crates (`crates/*/Cargo.toml`); this table holds that of modules in a crate.
const LAYERS: &[&[&str]] = &[
    &["text", "overhead"],
    &["model"],
    &["access", "hot"],
    &["snapshot"],
    &["entity", "metric"],
    &["finding"],
    &["sys"],
    &["program", "host"],
    &["known", "pmu", "container"],
    &["collect", "record"],
    &["analysis", "calibrate", "outcome", "report"],
    &["symbolize", "diff", "error", "export", "tables", "traces"],
    &["synthetic"],
    &["settings", "source", "exporter"],
    &["selftest"],
    &["tui", "cli"],
    &["options", "list"],
    &["doctor"],
    &["run"],
];

/// Modules of the live view from the bottom to the top: the views, and above them the threads. A module uses
/// only modules in lines above its own.
const TUI_LAYERS: &[&[&str]] = &[
    &["input", "screen_writer", "ring", "theme"],
    &["history"],
    &["state"],
    &["widgets"],
    &["screens"],
    &["update"],
    &["terminal"],
    &["mail", "scan"],
    &["closeup", "deriver"],
    &["collector"],
    &["player"],
];

/// Modules and files that take values and return values: no file, no system call, no clock.
const PURE: &[&str] = &[
    "access",
    "analysis",
    "calibrate/classes",
    "calibrate/job",
    "calibrate/merge",
    "calibrate/plan",
    "calibrate/results",
    "calibrate/show",
    "calibrate/stats",
    "cli",
    "diff",
    "entity",
    "exporter/families",
    "exporter/ledger",
    "exporter/page",
    "exporter/places",
    "exporter/request",
    "exporter/top",
    "finding",
    "hot",
    "known/random",
    "list",
    "metric",
    "model",
    "outcome",
    "overhead",
    "report",
    "selftest/expected",
    "selftest/judge",
    "selftest/reasons",
    "selftest/report",
    "selftest/show",
    "selftest/verdicts",
    "settings",
    "snapshot",
    "synthetic",
    "tables",
    "text",
    "traces",
];

/// Rooms outside of these layers in which files are opened.
const FILES: &[&str] = &[
    "calibrate",
    "collect",
    "container",
    "exporter",
    "host",
    "known",
    "pmu",
    "program",
    "record",
    "run",
    "source",
    "symbolize",
    "sys",
    "tui",
];

/// The folders with code of the product: that of the program, and those of the crates.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path().join("src"));
    std::iter::once(root.join("src")).chain(crates).collect()
}

/// The module of a file of the product, its path below src/, and its code without comments and tests.
fn files() -> Vec<(String, PathBuf, String)> {
    let mut found = Vec::new();
    for src in sources() {
        let mut folders = vec![src.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                if path.extension().is_none_or(|extension| extension != "rs") {
                    continue;
                }
                let below = path.strip_prefix(&src).unwrap();
                let module = Path::new(below.iter().next().unwrap()).with_extension("");
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines();
                let code: Vec<&str> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
                found.push((module.to_str().unwrap().to_owned(), below.to_owned(), code.join("\n")));
            }
        }
    }
    assert!(found.len() > 500, "the source was not found");
    found
}

/// Modules that a piece of code names behind `crate::`.
fn used(code: &str) -> BTreeSet<String> {
    used_behind("crate::", code)
}

/// Names that a piece of code has behind `path`.
fn used_behind(path: &str, code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(path) {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + path.len()..];
        let words: Vec<&str> = match rest.strip_prefix('{') {
            // The first word of each part of the list.
            Some(list) => {
                let mut depth = 0;
                let parts = list.split(|next: char| {
                    match next {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        _ => {}
                    }
                    depth < 0 || depth == 0 && next == ','
                });
                parts.take_while(|part| !part.starts_with(';')).collect()
            }
            None => vec![rest],
        };
        for word in words {
            let name: String =
                word.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                used.insert(name);
            }
        }
    }
    used
}

#[test]
fn modules_use_those_below_them_only() {
    let layer_of: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, modules)| modules.iter().map(move |module| (*module, layer)))
        .collect();
    let mut wrong = BTreeSet::new();
    for (module, path, code) in files() {
        if matches!(module.as_str(), "lib" | "main") {
            continue;
        }
        let own = *layer_of.get(module.as_str()).unwrap_or_else(|| panic!("{module} has no place in LAYERS"));
        for other in used(&code) {
            match layer_of.get(other.as_str()) {
                Some(layer) if other == module || *layer < own => {}
                Some(_) => {
                    wrong.insert(format!("{}: {module} uses {other}", path.display()));
                }
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "not below it:\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn pure_modules_ask_neither_the_machine_nor_a_clock() {
    let asks =
        ["std::fs", "fs::", "rustix::", "libc::", "Instant::now", "SystemTime::now", "std::env", "sys::"];
    let mut wrong = Vec::new();
    for (module, path, code) in files() {
        let file = path.with_extension("");
        if PURE.iter().any(|pure| *pure == module || Path::new(pure) == file) {
            let found = asks.iter().filter(|ask| code.contains(*ask));
            wrong.extend(found.map(|ask| format!("{}: {ask}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "these take and return values only:\n{}", wrong.join("\n"));
}

#[test]
fn files_are_opened_in_few_rooms() {
    let mut wrong = Vec::new();
    for (module, path, code) in files() {
        let opens = ["std::fs", "File::open", "rustix::fs"].iter().any(|ask| code.contains(ask));
        if opens && !FILES.contains(&module.as_str()) {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "files are opened in:\n{}", wrong.join("\n"));
}

/// Rooms with their own ways to open files: files of the kernel, files of users in a helper process or with
/// even more care, and the guard itself.
const OPENS: &[&str] = &[
    "calibrate/child",
    "calibrate/machine",
    "collect",
    "container/asked",
    "container/files",
    "container/limits",
    "host",
    "known",
    "pmu",
    "program/guard",
    "program/helper",
    "program/interruptible",
    "program/served",
    "program/sockets",
    "record/dir",
    "source/witness",
    "symbolize",
    "sys",
];

/// Calls that open, make or change what a path leads to.
const BY_PATH: &[&str] = &[
    "File::open",
    "File::create",
    "OpenOptions",
    "DirBuilder",
    "fs::write(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::copy(",
    "fs::rename(",
    "fs::remove_",
    "fs::create_dir",
    "fs::set_permissions(",
    "fs::hard_link(",
    "unix::fs::symlink(",
    "unix::fs::chown(",
    "rustix::fs::open",
    " openat(",
    " openat2(",
    ".canonicalize(",
    "UnixListener::bind(",
    "UnixDatagram::",
];

#[test]
fn what_others_may_have_prepared_is_opened_in_one_way() {
    let mut wrong = Vec::new();
    for (_, path, code) in files() {
        let file = path.with_extension("");
        let is_test = file.file_name().is_some_and(|name| name == "tests");
        if is_test || OPENS.iter().any(|room| file.starts_with(room)) {
            continue;
        }
        let found = BY_PATH.iter().filter(|call| code.contains(*call));
        wrong.extend(found.map(|call| format!("{}: {call}", path.display())));
    }
    assert!(wrong.is_empty(), "program/guard.rs and program/sockets.rs do that:\n{}", wrong.join("\n"));
}

/// Calls that the thread that samples does not make: it asks a helper (`container/asked.rs`, `container/groups.rs`).
#[test]
fn the_thread_that_samples_reads_nothing_of_users() {
    let mut wrong = Vec::new();
    for (module, path, code) in files() {
        let samples = matches!(module.as_str(), "source" | "collect" | "tui" | "run" | "exporter");
        let waits = [
            "ContainerNames",
            "users::homes",
            "sd_notify::notify",
            "UnixStream::connect",
            "cgroup_walk::walk",
        ];
        if samples {
            let found = waits.iter().filter(|call| code.contains(*call));
            wrong.extend(found.map(|call| format!("{}: {call}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "these wait for somebody:\n{}", wrong.join("\n"));
}

/// Places with unsafe code: calls of C, and loops in assembly.
const UNSAFE: [&str; 2] = ["sys", "known/asm"];

#[test]
fn unsafe_code_is_in_two_places() {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (_, path, code) in files() {
        // The skeletons of BPF programs, which collect.rs allows it in, are generated into another folder.
        if !["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word)) {
            continue;
        }
        let file = path.with_extension("");
        match UNSAFE.iter().find(|place| file.starts_with(place)) {
            Some(place) => drop(seen.insert(*place)),
            None => wrong.push(path.display().to_string()),
        }
    }
    assert!(wrong.is_empty(), "unsafe code is in:\n{}", wrong.join("\n"));
    assert_eq!(seen.len(), UNSAFE.len(), "one has none: {seen:?}");
}

/// Files of the live view below its own folder: their places in it without the extension, and their code.
fn files_of_tui() -> Vec<(Vec<String>, String)> {
    let name = |part: &std::path::Component<'_>| part.as_os_str().to_str().unwrap().to_owned();
    let below =
        files().into_iter().filter(|(module, path, _)| module == "tui" && path.components().count() > 1);
    below
        .map(|(_, path, code)| {
            let path = path.with_extension("");
            (path.components().skip(1).map(|part| name(&part)).collect(), code)
        })
        .collect()
}

#[test]
fn parts_of_the_live_view_use_those_below_them_only() {
    let layer = |name: &str| TUI_LAYERS.iter().position(|modules| modules.contains(&name));
    let mut wrong = BTreeSet::new();
    for (place, code) in files_of_tui() {
        let own = layer(&place[0]).unwrap_or_else(|| panic!("{} has no place in TUI_LAYERS", place[0]));
        let mut used = used_behind("crate::tui::", &code);
        if place.len() == 1 {
            used.extend(used_behind("super::", &code));
        }
        let above =
            used.iter().filter(|other| **other != place[0] && layer(other).is_some_and(|at| at >= own));
        wrong.extend(above.map(|other| format!("tui/{} uses {other}", place.join("/"))));
    }
    assert!(wrong.is_empty(), "not below it:\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn views_do_not_know_each_other() {
    let files: Vec<_> = files_of_tui().into_iter().filter(|(place, _)| place[0] == "screens").collect();
    let views: BTreeSet<String> = files.iter().filter_map(|(place, _)| place.get(1).cloned()).collect();
    assert!(views.len() > 6, "the views were not found");
    let mut wrong = Vec::new();
    for (place, code) in files.iter().filter(|(place, _)| place.len() > 1) {
        let up = "super::".repeat(place.len() - 1);
        let mut used = used_behind("crate::tui::screens::", code);
        used.extend(used_behind(&up, code));
        let others = used.iter().filter(|other| **other != place[1] && views.contains(*other));
        wrong.extend(others.map(|other| format!("tui/{} uses {other}", place.join("/"))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_screen_derives_nothing() {
    let mut wrong = Vec::new();
    for (place, code) in files_of_tui() {
        let code = code.replace("#[derive(", "");
        let derives = ["snapshot::derive", "derive_tasks", "derive("].iter().any(|call| code.contains(call));
        if derives && place[0] != "history" {
            wrong.push(place.join("/"));
        }
    }
    assert!(
        wrong.is_empty(),
        "intervals are derived on a thread of their own, not in:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_module_that_is_used_is_found() {
    let names = |code| used(code).into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::host::fact;"), ["host"]);
    assert_eq!(
        names("use crate::{metric::{a, b}, model};\nlet x = crate::text::clean(y);"),
        ["metric", "model", "text"]
    );
    assert!(names("my_crate::other").is_empty());
}

/// Names of files in back quotes that are no pattern and no placeholder (`x.rs`).
#[test]
fn files_that_the_architecture_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_dir() {
                files.push(path);
            } else if !path.ends_with("target") && !path.ends_with(".git") {
                folders.push(path);
            }
        }
    }
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let name = regex_lite::Regex::new(r"`([\w/.-]+\.(?:rs|c|h|toml|md|sh|py))`").unwrap();
    let named = name.captures_iter(&text).map(|found| found[1].to_owned());
    let gone: Vec<String> = named
        .filter(|named| !named.rsplit('/').next().unwrap().starts_with("x."))
        .filter(|named| !files.iter().any(|file| file.ends_with(named)))
        .collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names files that do not exist: {gone:?}");
}
