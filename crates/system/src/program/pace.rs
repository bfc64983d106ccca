//! When the next sample is due, and why an interval is not as long as was asked. Pure: times are given.

use std::time::{Duration, Instant};

/// An interval may be off by a tenth, or by this, before that is worth a word.
const SLACK: Duration = Duration::from_millis(50);

/// The beginning of a note on an interval that was cut short for the sake of the screen.
const EARLY: &str = "an interval is shorter than requested: ";

/// Why a sample came late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The process was stopped and continued.
    Stopped,
    /// It was ready to run, but other tasks used the CPUs.
    NoCpu,
    /// CPUs were brought up to date.
    Preparing,
    /// Names of functions were waited for.
    Names,
    /// The previous sample was taken and, with a recording, recorded.
    Sampling,
    /// The sampling of stacks or of accesses began.
    Setup,
}

impl Cause {
    fn words(self) -> &'static str {
        match self {
            Cause::Stopped => "numatop-ng was stopped (SIGSTOP or SIGTSTP) and continued",
            Cause::NoCpu => "other tasks used the CPUs while numatop-ng was ready to run",
            Cause::Preparing => "reading the current counts of the CPUs took too long",
            Cause::Names => "looking up function names took long",
            Cause::Sampling => "taking and recording the previous sample took too long",
            Cause::Setup => "starting the sampling of stacks or accesses took too long",
        }
    }
}

/// Measured reasons for coming late, as sums since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// Times the process was continued.
    pub continued: u64,
    /// Time in which this thread was ready and did not run.
    pub no_cpu: Duration,
    /// Time in which the machine was suspended.
    pub suspended: Duration,
}

/// Due times on a grid, so that intervals do not drift, and the state of the current interval.
#[derive(Clone, Debug)]
pub struct Pacing {
    /// All points of the grid are whole intervals after it.
    origin: Instant,
    interval: Duration,
    due: Instant,
    /// When the last sample was due and when it was taken.
    last: Instant,
    last_was_late: bool,
    /// The next sample comes before its time, for this reason.
    early: Option<&'static str>,
    spent: Vec<(Cause, Duration)>,
    witness: Witness,
}

impl Pacing {
    /// The first sample is taken at `first`.
    pub fn new(first: Instant, interval: Duration, witness: Witness) -> Pacing {
        Pacing {
            origin: first,
            interval,
            due: first + interval,
            last: first,
            last_was_late: false,
            early: None,
            spent: Vec::new(),
            witness,
        }
    }

    /// When the next sample is to be taken.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Intervals are `interval` long from the last sample on.
    pub fn set_interval(&mut self, interval: Duration, now: Instant) {
        self.interval = interval;
        self.origin = self.last;
        self.due = (self.last + interval).max(now);
        self.early = None;
    }

    /// The next sample is due `after` the last one, or now if that has passed; never less than `after` later.
    /// `why` is the user's action, or the thing to show.
    pub fn hurry(&mut self, after: Duration, now: Instant, why: &'static str) {
        let wanted = (self.last + after.min(self.interval)).max(now);
        if wanted < self.due {
            self.due = wanted;
            self.early = Some(why);
        }
    }

    /// The reasons when the last sample was taken.
    pub fn seen(&self) -> Witness {
        self.witness
    }

    /// As [`Pacing::hurry`], with `after` counted from now.
    pub fn hurry_from(&mut self, after: Duration, now: Instant, why: &'static str) {
        self.hurry(now.saturating_duration_since(self.last) + after, now, why);
    }

    /// So much of the interval went into this.
    pub fn spent(&mut self, cause: Cause, time: Duration) {
        self.spent.push((cause, time));
    }

    /// Whether a sample that is taken `now` is late, so that `explain` will say why.
    pub fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.due) > self.slack()
    }

    /// A sample is taken `now`. Sets when the next one is due, and returns notes on the interval that ends:
    /// none if it is as long as requested.
    pub fn taken(&mut self, now: Instant, witness: Witness) -> Vec<String> {
        let mut words = self.explain(now, witness);
        let suspended = witness.suspended.saturating_sub(self.witness.suspended);
        if suspended > SLACK {
            let seconds = suspended.as_secs_f64();
            words.push(format!("the machine was suspended for {seconds:.2} s, which no interval includes"));
        }
        self.last_was_late = self.is_late(now);
        self.last = now;
        if self.early.take().is_some() {
            // Whole intervals follow.
            self.origin = now;
        }
        self.due = next(self.origin, self.interval, now);
        self.spent.clear();
        self.witness = witness;
        words
    }

    /// The counters of the sample that was taken last are of `at`: the thread may have lost its CPU before it read them.
    pub fn sampled(&mut self, at: Instant) {
        if at > self.last {
            self.last_was_late |= at - self.last > self.slack();
            self.last = at;
            self.due = next(self.origin, self.interval, at);
        }
    }

    fn slack(&self) -> Duration {
        SLACK.max(self.interval / 10)
    }

    fn explain(&self, now: Instant, witness: Witness) -> Vec<String> {
        let length = now.saturating_duration_since(self.last);
        if length.abs_diff(self.interval) <= self.slack() {
            return Vec::new();
        }
        let lengths =
            format!("{:.2} s instead of {:.2} s", length.as_secs_f64(), self.interval.as_secs_f64());
        let late = now.saturating_duration_since(self.due);
        if self.is_late(now) {
            return vec![format!(
                "an interval is longer than requested: {}; {lengths}",
                self.why(late, witness)
            )];
        }
        let why = self.early.unwrap_or(match self.last_was_late {
            true => "the previous interval ended late",
            // A shorter interval was chosen after that time had passed.
            false => "the length of the interval was changed",
        });
        match length < self.interval {
            true => vec![format!("{EARLY}{why}; {lengths}")],
            false => vec![format!("an interval is longer than requested: {why}; {lengths}")],
        }
    }

    /// The reasons that explain half of `late` or more.
    fn why(&self, late: Duration, witness: Witness) -> &'static str {
        if witness.continued > self.witness.continued {
            return Cause::Stopped.words();
        }
        let no_cpu = (Cause::NoCpu, witness.no_cpu.saturating_sub(self.witness.no_cpu));
        let most = self.spent.iter().chain([&no_cpu]).max_by_key(|(_, time)| *time);
        match most {
            Some((cause, time)) if *time >= late / 2 => cause.words(),
            _ => "numatop-ng was not scheduled in time (frozen or traced, or the virtual machine was paused)",
        }
    }
}

/// The first point of the grid that is at least half an interval after `now`.
fn next(origin: Instant, interval: Duration, now: Instant) -> Instant {
    let step = interval.as_nanos().max(1);
    let since = (now.saturating_duration_since(origin) + interval / 2).as_nanos();
    let steps = since.div_ceil(step).max(1);
    origin + Duration::from_nanos(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

/// Whether a note only reports that an interval was cut short: the screen need not repeat the effect of a
/// key.
pub fn is_of_a_short_interval(note: &str) -> bool {
    note.starts_with(EARLY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The words for samples taken each of `late` ms after they are due.
    fn said(late: &[u64]) -> Vec<Vec<String>> {
        let mut pacing = Pacing::new(Instant::now(), SECOND, Witness::default());
        late.iter().map(|late| pacing.taken(pacing.due() + ms(*late), Witness::default())).collect()
    }

    #[test]
    fn a_sample_that_was_read_late_moves_the_next_one() {
        let begin = Instant::now();
        let mut pacing = Pacing::new(begin, SECOND, Witness::default());
        assert!(pacing.taken(begin + SECOND, Witness::default()).is_empty());
        pacing.sampled(begin + ms(1700));
        // The next point of the grid is 0.3 s away: too near.
        assert_eq!(pacing.due(), begin + 3 * SECOND);
        let words = pacing.taken(pacing.due(), Witness::default());
        assert!(words[0].contains("the previous interval ended late; 1.30 s instead of 1.00 s"), "{words:?}");
        // A sample older than the known one moves nothing.
        pacing.sampled(begin);
        assert_eq!(pacing.due(), begin + 4 * SECOND);
    }

    #[test]
    fn intervals_do_not_drift() {
        let start = Instant::now();
        let mut pacing = Pacing::new(start, SECOND, Witness::default());
        for at in 1..100 {
            assert_eq!(pacing.due(), start + at * SECOND);
            assert!(pacing.taken(pacing.due() + ms(40), Witness::default()).is_empty());
        }
    }

    #[test]
    fn after_a_late_sample_comes_none_of_nearly_no_length() {
        let start = Instant::now();
        for (late, due) in [(14_340, 16_000), (14_700, 17_000), (400, 2_000), (600, 3_000)] {
            let mut pacing = Pacing::new(start, SECOND, Witness::default());
            pacing.taken(start + SECOND + ms(late), Witness::default());
            assert_eq!(pacing.due() - start, ms(due), "{late} ms late");
        }
    }

    #[test]
    fn each_interval_of_another_length_says_why() {
        let said = said(&[0, 9_410, 0, 0]);
        assert!(said[0].is_empty() && said[3].is_empty(), "{said:?}");
        let [late] = &said[1][..] else { panic!("{said:?}") };
        assert!(late.contains("longer") && late.ends_with("10.41 s instead of 1.00 s"), "{late}");
        let [after] = &said[2][..] else { panic!("{said:?}") };
        assert!(after.contains("the previous interval ended late; 0.59 s"), "{after}");
    }

    #[test]
    fn the_cause_is_what_took_half_of_the_delay() {
        let start = Instant::now();
        let why = |spent: &[(Cause, u64)], witness: Witness| {
            let mut pacing = Pacing::new(start, SECOND, Witness::default());
            spent.iter().for_each(|(cause, time)| pacing.spent(*cause, ms(*time)));
            pacing.taken(start + ms(3_000), witness).join(" | ")
        };
        let none = Witness::default();
        assert!(why(&[(Cause::Names, 2_500), (Cause::Sampling, 100)], none).contains("names"));
        assert!(
            why(&[(Cause::Names, 200), (Cause::Sampling, 1_900)], none).contains("recording the previous")
        );
        assert!(why(&[(Cause::Names, 200)], none).contains("not scheduled in time"));
        assert!(why(&[(Cause::Preparing, 1_500)], none).contains("current counts"));
        assert!(why(&[], Witness { no_cpu: ms(1_800), ..none }).contains("other tasks"));
        let stopped = Witness { continued: 1, ..none };
        assert!(why(&[(Cause::Names, 2_500)], stopped).contains("SIGSTOP"));
    }

    #[test]
    fn a_suspended_machine_is_told_also_of_an_interval_in_time() {
        let start = Instant::now();
        let mut pacing = Pacing::new(start, SECOND, Witness::default());
        let slept = Witness { suspended: Duration::from_secs(3_600), ..Witness::default() };
        let words = pacing.taken(start + SECOND, slept);
        assert!(words[0].contains("suspended") && words[0].contains("3600.00 s"), "{words:?}");
        assert!(pacing.taken(start + 2 * SECOND, slept).is_empty());
    }

    #[test]
    fn a_hurried_sample_says_so_and_whole_intervals_follow() {
        let start = Instant::now();
        let mut pacing = Pacing::new(start, SECOND, Witness::default());
        pacing.hurry(ms(250), start + ms(10), "the scope was changed");
        assert_eq!(pacing.due(), start + ms(250));
        let words = pacing.taken(start + ms(250), Witness::default());
        assert!(is_of_a_short_interval(&words[0]) && words[0].contains("the scope"), "{words:?}");
        assert_eq!(pacing.due(), start + ms(1_250));
        assert!(pacing.taken(pacing.due(), Witness::default()).is_empty());
        // It is due sooner anyway.
        pacing.hurry(ms(250), start + ms(2_240), "the scope was changed");
        assert_eq!(pacing.due(), start + ms(2_240));
    }

    #[test]
    fn another_interval_counts_from_the_last_sample() {
        let start = Instant::now();
        let mut pacing = Pacing::new(start, SECOND, Witness::default());
        pacing.set_interval(ms(500), start + ms(100));
        assert_eq!(pacing.due(), start + ms(500));
        pacing.set_interval(ms(200), start + ms(400));
        assert_eq!(pacing.due(), start + ms(400));
        let words = pacing.taken(start + ms(400), Witness::default());
        assert!(words[0].contains("the length of the interval was changed"), "{words:?}");
        assert_eq!(pacing.due(), start + ms(600));
    }

    proptest! {
        /// In any case, no interval is shorter than half the requested length, and one of another length has
        /// a reason.
        #[test]
        fn no_interval_is_short_and_none_is_long_without_a_word(
            interval_ms in 100u64..100_000,
            delays in proptest::collection::vec(prop_oneof![0u64..20, 0u64..500_000], 1..50),
        ) {
            let interval = ms(interval_ms);
            let start = Instant::now();
            let mut pacing = Pacing::new(start, interval, Witness::default());
            let mut last = start;
            for delay in delays {
                let due = pacing.due();
                prop_assert_eq!((due - start).as_nanos() % interval.as_nanos(), 0, "off the grid");
                let now = due + ms(delay);
                let words = pacing.taken(now, Witness::default());
                let length = now - last;
                prop_assert!(length * 2 >= interval, "{length:?} of {interval:?}");
                let off = length.abs_diff(interval);
                prop_assert_eq!(words.is_empty(), off <= SLACK.max(interval / 10), "{:?}: {:?}", length, words);
                last = now;
            }
        }
    }
}
