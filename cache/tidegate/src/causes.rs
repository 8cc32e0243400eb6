//! The causes of waits, by name.

use env::Cause;

/// Causes of waits, with their names and whether a timeout is how they normally end (a pause, a
/// sleep).
pub(crate) const CAUSES: [(Cause, &str, bool); 21] = [
    (Cause::DirtyPause, "dirty pause", true),
    (Cause::DeviceStalled, "device stalled", true),
    (Cause::PageBusy, "page busy", false),
    (Cause::ReadIo, "read", false),
    (Cause::WritebackIo, "writeback of a page", false),
    (Cause::WritebackFlight, "room in flight", false),
    (Cause::DeviceFlush, "device flush", false),
    (Cause::DeviceMetadata, "device metadata", false),
    (Cause::Memory, "memory", false),
    (Cause::ReclaimWriteback, "reclaim: writeback", true),
    (Cause::ReclaimIsolated, "reclaim: isolated", true),
    (Cause::ReclaimNoProgress, "reclaim: no progress", true),
    (Cause::ReclaimCongested, "reclaim: congested", true),
    (Cause::CongestionWait, "congestion", true),
    (Cause::SwapIo, "swap", false),
    (Cause::RequestSlot, "request slot", false),
    (Cause::RetryBackoff, "retry back-off", true),
    (Cause::PageRetry, "page looked at again", true),
    (Cause::LogDurable, "log durable", false),
    (Cause::MapFault, "map fault", false),
    (Cause::MapStore, "map store", false),
];

/// The name of a cause; of those that no caller has, there is none.
pub(crate) fn name_of(cause: Cause) -> &'static str {
    let known = CAUSES.iter().find(|(known, ..)| *known == cause);
    known.map_or("another wait", |(_, name, _)| name)
}
