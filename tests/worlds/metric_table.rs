//! All metrics in one table: what changes about one of them is seen in review.

use std::fmt::Write;

use numatop_ng::metric::columns::{
    CONTAINER_PRIORITY, CONTAINER_TEXT, NODE_PRIORITY, TASK_ORDER, TASK_PRIORITY, TASK_TEXT,
};
use numatop_ng::metric::container::CONTAINER_METRICS;
use numatop_ng::metric::host::HOST_METRICS;
use numatop_ng::metric::matrix::PAIR_METRICS;
use numatop_ng::metric::node::NODE_METRICS;
use numatop_ng::metric::task::TASK_METRICS;
use numatop_ng::metric::{Metric, Stands};
use numatop_ng::model::facility::Facility;

fn needs(needs: &[Facility]) -> String {
    needs.iter().map(|facility| format!(" {facility:?}")).collect()
}

fn rows<R>(table: &mut String, of: &str, metrics: &[Metric<R>]) {
    for metric in metrics {
        let Metric { id, title, width, group, unit, order, traits, over, .. } = metric;
        let stands = match traits.stands {
            Stands::Usual => "usual",
            Stands::Plain => "plain",
            Stands::Home => "home",
            Stands::Harm(_) => "harm",
            Stands::Remote(_) | Stands::RemoteShare => "remote",
        };
        let line = format!(
            "{of} {id} [{title}] {width}/{} {group:?} {unit:?} {order:?} {stands} {} several:{:?} ages:{} over:{} better:{:?} needs:{}",
            metric.least_width(),
            traits.absent,
            traits.several,
            traits.ages,
            over.name(),
            traits.better,
            needs(traits.needs)
        );
        writeln!(table, "{line}").unwrap();
    }
}

#[test]
fn the_table_of_metrics() {
    let mut table = String::new();
    rows(&mut table, "task", TASK_METRICS);
    rows(&mut table, "container", CONTAINER_METRICS);
    rows(&mut table, "node", NODE_METRICS);
    for metric in &HOST_METRICS {
        writeln!(table, "host {} [{}] needs:{}", metric.id, metric.title, needs(metric.needs)).unwrap();
    }
    for metric in PAIR_METRICS {
        let (id, title, unit) = (metric.id, metric.title, metric.unit);
        writeln!(table, "pair {id} [{title}] {unit:?} needs:{}", needs(metric.needs)).unwrap();
    }
    for (name, ids) in [
        ("order of tasks", TASK_ORDER),
        ("room of tasks", TASK_PRIORITY),
        ("text of tasks", TASK_TEXT),
        ("room of containers", CONTAINER_PRIORITY),
        ("text of containers", CONTAINER_TEXT),
        ("room of nodes", NODE_PRIORITY),
    ] {
        writeln!(table, "{name}: {}", ids.join(" ")).unwrap();
    }
    insta::assert_snapshot!(table);
}
