//! Event tables beside the facts of upstream lists: encodings, counters, errata, sources, roles that are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::printed;
use super::upstream::{self, Fact};
use numatop_ng::model::event::Role;
use numatop_ng::pmu::table::{self, CounterPlace, Entry, Table};

/// The way in which an entry is known to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It equals an entry in a list of this CPU.
    Equal,
    /// It ORs values that a list of this CPU has.
    Composed,
    /// It equals an entry in a list of another CPU, or the architecture's, and is marked so.
    Assumed,
    /// The kernel knows which event it is.
    Kernel,
}

/// Errata that no event list has: table, event, errata. From AMD's revision guides 55449 (Zen) and 56323 (Zen 2), as
/// rr-debugger/rr issue 2034 and icl-utk-edu/papi issue 160 quote them.
const OF_REVISION_GUIDES: [(&str, &str, &[&str]); 4] = [
    ("amd/zen1", "ex_ret_instr", &["990", "1054"]),
    ("amd/zen1", "ex_ret_brn_misp", &["990"]),
    ("amd/zen2", "ex_ret_instr", &["1291"]),
    ("amd/zen2", "ex_ret_brn_misp", &["1291"]),
];

/// Whole sources of lines, and their parts (ends of names).
const SOURCES_OF_LINES: [(&str, &[&str]); 4] = [
    ("dram_io_all", &["dram_io_near", "dram_io_far"]),
    ("fills_from_memory", &["mem_io_local", "mem_io_remote"]),
    ("far_all", &["far_cache", "dram_io_far"]),
    ("fills_from_remote_node", &["ext_cache_remote", "mem_io_remote"]),
];

fn same(fact: &Fact, name: &str) -> bool {
    fact.name.eq_ignore_ascii_case(name)
}

fn term(entry: &Entry, name: &str) -> u64 {
    entry.terms().and_then(|terms| terms.value(name)).unwrap_or(0)
}

/// Terms that differ between an entry and a fact.
fn differences(entry: &Entry, fact: &Fact) -> Vec<&'static str> {
    let mut differ = Vec::new();
    let mut compare = |what, equal: bool| {
        if !equal {
            differ.push(what);
        }
    };
    compare("event", fact.events.contains(&term(entry, "event")));
    compare("umask", fact.umasks.contains(&term(entry, "umask")));
    compare("cmask", fact.cmask == term(entry, "cmask"));
    compare("inv", fact.inv == term(entry, "inv"));
    compare("edge", fact.edge == term(entry, "edge"));
    compare("any", fact.any == term(entry, "any"));
    compare("offcore_rsp", fact.msr == term(entry, "offcore_rsp"));
    differ
}

/// The way in which an entry is known to be right.
///
/// # Errors
/// It is not: the reason.
fn kind(table: &Table, entry: &Entry, about: &[&Fact]) -> Result<Kind, String> {
    if entry.kernel.is_some() {
        return Ok(Kind::Kernel);
    }
    let own: Vec<&&Fact> = about.iter().filter(|fact| same(fact, &entry.name)).collect();
    if !entry.composed.is_empty() {
        if !own.is_empty() {
            return Err("composed, but a list names it".into());
        }
        return composed(entry, about).map(|()| Kind::Composed);
    }
    if !own.is_empty() {
        let wrong: Vec<String> = own
            .iter()
            .map(|fact| (fact, differences(entry, fact)))
            .filter(|(_, differ)| !differ.is_empty())
            .map(|(fact, differ)| format!("{} differs in {}: {fact:?}", fact.list, differ.join(", ")))
            .collect();
        return match (wrong.is_empty(), entry.assumed) {
            (true, false) => Ok(Kind::Equal),
            (true, true) => Err("assumed, but a list of this CPU has it".into()),
            (false, _) => Err(wrong.join("; ")),
        };
    }
    let of_others = || {
        upstream::facts().iter().any(|fact| same(fact, &entry.name) && differences(entry, fact).is_empty())
    };
    let code = term(entry, "event");
    let of_architecture = || upstream::sysfs().contains(&(code, entry.name.to_lowercase()));
    match entry.assumed || table.fallback.is_some() {
        true if of_others() || of_architecture() => Ok(Kind::Assumed),
        true => Err("assumed, and no list has it".into()),
        false => Err("no list of this CPU has it".into()),
    }
}

/// Recomputes a composed value.
fn composed(entry: &Entry, about: &[&Fact]) -> Result<(), String> {
    let (mut umask, mut msr, mut events) = (0, 0, BTreeSet::new());
    for part in &entry.composed {
        let fact = about.iter().find(|fact| same(fact, part)).ok_or_else(|| format!("no list has {part}"))?;
        msr |= fact.msr;
        if msr == 0 {
            umask |= fact.umasks[0];
        }
        events.extend(&fact.events);
    }
    let offcore = term(entry, "offcore_rsp") != 0;
    let code = term(entry, "event");
    // A half of an offcore value has no separate code: its codes are those of other offcore events.
    let offcore_codes = || about.iter().filter(|fact| fact.msr != 0).flat_map(|fact| &fact.events).copied();
    if events.is_empty() {
        events.extend(offcore_codes());
    }
    let equal = events.contains(&code)
        && if offcore { msr == term(entry, "offcore_rsp") } else { umask == term(entry, "umask") };
    if equal {
        Ok(())
    } else {
        Err(format!("its parts give umask {umask:#x}, offcore_rsp {msr:#x}, codes {events:x?}"))
    }
}

/// Every entry of every table.
fn entries() -> impl Iterator<Item = (&'static str, &'static Table, &'static Entry, Vec<&'static Fact>)> {
    table::built_in().flat_map(|(id, table)| {
        let about = upstream::about(table);
        table.events.iter().map(move |entry| (id, table, entry, about.clone()))
    })
}

fn complain(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_encoding_is_that_of_a_list_or_made_of_it() {
    let wrong: Vec<String> = entries()
        .filter_map(|(id, table, entry, about)| {
            let why = kind(table, entry, &about).err()?;
            Some(format!("{id}: {}: {why}", entry.name))
        })
        .collect();
    complain(&wrong);
}

#[test]
fn counters_are_those_of_the_list() {
    let place = |counters: &str| match counters {
        "-" => None,
        fixed if fixed.starts_with("Fixed") => Some(CounterPlace::Fixed),
        "0,1,2,3" => Some(CounterPlace::FirstFour),
        _ => Some(CounterPlace::FirstEight),
    };
    let mut wrong = Vec::new();
    for (id, _, entry, about) in entries() {
        for fact in about.iter().filter(|fact| same(fact, &entry.name)) {
            if place(&fact.counters).is_some_and(|place| place != entry.counters) {
                wrong
                    .push(format!("{id}: {}: {:?}, listed as {}", entry.name, entry.counters, fact.counters));
            }
        }
    }
    complain(&wrong);
}

#[test]
fn errata_are_those_of_the_lists_and_of_revision_guides() {
    let mut wrong = Vec::new();
    for (id, _, entry, about) in entries() {
        let listed = about.iter().filter(|fact| same(fact, &entry.name)).flat_map(|fact| fact.errata.clone());
        let mut known: BTreeSet<String> = listed.collect();
        for (table, event, errata) in OF_REVISION_GUIDES {
            if table == id && event == entry.name {
                known.extend(errata.iter().map(ToString::to_string));
            }
        }
        let key = entry.errata.as_deref().unwrap_or("");
        let ours: BTreeSet<String> =
            key.split(", ").filter(|one| !one.is_empty()).map(str::to_string).collect();
        if ours != known {
            wrong.push(format!("{id}: {}: {ours:?}, listed {known:?}", entry.name));
        }
    }
    complain(&wrong);
}

/// Page sizes in names of events.
const PAGES: [&str; 8] = ["4k", "2m", "1g", "16k", "32k", "coalesced", "2m_4m", "4_k"];

/// Masks that an entry has to cover, from facts about parts of the same event.
fn parts_of(entry: &Entry, about: &[&Fact]) -> u64 {
    let code = term(entry, "event");
    let name = entry.name.to_lowercase();
    let of_code = || about.iter().filter(|fact| fact.events == [code] && fact.msr == 0);
    let pages = of_code().filter(|fact| {
        let part = fact.name.to_lowercase();
        // Intel begins names of parts with that of the whole; AMD has one event for hits and misses of the second level.
        let intel = part.starts_with(&format!("{name}_"));
        let amd = fact.list.starts_with("linux/amd") && !part.contains("hit");
        matches!(entry.role, Role::Dtlb | Role::Itlb)
            && (intel || amd)
            && PAGES.iter().any(|page| part.contains(page))
    });
    let sources = SOURCES_OF_LINES.iter().filter(|(whole, _)| name.ends_with(whole));
    let sources = sources
        .flat_map(|(_, ends)| of_code().filter(|fact| ends.iter().any(|end| fact.name.ends_with(end))));
    pages.chain(sources).fold(0, |union, fact| union | fact.umasks[0])
}

#[test]
fn a_whole_covers_all_its_parts() {
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for (id, _, entry, about) in entries().filter(|(_, _, entry, _)| entry.encoding.is_some()) {
        let parts = parts_of(entry, &about);
        looked += u32::from(parts != 0);
        if parts & !term(entry, "umask") != 0 {
            wrong.push(format!("{id}: {}: its parts have umask {parts:#x}", entry.name));
        }
    }
    complain(&wrong);
    assert!(looked > 20, "{looked}");
}

/// The list that a source names, if facts from it are kept.
fn list_of(source: &str) -> Option<String> {
    let (from, path) = source.split_once(':')?;
    let named = match from {
        "perfmon" => format!("perfmon/{}", path.split('/').next()?),
        "arm-data" => format!("arm-data/{}", path.trim_start_matches("pmu/").trim_end_matches(".json")),
        "libpfm4" => format!("libpfm4/{}", path.strip_prefix("lib/events/")?.trim_end_matches(".h")),
        "linux" => {
            let path = path.strip_prefix("tools/perf/pmu-events/arch/")?.split_once('/')?.1;
            let folder = path.rsplit_once('/').filter(|(_, file)| file.ends_with(".json"));
            format!("linux/{}", folder.map_or(path, |(folder, _)| folder))
        }
        _ => return None,
    };
    upstream::facts().iter().any(|fact| fact.list == named).then_some(named)
}

#[test]
fn a_source_that_names_a_list_is_one_that_has_the_event() {
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for (id, _, entry, _) in entries() {
        for list in entry.source.split("; ").filter_map(list_of) {
            looked += 1;
            let has = |name: &str| upstream::facts().iter().any(|fact| fact.list == list && same(fact, name));
            let all_parts = !entry.composed.is_empty() && entry.composed.iter().all(|part| has(part));
            if !has(&entry.name) && !all_parts {
                wrong.push(format!("{id}: {}: {list} does not have it", entry.name));
            }
        }
    }
    complain(&wrong);
    assert!(looked > 300, "{looked}");
}

#[test]
fn a_role_is_left_out_only_where_no_list_has_it() {
    let mut wrong = Vec::new();
    for (id, table) in table::built_in() {
        let facts = upstream::about(table);
        for (role, part) in upstream::role_names() {
            if !table.absent.keys().any(|absent| absent.id() == role) {
                continue;
            }
            let found = facts.iter().filter(|fact| fact.name.to_lowercase().contains(&part));
            wrong.extend(
                found.map(|fact| format!("{id}: {role} is left out, {} has {}", fact.list, fact.name)),
            );
        }
    }
    complain(&wrong);
}

#[test]
fn the_documentation_says_how_entries_compare_with_lists() {
    let mut kinds: BTreeMap<&str, BTreeMap<Kind, usize>> = BTreeMap::new();
    for (id, table, entry, about) in entries() {
        if let Ok(kind) = kind(table, entry, &about) {
            *kinds.entry(id).or_default().entry(kind).or_default() += 1;
        }
    }
    let mut text = String::from(
        "| table | equal | composed | assumed | by the kernel's name |\n|---|---|---|---|---|\n",
    );
    let mut sum: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut line = |name: &str, counts: &BTreeMap<Kind, usize>| {
        let [equal, composed, assumed, kernel] = [Kind::Equal, Kind::Composed, Kind::Assumed, Kind::Kernel]
            .map(|kind| counts.get(&kind).copied().unwrap_or(0));
        writeln!(text, "| {name} | {equal} | {composed} | {assumed} | {kernel} |").unwrap();
    };
    for (id, counts) in &kinds {
        line(id, counts);
        for (kind, count) in counts {
            *sum.entry(*kind).or_default() += count;
        }
    }
    line("all", &sum);
    printed::compare("<!-- printed from upstream facts -->\n", &text);
}
