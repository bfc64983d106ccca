//! The file of a user's settings: flags of the screen that hold where they are not typed. A key is the name of its flag.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::{clean_str, printable};

/// A flag that can be a setting, by its long name, and the values that it takes in the file.
const FLAGS: [(&str, ValueKind); 13] = [
    ("delay", ValueKind::Number),
    ("columns", ValueKind::List),
    ("node-columns", ValueKind::List),
    ("sort", ValueKind::Word),
    ("threads", ValueKind::Switch),
    ("by-container", ValueKind::Switch),
    ("color", ValueKind::Word),
    ("theme", ValueKind::Word),
    ("remote-from", ValueKind::Number),
    ("dim-below", ValueKind::Number),
    ("ascii", ValueKind::Switch),
    ("no-mouse", ValueKind::Switch),
    ("no-access", ValueKind::Switch),
];

/// First lines of a file that the program writes.
const HEAD: &str = "# Settings of numatop-ng: each is the flag of this name (numatop-ng --help). The key W in the live view writes the file.\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Number,
    List,
    Word,
    Switch,
}

impl ValueKind {
    /// An example of a value.
    fn example(self) -> &'static str {
        match self {
            ValueKind::Number => "a number, as in 2 or 0.5",
            ValueKind::List => "a list, as in [\"pid\", \"comm\"]",
            ValueKind::Word => "a string in quotes",
            ValueKind::Switch => "true or false",
        }
    }
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// As it was written.
    Number(String),
    List(Vec<String>),
    Word(String),
    Switch(bool),
}

/// A flag, its value, and the line of the file that contains it, from 1; 0 if it is in no file yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub flag: &'static str,
    pub value: Value,
    pub line: usize,
}

impl Setting {
    /// The setting as on the command line; `None` for a switch that is off, or an empty list.
    pub fn word(&self) -> Option<String> {
        let flag = self.flag;
        match &self.value {
            Value::Number(text) | Value::Word(text) => Some(format!("--{flag}={text}")),
            Value::List(items) => (!items.is_empty()).then(|| format!("--{flag}={}", items.join(","))),
            Value::Switch(on) => on.then(|| format!("--{flag}")),
        }
    }
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    pub why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// The line, from 1, of a byte.
fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at.min(bytes.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The settings of a file as it was read.
///
/// # Errors
/// The errors of [`parse`], and the first line that is not UTF-8.
pub fn parse_bytes(bytes: &[u8]) -> Result<Vec<Setting>, BadLine> {
    let text = std::str::from_utf8(bytes).map_err(|error| BadLine {
        line: line_of(bytes, error.valid_up_to()),
        why: "the file is not UTF-8".to_owned(),
    })?;
    parse(text)
}

/// The settings of a file, by line.
///
/// # Errors
/// The first line that is no TOML, has no setting, or gives one a value of another kind.
pub fn parse(text: &str) -> Result<Vec<Setting>, BadLine> {
    let line_of = |at: usize| line_of(text.as_bytes(), at);
    let table = DeTable::parse(text).map_err(|error| BadLine {
        line: line_of(error.span().map_or(0, |span| span.start)),
        why: error.message().replace('\n', ", "),
    })?;
    let mut settings = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let bad = |why: String| BadLine { line, why };
        let name: &str = key.get_ref();
        let Some(&(flag, kind)) = FLAGS.iter().find(|(flag, _)| *flag == name) else {
            let known: Vec<&str> = FLAGS.iter().map(|(flag, _)| *flag).collect();
            return Err(bad(format!(
                "unknown setting '{}'; the known settings are {}",
                clean_str(name),
                known.join(", ")
            )));
        };
        let value = value_of(value, kind).ok_or_else(|| bad(format!("{flag} takes {}", kind.example())))?;
        settings.push(Setting { flag, value, line });
    }
    settings.sort_by_key(|setting| setting.line);
    Ok(settings)
}

fn value_of(value: &Spanned<DeValue<'_>>, kind: ValueKind) -> Option<Value> {
    let text = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    Some(match (kind, value.get_ref()) {
        (ValueKind::Number, DeValue::Integer(number)) if number.radix() == 10 => {
            Value::Number(number.as_str().into())
        }
        (ValueKind::Number, DeValue::Float(number)) => Value::Number(number.as_str().into()),
        (ValueKind::Word, DeValue::String(_)) => Value::Word(text(value)?),
        (ValueKind::Switch, DeValue::Boolean(on)) => Value::Switch(*on),
        (ValueKind::List, DeValue::Array(items)) => {
            Value::List(items.iter().map(text).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// `settings` with those of `chosen` in their places; a choice without a value goes.
pub fn changed(mut settings: Vec<Setting>, chosen: &[(&'static str, Option<Value>)]) -> Vec<Setting> {
    for &(flag, ref value) in chosen {
        let at = settings.iter().position(|setting| setting.flag == flag);
        match (at, value) {
            (Some(at), Some(value)) => settings[at].value = value.clone(),
            (Some(at), None) => drop(settings.remove(at)),
            (None, Some(value)) => settings.push(Setting { flag, value: value.clone(), line: 0 }),
            (None, None) => {}
        }
    }
    settings
}

/// The file that has these settings.
pub fn render(settings: &[Setting]) -> String {
    let mut file = HEAD.to_string();
    for Setting { flag, value, .. } in settings {
        let value = match value {
            Value::Number(text) => text.clone(),
            Value::Word(text) => quoted(text),
            Value::Switch(on) => on.to_string(),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
                format!("[{}]", items.join(", "))
            }
        };
        file += &format!("{flag} = {value}\n");
    }
    file
}

/// A basic string of TOML, escaped as for a terminal.
fn quoted(text: &str) -> String {
    format!("\"{}\"", printable(text).replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_utf8_is_named() {
        let error = parse_bytes(b"delay = 2\nsort = \"\xff\"\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: the file is not UTF-8");
        assert_eq!(parse_bytes(b"delay = 2\n"), parse("delay = 2\n"));
    }

    fn words(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().filter_map(Setting::word).collect()
    }

    #[test]
    fn a_file_becomes_words_in_its_order() {
        let file = "# mine\nsort = \"-ipc\"\ndelay = 0.5\n\ncolumns = [\"pid\", 'comm']\nascii = true\nno-mouse = false\ncolor = \"never\"\n";
        let expected = ["--sort=-ipc", "--delay=0.5", "--columns=pid,comm", "--ascii", "--color=never"];
        assert_eq!(words(file), expected);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn a_bad_line_is_named_with_what_would_do() {
        for (file, line, why) in [
            ("delay = 1\nsort = \n", 2, ""),
            ("\n\nfrobnicate = 1\n", 3, "unknown setting 'frobnicate'; the known settings are delay, "),
            ("delay = \"2\"\n", 1, "delay takes a number"),
            ("ascii = 1\n", 1, "ascii takes true or false"),
            ("columns = \"pid\"\n", 1, "columns takes a list"),
            ("columns = [1]\n", 1, "columns takes a list"),
            ("delay = 0x10\n", 1, "delay takes a number"),
            ("[screen]\nascii = true\n", 1, "unknown setting 'screen'"),
            ("ascii = true\nascii = true\n", 2, "duplicate"),
        ] {
            let bad = parse(file).unwrap_err();
            assert_eq!(bad.line, line, "{file}: {bad}");
            assert!(bad.to_string().contains(why), "{file}: {bad}");
        }
    }

    #[test]
    fn names_in_a_bad_line_are_no_more_than_text() {
        let bad = parse("\"\\u001b[2J\" = 1\n").unwrap_err().to_string();
        assert!(!bad.contains('\u{1b}'), "{bad:?}");
    }

    #[test]
    fn what_is_written_is_read_again_with_what_was_not_chosen_here() {
        let before = parse("color = \"never\"\nthreads = true\nsort = \"pid\"\n").unwrap();
        let chosen = [
            ("sort", Some(Value::Word("-ipc".into()))),
            ("threads", None),
            ("columns", Some(Value::List(vec!["pid".into(), "comm".into()]))),
            ("delay", Some(Value::Number("2".into()))),
        ];
        let file = render(&changed(before, &chosen));
        let expected = ["--color=never", "--sort=-ipc", "--columns=pid,comm", "--delay=2"];
        assert_eq!(words(&file), expected, "{file}");
        let odd = [Setting { flag: "sort", value: Value::Word("a\"b\\\u{1b}".into()), line: 0 }];
        assert_eq!(words(&render(&odd)), ["--sort=a\"b\\\\x1b"]);
    }
}
