//! The program `tidegate`.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::program::main(cli::args::Arguments::parse())
}
