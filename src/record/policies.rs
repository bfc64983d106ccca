//! Memory policies of mappings as bytes and back, beside the placements of the same processes.

use std::sync::Arc;

use super::format::{MAX_ROWS, MAX_TEXT};
use super::placement::{Entries, is_same, missing};
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use crate::model::sample::PolicyBytes;

/// No policies are known.
pub(super) const NOTHING: Bytes<'static> = Bytes(&[0]);

/// Says whether bytes follow, or the reason why there are none.
const FOUND: u64 = 1;
const MISSING: u64 = 0;

/// Writes the policies of entries that are new or different since `base`: their placement is written anew, too.
pub(super) fn encode(out: &mut Vec<u8>, base: Option<&Entries>, entries: &Entries) {
    let new = entries.iter().filter(|(id, entry)| !is_same(base, id, entry));
    let known: Vec<_> = new.filter_map(|(id, entry)| Some((id, entry.policies.as_ref()?))).collect();
    put(out, known.len() as u64);
    let mut last = 0;
    for (id, (read_ns, found)) in known {
        put(out, difference(*id, last));
        last = *id;
        put(out, *read_ns);
        match found {
            Ok(bytes) => {
                [FOUND, bytes.all_bytes, bytes.own_bytes].into_iter().for_each(|number| put(out, number));
            }
            Err(missing) => {
                put(out, MISSING);
                put_text(out, &serde_json::to_string(missing).expect("plain data becomes JSON"));
            }
        }
    }
}

/// Adds what [`encode`] wrote to placements.
///
/// # Errors
/// The bytes are something else, or are of a process without a placement.
pub(super) fn decode(mut input: Bytes<'_>, entries: &mut Entries) -> Result<(), Malformed> {
    let mut last = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        last = undo_difference(input.number()?, last);
        let read_ns = input.number()?;
        let found = match input.number()? {
            FOUND => {
                let (all_bytes, own_bytes) = (input.number()?, input.number()?);
                // They have a section of their own.
                Ok(PolicyBytes { all_bytes, own_bytes, huge: Vec::new() })
            }
            MISSING => Err(missing(input.text(MAX_TEXT)?)?),
            _ => return Err(Malformed("policies are neither found nor missing")),
        };
        let entry = Arc::make_mut(entries).get_mut(&last);
        let entry = entry.ok_or(Malformed("policies of a process without a placement"))?;
        Arc::make_mut(entry).policies = Some((read_ns, found));
    }
    input.finish()
}
