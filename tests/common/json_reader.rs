//! A reader of the short form of JSON, as docs/json.md describes it.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};

type Object = Map<String, Json>;

/// Makes whole intervals of lines: every row has every key of its table.
#[derive(Default)]
pub struct Reader {
    tables: Object,
    kept: HashMap<(String, String), Object>,
}

impl Reader {
    /// The whole interval of the next line.
    pub fn read(&mut self, mut line: Json) -> Json {
        if let Some(tables) = line.as_object_mut().unwrap().remove("tables") {
            self.tables = tables.as_object().unwrap().clone();
            self.kept.clear();
        }
        let mut kept = HashMap::new();
        for (name, table) in &self.tables {
            let mut rows: Vec<&mut Json> = match line.get_mut(name) {
                None => Vec::new(),
                Some(Json::Array(rows)) => rows.iter_mut().collect(),
                Some(one) => vec![one],
            };
            for row in &mut rows {
                let row = row.as_object_mut().unwrap();
                let key = table["key"].as_array().unwrap().iter().map(|key| row.get(key.as_str().unwrap()));
                let key = (name.clone(), json!(key.collect::<Vec<_>>()).to_string());
                let mut said = self.kept.get(&key).cloned().unwrap_or_default();
                said.append(row);
                let holds =
                    |(key, value): &(&String, &Json)| value.is_null() || table["interval"].get(key).is_none();
                let held =
                    said.iter().filter(holds).map(|(key, value)| (key.clone(), value.clone())).collect();
                kept.insert(key, held);
                for defaults in ["interval", "held"] {
                    row.extend(table[defaults].as_object().unwrap().clone());
                }
                row.append(&mut said);
            }
        }
        self.kept = kept;
        line
    }
}

/// A whole interval in the form of `--json-full`.
pub fn in_full(mut whole: Json) -> Json {
    if whole["schema"] == 1 {
        return whole;
    }
    let mut missing = whole["host"]["missing"].as_object().unwrap().clone();
    missing.append(whole["missing"].as_object_mut().unwrap());
    whole["missing"] = missing.into();
    whole["schema"] = json!(1);
    // Rows of the full form have these keys only where they have a value.
    for row in whole["tasks"].as_array_mut().into_iter().flatten() {
        row.as_object_mut().unwrap().retain(|key, value| {
            !(value.is_null() && ["access", "counters", "left_scope"].contains(&key.as_str()))
        });
    }
    if whole.get("notes").is_none() {
        whole["notes"] = json!([]);
    }
    whole
}

/// Fails unless both say the same: `null` is as good as no key, and 1 is 1.0.
pub fn assert_same(whole: &Json, full: &Json, path: &str) {
    match (whole, full) {
        (Json::Object(a), Json::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                let [whole, full] = [a, b].map(|object| object.get(key).unwrap_or(&Json::Null));
                assert_same(whole, full, &format!("{path}.{key}"));
            }
        }
        (Json::Array(a), Json::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| assert_same(a, b, &format!("{path}[{i}]")));
        }
        (Json::Number(a), Json::Number(b)) => assert_eq!(a.as_f64(), b.as_f64(), "{path}"),
        _ => assert_eq!(whole, full, "{path}"),
    }
}
