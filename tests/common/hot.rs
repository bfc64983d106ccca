//! Stacks of tasks that are on the screen, as the sampler would deliver them.

use std::collections::BTreeMap;
use std::sync::Arc;

use numatop_ng::model::stacks::{BuildId, CodePlace, Frame, Function, Stack, StackBatch};
use numatop_ng::snapshot::Snapshot;

const MYSQLD: BuildId = BuildId([0xab; 20]);

/// A hundred samples of every process: sixty in row_search, thirty waiting for a page in the kernel, ten where
/// nothing is known.
pub fn news(snapshot: &Snapshot) -> StackBatch {
    let outer = [Frame::File(MYSQLD, 301), Frame::File(MYSQLD, 401)];
    let of = |inner: &[Frame]| [inner, &outer].concat();
    let shapes = [
        (60, of(&[Frame::File(MYSQLD, 100)])),
        (30, of(&[Frame::Kernel(1), Frame::Kernel(3), Frame::File(MYSQLD, 200)])),
        (10, vec![Frame::Address(500)]),
    ];
    let mut stacks = Vec::new();
    for task in &snapshot.tasks {
        for (count, frames) in &shapes {
            let stack = Stack {
                process: task.raw.process(),
                tid: task.raw.pid,
                cgroup_id: task.raw.cgroup_id,
                comm: task.raw.comm,
                samples: *count,
                frames: frames.clone(),
            };
            stacks.push(stack);
        }
    }
    let function = |name: &str, module: &str| {
        let kernel = module == "kernel";
        Arc::new(Function { name: Some(name.into()), module: module.into(), kernel })
    };
    let names = vec![
        (
            CodePlace::File(MYSQLD, 100),
            function("row_search_mvcc(unsigned char*, page_cur_mode_t)", "mysqld"),
        ),
        (CodePlace::File(MYSQLD, 200), function("buf_page_get_gen", "mysqld")),
        (CodePlace::File(MYSQLD, 300), function("ha_innobase::index_read", "mysqld")),
        (CodePlace::File(MYSQLD, 400), function("handle_connection", "mysqld")),
        (CodePlace::Kernel(1), function("do_numa_page", "kernel")),
        (CodePlace::Kernel(2), function("handle_mm_fault", "kernel")),
    ];
    let lost = BTreeMap::from([("stacks_ring_full".into(), 3), ("stacks_unreadable".into(), 0)]);
    StackBatch { event: "cycles".into(), hz: 97, stacks, names, lost }
}
