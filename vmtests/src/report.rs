//! Standard output, which its reader may close early, and which may be a user's terminal.

use std::fmt::Display;
use std::io::{self, Write};
use std::process;

/// The exit status of a program that SIGPIPE ended, as in a shell.
const PIPE_CLOSED: i32 = 128 + 13;

/// The output of a guest, with nothing in it that a terminal would take for a command.
pub fn printable(text: &str) -> String {
    text.chars().filter(|&c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// Prints `text` in one piece. Ends the program when the reader is gone (`| head`): guests end with it.
pub fn print(text: impl Display) {
    if let Err(error) = write!(io::stdout().lock(), "{text}").and_then(|()| io::stdout().flush()) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("vmtests: writing to standard output: {error}");
        }
        process::exit(PIPE_CLOSED);
    }
}
