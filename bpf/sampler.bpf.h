/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Objects that sample: the tasks that are wanted, and the ring that samples go into. Read by crates/measure/src/collect/sampler.rs. */
#ifndef SAMPLER_BPF_H
#define SAMPLER_BPF_H

#include "records.bpf.h"

/* Set by user space at any time: not every task is wanted. */
__u32 scoped = 0;

/* User space makes it as large as the machine needs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} samples SEC(".maps");

static inline bool is_sampled(struct task_struct *task)
{
	struct nt_rec *rec;

	if (!scoped)
		return true;
	rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	return rec && rec->in_scope;
}

/* Sends a part of a sample of `most` bytes; user space is woken when the ring is half full. */
static inline void send_sample(void *sample, __u64 bytes, __u64 most, __u64 *ring_full, __u64 *ring_busy)
{
	__u64 flags = bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) * 2 >
				      bpf_ringbuf_query(&samples, BPF_RB_RING_SIZE) ?
			      BPF_RB_FORCE_WAKEUP :
			      BPF_RB_NO_WAKEUP;

	if (!bpf_ringbuf_output(&samples, sample, bytes, flags))
		return;
	/* Both failures return the same error; the free room distinguishes them. */
	if (bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) + most > bpf_ringbuf_query(&samples, BPF_RB_RING_SIZE))
		__sync_fetch_and_add(ring_full, 1);
	else
		__sync_fetch_and_add(ring_busy, 1);
}

/* The length that bpf_get_stack() returned, in bounds that the verifier believes. */
static inline __u64 bytes_got(long got, __u64 most)
{
	if (got <= 0)
		return 0;
	return (__u64)got > most ? most : (__u64)got;
}

#endif /* SAMPLER_BPF_H */
