//! The live view as a person sees it, in a pseudo terminal of this guest.

use std::num::NonZero;
use std::time::Duration;

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::report::Report;
use crate::screen::Screen;
use crate::tool;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "tui",
    about: "the live view in a terminal of 100 by 40: shows the load and every node, and leaves on q",
    run,
};

const ROWS: NonZero<u16> = NonZero::new(40).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();
/// A limit for hangs: four of these fit into the limit of a case.
const PATIENCE: Duration = Duration::from_secs(140);

/// A column title that is on the screen of tasks and nowhere else.
const TASKS: &str = "COMMAND";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    // One busy CPU: the view itself must get some of an emulated machine.
    let work = Work::start_now("spin", &[&(plan.machine.cpus() - 1).to_string()])?;
    let mut screen = Screen::start(tool::command(&["-d", "0.5"])?, ROWS, COLUMNS)?;
    let pid = work.pid().to_string();
    let is_row = |line: &str| line.split_whitespace().next() == Some(&pid) && line.contains("spin");
    let shown = screen.wait_for(PATIENCE, |text| text.lines().any(is_row));
    let text = screen.text();
    report.data("screen", text.clone());
    report.check(shown, "the busy process has a row that names it", true, shown);
    if !shown {
        return Err(Stop::fail(format!(
            "there is no row of process {pid}, spin, on the screen, which says: {text}"
        )));
    }
    // A line for each node, or one line with a column for each.
    let last = (plan.machine.nodes.len() - 1).to_string();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let there = lines.clone().any(|words| {
        words.first() == Some(&"node")
            && (words.get(1) == Some(&last.as_str()) || words.last() == Some(&last.as_str()))
    });
    report.check(there, format_args!("node {last} is on the screen"), true, there);
    if !there {
        report.say(&text);
    }
    for (keys, what, tasks) in
        [("?", "? shows the help in place of the tasks", false), ("\x1b", "Esc goes back", true)]
    {
        screen.type_keys(keys)?;
        let done = screen.wait_for(PATIENCE, |text| text.contains(TASKS) == tasks);
        report.data(what, screen.text());
        report.check(done, what, true, done);
    }
    screen.type_keys("q")?;
    let code = screen.end(PATIENCE)?;
    report.equal("exit code after q", "0".to_owned(), code);
    report.check(!screen.alternate(), "the terminal is back on its normal screen", true, !screen.alternate());
    report.check(!screen.cursor_hidden(), "the cursor is back", true, !screen.cursor_hidden());
    work.stop()?;
    Ok(())
}
