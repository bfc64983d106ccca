//! Two recordings against each other: the statistics on simulated worlds, and the command on recordings.

use std::collections::BTreeSet;
use std::f64::consts::TAU;

use numatop_ng::diff::series::Side;
use numatop_ng::diff::stats::{
    LEAST_EFFECTIVE, Limits, Part, Verdict, cliffs_delta, compare, compare_recordings, false_discovery_rates,
};
use numatop_ng::diff::{Diff, diff};
use numatop_ng::entity::{By, Who};
use numatop_ng::metric::task;
use numatop_ng::model::sample::Comm;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::synthetic::{Machine, demo_machine};

/// Numbers that look random and are the same every time (xorshift64*, Vigna 2016).
struct Dice(u64);

impl Dice {
    /// From 0 to 1, neither included.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }

    /// A series whose neighbours are correlated by `phi`, of mean 0 and variance 1.
    fn autoregressive(&mut self, intervals: usize, phi: f64) -> Vec<f64> {
        let mut value = self.normal();
        let mut next = |dice: &mut Dice| {
            value = phi * value + (1.0 - phi * phi).sqrt() * dice.normal();
            value
        };
        (0..intervals).map(|_| next(self)).collect()
    }

    /// Busy and idle phases of 20 intervals on average.
    fn phases(&mut self, intervals: usize) -> Vec<f64> {
        let mut is_on = self.uniform() < 0.5;
        let mut series = Vec::new();
        while series.len() < intervals {
            let length = (-20.0 * self.uniform().ln()).ceil() as usize;
            series.extend((0..length).map(|_| if is_on { 1.0 } else { -1.0 }));
            is_on = !is_on;
        }
        series.truncate(intervals);
        series
    }
}

struct World {
    name: &'static str,
    intervals: usize,
    draw: fn(&mut Dice, usize) -> Vec<f64>,
}

/// Series like real ones: identical pairs of these worlds must not be called different.
const WORLDS: [World; 8] = [
    World { name: "independent", intervals: 300, draw: |dice, n| around(dice.autoregressive(n, 0.0)) },
    World { name: "AR 0.5", intervals: 300, draw: |dice, n| around(dice.autoregressive(n, 0.5)) },
    World { name: "AR 0.8", intervals: 300, draw: |dice, n| around(dice.autoregressive(n, 0.8)) },
    World { name: "AR 0.9", intervals: 300, draw: |dice, n| around(dice.autoregressive(n, 0.9)) },
    World { name: "AR 0.97", intervals: 1200, draw: |dice, n| around(dice.autoregressive(n, 0.97)) },
    World {
        name: "log-normal, AR 0.8",
        intervals: 300,
        draw: |dice, n| dice.autoregressive(n, 0.8).iter().map(|deviation| (0.6 * deviation).exp()).collect(),
    },
    World { name: "on and off", intervals: 300, draw: |dice, n| around(dice.phases(n)) },
    World { name: "on and off", intervals: 600, draw: |dice, n| around(dice.phases(n)) },
];

/// Mean 1 with a spread of a tenth.
fn around(series: Vec<f64>) -> Vec<f64> {
    series.into_iter().map(|deviation| 1.0 + 0.1 * deviation).collect()
}

fn parts(values: Vec<f64>, factor: f64) -> Vec<Part> {
    values.into_iter().map(|value| (value * factor, 1.0)).collect()
}

/// Pairs of a world called different at 5 %, and pairs long enough for a verdict, in percent.
fn called_different(world: &World, pairs: usize, factor: f64) -> (f64, f64) {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut different, mut long) = (0, 0);
    for _ in 0..pairs {
        let a = parts((world.draw)(&mut dice, world.intervals), 1.0);
        let b = parts((world.draw)(&mut dice, world.intervals), factor);
        let comparison = compare(&a, &b).unwrap();
        let is_long = comparison.a.effective.min(comparison.b.effective) >= LEAST_EFFECTIVE;
        long += usize::from(is_long);
        different += usize::from(is_long && comparison.p < 0.05);
    }
    let pct = |count: usize| count as f64 * 100.0 / pairs as f64;
    (pct(different), pct(long))
}

#[test]
fn identical_worlds_are_seldom_called_different() {
    const PAIRS: usize = 600;
    let called: Vec<f64> = WORLDS.iter().map(|world| called_different(world, PAIRS, 1.0).0).collect();
    for (world, pct) in WORLDS.iter().zip(&called) {
        println!("{:20} {:5} intervals: {pct:.1} %", world.name, world.intervals);
        // The error of 600 draws at 5 % is 1.8 points.
        assert!(*pct <= 7.8, "{} of {} intervals: {pct} % of identical pairs", world.name, world.intervals);
    }
    let mean = called.iter().sum::<f64>() / called.len() as f64;
    assert!((2.0..=6.0).contains(&mean), "{mean} % over all worlds");
}

#[test]
fn a_tenth_more_is_found_among_intervals_that_are_alike() {
    let (found, long) = called_different(&WORLDS[3], 2000, 1.1);
    println!(
        "+10 % in AR 0.9, 300 intervals: found in {found:.1} % of pairs, of which {long:.1} % are long enough"
    );
    // The power is that of 15.8 independent intervals a side with a spread of a tenth: 77 %.
    assert!(found / long >= 0.75, "found in {found} % of pairs, {long} % of which are long enough");
    assert!(called_different(&WORLDS[0], 200, 1.1).0 > 99.0);
}

#[test]
fn a_short_series_that_is_all_alike_says_nothing() {
    let mut dice = Dice(7);
    let of = |dice: &mut Dice| parts(around(dice.autoregressive(60, 0.97)), 1.0);
    let comparison = compare(&of(&mut dice), &of(&mut dice)).unwrap();
    assert!(comparison.a.effective < LEAST_EFFECTIVE, "{comparison:?}");
}

#[test]
fn values_are_those_of_scipy() {
    let a = [10.0, 12.0, 9.0, 11.0, 13.0, 10.0, 8.0, 12.0, 11.0, 10.0];
    let b = [14.0, 15.0, 11.0, 13.0, 16.0, 12.0, 15.0, 14.0];
    // scipy.stats.ttest_ind(a, b, equal_var=False)
    let comparison = compare_recordings(&a, &b).unwrap();
    assert!((comparison.p - 0.0009257216200177176).abs() < 1e-12, "{comparison:?}");
    // scipy.stats.false_discovery_control([0.01, 0.02, 0.03, 0.5, 0.9])
    let rates = false_discovery_rates(&[0.01, 0.5, 0.03, 0.02, 0.9]);
    for (rate, expected) in rates.iter().zip([0.05, 0.625, 0.05, 0.05, 0.9]) {
        assert!((rate - expected).abs() < 1e-12, "{rates:?}");
    }
    assert_eq!(cliffs_delta(&a, &b), Some(0.8375));
}

#[test]
fn the_autocorrelation_time_is_that_of_another_implementation() {
    let parts = |shift: u32| -> Vec<Part> {
        let part = |at: u32| {
            let den = f64::from(100 + at * 13 % 17);
            let value = 10 + at * 7 % 11 + if at / 6 % 2 == 1 { 5 } else { 0 } + shift;
            (f64::from(value) * den, den)
        };
        (0..60).map(part).collect()
    };
    let comparison = compare(&parts(0), &parts(2)).unwrap();
    // The formulas of docs/diff.md in Python, with lists and loops.
    let expected = [
        (comparison.a.value, 17.529_220_779_220_78),
        (comparison.b.value, 19.529_220_779_220_78),
        (comparison.tau, 1.434_350_384_713_776),
        (comparison.a.effective, 41.830_783_216_872_75),
        (comparison.a.variance, 0.354_856_144_072_958),
        (comparison.b.variance, 0.354_856_144_072_958),
    ];
    for (found, wanted) in expected {
        assert!((found - wanted).abs() < 1e-9 * wanted, "{found}, {wanted}: {comparison:?}");
    }
}

#[test]
fn rounding_of_a_constant_is_no_deviation() {
    let mut dice = Dice(3);
    let mut constant = || -> Vec<Part> {
        let interval = |dice: &mut Dice| 1e9 * (1.0 + 0.01 * dice.uniform());
        (0..300).map(|_| interval(&mut dice)).map(|ns| (123_456_789.0 * ns, ns)).collect()
    };
    let comparison = compare(&constant(), &constant()).unwrap();
    assert_eq!((comparison.tau, comparison.p), (1.0, 1.0), "{comparison:?}");
    assert_eq!(comparison.a.effective, 300.0);
}

#[test]
fn an_interval_in_which_nothing_was_local_counts() {
    let parts: Vec<Part> = std::iter::repeat_n((1000.0, 0.0), 10).chain([(10.0, 100.0)]).collect();
    assert_eq!(compare(&parts, &parts).unwrap().a.value, 100.1);
}

#[test]
fn a_program_that_comes_late_had_nothing_before() {
    let mut machine = demo_machine();
    let late: Vec<_> = machine.actors.extract_if(.., |actor| actor.comm == Comm::new("postgres")).collect();
    assert!(!late.is_empty());
    let mut samples: Vec<_> = (0..=20).map(|_| machine.tick()).collect();
    machine.actors.extend(late);
    samples.extend((0..10).map(|_| machine.tick()));
    let chosen = samples.windows(2).fold(Side::first_look(), |mut first, pair| {
        first.take(&derive(&machine.host, Some(&pair[0]), &pair[1], RowKind::Processes));
        first
    });
    let chosen: BTreeSet<Who> = chosen.top(By::Program, 50).cloned().collect();
    let who = chosen.iter().find(|who| who.name.contains("postgres")).expect("it came").clone();
    let mut side = Side::of(wanted(), chosen, 1);
    for pair in samples.windows(2) {
        side.take(&derive(&machine.host, Some(&pair[0]), &pair[1], RowKind::Processes));
    }
    let parts = side.subjects[&who].parts(task::CPU_PCT.id).unwrap();
    assert_eq!(parts.len(), 30);
    assert!(parts[..19].iter().all(|(num, _)| *num == 0.0) && parts[29].0 > 0.0, "{parts:?}");
}

#[test]
fn points_of_sides_with_other_intervals_take_the_same_time() {
    let mut machine = demo_machine();
    let samples: Vec<_> = (0..=40).map(|_| machine.tick()).collect();
    let points = |step: usize, each: usize| {
        let mut side = Side::of(wanted(), [Who::new(By::Host, "")].into(), each);
        let samples: Vec<_> = samples.iter().step_by(step).collect();
        for pair in samples.windows(2) {
            side.take(&derive(&machine.host, Some(pair[0]), pair[1], RowKind::Processes));
        }
        let host = &side.subjects[&Who::new(By::Host, "")];
        (host.parts("busy_pct").unwrap().len(), host.intervals("busy_pct"))
    };
    assert_eq!((points(1, 5), points(5, 1)), ((8, 40), (8, 8)));
}

/// Sides made of these seconds of the made-up machine.
fn side(machine: &mut Machine, seconds: usize, wanted: &BTreeSet<&'static str>) -> Side {
    let samples: Vec<_> = (0..=seconds).map(|_| machine.tick()).collect();
    let take = |side: &mut Side| {
        for pair in samples.windows(2) {
            side.take(&derive(&machine.host, Some(&pair[0]), &pair[1], RowKind::Processes));
        }
    };
    let mut first = Side::first_look();
    take(&mut first);
    let chosen = By::ALL.into_iter().flat_map(|by| first.top(by, 20).cloned().collect::<Vec<_>>()).collect();
    let mut side = Side::of(wanted.clone(), chosen, 1);
    take(&mut side);
    side
}

fn wanted() -> BTreeSet<&'static str> {
    [task::CPU_PCT.id, task::IPC.id, "remote_pct", "busy_pct", task::SWITCHES_PER_S.id].into()
}

fn verdicts(diff: &Diff, of: &Who) -> Vec<(&'static str, &'static str)> {
    diff.rows.iter().filter(|row| row.who == *of).map(|row| (row.metric, row.verdict.id())).collect()
}

#[test]
fn a_side_against_itself_is_the_same() {
    let one = side(&mut demo_machine(), 300, &wanted());
    let found = diff(std::slice::from_ref(&one), std::slice::from_ref(&one), &Limits { same: 0.05 });
    assert!(found.rows.len() > 20, "{} rows", found.rows.len());
    for row in &found.rows {
        assert_eq!(row.verdict, Verdict::Same, "{row:?}");
    }
    assert!(found.appeared.is_empty() && found.gone.is_empty());
}

#[test]
fn a_program_that_was_mended_is_better_and_the_rest_is_the_same() {
    // Work comes in waves of a minute, so that three hundred seconds are too few.
    let before = side(&mut demo_machine(), 900, &wanted());
    let mut machine = demo_machine();
    for actor in machine.actors.iter_mut().filter(|actor| actor.comm == Comm::new("postgres")) {
        actor.ipc *= 1.5;
    }
    let gone: Vec<u32> = machine
        .actors
        .iter()
        .filter(|actor| actor.comm == Comm::new("sshd"))
        .map(|actor| actor.pid)
        .collect();
    machine.actors.retain(|actor| !gone.contains(&actor.pid));
    let after = side(&mut machine, 900, &wanted());
    let found = diff(&[before], &[after], &Limits { same: 0.05 });
    let postgres = found.rows.iter().map(|row| row.who.clone()).find(|who| who.name.contains("postgres"));
    let of = verdicts(&found, &postgres.expect("the database is among the programs"));
    assert!(of.contains(&("ipc", "better")), "{of:?}");
    // The machine has more remote accesses than before: the database gets more done, and most of its are remote.
    let others = found.rows.iter().filter(|row| row.who.by == By::Program);
    let worse: Vec<_> = others.filter(|row| row.verdict == Verdict::Worse).collect();
    assert!(worse.is_empty(), "{worse:?}");
    assert!(found.gone.iter().any(|(who, _)| who.name.contains("sshd")), "{:?}", found.gone);
}
