//! Names of users: /etc/passwd as a file. `getent.rs` asks for those of directory services.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::roots::below;

/// User id → name, from `etc/passwd` below `root`. A missing or odd file gives fewer names, not an error.
pub fn read(root: &Path) -> BTreeMap<u32, String> {
    let bytes = fs::read(below(root, "etc/passwd")).unwrap_or_default();
    parse(&String::from_utf8_lossy(&bytes))
}

/// Lines of passwd(5): `name:password:uid:…`. The first name of an id wins, as in getpwuid(3).
pub(super) fn parse(text: &str) -> BTreeMap<u32, String> {
    let mut users = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(uid)) = (fields.next(), fields.nth(1)) else { continue };
        if let Ok(uid) = uid.parse() {
            users.entry(uid).or_insert_with(|| name.to_string());
        }
    }
    users
}

/// User id and home directory of all users in `etc/passwd` below `root`.
pub fn homes(root: &Path) -> Vec<(u32, PathBuf)> {
    let bytes = fs::read(below(root, "etc/passwd")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let home = |line: &str| {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, PathBuf::from(fields.nth(2)?)))
    };
    text.lines().filter_map(home).collect()
}

/// The id of `user`, a name or a number.
pub fn resolve(user: &str, users: &BTreeMap<u32, String>) -> Option<u32> {
    user.parse().ok().or_else(|| users.iter().find(|(_, name)| *name == user).map(|(uid, _)| *uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_wins_and_odd_lines_are_skipped() {
        let users =
            parse("root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n+::::::\nweb:x:33:33::/:/bin/sh\nbad\n");
        assert_eq!(users.get(&0).map(String::as_str), Some("root"));
        assert_eq!(users.get(&33).map(String::as_str), Some("web"));
        assert_eq!(users.len(), 2);
    }

    #[test]
    fn names_and_numbers_resolve() {
        let users = parse("web:x:33:33::/:/bin/sh\n");
        assert_eq!(resolve("web", &users), Some(33));
        assert_eq!(resolve("12345", &users), Some(12345));
        assert_eq!(resolve("nobody", &users), None);
    }
}
