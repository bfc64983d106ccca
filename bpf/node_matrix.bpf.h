/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Moves from node to node, of tasks or of pages: a table of an object's own, read by crates/measure/src/collect/maps.rs. */
#ifndef NODE_MATRIX_BPF_H
#define NODE_MATRIX_BPF_H

#include "core_compat.bpf.h"

/* Counters at [from * nodes + to]. User space makes it as large as that takes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} moves SEC(".maps");

/* Rare, and by many CPUs: atomic. Nodes that are not among `nodes` are left out. */
static inline void nt_add_moves(__u32 nodes, __u32 from, __u32 to, __u64 count)
{
	__u32 pair = from * nodes + to;
	__u64 *moved;

	if (from >= nodes || to >= nodes)
		return;
	moved = bpf_map_lookup_elem(&moves, &pair);
	if (moved)
		__sync_fetch_and_add(moved, count);
}

#endif /* NODE_MATRIX_BPF_H */
