//! CPU ids of tables beside those of upstream lists: every family, model, stepping and MIDR.

use std::collections::BTreeSet;

use super::upstream::{self, Id};
use numatop_ng::pmu::facts::CpuKind;
use numatop_ng::pmu::table::{self, CpuMatch, Table};

/// The lists that are about a table's CPUs.
const TABLES: [(&str, &[&str]); 29] = [
    ("amd/zen1", &["linux/amdzen1", "zen1"]),
    ("amd/zen2", &["linux/amdzen2", "zen2"]),
    ("amd/zen3", &["linux/amdzen3", "zen3"]),
    ("amd/zen4", &["linux/amdzen4", "zen4"]),
    ("amd/zen5", &["linux/amdzen5", "zen5"]),
    ("amd/zen6", &["linux/amdzen6", "zen6"]),
    ("ampere/ampereone", &["linux/ampere/ampereone"]),
    ("ampere/ampereonex", &["linux/ampere/ampereonex"]),
    ("arm/neoverse-n1", &["arm-data/neoverse-n1", "linux/arm/neoverse-n1"]),
    ("arm/neoverse-n2", &["arm-data/neoverse-n2", "linux/arm/neoverse-n2-v2"]),
    ("arm/neoverse-n3", &["arm-data/neoverse-n3"]),
    ("arm/neoverse-v1", &["arm-data/neoverse-v1", "linux/arm/neoverse-v1"]),
    ("arm/neoverse-v2", &["arm-data/neoverse-v2", "linux/arm/neoverse-n2-v2"]),
    ("arm/neoverse-v3", &["arm-data/neoverse-v3", "arm-data/neoverse-v3ae"]),
    ("fujitsu/a64fx", &["linux/fujitsu/a64fx"]),
    ("fujitsu/monaka", &["linux/fujitsu/monaka"]),
    ("hisilicon/tsv110", &["linux/hisilicon/hip08"]),
    ("intel/broadwell-ep", &["perfmon/BDX", "linux/broadwellx"]),
    ("intel/cascade-lake-sp", &["perfmon/CLX", "linux/cascadelakex"]),
    ("intel/clearwater-forest", &["perfmon/CWF"]),
    ("intel/emerald-rapids", &["perfmon/EMR", "linux/emeraldrapids"]),
    ("intel/granite-rapids", &["perfmon/GNR", "linux/graniterapids"]),
    ("intel/haswell-ep", &["perfmon/HSX", "linux/haswellx"]),
    ("intel/ice-lake-sp", &["perfmon/ICX", "linux/icelakex"]),
    ("intel/sapphire-rapids", &["perfmon/SPR", "linux/sapphirerapids"]),
    ("intel/sierra-forest", &["perfmon/SRF", "linux/sierraforest"]),
    ("intel/skylake-sp", &["perfmon/SKX", "linux/skylakex"]),
    ("nvidia/olympus", &["linux/nvidia/t410"]),
    ("hygon/dhyana", &[]),
];

/// Lists without a table, and why.
const NO_TABLE: [(&str, &[&str]); 4] = [
    (
        "one socket: nothing is remote",
        &[
            "linux/alderlake",
            "linux/alderlaken",
            "linux/arm/cortex-a34",
            "linux/arm/cortex-a35",
            "linux/arm/cortex-a510",
            "linux/arm/cortex-a53",
            "linux/arm/cortex-a55",
            "linux/arm/cortex-a57-a72",
            "linux/arm/cortex-a65-e1",
            "linux/arm/cortex-a710",
            "linux/arm/cortex-a73",
            "linux/arm/cortex-a75",
            "linux/arm/cortex-a76",
            "linux/arm/cortex-a77",
            "linux/arm/cortex-a78",
            "linux/arm/cortex-x1",
            "linux/arm/cortex-x2",
            "linux/bonnell",
            "linux/broadwell",
            "linux/broadwellde",
            "linux/elkhartlake",
            "linux/goldmont",
            "linux/goldmontplus",
            "linux/grandridge",
            "linux/haswell",
            "linux/icelake",
            "linux/ivybridge",
            "linux/lunarlake",
            "linux/meteorlake",
            "linux/rocketlake",
            "linux/sandybridge",
            "linux/silvermont",
            "linux/skylake",
            "linux/snowridgex",
            "linux/tigerlake",
            "perfmon/ADL",
            "perfmon/ARL",
            "perfmon/BDW",
            "perfmon/BDW-DE",
            "perfmon/BNL",
            "perfmon/EHL",
            "perfmon/GLM",
            "perfmon/GLP",
            "perfmon/GRR",
            "perfmon/HSW",
            "perfmon/ICL",
            "perfmon/IVB",
            "perfmon/LNL",
            "perfmon/MTL",
            "perfmon/NVL",
            "perfmon/PTL",
            "perfmon/RKL",
            "perfmon/SKL",
            "perfmon/SLM",
            "perfmon/SNB",
            "perfmon/SNR",
            "perfmon/TGL",
            "arm-data/neoverse-e1",
        ],
    ),
    (
        "servers of 2014 and before",
        &[
            "linux/ivytown",
            "linux/jaketown",
            "linux/nehalemep",
            "linux/nehalemex",
            "linux/westmereep-dp",
            "linux/westmereep-sp",
            "linux/westmereex",
            "perfmon/IVT",
            "perfmon/JKT",
            "perfmon/NHM-EP",
            "perfmon/NHM-EX",
            "perfmon/WSM-EP-DP",
            "perfmon/WSM-EP-SP",
            "perfmon/WSM-EX",
        ],
    ),
    ("one socket, with nodes of other memory", &["linux/knightslanding", "perfmon/KNL"]),
    ("its list has no event that tells local from remote", &["linux/ampere/emag", "linux/cavium/thunderx2"]),
];

/// AMD models on which perf's map file and the kernel's amd.c disagree: the kernel is right.
const DECIDED: [(u32, u32, u32, &str, &str); 3] = [
    (0x17, 0x50, 0x5f, "amd/zen1", "amd.c: Zen 1; the map file takes all later models for Zen 2"),
    (0x19, 0x30, 0x3f, "amd/zen3", "amd.c: Trento, EPYC 7A53; the map file leaves it to Zen 4"),
    (0x1a, 0xd0, 0xd7, "amd/zen5", "amd.c; the map file leaves it to Zen 6"),
];

/// Ids of tables that are in no map file: implementer and parts, and the source.
const OTHER_ARM: [(u32, &[u32], &str); 2] = [
    (0x6d, &[0xd49], "Azure Cobalt 100: arch/arm64/include/asm/cputype.h"),
    (0x70, &[0x660, 0x661, 0x662, 0x663, 0x664, 0x862], "Phytium: util-linux"),
];

fn table_of(kind: &CpuKind) -> Option<&'static str> {
    let matching: Vec<&str> =
        table::built_in().filter(|(_, table)| table.matches(kind)).map(|(id, _)| id).collect();
    assert!(matching.len() < 2, "{kind} is in {matching:?}");
    matching.first().copied()
}

/// The table that a list is about, if it has one.
fn table_for(list: &str) -> Option<&'static str> {
    let table = TABLES.iter().find(|(_, lists)| lists.contains(&list)).map(|(table, _)| *table);
    let left_out = NO_TABLE.iter().any(|(_, lists)| lists.contains(&list));
    assert!(table.is_some() != left_out, "{list} needs a table, or a reason for none");
    table
}

/// The list that a source has for an x86 CPU.
fn listed<'a>(ids: &'a [Id], vendor: &str, family: u32, model: u32, stepping: u32) -> Option<&'a str> {
    let within = |range: (u32, u32), number: u32| (range.0..=range.1).contains(&number);
    let fits = |id: &&Id| {
        id.vendor == vendor
            && id.family == family
            && within(id.models, model)
            && within(id.steppings, stepping)
    };
    ids.iter().find(fits).map(|id| id.list.as_str())
}

#[test]
fn every_x86_cpu_has_the_table_of_its_list() {
    let [perfmon, linux, amd] = ["perfmon", "linux-x86", "amd.c"].map(upstream::ids);
    for vendor in ["GenuineIntel", "AuthenticAMD", "HygonGenuine"] {
        for family in 0..=0xff {
            let named = |ids: &[Id]| ids.iter().any(|id| id.vendor == vendor && id.family == family);
            let of_family = |cpu: &CpuMatch| match cpu {
                CpuMatch::X86 { vendor: own, family: number, .. } => own == vendor && *number == family,
                CpuMatch::Arm { .. } => false,
            };
            let claimed = |table: &Table| table.cpus.iter().any(of_family);
            if !named(&perfmon) && !named(&linux) && !table::built_in().any(|(_, table)| claimed(table)) {
                continue;
            }
            for (model, stepping) in
                (0..=0xff).flat_map(|model| (0..16).map(move |stepping| (model, stepping)))
            {
                let kind = CpuKind::X86 { vendor: vendor.into(), family, model, stepping };
                let of = |ids| listed(ids, vendor, family, model, stepping).and_then(table_for);
                let decided = DECIDED.iter().find(|(f, first, last, ..)| {
                    vendor == "AuthenticAMD" && *f == family && (*first..=*last).contains(&model)
                });
                let expected = match (vendor, decided) {
                    ("HygonGenuine", _) => (family == 0x18).then_some("hygon/dhyana"),
                    (_, Some((.., table, why))) => {
                        assert_eq!(of(&amd), Some(*table), "{kind}: {why}");
                        assert_ne!(of(&linux), Some(*table), "{kind} need not be decided any more");
                        Some(*table)
                    }
                    _ => {
                        let lists: BTreeSet<&str> =
                            [of(&perfmon), of(&linux), of(&amd)].into_iter().flatten().collect();
                        assert!(lists.len() < 2, "{kind}: lists differ: {lists:?}");
                        lists.first().copied()
                    }
                };
                assert_eq!(table_of(&kind), expected, "{kind}");
            }
        }
    }
}

#[test]
fn every_arm_cpu_has_the_table_of_its_list() {
    let sources = ["arm-data", "linux-arm64"].map(upstream::ids);
    let mut known: BTreeSet<(u32, u32)> = BTreeSet::new();
    for id in sources.iter().flatten() {
        let kind = CpuKind::Arm { implementer: id.family, part: id.models.0 };
        let table = table_of(&kind);
        let lists = TABLES.iter().find(|(name, _)| Some(*name) == table).map(|(_, lists)| *lists);
        match lists {
            Some(lists) => {
                assert!(lists.contains(&id.list.as_str()), "{kind} is in {}, not {table:?}", id.list);
            }
            None => assert_eq!(table_for(&id.list), None, "{kind}"),
        }
        known.insert((id.family, id.models.0));
    }
    known.extend(
        OTHER_ARM
            .iter()
            .flat_map(|(implementer, parts, _)| parts.iter().map(move |part| (*implementer, *part))),
    );
    for implementer in 0..=0xff {
        for part in 0..=0xfff {
            let claimed =
                table::built_in().find(|(_, table)| table.matches(&CpuKind::Arm { implementer, part }));
            assert!(
                claimed.is_none() || known.contains(&(implementer, part)),
                "{:?} has {implementer:#x}/{part:#x}, which no list has",
                claimed.map(|(id, _)| id)
            );
        }
    }
}

#[test]
fn every_table_is_that_of_a_list() {
    let named: BTreeSet<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    let without_list = BTreeSet::from(["phytium/ftc66x"]);
    let tables = table::built_in().filter(|(_, table)| !table.cpus.is_empty()).map(|(id, _)| id);
    let tables: BTreeSet<&str> = tables.collect();
    assert_eq!(tables, named.union(&without_list).copied().collect());
}
