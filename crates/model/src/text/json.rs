//! Numbers in JSON.

use serde_json::{Value, json};

/// A number in millionths, which is finer than any measurement; `None` where that is no exact whole number.
pub fn millionths(value: f64) -> Option<f64> {
    Some((value * 1e6).round()).filter(|millionths| millionths.abs() < 9e15)
}

/// The number with six decimals. Numbers without [`millionths`] stay.
pub fn rounded(value: f64) -> f64 {
    millionths(value).map_or(value, |millionths| millionths / 1e6)
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
