//! The events that the kernel names itself, as perf-list(1) spells them: hardware, software and cache events.
//!
//! Numbers are those of include/uapi/linux/perf_event.h. perf_event_open(2) fails for those that a CPU lacks.

use super::{Event, Role};

pub(super) const HARDWARE: u32 = 0;
pub(super) const SOFTWARE: u32 = 1;
pub(super) const HW_CACHE: u32 = 3;

/// An event with a fixed number: its spellings, the usual one first, and the use of its count.
struct Plain {
    names: &'static [&'static str],
    kind: u32,
    config: u64,
    role: Role,
}

const fn plain(names: &'static [&'static str], kind: u32, config: u64) -> Plain {
    Plain { names, kind, config, role: Role::Other }
}

/// Hardware and software events. The dummy event, output of BPF programs and others that count nothing are left out.
const PLAIN: &[Plain] = &[
    Plain { names: &["cycles", "cpu-cycles"], kind: HARDWARE, config: 0, role: Role::Cycles },
    Plain { names: &["instructions"], kind: HARDWARE, config: 1, role: Role::Instructions },
    plain(&["cache-references"], HARDWARE, 2),
    plain(&["cache-misses"], HARDWARE, 3),
    plain(&["branches", "branch-instructions"], HARDWARE, 4),
    Plain { names: &["branch-misses"], kind: HARDWARE, config: 5, role: Role::Branch },
    plain(&["bus-cycles"], HARDWARE, 6),
    plain(&["stalled-cycles-frontend", "idle-cycles-frontend"], HARDWARE, 7),
    plain(&["stalled-cycles-backend", "idle-cycles-backend"], HARDWARE, 8),
    plain(&["ref-cycles"], HARDWARE, 9),
    plain(&["cpu-clock"], SOFTWARE, 0),
    plain(&["task-clock"], SOFTWARE, 1),
    plain(&["page-faults", "faults"], SOFTWARE, 2),
    plain(&["context-switches", "cs"], SOFTWARE, 3),
    plain(&["cpu-migrations", "migrations"], SOFTWARE, 4),
    plain(&["minor-faults"], SOFTWARE, 5),
    plain(&["major-faults"], SOFTWARE, 6),
    plain(&["alignment-faults"], SOFTWARE, 7),
    plain(&["emulation-faults"], SOFTWARE, 8),
    plain(&["cgroup-switches"], SOFTWARE, 11),
];

/// A cache of PERF_TYPE_HW_CACHE: its spellings, and the operations that it can have.
struct Cache {
    names: &'static [&'static str],
    operations: &'static [Operation],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Prefetch,
}

use Operation::{Prefetch, Read, Write};

/// In the order of their numbers in `enum perf_hw_cache_id`.
const CACHES: [Cache; 7] = [
    Cache { names: &["L1-dcache", "l1-d", "l1d", "L1-data"], operations: &[Read, Write, Prefetch] },
    Cache { names: &["L1-icache", "l1-i", "l1i", "L1-instruction"], operations: &[Read, Prefetch] },
    Cache { names: &["LLC", "L2"], operations: &[Read, Write, Prefetch] },
    Cache { names: &["dTLB", "d-tlb", "Data-TLB"], operations: &[Read, Write, Prefetch] },
    Cache { names: &["iTLB", "i-tlb", "Instruction-TLB"], operations: &[Read] },
    Cache { names: &["branch", "branches", "bpu", "btb", "bpc"], operations: &[Read] },
    Cache { names: &["node"], operations: &[Read, Write, Prefetch] },
];

/// Spellings of an operation, the usual one of many accesses first.
const OPERATIONS: [(Operation, &[&str]); 3] = [
    (Read, &["loads", "load", "read"]),
    (Write, &["stores", "store", "write"]),
    (Prefetch, &["prefetches", "prefetch", "speculative-read", "speculative-load"]),
];

const ACCESSES: &[&str] = &["refs", "reference", "ops", "access"];
const MISSES: &[&str] = &["misses", "miss"];

/// `config` of a cache event: cache, operation and result, one byte each.
const fn cache_config(cache: u64, operation: Operation, missed: bool) -> u64 {
    cache | (operation as u64) << 8 | (missed as u64) << 16
}

/// Loads of a cache and the part of them that missed: the two events of a miss ratio, by number of the cache.
pub const fn loads_and_misses(cache: u64) -> [(u32, u64); 2] {
    [(HW_CACHE, cache_config(cache, Read, false)), (HW_CACHE, cache_config(cache, Read, true))]
}

/// The type and number of a hardware event.
pub const fn hardware(config: u64) -> (u32, u64) {
    (HARDWARE, config)
}

fn event(name: &str, kind: u32, config: u64, role: Role) -> Event {
    Event { name: name.into(), kind, config, role, ..Event::default() }
}

/// Every event that the kernel names, by its usual name.
pub fn all() -> Vec<Event> {
    let plain = PLAIN.iter().map(|of| event(of.names[0], of.kind, of.config, of.role));
    let caches = CACHES.iter().zip(0..).flat_map(|(cache, number)| {
        cache.operations.iter().flat_map(move |operation| {
            let (accesses, access) = match operation {
                Read => ("loads", "load"),
                Write => ("stores", "store"),
                Prefetch => ("prefetches", "prefetch"),
            };
            let name = cache.names[0];
            let of = |name: String, missed| {
                event(&name, HW_CACHE, cache_config(number, *operation, missed), Role::Other)
            };
            [of(format!("{name}-{accesses}"), false), of(format!("{name}-{access}-misses"), true)]
        })
    });
    plain.chain(caches).collect()
}

/// The event with this name or alias, in any case of letters. It keeps the typed name, in the spelling of the
/// kernel's tools.
pub fn find(typed: &str) -> Option<Event> {
    let found = PLAIN.iter().find_map(|of| {
        let name = of.names.iter().find(|name| name.eq_ignore_ascii_case(typed))?;
        Some(event(name, of.kind, of.config, of.role))
    });
    found.or_else(|| {
        let usual = all().into_iter().find(|event| event.name.eq_ignore_ascii_case(typed));
        usual.or_else(|| Some(event(typed, HW_CACHE, cache(&typed.to_ascii_lowercase())?, Role::Other)))
    })
}

/// The number of a cache event as perf composes names: a cache, then an operation, a result, or both, in any order.
fn cache(typed: &str) -> Option<u64> {
    let after = |alias: &str| typed.strip_prefix(&alias.to_ascii_lowercase()).map(str::to_owned);
    // The longest spelling that fits: "branches" begins with "branch".
    let fits = CACHES.iter().zip(0..).flat_map(|(cache, number)| {
        cache.names.iter().filter_map(move |alias| Some((cache, number, alias.len(), after(alias)?)))
    });
    let (cache, number, _, mut rest) = fits.max_by_key(|(_, _, length, _)| *length)?;
    let (mut operation, mut missed) = (None, None);
    while let Some(part) = rest.strip_prefix('-') {
        let spelled = |names: &[&'static str]| {
            names.iter().copied().filter(|name| begins(part, name)).max_by_key(|name| name.len())
        };
        let of_operation = OPERATIONS.iter().find_map(|(which, names)| Some((*which, spelled(names)?)));
        let length = match (of_operation, spelled(ACCESSES), spelled(MISSES)) {
            (Some((which, name)), ..) if operation.replace(which).is_none() => name.len(),
            (None, Some(name), _) if missed.replace(false).is_none() => name.len(),
            (None, None, Some(name)) if missed.replace(true).is_none() => name.len(),
            _ => return None,
        };
        rest = part[length..].to_owned();
    }
    let operation = operation.unwrap_or(Read);
    let is_sound = rest.is_empty() && cache.operations.contains(&operation);
    is_sound.then(|| cache_config(number, operation, missed.unwrap_or(false)))
}

/// Whether the next word, or words, of `text` are `name`.
fn begins(text: &str, name: &str) -> bool {
    text.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(name: &str) -> Option<(u32, u64)> {
        find(name).map(|event| (event.kind, event.config))
    }

    /// Facts of `perf list` and `perf stat -vv` of perf 6.1: name, perf_event_attr.type, perf_event_attr.config.
    #[test]
    fn names_have_the_numbers_that_perf_gives_them() {
        for (name, kind, config) in [
            ("cpu-cycles", 0, 0),
            ("branch-instructions", 0, 4),
            ("branches", 0, 4),
            ("bus-cycles", 0, 6),
            ("idle-cycles-backend", 0, 8),
            ("faults", 1, 2),
            ("cs", 1, 3),
            ("migrations", 1, 4),
            ("emulation-faults", 1, 8),
            ("L1-dcache-loads", 3, 0),
            ("L1-dcache-load-misses", 3, 0x10000),
            ("L1-dcache-stores", 3, 0x100),
            ("L1-dcache-store-misses", 3, 0x10100),
            ("L1-dcache-prefetches", 3, 0x200),
            ("L1-dcache-prefetch-misses", 3, 0x10200),
            ("L1-icache-loads", 3, 1),
            ("L1-icache-load-misses", 3, 0x10001),
            ("L1-icache-prefetches", 3, 0x201),
            ("LLC-loads", 3, 2),
            ("LLC-load-misses", 3, 0x10002),
            ("LLC-stores", 3, 0x102),
            ("LLC-prefetch-misses", 3, 0x10202),
            ("dTLB-loads", 3, 3),
            ("dTLB-store-misses", 3, 0x10103),
            ("iTLB-load-misses", 3, 0x10004),
            ("branch-loads", 3, 5),
            ("branch-load-misses", 3, 0x10005),
            ("node-stores", 3, 0x106),
            ("node-prefetch-misses", 3, 0x10206),
            ("l1d-read-miss", 3, 0x10000),
            ("dtlb-speculative-read-access", 3, 0x203),
            ("l1-i", 3, 1),
            ("llc-misses", 3, 0x10002),
        ] {
            assert_eq!(encoding(name), Some((kind, config)), "{name}");
        }
    }

    #[test]
    fn what_no_cache_has_is_no_name() {
        for name in [
            "L1-icache-stores",
            "iTLB-stores",
            "branch-prefetches",
            "LLC-load-loads",
            "LLC-",
            "LLCs",
            "node-x",
            "",
        ] {
            assert_eq!(encoding(name), None, "{name}");
        }
    }

    #[test]
    fn every_usual_name_finds_its_event_in_any_case() {
        for event in all() {
            assert_eq!(find(&event.name.to_ascii_uppercase()).unwrap(), event);
        }
        assert_eq!(all().len(), 20 + 32);
    }
}
