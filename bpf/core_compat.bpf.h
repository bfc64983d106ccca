/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel structures that the programs read: only the fields in use, relocated by CO-RE at load time.
 * Every difference between kernels is one block of this file. It names the commit or release, the change, and
 * when the block can be dropped. tests/probes/btf.rs checks the structures against the running kernel's BTF.
 * The oldest kernel that is supported is 6.1.
 */
#ifndef CORE_COMPAT_BPF_H
#define CORE_COMPAT_BPF_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define NT_RELOCATED __attribute__((preserve_access_index))

#define PF_KTHREAD 0x00200000   /* include/linux/sched.h, the same since 2.6 */
#define PF_KSWAPD 0x00020000    /* include/linux/sched.h, the same since 4.19 */
#define TASK_RUNNING 0x00000000 /* include/linux/sched.h, since ever: on a CPU or waiting for one */
#define TASK_DEAD 0x00000080    /* include/linux/sched.h, the same since 4.14 */
#define TNF_FAULT_LOCAL 0x08    /* include/linux/sched/numa_balancing.h, the same since 4.0 */
#define MR_SYSCALL 3            /* enum migrate_reason of include/linux/migrate_mode.h, the same since 3.8 */
#define MR_MEMPOLICY_MBIND 4
#define MR_NUMA_MISPLACED 5
#define NT_DEFAULT_PRIO 120 /* include/linux/sched/prio.h: nice 0 */
#define NT_NICE_OF(static_prio) ((static_prio) - (NT_DEFAULT_PRIO))

/*
 * __GFP_HIGHMEM | __GFP_MOVABLE of include/linux/gfp_types.h, the same since 2.6.23. Both are in
 * GFP_HIGHUSER_MOVABLE, with which pages for user space and for the page cache are allocated, and in little else.
 */
#define NT_GFP_USER 0x0a

struct page {
	unsigned long flags;
} NT_RELOCATED;

/*
 * Release 6.18: page->flags becomes a struct, memdesc_flags_t. The plain word can be dropped when the oldest
 * supported kernel is 6.18.
 */
struct page___v618 {
	struct {
		unsigned long f;
	} flags;
} NT_RELOCATED;

/* Of a page, or of the folio that begins with it. */
static inline unsigned long nt_page_flags(struct page *page)
{
	struct page___v618 *since_618 = (void *)page;

	if (bpf_core_field_exists(since_618->flags.f))
		return since_618->flags.f;
	return page->flags;
}

/*
 * Release 6.7: the tracepoint mm_migrate_pages gets one more argument in front of the last, the reason of the
 * move. `at` 6 can be dropped when the oldest supported kernel is 6.7. The verifier refuses an argument that is
 * not there, but does not look at branches that cannot be taken: `at` is constant.
 */
static inline int nt_migrate_reason(__u64 *args, __u32 at)
{
	int reason;

	if (at == 6) {
		reason = args[6];
		/* Or both loads become one from a computed address, which the verifier refuses. */
		barrier_var(reason);
		return reason;
	}
	return args[7];
}

/* The same where the verifier does not know what the address is of. */
static inline unsigned long nt_probed_page_flags(void *page)
{
	if (bpf_core_field_exists(((struct page___v618 *)page)->flags.f))
		return BPF_CORE_READ((struct page___v618 *)page, flags.f);
	return BPF_CORE_READ((struct page *)page, flags);
}

struct kernfs_node {
	__u64 id;
} NT_RELOCATED;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} NT_RELOCATED;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} NT_RELOCATED;

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
} NT_RELOCATED;

struct blkcg {
	struct cgroup_subsys_state css;
} NT_RELOCATED;

struct blkcg_gq {
	struct blkcg *blkcg;
} NT_RELOCATED;

struct block_device;

struct gendisk {
	struct block_device *part0;
} NT_RELOCATED;

struct block_device {
	__u32 bd_dev;
	struct gendisk *bd_disk;
} NT_RELOCATED;

struct bvec_iter {
	unsigned int bi_size;
} NT_RELOCATED;

struct bio {
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	struct bvec_iter bi_iter;
	/* With CONFIG_BLK_CGROUP only. */
	struct blkcg_gq *bi_blkg;
} NT_RELOCATED;

/* The number of REQ_OP_ZONE_APPEND is the running kernel's: it changed in 6.11. */
enum req_op___nt {
	REQ_OP_ZONE_APPEND___nt = 7,
};

/* include/linux/blk_types.h, the same since 4.10 */
#define NT_REQ_OP_MASK 0xff
#define NT_REQ_OP_READ 0
#define NT_REQ_OP_WRITE 1

static inline bool nt_bio_reads(struct bio *bio)
{
	return (bio->bi_opf & NT_REQ_OP_MASK) == NT_REQ_OP_READ;
}

/* Whether the size of a bio is that of data which a disk reads or writes: flushes and discards have none. */
static inline bool nt_bio_moves_data(struct bio *bio)
{
	__u32 op = bio->bi_opf & NT_REQ_OP_MASK;

	return op == NT_REQ_OP_READ || op == NT_REQ_OP_WRITE ||
	       op == bpf_core_enum_value(enum req_op___nt, REQ_OP_ZONE_APPEND___nt);
}

/* include/linux/socket.h, the same since ever */
#define NT_AF_INET 2
#define NT_AF_INET6 10
#define NT_MSG_PEEK 2

/* The loopback device of each network namespace (LOOPBACK_IFINDEX of include/net/flow.h). */
#define NT_LOOPBACK_IFINDEX 1

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
} NT_RELOCATED;

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	unsigned short skc_family;
	/* With CONFIG_IPV6 only. */
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	/* CPU whose softirq processed the last packet; -1 of unconnected UDP sockets. */
	int skc_incoming_cpu;
} NT_RELOCATED;

struct sock {
	struct sock_common __sk_common;
	/* Device of the last packet, of connected sockets. */
	int sk_rx_dst_ifindex;
} NT_RELOCATED;

typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
} NT_RELOCATED;

struct sched_entity {
	__u64 sum_exec_runtime;
	__u64 nr_migrations;
} NT_RELOCATED;

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
} NT_RELOCATED;

struct percpu_counter {
	__s64 count;
} NT_RELOCATED;

struct mm_struct {
	struct percpu_counter rss_stat[4];
} NT_RELOCATED;

/*
 * Commit f1a7941243c1 (6.2): rss_stat, one struct of atomic counters, becomes an array of per-CPU counters. The
 * struct can be dropped when the oldest supported kernel is 6.2.
 */
struct nt_atomic_long {
	__s64 counter;
};

struct mm_rss_stat {
	struct nt_atomic_long count[4];
} NT_RELOCATED;

struct mm_struct___v61 {
	struct mm_rss_stat rss_stat;
} NT_RELOCATED;

struct thread_info {
	__u32 cpu;
} NT_RELOCATED;

struct signal_struct {
	struct {
		int counter;
	} live;
} NT_RELOCATED;

/* With CONFIG_NUMA_BALANCING only. */
struct numa_group {
	int gid;
} NT_RELOCATED;

typedef struct {
	unsigned long bits[1];
} nodemask_t;

/* With CONFIG_NUMA only. */
struct mempolicy {
	unsigned short mode;
	unsigned short flags;
	nodemask_t nodes;
} NT_RELOCATED;

/* Of x86 only. */
struct thread_struct___x86 {
	unsigned long fsbase;
} NT_RELOCATED;

/* As long as the kernel can have CPUs: words behind the first are read by probe. */
struct cpumask {
	unsigned long bits[1];
} NT_RELOCATED;

struct upid {
	int nr;
	struct pid_namespace *ns;
} NT_RELOCATED;

/* With an id for each pid namespace that it is in, from that of the machine inwards. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
} NT_RELOCATED;

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	int exit_state;
	unsigned int flags;
	unsigned int policy;
	int static_prio;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	int pid;
	int tgid;
	__u64 start_boottime;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	const struct cred *cred;
	struct css_set *cgroups;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct mempolicy *mempolicy;
	/* With CONFIG_NUMA_BALANCING only. */
	int numa_preferred_nid;
	int numa_scan_seq;
	unsigned int numa_scan_period;
	unsigned long numa_faults_locality[3];
	unsigned long numa_pages_migrated;
	struct numa_group *numa_group;
	/* With CONFIG_CPUSETS only. */
	struct {
		unsigned long bits[1];
	} mems_allowed;
	struct thread_struct___x86 thread;
} NT_RELOCATED;

/* The id of its process in the pid namespace of `reader`, which may be nested in that of the machine. 0:
 * not in that namespace. */
static inline __u32 nt_process_id_for(struct task_struct *reader, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	struct pid *readers = BPF_CORE_READ(reader, thread_pid);
	__u32 level = BPF_CORE_READ(readers, level);
	unsigned long at = level * bpf_core_type_size(struct upid);
	struct pid_namespace *ns = NULL, *own = NULL;
	int nr = 0;

	if (BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&own, sizeof(own), (void *)__builtin_preserve_access_index(&readers->numbers[0].ns) + at);
	bpf_probe_read_kernel(&ns, sizeof(ns), (void *)__builtin_preserve_access_index(&pid->numbers[0].ns) + at);
	if (ns != own)
		return 0;
	bpf_probe_read_kernel(&nr, sizeof(nr), (void *)__builtin_preserve_access_index(&pid->numbers[0].nr) + at);
	return nr;
}

/* The tasks it is placed together with; by probe, because the group may go while we look. 0: none. */
static inline __u32 nt_numa_group(struct task_struct *task)
{
	struct numa_group *group = BPF_CORE_READ(task, numa_group);

	return group ? BPF_CORE_READ(group, gid) : 0;
}

/* Where it asks for new memory; by probe, because the policy may be replaced while we look. */
static inline void nt_mempolicy(struct task_struct *task, __u32 *mode, __u64 *nodes)
{
	struct mempolicy *policy = NULL;

	if (bpf_core_field_exists(task->mempolicy))
		policy = BPF_CORE_READ(task, mempolicy);
	*mode = policy ? BPF_CORE_READ(policy, mode) | (__u32)BPF_CORE_READ(policy, flags) << 16 : 0;
	*nodes = policy ? BPF_CORE_READ(policy, nodes.bits[0]) : 0;
}

/*
 * Release 6.7: kfuncs that iterate over the threads of a process in any program. The question whether they
 * exist (bpf_ksym_exists), and the next walk in their place, can be dropped when the oldest supported kernel is 6.7.
 */
struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

#define NT_ITER_PROC_THREADS 2 /* enum in kernel/bpf/task_iter.c */

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __weak __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __weak __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __weak __ksym;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} NT_RELOCATED;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} NT_RELOCATED;

#define TMPFS_MAGIC 0x01021994 /* include/uapi/linux/magic.h: tmpfs, memfd, SysV segments, shared anonymous memory */
#define HUGETLBFS_MAGIC 0x958458f6

struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
} NT_RELOCATED;

struct rb_root {
	struct rb_node *rb_node;
} NT_RELOCATED;

/* Policies of the pages of a file in memory: a tree, in the order of the pages. */
struct shared_policy {
	struct rb_root root;
} NT_RELOCATED;

struct sp_node {
	struct rb_node nd;
	unsigned long start, end;
	struct mempolicy *policy;
} NT_RELOCATED;

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
} NT_RELOCATED;

struct xarray {
	void *xa_head;
} NT_RELOCATED;

struct xa_node {
	unsigned char shift;
	void *slots[64];
} NT_RELOCATED;

struct address_space {
	struct xarray i_pages;
	struct {
		int counter;
	} i_mmap_writable;
	unsigned long nrpages;
} NT_RELOCATED;

#define XA_LEVELS 12       /* an index of 64 bits, 6 bits a level */
#define XA_NODES_FROM 4096 /* include/linux/xarray.h: internal entries above are nodes */

/*
 * The page or the folio of a file in memory with this index; 0: none, or swapped out. To be called under rcu_read_lock, which keeps
 * nodes of the tree. A page that is freed meanwhile is one of the same node still.
 */
static inline __u64 nt_cached_page(struct address_space *pages, __u64 index)
{
	__u64 entry = (__u64)BPF_CORE_READ(pages, i_pages.xa_head);
	struct xa_node *node = NULL;
	__u64 slots, at;
	int level;

	for (level = 0; level < XA_LEVELS && (entry & 3) == 2 && entry > XA_NODES_FROM; level++) {
		at = index >> BPF_CORE_READ((struct xa_node *)(entry - 2), shift);
		slots = bpf_core_field_size(node->slots) / sizeof(void *);
		/* Only the first has all that is above it. */
		if (!node && at >= slots)
			return 0;
		node = (void *)(entry - 2);
		at &= slots - 1;
		bpf_probe_read_kernel(&entry, sizeof(entry),
				      (void *)node + bpf_core_field_offset(node->slots) + at * 8);
		/* A page that fills several places has the number of the first in the others. */
		if ((entry & 3) == 2 && entry < slots << 2)
			bpf_probe_read_kernel(&entry, sizeof(entry),
					      (void *)node + bpf_core_field_offset(node->slots) + (entry >> 2) * 8);
	}
	/* A tree without nodes has the first page only. */
	if (!node && index)
		return 0;
	/* Bit 0: where it is in swap. Bit 1: an entry that is being changed. */
	return entry & 3 ? 0 : entry;
}

struct inode {
	unsigned short i_mode;
	__u32 i_rdev; /* 12 bits of the driver, 20 of the device */
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	long long i_size;
	__u32 i_generation;
} NT_RELOCATED;

struct shmem_inode_info {
	struct shared_policy policy;
	struct inode vfs_inode;
} NT_RELOCATED;

/* The root of the tree of policies of a file in memory; NULL where it has none. */
static inline struct rb_node *nt_policies_of(struct inode *inode)
{
	struct shmem_inode_info *info;

	info = (void *)inode - bpf_core_field_offset(struct shmem_inode_info, vfs_inode);
	return BPF_CORE_READ(info, policy.root.rb_node);
}

struct file {
	struct inode *f_inode;
} NT_RELOCATED;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
	struct mempolicy *vm_policy;
} NT_RELOCATED;

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} NT_RELOCATED;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
} NT_RELOCATED;

/*
 * Commit 3f0e6f2b41d3 (6.2): a kfunc finds the task with an id of the initial pid namespace. Without it in
 * BTF, user space leaves out the program that calls it, and a walk over all tasks replaces it. Both can be
 * dropped when the oldest supported kernel is 6.2.
 */
extern struct task_struct *bpf_task_from_pid(int pid) __weak __ksym;
extern void bpf_task_release(struct task_struct *task) __weak __ksym;

/*
 * The sample in the context of its program. Commit 3aac580d5cc3 (6.1): sample_flags names the fields that the
 * kernel filled in. A kernel without this field would refuse the whole object, including the clock's program,
 * so the programs check for it. From 6.12 at the latest (6.1 does not), all requested fields are prepared
 * before the program runs. Older kernels have only the fields set by the PMU driver.
 */
struct perf_sample_data {
	__u64 sample_flags;
	__u64 addr;
	__u64 phys_addr;
	union {
		__u64 val;
	} data_src;
	union {
		__u64 full;
	} weight;
} NT_RELOCATED;

struct bpf_perf_event_data_kern {
	struct perf_sample_data *data;
} NT_RELOCATED;

static inline __u64 nt_sample_flags(struct perf_sample_data *data)
{
	return bpf_core_field_exists(data->sample_flags) ? BPF_CORE_READ(data, sample_flags) : 0;
}

#define NT_SAMPLE_ADDR (1ULL << 3) /* enum perf_event_sample_format of include/uapi/linux/perf_event.h */
#define NT_SAMPLE_WEIGHT (1ULL << 14 | 1ULL << 24)
#define NT_SAMPLE_DATA_SRC (1ULL << 15)
#define NT_SAMPLE_PHYS_ADDR (1ULL << 19)

/* Registers at a kprobe: where the calling convention has the arguments. */
struct pt_regs___x86 {
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
} NT_RELOCATED;

struct user_pt_regs___arm64 {
	__u64 regs[31];
} NT_RELOCATED;

/* The argument at this place of the first four, counted from 0; a constant, because the context is no array. */
#if defined(__TARGET_ARCH_arm64)
#define nt_argument(ctx, at) (((struct user_pt_regs___arm64 *)(ctx))->regs[at])
#elif defined(__TARGET_ARCH_x86)
#define nt_argument_0 di
#define nt_argument_1 si
#define nt_argument_2 dx
#define nt_argument_3 cx
#define nt_argument(ctx, at) (((struct pt_regs___x86 *)(ctx))->nt_argument_##at)
#else
#error "add the registers that hold the arguments of a function on this architecture"
#endif

/*
 * One body, two programs: `name` at a function's trampoline, and `name`_kprobe for kernels that cannot attach
 * a trampoline there (arm64 before 6.4). User space loads the first that the kernel accepts. In the body,
 * nt_twin_argument() is an argument of the function, and `registers` tells the two programs apart.
 */
#define NT_TWINS(name, trampoline, probe)                                    \
	static __always_inline void name##_body(__u64 *ctx, bool registers); \
	SEC(trampoline) int name(__u64 *ctx)                                 \
	{                                                                    \
		name##_body(ctx, false);                                     \
		return 0;                                                    \
	}                                                                    \
	SEC(probe) int name##_kprobe(__u64 *ctx)                             \
	{                                                                    \
		name##_body(ctx, true);                                      \
		return 0;                                                    \
	}                                                                    \
	static __always_inline void name##_body(__u64 *ctx, bool registers)

#define nt_twin_argument(at) (registers ? nt_argument(ctx, at) : ctx[at])

/*
 * Commit 73eab3ca481e (6.7): migrate_misplaced_page becomes migrate_misplaced_folio. Between 6.12 and 6.16 the
 * argument before the last, the mapping, is removed; the last is the node that the page is brought to. `at` 2 can
 * be dropped when the oldest supported kernel is 6.16.
 */
#define nt_misplaced_to(at)                                               \
	({                                                                \
		int node_;                                                \
		if ((at) == 1) {                                          \
			node_ = nt_twin_argument(1);                      \
			barrier_var(node_); /* as in nt_migrate_reason */ \
		} else {                                                  \
			node_ = nt_twin_argument(2);                      \
		}                                                         \
		node_;                                                    \
	})

#define NT_RSS_FILE 0 /* enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES } */
#define NT_RSS_ANON 1
#define NT_RSS_SWAP 2
#define NT_RSS_SHMEM 3
#define NT_RSS_KINDS 4

/*
 * Resident pages by kind, as statm counted them until 6.15, and those in swap. Since 6.2 the counters are per CPU: the part
 * read here lags by at most 32 pages per CPU and counter.
 */
static inline void nt_mm_pages(struct task_struct *task, __u64 *pages)
{
	__s64 file = 0, anon = 0, swap = 0, shmem = 0;
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	if (mm && bpf_core_field_exists(struct mm_struct, rss_stat[0].count)) {
		file = BPF_CORE_READ(mm, rss_stat[NT_RSS_FILE].count);
		anon = BPF_CORE_READ(mm, rss_stat[NT_RSS_ANON].count);
		swap = BPF_CORE_READ(mm, rss_stat[NT_RSS_SWAP].count);
		shmem = BPF_CORE_READ(mm, rss_stat[NT_RSS_SHMEM].count);
	} else if (mm) {
		struct mm_struct___v61 *old = (void *)mm;

		/* By probe: 6.1 refuses a direct load through the typedef of an array element. */
		file = BPF_CORE_READ(old, rss_stat.count[NT_RSS_FILE].counter);
		anon = BPF_CORE_READ(old, rss_stat.count[NT_RSS_ANON].counter);
		swap = BPF_CORE_READ(old, rss_stat.count[NT_RSS_SWAP].counter);
		shmem = BPF_CORE_READ(old, rss_stat.count[NT_RSS_SHMEM].counter);
	}
	/* A counter may be below zero for a moment while its per-CPU parts are not folded. */
	pages[NT_RSS_FILE] = file > 0 ? file : 0;
	pages[NT_RSS_ANON] = anon > 0 ? anon : 0;
	pages[NT_RSS_SWAP] = swap > 0 ? swap : 0;
	pages[NT_RSS_SHMEM] = shmem > 0 ? shmem : 0;
}

/* Nodes from which its cpuset lets it allocate memory; nodes above 63 are left out. 0: not known. */
static inline __u64 nt_mems_allowed(struct task_struct *task)
{
	return bpf_core_field_exists(task->mems_allowed) ? task->mems_allowed.bits[0] : 0;
}

#endif /* CORE_COMPAT_BPF_H */
