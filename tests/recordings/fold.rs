//! Folding leaves the sum over all rows as it was, interval by interval, whatever comes and goes.

use std::sync::Arc;

use numatop_ng::collect::parsed::Parsed;
use numatop_ng::collect::table::TaskTable;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, Sample, Slot, TaskRaw};
use numatop_ng::record::aggregate::{Fold, Keep};
use numatop_ng::snapshot::{RowKind, Snapshot, Task, derive};
use proptest::prelude::*;

use crate::machine::{self, Machine};

/// An event of a thread in an interval.
#[derive(Clone, Debug)]
enum Event {
    Run {
        thread: usize,
        ns: u64,
        node: usize,
    },
    /// A new thread of the process of this one.
    Clone {
        thread: usize,
    },
    /// A new process.
    Fork,
    End {
        thread: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..20usize, 1..900_000_000u64, 0..2usize)
            .prop_map(|(thread, ns, node)| Event::Run { thread, ns, node }),
        1 => (0..20usize).prop_map(|thread| Event::Clone { thread }),
        1 => Just(Event::Fork),
        2 => (0..20usize).prop_map(|thread| Event::End { thread }),
    ]
}

/// Threads, and the table that the live source keeps of them.
struct Threads {
    live: Vec<TaskRaw>,
    table: TaskTable,
    template: Sample,
    next: u32,
    now_ns: u64,
}

impl Threads {
    fn new() -> Threads {
        let template = Machine::new(1).tick();
        let now_ns = template.boot_ns;
        let mut threads =
            Threads { live: Vec::new(), table: TaskTable::default(), template, next: 0, now_ns };
        (0..6).for_each(|_| threads.start(None));
        // They are older than the first look at them.
        for thread in &mut threads.live {
            (thread.start_ns, thread.leader_start_ns) = (u64::from(thread.tid), u64::from(thread.pid));
            thread.counts[Counter::Nvcsw] = 1000;
        }
        threads
    }

    fn start(&mut self, of: Option<usize>) {
        self.next += 1;
        let leader = of.map(|at| (self.live[at].pid, self.live[at].leader_start_ns));
        let tid = 100 + self.next;
        let (pid, leader_start_ns) = leader.unwrap_or((tid, self.now_ns));
        self.live.push(TaskRaw {
            serial: self.next.into(),
            pid,
            tid,
            start_ns: self.now_ns,
            leader_start_ns,
            counts: Counts { run_ns: vec![0, 0], ..Counts::default() },
            ..TaskRaw::clone(&self.template.tasks[0])
        });
    }

    fn interval(&mut self, events: &[Event]) -> Sample {
        let mut ends = Vec::new();
        for event in events {
            self.now_ns += 1000;
            let count = self.live.len();
            match *event {
                Event::Fork => self.start(None),
                _ if count == 0 => {}
                Event::Clone { thread } => self.start(Some(thread % count)),
                Event::Run { thread, ns, node } => {
                    let counts = &mut self.live[thread % count].counts;
                    counts.run_ns[node] += ns;
                    counts[Counter::Nvcsw] += 3;
                    counts[Counter::MinFlt] += 5;
                    counts.slots[0] = Slot { count: counts.slots[0].count + ns, ..Slot::default() };
                }
                Event::End { thread } => {
                    let task = self.live.remove(thread % count);
                    let group_live = self.live.iter().filter(|other| other.pid == task.pid).count() as u32;
                    ends.push(Parsed { task, leaves: false, group_live, uncharged: None });
                }
            }
        }
        self.now_ns += 1_000_000_000;
        let walk = self.live.iter().map(|task| Parsed {
            task: task.clone(),
            leaves: false,
            group_live: 1,
            uncharged: None,
        });
        self.table.apply(ends, walk.collect(), false);
        let (tasks, exited) = self.table.snapshot();
        let (mono_ns, boot_ns) = (self.now_ns, self.now_ns);
        Sample { mono_ns, boot_ns, tasks: tasks.into(), exited, ..self.template.clone() }
    }
}

fn sum(snapshot: &Snapshot) -> Counts {
    let mut sum = Counts { run_ns: vec![0, 0], ..Counts::default() };
    snapshot.tasks.iter().for_each(|task| sum += &task.delta);
    sum
}

proptest! {
    #[test]
    fn the_sum_over_all_rows_stays(intervals in proptest::collection::vec(proptest::collection::vec(event(), 0..12), 2..9), top in 0..4usize) {
        let host = Arc::new(machine::host());
        let mut fold = Fold::new(Keep { top: Some(top), min_cpu_pct: None });
        let mut threads = Threads::new();
        let mut before: Option<(Sample, Sample)> = None;
        for events in &intervals {
            let raw = threads.interval(events);
            let folded = fold.fold(&host, &raw);
            let recorded = folded.sample.clone();
            fold.commit(folded);
            if let Some((raw_before, recorded_before)) = &before {
                let all = derive(&host, Some(raw_before), &raw, RowKind::Processes);
                let kept = derive(&host, Some(recorded_before), &recorded, RowKind::Processes);
                prop_assert_eq!(sum(&kept), sum(&all));
                prop_assert!(kept.tasks.len() <= top + 1);
                for row in kept.tasks.iter().filter(|row| row.raw.pid != 0) {
                    let process = row.raw.process();
                    let same = all.tasks.iter().find(|other| other.raw.process() == process).unwrap();
                    // A row that did nothing has no nodes, or a zero for each.
                    let ran = |row: &Task| row.delta.run_ns.iter().rposition(|ns| *ns > 0).map(|last| row.delta.run_ns[..=last].to_vec());
                    prop_assert_eq!(ran(row), ran(same));
                }
            }
            before = Some((raw, recorded));
        }
    }
}

#[test]
fn a_share_of_a_cpu_decides_too() {
    let host = Arc::new(machine::host());
    let mut fold = Fold::new(Keep { top: None, min_cpu_pct: Some(1.0) });
    let mut machine = Machine::new(200);
    for at in 0..5 {
        let folded = fold.fold(&host, &machine.tick());
        if at > 0 {
            assert!((1..150).contains(&folded.sample.tasks.len()), "{} rows", folded.sample.tasks.len());
        }
        fold.commit(folded);
    }
}
