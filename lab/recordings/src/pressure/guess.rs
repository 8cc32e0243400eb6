//! The best constant guess of each figure: what somebody would say who knows sizes and times, but
//! no law.
//!
//! | figure | guess |
//! |---|---|
//! | counters, CPU times, throttlings | a fixed number per second of the recording |
//! | latency | a fixed length |
//! | levels | a fixed share of the memory |
//!
//! The constant is the one with the least mean error over the recordings at hand, so it is fitted
//! to them: the lab, which is not, has to be twice as good. Beside it stand a lab of zeroes and a
//! copy of the recording whose setting is nearest: what a band says that these hold is little.

use super::super::guess;
use super::figures::Figure;
use super::setting::Setting;

/// The factor of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing.
    One,
    /// The length of the recording.
    Seconds,
    /// The memory that there is.
    Memory,
}

impl Scale {
    fn of(self, setting: &Setting) -> f64 {
        match self {
            Self::One => 1.0,
            Self::Seconds => setting.seconds,
            Self::Memory => setting.usable_mib,
        }
    }
}

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
    /// The value recorded under the setting that differs least, by time and memory.
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
    /// In how many recordings it is within the band.
    pub held: Ways<u32>,
    /// In how many there is something of it.
    pub of: u32,
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
/// it has no band.
#[must_use]
pub fn judge(figure: &Figure, points: &[Point<'_>]) -> Option<Judged> {
    let band = figure.band?;
    let points: Vec<&Point<'_>> = points.iter().filter(|point| point.recorded > 0.0).collect();
    let scale = |point: &Point<'_>| figure.scale.of(point.setting);
    let scaled = points.iter().map(|point| guess::Point {
        scale: scale(point),
        value: point.recorded,
        unit: point.recorded,
    });
    let (share, _) = guess::best_share(&scaled.collect::<Vec<_>>())?;
    let says = |point: &Point<'_>| Ways {
        lab: point.lab,
        zeroes: 0.0,
        copy: nearest(point, &points).map_or(0.0, |nearest| {
            nearest.recorded / scale(nearest) * scale(point)
        }),
        constant: share * scale(point),
    };
    let (mut errors, mut held) = (Vec::new(), Ways::default());
    for point in &points {
        let says = says(point);
        errors.push(says.map(|value| (value / point.recorded - 1.0).abs()));
        held = held.plus(says.map(|value| u32::from(band.holds(point.recorded, value))));
    }
    let mean = |of: fn(&Ways<f64>) -> f64| guess::mean(errors.iter().map(of));
    Some(Judged {
        errors: Ways {
            lab: mean(|way| way.lab)?,
            zeroes: mean(|way| way.zeroes)?,
            copy: mean(|way| way.copy)?,
            constant: mean(|way| way.constant)?,
        },
        held,
        of: u32::try_from(points.len()).expect("fewer than 2^32 recordings"),
    })
}

/// The other recording whose setting differs in the fewest kinds of things; of equals the first.
fn nearest<'a, 'b>(point: &Point<'_>, all: &'b [&'b Point<'a>]) -> Option<&'b Point<'a>> {
    let others = all
        .iter()
        .filter(|other| !core::ptr::eq(other.setting, point.setting));
    let differences = |other: &&&Point<'_>| point.setting.differences(other.setting).len();
    others.min_by_key(differences).copied()
}

#[cfg(test)]
mod tests {
    use super::super::figures::{FIGURES, by_name};
    use super::*;
    use crate::pressure::Recording;

    #[test]
    fn a_lab_that_is_right_has_all_skill_and_one_of_zeroes_none() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/held");
        let setting = |name: &str| Recording::load(&root.join(name)).unwrap().setting;
        let settings = ["r1-anon", "r1-4", "r1-8"].map(setting);
        let figure = &FIGURES[by_name("cpu: hogs").unwrap()];
        let recorded = [2.0, 4.0, 8.0];
        let judged = |lab: [f64; 3]| {
            let points: Vec<Point<'_>> = settings
                .iter()
                .zip(recorded)
                .zip(lab)
                .map(|((setting, recorded), lab)| Point {
                    setting,
                    recorded,
                    lab,
                })
                .collect();
            judge(figure, &points).unwrap()
        };
        let right = judged(recorded);
        assert!((right.skill() - 1.0).abs() < 1e-12);
        assert_eq!(
            (
                right.held.lab,
                right.held.zeroes,
                right.held.constant,
                right.of
            ),
            (3, 0, 1, 3)
        );
        // 2 for 4 and for 8: errors of 50 and 75 %.
        assert!((right.errors.constant - 1.25 / 3.0).abs() < 1e-12);
        assert!((right.errors.zeroes - 1.0).abs() < 1e-12);
        // r1-8 is like r1-4 but for two counts; r1-anon has no writer.
        assert!(right.errors.copy > 0.0);
        let zeroes = judged([0.0; 3]);
        assert!(zeroes.skill() < 0.0);
    }
}
