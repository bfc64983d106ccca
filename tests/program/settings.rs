//! The file of settings and the live view: what W keeps holds at the next start, and a file with a mistake changes nothing.

use std::fs;
use std::path::PathBuf;

use crate::program;
use crate::scratch;
use crate::terminal;
use portable_pty::CommandBuilder;
use scratch::Scratch;
use terminal::Terminal;

/// A folder of this test, for its file.
struct Place(Scratch);

impl Place {
    fn new() -> Place {
        Place(Scratch::new())
    }

    fn file(&self) -> PathBuf {
        self.0.join("numatop-ng/config.toml")
    }

    /// The made-up machine on a screen, for a user whose settings are here.
    fn start(&self, words: &[&str]) -> Terminal {
        let mut command = CommandBuilder::new(program::path());
        command.args([&["--demo"], words].concat());
        command.env_remove("NUMATOP_NG_CONFIG");
        command.env("XDG_CONFIG_HOME", self.0.path());
        let mut terminal = Terminal::run(command, 24, 120).unwrap().0;
        terminal.until("table", |text| text.contains("postgres")).unwrap();
        terminal
    }

    fn quit(mut terminal: Terminal) {
        terminal.press("q").unwrap();
        assert!(terminal.ended().unwrap().success());
    }
}

/// The titles of the columns.
fn titles(terminal: &Terminal) -> String {
    let text = terminal.text();
    text.lines().find(|line| line.contains("PID")).unwrap_or_default().to_owned()
}

#[test]
fn what_is_kept_holds_at_the_next_start_unless_a_flag_is_typed() {
    let place = Place::new();
    let mut first = place.start(&["--columns", "pid,comm,cpu_pct", "--ascii"]);
    first.press("M").unwrap();
    first.press("Wy").unwrap();
    first.until("the name of the file", |text| text.contains("defaults saved: ")).unwrap();
    Place::quit(first);
    let file = fs::read_to_string(place.file()).unwrap();
    assert!(file.contains("columns = [\"pid\", \"comm\", \"cpu_pct\"]\n"), "{file}");
    assert!(file.contains("sort = \"rss_bytes\"\n") && !file.contains("delay"), "{file}");
    // A flag that no key changes was not chosen in the view.
    assert!(!file.contains("ascii"), "{file}");

    let second = place.start(&[]);
    let kept = titles(&second);
    assert!(kept.contains("PID") && !kept.contains("IPC"), "{kept}");
    Place::quit(second);
    let third = place.start(&["--columns", "pid,comm,cpu_pct,ipc"]);
    let typed = titles(&third);
    assert!(typed.contains("IPC"), "{typed}");
    Place::quit(third);
}

#[test]
fn a_file_with_a_mistake_is_named_with_its_line_and_left_alone() {
    let place = Place::new();
    fs::create_dir_all(place.file().parent().unwrap()).unwrap();
    let wrong = "threads = true\ncolumns = [\"cpu_percent\"]\n";
    fs::write(place.file(), wrong).unwrap();
    let mut view = place.start(&[]);
    assert!(titles(&view).contains("IPC"), "the defaults: {}", view.text());
    view.press("Wy").unwrap();
    view.until("the reason", |text| text.contains("defaults not saved") && text.contains("line 2")).unwrap();
    Place::quit(view);
    assert_eq!(fs::read_to_string(place.file()).unwrap(), wrong);
}

#[test]
fn batch_output_never_reads_the_file() {
    let place = Place::new();
    fs::create_dir_all(place.file().parent().unwrap()).unwrap();
    fs::write(place.file(), "columns = [\"pid\"]\nthreads = true\n").unwrap();
    let output = |config: &std::path::Path| {
        let mut command = std::process::Command::new(program::path());
        let command = command.args(["--demo", "-b", "-n", "1", "--format", "csv"]);
        command.env("NUMATOP_NG_CONFIG", config).output().unwrap().stdout
    };
    assert_eq!(output(&place.file()), output(&place.0.join("none.toml")));
}

#[test]
fn a_file_that_is_named_and_not_there_is_told() {
    let place = Place::new();
    let path = place.0.join("elsewhere.toml");
    let path = path.to_str().unwrap();
    let mut named = place.start(&["--config", path]);
    named.until("a word", |text| text.contains("does not exist")).unwrap();
    Place::quit(named);
    // The user's own need not be there.
    let own = place.start(&[]);
    assert!(!own.text().contains("does not exist"), "{}", own.text());
    Place::quit(own);
}

#[test]
fn output_in_batches_says_that_it_reads_no_settings() {
    let place = Place::new();
    let output = std::process::Command::new(program::path())
        .args(["--demo", "-b", "-n", "1", "-d", "0.1", "--config", "mine.toml"])
        .env("XDG_CONFIG_HOME", place.0.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("mine.toml is not read"), "{told}");
}
