//! A recording that is followed on the screen, and what becomes of its file meanwhile.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::terminal;
use terminal::Terminal;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");

/// A copy of the recording in a separate directory.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str) -> Copy {
        let dir = std::env::temp_dir().join(format!("numatop-ng-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::copy(FIXTURE, dir.join("file")).unwrap();
        Copy(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.join("file")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `replay --follow` in a pseudo-terminal of one wide screen.
fn follow(path: &Path) -> Terminal {
    Terminal::start(&[OsStr::new("replay"), OsStr::new("--follow"), path.as_os_str()], 30, 250).unwrap()
}

/// Waits until the screen has this in a row.
fn until(view: &mut Terminal, wanted: &str) {
    view.until(wanted, |text| text.contains(wanted)).unwrap();
}

fn title(view: &Terminal) -> String {
    view.text().lines().next().unwrap_or_default().to_string()
}

#[test]
fn the_screen_says_that_the_file_it_follows_was_removed() {
    let copy = Copy::new("removed");
    let mut view = follow(&copy.path());
    until(&mut view, "follows");
    fs::remove_file(copy.path()).unwrap();
    until(&mut view, "was removed while it was followed: no more samples will come");
    assert!(!title(&view).contains("follows"), "{}", title(&view));
}

#[test]
fn the_screen_says_that_the_file_it_follows_was_emptied_and_goes_on_with_it() {
    let copy = Copy::new("emptied");
    let whole = fs::read(copy.path()).unwrap();
    let mut view = follow(&copy.path());
    until(&mut view, "follows");
    // It must be at the end before the file is emptied.
    until(&mut view, "COMMAND");
    let file = OpenOptions::new().write(true).open(copy.path()).unwrap();
    file.set_len(0).unwrap();
    until(&mut view, "was cut to 0 bytes; waiting until the file grows again");
    assert!(title(&view).contains("follows"), "{}", title(&view));
    fs::write(copy.path(), whole).unwrap();
    view.until("no word of a file that has grown again", |text| !text.contains("was cut to 0 bytes"))
        .unwrap();
}
