// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CPU time and counts by task. At each context switch, the outgoing task is charged its on-CPU time by node,
 * its moves between caches and nodes, the time its SMT siblings were busy, and the perf counters.
 *
 * This is the hot path of the whole tool. It reads no clock, since the scheduler has just updated
 * se.sum_exec_runtime. It allocates nothing, and calls helpers only for the task's record and for open
 * counters.
 */
#include "maps.bpf.h"
#include "node_matrix.bpf.h"
#include "rows.bpf.h"

/* Set by user space before load. */
const volatile __u32 nr_cpus = 1; /* possible CPUs: row length of the events table */
const volatile bool has_smt = false;
const volatile bool by_node = false;  /* counts by node are in the record */
const volatile bool by_place = false; /* places are not the nodes: moves between L3 domains and sockets are counted */
/* Slots whose counts are kept by node or by what the SMT siblings did; ~0: none. */
const volatile __u32 cycles_slot = ~0U;
const volatile __u32 instructions_slot = ~0U;

/* Set by user space at any time. */
__u32 scoped = 0;      /* enum nt_scoped */
__u32 nr_slots = 0;    /* counters in use */
__u32 read_scaled = 0; /* counters are multiplexed: read enabled and running times too */

/* The counters in use. NT_SLOTS is the bound that the verifier sees. */
#define nt_for_each_slot(i) for ((i) = 0; (i) < NT_SLOTS && (i) < nr_slots; (i)++)

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} events SEC(".maps");

/*
 * One word per core. The top four bits hold the number of its busy threads. The rest holds the time during
 * which at least two were busy or, while two are, the current moment minus that time. So one load reads the
 * clock "both busy" at any moment, and one compare-and-swap changes it. The words are 64 bytes apart: threads
 * contend for the word of their own core only.
 */
struct nt_core {
	__u64 word;
	__u64 pad[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_core);
} cores SEC(".maps");

/* By CPU, and by place. User space makes them as large as that takes where places are not the nodes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_moves);
} moves_in SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_moves);
} moves_out SEC(".maps");

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
	struct nt_core *state = bpf_map_lookup_elem(&cores, &core);
	__u64 old, seen, threads, clock, *word;
	int i;

	if (!state)
		return 0;
	word = &state->word;
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

/* The counts of a task on a node. Between two switches a task is on one CPU, and so on one node: the split is exact. */
static inline struct nt_node_counts *node_counts(struct nt_rec *rec, __u32 node)
{
	if (!by_node || node >= nr_nodes)
		return NULL;
	return (struct nt_node_counts *)&rec->run_ns[nr_places] + node;
}

/* The counts of stretches in which the siblings did one thing; behind those by node. */
static inline struct nt_node_counts *sibling_counts(struct nt_rec *rec, enum nt_siblings siblings)
{
	struct nt_node_counts *first = (struct nt_node_counts *)&rec->run_ns[nr_places];

	if (!by_sibling || siblings >= NT_SIBLINGS)
		return NULL;
	if (by_node)
		first += nr_nodes;
	return siblings == NT_SIBLING_BUSY ? first + NT_SIBLING_BUSY : first;
}

/*
 * The state of the siblings for (nearly) all of a stretch. No counter is read when they start or stop in the
 * middle of a stretch, so counts of that part cannot be separated. A twentieth is tolerated, or the tick of
 * an idle sibling would spoil every long stretch. Both times are of the same clock. The task's own CPU time
 * does not advance between two ticks and in interrupts, so short stretches would appear idle.
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

/* A part of a CPU's time: `task` has been running since the last switch or flush. */
struct stretch {
	struct task_struct *task;
	struct task_struct *next; /* runs from now on; NULL at a flush: the same task goes on */
	struct nt_cpu *cpu;
	struct nt_cpu_topo *topo;
	struct nt_rec *rec; /* to be charged; NULL: none */
	__u32 scope;        /* of rec: enum nt_in_scope */
	__u32 cpu_id;
	bool busy; /* the task is not the idle task */
	bool next_busy;
	bool seen_in; /* cpu->state and cpu->in_* describe the task */
	enum nt_siblings siblings;
};

/*
 * The record of the task, if it is in the scope. A task that was outside when it came in has no record,
 * unless ask_again() has changed the state since. So a switch between two tasks outside needs only one
 * look-up. A flush always looks.
 */
static __always_inline void find_record(struct stretch *s)
{
	struct nt_rec *rec;

	if (!s->busy || (s->next && s->seen_in && s->cpu->state == NT_CPU_OUTSIDE))
		return;
	rec = bpf_task_storage_get(&task_recs, s->task, NULL, 0);
	if (!rec)
		return;
	s->scope = nt_take_scope(rec);
	if (s->scope)
		s->rec = rec;
}

/*
 * Count a move between two L3 domains or sockets: in and out. It looks up both CPUs again, as a separate function: where places
 * are the nodes, the verifier removes the call, and the switch keeps the registers that it has without it.
 */
static __attribute__((noinline)) void note_place_move(__u32 from, __u32 to)
{
	struct nt_cpu_topo *here = bpf_map_lookup_elem(&cpu_topo, &to);
	struct nt_cpu_topo *last = bpf_map_lookup_elem(&cpu_topo, &from);
	struct nt_moves *into, *left;
	bool llc, socket;
	__u32 place;

	if (!here || !last)
		return;
	llc = last->llc != here->llc;
	socket = last->socket != here->socket;
	if (!llc && !socket)
		return;
	place = last->place;
	into = bpf_map_lookup_elem(&moves_in, &to);
	left = bpf_map_lookup_elem(&moves_out, &place);
	if (!into || !left)
		return;
	if (llc) {
		into->of[NT_SET_LLC]++;
		__sync_fetch_and_add(&left->of[NT_SET_LLC], 1);
	}
	if (socket) {
		into->of[NT_SET_SOCKET]++;
		__sync_fetch_and_add(&left->of[NT_SET_SOCKET], 1);
	}
}

/* Count a move between caches or nodes since the task was charged last. */
static __always_inline void note_move(const struct stretch *s)
{
	__u32 from = s->rec->last_cpu;
	struct nt_cpu_topo *last;

	if (from == s->cpu_id)
		return;
	if (by_place)
		note_place_move(from, s->cpu_id);
	last = bpf_map_lookup_elem(&cpu_topo, &from);
	if (last && last->llc != s->topo->llc)
		s->rec->counters[NT_LLC_MOVES]++;
	if (last && last->node != s->topo->node) {
		s->rec->counters[NT_NODE_MOVES]++;
		nt_add_moves(nr_nodes, last->node, s->topo->node, 1);
	}
	s->rec->last_cpu = s->cpu_id;
}

/* Charge on-CPU time up to now to the place of this CPU, and return it. */
static __always_inline __u64 charge_record(const struct stretch *s, __u64 exec_ns)
{
	struct nt_rec *rec = s->rec;
	__u64 end = 0, gap = 0, delta;

	if (s->scope & NT_REC_CROSSED) {
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
	if (s->topo->place < nr_places)
		rec->run_ns[s->topo->place] += delta;
	return delta;
}

/* Charge the time of the stretch to the task and to the CPU. */
static __always_inline void charge_time(struct stretch *s)
{
	__u64 exec_ns = s->task->se.sum_exec_runtime, charged = 0;

	if (!s->busy)
		return;
	if (s->rec || scoped != NT_SCOPED_BY_CGROUP)
		nt_mark_dirty(s->task->pid);
	if (s->rec) {
		charged = charge_record(s, exec_ns);
		note_move(s);
	}
	/* With a scope, a task may be charged only part of its run; the CPU was busy for all of it. */
	if (s->rec && !scoped) {
		s->cpu->busy_ns += charged;
	} else {
		if (s->rec)
			s->cpu->scope_ns += charged;
		if (s->seen_in && exec_ns > s->cpu->in_exec_ns)
			s->cpu->busy_ns += exec_ns - s->cpu->in_exec_ns;
	}
	/* Counts after it left the scope cannot be separated from those before: neither are charged. */
	if (s->rec && s->scope & NT_REC_CROSSED && s->rec->scope_end_ns)
		s->rec = NULL;
}

/* Charge the time during which the SMT siblings were busy, and say what they did in the stretch. */
static __always_inline void charge_smt(struct stretch *s)
{
	__u64 clock, now = 0, shared = 0;
	struct nt_cpu *cpu = s->cpu;

	/* Busy on one core, idle on another: until user space has set the place of this CPU, it belongs to none. */
	if (!has_smt || !s->topo->opened)
		return;
	if (by_sibling)
		now = bpf_ktime_get_ns();
	clock = smt_clock(cpu, s->topo->core, s->next_busy, now);
	/* CPUs may disagree by nanoseconds on the time: never subtract those. */
	if (clock > cpu->in_smt_ns)
		shared = clock - cpu->in_smt_ns;
	if (s->rec && s->seen_in)
		s->rec->counters[NT_SMT_BUSY_NS] += shared;
	if (by_sibling && cpu->in_ns)
		s->siblings = siblings_in(now - cpu->in_ns, shared);
	cpu->in_smt_ns = clock;
	cpu->in_ns = now;
}

/* Read one counter of this CPU. The times of a count that is not scaled are 0. */
static __always_inline bool read_slot(__u32 index, struct bpf_perf_event_value *v)
{
	if (read_scaled)
		return !bpf_perf_event_read_value(&events, index, v, sizeof(*v));
	v->counter = bpf_perf_event_read(&events, index);
	v->enabled = 0;
	v->running = 0;
	/* The old helper returns errors in band. */
	return v->counter < (__u64)-4095;
}

/* Charge what one counter has counted in the stretch. */
static __always_inline void charge_slot(const struct stretch *s, __u32 slot, const struct bpf_perf_event_value *v)
{
	struct nt_cpu *cpu = s->cpu;
	struct nt_rec *rec = s->rec;
	__u64 delta, enabled, running;

	if (v->counter < cpu->slot_last[slot]) {
		nt_count_loss(cpu, NT_LOST_BACKWARDS);
		return;
	}
	if (!s->busy)
		return;
	delta = v->counter - cpu->slot_last[slot];
	cpu->slot_total[slot] += delta;
	if (rec) {
		rec->slot[slot] += delta;
		charge_parts(rec, slot, delta, s->topo->node, s->siblings);
	}
	if (!read_scaled || !cpu->slot_last_enabled[slot])
		return;
	enabled = v->enabled - cpu->slot_last_enabled[slot];
	running = v->running - cpu->slot_last_running[slot];
	if (rec) {
		rec->slot_enabled_ns[slot] += enabled;
		rec->slot_running_ns[slot] += running;
	}
	if (s->topo->waits) {
		cpu->slot_enabled_ns[slot] += enabled;
		cpu->slot_running_ns[slot] += running;
	}
}

/* Slots that wait for their turn were wanted for as long as the open ones, and were not on the PMU. */
static __always_inline void charge_waiting(const struct stretch *s, __u64 wanted_ns)
{
	__u32 i;

	if (!s->busy)
		return;
	nt_for_each_slot (i) {
		if (!(s->topo->waits & (1 << i)))
			continue;
		s->cpu->slot_enabled_ns[i] += wanted_ns;
		if (s->rec)
			s->rec->slot_enabled_ns[i] += wanted_ns;
	}
}

/* Bring the counters of this CPU up to date, and charge what they have counted. */
static __always_inline void read_counters(const struct stretch *s)
{
	struct nt_cpu *cpu = s->cpu;
	struct bpf_perf_event_value v;
	__u64 wanted_ns = 0;
	__u32 i;

	if (cpu->opened != s->topo->opened) {
		cpu->opened = s->topo->opened;
		cpu->slots_valid = 0;
	}
	nt_for_each_slot (i) {
		if (!(s->topo->slots & (1 << i)))
			continue;
		if (!read_slot(i * nr_cpus + s->cpu_id, &v)) {
			cpu->slots_valid &= ~(1 << i);
			nt_count_loss(cpu, NT_LOST_COUNTER);
			continue;
		}
		if (cpu->slots_valid & (1 << i)) {
			charge_slot(s, i, &v);
			if (v.enabled > cpu->slot_last_enabled[i])
				wanted_ns = v.enabled - cpu->slot_last_enabled[i];
		}
		cpu->slot_last[i] = v.counter;
		cpu->slot_last_enabled[i] = v.enabled;
		cpu->slot_last_running[i] = v.running;
		cpu->slots_valid |= 1 << i;
	}
	if (s->topo->waits)
		charge_waiting(s, wanted_ns);
}

/* Whether the counts of what runs from now on are asked for. */
static __always_inline bool is_next_counted(const struct stretch *s)
{
	struct nt_rec *rec;

	if (!s->next || !s->next_busy)
		return s->next_busy;
	rec = bpf_task_storage_get(&task_recs, s->next, NULL, 0);
	return rec && rec->in_scope;
}

/* Charge the counters, and return the state in which the next stretch begins. */
static __always_inline enum nt_cpu_state charge_counters(struct stretch *s)
{
	enum nt_cpu_state state = s->cpu->state;

	if (!nr_slots)
		return NT_CPU_UNCOUNTED;
	/* Charging this task with the counts of one that came in unseen would be worse than dropping them. */
	if (s->rec && !s->seen_in) {
		if (state != NT_CPU_UNSEEN)
			nt_count_loss(s->cpu, NT_LOST_SWITCH);
		s->rec = NULL;
		s->busy = false;
	}
	/* The counters run on in any case: a boundary between two stretches that are not asked for is skipped. */
	if (scoped && !s->rec && !is_next_counted(s))
		return s->next_busy ? NT_CPU_OUTSIDE : NT_CPU_UNCOUNTED;
	/* The task came into the scope while it ran: a part of the counts is older. */
	if (state != NT_CPU_COUNTED)
		s->rec = NULL;
	read_counters(s);
	return NT_CPU_COUNTED;
}

/* Note what the next stretch is compared with. */
static __always_inline void remember_next(const struct stretch *s, enum nt_cpu_state state)
{
	const struct task_struct *task = s->next ? s->next : s->task;
	struct nt_cpu *cpu = s->cpu;

	if (s->next)
		cpu->switches++;
	cpu->in_exec_ns = task->se.sum_exec_runtime;
	cpu->in_pid = task->pid;
	cpu->state = state;
}

/* Charge what has been running on this CPU; `next` runs from now on (see struct stretch). */
static inline void account(struct task_struct *task, struct task_struct *next)
{
	__u32 cpu_id = bpf_get_smp_processor_id();
	struct stretch s = { .task = task, .next = next, .cpu_id = cpu_id, .siblings = NT_SIBLING_MIXED };

	s.cpu = bpf_map_lookup_elem(&cpus, &cpu_id);
	s.topo = bpf_map_lookup_elem(&cpu_topo, &cpu_id);
	if (!s.cpu || !s.topo)
		return;
	s.busy = task->pid != 0;
	s.next_busy = next ? next->pid != 0 : s.busy;
	/* Not the first task of a CPU, and not after a switch that was not traced: a guest hid those of some tasks. */
	s.seen_in = s.cpu->state != NT_CPU_UNSEEN && s.cpu->in_pid == (__u32)task->pid;
	find_record(&s);
	charge_time(&s);
	charge_smt(&s);
	remember_next(&s, charge_counters(&s));
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
	struct nt_cpu_topo *topo;
	__u32 i;

	account(bpf_get_current_task_btf(), NULL);
	topo = bpf_map_lookup_elem(&cpu_topo, &cpu_id);
	if (!cpu || !topo || topo->waits)
		return 0;
	nt_for_each_slot (i) {
		if (bpf_perf_event_read_value(&events, i * nr_cpus + cpu_id, &v, sizeof(v)))
			continue;
		cpu->slot_enabled_ns[i] = v.enabled;
		cpu->slot_running_ns[i] = v.running;
	}
	return 0;
}

/* Few, because the verifier goes through each; user space runs the program several times. */
#define MEASURED_READS 8

/* Duration of MEASURED_READS reads of all open counters, ns: of the count, and with the times that scaling needs. */
__u64 count_reads_ns = 0;
__u64 scaled_reads_ns = 0;

/* Run by user space (BPF_PROG_TEST_RUN) when counters were opened on this CPU: is reading them dear here? */
SEC("raw_tp")
int on_measure(void *ctx)
{
	__u32 cpu_id = bpf_get_smp_processor_id();
	struct bpf_perf_event_value v;
	__u64 empty, start, between;
	__u32 i, n;

	empty = bpf_ktime_get_ns();
	start = bpf_ktime_get_ns();
	/* Each duration has one look at the clock in it, which takes a microsecond with some clocks. */
	empty = start - empty;
	for (n = 0; n < MEASURED_READS; n++) {
		nt_for_each_slot (i)
			bpf_perf_event_read(&events, i * nr_cpus + cpu_id);
	}
	between = bpf_ktime_get_ns();
	for (n = 0; n < MEASURED_READS; n++) {
		nt_for_each_slot (i)
			bpf_perf_event_read_value(&events, i * nr_cpus + cpu_id, &v, sizeof(v));
	}
	scaled_reads_ns = bpf_ktime_get_ns() - between - empty;
	count_reads_ns = between - start - empty;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
