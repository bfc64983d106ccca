//! Events as users type them, on machines made of files.

use super::machine::{Cpu::X86, Machine};
use super::{Choice, Chooser, ICE_LAKE, NEOVERSE_N1, budget_of, catalog, everything_opens, names};
use numatop_ng::model::event::Mode;
use numatop_ng::model::units::CpuId;

/// The names that field articles about NUMA and caches give to `perf stat -e`.
const ARTICLES: &str = "cycles cpu-cycles instructions cache-references cache-misses branches branch-instructions branch-misses \
                        bus-cycles stalled-cycles-frontend stalled-cycles-backend L1-dcache-loads L1-dcache-load-misses \
                        L1-dcache-stores L1-dcache-store-misses L1-dcache-prefetches L1-icache-loads L1-icache-load-misses \
                        LLC-loads LLC-load-misses LLC-stores LLC-store-misses LLC-prefetches dTLB-loads dTLB-load-misses \
                        dTLB-stores dTLB-store-misses iTLB-loads iTLB-load-misses branch-loads branch-load-misses page-faults \
                        context-switches";

fn chosen(machine: &Machine, list: &str) -> Result<Choice, String> {
    let catalog = catalog(machine);
    let budget = budget_of(machine, &catalog);
    let mut opens = everything_opens;
    let mut chooser = Chooser { catalog: &catalog, budget, subnuma: false, opens: &mut opens };
    chooser.choose(list).map_err(|error| format!("{error:#}"))
}

/// Type and config words of the one event that is typed.
fn encoding(machine: &Machine, text: &str) -> (u32, [u64; 3]) {
    chosen(machine, text).unwrap().events[0].encoding()
}

#[test]
fn every_name_of_the_articles_is_an_event() {
    let machine = Machine::new(ICE_LAKE);
    let all: Vec<&str> = ARTICLES.split_whitespace().collect();
    assert_eq!(all.len(), 33);
    for name in all {
        let choice = chosen(&machine, name).unwrap();
        assert_eq!((names(&choice), choice.asked.clone()), (vec![name], vec![name.to_owned()]));
    }
}

#[test]
fn terms_go_where_the_pmu_of_the_machine_has_them() {
    let amd = Machine::new(X86("AuthenticAMD", 0x19, 0x01, 1));
    assert_eq!(encoding(&amd, "cpu/event=0x1a0,umask=0x1e/"), (8, [0x1_0000_1ea0, 0, 0]));
    let intel = Machine::new(ICE_LAKE);
    assert_eq!(encoding(&intel, "cpu/event=0x3c,umask=0x1,inv,cmask=2/"), (8, [0x0280_013c, 0, 0]));
    assert_eq!(encoding(&intel, "cpu/config=0x1b7,config1=0x10/"), (8, [0x1b7, 0x10, 0]));
    assert_eq!(encoding(&intel, "r01c2"), (8, [0x1c2, 0, 0]));
    assert_eq!(
        encoding(&Machine::empty(), "r01c2"),
        (4, [0x1c2, 0, 0]),
        "without a PMU the kernel says what it lacks"
    );
}

#[test]
fn events_of_sysfs_are_taken_by_name_and_with_more_terms() {
    let event = "sys/bus/event_source/devices/cpu/events/mem-loads";
    let machine = Machine::new(ICE_LAKE).with(event, "event=0xcd,umask=0x1,ldlat=3\n");
    assert_eq!(encoding(&machine, "cpu/mem-loads/"), (8, [0x1cd, 3, 0]));
    assert_eq!(encoding(&machine, "cpu/mem-loads,ldlat=30/"), (8, [0x1cd, 30, 0]));
    let arm = Machine::new(NEOVERSE_N1);
    let of = |text| encoding(&arm, text);
    assert_eq!(of("armv8_pmuv3_0/cpu_cycles/"), of("armv8_pmuv3/event=0x11/"));
    let error = chosen(&machine, "cpu/mem-loadz/").unwrap_err();
    assert!(error.contains("did you mean mem-loads?"), "{error}");
}

#[test]
fn a_part_of_the_work_is_counted_and_is_no_role() {
    let choice = chosen(&Machine::new(ICE_LAKE), "basic,cycles:u,cpu/event=0x3c/k").unwrap();
    let modes: Vec<Mode> = choice.events.iter().map(|event| event.mode).collect();
    assert_eq!(modes, [Mode::Both, Mode::Both, Mode::User, Mode::Kernel]);
    assert_eq!(choice.asked, ["cycles:u", "cpu/event=0x3c/k"]);
    assert!(choice.events[2..].iter().all(|event| event.role == Default::default()));
}

#[test]
fn an_event_of_both_kinds_of_cores_has_one_slot() {
    let machine = Machine::hybrid(X86("GenuineIntel", 6, 0x97, 2), "0-7");
    for text in ["r01c2", "cpu/event=0xc2,umask=0x1/"] {
        let choice = chosen(&machine, text).unwrap();
        let [event] = choice.events.as_slice() else { panic!("{choice:?}") };
        let on = |cpu| event.encoding_on(CpuId(cpu)).unwrap();
        assert_eq!((on(7), on(0)), ((8, [0x1c2, 0, 0]), (9, [0x1c2, 0, 0])), "{text}");
    }
    let one = chosen(&machine, "cpu_core/event=0xc2/").unwrap();
    assert!(!one.events[0].is_on(CpuId(7)), "cores of the other kind do not have it");
}

#[test]
fn what_a_set_has_is_counted_once_and_shown() {
    let choice = chosen(&Machine::new(ICE_LAKE), "basic,cpu-cycles").unwrap();
    assert_eq!(
        (names(&choice), choice.asked.clone()),
        (vec!["cycles", "instructions"], vec!["cycles".to_owned()])
    );
    let twice = chosen(&Machine::new(ICE_LAKE), "cycles,cpu-cycles").unwrap_err();
    assert!(twice.contains("twice"), "{twice}");
}

#[test]
fn without_a_pmu_of_cores_its_events_are_missing_and_no_mistake() {
    let choice = chosen(&Machine::empty(), "page-faults,cpu/event=0x3c/").unwrap();
    assert_eq!(names(&choice), ["page-faults"]);
    assert!(choice.refused["cpu/event=0x3c/"].to_string().contains("no PMU of the CPU cores"));
    assert_eq!(choice.asked, ["page-faults", "cpu/event=0x3c/"]);
}

#[test]
fn mistakes_say_what_there_is() {
    let machine = Machine::new(ICE_LAKE).with("sys/bus/event_source/devices/uncore_imc_0/type", "20\n");
    let machine = machine.with("sys/bus/event_source/devices/uncore_imc_0/cpumask", "0\n");
    for (text, words) in [
        ("LLC-load-mises", "did you mean LLC-load-misses"),
        ("cycles:p", "':p' is not a modifier"),
        ("cpu/event=0x3c", "second slash"),
        ("cpu/evnt=0x3c/", "it has any, cmask, edge, event"),
        ("cpu/event=0xfff/", "too large"),
        ("nopmu/event=1/", "the kernel has no PMU 'nopmu'"),
        ("../event=1/", "the kernel has no PMU '..'"),
        ("uncore_imc_0/event=1/", "not for tasks"),
    ] {
        let error = chosen(&machine, text).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
}
