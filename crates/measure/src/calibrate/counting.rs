//! Counts of a load by the thread that does it: two lengths in turns, so that what both have in common cancels.

use super::child::{placed, share};
use super::job::{Count, Counts};
use crate::known::counted::{Load, Ready};
use crate::known::pages;
use crate::model::event::Mode;
use crate::model::sample::Missing;
use crate::pmu::open::OwnCount;
use crate::sys;

/// Counts a load.
///
/// # Errors
/// The load cannot be done, or the event cannot be opened; in words.
pub(super) fn count(count: &Count) -> Result<Counts, String> {
    let told = |missing: Missing| missing.to_string();
    // Elsewhere an event of some CPUs would wait for them, and seem to take turns.
    if count.event.cpus.is_some() {
        sys::run_on(&[count.cpu]).map_err(|error| format!("CPU {}: {error}", count.cpu))?;
    }
    // Before anything else, because the tool counts the whole job as well.
    let all = count.all.then(|| OwnCount::open(&count.event, Mode::Both)).transpose().map_err(told)?;
    let mut ready = ready(count)?;
    sys::run_on(&[count.cpu]).map_err(|error| format!("CPU {}: {error}", count.cpu))?;
    let rounds = count.load.rounds();
    // Pages, predictors and caches are as they will be.
    ready.run(rounds)?;
    let mut counts = Counts { amount: ready.amount(rounds), running: 1.0, ..Counts::default() };
    for _ in 0..count.repeats {
        if count.all {
            ready.run(3 * rounds)?;
            continue;
        }
        let once = run(count, &mut ready, rounds, &mut counts.running)?;
        let twice = run(count, &mut ready, 2 * rounds, &mut counts.running)?;
        let difference = |at: usize| twice[at] as i64 - once[at] as i64;
        counts.user.push(difference(0));
        counts.kernel.push(difference(1));
        if count.whole.is_some() {
            counts.whole.push(difference(2));
        }
    }
    counts.on_node = match ready.region() {
        Some(region) if count.load.has_node() => share(&pages::nodes_of(region), count.node),
        _ => 1.0,
    };
    if let Some(all) = all {
        let (count, running) = all.read().map_err(told)?;
        counts.all = Some(count);
        counts.running = counts.running.min(running);
    }
    Ok(counts)
}

fn ready(count: &Count) -> Result<Ready, String> {
    let (load, limits) = (count.load, &count.limits);
    let (mut region, mut huge) = (None, false);
    if load.bytes() > 0 {
        let placed = placed(count.node, load.bytes(), count.touched_by, true, limits)?;
        huge = placed.huge_share.is_none_or(|share| share > 0.9);
        region = Some(placed.region);
    }
    if load == Load::OnePage && !huge {
        return Err("no huge page is free".into());
    }
    Ready::new(load, region, huge, limits.line_bytes as usize, count.writer)
}

/// Counts of a run: in user space, in the kernel, and of the whole in user space.
fn run(count: &Count, ready: &mut Ready, rounds: u64, running: &mut f64) -> Result<[u64; 3], String> {
    let told = |missing: Missing| missing.to_string();
    let user = OwnCount::open(&count.event, Mode::User).map_err(told)?;
    let kernel = OwnCount::open(&count.event, Mode::Kernel).map_err(told)?;
    let whole =
        count.whole.as_ref().map(|whole| OwnCount::open(whole, Mode::User)).transpose().map_err(told)?;
    ready.run(rounds)?;
    let mut read = |counter: &OwnCount| {
        let (count, share) = counter.read().map_err(told)?;
        *running = running.min(share);
        Ok::<u64, String>(count)
    };
    let whole = whole.as_ref().map(&mut read).transpose()?.unwrap_or(0);
    Ok([read(&user)?, read(&kernel)?, whole])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::job::Limits;
    use crate::model::event::Event;

    fn counted(event: &str, load: Load, all: bool) -> Counts {
        let cpu = sys::current_cpu().unwrap();
        count(&Count {
            event: Event::named(event).unwrap(),
            whole: None,
            load,
            cpu,
            node: 0,
            touched_by: cpu,
            writer: None,
            repeats: 3,
            all,
            limits: Limits { line_bytes: 64, keep_bytes: 0 },
        })
        .unwrap()
    }

    /// A clock needs no PMU: its count of twice the work is larger, by the time of the work.
    #[test]
    fn twice_the_length_counts_more() {
        let counts = counted("task-clock", Load::Additions, false);
        assert_eq!((counts.amount, counts.user.len(), counts.on_node), (50_000, 3, 1.0));
        let median = {
            let mut user = counts.user.clone();
            user.sort_unstable();
            user[1]
        };
        // 3.2 million dependent additions: 0.5 to 6.4 ms below 6.4 GHz and above 0.5.
        assert!(median > 0, "{counts:?}");
        assert!(counts.all.is_none());
    }

    #[test]
    fn all_of_a_job_is_counted_where_that_is_asked_for() {
        let counts = counted("page-faults", Load::InCache, true);
        assert!(counts.all.unwrap() > 0, "its memory is touched in the job: {counts:?}");
        assert!(counts.user.is_empty());
    }
}
