//! The plan: what to write where, what to sample, what to change when. One item per line.

use std::time::Duration;

use guest::{Common, Result, number};

/// A plan, as the host wrote it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Time that the writers run.
    pub(crate) length: Duration,
    pub(crate) common: Common,
    /// The devices, as `MAJOR:MINOR`: their counters are sampled.
    pub(crate) devices: Vec<String>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) changes: Vec<Change>,
}

/// Somebody who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) path: String,
    /// Where in the file it begins, in bytes.
    pub(crate) offset: u64,
    /// Length of one `write()`, in bytes.
    pub(crate) bytes: usize,
    /// Sleep after each.
    pub(crate) sleep: Duration,
    /// When it begins, from the first writer's start.
    pub(crate) start: Duration,
}

/// A command to be run at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) command: Vec<String>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// A line is not of a known form; the message has its number.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut plan = Self::default();
        plan.common = Common::parse(text, |words| plan.take(words))?;
        if plan.common.out.is_empty() || plan.writers.is_empty() || plan.length.is_zero() {
            return Err("the plan lacks out, seconds or a writer".to_owned());
        }
        Ok(plan)
    }

    fn take(&mut self, words: &[&str]) -> Result<()> {
        match *words {
            ["seconds", seconds] => self.length = Duration::from_secs(number(seconds)?),
            ["device", device] => self.devices.push(device.to_owned()),
            ["writer", path, offset, bytes, sleep_us, start_ms] => self.writers.push(Writer {
                path: path.to_owned(),
                offset: number(offset)?,
                bytes: number(bytes)?,
                sleep: Duration::from_micros(number(sleep_us)?),
                start: Duration::from_millis(number(start_ms)?),
            }),
            ["change", at_ms, ref command @ ..] if !command.is_empty() => {
                self.changes.push(Change {
                    at: Duration::from_millis(number(at_ms)?),
                    command: command.iter().map(|&word| word.to_owned()).collect(),
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

    #[test]
    fn a_plan_is_read() {
        let text =
            "seconds 60\nout /o\n\nwriter /d 4096 512 10000 15000\nchange 40000 devmem 0x10 32 8\n";
        let plan = Plan::parse(text).unwrap();
        assert_eq!(plan.length, Duration::from_secs(60));
        assert_eq!(plan.writers[0].offset, 4096);
        assert_eq!(plan.writers[0].sleep, Duration::from_millis(10));
        assert_eq!(plan.changes[0].command.len(), 4);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let problem = Plan::parse("seconds 60\nwriter /d x 1 1 1\n").unwrap_err();
        assert!(
            problem.contains("line 2") && problem.contains("'x'"),
            "{problem}"
        );
        assert!(Plan::parse("seconds 60\n").is_err());
    }
}
