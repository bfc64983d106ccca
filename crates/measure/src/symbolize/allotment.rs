//! The bytes that the names of each user may take. A process can have any number of names, each of the
//! maximum length.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::model::stacks::Function;

/// Bytes of all names of one user: some 80,000 of usual length.
const OWNER_MAX: usize = 8 << 20;

/// Bytes of all names together.
pub(super) const ALL_MAX: usize = 16 << 20;

/// The module of a place whose name is beyond them.
const TOO_MANY: &str = "[too many names]";

/// The names found since places were last asked for again. Places of one function share its name.
pub(super) struct Allotment {
    by_owner: HashMap<u32, Owned>,
    bytes: usize,
    too_many: Arc<Function>,
}

#[derive(Default)]
struct Owned {
    functions: HashSet<Arc<Function>>,
    bytes: usize,
}

impl Default for Allotment {
    fn default() -> Allotment {
        let too_many = Arc::new(Function { name: None, module: TOO_MANY.into(), kernel: false });
        Allotment { by_owner: HashMap::new(), bytes: 0, too_many }
    }
}

impl Allotment {
    /// The function that was found in a process of this user, or none in its place where that user or all users
    /// have too many.
    pub(super) fn share(&mut self, owner: u32, function: Function) -> Arc<Function> {
        let owned = self.by_owner.entry(owner).or_default();
        if let Some(known) = owned.functions.get(&function) {
            return Arc::clone(known);
        }
        let bytes = function.bytes();
        if owned.bytes + bytes > OWNER_MAX || self.bytes + bytes > ALL_MAX {
            return Arc::clone(&self.too_many);
        }
        let function = Arc::new(function);
        owned.functions.insert(Arc::clone(&function));
        (owned.bytes, self.bytes) = (owned.bytes + bytes, self.bytes + bytes);
        function
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(at: usize, length: usize) -> Function {
        Function { name: Some(format!("{at:0length$}")), module: "[jit]".into(), kernel: false }
    }

    #[test]
    fn names_of_one_user_without_end_leave_room_for_others() {
        let mut allotment = Allotment::default();
        let (mut bytes, mut refused) = (0, 0);
        for at in 0..100_000 {
            let shared = allotment.share(1000, function(at, 390));
            bytes += shared.name.as_ref().map_or(0, String::len);
            refused += u32::from(shared.name.is_none());
            assert!(shared.name.is_some() || shared.module == TOO_MANY);
        }
        assert!(bytes <= OWNER_MAX && refused > 0, "{bytes} bytes, {refused} without a name");
        assert!(allotment.share(1001, function(7, 390)).name.is_some());
    }

    #[test]
    fn many_users_have_a_budget_together() {
        let mut allotment = Allotment::default();
        for at in 0..200_000 {
            allotment.share(at as u32 % 100, function(at, 390));
        }
        assert!(allotment.bytes <= ALL_MAX);
    }

    #[test]
    fn a_name_that_is_known_takes_no_more() {
        let mut allotment = Allotment::default();
        let first = allotment.share(7, function(1, 10));
        let bytes = allotment.bytes;
        assert!(Arc::ptr_eq(&first, &allotment.share(7, function(1, 10))));
        assert_eq!(allotment.bytes, bytes);
    }
}
