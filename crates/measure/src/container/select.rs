//! Cgroups that a name or a pattern on the command line selects. In patterns `*` and `?` stay within a component, `**` does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::container::scope::Scope;
use crate::model::group::{self, Engine, Group, GroupKind};
use crate::text::clean_str;

/// Names that a failure offers at most.
const OFFERS: usize = 5;

/// One thing asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// A path from the root of the hierarchy, or a pattern of [`matches()`]; all below is included.
    Cgroup(String),
    /// A literal path, with any characters.
    Exactly(String),
    /// Name, full id or the start of one.
    Container(String),
    Pod {
        namespace: Option<String>,
        name: String,
    },
    Namespace(String),
    /// With or without `.service`.
    Unit(String),
    Machine(String),
}

/// The watched tasks, as far as cgroups decide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Or-ed.
    pub wants: Vec<Want>,
    /// Only tasks outside of containers and machines.
    pub host: bool,
    /// A group that does not exist yet may come later.
    pub wait: bool,
}

/// The cgroups of one hierarchy as of now.
pub struct Tree<'a> {
    pub paths: &'a BTreeMap<u64, String>,
    pub groups: &'a BTreeMap<u64, Arc<Group>>,
}

/// Nothing has the name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    pub want: Want,
    /// Names of the same kind, closest first.
    pub closest: Vec<String>,
    /// The engine of a container whose name was not found: the wanted name may be its own.
    pub nameless: Option<Engine>,
}

impl Wants {
    /// True when cgroups decide nothing.
    pub fn is_empty(&self) -> bool {
        self.wants.is_empty() && !self.host
    }

    /// `scope` restricted to the wanted part, and the wanted names that do not exist.
    pub fn resolve(&self, tree: &Tree<'_>, scope: &Scope) -> (Scope, Vec<Unmatched>) {
        let mut scope = scope.clone();
        scope.by_cgroup |= !self.wants.is_empty();
        if self.host {
            let apart = |group: &Group| {
                matches!(group.kind, GroupKind::Container | GroupKind::Machine | GroupKind::Pod)
            };
            scope.outside = tops(tree, |_, group| apart(group));
        }
        let mut unmatched = Vec::new();
        for want in &self.wants {
            let found = want.find(tree);
            if found.is_empty() {
                let nameless = want.nameless(tree);
                unmatched.push(Unmatched { want: want.clone(), closest: want.closest(tree), nameless });
            }
            scope.cgroups.extend(found);
        }
        (scope, unmatched)
    }

    /// The words of the header.
    pub fn describe(&self) -> String {
        let words = self.wants.iter().map(Want::to_string).chain(self.host.then(|| "host".to_string()));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Tops of the groups that `is` is true for.
fn tops(tree: &Tree<'_>, is: impl Fn(&str, &Group) -> bool) -> BTreeSet<u64> {
    let own = |(id, path): (&u64, &String)| {
        let group = tree.groups.get(id)?;
        is(path, group).then_some(group.top)
    };
    tree.paths.iter().filter_map(own).collect()
}

impl Want {
    fn find(&self, tree: &Tree<'_>) -> BTreeSet<u64> {
        match self {
            Want::Cgroup(pattern) => {
                let found = |pattern: &str| -> BTreeSet<u64> {
                    let same = |(id, path): (&u64, &String)| matches(pattern, path).then_some(*id);
                    tree.paths.iter().filter_map(same).collect()
                };
                let exact = found(pattern);
                // Or in the form shown on screen: with escapes.
                if exact.is_empty() {
                    group::shown_as(pattern).map_or(exact, |path| found(&path))
                } else {
                    exact
                }
            }
            Want::Exactly(wanted) => {
                tree.paths.iter().filter(|(_, path)| *path == wanted).map(|(id, _)| *id).collect()
            }
            Want::Container(name) => {
                let exact = tops(tree, |_, group| is_container(group) && group.name == *name);
                if !exact.is_empty() {
                    return exact;
                }
                // The id of a container of a user is followed by the user, too.
                tops(tree, |_, group| {
                    let id = match &group.user {
                        None => Some(name.as_str()),
                        Some(user) => name.strip_suffix(user.as_str()).and_then(|id| id.strip_suffix('@')),
                    };
                    is_container(group)
                        && id.zip(group.id.as_ref()).is_some_and(|(start, id)| id.starts_with(start))
                })
            }
            Want::Pod { namespace, name } => tops(tree, |_, group| {
                let known = [&group.pod, &group.pod_uid].into_iter().flatten().any(|known| known == name);
                known && (namespace.is_none() || *namespace == group.namespace)
            }),
            Want::Namespace(name) => tops(tree, |_, group| group.namespace.as_ref() == Some(name)),
            Want::Unit(name) => {
                let service = match name.rsplit_once('@') {
                    // Of a user: `nginx@alice`. A template of the system has its `@` before the ending.
                    Some((unit, user)) if !user.contains('.') => {
                        vec![format!("{unit}.service@{user}"), format!("{name}.service")]
                    }
                    _ => vec![format!("{name}.service")],
                };
                tree.paths
                    .iter()
                    .filter(|(id, path)| {
                        let unit = tree.groups.get(id).and_then(|group| group.unit.as_ref());
                        let last = path.rsplit('/').next().unwrap_or_default();
                        // The unit's own group, not the groups below it: those are included anyway.
                        unit.is_some_and(|unit| *unit == *name || service.contains(unit))
                            && last.contains('.')
                    })
                    .map(|(id, _)| *id)
                    .collect()
            }
            Want::Machine(name) => {
                tops(tree, |_, group| group.kind == GroupKind::Machine && group.name == *name)
            }
        }
    }

    /// The engine of a container that is known by its id only, where the name of a container is wanted.
    fn nameless(&self, tree: &Tree<'_>) -> Option<Engine> {
        if !matches!(self, Want::Container(_)) {
            return None;
        }
        let groups = tree.groups.iter().filter(|(id, _)| tree.paths.contains_key(id)).map(|(_, group)| group);
        let by_id = |group: &&Arc<Group>| group.id.as_ref().is_some_and(|id| id.starts_with(&group.name));
        groups.filter(|group| is_container(group)).find(by_id).and_then(|group| group.engine)
    }

    /// Names like this one that there are.
    fn closest(&self, tree: &Tree<'_>) -> Vec<String> {
        let groups = tree.groups.iter().filter(|(id, _)| tree.paths.contains_key(id)).map(|(_, group)| group);
        let names: BTreeSet<String> = match self {
            Want::Cgroup(_) | Want::Exactly(_) => tree.paths.values().map(|path| group::show(path)).collect(),
            Want::Container(_) => {
                groups.filter(|group| is_container(group)).map(|group| group.name.clone()).collect()
            }
            Want::Pod { .. } => groups.filter_map(|group| pod(group)).collect(),
            Want::Namespace(_) => groups.filter_map(|group| group.namespace.clone()).collect(),
            Want::Unit(_) => groups.filter_map(|group| group.unit.clone()).collect(),
            Want::Machine(_) => groups
                .filter(|group| group.kind == GroupKind::Machine)
                .map(|group| group.name.clone())
                .collect(),
        };
        let typed = match self {
            Want::Pod { namespace: Some(namespace), name } => format!("{namespace}/{name}"),
            want => want.word().to_string(),
        };
        let mut near: Vec<(usize, String)> =
            names.into_iter().map(|name| (distance(&name, &typed), name)).collect();
        near.sort();
        near.into_iter().map(|(_, name)| name).take(OFFERS).collect()
    }

    fn word(&self) -> &str {
        match self {
            Want::Cgroup(word)
            | Want::Exactly(word)
            | Want::Container(word)
            | Want::Pod { name: word, .. }
            | Want::Namespace(word)
            | Want::Unit(word)
            | Want::Machine(word) => word,
        }
    }

    /// `container`, `pod`, …
    pub fn noun(&self) -> &'static str {
        match self {
            Want::Cgroup(_) | Want::Exactly(_) => "cgroup",
            Want::Container(_) => "container",
            Want::Pod { .. } => "pod",
            Want::Namespace(_) => "Kubernetes namespace",
            Want::Unit(_) => "unit",
            Want::Machine(_) => "machine",
        }
    }
}

/// The pod that a group is or belongs to, as one would type it.
fn pod(group: &Group) -> Option<String> {
    let name = group.pod.as_ref()?;
    Some(group.namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}")))
}

fn is_container(group: &Group) -> bool {
    matches!(group.kind, GroupKind::Container | GroupKind::Machine)
}

/// Clean text.
impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Want::Pod { namespace: Some(namespace), name } => {
                write!(f, "pod {}/{}", clean_str(namespace), clean_str(name))
            }
            Want::Cgroup(path) | Want::Exactly(path) => {
                write!(f, "{} {}", self.noun(), group::show(path))
            }
            want => write!(f, "{} {}", want.noun(), clean_str(want.word())),
        }
    }
}

/// Letters to add, drop or change; a start or a part in common counts as close.
fn distance(known: &str, typed: &str) -> usize {
    const LOOKED_AT: usize = 64;
    let (a, b): (Vec<char>, Vec<char>) =
        (known.chars().take(LOOKED_AT).collect(), typed.chars().take(LOOKED_AT).collect());
    if !typed.is_empty() && known.contains(typed) {
        return 0;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(!x.eq_ignore_ascii_case(y));
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// True when the whole of `text` matches `pattern`. Takes time proportional to the product of their
/// lengths at most, whatever the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // reached[i]: the pattern so far matches the first i characters of the text.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let deep = pattern[at..].starts_with(&['*', '*']);
        match pattern[at] {
            '*' => {
                for i in 0..text.len() {
                    reached[i + 1] |= reached[i] && (deep || text[i] != '/');
                }
            }
            wanted => {
                for i in (0..text.len()).rev() {
                    let same = text[i] == wanted || (wanted == '?' && text[i] != '/');
                    reached[i + 1] = reached[i] && same;
                }
                reached[0] = false;
            }
        }
        at += if deep { 2 } else { 1 };
    }
    reached[text.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::container::group::describe;
    use crate::container::names::ContainerNames;

    const ID: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";

    const UID: &str = "1a2b3c4d-0000-1111-2222-333344445555";

    struct World(BTreeMap<u64, String>, BTreeMap<u64, Arc<Group>>);

    fn world() -> World {
        let paths: BTreeMap<u64, String> = [
            (1, "/".to_string()),
            (2, format!("/docker/{ID}")),
            (3, format!("/docker/{ID}/inner")),
            (4, format!("/kubepods/burstable/pod{UID}")),
            (5, format!("/kubepods/burstable/pod{UID}/{}", ID.replace('3', "4"))),
            (6, "/system.slice/nginx.service".to_string()),
            (7, "/system.slice/nginx.service/worker".to_string()),
            (8, "/lxc.payload.web".to_string()),
        ]
        .into();
        let groups = describe(&paths, &BTreeMap::new(), &mut ContainerNames::new("/nonexistent".as_ref()));
        World(paths, groups)
    }

    fn resolve(world: &World, want: Want) -> (BTreeSet<u64>, Vec<Unmatched>) {
        let wants = Wants { wants: vec![want], ..Wants::default() };
        let (scope, unmatched) =
            wants.resolve(&Tree { paths: &world.0, groups: &world.1 }, &Scope::default());
        (scope.cgroups, unmatched)
    }

    #[test]
    fn each_kind_of_name_finds_its_tops() {
        let world = world();
        for (want, ids) in [
            (Want::Container("3c0f".into()), vec![2]),
            (Want::Container(ID.into()), vec![2]),
            (Want::Container("web".into()), vec![8]),
            (Want::Pod { namespace: None, name: UID.into() }, vec![4, 5]),
            (Want::Unit("nginx".into()), vec![6]),
            (Want::Unit("nginx.service".into()), vec![6]),
            (Want::Machine("web".into()), vec![8]),
            (Want::Cgroup("/docker/*".into()), vec![2]),
            (Want::Cgroup("/system.slice/**".into()), vec![6, 7]),
        ] {
            let name = want.to_string();
            let (found, unmatched) = resolve(&world, want);
            assert_eq!(found, ids.into_iter().collect(), "{name}");
            assert!(unmatched.is_empty(), "{name}");
        }
    }

    /// A user can make a cgroup with any id, and a unit with any name.
    #[test]
    fn the_same_name_of_a_user_is_another_one() {
        let manager = "/user.slice/user-1000.slice/user@1000.service/app.slice";
        let paths: BTreeMap<u64, String> = [
            (1, "/".to_string()),
            (2, format!("/docker/{ID}")),
            (3, format!("{manager}/docker-{ID}.scope")),
            (4, format!("{manager}/nginx.service")),
            (5, "/system.slice/nginx.service".to_string()),
            (6, format!("{manager}/libpod-{}.scope", ID.replace('3', "5"))),
        ]
        .into();
        let mut groups =
            describe(&paths, &BTreeMap::new(), &mut ContainerNames::new("/nonexistent".as_ref()));
        for (id, name) in [(2, "web"), (3, "web@1000")] {
            Arc::make_mut(groups.get_mut(&id).unwrap()).name = name.into();
        }
        let world = World(paths, groups);
        for (want, ids) in [
            (Want::Container("web".into()), vec![2]),
            (Want::Container("web@1000".into()), vec![3]),
            (Want::Container("3c0f".into()), vec![2]),
            (Want::Container("3c0f@1000".into()), vec![3]),
            (Want::Container("5c0f".into()), vec![]),
            (Want::Container("3c0f@2000".into()), vec![]),
            (Want::Unit("nginx".into()), vec![5]),
            (Want::Unit("nginx@1000".into()), vec![4]),
            (Want::Unit("nginx.service@1000".into()), vec![4]),
        ] {
            let name = want.to_string();
            assert_eq!(resolve(&world, want).0, ids.into_iter().collect(), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_offers_those_like_it() {
        let (found, unmatched) = resolve(&world(), Want::Unit("ngimx".into()));
        assert!(found.is_empty());
        assert_eq!(unmatched[0].closest, ["nginx.service"]);
    }

    #[test]
    fn a_container_without_a_name_is_said() {
        let World(paths, groups) = world();
        let tree = Tree { paths: &paths, groups: &groups };
        assert_eq!(Want::Container("shop".into()).nameless(&tree), Some(Engine::Docker));
        assert_eq!(Want::Unit("shop".into()).nameless(&tree), None);
    }

    #[test]
    fn pods_are_offered_with_their_namespace() {
        let World(paths, mut groups) = world();
        let group = Arc::make_mut(groups.get_mut(&4).unwrap());
        (group.pod, group.namespace) = (Some("cart-0".into()), Some("shop".into()));
        let want = Want::Pod { namespace: Some("other".into()), name: "cart-0".into() };
        assert_eq!(want.closest(&Tree { paths: &paths, groups: &groups })[0], "shop/cart-0");
    }

    #[test]
    fn the_host_is_all_but_containers_machines_and_pods() {
        let World(paths, groups) = world();
        let wants = Wants { host: true, ..Wants::default() };
        let (scope, _) = wants.resolve(&Tree { paths: &paths, groups: &groups }, &Scope::default());
        assert_eq!(scope.outside, [2, 4, 5, 8].into());
        assert!(scope.cgroups.is_empty() && !scope.by_cgroup);
    }

    #[test]
    fn a_scope_that_waits_wants_nothing_yet() {
        let World(paths, groups) = world();
        let wants = Wants { wants: vec![Want::Container("later".into())], wait: true, ..Wants::default() };
        let (scope, unmatched) = wants.resolve(&Tree { paths: &paths, groups: &groups }, &Scope::default());
        assert!(scope.by_cgroup && scope.cgroups.is_empty() && unmatched.len() == 1);
    }

    #[test]
    fn close_names_have_small_distances() {
        assert_eq!(distance("nginx", "ngimx"), 1);
        assert_eq!(distance("nginx.service", "nginx"), 0);
        assert!(distance("postgres", "nginx") > 4);
    }

    #[test]
    fn stars_stay_within_a_component_unless_doubled() {
        for (pattern, text, wanted) in [
            ("/docker/*", "/docker/web", true),
            ("/docker/*", "/docker/web/inner", false),
            ("/docker/**", "/docker/web/inner", true),
            ("/*/web?", "/docker/web1", true),
            ("/*/web?", "/docker/web", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("**/x", "/a/b/x", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn every_text_matches_itself_and_two_stars(text in "[a-z/.]{0,40}") {
            prop_assert!(matches(&text, &text) && matches("**", &text));
        }

        #[test]
        fn no_pattern_takes_long_or_panics(pattern in "[*?a/]{0,200}", text in "[a/]{0,200}") {
            matches(&pattern, &text);
        }
    }
}
