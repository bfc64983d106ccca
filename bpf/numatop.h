/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every structure that crosses between the kernel programs and user space.
 *
 * The Rust twin is crates/model/src/model/wire.rs; both sides assert the same sizes. All padding is explicit, so a change
 * on one side cannot go unnoticed. All values count up and are never reset: only user space subtracts.
 */
#ifndef NUMATOP_H
#define NUMATOP_H

/* enum nt_counter and nt_lifetime, made by build.rs from crates/model/src/model/counters/rows.rs. */
#include "counters.h"

/* Perf counters that are read at a context switch; user space chooses the event of a slot. */
#define NT_SLOTS 8

/* Words of 64 threads each in the table of members of trees: all ids that there can be (PID_MAX_LIMIT). */
#define NT_TREE_WORDS 65536

/* Threads per element of the table of dirty tasks. */
#define NT_MARKS 4096

/* Maximum number of elements: pid_max can be 4,194,304 (PID_MAX_LIMIT of include/linux/threads.h). */
#define NT_MARKS_MAX 1024

/* Threads that a short walk lists at a time. */
#define NT_LIST_MAX 256

/* Each task is visited in one of this many walks, whatever it does. */
#define NT_LOOK_EVERY 8

/*
 * By thread id: it ran (or was born) since the walk looked at it last. A byte each,
 * so that no CPU has to be kept from writing.
 */
struct nt_dirty_tasks {
	__u8 of[NT_MARKS];
};

/* Causes of a count that is missing. Indexes nt_cpu.lost; the names users see are in wire.rs. */
enum nt_loss {
	NT_LOST_STORAGE,   /* no memory for the record of a new task */
	NT_LOST_EXIT,      /* exit ring full: totals went to exit_lost_ns instead of a row */
	NT_LOST_COUNTER,   /* a counter that should be readable was not */
	NT_LOST_BACKWARDS, /* a counter went backwards: interval skipped */
	NT_LOST_SMT,       /* busy-thread word of a core contended: one transition lost */
	NT_LOST_SWITCH,    /* a task came in unseen: counts up to here are dropped */
	NT_LOST_PAGE,      /* a page of a node, or on a CPU, that we do not know: not counted */
	NT_LOSSES,
};

#define NT_LOSSES_MAX 7 /* room in nt_cpu.lost */

/* Properties of a task's row besides the numbers. */
enum nt_row_flags {
	NT_ROW_EXITED = 1 << 0, /* final totals: it will not run again */
	NT_ROW_LEFT = 1 << 1,   /* left the scope: no further rows until it returns; with EXITED: it had left */
	NT_ROW_KTHREAD = 1 << 2,
	NT_ROW_NO_NUMA = 1 << 3,    /* kernel without CONFIG_NUMA_BALANCING: numa_* fields mean nothing */
	NT_ROW_BY_SIBLING = 1 << 4, /* the nt_rec ends with counts by what the SMT siblings did */
};

/* Cycles and instructions of stretches in which the SMT siblings were idle, and in which one was busy. */
enum nt_siblings {
	NT_SIBLING_IDLE,
	NT_SIBLING_BUSY,
	NT_SIBLINGS,
	NT_SIBLING_MIXED = NT_SIBLINGS, /* neither: the counters were not read when it changed */
};

/* nt_rec.in_scope: 0 while the record is filled, and after user space has been notified that the task
 * left. */
enum nt_in_scope {
	NT_REC_INSIDE = 1 << 0,
	NT_REC_CROSSED = 1 << 1, /* moved out of the scope, or out and back: scope_* say more */
	NT_REC_FRESH = 1 << 2,   /* published, and not yet seen by the CPU that runs the task: nt_take_scope() */
};

/*
 * nt_cpu.state: how far the stretch that runs now is known.
 *
 *   UNSEEN -> any other   at the first switch or flush, by this CPU
 *   any -> COUNTED        the counters were read when the stretch began
 *   any -> OUTSIDE        a scope is set, the counters were not read, and the task that came in had no record
 *   any -> UNCOUNTED      the same with the idle task, or no counters are in use
 *   OUTSIDE -> UNCOUNTED  a task on this CPU got a record meanwhile, by any CPU: ask_again()
 *
 * Only the last one is by another CPU, with a compare-and-swap. It may lose against the store of a switch;
 * then the task is asked about at the next flush.
 */
enum nt_cpu_state {
	NT_CPU_UNSEEN,
	NT_CPU_UNCOUNTED, /* its record is looked up at its end; its counts are dropped */
	NT_CPU_OUTSIDE,   /* its record is not looked up at its switch */
	NT_CPU_COUNTED,   /* its record is looked up, its counts are charged */
};

/* nt_rec.final: why there are no further rows with this record. */
enum nt_final {
	NT_FINAL_NONE,
	NT_FINAL_ENDED, /* the task has ended: its last row was sent, or counted as lost */
	NT_FINAL_LEFT,  /* it left the scope, and its row said so: what it does when it is back is another record's */
};

/* Task properties that a scope is made of; kinds are and-ed, ids of one kind or-ed. */
enum nt_scope_kind {
	NT_SCOPE_PID,
	NT_SCOPE_TID,
	NT_SCOPE_UID,
	NT_SCOPE_CGROUP,  /* a cgroup or any ancestor of it */
	NT_SCOPE_OUTSIDE, /* the same, but not wanted */
	NT_SCOPE_TREE,    /* a process, and all that it and its descendants have made since */
};

/* The scope in the terms of the context switch. */
enum nt_scoped {
	NT_SCOPED_NOT, /* every task is wanted */
	NT_SCOPED,
	/* Only cgroups decide: a task cannot come into the scope by itself, and the program at its move marks it. */
	NT_SCOPED_BY_CGROUP,
};

struct nt_scope_key {
	__u32 kind; /* enum nt_scope_kind */
	__u32 pad;
	__u64 id;
};

/*
 * Selects the page allocations of a CPU that are counted. Written by that CPU only and mapped read-only into
 * user space. It fills one cache line, the only one that an uncounted allocation touches.
 */
struct nt_alloc_pace {
	__u64 allocs; /* of user pages since start, those that will be left out next included */
	__u64 dice;   /* state of the random numbers */
	__u64 skip;   /* allocations to leave out next */
	__u64 pad[5];
};

/* Where a CPU is in the machine. Written by user space, before attach and on hotplug. */
struct nt_cpu_topo {
	__u32 node;
	__u32 llc;    /* dense index of the last-level cache */
	__u32 core;   /* dense index of the physical core */
	__u32 slots;  /* bit i: counter slot i is open on this CPU */
	__u32 opened; /* changes whenever the counters are opened anew: they start from zero */
	__u32 waits; /* bit i: counter slot i is wanted on this CPU, and is not open because it is the turn of others */
	__u32 place; /* index of the set of CPUs by which time is kept; the node, where these are the nodes */
	__u32 socket; /* physical_package_id; ~0: not known */
};

/* Kinds of sets of CPUs between which moves are counted, where places are not the nodes. */
enum nt_set_kind {
	NT_SET_LLC,
	NT_SET_SOCKET,
	NT_SET_KINDS,
};

/*
 * Dispatches of tasks that last ran on another set: on one CPU, written by that CPU only, or elsewhere of tasks that last
 * ran on one place. Each has a cache line. Not in struct nt_cpu, whose size is a power of two: every switch finds its element
 * with a shift.
 */
struct nt_moves {
	__u64 of[NT_SET_KINDS];
	__u64 pad[6];
};

/*
 * One per CPU, written by that CPU only (state excepted), mapped read-only into user space. It begins and ends with a
 * cache line: its neighbours are those of other CPUs. A switch without counters, scope and losses touches the first line only.
 */
struct nt_cpu {
	__u64 busy_ns; /* on-CPU time of everything but the idle task */
	__u64 switches;
	__u64 in_exec_ns;  /* sum_exec_runtime of the running task when it was switched in */
	__u64 in_smt_ns;   /* the core's both-busy clock at that moment */
	__u32 state;       /* enum nt_cpu_state; in_* describe the running task unless it is UNSEEN */
	__u32 in_busy;     /* this CPU is counted as busy in its core's word */
	__u32 slots_valid; /* bit i: slot_last[i] is a reading of the event now open */
	__u32 in_pid;
	__u64 in_ns;  /* when the stretch began that is now counted; only where counts are kept by sibling */
	__u32 opened; /* nt_cpu_topo.opened that slot_last[] belongs to */
	__u32 pad;
	__u64 lost[NT_LOSSES_MAX];
	__u64 scope_ns; /* on-CPU time of tasks in the scope, where there is one */
	__u64 slot_last[NT_SLOTS];
	__u64 slot_last_enabled[NT_SLOTS];
	__u64 slot_last_running[NT_SLOTS];
	__u64 slot_total[NT_SLOTS]; /* counted while a task (not idle) was running */
	/*
	 * Whole life of the event on this CPU, read at each flush. On a CPU where slots have turns: while a task was running,
	 * as a sum over all turns.
	 */
	__u64 slot_enabled_ns[NT_SLOTS];
	__u64 slot_running_ns[NT_SLOTS];
};

/*
 * The record of a task: the fixed head, followed by run_ns[nr_places] and, on request of user space: struct
 * nt_node_counts[nr_nodes]; struct nt_node_counts[NT_SIBLINGS], by the state of the SMT siblings; __u64
 * pages[nr_nodes].
 */
struct nt_rec {
	/*
	 * All that the walk needs of a sleeping task, and a switch of a running one. These 48 bytes share a cache
	 * line with the fields that the record look-up reads.
	 */
	__u64 exec_seen_ns;    /* sum_exec_runtime up to which time has been charged */
	__u32 last_cpu;        /* ~0 until it ran */
	__u32 in_scope;        /* enum nt_in_scope */
	__u64 sent;            /* signature of the row last sent to user space */
	__u32 final;           /* enum nt_final */
	__u32 ppid;            /* as last seen alive: real_parent may dangle once the task is freed */
	__u64 leader_start_ns; /* start of the thread group's leader, kept for the same reason as ppid */
	__u64 serial;          /* unique for the life of the probe, survives exec */

	__u64 counters[NT_NR_COUNTERS]; /* by enum nt_counter */
	__u64 scope_end_ns; /* sum_exec_runtime when it left the scope: nothing after it is charged; 0: inside */
	__u64 scope_gap_ns; /* time it then spent outside before it came back, not yet left out */
	/* The window of numa_faults_locality[] that has been added to these, and the amount added. */
	__u64 hint_seen_local;
	__u64 hint_seen_remote;
	__u32 hint_window;
	/* Where a stretch of NUMA balancing began: by the clock, by the task's own clock, at which switch. */
	__u32 balancing_from_switches;
	__u64 balancing_from_ns; /* 0: in none */
	__u64 balancing_from_exec;
	/* The nodes that balancing moves a page from and to at this moment, counted from 1; 0: not known. */
	__u16 moves_from;
	__u16 moves_to;
	__u32 hint_changed; /* hint_window is not the task's any more, and was not at the last look */
	__u64 slot[NT_SLOTS];
	__u64 slot_enabled_ns[NT_SLOTS]; /* advance only while user space asked for scaled reads */
	__u64 slot_running_ns[NT_SLOTS];
	__u64 run_ns[]; /* on-CPU time by place */
};

/* NUMA hinting faults on one CPU, of tasks in and out of the scope. */
struct nt_cpu_hints {
	__u64 faults;
	__u64 remote; /* of these, with the page on another node */
};

#define NT_DISKS_MAX 4096
#define NT_DISK_USES_MAX 16384

enum nt_disk_kind {
	NT_DISK_UPPER = 0, /* stands on other disks, which are counted */
	NT_DISK_LEAF = 1,  /* hardware of its own */
	NT_DISK_PATH = 2,  /* one of several ways to an NVMe disk */
};

/* The sender of requests to a disk, and the node they were sent from. */
struct nt_disk_key {
	__u64 id;   /* start of the process, ns since boot; of a cgroup its id */
	__u32 pid;  /* 0: a kernel thread, for a cgroup */
	__u32 disk; /* device number of the whole disk, as the kernel has it */
	__u32 node; /* of the CPU */
	__u32 pad;
};

/* Traffic since start. */
struct nt_disk_use {
	__u64 bytes; /* read and written */
	__u64 requests;
};

#define NT_SOCKET_USES_MAX 16384

/* Bytes between IP sockets of a process and CPUs of a node. */
struct nt_socket_key {
	__u64 start; /* of the process, ns since boot */
	__u32 pid;
	__u32 from; /* node of the CPU that processed the last packet; NT_NO_NODE: not known */
	__u32 to;   /* node of the CPU that read or sent */
	__u32 pad;
};

#define NT_NO_NODE (~0U)

/* Since start. */
struct nt_socket_use {
	__u64 received; /* bytes */
	__u64 reads;    /* calls that received some */
	__u64 sent;     /* bytes, from this node */
};

#define NT_MAJOR_WORDS 64 /* a driver's part of a device number has 12 bits */

/* A bit for each driver whose device files are looked for. */
struct nt_majors {
	__u64 words[NT_MAJOR_WORDS];
};

/* A device file that a process has open. */
struct nt_open_file {
	__u64 start_ns; /* of the process, since boot */
	__u32 pid;
	__u32 device; /* as the kernel has it */
};

/* Reclaim on one node since start. */
struct nt_reclaim {
	__u64 kswapd_pages;  /* freed by kswapd */
	__u64 direct_pages;  /* freed by any other task */
	__u64 node_reclaims; /* times an allocation cleaned up its own node first */
	__u64 reserved;
};

#define NT_ENTRIES_MAX \
	512              /* policies of one mapping of shared memory that are told: all rows of a mapping fit 32 KiB */
#define NT_NODE_WORDS 16 /* of a mask of nodes: NODES_SHIFT is at most 10 */

enum nt_policy_kind {
	NT_POLICY_END, /* no row follows: a reader that goes on would get the last ones again, for ever */
	NT_POLICY_MAPPING,
	NT_POLICY_OBJECT, /* of the mapping before */
	NT_POLICY_ENTRY,  /* of the object before */
};

enum nt_policy_mark {
	NT_POLICY_FAR = 1 << 0,     /* the policy names a node above 63 */
	NT_POLICY_SHARED = 1 << 1,  /* others see what is written there */
	NT_POLICY_SHMEM = 1 << 2,   /* memory of tmpfs, a memfd, a SysV segment, or shared anonymous memory */
	NT_POLICY_HUGETLB = 1 << 3, /* of hugetlbfs */
	NT_POLICY_CUT = 1 << 4,     /* its object has more entries than are told */
};

/* A mapping; or the object behind it; or the policy of a part of that. */
struct nt_policy_row {
	__u64 start; /* first address; object: its device, and the generation of the inode below it; entry: page of the file */
	__u64 end;   /* address behind the last; object: inode; entry: page behind the last */
	__u64 nodes; /* of the policy, up to 63; object: shared writable mappings by all, below 0: not known */
	__u64 pgoff; /* page of the file at the start; object: size in bytes */
	__u64 pages; /* object: pages in memory */
	__u16 mode;  /* of the policy: MPOL_ of include/uapi/linux/mempolicy.h */
	__u16 flags;
	__u16 kind;  /* enum nt_policy_kind */
	__u16 marks; /* enum nt_policy_mark */
};

#define NT_DRAWS_MAX 8     /* objects whose pages are asked for at a time */
#define NT_DRAW_PAGES 1024 /* pages of each */

enum nt_draw_state {
	NT_DRAW_NONE,
	NT_DRAW_WANTED, /* set by user space */
	NT_DRAW_BEGUN,
	NT_DRAW_DONE,
};

#define NT_DRAWN_HOLE 0xffff  /* no page in memory: a hole, or swapped out */
#define NT_DRAWN_MEANT 0x8000 /* beside a node: the policy of the page names it */

/* Pages of an object whose nodes are asked for. */
struct nt_draw {
	__u64 object; /* as in the row of an object: device and generation, inode */
	__u64 inode;
	__u32 state; /* enum nt_draw_state */
	__u32 nr;    /* of the pages */
	__u64 pages[NT_DRAW_PAGES];
	__u16 nodes[NT_DRAW_PAGES]; /* a node, with NT_DRAWN_MEANT or without; or NT_DRAWN_HOLE */
};

/* Cycles and instructions on one node. */
struct nt_node_counts {
	__u64 cycles;
	__u64 instructions;
};

/* Values read from the kernel's task structure. On the wire it is followed by the nt_rec. */
struct nt_task {
	__u32 size;  /* of this row, nt_rec and run_ns included */
	__u32 flags; /* enum nt_row_flags */
	__u32 tid;
	__u32 pid; /* thread group */
	__u32 ppid;
	__u32 uid;
	__u64 start_ns;        /* CLOCK_BOOTTIME */
	__u64 leader_start_ns; /* of the thread group's leader: (pid, leader_start_ns) is a process */
	__u64 cgroup_id;
	char comm[16];
	__u64 exec_ns;                  /* se.sum_exec_runtime: since the task was born */
	__u64 lifetime[NT_NR_LIFETIME]; /* by enum nt_lifetime */
	__u64 mm_pages[4];              /* of its process: of files, anonymous, in swap, shared */
	__u64 numa_faults_local;        /* of the current scan window, see numa_faults_locality[] */
	__u64 numa_faults_remote;
	__u32 state; /* task->__state */
	__u32 exit_state;
	__u32 policy;
	__s32 nice;
	__u32 cpu;
	__u32 cpus_allowed; /* how many */
	__s32 preferred_nid;
	__u32 scan_period_ms;
	__u32 group_live;      /* threads of its process that have not begun to exit */
	__u16 nodes;           /* how many elements the nt_rec has of each list by node */
	__u16 places;          /* how many run_ns[] */
	__u32 numa_group;      /* 0: none */
	__u32 mempolicy;       /* of new memory: mode, and its flags in the upper half; 0: the default */
	__u64 mempolicy_nodes; /* bit i: node i is in it; nodes above 63 are not told */
	__u64 cpu_nodes;       /* bit i: it may use a CPU of node i, as above; 0: not known, as of ended tasks */
	__u64 mem_nodes;       /* bit i: it may take memory from node i, as above; 0: not known */
};

/* CPUs of one node in one word of a CPU mask. */
struct nt_mask_part {
	__u32 word;
	__u32 node;
	__u64 cpus;
};

/* Parts of the first word of a CPU mask, and of all others, that are known at most: the verifier looks at each. */
#define NT_MASK_FIRST 32
#define NT_MASK_OTHERS 64
#define NT_MASK_WORDS 1024 /* words of a CPU mask at most: 65,536 CPUs */

/* Maximum frames of a stack; outer frames are cut off. */
#define NT_HOT_FRAMES 64

/* Causes of a missing or incomplete sample of a stack. Indexes hot_lost; names are in wire.rs. */
enum nt_hot_loss {
	NT_HOT_RING_FULL, /* user space did not empty the ring in time */
	NT_HOT_RING_BUSY, /* the ring was locked by what the sample interrupted */
	NT_HOT_NO_STACK,  /* neither user nor kernel stack could be read: counted without frames */
	NT_HOT_LOSSES,
};

/*
 * A sample of what a task was doing: followed by kernel_bytes of addresses and by
 * user_bytes of struct bpf_stack_build_id, innermost first.
 */
struct nt_hot {
	__u32 pid; /* thread group */
	__u32 tid;
	__u64 leader_start_ns; /* (pid, leader_start_ns) is a process */
	__u64 cgroup_id;
	char comm[16]; /* of the thread group's leader */
	__u32 kernel_bytes;
	__u32 user_bytes;
};

/* Bytes of code in a sample of memory use: as many as NT_ACCESS_BEFORE end at the instruction. */
#define NT_ACCESS_CODE 128
#if defined(__TARGET_ARCH_arm64)
#define NT_ACCESS_BEFORE 32
#define NT_ACCESS_FROM 64
#else
#define NT_ACCESS_BEFORE 48
#define NT_ACCESS_FROM 80
#endif

/* Registers in it: those of struct user_pt_regs on arm64; on x86 those of pt_regs, and the base of fs. */
#define NT_ACCESS_WORDS_ARM64 34
#define NT_ACCESS_WORDS_X86 22

/* Bytes of the stack in it, on x86: below its pointer, for functions that call no others, and above. */
#define NT_ACCESS_RED_ZONE 128
#define NT_ACCESS_ABOVE 896

/* Flags of a sample of memory use. */
enum nt_access_flags {
	NT_ACCESS_KERNEL = 1, /* it was in the kernel: nothing follows */
	NT_ACCESS_AHEAD = 2,  /* code from the instruction on could be read */
	NT_ACCESS_BEHIND = 4, /* code in front of it, too */
	NT_ACCESS_EVENT = 8,  /* a struct nt_access_event, of which these are known: */
	NT_ACCESS_ADDRESS = 16,
	NT_ACCESS_PHYSICAL = 32,
	NT_ACCESS_SOURCE = 64,
	NT_ACCESS_WEIGHT = 128,
	NT_ACCESS_STACK = 256, /* the top of the stack follows */
	NT_ACCESS_TOUCH = 512, /* a struct nt_access_touch */
};

/* Causes of a missing sample of memory use. Indexes access_lost; names are in wire.rs. */
enum nt_access_loss {
	NT_ACCESS_RING_FULL,  /* user space did not empty the ring in time */
	NT_ACCESS_RING_BUSY,  /* the ring was locked by what the sample interrupted */
	NT_ACCESS_TOUCH_LOST, /* the same of first touches */
	NT_ACCESS_LOSSES,
};

/* A sample of memory use: followed by NT_ACCESS_CODE bytes of code, by registers, and on x86 by a part of the stack. */
struct nt_access {
	__u32 pid; /* thread group */
	__u32 tid;
	__u64 leader_start_ns; /* (pid, leader_start_ns) is a process */
	__u32 cpu;
	__u32 flags; /* enum nt_access_flags */
};

/* Processes that are sampled at most where not all are. */
#define NT_ACCESS_CHOSEN 64

/* A process that is sampled where not all are. */
struct nt_access_process {
	__u32 pid;
	__u32 zero;
	__u64 leader_start_ns;
};

/* An access that an event sampled: as reported by the PMU's driver or the kernel. */
struct nt_access_event {
	struct nt_access head;
	__u64 address;
	__u64 physical;
	__u64 source; /* union perf_mem_data_src */
	__u64 weight; /* union perf_sample_weight: the lower 32 bits are the latency in cycles */
	__u64 code;   /* address of the instruction in user mode; 0 in the kernel */
};

/* Frames of the stack of a first touch at most. */
#define NT_TOUCH_FRAMES 16

/* First touches of a CPU that are sampled one after the other before they are paced. */
#define NT_TOUCH_BURST 64

/*
 * A page fault that read nothing from a disk: a page is touched for the first time, or again after NUMA balancing took
 * it away. Followed by stack_bytes of addresses, innermost first.
 */
struct nt_access_touch {
	struct nt_access head;
	__u64 address;
	__u64 caller;      /* the innermost function returns to it if it has put nothing on the stack; 0: not known */
	__u64 call;        /* the 8 bytes of code in front of that */
	__u64 faults;      /* of the thread so far that read nothing from a disk, with this one */
	__u64 hint_faults; /* another number after each hint fault of the thread; 0: none since they were cleared */
	__u32 stack_bytes;
	__u32 zero;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct nt_access) == 24, "nt_access");
_Static_assert(sizeof(struct nt_access_event) == 64, "nt_access_event");
_Static_assert(sizeof(struct nt_access_touch) == 72, "nt_access_touch");
_Static_assert(sizeof(struct nt_access_process) == 16, "nt_access_process");
_Static_assert(sizeof(struct nt_hot) == 48, "nt_hot");
_Static_assert(sizeof(struct nt_alloc_pace) == 64, "nt_alloc_pace");
_Static_assert(sizeof(struct nt_cpu_topo) == 32, "nt_cpu_topo");
_Static_assert(sizeof(struct nt_cpu) == 64 + 64 + 6 * 64, "nt_cpu");
_Static_assert(sizeof(struct nt_moves) == 64, "nt_moves");
_Static_assert(sizeof(struct nt_cpu) % 16 == 0, "nt_cpu alignment");
_Static_assert(sizeof(struct nt_rec) == 48 + 64 + 8 * NT_NR_COUNTERS + 3 * 64, "nt_rec");
_Static_assert(sizeof(struct nt_cpu_hints) == 16, "nt_cpu_hints");
_Static_assert(sizeof(struct nt_reclaim) == 32, "nt_reclaim");
_Static_assert(sizeof(struct nt_disk_key) == 24, "nt_disk_key");
_Static_assert(sizeof(struct nt_disk_use) == 16, "nt_disk_use");
_Static_assert(sizeof(struct nt_socket_key) == 24, "nt_socket_key");
_Static_assert(sizeof(struct nt_socket_use) == 24, "nt_socket_use");
_Static_assert(sizeof(struct nt_majors) == 512, "nt_majors");
_Static_assert(sizeof(struct nt_open_file) == 16, "nt_open_file");
_Static_assert(sizeof(struct nt_policy_row) == 48, "nt_policy_row");
_Static_assert(sizeof(struct nt_draw) == 24 + 10 * NT_DRAW_PAGES, "nt_draw");
_Static_assert(sizeof(struct nt_node_counts) == 16, "nt_node_counts");
_Static_assert(sizeof(struct nt_task) == 192 + 8 * NT_NR_LIFETIME, "nt_task");
_Static_assert(sizeof(struct nt_mask_part) == 16, "nt_mask_part");
_Static_assert(sizeof(struct nt_scope_key) == 16, "nt_scope_key");
#endif

#endif /* NUMATOP_H */
