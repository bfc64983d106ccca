//! Contended lines as JSON: lines of a process, and the code of both sides.

use serde_json::{Value as Json, json};

use super::access::rounded;
use crate::model::access::lines::{ContendedLine, ContendedLines, LineSide};
use crate::model::share::wilson_farther;

/// The lines that are listed, the most contended one first.
pub(super) fn rows(lines: &ContendedLines) -> Json {
    lines.listed.iter().map(|line| row(line, lines.loads)).collect()
}

/// A line, with all loads that another core answered.
fn row(line: &ContendedLine, loads: u64) -> Json {
    let share = wilson_farther(line.loads as f64, loads as f64);
    json!({
        "mapping": line.mapping,
        "page_node": line.page_node.map(|node| node.0),
        "loads": line.loads,
        "loads_pct": share.map(|(pct, _)| rounded(pct)),
        "error_points": share.map(|(_, error)| rounded(error)),
        "loads_from_other_node": line.far,
        "stores": line.stores,
        "offsets": line.offsets(),
        "sides": line.sides.iter().map(side).collect::<Json>(),
    })
}

fn side(side: &LineSide) -> Json {
    let function = side.function.as_ref();
    json!({
        "access": if side.store { "store" } else { "load" },
        "offset": side.offset,
        "cpu_node": side.cpu_node.map(|node| node.0),
        "samples": side.samples,
        "from_other_node": side.far,
        "function": function.and_then(|function| function.name.as_deref()),
        "module": function.map(|function| function.module.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::stacks::Function;
    use crate::model::units::NodeId;

    #[test]
    fn a_line_has_its_share_and_both_sides() {
        let name = Some("push".into());
        let function = Some(Arc::new(Function { name, module: "queue".into(), kernel: false }));
        let cpu_node = Some(NodeId(1));
        let stored = LineSide { store: true, function, offset: 8, cpu_node, samples: 7, far: 0 };
        let loaded = LineSide { offset: 0, samples: 50, far: 40, ..LineSide::default() };
        let sides = vec![loaded, stored];
        let line = ContendedLine {
            mapping: "[heap]".into(),
            page_node: Some(NodeId(0)),
            loads: 50,
            far: 40,
            stores: 7,
            sides,
        };
        let found = rows(&ContendedLines { loads: 100, listed: vec![line] });
        assert_eq!((&found[0]["loads_pct"], &found[0]["offsets"]), (&json!(50.0), &json!([0, 8])), "{found}");
        // Wilson at 50 of 100: 40.4 to 59.6.
        assert_eq!(found[0]["error_points"], 9.6, "{found}");
        let sides = &found[0]["sides"];
        assert_eq!((&sides[0]["access"], &sides[0]["function"]), (&json!("load"), &Json::Null));
        assert_eq!(
            sides[1],
            json!({
                "access": "store", "offset": 8, "cpu_node": 1, "samples": 7, "from_other_node": 0,
                "function": "push", "module": "queue",
            })
        );
    }
}
