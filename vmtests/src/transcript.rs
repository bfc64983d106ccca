//! The text that a person reads while guests run: one line per case, the story of each that failed.

use std::ops::AddAssign;

use vmtests_protocol::{Event, Outcome};

use crate::boot::End;

/// The beginning of the line of a check that failed.
const WRONG: &str = "      WRONG ";

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl Tally {
    pub fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

/// The progress of a case of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Begun,
    Ended,
}

/// Follows the events of one guest.
pub struct Story {
    verbose: bool,
    pub tally: Tally,
    /// The plan: what does not come to its end is missed.
    cases: Vec<(String, Stage)>,
    /// The running case, with its output so far.
    open: Option<(String, Vec<String>)>,
    checks: u32,
}

impl Story {
    /// Of a guest that runs `cases`.
    pub fn new(verbose: bool, cases: &[String]) -> Self {
        let cases = cases.iter().map(|case| (case.clone(), Stage::Waiting)).collect();
        Story { verbose, tally: Tally::default(), cases, open: None, checks: 0 }
    }

    /// Why a guest that ended like this has failed, beyond what its cases say of themselves.
    pub fn fault(&self, end: &End) -> Option<String> {
        let during = self.open.as_ref().map(|(case, _)| format!(", during case {case}")).unwrap_or_default();
        let missing: Vec<&str> = self
            .cases
            .iter()
            .filter(|(_, stage)| *stage != Stage::Ended)
            .map(|(case, _)| case.as_str())
            .collect();
        match end {
            End::Exit(code) if !missing.is_empty() => {
                Some(format!("EXIT {code} without an end of {}", missing.join(", ")))
            }
            End::Exit(0) if self.tally.failed == 0 => None,
            // The cases that failed say why; the guest itself did its work.
            End::Exit(_) if self.tally.failed > 0 => None,
            End::Exit(code) => Some(format!("EXIT {code} does not fit what its cases said")),
            End::Died(status) => Some(format!("{status}{during}")),
            End::BootDeadline(limit) => Some(format!("no ready line after {} s", limit.as_secs())),
            End::Deadline(limit) => Some(format!("nothing more for {} s{during}", limit.as_secs())),
            End::Noise(why) => Some(format!("{why}{during}")),
        }
    }

    /// The ends that the guest did not send: a case that it began has failed, one that it did not reach is skipped.
    pub fn missing_ends(&self, why: &str) -> Vec<Event> {
        let end = |case: &String, outcome, what| Event::End {
            case: case.clone(),
            outcome,
            reason: Some(format!("{what}: {why}")),
            seconds: 0.0,
        };
        let ends = self.cases.iter().filter_map(|(case, stage)| match stage {
            Stage::Waiting => Some(end(case, Outcome::Skipped, "was not reached")),
            Stage::Begun => Some(end(case, Outcome::Failed, "did not come to an end")),
            Stage::Ended => None,
        });
        ends.collect()
    }

    fn reach(&mut self, case: &str, reached: Stage) {
        for (_, stage) in self.cases.iter_mut().filter(|(name, _)| name == case) {
            *stage = reached;
        }
    }

    /// Lines to print for this event.
    pub fn follow(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Ready { kernel, uptime, .. } => {
                vec![format!("  ready after {uptime:.1} s: Linux {kernel}")]
            }
            Event::Begin { case, about } => {
                // A case that is still open lost its end; its output is kept.
                let mut lines = self.rest();
                if !lines.is_empty() {
                    lines.insert(0, format!("  the case before {case} has no end; it said:"));
                }
                self.checks = 0;
                self.reach(case, Stage::Begun);
                self.open = Some((case.clone(), Vec::new()));
                if self.verbose {
                    lines.push(format!("  {case}: {about}"));
                }
                lines
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
                self.reach(case, Stage::Ended);
                self.end(case, *outcome, reason.as_deref(), *seconds)
            }
        }
    }

    /// Lines of the open case that were not printed so far.
    fn rest(&mut self) -> Vec<String> {
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
        let open = self.open.take_if(|(open, _)| open == case);
        // An end that the runner adds has neither checks nor a time.
        let (checks, took) = match open {
            Some(_) => (format!(" ({} checks, {seconds:.1} s)", self.checks), format!(" ({seconds:.1} s)")),
            None => Default::default(),
        };
        let said = open.map(|(_, lines)| lines).unwrap_or_default();
        let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        self.tally.count(outcome);
        let mut lines = Vec::new();
        match outcome {
            Outcome::Passed => {
                lines.push(format!("  passed  {case}{checks}{because}"));
            }
            Outcome::Skipped => {
                lines.push(format!("  skipped {case}{because}"));
            }
            Outcome::Failed => {
                lines.push(format!("  FAILED  {case}{took}{because}"));
                // The fault first: an excerpt of our output shows the beginning of a failure.
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

    fn begin(case: &str) -> Event {
        Event::Begin { case: case.into(), about: String::new() }
    }

    fn end(outcome: Outcome) -> Event {
        Event::End { case: "nodes".into(), outcome, reason: None, seconds: 1.0 }
    }

    fn of(cases: &[&str]) -> Story {
        Story::new(false, &cases.iter().map(|case| (*case).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_failed_case_tells_its_story_and_a_passed_one_a_line() {
        let begin = begin("nodes");
        let check = Event::Check {
            case: "nodes".into(),
            ok: false,
            what: "CPUs of node 1".into(),
            want: "2-3".into(),
            got: "none".into(),
        };
        let mut story = of(&["nodes"]);
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
        assert_eq!(story.fault(&End::Exit(1)), None);
        assert!(story.missing_ends("").is_empty());
    }

    #[test]
    fn a_lost_end_is_a_failure_and_a_case_that_was_not_reached_is_skipped() {
        let mut story = of(&["boot", "nodes", "hotplug"]);
        story.follow(&begin("boot"));
        story.follow(&Event::Say { case: "boot".into(), text: "two CPUs".into() });
        let told = story.follow(&begin("nodes"));
        assert_eq!(told, ["  the case before nodes has no end; it said:", "      two CPUs"]);
        story.follow(&end(Outcome::Passed));

        let why = story.fault(&End::Exit(0)).unwrap();
        assert_eq!(why, "EXIT 0 without an end of boot, hotplug");
        let told: Vec<String> =
            story.missing_ends(&why).iter().flat_map(|event| story.follow(event)).collect();
        assert_eq!(
            told,
            [
                "  FAILED  boot: did not come to an end: EXIT 0 without an end of boot, hotplug",
                "  skipped hotplug: was not reached: EXIT 0 without an end of boot, hotplug",
            ]
        );
        assert_eq!(story.tally, Tally { passed: 1, failed: 1, skipped: 1 });
    }

    #[test]
    fn a_guest_that_dies_says_during_which_case() {
        let mut story = of(&["boot", "nodes"]);
        story.follow(&begin("boot"));
        story.follow(&Event::Say { case: "boot".into(), text: "two CPUs".into() });
        let why = story.fault(&End::Died("QEMU ended".into())).unwrap();
        assert_eq!(why, "QEMU ended, during case boot");
        let told = story.follow(&story.missing_ends(&why)[0].clone());
        assert_eq!(told[1..], ["      all that it said:", "      two CPUs"]);
    }
}
