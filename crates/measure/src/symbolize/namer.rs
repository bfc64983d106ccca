//! The process that opens the files of other users and asks the symbolizer about them.
//!
//! Opening a file waits for its filesystem, and one that does not answer cannot be interrupted: the tool's own threads
//! never do it.

use std::path::PathBuf;
use std::process::ExitCode;

use super::names::{Answers, Names, Said, Say};
use super::queue::Batch;
use crate::program::helper::{self, OWN_PROGRAM};

/// The name under which the tool starts itself to look for names.
pub const NAME: &str = "numatop-ng-names";

/// Answers batches of places until the input ends.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"nng-names");
    // Not before the first question: inherited files are closed first.
    let mut names: Option<Names> = None;
    helper::serve_many(
        NAME,
        || Ok(()),
        |batch: Batch, _, reply| {
            let names = names.get_or_insert_with(|| Names::new(PathBuf::from(OWN_PROGRAM)));
            // Where this fails the tool is gone, and then so is this process.
            let say = |said: &Said| drop(reply.send(said));
            reply.send(&Said::Names(answer(names, &batch, &say)))
        },
    )
}

fn answer(names: &mut Names, batch: &Batch, say: Say<'_>) -> Answers {
    match batch.process {
        Some(process) => names.in_process(process, &batch.places, &batch.reach, say),
        None => names.in_kernel(&batch.kernel_addresses()),
    }
}
