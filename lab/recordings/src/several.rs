//! Several recordings: how far the lab is off over all of them, whether a constant would do as
//! well, and whether the lab answers to a change of one setting as the kernel did.

use core::fmt::Write as _;

use super::differ::differences;
use super::figures::{Figure, of_kind};
use super::guess::{self, Point, Ways};
use super::setting::Setting;
use report::output::{self, TidyTable};
use report::tidy_table;

/// Differences below this part of the value are not judged: they are within what one run differs
/// from another.
pub(super) const NOTICEABLE: f64 = 0.05;
/// The size of a difference is to be right within this.
const SIZE: f64 = 0.3;
/// Pairs that are printed one by one.
const PAIRS_MOST: usize = 24;

/// A recording and the first column's run of it: values of all figures.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Under what it was made.
    pub setting: &'a Setting,
    /// Its measurements.
    pub recorded: &'a [Option<f64>],
    /// The lab's run.
    pub lab: &'a [Option<f64>],
}

/// A figure of all recordings that have it.
#[must_use]
pub fn points<'a>(sides: &[Beside<'a>], index: usize) -> Vec<Point<'a>> {
    let point = |side: &Beside<'a>| {
        Some(Point {
            setting: side.setting,
            recorded: side.recorded[index]?,
            lab: side.lab[index].unwrap_or(0.0),
        })
    };
    sides.iter().filter_map(point).collect()
}

/// The lab's answer to the change from one recording to another.
pub struct Pair<'a> {
    /// Name of one of them.
    pub from: &'a str,
    /// Of the other.
    pub to: &'a str,
    /// In what they differ.
    pub setting: String,
    /// Of which figure.
    pub figure: &'static Figure,
    /// The recorded difference.
    pub recorded: f64,
    /// The lab's.
    pub lab: f64,
    /// Too small to be judged.
    pub small: bool,
}

impl Pair<'_> {
    /// True if the lab's goes the same way.
    #[must_use]
    pub fn sign_is_right(&self) -> bool {
        self.recorded * self.lab > 0.0
    }

    /// The excess of the lab's difference, as a part of the recorded one.
    fn error(&self) -> f64 {
        self.lab / self.recorded - 1.0
    }

    /// True if it goes the same way, and as far within 30 %.
    #[must_use]
    pub fn size_is_right(&self) -> bool {
        self.sign_is_right() && (self.lab.abs() / self.recorded.abs() - 1.0).abs() <= SIZE
    }

    /// One line about it.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            from,
            to,
            figure,
            recorded,
            lab,
            ..
        } = self;
        let (name, digits) = (figure.name, figure.digits);
        format!(
            "{from} -> {to}: {name} changed by {recorded:+.digits$}, in the lab by {lab:+.digits$}"
        )
    }
}

/// The tables over all recordings; `column` is the name of the judged one.
#[must_use]
pub fn render(sides: &[Beside<'_>], column: &str) -> String {
    let mut text = overview(sides, column);
    text.push('\n');
    let pairs = pairs(sides);
    if pairs.is_empty() {
        text.push_str("No two recordings differ in one setting only: no differences to judge.\n\n");
    } else {
        text.push_str(&judged_pairs(sides[0].setting, &pairs, column));
    }
    text
}

/// Mean errors over all recordings, beside those of guesses.
fn overview(sides: &[Beside<'_>], column: &str) -> String {
    const NAME: usize = 28;
    const FIELD: usize = 12;
    let mut text = format!(
        "All {} recordings: mean and largest error of {column}, mean error of a lab of zeroes, of a \
         copy of the nearest recording, of the best constant; skill = 1 - error / error of the \
         constant; bands held by lab/zeroes/copy/constant; the constant\n{:NAME$}",
        sides.len(),
        ""
    );
    for name in ["lab", "largest", "zeroes", "copy", "constant", "skill"] {
        let _ = write!(text, "{name:>FIELD$}");
    }
    text.push('\n');
    let mut held = Ways::default().map(|_: f64| 0);
    let (mut of, mut skilled, mut figures) = (0, 0, 0);
    for (index, figure) in of_kind(sides[0].setting.kind).iter().enumerate() {
        let Some(judged) = guess::judge(figure, &points(sides, index)) else {
            continue;
        };
        let _ = write!(text, "{:NAME$}", figure.name);
        let [lab, zeroes, copy, constant] = judged.errors.list();
        for error in [lab, judged.largest, zeroes, copy, constant] {
            let _ = write!(text, "{:>10.1} %", error * 100.0);
        }
        let skill = judged.skill();
        let _ = write!(text, "{skill:>FIELD$.2}");
        if figure.band.is_some() {
            let _ = write!(text, "    {} of {}", judged.held, judged.of);
            held = held.plus(judged.held);
            of += judged.of;
        }
        let (share, scale) = judged.constant;
        let _ = writeln!(text, "    {share:.3} {}", scale.words());
        figures += 1;
        skilled += u32::from(skill > 0.0);
    }
    let _ = writeln!(
        text,
        "bands held by lab/zeroes/copy/constant: {held} of {of}; skill above zero in {skilled} of {figures} figures"
    );
    text
}

/// All pairs of recordings that differ in one setting, figure by figure.
#[must_use]
pub fn pairs<'a>(sides: &[Beside<'a>]) -> Vec<Pair<'a>> {
    let Some(kind) = sides.first().map(|side| side.setting.kind) else {
        return Vec::new();
    };
    let judged = of_kind(kind).iter().enumerate();
    let judged: Vec<_> = judged
        .filter(|(_, figure)| !figure.guesses.is_empty())
        .collect();
    let mut pairs = Vec::new();
    for (index, from) in sides.iter().enumerate() {
        for to in &sides[index + 1..] {
            let differ = differences(from.setting, to.setting);
            let [setting] = &differ[..] else {
                continue;
            };
            for (index, figure) in &judged {
                let both = |one: &[Option<f64>], other: &[Option<f64>]| {
                    Some((one[*index]?, other[*index]?))
                };
                let (Some(recorded), Some(lab)) =
                    (both(from.recorded, to.recorded), both(from.lab, to.lab))
                else {
                    continue;
                };
                let difference = recorded.1 - recorded.0;
                let middle = f64::midpoint(recorded.0, recorded.1);
                pairs.push(Pair {
                    from: from.setting.name(),
                    to: to.setting.name(),
                    setting: setting.clone(),
                    figure,
                    recorded: difference,
                    lab: lab.1 - lab.0,
                    small: difference.abs() <= NOTICEABLE * middle,
                });
            }
        }
    }
    pairs
}

fn judged_pairs(setting: &Setting, pairs: &[Pair<'_>], column: &str) -> String {
    let mut text = format!(
        "Pairs that differ in one setting: recorded difference, {column}'s, error of its size \
         (differences of less than 5 % are not judged)\n"
    );
    let figures = of_kind(setting.kind).iter();
    let width = figures.clone().map(|figure| figure.name.len()).max();
    let width = width.unwrap_or(0);
    for figure in figures.map(|figure| figure.name) {
        let all = || pairs.iter().filter(|pair| pair.figure.name == figure);
        let judged = || all().filter(|pair| !pair.small);
        if all().next().is_none() {
            continue;
        }
        let _ = writeln!(
            text,
            "  {figure:width$} {} pairs, {} judged: sign right in {}, size within 30 % in {}",
            all().count(),
            judged().count(),
            judged().filter(|pair| pair.sign_is_right()).count(),
            judged().filter(|pair| pair.size_is_right()).count(),
        );
    }
    let mut judged: Vec<&Pair<'_>> = pairs.iter().filter(|pair| !pair.small).collect();
    if judged.len() > PAIRS_MOST {
        judged.sort_by(|left, right| right.error().abs().total_cmp(&left.error().abs()));
        judged.truncate(PAIRS_MOST);
        let _ = writeln!(text, "  the {PAIRS_MOST} worst of them (all in pairs.csv):");
    }
    for pair in judged {
        let digits = pair.figure.digits;
        let wrong = if pair.sign_is_right() {
            ""
        } else {
            "  wrong sign"
        };
        let _ = writeln!(
            text,
            "  {:width$} {:+.digits$} {:+.digits$} ({:+.0}%){wrong}  {} -> {}: {}",
            pair.figure.name,
            pair.recorded,
            pair.lab,
            pair.error() * 100.0,
            pair.from,
            pair.to,
            pair.setting,
        );
    }
    text.push('\n');
    text
}

/// The pairs as a table.
pub(super) fn table(sides: &[Beside<'_>]) -> TidyTable {
    let pairs = pairs(sides);
    tidy_table!(output::PAIRS, pairs, {
        "from": Text = |pair| pair.from.to_owned(),
        "to": Text = |pair| pair.to.to_owned(),
        "setting": Text = |pair| pair.setting.clone(),
        "figure": Text = |pair| pair.figure.name.to_owned(),
        "unit": Text = |pair| pair.figure.unit.to_owned(),
        "recorded": Real = |pair| pair.recorded,
        "lab": Real = |pair| pair.lab,
        "judged": Flag = |pair| !pair.small,
    })
}
