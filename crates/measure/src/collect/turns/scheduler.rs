//! The sched_ext scheduler that is loaded: /sys/kernel/sched_ext (Documentation/scheduler/sched-ext.rst of the kernel).

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use super::{Now, Part};
use crate::model::sample::Missing;
use crate::model::turns::SchedExt;
use crate::text::clean;

/// Bytes of a name: SCX_OPS_NAME_LEN.
const NAME_MAX: usize = 128;

/// The directory is looked at again each time: schedulers come and go.
#[derive(Default)]
pub(super) struct Scheduler;

impl Part for Scheduler {
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
        let dir = now.root.join("sys/kernel/sched_ext");
        let state = std::fs::read_to_string(dir.join("state")).map_err(|_| {
            Missing::Unsupported(
                "the kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT, from Linux 6.12 on)".into(),
            )
        })?;
        // It is "enabling" or "disabling" for a moment, and has no name while "disabled".
        let loaded = (state.trim() == "enabled").then(|| loaded(&dir)).flatten();
        let loaded: BTreeMap<_, _> = loaded.into_iter().collect();
        if *now.inputs.schedulers != loaded {
            now.inputs.schedulers = Arc::new(loaded);
        }
        Ok(())
    }
}

/// Name and facts of the scheduler; `None` where it has just gone, or has no name.
fn loaded(dir: &Path) -> Option<(String, Arc<SchedExt>)> {
    let name = std::fs::read(dir.join("root/ops")).ok()?;
    let name = name.trim_ascii();
    let name = clean(&name[..name.len().min(NAME_MAX)]);
    let switch_all = number::<u8>(dir, "switch_all").filter(|switch| *switch <= 1).map(|switch| switch == 1);
    let scheduler = SchedExt { switch_all, rejected: number(dir, "nr_rejected") };
    (!name.is_empty()).then(|| (name, Arc::new(scheduler)))
}

fn number<T: FromStr>(dir: &Path, file: &str) -> Option<T> {
    std::fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::turns::tests::read;
    use crate::tree::Tree;

    #[test]
    fn a_scheduler_has_a_name_while_it_is_loaded() {
        let tree = Tree::new("sched-ext");
        let part = &mut Scheduler;
        let without = read(part, &tree).unwrap_err().to_string();
        tree.write("sys/kernel/sched_ext/state", "disabled\n");
        let disabled = read(part, &tree).unwrap().0;
        tree.write("sys/kernel/sched_ext/state", "enabled\n");
        let unnamed = read(part, &tree).unwrap().0;
        tree.write("sys/kernel/sched_ext/root/ops", "nng_test\n");
        tree.write("sys/kernel/sched_ext/switch_all", "1\n");
        tree.write("sys/kernel/sched_ext/nr_rejected", "18446744073709551616\n");
        let enabled = read(part, &tree).unwrap().0;
        tree.write("sys/kernel/sched_ext/root/ops", &format!("\x1b[2J{}", "x".repeat(500)));
        tree.write("sys/kernel/sched_ext/switch_all", "-1\n");
        tree.write("sys/kernel/sched_ext/nr_rejected", "7\n");
        let hostile = read(part, &tree).unwrap().0;
        tree.clear();

        assert!(without.contains("CONFIG_SCHED_CLASS_EXT"), "{without}");
        assert!(disabled.schedulers.is_empty() && unnamed.schedulers.is_empty());
        let loaded = SchedExt { switch_all: Some(true), rejected: None };
        assert_eq!(*enabled.schedulers, [("nng_test".to_owned(), Arc::new(loaded))].into());
        let (name, facts) = hostile.schedulers.first_key_value().unwrap();
        assert!(name.starts_with("\\x1b[2Jxxx") && name.len() == NAME_MAX + 3, "{name}");
        assert_eq!(**facts, SchedExt { switch_all: None, rejected: Some(7) });
    }
}
