//! `serve`, `top`, `hold` and `demo` in a program that was built without the server: known, and
//! told how to get them.

use std::ffi::OsString;

use clap::Args;
use report::status::MISTAKE;
use report::terminal;

/// Their words, which are not looked at.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct Words {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Says what `command` needs and how to get it. Answers the exit status.
pub(crate) fn is_missing(command: &str, words: &Words) -> u8 {
    let mut line = command.to_owned();
    for word in &words.words {
        line.push(' ');
        line.push_str(&word.to_string_lossy());
    }
    terminal::complain(&format!(
        "tidegate: this tidegate was built without the server, which `{command}` needs; with it, in Tidegate's folder:\n  \
         cargo run --release --features serve -- {line}\n  \
         cargo install --path lab/cli --features serve        to install it"
    ));
    MISTAKE
}
