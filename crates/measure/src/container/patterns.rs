//! Engines, pods, machines, units and sessions that a cgroup path identifies by its components: ids, escapes, uids of pods.
//!
//! Components are matched from the leaf upwards, so that in a container inside a container (kind, docker in
//! docker) the inner one is found. Anyone may choose a component: the returned names are clean and short.

use crate::model::group::{self, Engine, is_hex, is_id};

/// Something in a path, and how many components of the path lead to it, itself included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    pub what: T,
    pub level: usize,
}

/// A container, from its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub engine: Engine,
    /// The full id; the name for engines that use names.
    pub id: String,
}

/// Everything that a path contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The innermost container or machine.
    pub container: Option<Found<Container>>,
    /// Kubernetes pod uid with dashes, or the id of a podman pod.
    pub pod: Option<Found<String>>,
    /// Name of the systemd unit, suffix included, that is not inside a container.
    pub unit: Option<Found<String>>,
    /// User of a login session or user manager.
    pub uid: Option<u32>,
}

/// Components looked at; the kernel allows deeper trees, engines do not make them.
const COMPONENTS_MAX: usize = 64;

/// Prefixes of scopes, and who uses them. CRI-O and podman's monitors are not containers.
const PREFIXES: [(&str, Engine); 10] = [
    ("docker-", Engine::Docker),
    ("cri-containerd-", Engine::Containerd),
    ("crio-", Engine::CriO),
    // The group of the container where podman splits that of its unit (--cgroups=split: Quadlet, cephadm).
    ("libpod-payload-", Engine::Podman),
    ("libpod-", Engine::Podman),
    ("nerdctl-", Engine::Nerdctl),
    ("runc-", Engine::Runc),
    ("crun-", Engine::Runc),
    ("lxc.payload.", Engine::Lxc),
    ("systemd-nspawn@", Engine::Nspawn),
];

/// The group at `path` (from the root of its hierarchy), as far as the path identifies it.
pub fn identify(path: &str) -> Identity {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).take(COMPONENTS_MAX).collect();
    // Sysbox gives a container a separate cgroup tree below this: everything inside belongs to the container.
    let outer = parts.iter().position(|part| *part == "syscont-cgroup-root").unwrap_or(parts.len());
    let parts = &parts[..outer];
    let container = (0..parts.len()).rev().find_map(|at| found(at, container(parts, at)));
    let pod_end = container.as_ref().map_or(parts.len(), |container| container.level);
    let pod = (0..pod_end).rev().find_map(|at| found(at, pod(parts, at)));
    // The scope of a container is no unit, and units inside it are its own business.
    let unit_end = (0..parts.len()).find(|at| self::container(parts, *at).is_some()).unwrap_or(parts.len());
    let unit = (0..unit_end).rev().find_map(|at| found(at, unit(parts[at])));
    let uid = parts.iter().find_map(|part| after_prefix(part, "user-")?.strip_suffix(".slice")?.parse().ok());
    Identity { container, pod, unit, uid }
}

fn found<T>(at: usize, what: Option<T>) -> Option<Found<T>> {
    what.map(|what| Found { what, level: at + 1 })
}

fn container(parts: &[&str], at: usize) -> Option<Container> {
    let part = parts[at];
    let parent = at.checked_sub(1).map_or("", |above| parts[above]);
    let of = |engine, id: &str| Some(Container { engine, id: capped(id) });
    if part.starts_with("libpod-conmon-") || part.starts_with("crio-conmon-") {
        return None;
    }
    if let Some(machine) = machine(part, parent) {
        return Some(machine);
    }
    let name = strip_unit(part);
    for (prefix, engine) in PREFIXES {
        let Some(id) = after_prefix(name, prefix) else { continue };
        if engine.is_machine() || engine == Engine::Runc || is_id(id) {
            return of(engine, &unescape(id));
        }
    }
    // The systemd driver's path given to the cgroupfs driver: `parent.slice:prefix:id`.
    let mut words = part.rsplitn(3, ':');
    if let (Some(id), Some(prefix), Some(_)) = (words.next(), words.next(), words.next())
        && is_id(id)
    {
        let known = PREFIXES.iter().find(|(known, _)| known.strip_suffix('-') == Some(prefix));
        return of(known.map_or(Engine::Unknown, |(_, engine)| *engine), id);
    }
    match parent {
        "lxc" | "lxc.payload" => return of(Engine::Lxc, part),
        "docker" | "actions_job" if is_id(part) => return of(Engine::Docker, part),
        // containerd's own namespaces, for `ctr run`; only at the top, where no other tool creates them.
        "default" | "k8s.io" | "moby" if at == 1 => return of(Engine::Containerd, part),
        _ => {}
    }
    if at >= 2 && parts[at - 2] == "ecs" && (is_id(part) || fargate(part)) {
        return of(Engine::Ecs, part);
    }
    if is_hex(part, 64) {
        let in_pod = pod(parts, at.checked_sub(1)?).is_some();
        return of(if in_pod { Engine::Containerd } else { Engine::Unknown }, part);
    }
    if is_garden(part) { of(Engine::Garden, part) } else { None }
}

/// Machines of systemd-machined, libvirt and Proxmox.
fn machine(part: &str, parent: &str) -> Option<Container> {
    if parent == "qemu.slice" {
        let id = part.strip_suffix(".scope").filter(|id| !id.is_empty())?;
        return Some(Container { engine: Engine::Qemu, id: capped(id) });
    }
    let name = after_prefix(part, "machine-")?.strip_suffix(".scope").filter(|name| !name.is_empty())?;
    let name = unescape(name);
    let numbered = |prefix: &str| {
        let (number, name) = after_prefix(&name, prefix)?.split_once('-')?;
        (number.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty()).then(|| capped(name))
    };
    Some(match (numbered("qemu-"), numbered("lxc-")) {
        (Some(id), _) => Container { engine: Engine::Qemu, id },
        (_, Some(id)) => Container { engine: Engine::Lxc, id },
        _ => Container { engine: Engine::Nspawn, id: capped(&name) },
    })
}

/// AWS Fargate: the task's id, a dash, and digits.
fn fargate(part: &str) -> bool {
    part.split_once('-').is_some_and(|(task, number)| {
        is_hex(task, 32) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn pod(parts: &[&str], at: usize) -> Option<String> {
    let name = parts[at].split(':').next().unwrap_or_default();
    let name = name.strip_suffix(".slice").unwrap_or(name);
    // The systemd driver: the whole path of slices is in the name, and the uid has no dashes.
    if let Some((front, uid)) = name.rsplit_once("-pod")
        && front.contains("kubepods")
    {
        return pod_uid(uid);
    }
    if let Some((_, id)) = name.rsplit_once("libpod_pod_") {
        return is_id(id).then(|| id.to_string());
    }
    let in_kubepods = parts[..at].iter().any(|part| part.contains("kubepods"));
    if in_kubepods { pod_uid(after_prefix(name, "pod")?) } else { None }
}

fn unit(part: &str) -> Option<String> {
    let user_manager = part.starts_with("user@") && part.ends_with(".service");
    if user_manager || !(part.ends_with(".service") || part.ends_with(".scope") || part.ends_with(".socket"))
    {
        return None;
    }
    Some(capped(&session(part).unwrap_or_else(|| unescape(part))))
}

/// Characters kept of a name chosen by a user.
pub(super) const NAME_MAX: usize = 128;

/// `text` cleaned and cut.
pub(super) fn capped(text: &str) -> String {
    // Cleaning can make a character into ten: cut before (for speed) and after (for length).
    let short: String = text.chars().take(NAME_MAX).collect();
    let clean = group::show(&short);
    if clean.chars().count() <= NAME_MAX { clean } else { clean.chars().take(NAME_MAX).collect() }
}

/// The rest behind `prefix`, unless it is empty.
pub(super) fn after_prefix<'a>(part: &'a str, prefix: &str) -> Option<&'a str> {
    part.strip_prefix(prefix).filter(|rest| !rest.is_empty())
}

/// Cloud Foundry's garden: `8hex` and four times `-4hex`.
pub(super) fn is_garden(text: &str) -> bool {
    let mut words = text.split('-');
    words.next().is_some_and(|word| is_hex(word, 8)) && text.len() == 28 && words.all(|word| is_hex(word, 4))
}

/// The name of a unit without `.scope`, `.service` or `.slice`.
pub(super) fn strip_unit(part: &str) -> &str {
    [".scope", ".service", ".slice"].iter().find_map(|suffix| part.strip_suffix(suffix)).unwrap_or(part)
}

/// systemd writes characters not allowed in a unit name as `\xNN`. All others stay unchanged.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(first) = rest.first() {
        let escaped = rest.get(..4).filter(|word| word.starts_with(b"\\x")).and_then(|word| {
            let digits = std::str::from_utf8(&word[2..]).ok()?;
            // from_str_radix takes a sign, which is no digit here.
            digits
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
                .then(|| u8::from_str_radix(digits, 16).ok())?
        });
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = &rest[1..];
            }
        }
    }
    group::from_bytes(&bytes)
}

/// A pod's uid with dashes: a UUID (with `_` for `-` under the systemd driver), or the 32 digits of a
/// static pod.
pub(super) fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-");
    let words: Vec<&str> = uid.split('-').collect();
    let uuid = words.len() == 5 && words.iter().zip([8, 4, 4, 4, 12]).all(|(word, len)| is_hex(word, len));
    (uuid || is_hex(&uid, 32)).then_some(uid)
}

/// `session-3.scope` is called `session-3`.
pub(super) fn session(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope")?;
    let number = after_prefix(name, "session-")?;
    number.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_of_systemd_are_undone_and_others_kept() {
        assert_eq!(unescape(r"qemu\x2d1\x2dweb"), "qemu-1-web");
        assert_eq!(unescape(r"a\x2"), r"a\x2");
        assert_eq!(unescape(r"a\x+f"), r"a\x+f");
        assert_eq!(unescape(r"caf\xc3\xa9"), "café");
    }

    #[test]
    fn uids_of_pods() {
        let uid = "1a2b3c4d-0000-1111-2222-333344445555";
        assert_eq!(pod_uid("1a2b3c4d_0000_1111_2222_333344445555").as_deref(), Some(uid));
        assert_eq!(
            pod_uid("b8ba2a9d4d5b4a1fbd3f3f3c9a9c2d11").as_deref(),
            Some("b8ba2a9d4d5b4a1fbd3f3f3c9a9c2d11")
        );
        assert_eq!(pod_uid("web"), None);
    }

    proptest! {
        #[test]
        fn names_are_short_and_printable(text in ".{0,400}") {
            let name = capped(&unescape(&text));
            prop_assert!(name.chars().count() <= NAME_MAX);
            prop_assert!(!name.chars().any(char::is_control));
        }
    }
}
