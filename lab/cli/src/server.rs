//! `serve`, `top`, `hold` and `demo`: the words of the command line for the server's crate, and
//! how they end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serve::config::{Asked, ConfigError};
use serve::log::Format;
use serve::run::ServeError;

use report::status::{FAILED, MISTAKE};
use report::terminal;

/// Examples below `tidegate serve --help`.
pub(crate) const SERVE_EXAMPLES: &str = "\
Volumes are NAME=BACKEND[,OPTION..]. Backends:
  PATH                       an existing file or block device
  new:PATH,size=10GiB        a sparse file, created if missing
  dir:PATH,size=1TiB         objects of one size in a folder
  mem:,size=1GiB             kept in memory alone, lost when the server ends
  s3://BUCKET/PREFIX         objects in S3 or a store that speaks its protocol (feature s3)
Options: ro; size=SIZE; on_error=retry|report|stop (what clients get while writes to the
backend fail); dirty_min=10%, dirty_max=50% (its share of the dirty limit); description=TEXT;
durable=true (each write, before its reply); clients=laptop+backup:ro (who may open it, by
certificate); unlocked=true (no lock on the file);
block_min=512B, block_preferred=4KiB; object_size=1MiB, parallel=8, force=true (objects);
and last, for trials, device=slow:rate=16MB,latency=2ms (layers around the device, as `tidegate run
--device` has them).

Examples:
  tidegate serve                                        an embedded volume, and how to connect to it
  tidegate serve data=new:/srv/data.img,size=10GiB
  tidegate serve --memory 4GiB --listen unix:/run/t.sock disk=/dev/vdb iso=/srv/cd.iso,ro
  tidegate serve --listen tcp:0.0.0.0:10809 --tls-certificate s.pem --tls-key s.key data=/srv/d.img
  tidegate serve --config /etc/tidegate.toml            the same words as keys; HUP reads it again
  tidegate serve --check --config /etc/tidegate.toml    is it right? before a start or a HUP

Signals: TERM, INT: finish requests, write everything back (progress every second), then exit; a
second one exits at once and says what is lost. HUP: read --config and the sizes of backings again.
USR1 and USR2 are ignored.

Exit status: 0 if everything is durable; 1 if something could not be made durable; 2 for a mistake
or a missing file; 130 if a second signal ended it.";

/// Examples below `tidegate top --help`.
pub(crate) const TOP_EXAMPLES: &str = "\
Examples:
  tidegate top                       the server of this machine
  tidegate top 127.0.0.1:4321        one whose page is elsewhere (serve --web)
  tidegate top --once | head         a reading as plain text

Exit status: 0 on success; 1 if the server does not answer; 2 for a mistake in the command line.";

/// Examples below `tidegate hold --help`.
pub(crate) const HOLD_EXAMPLES: &str = "\
Examples:
  tidegate hold data -- lvcreate -s -n data-copy -L 5G vg0/data
  tidegate hold data -- cp --reflink=always /srv/data.img /srv/data-copy.img
  tidegate hold data --time 30s      until then, or Ctrl-C; other programs see `held`

While it is held, all that clients were answered is on its backing, and requests that would change
it wait; reads go on. Clients give up after 30 s (docs/serve/back-up.md).

Exit status: that of the command; 1 if the volume cannot be held, or its time was over before the
command ended; 2 for a mistake in the command line.";

/// Examples below `tidegate demo --help`.
pub(crate) const DEMO_EXAMPLES: &str = "\
Examples:
  tidegate demo                      all parts, and the plot in this folder
  tidegate demo --seconds 30 --out /tmp/demo
  tidegate demo map                  a mapped file on a slow disk, the kernel's map and ours (root)

Exit status: 0 if all parts ran; 1 if one could not, or its plot cannot be written; 2 for a mistake
in the command line; 130 if interrupted.";

/// Examples below `tidegate demo map --help`.
const DEMO_MAP_EXAMPLES: &str = "\
Examples:
  sudo tidegate demo map                 both sides, a minute
  sudo tidegate demo map --seconds 60

It needs root: the disk is a loop device over a temporary file of 256 MiB, held to 4 MB/s by a
control group (blkio of version 1, io of version 2), and the kernel's map is in a memory group of
its own. All of it is taken back at the end; Ctrl-C ends it within some seconds.

Exit status: 0 if both sides ran; 1 if one could not; 2 for a mistake in the command line; 130 if
interrupted.";

/// Arguments of `serve`: those that the server's crate has, and the few that are the program's own.
#[derive(Clone, Debug, Default)]
pub struct ServeArguments {
    /// The words as the server's crate takes them.
    pub asked: Asked,
    /// Nothing is to be served.
    pub check: bool,
}

impl Args for ServeArguments {
    fn augment_args(command: Command) -> Command {
        let own = ServeOwn::augment_args(command);
        serve::config::arguments().fold(own, |command, argument| {
            let arg = Arg::new(argument.name)
                .long(argument.name)
                .help(argument.help);
            let arg = match argument.name {
                "no-web" => arg.conflicts_with("web"),
                "tls-certificate" => arg.visible_alias("tls-cert").requires("tls-key"),
                name if name.starts_with("tls-") => arg.requires("tls-certificate"),
                _ => arg,
            };
            command.arg(match argument.value.starts_with('=') {
                true => arg.action(ArgAction::SetTrue),
                false => arg.value_name(argument.value),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let own = ServeOwn::from_arg_matches(matches)?;
        let values = serve::config::arguments().filter_map(|argument| {
            let value = match argument.value.strip_prefix('=') {
                Some(sets) => matches.get_flag(argument.name).then(|| sets.to_owned()),
                None => matches.get_one(argument.name).cloned(),
            };
            Some((argument.key.to_owned(), value?))
        });
        let asked = Asked {
            file: own.config,
            volumes: own.volumes,
            listen: own.listen,
            values: values.collect(),
        };
        let check = own.check;
        Ok(Self { asked, check })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Arguments that are no options of the server.
#[derive(Args)]
struct ServeOwn {
    /// Volumes; without one: 10 GiB in the user's state folder, named `default`
    #[arg(value_name = "NAME=BACKEND")]
    volumes: Vec<String>,
    /// Read options and volumes from a file too; the command line takes precedence
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Check the options, the certificates and the backings, then exit without serving
    #[arg(long)]
    check: bool,
    /// Take connections there; may be repeated [default: a Unix socket of this user]
    #[arg(long, value_name = "unix:PATH|tcp:ADDRESS:PORT")]
    listen: Vec<String>,
}

/// Arguments of `top`.
#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// Address of the server's page
    #[arg(value_name = "ADDRESS:PORT", default_value = serve::top::DEFAULT_ADDRESS)]
    pub address: String,
    /// Print one reading and exit
    #[arg(long)]
    pub once: bool,
}

/// Watches a server in the terminal. Answers the exit status.
pub(crate) fn top(arguments: &TopArguments) -> u8 {
    let options = serve::top::TopOptions {
        address: arguments.address.clone(),
        once: arguments.once,
    };
    match serve::top::run(&options) {
        Ok(()) => 0,
        Err(error) => {
            terminal::complain(&format!("tidegate: {error}"));
            error.status()
        }
    }
}

/// Arguments of `hold`.
#[derive(Args, Clone, Debug)]
pub struct HoldArguments {
    /// Name of the volume
    pub volume: String,
    /// Control socket of the server (serve --control)
    #[arg(long, value_name = "PATH", default_value = serve::hold::DEFAULT_SOCKET)]
    pub control: PathBuf,
    /// Longest time that it may be held
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = figures::time_above_zero)]
    pub time: Duration,
    /// The command and its arguments, behind `--`
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Holds a volume while a command runs. Answers the exit status.
pub(crate) fn hold(arguments: &HoldArguments) -> u8 {
    let HoldArguments {
        volume,
        control,
        time,
        command,
    } = arguments;
    let held = serve::hold::run(control, volume, *time, command, || {
        terminal::print("held\n");
    });
    match held {
        // Ended by a signal: as a shell has it, nothing that is a success.
        Ok(Some(status)) => status
            .code()
            .map_or(FAILED, |code| u8::try_from(code).unwrap_or(FAILED)),
        Ok(None) => 0,
        Err(error) => {
            terminal::complain(&format!("tidegate: {error}"));
            FAILED
        }
    }
}

/// Arguments of `demo`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArguments {
    /// Another one than that of the server.
    #[command(subcommand)]
    pub of: Option<DemoOf>,
    /// Folder for the plot, created if missing, instead of the current one
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seconds of each part.
    #[arg(
        long,
        value_name = "N",
        default_value_t = serve::demo::DemoOptions::default().seconds,
        help = format!("Seconds of each part, {} to {}", serve::demo::SECONDS.start(), serve::demo::SECONDS.end())
    )]
    pub seconds: u64,
}

/// The other demonstrations.
#[derive(Subcommand, Clone, Debug)]
pub enum DemoOf {
    /// See in a minute what a limit and pacing do to a mapped file, beside the kernel's map
    #[command(after_help = DEMO_MAP_EXAMPLES)]
    Map {
        #[arg(
            long,
            value_name = "N",
            default_value_t = serve::demo::map::DEFAULT,
            help = format!("Seconds of each side, {} to {}", serve::demo::map::SECONDS.start(), serve::demo::map::SECONDS.end())
        )]
        seconds: u64,
    },
}

/// Shows what pacing does. Answers the exit status.
pub(crate) fn demo(arguments: &DemoArguments) -> u8 {
    let ran = match arguments.of {
        Some(DemoOf::Map { seconds }) => serve::demo::map::run(seconds),
        None => serve::demo::run(&serve::demo::DemoOptions {
            out: arguments.out.clone(),
            seconds: arguments.seconds,
        }),
    };
    match ran {
        Ok(()) => 0,
        Err(error) => {
            terminal::complain(&format!("tidegate: {error}"));
            error.status()
        }
    }
}

/// Serves until a signal ends it. Answers the exit status.
pub(crate) fn serve(arguments: &ServeArguments) -> u8 {
    let mut format = match arguments.asked.values.get("log_format").map(String::as_str) {
        Some("json") => Format::Json,
        _ => Format::Logfmt,
    };
    let ended = match arguments.asked.config() {
        Ok(config) if arguments.check => {
            let (told, is_right) = serve::run::check(&config);
            if is_right {
                terminal::print(&told);
            } else {
                terminal::complain(told.trim_end());
            }
            return u8::from(!is_right) * MISTAKE;
        }
        Ok(config) => {
            format = config.log_format;
            serve::run::run(config)
        }
        Err(error) => Err(ServeError::from(error)),
    };
    match ended {
        Ok(()) => 0,
        Err(error) => {
            match &error {
                error if error.tell(format) => {}
                ServeError::Config(ConfigError::Mistakes(mistakes)) => {
                    terminal::complain(&mistakes.render(terminal::colour()));
                }
                error => terminal::complain(&format!("tidegate: {error}")),
            }
            error.status()
        }
    }
}
