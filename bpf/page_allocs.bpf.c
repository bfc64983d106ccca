// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The nodes on which a task gets its pages, and how often it is not the node it
 * runs on. Runs at each allocation of pages in the kernel: one that is not for
 * user space leaves after one comparison. On a CPU that allocates very often,
 * some are chosen at random, and each of them counts for several.
 */
#include "maps.bpf.h"
#include "nodes.bpf.h"

/* Set by user space before load. */
const volatile __u32 pages_at = 1;      /* where in run_ns[] the pages by node begin */
const volatile __u32 node_shift = 63;   /* of the node in page->flags */
const volatile __u32 gfp_this_node = 0; /* __GFP_THISNODE */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_alloc_pace);
} alloc_pace SEC(".maps");

/* By CPU: one allocation in 1 << shift is counted. Written by user space at any time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} alloc_shifts SEC(".maps");

#define SHIFT_MAX 16

/*
 * The number of allocations to skip until the next counted one: uniform in 0 to 2 * (every - 1). On average
 * one in `every` is counted, whatever pattern tasks follow. A linear congruential generator (D. Knuth, The
 * Art of Computer Programming, volume 2, section 3.3.4: MMIX), whose upper bits are the good ones.
 */
static __always_inline __u64 next_skip(struct nt_alloc_pace *pace, __u32 every)
{
	pace->dice = pace->dice * 6364136223846793005ULL + 1442695040888963407ULL;
	return (pace->dice >> 32) * (2 * every - 1) >> 32;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_page_alloc, struct page *page, unsigned int order, unsigned int gfp)
{
	__u32 cpu_id = bpf_get_smp_processor_id(), node, *shift, weight;
	struct nt_alloc_pace *pace;
	struct nt_cpu_topo *topo;
	struct nt_cpu *cpu;
	struct nt_rec *rec;

	if ((gfp & NT_GFP_USER) != NT_GFP_USER || !page)
		return 0;
	/*
	 * A single page required on this node replaces one that balancing or move_pages(2) moves; the first attempt
	 * for new huge pages looks alike. Pages that mbind(2) moves are requested like any other and cannot be
	 * recognised.
	 */
	if (!order && gfp & gfp_this_node)
		return 0;
	pace = bpf_map_lookup_elem(&alloc_pace, &cpu_id);
	if (!pace)
		return 0;
	if (pace->skip) {
		pace->skip--;
		return 0;
	}
	shift = bpf_map_lookup_elem(&alloc_shifts, &cpu_id);
	weight = shift && *shift <= SHIFT_MAX ? 1U << *shift : 1;
	if (weight > 1)
		pace->skip = next_skip(pace, weight);
	pace->allocs += pace->skip + 1;
	rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);
	if (!rec || !rec->in_scope)
		return 0;
	topo = bpf_map_lookup_elem(&cpu_topo, &cpu_id);
	node = nt_page_flags(page) >> node_shift;
	if (!topo || node >= nr_nodes) {
		cpu = nt_this_cpu();
		if (cpu)
			nt_count_loss(cpu, NT_LOST_PAGE);
		return 0;
	}
	rec->counters[NT_USER_ALLOCS] += weight;
	if (node != topo->node)
		rec->counters[NT_CROSS_ALLOCS] += weight;
	rec->run_ns[pages_at + node] += (__u64)weight << (order & 31);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
