//! Choices of a trace or a profile, from the command line.

use regex_lite::Regex;

use super::{BadValue, bad};
use crate::cli::DisplayArgs;
use crate::traces::TraceFormat;

/// Programs and containers with tracks in a trace, by default (`--top`).
const TOP: (usize, usize) = (20, 100);

/// Rows of a trace or a profile.
#[derive(Clone, Debug)]
pub struct TraceChoice {
    /// Programs with tracks of their own, and containers.
    pub top: (usize, usize),
    /// The name of a program or of a sampled process must match.
    pub comm: Option<Regex>,
}

/// The rows of `format`.
///
/// # Errors
/// A flag has no effect on this format, or `--comm` is not a regular expression.
pub fn trace(args: &DisplayArgs, format: TraceFormat) -> Result<TraceChoice, BadValue> {
    let is_trace = format == TraceFormat::Perfetto;
    let rows: [(&'static str, bool); 8] = [
        ("--threads", args.threads),
        ("--by-container", args.by_container),
        ("--by-llc", args.by_llc),
        ("--by-socket", args.by_socket),
        ("--columns", !args.columns.is_empty()),
        ("--sort", args.sort.is_some()),
        ("--node", args.node.is_some()),
        ("--top", args.top.is_some() && !is_trace),
    ];
    if let Some((flag, _)) = rows.iter().find(|(_, typed)| *typed) {
        let others =
            if is_trace { "--comm and --top choose its programs" } else { "--comm chooses its samples" };
        return Err(bad(flag, format!("has no effect on {}: {others}", format.name())));
    }
    let comm = args.comm.as_deref().map(Regex::new).transpose();
    Ok(TraceChoice {
        top: args.top.map_or(TOP, |top| (top as usize, top as usize)),
        comm: comm.map_err(|error| bad("--comm", error.to_string()))?,
    })
}

/// The refusal to write something that is not text to a terminal.
pub fn no_trace_on_a_terminal(format: TraceFormat) -> BadValue {
    let (name, extension) = (format.name(), format.extension());
    bad("-o", format!("{name} is not for a terminal: name a file (-o x.{extension}), or write to a pipe"))
}
