//! Whole runs of the lab: bands and what they measure, one by one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bands;
mod echo;
mod huge_pages;
mod own_time;
mod pacing;
mod passed_over;
mod small;
