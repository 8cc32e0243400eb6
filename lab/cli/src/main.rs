//! The program `tidegate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::program::main(cli::args::Arguments::of_process())
}
