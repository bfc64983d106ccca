//! Work of known size and place. Each workload runs until its standard input ends, and then
//! prints what it did, as one JSON object: the truth that cases compare the tool with.

mod spin;

use std::process::ExitCode;

use serde_json::Value;

pub const NAMES: &[(&str, &str)] = &[("spin", "one busy thread pinned to each CPU given")];

pub fn run(name: &str, arguments: &[&str]) -> ExitCode {
    let truth: Result<Value, String> = match name {
        "spin" => spin::run(arguments),
        _ => Err(format!("no workload {name}; see 'guest workloads'")),
    };
    match truth {
        Ok(truth) => {
            println!("{truth}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("guest workload {name}: {why}");
            ExitCode::from(2)
        }
    }
}
