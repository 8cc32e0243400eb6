//! All recordings of dirty throttling in one table: how far the lab is off, and whether a constant
//! would do as well.

use core::fmt::Write as _;

use super::guess::{self, JUDGED, mean};
use super::kind::{Beside, Kind};
use super::measure::{Measures, Quantity, by_name};
use super::setting::Setting;
use super::show::percent;

fn quantities() -> impl Iterator<Item = &'static Quantity> {
    JUDGED.iter().filter_map(|name| by_name(name))
}

/// The table over recordings of dirty throttling.
pub(super) fn overview<K: Kind<Setting = Setting, Measures = Measures>>(
    sides: &[Beside<'_, K>],
    column: &str,
) -> String {
    const NARROW: usize = 30;
    let names = sides.iter().map(|side| side.setting.name.len());
    let width = names
        .max()
        .unwrap_or(0)
        .max("constant guess: mean |error|".len());
    let mut text = format!(
        "All {} recordings: recorded, {column}, difference\n{:width$}",
        sides.len(),
        ""
    );
    for quantity in quantities() {
        let _ = write!(text, "{:>NARROW$}", quantity.label.with_unit());
    }
    text.push('\n');
    for side in sides {
        let _ = write!(text, "{:width$}", side.setting.name);
        for quantity in quantities() {
            let (recorded, lab) = ((quantity.of)(side.recorded), (quantity.of)(side.lab));
            let shown = |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| {
                    format!("{value:.*}", quantity.label.digits)
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
    line("skill (1 - error / guess's)", &|q| {
        let own = mean(errors(q).into_iter())?;
        let fitted = fitted(q, sides)?;
        (fitted.error > 0.0).then(|| format!("{:.2}", 1.0 - own / fitted.error))
    });
    text.push_str("The guesses, each fitted to these recordings:\n");
    for quantity in quantities() {
        if let Some(fitted) = fitted(quantity, sides) {
            let _ = writeln!(
                text,
                "  {} = {:.3} {}",
                quantity.label.name, fitted.share, fitted.of
            );
        }
    }
    text
}

fn fitted<K: Kind<Setting = Setting, Measures = Measures>>(
    quantity: &'static Quantity,
    sides: &[Beside<'_, K>],
) -> Option<guess::Fitted> {
    let recorded: Vec<(&Setting, f64)> = sides
        .iter()
        .filter_map(|side| Some((side.setting, (quantity.of)(side.recorded)?)))
        .collect();
    guess::best(quantity.label.name, &recorded)
}

/// |lab / recorded - 1|.
fn error<K: Kind<Measures = Measures>>(quantity: &Quantity, side: &Beside<'_, K>) -> Option<f64> {
    let recorded = (quantity.of)(side.recorded).filter(|value| *value > 0.0)?;
    let lab = (quantity.of)(side.lab).unwrap_or(0.0);
    Some((lab / recorded - 1.0).abs())
}
