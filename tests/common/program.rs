//! The program under test.

#![allow(dead_code, reason = "each test target uses a part")]

use std::sync::LazyLock;

/// Path of the program: `NUMATOP_NG` names the one for users; by default it is the build beside the tests.
pub fn path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        std::env::var("NUMATOP_NG").unwrap_or_else(|_| env!("CARGO_BIN_EXE_numatop-ng").into())
    });
    &PATH
}

/// Path of the build beside the tests, which has the features of the tests.
pub fn beside_tests() -> &'static str {
    env!("CARGO_BIN_EXE_numatop-ng")
}
