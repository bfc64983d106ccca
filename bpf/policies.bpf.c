// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Memory policies of the mappings of one process, read without its pages. Also nodes of pages of shared
 * memory, from the page cache, whether the process has touched them or not. An iterator returns a row for
 * each mapping. Behind the row of a shared mapping comes a row of its object, and one for each policy of the
 * object inside the mapping. The policy of a page is that of its object, else that of its mapping, else that
 * of the thread.
 */
#include "core_compat.bpf.h"
#include "numatop.h"

#define TREE_DEPTH 40 /* a red-black tree of 2^20 entries */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define VM_SHARED 0x8 /* include/linux/mm.h, since ever */

const volatile __u64 page_size = 4096;

/* Of the node in page->flags; 64: pages of objects do not say their node. Set by user space before load. */
const volatile __u32 node_shift = 64;

/* Set by user space while no iterator runs. */
struct nt_draw draws[NT_DRAWS_MAX] = {};

/* Entries of the tree of one mapping. Only one reader writes at a time. */
struct nt_policy_row entries[NT_ENTRIES_MAX] = {};

static inline void describe_policy(struct nt_policy_row *row, struct mempolicy *policy)
{
	int word;

	row->mode = 0;
	row->flags = 0;
	row->nodes = 0;
	if (!policy)
		return;
	row->mode = BPF_CORE_READ(policy, mode);
	row->flags = BPF_CORE_READ(policy, flags);
	row->nodes = BPF_CORE_READ(policy, nodes.bits[0]);
	for (word = 1; word < NT_NODE_WORDS; word++) {
		__u64 bits = 0;

		if (word * sizeof(bits) >= bpf_core_field_size(policy->nodes))
			break;
		bpf_probe_read_kernel(&bits, sizeof(bits),
				      (void *)policy + bpf_core_field_offset(policy->nodes) + word * sizeof(bits));
		if (bits)
			row->marks |= NT_POLICY_FAR;
	}
}

/* A walk over the entries of a tree from one page of a file to another, in order. */
struct tree_walk {
	__u64 node;
	__u64 to;
	__u32 nr;
	__u32 cut;
};

static inline __u64 first_entry(__u64 node, __u64 from)
{
	__u64 best = 0;
	int i;

	for (i = 0; i < TREE_DEPTH && node; i++) {
		struct sp_node *entry = (void *)node;

		if (BPF_CORE_READ(entry, end) > from) {
			best = node;
			node = (__u64)BPF_CORE_READ(entry, nd.rb_left);
		} else {
			node = (__u64)BPF_CORE_READ(entry, nd.rb_right);
		}
	}
	return best;
}

static inline __u64 entry_after(__u64 at)
{
	struct rb_node *node = (void *)at, *other;
	int i;

	other = BPF_CORE_READ(node, rb_right);
	if (other) {
		for (i = 0; i < TREE_DEPTH && other; i++) {
			node = other;
			other = BPF_CORE_READ(node, rb_left);
		}
		return (__u64)node;
	}
	for (i = 0; i < TREE_DEPTH; i++) {
		other = (void *)(BPF_CORE_READ(node, __rb_parent_color) & ~3UL);
		if (!other || BPF_CORE_READ(other, rb_left) == node)
			return (__u64)other;
		node = other;
	}
	return 0;
}

/* The lock of the tree is not taken: an entry may be freed meanwhile, and one that cannot be is dropped. */
static long on_entry(__u32 at, struct tree_walk *walk)
{
	struct sp_node *entry = (void *)walk->node;
	struct nt_policy_row *row;

	if (!entry)
		return 1;
	if (at >= NT_ENTRIES_MAX) {
		walk->cut = 1;
		return 1;
	}
	row = &entries[at];
	row->kind = NT_POLICY_ENTRY;
	row->marks = 0;
	row->start = BPF_CORE_READ(entry, start);
	row->end = BPF_CORE_READ(entry, end);
	if (row->start >= walk->to)
		return 1;
	describe_policy(row, BPF_CORE_READ(entry, policy));
	walk->nr = at + 1;
	walk->node = entry_after(walk->node);
	return 0;
}

static inline void describe_object(struct nt_policy_row *row, struct inode *inode)
{
	struct address_space *pages = BPF_CORE_READ(inode, i_mapping);

	row->kind = NT_POLICY_OBJECT;
	row->start = (__u64)BPF_CORE_READ(inode, i_sb, s_dev) << 32 | BPF_CORE_READ(inode, i_generation);
	row->end = BPF_CORE_READ(inode, i_ino);
	row->nodes = (__s64)BPF_CORE_READ(pages, i_mmap_writable.counter);
	row->pgoff = BPF_CORE_READ(inode, i_size);
	row->pages = BPF_CORE_READ(pages, nrpages);
}

/* The answers to one of the draws. */
struct draw_walk {
	__u64 pages;
	__u64 policies;
	__u32 at;
};

/* Whether a policy of the object names the node of this page. */
static inline bool is_meant(__u64 policies, __u64 index, __u32 node)
{
	struct sp_node *entry = (void *)first_entry(policies, index);
	struct mempolicy *policy;
	__u64 bits = 0;

	if (!entry || BPF_CORE_READ(entry, start) > index)
		return false;
	policy = BPF_CORE_READ(entry, policy);
	if (node >= 8 * bpf_core_field_size(policy->nodes))
		return false;
	bpf_probe_read_kernel(&bits, sizeof(bits),
			      (void *)policy + bpf_core_field_offset(policy->nodes) + node / 64 * 8);
	return bits >> (node & 63) & 1;
}

static long on_drawn(__u32 nr, struct draw_walk *walk)
{
	__u32 at = walk->at, node;
	struct nt_draw *draw;
	__u64 page;

	if (at >= NT_DRAWS_MAX || nr >= NT_DRAW_PAGES)
		return 1;
	draw = &draws[at];
	page = nt_cached_page((void *)walk->pages, draw->pages[nr]);
	if (!page) {
		draw->nodes[nr] = NT_DRAWN_HOLE;
		return 0;
	}
	node = nt_probed_page_flags((void *)page) >> node_shift;
	if (walk->policies && is_meant(walk->policies, draw->pages[nr], node))
		node |= NT_DRAWN_MEANT;
	draw->nodes[nr] = node;
	return 0;
}

/* Answers the draw that is wanted of an object, if one is. */
static inline void draw_nodes(struct nt_policy_row *object, struct inode *inode)
{
	struct draw_walk walk = {};
	struct nt_draw *draw;

	for (walk.at = 0; walk.at < NT_DRAWS_MAX; walk.at++) {
		draw = &draws[walk.at];
		if (draw->state == NT_DRAW_WANTED && draw->object == object->start && draw->inode == object->end)
			break;
	}
	if (walk.at >= NT_DRAWS_MAX)
		return;
	draw = &draws[walk.at];
	if (__sync_val_compare_and_swap(&draw->state, NT_DRAW_WANTED, NT_DRAW_BEGUN) != NT_DRAW_WANTED)
		return;
	walk.pages = (__u64)BPF_CORE_READ(inode, i_mapping);
	walk.policies = (__u64)nt_policies_of(inode);
	if (draw->nr <= NT_DRAW_PAGES)
		bpf_loop(draw->nr, on_drawn, &walk, 0);
	draw->state = NT_DRAW_DONE;
}

SEC("iter/task_vma")
int on_mapping(struct bpf_iter__task_vma *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct nt_policy_row row = {}, object = {};
	struct tree_walk walk = {};
	struct mempolicy *policy;
	struct inode *inode;
	struct file *file;
	__u64 magic = 0;
	__u32 nr;

	if (!vma || !task) {
		row.kind = NT_POLICY_END;
		bpf_seq_write(seq, &row, sizeof(row));
		return 0;
	}
	row.start = vma->vm_start;
	row.end = vma->vm_end;
	row.pgoff = vma->vm_pgoff;
	row.kind = NT_POLICY_MAPPING;
	if (vma->vm_flags & VM_SHARED)
		row.marks |= NT_POLICY_SHARED;
	/* By probe: the verifier lets no arithmetic be done on a pointer that is read through the context. */
	policy = BPF_CORE_READ(vma, vm_policy);
	file = BPF_CORE_READ(vma, vm_file);
	inode = file ? BPF_CORE_READ(file, f_inode) : NULL;
	if (inode && (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFREG)
		magic = BPF_CORE_READ(inode, i_sb, s_magic);
	if (magic == HUGETLBFS_MAGIC)
		row.marks |= NT_POLICY_HUGETLB;
	if (magic != TMPFS_MAGIC) {
		if (!policy)
			policy = BPF_CORE_READ(task, mempolicy);
		describe_policy(&row, policy);
		bpf_seq_write(seq, &row, sizeof(row));
		return 0;
	}
	/* The policy of a mapping of shared memory is not asked by the kernel. */
	describe_policy(&row, BPF_CORE_READ(task, mempolicy));
	row.marks |= NT_POLICY_SHMEM;
	describe_object(&object, inode);
	if (node_shift < 64)
		draw_nodes(&object, inode);
	walk.node = (__u64)nt_policies_of(inode);
	if (walk.node) {
		walk.to = row.pgoff + (row.end - row.start) / page_size;
		walk.node = first_entry(walk.node, row.pgoff);
		bpf_loop(NT_ENTRIES_MAX + 1, on_entry, &walk, 0);
	}
	if (walk.cut)
		row.marks |= NT_POLICY_CUT;
	bpf_seq_write(seq, &row, sizeof(row));
	bpf_seq_write(seq, &object, sizeof(object));
	/* In a register, or the verifier forgets the limit of what is read from the stack again. */
	nr = walk.nr;
	barrier_var(nr);
	if (nr <= NT_ENTRIES_MAX)
		bpf_seq_write(seq, entries, nr * sizeof(entries[0]));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
