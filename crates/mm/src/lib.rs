//! Blocking procedures over `E: Env`: read, write, balance dirty pages, flush, sync, reclaim.
//! (The lead is writing it; see options.rs, error.rs, stats.rs, and the list in the task.)
