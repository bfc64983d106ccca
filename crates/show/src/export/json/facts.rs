//! Small objects of a JSON stream: keys that differ from the lines before, and reasons for missing values.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value as Json};

use super::text::{self, Style};
use crate::metric::Value;
use crate::model::sample::{Missing, Reading};
use crate::snapshot::Snapshot;

/// One object, or a list of them.
#[derive(Default)]
pub(super) struct Facts {
    /// The key that names an object of a list; `None` where there is one.
    key: Option<&'static str>,
    /// Keys whose values hold for one interval, and the value that is not written.
    interval: BTreeMap<String, &'static str>,
    held: HashMap<String, Held>,
    written: u64,
}

/// Values of an object that a reader holds.
#[derive(Default)]
struct Held {
    texts: BTreeMap<String, Vec<u8>>,
    nulls: BTreeSet<String>,
    /// The number of the list that it was in last.
    seen: u64,
}

impl Facts {
    /// One object.
    pub(super) fn one() -> Facts {
        Facts::default()
    }

    /// A list of objects that `key` names.
    pub(super) fn named(key: &'static str) -> Facts {
        Facts { key: Some(key), ..Facts::default() }
    }

    /// Forgets what a reader holds. `interval` says which values of `first` hold for one interval.
    pub(super) fn settle(&mut self, first: &Map<String, Json>, interval: impl Fn(&str) -> bool) {
        self.held.clear();
        let usual = |value: &Json| if value.as_f64() == Some(0.0) { "0" } else { "null" };
        let of_interval = first.iter().filter(|(key, _)| interval(key));
        self.interval = of_interval.map(|(key, value)| (key.clone(), usual(value))).collect();
    }

    /// Forgets what a reader holds.
    pub(super) fn forget(&mut self) {
        self.held.clear();
    }

    /// Writes what a reader needs to know to make whole objects.
    pub(super) fn head(&self, out: &mut Vec<u8>) {
        out.extend(b"{\"key\":");
        text::list(out, self.key, text::plain);
        out.extend(b",\"interval\":{");
        for (i, (key, usual)) in self.interval.iter().enumerate() {
            text::label(out, i == 0, key);
            out.extend(usual.as_bytes());
        }
        out.extend(b"},\"held\":{}}");
    }

    /// Writes the list.
    pub(super) fn list(&mut self, out: &mut Vec<u8>, all: impl IntoIterator<Item = Json>) {
        self.written += 1;
        let objects = all.into_iter().filter_map(|one| match one {
            Json::Object(object) => Some(object),
            _ => None,
        });
        text::list(out, objects, |out, object| self.object(out, &object));
        self.held.retain(|_, held| held.seen == self.written);
    }

    /// Writes an object.
    pub(super) fn object(&mut self, out: &mut Vec<u8>, object: &Map<String, Json>) {
        let name = self.key.and_then(|key| object.get(key)).map(Json::to_string).unwrap_or_default();
        let held = self.held.entry(name).or_default();
        held.seen = self.written;
        out.push(b'{');
        let begin = out.len();
        let mut value = Vec::new();
        for (key, json) in object {
            value.clear();
            text::json(&mut value, json, Style::Short);
            let is_key = self.key == Some(key.as_str());
            if is_key || held.take(key, &value, self.interval.get(key).copied()) {
                text::label(out, out.len() == begin, key);
                out.extend(&value);
            }
        }
        // A key that is gone is null.
        for (key, text) in &mut held.texts {
            if !object.contains_key(key) && text != b"null" {
                *text = b"null".to_vec();
                text::label(out, out.len() == begin, key);
                out.extend(b"null");
            }
        }
        out.push(b'}');
    }
}

impl Held {
    /// Takes a value, which is not written where it holds for one interval and is as usual. True when it must be written.
    fn take(&mut self, key: &str, value: &[u8], usual: Option<&str>) -> bool {
        if let Some(usual) = usual {
            let was_null = self.nulls.contains(key);
            let is_new = value != if was_null { b"null" } else { usual.as_bytes() };
            if is_new && value == b"null" {
                self.nulls.insert(key.to_owned());
            } else if is_new && was_null {
                self.nulls.remove(key);
            }
            return is_new;
        }
        match self.texts.get_mut(key) {
            Some(held) => {
                let is_new = held != value;
                if is_new {
                    value.clone_into(held);
                }
                is_new
            }
            None if value == b"null" => false,
            None => {
                self.texts.insert(key.to_owned(), value.to_owned());
                true
            }
        }
    }
}

/// Why values are null, by metric; the host's own reason goes before one of a single row.
pub(super) struct Reasons<'a> {
    of_host: &'a BTreeMap<String, Missing>,
    of_rows: BTreeMap<String, String>,
}

impl<'a> Reasons<'a> {
    /// Only the host's own so far.
    pub(super) fn of_host(snapshot: &'a Snapshot) -> Reasons<'a> {
        Reasons { of_host: &snapshot.host.missing, of_rows: BTreeMap::new() }
    }

    /// The JSON form of a value.
    pub(super) fn value(&mut self, id: &str, reading: Reading<Value>) -> Json {
        match reading {
            Ok(value) => value.to_json(),
            Err(why) => {
                self.note(id, &why);
                Json::Null
            }
        }
    }

    /// Keeps the reason unless there is one.
    pub(super) fn note(&mut self, id: &str, why: &Missing) {
        if !self.of_host.contains_key(id) && !self.of_rows.contains_key(id) {
            self.of_rows.insert(id.to_string(), why.to_string());
        }
    }

    /// All of them.
    pub(super) fn all(self) -> Map<String, Json> {
        let of_host = self.of_host.iter().map(|(id, why)| (id.clone(), Json::String(why.to_string())));
        let mut all: Map<String, Json> = of_host.collect();
        all.extend(self.of_rows());
        all
    }

    /// Reasons of single rows alone.
    pub(super) fn of_rows(self) -> Map<String, Json> {
        self.of_rows.into_iter().map(|(id, why)| (id, Json::String(why))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(facts: &mut Facts, object: Json) -> String {
        let mut out = Vec::new();
        facts.object(&mut out, object.as_object().unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_is_written_when_it_changes() {
        let mut facts = Facts::one();
        assert_eq!(written(&mut facts, json!({ "a": 1.0, "b": "x", "c": null })), r#"{"a":1,"b":"x"}"#);
        assert_eq!(written(&mut facts, json!({ "a": 1.0, "b": "y" })), r#"{"b":"y"}"#);
        assert_eq!(written(&mut facts, json!({ "b": "y" })), r#"{"a":null}"#, "it is gone");
        assert_eq!(written(&mut facts, json!({ "b": "y" })), "{}");
    }

    #[test]
    fn a_value_of_an_interval_is_written_in_each_unless_it_is_as_usual() {
        let mut facts = Facts::one();
        let first = json!({ "rate": 0.0, "share": 5.0, "size": 7 });
        facts.settle(first.as_object().unwrap(), |key| key != "size");
        assert_eq!(written(&mut facts, first.clone()), r#"{"share":5,"size":7}"#);
        assert_eq!(
            written(&mut facts, json!({ "rate": null, "share": 5.0, "size": 7 })),
            r#"{"rate":null,"share":5}"#
        );
        assert_eq!(
            written(&mut facts, json!({ "rate": null, "share": null, "size": 7 })),
            "{}",
            "null holds on"
        );
        assert_eq!(written(&mut facts, first), r#"{"rate":0,"share":5}"#);
    }

    #[test]
    fn objects_of_a_list_are_told_by_their_key() {
        let mut facts = Facts::named("id");
        let mut list = |all: Json| {
            let mut out = Vec::new();
            facts.list(&mut out, all.as_array().unwrap().clone());
            String::from_utf8(out).unwrap()
        };
        let [a, b] = [json!({ "id": "a", "x": 1 }), json!({ "id": "b", "x": 2 })];
        assert_eq!(list(json!([a, b])), r#"[{"id":"a","x":1},{"id":"b","x":2}]"#);
        assert_eq!(list(json!([b])), r#"[{"id":"b"}]"#);
        assert_eq!(list(json!([a, b])), r#"[{"id":"a","x":1},{"id":"b"}]"#, "it was away");
    }
}
