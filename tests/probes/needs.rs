//! Needs of tests: a host without one makes them ignored, with its reason.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Error, Result, ensure};

use crate::{
    containerd, containers, disk_io, docker, engine, hot, hugetlb, locking, lxc, policies, program, reclaim,
    smt, sockets,
};
use numatop_ng::collect::access::AccessProbe;
use numatop_ng::collect::hot::{HotProbe, Sampling};
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::probes::accelerators::FileScan;
use numatop_ng::collect::probes::{Otherwise, Shared, of};
use numatop_ng::collect::sched::SchedProbe;
use numatop_ng::model::facility::Facility;
use numatop_ng::model::wire::Scoped;

/// A need, and the tests that have it.
struct Need {
    /// The reason why this host lacks it.
    obstacle: fn() -> Option<String>,
    tests: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need {
        obstacle: || engine::obstacle().map(Into::into),
        tests: &[
            "a_container_of_podman_is_watched_by_name",
            "a_container_of_podman_is_chosen_on_the_screen",
            "podman_does_what_is_printed_about_a_quota",
            "podman_does_what_is_printed_about_lists",
        ],
    },
    Need {
        obstacle: || docker::obstacle().map(Into::into),
        tests: &[
            "a_container_of_docker_is_found_below_another_data_root",
            "a_container_of_docker_keeps_its_row_when_it_is_paused_renamed_and_made_again",
        ],
    },
    Need {
        obstacle: || containerd::obstacle().map(Into::into),
        tests: &["a_container_of_containerd_has_the_names_in_its_annotations"],
    },
    Need {
        obstacle: || lxc::obstacle().map(Into::into),
        tests: &["a_container_of_lxc_is_found_by_its_name"],
    },
    Need {
        obstacle: || reclaim::obstacle().map(Into::into),
        tests: &["reclaimed_pages_are_counted_on_their_node"],
    },
    Need {
        obstacle: disk_io::obstacle,
        tests: &["direct_writes_are_counted_to_the_byte", "a_process_that_ends_keeps_its_traffic"],
    },
    Need {
        obstacle: || refused(probe(Facility::DiskTraffic)),
        tests: &["direct_writes_are_counted_to_the_byte", "a_process_that_ends_keeps_its_traffic"],
    },
    Need {
        obstacle: || refused(probe(Facility::SocketTraffic)),
        tests: &["loopback_does_not_count", "bytes_and_reads_are_exact"],
    },
    Need { obstacle: sockets::obstacle, tests: &["bytes_and_reads_are_exact"] },
    Need {
        obstacle: || refused(FileScan::start().map(drop)),
        tests: &[
            "open_device_files_are_those_of_proc",
            "a_scan_of_many_files_is_cheap",
            "a_scan_beside_short_processes_ends",
            "a_process_holds_what_it_has_open",
            "rows_that_hold_none_say_so",
        ],
    },
    Need {
        obstacle: || refused(probe(Facility::Reclaim)),
        tests: &[
            "reclaimed_pages_are_counted_on_their_node",
            "probes_that_no_column_asks_for_are_not_loaded",
        ],
    },
    Need {
        obstacle: || containers::no_memory_of_v1().map(Into::into),
        tests: &["the_root_of_v1_has_the_memory_of_the_kernel"],
    },
    Need { obstacle: hugetlb::obstacle, tests: &["pages_of_hugetlbfs_are_found_and_weigh_what_they_hold"] },
    Need {
        obstacle: locking::obstacle,
        tests: &[
            "no_interval_waits_for_a_locked_process",
            "a_signal_ends_batch_mode_while_a_locked_process_is_read",
            "memory_of_others_is_placed_beside_locked_processes",
            "a_process_that_is_unlocked_has_values_again",
            "a_locked_process_is_looked_at_closely_and_the_screen_goes_on",
        ],
    },
    Need { obstacle: || smt::obstacle().map(Into::into), tests: &["counts_by_sibling_follow_what_it_does"] },
    Need {
        obstacle: || (!cfg!(target_arch = "x86_64")).then(|| "workloads of memory use are for x86-64".into()),
        tests: MEMORY_USE,
    },
    Need { obstacle: || refused(memory_use()), tests: MEMORY_USE },
    Need {
        obstacle: || refused(memory_use()),
        tests: &[
            "only_chosen_processes_are_sampled",
            "a_focus_has_its_processes_sampled_and_no_others",
            "a_rate_of_zero_samples_nothing",
            "the_details_sample_their_process_and_leave_nothing_behind",
        ],
    },
    Need {
        obstacle: || hot::no_binutils().map(Into::into),
        tests: &[
            "functions_are_named_inside_another_root",
            "a_stripped_program_has_the_names_of_its_debug_file",
            "a_stripped_program_has_the_names_of_the_file_it_is_linked_to",
            "a_stripped_program_has_the_names_in_its_packed_symbols",
        ],
    },
    Need {
        obstacle: || refused(hot_spots()),
        tests: &[
            "functions_have_the_shares_they_burn",
            "functions_are_named_in_a_time_namespace",
            "a_recording_names_functions_of_a_process_that_is_gone",
            "kernel_functions_are_named",
            "a_program_that_was_removed_has_names",
            "a_compiler_at_run_time_names_its_code",
            "a_compiler_names_its_code_in_a_file_of_memory",
            "hot_spots_are_those_of_the_rows_that_are_shown",
            "hot_spots_of_a_library_that_is_truncated_leave_the_screen_alive",
            "a_library_that_is_truncated_while_it_is_read_ends_nothing",
            "a_library_with_a_terabyte_of_symbols_takes_no_memory",
            "a_perf_map_that_is_truncated_while_it_is_read_ends_nothing",
            "a_perf_map_of_250_mib_takes_no_memory_and_no_time",
            "names_without_end_take_bounded_memory",
            "a_perf_map_that_becomes_a_pipe_is_not_waited_for",
            "a_recording_goes_on_beside_a_library_that_is_truncated",
            "a_link_to_a_pipe_or_a_device_is_not_opened",
            "names_are_found_under_low_limits_and_beside_inherited_descriptors",
            "functions_are_named_inside_another_root",
            "a_stripped_program_has_the_names_of_its_debug_file",
            "a_stripped_program_has_the_names_of_the_file_it_is_linked_to",
            "a_stripped_program_has_the_names_in_its_packed_symbols",
            "both_sides_of_a_line_have_their_function",
        ],
    },
    Need {
        obstacle: || refused(list_walk()),
        tests: &[
            "a_thread_that_ran_is_in_the_next_sample",
            "a_thread_that_is_born_is_in_the_next_sample_and_one_that_ends_is_not",
            "what_others_do_to_a_thread_that_rests_is_seen_in_eight_samples",
        ],
    },
    Need {
        obstacle: || refused(probe(Facility::NewPages)),
        tests: &[
            "pages_that_are_touched_are_counted_on_their_node",
            "pages_beyond_the_budget_are_sampled_and_add_up",
            "probes_that_no_column_asks_for_are_not_loaded",
        ],
    },
    Need {
        obstacle: || refused(probe(Facility::MovedPages)),
        tests: &["moved_pages_are_those_of_vmstat", "probes_that_no_column_asks_for_are_not_loaded"],
    },
    Need {
        obstacle: policies::obstacle,
        tests: &[
            "policies_of_mappings_are_those_of_numa_maps",
            "a_policy_of_a_part_of_a_file_holds_in_all_mappings",
            "a_thread_that_ended_has_no_mappings",
            "iterators_can_be_made_again_and_again",
            "policies_of_several_processes_come_with_their_pages",
        ],
    },
    Need {
        obstacle: || refused(probe(Facility::SentTasks)),
        tests: &["the_probe_of_tasks_that_are_sent_loads"],
    },
];

const MEMORY_USE: &[&str] = &[
    "random_loads_have_the_share_of_their_time",
    "dependent_loads_have_the_share_of_their_time",
    "stores_have_the_share_of_their_time",
    "random_loads_have_the_share_of_their_count",
    "a_pointer_chase_has_the_share_of_its_count",
    "returns_go_where_they_went_at_the_sample",
    "stores_have_the_share_of_their_count",
    "phases_are_said_to_be_by_time",
    "a_number_in_registers_and_on_the_stack_is_in_no_output",
    "json_has_the_mapping_that_is_used",
    "memory_has_the_function_that_touched_it_first",
    "addresses_of_page_faults_are_on_the_node_of_their_page",
    "both_sides_of_a_line_have_their_function",
];

/// Why tests cannot run on this host, by test.
pub fn lacking() -> BTreeMap<&'static str, String> {
    let obstacles = NEEDS.iter().filter_map(|need| Some((need.tests, (need.obstacle)()?)));
    obstacles.flat_map(|(tests, why)| tests.iter().map(move |test| (*test, why.clone()))).collect()
}

/// All tests that a need names.
pub fn named() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().flat_map(|need| need.tests).copied()
}

fn refused(attempt: Result<()>) -> Option<String> {
    attempt.err().map(|error| format!("{error:#}"))
}

fn probe(facility: Facility) -> Result<()> {
    let probe = of(facility).context("no such probe")?;
    let root = Path::new("/");
    let topology = numatop_ng::host::topology::read(root)?;
    let layout =
        RecordLayout { pages: true, ..RecordLayout::new(topology.possible_nodes, topology.smt(), &[]) };
    let store = maps::create(layout)?;
    // Some count in the state of CPUs, which these programs have.
    let sched = SchedProbe::start(&topology, (&store, layout), Vec::new(), Scoped::Not, None)?;
    let shared = Shared::new(root, &store, layout).with(&sched);
    ensure!(probe.otherwise == Otherwise::Failure, "it has a substitute");
    (probe.start)(&shared).map(drop)
}

fn hot_spots() -> Result<()> {
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    HotProbe::start(Sampling::default(), &store, false, None, &[]).map(drop)
}

fn memory_use() -> Result<()> {
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    AccessProbe::load(&store, 1, 1).map(drop)
}

/// The walk over listed tasks, as doctor tries it.
fn list_walk() -> Result<()> {
    let output = Command::new(program::path()).args(["doctor", "--format", "json"]).output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).context("doctor's report")?;
    let trials = report["probes"].as_array().context("doctor tried nothing")?;
    let walk = trials.iter().find(|trial| trial["probe"] == "task walk").context("doctor tried no walk")?;
    let detail = walk["detail"].as_str().unwrap_or_default();
    match detail.split_once("each sample visits all tasks: ") {
        Some((_, why)) => Err(Error::msg(why.to_owned())),
        None => Ok(()),
    }
}
