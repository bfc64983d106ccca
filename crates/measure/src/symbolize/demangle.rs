//! Names as their authors wrote them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use super::NAME_MAX;

/// Calls of the parser within each other for a C++ name: about ten templates in each other. Names that need
/// more stay mangled. The parser's time for an invalid name doubles with each of the last calls. A fuzzer's
/// name of 147 letters takes 0.5 s at 96, and 24 us at 80.
const DEPTH_MAX: u32 = 80;
/// Bytes that are written of a name: as many as the characters that are shown can have. Types may stand for others twice
/// and more, so that forty letters can mean gigabytes.
const WRITTEN_MAX: usize = 4 * NAME_MAX;

/// The demangled name of a Rust or C++ function; other names stay unchanged. Long names are cut to their
/// beginning.
pub fn demangle(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let mut out = Beginning(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(&text) {
        // Without the hash. It fails only when the text is long enough.
        let _ = write!(out, "{rust:#}");
        return out.0;
    }
    if name.starts_with(b"_Z") || name.starts_with(b"__Z") {
        let parse = ParseOptions::default().recursion_limit(DEPTH_MAX);
        let options = DemangleOptions::new().recursion_limit(DEPTH_MAX);
        let parsed = Symbol::new_with_options(name, &parse).ok();
        let written = parsed.map(|symbol| symbol.structured_demangle(&mut out, &options));
        if written.is_some_and(|written| written.is_ok() || out.is_full()) {
            return out.0;
        }
    }
    text.into_owned()
}

/// Accepts text until it is long enough, and then fails.
struct Beginning(String);

impl Beginning {
    fn is_full(&self) -> bool {
        self.0.len() >= WRITTEN_MAX
    }
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_full() {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        for (mangled, name) in [
            ("main", "main"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_ZZZZ", "_ZZZZ"),
        ] {
            assert_eq!(demangle(mangled.as_bytes()), name);
        }
    }

    #[test]
    fn names_that_nest_without_end_stay_as_they_are() {
        let nested = format!("_Z{}v", "1fI".repeat(1300));
        assert_eq!(demangle(nested.as_bytes()), nested);
        assert_eq!(demangle(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    /// Each part can be parsed in several ways before its end makes it invalid: at a depth of 96 that takes
    /// 12 s in a debug build. A fuzzer found it.
    #[test]
    fn a_wrong_name_is_not_read_in_a_million_ways() {
        let name = "_ZN6St3mjessISsEISsiSt4lessISsLSaISt4sLScIISsisEISsiSt4lessISsLSaISt4sLScIISsiSt4lessIsaSt4less\
                    ISsLSaISt4sLScIIS_s2D1KscrimLSaISt4sLScIISsiSt4lSisL";
        assert_eq!(demangle(name.as_bytes()), name);
    }

    /// Each type has nine times the one before in it: 9^12 times `int`.
    #[test]
    fn a_name_that_means_gigabytes_is_cut() {
        let types: String =
            "0123456789AB".chars().map(|last| format!("S_I{}E", format!("S{last}_").repeat(9))).collect();
        let shown = demangle(format!("_Z1fSt5tupleIiE{types}").as_bytes());
        assert!(shown.starts_with("f(std::tuple<int>, std::tuple<std::tuple<int>, "), "{shown}");
        assert!((WRITTEN_MAX..2 * WRITTEN_MAX).contains(&shown.len()), "{} bytes", shown.len());
    }
}
