//! The table of rules, in the order in which the more specific one comes first.

mod balancing_cost;
mod balancing_off;
mod balancing_ping_pong;
mod bound_to_busy_cpus;
mod bound_to_full_node;
mod cores_exhausted;
mod counters_taken_turns;
mod cpus_and_memory_apart;
mod cpus_too_few;
mod device_node_unknown;
mod distances_wrong;
mod far_device;
mod far_network;
mod gpu_away;
mod hugetlb_on_other_node;
mod idle_elsewhere;
mod interleaved_on_one_node;
mod interrupts_off_node;
mod interrupts_on_busy_node;
mod larger_than_node;
mod lopsided_nodes;
mod memory_on_one_node;
mod memory_on_other_node;
mod moves_between_nodes;
mod node_short_of_memory;
mod node_without_memory;
mod nodes_hidden;
mod noisy_neighbour;
mod page_cache_fills_node;
mod pinned_containers;
mod quota_throttled;
mod reclaim_threads_busy;
mod remote_after_pin;
mod shared_cores;
mod sibling_contention;
mod slow_clock;
mod slow_tier_memory;
mod spread_containers;
mod spread_over_nodes;
mod stolen_time;
mod swap_while_memory_free;
mod tier_ping_pong;
mod tlb_misses;
mod waiting;
mod zone_reclaim;

use super::rule::Rule;
use super::view::View;
use super::{Check, Subject};
use crate::metric::node::WATERMARK_DISTANCE_PCT;
use crate::metric::placement::REMOTE_PCT;
use crate::model::sample::HostFacts;
use crate::snapshot::Snapshot;

/// All rules.
pub static RULES: &[&Rule] = &[
    &remote_after_pin::RULE,
    &spread_over_nodes::RULE,
    &memory_on_other_node::RULE,
    &memory_on_one_node::RULE,
    &larger_than_node::RULE,
    &cpus_and_memory_apart::RULE,
    &interleaved_on_one_node::RULE,
    &bound_to_full_node::RULE,
    &slow_tier_memory::RULE,
    &tier_ping_pong::RULE,
    &hugetlb_on_other_node::RULE,
    &page_cache_fills_node::RULE,
    &node_short_of_memory::RULE,
    &swap_while_memory_free::RULE,
    &zone_reclaim::RULE,
    &reclaim_threads_busy::RULE,
    &balancing_cost::RULE,
    &balancing_ping_pong::RULE,
    &balancing_off::RULE,
    &sibling_contention::RULE,
    &cores_exhausted::RULE,
    &shared_cores::RULE,
    &idle_elsewhere::RULE,
    &cpus_too_few::RULE,
    &bound_to_busy_cpus::RULE,
    &quota_throttled::RULE,
    &moves_between_nodes::RULE,
    &stolen_time::RULE,
    &slow_clock::RULE,
    &noisy_neighbour::RULE,
    &lopsided_nodes::RULE,
    &interrupts_on_busy_node::RULE,
    &interrupts_off_node::RULE,
    &far_device::RULE,
    &far_network::RULE,
    &gpu_away::RULE,
    &tlb_misses::RULE,
    &nodes_hidden::RULE,
    &device_node_unknown::RULE,
    &node_without_memory::RULE,
    &distances_wrong::RULE,
    &counters_taken_turns::RULE,
];

/// The sign that memory is where it is used: remote_pct falls to so much within a minute. None where it is not known now.
fn remote_falls(of: Subject, from: Option<f64>, to: f64) -> Vec<Check> {
    let check = |from| Check { metric: REMOTE_PCT.id, of: of.clone(), from, to, below: true, within_s: 60.0 };
    from.map(check).into_iter().collect()
}

/// The sign that memory that moves to a node is too much for it.
fn watermark_stop(view: &View<'_>, node: &Subject) -> Vec<Check> {
    let Subject::Node(id) = node else { return Vec::new() };
    let distance = view.node(*id).and_then(|row| view.node_number(&WATERMARK_DISTANCE_PCT, row).ok());
    let stop = |from| Check {
        metric: WATERMARK_DISTANCE_PCT.id,
        of: node.clone(),
        from,
        to: 0.0,
        below: true,
        within_s: 60.0,
    };
    distance.map(stop).into_iter().collect()
}

/// The rule with this id.
pub fn by_id(id: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.id == id)
}

/// The place of a rule in the table; the end for an id that it does not have.
pub fn place(id: &str) -> usize {
    RULES.iter().position(|rule| rule.id == id).unwrap_or(RULES.len())
}

/// Whether the CPU is one that a hypervisor makes up.
fn is_virtual(host: &HostFacts) -> bool {
    const WORDS: [&str; 4] = ["QEMU", "KVM", "Virtual", "Common"];
    WORDS.iter().any(|word| host.cpu_model.contains(word))
}

/// Whether the machine hides its nodes, so that nothing about placement is true.
pub fn hides_nodes(snapshot: &Snapshot) -> bool {
    nodes_hidden::hides(&snapshot.host)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::finding::causes::{CAUSES, COUNTERS, LOWERS};
    use crate::metric::{container, host, node, task};

    /// A metric of anything, by its id.
    fn is_metric(id: &str) -> bool {
        task::by_id(id).is_some()
            || container::by_id(id).is_some()
            || node::by_id(id).is_some()
            || host::HOST_METRICS.iter().any(|metric| metric.id == id)
    }

    #[test]
    fn ids_are_unique_and_titles_fit() {
        let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        for rule in RULES {
            assert!(
                rule.id
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert!(rule.title.chars().count() <= 40, "{}: the title is too long", rule.id);
            assert!(rule.about.ends_with('.'), "{}: about is a sentence", rule.id);
            assert!(!rule.of.is_empty(), "{}", rule.id);
        }
    }

    #[test]
    fn needs_are_metrics_and_limits_have_sources() {
        for rule in RULES {
            rule.needs.iter().for_each(|id| assert!(is_metric(id), "{}: there is no metric {id}", rule.id));
            for limit in rule.limits {
                let source = limit.source;
                assert!(
                    source.contains("[S")
                        || source.starts_with("estimate: ")
                        || source.starts_with("by definition"),
                    "{}: the limit {} has no source",
                    rule.id,
                    limit.name
                );
                assert!(limit.on.is_finite() && limit.off.is_finite());
            }
            let names: BTreeSet<&str> = rule.limits.iter().map(|limit| limit.name).collect();
            assert_eq!(names.len(), rule.limits.len(), "{}", rule.id);
        }
    }

    #[test]
    fn limits_that_are_asked_for_exist() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/finding/rules");
        for rule in RULES {
            let file = folder.join(format!("{}.rs", rule.id.replace('-', "_")));
            let code = std::fs::read_to_string(&file).unwrap();
            for (at, _) in code.match_indices(".limit(\"") {
                let name = code[at + 8..].split('"').next().unwrap();
                assert!(rule.limits.iter().any(|limit| limit.name == name), "{}: no limit {name}", rule.id);
            }
        }
    }

    #[test]
    fn causes_name_rules_of_the_table() {
        let known = |id: &str| by_id(id).is_some();
        for (cause, explained) in CAUSES.iter().chain(LOWERS) {
            assert!(known(cause), "{cause}");
            explained.iter().for_each(|id| assert!(known(id), "{id}"));
        }
        COUNTERS.iter().for_each(|id| assert!(known(id), "{id}"));
    }
}
