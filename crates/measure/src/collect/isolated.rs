//! CPUs that a sample does not interrupt, and tasks there that nothing has charged yet. Pure.
//!
//! An interrupt wakes an idle CPU for nothing, and disturbs a CPU that its user keeps free of them. A word of
//! mapped memory shows that a CPU is idle. On isolated CPUs a task may run for days without a switch. Its
//! time is then the scheduler's, which the walk over tasks reads (`se.sum_exec_runtime`). The tick updates
//! it; where a lone task has no tick, another CPU does so once a second (`sched_tick_remote()` of
//! kernel/sched/core.c). Counters of another CPU cannot be read without an interrupt: their counts are
//! charged at the next switch.

use std::collections::{BTreeSet, HashMap};

use super::cpu_states::Running;
use super::parsed::{Parsed, Uncharged};
use crate::model::sample::{CpuRaw, Slot, Slots, TaskRaw};
use crate::model::topology::format_cpulist;
use crate::model::units::CpuId;
use crate::model::wire::{CPU_UNSEEN, SLOTS};

/// State of a task that is on a CPU or waits for one (include/linux/sched.h).
const TASK_RUNNING: u32 = 0;

/// A task with uncharged time, as in the kernel's record.
#[derive(Debug)]
struct Standing {
    charged_ns: u64,
    slots: Slots,
}

/// A isolated CPU as of the sample before.
#[derive(Debug)]
struct Before {
    mono_ns: u64,
    switches: u64,
    uncharged_ns: u64,
    /// Busy time as reported, and the part of the kernel's that is never reported.
    busy_ns: u64,
    left_out_ns: u64,
    /// Its counts when it was first seen: they stay so.
    slots: [Slot; SLOTS],
}

/// The CPUs that are never interrupted, and their counts.
#[derive(Debug, Default)]
pub struct IsolatedCpus {
    cpus: BTreeSet<CpuId>,
    before: HashMap<u32, Before>,
    /// By serial, as of the sample before.
    standing: HashMap<u64, Standing>,
    /// Ids, by serial, of threads that ran on one of the CPUs or waited for it, as their last rows say.
    runnable: HashMap<u64, u32>,
    /// By serial: counts and times on the PMU that are left out, and the time they cover. For most of that
    /// time it is unknown whether counters were on the PMU.
    untimed: HashMap<u64, [Slot; SLOTS]>,
}

impl IsolatedCpus {
    /// Leaves these CPUs alone.
    pub fn new(cpus: BTreeSet<CpuId>) -> IsolatedCpus {
        IsolatedCpus { cpus, ..IsolatedCpus::default() }
    }

    /// Whether the running task of a CPU in this state has to be charged by an interrupt.
    pub fn is_due(&self, cpu: CpuId, running: Running) -> bool {
        !self.cpus.contains(&cpu) && (running.state == CPU_UNSEEN || running.pid != 0)
    }

    /// A note on the CPUs that are left alone, if any.
    pub fn note(&self) -> Option<String> {
        let cpus = format_cpulist(self.cpus.iter().map(|cpu| cpu.0));
        (!self.cpus.is_empty()).then(|| {
            format!(
                "isolated CPUs ({cpus}) are not interrupted. A task's CPU time there can be up to 1 s old; its \
                 counts are unknown until a context switch. Counts of nodes exclude these CPUs; --flush-isolated \
                 interrupts them"
            )
        })
    }

    /// Forgets tasks whose last word does not come, by serial.
    pub fn forget(&mut self, serials: &[u64]) {
        for serial in serials {
            self.standing.remove(serial);
            self.untimed.remove(serial);
            self.runnable.remove(serial);
        }
    }

    /// Ids of threads whose time the walk has to report, because no switch or interrupt has charged and
    /// marked them. `running`: the task of each CPU as of its last switch. For a CPU without any switch so
    /// far, rows are more accurate.
    pub fn unmarked(&self, running: impl Fn(CpuId) -> Option<Running>) -> impl Iterator<Item = u32> {
        let known = self.cpus.iter().filter_map(move |cpu| Some(running(*cpu)?.pid).filter(|pid| *pid != 0));
        known.chain(self.runnable.values().copied())
    }

    /// Charges tasks of the walk, and their CPUs, with the time on isolated CPUs that no switch has charged until `mono_ns`.
    /// Tasks that ended since the sample before have been charged.
    ///
    /// Counters of a task without a switch were not read: for that time they were wanted and not on the PMU.
    /// The switch brings all its counts at once. Where counters take turns (`scaled`), the kernel's times
    /// come with them, also for all of it. Then the interval has more time on the PMU than time in which they
    /// were wanted, and scaling leaves its own part. A stretch that began before times were read has none:
    /// its counts cannot be scaled, and are left out.
    ///
    /// Counters of the CPU keep their value from when it was first seen: at a switch, a node would get the
    /// counts of hours in one interval. The kernel charges a task out of scope at its switch, and no walk has
    /// its row. Only the interval of that time is reported.
    pub fn charge(
        &mut self,
        (ends, walk): (&mut [Parsed], &mut [Parsed]),
        cpus: &mut [CpuRaw],
        (mono_ns, scaled): (u64, bool),
        place_of: impl Fn(CpuId) -> (u32, u32),
    ) {
        if self.cpus.is_empty() {
            return;
        }
        for row in ends {
            self.leave_out_untimed(&mut row.task, scaled);
            self.standing.remove(&row.task.serial);
            self.untimed.remove(&row.task.serial);
            self.runnable.remove(&row.task.serial);
        }
        let mut on = HashMap::new();
        for row in walk {
            let counts = &row.task.counts;
            let said = Standing { charged_ns: counts.cpu_ns(), slots: counts.slots.clone() };
            self.leave_out_untimed(&mut row.task, scaled);
            let before = self.standing.remove(&row.task.serial);
            if row.leaves {
                self.untimed.remove(&row.task.serial);
            }
            self.note_runnable(row);
            let is_spared = |uncharged: &Uncharged| self.cpus.contains(&uncharged.cpu);
            let Some(Uncharged { cpu, ns }) = row.uncharged.filter(is_spared) else { continue };
            let task = &mut row.task;
            let (node, place) = place_of(cpu);
            for (times, at) in [(&mut task.counts.run_ns, node), (&mut task.counts.by_place, place)] {
                if let Some(run_ns) = times.get_mut(at as usize) {
                    *run_ns += ns;
                }
            }
            task.cpu = cpu.0;
            stood_still(&mut task.counts.slots, &said, before.as_ref(), ns);
            self.standing.insert(task.serial, said);
            on.insert(cpu.0, ns);
        }
        for cpu in cpus.iter_mut().filter(|cpu| self.cpus.contains(&CpuId(cpu.id))) {
            let before = self.before.get(&cpu.id);
            // The walk leaves out a row without a change: the scheduler's time did not advance either.
            let as_before =
                || before.filter(|before| before.switches == cpu.switches).map(|before| before.uncharged_ns);
            let uncharged_ns = on.get(&cpu.id).copied().or_else(as_before).unwrap_or(0);
            let mut left_out_ns = before.map_or(0, |before| before.left_out_ns);
            cpu.busy_ns = (cpu.busy_ns + uncharged_ns).saturating_sub(left_out_ns);
            // A task of the walk may be late, and catches up.
            if let Some(before) = before.filter(|before| before.uncharged_ns == 0) {
                let most = before.busy_ns + mono_ns.saturating_sub(before.mono_ns);
                let more_ns = cpu.busy_ns.saturating_sub(most);
                (cpu.busy_ns, left_out_ns) = (cpu.busy_ns - more_ns, left_out_ns + more_ns);
            }
            cpu.slots = before.map_or(cpu.slots, |before| before.slots);
            let (switches, busy_ns, slots) = (cpu.switches, cpu.busy_ns, cpu.slots);
            self.before
                .insert(cpu.id, Before { mono_ns, switches, uncharged_ns, busy_ns, left_out_ns, slots });
        }
    }

    /// Notes whether a thread of the walk is on one of the CPUs.
    fn note_runnable(&mut self, row: &Parsed) {
        let cpu = row.uncharged.map_or(CpuId(row.task.cpu), |uncharged| uncharged.cpu);
        if !row.leaves && row.task.state == TASK_RUNNING && self.cpus.contains(&cpu) {
            self.runnable.insert(row.task.serial, row.task.tid);
        } else {
            self.runnable.remove(&row.task.serial);
        }
    }

    /// Removes counts that need times but have none. They are those of a switch that charged more than twice
    /// the time for which the kernel knows whether they were on the PMU.
    fn leave_out_untimed(&mut self, task: &mut TaskRaw, scaled: bool) {
        let counts = &mut task.counts;
        if let Some(before) = self.standing.get(&task.serial).filter(|_| scaled) {
            let charged_ns = counts.cpu_ns().saturating_sub(before.charged_ns);
            for (at, (now, before)) in counts.slots.iter().zip(before.slots.iter()).enumerate() {
                let timed_ns = now.enabled_ns.saturating_sub(before.enabled_ns);
                if now.count != before.count && timed_ns < charged_ns / 2 {
                    let untimed = &mut self.untimed.entry(task.serial).or_default()[at];
                    untimed.count += now.count.saturating_sub(before.count);
                    untimed.running_ns += now.running_ns.saturating_sub(before.running_ns);
                    untimed.enabled_ns += charged_ns - timed_ns;
                }
            }
        }
        let Some(untimed) = self.untimed.get(&task.serial) else { return };
        for (slot, untimed) in counts.slots.iter_mut().zip(untimed) {
            slot.count = slot.count.saturating_sub(untimed.count);
            slot.running_ns = slot.running_ns.saturating_sub(untimed.running_ns);
            slot.enabled_ns += untimed.enabled_ns;
        }
    }
}

/// Notes that counters were wanted for another `ns` and not read, if they have the same values as before.
fn stood_still(slots: &mut [Slot], now: &Standing, before: Option<&Standing>, ns: u64) {
    for (at, slot) in slots.iter_mut().enumerate() {
        if before.is_none_or(|before| before.slots[at].count == now.slots[at].count) {
            slot.enabled_ns += ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Counts;

    fn isolated(cpus: &[u32]) -> IsolatedCpus {
        IsolatedCpus::new(cpus.iter().map(|cpu| CpuId(*cpu)).collect())
    }

    /// A sample of a thread with `charged_ns` and `count` charged, which has run `ns` more on CPU 3.
    fn sample(
        isolated: &mut IsolatedCpus,
        (charged_ns, count, switches): (u64, u64, u64),
        ns: Option<u64>,
    ) -> (TaskRaw, CpuRaw) {
        sample_at(isolated, 1_000, (charged_ns, count, switches), ns)
    }

    /// The same at a moment.
    fn sample_at(
        isolated: &mut IsolatedCpus,
        mono_ns: u64,
        (charged_ns, count, switches): (u64, u64, u64),
        ns: Option<u64>,
    ) -> (TaskRaw, CpuRaw) {
        let mut slots = [Slot::default(); SLOTS];
        slots[0].count = count;
        let (run_ns, by_place) = (vec![charged_ns, 0], vec![0, charged_ns, 0, 0]);
        let counts = Counts { run_ns, by_place, slots: slots.into(), ..Counts::default() };
        let task = TaskRaw { serial: 7, cpu: 1, counts, ..TaskRaw::default() };
        let uncharged = ns.map(|ns| Uncharged { cpu: CpuId(3), ns });
        let mut walk = vec![Parsed { task, leaves: false, group_live: 1, uncharged }];
        let mut cpus = vec![CpuRaw { id: 3, busy_ns: charged_ns, switches, slots, ..CpuRaw::default() }];
        isolated.charge((&mut [], &mut walk), &mut cpus, (mono_ns, false), |cpu| (cpu.0 / 2, cpu.0));
        (walk.remove(0).task, cpus.remove(0))
    }

    #[test]
    fn idle_and_spared_cpus_are_not_interrupted() {
        let running = |state, pid| Running { state, pid };
        let (unseen, idle, busy) = (running(CPU_UNSEEN, 0), running(1, 0), running(1, 4711));
        let due = |cpu, running| isolated(&[3]).is_due(CpuId(cpu), running);
        assert!(due(0, unseen) && due(0, busy) && !due(0, idle));
        assert!(!due(3, unseen) && !due(3, busy) && !due(3, idle));
    }

    #[test]
    fn time_on_a_spared_cpu_goes_to_the_task_its_node_and_the_cpu() {
        let (task, cpu) = sample(&mut isolated(&[3]), (100, 5, 1), Some(40));
        assert_eq!((task.counts.run_ns, task.cpu, cpu.busy_ns), (vec![100, 40], 3, 140));
        assert_eq!(task.counts.by_place, [0, 100, 0, 40]);
        // Elsewhere the next interrupt charges it.
        let (task, cpu) = sample(&mut isolated(&[2]), (100, 5, 1), Some(40));
        assert_eq!((task.counts.run_ns, task.cpu, cpu.busy_ns), (vec![100, 0], 1, 100));
    }

    #[test]
    fn counters_that_were_not_read_are_not_known_and_those_that_were_are() {
        let mut isolated = isolated(&[3]);
        let mut enabled = |counted, ns| sample(&mut isolated, counted, Some(ns)).0.counts.slots[0].enabled_ns;
        assert_eq!(enabled((100, 5, 1), 40), 40);
        assert_eq!(enabled((100, 5, 1), 60), 60);
        assert_eq!(enabled((150, 9, 2), 10), 0);
    }

    /// The kernel's count with its times at a sample, its charged part, and the rest.
    struct Turns {
        count: u64,
        enabled_ns: u64,
        running_ns: u64,
        charged_ns: u64,
        uncharged_ns: Option<u64>,
    }

    /// Reported slots and CPU time of a thread at these moments, on a machine whose counters take turns. The
    /// last one is its final row where it `ends`.
    fn told(turns: &[Turns], ends: bool) -> Vec<(Slot, u64)> {
        let mut isolated = isolated(&[3]);
        let row = |turn: &Turns| {
            let mut slots = [Slot::default(); SLOTS];
            let Turns { count, enabled_ns, running_ns, charged_ns, uncharged_ns } = *turn;
            slots[0] = Slot { count, enabled_ns, running_ns };
            let counts = Counts { run_ns: vec![charged_ns], slots: slots.into(), ..Counts::default() };
            let task = TaskRaw { serial: 7, cpu: 3, counts, ..TaskRaw::default() };
            let uncharged = uncharged_ns.map(|ns| Uncharged { cpu: CpuId(3), ns });
            Parsed { task, leaves: false, group_live: 1, uncharged }
        };
        let told = turns.iter().enumerate().map(|(at, turn)| {
            let (mut rows, mut none) = ([row(turn)], []);
            let (ended, walked) = match ends && at + 1 == turns.len() {
                true => (&mut rows[..], &mut none[..]),
                false => (&mut none[..], &mut rows[..]),
            };
            isolated.charge((ended, walked), &mut [], (at as u64, true), |_| (0, 0));
            (rows[0].task.counts.slots[0], rows[0].task.counts.cpu_ns())
        });
        told.collect()
    }

    /// The count of the time between two of them, scaled, and that time. Differences are those of a snapshot.
    fn between(told: &[(Slot, u64)], from: usize, to: usize) -> (Slot, f64, u64) {
        let ((from, ran_before), (to, ran)) = (told[from], told[to]);
        let slot = Slot {
            count: to.count - from.count,
            enabled_ns: to.enabled_ns.saturating_sub(from.enabled_ns),
            running_ns: to.running_ns - from.running_ns,
        };
        (slot, slot.count as f64 * slot.enabled_ns as f64 / slot.running_ns as f64, ran - ran_before)
    }

    #[test]
    fn counts_that_took_turns_are_scaled_at_the_switch_to_the_interval() {
        let standing =
            |ns| Turns { count: 0, enabled_ns: 0, running_ns: 0, charged_ns: 0, uncharged_ns: Some(ns) };
        // After 100 s with a quarter of them on the PMU, and three counts in each ns: it runs on, or has ended.
        let (count, enabled_ns, running_ns, charged_ns) = (75, 100, 25, 100);
        for (uncharged_ns, ends) in [(None, false), (None, true)] {
            let switched = Turns { count, enabled_ns, running_ns, charged_ns, uncharged_ns };
            let told = told(&[standing(10), standing(99), switched], ends);
            let (slot, _, ran_ns) = between(&told, 0, 1);
            assert_eq!((slot.enabled_ns, slot.running_ns, ran_ns), (89, 0, 89), "not known");
            let (_, scaled, ran_ns) = between(&told, 1, 2);
            assert_eq!((scaled, ran_ns), (3.0, 1), "its own part");
            let (_, scaled, ran_ns) = between(&told, 0, 2);
            assert_eq!((scaled, ran_ns), (270.0, 90), "of the whole");
        }
    }

    #[test]
    fn a_stretch_from_before_times_were_read_is_left_out_and_the_next_one_is_scaled() {
        let turn = |count, enabled_ns, running_ns, charged_ns, uncharged_ns| Turns {
            count,
            enabled_ns,
            running_ns,
            charged_ns,
            uncharged_ns: Some(uncharged_ns),
        };
        let told = told(
            &[turn(0, 0, 0, 0, 99), turn(80, 2, 1, 102, 5), turn(80, 2, 1, 102, 15), turn(95, 22, 6, 122, 0)],
            false,
        );
        let (slot, ..) = between(&told, 0, 1);
        assert!(slot.enabled_ns > 0 && (slot.count, slot.running_ns) == (0, 0), "not known: {slot:?}");
        let (_, scaled, ran_ns) = between(&told, 2, 3);
        assert_eq!((scaled, ran_ns), (15.0, 5), "three in each ns");
    }

    #[test]
    fn a_node_gets_no_counts_of_a_spared_cpu() {
        let mut isolated = isolated(&[3]);
        let first = sample(&mut isolated, (100, 5, 1), Some(40)).1.slots;
        assert_eq!((first[0].count, first[0].enabled_ns), (5, 0));
        // A switch brings the counts of a long time.
        assert_eq!(sample(&mut isolated, (4000, 5_000_000, 2), None).1.slots, first);
    }

    #[test]
    fn a_task_out_of_scope_fills_no_more_than_an_interval() {
        let mut isolated = isolated(&[3]);
        let mut busy = |at_ns, charged_ns, switches, ns| {
            sample_at(&mut isolated, at_ns, (charged_ns, 5, switches), ns).1.busy_ns
        };
        assert_eq!(busy(1_000, 100, 1, None), 100);
        assert_eq!(busy(2_000, 100, 1, None), 100);
        // It ran for a million, and is charged now.
        assert_eq!(busy(3_000, 1_000_100, 2, None), 1_100);
        assert_eq!(busy(4_000, 1_000_600, 4, None), 1_600);
        // One of the walk that was read late catches up.
        assert_eq!(busy(5_000, 1_000_600, 4, Some(200)), 1_800);
        assert_eq!(busy(6_000, 1_000_600, 4, Some(2_200)), 3_800);
    }

    #[test]
    fn threads_that_stand_on_a_spared_cpu_are_looked_at_each_time() {
        let mut isolated = isolated(&[3, 4]);
        // No switch on CPU 3 yet: its thread is known from the walk.
        let running = |cpu: CpuId| {
            (cpu.0 != 5)
                .then_some(Running { state: u32::from(cpu.0 == 4), pid: if cpu.0 == 4 { 90 } else { 0 } })
        };
        let ids = |isolated: &IsolatedCpus| isolated.unmarked(running).collect::<Vec<_>>();
        assert_eq!(ids(&isolated), [90]);
        let mut row = |tid, state, cpu| {
            let task = TaskRaw { serial: 7, tid, state, cpu, ..TaskRaw::default() };
            let mut walk = [Parsed { task, leaves: false, group_live: 1, uncharged: None }];
            isolated.charge((&mut [], &mut walk), &mut [], (1_000, false), |_| (0, 0));
            ids(&isolated)
        };
        assert_eq!(row(70, 0, 3), [90, 70]);
        assert_eq!(row(70, 1, 3), [90], "it sleeps");
        assert_eq!(row(70, 0, 2), [90], "an interrupt marks it");
        assert_eq!(row(70, 0, 3), [90, 70]);
        isolated.forget(&[7]);
        assert_eq!(ids(&isolated), [90]);
    }

    #[test]
    fn a_cpu_whose_task_says_nothing_new_stays_where_it_was() {
        let mut isolated = isolated(&[3]);
        sample(&mut isolated, (100, 5, 1), Some(40));
        assert_eq!(sample(&mut isolated, (100, 5, 1), None).1.busy_ns, 140);
        // It has been switched since: all is charged.
        assert_eq!(sample(&mut isolated, (150, 5, 2), None).1.busy_ns, 150);
    }
}
