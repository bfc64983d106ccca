//! Records of a perf ring that speak of its AUX area. Pure.
//!
//! Layouts are those of include/uapi/linux/perf_event.h (`PERF_RECORD_AUX`, `PERF_RECORD_LOST`).

#![warn(missing_docs)]

const LOST: u32 = 2;
const AUX: u32 = 11;
const HEADER: usize = 8;

const FLAG_TRUNCATED: u64 = 1;
const FLAG_COLLISION: u64 = 8;

/// A record that speaks of the AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRecord {
    /// A stretch was written.
    Stretch {
        /// Its first byte; it counts on beyond the size of the area.
        offset: u64,
        /// Its length in bytes; 0 if the record has only flags.
        bytes: u64,
        /// The area was full: samples are missing behind it.
        truncated: bool,
        /// An operation was chosen while another one was sampled: samples are missing in it.
        collision: bool,
    },
    /// The number of records for which the ring was full.
    Lost(u64),
}

/// The records in bytes that were taken out of a ring; others are left out, and a damaged one ends them.
pub fn records(mut bytes: &[u8]) -> Vec<RingRecord> {
    let mut found = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= HEADER) else { break };
        bytes = rest;
        let word = |at: usize| {
            let from = HEADER + at * size_of::<u64>();
            let word = record.get(from..)?.first_chunk::<{ size_of::<u64>() }>()?;
            Some(u64::from_ne_bytes(*word))
        };
        match kind {
            AUX => {
                let (Some(offset), Some(bytes), Some(flags)) = (word(0), word(1), word(2)) else { break };
                let (truncated, collision) = (flags & FLAG_TRUNCATED != 0, flags & FLAG_COLLISION != 0);
                found.push(RingRecord::Stretch { offset, bytes, truncated, collision });
            }
            // The id of the event is in front.
            LOST => found.extend(word(1).map(RingRecord::Lost)),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as the kernel writes it.
    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = (HEADER + words.len() * 8) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_ne_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn stretches_and_losses_are_told_from_all_others() {
        // ITRACE_START, two stretches, the second with the task behind it, and lost records.
        let bytes = [
            record(12, &[7]),
            record(AUX, &[0x1000, 0x40, 0]),
            record(AUX, &[0x1040, 0, FLAG_TRUNCATED | FLAG_COLLISION | 4, 99]),
            record(LOST, &[5, 3]),
        ]
        .concat();
        let stretch = |offset, bytes, missing| RingRecord::Stretch {
            offset,
            bytes,
            truncated: missing,
            collision: missing,
        };
        let expected = [stretch(0x1000, 0x40, false), stretch(0x1040, 0, true), RingRecord::Lost(3)];
        assert_eq!(records(&bytes), expected);
        for cut in 0..bytes.len() {
            assert!(expected.starts_with(&records(&bytes[..cut])), "cut at {cut}");
        }
    }

    #[test]
    fn a_record_without_a_length_ends_them() {
        let mut bytes = record(AUX, &[0, 8, 0]);
        bytes.extend([0; 64]);
        assert_eq!(records(&bytes).len(), 1);
        // Shorter than its header claims.
        assert!(records(&record(AUX, &[1, 2])).is_empty());
    }
}
