//! Accesses that a PMU sampled: SPE records of any bytes, and any word of perf for the source of data.

use numatop_ng::model::access::latency::Latencies;
use numatop_ng::pmu::data_src;
use numatop_ng::pmu::spe::Records;
use numatop_ng::pmu::spe::source::{SourceCodes, class};

/// A byte that chooses the codes of a CPU and the offset, then a stretch of the AUX area. Returns how many records were
/// found.
pub fn read(input: &[u8]) -> usize {
    let [choices, bytes @ ..] = input else { return 0 };
    let codes = match choices & 3 {
        0 => Some(SourceCodes::Common),
        1 => Some(SourceCodes::AmpereOne),
        2 => Some(SourceCodes::HipTwelve),
        _ => None,
    };
    let at = u64::from(choices >> 2);
    let mut latencies = Latencies::default();
    let mut found = 0;
    let mut records = Records::new(bytes, at);
    for record in records.by_ref() {
        class(&record, codes);
        record.total.into_iter().for_each(|cycles| latencies.add(cycles.into()));
        found += 1;
    }
    assert!(
        found as u64 + records.bad() <= bytes.len() as u64,
        "{found} records, {} bad bytes",
        records.bad()
    );
    assert!(records.next().is_none(), "a record behind the last one");
    let median = latencies.percentile(50.0);
    assert_eq!(median.is_some(), latencies.loads() > 0);
    assert!(median <= latencies.percentile(95.0) && median <= Some(f64::from(u32::MAX)));
    for word in bytes.chunks_exact(8) {
        data_src::class(u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    found
}
