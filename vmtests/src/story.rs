//! What a person reads while guests run: one line per case, the story of each that failed.

use std::ops::AddAssign;

use vmtests_protocol::{Event, Outcome};

/// How the line of a check that failed begins.
const WRONG: &str = "      WRONG ";

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

/// Follows the events of one guest.
pub struct Story {
    verbose: bool,
    pub tally: Tally,
    /// The case that has begun and not ended, with what it said so far.
    open: Option<(String, Vec<String>)>,
    checks: u32,
}

impl Story {
    pub fn new(verbose: bool) -> Self {
        Story { verbose, tally: Tally::default(), open: None, checks: 0 }
    }

    /// The case that was running when the guest ended without an answer.
    pub fn unfinished(&self) -> Option<&str> {
        self.open.as_ref().map(|(case, _)| case.as_str())
    }

    /// Lines to print for this event.
    pub fn follow(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Ready { kernel, uptime, .. } => {
                vec![format!("  ready after {uptime:.1} s: Linux {kernel}")]
            }
            Event::Begin { case, about } => {
                self.checks = 0;
                self.open = Some((case.clone(), Vec::new()));
                if self.verbose { vec![format!("  {case}: {about}")] } else { Vec::new() }
            }
            Event::Say { text, .. } => self.tell(format!("      {text}")),
            Event::Check { ok, what, want, got, .. } => {
                self.checks += 1;
                let line = match ok {
                    true if want == got => format!("      ok    {what}: {got}"),
                    true => format!("      ok    {what}: {got} (expected {want})"),
                    false => format!("{WRONG}{what}: expected {want}, found {got}"),
                };
                self.tell(line)
            }
            Event::Data { .. } => Vec::new(),
            Event::End { case, outcome, reason, seconds } => {
                self.end(case, *outcome, reason.as_deref(), *seconds)
            }
        }
    }

    /// What the open case has said so far, for a guest that ended in the middle of it.
    pub fn rest(&mut self) -> Vec<String> {
        if self.verbose { Vec::new() } else { self.open.take().map(|(_, lines)| lines).unwrap_or_default() }
    }

    fn tell(&mut self, line: String) -> Vec<String> {
        if self.verbose {
            return vec![line];
        }
        if let Some((_, lines)) = &mut self.open {
            lines.push(line);
        }
        Vec::new()
    }

    fn end(&mut self, case: &str, outcome: Outcome, reason: Option<&str>, seconds: f64) -> Vec<String> {
        let said = self.open.take().map(|(_, lines)| lines).unwrap_or_default();
        let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let mut lines = Vec::new();
        match outcome {
            Outcome::Passed => {
                self.tally.passed += 1;
                lines.push(format!("  passed  {case} ({} checks, {seconds:.1} s){because}", self.checks));
            }
            Outcome::Skipped => {
                self.tally.skipped += 1;
                lines.push(format!("  skipped {case}{because}"));
            }
            Outcome::Failed => {
                self.tally.failed += 1;
                lines.push(format!("  FAILED  {case} ({seconds:.1} s){because}"));
                // What is wrong first: whoever shows an excerpt of our output shows the beginning of a failure.
                let wrong: Vec<String> =
                    said.iter().filter(|line| line.starts_with(WRONG)).cloned().collect();
                let whole = said.len() > wrong.len();
                lines.extend(wrong);
                if whole {
                    lines.push("      all that it said:".to_owned());
                    lines.extend(said);
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(outcome: Outcome) -> Event {
        Event::End { case: "nodes".into(), outcome, reason: None, seconds: 1.0 }
    }

    #[test]
    fn a_failed_case_tells_its_story_and_a_passed_one_a_line() {
        let begin = Event::Begin { case: "nodes".into(), about: String::new() };
        let check = Event::Check {
            case: "nodes".into(),
            ok: false,
            what: "CPUs of node 1".into(),
            want: "2-3".into(),
            got: "none".into(),
        };
        let mut story = Story::new(false);
        let fine = Event::Say { case: "nodes".into(), text: "two nodes".into() };
        assert!(story.follow(&begin).is_empty());
        assert!(story.follow(&fine).is_empty());
        assert!(story.follow(&check).is_empty());
        let told = story.follow(&end(Outcome::Failed));
        let wrong = "      WRONG CPUs of node 1: expected 2-3, found none";
        assert_eq!(told[1..], [wrong, "      all that it said:", "      two nodes", wrong]);
        story.follow(&begin);
        assert_eq!(story.follow(&end(Outcome::Passed)).len(), 1);
        assert_eq!(story.tally, Tally { passed: 1, failed: 1, skipped: 0 });
        assert_eq!(story.unfinished(), None);
    }
}
