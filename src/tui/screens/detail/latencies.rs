//! Columns of the mappings: how long loads took that memory of the own node, or of another one, answered.

use crate::model::access::MappingUse;
use crate::model::access::answers::MemoryAnswers;

/// Loads below which a mapping has no latency: the 95th percentile would be one of the two slowest.
const LOADS_MIN: u64 = 50;
/// Cells of a column.
pub(super) const WIDTH: u16 = 9;

/// The columns, where a PMU sampled loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatencyColumns {
    /// Cycles of a nanosecond; `None`: latencies are in cycles.
    ghz: Option<f64>,
}

impl LatencyColumns {
    /// The columns of these mappings; `None` where none of them has enough loads.
    pub(super) fn of(mappings: &[MappingUse], ghz: Option<f64>) -> Option<LatencyColumns> {
        let has_any = |answers: &MemoryAnswers| answers.latencies.loads() >= LOADS_MIN;
        let has = |mapping: &MappingUse| has_any(&mapping.answers.local) || has_any(&mapping.answers.remote);
        let ghz = ghz.filter(|ghz| *ghz > 0.0);
        mappings.iter().any(has).then_some(LatencyColumns { ghz })
    }

    /// Titles of the local and the remote one, with their unit.
    pub(super) fn titles(self) -> [&'static str; 2] {
        match self.ghz {
            Some(_) => ["LOCAL NS", "REMOTE NS"],
            None => ["LOCAL CY", "REMOTE CY"],
        }
    }

    /// The median and the 95th percentile; `None` where loads are too few.
    pub(super) fn words(self, answers: &MemoryAnswers) -> Option<String> {
        let latencies = &answers.latencies;
        if latencies.loads() < LOADS_MIN {
            return None;
        }
        let of = |pct| latencies.percentile(pct).map(|cycles| cycles / self.ghz.unwrap_or(1.0));
        Some(format!("{:.0}/{:.0}", of(50.0)?, of(95.0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::answers::Answers;
    use crate::model::access::class::AccessClass;

    fn mapping(loads: u32) -> MappingUse {
        let mut answers = Answers::default();
        for load in 0..loads {
            let cycles = if load % 10 == 9 { 900 } else { 300 };
            answers.add(AccessClass::Dram { remote: true }, None, Some(cycles));
        }
        let (by_node, next_by_node) = Default::default();
        MappingUse { start: 0, bytes: 0, name: String::new(), by_node, next_by_node, answers }
    }

    #[test]
    fn latencies_are_in_ns_where_the_frequency_is_known() {
        let mapping = mapping(200);
        let words = |ghz| {
            let columns = LatencyColumns::of(std::slice::from_ref(&mapping), ghz).unwrap();
            (columns.titles()[1], columns.words(&mapping.answers.remote))
        };
        // Steps of 6 %: 300 is in 288 to 304, 900 in 896 to 928.
        assert_eq!(words(None), ("REMOTE CY", Some("297/912".into())));
        assert_eq!(words(Some(3.0)), ("REMOTE NS", Some("99/304".into())));
        assert_eq!(words(Some(0.0)).0, "REMOTE CY");
        let columns = LatencyColumns::of(std::slice::from_ref(&mapping), None).unwrap();
        assert_eq!(columns.words(&mapping.answers.local), None, "no load was local");
    }

    #[test]
    fn few_loads_have_no_columns() {
        assert_eq!(LatencyColumns::of(&[mapping(49)], Some(3.0)), None);
        assert!(LatencyColumns::of(&[mapping(49), mapping(50)], Some(3.0)).is_some());
    }
}
