//! The best constant guess: what somebody would say who knows limits, rates and times, but no law.
//!
//! | figure | guess |
//! |---|---|
//! | throughput | a fixed share of the devices' rates |
//! | level | a fixed share of the dirty limit, of the background limit or of the middle between them, whichever is best |
//! | pauses: count | a fixed number per second of a heavy writer |
//! | pauses: median | a fixed length |
//! | pauses: sum | a fixed share of the heavy writers' time |
//!
//! The share is the one with the least mean error over the recordings at hand, so it is fitted to
//! them: the lab, which is not, has to be twice as good.

use super::setting::Setting;

/// A guess: for which figure, a share of what in words, and that in numbers.
struct Guess {
    figure: &'static str,
    of: &'static str,
    scale: fn(&Setting) -> f64,
}

const fn guess(figure: &'static str, of: &'static str, scale: fn(&Setting) -> f64) -> Guess {
    Guess { figure, of, scale }
}

const GUESSES: [Guess; 7] = [
    guess("throughput", "of the devices' rates", rates),
    guess("level", "of the dirty limit", |s| strict(s) * s.dirty_mib),
    guess("level", "of the background limit", |s| {
        strict(s) * s.background_mib
    }),
    guess("level", "of the middle of both limits", |s| {
        strict(s) * f64::midpoint(s.dirty_mib, s.background_mib)
    }),
    guess("pauses: count", "per second of a heavy writer", heavy_time),
    guess("pauses: median", "ms", |_| 1.0),
    guess("pauses: sum", "of the heavy writers' time", heavy_time),
];

/// Names of the figures that are judged over recordings, in order.
pub const JUDGED: [&str; 5] = [
    "throughput",
    "level",
    "pauses: count",
    "pauses: median",
    "pauses: sum",
];

/// MiB/s that the devices could do, over the time of the recording.
fn rates(setting: &Setting) -> f64 {
    let mean = |(index, rate): (usize, &f64)| {
        let mut changes: Vec<_> = setting
            .changes
            .iter()
            .filter(|c| c.device == index)
            .collect();
        changes.sort_by(|left, right| left.at_s.total_cmp(&right.at_s));
        let (mut sum, mut now, mut from) = (0.0, *rate, 0.0);
        for change in changes {
            let at = change.at_s.min(setting.seconds);
            sum += now * (at - from);
            (now, from) = (change.rate, at);
        }
        (sum + now * (setting.seconds - from)) / setting.seconds
    };
    setting.devices.iter().enumerate().map(mean).sum()
}

/// The memory that a strict limit leaves to the others.
fn strict(setting: &Setting) -> f64 {
    setting.max_ratio.map_or(1.0, |ratio| ratio / 100.0)
}

fn heavy_time(setting: &Setting) -> f64 {
    let heavy = setting.writers.iter().filter(|writer| writer.is_heavy());
    heavy.map(|writer| setting.seconds - writer.start_s).sum()
}

/// A guess that was fitted.
pub struct Fitted {
    /// A share of what.
    pub of: &'static str,
    /// The best share.
    pub share: f64,
    /// Mean of |error|, as a part.
    pub error: f64,
}

/// A recorded value, what a share is multiplied by, and what its error is a part of.
pub(super) struct Point {
    pub(super) scale: f64,
    pub(super) value: f64,
    pub(super) unit: f64,
}

/// The share with the least mean error, and that error.
pub(super) fn best_share(points: &[Point]) -> Option<(f64, f64)> {
    // The sum of absolute errors is least where one of them is zero.
    let shares = points.iter().map(|point| point.value / point.scale);
    let errors = shares.filter_map(|share| {
        let error = |point: &Point| ((share * point.scale - point.value) / point.unit).abs();
        Some((share, mean(points.iter().map(error))?))
    });
    errors.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The best constant for the figure of that name over (setting, recorded value).
#[must_use]
pub fn best(figure: &str, recorded: &[(&Setting, f64)]) -> Option<Fitted> {
    let mut best: Option<Fitted> = None;
    for guess in GUESSES.iter().filter(|guess| guess.figure == figure) {
        let points: Vec<Point> = recorded
            .iter()
            .map(|(setting, value)| Point {
                scale: (guess.scale)(setting),
                value: *value,
                unit: *value,
            })
            .filter(|point| point.scale > 0.0 && point.value > 0.0)
            .collect();
        let Some((share, error)) = best_share(&points) else {
            continue;
        };
        if best.as_ref().is_none_or(|best| error < best.error) {
            best = Some(Fitted {
                of: guess.of,
                share,
                error,
            });
        }
    }
    best
}

/// The mean; `None` of nothing.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::setting;

    #[test]
    fn the_best_share_has_the_least_error() {
        let mut settings = vec![setting(); 3];
        settings[1].dirty_mib = 200.0;
        settings[2].dirty_mib = 400.0;
        let values = [58.0, 180.0, 400.0];
        let recorded: Vec<(&Setting, f64)> = settings.iter().zip(values).collect();
        let level = best("level", &recorded).unwrap();
        assert_eq!((level.of, level.share), ("of the dirty limit", 58.0 / 64.0));
        let by_hand = ((180.0 - 181.25) / 180.0_f64).abs() + (400.0 - 362.5) / 400.0;
        assert!(
            (level.error - by_hand / 3.0).abs() < 1e-12,
            "{}",
            level.error
        );
        assert!(best("level", &[]).is_none());
    }

    #[test]
    fn rates_are_of_the_whole_time() {
        let mut setting = setting();
        setting.seconds = 80.0;
        setting.changes.push(crate::setting::RateChange {
            device: 0,
            at_s: 60.0,
            rate: 4.0,
        });
        assert_eq!(rates(&setting), (16.0 * 60.0 + 4.0 * 20.0) / 80.0);
    }
}
