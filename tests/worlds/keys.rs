//! Effects of keys, clicks and samples on the state behind the screen.

use std::sync::Arc;
use std::time::Duration;

use common::screen::{draw, text};
use common::{Actor, App, World, app, press, type_text};
use proptest::prelude::*;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

use crate::common;
use numatop_ng::metric::placement::{Basis, remote_by_source};
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::process::{ProcFields, Texts};
use numatop_ng::model::sample::{Missing, Sample};
use numatop_ng::model::units::NodeId;
use numatop_ng::record::pack::Rows;
use numatop_ng::snapshot::Task;
use numatop_ng::tui::history::conclusions::Conclusions;
use numatop_ng::tui::input::keymap::{KEYS, Key, context};
use numatop_ng::tui::input::{Action, Effect, ScreenId, Seek};
use numatop_ng::tui::ring::{MAX_BYTES, MAX_SAMPLES, Ring};
use numatop_ng::tui::screens::{Screen, Subject};
use numatop_ng::tui::theme::Theme;

const SIZE: (u16, u16) = (100, 30);

fn intel(ticks: usize) -> (World, App) {
    let mut world = World::intel();
    let app = app(&mut world, ticks, SIZE, Theme::new(true, false));
    (world, app)
}

fn type_filter(app: &mut App, filter: &str) {
    press(app, "\\");
    type_text(app, filter);
    press(app, "Enter");
}

fn screen(app: &App) -> String {
    text(&draw(app, SIZE.0, SIZE.1))
}

fn selected(app: &App) -> Option<&Task> {
    app.screens.tasks.selected(app.state.snapshot()?)
}

fn selected_pid(app: &App) -> u32 {
    selected(app).unwrap().raw.pid
}

fn pids(app: &App) -> Vec<u32> {
    let snapshot = app.state.snapshot().unwrap();
    app.screens.tasks.list.rows().iter().map(|row| snapshot.tasks[row.at].raw.pid).collect()
}

/// An app in which the bindings of `bit` hold and each can do something.
fn placed(bit: u16) -> App {
    // Enough nodes to move among.
    let world = if bit == context::NODES { World::ft_2500 } else { World::intel };
    let mut app = app(&mut world(), 4, SIZE, Theme::new(true, false));
    for key in ["F5", "/"] {
        press(&mut app, key);
    }
    type_text(&mut app, "nginx");
    for key in ["Enter", "k"] {
        press(&mut app, key);
    }
    let keys: &[&str] = match bit {
        context::PAUSED => &["Z", "["],
        context::TASKS => &[],
        context::NODES => &["Tab", "j"],
        context::DETAIL => &["Enter"],
        context::HELP => &["?", "j"],
        context::PICKER => &["s", "Down", "Down", "Down"],
        context::COLUMNS => &["F2", "Down"],
        context::PROMPT => &["\\", "x"],
        context::HOT => {
            assert_eq!(press(&mut app, "p"), Some(Effect::SetHot(true)));
            app.hot_news(Ok(common::hot::news(app.state.snapshot().unwrap())));
            press(&mut app, "Tab");
            &["j", "j"]
        }
        context::OVERHEAD => {
            assert_eq!(press(&mut app, "o"), Some(Effect::SetStatistics(true)));
            &[]
        }
        context::REPLAY => {
            app.state.replay((0, i64::MAX), false);
            &[]
        }
        _ => unreachable!("one bit of the contexts"),
    };
    for key in keys {
        press(&mut app, key);
    }
    assert!(app.contexts() & bit != 0);
    app
}

#[test]
fn every_key_does_something() {
    for binding in KEYS {
        for bit in (0..9).chain([10, 11]).map(|shift| 1u16 << shift).filter(|bit| binding.contexts & bit != 0)
        {
            for Key(code, modifiers) in binding.keys {
                let mut app = placed(bit);
                let (before, at) = (draw(&app, SIZE.0, SIZE.1), app.screens.tasks.list.cursor.at());
                let effect = app.press(KeyEvent::new(*code, *modifiers));
                let same = draw(&app, SIZE.0, SIZE.1) == before && app.screens.tasks.list.cursor.at() == at;
                // A short list of threads does not scroll, nor does one below a prompt.
                let short = bit & (context::DETAIL | context::PROMPT) != 0
                    && matches!(binding.action, Action::Move(_));
                // These name the screen that is shown already.
                let there = binding.action == Action::Show(ScreenId::Tasks) && bit == context::TASKS
                    || binding.action == Action::Show(ScreenId::Nodes) && bit == context::NODES
                    || binding.action == Action::SortBy("cpu_pct");
                assert!(effect.is_some() || !same || short || there, "{} where {bit}", binding.names());
            }
        }
    }
}

#[test]
fn a_set_of_events_is_chosen_and_says_what_it_is_without() {
    let (_, mut app) = intel(3);
    press(&mut app, "E");
    let text = screen(&app);
    assert!(text.contains("basic") && text.contains("cycles, instructions"), "{text}");
    assert!(text.contains("no llc: no hardware counter is left for this event; cycles"), "{text}");
    press(&mut app, "Down");
    assert_eq!(press(&mut app, "Enter"), Some(Effect::SetEvents("cache")));
    app.not_counted("tlb: this CPU has no such counter");
    assert!(screen(&app).contains("tlb: this CPU has no such counter"), "{}", screen(&app));
}

#[test]
fn a_recording_keeps_its_intervals() {
    let (mut world, mut app) = intel(3);
    app.state.replay((0, i64::MAX), false);
    app.moved(world.host.clone(), None, world.tick());
    press(&mut app, "d");
    assert!(app.prompt.is_none());
    assert!(screen(&app).contains("recording are fixed"), "{}", screen(&app));
}

#[test]
fn a_recording_goes_where_it_is_told() {
    let (mut world, mut app) = intel(3);
    let (first, second) = (world.tick(), world.tick());
    let began = first.wall_ns;
    app.state.replay((began, began + 3_600_000_000_000), false);
    app.moved(world.host.clone(), Some(first), second.clone());
    assert!(screen(&app).contains("REPLAY paused"), "{}", screen(&app));
    for (keys, typed, seek) in [
        ("t", "", Seek::Next),
        ("T", "", Seek::Previous),
        ("Home", "", Seek::Start),
        ("End", "", Seek::End),
        ("j", "10m", Seek::To(second.wall_ns + 600_000_000_000)),
        ("J", "90", Seek::To(second.wall_ns - 90_000_000_000)),
        ("j", "-1h", Seek::To(second.wall_ns - 3_600_000_000_000)),
        ("j", "@5", Seek::To(5_000_000_000)),
    ] {
        let mut effect = press(&mut app, keys);
        if !typed.is_empty() {
            type_text(&mut app, typed);
            effect = press(&mut app, "Enter");
        }
        assert_eq!(effect, Some(Effect::Seek(seek)), "{keys} {typed}");
    }
    press(&mut app, "j");
    type_text(&mut app, "soon");
    assert_eq!(press(&mut app, "Enter"), None);
    assert!(screen(&app).contains("'soon' is not a time"), "{}", screen(&app));
}

#[test]
fn a_pause_goes_where_it_is_told() {
    let (_, mut app) = intel(8);
    press(&mut app, "Z");
    for (keys, typed, behind_s) in [
        ("Home", "", 6),
        ("End", "", 0),
        ("J", "3", 3),
        ("j", "2s", 1),
        ("j", "-1h", 6),
        ("t", "", 5),
        ("T", "", 6),
    ] {
        let mut effect = press(&mut app, keys);
        if !typed.is_empty() {
            type_text(&mut app, typed);
            effect = press(&mut app, "Enter");
        }
        assert_eq!((effect, app.state.behind_ns()), (None, Some(behind_s * 1_000_000_000)), "{keys} {typed}");
    }
    press(&mut app, "Z");
    assert_eq!(app.state.behind_ns(), None);
}

#[test]
fn marks_are_gone_to_in_the_order_of_time() {
    let (mut world, mut app) = intel(4);
    world.lost.insert("exit".into(), 7);
    app.sample(world.host.clone(), world.tick());
    for _ in 0..3 {
        app.sample(world.host.clone(), world.tick());
    }
    press(&mut app, "Z");
    press(&mut app, "Home");
    while app.state.message.as_deref().is_none_or(|text| !text.contains("lost in this interval")) {
        press(&mut app, "}");
        assert!(
            app.state.message.as_deref().is_some_and(|text| !text.contains("no mark")),
            "{}",
            screen(&app)
        );
    }
    assert_eq!(app.state.behind_ns(), Some(3_000_000_000));
    assert!(screen(&app).contains("LOST exit 7"), "{}", screen(&app));
}

#[test]
fn a_recording_plays_at_the_speed_that_was_chosen() {
    let (mut world, mut app) = intel(3);
    app.state.replay((0, 1), false);
    app.moved(world.host.clone(), None, world.tick());
    assert_eq!(press(&mut app, "+"), None);
    assert_eq!(press(&mut app, "Space"), Some(Effect::Seek(Seek::Play(Some(2)))));
    assert_eq!(press(&mut app, "+"), Some(Effect::Seek(Seek::Play(Some(5)))));
    assert!(screen(&app).contains("REPLAY x5"), "{}", screen(&app));
    assert_eq!(press(&mut app, "Space"), Some(Effect::Seek(Seek::Play(None))));
    press(&mut app, "Space");
    app.state.source_ended();
    assert!(screen(&app).contains("REPLAY paused"), "{}", screen(&app));
}

#[test]
fn the_selection_sticks_to_its_task() {
    let (mut world, mut app) = intel(3);
    press(&mut app, "j");
    let pid = selected_pid(&app);
    let place = app.screens.tasks.list.cursor.at();
    for _ in 0..3 {
        app.sample(world.host.clone(), world.tick());
        press(&mut app, "I");
        assert_eq!(selected_pid(&app), pid);
    }
    // Three turns leave the order reversed.
    assert_ne!(app.screens.tasks.list.cursor.at(), place);
}

#[test]
fn following_keeps_the_task_in_view_until_it_ends() {
    let actors = (1..200).map(|pid| Actor::new(pid, "worker").runs(&[(0, 0.01 * f64::from(pid))]));
    let mut world = World::new("intel-e5-2682v4", true, actors.collect());
    world.actors[198].ends = Some(4);
    let mut app = app(&mut world, 3, SIZE, Theme::new(true, false));
    press(&mut app, "F");
    assert_eq!(selected_pid(&app), 199);
    press(&mut app, "I");
    let place = app.screens.tasks.list.cursor.at();
    let offset = app.screens.tasks.list.cursor.offset();
    assert!(place > 100 && offset > 0 && place - offset < 30, "{place} {offset}");
    app.sample(world.host.clone(), world.tick());
    assert!(app.screens.tasks.follow);
    for _ in 0..2 {
        app.sample(world.host.clone(), world.tick());
    }
    assert!(!app.screens.tasks.follow);
}

#[test]
fn idle_tasks_do_not_change_places() {
    let (mut world, mut app) = intel(4);
    let idle = |app: &App| {
        pids(app).into_iter().filter(|pid| [1, 2, 700, 5000, 9001].contains(pid)).collect::<Vec<_>>()
    };
    let before = idle(&app);
    for _ in 0..5 {
        app.sample(world.host.clone(), world.tick());
        assert_eq!(idle(&app), before);
    }
}

#[test]
fn pausing_holds_the_interval_while_measuring_goes_on() {
    let (mut world, mut app) = intel(5);
    let shown = app.state.snapshot().unwrap().mono_ns;
    press(&mut app, "Z");
    app.sample(world.host.clone(), world.tick());
    app.sample(world.host.clone(), world.tick());
    assert_eq!(app.state.snapshot().unwrap().mono_ns, shown);
    assert_eq!(app.state.behind_ns(), Some(2_000_000_000));
    assert!(screen(&app).contains("PAUSED 2s ago"));
    press(&mut app, "t");
    assert_eq!(app.state.behind_ns(), Some(1_000_000_000));
    press(&mut app, "T");
    press(&mut app, "Shift-Left");
    assert_eq!(app.state.behind_ns(), Some(3_000_000_000));
    press(&mut app, "Z");
    assert_eq!((app.state.behind_ns(), app.state.snapshot().unwrap().mono_ns), (None, shown + 2_000_000_000));
}

#[test]
fn scrubbing_stops_at_both_ends() {
    let (_, mut app) = intel(4);
    for _ in 0..10 {
        press(&mut app, "[");
    }
    // The first sample begins an interval but ends none.
    assert_eq!(app.state.behind_ns(), Some(2_000_000_000));
    assert!(app.state.snapshot().unwrap().interval_ns.is_some());
    assert!(app.state.message.as_deref().is_some_and(|text| text.contains("older intervals")));
    for _ in 0..10 {
        press(&mut app, "]");
    }
    assert_eq!(app.state.behind_ns(), Some(0));
}

#[test]
fn what_was_paused_at_moves_on_when_the_ring_drops_it() {
    let mut world = World::vm();
    let mut app = app(&mut world, 3, SIZE, Theme::new(true, false));
    press(&mut app, "Z");
    for _ in 0..MAX_SAMPLES + 5 {
        app.sample(world.host.clone(), world.tick());
    }
    assert_eq!(app.state.behind_ns(), Some((MAX_SAMPLES as u64 - 2) * 1_000_000_000));
}

#[test]
fn searching_goes_to_matches_and_around() {
    let (_, mut app) = intel(4);
    press(&mut app, "/");
    type_text(&mut app, "nginx");
    let first = selected_pid(&app);
    press(&mut app, "Enter");
    press(&mut app, "n");
    assert_ne!(selected_pid(&app), first);
    press(&mut app, "N");
    assert_eq!(selected_pid(&app), first);
    for _ in 0..4 {
        press(&mut app, "n");
    }
    assert_eq!(selected_pid(&app), first, "four matches, and around");
    press(&mut app, "/");
    type_text(&mut app, "9002");
    assert_eq!(selected_pid(&app), 9002);
}

#[test]
fn filters_narrow_and_esc_drops_them() {
    let (_, mut app) = intel(4);
    let all = pids(&app).len();
    press(&mut app, "\\");
    type_text(&mut app, "mysql.service");
    assert_eq!(pids(&app), [4242]);
    press(&mut app, "Esc");
    assert_eq!(pids(&app).len(), all, "Esc brings back what was before");
    press(&mut app, "\\");
    type_text(&mut app, "MYSQL");
    press(&mut app, "Enter");
    assert!(pids(&app).is_empty(), "capitals are meant");
    assert!(screen(&app).contains("no task matches"));
    assert_eq!(app.in_view().processes, Some(Vec::new()), "nobody, which is not everybody");
    press(&mut app, "Esc");
    assert_eq!(pids(&app).len(), all);
}

#[test]
fn a_filter_may_name_users_nodes_and_limits_of_metrics() {
    let (_, mut app) = intel(4);
    let filtered = |app: &mut App, text: &str| {
        press(app, "Esc");
        type_filter(app, text);
        pids(app)
    };
    assert_eq!(filtered(&mut app, "user:mysql"), [4242]);
    assert_eq!(filtered(&mut app, "node:1"), [4242, 9002, 5002]);
    assert_eq!(filtered(&mut app, "node:1 mysql"), [4242]);
    let busy = filtered(&mut app, "cpu%>20");
    let all = app.state.snapshot().unwrap().tasks.len();
    assert!(busy.contains(&4242) && busy.len() < all, "{busy:?}");
    assert!(!filtered(&mut app, "CPU%<20").contains(&4242));
}

/// Process ids of the accesses that are wanted; `None` where none are to be sampled at all.
fn sampled(app: &App) -> Option<Vec<u32>> {
    app.in_view().accesses.map(|wanted| wanted.into_iter().map(|(pid, _)| pid).collect())
}

#[test]
fn accesses_are_sampled_of_rows_that_may_be_remote() {
    let (_, mut app) = intel(4);
    assert_eq!(sampled(&app), None, "the option is off");
    press(&mut app, "U");
    // Web workers are where their memory was found, as far as that is known; other rows have none that was looked at.
    assert_eq!(sampled(&app), Some(vec![4242, 9002, 5001, 5002]));
    type_filter(&mut app, "mysql.service");
    assert_eq!(sampled(&app), Some(vec![4242]), "rows on the screen only");
    press(&mut app, "U");
    assert_eq!(sampled(&app), None);
    assert!(screen(&app).contains("sampling off"));
}

#[test]
fn accesses_of_the_process_in_the_details_come_first() {
    let (_, mut app) = intel(4);
    app.state.sampling = true;
    for pid in ["5000", "9002"] {
        press(&mut app, "/");
        type_text(&mut app, pid);
        press(&mut app, "Enter");
        press(&mut app, "Enter");
        let wanted = sampled(&app).unwrap();
        assert_eq!((wanted[0].to_string().as_str(), wanted.contains(&4242)), (pid, true), "{wanted:?}");
        press(&mut app, "Esc");
        assert!(sampled(&app).is_some_and(|wanted| wanted[0] == 4242));
    }
}

#[test]
fn accesses_that_findings_ask_about_come_before_other_rows() {
    let (_, mut app) = intel(4);
    app.state.sampling = true;
    let asks = vec![(9002, 9002 * 1_000_000)];
    app.state.conclusions = Arc::new(Conclusions { asks, ..Conclusions::default() });
    assert_eq!(sampled(&app), Some(vec![9002, 4242, 5001, 5002]));
}

#[test]
fn accesses_that_the_cpu_counts_are_not_sampled() {
    let mut world = World::intel();
    world.counts_remote();
    let host = Arc::make_mut(&mut world.host);
    host.events.push(Event { role: Role::Lma, ..host.events[0].clone() });
    host.missing.remove("lma_per_s");
    for actor in &mut world.actors {
        (actor.accesses, actor.memory) = (1e6, vec![1, 1]);
    }
    let mut app = app(&mut world, 4, SIZE, Theme::new(true, false));
    app.state.sampling = true;
    let counted = |task: &Task, snapshot| {
        remote_by_source(task, snapshot).first().is_some_and(|share| share.basis == Basis::Counted)
    };
    let snapshot = app.state.snapshot().unwrap();
    assert!(snapshot.tasks.iter().any(|task| task.raw.pid == 4242 && counted(task, snapshot)));
    assert_eq!(sampled(&app), Some(vec![]));
}

#[test]
fn no_accesses_of_a_machine_with_one_node_are_sampled_but_those_of_the_details() {
    let mut app = app(&mut World::vm(), 4, SIZE, Theme::new(true, false));
    app.state.sampling = true;
    assert_eq!(sampled(&app), Some(vec![]));
    press(&mut app, "Enter");
    assert_eq!(sampled(&app).map(|wanted| wanted.len()), Some(1));
}

#[test]
fn a_made_up_machine_samples_accesses_on_request() {
    let (_, mut app) = intel(4);
    app.state.demo = true;
    assert_eq!(sampled(&app), None);
    press(&mut app, "U");
    assert!(sampled(&app).is_some());
}

#[test]
fn a_user_is_picked_from_those_with_tasks() {
    let (_, mut app) = intel(4);
    for key in ["u", "End", "Up", "Enter"] {
        press(&mut app, key);
    }
    let uids: Vec<u32> = app
        .screens
        .tasks
        .list
        .rows()
        .iter()
        .map(|row| app.state.snapshot().unwrap().tasks[row.at].raw.uid)
        .collect();
    assert!(!uids.is_empty() && uids.iter().all(|uid| *uid == uids[0]), "{uids:?}");
    assert!(uids.len() < 12);
}

#[test]
fn enter_on_a_node_shows_its_tasks() {
    let (_, mut app) = intel(4);
    for key in ["2", "j", "Enter"] {
        press(&mut app, key);
    }
    assert_eq!((app.base(), app.screens.tasks.choice.node), (ScreenId::Tasks, Some(NodeId(1))));
    assert_eq!(pids(&app), [4242, 9002, 5002]);
}

#[test]
fn the_interval_has_steps_and_limits() {
    let (_, mut app) = intel(2);
    assert_eq!(press(&mut app, "+"), Some(Effect::SetInterval(Duration::from_secs(2))));
    for _ in 0..20 {
        press(&mut app, "-");
    }
    assert_eq!(app.state.interval, Duration::from_millis(100));
    for _ in 0..20 {
        press(&mut app, "+");
    }
    assert_eq!(app.state.interval, Duration::from_secs(60));
    press(&mut app, "d");
    type_text(&mut app, "90");
    assert_eq!(press(&mut app, "Enter"), None);
    assert!(screen(&app).contains("outside 0.1 to 60"), "{}", screen(&app));
    press(&mut app, "Ctrl-U");
    type_text(&mut app, "0.25");
    assert_eq!(press(&mut app, "Enter"), Some(Effect::SetInterval(Duration::from_millis(250))));
}

#[test]
fn choices_are_kept_as_flags() {
    use numatop_ng::settings::Value;
    let (_, mut app) = intel(2);
    let value = |app: &App, flag: &str| {
        let (_, value) = app.choices().into_iter().find(|(name, _)| *name == flag).unwrap();
        value
    };
    assert_eq!(press(&mut app, "W"), None, "a question");
    assert_eq!(press(&mut app, "Enter"), Some(Effect::Keep));
    for flag in ["sort", "columns", "threads", "delay"] {
        assert_eq!(value(&app, flag), None, "{flag} is as without the flag");
    }
    for key in ["I", "H", "+"] {
        press(&mut app, key);
    }
    assert_eq!(value(&app, "sort"), Some(Value::Word("-cpu_pct".into())));
    assert_eq!(value(&app, "threads"), Some(Value::Switch(true)));
    assert_eq!(value(&app, "delay"), Some(Value::Number("2".into())));
    press(&mut app, "3");
    // Each of the two excludes the other on a command line.
    assert_eq!((value(&app, "threads"), value(&app, "by-container")), (None, Some(Value::Switch(true))));
}

#[test]
fn the_sort_column_moves_over_what_is_visible_and_says_why_values_are_absent() {
    let mut world = World::vm();
    let mut app = app(&mut world, 3, SIZE, Theme::new(true, false));
    press(&mut app, ">");
    assert_eq!(app.screens.tasks.list.sort.metric.id, "runq_wait_pct");
    press(&mut app, "<");
    assert_eq!(app.screens.tasks.list.sort.metric.id, "cpu_pct");
    press(&mut app, "F6");
    type_text(&mut app, "ipc");
    press(&mut app, "Enter");
    assert!(screen(&app).contains("IPC is -: no hardware counters"), "{}", screen(&app));
    assert!(screen(&app).contains("▲IPC"), "the sort column is shown whatever fits");
}

#[test]
fn columns_of_nodes_are_chosen_where_the_width_has_no_room_for_them() {
    let mut app = app(&mut World::ft_2500(), 4, (80, 24), Theme::new(false, false));
    press(&mut app, "2");
    assert!(!text(&draw(&app, 80, 24)).contains("HFREE"));

    press(&mut app, "F2");
    let at = (0..60).find(|at| app.picker.as_ref().unwrap().line(*at).unwrap().name == "HFREE").unwrap();
    for _ in 0..at {
        press(&mut app, "Down");
    }
    press(&mut app, "Space");
    assert!(
        app.state.message.as_deref().unwrap().starts_with("no room for 1 column"),
        "{:?}",
        app.state.message
    );
    for _ in 0..at {
        press(&mut app, "[");
    }
    press(&mut app, "Enter");

    let shown = text(&draw(&app, 80, 24));
    assert!(shown.contains("HFREE▲NODE") && shown.contains("  128    0     8"), "{shown}");
    assert!(app.screens.tasks.list.columns.is_none(), "those of tasks are others");
    for key in ["F2", "Ctrl-R", "Esc"] {
        press(&mut app, key);
    }
    assert!(app.screens.nodes.list.columns.is_none());
}

#[test]
fn columns_are_chosen_and_reset() {
    let (_, mut app) = intel(3);
    for key in ["F2", "Down", "Space", "]"] {
        press(&mut app, key);
    }
    let chosen = app.screens.tasks.list.columns.as_ref().unwrap();
    assert_eq!(chosen[0].id, "pid");
    assert!(chosen.iter().all(|metric| metric.id != "user"));
    press(&mut app, "Ctrl-R");
    assert!(app.screens.tasks.list.columns.is_none());
}

#[test]
fn a_folded_branch_counts_what_it_hides() {
    let (_, mut app) = intel(4);
    press(&mut app, "e");
    press(&mut app, "z");
    assert_eq!(pids(&app), [1]);
    assert!(screen(&app).contains("[+11] systemd"), "{}", screen(&app));
    press(&mut app, "z");
    assert_eq!(pids(&app).len(), 12);
}

#[test]
fn parents_in_a_circle_are_all_shown() {
    let circle = [(10, 11), (11, 12), (12, 10), (20, 20)];
    let actors = circle.map(|(pid, ppid)| Actor { ppid, ..Actor::new(pid, "loop") });
    let mut world = World::new("no-numa", false, actors.to_vec());
    let mut app = app(&mut world, 2, SIZE, Theme::new(true, false));
    press(&mut app, "e");
    let mut shown = pids(&app);
    shown.sort_unstable();
    assert_eq!(shown, [10, 11, 12, 20]);
}

#[test]
fn a_deep_tree_is_drawn_without_recursion() {
    let actors = (1..5_000).map(|pid| Actor { ppid: pid - 1, ..Actor::new(pid, "deep") });
    let mut world = World::new("no-numa", false, actors.collect());
    let mut app = app(&mut world, 2, SIZE, Theme::new(true, false));
    press(&mut app, "e");
    press(&mut app, "End");
    assert_eq!(selected_pid(&app), 4_999);
    assert!(screen(&app).contains("deep"));
}

#[test]
fn details_show_threads_history_and_proc() {
    let (mut world, mut app) = intel(6);
    assert_eq!(press(&mut app, "Enter"), Some(Effect::Inspect(4242, 4_242_000_000)));
    assert_eq!(app.state.history().len(), 5);
    assert!(screen(&app).contains("connection"));
    assert_eq!(app.sample(world.host.clone(), world.tick()), Some(Effect::Inspect(4242, 4_242_000_000)));
    assert_eq!(app.state.history().len(), 6);
    app.inspected(4242, Err("process 4242 has ended".into()));
    assert!(screen(&app).contains("process 4242 has ended"));
    press(&mut app, "[");
    press(&mut app, "[");
    assert_eq!(app.state.history().len(), 4, "the history ends with the interval shown");
}

#[test]
fn a_click_selects_sorts_and_turns() {
    let (_, mut app) = intel(4);
    let click = |app: &mut App, column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        app.mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    let lines: Vec<String> = screen(&app).lines().map(str::to_string).collect();
    let find = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap() as u16;
    click(&mut app, 5, find("kswapd0"));
    assert_eq!(selected_pid(&app), 91);
    let titles = find("COMMAND");
    let column = lines[usize::from(titles)].split("RSS").next().unwrap().chars().count() as u16;
    click(&mut app, column, titles);
    assert_eq!(
        (app.screens.tasks.list.sort.metric.id, app.screens.tasks.list.sort.reversed),
        ("rss_bytes", false)
    );
    click(&mut app, column, titles);
    assert!(app.screens.tasks.list.sort.reversed);
}

#[test]
fn a_click_on_the_last_line_presses_its_key() {
    let (_, mut app) = intel(4);
    let last = screen(&app).lines().last().unwrap().to_owned();
    let kind = MouseEventKind::Down(MouseButton::Left);
    let column = last.find("Nodes").unwrap() as u16;
    app.mouse(MouseEvent { kind, column, row: SIZE.1 - 1, modifiers: KeyModifiers::NONE });
    assert_eq!(app.base(), ScreenId::Nodes, "{last}");
}

#[test]
fn the_wheel_scrolls_without_selecting() {
    let actors = (1..200).map(|pid| Actor::new(pid, "worker"));
    let mut world = World::new("intel-e5-2682v4", true, actors.collect());
    let mut app = app(&mut world, 3, SIZE, Theme::new(true, false));
    press(&mut app, "j");
    let before = selected_pid(&app);
    let kind = MouseEventKind::ScrollDown;
    app.mouse(MouseEvent { kind, column: 1, row: 10, modifiers: KeyModifiers::NONE });
    assert_eq!((app.screens.tasks.list.cursor.offset(), selected_pid(&app)), (3, before));
}

/// A machine with `tasks` busy tasks, each in a different way.
fn busy_world(tasks: u32) -> World {
    let share = |pid: u32| f64::from(pid.wrapping_mul(2_654_435_761) >> 12) / f64::from(1 << 24);
    let busy = (1..tasks + 1).map(|pid| Actor::new(pid, "worker").runs(&[(0, share(pid))]));
    World::new("intel-e5-2682v4", true, busy.collect())
}

#[test]
fn a_busy_machine_has_ten_minutes_to_go_back_to() {
    let mut world = busy_world(250);
    let samples: Vec<Sample> = (0..MAX_SAMPLES).map(|_| world.tick()).collect();
    let mut ring = Ring::default();
    for sample in &samples {
        ring.push(sample.clone());
        ring.tidy();
    }
    // As they came, 250 rows in each of 600 samples would take 90 MB.
    assert_eq!((ring.oldest(), ring.newest()), (Some(1), Some(599)));
    for number in [1, 40, 300, 299, 298, 570, 590, 599] {
        let (previous, sample) = ring.pair(number).unwrap();
        assert_eq!(
            (previous.as_deref(), &*sample),
            (samples.get(number as usize - 1), &samples[number as usize])
        );
    }
    assert!(ring.all(Rows::All).map(|sample| sample.mono_ns).eq(samples.iter().map(|sample| sample.mono_ns)));
    assert!(ring.pair(600).is_none());
}

#[test]
fn texts_have_their_part_in_what_the_ring_may_hold() {
    let long = || {
        let cmdline = Ok("x".repeat(1 << 20));
        Arc::new(Texts { cmdline, cpus_allowed: Ok("0".into()), mems_allowed: Ok("0".into()) })
    };
    let shared = long();
    let (mut of_their_own, mut sharing) = (Ring::default(), Ring::default());
    let mut world = World::vm();
    for _ in 0..40 {
        let with = |texts, sample| {
            let about = ProcFields { texts: Ok(texts), huge_pct: Err(Missing::FirstInterval) };
            Sample { about: Arc::new([((4242, 1), Ok(Arc::new(about)))].into()), ..sample }
        };
        let sample = world.tick();
        of_their_own.push(with(long(), sample.clone()));
        sharing.push(with(Arc::clone(&shared), sample));
        of_their_own.tidy();
        sharing.tidy();
    }
    assert!(of_their_own.pair(37 - (MAX_BYTES >> 20) as u64).is_none(), "each has a MiB of its own");
    assert!(sharing.pair(0).is_some());
}

#[test]
fn rows_are_hidden_by_kind_and_shown_again() {
    let (mut world, mut app) = intel(4);
    let all = pids(&app);
    let kernel: Vec<u32> = app
        .state
        .snapshot()
        .unwrap()
        .tasks
        .iter()
        .filter(|task| task.raw.kthread)
        .map(|task| task.raw.pid)
        .collect();
    assert!(!kernel.is_empty());
    press(&mut app, "K");
    assert!(pids(&app).iter().all(|pid| !kernel.contains(pid)));
    assert!(screen(&app).contains("no kernel threads"), "the header says so: {}", screen(&app));
    press(&mut app, "i");
    let idle = |app: &App| selected_rows(app).iter().any(|task| task.run_ns() == 0);
    assert!(!idle(&app));
    for key in ["K", "i"] {
        press(&mut app, key);
    }
    assert_eq!(pids(&app), all);
    world.actors[3].ends = Some(0);
    for _ in 0..2 {
        app.sample(world.host.clone(), world.tick());
        if selected_rows(&app).iter().any(|task| task.exited) {
            press(&mut app, "X");
            assert!(!selected_rows(&app).iter().any(|task| task.exited));
            return;
        }
    }
    panic!("no task ended");
}

fn selected_rows(app: &App) -> Vec<&Task> {
    let snapshot = app.state.snapshot().unwrap();
    app.screens.tasks.list.rows().iter().map(|row| &snapshot.tasks[row.at]).collect()
}

#[test]
fn unbound_keys_name_the_nearest_command() {
    let (_, mut app) = intel(3);
    app.press(KeyEvent::new(KeyCode::F(9), KeyModifiers::NONE));
    assert!(screen(&app).contains("F9: numatop-ng does not kill"), "{}", screen(&app));
    press(&mut app, "Q");
    assert!(screen(&app).contains("Q: q quits"), "{}", screen(&app));
    press(&mut app, "t");
    assert!(app.screens.tasks.list.tree, "as F5");
}

#[test]
fn the_arrows_scroll_columns_until_both_ends() {
    let (_, mut app) = intel(4);
    let titles = |app: &App| screen(app).lines().find(|line| line.contains("COMMAND")).unwrap().to_owned();
    let first = titles(&app);
    press(&mut app, "Left");
    assert!(screen(&app).contains("these are the first columns"));
    press(&mut app, "Right");
    let second = titles(&app);
    assert!(second != first && second.contains("PID") && second.contains("COMMAND"), "{second}");
    for _ in 0..60 {
        press(&mut app, "Right");
    }
    assert!(screen(&app).contains("these are the last columns"), "{}", screen(&app));
    assert!(titles(&app).contains("RSS"), "{}", titles(&app));
    for _ in 0..60 {
        press(&mut app, "Left");
    }
    assert_eq!(titles(&app), first);
}

#[test]
fn a_search_counts_its_matches() {
    let (_, mut app) = intel(4);
    press(&mut app, "/");
    type_text(&mut app, "nginx");
    assert!(screen(&app).contains("1 of 4"), "{}", screen(&app));
    press(&mut app, "Enter");
    press(&mut app, "n");
    assert!(screen(&app).contains("2 of 4"), "{}", screen(&app));
    press(&mut app, "N");
    press(&mut app, "N");
    assert!(screen(&app).contains("4 of 4"), "{}", screen(&app));
}

#[test]
fn a_list_to_choose_from_is_filtered_as_one_types() {
    let (_, mut app) = intel(4);
    press(&mut app, "F6");
    let all = app.picker.as_ref().unwrap().len();
    type_text(&mut app, "rss");
    assert!(app.picker.as_ref().unwrap().len() < all);
    assert_eq!(app.picker.as_ref().unwrap().line(0).unwrap().name, "RSS");
    press(&mut app, "Enter");
    assert_eq!(app.screens.tasks.list.sort.metric.id, "rss_bytes");
    press(&mut app, "F2");
    type_text(&mut app, "hint");
    press(&mut app, "]");
    assert!(app.state.message.as_deref().is_some_and(|text| text.contains("clear the filter")));
    press(&mut app, "Space");
    assert!(app.screens.tasks.list.columns.is_some());
    press(&mut app, "Ctrl-U");
    assert_eq!(app.picker.as_ref().unwrap().len(), all);
}

#[test]
fn metrics_without_values_here_are_last() {
    let mut app = app(&mut World::vm(), 3, SIZE, Theme::new(true, false));
    press(&mut app, "s");
    let picker = app.picker.as_ref().unwrap();
    let available: Vec<bool> = (0..picker.len()).map(|at| picker.line(at).unwrap().is_available).collect();
    assert!(available.contains(&false) && available.is_sorted_by(|a, b| a >= b), "{available:?}");
    assert!(picker.line(picker.len() - 1).unwrap().note.starts_with("unavailable: "));
}

#[test]
fn help_is_filtered_and_begins_with_the_keys_of_the_screen() {
    let (_, mut app) = intel(3);
    for key in ["2", "h"] {
        press(&mut app, key);
    }
    let text = screen(&app);
    assert!(text.find("Keys here").unwrap() < text.find("the next node-to-node matrix").unwrap(), "{text}");
    press(&mut app, "/");
    type_text(&mut app, "hide or show");
    press(&mut app, "Enter");
    let text = screen(&app);
    assert!(text.contains("kernel threads") && !text.contains("This help"), "{text}");
    press(&mut app, "Esc");
    assert!(screen(&app).contains("This help"));
    press(&mut app, "h");
    assert!(!screen(&app).contains("This help"), "h closes it, too");
}

#[test]
fn command_lines_stand_in_place_of_names() {
    let (_, mut app) = intel(4);
    press(&mut app, "c");
    assert!(app.in_view().asked.texts, "they are read on demand");
    let text = screen(&app);
    assert!(
        text.contains("CMDLINE") && text.contains("mysqld"),
        "a name where no arguments are known: {text}"
    );
    press(&mut app, "c");
    assert!(screen(&app).contains("COMMAND"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_keys_at_no_size_panic(
        steps in proptest::collection::vec((0usize..140, 1u16..300, 1u16..100), 1..60),
        machine in 0..3usize,
    ) {
        let mut world = [World::intel, World::ft_2500, World::vm][machine]();
        let mut app = app(&mut world, 2, SIZE, Theme::new(true, false));
        let keys: Vec<Key> = KEYS.iter().flat_map(|line| line.keys).copied().collect();
        for (step, width, height) in steps {
            match keys.get(step) {
                Some(Key(code, modifiers)) => {
                    app.press(KeyEvent::new(*code, *modifiers));
                }
                None if step % 3 == 0 => drop(app.sample(world.host.clone(), world.tick())),
                None if step % 3 == 1 => app.resize(Rect::new(0, 0, width, height)),
                None => {
                    let kind = MouseEventKind::Down(MouseButton::Left);
                    app.mouse(MouseEvent { kind, column: width, row: height, modifiers: KeyModifiers::NONE });
                }
            }
            if step % 5 == 0 {
                app.resize(Rect::new(0, 0, width, height));
                draw(&app, width, height);
            }
        }
    }

    #[test]
    fn every_size_can_be_drawn(width in 0u16..300, height in 0u16..100, machine in 0..3usize, key in 0..8usize) {
        let mut world = [World::intel, World::ft_2500, World::vm][machine]();
        let mut app = app(&mut world, 2, (width, height), Theme::new(false, true));
        press(&mut app, ["j", "Tab", "Enter", "?", "F2", "s", "/", "H"][key]);
        draw(&app, width, height);
    }
}

#[test]
fn tagged_rows_are_marked_and_no_filter_hides_them() {
    let (_, mut app) = intel(4);
    let (pid, all) = (selected_pid(&app), pids(&app).len());
    press(&mut app, "Space");
    assert_ne!(selected_pid(&app), pid, "the next row is selected");
    assert!(screen(&app).lines().any(|line| line.starts_with('+')), "{}", screen(&app));
    type_filter(&mut app, "no such task");
    assert_eq!(pids(&app), [pid]);
    assert!(screen(&app).contains("1 tagged"), "{}", screen(&app));
    press(&mut app, "Esc");
    assert_eq!(pids(&app).len(), all);
    // As in htop.
    press(&mut app, "U");
    assert!(screen(&app).contains("1 tag removed"), "{}", screen(&app));
    type_filter(&mut app, "no such task");
    assert!(pids(&app).is_empty());
    assert!(!app.state.sampling);
    press(&mut app, "U");
    assert!(app.state.sampling, "without tags it samples");
}

#[test]
fn a_second_tag_on_a_row_removes_the_first() {
    let (_, mut app) = intel(4);
    for key in ["Space", "Up", "Space"] {
        press(&mut app, key);
    }
    assert_eq!(app.screens.tasks.list.tags(), 0);
}

#[test]
fn in_a_recording_space_plays_and_insert_tags() {
    let (_, mut app) = intel(4);
    app.state.replay((0, i64::MAX), false);
    assert!(press(&mut app, "Space").is_some());
    press(&mut app, "Insert");
    assert_eq!(app.screens.tasks.list.tags(), 1);
}

#[test]
fn space_says_on_other_screens_what_it_does() {
    let (_, mut app) = intel(4);
    for key in ["2", "Space"] {
        press(&mut app, key);
    }
    assert!(screen(&app).contains("Space: Z pauses"), "{}", screen(&app));
    assert_eq!(app.state.behind_ns(), None);
}

#[test]
fn a_socket_of_a_finding_is_selected_among_the_sockets() {
    let mut world = World::new("intel-8269cy-hidden", true, vec![Actor::new(1, "systemd")]);
    let mut app = app(&mut world, 3, SIZE, Theme::new(true, false));
    let shown = &mut *app;
    shown.screens.nodes.open(Some(Subject::Socket(1)), &shown.state).unwrap();
    press(&mut app, "2");
    let selected = |app: &App| app.screens.nodes.subject(&app.state);
    assert_eq!(selected(&app), Some(Subject::Socket(1)));
    press(&mut app, "Up");
    assert_eq!(selected(&app), Some(Subject::Socket(0)), "it is selected once");
    let before = screen(&app);
    press(&mut app, "Enter");
    assert_eq!(screen(&app), before, "there is no view of the tasks of a socket");
}
