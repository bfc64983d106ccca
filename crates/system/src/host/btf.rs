//! Features of this kernel that our probes stand on. Its own type information (BTF) is asked, never its version:
//! distributions carry features back.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use libbpf_rs::btf::types::{Enum, Struct};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};
use serde::Serialize;

use super::types::Types;

/// The kernel's own type information, below the root.
const BTF_FILE: &str = "sys/kernel/btf/vmlinux";

/// Something in the kernel that a probe cannot do without, or does less without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    SchedSwitch,
    TaskNewtask,
    SchedProcessFree,
    TaskIterator,
    RingBuffer,
    TaskStorage,
    CurrentTask,
    TracingStorage,
    TaskState,
    ThreadInfoCpu,
    SchedInfo,
    NumaBalancing,
    ShrinkInactive,
    NodeReclaim,
    PageAlloc,
    MigratePages,
    MoveNuma,
    BioQueue,
    BioDevice,
    FileIterator,
    SocketLength,
}

/// The proof in BTF that a feature exists.
enum Sign {
    Typedef(&'static str),
    Struct(&'static str),
    /// A member of a struct.
    Member(&'static str, &'static str),
    /// A constant of an enum.
    Constant(&'static str, &'static str),
}

/// One row of [`FEATURES`].
struct Entry {
    feature: Feature,
    name: &'static str,
    origin: &'static str,
    sign: Sign,
}

use Sign::{Constant, Member, Struct as StructNamed, Typedef};

/// Every feature: its name for people, where it comes from, and its sign.
static FEATURES: [Entry; 21] = [
    Entry {
        feature: Feature::SchedSwitch,
        name: "the sched_switch tracepoint in BTF",
        origin: "since Linux 5.5",
        sign: Typedef("btf_trace_sched_switch"),
    },
    Entry {
        feature: Feature::TaskNewtask,
        name: "the task_newtask tracepoint in BTF",
        origin: "since Linux 5.5",
        sign: Typedef("btf_trace_task_newtask"),
    },
    Entry {
        feature: Feature::SchedProcessFree,
        name: "the sched_process_free tracepoint in BTF",
        origin: "since Linux 5.5",
        sign: Typedef("btf_trace_sched_process_free"),
    },
    Entry {
        feature: Feature::TaskIterator,
        name: "the BPF task iterator",
        origin: "since Linux 5.8",
        sign: StructNamed("bpf_iter__task"),
    },
    Entry {
        feature: Feature::RingBuffer,
        name: "BPF ring buffers",
        origin: "since Linux 5.8",
        sign: Constant("bpf_map_type", "BPF_MAP_TYPE_RINGBUF"),
    },
    Entry {
        feature: Feature::TaskStorage,
        name: "BPF task storage maps",
        origin: "since Linux 5.11",
        sign: Constant("bpf_map_type", "BPF_MAP_TYPE_TASK_STORAGE"),
    },
    Entry {
        feature: Feature::CurrentTask,
        name: "the helper bpf_get_current_task_btf",
        origin: "since Linux 5.11",
        sign: Constant("bpf_func_id", "BPF_FUNC_get_current_task_btf"),
    },
    // Commit a10787e6d58c lets tracing programs use task storage; earlier kernels kept it in the LSM blob.
    Entry {
        feature: Feature::TracingStorage,
        name: "BPF task storage in tracing programs",
        origin: "since Linux 5.13",
        sign: Member("task_struct", "bpf_storage"),
    },
    // Commit 2f064a59a11f renamed task_struct.state.
    Entry {
        feature: Feature::TaskState,
        name: "task_struct.__state",
        origin: "since Linux 5.14",
        sign: Member("task_struct", "__state"),
    },
    // Commit bcf9033e5449 moved it there from task_struct.
    Entry {
        feature: Feature::ThreadInfoCpu,
        name: "thread_info.cpu",
        origin: "since Linux 5.16",
        sign: Member("thread_info", "cpu"),
    },
    Entry {
        feature: Feature::SchedInfo,
        name: "run-queue delays in the task structure",
        origin: "CONFIG_SCHED_INFO",
        sign: Member("sched_info", "run_delay"),
    },
    Entry {
        feature: Feature::NumaBalancing,
        name: "NUMA balancing",
        origin: "CONFIG_NUMA_BALANCING",
        sign: Member("task_struct", "numa_preferred_nid"),
    },
    Entry {
        feature: Feature::ShrinkInactive,
        name: "the mm_vmscan_lru_shrink_inactive tracepoint in BTF",
        origin: "since Linux 5.5",
        sign: Typedef("btf_trace_mm_vmscan_lru_shrink_inactive"),
    },
    Entry {
        feature: Feature::NodeReclaim,
        name: "the mm_vmscan_node_reclaim_begin tracepoint in BTF",
        origin: "since Linux 5.5, CONFIG_NUMA",
        sign: Typedef("btf_trace_mm_vmscan_node_reclaim_begin"),
    },
    Entry {
        feature: Feature::PageAlloc,
        name: "the mm_page_alloc tracepoint in BTF",
        origin: "since Linux 5.5",
        sign: Typedef("btf_trace_mm_page_alloc"),
    },
    Entry {
        feature: Feature::MigratePages,
        name: "the mm_migrate_pages tracepoint in BTF",
        origin: "since Linux 5.5, CONFIG_MIGRATION",
        sign: Typedef("btf_trace_mm_migrate_pages"),
    },
    Entry {
        feature: Feature::MoveNuma,
        name: "the sched_move_numa tracepoint in BTF",
        origin: "since Linux 5.5, CONFIG_NUMA_BALANCING",
        sign: Typedef("btf_trace_sched_move_numa"),
    },
    Entry {
        feature: Feature::BioQueue,
        name: "the block_bio_queue tracepoint in BTF",
        origin: "since Linux 5.5, CONFIG_BLOCK",
        sign: Typedef("btf_trace_block_bio_queue"),
    },
    // Commit 309dca309fc3 put it there in place of bio.bi_disk.
    Entry {
        feature: Feature::BioDevice,
        name: "bio.bi_bdev",
        origin: "since Linux 5.12",
        sign: Member("bio", "bi_bdev"),
    },
    Entry {
        feature: Feature::FileIterator,
        name: "the BPF iterator over open files",
        origin: "since Linux 5.8",
        sign: StructNamed("bpf_iter__task_file"),
    },
    Entry {
        feature: Feature::SocketLength,
        name: "the sock_recv_length tracepoint in BTF",
        origin: "since Linux 6.3",
        sign: Typedef("btf_trace_sock_recv_length"),
    },
];

impl Feature {
    /// All features, oldest first.
    pub fn all() -> impl Iterator<Item = Feature> {
        FEATURES.iter().map(|entry| entry.feature)
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The first kernel with the feature, "since Linux 5.11"; or the build option for it, "CONFIG_…".
    pub fn origin(self) -> &'static str {
        self.entry().origin
    }

    /// True when every kernel has it from some version on; false when it depends on configuration.
    pub fn comes_with_version(self) -> bool {
        self.origin().starts_with("since")
    }

    fn entry(self) -> &'static Entry {
        // The table is in the order of the enum: a test holds it to that.
        &FEATURES[self as usize]
    }
}

/// The features in the kernel's type information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BtfFacts {
    /// BTF exists and has these features.
    Has(BTreeSet<Feature>),
    /// The kernel has none: built without CONFIG_DEBUG_INFO_BTF, or /sys is not mounted.
    Absent(String),
    /// It exists, but reading it is not permitted.
    Denied(String),
    /// It exists, but cannot be parsed.
    Damaged(String),
}

impl BtfFacts {
    /// Reads the BTF below `root`, unless its `types` are at hand. Takes some ten milliseconds.
    pub fn read(root: &Path, types: Option<&Types>) -> BtfFacts {
        if let Some(types) = types {
            return BtfFacts::Has(features_in(&types.0));
        }
        let path = root.join(BTF_FILE);
        // libbpf would hide the errno.
        if let Err(error) = File::open(&path) {
            let why = format!("{}: {error}", path.display());
            return match error.kind() {
                ErrorKind::NotFound => BtfFacts::Absent(why),
                ErrorKind::PermissionDenied => BtfFacts::Denied(why),
                _ => BtfFacts::Damaged(why),
            };
        }
        match Btf::from_path(&path) {
            Ok(btf) => BtfFacts::Has(features_in(&btf)),
            Err(error) => BtfFacts::Damaged(format!("{}: {error:#}", path.display())),
        }
    }
}

/// One pass over all types: each look-up by name would be another pass.
fn features_in(btf: &Btf<'_>) -> BTreeSet<Feature> {
    let mut wanted: HashMap<&OsStr, Vec<&Entry>> = HashMap::new();
    for entry in &FEATURES {
        let (Typedef(name) | StructNamed(name) | Member(name, _) | Constant(name, _)) = entry.sign;
        wanted.entry(OsStr::new(name)).or_default().push(entry);
    }
    let mut found = BTreeSet::new();
    for id in 1..btf.len() as u32 {
        let Some(ty) = btf.type_by_id::<BtfType<'_>>(TypeId::from(id)) else { continue };
        let Some(entries) = ty.name().and_then(|name| wanted.get(name)) else { continue };
        found.extend(entries.iter().filter(|entry| shows(ty, &entry.sign)).map(|entry| entry.feature));
    }
    found
}

/// Whether `ty`, which has the right name, is what `sign` asks for.
fn shows(ty: BtfType<'_>, sign: &Sign) -> bool {
    match sign {
        Typedef(_) => ty.kind() == BtfKind::Typedef,
        StructNamed(_) => ty.kind() == BtfKind::Struct,
        Member(_, wanted) => {
            let name = Some(OsStr::new(wanted));
            Struct::try_from(ty).is_ok_and(|ty| ty.iter().any(|member| member.name == name))
        }
        Constant(_, wanted) => {
            let name = Some(OsStr::new(wanted));
            Enum::try_from(ty).is_ok_and(|ty| ty.iter().any(|constant| constant.name == name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (i, feature) in Feature::all().enumerate() {
            assert_eq!(feature as usize, i, "{feature:?}");
        }
    }

    #[test]
    fn this_kernel_has_what_its_probes_need() {
        let BtfFacts::Has(features) = BtfFacts::read(Path::new("/"), None) else {
            eprintln!("skipped: this kernel has no readable BTF");
            return;
        };
        assert!(features.contains(&Feature::SchedSwitch), "{features:?}");
        assert!(features.contains(&Feature::TaskIterator), "{features:?}");
    }

    /// A root directory whose BTF file has these bytes, removed at the end of the test.
    struct Host(PathBuf);

    impl Host {
        fn with_btf(name: &str, bytes: &[u8]) -> Host {
            let root = std::env::temp_dir().join(format!("numatop-btf-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join("sys/kernel/btf")).unwrap();
            fs::write(root.join(BTF_FILE), bytes).unwrap();
            Host(root)
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// BTF as in Documentation/bpf/btf.rst: header, types, strings.
    fn btf(types: &[u32], strings: &str) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let type_len = size_of_val(types) as u32;
        for word in [24, 0, type_len, type_len, strings.len() as u32] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(strings.bytes());
        bytes
    }

    #[test]
    fn features_are_told_by_kind_and_member_not_by_name_alone() {
        // int; struct task_struct { int __state; }; struct btf_trace_sched_switch {}: a struct, no typedef.
        let strings = "\0int\0task_struct\0__state\0btf_trace_sched_switch\0";
        let at = |name: &str| strings.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
        const INT: u32 = 1 << 24;
        const STRUCT: u32 = 4 << 24;
        #[rustfmt::skip]
        let types = [
            at("int"), INT, 4, 32,
            at("task_struct"), STRUCT | 1, 4, at("__state"), 1, 0,
            at("btf_trace_sched_switch"), STRUCT, 0,
        ];
        let host = Host::with_btf("kinds", &btf(&types, strings));

        assert_eq!(BtfFacts::read(&host.0, None), BtfFacts::Has([Feature::TaskState].into()));
    }

    #[test]
    fn absent_and_damaged_are_different_things() {
        let absent = BtfFacts::read(Path::new("/nonexistent"), None);
        assert_eq!(
            absent,
            BtfFacts::Absent(
                "/nonexistent/sys/kernel/btf/vmlinux: No such file or directory (os error 2)".into()
            )
        );

        let host = Host::with_btf("damaged", b"\x9f\xeb\x01\x00 and then nothing that makes sense");
        assert!(
            matches!(BtfFacts::read(&host.0, None), BtfFacts::Damaged(why) if why.contains("btf/vmlinux: "))
        );
    }
}
