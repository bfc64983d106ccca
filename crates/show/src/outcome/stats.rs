//! Mean and standard deviation of runs.

/// Numbers of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Of the sample (n - 1); `None` of one run.
    pub deviation: Option<f64>,
    pub runs: usize,
}

/// The spread of these; `None` without any.
pub fn spread(numbers: &[f64]) -> Option<Spread> {
    if numbers.is_empty() {
        return None;
    }
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    let deviation = (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
    Some(Spread { mean, deviation, runs: numbers.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[5.0]), Some(Spread { mean: 5.0, deviation: None, runs: 1 }));
        let spread = spread(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(spread.mean, 5.0);
        assert!((spread.deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
