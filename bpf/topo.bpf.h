/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where each CPU is. sched.bpf.c owns the map; user space makes the other objects reuse it, and sets its size. */
#ifndef TOPO_BPF_H
#define TOPO_BPF_H

#include "core_compat.bpf.h"
#include "numatop.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_cpu_topo);
} cpu_topo SEC(".maps");

#endif /* TOPO_BPF_H */
