//! Two folders of results side by side: what changed, by how much, and which bands with it.
//!
//! The files that the folders hold are compared (`runs.csv`, `samples.csv`, `bands.json`,
//! `series.csv`), so results of any age and place can be: of `run`, `reproduce`, `compare`. Cells
//! are paired by row and column; where each folder has one column, these are paired.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::output::web::{self, Cell, Page};
use crate::output::{Curve, Folder, Lines, OutputError};

/// Changes of less than this part are counted, not printed.
const NOTICEABLE: f64 = 0.01;
/// Lines of scenarios that are printed.
const LINES_MOST: usize = 20;
const PAGES_PER_MIB: f64 = 256.0;

/// The folders to compare, and the output.
#[derive(Debug)]
pub struct Asked {
    /// The folder before.
    pub one: PathBuf,
    /// The folder now.
    pub other: PathBuf,
    /// Folder for the page and its plots.
    pub out: Option<PathBuf>,
    /// Small changes are printed, too.
    pub all: bool,
}

/// The folders cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A folder without results.
    #[error(
        "{}: {cause}; a folder of results has runs.csv and samples.csv, as `tidegate run NAME --out DIR` writes them", path.display()
    )]
    Folder {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// No cell is in both.
    #[error(
        "{one} and {other} have no row and column in common: {one} has {rows}; {other} has {others}"
    )]
    Nothing {
        /// The first folder.
        one: String,
        /// The second.
        other: String,
        /// Rows and columns of the first.
        rows: String,
        /// Of the second.
        others: String,
    },
    /// The page could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

#[derive(Deserialize)]
struct RunRow {
    run_id: String,
    case: String,
    policy: String,
    replica: u32,
}

#[derive(Deserialize)]
struct SampleRow {
    run_id: String,
    task_kind: String,
    metric: String,
    unit: String,
    better: String,
    value: f64,
}

#[derive(Deserialize)]
struct SeriesRow {
    run_id: String,
    t_virt_s: f64,
    scope: String,
    metric: String,
    value: f64,
}

#[derive(Deserialize)]
struct BandRow {
    standing: String,
    id: String,
    case: String,
    what: String,
    value: Option<f64>,
}

/// Row and column.
type CellName = (String, String);

/// A metric of a cell: unit, which way is better, and its values.
struct Metric {
    unit: String,
    better: String,
    values: Vec<f64>,
}

impl Metric {
    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / experiment::stats::count(self.values.len())
    }
}

/// Over time, of the first repetition: dirty + writeback in MiB; MiB a second that tasks moved.
#[derive(Default)]
struct Series {
    level: Vec<(f64, f64)>,
    moved: Vec<(f64, f64)>,
}

/// The results in a folder.
struct Results {
    name: String,
    metrics: BTreeMap<CellName, BTreeMap<String, Metric>>,
    series: BTreeMap<CellName, Series>,
    bands: Vec<BandRow>,
    scenario: String,
}

fn rows<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, DiffError> {
    let wrong = |cause: &dyn core::fmt::Display| DiffError::Folder {
        path: path.to_owned(),
        cause: cause.to_string(),
    };
    let mut reader = csv::Reader::from_path(path).map_err(|error| wrong(&error))?;
    let rows = reader.deserialize().collect::<Result<_, _>>();
    rows.map_err(|error| wrong(&error))
}

impl Results {
    fn read(folder: &Path) -> Result<Self, DiffError> {
        let runs: Vec<RunRow> = rows(&folder.join("runs.csv"))?;
        let cell = |run: &RunRow| (run.case.clone(), run.policy.clone());
        let cells: BTreeMap<&str, CellName> =
            runs.iter().map(|run| (&*run.run_id, cell(run))).collect();
        let mut metrics: BTreeMap<CellName, BTreeMap<String, Metric>> = BTreeMap::new();
        for sample in rows::<SampleRow>(&folder.join("samples.csv"))? {
            let Some(cell) = cells.get(&*sample.run_id) else {
                continue;
            };
            if sample.task_kind != "run" {
                continue;
            }
            let own = metrics.entry(cell.clone()).or_default();
            let metric = own.entry(sample.metric).or_insert_with(|| Metric {
                unit: sample.unit,
                better: sample.better,
                values: Vec::new(),
            });
            metric.values.push(sample.value);
        }
        let first: BTreeMap<&str, CellName> = runs
            .iter()
            .filter(|run| run.replica == 0)
            .map(|run| (&*run.run_id, cell(run)))
            .collect();
        // Beside comparisons nobody has bands, and old folders have none.
        let bands = std::fs::read_to_string(folder.join("bands.json")).unwrap_or_default();
        Ok(Self {
            name: folder.display().to_string(),
            metrics,
            series: series(folder, &first)?,
            bands: serde_json::from_str(&bands).unwrap_or_default(),
            scenario: std::fs::read_to_string(folder.join("scenario.toml")).unwrap_or_default(),
        })
    }

    fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = self.metrics.keys().map(|(_, column)| &**column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    fn cells(&self) -> String {
        let names = self.metrics.keys();
        let names: Vec<String> = names
            .map(|(row, column)| format!("{row}/{column}"))
            .collect();
        names.join(", ")
    }
}

fn series(
    folder: &Path,
    first: &BTreeMap<&str, CellName>,
) -> Result<BTreeMap<CellName, Series>, DiffError> {
    let path = folder.join("series.csv");
    let mut all: BTreeMap<CellName, Series> = BTreeMap::new();
    if !path.exists() {
        return Ok(all);
    }
    for point in rows::<SeriesRow>(&path)? {
        let Some(cell) = first.get(&*point.run_id) else {
            continue;
        };
        let own = all.entry(cell.clone()).or_default();
        let (at, value) = (point.t_virt_s, point.value);
        let (line, value) = match (&*point.scope, &*point.metric) {
            ("global", "nr_dirty" | "nr_writeback") => (&mut own.level, value / PAGES_PER_MIB),
            (scope, "bytes") if scope.starts_with("task:") => (&mut own.moved, value / 1_048_576.0),
            _ => continue,
        };
        line.push((at, value));
    }
    for own in all.values_mut() {
        own.level = summed(&own.level);
        own.moved = summed(&own.moved);
    }
    Ok(all)
}

/// Values of one time added up.
fn summed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points = points.to_vec();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for (at, value) in points {
        match sums.last_mut() {
            Some(last) if last.0 == at => last.1 += value,
            _ => sums.push((at, value)),
        }
    }
    sums
}

/// A figure of one cell in both folders.
struct Change {
    row: String,
    column: String,
    metric: String,
    unit: String,
    one: f64,
    other: f64,
    /// Better, worse, or neither by its metric.
    word: &'static str,
}

impl Change {
    fn part(&self) -> f64 {
        if self.one == self.other {
            0.0
        } else {
            self.other / self.one - 1.0
        }
    }

    fn is_noticeable(&self) -> bool {
        let part = self.part();
        !part.is_finite() || part.abs() >= NOTICEABLE
    }

    fn percent(&self) -> String {
        let part = self.part();
        if part.is_finite() {
            format!("{:+.1} %", 100.0 * part)
        } else {
            "from zero".into()
        }
    }

    fn name(&self) -> String {
        match self.unit.as_str() {
            "" => self.metric.clone(),
            unit => format!("{} ({unit})", self.metric),
        }
    }
}

/// Two folders.
struct Pair {
    one: Results,
    other: Results,
    /// (cell of one, cell of the other), in order.
    cells: Vec<(CellName, CellName)>,
}

impl Pair {
    fn of(one: Results, other: Results) -> Result<Self, DiffError> {
        let alone = match (&one.columns()[..], &other.columns()[..]) {
            ([_], [only]) => Some((*only).to_owned()),
            _ => None,
        };
        let pair = |(row, column): &CellName| {
            let column = alone.as_ref().unwrap_or(column);
            let theirs = (row.clone(), column.clone());
            other.metrics.contains_key(&theirs).then_some(theirs)
        };
        let own = one.metrics.keys();
        let cells: Vec<_> = own
            .filter_map(|cell| Some((cell.clone(), pair(cell)?)))
            .collect();
        if cells.is_empty() {
            return Err(DiffError::Nothing {
                rows: one.cells(),
                others: other.cells(),
                one: one.name,
                other: other.name,
            });
        }
        Ok(Self { one, other, cells })
    }

    fn column(mine: &str, theirs: &str) -> String {
        if mine == theirs {
            mine.to_owned()
        } else {
            format!("{mine} -> {theirs}")
        }
    }

    fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (mine, theirs) in &self.cells {
            for (name, metric) in &self.one.metrics[mine] {
                let Some(other) = self.other.metrics[theirs].get(name) else {
                    continue;
                };
                let (one, other) = (metric.mean(), other.mean());
                let word = match (&*metric.better, other > one) {
                    _ if one == other => "",
                    ("higher", true) | ("lower", false) => "better",
                    ("higher", false) | ("lower", true) => "worse",
                    _ => "",
                };
                changes.push(Change {
                    row: mine.0.clone(),
                    column: Self::column(&mine.1, &theirs.1),
                    metric: name.clone(),
                    unit: metric.unit.clone(),
                    one,
                    other,
                    word,
                });
            }
        }
        changes
    }

    /// Bands that stand otherwise: (band, before, now).
    fn bands(&self) -> Vec<(String, String, String)> {
        let mut changed = Vec::new();
        for band in &self.one.bands {
            let same = |other: &&BandRow| {
                (&other.id, &other.case, &other.what) == (&band.id, &band.case, &band.what)
            };
            let Some(other) = self.other.bands.iter().find(same) else {
                continue;
            };
            if other.standing != band.standing {
                let said = |band: &BandRow| match band.value {
                    Some(value) => format!("{} ({value:.4})", band.standing),
                    None => band.standing.clone(),
                };
                let name = format!("{} [{}] {}", band.id, band.case, band.what);
                changed.push((name, said(band), said(other)));
            }
        }
        changed
    }

    /// The metrics that the first scenario prints.
    fn named(&self) -> Vec<String> {
        #[derive(Default, Deserialize)]
        struct Printed {
            #[serde(default)]
            metrics: Vec<String>,
        }
        toml::from_str::<Printed>(&self.one.scenario)
            .unwrap_or_default()
            .metrics
    }

    /// Lines that only one of the scenarios has.
    fn scenario(&self) -> Vec<String> {
        let only = |own: &str, other: &str, sign: char| -> Vec<String> {
            let others: Vec<&str> = other.lines().collect();
            let lines = own.lines().filter(|line| !others.contains(line));
            lines.map(|line| format!("{sign} {line}")).collect()
        };
        let (one, other) = (&self.one.scenario, &self.other.scenario);
        [only(one, other, '-'), only(other, one, '+')].concat()
    }

    /// Levels and rates of both, one over the other: a figure a row, a panel a column.
    fn plots(&self) -> Vec<Lines> {
        type Of = fn(&Series) -> &Vec<(f64, f64)>;
        let mut rows: Vec<&str> = self.cells.iter().map(|((row, _), _)| &**row).collect();
        rows.dedup();
        let kinds: [(&str, &str, &str, Of); 2] = [
            ("levels", "dirty and under writeback", "MiB", |series| {
                &series.level
            }),
            ("moved", "what all tasks move", "MiB/s", |series| {
                &series.moved
            }),
        ];
        let mut plots = Vec::new();
        for row in rows {
            for (name, words, unit, of) in kinds {
                let own = self.cells.iter().filter(|((own, _), _)| own == row);
                let panels = own.filter_map(|(mine, theirs)| {
                    let curve = |results: &Results, cell: &CellName| {
                        let points = of(results.series.get(cell)?).clone();
                        let name = results.name.clone();
                        (!points.is_empty()).then_some(Curve { name, points })
                    };
                    let curves = [curve(&self.one, mine)?, curve(&self.other, theirs)?];
                    Some((Self::column(&mine.1, &theirs.1), curves.to_vec()))
                });
                let panels: Vec<_> = panels.collect();
                if !panels.is_empty() {
                    plots.push(Lines {
                        name: format!("{name}-{row}"),
                        title: format!("{row}: {words}"),
                        x_label: "time (s)".into(),
                        y_label: unit,
                        panels,
                        ..Lines::default()
                    });
                }
            }
        }
        plots
    }
}

/// Compares the folders: answers what is to be printed; with `out`, writes a page.
///
/// # Errors
/// A folder that holds no results, two with nothing in common, or a page that cannot be written.
pub fn diff(asked: &Asked) -> Result<String, DiffError> {
    let pair = Pair::of(Results::read(&asked.one)?, Results::read(&asked.other)?)?;
    let changes = pair.changes();
    let named = pair.named();
    let is_shown =
        |change: &&Change| asked.all || change.is_noticeable() || named.contains(&change.metric);
    let mut shown: Vec<&Change> = changes.iter().filter(is_shown).collect();
    // The scenario's own metrics come first, whether they have changed or not.
    let cell = |change: &Change| (change.row.clone(), change.column.clone());
    for own in shown.chunk_by_mut(|one, other| cell(one) == cell(other)) {
        own.sort_by_key(|change| {
            named
                .iter()
                .position(|name| *name == change.metric)
                .unwrap_or(named.len())
        });
    }
    let mut text = format!("{} -> {}\n", pair.one.name, pair.other.name);
    put_scenario(&mut text, &pair.scenario());
    put_table(&mut text, &shown);
    let rest = changes.len() - shown.len();
    let _ = writeln!(
        text,
        "{} of {} figures differ by 1 % and more",
        changes
            .iter()
            .filter(|change| change.is_noticeable())
            .count(),
        changes.len()
    );
    if rest > 0 && !asked.all {
        let _ = writeln!(text, "{rest} others: with --all");
    }
    let bands = pair.bands();
    for (name, before, now) in &bands {
        let _ = writeln!(text, "band {name}: {before} -> {now}");
    }
    if bands.is_empty() && !pair.one.bands.is_empty() {
        text.push_str("no band stands otherwise than before\n");
    }
    if let Some(out) = &asked.out {
        page(out, &pair, &shown, &bands)?;
        let _ = writeln!(text, "Results: {} (diff.html)", out.display());
    }
    Ok(text)
}

fn put_scenario(text: &mut String, lines: &[String]) {
    if lines.is_empty() {
        text.push_str("the same scenario\n");
    }
    for line in lines.iter().take(LINES_MOST) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > LINES_MOST {
        let _ = writeln!(text, "  and {} lines more", lines.len() - LINES_MOST);
    }
}

fn put_table(text: &mut String, shown: &[&Change]) {
    let mut cell = ("", "");
    let width = shown
        .iter()
        .map(|change| change.name().len())
        .max()
        .unwrap_or(0);
    for change in shown {
        if cell != (&*change.row, &*change.column) {
            cell = (&change.row, &change.column);
            let _ = writeln!(text, "\n{}, {}", change.row, change.column);
        }
        let _ = writeln!(
            text,
            "  {:width$} {:>14} {:>14} {:>12}  {}",
            change.name(),
            number(change.one),
            number(change.other),
            change.percent(),
            change.word
        );
    }
    text.push('\n');
}

fn number(value: f64) -> String {
    if value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

fn page(
    out: &Path,
    pair: &Pair,
    shown: &[&Change],
    bands: &[(String, String, String)],
) -> Result<(), OutputError> {
    let folder = Folder::make_marked(Some(out), "diff", "diff.html")?;
    let heads = [
        "row",
        "column",
        "figure",
        &pair.one.name,
        &pair.other.name,
        "change",
        "",
    ];
    let rows = shown.iter().map(|change| {
        let class = match change.word {
            "better" => "good",
            "worse" => "bad",
            _ => "faint",
        };
        vec![
            Cell::text(&change.row),
            Cell::text(&change.column),
            Cell::text(&change.name()),
            Cell::number(&number(change.one), Some(change.one)),
            Cell::number(&number(change.other), Some(change.other)),
            Cell::number(&change.percent(), Some(change.part())),
            Cell::html(
                format!("<span class=\"{class}\">{}</span>", change.word),
                "text",
            ),
        ]
    });
    let changed = web::table(&heads.map(str::to_owned), &[0, 1, 2, 6], rows);
    let band = |(name, before, now): &(String, String, String)| {
        vec![Cell::text(name), Cell::text(before), Cell::text(now)]
    };
    let heads = ["band", &pair.one.name, &pair.other.name].map(str::to_owned);
    let bands = web::table(&heads, &[0, 1, 2], bands.iter().map(band));
    let lines = web::escape(&pair.scenario().join("\n"));
    let plots: String = pair.plots().iter().map(Lines::html).collect();
    let sections = [
        ("changes", "Figures", changed),
        ("bands", "Bands that stand otherwise", bands),
        ("plots", "Plots", plots),
        ("scenario", "Scenarios", format!("<pre>{lines}</pre>\n")),
    ];
    let title = format!("{} -> {}", pair.one.name, pair.other.name);
    let page = Page {
        title: &title,
        head: "<p class=\"faint\">Means of the repetitions; the change is of the second against the first.</p>".into(),
        body: sections.iter().fold(String::new(), |mut body, (at, words, html)| {
            let _ = writeln!(body, "<section id=\"{at}\">\n<h2>{words}</h2>\n{html}</section>");
            body
        }),
        sections: sections
            .iter()
            .map(|(at, words, _)| ((*at).to_owned(), (*words).to_owned()))
            .collect(),
    };
    let path = folder.path().join("diff.html");
    std::fs::write(&path, page.render()).map_err(|error| OutputError::at(&path)(&error))
}
