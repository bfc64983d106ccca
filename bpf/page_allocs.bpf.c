// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The nodes on which a task gets its pages, and how often it is not the node it
 * runs on. Runs at each allocation of pages in the kernel: one that is not for
 * user space leaves after one comparison.
 */
#include "maps.bpf.h"
#include "nodes.bpf.h"

/* Set by user space before load. */
const volatile __u32 pages_at = 1;      /* where in run_ns[] the pages by node begin */
const volatile __u32 node_shift = 63;   /* of the node in page->flags */
const volatile __u32 gfp_this_node = 0; /* __GFP_THISNODE */

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_page_alloc, struct page *page, unsigned int order, unsigned int gfp)
{
	__u32 cpu_id = bpf_get_smp_processor_id(), node;
	struct nt_cpu_topo *topo;
	struct nt_cpu *cpu;
	struct nt_rec *rec;

	if ((gfp & NT_GFP_USER) != NT_GFP_USER || !page)
		return 0;
	/*
	 * One page that must be of this node is the new place of one that balancing or move_pages(2) moves; new huge
	 * pages ask so at first too. Pages that mbind(2) moves are asked for like any other and cannot be told.
	 */
	if (!order && gfp & gfp_this_node)
		return 0;
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
	rec->counters[NT_USER_ALLOCS]++;
	if (node != topo->node)
		rec->counters[NT_CROSS_ALLOCS]++;
	rec->run_ns[pages_at + node] += 1UL << (order & 31);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
