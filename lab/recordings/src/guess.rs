//! The best constant guess of a figure: the answer of somebody who knows sizes, limits, rates and
//! times, but no law. Beside it stand a lab of zeroes, and a copy of the recording whose setting is
//! nearest. A band that these hold says little.
//!
//! The constant is the one with the least mean error over the recordings at hand, so it is fitted
//! to them: the lab, which is not, has to be twice as good.

use super::differ::differences;
use super::figures::Figure;
use super::scale::Scale;
use super::setting::Setting;
use experiment::stats::mean;

/// A figure of a recording, and the lab's.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// Under what it was recorded.
    pub setting: &'a Setting,
    /// The recorded value.
    pub recorded: f64,
    /// The lab's value.
    pub lab: f64,
}

/// Something of each of four ways to come to a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ways<T> {
    /// The lab.
    pub lab: T,
    /// Nothing ever happens.
    pub zeroes: T,
    /// The value recorded under the setting that differs least, by what the constant scales with.
    pub copy: T,
    /// The best constant.
    pub constant: T,
}

impl<T: Copy> Ways<T> {
    /// The same with each changed.
    pub fn map<U>(self, change: impl Fn(T) -> U) -> Ways<U> {
        Ways {
            lab: change(self.lab),
            zeroes: change(self.zeroes),
            copy: change(self.copy),
            constant: change(self.constant),
        }
    }

    /// In their order.
    pub fn list(self) -> [T; 4] {
        [self.lab, self.zeroes, self.copy, self.constant]
    }
}

impl Ways<u32> {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            lab: self.lab + other.lab,
            zeroes: self.zeroes + other.zeroes,
            copy: self.copy + other.copy,
            constant: self.constant + other.constant,
        }
    }
}

impl core::fmt::Display for Ways<u32> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [lab, zeroes, copy, constant] = self.list();
        write!(f, "{lab}/{zeroes}/{copy}/{constant}")
    }
}

/// The errors of each way to a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Means of |error|, as a part of what was recorded.
    pub errors: Ways<f64>,
    /// The largest |error| of the lab.
    pub largest: f64,
    /// In how many recordings it is within the band.
    pub held: Ways<u32>,
    /// In how many there is something of it.
    pub of: u32,
    /// The best constant, and what it scales with.
    pub constant: (f64, Scale),
}

impl Judged {
    /// The part of the best constant's error that the lab is without: 1 of a lab that is right,
    /// zero or less of one that has explained nothing.
    #[must_use]
    pub fn skill(&self) -> f64 {
        if self.errors.constant > 0.0 {
            1.0 - self.errors.lab / self.errors.constant
        } else {
            0.0
        }
    }
}

/// Judges the errors of the lab and the guesses at a figure. `None`: nothing was recorded of it, or
/// nobody guesses it.
#[must_use]
pub fn judge(figure: &Figure, points: &[Point<'_>]) -> Option<Judged> {
    let points: Vec<&Point<'_>> = points.iter().filter(|point| point.recorded > 0.0).collect();
    let guesses = figure.guesses.iter();
    let shares = guesses.filter_map(|scale| {
        let (share, error) = best_share(*scale, &points)?;
        Some((share, *scale, error))
    });
    let (share, scale, _) = shares.min_by(|one, other| one.2.total_cmp(&other.2))?;
    let says = |point: &Point<'_>| Ways {
        lab: point.lab,
        zeroes: 0.0,
        copy: nearest(point, &points).map_or(0.0, |nearest| {
            nearest.recorded / scale.of(nearest.setting) * scale.of(point.setting)
        }),
        constant: share * scale.of(point.setting),
    };
    let (mut errors, mut held) = (Vec::new(), Ways::default());
    for point in &points {
        let says = says(point);
        errors.push(says.map(|value| (value / point.recorded - 1.0).abs()));
        let holds = |value| {
            figure
                .band
                .is_some_and(|band| band.holds(point.recorded, value))
        };
        held = held.plus(says.map(|value| u32::from(holds(value))));
    }
    let mean = |of: fn(&Ways<f64>) -> f64| mean(errors.iter().map(of));
    Some(Judged {
        errors: Ways {
            lab: mean(|way| way.lab)?,
            zeroes: mean(|way| way.zeroes)?,
            copy: mean(|way| way.copy)?,
            constant: mean(|way| way.constant)?,
        },
        largest: errors.iter().map(|way| way.lab).fold(0.0, f64::max),
        held,
        of: u32::try_from(points.len()).expect("fewer than 2^32 recordings"),
        constant: (share, scale),
    })
}

/// The share with the least mean error, and that error.
fn best_share(scale: Scale, points: &[&Point<'_>]) -> Option<(f64, f64)> {
    let scaled = points
        .iter()
        .map(|point| (scale.of(point.setting), point.recorded));
    let scaled: Vec<(f64, f64)> = scaled.filter(|(scale, _)| *scale > 0.0).collect();
    // The sum of absolute errors is least where one of them is zero.
    let errors = scaled.iter().filter_map(|(scale, value)| {
        let share = value / scale;
        let error = |(scale, value): &(f64, f64)| ((share * scale - value) / value).abs();
        Some((share, mean(scaled.iter().map(error))?))
    });
    errors.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The other recording whose setting differs in the fewest kinds of things; of equals the first.
fn nearest<'a, 'b>(point: &Point<'_>, all: &'b [&'b Point<'a>]) -> Option<&'b Point<'a>> {
    let others = all
        .iter()
        .filter(|other| !core::ptr::eq(other.setting, point.setting));
    let differ = |other: &&&Point<'_>| differences(point.setting, other.setting).len();
    others.min_by_key(differ).copied()
}
