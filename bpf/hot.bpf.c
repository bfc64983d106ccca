// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples of stacks: at each overflow of a perf event (cycles, misses, or a clock where
 * there is no PMU) the stacks of the task that runs go into a ring, one sample after the other.
 *
 * Not into a stack map: there two stacks with the same hash are one of them, and entries that
 * user space has not fetched yet are in the way of new ones. User frames are build ids and file
 * offsets, so that a sample means something when its process is gone.
 */
#include "cgroup.bpf.h"
#include "records.bpf.h"

/* Set by user space at any time: not every task is wanted. */
__u32 scoped = 0;
__u64 hot_lost[NT_HOT_LOSSES];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} samples SEC(".maps");

#define KERNEL_BYTES (NT_HOT_FRAMES * sizeof(__u64))
#define USER_BYTES (NT_HOT_FRAMES * sizeof(struct bpf_stack_build_id))

struct sample {
	struct nt_hot head;
	__u8 frames[KERNEL_BYTES + USER_BYTES];
};

/* Too large for the stack. No second sample can come in between: perf does not nest its programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample);
} scratch SEC(".maps");

static inline void count_hot_loss(enum nt_hot_loss cause)
{
	__sync_fetch_and_add(&hot_lost[cause], 1);
}

static inline bool is_sampled(struct task_struct *task)
{
	struct nt_rec *rec;

	if (!scoped)
		return true;
	rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	return rec && rec->in_scope;
}

/* The length that bpf_get_stack() returned, in bounds that the verifier believes. */
static inline __u64 bytes_got(long got, __u64 most)
{
	if (got <= 0)
		return 0;
	return (__u64)got > most ? most : (__u64)got;
}

SEC("perf_event")
int on_sample(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf(), *leader;
	__u64 kernel, user = 0;
	struct sample *sample;
	__u32 zero = 0;
	long err;

	if (!task->pid || !is_sampled(task))
		return 0;
	sample = bpf_map_lookup_elem(&scratch, &zero);
	if (!sample)
		return 0;
	kernel = bytes_got(bpf_get_stack(ctx, sample->frames, KERNEL_BYTES, 0), KERNEL_BYTES);
	if (!(task->flags & PF_KTHREAD))
		user = bytes_got(
			bpf_get_stack(ctx, sample->frames + kernel, USER_BYTES, BPF_F_USER_STACK | BPF_F_USER_BUILD_ID),
			USER_BYTES);
	if (!kernel && !user)
		count_hot_loss(NT_HOT_NO_STACK);
	leader = task->group_leader;
	sample->head.pid = task->tgid;
	sample->head.tid = task->pid;
	sample->head.leader_start_ns = leader->start_boottime;
	sample->head.cgroup_id = nt_cgroup_id(task);
	((__u64 *)sample->head.comm)[0] = ((__u64 *)leader->comm)[0];
	((__u64 *)sample->head.comm)[1] = ((__u64 *)leader->comm)[1];
	sample->head.kernel_bytes = kernel;
	sample->head.user_bytes = user;
	err = bpf_ringbuf_output(&samples, sample, sizeof(sample->head) + kernel + user,
				 bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) * 2 >
						 bpf_ringbuf_query(&samples, BPF_RB_RING_SIZE) ?
					 BPF_RB_FORCE_WAKEUP :
					 BPF_RB_NO_WAKEUP);
	/* One error for both: what tells them apart is whether there was room. */
	if (err)
		count_hot_loss(bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) + sizeof(*sample) >
					       bpf_ringbuf_query(&samples, BPF_RB_RING_SIZE) ?
				       NT_HOT_RING_FULL :
				       NT_HOT_RING_BUSY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
