//! Compilation of BPF programs with clang, for the library and for the benchmarks. Both use one instruction
//! set and one header search, so that the costs of their programs compare.

use std::env;
use std::path::Path;

use libbpf_cargo::SkeletonBuilder;

/// Flags that keep the folders of this build out of the objects. BTF line information has paths of sources,
/// so two trees would make two binaries.
fn without_folders() -> Vec<String> {
    let folders = [("CARGO_MANIFEST_DIR", "numatop-ng"), ("OUT_DIR", "out")];
    let mapped = folders.map(|(variable, name)| {
        let folder = env::var(variable).expect("cargo sets it for build scripts");
        format!("-ffile-prefix-map={folder}={name}")
    });
    mapped.into()
}

/// Compiles `source` and writes its libbpf skeleton to `skeleton`. Headers are looked up in `includes` first. Ends the
/// build where that fails.
pub fn compile(source: &str, skeleton: &Path, includes: &[&Path]) {
    println!("cargo:rerun-if-env-changed=CLANG");
    let mut builder = SkeletonBuilder::new();
    let mut flags: Vec<String> = includes.iter().map(|folder| format!("-I{}", folder.display())).collect();
    flags.extend(without_folders());
    let common = [
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
    ];
    flags.extend(common.map(String::from));
    builder.source(source).clang_args(flags);
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    if let Err(error) = builder.build_and_generate(skeleton) {
        eprintln!("cannot compile {source}: {error:#}");
        eprintln!(
            "the build needs clang 14 or newer, libelf and zlib headers and pkg-config: see README.md, 'Build'"
        );
        std::process::exit(1);
    }
}
