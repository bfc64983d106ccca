//! Made-up stacks: in which functions the processes of the demo machine spend their time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Actor, SECOND};
use crate::model::sample::{Counts, Sample, TaskRaw};
use crate::model::stacks::{BuildId, CodePlace, Frame, Function, Stack, StackBatch};

/// Samples in each second of CPU time.
const HZ: u32 = 97;

/// Stacks of a program: parts of a hundred, and functions from the innermost to the outermost. Functions of the kernel begin
/// with '['.
type Shapes = &'static [(u64, &'static [&'static str])];

const PROGRAMS: [(&str, Shapes); 9] = [
    (
        "postgres",
        &[
            (46, &["heap_getnextslot", "SeqNext", "ExecScan", "exec_simple_query", "PostgresMain"]),
            (
                27,
                &[
                    "hash_search_with_hash_value",
                    "ReadBuffer_common",
                    "ExecScan",
                    "exec_simple_query",
                    "PostgresMain",
                ],
            ),
            (
                15,
                &[
                    "[do_numa_page",
                    "[handle_mm_fault",
                    "heap_getnextslot",
                    "ExecScan",
                    "exec_simple_query",
                    "PostgresMain",
                ],
            ),
            (12, &["LWLockAcquire", "ReadBuffer_common", "exec_simple_query", "PostgresMain"]),
        ],
    ),
    (
        "solver",
        &[
            (83, &["dgemm_kernel", "cblas_dgemm", "factorise", "main"]),
            (17, &["scatter", "assemble", "main"]),
        ],
    ),
    (
        "java",
        &[
            (52, &["OrderService.price", "OrderController.post", "ThreadPoolExecutor.runWorker"]),
            (31, &["HashMap.getNode", "OrderService.price", "ThreadPoolExecutor.runWorker"]),
            (17, &["[schedule", "[futex_wait", "Unsafe.park", "ThreadPoolExecutor.runWorker"]),
        ],
    ),
    (
        "memcached",
        &[
            (64, &["assoc_find", "process_get_command", "worker_libevent"]),
            (36, &["[tcp_sendmsg", "sendmsg", "worker_libevent"]),
        ],
    ),
    (
        "python3",
        &[
            (71, &["_PyEval_EvalFrameDefault", "PyRun_SimpleFile", "main"]),
            (29, &["PyObject_Malloc", "_PyEval_EvalFrameDefault", "main"]),
        ],
    ),
    (
        "redis-server",
        &[
            (58, &["dictFind", "lookupKey", "processCommand", "aeMain"]),
            (42, &["[tcp_sendmsg", "writeToClient", "aeMain"]),
        ],
    ),
    (
        "zstd",
        &[
            (88, &["ZSTD_compressBlock_btultra2", "ZSTD_compress_internal", "main"]),
            (12, &["XXH64_update", "ZSTD_compress_internal", "main"]),
        ],
    ),
    (
        "train",
        &[
            (54, &["sgemm_kernel", "at::native::linear", "_PyEval_EvalFrameDefault", "main"]),
            (29, &["[migrate_pages", "[do_numa_page", "sgemm_kernel", "at::native::linear", "main"]),
            (17, &["at::native::embedding", "_PyEval_EvalFrameDefault", "main"]),
        ],
    ),
    (
        "cc1plus",
        &[
            (60, &["cp_parser_declaration", "c_parse_file", "main"]),
            (40, &["ggc_internal_alloc", "cp_parser_declaration", "main"]),
        ],
    ),
];

/// Other programs.
const OTHERS: Shapes = &[(100, &["main"])];

/// Stacks sampled between two samples of the machine.
pub fn news(actors: &[Actor], before: Option<&Sample>, now: &Sample) -> StackBatch {
    let mut names: BTreeMap<CodePlace, Arc<Function>> = BTreeMap::new();
    let mut stacks = Vec::new();
    for task in &now.tasks {
        let earlier = before.and_then(|sample| {
            let at = sample.tasks.binary_search_by_key(&task.serial, |old| old.serial).ok()?;
            Some(&sample.tasks[at].counts)
        });
        let ran = task.counts.cpu_ns() - earlier.map_or(0, Counts::cpu_ns);
        let samples = ran * u64::from(HZ) / SECOND;
        let Some(leader) = actors.iter().find(|actor| actor.tid == task.pid) else { continue };
        let program = String::from_utf8_lossy(leader.comm.bytes()).into_owned();
        stacks.extend(of(task, leader, &program, samples));
        names.extend(functions(&program));
    }
    let lost = ["stacks_ring_busy", "stacks_ring_full", "stacks_unreadable"];
    StackBatch {
        event: "cycles".into(),
        hz: HZ,
        stacks,
        names: names.into_iter().collect(),
        lost: lost.map(|cause| (cause.into(), 0)).into(),
    }
}

fn shapes(program: &str) -> Shapes {
    PROGRAMS.iter().find(|(name, _)| *name == program).map_or(OTHERS, |(_, shapes)| shapes)
}

/// The stacks of a task, `samples` in all.
fn of(task: &TaskRaw, leader: &Actor, program: &str, samples: u64) -> Vec<Stack> {
    let mut left = samples;
    let stack = |(parts, functions): &(u64, &'static [&'static str])| {
        let count = (samples * parts).div_ceil(100).min(left);
        left -= count;
        Stack {
            process: task.process(),
            tid: task.tid,
            cgroup_id: task.cgroup_id,
            comm: leader.comm,
            samples: count,
            frames: functions.iter().map(|function| frame(program, function)).collect(),
        }
    };
    shapes(program).iter().map(stack).filter(|stack| stack.samples > 0).collect()
}

/// The frame of a function: the same for each of its calls.
fn frame(program: &str, function: &str) -> Frame {
    // FNV-1a: functions have addresses of their own, in steps of 16.
    let hash = function
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let address = u64::from(hash) << 4 | 8;
    if function.starts_with('[') { Frame::Kernel(address) } else { Frame::File(build_id(program), address) }
}

fn build_id(program: &str) -> BuildId {
    let mut id = [0; 20];
    id.iter_mut().zip(program.bytes()).for_each(|(byte, name)| *byte = name);
    BuildId(id)
}

/// The functions of a program by the places that frames have, interrupted or calling.
fn functions(program: &str) -> Vec<(CodePlace, Arc<Function>)> {
    let all = shapes(program).iter().flat_map(|(_, functions)| *functions);
    all.flat_map(|function| {
        let kernel = function.starts_with('[');
        let named = Arc::new(Function {
            name: Some(function.trim_start_matches('[').into()),
            module: if kernel { "kernel".into() } else { program.into() },
            kernel,
        });
        [0, 1].map(|back| {
            let place = match frame(program, function) {
                Frame::Kernel(address) | Frame::Address(address) => CodePlace::Kernel(address - back),
                Frame::File(id, offset) => CodePlace::File(id, offset - back),
            };
            (place, Arc::clone(&named))
        })
    })
    .collect()
}
