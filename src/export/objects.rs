//! Memory by the code that touched it first, as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::access::{percent, rounded};
use crate::model::access::objects::Object;
use crate::model::share::wilson_farther;

/// The objects of a process, the most used one first; all samples by time and by count, where shares of them say
/// something.
pub(super) fn rows(objects: &[Object], wholes: (Option<f64>, Option<f64>)) -> Json {
    objects.iter().map(|object| row(object, wholes)).collect()
}

fn row(object: &Object, (placed, by_count): (Option<f64>, Option<f64>)) -> Json {
    let functions: Json = object
        .functions
        .iter()
        .map(|function| json!({ "function": function.name, "module": function.module }))
        .collect();
    let touches: u64 = object.touched_on.values().sum();
    let touched_on: Map<String, Json> = object
        .touched_on
        .iter()
        .map(|(node, count)| (node.to_string(), json!(percent(*count as f64, touches as f64))))
        .collect();
    let mut by_node: BTreeMap<String, f64> = BTreeMap::new();
    for ((page, _), samples) in &object.by_node {
        if let Some(page) = page {
            *by_node.entry(page.to_string()).or_default() += samples;
        }
    }
    let time = placed.and_then(|placed| wilson_farther(object.samples(), placed));
    let by_node = by_node.into_iter().filter(|_| time.is_some());
    let by_node: Map<String, Json> =
        by_node.map(|(node, samples)| (node, json!(percent(samples, placed.unwrap_or_default())))).collect();
    let (remote, known) = object.remote();
    let mut row = json!({
        "functions": functions,
        "mapping": object.mapping,
        "first_touches": touches,
        "first_touched_on": touched_on,
        "use_pct": time.map(|(pct, _)| rounded(pct)),
        "error_points": time.map(|(_, error)| rounded(error)),
        "use_by_node": by_node,
        "remote_pct": percent(remote, known).filter(|_| time.is_some()),
    });
    if let Some((pct, error)) = by_count.and_then(|all| wilson_farther(object.followed(), all)) {
        row["accesses_pct"] = json!(rounded(pct));
        row["accesses_error_points"] = json!(rounded(error));
    }
    row
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::stacks::Function;
    use crate::model::units::NodeId;

    #[test]
    fn an_object_has_its_functions_and_its_share() {
        let function = |name: Option<&str>| {
            let name = name.map(str::to_string);
            Arc::new(Function { name, module: "app".into(), kernel: false })
        };
        let node = |id| Some(NodeId(id));
        let object = Object {
            functions: vec![function(Some("fill")), function(None)],
            touched_on: [(NodeId(0), 3), (NodeId(1), 1)].into(),
            mapping: "[heap]".into(),
            by_node: [((node(0), node(0)), 10.0), ((node(0), node(1)), 40.0)].into(),
            next_by_node: [((node(0), node(0)), 25.0)].into(),
        };
        let both = rows(std::slice::from_ref(&object), (Some(100.0), Some(100.0)));
        let expected = json!([{
            "functions": [{ "function": "fill", "module": "app" }, { "function": null, "module": "app" }],
            "mapping": "[heap]", "first_touches": 4, "first_touched_on": { "0": 75.0, "1": 25.0 },
            "use_pct": 50.0, "error_points": 9.6, "use_by_node": { "0": 50.0 }, "remote_pct": 80.0,
            // Wilson at 25 of 100: 17.5 to 34.3.
            "accesses_pct": 25.0, "accesses_error_points": 9.3,
        }]);
        assert_eq!(both, expected);
        let counted = rows(&[object], (None, Some(100.0)));
        assert!(counted[0]["use_pct"].is_null() && counted[0]["remote_pct"].is_null(), "{counted}");
        assert_eq!((&counted[0]["accesses_pct"], &counted[0]["use_by_node"]), (&json!(25.0), &json!({})));
    }
}
