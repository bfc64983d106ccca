//! Arm events compared with kernels' lists: common ones are counted if listed, others by their code.

use super::machine::Cpu::{self, Arm};
use super::machine::{self, Machine};
use super::{NEOVERSE_N1, catalog, choose, names, upstream};
use numatop_ng::model::event::Role;
use numatop_ng::pmu::arm_events;
use numatop_ng::pmu::budget::Budget;
use numatop_ng::pmu::table::{self, CpuMatch};

const NEOVERSE_N2: Cpu = Arm(0x41, 0xd49);
const NEOVERSE_N3: Cpu = Arm(0x41, 0xd8e);
const PMU: &str = "sys/bus/event_source/devices/armv8_pmuv3_0";
const EVENTS: &str = "sys/bus/event_source/devices/armv8_pmuv3_0/events";

/// The same machine, with some events not listed.
fn hiding(cpu: Cpu, hidden: impl Fn(u64) -> bool) -> Machine {
    let hidden = machine::listed(cpu).into_iter().filter(|(code, _)| hidden(*code));
    hidden.fold(Machine::new(cpu), |machine, (_, name)| machine.without(&format!("{EVENTS}/{name}")))
}

/// The same machine under a kernel that does not know some names yet, and has no `caps`.
fn without(cpu: Cpu, unknown: impl Fn(u64) -> bool) -> Machine {
    hiding(cpu, unknown).without(&format!("{PMU}/caps/slots"))
}

#[test]
fn the_names_are_those_of_the_kernel() {
    let listed = upstream::sysfs();
    for (code, name) in &listed {
        assert_eq!(arm_events::kernel_name(*code), Some(name.as_str()), "{code:#x}");
    }
    for code in (0x00..0x40).chain(0x4000..0x4040) {
        let known = listed.iter().any(|(other, _)| *other == code);
        assert_eq!(arm_events::kernel_name(code).is_some(), known, "{code:#x}");
    }
}

#[test]
fn events_that_no_kernel_lists_are_counted_by_their_code() {
    for (id, table) in table::built_in() {
        let Some(CpuMatch::Arm { implementer, part }) = table.cpus.first() else { continue };
        let catalog = catalog(&Machine::new(Arm(*implementer, *part)));
        for resolved in &catalog.cores[0].entries {
            let code = resolved.entry.terms().unwrap().value("event").unwrap();
            if arm_events::kernel_name(code).is_none() {
                let event = resolved.event.as_ref().unwrap_or_else(|why| panic!("{id}: {why}"));
                assert_eq!(event.config, code, "{id}: {}", resolved.entry.name);
            }
        }
    }
}

#[test]
fn a_common_event_that_is_not_listed_is_not_used() {
    let machine = Machine::new(NEOVERSE_N1).without(&format!("{EVENTS}/remote_access"));
    let catalog = catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, false, None);

    let choice = choose(&catalog, budget, "auto,REMOTE_ACCESS");

    assert_eq!(names(&choice), ["cycles", "instructions"]);
    assert!(choice.absent[&Role::Lma].to_string().contains("does not list remote_access"));
    assert!(choice.refused["REMOTE_ACCESS"].to_string().contains("does not list remote_access"));
}

#[test]
fn an_emulated_core_counts_what_a_current_kernel_lists() {
    // Linux 6.1 and 6.12 list cycles and stalls for QEMU's Neoverse N1; all other codes open there and stay 0.
    let catalog = catalog(&hiding(NEOVERSE_N1, |code| !matches!(code, 0x11 | 0x23 | 0x24)));
    for name in ["REMOTE_ACCESS", "LL_CACHE_MISS_RD", "DTLB_WALK", "INST_RETIRED"] {
        let why = catalog.named(name).unwrap().event.as_ref().unwrap_err().to_string();
        assert!(why.contains("a hypervisor hides it"), "{name}: {why}");
    }
    assert!(catalog.named("STALL_BACKEND").unwrap().event.is_ok());
}

#[test]
fn a_kernel_that_does_not_know_a_name_does_not_hide_the_event() {
    // Linux 5.8: no STALL_SLOT, CNT_CYCLES or STALL_BACKEND_MEM.
    let catalog = catalog(&without(NEOVERSE_N2, |code| (0x39..0x40).contains(&code) || code >= 0x4004));
    for (name, code) in [("STALL_SLOT_BACKEND", 0x3d), ("CNT_CYCLES", 0x4004), ("STALL_BACKEND_MEM", 0x4005)]
    {
        assert_eq!(catalog.named(name).unwrap().event.as_ref().unwrap().config, code, "{name}");
    }
    // Linux 4.18: neither DTLB_WALK nor REMOTE_ACCESS.
    let machine = without(NEOVERSE_N3, |code| code > 0x30);
    let catalog = super::catalog(&machine);
    let budget = Budget::read(&machine.root, &catalog, false, None);
    let auto = choose(&catalog, budget, "auto");
    assert_eq!(names(&auto)[2..], ["LL_CACHE_MISS_RD", "REMOTE_ACCESS"]);
}

#[test]
fn where_neither_list_nor_kernel_has_an_event_it_is_not_used() {
    // A core without a table, and one whose table is assumed.
    for cpu in [Arm(0x7f, 0x123), Arm(0x70, 0x660)] {
        let current = catalog(&Machine::new(cpu));
        assert!(current.named("REMOTE_ACCESS").unwrap().event.is_ok(), "{cpu:?}");
        let old = catalog(&without(cpu, |code| code > 0x30));
        let why = old.named("REMOTE_ACCESS").unwrap().event.as_ref().unwrap_err().to_string();
        assert!(why.contains("does not report whether") && why.contains("remote_access"), "{cpu:?}: {why}");
    }
}
