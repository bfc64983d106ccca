//! Compiles the empty program that every hook is compared with.

use std::env;
use std::path::PathBuf;

#[path = "../crates/measure/build/bpf.rs"]
mod bpf;

const SOURCE: &str = "bpf/empty.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed={SOURCE}");
    bpf::compile(SOURCE, &out.join("empty.skel.rs"), &[]);
}
