//! Compiles every `bpf/*.bpf.c` with clang and writes its libbpf skeleton into OUT_DIR,
//! so that the binary carries its BPF objects and stays one file.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const OBJECTS: [&str; 10] =
    ["balance", "balancing_time", "hinting", "hot", "moved", "numa", "pages", "reclaim", "sched", "tasks"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for name in OBJECTS {
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
}
