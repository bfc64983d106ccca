//! The output of `numatop-ng list findings` and of `diagnose --explain`: the rules, their limits, and when they stay silent.

use crate::finding::Rule;
use crate::finding::rule::Group;
use crate::finding::rules::RULES;
use crate::text::{hanging, words};

/// All rules, one line each, as text of at most `width` columns.
pub fn render_text(width: usize) -> String {
    let mut out =
        String::from("Rules of findings, with their highest severity (diagnose --rules, --explain)\n");
    for rule in RULES {
        out += &hanging(&format!("{:24} {:8} ", rule.id, rule.gravest.name()), words(rule.about), width);
    }
    out
}

/// One rule: its condition, limits with their sources, and guards, as text of at most `width` columns.
pub fn explain(rule: &Rule, width: usize) -> String {
    let mut out = hanging("", words(&format!("{} - {}", rule.id, rule.title)), width);
    out += &hanging("  ", words(rule.about), width);
    let kinds: Vec<&str> = rule.of.iter().map(|kind| kind.name()).collect();
    out += &hanging(
        "  subject  ",
        words(&format!("{}; up to {}", kinds.join(", "), rule.gravest.name())),
        width,
    );
    out += &hanging("  held     ", words(&held(rule)), width);
    for limit in rule.limits {
        let text = format!("{}: starts at {}, ends at {}; {}", limit.name, limit.on, limit.off, limit.source);
        out += &hanging("  limit    ", words(&text), width);
    }
    for (word, meaning) in rule.not_when {
        out += &hanging("  not when ", words(&format!("{word}: {meaning}")), width);
    }
    if !rule.needs.is_empty() {
        out += &hanging("  needs    ", words(&rule.needs.join(", ")), width);
    }
    out
}

/// All rules as tables in markdown, one for each group: the list in docs/rules.md. [`explain`] has limits and guards.
pub fn render_markdown() -> String {
    let mut groups: Vec<Group> = RULES.iter().map(|rule| rule.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut out = String::new();
    for group in groups {
        out += &format!("## {}\n\n| rule | at most | held | condition |\n|---|---|---|---|\n", group.title());
        for rule in RULES.iter().filter(|rule| rule.group == group) {
            out += &format!(
                "| `{}` | {} | {} s | {} |\n",
                rule.id,
                rule.gravest.name(),
                rule.hold.on_s,
                rule.about
            );
        }
        out.push('\n');
    }
    out
}

fn held(rule: &Rule) -> String {
    match rule.hold.on_s {
        0.0 => "at once".to_owned(),
        seconds => format!("must hold {seconds} s; ends {} s after the condition ends", rule.hold.off_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_the_terminal() {
        assert!(render_text(80).lines().all(|line| line.chars().count() <= 80));
        for rule in RULES {
            let text = explain(rule, 80);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(rule.limits.iter().all(|limit| text.contains(limit.name)), "{text}");
        }
    }
}
