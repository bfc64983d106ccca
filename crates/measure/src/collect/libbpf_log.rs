//! Messages of libbpf, kept instead of printed over the screen.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// Lines kept; a verifier's log can have thousands, and the error is at its end.
const KEPT: usize = 200;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// From now on libbpf prints nothing: [`take`] returns its warnings.
pub fn keep() {
    set_print(Some((PrintLevel::Warn, |_, text| remember(&text))));
}

/// The last warnings, line by line, oldest first; each is handed out once.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner)).into()
}

fn remember(text: &str) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(crate::text::clean_str(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        for i in 0..KEPT {
            remember(&format!("line {i}\n\n"));
        }
        remember("R1 invalid mem access\n\x1b[2Jdone\n");
        let lines = take();
        assert_eq!(lines.len(), KEPT);
        assert_eq!(lines.first().unwrap(), "line 2");
        assert_eq!(lines[KEPT - 2..], ["R1 invalid mem access", "\\x1b[2Jdone"]);
        assert!(take().is_empty());
    }
}
