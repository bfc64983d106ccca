//! Compiles every `bpf/*.bpf.c` with clang and writes its libbpf skeleton into OUT_DIR, and a module for each into
//! `skeletons.rs`, so that the binary carries its BPF objects and stays one file.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let mut modules = String::new();
    for name in objects() {
        compile(&name, &out);
        modules +=
            &format!("pub mod {name} {{ include!(concat!(env!(\"OUT_DIR\"), \"/{name}.skel.rs\")); }}\n");
    }
    fs::write(out.join("skeletons.rs"), modules).expect("OUT_DIR can be written to");
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

fn compile(name: &str, out: &Path) {
    let source = format!("bpf/{name}.bpf.c");
    let mut builder = SkeletonBuilder::new();
    builder.source(&source).clang_args([
        "-Ibpf",
        // The newest instruction set that every kernel since 5.1 takes (v4 needs 6.6).
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        // Debian and its kin keep asm/types.h in a directory per architecture, which clang does
        // not search when it compiles for BPF. The file is the same for all of them.
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
        "-idirafter",
        "/usr/include/aarch64-linux-gnu",
    ]);
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    if let Err(error) = builder.build_and_generate(out.join(format!("{name}.skel.rs"))) {
        eprintln!("cannot compile {source}: {error:#}");
        eprintln!(
            "the build needs clang 14 or newer, libelf and zlib headers and pkg-config: see README.md, 'Build'"
        );
        std::process::exit(1);
    }
}
