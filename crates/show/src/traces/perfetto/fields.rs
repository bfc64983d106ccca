//! Messages of Perfetto that a trace is made of, with the numbers of their fields.

use crate::traces::proto::Message;

/// Fields of Trace.
mod trace {
    pub(super) const PACKET: u64 = 1;
}

/// Fields of TracePacket.
pub(super) mod packet {
    pub(in crate::traces::perfetto) const CLOCK_SNAPSHOT: u64 = 6;
    pub(super) const TIMESTAMP: u64 = 8;
    pub(super) const TRUSTED_PACKET_SEQUENCE_ID: u64 = 10;
    pub(in crate::traces::perfetto) const TRACK_EVENT: u64 = 11;
    pub(in crate::traces::perfetto) const TRACK_DESCRIPTOR: u64 = 60;
}

/// Fields of ClockSnapshot, and of the clocks in it.
mod clock_snapshot {
    pub(super) const CLOCKS: u64 = 1;
    pub(super) const CLOCK_ID: u64 = 1;
    pub(super) const TIMESTAMP: u64 = 2;
}

/// Fields of TrackDescriptor.
mod descriptor {
    pub(super) const UUID: u64 = 1;
    pub(super) const NAME: u64 = 2;
    pub(super) const PARENT_UUID: u64 = 5;
    pub(super) const COUNTER: u64 = 8;
    pub(super) const CHILD_ORDERING: u64 = 11;
    pub(super) const SIBLING_ORDER_RANK: u64 = 12;
    /// Values of `CHILD_ORDERING`: by `SIBLING_ORDER_RANK`.
    pub(super) const EXPLICIT: u64 = 3;
}

/// Fields of CounterDescriptor.
mod counter_descriptor {
    pub(super) const UNIT: u64 = 3;
    pub(super) const UNIT_NAME: u64 = 6;
    /// Values of `UNIT`.
    pub(super) const SIZE_BYTES: u64 = 3;
}

/// Fields of TrackEvent.
mod track_event {
    pub(super) const TYPE: u64 = 9;
    pub(super) const TRACK_UUID: u64 = 11;
    pub(super) const NAME: u64 = 23;
    pub(super) const DOUBLE_COUNTER_VALUE: u64 = 44;
}

/// Values of TrackEvent.Type.
#[derive(Clone, Copy)]
pub(super) enum Event {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// Values of BuiltinClock.
#[derive(Clone, Copy)]
enum Clock {
    Realtime = 1,
    Boottime = 6,
}

/// A track, and its place.
pub(super) struct Child<'a> {
    pub(super) track: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: &'a str,
    /// Among the tracks of the same parent.
    pub(super) rank: u64,
}

/// The unit of a counter.
pub(super) enum Unit {
    Bytes,
    Named(&'static str),
}

/// A packet of a trace, at a time of CLOCK_BOOTTIME in ns.
pub(super) fn packet(at_ns: u64, sequence: u64, field: u64, message: &Message) -> Message {
    let packet = Message::default()
        .uint(packet::TIMESTAMP, at_ns)
        .uint(packet::TRUSTED_PACKET_SEQUENCE_ID, sequence)
        .message(field, message);
    Message::default().message(trace::PACKET, &packet)
}

/// The same moment by two clocks, ns.
pub(super) fn clocks(boot_ns: u64, wall_ns: u64) -> Message {
    let clock = |id: Clock, ns| {
        Message::default().uint(clock_snapshot::CLOCK_ID, id as u64).uint(clock_snapshot::TIMESTAMP, ns)
    };
    Message::default()
        .message(clock_snapshot::CLOCKS, &clock(Clock::Boottime, boot_ns))
        .message(clock_snapshot::CLOCKS, &clock(Clock::Realtime, wall_ns))
}

/// A track for slices and instants.
pub(super) fn slices(child: &Child<'_>) -> Message {
    let message = Message::default().uint(descriptor::UUID, child.track).text(descriptor::NAME, child.name);
    match child.parent {
        None => message,
        // The place is one of 31 bits.
        Some(parent) => message
            .uint(descriptor::PARENT_UUID, parent)
            .uint(descriptor::SIBLING_ORDER_RANK, child.rank.min(i32::MAX as u64)),
    }
}

/// A track that holds others, in the order of their places.
pub(super) fn group(child: &Child<'_>) -> Message {
    slices(child).uint(descriptor::CHILD_ORDERING, descriptor::EXPLICIT)
}

/// A track for values.
pub(super) fn counter(child: &Child<'_>, unit: Unit) -> Message {
    let counter = match unit {
        Unit::Bytes => Message::default().uint(counter_descriptor::UNIT, counter_descriptor::SIZE_BYTES),
        Unit::Named(words) => Message::default().text(counter_descriptor::UNIT_NAME, words),
    };
    slices(child).message(descriptor::COUNTER, &counter)
}

/// The beginning or the end of a slice, or an instant.
pub(super) fn event(kind: Event, track: u64, name: Option<&str>) -> Message {
    let message =
        Message::default().uint(track_event::TYPE, kind as u64).uint(track_event::TRACK_UUID, track);
    match name {
        None => message,
        Some(name) => message.text(track_event::NAME, name),
    }
}

/// A value of a counter.
pub(super) fn value(track: u64, value: f64) -> Message {
    event(Event::Counter, track, None).double(track_event::DOUBLE_COUNTER_VALUE, value)
}
