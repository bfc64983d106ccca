//! "Did you mean": the known names that are most like the typed one.

#![warn(missing_docs)]

/// Maximum names offered at a time.
const MOST: usize = 3;
/// Names less alike than this are not offered; 1 is the same name.
const ALIKE: f64 = 0.75;

/// The names that are most like `typed`, in any case of letters, the nearest first; three at most.
pub fn to<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let likeness = |name: &str| strsim::jaro_winkler(&typed, &name.to_lowercase());
    let mut near: Vec<(f64, &str)> = known.map(|name| (likeness(name), name)).collect();
    near.retain(|(alike, _)| *alike >= ALIKE);
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup_by_key(|(_, name)| *name);
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// `, did you mean A or B?`; nothing where there are no such names.
pub fn hint(near: &[&str]) -> String {
    if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_what_was_meant_and_nonsense_finds_nothing() {
        let known = ["cycles", "cpu-cycles", "LLC-load-misses", "LLC-loads", "page-faults"];
        assert_eq!(to("cyclse", known.into_iter())[0], "cycles");
        assert_eq!(to("llc-load-miss", known.into_iter())[0], "LLC-load-misses");
        assert_eq!(to("zzz", known.into_iter()), Vec::<&str>::new());
        assert_eq!(hint(&["a", "b"]), ", did you mean a or b?");
    }
}
