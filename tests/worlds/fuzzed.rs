//! Inputs of the fuzz corpora do no harm, and the fuzz targets compile with the stable compiler.
//! The target for recordings is in `tests/recordings/fuzzed.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

// `fuzz/` is a separate workspace, which no other test builds.
#[path = "../../fuzz/src/lib.rs"]
#[expect(unsafe_code, reason = "calls C")]
#[allow(dead_code, reason = "the target for recordings is run by tests/recordings/fuzzed.rs")]
mod target;

use target::tree::{Tree, entries};

fn below(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Gives each input of a corpus to its target. Returns the number of things found in all of them together.
fn corpus(name: &str, read: fn(&[u8]) -> usize) -> usize {
    let corpus = below("fuzz/corpus").join(name);
    let inputs = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path());
    inputs
        .map(|path| {
            println!("{}", path.display());
            read(&fs::read(&path).unwrap())
        })
        .sum()
}

#[test]
fn tables_of_the_corpus_do_no_harm() {
    assert!(corpus("tables", target::tables::read) > 0, "it has a sound table");
}

#[test]
fn cgroups_of_the_corpus_do_no_harm() {
    assert!(corpus("cgroups", target::cgroups::read) > 0, "it has a container with a name");
}

#[test]
fn machines_of_the_corpus_do_no_harm() {
    assert!(corpus("proc", target::proc::read) > 0, "it has a file that can be read");
}

#[test]
fn memory_samples_of_the_corpus_do_no_harm() {
    assert!(corpus("access", target::access::read) > 0, "it has a load with an address");
}

#[test]
fn records_of_a_pmu_of_the_corpus_do_no_harm() {
    assert!(corpus("spe", target::spe::read) > 0, "it has a load");
}

/// Any registers and code, most of them not a program.
#[test]
fn made_up_memory_samples_do_no_harm() {
    let mut state: u64 = 88_172_645_463_325_252;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let found: usize = (0..20_000)
        .map(|_| {
            let length = random() % 300;
            let input: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            target::access::read(&input)
        })
        .sum();
    assert!(found > 1000, "{found} addresses");
}

/// Passes inputs of a corpus, with a few bytes changed, removed or doubled, to a target. Does so for two
/// seconds, or for the number in the environment. Returns the number of inputs.
fn mutated(name: &str, read: fn(&[u8]) -> usize) -> usize {
    let seconds = std::env::var("NUMATOP_NG_TEST_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let inputs = fs::read_dir(below("fuzz/corpus").join(name)).unwrap();
    let inputs: Vec<Vec<u8>> = inputs.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    let mut state: u64 = 88_172_645_463_325_252;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % below.max(1)
    };
    let mut count = 0;
    while Instant::now() < until {
        let mut input = inputs[random(inputs.len())].clone();
        for _ in 0..=random(6) {
            let at = random(input.len());
            match random(4) {
                0 => input.truncate(at.max(1)),
                1 => input.extend_from_within(at.min(input.len())..),
                2 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = random(256) as u8),
                _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random(8)),
            }
            input.truncate(8000);
        }
        // A failure has its input before it.
        let name = std::env::temp_dir().join(format!("numatop-fuzzed-{name}"));
        if std::env::var_os("NUMATOP_NG_TEST_FUZZ_SECONDS").is_some() {
            fs::write(name, &input).unwrap();
        }
        read(&input);
        count += 1;
    }
    println!("{name}: {count} inputs");
    count
}

#[test]
fn changed_memory_samples_and_records_do_no_harm() {
    assert!(mutated("access", target::access::read) > 100);
    assert!(mutated("spe", target::spe::read) > 100);
}

#[test]
fn elf_files_of_the_corpus_do_no_harm() {
    assert!(corpus("elf", target::elf::read) > 0, "it has a function with a name");
}

#[test]
fn listings_of_the_corpus_do_no_harm() {
    assert!(corpus("listing", target::listing::read) > 0, "it has a function with a name");
}

/// Inputs to begin with, of fixtures and of this machine: every target finds something in most of them.
#[test]
fn inputs_to_begin_with_are_read_to_their_end() {
    let inputs = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("first-inputs-{}", std::process::id()));
    let made = Command::new(below("fuzz/first-inputs")).arg(&inputs).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let of = |target: &str, read: fn(&[u8]) -> usize| -> BTreeMap<String, usize> {
        let found = fs::read_dir(inputs.join(target)).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), read(&fs::read(entry.path()).unwrap()))
        });
        found.collect()
    };
    let tables = of("tables", target::tables::read);
    assert!(tables.len() > 29 && tables.values().all(|found| *found > 0), "{tables:?}");
    let cgroups = of("cgroups", target::cgroups::read);
    for engine in ["containerd", "crio", "docker", "docker-moved", "kubelet", "podman"] {
        assert!(cgroups[engine] > 1, "{engine}: {cgroups:?}");
    }
    let proc = of("proc", target::proc::read);
    assert!(
        proc.iter()
            .all(|(name, found)| *found > 0 || ["list", "mask", "mounts", "privileges"].contains(&&name[..])),
        "{proc:?}"
    );
    let elf = of("elf", target::elf::read);
    assert!(["library", "linked", "stripped"].iter().all(|file| elf[*file] > 0), "{elf:?}");
    let listing = of("listing", target::listing::read);
    assert!(["perf-map", "kallsyms", "repeated"].iter().all(|file| listing[*file] > 0), "{listing:?}");
    for host in ["cxl", "no-cache", "no-numa", "offline", "old-maps", "sparse-nodes"] {
        let input = fs::read(inputs.join("proc").join(host)).unwrap();
        let tree = Tree::new(&entries(&input).1);
        let fixture = crate::fixture::tree(&format!("hosts/{host}"));
        assert_eq!(
            numatop_ng::host::topology::read(&tree.root).unwrap(),
            numatop_ng::host::topology::read(&fixture).unwrap(),
            "{host}"
        );
    }
    fs::remove_dir_all(&inputs).unwrap();
}

/// No input leads out of its directory.
#[test]
fn paths_of_inputs_stay_below_their_root() {
    let input = b"@@ ../../../escaped\nx\n@@ up => ../..\n@@ up/too\nx\n@@ a/./b/../c\ny\n@@ \0\nz\n";
    let (_, entries) = entries(input);
    let tree = Tree::new(&entries);
    assert_eq!(entries.len(), 3, "an empty path, a path with NUL, and a link to the root are none");
    assert_eq!(fs::read(tree.root.join("escaped")).unwrap(), b"x\n");
    assert_eq!(fs::read(tree.root.join("up/too")).unwrap(), b"x\n");
    assert_eq!(fs::read(tree.root.join("a/b/c")).unwrap(), b"y\n");
}
