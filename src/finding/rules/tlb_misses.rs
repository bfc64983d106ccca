//! A process spends much of its time in page walks, and its memory is in small pages.

use super::super::command::{Command, Scope, When};
use super::super::gain::Gain;
use super::super::rule::{Blindness, Group, Hold, Limit, Look, Plan, Reason, Rule, Seen};
use super::super::text::{comm, pct, sentence};
use super::super::view::{Of, View, need, settle};
use super::super::{Check, Confidence, Kind, Note, Severity, Told};
use crate::metric::on_demand::HUGE_PCT;
use crate::metric::task::{DTLB_MPKI, IPC, ITLB_MPKI, RSS_BYTES};

/// Cycles of a page walk that hits the second-level cache.
const WALK_CYCLES: f64 = 35.0;

/// Memory below which small pages are no matter: 64 MiB, and the caches that it may use.
const LARGE_BYTES: f64 = (64u64 << 20) as f64;

pub(super) static RULE: Rule = Rule {
    id: "tlb-misses",
    title: "Page walks, and small pages",
    about: "A process spends about a tenth of its cycles in page walks, with less than half of its memory in huge pages. \
            Needs --events tlb.",
    not_when: &[
        ("has-huge", "half of its memory or more is in huge pages"),
        ("small", "it has less than 64 MiB, or no more than the caches hold"),
        ("few", "it misses the TLB less often"),
    ],
    of: &[Kind::Process],
    group: Group::Pages,
    gravest: Severity::Info,
    needs: &[DTLB_MPKI.id, IPC.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least(
            "walks",
            3.0,
            "[S4]; reasoned: at 35 cycles a walk a tenth of the time, where perf's own tree flags it",
        ),
        Limit::until("huge", 50.0, 80.0, "reasoned: half of its memory could still be in huge pages"),
    ],
    idle_too: false,
    look: |view, of| settle(look(view, of)),
    tell,
};

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let Of::Process(task) = of else { return Ok(Look::Quiet) };
    let (data, ipc) = (need(view.number(&DTLB_MPKI, of))?, need(view.number(&IPC, of))?);
    let code = view.number(&ITLB_MPKI, of).ok();
    let walks = data.max(code.unwrap_or(0.0)) * ipc;
    let caches: f64 =
        view.topology().llcs.iter().filter_map(|llc| llc.size_bytes).map(|bytes| bytes as f64).sum();
    let size = task.rss_bytes as f64;
    if walks < view.limit("walks") || size < LARGE_BYTES.max(caches) {
        return Ok(Look::Quiet);
    }
    let unknown = || {
        Look::Blind(Blindness::new(
            Reason::NotCollected,
            "the share of huge pages is read on demand, and not in recordings",
        ))
    };
    let huge = view.number(&HUGE_PCT, of).map_err(|_| unknown())?;
    if huge >= view.limit("huge") {
        return Ok(Look::Quiet);
    }
    let subject = of.subject();
    let (metric, misses) =
        if data >= code.unwrap_or(0.0) { (DTLB_MPKI.id, data) } else { (ITLB_MPKI.id, code.unwrap_or(0.0)) };
    Ok(Look::seen(Seen {
        severity: Severity::Info,
        confidence: Confidence::Estimated,
        evidence: vec![
            view.evidence(metric, subject.clone(), misses)
                .limit(view.limit("walks") / ipc.max(f64::MIN_POSITIVE)),
            view.evidence(IPC.id, subject.clone(), ipc),
            view.evidence(HUGE_PCT.id, subject.clone(), huge).limit(view.limit("huge")).note(Note::AtMost),
            view.evidence(RSS_BYTES.id, subject, size).limit(LARGE_BYTES.max(caches)),
        ],
        plan: Plan { number: walks * WALK_CYCLES / 10.0, ..Plan::default() },
    }))
}

/// Ways to large pages of programs that are known by name, and of all others.
fn way(name: &[u8]) -> &'static str {
    match name {
        b"java" => "-XX:+UseTransparentHugePages",
        b"postgres" | b"postmaster" => {
            "huge_pages=on in its configuration, and a pool of huge pages for shared_buffers"
        }
        b"mysqld" | b"mariadbd" => {
            "large_pages in its configuration, and a pool of huge pages for the buffer pool"
        }
        _ => "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in its environment (glibc 2.35), or an option of its own",
    }
}

fn tell(view: &View<'_>, of: &Of<'_>, seen: &Seen) -> Told {
    let Some(task) = of.task() else { return Told::default() };
    let (misses, huge) = (&seen.evidence[0], seen.evidence[2].value);
    let check = |metric, from, to, below| Check { metric, of: of.subject(), from, to, below, within_s: 60.0 };
    let guest = if super::is_virtual(&view.snapshot.host) {
        " This is a guest: walks are longer here, and the host's page sizes decide, too."
    } else {
        ""
    };
    Told {
        sentence: sentence(format!(
            "{} spends about {} of its cycles in page walks; {} of its memory is in huge pages.",
            comm(task.raw.comm),
            pct(seen.plan.number.min(100.0)),
            pct(huge)
        )),
        gain: Gain { of: Some(view.cpus(of)), ..Gain::default() },
        commands: vec![Command::words(
            When::NextStart,
            Scope::Process,
            format!("start it with {}", way(task.raw.comm.bytes())),
        )],
        undo: vec![Command::words(When::NextStart, Scope::Process, "a start without it is the way back")],
        check: vec![
            check(HUGE_PCT.id, huge, 80.0, false),
            check(misses.metric, misses.value, misses.value / 2.0, true),
        ],
        stop: Vec::new(),
        risk:
            "Its memory grows, the first touch of a page takes longer, and making huge pages compacts memory."
                .into(),
        or_else: vec![format!(
            "Its memory is sparse, or page tables are cold after each switch: switches_per_s is high then.{guest}"
        )],
    }
}
