//! The event tables that the program carries.

use std::sync::LazyLock;

use super::table::Table;

/// Id (the path below src/pmu/events without its ending) and text.
macro_rules! tables {
    ($($id:literal),* $(,)?) => { [$(($id, include_str!(concat!("events/", $id, ".toml")))),*] };
}

const TEXTS: [(&str, &str); 32] = tables![
    "amd/zen1",
    "amd/zen2",
    "amd/zen3",
    "amd/zen4",
    "amd/zen5",
    "amd/zen6",
    "ampere/ampereone",
    "ampere/ampereonex",
    "arm/neoverse-n1",
    "arm/neoverse-n2",
    "arm/neoverse-n3",
    "arm/neoverse-v1",
    "arm/neoverse-v2",
    "arm/neoverse-v3",
    "fujitsu/a64fx",
    "fujitsu/monaka",
    "generic/arm-pmuv3",
    "generic/kernel",
    "hisilicon/tsv110",
    "hygon/dhyana",
    "intel/broadwell-ep",
    "intel/cascade-lake-sp",
    "intel/clearwater-forest",
    "intel/emerald-rapids",
    "intel/granite-rapids",
    "intel/haswell-ep",
    "intel/ice-lake-sp",
    "intel/sapphire-rapids",
    "intel/sierra-forest",
    "intel/skylake-sp",
    "nvidia/olympus",
    "phytium/ftc66x",
];

/// Every table with its id.
pub fn tables() -> impl Iterator<Item = (&'static str, &'static Table)> {
    static TABLES: LazyLock<Vec<(&str, Table)>> = LazyLock::new(|| {
        let parse = |text| Table::parse(text).expect("a test parses every table");
        TEXTS.iter().map(|(id, text)| (*id, parse(text))).collect()
    });
    TABLES.iter().map(|(id, table)| (*id, table))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_table_parses() {
        for (id, text) in TEXTS {
            if let Err(error) = Table::parse(text) {
                panic!("{id}: {error:#}");
            }
        }
    }

    #[test]
    fn every_file_is_carried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pmu/events");
        let mut files = 0;
        for vendor in fs::read_dir(&root).unwrap() {
            for file in fs::read_dir(vendor.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let id = path.strip_prefix(&root).unwrap().with_extension("");
                assert!(
                    TEXTS.iter().any(|(known, _)| Path::new(known) == id),
                    "{} is not carried",
                    id.display()
                );
                files += 1;
            }
        }
        assert_eq!(files, TEXTS.len());
    }
}
