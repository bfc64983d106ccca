//! The machine as the kernel describes it in /sys: the truth for the tool's output.

use std::fs;
use std::path::Path;

/// Reads a list of numbers such as `0-3,8`.
pub fn parse_list(text: &str) -> Result<Vec<u32>, String> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let bad = |_| format!("not a list of numbers: {text:?}");
        match part.split_once('-') {
            Some((first, last)) => {
                numbers.extend(first.parse::<u32>().map_err(bad)?..=last.parse::<u32>().map_err(bad)?);
            }
            None => numbers.push(part.parse().map_err(bad)?),
        }
    }
    Ok(numbers)
}

/// Writes numbers as the kernel does: `0-3,8`; `none` when there are none.
pub fn show_list(numbers: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let first = numbers[at];
        while at + 1 < numbers.len() && numbers[at + 1] == numbers[at] + 1 {
            at += 1;
        }
        parts.push(if numbers[at] == first { first.to_string() } else { format!("{first}-{}", numbers[at]) });
        at += 1;
    }
    if parts.is_empty() { "none".to_owned() } else { parts.join(",") }
}

pub fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|error| format!("reading {}: {error}", path.display()))
}

pub fn write(path: impl AsRef<Path>, text: &str) -> Result<(), String> {
    let path = path.as_ref();
    fs::write(path, text).map_err(|error| format!("writing {text:?} to {}: {error}", path.display()))
}

/// A file with a list of numbers.
pub fn list(path: impl AsRef<Path>) -> Result<Vec<u32>, String> {
    parse_list(&read(path)?)
}

pub fn nodes() -> Result<Vec<u32>, String> {
    list("/sys/devices/system/node/online")
}

pub fn online_cpus() -> Result<Vec<u32>, String> {
    list("/sys/devices/system/cpu/online")
}

pub fn set_online(cpu: u32, online: bool) -> Result<(), String> {
    write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), if online { "1" } else { "0" })
}

pub fn node_cpus(node: u32) -> Result<Vec<u32>, String> {
    list(format!("/sys/devices/system/node/node{node}/cpulist"))
}

pub fn node_distances(node: u32) -> Result<Vec<u32>, String> {
    let text = read(format!("/sys/devices/system/node/node{node}/distance"))?;
    text.split_whitespace()
        .map(|word| word.parse().map_err(|_| format!("not distances of node {node}: {text:?}")))
        .collect()
}

/// The CPUs that share a core with this one, itself included.
pub fn siblings(cpu: u32) -> Result<Vec<u32>, String> {
    list(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
}

/// A line of a node's meminfo, such as MemTotal or MemFree, in KiB.
pub fn node_memory_kib(node: u32, line: &str) -> Result<u64, String> {
    let text = read(format!("/sys/devices/system/node/node{node}/meminfo"))?;
    text.lines()
        .find_map(|candidate| candidate.split_once(&format!(" {line}:")))
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("no {line} for node {node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_went() {
        assert_eq!(parse_list("0-2,4,8-9\n").unwrap(), [0, 1, 2, 4, 8, 9]);
        assert_eq!(show_list(&[0, 1, 2, 4, 8, 9]), "0-2,4,8-9");
        assert!(parse_list("").unwrap().is_empty());
        assert_eq!(show_list(&[]), "none");
        assert!(parse_list("0-x").unwrap_err().contains("0-x"));
    }
}
