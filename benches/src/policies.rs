//! The cost of a look at the policies of a process's mappings, and at the nodes of an object of shared memory.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, anyhow, ensure};

use crate::memory;
use crate::numbers::{Spread, median};
use crate::placement::{Times, Victim, repeat, victim_of};
use crate::process::Process;
use crate::report::{Cell, Report, Table};
use crate::work::{self, wait_until_ready};
use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::placement::draw::{Random, Ranges, Round};
use numatop_ng::collect::placement::objects::Wanted;
use numatop_ng::collect::placement::rows::{Counted, Mappings};
use numatop_ng::collect::probes::{Running, Shared, of};
use numatop_ng::model::facility::Facility;

/// Parts of memory, between which as many mappings reserve a hole, and the rounds in which the process is looked at. The last is near
/// what `vm.max_map_count` allows.
const SIZES: [(usize, usize); 3] = [(16, 101), (500, 51), (29_000, 5)];
/// The most time for a look at the second of [`SIZES`], ms, and for each mapping above it, us.
const LIMITS: (f64, f64) = (1.0, 2.0);

/// Adds both tables, or the reason why the kernel has no such iterator.
///
/// # Errors
/// A load did not start, or could not be looked at.
pub fn run(rounds: impl Fn(usize) -> usize, report: &mut Report) -> Result<()> {
    let layout = RecordLayout::new(1, false, &[]);
    let store = maps::create(layout)?;
    let probe = of(Facility::MappingPolicies).context("there is no probe of policies")?;
    let mut probe = match (probe.start)(&Shared::new(Path::new("/"), &store, layout)) {
        Ok(probe) => probe,
        Err(why) => {
            report.note(format!("Policies by the iterator over mappings were not measured: {why:#}"));
            return Ok(());
        }
    };
    looks(&*probe, &rounds, report)?;
    let Victim { ratios, .. } = victim_of(rounds(30), |pid| look(&*probe, pid).map(drop))?;
    report.at_least("mappings per second with a look at policies, ratio", 0.98, median(&ratios), 3);
    draws(&mut *probe, rounds(51), report)
}

fn look(probe: &dyn Running, pid: u32) -> Result<Mappings> {
    let rows = probe.mappings_of(pid).context("it has no iterator")?.context("making an iterator")?;
    Mappings::read(File::from(rows), page_size()).map_err(Into::into)
}

fn looks(probe: &dyn Running, rounds: &impl Fn(usize) -> usize, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        "Policies of all mappings of a process of 1 GiB, ms, median (quartiles): by the iterator, on the CPU and with its rests of \
         1 ms for those who wait for the address space; and numa_maps, which walks all pages.",
        &["mappings", "iterator, CPU", "iterator, wall", "numa_maps"],
    );
    for (parts, most) in SIZES {
        let args = ["memory", "--gib", "1", "--mappings", &parts.to_string()];
        let mut load = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
        wait_until_ready(load.child())?;
        let pid = load.pid();
        let found = Counted::new(&look(probe, pid)?).finish(0).mappings as usize;
        ensure!(found >= parts, "{found} of {parts} mappings were found");
        let Times { cpu, wall } = repeat(rounds(most), || look(probe, pid).map(drop))?;
        let numa_maps = format!("/proc/{pid}/numa_maps");
        let walk = repeat(rounds(most.min(7)), || fs::read(&numa_maps).map(drop).map_err(Into::into))?;
        if parts == SIZES[1].0 {
            report.at_most("ms for policies of 1,000 mappings", LIMITS.0, median(&cpu), 2);
        } else if parts > SIZES[1].0 {
            let each = median(&cpu) * 1e3 / found as f64;
            report.at_most(format!("us for each of {found} mappings"), LIMITS.1, each, 2);
        }
        let column = |times: &[f64], decimals| Cell::spread(Spread::of(times), decimals);
        table.rows.push(vec![
            Cell::text(found.to_string()),
            column(&cpu, 3),
            column(&wall, 3),
            column(&walk.wall, 1),
        ]);
    }
    report.tables.push(table);
    Ok(())
}

/// Looks at this process, which maps a file in memory, with and without questions about that file.
fn draws(probe: &mut dyn Running, rounds: usize, report: &mut Report) -> Result<()> {
    const BYTES: usize = 256 << 20;
    let own = std::process::id();
    let _file = memory::shared_file(BYTES)?;
    let before = repeat(rounds, || look(probe, own).map(drop))?;
    let found = Counted::new(&look(probe, own)?).finish(0);
    let object = found.objects.first().ok_or_else(|| anyhow!("the file in memory was not found"))?.id();
    let mut ranges = Ranges::default();
    ranges.push(0, BYTES as u64 / page_size());
    let mut random = Random(u64::from(own));
    let mut pages = 0;
    let with = repeat(rounds, || {
        let round = Round::new(&ranges, &mut random);
        pages = round.pages.len();
        probe.draw(&[Wanted { object, round }]);
        look(probe, own)?;
        let drawn = probe.drawn().context("this kernel does not tell nodes of pages")?;
        ensure!(drawn.iter().flatten().flatten().flatten().count() == pages, "pages were not found");
        Ok(())
    })?;
    let mut table = Table::new(
        format!(
            "A look at this process, which maps {} MiB of shared memory, ms of CPU: alone, and with {pages} questions about nodes of \
             that memory.",
            BYTES >> 20
        ),
        &["look", "with questions"],
    );
    table.rows.push(vec![Cell::spread(Spread::of(&before.cpu), 3), Cell::spread(Spread::of(&with.cpu), 3)]);
    report.tables.push(table);
    report.at_most("ms for the nodes of an object", 5.0, median(&with.cpu) - median(&before.cpu), 2);
    Ok(())
}
