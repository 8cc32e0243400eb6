//! Lines over one value: one panel a thing that is measured, one colour a name.

use super::plain;
use super::svg::{Figure, Key, Mark, Panel, Scales, column_colours};

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend; curves of one name have one colour in all panels.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A figure of panels with a title each.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Of its file.
    pub name: String,
    /// Its row, a colon, and what it shows.
    pub title: String,
    /// The label of the horizontal axis.
    pub x_label: String,
    /// The label of the vertical axis, if it is the same in all panels.
    pub y_label: &'static str,
    /// The horizontal axis is logarithmic.
    pub log_x: bool,
    /// Each panel has a horizontal axis of its own; without it, a vertical one.
    pub own_x: bool,
    /// The panels.
    pub panels: Vec<(String, Vec<Curve>)>,
}

impl Lines {
    /// It as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        self.figure().1.render()
    }

    /// It as a part of a page.
    #[must_use]
    pub fn html(&self) -> String {
        let (name, figure) = self.figure();
        figure.render_html(&name)
    }

    /// (file name, figure).
    pub(super) fn figure(&self) -> (String, Figure) {
        let mut names: Vec<&str> = Vec::new();
        for curve in self.panels.iter().flat_map(|(_, curves)| curves) {
            if !names.contains(&&*curve.name) {
                names.push(&curve.name);
            }
        }
        let legend: Vec<_> = names
            .into_iter()
            .zip(column_colours())
            .map(|(name, (colour, key))| (name.to_owned(), colour, key))
            .collect();
        let mark = |curve: &Curve| {
            let key = legend.iter().find(|(name, _, _)| *name == curve.name);
            let (_, colour, key) = key.expect("every name is in the legend");
            Mark::Line {
                points: curve.points.clone(),
                colour,
                dashed: *key == Key::Dashed,
            }
        };
        let panel = |(title, curves): &(String, Vec<Curve>)| Panel {
            title: title.clone(),
            marks: curves.iter().map(mark).collect(),
        };
        let figure = Figure {
            title: self.title.clone(),
            x_label: self.x_label.clone().into(),
            y_label: self.y_label,
            panels: self.panels.iter().map(panel).collect(),
            legend: legend.clone(),
            scales: Scales {
                log_x: self.log_x,
                own_x: self.own_x,
                own_y: !self.own_x,
                ..Scales::default()
            },
        };
        (plain(&self.name), figure)
    }
}
