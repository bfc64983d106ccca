//! The guests that a run starts: reads `guests.toml` and applies the command line.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use vmtests_protocol::Pmu;

use crate::kernels::{Arch, Kernel};
use crate::topology::Topology;

/// One guest to start.
#[derive(Debug, Clone)]
pub struct Job {
    pub kernel: Kernel,
    pub topology: Topology,
    pub variant: Variant,
    pub cases: Vec<String>,
}

/// The difference between guests of the same kernel and topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    Plain,
    Icount0,
    Icount1,
    Icount2,
    NoPmu,
    Integrity,
    Confidentiality,
}

impl Variant {
    const ALL: [Variant; 7] = [
        Variant::Plain,
        Variant::Icount0,
        Variant::Icount1,
        Variant::Icount2,
        Variant::NoPmu,
        Variant::Integrity,
        Variant::Confidentiality,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Icount0 => "icount0",
            Variant::Icount1 => "icount1",
            Variant::Icount2 => "icount2",
            Variant::NoPmu => "nopmu",
            Variant::Integrity => "integrity",
            Variant::Confidentiality => "confidentiality",
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|variant| variant.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Variant::name).join(", ");
            format!("variant {name:?} is not known: {names}")
        })
    }

    pub fn pmu(self, arch: Arch) -> Pmu {
        match (arch, self) {
            (Arch::Amd64, _) | (_, Variant::NoPmu) => Pmu::Absent,
            (_, Variant::Icount0) => Pmu::Icount { shift: 0 },
            (_, Variant::Icount1) => Pmu::Icount { shift: 1 },
            (_, Variant::Icount2) => Pmu::Icount { shift: 2 },
            (Arch::Arm64, _) => Pmu::CyclesOnly,
        }
    }

    pub fn lockdown(self) -> Option<String> {
        matches!(self, Variant::Integrity | Variant::Confidentiality).then(|| self.name().to_owned())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    topology: String,
    variant: Variant,
    archs: Vec<String>,
    kernels: Vec<String>,
    core: Vec<String>,
    core_archs: Option<Vec<String>>,
    /// By architecture or kernel: the only cases that the core set runs there.
    #[serde(default)]
    core_cases: BTreeMap<String, Vec<String>>,
    cases: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    guest: Vec<Row>,
}

/// The choice on the command line; an empty list asks for all.
#[derive(Debug, Default)]
pub struct Wanted {
    pub kernels: Vec<String>,
    pub archs: Vec<Arch>,
    pub topologies: Vec<String>,
    pub variants: Vec<Variant>,
    pub cases: Vec<String>,
    pub core: bool,
}

/// The guests of `guests.toml` that are wanted, smallest detour first: by kernel, then topology.
pub fn jobs(
    text: &str,
    kernels: &[Kernel],
    topologies: &[Topology],
    wanted: &Wanted,
) -> Result<Vec<Job>, String> {
    let file: File = toml::from_str(text).map_err(|error| format!("guests.toml: {error}"))?;
    let mut jobs = Vec::new();
    for row in &file.guest {
        let topology = topologies
            .iter()
            .find(|topology| topology.name == row.topology)
            .ok_or_else(|| format!("guests.toml: no topology {} in topologies.toml", row.topology))?;
        if let Some(key) =
            row.core_cases.keys().find(|key| !row.archs.contains(key) && !row.kernels.contains(key))
        {
            return Err(format!(
                "guests.toml: core_cases has {key}, which is no architecture or kernel of its guests"
            ));
        }
        if let Some(case) = row.core_cases.values().flatten().find(|case| !row.cases.contains(case)) {
            return Err(format!("guests.toml: core_cases has {case}, which is not among the cases"));
        }
        for arch in &row.archs {
            let arch = Arch::parse(arch).map_err(|why| format!("guests.toml: {why}"))?;
            for name in &row.kernels {
                let kernel = kernels
                    .iter()
                    .find(|kernel| kernel.name == *name && kernel.arch == arch)
                    .ok_or_else(|| format!("guests.toml: no kernel {name} for {arch} in KERNELS"))?;
                if !wanted.takes(row, kernel) {
                    continue;
                }
                let short = [arch.debian(), name].map(|key| row.core_cases.get(key).filter(|_| wanted.core));
                let in_set = |case: &&String| short.iter().flatten().all(|short| short.contains(case));
                let cases: Vec<_> = row
                    .cases
                    .iter()
                    .filter(|case| among(&wanted.cases, case))
                    .filter(in_set)
                    .cloned()
                    .collect();
                if !cases.is_empty() {
                    let (kernel, topology) = (kernel.clone(), topology.clone());
                    jobs.push(Job { kernel, topology, variant: row.variant, cases });
                }
            }
        }
    }
    wanted.check(kernels, topologies, &file)?;
    if jobs.is_empty() { Err(wanted.near(&file)) } else { Ok(jobs) }
}

impl Wanted {
    fn takes(&self, row: &Row, kernel: &Kernel) -> bool {
        let in_core = row.core.contains(&kernel.name)
            && row
                .core_archs
                .as_ref()
                .is_none_or(|archs| archs.iter().any(|arch| arch == kernel.arch.debian()));
        (!self.core || in_core)
            && among(&self.kernels, &kernel.name)
            && among(&self.archs, &kernel.arch)
            && among(&self.topologies, &row.topology)
            && among(&self.variants, &row.variant)
    }

    /// The choice to make instead, when each name exists and no guest has all of them.
    fn near(&self, file: &File) -> String {
        let mut guests: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let of_arch = |row: &&Row| {
            self.archs.is_empty()
                || self.archs.iter().any(|arch| row.archs.iter().any(|a| a == arch.debian()))
        };
        for row in file.guest.iter().filter(of_arch) {
            for kernel in row.kernels.iter().filter(|kernel| among(&self.kernels, kernel)) {
                let variant = match row.variant {
                    Variant::Plain => String::new(),
                    other => format!(" {}", other.name()),
                };
                for case in self.cases.iter().filter(|case| row.cases.contains(case)) {
                    guests
                        .entry(kernel)
                        .or_default()
                        .insert(format!("{}{variant} with {case}", row.topology));
                }
                if self.cases.is_empty() {
                    guests.entry(kernel).or_default().insert(format!("{}{variant}", row.topology));
                }
            }
        }
        let join = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
        let near: Vec<String> =
            guests.into_iter().map(|(kernel, names)| format!("{kernel}: {}", join(names))).collect();
        let core = if self.core { " in the core set" } else { "" };
        let near = if near.is_empty() {
            String::new()
        } else {
            format!("; there are (kernel: topologies) {}", near.join("; "))
        };
        format!("no guest of vmtests/guests.toml{core} is what was asked for{near}")
    }

    /// A name that exists nowhere is a mistake of the caller, not an empty run.
    fn check(&self, kernels: &[Kernel], topologies: &[Topology], file: &File) -> Result<(), String> {
        let mut known_cases: Vec<&str> =
            file.guest.iter().flat_map(|row| row.cases.iter().map(String::as_str)).collect();
        known_cases.sort_unstable();
        known_cases.dedup();
        // KERNELS has a line for each architecture.
        let mut known_kernels: Vec<&str> = Vec::new();
        for kernel in kernels {
            if !known_kernels.contains(&kernel.name.as_str()) {
                known_kernels.push(&kernel.name);
            }
        }
        let known_topologies: Vec<&str> = topologies.iter().map(|topology| topology.name.as_str()).collect();
        for (what, asked, known) in [
            ("kernel", &self.kernels, known_kernels),
            ("topology", &self.topologies, known_topologies),
            ("case", &self.cases, known_cases),
        ] {
            if let Some(name) = asked.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(format!("{what} {name:?} is not known: {}", known.join(", ")));
            }
        }
        Ok(())
    }
}

fn among<T: PartialEq>(asked: &[T], one: &T) -> bool {
    asked.is_empty() || asked.contains(one)
}

/// The guests of the shipped files that are wanted.
#[cfg(test)]
pub fn shipped(wanted: &Wanted) -> Result<Vec<Job>, String> {
    let kernels = crate::kernels::parse(include_str!("../KERNELS")).unwrap();
    let topologies = crate::topology::parse(include_str!("../topologies.toml")).unwrap();
    jobs(include_str!("../guests.toml"), &kernels, &topologies, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_set_has_two_kernels_of_each_architecture_and_sixteen_nodes() {
        let core = shipped(&Wanted { core: true, ..Wanted::default() }).unwrap();
        for arch in [Arch::Amd64, Arch::Arm64] {
            let on_two = core.iter().filter(|job| job.kernel.arch == arch && job.topology.name == "2");
            let mut kernels: Vec<_> = on_two.map(|job| job.kernel.name.as_str()).collect();
            kernels.sort_unstable();
            kernels.dedup();
            assert_eq!(kernels, ["6.1", "6.12"]);
        }
        assert!(core.iter().any(|job| job.topology.name == "16"));
        let all = shipped(&Wanted::default()).unwrap();
        assert!(all.len() > core.len());
    }

    #[test]
    fn the_core_set_leaves_out_what_another_of_its_guests_shows() {
        let cases = |core, kernel: &str, arch| {
            let (kernels, archs) = (vec![kernel.into()], vec![arch]);
            let jobs = shipped(&Wanted { core, kernels, archs, ..Wanted::default() }).unwrap();
            jobs.into_iter().find(|job| job.cases.contains(&"load".to_owned())).unwrap().cases
        };
        let (core, all) = (cases(true, "6.1", Arch::Arm64), cases(false, "6.1", Arch::Arm64));
        assert!(core.contains(&"tui".to_owned()) && !core.contains(&"storm".to_owned()));
        assert!(all.contains(&"storm".to_owned()) && core.iter().all(|case| all.contains(case)));
        let old = cases(true, "6.1", Arch::Amd64);
        assert!(old.contains(&"storm".to_owned()) && !old.contains(&"scope".to_owned()));
        assert_eq!(cases(true, "6.12", Arch::Amd64), cases(false, "6.12", Arch::Amd64));
    }

    #[test]
    fn what_is_asked_narrows_guests_and_cases() {
        let wanted =
            Wanted { kernels: vec!["6.12".into()], cases: vec!["nodes".into()], ..Wanted::default() };
        let jobs = shipped(&wanted).unwrap();
        assert!(!jobs.is_empty());
        assert!(jobs.iter().all(|job| job.kernel.name == "6.12" && job.cases == ["nodes"]));
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let wanted = Wanted { cases: vec!["nods".into()], ..Wanted::default() };
        assert!(shipped(&wanted).unwrap_err().starts_with("case \"nods\" is not known: "));
        let wanted = Wanted { kernels: vec!["6.13".into()], ..Wanted::default() };
        assert_eq!(shipped(&wanted).unwrap_err(), "kernel \"6.13\" is not known: 5.10, 6.1, 6.12, 7.x");
    }

    #[test]
    fn a_guest_that_does_not_exist_is_told_with_those_of_its_kernel() {
        let (kernels, topologies) = (vec!["7.x".into()], vec!["16".into()]);
        let why = shipped(&Wanted { kernels, topologies, ..Wanted::default() }).unwrap_err();
        let there =
            "no guest of vmtests/guests.toml is what was asked for; there are (kernel: topologies) 7.x: ";
        assert!(why.starts_with(there), "{why}");
        let (kernels, cases) = (vec!["5.10".into()], vec!["storm".into()]);
        let why = shipped(&Wanted { kernels, cases, ..Wanted::default() }).unwrap_err();
        assert!(why.ends_with("what was asked for"), "{why}");
    }
}
