//! Facts that may be unknown: then they carry the reason.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

/// A fact about the host, or why it is unknown. In JSON the value itself, or `{"unknown": "why"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact<T> {
    Known(T),
    Unknown { unknown: String },
}

impl<T> Fact<T> {
    pub fn unknown(why: impl Into<String>) -> Fact<T> {
        Fact::Unknown { unknown: why.into() }
    }

    /// The value.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn into_known(self) -> Result<T, String> {
        match self {
            Fact::Known(value) => Ok(value),
            Fact::Unknown { unknown } => Err(unknown),
        }
    }

    /// The value, where it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Unknown { .. } => None,
        }
    }

    /// True if it is known to be `value`; an unknown fact equals nothing.
    pub fn is(&self, value: &T) -> bool
    where
        T: PartialEq,
    {
        self.known() == Some(value)
    }
}

impl<T> From<Result<T, String>> for Fact<T> {
    fn from(result: Result<T, String>) -> Fact<T> {
        match result {
            Ok(value) => Fact::Known(value),
            Err(why) => Fact::unknown(why),
        }
    }
}

/// The content of a small text file below `root`, without white space around it.
///
/// # Errors
/// The path and the errno, as text.
pub fn text(root: &Path, path: &str) -> Result<String, String> {
    let path = root.join(path);
    fs::read_to_string(&path)
        .map(|text| text.trim().to_string())
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The value that a one-line file below `root` holds, such as a sysctl.
pub fn value<T: FromStr>(root: &Path, path: &str) -> Fact<T> {
    text(root, path)
        .and_then(|text| {
            let odd = || format!("{}: cannot parse {text:?}", root.join(path).display());
            text.parse().map_err(|_| odd())
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_fact_names_the_file_and_the_errno() {
        let paranoid: Fact<i64> = value(Path::new("/nonexistent"), "proc/sys/kernel/perf_event_paranoid");
        assert_eq!(
            paranoid,
            Fact::unknown(
                "/nonexistent/proc/sys/kernel/perf_event_paranoid: No such file or directory (os error 2)"
            )
        );
        assert!(!paranoid.is(&2));
    }

    #[test]
    fn in_json_a_fact_is_its_value_or_the_reason() {
        let json = |fact: &Fact<i64>| serde_json::to_string(fact).unwrap();
        assert_eq!(json(&Fact::Known(2)), "2");
        assert_eq!(json(&Fact::unknown("why")), r#"{"unknown":"why"}"#);
    }
}
