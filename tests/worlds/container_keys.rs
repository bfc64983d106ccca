//! Keys in the view of containers: into one and back, the tree, and the scope.

use common::screen::{draw, text};
use common::{App, World, app, press, type_text};

use crate::common;
use numatop_ng::tui::input::{Effect, ScreenId};
use numatop_ng::tui::theme::Theme;

const SIZE: (u16, u16) = (100, 30);
/// The cgroup of the container with two nginx.
const DOCKER: u64 = 13;

/// On the view of containers, with the docker container selected.
fn on_the_container() -> App {
    let mut app = app(&mut World::containers(), 4, SIZE, Theme::new(true, false));
    press(&mut app, "3");
    while app.screens.containers.list.selected(app.state.snapshot().unwrap()).unwrap().id != DOCKER {
        press(&mut app, "j");
    }
    app
}

fn pids(app: &App) -> Vec<u32> {
    let snapshot = app.state.snapshot().unwrap();
    app.screens.tasks.list.rows().iter().map(|row| snapshot.tasks[row.at].raw.pid).collect()
}

#[test]
fn enter_lists_its_tasks_and_esc_goes_back() {
    let mut app = on_the_container();
    press(&mut app, "Enter");
    assert_eq!(app.base(), ScreenId::Tasks);
    assert_eq!(pids(&app), [400, 401]);
    let title = text(&draw(&app, SIZE.0, SIZE.1));
    assert!(title.lines().next().unwrap().contains("in 3c0f6a4c2b9f"), "{title}");
    press(&mut app, "Esc");
    assert_eq!(app.base(), ScreenId::Containers);
    assert_eq!(app.screens.containers.list.selected(app.state.snapshot().unwrap()).unwrap().id, DOCKER);
    press(&mut app, "1");
    assert!(pids(&app).len() > 2, "{:?}", pids(&app));
}

#[test]
fn esc_drops_what_was_typed_before_it_goes_back() {
    let mut app = on_the_container();
    for key in ["Enter", "\\"] {
        press(&mut app, key);
    }
    type_text(&mut app, "nothing is called so");
    press(&mut app, "Enter");
    assert!(pids(&app).is_empty());
    press(&mut app, "Esc");
    assert_eq!((app.base(), pids(&app).len()), (ScreenId::Tasks, 2));
    press(&mut app, "Esc");
    assert_eq!(app.base(), ScreenId::Containers);
}

#[test]
fn one_key_makes_it_the_scope_and_one_clears_it() {
    let mut app = on_the_container();
    assert_eq!(press(&mut app, "c"), Some(Effect::SetScope(Some(DOCKER))));
    assert_eq!(press(&mut app, "C"), Some(Effect::SetScope(None)));
    assert_eq!(press(&mut app, "c"), Some(Effect::SetScope(Some(DOCKER))));
    assert_eq!(press(&mut app, "c"), Some(Effect::SetScope(None)), "the same key again clears it too");
    assert_eq!(press(&mut app, "C"), None);
    assert!(app.state.message.as_ref().unwrap().contains("no scope"), "{:?}", app.state.message);
}

#[test]
fn the_tree_has_totals_and_folds() {
    let mut app = on_the_container();
    let flat = app.screens.containers.list.rows().len();
    press(&mut app, "F5");
    let tree = app.screens.containers.list.rows().len();
    assert!(tree >= flat, "{tree} rows in the tree, {flat} without");
    press(&mut app, "g");
    press(&mut app, "z");
    assert!(app.screens.containers.list.rows().len() < tree);
}

#[test]
fn groups_in_view_are_asked_for_first() {
    let mut app = on_the_container();
    assert!(app.in_view().groups.contains(&DOCKER) && app.in_view().processes.is_none());
    press(&mut app, "1");
    assert!(app.in_view().groups.is_empty() && app.in_view().processes.is_some_and(|list| !list.is_empty()));
}
