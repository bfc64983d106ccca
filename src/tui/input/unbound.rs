//! Messages about keys that have no binding where they were pressed: each names the nearest command.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::keymap::context::{PICKER, PROMPT};
use super::keymap::{KEYS, Key};

/// Keys of htop, top and less without a counterpart here, and the nearest one.
const HABITS: &[(&[KeyCode], &str)] = &[
    (&[KeyCode::F(9)], "numatop-ng does not kill: note the PID, then use kill(1)"),
    (
        &[KeyCode::F(7), KeyCode::F(8), KeyCode::Char('r')],
        "numatop-ng does not renice: note the PID, then use renice(1)",
    ),
    (&[KeyCode::Char('Q')], "q quits, F10 from anywhere"),
    (&[KeyCode::Char('5'), KeyCode::Char('6'), KeyCode::Char('7')], "keys 1 to 4 show the tables"),
    (&[KeyCode::Char('8'), KeyCode::Char('9'), KeyCode::Char('0')], "keys 1 to 4 show the tables"),
    (&[KeyCode::Char(' ')], "Z pauses; Space tags rows of tasks and containers"),
    (&[KeyCode::Char('x')], "F6 sorts; the title of the sorted column is marked"),
    (&[KeyCode::Char('L'), KeyCode::Char('D')], "F2 selects columns, F4 filters"),
    (&[KeyCode::BackTab], "Tab shows the next table, 1 to 4 a particular one"),
];

/// The message about a key without a binding where these bits of [`super::keymap::context`] hold; none where text is typed.
pub fn message(event: KeyEvent, contexts: u16) -> Option<String> {
    if contexts & (PICKER | PROMPT) != 0 || matches!(event.code, KeyCode::Modifier(_) | KeyCode::Null) {
        return None;
    }
    let key = Key::of(event);
    let habit = HABITS.iter().find(|(codes, _)| key.1.is_empty() && codes.contains(&key.0));
    let words = match habit {
        Some((_, words)) => (*words).to_owned(),
        None => elsewhere(key).or_else(|| other_case(key, contexts)).unwrap_or_else(|| "no such key".into()),
    };
    Some(format!("{}: {words}; ? shows the keys", key.name()))
}

/// The meaning of a key on another screen.
fn elsewhere(key: Key) -> Option<String> {
    let described = KEYS.iter().filter(|line| line.contexts & !(PICKER | PROMPT) != 0);
    let line = described.filter(|line| !line.help.is_empty()).find(|line| line.keys.contains(&key))?;
    Some(format!("not on this screen ({})", line.help))
}

/// The meaning of the same letter in the other case.
fn other_case(key: Key, contexts: u16) -> Option<String> {
    let KeyCode::Char(c) = key.0 else { return None };
    let other = if c.is_ascii_uppercase() { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
    let pressed = Key(KeyCode::Char(other), KeyModifiers::NONE);
    let mut here = KEYS.iter().filter(|line| line.contexts & contexts != 0 && !line.help.is_empty());
    let line = here.find(|line| other != c && line.keys.contains(&pressed))?;
    Some(format!("no such key; {other}: {}", line.help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::input::keymap::action;
    use crate::tui::input::keymap::context::{DETAIL, FINDINGS, TASKS};

    fn said(code: KeyCode, contexts: u16) -> String {
        message(KeyEvent::new(code, KeyModifiers::NONE), contexts).unwrap_or_default()
    }

    #[test]
    fn every_key_does_something_or_says_what_does() {
        let letters = ('!'..='~').map(KeyCode::Char);
        let others = (1..=12).map(KeyCode::F).chain([KeyCode::Insert, KeyCode::Delete, KeyCode::BackTab]);
        for code in letters.chain(others) {
            for contexts in [TASKS, DETAIL, FINDINGS] {
                let event = KeyEvent::new(code, KeyModifiers::NONE);
                let answered =
                    action(event, contexts).is_some() || said(code, contexts).ends_with("? shows the keys");
                assert!(answered, "{code:?} where {contexts}");
            }
        }
    }

    #[test]
    fn habits_of_htop_and_top_are_answered() {
        assert!(said(KeyCode::F(9), TASKS).starts_with("F9: numatop-ng does not kill"));
        for code in [KeyCode::F(7), KeyCode::F(8), KeyCode::Char('r')] {
            assert!(said(code, TASKS).contains("does not renice"));
        }
        assert_eq!(said(KeyCode::Char('Q'), TASKS), "Q: q quits, F10 from anywhere; ? shows the keys");
        assert_eq!(said(KeyCode::Char('5'), TASKS), "5: keys 1 to 4 show the tables; ? shows the keys");
        assert!(said(KeyCode::Char('y'), TASKS).contains("not on this screen (Findings: copy"));
    }

    #[test]
    fn text_that_is_typed_is_no_mistake() {
        assert_eq!(said(KeyCode::F(9), PROMPT), "");
        assert_eq!(said(KeyCode::F(9), PICKER), "");
    }
}
