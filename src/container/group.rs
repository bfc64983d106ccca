//! The name of a cgroup, and the row that it belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::component::capped;
use super::names::ContainerNames;
use super::patterns::identify;
use crate::model::group::{Group, Kind, short};

/// Groups for the cgroups of `paths` that `known` does not have. `book` knows names.
pub fn describe(
    paths: &BTreeMap<u64, String>,
    known: &BTreeMap<u64, Arc<Group>>,
    book: &mut ContainerNames,
) -> BTreeMap<u64, Arc<Group>> {
    let ids: BTreeMap<&str, u64> = paths.iter().map(|(id, path)| (path.as_str(), *id)).collect();
    let new = paths.iter().filter(|(id, _)| !known.contains_key(id));
    new.map(|(id, path)| (*id, Arc::new(group(*id, path, &ids, book)))).collect()
}

fn group(id: u64, path: &str, ids: &BTreeMap<&str, u64>, book: &mut ContainerNames) -> Group {
    let found = identify(path);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let at = |level: usize| ids.get(format!("/{}", parts[..level].join("/")).as_str()).copied();
    let mut group = Group {
        kind: Kind::Group,
        engine: None,
        name: parts.last().map_or("/".into(), |part| capped(part)),
        id: None,
        pod: found.pod.as_ref().map(|pod| pod.what.clone()),
        pod_uid: found.pod.as_ref().map(|pod| pod.what.clone()),
        namespace: None,
        unit: found.unit.as_ref().map(|unit| unit.what.clone()),
        top: id,
        parent: if parts.is_empty() { None } else { at(parts.len() - 1).or_else(|| ids.get("/").copied()) },
    };
    if let Some(pod) = &found.pod
        && let Some(name) = book.pod(&pod.what)
    {
        (group.pod, group.namespace) = (Some(name.name), name.namespace);
    }
    let level = if let Some(container) = &found.container {
        let engine = container.what.engine;
        group.kind = if engine.is_machine() { Kind::Machine } else { Kind::Container };
        group.engine = Some(engine);
        group.name = short(&container.what.id);
        if let Some(name) = book.container(engine, &container.what.id, found.uid) {
            group.name = name.name;
            group.pod = name.pod.or(group.pod);
            group.namespace = name.namespace.or(group.namespace);
        }
        group.id = Some(container.what.id.clone());
        container.level
    } else if let Some(pod) = &found.pod {
        group.kind = Kind::Pod;
        group.name = group.pod.clone().unwrap_or_default();
        pod.level
    } else if let Some(unit) = &found.unit {
        group.kind = Kind::Unit;
        group.name = unit.what.clone();
        unit.level
    } else {
        parts.len()
    };
    group.top = at(level).unwrap_or(id);
    group
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((groups[&3].kind, groups[&3].name.as_str()), (Kind::Container, &ID[..12]));
        assert_eq!((groups[&2].kind, groups[&2].top, groups[&2].parent), (Kind::Group, 2, Some(1)));
    }

    #[test]
    fn the_root_has_no_parent() {
        let groups = groups(&[(1, "/".into()), (9, "/system.slice/cron.service".into())]);
        assert_eq!((groups[&1].parent, groups[&1].name.as_str()), (None, "/"));
        assert_eq!((groups[&9].kind, groups[&9].name.as_str()), (Kind::Unit, "cron.service"));
    }
}
