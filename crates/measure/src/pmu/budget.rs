//! Free counters of the PMU, whether events fit on them at the same time, and the files that counters take: an open event is a
//! descriptor on each CPU.

use std::path::Path;

use super::catalog::Catalog;
use super::table::CounterPlace;
use crate::host::fact;
use crate::model::event::{Event, Role};
use crate::model::sample::Missing;
use crate::model::units::CpuId;

/// The number of counters that is assumed where no table has one: as many as any server CPU has. That they are
/// free is found out by opening the events together.
const LEAST: u32 = 4;

/// Offcore-response registers of a hardware thread (Intel).
const OFFCORE: usize = 2;

/// The counters of one hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Counters for any event.
    pub general: u32,
    /// Cycles have a counter of their own.
    pub cycles_fixed: bool,
    /// The NMI watchdog counts cycles on every CPU.
    pub watchdog: bool,
    /// The kernel keeps counter 3 for its TSX workaround (Skylake-SP, Cascade Lake).
    pub tsx_workaround: bool,
}

/// The needs of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub role: Role,
    pub place: CounterPlace,
    pub offcore: bool,
}

impl Budget {
    /// The counters of the machine below `root`. `smt`: some core runs two threads. `counted`: the number
    /// reported by the CPU ([`general_by_cpuid`]); a hypervisor may leave fewer than the table lists.
    pub fn read(root: &Path, catalog: &Catalog, smt: bool, counted: Option<u32>) -> Budget {
        let of_table = |counters: &super::table::Counters| match counters.general_smt_off {
            Some(more) if !smt => more,
            _ => counters.general,
        };
        let general =
            catalog.cores.iter().map(|core| core.table.counters.as_ref().map_or(LEAST, of_table)).min();
        let general = general.unwrap_or(LEAST);
        let fixed = |core: &super::catalog::Core| {
            core.table.entries(Role::Cycles).any(|entry| entry.counters == CounterPlace::Fixed)
        };
        let is_one = |path: &str| fact::text(root, path).is_ok_and(|text| text == "1");
        Budget {
            general: counted.map_or(general, |counted| counted.min(general)),
            cycles_fixed: catalog.cores.iter().all(fixed),
            watchdog: is_one("proc/sys/kernel/nmi_watchdog"),
            tsx_workaround: is_one("sys/bus/event_source/devices/cpu/allow_tsx_force_abort"),
        }
    }

    /// Counters free for any event.
    pub fn free(&self) -> u32 {
        let taken = u32::from(self.tsx_workaround) + u32::from(self.watchdog && !self.cycles_fixed);
        self.general.saturating_sub(taken)
    }

    /// True when all of `needs` can count all the time.
    pub fn fits(&self, needs: &[Need]) -> bool {
        let costs = |need: &&Need| match (need.place, need.role) {
            // The watchdog sits on the counter of cycles: a second count of them takes one for any event.
            (CounterPlace::Fixed, Role::Cycles) => self.watchdog,
            (CounterPlace::Fixed, _) => false,
            _ => true,
        };
        let taken = self.general - self.free();
        let fits_within = |limit: u32, places: &[CounterPlace]| {
            let count = needs.iter().filter(costs).filter(|need| places.contains(&need.place)).count() as u32;
            count <= limit.min(self.general).saturating_sub(taken)
        };
        fits_within(4, &[CounterPlace::FirstFour])
            && fits_within(8, &[CounterPlace::FirstFour, CounterPlace::FirstEight])
            && needs.iter().filter(costs).count() as u32 <= self.free()
            && needs.iter().filter(|need| need.offcore).count() <= OFFCORE
    }
}

/// The number of counters of each thread, where the CPU reports it: CPUID leaf 0xa on Intel, 0x80000022 on
/// AMD from Zen 4 on. A hypervisor answers for its virtual PMU.
#[cfg(target_arch = "x86_64")]
pub fn general_by_cpuid() -> Option<u32> {
    use std::arch::x86_64::__cpuid;
    const PERFMON: u32 = 0xa;
    const AMD_PERFMON_V2: u32 = 0x8000_0022;
    let within = |base: u32, leaf: u32| __cpuid(base).eax >= leaf;
    let intel = || {
        let eax = within(0, PERFMON).then(|| __cpuid(PERFMON).eax)?;
        (eax & 0xff > 0).then_some(eax >> 8 & 0xff)
    };
    let amd = || {
        let leaf = within(0x8000_0000, AMD_PERFMON_V2).then(|| __cpuid(AMD_PERFMON_V2))?;
        (leaf.eax & 1 > 0).then_some(leaf.ebx & 0xf)
    };
    intel().or_else(amd)
}

/// Other architectures do not tell user space.
#[cfg(not(target_arch = "x86_64"))]
pub fn general_by_cpuid() -> Option<u32> {
    None
}

/// Files that are open beside those of counters, with room: programs, maps, files of /proc and of cgroups, helpers.
pub const OTHERS: u64 = 256;

/// Files needed for `events` events on `cpus` CPUs, including all others.
pub fn needed(events: u64, cpus: u64) -> u64 {
    events.saturating_mul(cpus).saturating_add(OTHERS)
}

/// Events for which `limit` leaves no room on these CPUs, and the reason, ready to be shown. Room goes to the
/// first events, on all CPUs: half of the CPUs of an event would give half its count. `None` is no limit.
pub fn without_room(events: &[Event], cpus: &[CpuId], limit: Option<u64>) -> Vec<(String, Missing)> {
    let Some(limit) = limit else { return Vec::new() };
    let files = |event: &Event| cpus.iter().filter(|cpu| event.is_on(**cpu)).count() as u64;
    let all = events.iter().map(files).sum::<u64>() + OTHERS;
    let mut taken = OTHERS;
    let mut refused = Vec::new();
    for event in events {
        let more = files(event);
        if taken + more <= limit {
            taken += more;
            continue;
        }
        let why = format!(
            "{} is not counted: it needs an open file on each of {more} CPUs, but this process is limited to \
             {limit} open files; all events need {all} (ulimit -n {all}, or LimitNOFILE={all} in the unit of a \
             service)",
            event.name
        );
        refused.push((event.name.clone(), Missing::NotPermitted(why)));
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: Budget = Budget { general: 4, cycles_fixed: true, watchdog: false, tsx_workaround: false };

    const AMD: Budget = Budget { general: 6, cycles_fixed: false, watchdog: false, tsx_workaround: false };

    fn need(role: Role, place: CounterPlace) -> Need {
        Need { role, place, offcore: matches!(role, Role::Lma | Role::Rma) }
    }

    fn default_set(place: CounterPlace) -> Vec<Need> {
        vec![
            need(Role::Cycles, place),
            need(Role::Instructions, place),
            need(Role::Lma, CounterPlace::FirstFour),
            need(Role::Rma, CounterPlace::FirstFour),
        ]
    }

    #[test]
    fn the_watchdog_costs_a_counter_on_both() {
        let watched = |budget: Budget| Budget { watchdog: true, ..budget };
        let mut intel = default_set(CounterPlace::Fixed);
        intel.push(need(Role::Llc, CounterPlace::FirstFour));
        assert!(watched(INTEL).fits(&intel));
        intel.push(need(Role::Dtlb, CounterPlace::FirstFour));
        assert!(INTEL.fits(&intel) && !watched(INTEL).fits(&intel));
        let amd: Vec<Need> =
            [Role::Cycles, Role::Instructions, Role::Llc, Role::Dtlb, Role::Itlb, Role::Branch]
                .map(|role| need(role, CounterPlace::Any))
                .into();
        assert!(AMD.fits(&amd) && !watched(AMD).fits(&amd));
    }

    #[test]
    fn events_for_the_first_four_counters_do_not_use_the_others() {
        let eight = Budget { general: 8, ..INTEL };
        let low = |count: usize| vec![need(Role::Other, CounterPlace::FirstFour); count];
        assert!(eight.fits(&low(4)) && !eight.fits(&low(5)));
        assert!(!Budget { tsx_workaround: true, ..INTEL }.fits(&low(4)));
    }

    #[test]
    fn a_thread_has_two_offcore_registers() {
        let mut set = default_set(CounterPlace::Fixed);
        assert!(INTEL.fits(&set));
        set.push(need(Role::Lma, CounterPlace::FirstFour));
        assert!(!INTEL.fits(&set));
    }

    fn refused(events: &[&str], cpus: u32, limit: Option<u64>) -> Vec<(String, Missing)> {
        let events: Vec<Event> = events.iter().map(|name| Event::named(name).unwrap()).collect();
        let cpus: Vec<CpuId> = (0..cpus).map(CpuId).collect();
        without_room(&events, &cpus, limit)
    }

    const EVENTS: [&str; 4] = ["cycles", "instructions", "branches", "cache-misses"];

    #[test]
    fn whole_events_are_left_out_the_last_ones_first() {
        let names = |limit| -> Vec<String> {
            refused(&EVENTS, 1024, limit).into_iter().map(|(name, _)| name).collect()
        };
        assert!(names(None).is_empty() && names(Some(needed(4, 1024))).is_empty());
        assert_eq!(names(Some(needed(4, 1024) - 1)), ["cache-misses"]);
        assert_eq!(names(Some(needed(2, 1024) + 1000)), ["branches", "cache-misses"]);
        assert_eq!(names(Some(1024)), EVENTS);
    }

    #[test]
    fn the_reason_says_how_many_and_what_to_type() {
        let (_, why) = refused(&EVENTS, 1024, Some(4096)).pop().unwrap();
        let why = why.to_string();
        for word in
            ["cache-misses", "each of 1024 CPUs", "limited to 4096", "ulimit -n 4352", "LimitNOFILE=4352"]
        {
            assert!(why.contains(word), "'{word}' is not in: {why}");
        }
    }

    #[test]
    fn the_limit_of_a_login_shell_is_enough_for_small_machines() {
        assert!(refused(&EVENTS, 64, Some(1024)).is_empty());
    }
}
