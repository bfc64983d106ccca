// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples of memory use. At each tick of a clock, the registers of the running thread and the code around its
 * instruction go into a ring. User space computes the address that the thread was stalled on. The code is
 * part of the sample because generated code, and code of programs that have ended, is found nowhere else. The
 * top of the stack is part of it because the next call changes it.
 */
#include "sampler.bpf.h"

__u64 access_lost[NT_ACCESS_LOSSES];

/* Time that the programs below took, in ns. The kernel's own statistics would slow down every program. */
__u64 access_ns;

/* Set by user space at any time: processes that are not in chosen_processes are not sampled. */
__u32 choosy = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NT_ACCESS_CHOSEN);
	__type(key, struct nt_access_process);
	__type(value, __u32);
} chosen_processes SEC(".maps");

#if defined(__TARGET_ARCH_arm64)
#define CONTEXT_WORDS 34
#define WORDS NT_ACCESS_WORDS_ARM64
#define IP 32
#define LR 30
#else
#define CONTEXT_WORDS 21
#define WORDS NT_ACCESS_WORDS_X86
#define IP 16
#define SP 19
#endif

struct sample {
	struct nt_access head;
	__u8 code[NT_ACCESS_CODE];
	__u64 words[WORDS];
#if !defined(__TARGET_ARCH_arm64)
	__u8 stack[NT_ACCESS_RED_ZONE + NT_ACCESS_ABOVE];
#endif
};

/* Too large for the stack. No second sample can come in between: perf does not nest its programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample);
} scratch SEC(".maps");

/*
 * The context is read as words, in the layout of bpf_user_pt_regs_t, which user space sees too. A
 * relocated access to a field of pt_regs loads on some kernels only: cs became a u16 in a union with FRED.
 */
static inline bool in_user_mode(__u64 *words)
{
#if defined(__TARGET_ARCH_arm64)
	return !(words[33] & 0xf);
#else
	return words[17] & 3;
#endif
}

static inline void read_code(struct sample *sample, __u64 ip)
{
	if (!bpf_probe_read_user(sample->code, NT_ACCESS_BEFORE + NT_ACCESS_FROM, (void *)(ip - NT_ACCESS_BEFORE))) {
		sample->head.flags |= NT_ACCESS_AHEAD | NT_ACCESS_BEHIND;
		return;
	}
	/* The page in front is not there. */
	if (!bpf_probe_read_user(sample->code + NT_ACCESS_BEFORE, NT_ACCESS_FROM, (void *)ip))
		sample->head.flags |= NT_ACCESS_AHEAD;
}

/* Sent only where it could be read; no program is followed on arm64. */
static inline __u64 read_stack(struct sample *sample)
{
#if !defined(__TARGET_ARCH_arm64)
	void *from = (void *)(sample->words[SP] - NT_ACCESS_RED_ZONE);

	if (bpf_probe_read_user(sample->stack, sizeof(sample->stack), from))
		return sizeof(*sample) - sizeof(sample->stack);
	sample->head.flags |= NT_ACCESS_STACK;
#endif
	return sizeof(*sample);
}

static inline void send(void *sample, __u64 bytes)
{
	send_sample(sample, bytes, sizeof(struct sample), &access_lost[NT_ACCESS_RING_FULL],
		    &access_lost[NT_ACCESS_RING_BUSY]);
}

static inline bool is_chosen(struct task_struct *task)
{
	struct nt_access_process process = {};

	if (!choosy)
		return true;
	process.pid = task->tgid;
	process.leader_start_ns = task->group_leader->start_boottime;
	return bpf_map_lookup_elem(&chosen_processes, &process);
}

static inline bool is_wanted(struct task_struct *task)
{
	return task->pid && !(task->flags & PF_KTHREAD) && is_chosen(task) && is_sampled(task);
}

static inline void set_head(struct nt_access *head, struct task_struct *task)
{
	head->pid = task->tgid;
	head->tid = task->pid;
	head->leader_start_ns = task->group_leader->start_boottime;
	head->cpu = bpf_get_smp_processor_id();
}

static __always_inline void sample_tick(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 *words = ctx;
	struct sample *sample;
	__u32 zero = 0;

	if (!is_wanted(task))
		return;
	sample = bpf_map_lookup_elem(&scratch, &zero);
	if (!sample)
		return;
	set_head(&sample->head, task);
	if (!in_user_mode(words)) {
		sample->head.flags = NT_ACCESS_KERNEL;
		send(sample, sizeof(sample->head));
		return;
	}
	sample->head.flags = 0;
	/* The verifier takes constant offsets into the context only. */
#pragma unroll
	for (int i = 0; i < CONTEXT_WORDS; i++)
		sample->words[i] = words[i];
#if !defined(__TARGET_ARCH_arm64)
	sample->words[CONTEXT_WORDS] = task->thread.fsbase;
#endif
	read_code(sample, sample->words[IP]);
	send(sample, read_stack(sample));
}

SEC("perf_event")
int on_tick(void *ctx)
{
	__u64 began = bpf_ktime_get_ns();

	sample_tick(ctx);
	__sync_fetch_and_add(&access_ns, bpf_ktime_get_ns() - began);
	return 0;
}

/* An access that a PMU, or the kernel at a page fault, has the address of. */
static __always_inline void sample_event(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_access_event event = {};
	struct perf_sample_data *data;
	__u64 *words = ctx;
	__u64 known;

	if (!is_wanted(task))
		return;
	set_head(&event.head, task);
	event.head.flags = NT_ACCESS_EVENT;
	/*
	 * The instruction itself where the PMU is precise. A stack would have its build id, but perf refuses programs
	 * that ask for one on precise events without call chains (EPROTO, kernel/events/core.c).
	 */
	if (in_user_mode(words))
		event.code = words[IP];
	else
		event.head.flags |= NT_ACCESS_KERNEL;
	/* A field that is not known stays 0. */
	data = BPF_CORE_READ((struct bpf_perf_event_data_kern *)ctx, data);
	known = nt_sample_flags(data);
	if (known & NT_SAMPLE_ADDR) {
		event.address = BPF_CORE_READ(data, addr);
		event.head.flags |= NT_ACCESS_ADDRESS;
	}
	if (known & NT_SAMPLE_PHYS_ADDR) {
		event.physical = BPF_CORE_READ(data, phys_addr);
		event.head.flags |= NT_ACCESS_PHYSICAL;
	}
	if (known & NT_SAMPLE_DATA_SRC) {
		event.source = BPF_CORE_READ(data, data_src.val);
		event.head.flags |= NT_ACCESS_SOURCE;
	}
	if (known & NT_SAMPLE_WEIGHT) {
		event.weight = BPF_CORE_READ(data, weight.full);
		event.head.flags |= NT_ACCESS_WEIGHT;
	}
	send(&event, sizeof(event));
}

SEC("perf_event")
int on_access_event(void *ctx)
{
	__u64 began = bpf_ktime_get_ns();

	sample_event(ctx);
	__sync_fetch_and_add(&access_ns, bpf_ktime_get_ns() - began);
	return 0;
}

#define TOUCH_BYTES (NT_TOUCH_FRAMES * sizeof(__u64))

/* ns between two first touches that are sampled on a CPU, beyond a burst. Set by user space. */
__u64 touch_interval_ns = 10000000;

struct touch {
	/* Samples that may yet be taken, and when they last became more. */
	__u64 refilled_ns;
	__u64 left;
	struct nt_access_touch head;
	__u8 frames[TOUCH_BYTES];
};

/* Too large for the stack, and not the scratch of samples: a clock may interrupt the handler of a fault. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct touch);
} touch_scratch SEC(".maps");

/*
 * String functions of C libraries save nothing on the stack and have no frame, so a walk by frame pointers
 * leaves out their caller, which is the function of interest. User space accepts the address only if a call
 * instruction precedes it.
 */
static inline void read_caller(struct nt_access_touch *touch, __u64 *words)
{
	touch->caller = 0;
	touch->call = 0;
	if (!in_user_mode(words))
		return;
#if defined(__TARGET_ARCH_arm64)
	touch->caller = words[LR];
#else
	bpf_probe_read_user(&touch->caller, sizeof(touch->caller), (void *)words[SP]);
#endif
	if (touch->caller > sizeof(touch->call))
		bpf_probe_read_user(&touch->call, sizeof(touch->call), (void *)(touch->caller - sizeof(touch->call)));
}

/*
 * A fault requested by NUMA balancing looks like any other here. The kernel has already counted it in a field
 * of the task. If that field has not changed since the previous sample, this fault is not one of them.
 */
static inline __u64 hint_faults(struct task_struct *task)
{
	__u64 sum;

	if (!bpf_core_field_exists(task->numa_faults_locality))
		return 0;
	sum = task->numa_faults_locality[0] + task->numa_faults_locality[1];
	/* It is cleared when this number advances, and may then reach the same value again. */
	return sum ? (__u64)(__u32)task->numa_scan_seq << 32 | (__u32)sum : 0;
}

/*
 * The event comes with a fixed part of faults, because a frequency would be that of the burst before: memory is touched in
 * bursts.
 */
static inline bool is_due(struct touch *touch, __u64 now)
{
	__u64 more = (now - touch->refilled_ns) / (touch_interval_ns ?: 1);

	if (more) {
		touch->left = touch->left + more > NT_TOUCH_BURST ? NT_TOUCH_BURST : touch->left + more;
		touch->refilled_ns = now;
	}
	if (!touch->left)
		return false;
	touch->left--;
	return true;
}

static __always_inline void sample_touch(void *ctx, struct task_struct *task, struct touch *touch)
{
	__u64 *words = ctx;
	long got;

	set_head(&touch->head.head, task);
	touch->head.head.flags = NT_ACCESS_TOUCH;
	/* struct bpf_perf_event_data has the period behind the registers, then the address. */
	touch->head.address = words[CONTEXT_WORDS + 1];
	touch->head.faults = task->min_flt;
	touch->head.hint_faults = hint_faults(task);
	read_caller(&touch->head, words);
	/* Addresses, and no build ids: to read those of each frame takes ten times as long. */
	got = bpf_get_stack(ctx, touch->frames, TOUCH_BYTES, BPF_F_USER_STACK);
	touch->head.stack_bytes = bytes_got(got, TOUCH_BYTES);
	touch->head.zero = 0;
	send_sample(&touch->head, sizeof(touch->head) + touch->head.stack_bytes, sizeof(struct sample),
		    &access_lost[NT_ACCESS_TOUCH_LOST], &access_lost[NT_ACCESS_TOUCH_LOST]);
}

SEC("perf_event")
int on_first_touch(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 began = bpf_ktime_get_ns();
	struct touch *touch;
	__u32 zero = 0;

	if (!is_wanted(task))
		return 0;
	touch = bpf_map_lookup_elem(&touch_scratch, &zero);
	if (!touch || !is_due(touch, began))
		return 0;
	sample_touch(ctx, task, touch);
	__sync_fetch_and_add(&access_ns, bpf_ktime_get_ns() - began);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
