//! Values of flags: lengths of time, sizes, shares.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};

use super::machine::{Binding, Bound, NodeList};
use super::recordings::ExportFormat;
use crate::export::{FORMATS, Format};
use crate::metric::task::TASK_METRICS;
use crate::model::group;
use crate::model::topology::parse_cpulist;
use crate::tables::Table;
use crate::text::printable;

/// The formats of batch output, by name.
pub(super) fn formats() -> impl TypedValueParser<Value = &'static Format> {
    PossibleValuesParser::new(FORMATS.map(|format| format.name))
        .map(|name| Format::named(&name).expect("these are the names of formats"))
}

/// The formats of `export`, by name.
pub(super) fn export_formats() -> impl TypedValueParser<Value = ExportFormat> {
    let all = ExportFormat::all();
    PossibleValuesParser::new(all.iter().map(ExportFormat::name)).map(move |name| {
        let named = all.iter().find(|format| format.name() == name);
        *named.expect("these are the names of formats")
    })
}

/// Tables by name.
pub(super) fn tables() -> impl TypedValueParser<Value = Table> {
    PossibleValuesParser::new(Table::ALL.map(Table::name))
        .map(|name| Table::named(&name).expect("these are the names of tables"))
}

pub(super) fn delay(text: &str) -> Result<f64, String> {
    let seconds: f64 =
        text.parse().map_err(|_| format!("'{}' is not a number of seconds", printable(text)))?;
    if (0.1..=60.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{text} is outside 0.1 to 60 seconds"))
    }
}

/// Names of metrics. Any text is accepted: titles of columns are names, too, and a later message lists the
/// nearest names. Shells complete ids.
#[derive(Clone)]
pub(super) struct MetricName;

impl TypedValueParser for MetricName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(TASK_METRICS.iter().map(|metric| PossibleValue::new(metric.id))))
    }
}

/// A number in a range, both ends included.
pub(super) fn between<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("not a number from {LEAST} to {MOST}"))
}

/// A count from 1 on.
pub(super) fn at_least_one(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a number of at least 1".into()),
    }
}

/// The id of a process.
pub(super) fn process_id(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|id| *id > 0).ok_or_else(|| "not a process id".into())
}

/// Seconds that a calibration takes.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if (1.0..=3600.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err(format!("{} is outside 1 to 3600 seconds", printable(text))),
        Err(_) => Err(format!("'{}' is not a number of seconds", printable(text))),
    }
}

/// Percent of free memory: more than half would leave too little for others.
pub(super) fn memory_share(text: &str) -> Result<f64, String> {
    match percent(text)? {
        percent if (0.1..=50.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{} is outside 0.1 to 50 percent", printable(text))),
    }
}

/// `0-3,8`: ids of nodes.
pub(super) fn nodes(text: &str) -> Result<NodeList, String> {
    match parse_cpulist(text) {
        Ok(nodes) if !nodes.is_empty() => Ok(NodeList(nodes)),
        _ => Err(format!("'{}' is not a list of nodes such as 0-3,8", printable(text))),
    }
}

/// `node:0,mem:1`, `core:0,1`: kinds of places, each with a list.
pub(super) fn binding(text: &str) -> Result<Binding, String> {
    let wrong =
        || format!("'{}' is not a place such as node:0, node:0,mem:1, core:0,1 or cpu:0-3", printable(text));
    let mut parts: Vec<(Bound, Vec<u32>)> = Vec::new();
    for word in text.split(',') {
        let list = match word.split_once(':') {
            Some((kind, list)) => {
                parts.push((Bound::named(kind).ok_or_else(wrong)?, Vec::new()));
                list
            }
            None => word,
        };
        let ids = parse_cpulist(list).ok().filter(|ids| !ids.is_empty()).ok_or_else(wrong)?;
        parts.last_mut().ok_or_else(wrong)?.1.extend(ids);
    }
    Ok(Binding { text: text.to_owned(), parts })
}

/// `500M`, `2GiB`: a number of bytes with a binary unit, 1 MiB or more.
pub(super) fn size(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 1 << 20;
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("'{}' is not a unit of size: use K, M, G or T", printable(unit))),
    };
    let number: u64 =
        number.trim().parse().map_err(|_| format!("'{}' is not a size such as 2GiB", printable(text)))?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= LEAST => Ok(bytes),
        Some(_) => Err("the minimum is 1M".into()),
        None => Err(format!("{} is too large", printable(text))),
    }
}

pub(super) fn age(text: &str) -> Result<Duration, String> {
    crate::record::time::duration(text)
        .filter(|ns| *ns > 0)
        .map(|ns| Duration::from_nanos(ns as u64))
        .ok_or_else(|| format!("'{}' is not a length of time such as 12h or 7d", printable(text)))
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent >= 0.0 && percent.is_finite() => Ok(percent),
        _ => Err(format!("'{}' is not a percentage", printable(text))),
    }
}

/// A path of cgroups or a pattern of them, which need not be UTF-8.
pub(super) fn cgroup(typed: OsString) -> Result<String, &'static str> {
    match typed.is_empty() {
        true => Err("a path is needed"),
        false => Ok(group::from_bytes(typed.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [("2GiB", 2 << 30), ("500M", 500 << 20), ("1048576", 1 << 20), ("3gb", 3 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "1X", "100k", "-1G", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_shares_of_a_calibration_have_limits() {
        assert_eq!((seconds("5"), seconds("12.5s")), (Ok(5.0), Ok(12.5)));
        for text in ["", "0.5", "4000", "nan", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(memory_share("20%"), Ok(20.0));
        for text in ["0", "51", "inf", "x"] {
            assert!(memory_share(text).is_err(), "{text}");
        }
        assert_eq!(nodes("0-2,5"), Ok(NodeList(vec![0, 1, 2, 5])));
        for text in ["", "a", "3-1", "0,"] {
            assert!(nodes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_place_has_kinds_and_lists() {
        let parts = |text: &str| binding(text).map(|binding| binding.parts);
        assert_eq!(parts("core:0,1"), Ok(vec![(Bound::Core, vec![0, 1])]));
        assert_eq!(parts("node:0,mem:1-2"), Ok(vec![(Bound::Node, vec![0]), (Bound::Memory, vec![1, 2])]));
        for text in ["", "0", "node", "node:", "node:x", "socket:0", "node:0,,1"] {
            assert!(parts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn delays_have_limits() {
        for (text, ok) in [
            ("1", true),
            ("0.1", true),
            ("60", true),
            ("0.09", false),
            ("61", false),
            ("x", false),
            ("nan", false),
        ] {
            assert_eq!(delay(text).is_ok(), ok, "{text}");
        }
    }
}
