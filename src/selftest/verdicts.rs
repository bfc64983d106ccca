//! Events that a self-test found right or wrong: on this machine, or on others according to a table. Pure.

use serde::{Deserialize, Serialize};

use super::judge::Verdict;
use super::report::Report;
use crate::model::event::{Role, Tested};
use crate::pmu::catalog::Catalog;
use crate::pmu::table::Table;

/// Version of the JSON.
pub const SCHEMA: u32 = 1;

/// Verdicts on the events of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventVerdicts {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The CPU that they hold for: `GenuineIntel 6/106/6`.
    pub cpu: String,
    /// Whether a hypervisor gave the counters.
    pub hypervisor: Option<bool>,
    pub events: Vec<EventVerdict>,
}

/// The verdict on an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventVerdict {
    pub role: Role,
    pub event: String,
    /// As the kernel took it: another encoding is another event.
    pub encoding: String,
    /// The PMU of its cores: the same event is another one on cores of another kind. Empty in files of versions that did not say.
    #[serde(default)]
    pub pmu: String,
    /// Of all its loads: [`Verdict::Ok`], [`Verdict::Plausible`], [`Verdict::Known`] or [`Verdict::Wrong`].
    pub verdict: Verdict,
    pub reason: Option<String>,
    /// The day, and the kernel.
    pub date: String,
    pub kernel: String,
    /// It was counted by perf_event_open(2) alone: that the tool counts it as well is not known.
    #[serde(default)]
    pub direct: bool,
}

impl EventVerdicts {
    /// The verdicts of a report; events that were not tested are left out. None is right for its control alone.
    pub fn of(report: &Report, date: &str) -> EventVerdicts {
        let measured = report.cores().flat_map(|core| core.measured.iter().map(|of| (core.pmu.as_str(), of)));
        let mut events: Vec<EventVerdict> = Vec::new();
        // Events that were compared in a load in which they must count.
        let mut counted: Vec<(Role, String, String, String)> = Vec::new();
        for (pmu, measured) in measured {
            let subject = &measured.subject;
            if measured.verdict == Verdict::Untested {
                continue;
            }
            if measured.must_count() {
                counted.push((subject.role, subject.event.clone(), subject.encoding.clone(), pmu.to_owned()));
            }
            let found = events.iter_mut().find(|known| {
                known.role == subject.role
                    && known.event == subject.event
                    && known.encoding == subject.encoding
                    && known.pmu == pmu
            });
            let direct = measured.tool.is_none();
            match found {
                Some(known) => {
                    known.direct &= direct;
                    if gravity(known.verdict) < gravity(measured.verdict) {
                        (known.verdict, known.reason) = (measured.verdict, measured.reason.clone());
                    }
                }
                None => events.push(EventVerdict {
                    role: subject.role,
                    event: subject.event.clone(),
                    encoding: subject.encoding.clone(),
                    pmu: pmu.to_owned(),
                    verdict: measured.verdict,
                    reason: measured.reason.clone(),
                    date: date.to_string(),
                    kernel: report.kernel.clone(),
                    direct,
                }),
            }
        }
        let proven = |event: &EventVerdict| {
            let id = (event.role, event.event.clone(), event.encoding.clone(), event.pmu.clone());
            gravity(event.verdict) >= gravity(Verdict::Known) || counted.contains(&id)
        };
        events.retain(proven);
        let machine = &report.machine;
        EventVerdicts { schema: SCHEMA, cpu: machine.cpu.clone(), hypervisor: machine.hypervisor, events }
    }

    /// This trust, with the events of an older one that were not tested again, if it is of the same CPU.
    #[must_use]
    pub fn after(mut self, older: EventVerdicts) -> EventVerdicts {
        if older.is_about(&self.cpu, self.hypervisor) {
            let again = |old: &EventVerdict| {
                let is_of = |pmu: &str| old.pmu.is_empty() || old.pmu == pmu;
                let is_again = |new: &EventVerdict| {
                    new.event == old.event && new.encoding == old.encoding && is_of(&new.pmu)
                };
                self.events.iter().any(is_again)
            };
            let kept: Vec<EventVerdict> = older.events.into_iter().filter(|old| !again(old)).collect();
            self.events.extend(kept);
        }
        self
    }

    /// Whether it holds for such a machine.
    pub fn is_about(&self, cpu: &str, hypervisor: Option<bool>) -> bool {
        self.schema == SCHEMA && self.cpu == cpu && self.hypervisor == hypervisor && !cpu.is_empty()
    }

    /// Gives each event of a catalogue its verdict from self-tests: of this machine, or else of machines that
    /// its table names. An event that was wrong here is not chosen for its role from then on. On a machine
    /// with several kinds of cores, a verdict that does not name its kind holds for none.
    pub fn mark(&self, catalog: &mut Catalog) {
        let is_hybrid = catalog.cores.len() > 1;
        for core in &mut catalog.cores {
            let mut begun: Vec<Role> = Vec::new();
            for resolved in &mut core.entries {
                let (role, encoding) = (resolved.entry.role, resolved.encoding());
                let first = !begun.contains(&role);
                begun.push(role);
                let said = self.says(&resolved.entry.name, &encoding, &core.in_use.pmu);
                let here = said.filter(|known| !is_hybrid || !known.pmu.is_empty()).map(EventVerdict::tested);
                let elsewhere = || shipped(&core.table, role).filter(|_| first).map(Tested::Elsewhere);
                resolved.mark(here.or_else(elsewhere).unwrap_or(Tested::Nowhere));
            }
        }
    }

    /// The verdict on an event in this encoding, on cores with this PMU.
    pub fn says(&self, event: &str, encoding: &str, pmu: &str) -> Option<&EventVerdict> {
        let is_it = |known: &&EventVerdict| {
            let is_of = known.pmu.is_empty() || known.pmu == pmu;
            known.event == event && known.encoding == encoding && is_of
        };
        self.events.iter().find(is_it)
    }
}

/// A wrong load makes an event wrong; one that is only plausible makes it no better than that.
fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Untested => 0,
        Verdict::Ok => 1,
        Verdict::Plausible => 2,
        Verdict::Known => 3,
        Verdict::Wrong => 4,
    }
}

impl EventVerdict {
    /// The same for whatever counts it.
    fn tested(&self) -> Tested {
        let words = self.words();
        match self.verdict {
            Verdict::Ok => Tested::Here(words),
            Verdict::Plausible | Verdict::Known => Tested::Doubtful(words),
            Verdict::Wrong => Tested::Wrong(words),
            Verdict::Untested => Tested::Nowhere,
        }
    }

    /// In words: `verified here, 2026-11-23`.
    pub fn words(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or("no reason");
        let here = format!("{}, Linux {}", self.date, self.kernel);
        let direct = if self.direct { ", not through numatop-ng" } else { "" };
        match self.verdict {
            Verdict::Ok => format!("verified here{direct}, {here}"),
            Verdict::Plausible => format!("plausible here{direct}, {here}"),
            Verdict::Known => format!("known to be wrong here: {reason}"),
            Verdict::Wrong => format!("WRONG here, {}: {reason}", self.date),
            Verdict::Untested => "not tested here".into(),
        }
    }
}

/// Machines on which the first event of a role was right according to the table; `None` if it names none.
pub fn shipped(table: &Table, role: Role) -> Option<String> {
    let machines: Vec<String> = table
        .verified
        .iter()
        .filter(|verified| verified.roles.contains(&role))
        .map(|verified| format!("{}, Linux {}, {}", verified.machine, verified.kernel, verified.date))
        .collect();
    (!machines.is_empty()).then(|| format!("verified on {}", machines.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::counted::Load;
    use crate::model::event::Event;
    use crate::model::profile::MachineKey;
    use crate::selftest::report::{CounterReport, Subject};

    fn report(verdicts: &[(&str, Load, Verdict)]) -> Report {
        let measured = verdicts.iter().map(|(event, load, verdict)| {
            let event = Event { name: (*event).into(), ..Event::default() };
            let mut measured = Subject::new(Role::Llc, &event).measured(*load, None);
            (measured.verdict, measured.reason) = (*verdict, Some(load.word().to_string()));
            (measured.own, measured.tool) = (Some(10), Some(10));
            measured.expected = Some(if *load == Load::InCache { (0.0, 2.0) } else { (97.0, 105.0) });
            measured
        });
        Report {
            schema: 1,
            tool: String::new(),
            kernel: "6.12".into(),
            machine: MachineKey { cpu: "x 1/2/3".into(), ..MachineKey::default() },
            took_s: 0.0,
            comparisons: Vec::new(),
            counters: Some(CounterReport { measured: measured.collect(), ..CounterReport::default() }),
            other_cores: Vec::new(),
        }
    }

    const ENCODING: &str = "type 0 config 0x0";

    #[test]
    fn an_event_is_as_good_as_its_worst_load() {
        use Verdict::{Ok, Untested, Wrong};
        let trust = EventVerdicts::of(
            &report(&[
                ("A", Load::Single, Ok),
                ("A", Load::InCache, Wrong),
                ("B", Load::Single, Ok),
                ("B", Load::InCache, Untested),
                ("C", Load::Single, Untested),
                ("D", Load::Single, Untested),
                ("D", Load::InCache, Ok),
                ("E", Load::InCache, Wrong),
            ]),
            "2026-11-23",
        );
        assert_eq!(trust.events.len(), 3, "what was not tested is not trusted, and not distrusted");
        assert_eq!(trust.says("D", ENCODING, ""), None, "a control alone");
        assert_eq!(trust.says("E", ENCODING, "").unwrap().verdict, Wrong);
        assert_eq!(trust.says("A", ENCODING, "").unwrap().words(), "WRONG here, 2026-11-23: in cache");
        assert_eq!(trust.says("B", ENCODING, "").unwrap().words(), "verified here, 2026-11-23, Linux 6.12");
        assert_eq!(trust.says("B", "type 4 config 0x1", ""), None, "another encoding is another event");
    }

    #[test]
    fn an_event_that_the_tool_did_not_count_says_so() {
        let mut report = report(&[("A", Load::Single, Verdict::Ok), ("B", Load::Single, Verdict::Ok)]);
        report.counters.as_mut().unwrap().measured[1].tool = None;
        let trust = EventVerdicts::of(&report, "2026-11-23");
        let words = ["A", "B"].map(|event| trust.says(event, ENCODING, "").unwrap().words());
        let [through, direct] = ["", ", not through numatop-ng"]
            .map(|direct| format!("verified here{direct}, 2026-11-23, Linux 6.12"));
        assert_eq!(words, [through, direct]);
        // Files of earlier versions do not say.
        let text = serde_json::to_string(&trust).unwrap().replace(",\"direct\":true", "");
        assert!(!serde_json::from_str::<EventVerdicts>(&text).unwrap().events[1].direct);
    }

    #[test]
    fn cores_of_each_kind_have_verdicts_of_their_own() {
        let mut report = report(&[("A", Load::Single, Verdict::Ok)]);
        let first = report.counters.as_mut().unwrap();
        first.pmu = "cpu_core".into();
        let mut second = CounterReport { pmu: "cpu_atom".into(), ..first.clone() };
        second.measured[0].verdict = Verdict::Wrong;
        report.other_cores.push(second);
        assert_eq!((report.count(Verdict::Ok), report.count(Verdict::Wrong)), (1, 1));
        let trust = EventVerdicts::of(&report, "now");
        let verdict = |trust: &EventVerdicts, pmu| trust.says("A", ENCODING, pmu).map(|known| known.verdict);
        assert_eq!(verdict(&trust, "cpu_core"), Some(Verdict::Ok));
        assert_eq!(verdict(&trust, "cpu_atom"), Some(Verdict::Wrong));
        assert_eq!(verdict(&trust, "cpu_lowpower"), None);
        // Only one kind is tested again, and a file of an earlier version is of no kind.
        report.other_cores.clear();
        let again = EventVerdicts::of(&report, "later").after(trust.clone());
        assert_eq!(
            again.events.iter().map(|event| event.date.as_str()).collect::<Vec<_>>(),
            ["later", "now"]
        );
        let text = serde_json::to_string(&trust).unwrap().replace("cpu_core", "").replace("cpu_atom", "");
        let older: EventVerdicts = serde_json::from_str(&text).unwrap();
        assert_eq!(trust.clone().after(older), trust);
    }

    #[test]
    fn older_verdicts_of_the_same_cpu_stay() {
        let old = EventVerdicts::of(
            &report(&[("A", Load::Single, Verdict::Ok), ("B", Load::Single, Verdict::Ok)]),
            "then",
        );
        let new = EventVerdicts::of(&report(&[("B", Load::Single, Verdict::Wrong)]), "now");
        let both = new.clone().after(old.clone());
        assert_eq!(both.events.iter().map(|event| event.date.as_str()).collect::<Vec<_>>(), ["now", "then"]);
        let other = EventVerdicts { hypervisor: Some(true), ..old };
        assert_eq!(new.clone().after(other), new, "counters of a hypervisor are others");
        assert!(!EventVerdicts::default().is_about("", None));
    }

    #[test]
    fn a_catalogue_has_the_word_on_each_event() {
        let mut catalog = Catalog::read(std::path::Path::new("/nonexistent"), None).unwrap();
        let entry = &catalog.cores[0].entries[0];
        let (event, encoding) = (entry.entry.name.clone(), entry.encoding());
        let trusted = |verdict| EventVerdict {
            role: entry.entry.role,
            event: event.clone(),
            encoding: encoding.clone(),
            pmu: String::new(),
            verdict,
            reason: Some("16 times too many".into()),
            date: "2026-11-23".into(),
            kernel: "6.12".into(),
            direct: false,
        };
        let words = [
            (Verdict::Ok, "verified here, 2026-11-23, Linux 6.12", true),
            (Verdict::Plausible, "plausible here, 2026-11-23, Linux 6.12", true),
            (Verdict::Known, "known to be wrong here: 16 times too many", true),
            (Verdict::Wrong, "WRONG here, 2026-11-23: 16 times too many", false),
            (Verdict::Untested, "not verified on hardware", true),
        ];
        let all: Vec<_> = words.map(|(verdict, words, believed)| (trusted(verdict), words, believed)).into();
        for (trusted, words, believed) in all {
            EventVerdicts { events: vec![trusted], ..EventVerdicts::default() }.mark(&mut catalog);
            let [first, rest @ ..] = &catalog.cores[0].entries[..] else { panic!("no entries") };
            assert_eq!((first.tested.words(), first.believed().is_ok()), (words, believed));
            assert!(rest.iter().all(|other| other.tested == Tested::Nowhere));
        }
    }

    #[test]
    fn a_table_names_machines_by_role() {
        let text = include_str!("../../crates/measure/src/pmu/events/generic/kernel.toml");
        let entry = "[[verified]]\nmachine = \"EPYC 9654, bare metal\"\nkernel = \"6.12\"\ndate = \"2026-12-01\"\nroles = [\"cycles\"]\nsource = \"issue 123\"\n";
        let table = Table::parse(&format!("{text}\n{entry}")).unwrap();
        assert_eq!(
            shipped(&table, Role::Cycles).unwrap(),
            "verified on EPYC 9654, bare metal, Linux 6.12, 2026-12-01"
        );
        assert_eq!(shipped(&table, Role::Instructions), None);
        let unknown = entry.replace("cycles", "remote_cache");
        assert!(Table::parse(&format!("{text}\n{unknown}")).is_err());
    }
}
