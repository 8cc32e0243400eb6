//! Writes the manual pages and the completions of the program into a folder, from the words of its
//! command line: `man/tidegate.1`, `man/tidegate-serve.1`, ..., `bash/tidegate`, `zsh/_tidegate`,
//! `fish/tidegate.fish`. `cargo xtask dist` packs them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use cli::args::Arguments;

/// A page is of the release: the version that the program prints has the commit in it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> io::Result<()> {
    let out = std::env::args_os().nth(1);
    let out = out.ok_or_else(|| io::Error::other("usage: manual FOLDER"))?;
    let out = Path::new(&out);
    let mut program = Arguments::command().version(VERSION);
    pages(&program, &out.join("man"))?;
    for (shell, folder, name) in [
        (Shell::Bash, "bash", "tidegate"),
        (Shell::Zsh, "zsh", "_tidegate"),
        (Shell::Fish, "fish", "tidegate.fish"),
    ] {
        let folder = out.join(folder);
        fs::create_dir_all(&folder)?;
        let mut file = File::create(folder.join(name))?;
        generate(shell, &mut program, "tidegate", &mut file);
    }
    Ok(())
}

/// A page for the program, and one for each of its commands.
fn pages(program: &Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let write = |name: &str, command: Command| {
        let page = Man::new(command).source("Tidegate").manual("Tidegate");
        page.render(&mut File::create(folder.join(format!("{name}.1")))?)
    };
    write("tidegate", program.clone())?;
    for command in program.get_subcommands() {
        // Names of clap's live as long as the program.
        let name: &'static str = format!("tidegate-{}", command.get_name()).leak();
        let words = format!("tidegate {}", command.get_name());
        let page = command.clone().name(name).bin_name(words);
        write(name, page.version(VERSION))?;
    }
    Ok(())
}
