// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Bytes and requests that processes send to disks, by the node of the CPU that submits them. Runs once for
 * each bio, in the task that submits it. Stacked disks (device mapper, RAID, loop) pass each bio on to the disks
 * below; only these count.
 */
#include "core_compat.bpf.h"
#include "numatop.h"

/* Disks by the kernel's device number, from user space: enum nt_disk_kind. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NT_DISKS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NT_DISK_USES_MAX);
	__type(key, struct nt_disk_key);
	__type(value, struct nt_disk_use);
} disk_uses SEC(".maps");

/* Requests to disks that `disks` lacks, and those that found `disk_uses` full. */
__u64 unknown_disk = 0;
__u64 uses_full = 0;

/* Kernel threads write pages back for a cgroup: its id, 0 without CONFIG_BLK_CGROUP. */
static inline __u64 writer(struct bio *bio)
{
	if (!bpf_core_field_exists(bio->bi_blkg))
		return 0;
	return BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup, kn, id);
}

static inline void count(struct bio *bio, __u32 disk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_disk_key key = { .disk = disk, .node = bpf_get_numa_node_id() };
	struct nt_disk_use *use, none = {};

	if (task->flags & PF_KTHREAD) {
		/* Write-back alone: a loop device reads for others, too. */
		if (nt_bio_reads(bio))
			return;
		key.id = writer(bio);
	} else {
		key.pid = task->tgid;
		key.id = task->group_leader->start_boottime;
	}
	use = bpf_map_lookup_elem(&disk_uses, &key);
	if (!use) {
		bpf_map_update_elem(&disk_uses, &key, &none, BPF_NOEXIST);
		use = bpf_map_lookup_elem(&disk_uses, &key);
	}
	if (!use) {
		__sync_fetch_and_add(&uses_full, 1);
		return;
	}
	/* Atomic: other threads of the process may submit to the same disk. */
	__sync_fetch_and_add(&use->requests, 1);
	if (nt_bio_moves_data(bio))
		__sync_fetch_and_add(&use->bytes, bio->bi_iter.bi_size);
}

/* A bio is queued once, however often it is split. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue, struct bio *bio)
{
	__u32 disk = bio->bi_bdev->bd_disk->part0->bd_dev;
	__u32 *kind = bpf_map_lookup_elem(&disks, &disk);

	if (!kind)
		__sync_fetch_and_add(&unknown_disk, 1);
	else if (*kind == NT_DISK_LEAF)
		count(bio, disk);
	return 0;
}

/* An NVMe disk with several paths hands each bio to one of them, which is not queued again. */
SEC("tp_btf/block_bio_remap")
int BPF_PROG(on_bio_remap, struct bio *bio, __u32 from)
{
	__u32 disk = bio->bi_bdev->bd_disk->part0->bd_dev;
	__u32 *kind = bpf_map_lookup_elem(&disks, &disk);

	if (kind && *kind == NT_DISK_PATH && disk != from)
		count(bio, disk);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
