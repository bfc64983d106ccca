/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel structures we look into: only the fields in use, relocated by
 * CO-RE at load time. Every difference between kernels is in this file, with
 * the kernel that brought it. tests/probes.rs checks all of it against the
 * running kernel's BTF.
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

/* Since 6.18 the flags are in a struct of their own. */
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
 * Why pages are moved: the last argument of mm_migrate_pages, which 6.7 gave one more in front of it. Reading an
 * argument that is not there is refused, but the verifier does not look at what cannot happen.
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

/*
 * Where migrate_misplaced_folio brings its folio, and migrate_misplaced_page (until 6.6) its page: the last argument.
 * The one before it, the mapping, went between 6.12 and 6.16.
 */
static inline int nt_misplaced_to(__u64 *args, __u32 at)
{
	int node;

	if (at == 1) {
		node = args[1];
		/* As in nt_migrate_reason. */
		barrier_var(node);
		return node;
	}
	return args[2];
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

/* Until 6.1 rss_stat was one struct of atomic counters (commit f1a7941243c1, 6.2). May go with 6.1. */
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

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	int exit_state;
	unsigned int flags;
	unsigned int policy;
	int static_prio;
	int nr_cpus_allowed;
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
} NT_RELOCATED;

/* The tasks it is placed together with; by probe, because the group may go while we look. 0: none. */
static inline __u32 nt_numa_group(struct task_struct *task)
{
	struct numa_group *group = task->numa_group;

	return group ? BPF_CORE_READ(group, gid) : 0;
}

/* Where it asks for new memory; by probe, because the policy may be replaced while we look. */
static inline void nt_mempolicy(struct task_struct *task, __u32 *mode, __u64 *nodes)
{
	struct mempolicy *policy = NULL;

	if (bpf_core_field_exists(task->mempolicy))
		policy = task->mempolicy;
	*mode = policy ? BPF_CORE_READ(policy, mode) | (__u32)BPF_CORE_READ(policy, flags) << 16 : 0;
	*nodes = policy ? BPF_CORE_READ(policy, nodes.bits[0]) : 0;
}

/*
 * Threads of a process, in a program that is not a walk itself (6.7). The first
 * must exist in the running kernel before any is called.
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

/* Of the first four arguments the one at this place, counted from 0; a constant, because the context is no array. */
#if defined(__TARGET_ARCH_arm64)
#define nt_argument(ctx, at) (((struct user_pt_regs___arm64 *)(ctx))->regs[at])
#elif defined(__TARGET_ARCH_x86)
#define nt_argument_0 di
#define nt_argument_1 si
#define nt_argument_2 dx
#define nt_argument_3 cx
#define nt_argument(ctx, at) (((struct pt_regs___x86 *)(ctx))->nt_argument_##at)
#else
#error "where are the arguments of a function on this architecture?"
#endif

#define NT_RSS_FILE 0 /* enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES } */
#define NT_RSS_ANON 1
#define NT_RSS_SHMEM 3

/*
 * Resident pages, as statm counted them until 6.15: from 6.2 the counters are
 * per CPU and the shared part lags by at most 32 pages per CPU and counter.
 */
static inline __u64 nt_rss_pages(struct task_struct *task)
{
	struct mm_struct *mm = task->mm;
	__s64 file, anon, shmem;

	if (!mm)
		return 0;
	if (bpf_core_field_exists(struct mm_struct, rss_stat[0].count)) {
		file = mm->rss_stat[NT_RSS_FILE].count;
		anon = mm->rss_stat[NT_RSS_ANON].count;
		shmem = mm->rss_stat[NT_RSS_SHMEM].count;
	} else {
		struct mm_struct___v61 *old = (void *)mm;

		/* By probe: 6.1 refuses a direct load through the typedef of an array element. */
		file = BPF_CORE_READ(old, rss_stat.count[NT_RSS_FILE].counter);
		anon = BPF_CORE_READ(old, rss_stat.count[NT_RSS_ANON].counter);
		shmem = BPF_CORE_READ(old, rss_stat.count[NT_RSS_SHMEM].counter);
	}
	/* A counter may be below zero for a moment while its per-CPU parts are not folded. */
	return (file > 0 ? file : 0) + (anon > 0 ? anon : 0) + (shmem > 0 ? shmem : 0);
}

#endif /* CORE_COMPAT_BPF_H */
