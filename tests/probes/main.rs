//! Do the probes load and count right on *this* kernel, and does the built binary say so? Needs root;
//! compared with what the kernel says itself.

mod btf;
mod command;
mod truth;
mod workload;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    if let Some(name) = std::env::var_os(workload::VARIABLE) {
        workload::run(&name.to_string_lossy());
        return;
    }
    let mut arguments = Arguments::from_args();
    // Each test watches the whole machine: one at a time.
    arguments.test_threads = Some(1);
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("tests/probes: not root, so no probe can be loaded: all of them are ignored");
    }
    let test = |name: &str, run: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || run().map_err(|error| Failed::from(format!("{error:#}"))))
            .with_ignored_flag(!root)
    };
    let tests = vec![
        test("every_relocated_field_is_in_this_kernel", btf::every_relocated_field_is_in_this_kernel),
        test("cpu_time_of_hogs_and_sleepers_is_schedstat", truth::cpu_time_of_hogs_and_sleepers_is_schedstat),
        test(
            "alternating_tasks_are_not_billed_for_each_other",
            truth::alternating_tasks_are_not_billed_for_each_other,
        ),
        test(
            "rows_add_up_to_the_busy_time_of_the_machine",
            truth::rows_add_up_to_the_busy_time_of_the_machine,
        ),
        test("a_fork_storm_is_accounted_for", truth::a_fork_storm_is_accounted_for),
        test("a_process_is_reported_once_when_it_ends", truth::a_process_is_reported_once_when_it_ends),
        test("threads_fold_into_their_process", truth::threads_fold_into_their_process),
        test("exec_by_a_thread_keeps_the_process", truth::exec_by_a_thread_keeps_the_process),
        test("page_faults_in_a_slot_are_exact", truth::page_faults_in_a_slot_are_exact),
        test("switches_in_a_slot_are_those_of_getrusage", truth::switches_in_a_slot_are_those_of_getrusage),
        test("cpu_clock_in_a_slot_is_time_on_cpu", truth::cpu_clock_in_a_slot_is_time_on_cpu),
        test("counts_by_node_add_up_to_the_slots", truth::counts_by_node_add_up_to_the_slots),
        test("a_scope_of_one_process_is_only_that", truth::a_scope_of_one_process_is_only_that),
        test("a_scope_of_a_user_is_only_his", truth::a_scope_of_a_user_is_only_his),
        test("a_scope_of_a_cgroup_has_its_children", truth::a_scope_of_a_cgroup_has_its_children),
        test("a_full_exit_ring_is_a_counted_loss", truth::a_full_exit_ring_is_a_counted_loss),
        test("json_has_every_metric_or_its_reason", command::json_has_every_metric_or_its_reason),
        test("json_counts_named_events", command::json_counts_named_events),
        test("threads_have_rows_of_their_own", command::threads_have_rows_of_their_own),
        test("columns_sort_top_and_comm_select", command::columns_sort_top_and_comm_select),
        test("hostile_names_reach_no_output", command::hostile_names_reach_no_output),
        test(
            "without_capabilities_it_says_which_and_exits_3",
            command::without_capabilities_it_says_which_and_exits_3,
        ),
        test(
            "a_signal_ends_batch_mode_at_once_and_cleanly",
            command::a_signal_ends_batch_mode_at_once_and_cleanly,
        ),
        test("a_closed_pipe_ends_batch_mode", command::a_closed_pipe_ends_batch_mode),
        test("doctor_agrees_that_the_live_view_works", command::doctor_agrees_that_the_live_view_works),
    ];
    libtest_mimic::run(&arguments, tests).exit();
}
