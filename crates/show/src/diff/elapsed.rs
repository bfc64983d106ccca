//! The elapsed time of a command that `run --record` kept, and the factor that explains its change.

use serde_json::{Value, json};

use super::text::signed;

/// Changes below this are not explained.
const SAME: f64 = 1.01;

/// The totals of one run of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    pub elapsed_s: f64,
    pub cpu_s: f64,
    /// Instructions and cycles, where both were counted.
    pub counted: Option<[f64; 2]>,
}

/// A number whose product with the others is the elapsed time.
#[derive(Clone, Debug, PartialEq)]
struct Factor {
    name: &'static str,
    a: f64,
    b: f64,
    /// 1.0: elapsed time grows with it; -1.0: it shrinks.
    sign: f64,
}

/// Elapsed time on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Elapsed {
    a_s: f64,
    b_s: f64,
    factors: Vec<Factor>,
}

impl Elapsed {
    /// The means of runs on either side; `None` where a side has none.
    pub fn of(a: &[Run], b: &[Run]) -> Option<Elapsed> {
        let [a, b] = [mean(a)?, mean(b)?];
        let factor = |name, sign, of: &dyn Fn(&Run) -> f64| Factor { name, a: of(&a), b: of(&b), sign };
        let mut factors = vec![factor("CPUs used", -1.0, &|run| run.cpu_s / run.elapsed_s)];
        match (a.counted, b.counted) {
            (Some(_), Some(_)) => {
                let [instructions, cycles] =
                    [0, 1].map(|at| move |run: &Run| run.counted.map_or(f64::NAN, |counted| counted[at]));
                factors.push(factor("instructions", 1.0, &instructions));
                factors.push(factor("IPC", -1.0, &|run| instructions(run) / cycles(run)));
                factors.push(factor("GHz", -1.0, &|run| cycles(run) / run.cpu_s / 1e9));
            }
            _ => factors.push(factor("CPU seconds", 1.0, &|run| run.cpu_s)),
        }
        Some(Elapsed { a_s: a.elapsed_s, b_s: b.elapsed_s, factors })
    }

    /// The factor that moves elapsed time most in the direction in which it changed.
    fn cause(&self) -> Option<&Factor> {
        let change = (self.b_s / self.a_s).ln();
        if !change.is_finite() || change.abs() < SAME.ln() {
            return None;
        }
        let part = |factor: &Factor| factor.sign * (factor.b / factor.a).ln() / change;
        let parts = self.factors.iter().map(|factor| (factor, part(factor)));
        let most = parts.filter(|(_, part)| part.is_finite()).max_by(|one, other| one.1.total_cmp(&other.1));
        most.map(|(factor, _)| factor)
    }

    /// One sentence.
    pub fn words(&self) -> String {
        let change = |a: f64, b: f64| signed(b / a);
        let cause = self.cause().map(|Factor { name, a, b, .. }| {
            format!("; main cause: {name} {} → {} ({})", number(*a), number(*b), change(*a, *b))
        });
        let [a, b] = [self.a_s, self.b_s].map(|s| format!("{s:.3} s"));
        format!("elapsed time {a} (A), {b} (B), {}{}", change(self.a_s, self.b_s), cause.unwrap_or_default())
    }

    /// The object in JSON.
    pub fn json(&self) -> Value {
        let factors: Vec<Value> = self
            .factors
            .iter()
            .map(|Factor { name, a, b, .. }| json!({ "name": name, "a": a, "b": b }))
            .collect();
        json!({
            "a_s": self.a_s,
            "b_s": self.b_s,
            "change_pct": (self.b_s / self.a_s - 1.0) * 100.0,
            "factors": factors,
            "main_cause": self.cause().map(|factor| factor.name),
        })
    }
}

fn mean(runs: &[Run]) -> Option<Run> {
    let count = runs.len() as f64;
    let of = |number: &dyn Fn(&Run) -> f64| runs.iter().map(number).sum::<f64>() / count;
    let counted: Option<Vec<[f64; 2]>> = runs.iter().map(|run| run.counted).collect();
    let sum =
        |counted: Vec<[f64; 2]>| [0, 1].map(|at| counted.iter().map(|one| one[at]).sum::<f64>() / count);
    let run =
        Run { elapsed_s: of(&|run| run.elapsed_s), cpu_s: of(&|run| run.cpu_s), counted: counted.map(sum) };
    (!runs.is_empty() && run.elapsed_s > 0.0).then_some(run)
}

/// A factor in four digits.
fn number(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{number:.2e}"),
        number if number >= 100.0 => format!("{number:.0}"),
        number => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(elapsed_s: f64, cpu_s: f64, counted: Option<[f64; 2]>) -> Run {
        Run { elapsed_s, cpu_s, counted }
    }

    #[test]
    fn the_factor_that_changed_with_elapsed_time_is_its_cause() {
        let before = run(10.0, 20.0, Some([40e9, 50e9]));
        // The same instructions in fewer cycles.
        let elapsed = Elapsed::of(&[before], &[run(8.0, 16.0, Some([40e9, 40e9]))]).unwrap();
        let words = "elapsed time 10.000 s (A), 8.000 s (B), -20.0 %; main cause: IPC 0.80 → 1.00 (+25.0 %)";
        assert_eq!(elapsed.words(), words);
        // The same CPU time on fewer CPUs; the second side counts nothing.
        let elapsed = Elapsed::of(&[before], &[run(20.0, 20.0, None)]).unwrap();
        assert!(elapsed.words().ends_with("+100.0 %; main cause: CPUs used 2.00 → 1.00 (-50.0 %)"));
        assert_eq!(elapsed.json()["main_cause"], "CPUs used");
    }

    #[test]
    fn runs_of_a_side_are_averaged_and_no_change_has_no_cause() {
        let [short, long] = [9.0, 11.0].map(|elapsed| run(elapsed, elapsed, None));
        let elapsed = Elapsed::of(&[short, long], &[run(10.0, 10.0, None)]).unwrap();
        assert_eq!(elapsed.words(), "elapsed time 10.000 s (A), 10.000 s (B), 0.0 %");
        assert!(Elapsed::of(&[], &[short]).is_none());
    }
}
