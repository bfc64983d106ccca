//! Tables of README.md beside this file, printed from the results of the tests.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// Held while the file is read and written: its tables are printed by tests that run at the same time.
static DOCS: Mutex<()> = Mutex::new(());

/// Compares the text between `begin` and `<!-- end -->` in README.md beside this file with `now`; `NUMATOP_ACCEPT_GOLDENS` writes it
/// instead.
pub fn compare(begin: &str, now: &str) {
    const END: &str = "<!-- end -->";
    let _held = DOCS.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worlds/pmu_tables/README.md");
    let docs = fs::read_to_string(&path).unwrap();
    let (before, rest) = docs.split_once(begin).unwrap();
    let (printed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("NUMATOP_ACCEPT_GOLDENS").is_some() {
        fs::write(&path, format!("{before}{begin}{now}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(printed, now, "NUMATOP_ACCEPT_GOLDENS=1 cargo test --test worlds pmu_tables prints it anew");
}
