//! Containers, pods, units and other cgroups, as rows name them.

use serde::{Deserialize, Serialize};

/// The maker of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Docker.
    Docker,
    /// containerd, without nerdctl.
    Containerd,
    /// nerdctl, which uses containerd.
    Nerdctl,
    /// CRI-O.
    CriO,
    /// Podman.
    Podman,
    /// runc or crun by itself.
    Runc,
    /// Amazon ECS.
    Ecs,
    /// LXC and Incus.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
    /// A virtual machine of libvirt or Proxmox.
    Qemu,
    /// Garden of Cloud Foundry.
    Garden,
    /// An id in the form of container engines, at a path that names no engine.
    Unknown,
}

impl Engine {
    /// The name on screen.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Containerd => "containerd",
            Engine::Nerdctl => "nerdctl",
            Engine::CriO => "cri-o",
            Engine::Podman => "podman",
            Engine::Runc => "runc",
            Engine::Ecs => "ecs",
            Engine::Lxc => "lxc",
            Engine::Nspawn => "nspawn",
            Engine::Qemu => "qemu",
            Engine::Garden => "garden",
            Engine::Unknown => "container",
        }
    }

    /// True for a group with an operating system and a name instead of an id: `--machine`.
    pub fn is_machine(self) -> bool {
        matches!(self, Engine::Lxc | Engine::Nspawn | Engine::Qemu)
    }
}

/// Characters of an id that are enough to tell it from others, as engines shorten it.
pub const SHORT_ID: usize = 12;

/// Levels of cgroups that are followed upwards, here as in the kernel programs.
pub const DEPTH_MAX: usize = 64;

/// The kind of a row of the containers view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A container of an engine.
    Container,
    /// It runs a whole operating system: LXC, nspawn, virtual machines.
    Machine,
    /// A pod of Kubernetes or Podman.
    Pod,
    /// A service, scope or session of systemd.
    Unit,
    /// Any other cgroup.
    Group,
}

impl Kind {
    /// The name on screen.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Container => "container",
            Kind::Machine => "machine",
            Kind::Pod => "pod",
            Kind::Unit => "unit",
            Kind::Group => "group",
        }
    }
}

/// One cgroup. All text is clean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The kind of its row.
    pub kind: Kind,
    /// The maker of the container; `None` outside of containers.
    pub engine: Option<Engine>,
    /// The name people use; else the short id; else the last component of the path. With `@` and [`Group::user`] where that
    /// is known, so that it is no name of the system.
    pub name: String,
    /// The user who made it, by name or number; `None`: the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Full id of the container.
    pub id: Option<String>,
    /// Name of the pod, or its uid.
    pub pod: Option<String>,
    /// Uid of the pod; `None` outside of Kubernetes.
    pub pod_uid: Option<String>,
    /// Kubernetes namespace.
    pub namespace: Option<String>,
    /// systemd unit that is not inside a container.
    pub unit: Option<String>,
    /// Cgroup id of the top of the group that this cgroup is a part of: itself, or one above it.
    pub top: u64,
    /// Cgroup id of the directory above; `None` at the root.
    pub parent: Option<u64>,
}

impl Group {
    /// True for a container that goes by its id, or a pod that goes by its uid, because no file named it.
    pub fn is_nameless(&self) -> bool {
        let own_name = |id: &String| named(&short(id), self.user.as_deref());
        let is_container =
            self.kind == Kind::Container && self.id.as_ref().is_some_and(|id| own_name(id) == self.name);
        is_container || self.pod_uid.is_some() && self.pod == self.pod_uid
    }
}

/// The name of a group made by `user`: distinct from names of the system and of other users.
pub fn named(name: &str, user: Option<&str>) -> String {
    match user {
        Some(user) => format!("{}@{user}", name.replace('@', "_")),
        None => name.to_owned(),
    }
}

/// The first characters of an id of 64 digits; a name in full.
pub fn short(id: &str) -> String {
    if is_id(id) { id[..SHORT_ID].to_string() } else { id.to_string() }
}

/// Exactly `len` lower-case hexadecimal digits.
pub fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// An id as docker, podman, containerd and CRI-O make them.
pub fn is_id(text: &str) -> bool {
    is_hex(text, 64)
}
