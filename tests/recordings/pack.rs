//! Samples packed in memory, as the live view keeps its history.

use std::sync::Arc;

use numatop_ng::model::sample::{Sample, TaskRaw, TaskRows};
use numatop_ng::record::pack::{Pack, Packer, Rows, Unpacker, share};
use numatop_ng::source::synthetic::demo_machine;

fn packed(samples: &[Sample]) -> Pack {
    let (mut packer, mut pack) = Packer::begin(&samples[0]).unwrap();
    for sample in &samples[1..] {
        assert!(packer.push(&mut pack, sample).unwrap());
    }
    pack
}

fn samples(count: usize) -> Vec<Sample> {
    let mut machine = demo_machine();
    (0..count).map(|_| machine.tick()).collect()
}

#[test]
fn every_sample_comes_back_in_any_order() {
    let samples = samples(70);
    let pack = packed(&samples);
    assert_eq!(pack.len(), samples.len());
    let mut opened = Unpacker::open(&pack, Rows::All).unwrap();
    let mut without_tasks = Unpacker::open(&pack, Rows::NoTasks).unwrap();
    for at in (0..70).chain((0..70).rev().step_by(7)) {
        assert_eq!(opened.sample(&pack, at).unwrap(), samples[at], "sample {at}");
        let rest = Sample { tasks: TaskRows::default(), ..samples[at].clone() };
        assert_eq!(without_tasks.sample(&pack, at).unwrap(), rest, "sample {at}");
    }
    assert!(opened.sample(&pack, 70).is_err());
}

#[test]
fn it_is_a_small_part_of_the_rows() {
    let samples = samples(32);
    let pack = packed(&samples);
    let rows: usize = samples.iter().map(|sample| size_of::<TaskRaw>() * sample.tasks.len()).sum();
    assert!(pack.bytes() * 4 < rows, "{} bytes for rows of {rows}", pack.bytes());
    assert!(pack.key_bytes() < pack.bytes() / 2);
}

#[test]
fn tasks_in_another_order_are_not_told_apart() {
    let samples = samples(2);
    let (mut packer, mut pack) = Packer::begin(&samples[0]).unwrap();
    let mut tasks = samples[1].tasks.to_vec();
    tasks.swap(0, 1);
    assert!(!packer.push(&mut pack, &Sample { tasks: tasks.into(), ..samples[1].clone() }).unwrap());
    assert_eq!(pack.len(), 1);
}

#[test]
fn rows_of_a_sample_are_those_of_the_one_beside_it_where_they_are_the_same() {
    let samples = samples(3);
    let pack = packed(&samples);
    let mut opened = Unpacker::open(&pack, Rows::All).unwrap();
    let mut sample = opened.sample(&pack, 1).unwrap();
    share(&samples[2].tasks, &mut sample.tasks);
    let is_same = |(row, beside): (&Arc<TaskRaw>, &Arc<TaskRaw>)| Arc::ptr_eq(row, beside);
    let same: Vec<bool> = sample.tasks.iter().zip(&samples[2].tasks).map(is_same).collect();
    let equal: Vec<bool> = samples[1].tasks.iter().zip(&samples[2].tasks).map(|(a, b)| a == b).collect();
    assert_eq!((same, sample), (equal, samples[1].clone()));
}
