//! `serve`, `top` and `demo`: the words of the command line for the server's crate, and how they
//! end.

use std::path::PathBuf;

use clap::Args;
use serve::config::{Asked, ConfigError};
use serve::log::Format;
use serve::run::ServeError;

use report::status::MISTAKE;
use report::terminal;

/// Examples below `tidegate serve --help`.
pub(crate) const SERVE_EXAMPLES: &str = "\
Volumes are NAME=BACKEND[,OPTION..]. Backends:
  PATH                       an existing file or block device
  new:PATH,size=10GiB        a sparse file, created if missing
  dir:PATH,size=1TiB         objects of one size in a folder
  mem:,size=1GiB             kept in memory alone, lost when the server ends
  s3://BUCKET/PREFIX         objects in S3 or a store that speaks its protocol (feature s3)
Options: ro; size=SIZE; policy=retry|report|stop (what clients get while writes to the backend
fail); dirty_min=10%, dirty_max=50% (its share of the dirty limit); description=TEXT;
durable=true (each write, before its reply); unlocked=true (no lock on the file);
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

/// Examples below `tidegate demo --help`.
pub(crate) const DEMO_EXAMPLES: &str = "\
Examples:
  tidegate demo                      all parts, and the plot in this folder
  tidegate demo --seconds 30 --out /tmp/demo

Exit status: 0 if all parts ran; 1 if one could not, or its plot cannot be written; 2 for a mistake
in the command line; 130 if interrupted.";

/// Arguments of `serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArguments {
    /// Volumes; without one: 10 GiB in the user's state folder, named `default`
    #[arg(value_name = "NAME=BACKEND")]
    pub volumes: Vec<String>,
    /// Read options and volumes from a file too; the command line takes precedence
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Check the options, the certificates and the backings, then exit without serving
    #[arg(long)]
    pub check: bool,
    /// Memory limit of the whole process [default: 1GiB, or 3/4 of what the control group allows]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Take connections there; may be repeated [default: a Unix socket of this user]
    #[arg(long, value_name = "unix:PATH|tcp:ADDRESS:PORT")]
    pub listen: Vec<String>,
    /// Permissions of Unix sockets [default: 0600]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<String>,
    /// Metrics and the live page [default: 127.0.0.1:9321, or a free port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub web: Option<String>,
    /// Neither metrics nor a live page
    #[arg(long, conflicts_with = "web")]
    pub no_web: bool,
    /// Encrypt: the server's certificate and its chain (PEM)
    #[arg(
        long,
        visible_alias = "tls-cert",
        value_name = "FILE",
        requires = "tls_key"
    )]
    pub tls_certificate: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<String>,
    /// Clients need a certificate that one of these authorities signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_clients: Option<String>,
    /// Clients may go without encryption
    #[arg(long, requires = "tls_certificate")]
    pub tls_optional: bool,
    /// Dirty data above which writers are held back: a share of the cache or a size [default: 20%]
    #[arg(long, value_name = "SHARE|SIZE")]
    pub dirty: Option<String>,
    /// Dirty data above which writeback begins [default: a sixteenth of --dirty]
    #[arg(long, value_name = "SHARE|SIZE")]
    pub background: Option<String>,
    /// Connections at one time [default: 1024]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<String>,
    /// Requests in flight on a connection [default: 128]
    #[arg(long, value_name = "N")]
    pub max_requests: Option<String>,
    /// Largest request [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    pub max_request_size: Option<String>,
    /// Time that a client has for its handshake [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub handshake_timeout: Option<String>,
    /// A request that takes longer is logged, with its client [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub slow_request: Option<String>,
    /// Do not hold writers back: the memory limit alone does (for comparisons)
    #[arg(long)]
    pub unpaced: bool,
    /// Do not use io_uring
    #[arg(long)]
    pub no_io_uring: bool,
    /// Memory nodes to allocate from: one, system [default: one]
    #[arg(long, value_name = "NODES")]
    pub nodes: Option<String>,
    /// Rule that picks the page to evict when memory is full: lists, reuse, lirs, s3-fifo, mru
    /// [default: lists]
    #[arg(long, value_name = "RULE")]
    pub page_rule: Option<String>,
    /// Record the requests of clients, for `tidegate replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<String>,
    /// Maximum size of that file [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub record_limit: Option<String>,
    /// Lowest severity that is logged: error, warn, info, debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Format of log lines: logfmt, json [default: logfmt]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

impl ServeArguments {
    /// The words as the server's crate takes them.
    #[must_use]
    pub fn asked(&self) -> Asked {
        let mut asked = Asked {
            file: self.config.clone(),
            volumes: self.volumes.clone(),
            listen: self.listen.clone(),
            ..Asked::default()
        };
        let off = |given: bool, value: &str| given.then(|| value.to_owned());
        let values = [
            ("memory", self.memory.clone()),
            ("socket_mode", self.socket_mode.clone()),
            ("web", self.web.clone().or(off(self.no_web, "off"))),
            ("tls.certificate", self.tls_certificate.clone()),
            ("tls.key", self.tls_key.clone()),
            ("tls.clients", self.tls_clients.clone()),
            ("tls.required", off(self.tls_optional, "false")),
            ("dirty", self.dirty.clone()),
            ("background", self.background.clone()),
            ("max_connections", self.max_connections.clone()),
            ("max_requests", self.max_requests.clone()),
            ("max_request_size", self.max_request_size.clone()),
            ("handshake_timeout", self.handshake_timeout.clone()),
            ("slow_request", self.slow_request.clone()),
            ("paced", off(self.unpaced, "false")),
            ("io_uring", off(self.no_io_uring, "false")),
            ("nodes", self.nodes.clone()),
            ("page_rule", self.page_rule.clone()),
            ("record", self.record.clone()),
            ("record_limit", self.record_limit.clone()),
            ("log", self.log.clone()),
            ("log_format", self.log_format.clone()),
        ];
        for (key, value) in values {
            if let Some(value) = value {
                asked.values.insert(key.to_owned(), value);
            }
        }
        asked
    }
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

/// Arguments of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
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

/// Shows what pacing does. Answers the exit status.
pub(crate) fn demo(arguments: &DemoArguments) -> u8 {
    let options = serve::demo::DemoOptions {
        out: arguments.out.clone(),
        seconds: arguments.seconds,
    };
    match serve::demo::run(&options) {
        Ok(()) => 0,
        Err(error) => {
            terminal::complain(&format!("tidegate: {error}"));
            error.status()
        }
    }
}

/// Serves until a signal ends it. Answers the exit status.
pub(crate) fn serve(arguments: &ServeArguments) -> u8 {
    let mut format = match arguments.log_format.as_deref() {
        Some("json") => Format::Json,
        _ => Format::Logfmt,
    };
    let ended = match arguments.asked().config() {
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
