//! The words of `tidegate replay`.

use std::path::PathBuf;

use clap::Args;
use replay::trace::Format;
use replay::{Asked, Size};

pub(crate) const EXAMPLES: &str = "\
Rules: lru, clock, 2q, arc, lirs, s3-fifo, w-tinylfu, reuse (ours), and belady, which knows the
future: no rule does better. Presets, as `tidegate list presets` has them, are replayed by the
cache itself: tidegate, linux-6.12, linux-6.12-mglru ...

Examples:
  tidegate replay requests.csv                  hits over size under three rules
  tidegate replay trace.txt --rule lru,linux-6.12,tidegate,belady --pages 4096,16384
  tidegate replay trace.txt --memory 64MiB,1GiB --readahead
  tidegate replay trace.txt --rule tidegate,linux-6.12 --device slow:latency=200us,rate=200MB
  tidegate replay *.u64.xz --pages 5%,15%,40% --json
  tidegate replay trace.txt --csv hits.csv --plot hits.svg
  blkparse -i sda | tidegate replay - --format blkparse
  tidegate replay year.u64.zst --sample 0.001         one page in a thousand, with its error

docs/study/replay.md says how to record a trace and how to read the results.

Exit status: 0 on success; 2 for a mistake in the command line or a trace, or a file that cannot be
written; 130 if interrupted.";

/// Arguments of `replay`.
#[derive(Args, Debug)]
pub struct ReplayArguments {
    /// Files of accesses, plain or packed by gzip, xz or zstd; `-` is standard input
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Rules and presets to replay under
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "lru,tidegate,belady"
    )]
    rule: Vec<String>,
    /// Sizes of memory: pages of 4 KiB, or per cent of those of the trace
    #[arg(long, value_name = "N|P%", value_delimiter = ',', value_parser = Size::of_pages)]
    pages: Vec<Size>,
    /// Sizes of memory in bytes, for example 64MiB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = Size::of_bytes)]
    memory: Vec<Size>,
    /// The part of a trace's pages that is replayed, for example 0.01: its sizes are scaled, its
    /// error is shown [default: all, or what there is memory for]
    #[arg(long, value_name = "RATE", value_parser = replay::rate)]
    sample: Option<f64>,
    /// Memory for traces and their replays, for example 2GiB: a trace that needs more is sampled
    /// [default: half of what is left]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    trace_memory: Option<u64>,
    /// Presets read ahead, which other rules never do
    #[arg(long)]
    readahead: bool,
    /// Layers that make the device of presets take time: their seconds and stalls are shown, too
    #[arg(long, value_name = "LAYERS")]
    device: Option<String>,
    /// Format of the files, whatever their names: u64, numbers, oracle-general, msr, blkparse,
    /// perf
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    format: Option<Format>,
    /// Print JSON for a program
    #[arg(long)]
    json: bool,
    /// Write the rows to a file, too
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw hits over size into a file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn bytes(text: &str) -> Result<u64, String> {
    figures::size_above_zero(text).map_err(|error| error.to_string())
}

impl ReplayArguments {
    /// The words as the crate of `replay` takes them.
    pub(crate) fn asked(self) -> Asked {
        Asked {
            traces: self.traces,
            format: self.format,
            rules: self.rule,
            own: Vec::new(),
            sample: self.sample,
            draw: 0,
            memory: self.trace_memory,
            sizes: [self.pages, self.memory].concat(),
            readahead: self.readahead,
            device: self.device,
            json: self.json,
            csv: self.csv,
            plot: self.plot,
        }
    }
}
