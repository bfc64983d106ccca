//! The probes load and count right on *this* kernel, and the built binary shows it. Needs root; compared with
//! the kernel's own numbers.
#![expect(unsafe_code, reason = "calls C")]

mod accelerators;
mod access;
mod allowed;
mod attack;
mod balancing;
mod bounds;
mod btf;
mod clock;
mod command;
mod containerd;
mod containers;
mod contended_lines;
mod disk_io;
mod docker;
mod engine;
mod first_touches;
mod host_root;
mod hostile;
mod hot;
mod hugetlb;
#[path = "../common/json_reader.rs"]
#[allow(dead_code, reason = "one of several users")]
mod json_reader;
mod launched;
mod leftovers;
mod locked;
mod locking;
mod lxc;
mod memory_event;
mod needs;
mod pages;
mod placement;
mod policies;
mod printed;
#[path = "../common/program.rs"]
mod program;
mod raw_probes;
mod reclaim;
mod recording;
mod sampled_by_default;
mod scoped_recording;
#[path = "../common/scratch.rs"]
#[allow(dead_code, reason = "one of several users")]
mod scratch;
mod screen;
mod selftest;
mod short_walk;
mod smt;
mod sockets;
mod starts;
#[path = "../common/terminal.rs"]
mod terminal;
mod truth;
mod until;
mod workload;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use libtest_mimic::{Arguments, Failed, Trial};

use numatop_ng::model::sample::Sample;
use numatop_ng::run;
use numatop_ng::source::Source;
use numatop_ng::source::live::LiveSource;

/// A list of trials that are called as their functions are.
macro_rules! tests {
    ($trial:ident: $($module:ident::$name:ident,)*) => { vec![$($trial(stringify!($name), $module::$name)),*] };
}

/// The number of times that a test in [`RACES`] may fail before it has failed.
const ATTEMPTS: u32 = 3;

/// Tests that can fail although all is right, and why no waiting helps. Every other test has one attempt.
const RACES: &[(&str, &str)] = &[
    ("functions_have_the_shares_they_burn", DRAWN),
    ("a_recording_names_functions_of_a_process_that_is_gone", DRAWN),
    ("functions_are_named_inside_another_root", DRAWN),
    ("a_program_that_was_removed_has_names", DRAWN),
    ("a_stripped_program_has_the_names_of_its_debug_file", DRAWN),
    ("a_stripped_program_has_the_names_of_the_file_it_is_linked_to", DRAWN),
    ("a_stripped_program_has_the_names_in_its_packed_symbols", DRAWN),
    ("random_loads_have_the_share_of_their_time", STALLED),
    ("dependent_loads_have_the_share_of_their_time", STALLED),
    ("stores_have_the_share_of_their_time", STALLED),
    ("a_bound_process_is_freed_as_it_is_printed", TAKEN),
];

/// Three shares, each allowed 1.6 times the half width of its interval of 95 %: 3.1 standard errors, 1 in 500.
const DRAWN: &str = "shares of samples are estimates: in one of 170 runs one of three is too far off";

/// The truth is a time that the workload measures. A host that stops a virtual CPU lengthens the current
/// phase of 2 ms, and the stop has no samples: 130 ms are 8 points in a run of 1.6 s.
const STALLED: &str = "a stop of the virtual CPU is time of the phase that it falls in, and has no samples";

/// A process waits less only where the CPU that it is freed to has time for it.
const TAKEN: &str = "other work on the machine may take the CPU that the process is freed to";

/// Tests that were tried again.
static RETRIED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

/// The next sample of the machine.
fn sample(source: &mut LiveSource) -> anyhow::Result<Sample> {
    source.next()?.context("a live source does not end")
}

/// Runs a test, and runs it again if it failed and has a race.
fn attempt(name: &'static str, run: fn() -> anyhow::Result<()>) -> Result<(), Failed> {
    let attempts = if race(name).is_some() { ATTEMPTS } else { 1 };
    for attempt in 1..attempts {
        match run() {
            Ok(()) => return Ok(()),
            Err(error) => println!("{name}: attempt {attempt} of {attempts} failed: {error:#}"),
        }
        let mut retried = RETRIED.lock().unwrap();
        if !retried.contains(&name) {
            retried.push(name);
        }
    }
    run().map_err(|error| Failed::from(format!("{error:#}")))
}

fn race(name: &str) -> Option<&'static str> {
    RACES.iter().find(|(test, _)| *test == name).map(|(_, race)| *race)
}

/// The tests that were tried again and the races that they may have lost, in one line.
fn summary(retried: &[&str]) -> Option<String> {
    let tests: Vec<String> = retried
        .iter()
        .map(|name| format!("{name} ({})", race(name).expect("only these are tried again")))
        .collect();
    let were = if tests.len() == 1 { "test was" } else { "tests were" };
    (!tests.is_empty()).then(|| format!("{} {were} tried again: {}", tests.len(), tests.join("; ")))
}

/// Prints the tests that cannot run here with their reasons, and appends them to the file that `NUMATOP_IGNORED` names.
fn list_ignored(lacking: &BTreeMap<&str, String>) {
    let lines: String = lacking.iter().map(|(test, why)| format!("ignored {test}: {why}\n")).collect();
    print!("{lines}");
    if let Some(path) = std::env::var_os("NUMATOP_IGNORED") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
            .expect("the list of ignored tests is written");
    }
}

fn main() -> ExitCode {
    // A live source of a test starts its helpers from this program, as it does from the tool.
    if let Some(code) = run::started_as() {
        return code;
    }
    if let Some(name) = std::env::var_os(workload::VARIABLE) {
        workload::run(&name.to_string_lossy());
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Each test watches the whole machine: one at a time.
    arguments.test_threads = Some(1);
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("tests/probes: not root, so no probe can be loaded: all of them are ignored");
    }
    let lacking = if root { needs::lacking() } else { BTreeMap::new() };
    let trial = |name: &'static str, run: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || attempt(name, run)).with_ignored_flag(!root || lacking.contains_key(name))
    };
    let tests = tests![
        trial:
        balancing::the_probe_of_tasks_that_are_sent_loads,
        balancing::hinting_faults_are_attached_and_say_why_not_in_a_better_way,
        balancing::time_of_balancing_is_attached_or_each_way_says_why_not,
        balancing::pages_that_balancing_moves_are_hooked_or_each_way_says_why_not,
        btf::every_relocated_field_is_in_this_kernel,
        allowed::nodes_that_a_task_may_use_are_those_of_its_masks,
        allowed::resident_memory_is_told_by_kind,
        truth::cpu_time_of_hogs_and_sleepers_is_schedstat,
        truth::alternating_tasks_are_not_billed_for_each_other,
        truth::rows_add_up_to_the_busy_time_of_the_machine,
        truth::a_fork_storm_is_accounted_for,
        truth::a_process_is_reported_once_when_it_ends,
        truth::threads_fold_into_their_process,
        truth::a_process_keeps_its_name_when_its_first_thread_ends,
        truth::exec_by_a_thread_keeps_the_process,
        truth::page_faults_in_a_slot_are_exact,
        truth::events_stay_with_the_task_they_happened_to,
        truth::switches_in_a_slot_are_those_of_getrusage,
        truth::cpu_clock_in_a_slot_is_time_on_cpu,
        truth::another_set_of_events_keeps_what_was_counted,
        truth::events_that_have_turns_are_counted_in_them_and_nowhere_else,
        smt::beside_an_idle_sibling_all_counts_are_idle,
        smt::a_cpu_that_was_not_placed_yet_is_on_no_core,
        truth::counts_by_node_add_up_to_the_slots,
        truth::a_scope_of_one_process_is_only_that,
        truth::a_scope_of_a_user_is_only_his,
        containers::a_scope_of_a_cgroup_has_its_children,
        containers::a_scoped_total_is_the_usage_of_its_cgroup,
        containers::a_moved_task_is_charged_to_each_side_its_part,
        containers::out_and_back_between_two_samples_leaves_a_gap,
        containers::totals_of_a_task_that_leaves_and_comes_back_never_fall,
        containers::a_resting_task_that_is_moved_shows_at_once,
        containers::a_resting_task_shows_with_the_sample_after_the_scope_changed,
        containers::a_cgroup_is_waited_for_and_may_go,
        containers::an_unknown_cgroup_is_wrong_usage,
        containers::cgroups_whose_names_are_no_text_stay_apart,
        host_root::the_topology_is_that_of_the_files_below_the_host_root,
        host_root::names_users_and_cgroups_are_those_of_the_host_below_its_root,
        host_root::files_of_processes_come_from_the_proc_of_the_host,
        host_root::a_process_that_proc_hides_is_counted,
        launched::the_exit_code_is_that_of_the_command,
        launched::standard_input_and_output_are_those_of_the_command,
        launched::a_signal_to_the_tool_is_handed_on_to_the_command,
        launched::ten_thousand_short_children_are_all_counted,
        launched::a_command_that_leaves_a_daemon_ends_at_its_own_end,
        launched::runs_are_repeated_in_each_place,
        launched::a_tree_is_what_it_has_and_what_is_to_come,
        launched::a_command_in_a_pid_namespace_is_found,
        selftest::no_number_is_wrong_here,
        starts::too_few_open_files_are_named_with_the_limit,
        starts::too_little_address_space_is_named_with_the_limit,
        starts::an_empty_proc_is_named,
        leftovers::nothing_stays_loaded_after_any_end,
        leftovers::a_start_that_fails_leaves_nothing_loaded,
        short_walk::a_thread_that_ran_is_in_the_next_sample,
        short_walk::a_thread_that_is_born_is_in_the_next_sample_and_one_that_ends_is_not,
        short_walk::what_others_do_to_a_thread_that_rests_is_seen_in_eight_samples,
        truth::a_full_exit_ring_is_a_counted_loss,
        truth::threads_whose_end_was_lost_do_not_stay,
        pages::pages_that_are_touched_are_counted_on_their_node,
        pages::pages_beyond_the_budget_are_sampled_and_add_up,
        pages::moved_pages_are_those_of_vmstat,
        pages::probes_that_no_column_asks_for_are_not_loaded,
        command::json_has_every_metric_or_its_reason,
        command::json_counts_named_events,
        command::overhead_is_measured_when_asked_for,
        command::threads_have_rows_of_their_own,
        command::what_columns_ask_for_is_read_from_proc,
        command::columns_sort_top_and_comm_select,
        command::hostile_names_reach_no_output,
        command::without_capabilities_it_says_which_and_exits_3,
        command::a_signal_ends_batch_mode_at_once_and_cleanly,
        command::a_signal_ends_batch_mode_that_nobody_reads,
        command::a_closed_pipe_ends_batch_mode,
        command::doctor_agrees_that_the_live_view_works,
        screen::the_live_view_comes_up_and_goes_away,
        screen::it_closes_by_itself_after_n_intervals,
        screen::a_signal_leaves_a_sane_terminal,
        screen::stopped_and_continued_it_draws_again,
        screen::resizing_redraws_at_every_size,
        screen::hostile_names_do_not_reach_the_terminal,
        screen::no_colour_means_no_colour,
        screen::without_capabilities_the_screen_is_given_back_first,
        clock::a_terminal_that_is_held_holds_up_no_recording,
        clock::a_terminal_that_is_never_read_is_restored_all_the_same,
        clock::a_closed_terminal_ends_the_live_view_without_a_panic,
        clock::a_reader_that_takes_nothing_holds_up_no_recording,
        clock::a_stopped_process_says_so_and_no_interval_is_short,
        clock::a_recording_has_the_samples_that_were_asked_for_while_its_notes_are_not_read,
        clock::a_limit_on_files_pauses_a_recording_and_is_named,
        clock::a_limit_on_files_rotates_a_ring,
        clock::each_signal_ends_what_measures_with_its_code,
        placement::resident_memory_is_that_of_numa_maps,
        placement::a_terabyte_that_was_never_touched_does_not_hide_what_was,
        placement::memory_full_of_holes_is_estimated_without_them,
        placement::huge_pages_weigh_what_they_hold,
        placement::twenty_thousand_mappings_are_no_obstacle,
        placement::without_the_ioctl_pagemap_says_the_same,
        placement::a_process_that_ended_is_a_reason,
        placement::an_id_that_was_used_again_is_another_process,
        placement::kernel_threads_have_no_memory,
        placement::without_privilege_the_reason_names_the_capability,
        placement::every_process_here_is_placed_or_has_a_reason,
        policies::policies_of_mappings_are_those_of_numa_maps,
        policies::a_policy_of_a_part_of_a_file_holds_in_all_mappings,
        policies::nodes_of_shared_memory_are_found_that_no_process_has_touched,
        policies::a_thread_that_ended_has_no_mappings,
        policies::iterators_can_be_made_again_and_again,
        policies::policies_of_several_processes_come_with_their_pages,
        sampled_by_default::only_chosen_processes_are_sampled,
        sampled_by_default::a_focus_has_its_processes_sampled_and_no_others,
        sampled_by_default::a_rate_of_zero_samples_nothing,
        sampled_by_default::the_details_sample_their_process_and_leave_nothing_behind,
        sampled_by_default::with_no_access_the_details_sample_nothing,
        access::no_memory_use_is_sampled_unless_asked_for,
        hot::functions_have_the_shares_they_burn,
        hot::functions_are_named_in_a_time_namespace,
        hot::a_recording_names_functions_of_a_process_that_is_gone,
        hot::kernel_functions_are_named,
        hot::a_program_that_was_removed_has_names,
        hot::a_compiler_at_run_time_names_its_code,
        hot::a_compiler_names_its_code_in_a_file_of_memory,
        hot::nothing_is_sampled_unless_asked_for,
        hot::hot_spots_are_those_of_the_rows_that_are_shown,
        recording::a_replay_is_what_was_shown,
        recording::samples_of_this_machine_come_back,
        recording::a_full_disk_pauses_the_recording,
        recording::a_recording_belongs_to_who_called_sudo,
        recording::a_signal_rotates_and_another_ends_a_recording,
        recording::the_documented_service_records_until_it_is_stopped,
        scoped_recording::a_recording_of_a_scope_names_nobody_else,
        scoped_recording::a_scope_that_is_chosen_meanwhile_narrows_what_is_named,
        screen::hot_spots_of_a_library_that_is_truncated_leave_the_screen_alive,
        attack::a_library_that_is_truncated_while_it_is_read_ends_nothing,
        attack::a_library_with_a_terabyte_of_symbols_takes_no_memory,
        attack::a_perf_map_that_is_truncated_while_it_is_read_ends_nothing,
        attack::a_perf_map_of_250_mib_takes_no_memory_and_no_time,
        attack::names_without_end_take_bounded_memory,
        attack::a_perf_map_that_becomes_a_pipe_is_not_waited_for,
        attack::a_recording_goes_on_beside_a_library_that_is_truncated,
        attack::a_link_to_a_pipe_or_a_device_is_not_opened,
        attack::names_are_found_under_low_limits_and_beside_inherited_descriptors,
        locked::no_interval_waits_for_a_locked_process,
        locked::a_signal_ends_batch_mode_while_a_locked_process_is_read,
        locked::memory_of_others_is_placed_beside_locked_processes,
        locked::a_process_that_is_unlocked_has_values_again,
        screen::a_locked_process_is_looked_at_closely_and_the_screen_goes_on,
        smt::counts_by_sibling_follow_what_it_does,
        reclaim::reclaimed_pages_are_counted_on_their_node,
        accelerators::open_device_files_are_those_of_proc,
        accelerators::a_scan_of_many_files_is_cheap,
        accelerators::a_scan_beside_short_processes_ends,
        accelerators::a_process_holds_what_it_has_open,
        accelerators::rows_that_hold_none_say_so,
        disk_io::direct_writes_are_counted_to_the_byte,
        disk_io::a_process_that_ends_keeps_its_traffic,
        disk_io::thousands_of_senders_are_counted,
        sockets::loopback_does_not_count,
        sockets::bytes_and_reads_are_exact,
        containers::the_root_of_v1_has_the_memory_of_the_kernel,
        hugetlb::pages_of_hugetlbfs_are_found_and_weigh_what_they_hold,
        docker::a_container_of_docker_is_found_below_another_data_root,
        docker::a_container_of_docker_keeps_its_row_when_it_is_paused_renamed_and_made_again,
        containerd::a_container_of_containerd_has_the_names_in_its_annotations,
        lxc::a_container_of_lxc_is_found_by_its_name,
        engine::a_container_of_podman_is_watched_by_name,
        engine::a_container_of_podman_is_chosen_on_the_screen,
        printed::podman_does_what_is_printed_about_a_quota,
        printed::podman_does_what_is_printed_about_lists,
        printed::a_bound_process_is_freed_as_it_is_printed,
        access::random_loads_have_the_share_of_their_time,
        access::dependent_loads_have_the_share_of_their_time,
        access::stores_have_the_share_of_their_time,
        access::random_loads_have_the_share_of_their_count,
        access::a_pointer_chase_has_the_share_of_its_count,
        access::returns_go_where_they_went_at_the_sample,
        access::stores_have_the_share_of_their_count,
        access::phases_are_said_to_be_by_time,
        access::a_number_in_registers_and_on_the_stack_is_in_no_output,
        access::json_has_the_mapping_that_is_used,
        first_touches::memory_has_the_function_that_touched_it_first,
        memory_event::addresses_of_page_faults_are_on_the_node_of_their_page,
        contended_lines::both_sides_of_a_line_have_their_function,
        hot::functions_are_named_inside_another_root,
        hot::a_stripped_program_has_the_names_of_its_debug_file,
        hot::a_stripped_program_has_the_names_of_the_file_it_is_linked_to,
        hot::a_stripped_program_has_the_names_in_its_packed_symbols,
    ];
    for name in RACES.iter().map(|(name, _)| *name).chain(needs::named()) {
        assert!(tests.iter().any(|test| test.name() == name), "{name} is no test");
    }
    let conclusion = libtest_mimic::run(&arguments, tests);
    if let Some(summary) = summary(&RETRIED.lock().unwrap()) {
        println!("{summary}");
    }
    list_ignored(&lacking);
    conclusion.exit_code()
}
