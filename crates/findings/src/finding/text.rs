//! Words of findings: numbers with units, names, sentences of a bounded length.

use super::{Check, Confidence, Evidence, Finding, Gain, Subject, command};
use crate::metric::Unit;
use crate::metric::{container, host, node, task};
use crate::model::sample::Comm;
use crate::model::units::NodeId;
use crate::text::clean;
pub use crate::text::prose::{bytes, duration, number, pct, pct_with_error};

/// Characters of a sentence.
pub const SENTENCE_MAX: usize = 160;

/// Characters of a name in a sentence.
const NAME_MAX: usize = 32;

/// Text of at most `max` characters, the rest cut off with a mark.
pub fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['~']).collect()
}

/// A sentence that is not too long.
pub fn sentence(text: String) -> String {
    if text.len() <= SENTENCE_MAX { text } else { cut(&text, SENTENCE_MAX) }
}

/// A name that anyone may have chosen, clean and short.
pub fn name(name: &str) -> String {
    cut(name, NAME_MAX)
}

/// The name of a task, clean and short.
pub fn comm(comm: Comm) -> String {
    name(&clean(comm.bytes()))
}

/// `node 3`, `nodes 0-1,4`, `no node`.
pub fn nodes(nodes: &[NodeId]) -> String {
    match nodes.len() {
        0 => "no node".to_owned(),
        1 => format!("node {}", nodes[0]),
        _ => format!("nodes {}", command::node_list(nodes)),
    }
}

/// The unit of a metric of this kind of subject; `None` where it has no such metric.
pub fn unit_of(metric: &str, of: &Subject) -> Option<Unit> {
    match of {
        Subject::Process(..) | Subject::Group(..) => task::by_id(metric).map(|metric| metric.unit),
        Subject::Container(_) => container::by_id(metric).map(|metric| metric.unit),
        // Sockets have the metrics of nodes.
        Subject::Node(_) | Subject::Socket(_) => node::by_id(metric).map(|metric| metric.unit),
        Subject::Host => host_unit(metric),
        Subject::Device(_) => node::by_id(metric).map(|metric| metric.unit),
    }
}

/// The unit of a metric of the machine, by its id or by the metric of nodes.
fn host_unit(metric: &str) -> Option<Unit> {
    if let Some(of_node) = node::by_id(metric) {
        return Some(of_node.unit);
    }
    host::HOST_METRICS.iter().find(|known| known.id == metric)?;
    Some(match metric {
        _ if metric.ends_with("_pct") => Unit::Percent,
        _ if metric.ends_with("_per_s") => Unit::PerSecond,
        _ if metric.ends_with("_bytes") => Unit::Bytes,
        _ => Unit::Id,
    })
}

/// A value as people read it.
pub fn value(value: f64, unit: Option<Unit>) -> String {
    match unit {
        Some(Unit::Percent) => pct(value),
        Some(Unit::Bytes) => bytes(value),
        Some(Unit::Id | Unit::Count) => format!("{value:.0}"),
        Some(Unit::Ratio) => format!("{value:.2}"),
        _ => number(value),
    }
}

/// The error of a value as people read it.
pub fn error(evidence: &Evidence, confidence: Confidence) -> String {
    match evidence.error {
        error if error > 0.0 => number(error),
        _ if confidence == Confidence::Measured => "0".to_owned(),
        _ => String::new(),
    }
}

/// The object that a value is of, in words.
pub fn of(subject: &Subject, finding: &Finding) -> String {
    match subject {
        Subject::Host => "the machine".to_owned(),
        subject if *subject == finding.key.subject => finding.identity.label.clone(),
        Subject::Process(pid, _) => format!("process {pid}"),
        other => other.to_string(),
    }
}

/// `remote_pct 41.8 -> 7.0 or less within 60 s`.
pub fn check(check: &Check, finding: &Finding) -> String {
    let unit = unit_of(check.metric, &check.of);
    let whose = match &check.of {
        subject if *subject == finding.key.subject => String::new(),
        subject => format!(" of {}", of(subject, finding)),
    };
    let direction = if check.below { "or less" } else { "or more" };
    format!(
        "{}{whose}: {} -> {} {direction} within {:.0} s",
        check.metric,
        value(check.from, unit),
        value(check.to, unit),
        check.within_s
    )
}

/// `up to 6.0 of its 19.0 CPUs, assumes memory-bound work`.
pub fn gain(gain: &Gain) -> String {
    let of = gain.of.map_or(String::new(), |of| format!(" of its {} CPUs", number(of)));
    let amount = match (gain.at_least, gain.at_most) {
        (Some(least), Some(most)) if (most - least).abs() < 0.05 => format!("about {}", number(least)),
        (Some(least), _) => format!("{} or more", number(least)),
        (None, Some(most)) => format!("up to {}", number(most)),
        (None, None) => return "not known".to_owned(),
    };
    let assumes: Vec<&str> = gain.assumes.iter().map(|assumption| assumption.words()).collect();
    match assumes.first() {
        None => format!("{amount}{of}"),
        Some(_) => format!("{amount}{of}, assumes {}", assumes.join(", ")),
    }
}

/// The gain in a column of a list: `up to 6.0`, `about 2.7`, `not known`.
pub fn gain_short(gain: &Gain) -> String {
    let short = Gain { of: None, assumes: Vec::new(), ..gain.clone() };
    self::gain(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(bytes(17.1 * (1u64 << 30) as f64), "17.1 GiB");
        assert_eq!(pct_with_error(41.8, 3.1), "41.8 +-3.1 %");
        assert_eq!(nodes(&[NodeId(0), NodeId(1), NodeId(4)]), "nodes 0-1,4");
        assert_eq!((number(-0.0), number(100.4)), ("0.0".into(), "100".into()));
        assert_eq!(
            (duration(65_000_000_000), duration(400_000_000_000)),
            ("65 s".into(), "6 min 40 s".into())
        );
    }

    #[test]
    fn sentences_and_names_are_cut() {
        assert_eq!(sentence("x".repeat(500)).chars().count(), SENTENCE_MAX);
        assert_eq!(comm(Comm::new("\x1b[2J")), "\\x1b[2J");
    }

    #[test]
    fn gains_say_how_sure_they_are() {
        let of = |at_least, at_most| gain_short(&Gain { at_least, at_most, ..Gain::default() });
        assert_eq!(of(Some(2.7), Some(2.7)), "about 2.7");
        assert_eq!(of(Some(3.9), None), "3.9 or more");
        assert_eq!(of(None, Some(6.0)), "up to 6.0");
        assert_eq!(of(None, None), "not known");
    }
}
