// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The life of a record. It is made when its task is born, when the task is moved into a watched cgroup, or at
 * the first walk (for tasks older than the tool). A walk over all threads, or over a list of recent ones,
 * emits the rows of tasks that changed. sched.bpf.c sees the end of a task, at its last switch.
 */
#include "rows.bpf.h"
#include "target.bpf.h"

/* Walks so far, counted by user space. The first looks at every task. */
__u32 walks = 0;
__u64 next_serial = 0;
/* Something was done to tasks that could not all be marked: the next walk must look at every one. */
__u32 look_at_all = 0;
/* Set for a walk that hands out tasks in which nothing changed, too: user space lost the end of some. */
__u32 tell_all = 0;

/* Only while the task is alive: its parent and leader may be gone before it is freed. */
static inline void note_family(struct nt_rec *rec, struct task_struct *task)
{
	rec->ppid = BPF_CORE_READ(task, real_parent, tgid);
	rec->leader_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
}

/* The CPU that it runs on may have found it outside when it came in, and would not ask again. */
static inline void ask_again(struct task_struct *task)
{
	__u32 id = task->thread_info.cpu;
	struct nt_cpu *cpu = bpf_map_lookup_elem(&cpus, &id);

	if (cpu)
		__sync_val_compare_and_swap(&cpu->state, NT_CPU_OUTSIDE, NT_CPU_UNCOUNTED);
}

/*
 * Tasks whose record could not be made at once, and the CPU time they had used by then; the next walk makes
 * it. Task storage comes from a small reserve of the CPU, which starts with one piece and is refilled by an
 * interrupt. A process is moved with interrupts off, all its threads in one go (bpf_mem_alloc of
 * kernel/bpf/memalloc.c).
 */
struct nt_late {
	__u64 start_ns;
	__u32 tid;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nt_late);
	__type(value, __u64);
} late SEC(".maps");

__u32 nr_late = 0;

static inline bool make_it_later(struct task_struct *task, __u64 exec_seen_ns)
{
	struct nt_late key = { .start_ns = task->start_boottime, .tid = task->pid };

	/* Counted first, so that take_late() on another CPU does not read zero. */
	__sync_fetch_and_add(&nr_late, 1);
	if (bpf_map_update_elem(&late, &key, &exec_seen_ns, BPF_NOEXIST)) {
		__sync_fetch_and_add(&nr_late, -1);
		if (!bpf_map_lookup_elem(&late, &key))
			return false;
	}
	nt_mark_dirty(task->pid);
	return true;
}

/* Removes a task from the late ones. Sets `exec_seen_ns` to its CPU time when its record was first wanted. */
static inline bool take_late(struct task_struct *task, __u64 *exec_seen_ns)
{
	struct nt_late key = { .start_ns = task->start_boottime, .tid = task->pid };
	__u64 *then;

	if (!nr_late)
		return false;
	then = bpf_map_lookup_elem(&late, &key);
	if (!then)
		return false;
	*exec_seen_ns = *then;
	if (!bpf_map_delete_elem(&late, &key))
		__sync_fetch_and_add(&nr_late, -1);
	return true;
}

static inline void lose_rec(void)
{
	struct nt_cpu *cpu = nt_this_cpu();

	if (cpu)
		nt_count_loss(cpu, NT_LOST_STORAGE);
}

static inline struct nt_rec *make_rec(struct task_struct *task, __u64 exec_seen_ns)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);

	/*
	 * It was here before and left: what it does now is another row. Only one CPU may do this, as the next one
	 * would delete what the first has made.
	 */
	if (rec && rec->final == NT_FINAL_LEFT &&
	    __sync_val_compare_and_swap(&rec->final, NT_FINAL_LEFT, NT_FINAL_NONE) == NT_FINAL_LEFT &&
	    bpf_task_storage_delete(&task_recs, task)) {
		if (!make_it_later(task, exec_seen_ns))
			lose_rec();
		rec->final = NT_FINAL_LEFT;
		return NULL;
	}
	rec = bpf_task_storage_get(&task_recs, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* The walk and the birth of a task may create it at once: one of them gets NULL. */
	if (!rec)
		rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	if (!rec) {
		if (!make_it_later(task, exec_seen_ns))
			lose_rec();
		return NULL;
	}
	/* Only one of them fills it. */
	if (rec->serial || __sync_val_compare_and_swap(&rec->serial, 0, __sync_fetch_and_add(&next_serial, 1) + 1))
		return rec;
	rec->last_cpu = ~0U;
	note_family(rec, task);
	take_late(task, &exec_seen_ns);
	rec->exec_seen_ns = exec_seen_ns;
	nt_begin_hints(rec, task);
	nt_publish_scope(rec, NT_REC_INSIDE);
	ask_again(task);
	return rec;
}

/*
 * It was moved out and came back before user space was notified of either. The gap is stored before the end
 * is cleared, by an exchange. A CPU that sees them in the other order charges the gap, and deducts it from
 * the next stretch.
 */
static inline void come_back(struct nt_rec *rec, struct task_struct *task)
{
	__u64 exec_ns = task->se.sum_exec_runtime;

	if (exec_ns > rec->scope_end_ns)
		__sync_fetch_and_add(&rec->scope_gap_ns, exec_ns - rec->scope_end_ns);
	__sync_lock_test_and_set(&rec->scope_end_ns, 0);
}

const volatile __u32 nr_cpus = 1; /* possible CPUs: a mask of so many is of all nodes */

/*
 * CPUs of nodes as parts of the words of a CPU mask: of its first word, and of the others. Written by user
 * space between walks, before the first and on hotplug. Without parts no node is known.
 */
struct nt_mask_part first_parts[NT_MASK_FIRST] = {};
struct nt_mask_part other_parts[NT_MASK_OTHERS] = {};
__u32 nr_first_parts = 0;
__u32 nr_other_parts = 0;
__u64 all_nodes = 0; /* nodes with CPUs */

/* The bit of the node if the word has a CPU of the part. Without a branch, which the verifier would look at both ways. */
static inline __u64 node_of_part(const struct nt_mask_part *part, __u64 word)
{
	__u64 has = word & part->cpus, negative = -has;

	/* Otherwise the compiler turns it into a comparison. */
	barrier_var(negative);
	return (has | negative) >> 63 << (part->node & 63);
}

/*
 * Nodes with a CPU in a mask, given as its first word and the address of all words as a number: older
 * verifiers know only constant offsets into a structure. A global function, so that the verifier checks it
 * once, independent of the code after each call. Before 6.2 it compares all numbers of programs that call
 * functions (be2ef8161572 marks the relevant ones), and no two exits have equal ones.
 */
__noinline __u64 nodes_of_mask(__u64 word, __u64 words)
{
	__u64 nodes = 0;
	__u32 i;

	for (i = 0; i < NT_MASK_FIRST; i++) {
		if (i >= nr_first_parts)
			break;
		nodes |= node_of_part(&first_parts[i], word);
	}
	if (!nr_other_parts)
		return nodes;
	for (i = 0; i < NT_MASK_OTHERS; i++) {
		if (i >= nr_other_parts)
			break;
		/* The word is 0 where it cannot be read. */
		bpf_probe_read_kernel(&word, sizeof(word), (void *)(words + other_parts[i].word % NT_MASK_WORDS * 8));
		nodes |= node_of_part(&other_parts[i], word);
	}
	return nodes;
}

/* Nodes with a CPU that it may use. Most tasks may use all: their masks are not looked at. */
static inline __u64 cpu_nodes_of(struct task_struct *task)
{
	const struct cpumask *mask;

	if ((__u32)task->nr_cpus_allowed >= nr_cpus)
		return all_nodes;
	mask = BPF_CORE_READ(task, cpus_ptr);
	return nodes_of_mask(BPF_CORE_READ(mask, bits[0]), (__u64)mask);
}

#define MIX(h, v) (((h) ^ (__u64)(v)) * 0x9e3779b97f4a7c15ULL)

/* Two rows with the same signature say the same: 64 bits, so a mistake needs 2^32 changes of one task. */
static inline __u64 signature(const struct nt_task *row)
{
	const __u64 *word = (const __u64 *)row;
	__u64 h = 0;
	int i;

#pragma unroll
	for (i = 0; i < (int)(sizeof(*row) / 8); i++)
		h = MIX(h, word[i]) ^ (h >> 29);
	return h;
}

/*
 * A task that did not run has done nothing, but others may have done something to it. Tasks that were moved
 * to another cgroup are marked. For other changes (reniced, adopted) each is visited in every eighth walk. A
 * walk over all tasks follows this rule; for a short walk user space lists an eighth of the tasks that it
 * knows. The record and most of the task structure are in no cache: do not touch them without need.
 */
static inline bool nothing_new(struct task_struct *task, const __u8 *mark)
{
	return walks && mark && !*mark && (task->pid + walks) % NT_LOOK_EVERY && task->__state != TASK_RUNNING;
}

/* Elements of the table of marks in which a task was found by the last walk over all, or born since. */
__u8 used_marks[NT_MARKS_MAX] = {};
/* A task has an id that is not in the table: only a walk over all tasks finds it. */
__u32 is_above_marks = 0;
/* Tasks of the last walk over all, in scope or not. A task that did not fit into the buffer at first
 * counts twice. */
__u32 nr_walked = 0;

static inline void note_marks_used(__u32 tid, const __u8 *mark)
{
	__u32 at = tid / NT_MARKS;

	if (!mark || at >= NT_MARKS_MAX) {
		is_above_marks = 1;
		return;
	}
	if (!used_marks[at])
		used_marks[at] = 1;
}

/* Before we look: changes that come meanwhile are for the next walk. */
static inline void take_mark(__u8 *mark)
{
	if (mark)
		*mark = 0;
}

/*
 * Fills the row of a task in which something changed, and its signature. NULL if nothing is to be sent.
 * note_sent() follows once the row has gone to user space.
 */
static __always_inline struct nt_rec *changed(struct task_struct *task, bool wanted, struct nt_task *row, __u64 *sig)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);

	if (!rec || (wanted && rec->final == NT_FINAL_LEFT)) {
		if (!wanted)
			return NULL;
		rec = make_rec(task, task->se.sum_exec_runtime);
		if (!rec) {
			/* Also if no late entry could be stored: the next walk tries again. */
			nt_mark_dirty(task->pid);
			return NULL;
		}
	}
	if (rec->final == NT_FINAL_ENDED)
		return NULL;
	if (!nt_scope_of(rec)) {
		/* It is being made on another CPU: for the next walk. */
		if (wanted)
			nt_mark_dirty(task->pid);
		return NULL;
	}
	if (wanted && rec->scope_end_ns)
		come_back(rec, task);
	note_family(rec, task);
	nt_add_hints(rec, task);
	nt_describe(row, task, rec);
	row->cpu_nodes = cpu_nodes_of(task);
	row->mem_nodes = nt_mems_allowed(task);
	if (!wanted)
		row->flags |= NT_ROW_LEFT;
	/* A later look at a sleeping task may still find hinting faults. */
	*sig = MIX(MIX(signature(row), rec->exec_seen_ns), rec->counters[NT_HINT_FAULTS]);
	return *sig == rec->sent && !tell_all ? NULL : rec;
}

static inline void note_sent(struct nt_rec *rec, bool wanted, __u64 sig)
{
	rec->sent = sig;
	if (wanted)
		return;
	rec->in_scope = 0;
	/* After that for every CPU: one that sees it may put another record in its place. */
	__sync_lock_test_and_set(&rec->final, NT_FINAL_LEFT);
}

/*
 * The walk over all tasks. When the buffer overflows, the kernel drops the whole row and calls the program
 * again for the same task. The row does not count as sent then.
 */
SEC("iter/task")
int on_task_walk(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct nt_task row;
	struct nt_rec *rec;
	bool wanted;
	__u8 *mark;
	__u64 sig;

	if (!task)
		return 0;
	nr_walked++;
	mark = nt_mark_of(task->pid);
	note_marks_used(task->pid, mark);
	if (nothing_new(task, mark))
		return 0;
	take_mark(mark);
	wanted = nt_wanted(task);
	rec = changed(task, wanted, &row, &sig);
	if (!rec)
		return 0;
	if (bpf_seq_write(seq, &row, sizeof(row)) || bpf_seq_write(seq, rec, rec_size))
		nt_mark_dirty(task->pid);
	else
		note_sent(rec, wanted, sig);
	return 0;
}

/* Ids of the threads that the short walk is for, written by user space before it. The walk ends by setting it to 0. */
__u32 listed[NT_LIST_MAX] = {};
__u32 nr_listed = 0;

/* Rows of the short walk, each with its record behind it. User space sets the size of an element, and maps it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NT_LIST_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct nt_task) + sizeof(struct nt_rec));
} listed_rows SEC(".maps");

__u32 nr_listed_rows = 0;

/* The mark is removed before its task is looked up. So a new task that reuses the id can still set it. */
static long on_listed(__u32 at, void *unused)
{
	__u32 to = nr_listed_rows, tid;
	struct task_struct *task;
	struct nt_task *row;
	struct nt_rec *rec;
	bool wanted;
	__u8 *mark;
	__u64 sig;

	row = bpf_map_lookup_elem(&listed_rows, &to);
	if (!row || at >= NT_LIST_MAX)
		return 1;
	tid = listed[at];
	mark = nt_mark_of(tid);
	task = bpf_task_from_pid(tid);
	if (!task && mark) {
		*mark = 0;
		task = bpf_task_from_pid(tid);
	}
	if (!task)
		return 0;
	take_mark(mark);
	wanted = nt_wanted(task);
	rec = changed(task, wanted, row, &sig);
	if (rec) {
		bpf_probe_read_kernel(row + 1, rec_size, rec);
		nr_listed_rows = to + 1;
		note_sent(rec, wanted, sig);
	}
	bpf_task_release(task);
	return 0;
}

/*
 * The short walk: over tasks that user space lists, because they are marked or due. An iterator over one
 * thread of numatop-ng calls it once, inside an RCU section, in which all sources of a row may be read.
 */
SEC("iter/task")
int on_list_walk(struct bpf_iter__task *ctx)
{
	if (!ctx->task)
		return 0;
	bpf_loop(nr_listed < NT_LIST_MAX ? nr_listed : NT_LIST_MAX, on_listed, NULL, 0);
	nr_listed = 0;
	return 0;
}

/* Threads that were born into a tree. */
__u64 tree_births = 0;
/* Threads that the last walk over trees added. */
__u32 nr_enrolled = 0;

/* Its maker decides, not its parent: that is another task with CLONE_PARENT, and changes when it ends. */
static inline void inherit_tree(struct task_struct *task)
{
	if (nt_in_tree((__u32)bpf_get_current_pid_tgid())) {
		nt_join_tree(task->pid);
		__sync_fetch_and_add(&tree_births, 1);
	} else {
		nt_leave_tree(task->pid);
	}
}

/*
 * Makes members of the root processes of trees and of their existing descendants. User space repeats it until
 * a walk finds no new member, because a child may have a lower id than its parent. Root processes are named
 * by their ids in the pid namespace of user space; all else here uses ids of the machine.
 */
SEC("iter/task")
int on_tree_walk(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 process;

	if (!task || nt_in_tree(task->pid))
		return 0;
	process = nt_process_id_for(bpf_get_current_task_btf(), task);
	if (nt_has_id(NT_SCOPE_TREE, process) || nt_in_tree(BPF_CORE_READ(task, real_parent, pid)) ||
	    nt_in_tree(task->tgid)) {
		if (nt_join_tree(task->pid))
			nr_enrolled++;
	}
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_task_newtask, struct task_struct *task, unsigned long clone_flags)
{
	if (follow_trees)
		inherit_tree(task);
	note_marks_used(task->pid, nt_mark_of(task->pid));
	nt_mark_dirty(task->pid);
	if (nt_wanted(task))
		make_rec(task, task->se.sum_exec_runtime);
	return 0;
}

/*
 * Decided at the move itself, so that each side is charged its own part of the
 * interval. The task may be running elsewhere: its CPU charges it, up to here.
 */
static inline void note_cgroup_move(struct task_struct *task, bool wanted)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	bool inside = rec && rec->in_scope;
	__u64 seen_ns;

	if (rec && rec->final == NT_FINAL_ENDED)
		return;
	nt_mark_dirty(task->pid);
	if (!wanted) {
		/* Also if another CPU made a record meanwhile: coming back, it would be charged from then. */
		bool was_late = take_late(task, &seen_ns);

		/* A task that never ran has nothing to be charged: any end will do. */
		if (inside && !rec->scope_end_ns) {
			rec->scope_end_ns = task->se.sum_exec_runtime | !task->se.sum_exec_runtime;
			nt_publish_scope(rec, NT_REC_INSIDE | NT_REC_CROSSED);
		}
		/* In and out again, and no walk has seen it. */
		if (!inside && was_late)
			lose_rec();
	} else if (!inside) {
		make_rec(task, task->se.sum_exec_runtime);
	} else if (rec->scope_end_ns) {
		come_back(rec, task);
	}
}

/* `task` is in its new cgroup already; with `threadgroup` all threads of its process are. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_cgroup_attach_task, struct cgroup *to, const char *path, struct task_struct *task, bool threadgroup)
{
	struct bpf_iter_task it;
	struct task_struct *thread;
	/* All threads are in the same cgroup now; asked in the loop, it would be too much for the verifier of 6.12. */
	bool wanted = nt_wanted_by_cgroup(task);

	/* Before 6.7 other threads of the process wait for the next walk. */
	if (!threadgroup || !bpf_ksym_exists(bpf_iter_task_new)) {
		if (threadgroup)
			look_at_all = 1;
		note_cgroup_move(task, wanted && nt_wanted_by_id(task));
		return 0;
	}
	bpf_iter_task_new(&it, task, NT_ITER_PROC_THREADS);
	while ((thread = bpf_iter_task_next(&it)))
		note_cgroup_move(thread, wanted && nt_wanted_by_id(thread));
	bpf_iter_task_destroy(&it);
	return 0;
}

/* Goes up when cgroups come, go or get another name: user space reads their tree again. */
__u32 cgroup_changes = 0;

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(on_cgroup_mkdir)
{
	__sync_fetch_and_add(&cgroup_changes, 1);
	return 0;
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(on_cgroup_rmdir)
{
	__sync_fetch_and_add(&cgroup_changes, 1);
	return 0;
}

SEC("tp_btf/cgroup_rename")
int BPF_PROG(on_cgroup_rename)
{
	__sync_fetch_and_add(&cgroup_changes, 1);
	return 0;
}

/*
 * For tasks whose last switch was not seen (see on_sched_switch): nothing is
 * left to be counted when the task structure is freed.
 */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_sched_process_free, struct task_struct *task)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	__u64 seen_ns;

	if (rec && nt_is_known(rec))
		nt_report_end(task, rec);
	/* If it has no record: no walk came in time to make one. */
	if (take_late(task, &seen_ns) && !rec)
		lose_rec();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
