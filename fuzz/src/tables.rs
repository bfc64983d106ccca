//! Event tables and folders of PMUs of any content: sets and names of events are chosen soundly.
//!
//! An input is one table, or a tree: tables below `tables/`, a machine below `sys/` and `proc/`.

use std::path::Path;

use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::sample::Missing;
use numatop_ng::pmu::budget::Budget;
use numatop_ng::pmu::catalog::Catalog;
use numatop_ng::pmu::open::SLOTS;
use numatop_ng::pmu::sets::{Chooser, SETS};
use numatop_ng::pmu::table::Table;

use super::tree::{Tree, entries};

/// Reads the table or the machine described by `input`. Returns the number of events: of the machine, or of
/// the table if it is sound.
pub fn read(input: &[u8]) -> usize {
    let (text, entries) = entries(input);
    if entries.is_empty() {
        return Table::parse(&String::from_utf8_lossy(text)).map_or(0, |table| check_table(&table));
    }
    let tree = Tree::new(&entries);
    let own = tree.root.join("tables");
    // A table that is refused is the only table of its folder: the built-in ones are read without it.
    let own = own.is_dir().then_some(own.as_path());
    let catalog = match Catalog::read(&tree.root, own) {
        Ok(catalog) => catalog,
        Err(_) => Catalog::read(&tree.root, None).expect("the built-in tables are sound"),
    };
    check_catalog(&tree.root, &catalog)
}

fn check_table(table: &Table) -> usize {
    for role in Role::MEASURED {
        assert_ne!(table.covers(role), table.absent.contains_key(&role), "{}", role.id());
    }
    for entry in &table.events {
        assert!(entry.rank >= 1);
        assert_eq!(entry.encoding.is_some(), entry.terms().is_some(), "{}", entry.name);
        assert!(entry.encoding.is_some() != entry.kernel.is_some(), "{}", entry.name);
    }
    table.events.len()
}

fn check_catalog(root: &Path, catalog: &Catalog) -> usize {
    assert!(!catalog.cores.is_empty(), "there is an entry for the cores of every machine");
    let mut events = 0;
    for core in &catalog.cores {
        check_table(&core.table);
        assert_eq!(core.entries.len(), core.table.events.len());
        for resolved in &core.entries {
            let named = catalog.named(&resolved.entry.name.to_uppercase()).expect("it is there");
            assert!(named.entry.name.eq_ignore_ascii_case(&resolved.entry.name));
            let Ok(event) = &resolved.event else { continue };
            let device = core.device.as_ref().expect("only a PMU has events");
            assert_eq!((&event.name, event.role), (&resolved.entry.name, resolved.entry.role));
            assert!(resolved.entry.kernel.is_some() || event.kind == device.kind);
            events += 1;
        }
    }
    for most in [0, 1, 3, usize::MAX] {
        for list in SETS.iter().map(|(set, ..)| *set).chain(["auto,stalls,tlb,cache"]) {
            choose(root, catalog, list, most);
        }
    }
    events
}

/// Chooses for a list of sets on a machine where `most` events count together.
fn choose(root: &Path, catalog: &Catalog, list: &str, most: usize) {
    let mut opens = |events: &[Event]| {
        if events.len() <= most { Ok(()) } else { Err(Missing::Unsupported("it takes turns".into())) }
    };
    for subnuma in [false, true] {
        let budget = Budget::read(root, catalog, subnuma, None);
        assert!(budget.free() <= budget.general);
        let choice = Chooser { catalog, budget, subnuma, opens: &mut opens }.choose(list);
        let choice = choice.expect("sets are chosen on every machine");
        assert!(choice.events.len() <= SLOTS && choice.events.len() <= most.max(1) && !choice.takes_turns);
        let lma_of_two = catalog.cores.iter().any(|core| core.table.lma_is_llc_less_rma);
        for role in
            SETS.iter().filter(|(set, ..)| list.split(',').any(|word| word == *set)).flat_map(|set| set.1)
        {
            let counted = choice.events.iter().any(|event| event.role == *role);
            let by_two = *role == Role::Lma && lma_of_two;
            assert!(
                counted || by_two || choice.absent.contains_key(role),
                "{} is neither counted nor has it a reason",
                role.id()
            );
        }
    }
}
