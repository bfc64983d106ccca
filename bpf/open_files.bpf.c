// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Device files of some drivers that processes have open. An iterator visits all files of one thread of each
 * table of files, in the pid namespace of its reader. It takes no lock of an address space.
 */
#include "core_compat.bpf.h"
#include "numatop.h"

#define S_IFMT 0170000
#define S_IFCHR 0020000
#define MINOR_BITS 20 /* include/linux/kdev_t.h, the same since 2.6 */

/* Drivers of character devices, from user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_majors);
} majors SEC(".maps");

SEC("iter/task_file")
int on_open_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct nt_majors *wanted;
	struct nt_open_file row = {};
	struct inode *inode;
	__u32 zero = 0, major;

	/* Both are missing at the end. */
	if (!task || !file)
		return 0;
	inode = file->f_inode;
	if ((inode->i_mode & S_IFMT) != S_IFCHR)
		return 0;
	row.device = inode->i_rdev;
	major = row.device >> MINOR_BITS;
	wanted = bpf_map_lookup_elem(&majors, &zero);
	if (!wanted || !(wanted->words[major / 64 % NT_MAJOR_WORDS] >> major % 64 & 1))
		return 0;
	row.start_ns = task->group_leader->start_boottime;
	row.pid = task->tgid;
	bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
