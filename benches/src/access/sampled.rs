//! Samples of a program with two regions, followed as the product follows them.

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::load::{Running, Truth};
use numatop_ng::access::follow::by_count::Evidence;
use numatop_ng::access::sample::{Decoders, Outcome};
use numatop_ng::access::self_check::Verdict;
use numatop_ng::access::window::{AccessPlace, Places, Tally};
use numatop_ng::collect::access::follow::{Job, follow};
use numatop_ng::collect::access::{AccessProbe, self_check};
use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::placement::draw::Random;
use numatop_ng::model::units::CpuId;

/// Samples a second on each CPU.
pub const HZ: u32 = 997;
/// Maximum time for sampling a program.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks at the ring.
const PAUSE: Duration = Duration::from_millis(50);
/// CPU time for following a batch: unlimited in practice, and more than the product has.
const FOLLOW: Duration = Duration::from_secs(1);

/// The sampler, checked.
pub struct Sampler {
    probe: AccessProbe,
    verdict: Verdict,
    cpus: Vec<CpuId>,
}

/// Samples of one program: whether each is in the first region.
pub struct Samples {
    /// By the address of the sampled access.
    pub own: Vec<bool>,
    /// By the address of the next run, or its own where that is not known.
    pub next: Vec<bool>,
    /// Facts for the rule of time or number.
    pub evidence: Evidence,
    /// Samples at memory, and those of them without an address.
    at_memory: usize,
    gone: usize,
}

impl Samples {
    /// Whether enough samples have separate addresses, by the rule of the product.
    pub fn has_addresses(&self) -> bool {
        self.gone * 2 < self.at_memory
    }

    /// Samples at memory without an address, for each that has one.
    pub fn unknown(&self) -> f64 {
        self.gone as f64 / (self.at_memory - self.gone).max(1) as f64
    }

    /// Samples whose next run is known, in per cent.
    pub fn resolved_pct(&self) -> f64 {
        100.0 * self.evidence.resolved as f64 / self.evidence.followed.max(1) as f64
    }
}

impl Sampler {
    /// # Errors
    /// The sampler could not be loaded, or does not work on this CPU.
    pub fn start() -> Result<Sampler> {
        let store = maps::create(RecordLayout::new(1, false, &[]))?;
        let cpus: Vec<CpuId> =
            numatop_ng::host::topology::read(Path::new("/"))?.online_cpus().map(|cpu| cpu.id).collect();
        let probe = AccessProbe::load(&store, HZ, cpus.len() as u32)?;
        let verdict = self_check::run(&probe).map_err(|why| anyhow!("{why}")).context("the self-check")?;
        Ok(Sampler { probe, verdict, cpus })
    }

    /// Samples of the self-check on the expected instruction, in per cent.
    pub fn check_pct(&self) -> f64 {
        self.verdict.pct
    }

    /// Samples a running program until `wanted` samples are in its regions, and asks it for the truth of that
    /// time.
    ///
    /// # Errors
    /// The ring could not be read, or the program has ended.
    pub fn beside(&mut self, running: &mut Running, wanted: usize) -> Result<(Samples, Truth)> {
        self.probe.follow(&self.cpus)?;
        self.probe.take()?;
        let before = running.truth()?;
        let (mut decoders, mut random) = (Decoders::default(), Random(running.pid().into()));
        let (mut tally, page) = (Tally::default(), page_size());
        let (mut own, mut next): (Vec<bool>, Vec<bool>) = (Vec::new(), Vec::new());
        let (mut at_memory, mut gone) = (0, 0);
        let began = Instant::now();
        let mut truth = before;
        while next.len() < wanted && began.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
            let samples = self.probe.take()?;
            // The truth of the time in which these samples were taken, within a moment.
            truth = running.truth()?;
            let mut jobs = Vec::new();
            for sample in samples.into_iter().filter(|sample| sample.process.0 == running.pid()) {
                let Some(state) = sample.user else { continue };
                let outcome = decoders.outcome(&state, self.verdict.attribution);
                if !outcome.is_memory() {
                    continue;
                }
                at_memory += 1;
                gone += usize::from(outcome == Outcome::Gone);
                own.extend(outcome.addresses().filter_map(|(address, _)| first(&running.regions, address)));
                jobs.push(Job { process: sample.process, state, outcome, cpu_node: None });
            }
            for (_, found) in
                follow(Path::new("/"), jobs, self.verdict.attribution, page, FOLLOW, &mut random)
            {
                let found = found.context("following took a second")?;
                match found.runs[0] {
                    Some(address) => next.extend(first(&running.regions, address)),
                    None => next.extend(
                        found.outcome.addresses().filter_map(|(address, _)| first(&running.regions, address)),
                    ),
                }
                tally.add_next(&found, page.trailing_zeros());
            }
        }
        self.probe.set_rate(0);
        self.probe.set_rate(HZ);
        ensure!(!next.is_empty(), "no sample is in a region");
        let evidence = evidence(tally, &running.regions, page);
        Ok((Samples { own, next, evidence, at_memory, gone }, truth.since(&before)))
    }
}

/// Whether an address is in the first region; `None`: in neither.
fn first(regions: &[Range<u64>; 2], address: u64) -> Option<bool> {
    regions.iter().position(|region| region.contains(&address)).map(|at| at == 0)
}

fn evidence(tally: Tally, regions: &[Range<u64>; 2], page_size: u64) -> Evidence {
    let of_page = |page: u64| {
        let mapping = regions.iter().position(|region| region.contains(&(page * page_size)))?;
        Some((page, AccessPlace { mapping, node: None }))
    };
    let places = Places {
        mappings: regions
            .iter()
            .map(|region| (region.start, region.end - region.start, String::new()))
            .collect(),
        pages: tally.pages().into_iter().filter_map(of_page).collect(),
        no_nodes: None,
    };
    Evidence::of_mappings(&tally.place(&places))
}
