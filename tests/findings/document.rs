//! The list of rules in docs/findings.md is that of the table.

use std::fs;
use std::path::Path;

use numatop_ng::finding::rules::RULES;
use numatop_ng::list::findings::render_markdown;

/// Set to rewrite the list instead of comparing with it.
const ACCEPT: &str = "NUMATOP_ACCEPT_GOLDENS";

const BEGIN: &str = "cargo test --test findings -->\n\n";
const END: &str = "<!-- end of the list -->";

#[test]
fn the_list_in_the_documents_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/findings.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (list, tail) = rest.split_once(END).unwrap();
    let wanted = render_markdown();
    if std::env::var_os(ACCEPT).is_some() {
        fs::write(&path, format!("{head}{BEGIN}{wanted}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(list, wanted, "{ACCEPT}=1 rewrites it");
}

#[test]
fn sources_and_rules_that_are_named_exist() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/findings.md")).unwrap();
    for source in RULES.iter().flat_map(|rule| rule.limits).flat_map(|limit| limit.source.split('[').skip(1))
    {
        let id = source.split(']').next().unwrap();
        assert!(text.contains(&format!("\n| {id} |")), "docs/findings.md has no source {id}");
    }
    let not_built = text.split_once("## Not built").unwrap().1.split_once("## Sources").unwrap().0;
    for id in RULES.iter().map(|rule| rule.id) {
        assert!(!not_built.contains(&format!("`{id}`")), "{id} is built");
    }
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
