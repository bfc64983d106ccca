//! Compiles the empty program that every hook is compared with.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/empty.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let mut builder = SkeletonBuilder::new();
    // The same instruction set and header search as the programs it is compared with.
    builder.source(SOURCE).clang_args([
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
        "-idirafter",
        "/usr/include/aarch64-linux-gnu",
    ]);
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    if let Err(error) = builder.build_and_generate(out.join("empty.skel.rs")) {
        eprintln!("cannot compile {SOURCE}: {error:#}");
        std::process::exit(1);
    }
}
