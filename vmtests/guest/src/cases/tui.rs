//! The live view as a person sees it, in a pseudo terminal of this guest.

use std::num::NonZero;
use std::time::Duration;

use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus};
use crate::report::Report;
use crate::screen::Screen;
use crate::sysfs::show_list;
use crate::tool;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "tui",
    about: "the live view in a terminal of 100 by 40: shows the load and every node, and leaves on q",
    run,
};

const ROWS: NonZero<u16> = NonZero::new(40).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();
const PATIENCE: Duration = Duration::from_secs(15);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let work = Work::start_now("spin", &[&show_list(&all_cpus(plan))])?;
    let mut screen = Screen::start(tool::command(&["-d", "0.5"])?, ROWS, COLUMNS)?;
    let pid = work.pid().to_string();
    let shown = screen.wait_for(PATIENCE, |text| text.contains(&pid));
    report.data("screen", screen.text());
    if !shown {
        return Err(Stop::fail(format!("process {pid} is not on the screen, which says: {}", screen.text())));
    }
    report.check(true, "the busy process is on the screen", "there", "there");
    screen.type_keys("?")?;
    let help = screen.wait_for(PATIENCE, |text| text.to_lowercase().contains("help"));
    report.data("help", screen.text());
    report.check(help, "? shows the help", true, help);
    screen.type_keys("\x1b")?;
    screen.wait_for(PATIENCE, |text| text.contains(&pid));
    screen.type_keys("q")?;
    let code = screen.end(PATIENCE)?;
    report.equal("exit code after q", "0".to_owned(), code);
    report.check(!screen.alternate(), "the terminal is back on its normal screen", true, !screen.alternate());
    report.check(!screen.cursor_hidden(), "the cursor is back", true, !screen.cursor_hidden());
    work.stop()?;
    Ok(())
}
