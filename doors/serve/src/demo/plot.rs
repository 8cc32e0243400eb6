//! The plot: every write and every commit, when it was sent and how long it took; one panel for
//! each part.

use std::fmt::Write as _;
use std::time::Duration;

use super::Part;
use super::load::Met;

/// A panel, and the room around it.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 70.0;
const GAP: f64 = 28.0;
const BOTTOM: f64 = 50.0;
/// The lengths shown, as powers of ten of a microsecond: 10 us to 100 s.
const LEAST: f64 = 1.0;
const MOST: f64 = 8.0;
/// Dots of one client in one panel; of more, the longest of each group are shown.
const DOTS_MOST: usize = 1200;
/// Of Okabe and Ito.
const HEAVY: &str = "#56b4e9";
const LIGHT: &str = "#d55e00";
const COMMITS: &str = "#222222";

/// Draws all parts beside each other.
pub(super) fn draw(parts: &[Part]) -> String {
    let count = parts.len() as f64;
    let (width, height) = (
        LEFT + count * WIDTH + (count - 1.0) * GAP + 20.0,
        TOP + HEIGHT + BOTTOM,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">How long each write and each commit took: tidegate demo, a \
         disk of 2 ms a request</text>\n"
    );
    for (at, part) in parts.iter().enumerate() {
        let left = LEFT + at as f64 * (WIDTH + GAP);
        panel(&mut svg, part, left, at == 0);
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, part: &Part, left: f64, has_labels: bool) {
    let bottom = TOP + HEIGHT;
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        TOP - 12.0,
        part.title
    );
    let names = [
        "10 µs", "0.1 ms", "1 ms", "10 ms", "0.1 s", "1 s", "10 s", "100 s",
    ];
    for (at, name) in names.iter().enumerate() {
        let y = bottom - at as f64 / (MOST - LEAST) * HEIGHT;
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
            left + WIDTH
        );
        if has_labels {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                left - 8.0,
                y + 4.0
            );
        }
    }
    let seconds = part.lasting.as_secs_f64();
    let step = (part.lasting.as_secs() / 5).max(1);
    for second in (0..=part.lasting.as_secs()).step_by(usize::try_from(step).unwrap_or(1)) {
        let x = left + second as f64 / seconds * WIDTH;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>",
            bottom + 20.0
        );
    }
    let mut client = |met: &Met, flushes: bool, colour: &str, size: f64, name: &str, row: f64| {
        for (at, took) in thinned(met, flushes) {
            let x = left + at.as_secs_f64() / seconds * WIDTH;
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"{size}\" fill=\"{colour}\"/>",
                height_of(took)
            );
        }
        let _ = writeln!(
            svg,
            "<circle cx=\"{0}\" cy=\"{1}\" r=\"4\" fill=\"{colour}\"/><text x=\"{2}\" y=\"{3}\">{name}</text>",
            left + WIDTH - 100.0 * row,
            TOP - 16.0,
            left + WIDTH - 100.0 * row + 10.0,
            TOP - 12.0
        );
    };
    client(&part.heavy, false, HEAVY, 1.6, "heavy", 3.0);
    client(&part.light, false, LIGHT, 2.6, "light", 2.0);
    client(&part.commits, true, COMMITS, 3.6, "commits", 1.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#444\"/>"
    );
}

/// Where a length is drawn, from the top.
fn height_of(took: Duration) -> f64 {
    let micros = (took.as_secs_f64() * 1e6).max(1.0);
    let part = (micros.log10() - LEAST) / (MOST - LEAST);
    TOP + HEIGHT - part.clamp(0.0, 1.0) * HEIGHT
}

/// The longest write, or flush, of each group of neighbours, so that no peak is left out.
fn thinned(met: &Met, flushes: bool) -> Vec<(Duration, Duration)> {
    let writes: Vec<(Duration, Duration)> = met
        .calls
        .iter()
        .filter(|call| call.is_flush == flushes)
        .map(|call| (call.from, call.took))
        .collect();
    let group = writes.len().div_ceil(DOTS_MOST).max(1);
    let longest =
        |group: &[(Duration, Duration)]| group.iter().max_by_key(|(_, took)| *took).copied();
    writes.chunks(group).filter_map(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::load::Call;

    fn met(writes: u64) -> Met {
        let call = |at| Call {
            from: Duration::from_millis(at),
            took: Duration::from_micros(if at == 777 { 2_000_000 } else { 100 }),
            is_flush: false,
        };
        Met {
            calls: (0..writes).map(call).collect(),
            versions: Vec::new(),
        }
    }

    #[test]
    fn no_peak_is_left_out() {
        let thinned = thinned(&met(20_000), false);
        assert!(thinned.len() <= DOTS_MOST);
        assert!(thinned.iter().any(|(_, took)| took.as_secs() == 2));
    }

    #[test]
    fn the_drawing_is_whole() {
        let part = Part {
            late: Duration::ZERO,
            title: "paced",
            heavy: met(1000),
            light: met(10),
            commits: Met::default(),
            from: Duration::ZERO,
            lasting: Duration::from_secs(1),
            waiting: Some(0),
            taken: Some(0),
        };
        let svg = draw(&[part]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 1010 + 3);
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
