//! The event tables mean what the vendors say, and the sets chosen from them count all the time.
//!
//! On machines made of files: no PMU is needed.

mod arm_lists;
mod compared;
mod ids;
mod in_turns;
mod known;
mod machine;
mod printed;
mod typed;
mod upstream;

use std::path::Path;

use known::KNOWN;
use machine::Cpu::{Arm, X86};
use machine::Machine;

use numatop_ng::calibrate::machine::Facts;
use numatop_ng::list::registers;
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::sample::Missing;
use numatop_ng::model::units::CpuId;
use numatop_ng::pmu::budget::Budget;
use numatop_ng::pmu::catalog::Catalog;
use numatop_ng::pmu::sets::{Choice, Chooser, SETS};
use numatop_ng::pmu::table::{self, Table, Verified};
use numatop_ng::selftest::judge::Verdict;
use numatop_ng::selftest::run::by_core;
use numatop_ng::selftest::verdicts::{EventVerdict, EventVerdicts};

const ICE_LAKE: machine::Cpu = X86("GenuineIntel", 0x06, 0x6a, 6);
const SKYLAKE: machine::Cpu = X86("GenuineIntel", 0x06, 0x55, 4);
const ZEN_3: machine::Cpu = X86("AuthenticAMD", 0x19, 0x01, 1);
const NEOVERSE_N1: machine::Cpu = Arm(0x41, 0xd0c);
const NEOVERSE_V1: machine::Cpu = Arm(0x41, 0xd40);

fn catalog(machine: &Machine) -> Catalog {
    Catalog::read(&machine.root, None).unwrap()
}

fn budget_of(machine: &Machine, catalog: &Catalog) -> Budget {
    Budget::read(&machine.root, catalog, true, None)
}

fn everything_opens(_: &[Event]) -> Result<(), Missing> {
    Ok(())
}

fn choose(catalog: &Catalog, budget: Budget, list: &str) -> Choice {
    Chooser { catalog, budget, subnuma: false, opens: &mut everything_opens }.choose(list).unwrap()
}

fn names(choice: &Choice) -> Vec<&str> {
    choice.events.iter().map(|event| event.name.as_str()).collect()
}

#[test]
fn each_known_cpu_gives_the_attributes_of_its_vendor() {
    for (cpu, table, attrs) in KNOWN {
        let catalog = catalog(&Machine::new(*cpu));
        assert_eq!(catalog.cores[0].in_use.id, *table, "{cpu:?}");
        assert!(attrs.len() >= 3, "{table}");
        for (name, kind, config, config1) in *attrs {
            let event = catalog.named(name).unwrap_or_else(|| panic!("{table} has no {name}")).event.clone();
            let event = event.unwrap_or_else(|why| panic!("{table}: {name}: {why}"));
            assert_eq!(
                (event.kind, event.config, event.config1),
                (*kind, *config, *config1),
                "{table}: {name}"
            );
        }
    }
}

#[test]
fn every_table_with_cpus_is_known() {
    for (id, table) in table::built_in().filter(|(_, table)| !table.cpus.is_empty()) {
        assert!(KNOWN.iter().any(|(_, known, _)| *known == id), "{id} ({}) is in no known list", table.name);
    }
}

#[test]
fn every_entry_resolves_and_every_role_is_there_or_explained() {
    for (cpu, table, _) in KNOWN {
        let catalog = catalog(&Machine::new(*cpu));
        let core = &catalog.cores[0];
        for resolved in &core.entries {
            assert!(resolved.event.is_ok(), "{table}: {}: {:?}", resolved.entry.name, resolved.event);
        }
        for role in Role::MEASURED {
            assert_ne!(
                core.table.covers(role),
                core.table.absent.contains_key(&role),
                "{table}: {}",
                role.id()
            );
        }
    }
}

#[test]
fn errata_and_parts_are_in_the_text_because_they_are_keys() {
    let broadwell = catalog(&Machine::new(X86("GenuineIntel", 0x06, 0x4f, 1)));
    let text =
        |catalog: &Catalog, name: &str| catalog.named(name).unwrap().event.as_ref().unwrap().counts.clone();
    assert!(text(&broadwell, "ITLB_MISSES.MISS_CAUSES_A_WALK").ends_with(" Errata: BDM69."));
    let ice_lake = catalog(&Machine::new(ICE_LAKE));
    let composed = text(&ice_lake, "OCR.READS_TO_CORE.REMOTE_NODE_DRAM");
    let parts = "OCR.READS_TO_CORE.REMOTE_DRAM and OCR.READS_TO_CORE.SNC_DRAM";
    assert!(composed.contains(&format!("Sum of {parts}")), "{composed}");
    for (id, table) in table::built_in() {
        for entry in &table.events {
            assert!(!entry.counts.to_lowercase().contains("errat"), "{id}: {}: typed errata", entry.name);
        }
    }
}

#[test]
fn no_cpu_is_in_two_tables() {
    for (cpu, id, _) in KNOWN {
        let kind = numatop_ng::pmu::facts::CpuKind::read(&Machine::new(*cpu).root, CpuId(0)).unwrap();
        let matching: Vec<&str> =
            table::built_in().filter(|(_, table)| table.matches(&kind)).map(|(id, _)| id).collect();
        assert_eq!(matching, [*id], "{kind}");
    }
}

#[test]
fn amd_models_split_where_the_kernel_splits_them() {
    for (family, model, id) in [
        (0x17, 0x08, "amd/zen1"),
        (0x17, 0x50, "amd/zen1"),
        (0x17, 0x71, "amd/zen2"),
        (0x19, 0x0f, "amd/zen3"),
        (0x19, 0x10, "amd/zen4"),
        (0x19, 0x21, "amd/zen3"),
        (0x19, 0x30, "amd/zen3"),
        (0x19, 0x44, "amd/zen3"),
        (0x19, 0x61, "amd/zen4"),
        (0x19, 0xa0, "amd/zen4"),
        (0x1a, 0x02, "amd/zen5"),
        (0x1a, 0x44, "amd/zen5"),
        (0x1a, 0x50, "amd/zen6"),
        (0x1a, 0x70, "amd/zen5"),
        (0x1a, 0xd0, "amd/zen5"),
        (0x1b, 0x00, "generic/kernel"),
    ] {
        let machine = Machine::new(X86("AuthenticAMD", family, model, 0));
        assert_eq!(catalog(&machine).cores[0].in_use.id, id, "family {family:#x} model {model:#x}");
    }
}

#[test]
fn no_set_takes_turns_on_any_cpu_watched_or_not() {
    for (cpu, table, _) in KNOWN {
        let mut machine = Machine::new(*cpu);
        let catalog = catalog(&machine);
        for (watchdog, smt, tsx) in [("0", false, "0"), ("1", true, "0"), ("1", true, "1"), ("1", false, "1")]
        {
            machine = machine
                .with("proc/sys/kernel/nmi_watchdog", watchdog)
                .with("sys/bus/event_source/devices/cpu/allow_tsx_force_abort", tsx);
            let budget = Budget::read(&machine.root, &catalog, smt, None);
            for (set, ..) in SETS {
                let choice = choose(&catalog, budget, set);
                assert!(!choice.takes_turns, "{table}: {set}: {budget:?}");
                assert_eq!(names(&choice)[..2], ["cycles", "instructions"], "{table}: {set}");
            }
        }
    }
}

#[test]
fn the_default_set_tells_local_from_remote_wherever_the_cpu_does() {
    for (cpu, table, _) in KNOWN {
        let machine = Machine::new(*cpu).with("proc/sys/kernel/nmi_watchdog", "1");
        let catalog = catalog(&machine);
        let budget = Budget::read(&machine.root, &catalog, true, None);

        let choice = choose(&catalog, budget, "auto");

        let counted = choice.events.iter().any(|event| event.role == Role::Rma);
        let unknown = catalog.cores[0].table.absent.contains_key(&Role::Rma);
        assert_eq!(counted, !unknown, "{table}: {:?}", choice.absent);
        assert_eq!(choice.absent.contains_key(&Role::Rma), unknown, "{table}");
    }
}

#[test]
fn what_does_not_fit_is_left_out_with_the_reason() {
    let machine = Machine::new(SKYLAKE).with("proc/sys/kernel/nmi_watchdog", "1");
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);

    // Cycles, LMA and RMA take three of the four counters that are left when the watchdog has that of cycles.
    let choice = choose(&catalog, budget, "auto,tlb");

    assert!(!choice.takes_turns);
    assert!(choice.events.iter().any(|event| event.role == Role::Dtlb));
    let why = choice.absent[&Role::Itlb].to_string();
    assert!(why.contains("kernel.nmi_watchdog=0") && why.contains("--events"), "{why}");
}

#[test]
fn a_smaller_virtual_pmu_counts_for_what_it_is() {
    let machine = Machine::new(ZEN_3);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, Some(3));
    assert_eq!(budget.general, 3);

    let choice = choose(&catalog, budget, "auto");

    assert_eq!(names(&choice), ["cycles", "instructions"]);
    assert!(choice.absent[&Role::Lma].to_string().contains("no hardware counter is left"));
}

#[test]
fn without_offcore_events_retired_loads_are_counted_both_local_and_remote() {
    let machine = Machine::new(ICE_LAKE);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let mut opens = |events: &[Event]| match events.iter().find(|event| event.config1 != 0) {
        Some(event) => Err(Missing::Unsupported(format!("opening {}: refused", event.name))),
        None => Ok(()),
    };

    let choice =
        Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut opens }.choose("auto").unwrap();

    let chosen = names(&choice);
    assert_eq!(chosen[2..], ["MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", "MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM"]);
}

/// The verdict of a self-test on events of a catalogue.
fn tested(catalog: &Catalog, events: &[&str], verdict: Verdict) -> EventVerdicts {
    let verdict = |name: &&str| {
        let resolved = catalog.named(name).unwrap();
        EventVerdict {
            role: resolved.entry.role,
            event: resolved.entry.name.clone(),
            encoding: resolved.encoding(),
            pmu: String::new(),
            verdict,
            reason: Some("counts nothing".into()),
            date: "2026-11-23".into(),
            kernel: "6.12".into(),
            direct: false,
        }
    };
    EventVerdicts { events: events.iter().map(verdict).collect(), ..EventVerdicts::default() }
}

#[test]
fn each_kind_of_cores_is_tested_on_its_own_cpus() {
    let machine = Machine::hybrid(X86("GenuineIntel", 0x06, 0x97, 2), "0-7");
    let catalog = Catalog::read(&machine.root, None).unwrap();
    let facts = Facts::read(&machine.root).unwrap();
    let pmus: Vec<&str> = catalog.cores.iter().map(|core| core.in_use.pmu.as_str()).collect();
    assert_eq!(pmus, ["cpu_atom", "cpu_core"]);
    let places = |facts: &Facts| by_core(&catalog, facts, None, None);
    let cpus: Vec<Vec<u32>> = places(&facts).into_iter().map(|places| places.unwrap().cpus).collect();
    assert_eq!(cpus, [[4, 5], [0, 1]]);
    // Offline, or outside of the cpuset.
    let machine = Machine::hybrid(X86("GenuineIntel", 0x06, 0x97, 2), "0-3");
    let some = places(&Facts::read(&machine.root).unwrap());
    assert_eq!(some[0], Err("no CPU of cpu_atom can be used".into()));
    assert_eq!(some[1].as_ref().unwrap().cpus, [0, 1]);
    // The kind of cores that lacks other nodes reports them as missing.
    let why = by_core(&catalog, &facts, Some(7), None).remove(0).unwrap_err();
    assert!(why.starts_with("cpu_atom: node 7 does not exist"), "{why}");
}

#[test]
fn a_verdict_holds_for_the_cores_that_it_is_of() {
    let machine = Machine::hybrid(X86("GenuineIntel", 0x06, 0x97, 2), "0-7");
    let mut catalog = catalog(&machine);
    let cycles = catalog.cores[0].of(Role::Cycles).next().unwrap().entry.name.clone();
    let words = |catalog: &Catalog| -> Vec<bool> {
        catalog.cores.iter().map(|core| core.of(Role::Cycles).next().unwrap().believed().is_ok()).collect()
    };
    let mut wrong = tested(&catalog, &[&cycles], Verdict::Wrong);
    wrong.mark(&mut catalog);
    assert_eq!(words(&catalog), [true, true], "it does not say of which cores it is");
    wrong.events[0].pmu = "cpu_atom".into();
    wrong.mark(&mut catalog);
    assert_eq!(words(&catalog), [false, true]);
}

#[test]
fn an_event_that_was_wrong_here_does_not_stand_for_its_role() {
    let machine = Machine::new(ICE_LAKE);
    let mut catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let walks = "DTLB_LOAD_MISSES.WALK_COMPLETED";
    tested(&catalog, &["OCR.READS_TO_CORE.REMOTE_DRAM", walks], Verdict::Wrong).mark(&mut catalog);

    let auto = choose(&catalog, budget, "auto");
    let next = ["MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", "MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM"];
    assert_eq!(names(&auto)[2..], next, "both of the next rank: accesses are divided by one another");
    let tlb = choose(&catalog, budget, "tlb");
    let why = tlb.absent[&Role::Dtlb].to_string();
    assert!(why.contains("WRONG here, 2026-11-23: counts nothing"), "{why}");
    assert_eq!(names(&choose(&catalog, budget, walks)), [walks], "by its name it is counted");

    let cycles = catalog.cores[0].of(Role::Cycles).next().unwrap().entry.name.clone();
    tested(&catalog, &[&cycles], Verdict::Wrong).mark(&mut catalog);
    let basic = choose(&catalog, budget, "basic");
    assert_eq!(names(&basic), ["instructions"]);
    assert!(basic.absent[&Role::Cycles].to_string().contains("WRONG here"));
}

#[test]
fn events_have_the_word_of_self_tests_with_them() {
    let machine = Machine::new(ICE_LAKE);
    let mut catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let local = "OCR.READS_TO_CORE.LOCAL_DRAM";
    let cycles = catalog.cores[0].of(Role::Cycles).next().unwrap().entry.name.clone();
    tested(&catalog, &[local, &cycles], Verdict::Ok).mark(&mut catalog);

    let choice = choose(&catalog, budget, "auto");
    let words: Vec<&str> = choice.events.iter().map(|event| event.tested.words()).collect();
    let (here, nowhere) = ("verified here, 2026-11-23, Linux 6.12", "not verified on hardware");
    assert_eq!(
        words,
        [here, nowhere, here, nowhere],
        "cycles by the kernel's name are the event of the table"
    );

    let text = registers::events(&catalog, budget, &|_| Ok(()), &|set| choose(&catalog, budget, set), 100);
    assert_eq!(text.matches(here).count(), 2, "{text}");
    assert!(text.matches(&format!("      {nowhere}\n")).count() > 5, "{text}");
}

#[test]
fn with_split_sockets_the_other_half_is_remote() {
    let machine = Machine::new(ICE_LAKE);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);

    let choice = Chooser { catalog: &catalog, budget, subnuma: true, opens: &mut everything_opens }
        .choose("auto")
        .unwrap();

    assert_eq!(names(&choice)[3], "OCR.READS_TO_CORE.REMOTE_NODE_DRAM");
}

#[test]
fn when_others_hold_the_counters_the_last_roles_go_first() {
    let machine = Machine::new(ICE_LAKE);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let mut opens = |events: &[Event]| match events.len() {
        0..=2 => Ok(()),
        _ => Err(Missing::Unsupported("it would be multiplexed".into())),
    };

    let choice =
        Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut opens }.choose("auto").unwrap();

    assert_eq!(names(&choice), ["cycles", "instructions"]);
    assert!(choice.absent[&Role::Rma].to_string().contains("together with the other counters"));
}

#[test]
fn on_arm_local_is_what_missed_the_last_cache_and_was_not_remote() {
    let machine = Machine::new(NEOVERSE_N1);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, false, None);

    let choice = choose(&catalog, budget, "auto,cache");

    assert_eq!(
        names(&choice),
        ["cycles", "instructions", "LL_CACHE_MISS_RD", "REMOTE_ACCESS", "BR_MIS_PRED_RETIRED"]
    );
    assert!(choice.tables[0].lma_is_llc_less_rma);
}

#[test]
fn cores_of_two_kinds_have_events_of_their_own() {
    let machine = Machine::empty()
        .with_cpu(0, NEOVERSE_N1)
        .with_cpu(4, NEOVERSE_V1)
        .with_arm_pmu("armv8_neoverse_n1", "0-3", NEOVERSE_N1)
        .with_arm_pmu("armv8_neoverse_v1", "4-7", NEOVERSE_V1);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, false, None);

    let choice = choose(&catalog, budget, "stalls");

    let tables: Vec<&str> = choice.tables.iter().map(|table| table.id.as_str()).collect();
    assert_eq!(tables, ["arm/neoverse-n1", "arm/neoverse-v1"]);
    let frontend: Vec<&Event> =
        choice.events.iter().filter(|event| event.role == Role::StallFrontend).collect();
    assert_eq!(frontend.iter().map(|event| event.kind).collect::<Vec<_>>(), [8, 9]);
    assert!(frontend[0].is_on(CpuId(3)) && !frontend[0].is_on(CpuId(4)) && frontend[1].is_on(CpuId(4)));
    assert!(choice.events[0].cpus.is_none(), "cycles are one event for all");
}

#[test]
fn a_role_that_only_some_cores_have_is_not_counted() {
    let machine = Machine::empty()
        .with_cpu(0, NEOVERSE_N1)
        .with_cpu(4, Arm(0xc0, 0xac3))
        .with_arm_pmu("armv8_big", "0-3", NEOVERSE_N1)
        .with_arm_pmu("armv8_little", "4-7", Arm(0xc0, 0xac3));
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, false, None);

    let choice = choose(&catalog, budget, "numa");

    assert_eq!(names(&choice), ["cycles", "instructions"]);
    assert!(choice.absent[&Role::Rma].to_string().contains("AmpereOne"));
}

#[test]
fn an_unknown_arm_core_has_the_architecture_s_events() {
    let machine = Machine::new(Arm(0x4e, 0x004));
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, false, None);
    assert_eq!(catalog.cores[0].in_use.id, "generic/arm-pmuv3");

    let choice = choose(&catalog, budget, "stalls");

    assert_eq!(choice.events[2].config, 0x23);
}

#[test]
fn without_a_pmu_everything_has_a_reason() {
    let machine = Machine::empty().with_cpu(0, ICE_LAKE);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let mut refused =
        |events: &[Event]| Err(Missing::Unsupported(format!("opening {}: no PMU", events[0].name)));

    let choice =
        Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut refused }.choose("numa").unwrap();

    assert_eq!(catalog.cores[0].in_use.id, "intel/ice-lake-sp");
    assert!(choice.events.is_empty());
    assert_eq!(choice.absent.len(), 5);
}

#[test]
fn names_may_take_turns_and_mistakes_are_named() {
    let machine = Machine::new(ICE_LAKE);
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let list = "basic,longest_lat_cache.miss,OCR.READS_TO_CORE.LOCAL_DRAM,OCR.READS_TO_CORE.REMOTE_DRAM,\
                OCR.READS_TO_CORE.SNC_DRAM,page-faults";

    let choice = choose(&catalog, budget, list);

    assert!(choice.takes_turns, "three offcore events, two registers");
    assert_eq!(names(&choice)[2], "LONGEST_LAT_CACHE.MISS");
    let mut opens = everything_opens;
    let mut chooser = Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut opens };
    let error = chooser.choose("basic,LONGEST_LAT_CACHE.MIS").unwrap_err().to_string();
    assert!(error.contains("LONGEST_LAT_CACHE.MIS") && error.contains("list events"), "{error}");
    assert!(chooser.choose("cycles,cycles").unwrap_err().to_string().contains("twice"));
}

/// A table of a user may rank its events as it likes.
#[test]
fn ranks_with_gaps_between_them_are_chosen_from_at_once() {
    let machine = Machine::new(ZEN_3);
    let own = machine.root.join("own");
    std::fs::create_dir(&own).unwrap();
    let text = include_str!("../../../crates/measure/src/pmu/events/amd/zen3.toml");
    let ranked = text.replace("rank = 2", "rank = 4000000000");
    assert_ne!(text, ranked, "it has events of a second rank");
    std::fs::write(own.join("ranked.toml"), ranked).unwrap();
    let (chosen, choice) = std::sync::mpsc::channel();
    // On a separate thread: counting up to the last rank would take hours.
    std::thread::spawn(move || {
        let catalog = Catalog::read(&machine.root, Some(&own)).unwrap();
        let budget = Budget::read(&machine.root, &catalog, true, None);
        let mut refused = |_: &[Event]| Err(Missing::Unsupported("no PMU".into()));
        let mut chooser = Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut refused };
        chosen.send(chooser.choose("auto").map(|choice| choice.absent.len()))
    });
    let absent = choice.recv_timeout(std::time::Duration::from_secs(30)).expect("it is chosen at once");
    assert_eq!(absent.unwrap(), 4);
}

#[test]
fn the_docs_name_every_table_with_what_is_local_and_remote() {
    let docs = include_str!("../../../docs/events.md");
    for (id, table) in table::built_in() {
        let line = docs
            .lines()
            .find(|line| line.starts_with(&format!("| {id} |")))
            .unwrap_or_else(|| panic!("no {id}"));
        for role in [Role::Lma, Role::Rma] {
            let first = table.entries(role).find(|entry| entry.rank == 1 && entry.when.is_none());
            assert!(
                first.is_none_or(|entry| line.contains(&entry.name)),
                "{id}: {} is another one",
                role.id()
            );
        }
    }
    let verified =
        table::built_in().any(|(_, table)| !table.verified_on.is_empty() || !table.verified.is_empty());
    assert_eq!(!verified, docs.contains("None of the tables below was verified on hardware yet"));
}

/// The table of README.md beside this file with the machines on which events were right, as `[[verified]]` entries name them.
fn verified<'a>(tables: impl Iterator<Item = (&'a str, &'a Table)>) -> String {
    let mut text = String::from("| table | right | on | said by |\n|---|---|---|---|\n");
    for (id, table) in tables {
        if table.verified.is_empty() {
            text += &format!("| {id} | - | - | - |\n");
        }
        for one in &table.verified {
            let roles: Vec<&str> = one.roles.iter().map(|role| role.id()).collect();
            let Verified { machine, kernel, date, source, .. } = one;
            text +=
                &format!("| {id} | {} | {machine}, Linux {kernel}, {date} | {source} |\n", roles.join(", "));
        }
    }
    text
}

#[test]
fn the_documentation_says_which_number_is_verified_where() {
    printed::compare("<!-- printed from [[verified]] -->\n", &verified(table::built_in()));
}

#[test]
fn a_verified_machine_is_a_line_with_its_roles() {
    let entry = "[[verified]]\nmachine = \"EPYC 9654, bare metal\"\nkernel = \"6.12\"\ndate = \"2026-12-01\"\n\
                 roles = [\"lma\"]\nsource = \"issue 123\"\n";
    let table = Table::parse(&format!("{MINE}\n{entry}")).unwrap();
    let text = verified([("my/table", &table)].into_iter());
    assert_eq!(
        text.lines().last(),
        Some("| my/table | lma | EPYC 9654, bare metal, Linux 6.12, 2026-12-01 | issue 123 |")
    );
}

/// A table for a CPU that has one already.
const MINE: &str = r#"
name = "my Ice Lake"
products = []
verified_on = ["my machine"]

[[cpu]]
vendor = "GenuineIntel"
family = 0x06
models = [[0x6a, 0x6a]]

[absent]
cycles = "x"
instructions = "x"
rma = "x"
remote_cache = "x"
stall_frontend = "x"
stall_backend = "x"
llc = "x"
dtlb = "x"
itlb = "x"
branch = "x"

[[event]]
role = "lma"
name = "MY.EVENT"
encoding = "event=0x12,umask=0x34,cmask=2"
counts = "What I say."
source = "me"
"#;

#[test]
fn a_user_s_table_goes_first() {
    let machine = Machine::new(ICE_LAKE).with("mine/ice.toml", MINE).with("mine/README", "no table");

    let catalog = Catalog::read(&machine.root, Some(&machine.root.join("mine"))).unwrap();

    let core = &catalog.cores[0];
    assert_eq!((core.in_use.name.as_str(), core.in_use.id.as_str()), ("my Ice Lake", "ice"));
    assert!(core.in_use.origin.ends_with("mine/ice.toml"));
    assert_eq!(catalog.named("my.event").unwrap().event.as_ref().unwrap().config, 0x200_3412);
}

#[test]
fn a_user_s_mistake_is_named_with_its_file() {
    let wrong = |from: &str, to: &str| {
        let machine = Machine::empty().with("mine/ice.toml", &MINE.replace(from, to));
        format!("{:#}", Catalog::read(&machine.root, Some(&machine.root.join("mine"))).unwrap_err())
    };
    for (from, to, says) in [
        ("event=0x12", "event=twelve", "MY.EVENT"),
        ("rma = \"x\"", "", "'rma'"),
        ("counts", "count", "count"),
        ("MY.EVENT", "MY EVENT", "spaces"),
        ("[[cpu]]\nvendor = \"GenuineIntel\"\nfamily = 0x06\nmodels = [[0x6a, 0x6a]]\n", "", "[[cpu]]"),
        ("source = \"me\"", "composed = [\"MY.PART\"]\nsource = \"me\"", "composed"),
        ("encoding = \"event=0x12,umask=0x34,cmask=2\"", "kernel = \"cyclse\"", "cyclse"),
    ] {
        let error = wrong(from, to);
        assert!(error.contains("ice.toml") && error.contains(says), "{to}: {error}");
    }
    let error = Catalog::read(Path::new("/nonexistent"), Some(Path::new("/nonexistent/mine"))).unwrap_err();
    assert!(format!("{error:#}").contains("/nonexistent/mine"), "{error:#}");
}

#[test]
fn the_list_says_what_is_counted_and_whether_it_works() {
    let machine = Machine::new(ZEN_3).with("proc/sys/kernel/nmi_watchdog", "1");
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, true, None);
    let works = |event: &Event| match event.name.contains("remote") {
        true => Err(Missing::Unsupported(format!("opening {}: refused", event.name))),
        false => Ok(()),
    };

    let text = registers::events(&catalog, budget, &works, &|set| choose(&catalog, budget, set), 100);

    for line in [
        "CPU    AuthenticAMD family 0x19 model 0x1 stepping 1",
        "table  amd/zen3 (AMD Zen 3, built in; not verified on hardware)",
        "PMU    cpu (type 8): 6 counters for any event, 5 free; the NMI watchdog uses one",
        "  ok  ls_any_fills_from_sys.mem_io_local\n      event=0x44,umask=0x08 (type 8 config 0x844 config1 0x0)",
        "  no  ls_any_fills_from_sys.mem_io_remote: opening",
        "llc\n  -   AMD counts L3 misses for a whole core complex",
        "  ok  page-faults",
        "      without llc: AMD counts",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100 || !line.trim().contains(' ')), "{text}");
}
