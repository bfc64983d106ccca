//! Numbers in JSON.

use serde_json::{Value, json};

/// Six decimals: more than any measurement has. Numbers that are not finite stay, and so do those so large that their
/// millionths are no whole number.
pub fn rounded(value: f64) -> f64 {
    let millionths = value * 1e6;
    if millionths.abs() < 9e15 { millionths.round() / 1e6 } else { value }
}

/// The number [`rounded`]; null where it is not finite.
pub fn number(value: f64) -> Value {
    json!(rounded(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_null() {
        assert_eq!(number(f64::NAN), Value::Null);
        assert_eq!(number(f64::NEG_INFINITY), Value::Null);
        assert_eq!(number(1.23456789), json!(1.234568));
        assert_eq!(number(895_736_273_117.0), json!(895_736_273_117.0));
    }
}
