//! Words about long work: on a terminal there are some, elsewhere none.

use crate::pages::{numatop, text};
use crate::scratch::Scratch;
use crate::terminal::Terminal;

#[test]
fn a_recording_says_where_it_goes_and_what_it_came_to() {
    let scratch = Scratch::new();
    let path = scratch.join("web.nrec");
    let words = ["record", text(&path), "--demo", "-n", "6"];
    let mut terminal = Terminal::start(&words, 24, 200).unwrap();
    terminal.until("the end", |text| text.contains("recorded 6 intervals, ")).unwrap();
    let shown = terminal.text();
    assert!(shown.contains("recording to ") && shown.contains("for 6 intervals"), "{shown}");
    assert!(shown.contains(" kB, ") && shown.trim_end().ends_with("web.nrec"), "{shown}");

    let again = scratch.join("again.nrec");
    let quiet = numatop(&["record", text(&again), "--demo", "-n", "6"]);
    assert!(
        quiet.status.success() && !String::from_utf8_lossy(&quiet.stderr).contains("record"),
        "{quiet:?}"
    );
}
