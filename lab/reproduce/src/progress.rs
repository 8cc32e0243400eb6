//! The progress of a run: a bar with the time that is left on a terminal, a line for each
//! experiment elsewhere.
//!
//! The estimate begins with what the experiments say that they took once (`[reproduce] seconds`),
//! and is corrected by what the runs so far took here.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::board::{Part, Verdict};
use super::plan::Planned;
use experiment::outcome::Outcome;
use experiment::run::{Order, RunError};
use report::terminal;

/// Part of the work after which the runs so far are believed.
const BELIEVED: f64 = 0.05;

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    parts: usize,
    cores: f64,
    times: Mutex<Times>,
}

/// Of one core, s.
struct Times {
    estimate: f64,
    estimate_done: f64,
    taken: f64,
}

impl Times {
    /// The time that is left, on `cores` cores.
    fn left(&self, cores: f64) -> f64 {
        let mut left = self.estimate - self.estimate_done;
        if self.estimate_done > BELIEVED * self.estimate {
            left *= self.taken / self.estimate_done;
        }
        left.max(0.0) / cores
    }
}

impl Progress {
    pub(super) fn new(planned: &[Planned], to_run: &[usize], workers: usize) -> Self {
        let runs: usize = to_run.iter().map(|at| planned[*at].orders.len()).sum();
        let estimate = to_run.iter().map(|at| planned[*at].seconds).sum();
        #[expect(clippy::cast_precision_loss, reason = "a count of cores")]
        let cores = workers.max(1) as f64;
        let times = Times {
            estimate,
            estimate_done: 0.0,
            taken: 0.0,
        };
        let kept = planned.len() - to_run.len();
        if kept > 0 {
            let left = if to_run.is_empty() {
                "nothing is left to be run"
            } else {
                "the others are run now"
            };
            terminal::complain(&format!(
                "{kept} of {} experiments are there from an earlier run; {left}",
                planned.len()
            ));
        }
        if runs > 0 {
            let one = if workers == 1 { "core" } else { "cores" };
            terminal::complain(&format!(
                "{runs} runs of {} experiments on {workers} {one}: about {}",
                to_run.len(),
                length(times.left(cores))
            ));
        }
        let bar = (runs > 0 && terminal::is_watched()).then(|| {
            let bar = ProgressBar::new(runs as u64);
            let template = "{bar:20} {pos}/{len}  {msg}";
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            bar,
            parts: to_run.len(),
            cores,
            times: Mutex::new(times),
        }
    }

    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn began(&self, planned: &Planned, order: &Order) {
        if let Some(bar) = &self.bar {
            let left = length(self.times().left(self.cores));
            bar.set_message(format!("{left} left  {}", planned.run_name(order)));
        }
    }

    pub(super) fn ended(
        &self,
        planned: &Planned,
        order: &Order,
        result: &Result<Outcome, RunError>,
    ) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        match result {
            Ok(outcome) => {
                let mut times = self.times();
                times.estimate_done += planned.a_run();
                times.taken += outcome.wall_s;
            }
            Err(RunError::Interrupted) => {}
            Err(error) => self.say(&format!("{}: failed: {error}", planned.run_name(order))),
        }
    }

    /// An experiment has been judged and written.
    pub(super) fn part(&self, number: usize, part: &Part) {
        let judged = part.published();
        let judged = judged
            .filter(|claim| claim.verdict != Verdict::NotRun)
            .count();
        let holds = part.published();
        let holds = holds
            .filter(|claim| claim.verdict == Verdict::Holds)
            .count();
        let left = length(self.times().left(self.cores));
        self.say(&format!(
            "[{number}/{}] {} {}: {holds} of {judged} claims hold; {left} left",
            self.parts, part.paper, part.experiment
        ));
    }

    fn say(&self, line: &str) {
        match &self.bar {
            // Above the bar, which stays.
            Some(bar) => bar.println(line),
            None => terminal::complain(line),
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A length of time as people say it.
fn length(seconds: f64) -> String {
    let tens = (seconds / 10.0).ceil() * 10.0;
    if tens < 90.0 {
        format!("{tens:.0} s")
    } else {
        format!("{:.1} min", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_was_taken() {
        let mut times = Times {
            estimate: 100.0,
            estimate_done: 0.0,
            taken: 0.0,
        };
        assert_eq!(times.left(2.0), 50.0);
        // A machine of half the speed.
        (times.estimate_done, times.taken) = (50.0, 100.0);
        assert_eq!(times.left(2.0), 50.0);
    }

    #[test]
    fn lengths_are_said_as_people_do() {
        assert_eq!(length(41.0), "50 s");
        assert_eq!(length(100.0), "1.7 min");
    }
}
