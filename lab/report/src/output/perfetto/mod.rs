//! A run as a trace for the Perfetto UI (<https://ui.perfetto.dev>): which tasks ran, slept on what
//! and reclaimed, and what the devices did.
//!
//! ```text
//!   process "tasks"    a track per task:  runs | ReadIo | runs | VMSCAN_THROTTLE_NOPROGRESS | ...
//!                        below it:        direct reclaim | balancing > pass, pass | major faults | passes of the job
//!   process "devices"  a counter each: requests in flight; lanes with a slice per request
//!   process "memory"   counters under the kernel's names
//! ```
//!
//! `slices` makes slices, counters and tracks of a timeline; this file encodes them. Times are
//! virtual in the lab and count from the beginning of the jobs. "Runs" is what is left between
//! waits: on a CPU, or wanting one.
//!
//! Invariants
//!   1. Packets are in the order of time; on a track, slices nest and all end.
//!   2. The size is bounded: a timeline is (`watch::Timeline`).
//!
//! Source: the Perfetto project's protos/perfetto/trace (`TracePacket`, `TrackDescriptor`,
//! `TrackEvent`, `InternedData`), numbers of fields as published; docs:
//! perfetto.dev/docs/reference/synthetic-track-event.

mod proto;
mod slices;

use experiment::outcome::Outcome;
use experiment::watch::Timeline;
use proto::Message;
use slices::{Arg, Counters, Moment, Step, Track};

/// Fields of the messages.
mod field {
    /// Of `Trace`.
    pub(super) const PACKET: u32 = 1;

    /// Of `TracePacket`.
    pub(super) mod packet {
        pub(in super::super) const TIMESTAMP: u32 = 8;
        pub(in super::super) const SEQUENCE_ID: u32 = 10;
        pub(in super::super) const TRACK_EVENT: u32 = 11;
        pub(in super::super) const INTERNED_DATA: u32 = 12;
        pub(in super::super) const SEQUENCE_FLAGS: u32 = 13;
        pub(in super::super) const TRACK_DESCRIPTOR: u32 = 60;
    }

    /// Of `TrackDescriptor`.
    pub(super) mod descriptor {
        pub(in super::super) const UUID: u32 = 1;
        pub(in super::super) const NAME: u32 = 2;
        pub(in super::super) const PROCESS: u32 = 3;
        pub(in super::super) const THREAD: u32 = 4;
        pub(in super::super) const PARENT: u32 = 5;
        pub(in super::super) const COUNTER: u32 = 8;
    }

    /// Of `TrackEvent`.
    pub(super) mod event {
        pub(in super::super) const ANNOTATION: u32 = 4;
        pub(in super::super) const TYPE: u32 = 9;
        pub(in super::super) const NAME_IID: u32 = 10;
        pub(in super::super) const TRACK: u32 = 11;
        pub(in super::super) const NAME: u32 = 23;
        pub(in super::super) const REAL_VALUE: u32 = 44;
    }
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// All packets are of one sequence, whose state begins with the first.
const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// `CounterDescriptor.unit`: a count.
const UNIT_COUNT: u64 = 2;

/// The trace of a run; `None`: no timeline was kept.
pub(super) fn trace(outcome: &Outcome) -> Option<Vec<u8>> {
    let timeline = outcome.timeline.as_ref()?;
    let title = format!("{} / {}", outcome.case, outcome.policy);
    Some(encode(
        timeline,
        &slices::counters(outcome, timeline),
        &title,
    ))
}

fn encode(timeline: &Timeline, counters: &Counters, title: &str) -> Vec<u8> {
    let (tracks, names, moments) = slices::of(timeline, counters, title);
    let mut out = Vec::with_capacity(moments.len() * 32);
    let mut interned = Message::new();
    for (name, iid) in &names.events {
        interned = interned.message(2, &Message::new().number(1, *iid).text(2, name));
    }
    for (name, iid) in &names.args {
        interned = interned.message(3, &Message::new().number(1, *iid).text(2, name));
    }
    Message::new()
        .number(field::packet::SEQUENCE_ID, SEQUENCE)
        .number(field::packet::SEQUENCE_FLAGS, STATE_CLEARED)
        .message(field::packet::INTERNED_DATA, &interned)
        .append_to(&mut out, field::PACKET);
    for track in &tracks {
        Message::new()
            .number(field::packet::SEQUENCE_ID, SEQUENCE)
            .message(field::packet::TRACK_DESCRIPTOR, &descriptor(track))
            .append_to(&mut out, field::PACKET);
    }
    for moment in &moments {
        Message::new()
            .number(field::packet::TIMESTAMP, moment.at)
            .number(field::packet::SEQUENCE_ID, SEQUENCE)
            .number(field::packet::SEQUENCE_FLAGS, NEEDS_STATE)
            .message(field::packet::TRACK_EVENT, &event(moment))
            .append_to(&mut out, field::PACKET);
    }
    out
}

fn descriptor(track: &Track) -> Message {
    use field::descriptor as of;
    match track {
        Track::Process { uuid, pid, name } => Message::new().number(of::UUID, *uuid).message(
            of::PROCESS,
            &Message::new().number(1, u64::from(*pid)).text(6, name),
        ),
        Track::Thread {
            uuid,
            pid,
            tid,
            name,
        } => {
            let thread = Message::new()
                .number(1, u64::from(*pid))
                .number(2, u64::from(*tid))
                .text(5, name);
            Message::new()
                .number(of::UUID, *uuid)
                .message(of::THREAD, &thread)
        }
        Track::Child { uuid, parent, name } => Message::new()
            .number(of::UUID, *uuid)
            .number(of::PARENT, *parent)
            .text(of::NAME, name),
        Track::Counter {
            uuid,
            parent,
            name,
            unit,
        } => {
            let counter = Message::new().number(3, UNIT_COUNT).text(6, unit);
            Message::new()
                .number(of::UUID, *uuid)
                .number(of::PARENT, *parent)
                .text(of::NAME, name)
                .message(of::COUNTER, &counter)
        }
    }
}

fn event(moment: &Moment) -> Message {
    use field::event as of;
    let on = |kind| {
        Message::new()
            .number(of::TYPE, kind)
            .number(of::TRACK, moment.track)
    };
    let named = |kind, name: u64, args: &[Arg]| {
        let event = on(kind).number(of::NAME_IID, name);
        args.iter().fold(event, |event, (name, value)| {
            let annotation = Message::new().number(1, *name);
            let annotation = match value {
                slices::Value::Number(value) => annotation.number(3, *value),
                slices::Value::Real(value) => annotation.real(5, *value),
                slices::Value::Text(value) => annotation.text(6, value),
            };
            event.message(of::ANNOTATION, &annotation)
        })
    };
    match &moment.step {
        Step::Begin { name, args } => named(SLICE_BEGIN, *name, args),
        Step::End => on(SLICE_END),
        Step::Instant { name, args } => named(INSTANT, *name, args),
        Step::Note(text) => on(INSTANT).text(of::NAME, text),
        Step::Count(value) => on(COUNTER).real(of::REAL_VALUE, *value),
    }
}

#[cfg(test)]
mod tests;
