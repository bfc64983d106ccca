// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which tasks there are: their records are made when they are born (or at the
 * first walk, for those older than we are), rows of those that changed are
 * emitted by a walk over all threads, and final rows when they are freed.
 */
#include "maps.bpf.h"
#include "target.bpf.h"

const volatile __u32 rec_size = sizeof(struct nt_rec);	/* with run_ns[]: what user space made the map with */

/* Raised by user space to have every row sent again. */
__u32 epoch = 0;
__u64 next_serial = 0;

/* CPU time of exited tasks whose row did not fit the ring, by node. */
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

/* Only while the task is alive: its parent and leader may be gone before it is freed. */
static inline void note_family(struct nt_rec *rec, struct task_struct *task)
{
	rec->ppid = BPF_CORE_READ(task, real_parent, tgid);
	rec->leader_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
}

static inline struct nt_rec *make_rec(struct task_struct *task, __u64 exec_seen_ns)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!rec) {
		struct nt_cpu *cpu = nt_this_cpu();

		if (cpu)
			nt_count_loss(cpu, NT_LOST_STORAGE);
		return NULL;
	}
	if (!rec->serial) {
		rec->serial = __sync_fetch_and_add(&next_serial, 1) + 1;
		rec->last_cpu = ~0U;
		note_family(rec, task);
	}
	if (!rec->in_scope) {
		rec->exec_seen_ns = exec_seen_ns;
		rec->in_scope = 1;
	}
	return rec;
}

static inline void describe(struct nt_task *row, struct task_struct *task, struct nt_rec *rec)
{
	row->size = sizeof(*row) + rec_size;
	row->flags = task->flags & PF_KTHREAD ? NT_ROW_KTHREAD : 0;
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
	row->run_delay_ns = task->sched_info.run_delay;
	row->run_count = task->sched_info.pcount;
	row->nvcsw = task->nvcsw;
	row->nivcsw = task->nivcsw;
	row->min_flt = task->min_flt;
	row->maj_flt = task->maj_flt;
	row->cpu_migrations = task->se.nr_migrations;
	row->rss_pages = nt_rss_pages(task);
	row->state = task->__state;
	row->exit_state = task->exit_state;
	row->policy = task->policy;
	row->nice = NT_NICE_OF(task->static_prio);
	row->cpu = task->thread_info.cpu;
	row->cpus_allowed = task->nr_cpus_allowed;
	if (bpf_core_field_exists(task->numa_preferred_nid)) {
		row->preferred_nid = task->numa_preferred_nid;
		row->scan_period_ms = task->numa_scan_period;
		row->numa_faults_remote = task->numa_faults_locality[0];
		row->numa_faults_local = task->numa_faults_locality[1];
		row->numa_pages_migrated = task->numa_pages_migrated;
	} else {
		row->flags |= NT_ROW_NO_NUMA;
		row->preferred_nid = -1;
		row->scan_period_ms = 0;
		row->numa_faults_remote = 0;
		row->numa_faults_local = 0;
		row->numa_pages_migrated = 0;
	}
}

#define MIX(h, v) (((h) ^ (__u64)(v)) * 0x9e3779b97f4a7c15ULL)

/* Two rows with the same signature say the same: 64 bits, so a mistake needs 2^32 changes of one task. */
static inline __u64 signature(const struct nt_task *row)
{
	const __u64 *word = (const __u64 *)row;
	__u64 h = 0;
	int i;

#pragma unroll
	for (i = 0; i < (int)(sizeof(*row) / 8); i++)
		h = MIX(h, word[i]) ^ (h >> 29);
	return h;
}

SEC("iter/task")
int on_task_walk(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct nt_task row;
	struct nt_rec *rec;
	bool wanted;
	__u64 sig;

	if (!task)
		return 0;
	wanted = nt_wanted(task);
	rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	if (!rec || (wanted && !rec->in_scope)) {
		if (!wanted)
			return 0;
		rec = make_rec(task, task->se.sum_exec_runtime);
		if (!rec)
			return 0;
	}
	if (!rec->in_scope)
		return 0;
	note_family(rec, task);
	describe(&row, task, rec);
	if (!wanted)
		row.flags |= NT_ROW_LEFT;
	sig = MIX(signature(&row), rec->exec_seen_ns);
	if (sig == rec->sent && rec->sent_epoch == epoch)
		return 0;
	if (bpf_seq_write(seq, &row, sizeof(row)))
		return 0;
	if (bpf_seq_write(seq, rec, rec_size))
		return 0;
	/*
	 * Only now: when the buffer overflows the kernel takes the whole row
	 * back and calls us again for the same task.
	 */
	rec->sent = sig;
	rec->sent_epoch = epoch;
	if (!wanted)
		rec->in_scope = 0;
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_task_newtask, struct task_struct *task, unsigned long clone_flags)
{
	if (nt_wanted(task))
		make_rec(task, task->se.sum_exec_runtime);
	return 0;
}

static inline void lose_exit(struct nt_rec *rec)
{
	struct nt_cpu *cpu = nt_this_cpu();
	__u32 node;

	if (cpu)
		nt_count_loss(cpu, NT_LOST_EXIT);
	for (node = 0; node < 1024; node++) {
		__u64 *lost;

		if (sizeof(*rec) + (node + 1) * sizeof(__u64) > rec_size)
			break;
		lost = bpf_map_lookup_elem(&exit_lost_ns, &node);
		if (lost)
			__sync_fetch_and_add(lost, rec->run_ns[node]);
	}
}

/*
 * The last word on a task. Not at exit: a dying task still runs after
 * sched_process_exit, and is switched out for the last time.
 */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_sched_process_free, struct task_struct *task)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	struct nt_task *row;

	if (!rec || !rec->in_scope)
		return 0;
	row = bpf_ringbuf_reserve(&exits, sizeof(*row) + rec_size, 0);
	if (!row) {
		lose_exit(rec);
		return 0;
	}
	describe(row, task, rec);
	row->flags |= NT_ROW_EXITED;
	bpf_probe_read_kernel(row + 1, rec_size, rec);
	/* User space empties the ring with each sample; wake it in between only when half of it is used. */
	bpf_ringbuf_submit(row, bpf_ringbuf_query(&exits, BPF_RB_AVAIL_DATA) * 2 >
					bpf_ringbuf_query(&exits, BPF_RB_RING_SIZE) ?
				BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
