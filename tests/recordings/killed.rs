//! A recorder that is killed at any moment loses nothing that it had acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use numatop_ng::record::recorder::Recorder;

use crate::machine::{self, Machine};
use crate::recorder::{options, samples};
use crate::scratch::Scratch;

/// Names the file for the test below that plays the recorder.
const VARIABLE: &str = "NUMATOP_RECORD_UNTIL_KILLED";

const ROUNDS: u64 = 60;

#[test]
#[ignore = "not a test: the process that nothing_acknowledged_is_lost kills"]
fn record_until_killed() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let mut recorder = Recorder::open(&PathBuf::from(path), options()).unwrap();
    let host = Arc::new(machine::host());
    let mut machine = Machine::new(60);
    for count in 1.. {
        recorder.record(&host, &machine.tick()).unwrap();
        println!("\n{count}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    for round in 0..ROUNDS {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::record_until_killed", "--ignored", "--nocapture"])
            .env(VARIABLE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        // Numbers; one that was cut by the end is a smaller one.
        let mut said = out
            .split(b'\n')
            .map_while(Result::ok)
            .filter_map(|line| std::str::from_utf8(&line).ok().and_then(|text| text.parse::<usize>().ok()));
        // However long it takes to start: it records when it is killed.
        let first = said.next().expect("it records until it is killed");
        std::thread::sleep(Duration::from_micros(round * 7919 % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = said.fold(first, usize::max);
        let read = samples(&path);
        assert!(read.len() >= acknowledged, "{} of {acknowledged} in round {round}", read.len());
        let mut machine = Machine::new(60);
        assert!(read.iter().all(|sample| *sample == machine.tick()), "round {round}");
    }
}
