//! A sample of the running machine: the order in which its parts are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;

use super::LiveSource;
use super::hotplug::online_now;
use crate::collect::machine;
use crate::collect::parsed::parse;
use crate::collect::probes::Readings;
use crate::collect::round::Round;
use crate::host::clock;
use crate::model::sample::{CpuRaw, Sample, Slot};
use crate::model::wire::Loss;

impl LiveSource {
    /// Takes a sample, of CPUs that are up to date.
    ///
    /// # Errors
    /// The programs or files that every sample needs cannot be read.
    pub(super) fn take(&mut self) -> Result<Sample> {
        let began = Instant::now();
        let mono_ns = clock::mono_ns();
        let boot_ns = clock::boot_ns();
        let wall_ns = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as i64);
        let mut machine = self.machine.read()?;
        let scope_ns = Arc::new(self.sched.states().scope_ns(&self.host.topology));
        let mut cpus = self.sched.states().rows(&self.host.topology, &self.online, &machine.cpu_times);
        self.watch_multiplexing(&cpus);

        self.follow_cgroups(&[])?;
        let (mut walk, mut ends) = (Vec::new(), Vec::new());
        let page_size = self.page_size;
        let nodes: Vec<u32> = self.host.topology.nodes_of_places().collect();
        self.tasks.exits(|row| ends.push(parse(&row, page_size, &nodes)))?;
        let lost = self.sched.states().sums_of_losses(&self.host.topology)[Loss::Exit as usize];
        let all = self.table.wants_all(lost);
        let (table, isolated, states) = (&self.table, &self.isolated, self.sched.states());
        let beside = |turn| table.due(turn).chain(isolated.unmarked(|cpu| states.running(cpu))).collect();
        let round = Round { all, beside: &beside };
        self.tasks.walk(&round, |row| walk.push(parse(&row, page_size, &nodes)))?;
        let (topology, rows) = (&self.host.topology, (&mut ends[..], &mut walk[..]));
        self.isolated
            .charge(rows, &mut cpus, (mono_ns, self.multiplexed), |cpu| topology.node_and_place(cpu));
        // At once: what moves between this and the walk is in the matrix and not yet in a row.
        let flows = self.sched.moves().flows(&self.host.topology);
        let place_moves = self.sched.place_moves(&self.host.topology).into_iter();
        let (mut inputs, mut lost_by_cause) =
            (self.turns.inputs(), self.sched.states().lost(&self.host.topology));
        let mut readings = Readings {
            mono_ns,
            topology: &self.host.topology,
            vm: &machine.vm,
            nodes: &mut machine.nodes,
            hints: Vec::new(),
            page_flows: Vec::new(),
            inputs: &mut inputs,
            lost: &mut lost_by_cause,
            notes: &mut self.notes,
        };
        self.probes.read(&mut readings);
        let Readings { hints, page_flows, .. } = readings;
        for cpu in &mut cpus {
            cpu.hints = hints.get(cpu.id as usize).copied();
        }
        let ids = ends.iter().chain(&walk).map(|row| row.task.cgroup_id);
        let unknown: BTreeSet<u64> = ids.filter(|id| !self.groups.knows(*id)).collect();
        self.name_users(ends.iter().chain(&walk).map(|row| row.task.uid));
        self.table.apply(ends, walk, std::mem::take(&mut self.forget));
        self.isolated.forget(self.table.given_up());
        self.follow_cgroups(&unknown.into_iter().collect::<Vec<_>>())?;
        let (tasks, exited) = self.table.snapshot();
        let groups = match self.group_limits {
            true => self.groups.limits(&tasks, &self.names, mono_ns),
            false => BTreeMap::new(),
        };
        let (placement, about) = self.look_at_memory(&tasks, mono_ns);
        self.placements.add_to(&mut inputs);
        inputs.scope_ns = scope_ns;
        inputs.place_moves = Arc::new(place_moves.map(|(place, moves)| (place, Arc::new(moves))).collect());
        self.follow_wishes();
        let memory_use = self.memory_use((&tasks, &exited), mono_ns)?;
        let occupied = tasks.iter().chain(&exited).map(|task| task.cgroup_id);
        let names = self.visible.of(self.groups.scope(), &self.names, occupied);
        self.note_missing();
        let mut own = machine::self_usage(self.page_size);
        let (reader_ns, reader_bytes) = self.mm_reader.uses(self.page_size);
        (own.cpu_ns, own.rss_bytes) = (own.cpu_ns + reader_ns, own.rss_bytes + reader_bytes);
        if let Some(access) = &mut self.accesses.running {
            let (reader_ns, reader_bytes) = access.reader_uses(self.page_size);
            (own.cpu_ns, own.rss_bytes) = (own.cpu_ns + reader_ns, own.rss_bytes + reader_bytes);
        }
        own.sample_ns = began.elapsed().as_nanos() as u64;
        Ok(Sample {
            wall_ns,
            mono_ns,
            boot_ns,
            tasks: tasks.into(),
            exited,
            cpus,
            nodes: machine.nodes,
            vm: Some(machine.vm),
            machine: Some(machine.state),
            flows,
            page_flows,
            inputs,
            lost: lost_by_cause,
            exit_lost_ns: self.table.in_no_row(self.tasks.exit_lost_ns(&nodes)?),
            own,
            names,
            groups,
            placement,
            about,
            command_lines: Default::default(),
            memory_use,
            hot: None,
            notes: std::mem::take(&mut self.notes),
        })
    }

    /// Requests names of unknown users, and stores the answers to earlier requests.
    fn name_users(&mut self, uids: impl Iterator<Item = u32>) {
        let Some(getent) = &mut self.getent else { return };
        let mut last = None;
        for uid in uids {
            if last.replace(uid) != Some(uid) && !self.names.users.contains_key(&uid) {
                getent.want(uid);
            }
        }
        let come = getent.come();
        if !come.is_empty() {
            Arc::make_mut(&mut self.names).users.extend(come);
        }
    }

    /// Follows changes of the machine, and charges what runs on its CPUs. Returns how long that took.
    pub(super) fn bring_up_to_date(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.follow_hotplug()?;
        self.turns.follow(&self.files, &mut self.host, clock::mono_ns(), &mut self.notes);
        self.settle_events();
        self.follow_balancing();
        self.charge_running()?;
        self.take_turns()?;
        Ok(began.elapsed())
    }

    /// Charges what runs on CPUs, each by an interrupt: not where nothing runs.
    fn charge_running(&mut self) -> Result<()> {
        for cpu in &self.online {
            let running = self.sched.states().running(*cpu);
            let is_due = running.is_none_or(|running| self.isolated.is_due(*cpu, running));
            // It may have gone offline since: then nothing needs an update, and the next sample reports this.
            if is_due
                && let Err(error) = self.sched.flush(*cpu)
                && online_now(&self.files, &self.host.topology)?.contains(cpu)
            {
                self.notes.push(format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// Once a counter has shared the PMU, counts are read with their times from then on.
    fn watch_multiplexing(&mut self, cpus: &[CpuRaw]) {
        let shared = |slot: &Slot| slot.running_ns < slot.enabled_ns;
        if !self.multiplexed && cpus.iter().any(|cpu| cpu.slots.iter().any(shared)) {
            self.multiplexed = true;
            self.sched.read_scaled(true);
            self.notes.push("counters share the PMU: counts are scaled from here on".into());
        }
    }
}
