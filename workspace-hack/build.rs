//! Cargo takes up build-dependencies only where there is a build script.
fn main() {}
