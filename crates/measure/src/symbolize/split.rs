//! Places of separate debug symbols of a file: by its build id, and by the name in the file itself (GDB
//! manual, "Separate Debug Files").

use std::path::{Path, PathBuf};

use crate::model::stacks::BuildId;

/// Where to look, below a root, for the symbols of the file at `path` there, whose debug link is `link`.
pub(super) fn places(id: BuildId, path: &str, link: Option<&str>) -> Vec<PathBuf> {
    let debug = Path::new("usr/lib/debug");
    let hex = id.to_string();
    // Shorter ids were filled up with zeros.
    let short = hex.trim_end_matches("00");
    let mut places = Vec::new();
    for hex in [hex.as_str(), short] {
        if let Some((first, rest)) = hex.split_at_checked(2) {
            places.push(debug.join(".build-id").join(first).join(format!("{rest}.debug")));
        }
    }
    places.dedup();
    let program = Path::new(path.trim_start_matches('/'));
    if let (Some(link), Some(dir)) = (link, program.parent()) {
        // A program may be linked to a file with the same name, in another directory.
        places.extend([dir.join(link), dir.join(".debug").join(link), debug.join(dir).join(link)]);
        places.retain(|place| place != program);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_looked_for_by_build_id_first_and_then_by_name() {
        let mut id = [0; 20];
        id[..3].copy_from_slice(&[0xab, 0xcd, 0xef]);
        let found = places(BuildId(id), "/opt/db/mysqld", Some("mysqld.debug"));
        let found: Vec<&str> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            found,
            [
                &format!("usr/lib/debug/.build-id/ab/cdef{}.debug", "00".repeat(17)),
                "usr/lib/debug/.build-id/ab/cdef.debug",
                "opt/db/mysqld.debug",
                "opt/db/.debug/mysqld.debug",
                "usr/lib/debug/opt/db/mysqld.debug",
            ]
        );
        let own_name = places(BuildId(id), "/opt/db/mysqld", Some("mysqld"));
        assert!(!own_name.contains(&PathBuf::from("opt/db/mysqld")), "{own_name:?}");
    }
}
