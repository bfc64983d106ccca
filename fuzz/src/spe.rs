//! Accesses that a PMU sampled: SPE records of any bytes and the ring beside them, any word of perf for the
//! source of data, and the resulting contended lines.

use numatop_ng::access::lines::{LineSample, LineWindow, place};
use numatop_ng::access::window::Places;
use numatop_ng::model::access::latency::Latencies;
use numatop_ng::model::access::lines::{LINES_LISTED, SIDES_LISTED};
use numatop_ng::pmu::data_src;
use numatop_ng::pmu::spe::source::{SourceCodes, class};
use numatop_ng::pmu::spe::{Records, SpeAccess, event};

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
    let mut sides = Vec::new();
    for record in records.by_ref() {
        class(&record, codes);
        if let Some(access) = SpeAccess::of(&record, codes) {
            let SpeAccess { code, transfer, .. } = access;
            let side = |address| LineSample { address, code, cpu_node: None, page_node: None, transfer };
            sides.extend(access.address.map(side));
        }
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
    let told = event::records(bytes).len();
    assert!(told * 8 <= bytes.len(), "{told} records in {} bytes", bytes.len());
    lines(sides);
    for word in bytes.chunks_exact(8) {
        data_src::class(u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    found
}

/// Lines of these samples: at most as many loads as there are, in bounds, and the most contended one first.
fn lines(sides: Vec<LineSample>) {
    let loads = sides.iter().filter(|side| side.transfer.is_some()).count() as u64;
    let mut window = LineWindow::default();
    window.add(1, [((1, 1), place(sides, &Places::default(), 12))].into());
    let found = window.sum(|_, _| None).remove(&(1, 1)).unwrap_or_default();
    assert_eq!(found.loads, loads);
    assert!(
        found.listed.len() <= LINES_LISTED
            && found.listed.is_sorted_by(|one, other| one.loads >= other.loads)
    );
    for line in &found.listed {
        assert!(line.far <= line.loads && line.loads <= loads && line.sides.len() <= SIDES_LISTED);
        assert!(line.sides.iter().all(|side| side.offset < 64 && side.far <= side.samples));
    }
}
