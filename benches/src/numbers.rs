//! Median and quartiles of a handful of measurements. Pure.

/// Half of the values lie between the quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    /// Of at least one value.
    ///
    /// # Panics
    /// No value is given, or one is not a number.
    pub fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.partial_cmp(b).expect("measurements are numbers"));
        Spread { low: at(&sorted, 0.25), median: at(&sorted, 0.5), high: at(&sorted, 0.75) }
    }
}

/// The median of at least one value.
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values).median
}

/// Interpolates between the two neighbours, as most statistics packages do.
fn at(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_few_values_are_between_them() {
        assert_eq!(Spread::of(&[4.0, 1.0, 3.0, 2.0]), Spread { low: 1.75, median: 2.5, high: 3.25 });
        assert_eq!(Spread::of(&[7.0]), Spread { low: 7.0, median: 7.0, high: 7.0 });
    }
}
