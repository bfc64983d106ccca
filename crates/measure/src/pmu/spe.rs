//! Records of the Arm Statistical Profiling Extension, from the bytes that the CPU writes. Pure.
//!
//! Packets are those of the Arm Architecture Reference Manual (DDI 0487), D17, "Statistical Profiling Extension sample record
//! specification". A record is a row of packets that ends with an end packet or a timestamp.

#![warn(missing_docs)]

pub mod event;
pub mod packet;
pub mod source;

use self::packet::{Operation, Packet, packet};
use self::source::SourceCodes;
use crate::model::access::answers::AccessClass;
use crate::model::access::lines::Transfer;

/// One sampled operation, as far as its packets say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Address of the instruction.
    pub pc: Option<u64>,
    /// Its exception level: 0 is user mode.
    pub level: Option<u8>,
    /// Virtual address of the access, without its tag.
    pub address: Option<u64>,
    /// Physical address of the access.
    pub physical: Option<u64>,
    /// Thread id in the root namespace, where the kernel writes it to CONTEXTIDR.
    pub context: Option<u32>,
    /// The kind of operation.
    pub operation: Option<Operation>,
    /// Bits of [`packet::event`].
    pub events: u64,
    /// A code of [`source::SourceCodes`].
    pub source: Option<u16>,
    /// Cycles from dispatch to the end.
    pub total: Option<u16>,
    /// Cycles from dispatch to issue.
    pub issue: Option<u16>,
    /// Cycles of the translation of the address.
    pub translation: Option<u16>,
    /// The generic timer, in its own ticks.
    pub time: Option<u64>,
}

impl Record {
    fn add(&mut self, packet: Packet) {
        match packet {
            Packet::Address { index: 0, value } => {
                (self.pc, self.level) = (Some(canonical(value)), Some((value >> 61 & 3) as u8));
            }
            Packet::Address { index: 2, value } => self.address = Some(canonical(value)),
            Packet::Address { index: 3, value } => self.physical = Some(value & ADDRESS),
            Packet::Counter { index: 0, cycles } => self.total = Some(cycles),
            Packet::Counter { index: 1, cycles } => self.issue = Some(cycles),
            Packet::Counter { index: 2, cycles } => self.translation = Some(cycles),
            Packet::Context(id) => self.context = Some(id),
            Packet::Operation(operation) => self.operation = Some(operation),
            Packet::Events(events) => self.events = events,
            Packet::Source(code) => self.source = Some(code),
            Packet::Timestamp(time) => self.time = Some(time),
            Packet::Address { .. } | Packet::Counter { .. } | Packet::Padding | Packet::End => {}
        }
    }

    /// A timestamp alone, or nothing, is no record.
    fn is_empty(&self) -> bool {
        Record { time: None, ..self.clone() } == Record::default()
    }
}

/// An access of a program, as far as its record has it. Its address has no text form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpeAccess {
    /// Thread id in the root namespace; `None` where the kernel writes none.
    pub tid: Option<u32>,
    /// Virtual address.
    pub address: Option<u64>,
    /// Physical address.
    pub physical: Option<u64>,
    /// Address of the instruction; 0: not known.
    pub code: u64,
    /// The place that answered.
    pub class: AccessClass,
    /// The cache of another core that answered a load.
    pub transfer: Option<Transfer>,
    /// It is a store.
    pub store: bool,
    /// Cycles from dispatch to the end.
    pub cycles: Option<u32>,
}

impl SpeAccess {
    /// The access of a record, on a CPU whose source codes have this meaning; `None` for all other operations, and for
    /// those of the kernel.
    pub fn of(record: &Record, codes: Option<SourceCodes>) -> Option<SpeAccess> {
        let class = source::class(record, codes);
        let is_program = record.level.is_none_or(|level| level == 0);
        (is_program && class != AccessClass::NoAccess).then(|| SpeAccess {
            tid: record.context,
            address: record.address,
            physical: record.physical,
            code: record.pc.unwrap_or(0),
            class,
            transfer: source::transfer(record, codes),
            store: record.operation == Some(Operation::Store),
            cycles: record.total.map(u32::from),
        })
    }
}

/// Bits of an address; the eighth byte has a tag, or the state of the CPU.
const ADDRESS: u64 = (1 << 56) - 1;

/// A virtual address of 56 bits with its sign in the eighth byte.
fn canonical(value: u64) -> u64 {
    let address = value & ADDRESS;
    if address >> 52 == 0xf { address | !ADDRESS } else { address }
}

/// The records in a stretch of the AUX area.
pub struct Records<'a> {
    bytes: &'a [u8],
    /// Offset of `bytes` in the area: alignment packets count from its start, which is that of a page.
    at: u64,
    bad: u64,
}

impl<'a> Records<'a> {
    /// `at` is the offset of the first byte in the AUX area.
    pub fn new(bytes: &'a [u8], at: u64) -> Records<'a> {
        Records { bytes, at, bad: 0 }
    }

    /// Bytes so far that belong to no packet: they were left out.
    pub fn bad(&self) -> u64 {
        self.bad
    }

    fn skip(&mut self, len: usize) {
        self.bytes = self.bytes.get(len..).unwrap_or_default();
        self.at = self.at.wrapping_add(len as u64);
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    /// The next record; the last one may be cut off.
    fn next(&mut self) -> Option<Record> {
        let mut record = Record::default();
        while !self.bytes.is_empty() {
            let Some((packet, len)) = packet(self.bytes, self.at) else {
                self.bad += 1;
                self.skip(1);
                continue;
            };
            self.skip(len);
            let ends = matches!(packet, Packet::End | Packet::Timestamp(_));
            record.add(packet);
            if ends {
                if !record.is_empty() {
                    return Some(record);
                }
                record = Record::default();
            }
        }
        (!record.is_empty()).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::packet::event;
    use super::source::class;
    use super::*;

    /// Bytes as two digits each; `00*5` is five times 0.
    pub(super) fn bytes(text: &str) -> Vec<u8> {
        let byte = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
        let word = |word: &str| match word.split_once('*') {
            Some((digits, times)) => vec![byte(digits); times.parse().unwrap()],
            None => vec![byte(word)],
        };
        text.split_whitespace().flat_map(word).collect()
    }

    /// Written by CPUs: from the tests of perf_data_converter (arm_spe_decoder_test.cc) and of Arm's spe-parser.
    const KERNEL_LOAD: &str = "b0 d0 c2 a1 ed 66 ba ff c0 00*5 65 80 5f 00 00 49 00 52 16 00 99 04 00 98 0c 00 \
        b2 28 6b 09 03 37 0e ff 00 9a 01 00 00*9 43 00 00 00 71 2e 65 2f 6a 0a 00 00 00";
    const USER_LOAD: &str = "71 af f9 04 81 00 0c 00 00 b0 00 b6 a9 e4 aa aa 00 80 49 00 52 16 00 99 04 00 98 08 00 \
        b2 43 da 5d e6 aa aa 00 00 9a 01 00 b3 43 5a 95 2c 03 08 00 80 43 00";
    const EVENTS: &str = "52 1e 03";
    const BRANCH: &str = "4a 01 52 42 00";

    fn only(text: &str) -> Record {
        let bytes = bytes(text);
        let mut records = Records::new(&bytes, 0);
        let found = records.next().unwrap();
        assert_eq!((records.next(), records.bad()), (None, 0));
        found
    }

    #[test]
    fn a_load_of_the_kernel() {
        let found = only(KERNEL_LOAD);
        let expected = Record {
            pc: Some(0xffff_ba66_eda1_c2d0),
            level: Some(2),
            address: Some(0xffff_0e37_0309_6b28),
            physical: None,
            context: Some(0x5f80),
            operation: Some(Operation::Load),
            events: event::RETIRED | event::L1D_ACCESS | event::TLB_ACCESS,
            source: Some(0),
            total: Some(12),
            issue: Some(4),
            translation: Some(1),
            time: Some(44_731_163_950),
        };
        assert_eq!(found, expected);
        assert_eq!(class(&found, Some(SourceCodes::Common)), AccessClass::LocalCache { modified: false });
    }

    #[test]
    fn a_load_of_a_program_has_its_physical_address() {
        let found = only(USER_LOAD);
        assert_eq!((found.pc, found.level, found.total), (Some(0xaaaa_e4a9_b600), Some(0), Some(8)));
        assert_eq!((found.address, found.physical), (Some(0xaaaa_e65d_da43), Some(0x803_2c95_5a43)));
        // The timestamp in front ended the record before.
        assert_eq!(found.time, None);
    }

    #[test]
    fn an_access_is_that_of_a_program() {
        let user = only(USER_LOAD);
        let access = SpeAccess::of(&user, Some(SourceCodes::Common)).unwrap();
        assert_eq!((access.address, access.physical), (user.address, user.physical));
        assert_eq!((access.code, access.cycles, access.tid), (0xaaaa_e4a9_b600, Some(8), None));
        assert!(!access.store && access.transfer.is_none());
        let store = Record { operation: Some(Operation::Store), context: Some(7), ..user };
        let access = SpeAccess::of(&store, None).unwrap();
        assert!(access.store && access.tid == Some(7));
        assert!(SpeAccess::of(&only(KERNEL_LOAD), None).is_none());
        assert!(SpeAccess::of(&only(BRANCH), None).is_none());
    }

    #[test]
    fn events_and_branches() {
        let refill = event::RETIRED | event::L1D_ACCESS | event::L1D_REFILL | event::TLB_ACCESS;
        assert_eq!(only(EVENTS).events, refill | event::LLC_ACCESS | event::LLC_MISS);
        let branch = only(BRANCH);
        assert_eq!(branch.operation, Some(Operation::Branch { conditional: true }));
        assert_eq!(branch.events, event::RETIRED | event::NOT_TAKEN);
        assert_eq!(class(&branch, None), AccessClass::NoAccess);
    }

    #[test]
    fn records_come_one_after_the_other() {
        let both = bytes(&format!("{KERNEL_LOAD} {BRANCH} 01 {USER_LOAD}"));
        let mut records = Records::new(&both, 0);
        let found: Vec<Record> = records.by_ref().collect();
        assert_eq!(found, [only(KERNEL_LOAD), only(BRANCH), only(USER_LOAD)]);
        assert_eq!(records.bad(), 0);
    }

    #[test]
    fn an_alignment_packet_goes_to_the_next_boundary() {
        // To the next 16 bytes: 0x23 means 1 << 4.
        let padded = bytes(&format!("00*3 23 00 ff*11 {BRANCH}"));
        assert_eq!(Records::new(&padded, 0).next(), Some(only(BRANCH)));
        assert_eq!(Records::new(&padded[3..], 3).next(), Some(only(BRANCH)));
    }

    #[test]
    fn cut_and_flipped_streams_end() {
        for text in [KERNEL_LOAD, USER_LOAD, EVENTS, BRANCH] {
            let whole = bytes(text);
            for cut in 0..=whole.len() {
                assert!(Records::new(&whole[..cut], 0).count() <= 1, "cut at {cut}");
                assert!(Records::new(&whole[cut..], cut as u64).count() <= 2, "from {cut}");
            }
            for at in 0..whole.len() {
                for flip in 1..=u8::MAX {
                    let mut other = whole.clone();
                    other[at] ^= flip;
                    let mut records = Records::new(&other, 0);
                    let found: Vec<Record> = records.by_ref().collect();
                    assert!(found.len() <= other.len() && records.bad() <= other.len() as u64);
                    found.iter().for_each(|record| {
                        class(record, Some(SourceCodes::HipTwelve));
                    });
                }
            }
        }
    }

    #[test]
    fn bad_bytes_are_left_out_and_counted() {
        let damaged = bytes(&format!("ff ff {EVENTS}"));
        let mut records = Records::new(&damaged, 0);
        assert_eq!(records.next(), Some(only(EVENTS)));
        assert_eq!(records.bad(), 2);
    }
}
