//! The command line.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use experiment::scenario::nearest;

#[cfg(feature = "serve")]
use crate::server;
#[cfg(not(feature = "serve"))]
use crate::without_server::Words;

/// Of this program, with the commit that it is built from.
pub(crate) const VERSION: &str = env!("TIDEGATE_VERSION");

const RUN_EXAMPLES: &str = "\
Examples:
  tidegate run dd                               the published dd table, in virtual time
  tidegate run dd --column linux-2.6.36,p1      two columns of it
  tidegate run dd --row ext4                    one row of it
  tidegate run dd --tables                      all measurements, in the layout of mmtests
  tidegate run cp-pauses --check                judge the bands; exit 1 if one does not hold
  tidegate run dd --set column.p1.hz=100        change one value of the scenario
  tidegate run dd --set device.disk.rate_factor=2 --scale 0.0625
  tidegate run cp-pauses --trace                write traces that ui.perfetto.dev opens
  tidegate run my-scenario.toml --out there     a scenario of your own
  tidegate run dd --row ext4 --out before       and --out after, with --set or a scenario changed:
  tidegate diff before after                    the changes, in per cent
  tidegate run dd --live /mnt/scratch           the same workload on real files
  tidegate run dd --live /mnt/scratch --column tidegate --device slow:rate=16MB,latency=2ms

Exit status: 0 on success; 1 if a band does not hold (--check), a run failed or standard output
cannot be written; 2 for a mistake in the command line or the scenario, or if a folder, space or
memory is missing; 130 if interrupted.";

const DIFF_EXAMPLES: &str = "\
Examples:
  tidegate run dd --out before
  tidegate run dd --out after --set machine.dirty_percent=10 --set machine.background_percent=5
  tidegate diff before after                    figures that differ by 1 % and more, and bands
  tidegate diff before after --out there        with a page: tables, plots laid over each other

Exit status: 0 on success; 2 for a folder without results, or two with nothing in common.";

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  tidegate reproduce                            every claim of all papers, in about two minutes
  tidegate reproduce p0 p3                      those of two papers
  tidegate reproduce stutterp                   those of one experiment
  tidegate reproduce --replicas 5               with the repetitions that bands of means need
  tidegate reproduce --out there                a second run with the same folder goes on
  tidegate reproduce --format json              the scoreboard for a program

Exit status: 0 if every claim holds except those that an experiment lists as missed, with the
cause; 1 if another does not hold, a run failed or standard output cannot be written; 2 for a
mistake in the command line, or a folder that cannot be used; 130 if interrupted.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  tidegate compare recordings/held/one-dd         a folder of tables beside the lab
  tidegate compare recordings/held/*              several: errors, constant guesses, differences
  tidegate compare trace.txt                      text of ftrace, perf script, trace-cmd report
  tidegate compare trace.txt --given device.0.rate=16
  tidegate compare recordings/held/one-dd --set vm.dirty_bytes=200M     what would that change?
  tidegate compare recordings/held/one-dd --set vm.dirty_background_bytes=8M \\
      --against recordings/held/16-64-8-one       and how wrong is the answer?
  tidegate compare recordings/held/{r1-4,r2-*,r4-vfat}                  memory pressure
  tidegate compare recordings/held/r2-mode0 --set vm.zone_reclaim_mode=1 \\
      --against recordings/held/r2-mode1          the same question under memory pressure
  tidegate compare recordings/held/one-dd --set vm.dirty_ratio=5,10,20    one table, one plot
  tidegate compare recordings/held/r1-4 --set swap_rate=16..64:16         a range, and its step
";

const COMPARE_STATUS: &str = "\
Exit status: 0 on success; 1 if a run failed, or a band does not hold (--check); 2 for a mistake
in the command line or the recording; 130 if interrupted.";

/// The help below the options of `compare`.
fn compare_help() -> String {
    format!(
        "{COMPARE_EXAMPLES}\n{}\n{COMPARE_STATUS}",
        recordings::keys()
    )
}

/// The arguments of the program.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = VERSION, about, max_term_width = 100)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Those of this process; a mistake among them is said, and the process ends with status 2.
    #[must_use]
    pub fn of_process() -> Self {
        let words: Vec<OsString> = std::env::args_os().collect();
        Self::of(&words).unwrap_or_else(|mistake| mistake.exit())
    }

    /// Those of `words`, of which the first is the program's name.
    ///
    /// # Errors
    /// The mistake, with the way out.
    pub fn of(words: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(words).map_err(|mut mistake| {
            // Its value may be left out, so that one after a space is taken for something else.
            if let Some(ContextValue::String(found)) = mistake.get(ContextKind::InvalidArg)
                && words
                    .windows(2)
                    .any(|two| two[0] == "--trace" && two[1] == **found)
            {
                let tip = vec![format!("write '--trace={found}' to trace that row").into()];
                mistake.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
            }
            // A size below zero looks like an option, and `--` before it does not help.
            if let Some(ContextValue::String(found)) = mistake.get(ContextKind::InvalidArg)
                && found.strip_prefix('-').is_some_and(begins_with_a_digit)
                && let Some((option, value)) = option_before(words, found)
            {
                let tip = format!("'{option}' takes nothing below zero; write '{option} {value}'");
                mistake.insert(
                    ContextKind::Suggested,
                    ContextValue::StyledStrs(vec![tip.into()]),
                );
            }
            // Of words as short as these, clap takes two letters that changed places for another
            // word.
            if let Some(ContextValue::String(found)) = mistake.get(ContextKind::InvalidSubcommand)
                && mistake.get(ContextKind::SuggestedSubcommand).is_none()
                && let Some(near) = nearest(
                    found,
                    Self::command()
                        .get_subcommands()
                        .map(clap::Command::get_name),
                )
            {
                let near = ContextValue::Strings(vec![near.to_owned()]);
                mistake.insert(ContextKind::SuggestedSubcommand, near);
            }
            mistake
        })
    }
}

fn begins_with_a_digit(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// The option before a word that begins with `found`, and the word without its sign.
fn option_before<'a>(words: &'a [OsString], found: &str) -> Option<(&'a str, &'a str)> {
    words.windows(2).find_map(|two| {
        let (option, value) = (two[0].to_str()?, two[1].to_str()?);
        let is_it = option.starts_with("--") && value.starts_with(found);
        is_it.then_some((option, value.strip_prefix('-')?))
    })
}

/// A command of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check every published claim against its experiment, and print a scoreboard
    #[command(after_help = REPRODUCE_EXAMPLES)]
    Reproduce(ReproduceArguments),
    /// Run an experiment and compare its columns
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArguments>),
    /// Compare a recording of a real kernel with the lab, and ask "what if"
    #[command(after_help = compare_help())]
    Compare(Box<CompareArguments>),
    /// Compare two folders of results: the figures that changed, by how much, and the bands
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArguments),
    /// How large must my cache be? Replay a trace of accesses under page rules and sizes
    #[command(after_help = crate::replay::EXAMPLES)]
    Replay(crate::replay::ReplayArguments),
    /// Print how to cite this program
    Cite,
    /// List experiments, presets, models, papers, metrics and kinds of task
    #[command(
        after_help = "Examples:\n  tidegate list\n  tidegate list papers\n  tidegate list metrics\n  tidegate list kinds\n  tidegate list keys machine"
    )]
    List {
        /// One of these lists; everything but metrics, kinds and keys without it
        what: Option<Listed>,
        /// Of keys: those of one table (machine, device, row, column, task, expect, ..)
        table: Option<String>,
    },
    /// Serve volumes over NBD, cached in bounded memory, with writers that are paced
    #[cfg(feature = "serve")]
    #[command(after_help = server::SERVE_EXAMPLES)]
    Serve(Box<server::ServeArguments>),
    /// Watch a server in the terminal
    #[cfg(feature = "serve")]
    #[command(after_help = server::TOP_EXAMPLES)]
    Top(server::TopArguments),
    /// Hold a volume of a server, synced and unchanged, while a command copies its backing
    #[cfg(feature = "serve")]
    #[command(after_help = server::HOLD_EXAMPLES)]
    Hold(server::HoldArguments),
    /// See in a minute what pacing does: three clients, one slow disk, nothing to set up
    #[cfg(feature = "serve")]
    #[command(after_help = server::DEMO_EXAMPLES)]
    Demo(server::DemoArguments),
    /// Serve volumes over NBD (not in this tidegate: built without `--features serve`)
    #[cfg(not(feature = "serve"))]
    Serve(Words),
    /// Watch a server in the terminal (not in this tidegate either)
    #[cfg(not(feature = "serve"))]
    Top(Words),
    /// Hold a volume of a server (not in this tidegate either)
    #[cfg(not(feature = "serve"))]
    Hold(Words),
    /// See in a minute what pacing does (not in this tidegate either)
    #[cfg(not(feature = "serve"))]
    Demo(Words),
}

/// The things that `list` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    /// The built-in experiments
    Experiments,
    /// The presets that columns are made from
    #[value(alias = "policies")]
    Presets,
    /// Device and file-system models
    Devices,
    /// The papers, with the experiments that repeat them
    Papers,
    /// The metrics of experiments
    Metrics,
    /// The kinds of task, with their keys
    Kinds,
    /// The keys of scenarios, table by table
    Keys,
}

/// The format of the scoreboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BoardFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For pages: tables, and the causes of missed claims
    Markdown,
}

/// Arguments of `reproduce`.
#[derive(Args, Debug)]
pub struct ReproduceArguments {
    /// Papers (p0 to p4) or experiments [default: all]
    #[arg(value_name = "PAPER|EXPERIMENT")]
    pub papers: Vec<String>,
    /// Repetitions of each run, instead of one, or five where they take seconds
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = replicas)]
    pub replicas: Option<u32>,
    /// Also what is left out for its time: all columns, rows and sizes of the experiments
    #[arg(long)]
    pub whole: bool,
    /// Part of the full size of all experiments, instead of each one's own: 1, 1/2, 0.25 ...
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = scale)]
    pub scale: Option<f64>,
    /// Folder for the results, instead of a new results/reproduce; results of an earlier run in it
    /// are used
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Format of the scoreboard
    #[arg(long, value_enum, default_value = "text")]
    pub format: BoardFormat,
}

impl ReproduceArguments {
    /// The words as the crate of `reproduce` takes them.
    pub(crate) fn asked(self) -> reproduce::Asked {
        reproduce::Asked {
            papers: self.papers,
            replicas: self.replicas,
            whole: self.whole,
            scale: self.scale,
            out: self.out,
            format: match self.format {
                BoardFormat::Text => reproduce::Format::Text,
                BoardFormat::Json => reproduce::Format::Json,
                BoardFormat::Markdown => reproduce::Format::Markdown,
            },
            version: VERSION,
        }
    }
}

/// Arguments of `run`.
#[derive(Args, Debug)]
pub struct RunArguments {
    /// Name of a built-in experiment, or a scenario file (TOML)
    #[arg(value_name = "EXPERIMENT|FILE.toml")]
    pub experiment: PathBuf,
    /// Columns to run, the first is the baseline; also presets that the scenario does not name
    #[arg(long, alias = "policy", value_name = "A,B", value_delimiter = ',')]
    pub column: Vec<String>,
    /// Rows to run, instead of all
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub row: Vec<String>,
    /// Change a value of the scenario, for example machine.memory_mib=512; may be repeated.
    /// `tidegate diff` of two folders (--out) shows the effect
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Runs per cell
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = replicas)]
    pub replicas: Option<u32>,
    /// Master seed
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = seed)]
    pub seed: Option<u64>,
    /// Part of the full size: 1, 1/2, 1/8, 0.125 ... (one over a whole number)
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = scale)]
    pub scale: Option<f64>,
    /// Run on real threads, memory and files in this folder
    #[arg(long, value_name = "DIR")]
    pub live: Option<PathBuf>,
    /// With --live: a wrapper around the files, for example slow:rate=16MB,latency=2ms
    #[arg(long, value_name = "WRAPPER", requires = "live")]
    pub device: Option<String>,
    /// With --live: memory limit of the process, for example 256MiB, instead of the scenario's
    #[arg(long, value_name = "SIZE", requires = "live", value_parser = figures::size_above_zero)]
    pub memory: Option<u64>,
    /// Folder for the results, instead of results/NAME-seedN
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit 1 if a band of the scenario does not hold, and name it
    #[arg(long)]
    pub check: bool,
    /// Print all tables, which table.txt always has, and not the result alone
    #[arg(long)]
    pub tables: bool,
    /// Write a trace for ui.perfetto.dev: of these runs' first repetition, or of the first row
    #[arg(
        long,
        value_name = "ROW[/COLUMN],..",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub trace: Option<String>,
}

impl RunArguments {
    /// A built-in experiment as it stands, but for its scale and the choice of its cells.
    pub(crate) fn is_as_stored(&self) -> bool {
        let name = self.experiment.to_str();
        let is_plain = self.set.is_empty() && self.seed.is_none() && self.live.is_none();
        is_plain && name.is_some_and(|name| experiment::experiments::by_name(name).is_some())
    }
}

/// Arguments of `diff`.
#[derive(Args, Debug)]
pub struct DiffArguments {
    /// Results of `run`, `reproduce` or `compare`: those from before
    #[arg(value_name = "DIR")]
    pub one: PathBuf,
    /// Those of today
    #[arg(value_name = "DIR")]
    pub other: PathBuf,
    /// Folder for a page with tables and plots
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print figures that differ by less than 1 %, too
    #[arg(long)]
    pub all: bool,
}

impl DiffArguments {
    /// The words as the crate of reports takes them.
    pub(crate) fn asked(self) -> report::diff::Asked {
        report::diff::Asked {
            one: self.one,
            other: self.other,
            out: self.out,
            all: self.all,
        }
    }
}

/// Arguments of `compare`.
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// Folders of tables (as `cargo instruments guest` makes them), or files with the text of a
    /// trace
    #[arg(value_name = "RECORDING", required = true)]
    pub recordings: Vec<PathBuf>,
    /// Change a value of the setting (what if), for example vm.dirty_ratio=10; one key may
    /// have several values: A,B,C or FROM..TO:STEP. May be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Give a value that the recording lacks or has wrong, with the keys of --set
    #[arg(long, value_name = "KEY=VALUE")]
    pub given: Vec<String>,
    /// With --set: a recording of the changed setting, which shows the error of the answer
    #[arg(long, value_name = "RECORDING", requires = "set")]
    pub against: Option<PathBuf>,
    /// Columns of the lab; the first one is judged
    #[arg(long, alias = "policy", value_name = "A,B", value_delimiter = ',')]
    pub column: Vec<String>,
    /// Seed of the lab
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 62))]
    pub seed: u64,
    /// Folder for the results, instead of results/compare-NAME-seedN
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit 1 if the first column is out of the bands, and name the figure
    #[arg(long)]
    pub check: bool,
}

impl CompareArguments {
    /// The words as the crate of `compare` takes them.
    pub(crate) fn asked(self) -> recordings::Asked {
        recordings::Asked {
            recordings: self.recordings,
            set: self.set,
            given: self.given,
            against: self.against,
            column: self.column,
            seed: self.seed,
            out: self.out,
            check: self.check,
            version: VERSION,
        }
    }
}

/// A number, or what is wrong with the text.
fn number<T: FromStr>(text: &str, is_not: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not {is_not}"))
}

fn replicas(text: &str) -> Result<u32, String> {
    number(text, "a number of runs; write 1 or more, for example 5").map(NonZeroU32::get)
}

fn seed(text: &str) -> Result<u64, String> {
    let is_not = "a seed; write a whole number from 0 to 9223372036854775807, for example 7";
    let seed: i64 = number(text, is_not)?;
    u64::try_from(seed).map_err(|_| format!("`{text}` is not {is_not}"))
}

/// `0.125`, or as the output says it, `1/8`. The scenario checks itself if it can be run at that
/// scale.
fn scale(text: &str) -> Result<f64, String> {
    let is_not = "a scale; write one over a whole number, for example 1/8 or 0.125";
    let scale: f64 = match text.split_once('/') {
        Some((above, below)) => {
            let (above, below): (f64, f64) = (number(above, is_not)?, number(below, is_not)?);
            above / below
        }
        None => number(text, is_not)?,
    };
    if scale.is_finite() {
        Ok(scale)
    } else {
        Err(format!("`{text}` is not {is_not}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn numbers_that_are_none_are_told_what_to_write() {
        assert_eq!(
            (replicas("5"), seed("0"), scale("0.5")),
            (Ok(5), Ok(0), Ok(0.5))
        );
        for text in ["-1", "abc", "", "0x5"] {
            let told = [replicas(text).err(), seed(text).err()];
            for told in told.map(Option::unwrap_or_default) {
                assert!(
                    told.contains(text) && told.contains("for example"),
                    "{told}"
                );
            }
        }
        assert!(replicas("0").is_err() && scale("half").is_err());
        assert_eq!((scale("1/8"), scale("1/1")), (Ok(0.125), Ok(1.0)));
        for wrong in ["1/", "/8", "1/0", "1/8/2", "a/b"] {
            assert!(
                scale(wrong).unwrap_err().contains("for example 1/8"),
                "{wrong}"
            );
        }
        // As text of a scenario it would be a word.
        assert!(scale("nan").is_err() && scale("inf").is_err());
        // TOML, in which a seed stands beside the results, has no larger one.
        assert!(seed("9223372036854775807").is_ok() && seed("9223372036854775808").is_err());
        let arguments = ["tidegate", "run", "dd", "--replicas", "-1"];
        let told = Arguments::try_parse_from(arguments)
            .unwrap_err()
            .to_string();
        assert!(told.contains("write 1 or more"), "{told}");
    }

    #[test]
    fn a_row_to_trace_after_a_space_is_told_where_it_belongs() {
        let words = ["tidegate", "run", "dd", "--trace", "8:100dd"].map(OsString::from);
        let told = Arguments::of(&words).unwrap_err().to_string();
        assert!(told.contains("write '--trace=8:100dd'"), "{told}");
        let words = ["tidegate", "run", "dd", "more"].map(OsString::from);
        let told = Arguments::of(&words).unwrap_err().to_string();
        assert!(!told.contains("trace"), "{told}");
    }

    #[test]
    fn a_size_below_zero_is_told_so() {
        let words = ["tidegate", "run", "dd", "--live", "x", "--memory", "-64MiB"];
        let told = Arguments::of(&words.map(OsString::from)).unwrap_err();
        let told = told.to_string();
        assert!(told.contains("write '--memory 64MiB'"), "{told}");
        assert!(!told.contains("'-- -6'"), "{told}");
    }

    #[test]
    fn a_mistyped_command_is_told_the_nearest() {
        for (word, near) in [("rnu", "run"), ("lsit", "list"), ("comprae", "compare")] {
            let words = ["tidegate", word].map(OsString::from);
            let told = Arguments::of(&words).unwrap_err().to_string();
            assert!(
                told.contains(&format!("'{near}' exists"))
                    || told.contains(&format!("exists: '{near}'")),
                "{told}"
            );
        }
        let words = ["tidegate", "xyzzy"].map(OsString::from);
        let told = Arguments::of(&words).unwrap_err().to_string();
        assert!(!told.contains("similar"), "{told}");
    }

    #[test]
    fn a_wrapper_needs_live_files() {
        let refused =
            Arguments::try_parse_from(["tidegate", "run", "dd", "--device", "slow:rate=1MB"]);
        assert!(refused.is_err());
    }
}
