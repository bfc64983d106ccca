//! A process spends much of its time in page walks, and its memory is in small pages.

use super::super::command::{Command, Scope, When};
use super::super::gain::Gain;
use super::super::rule::{Blindness, Condition, Group, Hold, Limit, Reason, Rule, Seen, Unmet};
use super::super::text::{comm, pct, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, SubjectKind};
use crate::metric::identity::HUGE_PCT;
use crate::metric::task::{DTLB_MPKI, IPC, ITLB_MPKI, RSS_BYTES};

/// Cycles of a page walk that hits the second-level cache.
const WALK_CYCLES: f64 = 35.0;

/// Memory below which small pages are no matter: 64 MiB, and the caches that it may use.
const LARGE_BYTES: f64 = (64u64 << 20) as f64;

pub(super) static RULE: Rule = Rule {
    id: "tlb-misses",
    title: "Many page walks with small pages",
    about: "A process spends about 10 % of its cycles in page walks, with less than half of its memory in huge \
            pages. The rule needs --events tlb.",
    not_when: &[
        ("has-huge", "half of its memory or more is in huge pages"),
        ("small", "the process has less than 64 MiB of memory, or no more than the caches hold"),
        ("few", "the process has too few TLB misses"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Pages,
    gravest: Severity::Info,
    needs: &[DTLB_MPKI.id, IPC.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least(
            "walks",
            3.0,
            "[S4]; estimate: at 35 cycles per walk this is 10 % of the time, the limit of perf's top-down \
             metric",
        )
        .counted_in("per 1000 instructions"),
        Limit::until("huge", 50.0, 80.0, "estimate: half of its memory could still be in huge pages"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Page walks and page sizes.
struct Facts {
    /// The metric with more misses.
    metric: &'static str,
    /// Its value per 1,000 instructions.
    misses: f64,
    /// Share of memory in huge pages, percent.
    huge: f64,
    /// Share of cycles in page walks, percent.
    walks: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let (data, ipc) = (need(view.number(&DTLB_MPKI, of))?, need(view.number(&IPC, of))?);
    let code = view.number(&ITLB_MPKI, of).ok();
    let walks = data.max(code.unwrap_or(0.0)) * ipc;
    let caches: f64 =
        view.topology().llcs.iter().filter_map(|llc| llc.size_bytes).map(|bytes| bytes as f64).sum();
    let size = task.rss_bytes as f64;
    if walks < view.limit("walks") || size < LARGE_BYTES.max(caches) {
        return Err(Unmet::Quiet);
    }
    let unknown = || {
        Unmet::Blind(Blindness::new(
            Reason::NotCollected,
            "the share of huge pages is read on demand, and is not in recordings",
        ))
    };
    let huge = view.number(&HUGE_PCT, of).map_err(|_| unknown())?;
    if huge >= view.limit("huge") {
        return Err(Unmet::Quiet);
    }
    let subject = of.subject();
    let (metric, misses) =
        if data >= code.unwrap_or(0.0) { (DTLB_MPKI.id, data) } else { (ITLB_MPKI.id, code.unwrap_or(0.0)) };
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Estimated,
        evidence: vec![
            view.evidence(metric, subject.clone(), misses)
                .limit(view.limit("walks") / ipc.max(f64::MIN_POSITIVE)),
            view.evidence(IPC.id, subject.clone(), ipc),
            view.evidence(HUGE_PCT.id, subject.clone(), huge).limit(view.limit("huge")).note(Note::AtMost),
            view.evidence(RSS_BYTES.id, subject, size).limit(LARGE_BYTES.max(caches)),
        ],
        facts: Facts { metric, misses, huge, walks: walks * WALK_CYCLES / 10.0 },
    })
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
        _ => {
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in its environment (glibc 2.35), or its own option for \
             huge pages"
        }
    }
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Some(task) = of.task() else { return Advice::default() };
    let Facts { metric, misses, huge, walks } = seen.facts;
    let check = |metric, from, to, below| Check { metric, of: of.subject(), from, to, below, within_s: 60.0 };
    let guest = if super::is_virtual(&view.snapshot.host) {
        " In a guest, walks are longer and also depend on the host's page sizes."
    } else {
        ""
    };
    Advice {
        sentence: sentence(format!(
            "{} spends about {} of its cycles in page walks; {} of its memory is in huge pages.",
            comm(task.raw.comm),
            pct(walks.min(100.0)),
            pct(huge)
        )),
        gain: Gain { of: Some(view.cpus(of)), ..Gain::default() },
        commands: vec![Command::words(
            When::NextStart,
            Scope::Process,
            format!("start the program with {}", way(task.raw.comm.bytes())),
        )],
        undo: vec![Command::words(When::NextStart, Scope::Process, "start the program without this setting")],
        check: vec![check(HUGE_PCT.id, huge, 80.0, false), check(metric, misses, misses / 2.0, true)],
        stop: Vec::new(),
        risk:
            "Its memory grows, the first touch of a page takes longer, and making huge pages compacts memory."
                .into(),
        or_else: vec![format!(
            "Its memory can be sparse. If each context switch leaves page tables cold, switches_per_s is \
             high.{guest}"
        )],
    }
}
