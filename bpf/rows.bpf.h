/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rows: the message to user space about a task, while it lives and when it has ended. */
#ifndef ROWS_BPF_H
#define ROWS_BPF_H

#include "cgroup.bpf.h"
#include "maps.bpf.h"
#include "nodes.bpf.h"

#define NT_PLACES_MAX 1024 /* as many nodes as the kernel can be built for: NODES_SHIFT is at most 10 */

/* Set by user space before load, from what it made the map with. */
const volatile __u32 rec_size = sizeof(struct nt_rec); /* with all that follows it */

const volatile bool by_sibling = false; /* counts by what the SMT siblings did are in the record */

/* No function can be hooked: hinting faults are read from the task structure. */
const volatile bool hints_from_task = false;

/* CPU time of exited tasks whose row did not fit the ring, by place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} exit_lost_ns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} exits SEC(".maps");

/* Hinting faults that the task structure counted before we looked are not ours. */
static inline void nt_begin_hints(struct nt_rec *rec, struct task_struct *task)
{
	if (!hints_from_task || !bpf_core_field_exists(task->numa_faults_locality))
		return;
	rec->hint_window = task->numa_scan_seq;
	rec->hint_seen_remote = task->numa_faults_locality[0];
	rec->hint_seen_local = task->numa_faults_locality[1];
}

/*
 * Adds the new counts. The kernel resets these each time it has scanned all memory of the process, with two
 * exceptions (update_task_scan_period() of kernel/sched/fair.c). One is that a page could not be moved
 * meanwhile, which the third counts. The other is that all pages found were remote and used by one task.
 * Faults between the last read and a reset are lost; in doubt the count is too low.
 */
static inline void nt_add_hints(struct nt_rec *rec, struct task_struct *task)
{
	__u64 local, remote, failed;
	bool fell, changed;
	__u32 window;

	if (!hints_from_task || !bpf_core_field_exists(task->numa_faults_locality))
		return;
	/* The task may be running: each is read once. */
	window = task->numa_scan_seq;
	barrier();
	remote = task->numa_faults_locality[0];
	local = task->numa_faults_locality[1];
	failed = task->numa_faults_locality[2];
	barrier();
	/* It has just changed: these counts may belong to either window. The next read can tell. */
	if (window != (__u32)task->numa_scan_seq)
		return;
	fell = remote < rec->hint_seen_remote || local < rec->hint_seen_local;
	changed = window != rec->hint_window && !failed && rec->hint_seen_local;
	/*
	 * The window changes some time before the reset, which the task itself does in one go. The counts may have
	 * passed those of the last read already; the next read decides. A sleeping task has finished both.
	 */
	if (changed && !fell && !rec->hint_changed && task->__state == TASK_RUNNING) {
		rec->hint_changed = 1;
		nt_mark_dirty(task->pid);
		return;
	}
	if (changed || fell)
		rec->hint_seen_remote = rec->hint_seen_local = 0;
	rec->counters[NT_HINT_REMOTE] += remote - rec->hint_seen_remote;
	rec->counters[NT_HINT_FAULTS] += remote - rec->hint_seen_remote + local - rec->hint_seen_local;
	rec->hint_window = window;
	rec->hint_changed = 0;
	rec->hint_seen_remote = remote;
	rec->hint_seen_local = local;
}

/* Fill a row from the task structure. The task may be dying, but is not freed. */
static inline void nt_describe(struct nt_task *row, struct task_struct *task, struct nt_rec *rec)
{
	row->size = sizeof(*row) + rec_size;
	row->flags = task->flags & PF_KTHREAD ? NT_ROW_KTHREAD : 0;
	if (by_sibling)
		row->flags |= NT_ROW_BY_SIBLING;
	row->tid = task->pid;
	row->pid = task->tgid;
	row->ppid = rec->ppid;
	row->uid = BPF_CORE_READ(task, cred, uid.val);
	row->start_ns = task->start_boottime;
	row->leader_start_ns = rec->leader_start_ns;
	row->cgroup_id = nt_cgroup_id(task);
	/* Two words: a byte loop would cost more than all the rest. */
	((__u64 *)row->comm)[0] = ((__u64 *)task->comm)[0];
	((__u64 *)row->comm)[1] = ((__u64 *)task->comm)[1];
	row->exec_ns = task->se.sum_exec_runtime;
	row->lifetime[NT_RUN_DELAY_NS] = task->sched_info.run_delay;
	row->lifetime[NT_RUN_COUNT] = task->sched_info.pcount;
	row->lifetime[NT_NVCSW] = task->nvcsw;
	row->lifetime[NT_NIVCSW] = task->nivcsw;
	row->lifetime[NT_MIN_FLT] = task->min_flt;
	row->lifetime[NT_MAJ_FLT] = task->maj_flt;
	row->lifetime[NT_CPU_MIGRATIONS] = task->se.nr_migrations;
	nt_mm_pages(task, row->mm_pages);
	row->state = task->__state;
	row->exit_state = task->exit_state;
	row->policy = task->policy;
	row->nice = NT_NICE_OF(task->static_prio);
	row->cpu = task->thread_info.cpu;
	row->cpus_allowed = task->nr_cpus_allowed;
	row->group_live = BPF_CORE_READ(task, signal, live.counter);
	row->nodes = nr_nodes;
	row->places = nr_places;
	if (bpf_core_field_exists(task->numa_preferred_nid)) {
		row->preferred_nid = task->numa_preferred_nid;
		row->scan_period_ms = task->numa_scan_period;
		row->numa_faults_remote = task->numa_faults_locality[0];
		row->numa_faults_local = task->numa_faults_locality[1];
		row->lifetime[NT_NUMA_PAGES_MIGRATED] = task->numa_pages_migrated;
		row->numa_group = nt_numa_group(task);
	} else {
		row->flags |= NT_ROW_NO_NUMA;
		row->preferred_nid = -1;
		row->scan_period_ms = 0;
		row->numa_faults_remote = 0;
		row->numa_faults_local = 0;
		row->lifetime[NT_NUMA_PAGES_MIGRATED] = 0;
		row->numa_group = 0;
	}
	nt_mempolicy(task, &row->mempolicy, &row->mempolicy_nodes);
	/* The walk fills them: a task that ends has no affinity. */
	row->cpu_nodes = row->mem_nodes = 0;
}

/* Ends of tasks with a record that this object has seen. */
__u64 nr_ended = 0;

/* Whether user space waits for a last word on it. */
static inline bool nt_is_known(struct nt_rec *rec)
{
	return rec->final == NT_FINAL_LEFT || (nt_scope_of(rec) && !rec->final);
}

static inline void nt_lose_end(struct nt_rec *rec)
{
	struct nt_cpu *cpu = nt_this_cpu();
	__u32 place;

	if (cpu)
		nt_count_loss(cpu, NT_LOST_EXIT);
	for (place = 0; place < NT_PLACES_MAX; place++) {
		/*
		 * A copy: older verifiers forget the value of a variable whose address is passed to a helper. With it they
		 * lose the bounds of the loop and of the record.
		 */
		__u32 key = place;
		__u64 *lost;

		if (place >= nr_places)
			break;
		/* Never true: for the verifier, which does not know that rec_size is made of nr_places. */
		if (sizeof(*rec) + (place + 1) * sizeof(__u64) > rec_size)
			break;
		lost = bpf_map_lookup_elem(&exit_lost_ns, &key);
		if (lost)
			__sync_fetch_and_add(lost, rec->run_ns[place]);
	}
}

/*
 * The final row of a task goes into the ring, or its time into exit_lost_ns. A task that left the scope has
 * been reported in full, except that it has ended.
 */
static inline void nt_report_end(struct task_struct *task, struct nt_rec *rec)
{
	struct nt_task *row = bpf_ringbuf_reserve(&exits, sizeof(*row) + rec_size, 0);
	bool had_left = rec->final == NT_FINAL_LEFT;

	rec->final = NT_FINAL_ENDED;
	__sync_fetch_and_add(&nr_ended, 1);
	if (!row) {
		if (!had_left)
			nt_lose_end(rec);
		return;
	}
	if (!had_left)
		nt_add_hints(rec, task);
	nt_describe(row, task, rec);
	row->flags |= had_left ? NT_ROW_EXITED | NT_ROW_LEFT : NT_ROW_EXITED;
	bpf_probe_read_kernel(row + 1, rec_size, rec);
	/* User space empties the ring with each sample; an earlier wake-up is needed only when half of it is
	 * used. */
	bpf_ringbuf_submit(row, bpf_ringbuf_query(&exits, BPF_RB_AVAIL_DATA) * 2 >
						bpf_ringbuf_query(&exits, BPF_RB_RING_SIZE) ?
					BPF_RB_FORCE_WAKEUP :
					BPF_RB_NO_WAKEUP);
}

#endif /* ROWS_BPF_H */
