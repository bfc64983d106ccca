//! Facts of public event lists, as `scripts/upstream-events` wrote them: names and numbers of the events that our
//! tables use. Each file names its source and version in its first line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use numatop_ng::pmu::table::{CpuMatch, Table};

/// An event of a list.
#[derive(Debug)]
pub struct Fact {
    /// `perfmon/BDX`: the source, and its list for one microarchitecture.
    pub list: String,
    pub name: String,
    /// Codes that it can be counted with; none for half of an offcore value.
    pub events: Vec<u64>,
    /// Masks that it can be counted with: one, or one for each offcore register. None is 0.
    pub umasks: Vec<u64>,
    /// Values of other terms, 0 where the list does not have them.
    pub cmask: u64,
    pub inv: u64,
    pub edge: u64,
    pub any: u64,
    /// Of the offcore register.
    pub msr: u64,
    /// As the vendor writes them.
    pub counters: String,
    pub errata: BTreeSet<String>,
}

/// CPUs that a list is about; ranges are inclusive.
#[derive(Debug)]
pub struct Id {
    pub list: String,
    /// CPUID's, or `arm`.
    pub vendor: String,
    /// Implementer on Arm.
    pub family: u32,
    /// Parts on Arm.
    pub models: (u32, u32),
    pub steppings: (u32, u32),
}

impl Id {
    /// Whether `table` claims one of these CPUs.
    fn meets(&self, table: &Table) -> bool {
        let meet = |a: (u32, u32), b: (u32, u32)| a.0 <= b.1 && b.0 <= a.1;
        table.cpus.iter().any(|cpu| match cpu {
            CpuMatch::X86 { vendor, family, models, steppings } => {
                *vendor == self.vendor
                    && *family == self.family
                    && models.iter().any(|range| meet(*range, self.models))
                    && steppings.is_none_or(|range| meet(range, self.steppings))
            }
            CpuMatch::Arm { implementer, part } => {
                self.vendor == "arm" && *implementer == self.family && meet((*part, *part), self.models)
            }
        })
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worlds/pmu_tables/upstream")
}

/// The lines of a file, split at tabs, without the source and the names of the columns.
fn lines(file: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|line| line.split('\t').map(str::to_string).collect()).collect()
}

fn number(text: &str) -> u64 {
    match text {
        "-" => 0,
        hex => u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("'{hex}'")),
    }
}

fn small(text: &str) -> u32 {
    u32::try_from(number(text)).unwrap()
}

/// Files whose name begins so.
fn files(prefix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(prefix));
    paths.sort_unstable();
    paths
}

/// Every event of every list.
pub fn facts() -> &'static [Fact] {
    static FACTS: LazyLock<Vec<Fact>> = LazyLock::new(|| {
        let sources = ["arm-data.", "libpfm4.", "likwid.", "linux.", "perfmon."];
        let rows = sources.iter().flat_map(|prefix| files(prefix)).flat_map(|file| lines(&file));
        rows.map(|row| Fact {
            list: row[0].clone(),
            name: row[1].clone(),
            events: row[2].split('|').filter(|code| *code != "-").map(number).collect(),
            umasks: row[3].split('|').map(number).collect(),
            cmask: number(&row[4]),
            inv: number(&row[5]),
            edge: number(&row[6]),
            any: number(&row[7]),
            msr: number(&row[8]),
            counters: row[9].clone(),
            errata: row[10].split(", ").filter(|one| *one != "-").map(str::to_string).collect(),
        })
        .collect()
    });
    &FACTS
}

/// The ids of one source (`perfmon`, `linux-x86`, `amd.c`, …).
pub fn ids(source: &str) -> Vec<Id> {
    let rows = files(&format!("ids-{source}.tsv")).into_iter().flat_map(|file| lines(&file));
    rows.map(|row| Id {
        list: row[0].clone(),
        vendor: row[1].clone(),
        family: small(&row[2]),
        models: (small(&row[3]), small(&row[4])),
        steppings: (small(&row[5]), small(&row[6])),
    })
    .collect()
}

/// The sources of ids that say which list a CPU has.
const SOURCES: [&str; 6] = ["arm-data", "libpfm4", "likwid", "linux-arm64", "linux-x86", "perfmon"];

/// The lists about CPUs that a table claims. Perf's map file knows an AMD generation by elimination, so a
/// list of one generation is not about CPUs that amd.c assigns to another.
pub fn lists(table: &Table) -> BTreeSet<String> {
    let amd = ids("amd.c");
    let generations: BTreeSet<&str> =
        amd.iter().filter(|id| id.meets(table)).map(|id| id.list.as_str()).collect();
    let of_another = |list: &str| match list.strip_prefix("linux/amd") {
        Some(generation) => !generations.is_empty() && !generations.contains(generation),
        None => false,
    };
    let all = SOURCES.iter().flat_map(|source| ids(source)).filter(|id| id.meets(table)).map(|id| id.list);
    all.filter(|list| !of_another(list)).collect()
}

/// The facts about CPUs that a table claims.
pub fn about(table: &Table) -> Vec<&'static Fact> {
    let lists = lists(table);
    facts().iter().filter(|fact| lists.contains(&fact.list)).collect()
}

/// Parts of names, in lower case, by which an event for a role would be known.
pub fn role_names() -> Vec<(String, String)> {
    lines(&folder().join("roles.tsv")).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

/// The events that the kernel's driver for Arm lists where the core implements them: code and name.
pub fn sysfs() -> Vec<(u64, String)> {
    lines(&folder().join("sysfs.tsv")).into_iter().map(|row| (number(&row[0]), row[1].clone())).collect()
}
