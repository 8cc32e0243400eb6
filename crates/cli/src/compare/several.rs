//! Several recordings: one row each and figure, and how far the lab is off.

use core::fmt::Write as _;

use super::command::Side;
use super::measure::{QUANTITIES, Quantity};
use super::show::percent;

/// Figures that are judged over recordings.
const JUDGED: [&str; 4] = ["throughput", "level", "pauses: count", "pauses: median"];

fn judged() -> impl Iterator<Item = &'static Quantity> {
    QUANTITIES
        .iter()
        .filter(|quantity| JUDGED.contains(&quantity.name))
}

/// The tables over all recordings, of the first column of the lab.
pub(super) fn render(sides: &[Side], columns: &[String]) -> String {
    let mut text = format!("All recordings: recorded, {}, difference\n", columns[0]);
    let width = sides
        .iter()
        .map(|side| side.recording.setting.name.len())
        .max()
        .unwrap_or(0);
    let _ = write!(text, "{:width$}", "");
    for quantity in judged() {
        let _ = write!(text, "{:>30}", quantity.name);
    }
    text.push('\n');
    for side in sides {
        let _ = write!(text, "{:width$}", side.recording.setting.name);
        for quantity in judged() {
            let (recorded, lab) = ((quantity.of)(&side.recorded), (quantity.of)(&side.lab[0]));
            let shown = |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| {
                    format!("{value:.*}", quantity.digits)
                })
            };
            let change = percent(recorded, lab).unwrap_or_default();
            let _ = write!(
                text,
                "{:>10} {:>9} {change:>9}",
                shown(recorded),
                shown(lab)
            );
        }
        text.push('\n');
    }
    text.push('\n');
    text
}
