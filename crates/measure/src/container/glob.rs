//! Patterns of cgroup paths. `*` and `?` stay within a component, `**` does not.

/// True when the whole of `text` matches `pattern`. Takes time proportional to the product of their
/// lengths at most, whatever the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // reached[i]: the pattern so far matches the first i characters of the text.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let deep = pattern[at..].starts_with(&['*', '*']);
        match pattern[at] {
            '*' => {
                for i in 0..text.len() {
                    reached[i + 1] |= reached[i] && (deep || text[i] != '/');
                }
            }
            wanted => {
                for i in (0..text.len()).rev() {
                    let same = text[i] == wanted || (wanted == '?' && text[i] != '/');
                    reached[i + 1] = reached[i] && same;
                }
                reached[0] = false;
            }
        }
        at += if deep { 2 } else { 1 };
    }
    reached[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stay_within_a_component_unless_doubled() {
        for (pattern, text, wanted) in [
            ("/docker/*", "/docker/web", true),
            ("/docker/*", "/docker/web/inner", false),
            ("/docker/**", "/docker/web/inner", true),
            ("/*/web?", "/docker/web1", true),
            ("/*/web?", "/docker/web", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("**/x", "/a/b/x", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn every_text_matches_itself_and_two_stars(text in "[a-z/.]{0,40}") {
            prop_assert!(matches(&text, &text) && matches("**", &text));
        }

        #[test]
        fn no_pattern_takes_long_or_panics(pattern in "[*?a/]{0,200}", text in "[a/]{0,200}") {
            matches(&pattern, &text);
        }
    }
}
