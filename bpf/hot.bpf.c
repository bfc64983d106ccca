// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples of stacks. At each overflow of a perf event (cycles, misses, or a clock without a PMU) the stacks
 * of the running task go into a ring, one sample after the other.
 *
 * A ring, not a stack map: a map merges stacks with equal hashes, and entries that user space has not read
 * yet keep new ones out. User frames are build ids and file offsets, so that a sample can be resolved after
 * its process has ended.
 */
#include "cgroup.bpf.h"
#include "sampler.bpf.h"

__u64 hot_lost[NT_HOT_LOSSES];

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

SEC("perf_event")
int on_sample(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf(), *leader;
	__u64 kernel, user = 0;
	struct sample *sample;
	__u32 zero = 0;

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
		__sync_fetch_and_add(&hot_lost[NT_HOT_NO_STACK], 1);
	leader = task->group_leader;
	sample->head.pid = task->tgid;
	sample->head.tid = task->pid;
	sample->head.leader_start_ns = leader->start_boottime;
	sample->head.cgroup_id = nt_cgroup_id(task);
	((__u64 *)sample->head.comm)[0] = ((__u64 *)leader->comm)[0];
	((__u64 *)sample->head.comm)[1] = ((__u64 *)leader->comm)[1];
	sample->head.kernel_bytes = kernel;
	sample->head.user_bytes = user;
	send_sample(sample, sizeof(sample->head) + kernel + user, sizeof(*sample), &hot_lost[NT_HOT_RING_FULL],
		    &hot_lost[NT_HOT_RING_BUSY]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
