//! Memory by the code that touched it first, as JSON.

use serde_json::{Map, Value as Json, json};

use super::access::{Wholes, percent, uses};
use crate::model::access::objects::Object;

/// The objects of a process with all its samples, the most used one first.
pub(super) fn rows(objects: &[Object], wholes: Wholes) -> Json {
    objects.iter().map(|object| row(object, wholes)).collect()
}

fn row(object: &Object, wholes: Wholes) -> Json {
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
    let mut row = uses(&object.by_node, &object.next_by_node, wholes);
    row.insert("functions".into(), functions);
    row.insert("mapping".into(), json!(object.mapping));
    row.insert("first_touches".into(), json!(touches));
    row.insert("first_touched_on".into(), Json::Object(touched_on));
    Json::Object(row)
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
