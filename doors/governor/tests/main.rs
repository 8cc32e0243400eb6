//! Members under one limit: rules, random plans, adapters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[cfg(feature = "quick-cache")]
mod adapters;
mod edges;
#[cfg(feature = "quick-cache")]
mod mixed;
mod pages;
mod random;
mod rules;
