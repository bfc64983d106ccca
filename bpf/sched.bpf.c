// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Who is charged for a stretch of CPU time: at each context switch the task
 * that leaves the CPU gets its on-CPU time by node, its moves between caches
 * and nodes, the time its SMT siblings were busy, and the perf counters.
 *
 * This is the hot path of the whole tool. No clock is read (the scheduler has
 * just brought se.sum_exec_runtime up to date), nothing is allocated, and
 * helpers are called only for the task's record and for open counters.
 */
#include "pairs.bpf.h"
#include "rows.bpf.h"

/* Set by user space before load. */
const volatile __u32 nr_cpus = 1; /* possible CPUs: row length of the events table */
const volatile bool has_smt = false;
const volatile bool by_node = false; /* counts by node are in the record */
/* Slots whose counts are kept by node or by what the SMT siblings did; ~0: none. */
const volatile __u32 cycles_slot = ~0U;
const volatile __u32 instructions_slot = ~0U;

/* Set by user space at any time. */
__u32 scoped = 0;      /* enum nt_scoped */
__u32 nr_slots = 0;    /* counters in use */
__u32 read_scaled = 0; /* counters are multiplexed: read enabled and running times too */

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} events SEC(".maps");

/*
 * One word per core: in the top four bits how many of its threads are busy; in
 * the rest either the time during which at least two were (while fewer are),
 * or the moment minus that time (while they are). So the clock "both busy" is
 * read at any moment with one load, and changed with one compare-and-swap.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cores SEC(".maps");

#define BUSY_SHIFT 60
#define CLOCK_MASK ((1ULL << BUSY_SHIFT) - 1)
#define SMT_TRIES 16 /* as many siblings as any core has, twice over */

static inline __u64 both_busy_ns(__u64 word, __u64 now)
{
	__u64 clock = word & CLOCK_MASK;

	return (word >> BUSY_SHIFT) >= 2 ? now - clock : clock;
}

/*
 * Note that this CPU became busy (or idle) and return its core's both-busy clock. `now` may be 0: the
 * time is then read if it is needed.
 */
static inline __u64 smt_clock(struct nt_cpu *cpu, __u32 core, bool busy, __u64 now)
{
	__u64 *word = bpf_map_lookup_elem(&cores, &core);
	__u64 old, seen, threads, clock;
	int i;

	if (!word)
		return 0;
	old = *(volatile __u64 *)word;
	if (busy == !!cpu->in_busy) {
		if ((old >> BUSY_SHIFT) >= 2 && !now)
			now = bpf_ktime_get_ns();
		return both_busy_ns(old, now);
	}
	if (!now)
		now = bpf_ktime_get_ns();
	for (i = 0; i < SMT_TRIES; i++) {
		clock = both_busy_ns(old, now);
		threads = old >> BUSY_SHIFT;
		threads = busy ? threads + 1 : threads - 1;
		seen = __sync_val_compare_and_swap(
			word, old, threads << BUSY_SHIFT | ((threads >= 2 ? now - clock : clock) & CLOCK_MASK));
		if (seen == old) {
			cpu->in_busy = busy;
			return clock;
		}
		old = seen;
	}
	nt_count_loss(cpu, NT_LOST_SMT);
	return both_busy_ns(old, now);
}

/*
 * Where the counts of a task on a node are kept. Between two switches a task is on one
 * CPU, and so on one node: nothing has to be guessed.
 */
static inline struct nt_node_counts *node_counts(struct nt_rec *rec, __u32 node)
{
	if (!by_node || node >= nr_nodes)
		return NULL;
	return (struct nt_node_counts *)&rec->run_ns[nr_nodes] + node;
}

/* Where the counts of a stretch are kept in which the siblings did one thing; behind those by node. */
static inline struct nt_node_counts *sibling_counts(struct nt_rec *rec, enum nt_siblings siblings)
{
	struct nt_node_counts *first = (struct nt_node_counts *)&rec->run_ns[nr_nodes];

	if (!by_sibling || siblings >= NT_SIBLINGS)
		return NULL;
	if (by_node)
		first += nr_nodes;
	return siblings == NT_SIBLING_BUSY ? first + NT_SIBLING_BUSY : first;
}

/*
 * What the siblings did for (nearly) all of a stretch. They start and stop in the
 * middle of it, and then nobody reads our counters: what they did for a part of it
 * only cannot be told from the rest. A twentieth is let pass, or the tick of an idle
 * sibling would spoil every long stretch. Both times are of one clock: the task's own CPU time
 * stands still between two ticks and in interrupts, and short stretches would seem to be idle ones.
 */
static inline enum nt_siblings siblings_in(__u64 wall_ns, __u64 both_ns)
{
	if (both_ns * 20 <= wall_ns)
		return NT_SIBLING_IDLE;
	return both_ns * 20 >= wall_ns * 19 ? NT_SIBLING_BUSY : NT_SIBLING_MIXED;
}

/* One slot of a task went up. */
static inline void charge_parts(struct nt_rec *rec, __u32 slot, __u64 delta, __u32 node, enum nt_siblings siblings)
{
	struct nt_node_counts *here;

	if (slot == cycles_slot) {
		here = node_counts(rec, node);
		if (here)
			here->cycles += delta;
		here = sibling_counts(rec, siblings);
		if (here)
			here->cycles += delta;
	} else if (slot == instructions_slot) {
		here = node_counts(rec, node);
		if (here)
			here->instructions += delta;
		here = sibling_counts(rec, siblings);
		if (here)
			here->instructions += delta;
	}
}

/* Bring the counters of this CPU up to date; what has been counted goes to rec (if any). */
static inline void charge_counters(struct nt_cpu *cpu, __u32 cpu_id, const struct nt_place *place, struct nt_rec *rec,
				   bool busy, enum nt_siblings siblings)
{
	struct bpf_perf_event_value v;
	__u32 node = place->node;
	__u64 delta;
	__s64 err;
	__u32 i;

	if (cpu->opened != place->opened) {
		cpu->opened = place->opened;
		cpu->slots_valid = 0;
	}
	for (i = 0; i < NT_SLOTS; i++) {
		if (i >= nr_slots)
			break;
		if (!(place->slots & (1 << i)))
			continue;
		if (read_scaled) {
			err = bpf_perf_event_read_value(&events, i * nr_cpus + cpu_id, &v, sizeof(v));
		} else {
			v.counter = bpf_perf_event_read(&events, i * nr_cpus + cpu_id);
			v.enabled = 0;
			v.running = 0;
			/* The old helper returns errors in band. */
			err = v.counter >= (__u64)-4095 ? -1 : 0;
		}
		if (err) {
			cpu->slots_valid &= ~(1 << i);
			nt_count_loss(cpu, NT_LOST_COUNTER);
			continue;
		}
		if (cpu->slots_valid & (1 << i)) {
			if (v.counter < cpu->slot_last[i]) {
				nt_count_loss(cpu, NT_LOST_BACKWARDS);
			} else if (busy) {
				delta = v.counter - cpu->slot_last[i];
				cpu->slot_total[i] += delta;
				if (rec) {
					rec->slot[i] += delta;
					charge_parts(rec, i, delta, node, siblings);
					if (read_scaled && cpu->slot_last_enabled[i]) {
						rec->slot_enabled_ns[i] += v.enabled - cpu->slot_last_enabled[i];
						rec->slot_running_ns[i] += v.running - cpu->slot_last_running[i];
					}
				}
			}
		}
		cpu->slot_last[i] = v.counter;
		cpu->slot_last_enabled[i] = v.enabled;
		cpu->slot_last_running[i] = v.running;
		cpu->slots_valid |= 1 << i;
	}
}

/*
 * Charge on-CPU time up to now to the node of this CPU, and note where the task is.
 * Returns the time charged.
 */
static inline __u64 charge_time(struct nt_rec *rec, __u64 exec_ns, __u32 cpu_id, const struct nt_place *place)
{
	__u64 end = 0, gap = 0, delta;
	__u32 node = place->node;

	if (rec->in_scope == NT_CROSSED) {
		end = rec->scope_end_ns;
		gap = rec->scope_gap_ns;
	}
	if (end && exec_ns > end)
		exec_ns = end;
	delta = exec_ns - rec->exec_seen_ns - gap;
	/* The scheduler's clock of a CPU that was just stopped may stand a little behind: never go back. */
	if ((__s64)delta < 0) {
		delta = 0;
	} else {
		rec->exec_seen_ns = exec_ns;
		if (gap)
			__sync_fetch_and_add(&rec->scope_gap_ns, -gap);
	}
	if (node < nr_nodes)
		rec->run_ns[node] += delta;
	if (rec->last_cpu != cpu_id) {
		__u32 from = rec->last_cpu;
		struct nt_place *last = bpf_map_lookup_elem(&places, &from);

		if (last) {
			if (last->llc != place->llc)
				rec->counters[NT_LLC_MOVES]++;
			if (last->node != place->node) {
				rec->counters[NT_NODE_MOVES]++;
				nt_add_moves(nr_nodes, last->node, place->node, 1);
			}
		}
		rec->last_cpu = cpu_id;
	}
	return delta;
}

/*
 * `task` has been running on this CPU until now. With `next`, another task runs
 * from now on; without, the same one goes on (flush).
 */
static inline int account(struct task_struct *task, struct task_struct *next)
{
	__u32 cpu_id = bpf_get_smp_processor_id();
	struct nt_cpu *cpu = bpf_map_lookup_elem(&cpus, &cpu_id);
	struct nt_place *place = NULL;
	bool busy = task->pid != 0, next_busy, wanted_next, seen_in, known;
	__u64 exec_ns = task->se.sum_exec_runtime, charged = 0, clock, now = 0, shared = 0;
	enum nt_siblings siblings = NT_SIBLING_MIXED;
	struct nt_rec *rec = NULL;

	if (!cpu)
		return 0;
	/*
	 * Did we see this task come in? Not the first one of a CPU, and not after a switch
	 * that the kernel did not trace (a guest was seen that hides those of some tasks).
	 */
	seen_in = cpu->in_valid && cpu->in_pid == (__u32)task->pid;
	if (busy) {
		/* One look-up a switch is enough where both tasks are outside. A flush asks in any case. */
		if (!(next && seen_in && cpu->in_outside))
			rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
		if (rec && !rec->in_scope)
			rec = NULL;
		if (rec || scoped != NT_SCOPED_BY_CGROUP)
			nt_mark(task->pid);
		if (rec) {
			place = bpf_map_lookup_elem(&places, &cpu_id);
			if (!place)
				return 0;
			charged = charge_time(rec, exec_ns, cpu_id, place);
		}
		/* With a scope a task may be charged a part of what it ran: the CPU was busy for all of it. */
		if (rec && !scoped)
			cpu->busy_ns += charged;
		else if (seen_in && exec_ns > cpu->in_exec_ns)
			cpu->busy_ns += exec_ns - cpu->in_exec_ns;
		/* What it did after it left the scope cannot be told from what it did before: neither counts. */
		if (rec && rec->in_scope == NT_CROSSED && rec->scope_end_ns)
			rec = NULL;
	}
	if (next) {
		cpu->switches++;
		next_busy = next->pid != 0;
		cpu->in_exec_ns = next->se.sum_exec_runtime;
		cpu->in_pid = next->pid;
		cpu->in_outside = 0;
	} else {
		if (rec)
			cpu->in_outside = 0;
		next_busy = busy;
		cpu->in_exec_ns = exec_ns;
		cpu->in_pid = task->pid;
	}
	if (has_smt) {
		if (!place)
			place = bpf_map_lookup_elem(&places, &cpu_id);
		if (!place)
			return 0;
		/* Busy on a core, idle on another: until user space said which, this CPU is on none. */
		if (place->opened) {
			if (by_sibling)
				now = bpf_ktime_get_ns();
			clock = smt_clock(cpu, place->core, next_busy, now);
			/* CPUs may disagree by nanoseconds on the time: never subtract those. */
			if (clock > cpu->in_smt_ns)
				shared = clock - cpu->in_smt_ns;
			if (rec && seen_in)
				rec->counters[NT_SMT_BUSY_NS] += shared;
			if (by_sibling && cpu->in_ns)
				siblings = siblings_in(now - cpu->in_ns, shared);
			cpu->in_smt_ns = clock;
			cpu->in_ns = now;
		}
	}
	known = cpu->in_valid;
	cpu->in_valid = 1;
	if (!nr_slots)
		return 0;
	/* What was counted since another task came in is not this one's: better nobody's than a wrong one's. */
	if (rec && !seen_in) {
		if (known)
			nt_count_loss(cpu, NT_LOST_SWITCH);
		rec = NULL;
		busy = false;
	}
	/* The counters run on in any case, so a boundary between two tasks that nobody asked for can be skipped. */
	wanted_next = next_busy;
	if (scoped && !rec && next && next_busy) {
		struct nt_rec *next_rec = bpf_task_storage_get(&task_recs, next, NULL, 0);

		wanted_next = next_rec && next_rec->in_scope;
		cpu->in_outside = !wanted_next;
	}
	if (rec || wanted_next || !scoped) {
		/* A task that came into the scope while it ran: what was counted since is not all its own. */
		if (!cpu->in_counted)
			rec = NULL;
		if (!place)
			place = bpf_map_lookup_elem(&places, &cpu_id);
		if (!place)
			return 0;
		charge_counters(cpu, cpu_id, place, rec, busy, siblings);
		cpu->in_counted = 1;
	} else {
		cpu->in_counted = 0;
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct nt_rec *rec;

	account(prev, next);
	/*
	 * Not at sched_process_exit: a dying task still runs after it. This is its last
	 * switch; what it leaves on the CPU is charged already.
	 */
	if (prev->__state & TASK_DEAD) {
		rec = bpf_task_storage_get(&task_recs, prev, NULL, 0);
		if (rec && nt_is_known(rec))
			nt_report_end(prev, rec);
	}
	return 0;
}

/*
 * Run by user space on each CPU before a read (BPF_PROG_TEST_RUN), because a
 * task that computes without pause never switches.
 */
SEC("raw_tp")
int on_flush(void *ctx)
{
	struct nt_cpu *cpu = nt_this_cpu();
	struct bpf_perf_event_value v;
	__u32 cpu_id = bpf_get_smp_processor_id();
	__u32 i;

	account(bpf_get_current_task_btf(), NULL);
	if (!cpu)
		return 0;
	for (i = 0; i < NT_SLOTS; i++) {
		if (i >= nr_slots)
			break;
		if (bpf_perf_event_read_value(&events, i * nr_cpus + cpu_id, &v, sizeof(v)))
			continue;
		cpu->slot_enabled_ns[i] = v.enabled;
		cpu->slot_running_ns[i] = v.running;
	}
	return 0;
}

#define MEASURED_READS 64

/* What MEASURED_READS reads of all open counters took, ns: of the count, and with the times that scaling needs. */
__u64 count_reads_ns = 0;
__u64 scaled_reads_ns = 0;

/* Run by user space (BPF_PROG_TEST_RUN) when counters were opened on this CPU: is reading them dear here? */
SEC("raw_tp")
int on_measure(void *ctx)
{
	__u32 cpu_id = bpf_get_smp_processor_id();
	struct bpf_perf_event_value v;
	__u64 begin, between;
	__u32 i, n;

	begin = bpf_ktime_get_ns();
	for (n = 0; n < MEASURED_READS; n++) {
		for (i = 0; i < NT_SLOTS; i++) {
			if (i >= nr_slots)
				break;
			bpf_perf_event_read(&events, i * nr_cpus + cpu_id);
		}
	}
	between = bpf_ktime_get_ns();
	for (n = 0; n < MEASURED_READS; n++) {
		for (i = 0; i < NT_SLOTS; i++) {
			if (i >= nr_slots)
				break;
			bpf_perf_event_read_value(&events, i * nr_cpus + cpu_id, &v, sizeof(v));
		}
	}
	scaled_reads_ns = bpf_ktime_get_ns() - between;
	count_reads_ns = between - begin;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
