//! Speed that a task loses to the other hardware thread of its core.

use super::counters::ipc_by_sibling;
use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::model::facility::Facility;
use crate::snapshot::Task;

pub const IPC_SMT_IDLE: Metric<Task> = Metric {
    id: "ipc_smt_idle",
    title: "IPC IDLE",
    width: 8,
    group: Group::Efficiency,
    unit: Unit::Ratio,
    order: Order::Ascending,
    help: "Instructions per cycle while the SMT siblings were idle. Leaves out stretches \
           between two switches in which siblings were idle for over 5 % and busy for over 5 %.",
    value: |task, snapshot| ipc_by_sibling(&task.delta, snapshot, 0).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, snapshot| ipc_by_sibling(&task.delta, snapshot, 0)),
    traits: Traits::NONE
        .needs(&[Facility::SmtTime, Facility::CYCLES, Facility::INSTRUCTIONS, Facility::CountersBySibling])
        .better(Better::High),
};

pub const IPC_SMT_BUSY: Metric<Task> = Metric {
    id: "ipc_smt_busy",
    title: "IPC BUSY",
    width: 8,
    group: Group::Efficiency,
    unit: Unit::Ratio,
    order: Order::Ascending,
    help: "Instructions per cycle while an SMT sibling was busy. Far below the value with idle siblings: the two \
           slow each other down.",
    value: |task, snapshot| ipc_by_sibling(&task.delta, snapshot, 1).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, snapshot| ipc_by_sibling(&task.delta, snapshot, 1)),
    traits: Traits::NONE
        .needs(&[Facility::SmtTime, Facility::CYCLES, Facility::INSTRUCTIONS, Facility::CountersBySibling])
        .better(Better::High),
};
