/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The number of nodes, for objects that keep something by node. */
#ifndef NODES_BPF_H
#define NODES_BPF_H

#include "core_compat.bpf.h"

/* Set by user space before load. */
const volatile __u32 nr_nodes = 1;  /* possible nodes */
const volatile __u32 nr_places = 1; /* possible places; nr_nodes where places are the nodes */

#endif /* NODES_BPF_H */
