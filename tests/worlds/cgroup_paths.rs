//! The container, pod, unit and user that a cgroup path belongs to. One row for each layout of engines and
//! systemd, with the source of the pattern.

use numatop_ng::container::patterns::identify;
use numatop_ng::model::group::Engine;
use numatop_ng::model::group::Engine::*;
use proptest::prelude::*;

/// An id as engines make them.
const ID: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
const OUTER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
const UID: &str = "1a2b3c4d-0000-1111-2222-333344445555";
const STATIC_UID: &str = "b8ba2a9d4d5b4a1fbd3f3f3c9a9c2d11";

/// The expected answer for a path. `ID` and the others are put in for `{id}`, `{outer}`, `{uid}`, `{uid_}`, `{static}`.
struct Row {
    path: &'static str,
    container: Option<(Engine, &'static str)>,
    pod: Option<&'static str>,
    unit: Option<&'static str>,
    source: &'static str,
}

fn fill(text: &str) -> String {
    text.replace("{id}", ID)
        .replace("{outer}", OUTER)
        .replace("{uid}", UID)
        .replace("{uid_}", &UID.replace('-', "_"))
        .replace("{static}", STATIC_UID)
}

const fn row(
    path: &'static str,
    container: Option<(Engine, &'static str)>,
    pod: Option<&'static str>,
    unit: Option<&'static str>,
    source: &'static str,
) -> Row {
    Row { path, container, pod, unit, source }
}

const CONTAINER: &str = "{id}";
const POD: Option<&str> = Some("{uid}");

#[rustfmt::skip]
static TABLE: &[Row] = &[
    row("/system.slice/docker-{id}.scope", Some((Docker, CONTAINER)), None, None, "tracee, cadvisor and htop: docker, systemd driver"),
    row("/docker/{id}", Some((Docker, CONTAINER)), None, None, "tracee tests: docker, cgroupfs driver"),
    row("/docker/{id}/system.slice/nginx.service", Some((Docker, CONTAINER)), None, None, "systemd in a docker container: its units are its own business"),
    row("/actions_job/{id}", Some((Docker, CONTAINER)), None, None, "tracee tests: GitHub runners"),
    row("/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{id}.scope", Some((Docker, CONTAINER)), None, None, "docker rootless under the user manager"),
    row("/docker/{outer}/docker/{id}", Some((Docker, CONTAINER)), None, None, "tracee #2925: docker in docker, the inner one"),
    row("/my-parent/{id}", Some((Unknown, CONTAINER)), None, None, "docker run --cgroup-parent, cgroupfs driver"),
    row("/my.slice/docker-{id}.scope", Some((Docker, CONTAINER)), None, None, "docker run --cgroup-parent, systemd driver"),
    row("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice/cri-containerd-{id}.scope", Some((Containerd, CONTAINER)), POD, None, "tracee: containerd CRI, systemd driver"),
    row("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid_}.slice/cri-containerd-{id}.scope", Some((Containerd, CONTAINER)), POD, None, "tracee: best-effort pod"),
    row("/kubepods.slice/kubepods-pod{uid_}.slice/cri-containerd-{id}.scope", Some((Containerd, CONTAINER)), POD, None, "kubelet: guaranteed pods have no level for their class"),
    row("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{static}.slice/cri-containerd-{id}.scope", Some((Containerd, CONTAINER)), Some("{static}"), None, "kubelet: the uid of a static pod is a hash"),
    row("/kubepods/burstable/pod{uid}/{id}", Some((Containerd, CONTAINER)), POD, None, "tracee ('generic containerd'): cgroupfs driver"),
    row("/kubepods/pod{uid}/{id}", Some((Containerd, CONTAINER)), POD, None, "k3s and rke2, guaranteed pod, cgroupfs driver"),
    row("/kubepods/burstable/pod{uid}", None, POD, None, "the pod itself"),
    row("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice", None, POD, None, "the pod itself, systemd driver"),
    row("/kubepods.slice/kubepods-burstable.slice", None, None, None, "a class of pods is no pod"),
    row("/system.slice/containerd.service/kubepods-burstable-pod{uid_}.slice:cri-containerd:{id}", Some((Containerd, CONTAINER)), POD, Some("containerd.service"), "tetragon and netdata: drivers that do not match"),
    row("/kubepods-besteffort-pod{uid_}.slice:cri-containerd:{id}", Some((Containerd, CONTAINER)), POD, None, "tracee: drivers that do not match, at the top"),
    row("/kubepods.slice/kubepods-pod{uid_}.slice/docker-{id}.scope", Some((Docker, CONTAINER)), POD, None, "kubelet with dockershim or cri-dockerd"),
    row("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice/crio-{id}.scope", Some((CriO, CONTAINER)), POD, None, "tracee, cadvisor: CRI-O"),
    row("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice/crio-{id}.scope/container", Some((CriO, CONTAINER)), POD, None, "newer CRI-O with crun: a leaf of its own"),
    row("/kubepods/burstable/pod{uid}/crio-{id}", Some((CriO, CONTAINER)), POD, None, "CRI-O, cgroupfs driver"),
    row("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice/crio-conmon-{id}.scope", None, POD, Some("crio-conmon-{id}.scope"), "cadvisor: the monitor is no container"),
    row("/system.slice/nerdctl-{id}.scope", Some((Nerdctl, CONTAINER)), None, None, "nerdctl, systemd driver"),
    row("/default/web", Some((Containerd, "web")), None, None, "ctr run: /<namespace>/<id>"),
    row("/machine.slice/machine-.scope", None, None, Some("machine-.scope"), "found by fuzzing: a machine without a name is a unit"),
    row("/machine.slice/libpod-{id}.scope", Some((Podman, CONTAINER)), None, None, "tracee, tetragon: podman as root"),
    row("/machine.slice/libpod-{id}.scope/container", Some((Podman, CONTAINER)), None, None, "netdata: podman with a leaf for the container"),
    row("/machine.slice/libpod-conmon-{id}.scope", None, None, Some("libpod-conmon-{id}.scope"), "netdata: podman's monitor is no container"),
    row("/machine.slice/machine-libpod_pod_{outer}.slice/libpod-{id}.scope", Some((Podman, CONTAINER)), Some("{outer}"), None, "netdata: a podman pod"),
    row("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope/container", Some((Podman, CONTAINER)), None, None, "podman rootless"),
    row("/libpod_parent/libpod-{id}", Some((Podman, CONTAINER)), None, None, "podman, cgroupfs driver"),
    row("/system.slice/docker-{outer}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{uid_}.slice/cri-containerd-{id}.scope", Some((Containerd, CONTAINER)), POD, None, "kind (dash0 #896): the pod, not the node"),
    row("/docker/{outer}/kubelet/kubepods/burstable/pod{uid}/{id}", Some((Containerd, CONTAINER)), POD, None, "kind, cgroupfs driver"),
    row("/system.slice/docker-{outer}.scope/init.scope", Some((Docker, "{outer}")), None, None, "kind: the node's own init"),
    row("/ecs/0123456789abcdef0123456789abcdef/{id}", Some((Ecs, CONTAINER)), None, None, "netdata: ECS on EC2"),
    row("/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-2531612879", Some((Ecs, "0123456789abcdef0123456789abcdef-2531612879")), None, None, "netdata: Fargate"),
    row("/lxc.payload.web", Some((Lxc, "web")), None, None, "htop: LXC, LXD, Incus"),
    row("/lxc.payload.web/system.slice/ssh.service", Some((Lxc, "web")), None, None, "htop: below it runs a systemd of its own"),
    row("/lxc.monitor.web", None, None, None, "htop: LXC's monitor is no container"),
    row("/lxc/web", Some((Lxc, "web")), None, None, "netdata: legacy LXC"),
    row("/lxc/101/ns", Some((Lxc, "101")), None, None, "netdata: Proxmox"),
    row("/machine.slice/machine-debian.scope/payload/system.slice/cron.service", Some((Nspawn, "debian")), None, None, "htop, netdata: a machine of systemd-machined"),
    row("/machine.slice/systemd-nspawn@my\\x2dbox.service/payload", Some((Nspawn, "my-box")), None, None, "htop, netdata: systemd-nspawn, name escaped"),
    row("/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d01.scope/libvirt/vcpu0", Some((Qemu, "web-01")), None, None, "netdata: libvirt, number and name escaped"),
    row("/machine.slice/machine-lxc\\x2d7\\x2dold.scope", Some((Lxc, "old")), None, None, "netdata: libvirt's LXC driver"),
    row("/qemu.slice/113.scope", Some((Qemu, "113")), None, None, "netdata: Proxmox virtual machine"),
    row("/garden/6f265890-5165-7fab-6b52-18d1", Some((Garden, "6f265890-5165-7fab-6b52-18d1")), None, None, "tracee: Cloud Foundry"),
    row("/docker/{id}/syscont-cgroup-root/docker/{outer}", Some((Docker, CONTAINER)), None, None, "tetragon: sysbox, the outer one"),
    row("/system.slice/runc-web.scope", Some((Runc, "web")), None, None, "runc --systemd-cgroup without a path in its configuration"),
    row("/system.slice/nginx.service", None, None, Some("nginx.service"), "htop: a service"),
    row("/system.slice/system-getty.slice/getty@tty1.service", None, None, Some("getty@tty1.service"), "htop: an instance of a service"),
    row("/system.slice/dev-disk-by\\x2dlabel.service/sub", None, None, Some("dev-disk-by-label.service"), "systemd: Delegate=yes and an escaped name"),
    row("/user.slice/user-1000.slice/session-3.scope", None, None, Some("session-3"), "htop: a login session"),
    row("/user.slice/user-1000.slice/user@1000.service/app.slice/snap.firefox.firefox.0c1b.scope", None, None, Some("snap.firefox.firefox.0c1b.scope"), "htop: a snap"),
    row("/user.slice/user-1000.slice/user@1000.service/init.scope", None, None, Some("init.scope"), "htop: the user manager itself"),
    row("/init.scope", None, None, Some("init.scope"), "systemd itself"),
    row("/", None, None, None, "the root"),
    row("/user/shell", None, None, None, "groups that somebody made by hand"),
    row("/docker/buildx", None, None, None, "a group in docker's tree that is no container"),
];

#[test]
fn paths_say_whose_they_are() {
    assert!(TABLE.len() >= 40);
    for row in TABLE {
        let found = identify(&fill(row.path));
        let container = found.container.map(|found| (found.what.engine, found.what.id));
        let wanted = row.container.map(|(engine, id)| (engine, fill(id)));
        assert_eq!(container, wanted, "{} ({})", row.path, row.source);
        assert_eq!(found.pod.map(|pod| pod.what), row.pod.map(fill), "{} ({})", row.path, row.source);
        assert_eq!(found.unit.map(|unit| unit.what), row.unit.map(fill), "{} ({})", row.path, row.source);
    }
}

/// A row without a name could be neither seen nor asked for.
#[test]
fn a_machine_without_a_name_is_none() {
    for path in ["/qemu.slice/.scope", "/machine.slice/machine-qemu\\x2d1\\x2d.scope"] {
        let found = identify(path).container.map(|found| found.what.id);
        assert_ne!(found.as_deref(), Some(""), "{path}");
    }
}

#[test]
fn a_level_leads_to_the_top_of_what_was_found() {
    let found = identify(&fill("/machine.slice/libpod-{id}.scope/container/deep"));
    assert_eq!(found.container.unwrap().level, 2);
    let found = identify(&fill("/kubepods/burstable/pod{uid}/{id}/init"));
    assert_eq!((found.pod.unwrap().level, found.container.unwrap().level), (3, 4));
}

#[test]
fn the_user_of_a_session_is_known() {
    assert_eq!(identify("/user.slice/user-1000.slice/session-3.scope").uid, Some(1000));
    assert_eq!(identify("/user.slice/user-.slice").uid, None);
}

proptest! {
    #[test]
    fn any_path_is_identified_without_panic_and_in_few_words(path in "(/[-a-z0-9@:._\\\\\u{1b}\u{202e}é]{0,300}){0,80}") {
        let found = identify(&path);
        for text in [
            found.container.map(|found| found.what.id),
            found.pod.map(|found| found.what),
            found.unit.map(|found| found.what),
        ].into_iter().flatten() {
            prop_assert!(text.chars().count() <= 128);
            prop_assert!(!text.chars().any(char::is_control) && !text.contains('\u{202e}'), "{:?}", text);
        }
    }

    #[test]
    fn the_pieces_of_patterns_in_any_order_are_no_trouble(pieces in proptest::collection::vec(
        prop_oneof!["docker-", "/", "machine-", "qemu", "-", "pod", ".scope", ".slice", ":", "kubepods", "lxc", "ecs", "libpod_pod_", "\\\\x2d", "[0-9a-f]{64}", "[0-9a-f]{32}"], 0..24)) {
        identify(&pieces.concat());
    }
}
