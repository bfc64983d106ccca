//! Cgroups with any names, and container engines that say anything: names are clean and short, and rows form a tree.
//!
//! An input is a tree of engine files. Three files at its top are for this target: `paths` (a cgroup on each line),
//! `patterns` (of the command line), and `answer` (of an engine on its socket).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tree::{Content, Tree, entries};
use numatop_ng::container::group::describe;
use numatop_ng::container::names::{ContainerNames, Name};
use numatop_ng::container::patterns::identify;
use numatop_ng::container::runtime;
use numatop_ng::container::scope::Scope;
use numatop_ng::container::select::{self, Tree as Cgroups, Want, Wants};
use numatop_ng::model::group::Engine::{self, *};
use numatop_ng::model::group::Group;
use numatop_ng::text;

/// Characters of a name.
const NAME_MAX: usize = 128;
/// Lines of a file of this target, and bytes of one.
const LINES_MAX: usize = 24;
const LINE_MAX: usize = 300;
/// Cgroups of a tree, and patterns that are looked for in it.
const CGROUPS_MAX: u64 = 60;
const PATTERNS_MAX: usize = 2;

const ENGINES: [Engine; 7] = [Docker, Podman, CriO, Containerd, Nerdctl, Unknown, Qemu];

/// Identifies, names and selects the cgroups described by `input`. Returns the number of names found.
pub fn read(input: &[u8]) -> usize {
    let (before, entries) = entries(input);
    let of = |name: &str| {
        let file = entries.iter().find(|entry| entry.path.as_os_str() == name);
        match file.map(|entry| &entry.content) {
            Some(Content::File(content)) => content,
            _ => &b""[..],
        }
    };
    // Without a mark an input is a list of paths.
    let mut paths = lines(of("paths"));
    paths.extend(lines(before));
    let mut named = answer(of("answer"));
    let tree = Tree::new(&entries);
    named += names(&tree, &entries, &paths);
    let groups = rows(&tree, &paths);
    patterns(&lines(of("patterns")), &groups);
    named
}

fn lines(content: &[u8]) -> Vec<String> {
    let lines =
        content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line.len() <= LINE_MAX);
    lines.take(LINES_MAX).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

fn answer(bytes: &[u8]) -> usize {
    let Ok(names) = runtime::parse(bytes) else { return 0 };
    for (id, name) in &names {
        assert!(is_id(id), "{id:?}");
        check_name(name);
    }
    names.len()
}

/// Names by the files of engines, for each id in a path or in a file.
fn names(tree: &Tree, entries: &[super::tree::Entry<'_>], paths: &[String]) -> usize {
    let files = entries.iter().flat_map(|entry| match entry.content {
        Content::File(content) => [entry.path.to_string_lossy(), String::from_utf8_lossy(content)],
        Content::Link(_) => [entry.path.to_string_lossy(), "".into()],
    });
    let files = files.map(|text| text.into_owned());
    let all = files.chain(paths.iter().cloned()).collect::<Vec<String>>().join("/");
    let words: BTreeSet<&str> =
        all.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| is_id(word)).collect();
    let mut book = ContainerNames::new(&tree.root);
    let mut found = 0;
    for id in words.into_iter().take(8) {
        for engine in ENGINES {
            let name = book.container(engine, id, Some(1000));
            assert_eq!(name, book.container(engine, id, Some(1000)), "the same files give the same name");
            name.iter().for_each(check_name);
            found += usize::from(name.is_some());
        }
    }
    for uid in all.split('/').filter_map(|part| part.rsplit('_').next()).take(32) {
        book.pod(uid).iter().for_each(check_name);
    }
    assert!(book.take_troubles().is_empty(), "no engine was asked");
    found
}

/// The rows of cgroups with these paths.
fn rows(tree: &Tree, paths: &[String]) -> (BTreeMap<u64, String>, BTreeMap<u64, Arc<Group>>) {
    let mut by_id: BTreeMap<u64, String> = BTreeMap::from([(1, "/".to_string())]);
    for path in paths {
        identify(path);
        // As the kernel makes them: each component is a directory, and each path exists once.
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).take(70).collect();
        for level in 1..=parts.len() {
            let path = format!("/{}", parts[..level].join("/"));
            let next = by_id.len() as u64 + 1;
            if next < CGROUPS_MAX && !by_id.values().any(|known| *known == path) {
                by_id.insert(next, path);
            }
        }
    }
    let groups = describe(&by_id, &BTreeMap::new(), &mut ContainerNames::new(&tree.root));
    assert!(groups.keys().eq(by_id.keys()));
    for (id, group) in &groups {
        let texts = [&group.id, &group.pod, &group.pod_uid, &group.namespace, &group.unit];
        texts.into_iter().flatten().chain([&group.name]).for_each(|text| check_text(text));
        assert!(!group.name.is_empty(), "{} has no name", by_id[id]);
        let top = &by_id[&group.top];
        let own = &by_id[id];
        assert!(own.starts_with(top.as_str()), "{top:?} is not above {own:?}");
        assert_eq!(group.parent.is_none(), own == "/", "{own:?}");
        if let Some(parent) = group.parent {
            assert!(by_id[&parent].len() < own.len() || by_id[&parent] == "/");
        }
    }
    (by_id, groups)
}

fn patterns(patterns: &[String], (paths, groups): &(BTreeMap<u64, String>, BTreeMap<u64, Arc<Group>>)) {
    let tree = Cgroups { paths, groups };
    for pattern in patterns.iter().take(PATTERNS_MAX) {
        for path in paths.values().take(16) {
            let found = select::matches(pattern, path);
            assert_eq!(found, slowly(pattern, path), "{pattern:?} {path:?}");
            assert!(select::matches("**", path) && select::matches(path, path) || path.contains(['*', '?']));
        }
        let word = || pattern.clone();
        let (namespace, name) = pattern.split_once('/').unwrap_or(("", pattern));
        let pod = Want::Pod {
            namespace: (!namespace.is_empty()).then(|| namespace.to_string()),
            name: name.to_string(),
        };
        let wants = [Want::Cgroup(word()), Want::Exactly(word()), Want::Container(word()), pod];
        let more = [Want::Namespace(word()), Want::Unit(word()), Want::Machine(word())];
        for want in wants.into_iter().chain(more) {
            let wants = Wants { wants: vec![want], host: true, wait: false };
            assert!(text::is_clean(&wants.describe()));
            let (scope, unmatched) = wants.resolve(&tree, &Scope::default());
            assert!(scope.by_cgroup && scope.cgroups.iter().all(|id| paths.contains_key(id)));
            assert_eq!(scope.cgroups.is_empty(), unmatched.len() == 1);
            for offer in unmatched.iter().flat_map(|unmatched| &unmatched.closest) {
                assert!(text::is_clean(offer), "{offer:?}");
            }
        }
    }
}

/// The answer of [`select::matches`] by its definition: each star is every number of characters.
fn slowly(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let mut known = vec![None; (pattern.len() + 1) * (text.len() + 1)];
    rest(&pattern, &text, 0, 0, &mut known)
}

fn rest(pattern: &[char], text: &[char], at: usize, from: usize, known: &mut [Option<bool>]) -> bool {
    let place = at * (text.len() + 1) + from;
    if let Some(known) = known[place] {
        return known;
    }
    let matches = match &pattern[at..] {
        [] => from == text.len(),
        ['*', '*', ..] => {
            rest(pattern, text, at + 2, from, known)
                || from < text.len() && rest(pattern, text, at, from + 1, known)
        }
        ['*', ..] => {
            rest(pattern, text, at + 1, from, known)
                || from < text.len() && text[from] != '/' && rest(pattern, text, at, from + 1, known)
        }
        [wanted, ..] => {
            from < text.len()
                && (text[from] == *wanted || *wanted == '?' && text[from] != '/')
                && rest(pattern, text, at + 1, from + 1, known)
        }
    };
    known[place] = Some(matches);
    matches
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn check_name(name: &Name) {
    assert!(!name.name.is_empty(), "{name:?}");
    check_text(&name.name);
    name.pod.iter().chain(&name.namespace).for_each(|text| check_text(text));
}

fn check_text(name: &str) {
    assert!(text::is_clean(name), "{name:?}");
    assert!(name.chars().count() <= NAME_MAX, "{name:?}");
}
