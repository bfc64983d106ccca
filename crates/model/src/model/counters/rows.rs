// The table of counters. A row has the name in Rust, the name in recordings, the unit there, and the facility
// without which a recording lacks it. The name in C is the name in recordings in upper case, after NT_. From
// this file build.rs makes counters.h for the programs in bpf/.

counters! {
    // In the record of a task, kept by the programs in bpf/: `enum nt_counter`, an index of nt_rec.counters.
    kept {
        /// Times it ran under another last-level cache than before.
        LlcMoves "llc_moves" "counter" None;
        /// Times it ran on another node than before.
        NodeMoves "node_moves" "counter" None;
        /// Time on a CPU while another thread of the core was busy, ns.
        SmtBusyNs "smt_busy_ns" "ns, counter" None;
        /// Allocations of pages for user space, each of one or more pages.
        UserAllocs "user_allocs" "counter" Some(Facility::NewPages);
        /// Of these, the ones on another node than it ran on.
        CrossAllocs "cross_allocs" "counter" Some(Facility::NewPages);
        /// Pages moved to another place while it ran.
        MigratedPages "migrated_pages" "pages, counter" Some(Facility::MovedPages);
        /// Pages that should have been moved and could not.
        MigrateFailedPages "migrate_failed_pages" "pages, counter" Some(Facility::MovedPages);
        /// Of those moved, by NUMA balancing.
        BalancedPages "balanced_pages" "pages, counter" Some(Facility::MoveReasons);
        /// Of those moved, because a process asked for it.
        AskedPages "asked_pages" "pages, counter" Some(Facility::MoveReasons);
        /// Tries of NUMA balancing to bring it to its preferred node.
        NumaMoves "numa_moves" "counter" Some(Facility::SentTasks);
        /// Tries of NUMA balancing to swap it for another task.
        NumaSwaps "numa_swaps" "counter" Some(Facility::SentTasks);
        /// Tries of NUMA balancing that came to nothing.
        NumaStuck "numa_stuck" "counter" Some(Facility::SentTasks);
        /// NUMA hinting faults, or their pages where only the task structure counts them.
        HintFaults "hint_faults" "counter" Some(Facility::HintFaults);
        /// Of these, the ones that found their page on another node.
        HintRemote "hint_remote" "counter" Some(Facility::HintFaults);
        /// Time on its CPU that NUMA balancing took: scans of its memory and hinting faults, ns.
        BalancingNs "balancing_ns" "ns, counter" Some(Facility::BalancingTime);
    }

    // Since the birth of a task, kept by the kernel: `enum nt_lifetime`, an index of nt_task.lifetime.
    lifetime {
        /// Time it was runnable and waited for a CPU (`sched_info.run_delay`), ns.
        RunDelayNs "run_delay_ns" "ns, counter" None;
        /// Context switches that it asked for.
        Nvcsw "nvcsw" "counter" None;
        /// Context switches that it did not ask for.
        Nivcsw "nivcsw" "counter" None;
        /// Times it was given a CPU (`sched_info.pcount`).
        RunCount "run_count" "counter" None;
        /// Page faults without a wait for a disk.
        MinFlt "min_flt" "counter" None;
        /// Page faults with a wait for a disk.
        MajFlt "maj_flt" "counter" None;
        /// Moves between CPUs (`se.nr_migrations`).
        CpuMigrations "cpu_migrations" "counter" None;
        /// Pages that NUMA balancing moved for it (`numa_pages_migrated`).
        NumaPagesMigrated "numa_pages_migrated" "pages, counter" None;
    }
}
