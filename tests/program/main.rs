//! The program from outside: command line, output, pages, signals. `NUMATOP_NG` names another build.

mod calibrate;
mod cli;
mod code_blocks;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod diff_page;
mod diff_recorded;
mod documents;
#[path = "../common/fixture.rs"]
mod fixture;
mod followed;
mod goldens;
mod json_lines;
#[path = "../common/json_reader.rs"]
mod json_reader;
mod left_behind;
mod links;
mod packages;
mod pages;
#[cfg(feature = "parquet")]
mod parquet;
#[path = "../worlds/pmu_tables/machine.rs"]
#[allow(dead_code, reason = "one of several users")]
mod pmu_machine;
mod prepared_by_others;
mod printed;
#[path = "../common/program.rs"]
mod program;
mod progress;
#[path = "../recordings/machine.rs"]
#[allow(dead_code, reason = "one of several users")]
mod recorded_machine;
mod removed_recordings;
mod report;
mod runs;
#[path = "../common/scratch.rs"]
#[allow(dead_code, reason = "one of several users")]
mod scratch;
mod settings;
#[expect(unsafe_code, reason = "calls C")]
mod signals;
mod symbols;
mod systemd;
#[path = "../common/terminal.rs"]
mod terminal;
mod traces;
mod units;
#[path = "../worlds/pmu_tables/upstream.rs"]
#[allow(dead_code, reason = "one of several users")]
mod upstream;
