//! Compiles every `bpf/*.bpf.c` with clang and writes its libbpf skeleton into OUT_DIR, and a module for each
//! into `skeletons.rs`. So the binary carries its BPF objects and stays one file. The enums of counters that
//! the programs include (`counters.h`) come from the table of counters of the library.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "build/bpf.rs"]
mod bpf;

/// The names in the table of counters: counters of our programs, and counters of the kernel.
macro_rules! counters {
    (kept { $($kept:tt)* } lifetime { $($lifetime:tt)* }) => {
        const KEPT: &[&str] = &counters!(@names $($kept)*);
        const LIFETIME: &[&str] = &counters!(@names $($lifetime)*);
    };
    (@names $($(#[$doc:meta])* $counter:ident $name:literal $unit:literal $added_for:expr;)*) => {
        [$($name),*]
    };
}

include!("build/counters.rs");

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Both are links in the repository, and cargo looks at the time of a link, not of its target.
    for watched in ["bpf", "build/counters.rs"] {
        let target = fs::canonicalize(watched).expect("the package has it");
        println!("cargo:rerun-if-changed={}", target.display());
    }
    let enums =
        c_enum("nt_counter", KEPT, "NT_NR_COUNTERS") + &c_enum("nt_lifetime", LIFETIME, "NT_NR_LIFETIME");
    fs::write(out.join("counters.h"), enums).expect("OUT_DIR can be written to");
    let mut modules = String::new();
    for name in objects() {
        let source = format!("bpf/{name}.bpf.c");
        bpf::compile(&source, &out.join(format!("{name}.skel.rs")), &[Path::new("bpf"), &out]);
        modules +=
            &format!("pub mod {name} {{ include!(concat!(env!(\"OUT_DIR\"), \"/{name}.skel.rs\")); }}\n");
    }
    fs::write(out.join("skeletons.rs"), modules).expect("OUT_DIR can be written to");
}

/// An enum in C, with the number of names at its end.
fn c_enum(name: &str, names: &[&str], count: &str) -> String {
    let lines: String = names.iter().map(|name| format!("\tNT_{},\n", name.to_uppercase())).collect();
    format!("enum {name} {{\n{lines}\t{count},\n}};\n\n")
}

/// Names of all objects, in order.
fn objects() -> Vec<String> {
    let files = fs::read_dir("bpf").expect("the package has a folder bpf");
    let names = files.map(|file| file.expect("bpf can be listed").file_name());
    let mut objects: Vec<String> =
        names.filter_map(|name| Some(name.to_str()?.strip_suffix(".bpf.c")?.to_owned())).collect();
    objects.sort();
    objects
}
