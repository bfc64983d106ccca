//! PMUs of memory controllers and their events that count bytes. Not verified on hardware.
//!
//! Sources: arch/x86/events/intel/uncore_snb.c and uncore_snbep.c (names, units and scales of events), arch/x86/events/amd/uncore.c
//! (`amd_umc`, from Linux 6.7 on), and the CAS command of AMD's Processor Programming Reference (event 0x0a, 64 bytes each).

use std::path::Path;

use crate::model::event::Event;
use crate::model::sample::{Missing, Reading};
use crate::model::units::CpuId;
use crate::pmu::device::{Device, Terms};

/// Names of PMUs, the first that can be used wins: a machine may have several, which count the same bytes. Free-running counters
/// take no counter from other tools.
const FAMILIES: [(&str, Find); 3] =
    [("uncore_imc_free_running", advertised), ("uncore_imc", advertised), ("amd_umc", of_amd)];

/// Events of Intel with bytes as their unit.
const READS: [&str; 3] = ["cas_count_read", "data_read", "data_reads"];
const WRITES: [&str; 3] = ["cas_count_write", "data_write", "data_writes"];

/// Finds an event of a PMU.
type Find = fn(&Device, &Path, Direction) -> Reading<ByteEvent>;

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// An event that counts bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ByteEvent {
    pub event: Event,
    /// Bytes of one count.
    pub bytes: f64,
}

/// The PMU of a memory controller, or of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// `uncore_imc_0`.
    pub name: String,
    /// CPUs on which it is opened: one per socket that has this controller.
    pub cpus: Vec<CpuId>,
    pub read: Reading<ByteEvent>,
    pub write: Reading<ByteEvent>,
}

/// Controllers of the machine below `root`, by name. One without a CPU is left out: it is on a socket that is offline.
///
/// # Errors
/// There is none, none counts bytes, or the CPUs of one are unknown: sums would be too small.
pub fn find(root: &Path) -> Reading<Vec<Controller>> {
    let names = Device::names(root);
    let mut why = Missing::Unsupported(
        "no PMU of memory controllers (Intel: uncore_imc; AMD: amd_umc, since Linux 6.7)".into(),
    );
    for (family, event) in FAMILIES {
        let (mut found, mut unread) = (Vec::new(), None);
        for name in names.iter().filter(|name| is_of(name, family)) {
            match controller(root, name, event) {
                Ok(controller) if controller.cpus.is_empty() => {
                    why = Missing::Unsupported(format!("{name} has no CPU: its cpumask is empty"));
                }
                Ok(controller) => found.push(controller),
                Err(why) => unread = Some(why),
            }
        }
        if let Some(unread) = unread {
            return Err(unread);
        }
        if found.iter().any(|controller| controller.read.is_ok() || controller.write.is_ok()) {
            return Ok(found);
        }
        if let Some(Err(no_event)) = found.into_iter().next().map(|controller| controller.read) {
            why = no_event;
        }
    }
    Err(why)
}

/// `uncore_imc` and `uncore_imc_3`.
fn is_of(name: &str, family: &str) -> bool {
    let number = |rest: &str| rest.strip_prefix('_').is_some_and(|rest| rest.parse::<u32>().is_ok());
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || number(rest))
}

fn controller(root: &Path, name: &str, event: Find) -> Reading<Controller> {
    let device = Device::of_machine(root, name).map_err(Missing::Unsupported)?;
    Ok(Controller {
        name: name.to_owned(),
        read: event(&device, root, Direction::Read),
        write: event(&device, root, Direction::Write),
        cpus: device.cpus.unwrap_or_default(),
    })
}

/// The event that the kernel names, with its unit.
fn advertised(device: &Device, root: &Path, direction: Direction) -> Reading<ByteEvent> {
    let names = match direction {
        Direction::Read => READS,
        Direction::Write => WRITES,
    };
    let no = |why: String| Missing::Unsupported(format!("{} {why}", device.name));
    let name = names.into_iter().find(|name| device.advertised.contains(*name));
    let name = name.ok_or_else(|| no(format!("has no event {}", names.join(", "))))?;
    match device.event_text(root, name, "unit") {
        Ok(unit) if unit == "MiB" => {}
        Ok(unit) => return Err(no(format!("counts {name} in '{unit}', not in MiB"))),
        Err(why) => return Err(no(format!("gives no unit for {name} ({why})"))),
    }
    let scale = device.event_text(root, name, "scale");
    let scale = scale.map_err(|why| no(format!("gives no scale for {name} ({why})")))?;
    let mib = scale.parse::<f64>().ok().filter(|mib| mib.is_normal() && *mib > 0.0);
    let mib = mib.ok_or_else(|| no(format!("gives the invalid scale '{scale}' for {name}")))?;
    let terms = device.event(root, name).map_err(Missing::Unsupported)?;
    encoded(device, name, terms, mib * f64::from(1 << 20))
}

/// The CAS command, of reads or of writes, for a cache line.
fn of_amd(device: &Device, _: &Path, direction: Direction) -> Reading<ByteEvent> {
    let (name, mask) = match direction {
        Direction::Read => ("umc_cas_cmd.rd", 1),
        Direction::Write => ("umc_cas_cmd.wr", 2),
    };
    encoded(device, name, vec![("event".into(), 0x0a), ("rdwrmask".into(), mask)], 64.0)
}

fn encoded(device: &Device, name: &str, terms: Vec<(String, u64)>, bytes: f64) -> Reading<ByteEvent> {
    let [config, config1, config2] = device
        .format
        .encode(&Terms::new(terms))
        .map_err(|why| Missing::Unsupported(format!("{}, {name}: {why}", device.name)))?;
    let name = format!("{}/{name}/", device.name);
    Ok(ByteEvent {
        event: Event { name, kind: device.kind, config, config1, config2, ..Event::default() },
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::tree;
    use crate::tree::Tree;

    const DEVICES: &str = "sys/bus/event_source/devices";

    fn names(controllers: &[Controller]) -> Vec<&str> {
        controllers.iter().map(|controller| controller.name.as_str()).collect()
    }

    /// The words of both events, and bytes of a count.
    fn events(controller: &Controller) -> [(u32, u64, f64); 2] {
        [&controller.read, &controller.write].map(|event| {
            let ByteEvent { event, bytes } = event.as_ref().unwrap();
            (event.kind, event.config, *bytes)
        })
    }

    #[test]
    fn channels_of_a_server_count_cache_lines() {
        let found = find(&tree("controllers/intel-imc")).unwrap();
        assert_eq!(
            names(&found),
            ["uncore_imc_0", "uncore_imc_1"],
            "that of the socket that is off is left out"
        );
        assert_eq!(found[0].cpus, [CpuId(0), CpuId(8)]);
        assert_eq!(events(&found[0]), [(14, 0x0304, 64.0), (14, 0x0c04, 64.0)]);
    }

    #[test]
    fn counters_that_run_freely_are_preferred() {
        let found = find(&tree("controllers/intel-free-running")).unwrap();
        assert_eq!(names(&found), ["uncore_imc_free_running_0", "uncore_imc_free_running_1"]);
        assert_eq!(events(&found[1]), [(19, 0x20ff, 64.0), (19, 0x30ff, 64.0)]);
    }

    #[test]
    fn amd_counts_commands() {
        let found = find(&tree("controllers/amd-umc")).unwrap();
        assert_eq!(names(&found), ["amd_umc_0", "amd_umc_1"]);
        assert_eq!(events(&found[1]), [(22, 0x010a, 64.0), (22, 0x020a, 64.0)]);
    }

    #[test]
    fn each_missing_file_is_a_reason() {
        let cases = [
            ("events/cas_count_read.unit", "", "in '', not in MiB"),
            ("events/cas_count_read.unit", "KiB", "in 'KiB', not in MiB"),
            ("events/cas_count_read.scale", "0", "invalid scale '0'"),
            ("events/cas_count_read.scale", "NaN", "invalid scale 'NaN'"),
            ("events/cas_count_read.scale", "-1e-5", "invalid scale '-1e-5'"),
            ("events/cas_count_read", "event=0x1ff", "too large"),
            ("events/cas_count_read", "event=", "not a number"),
        ];
        for (at, (file, text, why)) in cases.into_iter().enumerate() {
            let tree = imc(&format!("imc-{at}"));
            tree.write(&format!("{DEVICES}/uncore_imc_0/{file}"), text);
            let found = find(tree.root()).unwrap();
            let reason = found[0].read.as_ref().unwrap_err().to_string();
            assert!(reason.contains(why), "{file} {text:?}: {reason}");
            assert!(found[0].write.is_ok());
        }
        for (at, (file, why)) in [
            ("events/cas_count_read.unit", "no unit for cas_count_read"),
            ("events/cas_count_read.scale", "no scale for cas_count_read"),
            ("events/cas_count_read", "no event cas_count_read"),
            ("format/umask", "no term 'umask'"),
        ]
        .into_iter()
        .enumerate()
        {
            let tree = imc(&format!("imc-without-{at}"));
            std::fs::remove_file(tree.root().join(format!("{DEVICES}/uncore_imc_0/{file}"))).unwrap();
            let reason = find(tree.root()).map(|found| found[0].read.clone().unwrap_err());
            let reason = reason.unwrap_or_else(|why| why).to_string();
            assert!(reason.contains(why), "{file}: {reason}");
        }
    }

    #[test]
    fn a_machine_without_controllers_has_a_reason() {
        let tree = Tree::new("no-imc");
        let why = |tree: &Tree| find(tree.root()).unwrap_err().to_string();
        assert!(why(&tree).contains("Linux 6.7"), "{}", why(&tree));
        tree.write(&format!("{DEVICES}/uncore_imc_0/type"), "14");
        assert!(why(&tree).contains("cpumask"), "{}", why(&tree));
        tree.write(&format!("{DEVICES}/uncore_imc_0/cpumask"), "");
        assert!(why(&tree).contains("its cpumask is empty"), "{}", why(&tree));
        tree.write(&format!("{DEVICES}/uncore_imc_0/cpumask"), "0-");
        assert!(why(&tree).contains("not a list of CPUs"), "{}", why(&tree));
        tree.write(&format!("{DEVICES}/uncore_imc_0/cpumask"), "0");
        assert!(why(&tree).contains("has no event cas_count_read"), "{}", why(&tree));
        for name in ["uncore_imc_0", "uncore_imc"] {
            assert!(is_of(name, "uncore_imc"), "{name}");
        }
        for name in ["uncore_imc_free_running_0", "uncore_imcx", "uncore_imc_", "uncore_imc_0_1"] {
            assert!(!is_of(name, "uncore_imc"), "{name}");
        }
    }

    /// One PMU, to be damaged.
    fn imc(name: &str) -> Tree {
        let files = [
            ("type", "14"),
            ("cpumask", "0"),
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
            ("events/cas_count_read", "event=0x04,umask=0x03"),
            ("events/cas_count_read.unit", "MiB"),
            ("events/cas_count_read.scale", "6.103515625e-5"),
            ("events/cas_count_write", "event=0x04,umask=0x0c"),
            ("events/cas_count_write.unit", "MiB"),
            ("events/cas_count_write.scale", "6.103515625e-5"),
        ];
        let files = files.map(|(file, text)| (format!("{DEVICES}/uncore_imc_0/{file}"), text));
        Tree::with(name, files.iter().map(|(file, text)| (file.as_str(), *text)))
    }
}
