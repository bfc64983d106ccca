//! Names of files. A recording always has the same ones, so that existing files need not be made again. Pure.

use std::path::PathBuf;

use jiff::Timestamp;

use super::Table;

/// The part of a recording that is in one file of each table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the machine. Clean.
    pub hostname: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// Begin of its time, ns since 1970; and its length, ns.
    pub from_ns: i64,
    /// See `from_ns`.
    pub period_ns: i64,
    /// Its first sample, ns since 1970.
    pub first_ns: i64,
}

impl Part {
    /// The begin of the period that contains a moment. Periods of one length begin at its multiples since
    /// 1970, as hours and days in UTC do.
    pub fn begin(wall_ns: i64, period_ns: i64) -> i64 {
        wall_ns.saturating_sub(wall_ns.rem_euclid(period_ns))
    }

    /// The folder of its file of this table, below that of all tables: as Hive divides tables, by day and host.
    pub fn folder(&self, table: Table) -> PathBuf {
        let day = moment(self.from_ns).strftime("%Y-%m-%d").to_string();
        [table.name(), &format!("date={day}"), &format!("host={}", escaped(&self.hostname))].iter().collect()
    }

    /// The name of its file: that of its first sample and of the boot.
    pub fn name(&self) -> String {
        format!("{}{}", second(self.first_ns), self.suffix())
    }

    /// Whether a file of this name is of the same time and boot, and began before: of a ring whose first samples were
    /// removed meanwhile.
    pub fn is_in(&self, name: &str) -> bool {
        let Some(first) = name.strip_suffix(&self.suffix()) else { return false };
        let own = second(self.first_ns);
        first.len() == own.len() && *first >= *second(self.from_ns) && *first <= *own
    }

    fn suffix(&self) -> String {
        // A recording may say anything.
        let short: String = self.boot_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        format!("-{}.parquet", if short.is_empty() { "0" } else { &short })
    }
}

fn moment(wall_ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(wall_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `20261120T031200Z`
fn second(wall_ns: i64) -> String {
    moment(wall_ns).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// A value in the name of a folder, as Hive writes it. Characters with a meaning in paths become `%` and two
/// digits, and an empty text has a special name.
fn escaped(value: &str) -> String {
    const SPECIAL: &str = "\"#%'*/:=?\\{}[]^";
    if value.is_empty() {
        return "__HIVE_DEFAULT_PARTITION__".into();
    }
    let escape = |c: char| match c {
        c if c.is_ascii_control() || SPECIAL.contains(c) => format!("%{:02X}", c as u32),
        c => c.to_string(),
    };
    value.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    fn part(first_ns: i64) -> Part {
        Part {
            hostname: "db-eu-03".into(),
            boot_id: "4be1c0de-0000-4000-8000-000000000001".into(),
            from_ns: Part::begin(first_ns, HOUR_NS),
            period_ns: HOUR_NS,
            first_ns,
        }
    }

    /// 2026-11-20T03:12:00Z.
    const FIRST: i64 = 1_795_144_320_000_000_000;

    #[test]
    fn names_have_day_host_first_sample_and_boot() {
        let part = part(FIRST);
        assert_eq!(part.folder(Table::Tasks).to_str(), Some("tasks/date=2026-11-20/host=db-eu-03"));
        assert_eq!(part.name(), "20261120T031200Z-4be1c0de.parquet");
        let hostile = Part { hostname: "../a/b%\u{1b}".into(), boot_id: "../..".into(), ..part };
        assert_eq!(hostile.folder(Table::Hot).to_str(), Some("hot/date=2026-11-20/host=..%2Fa%2Fb%25%1B"));
        assert_eq!(hostile.name(), "20261120T031200Z-0.parquet");
        let nameless = Part { hostname: String::new(), ..hostile };
        assert!(nameless.folder(Table::Hot).ends_with("host=__HIVE_DEFAULT_PARTITION__"));
    }

    #[test]
    fn a_file_of_the_same_hour_and_boot_that_began_before_has_the_rest() {
        let part = part(FIRST);
        for (name, is_in) in [
            ("20261120T031200Z-4be1c0de.parquet", true),
            ("20261120T030000Z-4be1c0de.parquet", true),
            ("20261120T025959Z-4be1c0de.parquet", false),
            ("20261120T031201Z-4be1c0de.parquet", false),
            ("20261120T030000Z-00000000.parquet", false),
            (".tmp-7-20261120T030000Z-4be1c0de.parquet", false),
        ] {
            assert_eq!(part.is_in(name), is_in, "{name}");
        }
    }

    #[test]
    fn hours_before_1970_begin_before() {
        assert_eq!(Part::begin(-1, HOUR_NS), -HOUR_NS);
        assert_eq!(Part::begin(HOUR_NS, HOUR_NS), HOUR_NS);
        assert_eq!(Part::begin(i64::MIN, HOUR_NS), i64::MIN);
    }
}
