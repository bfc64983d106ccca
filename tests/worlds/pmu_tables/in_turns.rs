//! More events than counters, in groups that fit.

use super::machine::Machine;
use super::{
    Budget, Choice, Chooser, Event, ICE_LAKE, Missing, Role, ZEN_3, catalog, everything_opens, names,
};

/// A thread with this many counters for any event; cycles and instructions have fixed ones.
fn with_counters(general: u32) -> Budget {
    Budget { general, cycles_fixed: true, watchdog: false, tsx_workaround: false }
}

fn in_turns(
    general: u32,
    list: &str,
    opens: &mut dyn FnMut(&[Event]) -> Result<(), Missing>,
) -> Result<Choice, String> {
    let catalog = catalog(&Machine::new(ICE_LAKE));
    let mut chooser = Chooser { catalog: &catalog, budget: with_counters(general), subnuma: false, opens };
    chooser.choose_in_turns(list).map_err(|error| format!("{error:#}"))
}

fn turns(choice: &Choice) -> Vec<Vec<&str>> {
    choice.turns.iter().map(|turn| turn.iter().map(|event| event.name.as_str()).collect()).collect()
}

const PAIRS: &str = "basic,LLC-loads,LLC-load-misses,dTLB-loads,dTLB-load-misses,branches,branch-misses";

#[test]
fn each_turn_has_as_many_as_fit_and_cycles_and_instructions_are_in_all() {
    let choice = in_turns(4, PAIRS, &mut everything_opens).unwrap();
    let expected = [
        vec!["cycles", "instructions", "LLC-loads", "LLC-load-misses", "dTLB-loads", "dTLB-load-misses"],
        vec!["cycles", "instructions", "branches", "branch-misses"],
    ];
    assert_eq!(turns(&choice), expected);
    assert_eq!(names(&choice)[..3], ["cycles", "instructions", "LLC-loads"]);
    assert!(choice.events.len() == 8 && !choice.takes_turns, "the kernel never multiplexes");
    let three = in_turns(2, PAIRS, &mut everything_opens).unwrap();
    assert_eq!(turns(&three)[1], ["cycles", "instructions", "dTLB-loads", "dTLB-load-misses"]);
    assert_eq!(three.turns.len(), 3);
}

#[test]
fn what_fits_at_once_has_no_turns() {
    for (general, list) in [(8, PAIRS), (2, "basic,page-faults,context-switches,cpu-migrations,major-faults")]
    {
        let choice = in_turns(general, list, &mut everything_opens).unwrap();
        assert!(choice.turns.is_empty() && !choice.takes_turns, "{:?}", turns(&choice));
    }
}

#[test]
fn what_a_set_needs_together_has_its_turn_together() {
    let choice = in_turns(3, "auto,tlb", &mut everything_opens).unwrap();
    let roles: Vec<Vec<Role>> =
        choice.turns.iter().map(|turn| turn.iter().map(|event| event.role).collect()).collect();
    let base = [Role::Cycles, Role::Instructions];
    let with = |more: &[Role]| [&base, more].concat();
    assert_eq!(roles, [with(&[Role::Lma, Role::Rma, Role::Dtlb]), with(&[Role::Itlb])]);
    // LMA has room beside the TLB, RMA has not.
    let last = in_turns(3, "tlb,auto", &mut everything_opens).unwrap();
    assert_eq!(last.turns.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    assert!(choice.absent.is_empty(), "{:?}", choice.absent);
    // Without turns the same list leaves some out.
    let catalog = catalog(&Machine::new(ICE_LAKE));
    let mut opens = everything_opens;
    let mut chooser =
        Chooser { catalog: &catalog, budget: with_counters(3), subnuma: false, opens: &mut opens };
    let at_once = chooser.choose("auto,tlb").unwrap();
    assert!(at_once.turns.is_empty() && at_once.absent.len() == 1, "{:?}", at_once.absent);
}

#[test]
fn what_fits_beside_nothing_is_left_out_with_its_reason() {
    let choice = in_turns(1, "auto,branches", &mut everything_opens).unwrap();
    assert_eq!(names(&choice), ["cycles", "instructions", "branches"]);
    assert!(
        choice.absent[&Role::Rma].to_string().contains("no hardware counter is left"),
        "{:?}",
        choice.absent
    );
    let none = in_turns(0, "basic,branches", &mut everything_opens).unwrap();
    assert!(
        none.refused["branches"].to_string().contains("no hardware counter is left"),
        "{:?}",
        none.refused
    );
    assert_eq!(none.asked, ["branches"]);
}

#[test]
fn the_machine_has_the_last_word_on_what_counts_together() {
    // Another tool holds two of the four counters.
    let mut opens = |events: &[Event]| match events.len() {
        0..=4 => Ok(()),
        _ => Err(Missing::Unsupported("it would be multiplexed".into())),
    };
    let choice = in_turns(4, PAIRS, &mut opens).unwrap();
    assert_eq!(turns(&choice).iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4]);
}

#[test]
fn turns_have_no_more_events_than_a_switch_can_read() {
    let error = in_turns(4, &format!("{PAIRS},cache-misses"), &mut everything_opens).unwrap_err();
    assert!(error.contains("9 events") && error.contains("only 8"), "{error}");
    let unknown = in_turns(4, "basic,LLC-laods", &mut everything_opens).unwrap_err();
    assert!(unknown.contains("LLC-loads"), "{unknown}");
}

#[test]
fn cycles_that_need_a_counter_take_one_in_each_turn() {
    let catalog = catalog(&Machine::new(ZEN_3));
    let budget = Budget { cycles_fixed: false, ..with_counters(4) };
    let mut opens = everything_opens;
    let mut chooser = Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut opens };
    let choice = chooser.choose_in_turns("basic,branches,branch-misses,cache-misses").unwrap();
    assert_eq!(
        turns(&choice),
        [
            vec!["cycles", "instructions", "branches", "branch-misses"],
            vec!["cycles", "instructions", "cache-misses"]
        ]
    );
}
