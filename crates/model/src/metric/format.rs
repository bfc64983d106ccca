//! Values as a column shows them: short, aligned, with a unit where it is not plain.

use super::{Unit, Value, Witness};
use crate::text::quantity::{bytes, count, duration, percent};

/// The sign for a missing value, unless the metric has another.
pub const ABSENT: &str = "-";

/// Cells that a share takes with its mark at most.
const SHARE_WIDTH: usize = 7;

/// `value` for a column, without padding.
pub fn short(value: &Value, unit: Unit) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::I64(v) => v.to_string(),
        Value::ByNode(shares) => by_node(shares, unit),
        // A share of time or memory is too far from a share of accesses for decimals.
        Value::Share {
            pct, witness: witness @ (Witness::Time | Witness::Memory | Witness::Hints), ..
        } => {
            let mark = witness.mark();
            let pct = format!("{pct:.0}");
            if mark.len() + pct.len() > SHARE_WIDTH {
                mark.trim_end().to_owned() + &pct
            } else {
                mark.to_owned() + &pct
            }
        }
        Value::Share { pct, witness, .. } => format!("{}{}", witness.mark(), percent(*pct)),
        Value::U64(v) => match unit {
            Unit::Bytes => bytes(*v as f64),
            Unit::Nanoseconds => duration(*v),
            Unit::Count => count(*v as f64),
            _ => v.to_string(),
        },
        Value::F64(v) => match unit {
            Unit::Percent => percent(*v),
            Unit::Ratio | Unit::Gigahertz => format!("{v:.2}"),
            Unit::Bytes => bytes(*v),
            _ => count(*v),
        },
    }
}

/// `node:share`; a quotient has two decimals, a percentage none, memory a prefix.
pub fn node_word(node: crate::model::units::NodeId, share: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{node}:{share:.2}"),
        Unit::Bytes => format!("{node}:{}", bytes(share)),
        Unit::GigabytesPerSecond => format!("{node}:{}", count(share)),
        _ => format!("{node}:{share:.0}"),
    }
}

/// The largest shares first, as `node:percent`, as many as a row has room for.
fn by_node(shares: &[(crate::model::units::NodeId, f64)], unit: Unit) -> String {
    let mut sorted = shares.to_vec();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let words: Vec<String> = sorted.iter().map(|(node, share)| node_word(*node, *share, unit)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::NodeId;

    #[test]
    fn numbers_stay_short() {
        for (v, text) in [
            (0.0, "0"),
            (0.26, "0.3"),
            (3.0, "3"),
            (42.4, "42"),
            (999.4, "999"),
            (9_840.0, "9.8k"),
            (12.4e6, "12M"),
        ] {
            assert_eq!(count(v), text);
        }
        for (v, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1024.0, "1.0K"),
            (1536.0, "1.5K"),
            (24.0 * 1024.0 * 1024.0 * 1024.0, "24G"),
        ] {
            assert_eq!(bytes(v), text);
        }
        assert_eq!(
            (percent(0.04).as_str(), percent(99.94).as_str(), percent(390.2).as_str()),
            ("0.0", "99.9", "390")
        );
    }

    #[test]
    fn durations_keep_their_width() {
        assert_eq!(duration(1_254_000_000), "0:01.25");
        assert_eq!(duration(3_723 * 1_000_000_000), "1h02m");
        assert_eq!(duration(273_600 * 1_000_000_000), "3d04h");
    }

    #[test]
    fn the_largest_share_comes_first() {
        let shares = vec![(NodeId(0), 20.0), (NodeId(3), 80.0)];
        assert_eq!(short(&Value::ByNode(shares), Unit::Percent), "3:80 0:20");
    }
}
