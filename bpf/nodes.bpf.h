/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The number of nodes, for objects that keep something by node. */
#ifndef NODES_BPF_H
#define NODES_BPF_H

#include "core_compat.bpf.h"

const volatile __u32 nr_nodes = 1; /* possible nodes; set by user space before load */

#endif /* NODES_BPF_H */
