//! Findings whose cause has just ended.

use std::collections::BTreeMap;

use super::super::{Finding, Key, Severity};
use super::state::Past;

/// A finding is an info for so long after the end of what explained it, ns: memory that was asked to move is seen where it was until it
/// has moved and was looked at again.
pub(super) const AFTERMATH_NS: u64 = 60_000_000_000;

/// The last cause of each finding that has one, or had until a while ago.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    causes: BTreeMap<Key, Key>,
}

impl Aftermath {
    /// Makes infos of those whose cause has ended in the last `window_ns` before `now_ns`.
    pub(super) fn soften(
        &mut self,
        list: &mut [Finding],
        past: &BTreeMap<Key, Past>,
        now_ns: u64,
        window_ns: u64,
    ) {
        let before = std::mem::take(&mut self.causes);
        let is_recent = |cause: &&Key| {
            past.get(cause).is_some_and(|past| now_ns.saturating_sub(past.ended_ns) <= window_ns)
        };
        for finding in list {
            let had = || before.get(&finding.key).filter(is_recent);
            let Some(cause) = finding.because_of.as_ref().or_else(had).cloned() else { continue };
            if finding.because_of.is_none() {
                finding.severity = finding.severity.min(Severity::Info);
            }
            self.causes.insert(finding.key.clone(), cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Subject;
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_symptom_is_an_info_until_its_cause_has_ended_a_while_ago() {
        let cause = Key { id: "memory-apart-from-threads", subject: Subject::Host };
        let symptom =
            Finding::example(Key { id: "remote-access", subject: Subject::Host }, Severity::Warning);
        let other = Finding::example(Key { id: "zone-reclaim", subject: Subject::Host }, Severity::Warning);
        let explained = Finding { because_of: Some(cause.clone()), ..symptom.clone() };
        let mut aftermath = Aftermath::default();
        let mut at = |list: Vec<Finding>, past: &BTreeMap<Key, Past>, seconds: u64| -> Vec<Severity> {
            let mut list = list;
            aftermath.soften(&mut list, past, seconds * SECOND_NS, AFTERMATH_NS);
            list.iter().map(|finding| finding.severity).collect()
        };
        use Severity::{Info, Warning};
        let nothing = BTreeMap::new();
        assert_eq!(at(vec![explained, other.clone()], &nothing, 90), [Warning, Warning]);
        let past = BTreeMap::from([(cause, Past::ended_at(100 * SECOND_NS))]);
        for seconds in [100, 130, 160] {
            assert_eq!(
                at(vec![symptom.clone(), other.clone()], &past, seconds),
                [Info, Warning],
                "{seconds}"
            );
        }
        assert_eq!(at(vec![symptom.clone(), other.clone()], &past, 161), [Warning, Warning]);
        assert_eq!(at(vec![symptom, other], &past, 130), [Warning, Warning], "forgotten");
    }
}
