//! The program: reads what was typed, does it, and turns failures into messages and exit codes.

use std::process::ExitCode;

use numatop_ng::cli::Cli;
use numatop_ng::collect::libbpf_log;
use numatop_ng::error::{self, Exit, Refusal};
use numatop_ng::modes;
use numatop_ng::options::BadValue;
use numatop_ng::symbolize;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == symbolize::child::NAME) {
        return symbolize::child::main();
    }
    let cli = match Cli::from_words(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, but not to the user.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // A closed stdout or stderr leaves nobody to tell.
            let _ = error.print();
            return code.into();
        }
    };
    libbpf_log::keep();
    match modes::run(&cli) {
        Ok(code) => code,
        Err(error) => {
            let exit = match (error.downcast_ref::<BadValue>(), error.downcast_ref::<Refusal>()) {
                (Some(_), _) => Exit::Usage,
                (_, Some(refusal)) => refusal.exit,
                _ => Exit::CouldNotMeasure,
            };
            eprintln!("{}", error::message(&error));
            exit.into()
        }
    }
}
