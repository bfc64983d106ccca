//! The processes that the program starts from itself, each under a different name.

use std::process::ExitCode;

use crate::collect::mm_reader;
use crate::container::lookup;
use crate::host::clock;
use crate::program::{asked_file, launch};
use crate::{calibrate, symbolize};

/// The whole of such a process.
type Main = fn() -> ExitCode;

/// Does the work of such a process, if this one was started as one. Every program that makes a live source
/// calls it first; otherwise its children would start as another copy of the program.
pub fn started_as() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let mains: [(&str, Main); 7] = [
        (symbolize::child::NAME, symbolize::child::main),
        (symbolize::namer::NAME, symbolize::namer::main),
        (asked_file::NAME, asked_file::main),
        (lookup::NAME, lookup::main),
        (mm_reader::child::NAME, mm_reader::child::main),
        (launch::NAME, launch::main),
        (calibrate::child::NAME, calibrate::child::main),
    ];
    let (_, main) = mains.into_iter().find(|(known, _)| name == *known)?;
    // Some of them open nothing later.
    clock::learn_offsets();
    Some(main())
}
