//! Names as their authors wrote them.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// How deep a C++ name may be nested. Deeper ones are shown as they are.
const DEPTH_MAX: u32 = 96;

/// The name of a Rust or C++ function from the one that the linker knows; other names stay as they are.
pub fn demangle(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    if let Ok(rust) = rustc_demangle::try_demangle(&text) {
        // Without the hash.
        return format!("{rust:#}");
    }
    if name.starts_with(b"_Z") || name.starts_with(b"__Z") {
        let parse = ParseOptions::default().recursion_limit(DEPTH_MAX);
        let options = DemangleOptions::new().recursion_limit(DEPTH_MAX);
        let parsed = Symbol::new_with_options(name, &parse).ok();
        if let Some(name) = parsed.and_then(|symbol| symbol.demangle_with_options(&options).ok()) {
            return name;
        }
    }
    text.into_owned()
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
}
