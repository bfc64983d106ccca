use super::*;
use crate::model::counters::Counter;

fn task(serial: u64, pid: u32, tid: u32, ns: u64) -> TaskRaw {
    TaskRaw {
        serial,
        pid,
        tid,
        start_ns: u64::from(tid),
        leader_start_ns: u64::from(pid),
        exec_ns: ns,
        counts: Counts { run_ns: vec![ns], ..Counts::default() },
        ..TaskRaw::default()
    }
}

fn sum(tasks: &[Arc<TaskRaw>]) -> u64 {
    tasks.iter().map(|task| task.counts.cpu_ns()).sum()
}

fn live(rows: &[TaskRaw]) -> Vec<Parsed> {
    rows.iter()
        .map(|row| Parsed { task: row.clone(), leaves: false, group_live: 1, uncharged: None })
        .collect()
}

fn leaving(task: TaskRaw) -> Parsed {
    Parsed { task, leaves: true, group_live: 1, uncharged: None }
}

fn ended(task: TaskRaw, group_live: u32) -> Parsed {
    Parsed { task, leaves: false, group_live, uncharged: None }
}

#[test]
fn each_row_is_due_once_in_eight_turns() {
    let mut table = TaskTable::default();
    // Some pieces are full, some have a hole, and some are far apart.
    let serials = (1..700).filter(|serial| !(130..400).contains(serial)).chain([5_000, 5_001, 1 << 40]);
    let rows: Vec<_> = serials.map(|serial| task(serial, 10, (serial % 100_000) as u32, 5)).collect();
    table.apply(vec![], live(&rows), false);
    let mut seen = Vec::new();
    for turn in 0..LOOK_EVERY {
        let due: Vec<u32> = table.due(turn).collect();
        assert!(due.len() <= rows.len() / 3, "turn {turn}: {} of {}", due.len(), rows.len());
        seen.extend(due);
    }
    seen.sort_unstable();
    let mut expected: Vec<u32> = rows.iter().map(|row| row.tid).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    assert_eq!(TaskTable::default().due(0).count(), 0);
}

#[test]
fn an_ended_thread_folds_into_its_process() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
    table.apply(vec![ended(task(2, 10, 11, 9), 1)], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!(sum(&tasks), 14);
    assert_eq!(tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), [10, 0]);
    assert!(exited.is_empty());
}

#[test]
fn an_ended_process_is_reported_once_with_all_its_threads() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
    table.apply(vec![ended(task(2, 10, 11, 9), 0), ended(task(1, 10, 10, 6), 0)], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert!(tasks.is_empty());
    assert_eq!(sum(&exited), 15);
    assert!(table.snapshot().1.is_empty());
}

#[test]
fn what_is_forgotten_leaves_nothing_of_its_ended_threads() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7), task(3, 10, 12, 1)]), false);
    table.apply(vec![ended(task(2, 10, 11, 9), 2)], vec![], false);

    table.apply(vec![ended(task(3, 10, 12, 2), 1)], vec![leaving(task(1, 10, 10, 6))], true);

    let (tasks, exited) = table.snapshot();
    assert!(tasks.is_empty() && exited.is_empty(), "{tasks:?} {exited:?}");
}

#[test]
fn a_process_lives_on_without_its_leader() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
    table.apply(vec![ended(task(1, 10, 10, 6), 1)], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!((sum(&tasks), exited.len()), (13, 0));
}

#[test]
fn a_process_waits_for_its_last_known_thread() {
    // Both threads have begun to exit; thread 11 has not been switched out for the last time.
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
    table.apply(vec![ended(task(1, 10, 10, 6), 0)], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!((sum(&tasks), exited.len()), (13, 0));
    table.apply(vec![ended(task(2, 10, 11, 8), 0)], vec![], false);
    assert_eq!(sum(&table.snapshot().1), 14);
}

#[test]
fn a_late_thread_that_nobody_knew_is_added_to_the_total() {
    let mut table = TaskTable::default();
    table.apply(vec![ended(task(1, 10, 10, 6), 0)], vec![], false);
    assert_eq!(sum(&table.snapshot().1), 6);
    table.apply(vec![ended(task(2, 10, 11, 9), 0)], vec![], false);
    assert_eq!(sum(&table.snapshot().1), 15);
}

#[test]
fn exec_by_a_thread_keeps_the_sum() {
    // Thread 11 calls exec: its task takes over tid 10, the old leader ends as tid 11.
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
    let old_leader = TaskRaw { tid: 11, ..task(1, 10, 10, 5) };
    let new_leader = TaskRaw { tid: 10, start_ns: 10, ..task(2, 10, 11, 8) };
    table.apply(vec![ended(old_leader, 1)], live(&[new_leader]), false);
    let (tasks, exited) = table.snapshot();
    assert_eq!(sum(&tasks), 13);
    assert!(exited.is_empty());
}

#[test]
fn what_a_task_did_that_left_the_scope_is_kept() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 20, 20, 7)]), false);
    table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], false);
    for _ in 0..5 {
        let (tasks, exited) = table.snapshot();
        assert_eq!(tasks.iter().map(|task| (task.pid, task.tid)).collect::<Vec<_>>(), [(20, 20), (10, 0)]);
        assert_eq!((sum(&tasks[1..]), exited.len()), (6, 0));
    }
    // It ends outside: its totals go with it, and no row reports it.
    table.apply(vec![leaving(task(1, 10, 10, 6))], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!((tasks.len(), exited.len()), (1, 0));
}

#[test]
fn very_many_that_left_are_not_kept() {
    let mut table = TaskTable::default();
    for at in 0..2 * OUTSIDE_MAX as u32 {
        let serial = u64::from(at) + 1;
        table.apply(vec![], live(&[task(serial, at + 10, at + 10, 5)]), false);
        table.apply(vec![], vec![leaving(task(serial, at + 10, at + 10, 6))], false);
    }
    let (tasks, _) = table.snapshot();
    assert_eq!(tasks.len(), OUTSIDE_MAX);
    assert_eq!(tasks.last().map(|task| task.pid), Some(2 * OUTSIDE_MAX as u32 + 9));
}

#[test]
fn a_task_that_comes_back_goes_on_from_where_it_was() {
    let switched = |task: TaskRaw, nvcsw| TaskRaw {
        counts: task.counts.clone().with([(Counter::Nvcsw, nvcsw)]),
        ..task
    };
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[switched(task(1, 10, 10, 5), 100)]), false);
    table.apply(vec![], vec![leaving(switched(task(1, 10, 10, 6), 110))], false);
    // 40 switches outside, then 2 and 3 inside.
    table.apply(vec![], live(&[switched(task(2, 10, 10, 1), 150)]), false);
    table.apply(vec![], live(&[switched(task(2, 10, 10, 2), 152)]), false);
    table.apply(vec![], vec![leaving(switched(task(2, 10, 10, 3), 155))], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!((sum(&tasks), exited.len()), (9, 0));
    assert_eq!(tasks[0].counts[Counter::Nvcsw], 115);
    // In and out again between two looks, and back another time to end.
    table.apply(vec![], vec![leaving(switched(task(3, 10, 10, 1), 170))], false);
    table.apply(vec![ended(switched(task(4, 10, 10, 4), 180), 0)], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!((tasks.len(), sum(&exited), exited[0].counts[Counter::Nvcsw]), (0, 14, 115));
    assert!(table.outside.is_empty() && table.back_at.is_empty() && table.ended.is_empty());
}

#[test]
fn a_task_that_comes_back_and_ends_is_reported_once() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5)]), false);
    table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], false);
    table.apply(vec![], live(&[task(2, 10, 10, 1)]), false);
    table.apply(vec![ended(task(2, 10, 10, 2), 0)], vec![], false);
    assert_eq!(sum(&table.snapshot().1), 8);
    let (tasks, exited) = table.snapshot();
    assert!(tasks.is_empty() && exited.is_empty(), "{tasks:?} {exited:?}");
}

#[test]
fn a_change_of_the_scope_itself_drops_what_leaves() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5)]), false);
    table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], true);
    let (tasks, left) = table.snapshot();
    assert!(tasks.is_empty() && left.is_empty());
}

#[test]
fn a_change_of_the_scope_itself_drops_what_ended_threads_left() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7), task(3, 20, 20, 1)]), false);
    table.apply(vec![ended(task(2, 10, 11, 9), 1)], vec![], false);
    table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], true);
    let (tasks, left) = table.snapshot();
    assert_eq!(tasks.iter().map(|task| task.pid).collect::<Vec<_>>(), [20]);
    assert!(left.is_empty());
}

#[test]
fn tables_are_as_large_again_as_before_once_a_burst_is_over() {
    let mut table = TaskTable::default();
    let burst: Vec<TaskRaw> = (1..20_001u32).map(|pid| task(u64::from(pid), pid, pid, 5)).collect();
    table.apply(vec![], live(&burst), false);
    let ends = burst.iter().skip(10).map(|row| ended(row.clone(), 0)).collect();
    table.apply(ends, vec![], false);
    assert_eq!(table.snapshot().1.len(), 19_990);
    for _ in 0..=REMEMBER {
        table.snapshot();
    }
    let rooms =
        [table.live.capacity(), table.exited.capacity(), table.gone.capacity(), table.members.capacity()];
    assert!(rooms.iter().all(|room| *room <= ROOM_MIN), "{rooms:?}");
    assert_eq!((table.snapshot().0.len(), table.members.len()), (10, 10));
}

/// Two walks over all tasks, which find these.
fn search(table: &mut TaskTable, found: &[TaskRaw]) {
    for _ in 0..2 {
        assert!(table.wants_all(2));
        table.apply(vec![], live(found), false);
    }
}

#[test]
fn threads_whose_last_word_was_lost_end_with_what_is_known_of_them() {
    let mut table = TaskTable::default();
    let rows = [task(1, 10, 10, 5), task(2, 10, 11, 7), task(3, 20, 20, 3)];
    table.apply(vec![], live(&rows), false);
    let before = table.snapshot().0;
    search(&mut table, &rows[..1]);
    assert_eq!(table.given_up(), [2, 3]);
    let (tasks, exited) = table.snapshot();
    assert_eq!(tasks.iter().map(|task| (task.pid, task.tid)).collect::<Vec<_>>(), [(10, 10), (10, 0)]);
    assert!(Arc::ptr_eq(&before[0], &tasks[0]), "a row in which nothing changed is a new one");
    assert_eq!((sum(&tasks), exited[0].pid, exited[0].tid, sum(&exited)), (12, 20, 20, 3));
    assert_ne!(exited[0].exit_state, 0, "it did not leave the scope: it ended");
    assert!(!table.wants_all(2));
    // A walk of changed tasks does not cover the others, and a late final row has been reported already.
    table.apply(vec![ended(task(2, 10, 11, 9), 1), ended(task(3, 20, 20, 4), 0)], vec![], false);
    let (tasks, exited) = table.snapshot();
    assert_eq!((sum(&tasks), exited.len()), (12, 0));
}

#[test]
fn a_process_ends_when_only_its_ended_threads_are_left() {
    let mut table = TaskTable::default();
    // Thread 12 was born and ended between two walks, and its word was lost.
    table.apply(vec![ended(task(1, 10, 10, 5), 2), ended(task(2, 10, 11, 7), 1)], vec![], false);
    table.apply(vec![], live(&[task(4, 20, 20, 1), task(5, 30, 30, 1)]), false);
    search(&mut table, &[task(4, 20, 20, 1)]);
    let (tasks, exited) = table.snapshot();
    let mut ended: Vec<_> =
        exited.iter().map(|task| (task.pid, task.exit_state, task.counts.cpu_ns())).collect();
    ended.sort_unstable();
    assert_eq!((tasks.len(), ended), (1, vec![(10, EXIT_DEAD, 12), (30, EXIT_DEAD, 1)]));
}

#[test]
fn a_process_of_which_a_thread_lives_outside_is_kept() {
    let mut table = TaskTable::default();
    let rows = [task(1, 10, 10, 5), task(2, 10, 11, 7)];
    table.apply(vec![], live(&rows), false);
    table.apply(vec![], vec![leaving(task(2, 10, 11, 8))], false);
    search(&mut table, &[]);
    let (tasks, exited) = table.snapshot();
    assert_eq!(
        (tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), sum(&tasks), exited.len()),
        (vec![0], 13, 0)
    );
}

#[test]
fn rows_stay_sorted_by_serial() {
    let mut table = TaskTable::default();
    table.apply(vec![], live(&[task(5, 5, 5, 0), task(2, 2, 2, 0)]), false);
    table.apply(vec![], live(&[task(3, 3, 3, 0), task(9, 9, 9, 0)]), false);
    let serials: Vec<u64> = table.snapshot().0.iter().map(|task| task.serial).collect();
    assert_eq!(serials, [2, 3, 5, 9]);
}
