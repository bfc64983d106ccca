//! One packet of an SPE record: a header, and the number of bytes it gives.

#![warn(missing_docs)]

/// Bits of an events packet.
pub mod event {
    /// The operation retired.
    pub const RETIRED: u64 = 1 << 1;
    /// It accessed the first level of the data cache.
    pub const L1D_ACCESS: u64 = 1 << 2;
    /// It missed there.
    pub const L1D_REFILL: u64 = 1 << 3;
    /// It accessed the TLB.
    pub const TLB_ACCESS: u64 = 1 << 4;
    /// It was a branch that was not taken.
    pub const NOT_TAKEN: u64 = 1 << 6;
    /// It accessed the last level of the cache.
    pub const LLC_ACCESS: u64 = 1 << 8;
    /// It missed there.
    pub const LLC_MISS: u64 = 1 << 9;
    /// Another socket answered.
    pub const REMOTE: u64 = 1 << 10;
    /// It accessed the second level of the data cache.
    pub const L2D_ACCESS: u64 = 1 << 19;
    /// It missed there.
    pub const L2D_MISS: u64 = 1 << 20;
}

/// The kind of a sampled operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Neither of the others.
    Other,
    /// A load, or an atomic operation that loads.
    Load,
    /// A store.
    Store,
    /// A branch.
    Branch {
        /// It depends on a condition.
        conditional: bool,
    },
}

/// A packet. Indexes are those of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Nothing, up to its length.
    Padding,
    /// The end of a record.
    End,
    /// The generic timer; the end of a record, too.
    Timestamp(u64),
    /// Bits of [`event`].
    Events(u64),
    /// A code whose meaning depends on the CPU.
    Source(u16),
    /// The kind of operation.
    Operation(Operation),
    /// CONTEXTIDR.
    Context(u32),
    /// A latency in cycles.
    Counter {
        /// 0 in total, 1 up to the issue, 2 of the translation.
        index: u8,
        /// Cycles, up to 65,535.
        cycles: u16,
    },
    /// An address, with tags or state in the eighth byte.
    Address {
        /// 0 of the instruction, 1 of a branch target, 2 virtual, 3 physical, 4 of the branch before.
        index: u8,
        /// The raw value.
        value: u64,
    },
}

/// The packet at the start of `bytes`, which lie at offset `at` of the AUX area, and its length, 1 at least. `None` where
/// it is no packet, or cut off.
pub fn packet(bytes: &[u8], at: u64) -> Option<(Packet, usize)> {
    let (header, rest) = bytes.split_first()?;
    match header {
        0x00 => Some((Packet::Padding, 1)),
        0x01 => Some((Packet::End, 1)),
        // An extended header: more bits of an index, and the header itself.
        0x20..=0x23 => match rest.first()? {
            0x00 => {
                let boundary = 1 << ((header & 0xf) + 1);
                // Padding to the boundary may go beyond the written part.
                let len = (boundary - at % boundary).min(bytes.len() as u64).max(2) as usize;
                Some((Packet::Padding, len))
            }
            _ => {
                let (found, len) = plain(rest, (header & 3) << 3)?;
                let is_extended = matches!(found, Packet::Counter { .. } | Packet::Address { .. });
                is_extended.then_some((found, len + 1))
            }
        },
        _ => plain(bytes, 0),
    }
}

/// A packet with a header of one byte; `high` are the upper bits of its index.
fn plain(bytes: &[u8], high: u8) -> Option<(Packet, usize)> {
    let (header, rest) = bytes.split_first()?;
    let len = 1_usize << (header >> 4 & 3);
    let payload = rest.get(..len)?;
    let mut value = [0; 8];
    value[..len].copy_from_slice(payload);
    let value = u64::from_le_bytes(value);
    let index = high | header & 7;
    let found = match header {
        0x71 => Packet::Timestamp(value),
        _ if header & 0xcf == 0x42 => Packet::Events(value),
        _ if header & 0xcf == 0x43 => Packet::Source(value as u16),
        _ if header & 0xfc == 0x48 => Packet::Operation(match header & 3 {
            1 if value & 1 == 0 => Operation::Load,
            1 => Operation::Store,
            2 => Operation::Branch { conditional: value & 1 == 1 },
            _ => Operation::Other,
        }),
        _ if header & 0xfc == 0x64 => Packet::Context(value as u32),
        _ if header & 0xf8 == 0x98 => Packet::Counter { index, cycles: value as u16 },
        _ if header & 0xf8 == 0xb0 => Packet::Address { index, value },
        _ => return None,
    };
    Some((found, 1 + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_index_is_another_counter() {
        assert_eq!(packet(&[0x21, 0x99, 5, 0], 0), Some((Packet::Counter { index: 9, cycles: 5 }, 4)));
        // An extended events packet does not exist, and a header may be cut off.
        assert_eq!(packet(&[0x21, 0x52, 5, 0], 0), None);
        assert_eq!(packet(&[0x21], 0), None);
    }

    #[test]
    fn events_have_up_to_eight_bytes() {
        assert_eq!(packet(&[0x42, 2], 0), Some((Packet::Events(2), 2)));
        assert_eq!(packet(&[0x62, 0, 0, 0x18, 0], 0), Some((Packet::Events(0x18_0000), 5)));
        assert_eq!(packet(&[0x72, 1, 0, 0, 0, 0, 0, 0, 0x80], 0), Some((Packet::Events(1 | 1 << 63), 9)));
        assert_eq!(packet(&[0x72, 1, 0, 0], 0), None);
    }

    #[test]
    fn a_packet_is_never_empty_or_longer_than_its_bytes() {
        for header in 0..=u8::MAX {
            for next in 0..=u8::MAX {
                let bytes = [header, next, 1, 2, 3, 4, 5, 6, 7, 8];
                for (at, cut) in (0..20).flat_map(|at| (0..=bytes.len()).map(move |cut| (at, cut))) {
                    if let Some((_, len)) = packet(&bytes[..cut], at) {
                        assert!((1..=cut).contains(&len), "{header:#x} {next:#x} at {at}: {len} of {cut}");
                    }
                }
            }
        }
    }
}
