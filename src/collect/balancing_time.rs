//! The probe of the time that NUMA balancing takes from tasks (`balancing_time.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, ProgramMut};

use super::rung::Rung;
use super::skel::balancing_time::{BalancingTimeProgs, BalancingTimeSkel, BalancingTimeSkelBuilder};

/// The loaded and attached probe. Dropping it detaches it.
pub struct TimeProbe {
    // The links go before the object they belong to.
    _links: Vec<Link>,
    rung: Rung,
    skel: BalancingTimeSkel<'static>,
}

impl TimeProbe {
    /// Loads and attaches the programs of one rung, to count into `records`.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain. As of [`super::hinting::HintProbe::start`].
    pub fn start(records: &OwnedFd, rung: Rung) -> Result<TimeProbe> {
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = BalancingTimeSkelBuilder::default().open(object);
        let mut open = open.context("opening balancing_time.bpf.o")?;
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        let progs = &mut open.progs;
        for program in [
            &mut progs.on_scan_begin,
            &mut progs.on_scan_end,
            &mut progs.on_hint_begin,
            &mut progs.on_hint_end,
        ] {
            program.set_autoload(rung == Rung::Fentry);
        }
        for program in [
            &mut progs.on_scan_begin_kprobe,
            &mut progs.on_scan_end_kprobe,
            &mut progs.on_hint_begin_kprobe,
            &mut progs.on_hint_end_kprobe,
        ] {
            program.set_autoload(rung == Rung::Kprobe);
        }
        let skel = open.load().context("loading balancing_time.bpf.o")?;
        let attach = |(name, program): (&str, &ProgramMut<'_>)| {
            program.attach().with_context(|| format!("attaching {name}"))
        };
        let links = programs(&skel.progs, rung).into_iter().map(attach).collect::<Result<_>>()?;
        Ok(TimeProbe { _links: links, rung, skel })
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> [(&'static str, BorrowedFd<'_>); 4] {
        programs(&self.skel.progs, self.rung).map(|(name, program)| (name, program.as_fd()))
    }
}

/// The programs of a rung. Ends before begins: a stretch whose begin was not seen is left out.
fn programs<'a>(
    progs: &'a BalancingTimeProgs<'static>,
    rung: Rung,
) -> [(&'static str, &'a ProgramMut<'static>); 4] {
    match rung {
        Rung::Fentry => [
            ("on_scan_end", &progs.on_scan_end),
            ("on_scan_begin", &progs.on_scan_begin),
            ("on_hint_end", &progs.on_hint_end),
            ("on_hint_begin", &progs.on_hint_begin),
        ],
        Rung::Kprobe => [
            ("on_scan_end_kprobe", &progs.on_scan_end_kprobe),
            ("on_scan_begin_kprobe", &progs.on_scan_begin_kprobe),
            ("on_hint_end_kprobe", &progs.on_hint_end_kprobe),
            ("on_hint_begin_kprobe", &progs.on_hint_begin_kprobe),
        ],
    }
}
