//! The output of `numatop-ng list metrics`: every metric, its rows, its meaning.

use crate::metric::Metric;
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::cpu_set::CPU_SET_METRICS;
use crate::metric::host::HOST_METRICS;
use crate::metric::matrix::PAIR_METRICS;
use crate::metric::node::NODE_METRICS;
use crate::metric::task::{TASK_METRICS, by_id};
use crate::text::{hanging, words};

/// The list as text of at most `width` columns. A metric is in a line that begins with its id.
pub fn render_text(width: usize) -> String {
    let mut out = String::from("Tasks: processes, or threads with -H (--columns, --sort)\n");
    for metric in TASK_METRICS {
        out += &line(metric.id, metric.help, width);
    }
    out += "\nContainers (--by-container with --columns and --sort; in JSON)\n";
    let (summed, own): (Vec<_>, Vec<_>) = CONTAINER_METRICS.iter().partition(|metric| is_of_tasks(metric));
    for metric in own {
        out += &line(metric.id, metric.help, width);
    }
    let ids: Vec<&str> = summed.iter().map(|metric| metric.id).collect();
    out += &line("and the same as for tasks:", &ids.join(", "), width);
    out += "\nNodes (in JSON)\n";
    for metric in NODE_METRICS {
        out += &line(metric.id, metric.help, width);
    }
    out += "\nSockets and L3 domains that are not the nodes (in JSON, under sockets and llcs)\n";
    for metric in CPU_SET_METRICS {
        out += &line(metric.id, metric.help, width);
    }
    out += "\nFrom node to node (in JSON, under matrix)\n";
    for metric in PAIR_METRICS {
        out += &line(metric.id, metric.help, width);
    }
    out += "\nThe host (in JSON, under host)\n";
    for metric in &HOST_METRICS {
        out += &line(metric.id, metric.help, width);
    }
    out
}

/// True for a metric that is a sum of tasks for a container.
fn is_of_tasks<R>(metric: &Metric<R>) -> bool {
    by_id(metric.id).is_some_and(|of_task| of_task.help == metric.help)
}

fn line(id: &str, help: &str, width: usize) -> String {
    hanging(&format!("{id:27} "), words(help), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_listed_with_its_rows() {
        let text = render_text(usize::MAX);
        let parts: Vec<&str> = text.split("\n\n").collect();
        let [tasks, containers, nodes, sets, pairs, host] = parts[..] else {
            panic!("{} parts", parts.len())
        };
        let has = |part: &str, id: &str| part.split([' ', ',', '\n']).any(|word| word == id);
        assert!(TASK_METRICS.iter().all(|metric| has(tasks, metric.id)));
        assert!(CONTAINER_METRICS.iter().all(|metric| has(containers, metric.id)));
        assert!(NODE_METRICS.iter().all(|metric| has(nodes, metric.id)));
        assert!(CPU_SET_METRICS.iter().all(|metric| has(sets, metric.id)));
        assert!(PAIR_METRICS.iter().all(|metric| has(pairs, metric.id)));
        assert!(HOST_METRICS.iter().all(|metric| has(host, metric.id)));
    }

    #[test]
    fn it_fits_the_terminal() {
        assert!(render_text(80).lines().all(|line| line.chars().count() <= 80));
    }
}
