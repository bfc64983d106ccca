/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of tasks. */
#ifndef RECORDS_BPF_H
#define RECORDS_BPF_H

#include "core_compat.bpf.h"
#include "numatop.h"

/*
 * One record per task. User space makes this map itself, with values as long as
 * struct nt_rec and what follows it (src/collect/records.rs), and has it reused.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nt_rec);
} task_recs SEC(".maps");

#endif /* RECORDS_BPF_H */
