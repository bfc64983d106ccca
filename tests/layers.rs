//! The layers of the library: who may use whom, and in which rooms the machine and the clock are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules from the bottom to the top. A module uses those in lines above its own only.
const LAYERS: &[&[&str]] = &[
    &["sys", "text"],
    &["model", "say", "signals"],
    &["overhead", "remote", "pace", "access", "hot", "host"],
    &["pmu", "container", "snapshot"],
    &["metric"],
    &["collect", "filter", "record", "marks"],
    &["symbolize", "error", "export"],
    &["source"],
    &["batch", "replay", "tui", "cli"],
    &["options", "events_cmd", "metrics_cmd", "topology_cmd"],
    &["doctor"],
    &["modes"],
];

/// Modules that take values and return values: no file, no system call, no clock.
const PURE: &[&str] = &[
    "access",
    "cli",
    "events_cmd",
    "filter",
    "hot",
    "marks",
    "metric",
    "metrics_cmd",
    "model",
    "overhead",
    "snapshot",
    "text",
    "topology_cmd",
];

/// Rooms outside of these layers in which files are opened.
const FILES: &[&str] = &[
    "collect",
    "container",
    "host",
    "modes",
    "pmu",
    "record",
    "remote",
    "source",
    "symbolize",
    "sys",
    "tui",
];

/// The module of a file below src/, and its code without comments and tests.
fn files() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
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
    assert!(found.len() > 200, "the source was not found");
    found
}

/// Modules that a piece of code names behind `crate::`.
fn used(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
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
        if PURE.contains(&module.as_str()) {
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
