//! Curves over a logarithmic axis: one panel a thing that is measured, one colour a name.

use super::svg::{Figure, Key, Mark, Panel, Scales, column_colours};

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend; curves of one name have one colour in all panels.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A figure of panels with a title each, as SVG. `labels`: of the axes.
#[must_use]
pub fn curves(
    title: &str,
    labels: (&'static str, &'static str),
    panels: Vec<(String, Vec<Curve>)>,
) -> String {
    let mut names: Vec<String> = Vec::new();
    for curve in panels.iter().flat_map(|(_, curves)| curves) {
        if !names.contains(&curve.name) {
            names.push(curve.name.clone());
        }
    }
    let legend: Vec<_> = names
        .into_iter()
        .zip(column_colours())
        .map(|(name, (colour, key))| (name, colour, key))
        .collect();
    let mark = |curve: Curve| {
        let key = legend.iter().find(|(name, _, _)| *name == curve.name);
        let (_, colour, key) = key.expect("every name is in the legend");
        Mark::Line {
            points: curve.points,
            colour,
            dashed: *key == Key::Dashed,
        }
    };
    let panel = |(title, curves): (String, Vec<Curve>)| Panel {
        title,
        marks: curves.into_iter().map(mark).collect(),
    };
    Figure {
        title: title.to_owned(),
        x_label: labels.0,
        y_label: labels.1,
        panels: panels.into_iter().map(panel).collect(),
        legend: legend.clone(),
        scales: Scales {
            log_x: true,
            own_x: true,
            ..Scales::default()
        },
    }
    .render()
}
