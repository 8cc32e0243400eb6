//! Small plots as SVG text: panels with axes, lines, dots, stacked areas, stems and vertical rules.
//! No library, no script; readable on paper and by the colour-blind (colours of Okabe and Ito).

use std::borrow::Cow;
use std::fmt::Write as _;

use experiment::stats::count;

/// Colours that stay apart for all kinds of colour vision.
pub(super) const PALETTE: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// Colours too dark, or too light, where the reader wants dark pages, and those in their place.
/// The other colours of the plots are seen on both.
const DARK: [(&str, &str); 16] = [
    ("#ffffff", DARK_BACK),
    ("#222", "#e6e9ec"),
    ("#444", "#98a4af"),
    ("#e4e4e4", "#2d353d"),
    ("#000000", "#ffffff"),
    ("#4d4d4d", "#c4cbd2"),
    ("#7a5195", "#a982c6"),
    ("#8c510a", "#bf812d"),
    ("#b2182b", "#e0565f"),
    ("#253494", "#7b8ce0"),
    ("#00441b", "#41ab5d"),
    ("#01665e", "#35978f"),
    // Free memory, and causes without a colour of their own.
    ("#eeeeee", "#323b44"),
    ("#d9d9d9", "#596470"),
    ("#888", "#74818d"),
    ("#0072b2", "#1f88c9"),
];
/// Behind everything, where pages are dark.
pub(super) const DARK_BACK: &str = "#1b2127";

/// The colours of dark pages, for those that want them on their screens.
fn dark_style() -> String {
    let rules = dark_rules();
    format!("<style>@media screen and (prefers-color-scheme: dark) {{{rules} }}</style>\n")
}

/// The same as rules of a page.
pub(super) fn dark_rules() -> String {
    let mut rules = String::new();
    for (light, dark) in DARK {
        for what in ["fill", "stroke"] {
            let _ = write!(rules, " [{what}=\"{light}\"] {{ {what}: {dark} }}");
        }
    }
    rules
}

/// Colours for columns, one a column; where there are more than colours, dashed lines tell them
/// apart.
pub(super) fn column_colours() -> impl Iterator<Item = (&'static str, Key)> {
    let keys = [Key::Solid, Key::Dashed].into_iter().cycle();
    keys.flat_map(|key| PALETTE.map(|colour| (colour, key)))
}

/// One panel's outer size, and the room for its axes.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 42.0;
/// Room for the figure's title, and for a row of its legend.
const TITLE: f64 = 32.0;
const LEGEND_ROW: f64 = 20.0;
/// Height of the letters of the figure's title, and of a panel's.
const TITLE_SIZE: f64 = 15.0;
const PANEL_SIZE: f64 = 12.0;
/// Panels in a row.
const PER_ROW: usize = 3;
/// Marks of a series that are drawn at most; more are thinned by extremes. A panel is half as many
/// points wide.
const MARKS_MOST: usize = 660;

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
    /// The area between two lines: (x, lower, upper).
    Area {
        points: Vec<(f64, f64, f64)>,
        colour: &'static str,
    },
    /// Bars from the bottom of the panel.
    Stems {
        points: Vec<(f64, f64)>,
        colour: &'static str,
    },
    /// A vertical line over the whole height.
    Rule { x: f64, colour: &'static str },
    /// A horizontal line over the whole width.
    Level { y: f64, colour: &'static str },
}

/// The mapping of values to places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scales {
    /// The horizontal axis is logarithmic.
    pub(super) log_x: bool,
    /// The vertical axis is logarithmic.
    pub(super) log_y: bool,
    /// Each panel has a horizontal axis of its own.
    pub(super) own_x: bool,
    /// Each panel has a vertical axis of its own.
    pub(super) own_y: bool,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) marks: Vec<Mark>,
}

/// Panels that share their axes, unless `scales` says otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) x_label: Cow<'static, str>,
    pub(super) y_label: &'static str,
    pub(super) legend: Vec<(String, &'static str, Key)>,
    pub(super) panels: Vec<Panel>,
    pub(super) scales: Scales,
}

/// The look of a legend's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Solid,
    Dashed,
    Dot,
    Box,
}

impl Key {
    /// It as SVG, from this place on.
    fn picture(self, (x, y): (f64, f64), colour: &str) -> String {
        let dash = match self {
            Self::Dot => {
                return format!(
                    "<circle cx=\"{}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>",
                    x + 11.0
                );
            }
            Self::Box => {
                return format!(
                    "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"10\" fill=\"{colour}\"/>",
                    x + 6.0,
                    y - 5.0
                );
            }
            Self::Dashed => " stroke-dasharray=\"6 3\"",
            Self::Solid => "",
        };
        format!(
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            x + 22.0
        )
    }
}

impl Mark {
    fn is_empty(&self) -> bool {
        match self {
            Self::Line { points, .. } | Self::Dots { points, .. } | Self::Stems { points, .. } => {
                points.is_empty()
            }
            Self::Area { points, .. } => points.is_empty(),
            // Lines that marks are compared with are none of them.
            Self::Rule { .. } | Self::Level { .. } => true,
        }
    }

    /// The extremes that the axes have to reach.
    fn extent(&self) -> Vec<(f64, f64)> {
        match self {
            Self::Line { points, .. } | Self::Dots { points, .. } | Self::Stems { points, .. } => {
                points.clone()
            }
            Self::Area { points, .. } => points.iter().map(|(x, _, high)| (*x, *high)).collect(),
            // It has no height, and the axis shows how far it is from zero.
            Self::Rule { x, .. } => vec![(0.0, f64::NAN), (*x, f64::NAN)],
            Self::Level { y, .. } => vec![(f64::NAN, *y)],
        }
    }
}

/// The ends of an axis and its ticks.
#[derive(Clone)]
struct Axis {
    low: f64,
    high: f64,
    step: f64,
    log: bool,
}

impl Axis {
    /// Powers of ten, from below the least value to above the greatest.
    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        Self {
            low: low * 0.6,
            high: high * 1.8,
            step: 1.0,
            log: true,
        }
    }

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
            log: false,
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let powers = (-12..=15).map(|power| 10.0_f64.powi(power));
            let within = |tick: &f64| (self.low..=self.high).contains(tick);
            return powers.filter(within).collect();
        }
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
        let unit = if self.log { value } else { self.step };
        for (size, letter) in [(1e6, "M"), (1e3, "k")] {
            if unit >= size && (self.log || self.high >= 1e5) {
                return format!("{}{letter}", value / size);
            }
        }
        if self.log {
            return format!("{value}");
        }
        let decimals = if self.step >= 1.0 {
            0
        } else {
            1 + usize::from(self.step < 0.1)
        };
        format!("{value:.decimals$}")
    }

    fn place(&self, value: f64) -> f64 {
        if self.log {
            let part = (value / self.low).ln() / (self.high / self.low).ln();
            // A value that is not above zero has no place: it lies at the bottom.
            return if part.is_nan() {
                0.0
            } else {
                part.clamp(0.0, 1.0)
            };
        }
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
pub fn escape(text: &str) -> String {
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
        let titled = (24.0 + bold_width(&self.title, TITLE_SIZE)).ceil();
        let width = titled.max(WIDTH * count(columns));
        let keys = self.placed_keys(width);
        let legend_rows = keys.last().map_or(0, |(_, row)| row + 1);
        let head = TITLE + LEGEND_ROW * count(legend_rows) + 4.0;
        let height = head + HEIGHT * count(rows);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n{}\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"12\" y=\"20\" font-size=\"{TITLE_SIZE}\" font-weight=\"bold\" fill=\"#222\">{}</text>\n",
            dark_style(),
            escape(&self.title)
        );
        self.render_legend(&mut svg, &keys);
        let axes = self.axes();
        for (index, panel) in self.panels.iter().enumerate() {
            let left = WIDTH * count(index % columns);
            let top = head + HEIGHT * count(index / columns);
            self.render_panel(&mut svg, panel, (left, top), &axes[index]);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The figure as a part of a page: a picture for each panel, so that they find room on a screen
    /// of any width. The page has `dark_rules` in its style.
    pub(super) fn render_html(&self, name: &str) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<figure class=\"plot\" id=\"{}\">\n<figcaption>{title}</figcaption>\n<p class=\"legend\">",
            escape(name)
        );
        for (label, colour, key) in &self.legend {
            let _ = write!(
                html,
                "<span><svg width=\"24\" height=\"12\" aria-hidden=\"true\">{}</svg> {}</span> ",
                key.picture((0.0, 6.0), colour),
                escape(label)
            );
        }
        html.push_str("</p>\n<div class=\"panels\">\n");
        for (panel, axes) in self.panels.iter().zip(self.axes()) {
            let _ = writeln!(
                html,
                "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: {title}\" \
                 font-family=\"sans-serif\" font-size=\"11\">",
                escape(&panel.title)
            );
            self.render_panel(&mut html, panel, (0.0, 0.0), &axes);
            html.push_str("</svg>\n");
        }
        html.push_str("</div>\n</figure>\n");
        html
    }

    /// The axes of each panel.
    fn axes(&self) -> Vec<(Axis, Axis)> {
        let over = |log: bool, values: Vec<f64>| {
            if log {
                Axis::logarithmic(values.into_iter())
            } else {
                Axis::over(values.into_iter())
            }
        };
        let of = |panels: &[Panel]| {
            let marks = panels.iter().flat_map(|panel| &panel.marks);
            let points: Vec<(f64, f64)> = marks.flat_map(Mark::extent).collect();
            let (x, y): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
            (over(self.scales.log_x, x), over(self.scales.log_y, y))
        };
        let (x, y) = of(&self.panels);
        let own = |panel: &Panel| {
            let (own_x, own_y) = of(core::slice::from_ref(panel));
            let x = if self.scales.own_x { own_x } else { x.clone() };
            let y = if self.scales.own_y { own_y } else { y.clone() };
            (x, y)
        };
        self.panels.iter().map(own).collect()
    }

    /// (x, row) of each key of the legend; rows are wrapped at `width`.
    fn placed_keys(&self, width: f64) -> Vec<(f64, usize)> {
        let (mut x, mut row) = (12.0, 0);
        let mut placed = Vec::new();
        for (label, ..) in &self.legend {
            let needed = 48.0 + 6.4 * count(label.chars().count());
            if x > 12.0 && x + needed > width {
                (x, row) = (12.0, row + 1);
            }
            placed.push((x, row));
            x += needed;
        }
        placed
    }

    fn render_legend(&self, svg: &mut String, keys: &[(f64, usize)]) {
        for ((label, colour, key), (x, row)) in self.legend.iter().zip(keys) {
            let y = TITLE + 5.0 + LEGEND_ROW * count(*row);
            let _ = writeln!(svg, "{}", key.picture((*x, y), colour));
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" fill=\"#222\">{}</text>",
                x + 28.0,
                y + 4.0,
                escape(label)
            );
        }
    }

    fn render_panel(
        &self,
        svg: &mut String,
        panel: &Panel,
        (left, top): (f64, f64),
        (x, y): &(Axis, Axis),
    ) {
        let (x0, x1) = (left + LEFT, left + WIDTH - RIGHT);
        let (y0, y1) = (top + HEIGHT - BOTTOM, top + TOP);
        let at = |point: (f64, f64)| {
            (
                x0 + x.place(point.0) * (x1 - x0),
                y0 - y.place(point.1) * (y0 - y1),
            )
        };
        // The next panel begins where this one ends: what is longer is drawn narrower.
        let room = left + WIDTH - x0;
        let squeezed = if bold_width(&panel.title, PANEL_SIZE) > room {
            format!(" textLength=\"{room}\" lengthAdjust=\"spacingAndGlyphs\"")
        } else {
            String::new()
        };
        let _ = writeln!(
            svg,
            "<text x=\"{x0}\" y=\"{}\" font-size=\"{PANEL_SIZE}\" font-weight=\"bold\" fill=\"#222\"{squeezed}>{}</text>",
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
        let _ = writeln!(
            svg,
            "<path d=\"M{x0} {y1}V{y0}H{x1}\" fill=\"none\" stroke=\"#888\"/>"
        );
        for mark in &panel.marks {
            render_mark(svg, mark, ((y1, y0), (x0, x1)), at);
        }
        let (middle_x, middle_y) = (f64::midpoint(x0, x1), f64::midpoint(y0, y1));
        if panel.marks.iter().all(Mark::is_empty) {
            let _ = writeln!(
                svg,
                "<text x=\"{middle_x}\" y=\"{middle_y}\" text-anchor=\"middle\" fill=\"#888\">none</text>"
            );
        }
        let (far_left, low) = (left + 14.0, y0 + 33.0);
        let _ = writeln!(
            svg,
            "<text x=\"{middle_x}\" y=\"{low}\" text-anchor=\"middle\" fill=\"#222\">{}</text>\
             <text x=\"{far_left}\" y=\"{middle_y}\" text-anchor=\"middle\" fill=\"#222\" \
             transform=\"rotate(-90 {far_left} {middle_y})\">{}</text>",
            escape(&self.x_label),
            escape(self.y_label)
        );
    }
}

fn render_mark(
    svg: &mut String,
    mark: &Mark,
    ((top, bottom), (left, right)): ((f64, f64), (f64, f64)),
    at: impl Fn((f64, f64)) -> (f64, f64),
) {
    let placed = |points: &[(f64, f64)]| thinned(points).into_iter().map(&at).collect::<Vec<_>>();
    let tenths = "transform=\"scale(.1)\"";
    let _ = match mark {
        Mark::Line {
            points,
            colour,
            dashed,
        } => {
            let dash = if *dashed {
                " stroke-dasharray=\"60 30\""
            } else {
                ""
            };
            writeln!(
                svg,
                "<path {tenths} d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"16\"{dash}/>",
                line(&placed(points))
            )
        }
        // One path of round points: smaller than a circle each.
        Mark::Dots { points, colour } => writeln!(
            svg,
            "<path {tenths} d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"34\" \
             stroke-linecap=\"round\" stroke-opacity=\"0.55\"/>",
            dots(&placed(points))
        ),
        Mark::Stems { points, colour } => {
            let mut path = String::new();
            for (x, y) in points.iter().copied().map(&at) {
                let _ = write!(path, "M{x:.1} {bottom:.1}V{y:.1}");
            }
            writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.2\"/>"
            )
        }
        Mark::Area { points, colour } => {
            let upper = points.iter().map(|(x, _, high)| at((*x, *high)));
            let lower = points.iter().rev().map(|(x, low, _)| at((*x, *low)));
            let around: Vec<(f64, f64)> = upper.chain(lower).collect();
            writeln!(
                svg,
                "<path {tenths} d=\"{}Z\" fill=\"{colour}\" stroke=\"none\"/>",
                line(&around)
            )
        }
        Mark::Rule { x, colour } => {
            let (x, _) = at((*x, 0.0));
            writeln!(
                svg,
                "<path d=\"M{x:.1} {bottom:.1}V{top:.1}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-dasharray=\"3 3\"/>"
            )
        }
        Mark::Level { y, colour } => {
            let (_, y) = at((0.0, *y));
            writeln!(
                svg,
                "<path d=\"M{left:.1} {y:.1}H{right:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
                 stroke-dasharray=\"6 3\"/>"
            )
        }
    };
}

/// Places in whole tenths, without those that repeat the one before.
fn in_tenths(points: &[(f64, f64)]) -> Vec<(i64, i64)> {
    #[expect(clippy::cast_possible_truncation, reason = "places in a picture")]
    let whole = |part: f64| (part * 10.0).round() as i64;
    let mut places: Vec<(i64, i64)> = Vec::with_capacity(points.len());
    for (x, y) in points {
        let place = (whole(*x), whole(*y));
        if places.last() != Some(&place) {
            places.push(place);
        }
    }
    places
}

/// A line through the points as steps in tenths: a third of what places to the tenth take. Steps
/// that go on as the one before along an axis are one.
fn line(points: &[(f64, f64)]) -> String {
    let places = in_tenths(points);
    let Some(first) = places.first() else {
        return String::new();
    };
    let mut steps: Vec<(i64, i64)> = Vec::with_capacity(places.len());
    for two in places.windows(2) {
        let step = (two[1].0 - two[0].0, two[1].1 - two[0].1);
        match steps.last_mut() {
            Some(last) if step.1 == 0 && last.1 == 0 && step.0.signum() == last.0.signum() => {
                last.0 += step.0;
            }
            Some(last) if step.0 == 0 && last.0 == 0 && step.1.signum() == last.1.signum() => {
                last.1 += step.1;
            }
            _ => steps.push(step),
        }
    }
    let mut path = format!("M{} {}", first.0, first.1);
    for (at, (x, y)) in steps.into_iter().enumerate() {
        // A minus tells two numbers apart as well as a blank does.
        let before = match (at, x < 0) {
            (0, _) => "l",
            (_, true) => "",
            (_, false) => " ",
        };
        let between = if y < 0 { "" } else { " " };
        let _ = write!(path, "{before}{x}{between}{y}");
    }
    path
}

/// A dot at each of the points, in tenths.
fn dots(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut at = (0, 0);
    for (x, y) in in_tenths(points) {
        let between = if y < at.1 { "" } else { " " };
        let _ = write!(path, "m{}{between}{}h0", x - at.0, y - at.1);
        at = (x, y);
    }
    path
}

/// The greatest width of bold text of this height: letters by their kind, each as wide as the
/// widest of its kind in DejaVu Sans Bold, a wide font. The reader's font is not known here.
fn bold_width(text: &str, size: f64) -> f64 {
    let ems = text.chars().map(|letter| match letter {
        ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | '/' | '-' | '(' | ')' | 'i' | 'j' | 'l'
        | 'I' => 0.46,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.11,
        'A'..='Z' | '+' | '=' | '<' | '>' | '#' | '&' => 0.88,
        '0'..='9' | 'a'..='z' | '_' | '"' => 0.72,
        // Of other scripts some are twice as wide.
        _ => 1.11,
    });
    ems.sum::<f64>() * size
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
    fn a_logarithmic_axis_has_its_ticks_at_powers_of_ten() {
        let axis = Axis::logarithmic([0.0, 1.0, 50_000.0].into_iter());
        assert_eq!(axis.ticks(), [1.0, 10.0, 100.0, 1e3, 1e4]);
        let labels: Vec<_> = axis.ticks().iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(labels, ["1", "10", "100", "1k", "10k"]);
        assert_eq!(axis.place(0.0), 0.0);
        let (ten, hundred) = (axis.place(10.0), axis.place(100.0));
        assert!((axis.place(1e3) - hundred - (hundred - ten)).abs() < 1e-9);
    }

    #[test]
    fn a_long_legend_is_wrapped_and_the_panels_move_down() {
        let long = |key: usize| (format!("a cause with a long name {key}"), "#000", Key::Box);
        let figure = Figure {
            legend: (0..8).map(long).collect(),
            panels: vec![Panel {
                title: "p".into(),
                marks: Vec::new(),
            }],
            ..Figure::default()
        };
        let placed = figure.placed_keys(WIDTH);
        assert!(placed.iter().all(|(x, _)| *x + 28.0 < WIDTH));
        assert_eq!(placed.last().map(|(_, row)| *row), Some(7));
        let height = TITLE + 8.0 * LEGEND_ROW + 4.0 + HEIGHT;
        assert!(figure.render().contains(&format!("height=\"{height}\"")));
    }

    #[test]
    fn a_long_title_ends_within_the_picture() {
        let panel = |title: &str| Panel {
            title: title.into(),
            marks: Vec::new(),
        };
        let figure = Figure {
            title: "40-of-64-beside-a-light-one: what each writer writes into the cache".into(),
            panels: vec![panel("tidegate"), panel(&"a long name ".repeat(6))],
            ..Figure::default()
        };
        // 620 wide in DejaVu Sans Bold of this size, and two panels are wider.
        assert!((620.0..720.0).contains(&bold_width(&figure.title, TITLE_SIZE)));
        let svg = figure.render();
        assert!(svg.contains("width=\"800\""), "{svg}");
        assert_eq!(svg.matches("textLength=\"338\"").count(), 1, "{svg}");
        let long = Figure {
            title: figure.title.repeat(2),
            ..figure
        };
        let wide = (24.0 + bold_width(&long.title, TITLE_SIZE)).ceil();
        assert!(long.render().contains(&format!("width=\"{wide}\"")));
    }

    #[test]
    fn a_line_is_steps_in_tenths_and_straight_ones_are_one() {
        let flat = [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (4.0, 1.5), (3.5, 1.5)];
        assert_eq!(line(&flat), "M10 20l20 0 10-5-5 0");
        assert_eq!(dots(&flat[2..4]), "m30 20h0m10-5h0");
        assert_eq!(line(&[]), "");
    }

    #[test]
    fn a_page_gets_a_picture_for_each_panel_and_the_legend_once() {
        let panel = |title: &str| Panel {
            title: title.into(),
            marks: Vec::new(),
        };
        let figure = Figure {
            title: "a & b".into(),
            legend: vec![("key".into(), "#000", Key::Box)],
            panels: vec![panel("one"), panel("two")],
            ..Figure::default()
        };
        let html = figure.render_html("name");
        assert_eq!(html.matches("viewBox").count(), 2, "{html}");
        assert_eq!(html.matches("key").count(), 1, "{html}");
        assert!(html.contains("id=\"name\"") && html.contains("a &amp; b"));
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

    /// Contrast as of WCAG 2 between two colours.
    fn contrast(one: &str, other: &str) -> f64 {
        let light = |colour: &str| {
            let digits = &colour[1..];
            let wide = digits.len() / 3;
            let channel = |at: usize| {
                let digits = digits[at * wide..(at + 1) * wide].repeat(2 / wide);
                let value = f64::from(u8::from_str_radix(&digits, 16).unwrap()) / 255.0;
                if value <= 0.040_45 {
                    value / 12.92
                } else {
                    ((value + 0.055) / 1.055).powf(2.4)
                }
            };
            0.05 + 0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
        };
        let (one, other) = (light(one), light(other));
        one.max(other) / one.min(other)
    }

    #[test]
    fn whatever_is_drawn_is_seen_on_dark_pages() {
        let style = dark_style();
        let dark = |colour: &'static str| {
            let dark = DARK.iter().find(|(light, _)| *light == colour);
            dark.map_or(colour, |(_, dark)| dark)
        };
        assert!(style.contains("[stroke=\"#000000\"] { stroke: #ffffff }"));
        let drawn = PALETTE.into_iter().chain(super::super::plots::colours());
        for colour in drawn.chain(["#222", "#444", "#888"]) {
            let seen = contrast(dark(colour), DARK_BACK);
            assert!(seen >= 3.0, "{colour} is {} there: {seen}", dark(colour));
        }
        assert!(contrast(dark("#222"), DARK_BACK) > 10.0);
        let svg = Figure::default().render();
        assert!(svg.contains(&style), "{svg}");
    }

    #[test]
    fn columns_beyond_the_colours_are_dashed() {
        let all: Vec<_> = column_colours().take(2 * PALETTE.len()).collect();
        assert_eq!(
            (all[0], all[7]),
            ((PALETTE[0], Key::Solid), (PALETTE[0], Key::Dashed))
        );
        assert!(
            all.iter()
                .enumerate()
                .all(|(at, one)| !all[..at].contains(one))
        );
    }

    #[test]
    fn names_cannot_break_out_of_the_picture() {
        let figure = Figure {
            title: "<script>".into(),
            x_label: "t".into(),
            y_label: "y",
            legend: Vec::new(),
            panels: vec![Panel {
                title: "a & b".into(),
                marks: Vec::new(),
            }],
            ..Figure::default()
        };
        let svg = figure.render();
        assert!(!svg.contains("<script>") && svg.contains("a &amp; b"));
    }
}
