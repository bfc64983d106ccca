//! A recorder killed at any moment loses nothing that it has acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use numatop_ng::collect::placement::draw::Random;
use numatop_ng::record::recorder::Recorder;

use crate::machine::{self, Machine};
use crate::recorder::{options, samples};
use crate::scratch::Scratch;

/// Names the file for the test below that plays the recorder.
const VARIABLE: &str = "NUMATOP_RECORD_UNTIL_KILLED";

/// The seed of the moments, when they are to be those of a run before.
const SEED: &str = "NUMATOP_KILL_SEED";

/// The latest time of the kill after the first sample, µs: enough for about a hundred more samples.
const LATEST_US: u64 = 50_000;

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
    kill(60);
}

#[test]
#[ignore = "takes minutes: make torture"]
fn nothing_acknowledged_is_lost_at_two_hundred_moments() {
    kill(200);
}

/// Kills `rounds` recorders, each at a different moment.
fn kill(rounds: usize) {
    let given = std::env::var(SEED).ok().map(|seed| seed.parse().expect("the seed is a number"));
    let seed =
        given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    println!("{SEED}={seed}");
    let mut random = Random(seed);
    let (mut all, mut most) = (0, 0);
    for round in 0..rounds {
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
        std::thread::sleep(Duration::from_micros(random.below(LATEST_US)));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = said.fold(first, usize::max);
        let read = samples(&path);
        assert!(read.len() >= acknowledged, "{} of {acknowledged} in round {round}", read.len());
        let mut machine = Machine::new(60);
        assert!(read.iter().all(|sample| *sample == machine.tick()), "round {round}");
        (all, most) = (all + acknowledged, most.max(acknowledged));
    }
    println!("killed {rounds} times: none of {all} acknowledged samples lost, at most {most} in a file");
}
