//! Choices of a report, from the command line.

use jiff::tz::TimeZone;
use regex_lite::Regex;

use super::{BadValue, bad};
use crate::cli::ReportArgs;
use crate::report::Options;

/// The zone of the times of a report.
pub fn zone(args: &ReportArgs) -> TimeZone {
    if args.utc { TimeZone::UTC } else { TimeZone::system() }
}

/// Rows, points, title.
///
/// # Errors
/// `--comm` is not a regular expression.
pub fn report(args: &ReportArgs) -> Result<Options, BadValue> {
    let comm = args.comm.as_deref().map(Regex::new).transpose();
    Ok(Options {
        top: args.top as usize,
        points: args.points as usize,
        comm: comm.map_err(|error| bad("--comm", error.to_string()))?,
        title: args.title.clone(),
    })
}

/// The refusal of recordings of several hosts in one report.
pub fn several_hosts(names: &[String]) -> BadValue {
    bad(
        "FILE|DIR",
        format!("it has recordings of {} hosts ({}): name the files of one", names.len(), names.join(", ")),
    )
}

/// The refusal to write a page to a terminal.
pub fn no_page_on_a_terminal() -> BadValue {
    bad("-o", "HTML needs a file (-o report.html); --format text prints here")
}
