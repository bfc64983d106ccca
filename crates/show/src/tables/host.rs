//! Tables beside the numbers: the recording itself, its losses and gaps, and findings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::column::columns;
use crate::finding::{Finding, Subject, json};
use crate::model::sample::HostFacts;
use crate::text::clean_str;

/// A recording, or its part in one file.
pub(super) struct HostRow {
    pub host: Arc<HostFacts>,
    /// The version that recorded it. Clean.
    pub version: String,
}

impl HostRow {
    fn missing(&self) -> String {
        let reasons = self.host.missing.iter().map(|(metric, why)| (metric.as_str(), why.to_string()));
        text(&reasons.collect::<BTreeMap<&str, String>>())
    }
}

/// A value as JSON.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("its keys are texts, and writing to memory does not fail")
}

columns! {
    pub(super) HOST of HostRow: row => {
        "kernel" Text clean_str(&row.host.kernel);
        "arch" Text clean_str(&row.host.arch);
        "cpu_model" Text clean_str(&row.host.cpu_model);
        "cpus" Int row.host.topology.online_cpus().count();
        "nodes" Int row.host.topology.nodes.len();
        "scope" Text clean_str(&row.host.scope);
        "topology" Text text(&row.host.topology);
        "events" Text text(&row.host.events);
        "missing" Text row.missing();
        "version" Text row.version.as_str();
    }
}

/// A cause of losses in the interval, or a gap in front of the sample.
pub(super) struct LostRow {
    /// Clean.
    pub cause: String,
    pub count: Option<u64>,
    pub gap_ns: Option<u64>,
}

columns! {
    pub(super) LOST of LostRow: row => {
        "cause" Text row.cause.as_str();
        "count" Int row.count;
        "gap_ns" Int row.gap_ns;
    }
}

/// An episode of a finding.
pub(super) struct FindingRow(pub Finding);

impl FindingRow {
    /// The subject in words, with its distinguishing part.
    fn subject(&self) -> String {
        match (&self.0.key.subject, self.0.identity.label.as_str()) {
            (Subject::Host | Subject::Device(_), _) | (_, "") => self.0.key.subject.to_string(),
            (_, label) => label.to_owned(),
        }
    }

    fn gain(&self, of: fn(&crate::finding::Gain) -> Option<f64>) -> Option<f64> {
        of(&self.0.advice.gain).filter(|cpus| cpus.is_finite())
    }

    fn commands(&self) -> String {
        json::finding(&self.0)["commands"].to_string()
    }
}

columns! {
    pub(super) FINDINGS of FindingRow: row => {
        "id" Text row.0.key.id;
        "subject" Text row.subject();
        "severity" Text row.0.severity.name();
        "confidence" Text row.0.confidence.name();
        "sentence" Text row.0.advice.sentence.as_str();
        "since" Time row.0.since_wall_ns.div_euclid(1000);
        "until" Time row.0.until_wall_ns.map(|ns| ns.div_euclid(1000));
        "peak" Float row.0.peak.filter(|peak| peak.is_finite());
        "gain_least" Float row.gain(|gain| gain.at_least);
        "gain_most" Float row.gain(|gain| gain.at_most);
        "commands" Text row.commands();
    }
}
