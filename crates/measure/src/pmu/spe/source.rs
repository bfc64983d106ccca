//! The place that answered a sampled operation: a code that depends on the CPU, or bits that all CPUs have.

#![warn(missing_docs)]

use super::Record;
use super::packet::{Operation, event};
use crate::model::access::answers::AccessClass;
use crate::model::access::lines::Transfer;

/// Meanings of the code in a data source packet, which the architecture leaves to the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceCodes {
    /// Neoverse, Cortex and Olympus.
    Common,
    /// AmpereOne.
    AmpereOne,
    /// HiSilicon HIP12.
    HipTwelve,
}

impl SourceCodes {
    /// The codes of a CPU, by its MIDR_EL1 (/sys/devices/system/cpu/cpuN/regs/identification/midr_el1); `None` where they are
    /// not known. The list is that of tools/perf/util/arm-spe.c.
    pub fn of_midr(midr: u64) -> Option<SourceCodes> {
        const ARM: u64 = 0x41;
        const HISILICON: u64 = 0x48;
        const NVIDIA: u64 = 0x4e;
        const AMPERE: u64 = 0xc0;
        let (implementer, part) = (midr >> 24 & 0xff, midr >> 4 & 0xfff);
        match (implementer, part) {
            // Neoverse N1, V1, N2, V2, V3.
            (ARM, 0xd0c | 0xd40 | 0xd49 | 0xd4f | 0xd83 | 0xd84) => Some(SourceCodes::Common),
            // Cortex-X1C, X3, A720, X925, A725.
            (ARM, 0xd4c | 0xd4e | 0xd81 | 0xd85 | 0xd87) => Some(SourceCodes::Common),
            // Olympus.
            (NVIDIA, 0x010) => Some(SourceCodes::Common),
            (AMPERE, 0xac4) => Some(SourceCodes::AmpereOne),
            (HISILICON, 0xd06) => Some(SourceCodes::HipTwelve),
            _ => None,
        }
    }

    /// Whether a code reveals that the cache of another core answered, as far as codes are known: see
    /// [`transfer`].
    pub fn tells_transfers(self) -> bool {
        match self {
            SourceCodes::Common | SourceCodes::HipTwelve => true,
            SourceCodes::AmpereOne => false,
        }
    }

    fn class(self, code: u16) -> AccessClass {
        const CACHE: AccessClass = AccessClass::LocalCache { modified: false };
        match (self, code) {
            (SourceCodes::Common, 0 | 8..=12) => CACHE,
            (SourceCodes::Common, 13) => AccessClass::Remote,
            // Memory of any node: the address decides.
            (SourceCodes::Common, 14) => AccessClass::Dram { remote: false },
            (SourceCodes::AmpereOne, 0 | 3 | 8 | 9) => CACHE,
            (SourceCodes::AmpereOne, 5) => AccessClass::RemoteCache { modified: false },
            (SourceCodes::AmpereOne, 7) => AccessClass::Dram { remote: false },
            (SourceCodes::HipTwelve, 18) => CACHE,
            (SourceCodes::HipTwelve, 0..=5 | 16 | 17) => AccessClass::LocalCache { modified: code & 1 == 1 },
            (SourceCodes::HipTwelve, 6 | 7) => AccessClass::RemoteCache { modified: code & 1 == 1 },
            (SourceCodes::HipTwelve, 8 | 9) => AccessClass::Dram { remote: code == 9 },
            (SourceCodes::HipTwelve, 13) => AccessClass::Device,
            _ => AccessClass::Unknown,
        }
    }
}

/// The place that answered, by the code of the CPU where it is known, else by the bits of events.
pub fn class(record: &Record, codes: Option<SourceCodes>) -> AccessClass {
    match record.operation {
        Some(Operation::Load) => {}
        // Stores of Neoverse have no source: their codes are meaningless.
        Some(Operation::Store) => return by_events(record.events),
        _ => return AccessClass::NoAccess,
    }
    match codes.zip(record.source).map(|(codes, code)| codes.class(code)) {
        Some(AccessClass::Unknown) | None => by_events(record.events),
        Some(class) => class,
    }
}

/// The cache of another core that answered a load, by the code of the CPU; `None` for all else. The list is that of
/// tools/perf/util/arm-spe.c, where it sets a peer snoop or a modified line.
pub fn transfer(record: &Record, codes: Option<SourceCodes>) -> Option<Transfer> {
    if record.operation != Some(Operation::Load) {
        return None;
    }
    match (codes?, record.source?) {
        // A peer core, the own cluster, another cluster; another socket, cache or memory.
        (SourceCodes::Common, 9 | 10 | 12) => Some(Transfer::Near),
        (SourceCodes::Common, 13) => Some(Transfer::Far),
        (SourceCodes::HipTwelve, 1 | 3 | 5 | 17) => Some(Transfer::Near),
        (SourceCodes::HipTwelve, 7) => Some(Transfer::Far),
        _ => None,
    }
}

fn by_events(events: u64) -> AccessClass {
    let hit = |access: u64, miss: u64| events & access != 0 && events & miss == 0;
    if events & event::REMOTE != 0 {
        AccessClass::Remote
    } else if events & event::LLC_MISS != 0 {
        AccessClass::LevelUnknown
    } else if hit(event::L1D_ACCESS, event::L1D_REFILL)
        || hit(event::L2D_ACCESS, event::L2D_MISS)
        || hit(event::LLC_ACCESS, event::LLC_MISS)
    {
        AccessClass::LocalCache { modified: false }
    } else {
        AccessClass::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(source: Option<u16>, events: u64) -> Record {
        Record { operation: Some(Operation::Load), source, events, ..Record::default() }
    }

    #[test]
    fn codes_are_those_of_their_cpu() {
        let of = |codes, code| class(&load(Some(code), 0), Some(codes));
        let cache = |modified| AccessClass::LocalCache { modified };
        for code in [0, 8, 9, 10, 11, 12] {
            assert_eq!(of(SourceCodes::Common, code), cache(false));
        }
        assert_eq!(of(SourceCodes::Common, 13), AccessClass::Remote);
        assert_eq!(of(SourceCodes::Common, 14), AccessClass::Dram { remote: false });
        assert_eq!(of(SourceCodes::AmpereOne, 7), AccessClass::Dram { remote: false });
        assert_eq!(of(SourceCodes::AmpereOne, 5), AccessClass::RemoteCache { modified: false });
        assert_eq!(of(SourceCodes::HipTwelve, 9), AccessClass::Dram { remote: true });
        assert_eq!(of(SourceCodes::HipTwelve, 7), AccessClass::RemoteCache { modified: true });
        assert_eq!([4, 5, 18].map(|code| of(SourceCodes::HipTwelve, code)), [false, true, false].map(cache));
        assert_eq!(of(SourceCodes::HipTwelve, 13), AccessClass::Device);
    }

    #[test]
    fn lines_of_other_cores_are_told_by_codes_alone() {
        let of = |codes, code| transfer(&load(Some(code), event::REMOTE), Some(codes));
        assert_eq!([9, 10, 12].map(|code| of(SourceCodes::Common, code)), [Some(Transfer::Near); 3]);
        assert_eq!(
            [13, 0, 11, 14].map(|code| of(SourceCodes::Common, code)),
            [Some(Transfer::Far), None, None, None]
        );
        assert_eq!([6, 7].map(|code| of(SourceCodes::HipTwelve, code)), [None, Some(Transfer::Far)]);
        let tells =
            |codes: SourceCodes| (0..=32).any(|code| transfer(&load(Some(code), 0), Some(codes)).is_some());
        for codes in [SourceCodes::Common, SourceCodes::HipTwelve, SourceCodes::AmpereOne] {
            assert_eq!(codes.tells_transfers(), tells(codes), "{codes:?}");
        }
        assert_eq!(transfer(&load(Some(9), 0), None), None);
        let store = Record { operation: Some(Operation::Store), ..load(Some(9), 0) };
        assert_eq!(transfer(&store, Some(SourceCodes::Common)), None);
    }

    #[test]
    fn without_a_code_bits_of_events_tell() {
        let of = |events| class(&load(None, events), Some(SourceCodes::Common));
        assert_eq!(of(event::LLC_MISS | event::REMOTE), AccessClass::Remote);
        assert_eq!(
            of(event::L1D_ACCESS | event::L1D_REFILL | event::LLC_ACCESS | event::LLC_MISS),
            AccessClass::LevelUnknown
        );
        assert_eq!(of(event::L1D_ACCESS), AccessClass::LocalCache { modified: false });
        assert_eq!(of(event::RETIRED), AccessClass::Unknown);
        let store = Record { operation: Some(Operation::Store), ..load(Some(13), event::L1D_ACCESS) };
        assert_eq!(class(&store, Some(SourceCodes::Common)), AccessClass::LocalCache { modified: false });
    }

    #[test]
    fn cpus_are_known_by_their_midr() {
        assert_eq!(SourceCodes::of_midr(0x413f_d0c1), Some(SourceCodes::Common));
        assert_eq!(SourceCodes::of_midr(0xc00f_ac40), Some(SourceCodes::AmpereOne));
        assert_eq!(SourceCodes::of_midr(0x481f_d060), Some(SourceCodes::HipTwelve));
        assert_eq!(SourceCodes::of_midr(0x481f_d010), None);
    }
}
