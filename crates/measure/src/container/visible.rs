//! Cgroups named in a sample. With a scope these are only its own: a recording is passed on, and its readers
//! should not get names of other tenants.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::scope::Scope;
use crate::model::sample::Names;
use crate::model::wire::Scoped;

/// The part of all names that samples have, computed again only when its inputs have changed.
#[derive(Default)]
pub struct VisibleNames {
    /// Cgroups that rows were in since the scope was chosen. They outlast the rows and removed cgroups: their
    /// tasks may be reported later.
    seen: BTreeSet<u64>,
    /// The source of `visible`.
    of: Option<(Scope, Arc<Names>)>,
    visible: Arc<Names>,
}

impl VisibleNames {
    /// Another scope was chosen: what rows were in until now is not in it.
    pub fn forget(&mut self) {
        *self = VisibleNames::default();
    }

    /// The members of `all` for a sample with rows in the cgroups `rows`: in scope, with rows now or earlier,
    /// and their parents. Users are left unchanged.
    pub fn of(&mut self, scope: &Scope, all: &Arc<Names>, rows: impl Iterator<Item = u64>) -> Arc<Names> {
        if scope.is_everything() {
            self.forget();
            return Arc::clone(all);
        }
        let known = self.seen.len();
        self.seen.extend(rows);
        let same = |(of, names): &(Scope, Arc<Names>)| of == scope && Arc::ptr_eq(names, all);
        if self.seen.len() != known || !self.of.as_ref().is_some_and(same) {
            self.visible = Arc::new(select(scope, all, &self.seen));
            // Of those whose names are not kept any longer there are more and more.
            self.seen.retain(|id| all.cgroups.contains_key(id));
            self.of = Some((scope.clone(), Arc::clone(all)));
        }
        Arc::clone(&self.visible)
    }
}

fn select(scope: &Scope, all: &Names, seen: &BTreeSet<u64>) -> Names {
    let mut ids = BTreeSet::new();
    let wanted = all.groups.keys().filter(|id| is_in(scope, all, **id)).chain(seen);
    for id in wanted {
        // The parents of a cgroup already found are there too.
        for id in all.upwards(*id) {
            if !ids.insert(id) {
                break;
            }
        }
    }
    let named = |id: &u64| ids.contains(id);
    Names {
        users: all.users.clone(),
        cgroups: all
            .cgroups
            .iter()
            .filter(|(id, _)| named(id))
            .map(|(id, path)| (*id, path.clone()))
            .collect(),
        groups: all
            .groups
            .iter()
            .filter(|(id, _)| named(id))
            .map(|(id, group)| (*id, Arc::clone(group)))
            .collect(),
    }
}

/// Whether all tasks of a cgroup are in scope; false where more than cgroups decides, and only rows tell.
fn is_in(scope: &Scope, all: &Names, id: u64) -> bool {
    let among = |ids: &BTreeSet<u64>| all.upwards(id).any(|id| ids.contains(&id));
    let anywhere = !scope.by_cgroup && scope.cgroups.is_empty();
    scope.at_switches() == Scoped::ByCgroup && (anywhere || among(&scope.cgroups)) && !among(&scope.outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::group::describe;
    use crate::container::names::ContainerNames;

    fn names(paths: &[(u64, &str)]) -> Arc<Names> {
        let cgroups = paths.iter().map(|(id, path)| (*id, path.to_string())).collect();
        let groups =
            describe(&cgroups, &Default::default(), &mut ContainerNames::new("/nonexistent".as_ref()));
        Arc::new(Names { users: [(0, "root".to_string())].into(), cgroups, groups })
    }

    fn world() -> Arc<Names> {
        names(&[
            (1, "/"),
            (2, "/shop"),
            (3, "/shop/cart"),
            (4, "/bank"),
            (5, "/bank/vault"),
            (6, "/shop/till"),
        ])
    }

    fn ids(names: &Names) -> Vec<u64> {
        let ids: Vec<u64> = names.cgroups.keys().copied().collect();
        assert_eq!(ids, names.groups.keys().copied().collect::<Vec<_>>());
        ids
    }

    fn of(scope: &Scope, rows: &[u64]) -> Vec<u64> {
        ids(&VisibleNames::default().of(scope, &world(), rows.iter().copied()))
    }

    #[test]
    fn without_a_scope_all_are_named() {
        let all = world();
        let mut visible = VisibleNames::default();
        assert!(Arc::ptr_eq(&visible.of(&Scope::default(), &all, [2].into_iter()), &all));
    }

    #[test]
    fn a_scope_has_what_is_below_it_and_above() {
        let by_cgroup = |cgroups: &[u64]| Scope {
            cgroups: cgroups.iter().copied().collect(),
            by_cgroup: true,
            ..Scope::default()
        };
        assert_eq!(of(&by_cgroup(&[2]), &[]), [1, 2, 3, 6]);
        assert_eq!(of(&by_cgroup(&[3]), &[]), [1, 2, 3]);
        // The cgroup is awaited and does not exist yet.
        assert_eq!(of(&by_cgroup(&[]), &[]), [] as [u64; 0]);
        // A task that was moved out is reported at its new place.
        assert_eq!(of(&by_cgroup(&[3]), &[5]), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_is_outside_is_not_named() {
        let host = Scope { outside: [4].into(), ..Scope::default() };
        assert_eq!(of(&host, &[]), [1, 2, 3, 6]);
    }

    #[test]
    fn where_cgroups_do_not_decide_alone_rows_do() {
        let user = Scope { uids: [0].into(), ..Scope::default() };
        assert_eq!(of(&user, &[6]), [1, 2, 6]);
        assert_eq!(of(&Scope { outside: [4].into(), ..user }, &[6]), [1, 2, 6]);
    }

    #[test]
    fn they_stay_until_nobody_knows_them_or_another_scope_is_chosen() {
        let (all, user) = (world(), Scope { uids: [0].into(), ..Scope::default() });
        let mut visible = VisibleNames::default();
        let first = visible.of(&user, &all, [3].into_iter());
        let next = visible.of(&user, &all, [].into_iter());
        assert!(Arc::ptr_eq(&first, &next), "nothing has changed");
        assert_eq!(ids(&visible.of(&user, &all, [6].into_iter())), [1, 2, 3, 6]);
        // One that has no rows is removed, and its id is used again.
        let without = names(&[(1, "/"), (2, "/shop"), (6, "/shop/till")]);
        assert_eq!(ids(&visible.of(&user, &without, [].into_iter())), [1, 2, 6]);
        assert_eq!(ids(&visible.of(&user, &all, [].into_iter())), [1, 2, 6]);
        visible.forget();
        assert_eq!(ids(&visible.of(&user, &all, [5].into_iter())), [1, 4, 5]);
    }
}
