//! Reasons for values that are missing, by metric.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::metric::Value;
use crate::model::sample::{Missing, Reading};
use crate::snapshot::Snapshot;

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

    /// A value as it is written.
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
