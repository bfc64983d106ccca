//! The program: reads the command line, executes it, and turns failures into messages and exit codes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use numatop_ng::cli::{self, Cli, Places};
use numatop_ng::collect::object;
use numatop_ng::error::{self, Exit, Refusal};
use numatop_ng::options::BadValue;
use numatop_ng::program::{guard, output, signals, systemd};
use numatop_ng::{run, sys};

/// The stack of the deepest calls, with room; the limit on the stack of the first thread (`ulimit -s`) may be below it.
const STACK_BYTES: usize = 4 << 20;

/// The exit code of a panic, as in the standard library.
const PANICKED: u8 = 101;

fn main() -> ExitCode {
    if let Some(code) = run::started_as() {
        return code;
    }
    // Threads that read a recording allocate all the time, and would wait for each other.
    if !cli::reads_recordings(std::env::args_os().nth(1).as_deref()) {
        sys::share_heap();
    }
    // Before anything is opened: descriptors are theirs by number.
    if let Err(error) = systemd::take_over() {
        output::message(format!("numatop-ng: cannot take over the sockets of the service manager: {error}"));
        return Exit::CouldNotMeasure.into();
    }
    if let Err(error) = signals::catch() {
        output::message(format!("numatop-ng: cannot catch signals: {error}"));
        return Exit::CouldNotMeasure.into();
    }
    // If no thread can be created, the main thread runs it.
    match thread::Builder::new().stack_size(STACK_BYTES).spawn(run) {
        Ok(thread) => thread.join().unwrap_or(PANICKED.into()),
        Err(_) => run(),
    }
}

fn run() -> ExitCode {
    let (cli, places) = match Cli::with_places(std::env::args_os()) {
        Ok(typed) => typed,
        Err(error) => {
            // Help and version are errors to clap, but not to the user.
            if !error.use_stderr() {
                // All text is our own, with clap's colours. With stdout closed the error cannot be reported.
                let _ = error.print();
                return Exit::Ok.into();
            }
            output::lines(error.render());
            return Exit::Usage.into();
        }
    };
    object::keep();
    if let Some(place) = silent_place(places) {
        output::message(format!("numatop-ng: {}: its file system does not respond", place.display()));
        return Exit::CouldNotMeasure.into();
    }
    match run::run(&cli) {
        Ok(code) => code,
        Err(error) => {
            let exit = match (error.downcast_ref::<BadValue>(), error.downcast_ref::<Refusal>()) {
                (Some(_), _) => Exit::Usage,
                (_, Some(refusal)) => refusal.exit,
                _ => Exit::CouldNotMeasure,
            };
            output::lines(error::message(&error, &std::env::args_os().collect::<Vec<_>>()));
            exit.into()
        }
    }
}

/// A place on the command line, or one where its program is looked for, on a file system that does not
/// answer. A process that waits for it could not be ended.
fn silent_place(Places { files, program }: Places) -> Option<PathBuf> {
    if let Some(place) = files.into_iter().find(|place| guard::is_silent(place)) {
        return Some(place);
    }
    let program = PathBuf::from(program?);
    let folders = std::env::var_os("PATH").filter(|_| program.components().count() == 1);
    let tried = folders.iter().flat_map(std::env::split_paths).map(|folder| folder.join(&program));
    for place in tried.chain([program.clone()]) {
        if guard::is_silent(&place) {
            return Some(place);
        }
        if place.is_file() {
            return None;
        }
    }
    None
}
