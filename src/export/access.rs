//! Memory in use as JSON: samples of a process and of its mappings.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::model::access::MappingUse;
use crate::model::share::wilson;
use crate::snapshot::SampledUse;

/// Mappings that are listed: those that are used most.
const MAPPINGS_MAX: usize = 50;

/// The samples of a process.
pub fn object(sampled: &SampledUse) -> Json {
    let found = &sampled.found;
    let memory = found.at_memory() + found.nowhere + found.unknown;
    let placed = found.placed();
    let mut object = json!({
        "source": sampled.source.id(),
        "window_s": (sampled.window_s * 1e3).round() / 1e3,
        "samples": found.samples,
        "with_address": found.with_address,
        "plain": found.plain,
        "gone": found.gone,
        "nowhere": found.nowhere,
        "unknown": found.unknown,
        "kernel": found.kernel,
        "not_mapped": found.unmapped,
        "lost": found.lost,
        "resolved_pct": percent(found.with_address as f64, memory as f64),
    });
    if let Some(why) = &found.no_nodes {
        object["missing"] = json!({ "nodes": why.to_string() });
    }
    match found.sound() {
        Err(why) => object["missing"]["mappings"] = json!(why.to_string()),
        Ok(()) => {
            let rows = found.mappings.iter().take(MAPPINGS_MAX).map(|mapping| row(mapping, placed));
            object["mappings"] = rows.collect();
        }
    }
    object
}

fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| rounded(100.0 * part / whole))
}

fn rounded(pct: f64) -> f64 {
    (pct * 10.0).round() / 10.0
}

fn row(mapping: &MappingUse, placed: f64) -> Json {
    let (pct, error) = wilson(mapping.samples(), placed).unwrap_or_default();
    let mut by_node: BTreeMap<String, f64> = BTreeMap::new();
    for ((page, _), samples) in &mapping.by_node {
        if let Some(page) = page {
            *by_node.entry(page.to_string()).or_default() += samples;
        }
    }
    let by_node: Map<String, Json> =
        by_node.into_iter().map(|(node, samples)| (node, json!(percent(samples, placed)))).collect();
    let (remote, known) = mapping.remote();
    json!({
        "start": format!("{:x}", mapping.start),
        "name": mapping.name,
        "bytes": mapping.bytes,
        "use_pct": rounded(pct),
        "use_by_node": by_node,
        "error_points": rounded(error),
        "remote_pct": percent(remote, known),
    })
}
