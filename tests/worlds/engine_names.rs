//! Names of containers, by the files of each engine: one tree of fixtures for each.

use std::path::{Path, PathBuf};

use numatop_ng::container::names::{ContainerNames, Name};
use numatop_ng::model::group::Engine::{self, *};
use proptest::prelude::*;

const POD: &str = "1a2b3c4d-0000-1111-2222-333344445555";

fn root(engine: &str) -> PathBuf {
    crate::fixture::tree(&format!("engines/{engine}"))
}

/// The ids of the fixtures: a letter many times and a number.
fn id(letter: &str, number: u32) -> String {
    format!("{}{number:02}", letter.repeat(62))
}

fn name(engine: &str, kind: Engine, id: &str) -> Option<Name> {
    ContainerNames::new(&root(engine)).container(kind, id, Some(1000))
}

fn plain(name: &str) -> Option<Name> {
    Some(Name { name: name.into(), ..Name::default() })
}

fn in_pod(name: &str, pod: &str, namespace: &str) -> Option<Name> {
    Some(Name { name: name.into(), pod: Some(pod.into()), namespace: Some(namespace.into()) })
}

#[test]
fn every_engine_s_files_give_names() {
    for (tree, kind, id, wanted) in [
        ("docker", Docker, id("a", 1), plain("web")),
        ("docker", Docker, id("a", 2), in_pod("cart", "cart-7d9f", "shop")),
        ("docker", Docker, id("a", 3), plain("rootless")),
        ("docker-moved", Docker, id("a", 4), plain("moved")),
        ("podman", Podman, id("b", 1), plain("db")),
        ("podman", Podman, id("b", 2), plain("once")),
        ("podman", Podman, id("b", 3), plain("hers")),
        ("crio", CriO, id("c", 1), in_pod("cart", "cart-7d9f", "shop")),
        ("crio", CriO, id("c", 2), in_pod("proxy", "cart-7d9f", "shop")),
        ("containerd", Containerd, id("d", 1), in_pod("api", "api-0", "prod")),
        ("containerd", Containerd, id("d", 2), in_pod("(pause)", "api-0", "prod")),
        ("containerd", Nerdctl, id("d", 3), plain("cache")),
        ("containerd", Containerd, id("d", 4), in_pod("traefik", "traefik-5c", "kube-system")),
        ("kubelet", Containerd, id("e", 1), in_pod("api", "api-0", "prod")),
        ("docker", Unknown, id("a", 1), plain("web")),
        ("podman", Unknown, id("b", 1), plain("db")),
    ] {
        assert_eq!(name(tree, kind, &id), wanted, "{tree} {id}");
    }
}

#[test]
fn what_no_file_names_has_no_name() {
    for tree in ["docker", "podman", "crio", "containerd", "kubelet"] {
        assert_eq!(name(tree, Unknown, &id("9", 1)), None, "{tree}");
    }
    let nowhere = ContainerNames::new(Path::new("/nowhere")).container(Unknown, &id("9", 1), Some(1000));
    assert_eq!(nowhere, None);
    assert_eq!(name("podman", Podman, &id("b", 9)), None);
    assert_eq!(name("kubelet", Containerd, &id("e", 2)), None);
}

#[test]
fn a_pod_is_named_by_the_directory_of_its_logs() {
    let pod = ContainerNames::new(&root("kubelet")).pod(POD).unwrap();
    assert_eq!((pod.name.as_str(), pod.namespace.as_deref()), ("api-0", Some("prod")));
    assert_eq!(ContainerNames::new(&root("docker")).pod(POD), None);
}

#[test]
fn hostile_files_are_cut_cleaned_or_ignored() {
    let found = name("hostile", Docker, &id("f", 1)).unwrap().name;
    assert!(found.starts_with("\\x1b]0;PWN\\x07\\u{202e}x") && found.chars().count() <= 128, "{found}");
    assert_eq!(name("hostile", Docker, &id("f", 2)), None);
    assert_eq!(name("hostile", Docker, &id("f", 3)), None);
    assert_eq!(name("hostile", Podman, &id("f", 1)), None);
    assert_eq!(name("hostile", Containerd, &id("f", 4)), plain("\\x1b[2J"));
}

#[test]
fn links_of_a_host_lead_to_places_of_that_host() {
    let root = std::env::temp_dir().join(format!("numatop-linked-names-{}", std::process::id()));
    let id = id("a", 1);
    let docker = root.join(format!("data/docker/containers/{id}"));
    std::fs::create_dir_all(&docker).unwrap();
    std::fs::write(docker.join("config.v2.json"), "{\"Name\":\"/web\"}").unwrap();
    std::fs::create_dir_all(root.join("var/lib")).unwrap();
    std::os::unix::fs::symlink("/data/docker", root.join("var/lib/docker")).unwrap();
    let found = ContainerNames::new(&root).container(Docker, &id, None);
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(found, plain("web"));
}

#[test]
fn empty_words_are_no_names() {
    let root = std::env::temp_dir().join(format!("numatop-empty-words-{}", std::process::id()));
    let id = id("a", 1);
    let logs = root.join("var/log/containers");
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join(format!("pod_ns_-{id}.log")), "").unwrap();
    std::fs::create_dir_all(root.join(format!("var/log/pods/ns__{POD}"))).unwrap();
    let docker = root.join(format!("var/lib/docker/containers/{id}"));
    std::fs::create_dir_all(&docker).unwrap();
    let found = |name: &str| {
        std::fs::write(docker.join("config.v2.json"), format!("{{\"Name\":\"{name}\"}}")).unwrap();
        let mut book = ContainerNames::new(&root);
        (book.container(Docker, &id, None), book.container(Containerd, &id, None), book.pod(POD))
    };
    let (without, of_log, pod) = found("/k8s__pod_ns_uid_0");
    let (with, ..) = found("/k8s_web_pod_ns_uid_0");
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!((without, of_log, pod), (plain("k8s__pod_ns_uid_0"), None, None));
    assert_eq!(with, in_pod("web", "pod", "ns"));
}

proptest! {
    #[test]
    fn no_file_makes_trouble(bytes in proptest::collection::vec(any::<u8>(), 0..300), json in "[\\[\\]{}\",:a-z0-9]{0,200}") {
        let root = std::env::temp_dir().join(format!("numatop-names-{}", std::process::id()));
        let id = id("a", 1);
        for content in [&bytes[..], json.as_bytes()] {
            for file in [
                format!("var/lib/docker/containers/{id}/config.v2.json"),
                "var/lib/containers/storage/overlay-containers/containers.json".to_string(),
                format!("run/containerd/io.containerd.runtime.v2.task/ns/{id}/config.json"),
            ] {
                let path = root.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
            let mut book = ContainerNames::new(&root);
            for engine in [Docker, Podman, CriO, Containerd, Unknown] {
                if let Some(name) = book.container(engine, &id, None) {
                    prop_assert!(name.name.chars().count() <= 128);
                }
            }
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
