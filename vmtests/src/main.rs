//! The runner: boots guests, hands each its cases, and reports every result.

mod apt;
mod boot;
mod cpio;
mod debian;
mod features;
mod image;
mod kernels;
mod layouts;
mod matrix;
mod options;
mod plan;
mod qemu;
mod record;
mod report;
mod run;
mod shell;
mod snapshots;
mod summary;
mod topology;
mod transcript;

use std::path::Path;
use std::process::ExitCode;

use options::{Mode, Options};

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("vmtests: {why}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match dispatch(&options) {
        Ok(code) => ExitCode::from(code),
        Err(Trouble { status, why }) => {
            eprintln!("vmtests: {why}");
            ExitCode::from(status)
        }
    }
}

/// The reason why the run ended, and its exit status.
struct Trouble {
    status: u8,
    why: String,
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Trouble { status: 1, why }
    }
}

fn dispatch(options: &Options) -> Result<u8, Trouble> {
    let kernels = kernels::parse(include_str!("../KERNELS"))?;
    let topologies = topology::parse(include_str!("../topologies.toml"))?;
    let no_such = |why| Trouble { status: 2, why };
    let planned =
        |wanted| plan::jobs(include_str!("../guests.toml"), &kernels, &topologies, wanted).map_err(no_such);
    let jobs = || planned(&options.wanted);
    let guest = || shell::choose(&kernels, &topologies, options).map_err(no_such);
    match &options.mode {
        Mode::Help => report::print(format_args!("{}\n", options::USAGE)),
        Mode::List => {
            for job in jobs()? {
                report::print(format_args!("{}: {}\n", record::GuestId::of(&job), job.cases.join(" ")));
            }
        }
        Mode::Fetch => {
            let mut status = 0;
            for kernel in &kernels {
                match debian::kernel(kernel, true) {
                    Ok((path, package)) => {
                        report::print(format_args!(
                            "{} {}: {package} in {}\n",
                            kernel.name,
                            kernel.arch,
                            path.display()
                        ));
                    }
                    Err(why) => {
                        report::print(format_args!("{} {}: not covered: {why}\n", kernel.name, kernel.arch));
                        status = summary::PARTIAL;
                    }
                }
            }
            return Ok(status);
        }
        Mode::Layouts => return Ok(layouts::all(&kernels, &options.wanted)),
        Mode::Run if options.check => {
            jobs()?;
        }
        Mode::Shell if options.check => {
            guest()?;
        }
        Mode::Run => {
            let jobs = match &options.json {
                Some(path) if options.again => {
                    let lines = results(path)?;
                    let left = record::Standing::of(&lines).left_of(jobs()?);
                    if left.is_empty() {
                        report::print(format_args!(
                            "all that is asked for has passed in {}\n",
                            path.display()
                        ));
                        return Ok(0);
                    }
                    left
                }
                _ => jobs()?,
            };
            return Ok(run::all(&jobs, options)?);
        }
        Mode::Shell => shell::open(&guest()?, options)?,
        Mode::RustSrc(version) => report::print(format_args!("{}\n", debian::rust_src(version)?.display())),
        Mode::Matrix(path) => {
            let lines = results(path)?;
            report::print(matrix::render(&lines, &planned(&plan::Wanted::default())?));
        }
    }
    Ok(0)
}

/// The lines of a file of results.
fn results(path: &Path) -> Result<Vec<record::Line>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    record::read(&text).map_err(|why| format!("{}: {why}", path.display()))
}
