//! Names of places that came once and may be needed again, in a bounded number of bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::model::stacks::{Function, Place};

/// Places whose names are kept, by the part that shows them and by the part that records them.
const PLACES_MAX: usize = 100_000;

/// Bytes of their names: twice the `ALL_MAX` of `symbolize/allotment.rs`, so that only a recording may have
/// more. Two sets of names may be in use when places are asked for again.
const BYTES_MAX: usize = 32 << 20;

/// Names by place. Places of one function share it. When room runs out all are forgotten; a recording repeats
/// names.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    names: HashMap<Place, Arc<Function>>,
    functions: HashSet<Arc<Function>>,
    bytes: usize,
}

impl KnownNames {
    /// Adds names; for a place that has one already, the new one counts.
    pub fn extend(&mut self, names: impl IntoIterator<Item = (Place, Arc<Function>)>) {
        for (place, function) in names {
            let shared = self.functions.get(&function).cloned();
            let more = if shared.is_some() { 0 } else { function.bytes() };
            if self.names.len() >= PLACES_MAX || self.bytes + more > BYTES_MAX {
                *self = KnownNames::default();
            }
            let function = shared.unwrap_or(function);
            if self.functions.insert(Arc::clone(&function)) {
                self.bytes += function.bytes();
            }
            self.names.insert(place, function);
        }
    }

    /// The name of a place.
    pub fn get(&self, place: &Place) -> Option<&Arc<Function>> {
        self.names.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: String) -> Arc<Function> {
        Arc::new(Function { name: Some(name), module: "[jit]".into(), kernel: false })
    }

    #[test]
    fn names_of_many_places_take_bounded_memory() {
        let mut known = KnownNames::default();
        for at in 0..50_000_u64 {
            known.extend([(Place::Address((1, 1), at), function(format!("{at:04000}")))]);
            assert!(known.bytes <= BYTES_MAX);
        }
        let bytes: usize = known.names.values().map(|function| function.bytes()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn places_of_one_function_share_it() {
        let mut known = KnownNames::default();
        known.extend((0..1000).map(|at| (Place::Kernel(at), function("f".repeat(4000)))));
        assert_eq!(known.bytes, function("f".repeat(4000)).bytes());
        assert!(Arc::ptr_eq(known.get(&Place::Kernel(1)).unwrap(), known.get(&Place::Kernel(999)).unwrap()));
    }
}
