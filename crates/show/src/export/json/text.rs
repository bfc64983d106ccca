//! Values as JSON, written straight into a buffer.

use serde_json::Value as Json;

use crate::metric::Value;
use crate::model::units::NodeId;
use crate::text::json::{millionths, rounded};

/// The way in which output says what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Each line has everything; a measured number always has a decimal.
    Full,
    /// A line has what it adds to the lines before; whole numbers have no decimals.
    Short,
}

/// Writes a value of a metric.
pub(super) fn value(out: &mut Vec<u8>, value: &Value, style: Style) {
    match value {
        Value::U64(v) => plain(out, v),
        Value::I64(v) => plain(out, v),
        // JSON has no infinity; a quotient of something and nothing is one all the same.
        Value::F64(v) if v.is_infinite() => out.extend(b"\"inf\""),
        Value::F64(v) => number(out, *v, style),
        Value::Text(v) => plain(out, v),
        Value::Share { pct, .. } => number(out, *pct, style),
        Value::ByNode(shares) => by_node(out, shares, style),
    }
}

/// Writes a number with six decimals at most; `null` for what is no number.
pub(super) fn number(out: &mut Vec<u8>, v: f64, style: Style) {
    match (style, millionths(v)) {
        // The decimal that is written is read as the same float.
        (Style::Short, Some(millionths)) => decimal(out, millionths as i64),
        (Style::Short, None) if v.fract() == 0.0 && v.abs() < 9e15 => plain(out, &(v as i64)),
        _ => plain(out, &rounded(v)),
    }
}

/// Writes what is made as a JSON value, in the style of numbers.
pub(super) fn json(out: &mut Vec<u8>, value: &Json, style: Style) {
    match value {
        // All decimals of other numbers stay.
        Json::Number(v) if style == Style::Short && v.as_f64().is_some_and(|v| v.fract() == 0.0) => {
            number(out, v.as_f64().unwrap_or(f64::NAN), style);
        }
        Json::Array(all) if style == Style::Short => {
            list(out, all, |out, one| json(out, one, style));
        }
        Json::Object(all) if style == Style::Short => {
            out.push(b'{');
            for (i, (key, value)) in all.iter().enumerate() {
                label(out, i == 0, key);
                json(out, value, style);
            }
            out.push(b'}');
        }
        value => plain(out, value),
    }
}

/// Writes a list.
pub(super) fn list<T>(
    out: &mut Vec<u8>,
    all: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (i, one) in all.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, one);
    }
    out.push(b']');
}

/// Writes a key of an object and what separates it from the one before.
pub(super) fn label(out: &mut Vec<u8>, is_first: bool, key: &str) {
    if !is_first {
        out.push(b',');
    }
    plain(out, key);
    out.push(b':');
}

/// Writes what serde writes.
pub(super) fn plain<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing to memory does not fail, and all keys are text.
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.extend(b"null");
    }
}

/// Keys are in the order of their text, as everywhere.
fn by_node(out: &mut Vec<u8>, shares: &[(NodeId, f64)], style: Style) {
    out.push(b'{');
    let mut write = |i: usize, (node, share): &(NodeId, f64)| {
        label(out, i == 0, &node.to_string());
        number(out, *share, style);
    };
    if shares.iter().all(|(node, _)| node.0 < 10) {
        shares.iter().enumerate().for_each(|(i, share)| write(i, share));
    } else {
        let mut sorted: Vec<&(NodeId, f64)> = shares.iter().collect();
        sorted.sort_by_key(|(node, _)| node.to_string());
        sorted.into_iter().enumerate().for_each(|(i, share)| write(i, share));
    }
    out.push(b'}');
}

fn decimal(out: &mut Vec<u8>, millionths: i64) {
    if millionths < 0 {
        out.push(b'-');
    }
    let (whole, rest) = (millionths.unsigned_abs() / 1_000_000, millionths.unsigned_abs() % 1_000_000);
    plain(out, &whole);
    if rest == 0 {
        return;
    }
    out.push(b'.');
    let (mut rest, mut unit) = (rest as u32, 100_000);
    while rest > 0 {
        out.push(b'0' + (rest / unit) as u8);
        (rest, unit) = (rest % unit, unit / 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn written(v: f64, style: Style) -> String {
        let mut out = Vec::new();
        number(&mut out, v, style);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn whole_numbers_have_no_decimals_in_the_short_style() {
        for (v, full, short) in [
            (100.0, "100.0", "100"),
            (0.0, "0.0", "0"),
            (-1.5, "-1.5", "-1.5"),
            (0.000_001, "1e-6", "0.000001"),
            (2.450_000_4, "2.45", "2.45"),
            (11_811_160_064.0, "11811160064.0", "11811160064"),
            (f64::NAN, "null", "null"),
        ] {
            assert_eq!((written(v, Style::Full).as_str(), written(v, Style::Short).as_str()), (full, short));
        }
    }

    #[test]
    fn values_made_for_both_styles_differ_in_decimals_only() {
        let made = json!({ "a": [1.0, 2, null], "b": { "c": "x" } });
        let mut out = Vec::new();
        json(&mut out, &made, Style::Short);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a":[1,2,null],"b":{"c":"x"}}"#);
    }

    #[test]
    fn nodes_are_in_the_order_of_their_text() {
        let mut out = Vec::new();
        let shares = [(NodeId(2), 25.0), (NodeId(10), 75.0)];
        value(&mut out, &Value::ByNode(shares.to_vec()), Style::Full);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"10":75.0,"2":25.0}"#);
    }

    proptest! {
        #[test]
        fn both_styles_are_read_as_the_same_number(v in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
            for v in [v % 1e4, v % 1e12, v % 1e18] {
                let [full, short] = [Style::Full, Style::Short].map(|style| written(v, style).parse::<f64>().unwrap());
                prop_assert_eq!(full, short, "{}", v);
            }
        }
    }
}
