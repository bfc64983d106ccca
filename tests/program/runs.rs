//! Wrong usage of `run`: refused before anything is started.

use std::process::{Command, Output};

use crate::program;

fn run(words: &[&str]) -> Output {
    Command::new(program::path()).arg("run").args(words).env_remove("SUDO_UID").output().unwrap()
}

#[test]
fn a_command_that_cannot_be_placed_is_not_started() {
    for (words, why) in [
        (&[][..], "<COMMAND>"),
        (&["true"], "numatop-ng run -- true"),
        (&["--bind", "socket:0", "--", "echo", "started"], "is not a place such as node:0"),
        (&["--bind", "node:4094", "--", "echo", "started"], "the machine has no node 4094"),
        (&["--as-user", "--", "echo", "started"], "was not started by sudo"),
        (&["--record", "x", "--repeat", "2", "--", "echo", "started"], "cannot be used with"),
        (&["--repeat", "0", "--", "echo", "started"], "not a number from 1 to 1000"),
    ] {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{words:?}: {said}");
    }
}

#[test]
fn a_page_never_replaces_a_file() {
    let output = run(&["-o", "/etc/hostname", "--", "echo", "started"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("exists: name a new file") && output.stdout.is_empty(), "{said}");
}
