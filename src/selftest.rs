//! `numatop-ng selftest`: whether the numbers of this tool are true on this machine. Its verdicts are stored beside the profile.

pub mod counters;
pub mod expected;
pub mod judge;
mod reasons;
pub mod report;
pub mod run;
pub mod show;
pub mod verdicts;

use std::path::{Path, PathBuf};

use self::verdicts::EventVerdicts;
use crate::calibrate::{machine, store};

/// The name of the file.
const NAME: &str = "selftest.json";

/// The verdicts on the events of the machine below `root`; none where none is stored for it.
pub fn trust(root: &Path) -> EventVerdicts {
    let Ok(topology) = crate::host::topology::read(root) else { return EventVerdicts::default() };
    let machine = machine::key(root, &topology);
    let about =
        |place: PathBuf| read(&place).filter(|trust| trust.is_about(&machine.cpu, machine.hypervisor));
    store::places().into_iter().find_map(|place| about(place.with_file_name(NAME))).unwrap_or_default()
}

/// Stores the verdicts of a self-test with those of older ones that were not tested again. Returns the file.
///
/// # Errors
/// As of [`store::write()`].
pub fn keep(trust: EventVerdicts) -> anyhow::Result<PathBuf> {
    let place = store::own_place()?.with_file_name(NAME);
    let older = read(&place).unwrap_or_default();
    store::write(&place, &trust.after(older))?;
    Ok(place)
}

/// The verdicts in a file; `None` if it is missing or damaged.
fn read(place: &Path) -> Option<EventVerdicts> {
    serde_json::from_str(&store::text_of(place).ok()?).ok()
}
