//! Whether trees of fixtures are unpacked to the byte.

use std::fs;

use crate::fixture::{tree, unpack};

#[test]
fn every_kind_of_entry_is_written() {
    let root = std::env::temp_dir().join(format!("numatop-fixture-{}", std::process::id()));
    let text = "# a comment\n\
        one/line = a -> b = c\n\
        link -> ../one/line\n\
        lines =\n|  first\n|\n| # | last\n\
        none =\n\
        empty/\n\
        raw\\x20bytes = \\xff\\x00\\\\n\\\\\\x63\\c\n\
        \\x7cbar\\xc3\\xa9 =\n| ü\n| no newline\\c\n";
    unpack(text, &root);
    let read = |path: &str| fs::read(root.join(path)).unwrap();
    let (one, lines, none, raw, bar) =
        (read("one/line"), read("lines"), read("none"), read("raw bytes"), read("|baré"));
    let link = fs::read_link(root.join("link")).unwrap();
    let empty = fs::read_dir(root.join("empty")).unwrap().count();
    let all = fs::read_dir(&root).unwrap().count();
    fs::remove_dir_all(&root).unwrap();
    assert_eq!((&one[..], &lines[..]), (&b"a -> b = c\n"[..], &b" first\n\n# | last\n"[..]));
    assert_eq!((&none[..], &raw[..]), (&b""[..], &b"\xff\0\\n\\c"[..]));
    assert_eq!(bar, "ü\nno newline".as_bytes());
    assert_eq!((link.to_str(), empty, all), (Some("../one/line"), 0, 7));
}

#[test]
fn a_tree_is_unpacked_once() {
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| tree("hosts/no-cache"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|root| *root == all[0]), "{all:?}");
    assert_eq!(fs::read_to_string(all[0].join("sys/devices/system/cpu/possible")).unwrap(), "0-7\n");
}
