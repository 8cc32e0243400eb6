//! The plan: which workers use memory and how, what is sampled, what is handed out. One item per
//! line.
//!
//! ```text
//! seconds 45                                    values vmstat /proc/vmstat 1 800
//! sample_ms 100                                 text buddyinfo /proc/buddyinfo 10 256
//! out /dev/vport0p1                             attach facts /facts
//! tracing /sys/kernel/tracing                   worker h0 hog 4096 5000 245
//! ```
//!
//! A series (`values` or `text`) has a name, a path, how many samples from one reading to the next,
//! and the KiB that are kept of it. A worker has a name, a kind, room for `calls` calls, the ms at
//! which it begins, and the arguments that `work::KINDS` lists.

use guest::{Common, Result, number};

use crate::work::{self, Arguments, Kind};

/// A plan, as the host wrote it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Time that workers run.
    pub(crate) seconds: u64,
    /// From one sample to the next.
    pub(crate) sample_ms: u64,
    pub(crate) common: Common,
    pub(crate) series: Vec<Series>,
    pub(crate) workers: Vec<Worker>,
}

/// A file to be read again and again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) path: String,
    /// Lines of `name value`, of which the names are kept once.
    pub(crate) values: bool,
    /// Read at each so-manieth sample.
    pub(crate) every: u64,
    /// Most that is kept, in KiB.
    pub(crate) kib: usize,
}

/// Somebody who uses memory.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    /// Most calls that are kept.
    pub(crate) calls_max: usize,
    pub(crate) start_ms: u64,
    pub(crate) arguments: Arguments,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// A line is not of a known form; the message has its number and what is wrong in it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut plan = Self::default();
        plan.common = Common::parse(text, |words| plan.take(words))?;
        let lacks = [
            ("seconds", plan.seconds == 0),
            ("sample_ms", plan.sample_ms == 0),
            ("out", plan.common.out.is_empty()),
            ("tracing", plan.common.tracing.is_empty()),
            ("a worker", plan.workers.is_empty()),
        ];
        match lacks.iter().find(|(_, lacks)| *lacks) {
            Some((what, _)) => Err(format!("the plan lacks {what}")),
            None => Ok(plan),
        }
    }

    fn take(&mut self, words: &[&str]) -> Result<()> {
        match *words {
            ["seconds", seconds] => self.seconds = number(seconds)?,
            ["sample_ms", ms] => self.sample_ms = number(ms)?,
            [form @ ("values" | "text"), name, path, every, kib] => self.series.push(Series {
                name: name.to_owned(),
                path: path.to_owned(),
                values: form == "values",
                every: number::<u64>(every)?.max(1),
                kib: number(kib)?,
            }),
            ["worker", name, kind, calls_max, start_ms, ref words @ ..] => {
                if self.workers.iter().any(|worker| worker.name == name) {
                    return Err(format!("there is a worker '{name}' already"));
                }
                let kind = work::kind(kind)?;
                self.workers.push(Worker {
                    name: name.to_owned(),
                    kind,
                    calls_max: number(calls_max)?,
                    start_ms: number(start_ms)?,
                    arguments: Arguments::parse(kind.arguments, words)?,
                });
            }
            _ => return Err("not a known item".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "seconds 45\nsample_ms 100\nout /o\ntracing /t\n";

    fn problem(lines: &str) -> String {
        Plan::parse(&format!("{HEAD}{lines}\n")).unwrap_err()
    }

    #[test]
    fn a_plan_is_read() {
        let text = format!(
            "{HEAD}\nvalues vmstat /proc/vmstat 1 800\ntext buddyinfo /proc/buddyinfo 10 256\nattach facts /facts\n\
             worker h0 hog 4096 5000 245\nworker w0 randwrite 8192 0 /dev/nullb0 1024 122 1024 0 10\n"
        );
        let plan = Plan::parse(&text).unwrap();
        assert_eq!((plan.seconds, plan.sample_ms), (45, 100));
        assert_eq!((&*plan.common.out, &*plan.common.tracing), ("/o", "/t"));
        assert!(plan.series[0].values && !plan.series[1].values);
        assert_eq!((plan.series[1].every, plan.series[1].kib), (10, 256));
        let [hog, writer] = &plan.workers[..] else {
            panic!("two workers");
        };
        assert_eq!((hog.kind.name, hog.start_ms), ("hog", 5000));
        assert_eq!(hog.arguments.number("MIB"), 245);
        assert_eq!((writer.calls_max, writer.start_ms), (8192, 0));
        assert_eq!(writer.arguments.word("PATH"), "/dev/nullb0");
        assert_eq!(writer.arguments.number("SEED"), 10);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let of_hog = problem("worker h0 hog 1 0 many");
        assert!(of_hog.contains("line 5") && of_hog.contains("MIB") && of_hog.contains("'many'"));
        assert!(problem("worker h0 hog 1 0").contains("MIB"));
        assert!(problem("worker h0 hog 1 0 5 6").contains("'6'"));
        let unknown = problem("worker h0 pig 1 0 5");
        assert!(
            unknown.contains("'pig'") && unknown.contains("hog"),
            "{unknown}"
        );
        assert!(problem("worker h0 hog x 0 5").contains("'x'"));
        assert!(problem("worker h hog 1 0 5\nworker h hog 1 0 5").contains("line 6"));
        assert!(problem("values vmstat /proc/vmstat 1").contains("known item"));
        assert!(problem("").contains("a worker"));
        assert!(
            Plan::parse("worker h hog 1 0 5\n")
                .unwrap_err()
                .contains("seconds")
        );
    }
}
