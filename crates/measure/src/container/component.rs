//! Components of a cgroup path: ids, escapes, uids of pods.

use crate::model::group::{self, is_hex};

/// Characters kept of a name chosen by a user.
pub(super) const NAME_MAX: usize = 128;

/// `text` cleaned and cut.
pub(super) fn capped(text: &str) -> String {
    // Cleaning can make a character into ten: cut before (for speed) and after (for length).
    let short: String = text.chars().take(NAME_MAX).collect();
    let clean = group::show(&short);
    if clean.chars().count() <= NAME_MAX { clean } else { clean.chars().take(NAME_MAX).collect() }
}

/// The rest behind `prefix`, unless it is empty.
pub(super) fn after_prefix<'a>(part: &'a str, prefix: &str) -> Option<&'a str> {
    part.strip_prefix(prefix).filter(|rest| !rest.is_empty())
}

/// Cloud Foundry's garden: `8hex` and four times `-4hex`.
pub(super) fn is_garden(text: &str) -> bool {
    let mut words = text.split('-');
    words.next().is_some_and(|word| is_hex(word, 8)) && text.len() == 28 && words.all(|word| is_hex(word, 4))
}

/// The name of a unit without `.scope`, `.service` or `.slice`.
pub(super) fn strip_unit(part: &str) -> &str {
    [".scope", ".service", ".slice"].iter().find_map(|suffix| part.strip_suffix(suffix)).unwrap_or(part)
}

/// systemd writes characters not allowed in a unit name as `\xNN`. All others stay unchanged.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(first) = rest.first() {
        let escaped = rest.get(..4).filter(|word| word.starts_with(b"\\x")).and_then(|word| {
            let digits = std::str::from_utf8(&word[2..]).ok()?;
            // from_str_radix takes a sign, which is no digit here.
            digits
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
                .then(|| u8::from_str_radix(digits, 16).ok())?
        });
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = &rest[1..];
            }
        }
    }
    group::from_bytes(&bytes)
}

/// A pod's uid with dashes: a UUID (with `_` for `-` under the systemd driver), or the 32 digits of a
/// static pod.
pub(super) fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-");
    let words: Vec<&str> = uid.split('-').collect();
    let uuid = words.len() == 5 && words.iter().zip([8, 4, 4, 4, 12]).all(|(word, len)| is_hex(word, len));
    (uuid || is_hex(&uid, 32)).then_some(uid)
}

/// `session-3.scope` is called `session-3`.
pub(super) fn session(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope")?;
    let number = after_prefix(name, "session-")?;
    number.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_of_systemd_are_undone_and_others_kept() {
        assert_eq!(unescape(r"qemu\x2d1\x2dweb"), "qemu-1-web");
        assert_eq!(unescape(r"a\x2"), r"a\x2");
        assert_eq!(unescape(r"a\x+f"), r"a\x+f");
        assert_eq!(unescape(r"caf\xc3\xa9"), "café");
    }

    #[test]
    fn uids_of_pods() {
        let uid = "1a2b3c4d-0000-1111-2222-333344445555";
        assert_eq!(pod_uid("1a2b3c4d_0000_1111_2222_333344445555").as_deref(), Some(uid));
        assert_eq!(
            pod_uid("b8ba2a9d4d5b4a1fbd3f3f3c9a9c2d11").as_deref(),
            Some("b8ba2a9d4d5b4a1fbd3f3f3c9a9c2d11")
        );
        assert_eq!(pod_uid("web"), None);
    }

    proptest! {
        #[test]
        fn names_are_short_and_printable(text in ".{0,400}") {
            let name = capped(&unescape(&text));
            prop_assert!(name.chars().count() <= NAME_MAX);
            prop_assert!(!name.chars().any(char::is_control));
        }
    }
}
