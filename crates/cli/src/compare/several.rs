//! Several recordings: how far the lab is off over all of them, whether a constant would do as well, and
//! whether the lab answers to a change of one setting as the kernel did.

use core::fmt::Write as _;

use super::guess::{self, JUDGED, mean};
use super::measure::{Measures, QUANTITIES, Quantity, by_name};
use super::setting::Setting;
use super::show::percent;
use crate::output::{self, Column, Data, TidyTable};

/// Differences below this part of the value are not judged: they are within what one run differs from
/// another.
pub(super) const NOTICEABLE: f64 = 0.05;
/// The size of a difference is to be right within this.
const SIZE: f64 = 0.3;
/// Pairs that are printed one by one.
const PAIRS_MOST: usize = 24;

/// A recording and the first column's run of it.
pub struct Beside<'a> {
    /// Under what it was made.
    pub setting: &'a Setting,
    /// What it shows.
    pub recorded: &'a Measures,
    /// The lab's run.
    pub lab: &'a Measures,
}

/// How the lab answers to the change from one recording to another.
pub struct Pair<'a> {
    /// One of them.
    pub from: &'a Setting,
    /// The other.
    pub to: &'a Setting,
    /// Of which figure.
    pub quantity: &'static Quantity,
    /// The recorded difference.
    pub recorded: f64,
    /// The lab's.
    pub lab: f64,
    /// Too small to be judged.
    pub small: bool,
}

impl Pair<'_> {
    /// Whether the lab's goes the same way.
    #[must_use]
    pub fn sign_is_right(&self) -> bool {
        self.recorded.signum().total_cmp(&self.lab.signum()).is_eq()
    }

    /// How much larger the lab's difference is, as a part of the recorded one.
    fn error(&self) -> f64 {
        self.lab / self.recorded - 1.0
    }

    /// Whether it goes the same way, and as far within 30 %.
    #[must_use]
    pub fn size_is_right(&self) -> bool {
        self.sign_is_right() && (self.lab.abs() / self.recorded.abs() - 1.0).abs() <= SIZE
    }
}

/// The tables over all recordings; `column` is the name of the judged one.
#[must_use]
pub fn render(sides: &[Beside<'_>], column: &str) -> String {
    let mut text = format!(
        "All {} recordings: recorded, {column}, difference\n",
        sides.len()
    );
    text.push_str(&overview(sides));
    text.push('\n');
    let pairs = pairs(sides);
    if pairs.is_empty() {
        text.push_str("No two recordings differ in one setting only: no differences to judge.\n\n");
    } else {
        text.push_str(&differences(&pairs, column));
    }
    text
}

fn quantities() -> impl Iterator<Item = &'static Quantity> {
    JUDGED.iter().filter_map(|name| by_name(name))
}

fn overview(sides: &[Beside<'_>]) -> String {
    const NARROW: usize = 30;
    let names = sides.iter().map(|side| side.setting.name.len());
    let width = names
        .max()
        .unwrap_or(0)
        .max("constant guess: mean |error|".len());
    let mut text = format!("{:width$}", "");
    for quantity in quantities() {
        let _ = write!(text, "{:>NARROW$}", label(quantity));
    }
    text.push('\n');
    for side in sides {
        let _ = write!(text, "{:width$}", side.setting.name);
        for quantity in quantities() {
            let (recorded, lab) = ((quantity.of)(side.recorded), (quantity.of)(side.lab));
            let shown = |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| {
                    format!("{value:.*}", quantity.digits)
                })
            };
            let change = percent(recorded, lab).unwrap_or_default();
            let _ = write!(text, "{:>11}{:>9}{change:>10}", shown(recorded), shown(lab));
        }
        text.push('\n');
    }
    let mut line = |name: &str, value: &dyn Fn(&'static Quantity) -> Option<String>| {
        let _ = write!(text, "{name:width$}");
        for quantity in quantities() {
            let _ = write!(text, "{:>NARROW$}", value(quantity).unwrap_or("-".into()));
        }
        text.push('\n');
    };
    let errors = |quantity: &'static Quantity| -> Vec<f64> {
        sides
            .iter()
            .filter_map(|side| error(quantity, side))
            .collect()
    };
    let percent = |part: f64| format!("{:.1}%", part * 100.0);
    line("mean |error|", &|q| {
        mean(errors(q).into_iter()).map(percent)
    });
    line("largest |error|", &|q| {
        errors(q).into_iter().max_by(f64::total_cmp).map(percent)
    });
    line("constant guess: mean |error|", &|q| {
        fitted(q, sides).map(|fitted| percent(fitted.error))
    });
    line("error / error of the guess", &|q| {
        let own = mean(errors(q).into_iter())?;
        let fitted = fitted(q, sides)?;
        (fitted.error > 0.0).then(|| format!("{:.2}", own / fitted.error))
    });
    text.push_str("The guesses, each fitted to these recordings:\n");
    for quantity in quantities() {
        if let Some(fitted) = fitted(quantity, sides) {
            let _ = writeln!(
                text,
                "  {} = {:.3} {}",
                quantity.name, fitted.share, fitted.of
            );
        }
    }
    text
}

fn label(quantity: &Quantity) -> String {
    if quantity.unit.is_empty() {
        quantity.name.to_owned()
    } else {
        format!("{} ({})", quantity.name, quantity.unit)
    }
}

fn fitted(quantity: &'static Quantity, sides: &[Beside<'_>]) -> Option<guess::Fitted> {
    let recorded: Vec<(&Setting, f64)> = sides
        .iter()
        .filter_map(|side| Some((side.setting, (quantity.of)(side.recorded)?)))
        .collect();
    guess::best(quantity.name, &recorded)
}

/// |lab / recorded - 1|.
fn error(quantity: &Quantity, side: &Beside<'_>) -> Option<f64> {
    let recorded = (quantity.of)(side.recorded).filter(|value| *value > 0.0)?;
    let lab = (quantity.of)(side.lab).unwrap_or(0.0);
    Some((lab / recorded - 1.0).abs())
}

/// All pairs of recordings that differ in one setting, figure by figure.
#[must_use]
pub fn pairs<'a>(sides: &'a [Beside<'a>]) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for (index, from) in sides.iter().enumerate() {
        for to in &sides[index + 1..] {
            if from.setting.differences(to.setting).len() != 1 {
                continue;
            }
            for quantity in quantities() {
                let value = |side: &Beside<'_>| {
                    Some(((quantity.of)(side.recorded)?, (quantity.of)(side.lab)?))
                };
                let (Some(from_value), Some(to_value)) = (value(from), value(to)) else {
                    continue;
                };
                let recorded = to_value.0 - from_value.0;
                let middle = f64::midpoint(to_value.0, from_value.0);
                pairs.push(Pair {
                    from: from.setting,
                    to: to.setting,
                    quantity,
                    recorded,
                    lab: to_value.1 - from_value.1,
                    small: recorded.abs() <= NOTICEABLE * middle,
                });
            }
        }
    }
    pairs
}

fn differences(pairs: &[Pair<'_>], column: &str) -> String {
    let mut text = format!(
        "Pairs that differ in one setting: recorded difference, {column}'s, error of its size \
         (differences of less than 5 % are not judged)\n"
    );
    let width = QUANTITIES.iter().map(|q| q.name.len()).max().unwrap_or(0);
    for quantity in quantities() {
        let all = || {
            pairs
                .iter()
                .filter(|pair| pair.quantity.name == quantity.name)
        };
        let judged = || all().filter(|pair| !pair.small);
        let _ = writeln!(
            text,
            "  {:width$} {} pairs, {} judged: sign right in {}, size within 30 % in {}",
            quantity.name,
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
        let digits = pair.quantity.digits;
        let what = pair.from.differences(pair.to).join(", ");
        let wrong = if pair.sign_is_right() {
            ""
        } else {
            "  wrong sign"
        };
        let _ = writeln!(
            text,
            "  {:width$} {:+.digits$} {:+.digits$} ({:+.0}%){wrong}  {} -> {}: {what}",
            pair.quantity.name,
            pair.recorded,
            pair.lab,
            pair.error() * 100.0,
            pair.from.name,
            pair.to.name,
        );
    }
    text.push('\n');
    text
}

/// The pairs as a table.
pub(super) fn table(sides: &[Beside<'_>]) -> TidyTable {
    let pairs = pairs(sides);
    let text = |of: &dyn Fn(&Pair<'_>) -> String| Data::Text(pairs.iter().map(of).collect());
    let real = |of: &dyn Fn(&Pair<'_>) -> f64| Data::Real(pairs.iter().map(of).collect());
    let column = |name, data| Column { name, data };
    TidyTable::new(
        output::PAIRS,
        vec![
            column("from", text(&|pair| pair.from.name.clone())),
            column("to", text(&|pair| pair.to.name.clone())),
            column(
                "setting",
                text(&|pair| pair.from.differences(pair.to).join(", ")),
            ),
            column("figure", text(&|pair| pair.quantity.name.to_owned())),
            column("unit", text(&|pair| pair.quantity.unit.to_owned())),
            column("recorded", real(&|pair| pair.recorded)),
            column("lab", real(&|pair| pair.lab)),
            column(
                "judged",
                Data::Flag(pairs.iter().map(|pair| !pair.small).collect()),
            ),
        ],
    )
}
