//! The lab's answer to "what if", and the effect of the change as it was recorded.
//!
//! The answer for a figure is the recorded value times what the change does to it in the lab: so an
//! error that the lab makes with and without the change cancels out. Where the recording has
//! nothing (or the lab zero), the answer is the lab's own value. No answer is more than there is of
//! CPU time or memory. Against a recording of the change, the answers together are no skill if
//! "nothing changes" is as near.
//!
//! Figures that the recording shows the lab to be bad at say so beside their answer (`Doubt`), and
//! where the lab is off by more than a factor of two without the change there is no answer.

use core::fmt::Write as _;

use super::change::Change;
use super::figures::Figure;
use super::several::NOTICEABLE;
use super::show::percent;

/// Least width of the first column.
const NAME: usize = 28;
/// Width of a value.
pub(super) const FIELD: usize = 12;

/// A change and everything that is known of it.
pub(super) struct Answered<'a> {
    /// The change, in words.
    pub(super) differs: Vec<String>,
    pub(super) changes: &'a [Change],
    pub(super) columns: &'a [&'a str],
    pub(super) figures: &'static [Figure],
    /// The figures, in the order of the labels: recorded, and of each column, without and with the
    /// change.
    pub(super) recorded: &'a [Option<f64>],
    pub(super) lab: &'a [Vec<Option<f64>>],
    pub(super) changed: &'a [Vec<Option<f64>>],
    /// The most that each figure can be.
    pub(super) most: &'a [f64],
    /// The doubts about each figure of the first column.
    pub(super) doubts: &'a [Doubt],
    pub(super) against: Option<Against<'a>>,
}

/// The lab's accuracy at a figure of this recording, without any change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Doubt {
    /// Within its band; of a figure without one, within a quarter.
    Little,
    /// Off by this part of what was recorded.
    Off(f64),
    /// So far off that its change says nothing.
    Far(f64),
    /// Nothing was recorded of it.
    Alone,
    /// The lab is near enough, under a setting of which a part is assumed.
    Assumed,
}

/// The error that a figure without a band may have.
const QUARTER: f64 = 0.25;
/// From this factor on, either way, there is no answer.
const FAR: f64 = 2.0;

impl Doubt {
    /// `holds`: whether the lab is within the figure's band, if it has one.
    pub(super) fn of(recorded: Option<f64>, lab: Option<f64>, holds: Option<bool>) -> Self {
        let Some(recorded) = recorded.filter(|recorded| *recorded > 0.0) else {
            return Self::Alone;
        };
        let ratio = lab.unwrap_or(0.0) / recorded;
        let error = ratio - 1.0;
        match holds {
            Some(true) => Self::Little,
            _ if !(1.0 / FAR..=FAR).contains(&ratio) => Self::Far(error),
            None if error.abs() <= QUARTER => Self::Little,
            _ => Self::Off(error),
        }
    }

    /// The same where a part of the setting is assumed: then no figure is known to be near.
    pub(super) fn under(self, is_assumed: bool) -> Self {
        match self {
            Self::Little if is_assumed => Self::Assumed,
            other => other,
        }
    }

    pub(super) fn answers(self) -> bool {
        !matches!(self, Self::Far(_))
    }

    /// In a few words, for the end of the line of a figure.
    pub(super) fn words(self, figure: &str) -> String {
        let mut words = match self {
            Self::Little => String::new(),
            Self::Off(error) => format!("? lab {:+.0} %", error * 100.0),
            Self::Far(error) => format!("not answered: lab {:+.0} %", error * 100.0),
            Self::Alone => "? nothing recorded".into(),
            Self::Assumed => "? assumed".into(),
        };
        if self.answers() && is_unproven(figure) {
            let between = if words.is_empty() { "" } else { "; " };
            words.extend([between, NO_PAIR]);
        }
        words
    }
}

/// Behind an answer that is within what the lab is good at without the change, and nothing more.
const NO_PAIR: &str = "! no pair";

/// True if recordings without and with a change have not borne out the lab's answers for a figure:
/// of tails, which single events make, and of how often reclaim began or had somebody wait.
///
/// Source: docs/study/fidelity.md, "What if"; docs/study/compare.md, "How good it is".
fn is_unproven(figure: &str) -> bool {
    const TAILS: [&str; 4] = [": p90", ": p99", ": longest", ": max"];
    const COUNTS: [&str; 5] = [
        "allocstall_normal",
        "pageoutrun",
        "pgscan_direct_throttle",
        "runs of kswapd",
        "throttled: ",
    ];
    let begins = COUNTS.iter().any(|count| figure.starts_with(count));
    begins || TAILS.iter().any(|tail| figure.ends_with(tail))
}

/// The meaning of the marks behind answers.
const MARKS: &str = "?: how far the lab is from this recording without the change; beyond a factor of two there is no \
                     answer. \"? assumed\": the answer hangs on what the recording does not tell (its notes)\n";
const NO_PAIR_MEANS: &str = "! no pair: no two recordings, without and with a change, have borne out such an answer; \
                                do not act on it\n";

/// A recording of the change.
pub(super) struct Against<'a> {
    pub(super) name: &'a str,
    /// In what else it differs.
    pub(super) differs: Vec<String>,
    pub(super) values: &'a [Option<f64>],
}

/// The tables of a change: the first column with its answer, the others with what it does to them.
pub(super) fn render(answered: &Answered<'_>) -> String {
    let sets: Vec<String> = answered.changes.iter().map(Change::to_string).collect();
    let mut text = format!(
        "What if {}? ({})\n",
        sets.join(", "),
        answered.differs.join(", ")
    );
    if let Some(against) = &answered.against
        && !against.differs.is_empty()
    {
        let _ = writeln!(
            text,
            "note: {} is no recording of that change; it also differs by: {}",
            against.name,
            against.differs.join(", ")
        );
    }
    let width = width(answered.figures);
    text.push_str(&first(answered, width));
    for (index, column) in answered.columns.iter().enumerate().skip(1) {
        let _ = writeln!(text, "{:width$}{column:>FIELD$}{:>FIELD$}", "", "changed");
        let values = answered.lab[index].iter().zip(&answered.changed[index]);
        for (figure, (lab, changed)) in answered.figures.iter().zip(values) {
            if is_nothing(&[*lab, *changed]) {
                continue;
            }
            let change = percent(*lab, *changed).unwrap_or_default();
            let _ = writeln!(
                text,
                "{:width$}{}{} {change:>9}",
                figure.with_unit(),
                field(*lab, figure.digits),
                field(*changed, figure.digits),
            );
        }
    }
    text.push('\n');
    text
}

/// The first column: its answer, and the error of it.
fn first(answered: &Answered<'_>, width: usize) -> String {
    let mut text = format!(
        "{:width$}{:>FIELD$}{:>FIELD$}{:>FIELD$}{:>FIELD$}{:>FIELD$}",
        "", "recording", answered.columns[0], "changed", "effect", "answer"
    );
    if let Some(against) = &answered.against {
        let name: String = against.name.chars().take(18).collect();
        let _ = write!(text, "{name:>20}{:>10}{:>16}", "error", "of difference");
    }
    text.push('\n');
    let (mut errors, mut unchanged) = (Vec::new(), Vec::new());
    for (index, figure) in answered.figures.iter().enumerate() {
        let recorded = answered.recorded[index];
        let (lab, changed) = (answered.lab[0][index], answered.changed[0][index]);
        let other = answered
            .against
            .as_ref()
            .and_then(|against| against.values[index]);
        if is_nothing(&[recorded, lab, changed, other]) || recorded.is_none() && changed.is_none() {
            continue;
        }
        let doubt = answered.doubts[index];
        let answer = answer(doubt, (recorded, lab, changed), answered.most[index]);
        if let (Some(recorded), Some(answer), Some(other)) = (recorded, answer, other)
            && other > 0.0
        {
            errors.push((answer / other - 1.0).abs());
            unchanged.push((recorded / other - 1.0).abs());
        }
        let _ = write!(
            text,
            "{:width$}{}{}{}{:>FIELD$}{}",
            figure.with_unit(),
            field(recorded, figure.digits),
            field(lab, figure.digits),
            field(changed, figure.digits),
            percent(lab, changed).unwrap_or_default(),
            field(answer, figure.digits),
        );
        if answered.against.is_some() {
            let of_difference = match (recorded, answer, other) {
                (Some(recorded), Some(answer), Some(other)) => {
                    error_of_difference(recorded, answer, other)
                }
                _ => None,
            };
            let _ = write!(
                text,
                "{:>20}{:>10}{:>16}",
                field(other, figure.digits).trim_start(),
                percent(other, answer).unwrap_or_default(),
                of_difference.unwrap_or_default(),
            );
        }
        end_line(&mut text, &doubt.words(figure.name));
    }
    put_marks(&mut text, answered.figures, answered.doubts);
    if let (Some(answers), Some(unchanged)) = (median(errors), median(unchanged)) {
        let skill = if answers < unchanged {
            ""
        } else {
            ": no skill here"
        };
        let _ = writeln!(
            text,
            "median error of the answers: {:.1} %; of \"nothing changes\": {:.1} %{skill}",
            answers * 100.0,
            unchanged * 100.0
        );
    }
    text
}

/// Width of the column of names.
pub(super) fn width(figures: &[Figure]) -> usize {
    let names = figures.iter().map(|figure| figure.with_unit().len() + 1);
    names.max().unwrap_or(0).max(NAME)
}

/// Ends the line of a figure with how good the lab is at it.
pub(super) fn end_line(text: &mut String, words: &str) {
    let _ = write!(text, "  {words}");
    text.truncate(text.trim_end().len());
    text.push('\n');
}

/// Puts what the marks mean, if there are any, below the lines.
pub(super) fn put_marks(text: &mut String, figures: &[Figure], doubts: &[Doubt]) {
    if doubts.iter().any(|doubt| *doubt != Doubt::Little) {
        text.push_str(MARKS);
    }
    let mut figures = figures.iter().zip(doubts);
    if figures.any(|(figure, doubt)| doubt.words(figure.name).contains(NO_PAIR)) {
        text.push_str(NO_PAIR_MEANS);
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// None of them is there, or all are zero.
pub(super) fn is_nothing(values: &[Option<f64>]) -> bool {
    values
        .iter()
        .all(|value| value.is_none_or(|value| value == 0.0))
}

/// The recorded value under the change, no more than `most`, if the lab is good enough at it.
pub(super) fn answer(
    doubt: Doubt,
    (recorded, lab, changed): (Option<f64>, Option<f64>, Option<f64>),
    most: f64,
) -> Option<f64> {
    predict(recorded, lab, changed)
        .filter(|_| doubt.answers())
        .map(|value| value.min(most))
}

fn predict(recorded: Option<f64>, lab: Option<f64>, changed: Option<f64>) -> Option<f64> {
    match (recorded, lab, changed) {
        (Some(recorded), Some(lab), Some(changed)) if lab > 0.0 && recorded > 0.0 => {
            Some(recorded * changed / lab)
        }
        (_, _, changed) => changed,
    }
}

/// The error of the predicted difference beside the recorded one: "+12%", "wrong sign", or "small"
/// where the recorded one is below 5 % of the value.
fn error_of_difference(recorded: f64, answer: f64, other: f64) -> Option<String> {
    let (predicted, real) = (answer - recorded, other - recorded);
    if real.abs() <= NOTICEABLE * f64::midpoint(other, recorded) {
        return Some("small".into());
    }
    if predicted * real < 0.0 {
        return Some("wrong sign".into());
    }
    Some(format!("{:+.0}%", 100.0 * (predicted / real - 1.0)))
}

pub(super) fn field(value: Option<f64>, digits: usize) -> String {
    let shown = value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    format!("{shown:>FIELD$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_scales_what_was_recorded() {
        assert_eq!(predict(Some(60.0), Some(50.0), Some(150.0)), Some(180.0));
        assert_eq!(predict(None, Some(50.0), Some(150.0)), Some(150.0));
        assert_eq!(predict(Some(60.0), Some(0.0), Some(7.0)), Some(7.0));
        assert_eq!(predict(Some(60.0), Some(50.0), None), None);
    }

    #[test]
    fn what_the_lab_is_bad_at_is_marked_and_beyond_a_factor_of_two_not_answered() {
        let of = |recorded, lab, holds| Doubt::of(Some(recorded), Some(lab), holds);
        assert_eq!(of(10.0, 13.0, Some(true)), Doubt::Little);
        assert_eq!(of(10.0, 5.0, Some(false)), Doubt::Off(-0.5));
        assert_eq!(of(10.0, 4.0, Some(false)), Doubt::Far(-0.6));
        assert_eq!(of(10.0, 12.0, None), Doubt::Little);
        assert!(!of(10.0, 21.0, None).answers());
        assert_eq!(Doubt::of(Some(10.0), None, None), Doubt::Far(-1.0));
        assert_eq!(Doubt::of(None, Some(1.0), None), Doubt::Alone);
    }

    #[test]
    fn an_answer_that_no_pair_of_recordings_bears_out_says_so() {
        let near = Doubt::Little;
        assert_eq!(near.words("pswpin"), "");
        assert_eq!(near.words("latency: p50"), "");
        for figure in ["latency: p99", "write: max", "throttled: WRITEBACK"] {
            assert_eq!(near.words(figure), "! no pair");
            assert_eq!(Doubt::Off(-0.5).words(figure), "? lab -50 %; ! no pair");
            let none = Doubt::Far(-0.6).words(figure);
            assert_eq!(none, "not answered: lab -60 %");
        }
        let kind = &crate::kind::PRESSURE;
        let figures = crate::figures::of_kind(kind);
        let figure = |name| figures[crate::figures::by_name(kind, name).unwrap()];
        let marks = |name, doubt| {
            let mut text = String::new();
            put_marks(&mut text, &[figure(name)], &[doubt]);
            text
        };
        assert_eq!(marks("pswpin", near), "");
        assert_eq!(marks("pageoutrun", near), NO_PAIR_MEANS);
        assert_eq!(marks("pageoutrun", Doubt::Far(2.0)), MARKS);
    }

    #[test]
    fn errors_are_of_the_difference() {
        assert_eq!(error_of_difference(60.0, 180.0, 160.0).unwrap(), "+20%");
        assert_eq!(
            error_of_difference(60.0, 50.0, 160.0).unwrap(),
            "wrong sign"
        );
        assert_eq!(error_of_difference(60.0, 61.0, 60.5).unwrap(), "small");
    }
}
