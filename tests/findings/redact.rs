//! Findings without names: letters stand for them, and everything else is the same.

use std::sync::Arc;

use numatop_ng::finding::redact::Redactor;
use numatop_ng::finding::{Engine, diagnosis};

use crate::properties::sick;
use crate::world::{fold, samples};

fn redacted() -> (Engine, String, Engine) {
    let (host, mut samples) = samples(sick(), 80, 1000);
    let open = fold(&host, &samples).0;
    let mut redactor = Redactor::default();
    samples.iter_mut().for_each(|sample| redactor.sample(sample));
    let host = Arc::new(redactor.host(&host));
    let engine = fold(&host, &samples).0;
    let text = diagnosis::render_text(&engine, &host, true, 100);
    let json = diagnosis::render_json(&engine, &host, true, 0, 5).to_string();
    (engine, text + &json, open)
}

#[test]
fn no_name_is_in_any_output() {
    let (_, all, _) = redacted();
    for name in ["mysqld", "mysql", "pg_restore", "cart", "3c0f6a4c2b9f", "made-up", "jobs"] {
        assert!(!all.contains(name), "{name} is in {all}");
    }
    assert!(
        all.contains("docker update --cpuset-cpus 0-3 --cpuset-mems")
            || all.contains("migratepages 900003 1 0"),
        "{all}"
    );
}

#[test]
fn the_same_is_found() {
    let (engine, _, open) = redacted();
    let short = |engine: &Engine| -> Vec<_> {
        let of = engine.findings().iter();
        of.map(|finding| {
            (finding.key.clone(), finding.severity, finding.confidence, finding.advice.check.clone())
        })
        .collect()
    };
    assert_eq!(short(&engine), short(&open));
    assert!(short(&open).len() >= 6);
}
