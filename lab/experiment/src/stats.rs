//! The statistics of mmtests, exactly: means, deviations, floor percentiles, the percentage and the
//! star of a comparison.
//!
//! Vocabulary: samples are *preference sorted*: best first, so ascending where lower is better and
//! descending where higher is better. A percentile is element `floor(n * P / 100)` of that list,
//! counted from 1, at least 1, without interpolation: 90 % of the samples are at least as good as
//! `Max-90`. A `BAmean-P` is the mean of that many best samples.
//!
//! A comparison's percentage is positive when the new value is better. A star marks a mean whose
//! two-sided t-test has p < 0.10, with the standard error of unequal variances and the pooled
//! degrees of freedom n1 + n2 - 2 (mmtests 2018-2024).
//!
//! Deviations: with fewer than two samples on a side there is no test and never a star. The
//! harmonic mean of values one of which is zero is zero; mmtests prints -1.
//!
//! Source: experiments B6 (gormanm/mmtests at Oct 2021).

use std::f64::consts::PI;

/// A difference is starred below this probability.
const SIGNIFICANT: f64 = 0.10;

/// Which values of a metric are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, counts of bad things, sizes.
    Lower,
    /// Rates.
    Higher,
}

impl Better {
    /// Word in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
        }
    }
}

/// One row of a table: how it is called and computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Best sample.
    Min,
    /// Arithmetic mean (lower is better) or harmonic mean (higher is better).
    Mean,
    /// Sample standard deviation, divisor n-1.
    Stddev,
    /// 100 x Stddev / mean.
    CoeffVar,
    /// Percentile of the preference-sorted samples.
    Max(u8),
    /// Worst sample.
    Worst,
    /// Mean of the best P per cent.
    BestMean(u8),
}

impl Stat {
    /// Name in the first column; depends on the direction for means.
    #[must_use]
    pub fn label(self, better: Better) -> String {
        let letter = match better {
            Better::Lower => 'A',
            Better::Higher => 'H',
        };
        match self {
            Self::Min => "Min".into(),
            Self::Mean => format!("{letter}mean"),
            Self::Stddev => "Stddev".into(),
            Self::CoeffVar => "CoeffVar".into(),
            Self::Max(percent) => format!("Max-{percent}"),
            Self::Worst => "Max".into(),
            Self::BestMean(percent) => format!("B{letter}mean-{percent}"),
        }
    }

    /// Direction in which this row's percentage is counted.
    #[must_use]
    pub fn direction(self, better: Better) -> Better {
        match self {
            Self::Stddev | Self::CoeffVar => Better::Lower,
            _ => better,
        }
    }
}

/// Samples of one operation, preference sorted.
#[derive(Clone, Debug)]
pub struct Samples {
    sorted: Vec<f64>,
    better: Better,
}

impl Samples {
    /// Takes all samples of all iterations; NaNs are left out.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = f64>, better: Better) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        if better == Better::Higher {
            sorted.reverse();
        }
        Self { sorted, better }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Which values are good.
    #[must_use]
    pub fn better(&self) -> Better {
        self.better
    }

    /// The value of one row; `None` without samples, NaN where the statistic is undefined.
    #[must_use]
    pub fn value(&self, stat: Stat) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let n = self.len();
        Some(match stat {
            Stat::Min => self.sorted[0].min(self.sorted[n - 1]),
            Stat::Worst => self.sorted[0].max(self.sorted[n - 1]),
            Stat::Mean => match self.better {
                Better::Lower => amean(&self.sorted),
                Better::Higher => hmean(&self.sorted),
            },
            Stat::Stddev => self.stddev(),
            Stat::CoeffVar => 100.0 * self.stddev() / amean(&self.sorted),
            Stat::Max(percent) => self.sorted[rank(n, percent) - 1],
            Stat::BestMean(percent) => {
                let best = &self.sorted[..rank(n, percent)];
                match self.better {
                    Better::Lower => amean(best),
                    Better::Higher => hmean(best),
                }
            }
        })
    }

    /// Arithmetic mean, whatever the direction; NaN without samples.
    #[must_use]
    pub fn amean(&self) -> f64 {
        amean(&self.sorted)
    }

    /// Sample standard deviation; NaN with fewer than two samples.
    #[must_use]
    pub fn stddev(&self) -> f64 {
        if self.len() < 2 {
            return f64::NAN;
        }
        let mean = amean(&self.sorted);
        let squares: f64 = self.sorted.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count(self.len()) - 1.0)).sqrt()
    }

    /// Two-sided p of the difference of the arithmetic means; `None` when either side has fewer
    /// than two samples. Without any variance every difference is certain.
    #[must_use]
    pub fn p_value(&self, base: &Self) -> Option<f64> {
        let (n1, n2) = (count(base.len()), count(self.len()));
        if n1 < 2.0 || n2 < 2.0 {
            return None;
        }
        let difference = (self.amean() - base.amean()).abs();
        let error = (base.stddev().powi(2) / n1 + self.stddev().powi(2) / n2).sqrt();
        if error == 0.0 {
            return Some(if difference == 0.0 { 1.0 } else { 0.0 });
        }
        let degrees = base.len() + self.len() - 2;
        Some(two_sided(difference / error, degrees))
    }

    /// True if the difference gets a star.
    #[must_use]
    pub fn is_significant(&self, base: &Self) -> bool {
        self.p_value(base).is_some_and(|p| p < SIGNIFICANT)
    }
}

/// Probability that Student's t with `degrees` degrees of freedom is at least `t` from zero.
///
/// # Source
/// Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: for a whole number
/// of degrees the integral is a finite series of positive terms.
fn two_sided(t: f64, degrees: usize) -> f64 {
    let (n, odd) = (count(degrees), degrees % 2);
    let cos2 = n / (n + t * t);
    let (mut term, mut sum) = (if odd == 1 { cos2.sqrt() } else { 1.0 }, 0.0);
    for k in (odd + 2..=degrees).step_by(2) {
        sum += term;
        term *= cos2 * (1.0 - 1.0 / count(k));
    }
    let inside = t / (n + t * t).sqrt() * sum;
    match odd {
        1 => 1.0 - ((t / n.sqrt()).atan() + inside) * 2.0 / PI,
        _ => 1.0 - inside,
    }
}

/// The percentage in brackets: positive is better.
#[must_use]
pub fn percent(base: f64, new: f64, better: Better) -> f64 {
    #[expect(
        clippy::float_cmp,
        reason = "the special cases of the tool are exact equality"
    )]
    if base == new {
        return 0.0;
    }
    match better {
        Better::Lower if new == 0.0 => 100.0,
        Better::Lower if base == 0.0 => -99.0,
        Better::Lower => 100.0 - 100.0 * new / base,
        Better::Higher if new == 0.0 => 0.0,
        Better::Higher if base == 0.0 => 100.0,
        Better::Higher => 100.0 * new / base - 100.0,
    }
}

/// Number of samples that make up the best `percent`: floor, at least one.
fn rank(n: usize, percent: u8) -> usize {
    (n * usize::from(percent) / 100).max(1)
}

fn amean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values.len())
}

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let all = values.into_iter();
    let (sum, count) = all.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// Harmonic mean; zero when a value is.
fn hmean(values: &[f64]) -> f64 {
    if values.iter().any(|value| *value <= 0.0) {
        return 0.0;
    }
    count(values.len()) / values.iter().map(|value| 1.0 / value).sum::<f64>()
}

/// A count as a number.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn count(n: usize) -> f64 {
    n as f64
}

/// A counter as a number.
#[expect(clippy::cast_precision_loss, reason = "counters are far below 2^52")]
pub fn whole(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lower(values: &[f64]) -> Samples {
        Samples::new(values.iter().copied(), Better::Lower)
    }

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6, "{left} is not {right}");
    }

    #[test]
    fn means_and_deviation_by_hand() {
        let samples = lower(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        close(samples.value(Stat::Mean).unwrap(), 5.0);
        // Sum of squares 32, divisor 7.
        close(
            samples.value(Stat::Stddev).unwrap(),
            (32.0_f64 / 7.0).sqrt(),
        );
        close(
            samples.value(Stat::CoeffVar).unwrap(),
            100.0 * (32.0_f64 / 7.0).sqrt() / 5.0,
        );
        let rates = Samples::new([1.0, 2.0, 4.0], Better::Higher);
        close(rates.value(Stat::Mean).unwrap(), 3.0 / 1.75);
        close(
            Samples::new([1.0, 0.0], Better::Higher)
                .value(Stat::Mean)
                .unwrap(),
            0.0,
        );
        assert!(lower(&[1.0]).value(Stat::Stddev).unwrap().is_nan());
        assert_eq!(lower(&[]).value(Stat::Mean), None);
    }

    #[test]
    fn percentiles_floor_and_follow_the_preference() {
        let up = lower(&(1..=19).map(f64::from).collect::<Vec<_>>());
        // floor(19 * 0.9) = 17th best; floor(19 * 0.01) = 0, so the first.
        close(up.value(Stat::Max(90)).unwrap(), 17.0);
        close(up.value(Stat::Max(1)).unwrap(), 1.0);
        close(up.value(Stat::BestMean(25)).unwrap(), 2.5);
        let down = Samples::new((1..=10).map(f64::from), Better::Higher);
        // 90 % of the samples are at least this good: 10, 9, ... 2.
        close(down.value(Stat::Max(90)).unwrap(), 2.0);
        close(down.value(Stat::Min).unwrap(), 1.0);
        close(
            down.value(Stat::BestMean(20)).unwrap(),
            2.0 / (0.1 + 1.0 / 9.0),
        );
    }

    #[test]
    fn percentages_with_their_special_cases() {
        close(percent(30.0, 33.0, Better::Lower), -10.0);
        close(percent(40.0, 50.0, Better::Higher), 25.0);
        close(percent(0.0, 0.0, Better::Lower), 0.0);
        close(percent(5.0, 0.0, Better::Lower), 100.0);
        close(percent(5.0, 0.0, Better::Higher), 0.0);
        close(percent(0.0, 5.0, Better::Lower), -99.0);
        close(percent(0.0, 5.0, Better::Higher), 100.0);
    }

    #[test]
    fn students_t_is_that_of_the_tables() {
        // Rows of the table of quantiles: degrees, t(0.95), t(0.975), t(0.995).
        for (degrees, quantiles) in [
            (1, [6.313_75, 12.706_20, 63.656_74]),
            (2, [2.919_99, 4.302_65, 9.924_84]),
            (3, [2.353_36, 3.182_45, 5.840_91]),
            (4, [2.131_85, 2.776_45, 4.604_09]),
            (30, [1.697_26, 2.042_27, 2.750_00]),
            (1_000_000, [1.644_85, 1.959_97, 2.575_83]),
        ] {
            for (t, p) in quantiles.into_iter().zip([0.1, 0.05, 0.01]) {
                let is = two_sided(t, degrees);
                assert!((is - p).abs() < 2e-6, "{t} with {degrees}: {is} is not {p}");
            }
            close(two_sided(0.0, degrees), 1.0);
        }
    }

    #[test]
    fn the_t_test_uses_pooled_degrees_of_freedom() {
        // Means 2 and 3, variances 1 and 1, n = 3: t = 1 / sqrt(2/3) = 1.224745, df = 4.
        // By the closed form of the t distribution with 4 degrees of freedom, p = 0.2879.
        let (base, new) = (lower(&[1.0, 2.0, 3.0]), lower(&[2.0, 3.0, 4.0]));
        let t: f64 = 1.0 / (2.0_f64 / 3.0).sqrt();
        let s = t / (4.0 + t * t).sqrt();
        let expected = 1.0 - s * (1.0 + 2.0 / (4.0 + t * t));
        close(new.p_value(&base).unwrap(), expected);
        assert!(!new.is_significant(&base));
        assert!(lower(&[12.0, 13.0, 14.0]).is_significant(&base));
        // No variance at all: any difference is certain.
        assert!(lower(&[2.0, 2.0]).is_significant(&lower(&[1.0, 1.0])));
        assert!(!lower(&[1.0, 1.0]).is_significant(&lower(&[1.0, 1.0])));
        assert_eq!(lower(&[1.0]).p_value(&base), None);
    }
}
