//! The list of rules in docs/rules.md is that of the table.

use std::fs;
use std::path::Path;

use numatop_ng::finding::rules::RULES;
use numatop_ng::list::registers::rules_as_markdown;

/// Set to rewrite the list instead of comparing with it.
const ACCEPT: &str = "NUMATOP_ACCEPT_GOLDENS";

const BEGIN: &str = "cargo test --test findings -->\n\n";
const END: &str = "<!-- end of the list -->";

#[test]
fn the_list_in_the_documents_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (list, tail) = rest.split_once(END).unwrap();
    let wanted = rules_as_markdown();
    if std::env::var_os(ACCEPT).is_some() {
        fs::write(&path, format!("{head}{BEGIN}{wanted}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(list, wanted, "{ACCEPT}=1 rewrites it");
}

#[test]
fn sources_that_are_named_exist() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md")).unwrap();
    for source in RULES.iter().flat_map(|rule| rule.limits).flat_map(|limit| limit.source.split('[').skip(1))
    {
        let id = source.split(']').next().unwrap();
        assert!(text.contains(&format!("\n| {id} |")), "docs/rules.md has no source {id}");
    }
}

#[test]
fn every_rule_has_a_row_about_its_loop_and_what_the_row_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let text = read("tests/findings/README.md");
    let table = text.split_once("## Closed loops").unwrap().1;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let ids: Vec<String> = RULES.iter().map(|rule| format!("`{}`", rule.id)).collect();
    let of_rows: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(of_rows, ids, "one row for each rule, in the order of the table of rules");
    let (guests, tests) =
        (read("vmtests/guests.toml"), read("tests/findings/loops.rs") + &read("tests/probes/printed.rs"));
    let healthy = read("tests/findings/healthy.rs") + &read("tests/findings/healthy_long.rs");
    for row in &rows {
        let [rule, fired, silent, closed] = row[..] else { panic!("{row:?}") };
        for name in [fired, closed].iter().flat_map(|cell| cell.split("guest `").skip(1)).map(first) {
            assert!(guests.contains(&format!("\"{name}\"")), "{rule}: no guest runs {name}");
        }
        for name in closed.split("test `").skip(1).map(first) {
            assert!(tests.contains(&format!("fn {name}()")), "{rule}: there is no test {name}");
        }
        for name in silent.split(", ").filter_map(|world| world.strip_prefix('H')) {
            assert!(healthy.contains(&format!("fn h{name:0>2}_")), "{rule}: there is no world H{name}");
        }
        let says = ["guest `", "by test `", "no: "].iter().any(|begin| closed.starts_with(begin));
        assert!(says, "{rule}: {closed}");
    }
}

/// The text to the next backtick.
fn first(rest: &str) -> &str {
    rest.split('`').next().unwrap_or_default()
}

#[test]
fn every_guard_has_a_test_with_its_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings");
    let files = [
        "balancing.rs",
        "cores.rs",
        "devices.rs",
        "disks.rs",
        "huge_pages.rs",
        "infos.rs",
        "large.rs",
        "machine_rules.rs",
        "memory.rs",
        "neighbours.rs",
        "nodes.rs",
        "page_sizes.rs",
        "placement.rs",
        "scheduling.rs",
        "sockets.rs",
        "tiers.rs",
    ];
    let code: String = files.iter().map(|file| fs::read_to_string(folder.join(file)).unwrap()).collect();
    for rule in RULES {
        let module = rule.id.replace('-', "_");
        let (_, rest) =
            code.split_once(&format!("mod {module} {{\n")).unwrap_or_else(|| panic!("{}", rule.id));
        let body = rest.split("\n}\n").next().unwrap();
        assert!(body.contains("fn fires()"), "{}: nothing fires", rule.id);
        for (word, _) in rule.not_when {
            let test = format!("fn not_{}()", word.replace('-', "_"));
            assert!(body.contains(&test), "{}: there is no test {test}", rule.id);
        }
    }
}
