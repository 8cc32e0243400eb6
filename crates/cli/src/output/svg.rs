//! Small plots as SVG text: panels with axes, lines, dots and horizontal rules. No library, no
//! script; readable on paper and by the colour-blind (colours of Okabe and Ito).

use std::fmt::Write as _;

/// Colours that stay apart for all kinds of colour vision.
pub(super) const PALETTE: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// One panel's outer size, and the room for its axes.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 42.0;
/// Room for the figure's title and legend.
const HEAD: f64 = 56.0;
/// Panels in a row.
const PER_ROW: usize = 3;
/// Marks of a series that are drawn at most; more are thinned by extremes.
const MARKS_MOST: usize = 1500;

/// Something drawn in a panel.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    Line {
        points: Vec<(f64, f64)>,
        colour: &'static str,
        dashed: bool,
    },
    Dots {
        points: Vec<(f64, f64)>,
        colour: &'static str,
    },
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) marks: Vec<Mark>,
}

/// Panels that share their axes.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) x_label: &'static str,
    pub(super) y_label: &'static str,
    pub(super) legend: Vec<(String, &'static str, Key)>,
    pub(super) panels: Vec<Panel>,
}

/// How a legend's key looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Solid,
    Dashed,
    Dot,
}

impl Mark {
    fn points(&self) -> &[(f64, f64)] {
        match self {
            Self::Line { points, .. } | Self::Dots { points, .. } => points,
        }
    }
}

/// The ends of an axis and its ticks.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// From zero, or from the least value if that is far away, to a round number.
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if low > 0.0 && low < high * 0.6 || low == high {
            low = low.min(0.0);
        }
        if high <= low {
            high = low + 1.0;
        }
        let step = round_step((high - low) / 5.0);
        Self {
            low: (low / step).floor() * step,
            high: (high / step).ceil() * step,
            step,
        }
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut at = self.low;
        // Bounded: the step is at least a tenth of the range.
        while at <= self.high + self.step * 0.01 && ticks.len() < 20 {
            ticks.push(at);
            at += self.step;
        }
        ticks
    }

    fn label(&self, value: f64) -> String {
        let decimals = if self.step >= 1.0 {
            0
        } else {
            1 + usize::from(self.step < 0.1)
        };
        format!("{value:.decimals$}")
    }

    fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(raw: f64) -> f64 {
    let power = 10.0_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= raw * 0.999);
    step.unwrap_or(10.0) * power
}

/// The text with what XML reserves replaced.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

impl Figure {
    /// The figure as a complete SVG document.
    pub(super) fn render(&self) -> String {
        let columns = self.panels.len().clamp(1, PER_ROW);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let (width, height) = (WIDTH * count(columns), HEAD + HEIGHT * count(rows));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"12\" y=\"20\" font-size=\"15\" font-weight=\"bold\" fill=\"#222\">{}</text>\n",
            escape(&self.title)
        );
        self.render_legend(&mut svg);
        let values = || {
            self.panels
                .iter()
                .flat_map(|panel| &panel.marks)
                .flat_map(Mark::points)
        };
        let x = Axis::over(values().map(|point| point.0));
        let y = Axis::over(values().map(|point| point.1));
        for (index, panel) in self.panels.iter().enumerate() {
            let left = WIDTH * count(index % columns);
            let top = HEAD + HEIGHT * count(index / columns);
            self.render_panel(&mut svg, panel, (left, top), &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn render_legend(&self, svg: &mut String) {
        let mut x = 12.0;
        for (label, colour, key) in &self.legend {
            let _ = match key {
                Key::Dot => writeln!(
                    svg,
                    "<circle cx=\"{}\" cy=\"37\" r=\"4\" fill=\"{colour}\"/>",
                    x + 11.0
                ),
                Key::Solid | Key::Dashed => {
                    let dash = if *key == Key::Dashed {
                        " stroke-dasharray=\"6 3\""
                    } else {
                        ""
                    };
                    writeln!(
                        svg,
                        "<line x1=\"{x}\" y1=\"37\" x2=\"{}\" y2=\"37\" stroke=\"{colour}\" \
                         stroke-width=\"2\"{dash}/>",
                        x + 22.0
                    )
                }
            };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"41\" fill=\"#222\">{}</text>",
                x + 28.0,
                escape(label)
            );
            x += 48.0 + 6.4 * count(label.chars().count());
        }
    }

    fn render_panel(
        &self,
        svg: &mut String,
        panel: &Panel,
        (left, top): (f64, f64),
        x: &Axis,
        y: &Axis,
    ) {
        let (x0, x1) = (left + LEFT, left + WIDTH - RIGHT);
        let (y0, y1) = (top + HEIGHT - BOTTOM, top + TOP);
        let at = |point: (f64, f64)| {
            (
                x0 + x.place(point.0) * (x1 - x0),
                y0 - y.place(point.1) * (y0 - y1),
            )
        };
        let _ = writeln!(
            svg,
            "<text x=\"{x0}\" y=\"{}\" font-size=\"12\" font-weight=\"bold\" fill=\"#222\">{}</text>",
            y1 - 8.0,
            escape(&panel.title)
        );
        for tick in y.ticks() {
            let (_, at_y) = at((x.low, tick));
            let _ = writeln!(
                svg,
                "<line x1=\"{x0}\" y1=\"{at_y:.1}\" x2=\"{x1}\" y2=\"{at_y:.1}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{}</text>",
                x0 - 6.0,
                at_y + 4.0,
                y.label(tick)
            );
        }
        for tick in x.ticks() {
            let (at_x, _) = at((tick, y.low));
            let _ = writeln!(
                svg,
                "<line x1=\"{at_x:.1}\" y1=\"{y0}\" x2=\"{at_x:.1}\" y2=\"{}\" stroke=\"#888\"/>\
                 <text x=\"{at_x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
                y0 + 4.0,
                y0 + 16.0,
                x.label(tick)
            );
        }
        for mark in &panel.marks {
            render_mark(svg, mark, at);
        }
        let (middle_x, middle_y) = (f64::midpoint(x0, x1), f64::midpoint(y0, y1));
        let (far_left, low) = (left + 14.0, y0 + 33.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{x0} {y1}V{y0}H{x1}\" fill=\"none\" stroke=\"#888\"/>\
             <text x=\"{middle_x}\" y=\"{low}\" text-anchor=\"middle\" fill=\"#222\">{}</text>\
             <text x=\"{far_left}\" y=\"{middle_y}\" text-anchor=\"middle\" fill=\"#222\" \
             transform=\"rotate(-90 {far_left} {middle_y})\">{}</text>",
            escape(self.x_label),
            escape(self.y_label)
        );
    }
}

fn render_mark(svg: &mut String, mark: &Mark, at: impl Fn((f64, f64)) -> (f64, f64)) {
    let points: Vec<(f64, f64)> = thinned(mark.points()).into_iter().map(at).collect();
    match mark {
        Mark::Line { colour, dashed, .. } => {
            let mut path = String::new();
            for (index, (x, y)) in points.iter().enumerate() {
                let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
            }
            let dash = if *dashed {
                " stroke-dasharray=\"6 3\""
            } else {
                ""
            };
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dash}/>"
            );
        }
        Mark::Dots { colour, .. } => {
            // One path of round points: smaller than a circle each.
            let mut path = String::new();
            for (x, y) in &points {
                let _ = write!(path, "M{x:.1} {y:.1}h0");
            }
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"3.4\" \
                 stroke-linecap=\"round\" stroke-opacity=\"0.55\"/>"
            );
        }
    }
}

/// At most `MARKS_MOST` of the points: of each stretch the least and the greatest, in order.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MARKS_MOST {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(MARKS_MOST / 2);
    let mut kept = Vec::with_capacity(MARKS_MOST);
    for part in points.chunks(stretch) {
        let by_height = |left: &&(f64, f64), right: &&(f64, f64)| left.1.total_cmp(&right.1);
        let low = part.iter().min_by(by_height).copied();
        let high = part.iter().max_by(by_height).copied();
        let mut ends: Vec<(f64, f64)> = low.into_iter().chain(high).collect();
        ends.sort_by(|left, right| left.0.total_cmp(&right.0));
        kept.extend(ends);
    }
    kept
}

#[expect(clippy::cast_precision_loss, reason = "counts of panels and letters")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_begin_at_zero_and_end_at_round_numbers() {
        let axis = Axis::over([3.0, 97.0].into_iter());
        assert_eq!((axis.low, axis.high, axis.step), (0.0, 100.0, 20.0));
        assert_eq!(axis.ticks().len(), 6);
        let narrow = Axis::over([95.0, 99.0].into_iter());
        assert_eq!((narrow.low, narrow.high), (95.0, 99.0));
        let flat = Axis::over([0.0, 0.0].into_iter());
        assert!(flat.high > flat.low);
        let none = Axis::over(std::iter::empty());
        assert_eq!((none.low, none.high), (0.0, 1.0));
    }

    #[test]
    fn thinning_keeps_the_extremes() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|i| (f64::from(i), if i == 54_321 { 9.0 } else { 1.0 }))
            .collect();
        let kept = thinned(&points);
        assert!(kept.len() <= MARKS_MOST);
        assert!(kept.contains(&(54_321.0, 9.0)));
    }

    #[test]
    fn names_cannot_break_out_of_the_picture() {
        let figure = Figure {
            title: "<script>".into(),
            x_label: "t",
            y_label: "y",
            legend: Vec::new(),
            panels: vec![Panel {
                title: "a & b".into(),
                marks: Vec::new(),
            }],
        };
        let svg = figure.render();
        assert!(!svg.contains("<script>") && svg.contains("a &amp; b"));
    }
}
