//! The program, and the words that it reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod parsers;
mod program;
mod replay;
mod reproduce;
mod serve_clients;
mod serve_run;
mod serving;
mod sizes;
mod top;
