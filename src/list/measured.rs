//! The profile of the machine in other commands: under the SLIT of `topology`, as a line of `doctor`.

use serde_json::{Value, json};

use crate::calibrate::show::latency_matrix;
use crate::calibrate::store::Stored;
use crate::model::profile::{Profile, State};
use crate::text::{hanging, words};

/// Why a profile is not used; `None` if it is.
fn unused(stored: &Stored) -> Option<String> {
    match &stored.inapplicable {
        Some(why) => Some(format!("the profile does not match this machine: {why}")),
        None => stored.profile.unusable().map(String::from),
    }
}

/// The matrix of latencies as text of at most `width` columns, or the reason why it is missing.
pub fn render_text(stored: Option<&Stored>, width: usize) -> String {
    let Some(stored) = stored else {
        let text =
            "latency between nodes is not measured yet: numatop-ng calibrate measures it under full load";
        return hanging("", words(text), width);
    };
    if let Some(why) = unused(stored) {
        let text = format!("the stored profile ({}) is not used: {why}", stored.path.display());
        return hanging("", words(&text), width);
    }
    let said = said(&stored.profile);
    hanging("", words(&format!("measured {said}")), width) + &latency_matrix(&stored.profile, width)
}

/// The date and the error of a profile.
fn said(profile: &Profile) -> String {
    let day = profile.time.split('T').next().unwrap_or_default();
    let error = profile.error_pct().map_or(String::new(), |percent| format!(", +-{percent:.1} %"));
    let state = match profile.state {
        State::Wandering => "; the hypervisor moves CPUs, so only ratios are meaningful",
        State::Partial => "; partial",
        State::Good | State::Disturbed => "",
    };
    format!("{day}{error}{state}")
}

/// A line for doctor.
pub fn line(stored: Option<&Stored>) -> String {
    match stored {
        None => {
            "not calibrated: numatop-ng calibrate measures the costs between nodes, under full load".into()
        }
        Some(stored) => match unused(stored) {
            Some(why) => format!("calibrated {}, {why}", said(&stored.profile)),
            None => format!("calibrated {}", said(&stored.profile)),
        },
    }
}

/// The profile for programs: `null` without one.
pub fn render_json(stored: Option<&Stored>) -> Value {
    match stored {
        None => Value::Null,
        Some(stored) => json!({
            "unused": unused(stored),
            "time": stored.profile.time,
            "state": stored.profile.state,
            "latency_ns": stored.profile.latency_ns,
            "read_gbs": stored.profile.read_gbs,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{MachineKey, NodeKey};

    fn stored() -> Stored {
        let node = |node| NodeKey { node, cpus: node.to_string(), slit: vec![10, 21] };
        let profile = Profile {
            time: "2026-11-22T10:03:00Z".into(),
            state: State::Good,
            machine: MachineKey { nodes: vec![node(0), node(1)], ..MachineKey::default() },
            latency_ns: vec![vec![Some(80.0), Some(140.0)], vec![Some(140.0), Some(80.0)]],
            latency_error: vec![vec![Some(0.8); 2]; 2],
            ..Profile::default()
        };
        Stored { path: "/var/lib/x.json".into(), profile, inapplicable: None }
    }

    #[test]
    fn a_profile_is_shown_with_its_date() {
        let text = render_text(Some(&stored()), 80);
        assert!(text.starts_with("measured 2026-11-22, +-1.0 %\nread latency, ns"), "{text}");
        assert!(text.contains("140.0 1.75x"), "{text}");
        assert_eq!(line(Some(&stored())), "calibrated 2026-11-22, +-1.0 %");
        assert_eq!(render_json(Some(&stored()))["latency_ns"][0][1], 140.0);
        assert!(render_json(None).is_null() && render_text(None, 80).contains("numatop-ng calibrate"));
        assert!(line(None).starts_with("not calibrated"));
    }

    #[test]
    fn one_that_is_not_used_says_why_and_shows_no_number() {
        let other = Stored { inapplicable: Some("it has 4 nodes".into()), ..stored() };
        let disturbed =
            Stored { profile: Profile { state: State::Disturbed, ..stored().profile }, ..stored() };
        for (stored, why) in [(other, "it has 4 nodes"), (disturbed, "disturbed the measurement")] {
            let text = render_text(Some(&stored), 200);
            assert!(text.contains(why) && !text.contains("140"), "{text}");
            assert!(line(Some(&stored)).contains(why));
            assert!(render_json(Some(&stored))["unused"].as_str().unwrap().contains(why));
        }
    }
}
