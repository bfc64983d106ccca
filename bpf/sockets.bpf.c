// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Bytes that processes receive from and send to IP sockets, by the node of the CPU whose softirq processed the last
 * packet and that of the CPU that reads. Runs once for each call, in its task. Traffic over loopback does not count.
 * splice and sendfile pass none of these tracepoints.
 */
#include "topo.bpf.h"

#include <bpf/bpf_endian.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NT_SOCKET_USES_MAX);
	__type(key, struct nt_socket_key);
	__type(value, struct nt_socket_use);
} socket_uses SEC(".maps");

/* Calls that found `socket_uses` full. */
__u64 uses_full = 0;

/* 127.0.0.0/8 */
static inline bool is_loopback4(__u32 address)
{
	return (address & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

/* ::1, or 127.0.0.0/8 of an IPv4 peer. */
static inline bool is_loopback6(struct in6_addr *address)
{
	__u32 *words = address->in6_u.u6_addr32;

	if (words[0] || words[1])
		return false;
	return words[2] ? words[2] == bpf_htonl(0xffff) && is_loopback4(words[3]) : words[3] == bpf_htonl(1);
}

/* Whether it is an IP socket whose peer is elsewhere. */
static inline bool counts(struct sock *sk)
{
	struct sock_common *common = &sk->__sk_common;
	__u16 family = common->skc_family;

	if (sk->sk_rx_dst_ifindex == NT_LOOPBACK_IFINDEX)
		return false;
	/* UDP sockets keep no device: a peer with the same address is on this machine. */
	if (family == NT_AF_INET)
		return !is_loopback4(common->skc_daddr) && !is_loopback4(common->skc_rcv_saddr) &&
		       common->skc_daddr != common->skc_rcv_saddr;
	if (family != NT_AF_INET6 || !bpf_core_field_exists(common->skc_v6_daddr))
		return false;
	return !is_loopback6(&common->skc_v6_daddr) && !is_loopback6(&common->skc_v6_rcv_saddr);
}

static inline __u32 node_of(int cpu)
{
	__u32 at = cpu;
	struct nt_cpu_topo *topo = cpu < 0 ? NULL : bpf_map_lookup_elem(&cpu_topo, &at);

	return topo ? topo->node : NT_NO_NODE;
}

/* The entry of this process. */
static inline struct nt_socket_use *use_of(__u32 from, __u32 to)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_socket_key key = { .pid = task->tgid, .from = from, .to = to };
	struct nt_socket_use *use, none = {};

	key.start = task->group_leader->start_boottime;
	use = bpf_map_lookup_elem(&socket_uses, &key);
	if (use)
		return use;
	bpf_map_update_elem(&socket_uses, &key, &none, BPF_NOEXIST);
	use = bpf_map_lookup_elem(&socket_uses, &key);
	if (!use)
		__sync_fetch_and_add(&uses_full, 1);
	return use;
}

/* Counts are atomic: other threads of the process may read and send on CPUs of the same node. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_socket_read, struct sock *sk, int ret, int flags)
{
	struct nt_socket_use *use;

	if (ret <= 0 || flags & NT_MSG_PEEK || !counts(sk))
		return 0;
	use = use_of(node_of(sk->__sk_common.skc_incoming_cpu), bpf_get_numa_node_id());
	if (use) {
		__sync_fetch_and_add(&use->received, ret);
		__sync_fetch_and_add(&use->reads, 1);
	}
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_socket_send, struct sock *sk, int ret, int flags)
{
	__u32 here = bpf_get_numa_node_id();
	struct nt_socket_use *use;

	if (ret <= 0 || !counts(sk))
		return 0;
	use = use_of(here, here);
	if (use)
		__sync_fetch_and_add(&use->sent, ret);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
