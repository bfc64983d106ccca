//! The name of a cgroup, and the row that it belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::asked::Book;
use super::patterns::{capped, identify};
use crate::model::group::{Group, GroupKind, named, short};

/// Users who made cgroups, and their names.
#[derive(Clone, Copy)]
pub struct Makers<'a> {
    /// By cgroup id; those of the system are not in it.
    pub of: &'a BTreeMap<u64, u32>,
    pub users: &'a BTreeMap<u32, String>,
}

/// Groups for the cgroups of `paths` that `known` does not have. `book` has names. Makers are those that
/// paths prove.
pub fn describe(
    paths: &BTreeMap<u64, String>,
    known: &BTreeMap<u64, Arc<Group>>,
    book: &mut impl Book,
) -> BTreeMap<u64, Arc<Group>> {
    describe_made(paths, Makers { of: &BTreeMap::new(), users: &BTreeMap::new() }, known, book)
}

/// As [`describe`], with users who made cgroups.
pub fn describe_made(
    paths: &BTreeMap<u64, String>,
    makers: Makers<'_>,
    known: &BTreeMap<u64, Arc<Group>>,
    book: &mut impl Book,
) -> BTreeMap<u64, Arc<Group>> {
    let ids: BTreeMap<&str, u64> = paths.iter().map(|(id, path)| (path.as_str(), *id)).collect();
    let new = paths.iter().filter(|(id, _)| !known.contains_key(id));
    new.map(|(id, path)| (*id, Arc::new(group(*id, path, &ids, makers, book)))).collect()
}

/// The user in whose service manager a cgroup is: that one makes whatever is below it, and only the system makes it.
fn user_of_path(parts: &[&str]) -> Option<u32> {
    let [slice, user, manager, _, ..] = parts else { return None };
    let uid = user.strip_prefix("user-")?.strip_suffix(".slice")?;
    let is_manager = *slice == "user.slice" && *manager == format!("user@{uid}.service");
    uid.parse().ok().filter(|uid| is_manager && *uid != 0)
}

/// A user as a label, at most 32 characters long.
fn label(uid: u32, users: &BTreeMap<u32, String>) -> String {
    users.get(&uid).map_or_else(|| uid.to_string(), |name| capped(name).chars().take(32).collect())
}

fn group(id: u64, path: &str, ids: &BTreeMap<&str, u64>, makers: Makers<'_>, book: &mut impl Book) -> Group {
    let found = identify(path);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let at = |level: usize| ids.get(format!("/{}", parts[..level].join("/")).as_str()).copied();
    // Anyone may have written a path: a cgroup made by a user belongs to that user, whatever its name.
    let maker = |level: usize| {
        let made = if level == parts.len() { Some(id) } else { at(level) };
        made.and_then(|made| makers.of.get(&made)).copied().or_else(|| user_of_path(&parts[..level]))
    };
    let mut group = Group {
        kind: GroupKind::Group,
        engine: None,
        name: parts.last().map_or("/".into(), |part| capped(part)),
        user: None,
        id: None,
        pod: found.pod.as_ref().map(|pod| pod.what.clone()),
        pod_uid: found.pod.as_ref().map(|pod| pod.what.clone()),
        namespace: None,
        unit: found.unit.as_ref().map(|unit| unit.what.clone()),
        top: id,
        parent: if parts.is_empty() { None } else { at(parts.len() - 1).or_else(|| ids.get("/").copied()) },
    };
    if let Some(pod) = &found.pod {
        match maker(pod.level) {
            Some(uid) => {
                group.pod = Some(named(&pod.what, Some(&label(uid, makers.users))));
                group.pod_uid = None;
            }
            None => {
                if let Some(name) = book.pod(&pod.what) {
                    (group.pod, group.namespace) = (Some(name.name), name.namespace);
                }
            }
        }
    }
    if let Some(unit) = &found.unit
        && let Some(uid) = maker(unit.level)
    {
        group.unit = Some(named(&unit.what, Some(&label(uid, makers.users))));
    }
    let level = if let Some(container) = &found.container {
        let engine = container.what.engine;
        group.kind = if engine.is_machine() { GroupKind::Machine } else { GroupKind::Container };
        group.engine = Some(engine);
        group.name = short(&container.what.id);
        let owner = maker(container.level);
        if let Some(name) = book.container(engine, &container.what.id, owner) {
            group.name = name.name;
            // Pods of the system are no business of a user's file.
            if owner.is_none() {
                group.pod = name.pod.or(group.pod);
                group.namespace = name.namespace.or(group.namespace);
            }
        }
        group.id = Some(container.what.id.clone());
        container.level
    } else if let Some(pod) = &found.pod {
        group.kind = GroupKind::Pod;
        group.name = match maker(pod.level) {
            Some(_) => pod.what.clone(),
            None => group.pod.clone().unwrap_or_default(),
        };
        pod.level
    } else if let Some(unit) = &found.unit {
        group.kind = GroupKind::Unit;
        group.name = unit.what.clone();
        unit.level
    } else {
        parts.len()
    };
    if let Some(uid) = maker(level) {
        let user = label(uid, makers.users);
        group.name = named(&group.name, Some(&user));
        group.user = Some(user);
    }
    group.top = at(level).unwrap_or(id);
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::names::ContainerNames;

    const ID: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";

    fn groups(paths: &[(u64, String)]) -> BTreeMap<u64, Arc<Group>> {
        let paths = paths.iter().cloned().collect();
        describe(&paths, &BTreeMap::new(), &mut ContainerNames::new("/nonexistent".as_ref()))
    }

    #[test]
    fn what_is_below_a_container_belongs_to_it() {
        let groups = groups(&[
            (1, "/".into()),
            (2, "/docker".into()),
            (3, format!("/docker/{ID}")),
            (4, format!("/docker/{ID}/system.slice/cron.service")),
        ]);
        assert_eq!((groups[&3].top, groups[&4].top), (3, 3));
        assert_eq!((groups[&3].kind, groups[&3].name.as_str()), (GroupKind::Container, &ID[..12]));
        assert_eq!((groups[&2].kind, groups[&2].top, groups[&2].parent), (GroupKind::Group, 2, Some(1)));
    }

    #[test]
    fn the_root_has_no_parent() {
        let groups = groups(&[(1, "/".into()), (9, "/system.slice/cron.service".into())]);
        assert_eq!((groups[&1].parent, groups[&1].name.as_str()), (None, "/"));
        assert_eq!((groups[&9].kind, groups[&9].name.as_str()), (GroupKind::Unit, "cron.service"));
    }

    #[test]
    fn what_a_user_made_has_no_name_of_the_system() {
        let paths: BTreeMap<u64, String> = [
            (1, "/".to_string()),
            (2, format!("/docker/{ID}")),
            (3, "/job".into()),
            (4, format!("/job/docker/{ID}")),
            (5, "/job/nginx.service".into()),
            (6, "/system.slice/nginx.service".into()),
            (7, format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope")),
            (8, "/system.slice/app.service".into()),
            (9, "/system.slice/app.service/worker".into()),
        ]
        .into();
        let of = BTreeMap::from([(4, 1000), (5, 1000), (9, 1001)]);
        let users = BTreeMap::from([(1000, "alice".to_string())]);
        let makers = Makers { of: &of, users: &users };
        let mut book = ContainerNames::new("/nonexistent".as_ref());
        let groups = describe_made(&paths, makers, &BTreeMap::new(), &mut book);
        let of = |id: u64| (groups[&id].name.as_str(), groups[&id].user.as_deref());
        let short = &ID[..12];
        assert_eq!((of(2), of(6)), ((short, None), ("nginx.service", None)));
        assert_eq!(of(4), (format!("{short}@alice").as_str(), Some("alice")));
        assert_eq!(of(7), (format!("{short}@alice").as_str(), Some("alice")), "its path proves it");
        assert_eq!(of(5), ("nginx.service@alice", Some("alice")));
        assert_eq!(groups[&5].unit.as_deref(), Some("nginx.service@alice"));
        assert_eq!(of(9), ("app.service", None), "a part of a unit of the system");
        assert!(groups[&2].is_nameless() && groups[&4].is_nameless());
    }

    #[test]
    fn a_user_chooses_no_name_of_another() {
        assert_eq!(named("web@bob", Some("alice")), "web_bob@alice");
        assert_eq!(named("web@bob", None), "web@bob");
    }
}
