//! The toolbox.
fn main() {}
