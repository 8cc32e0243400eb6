//! Figures on pages are made, not typed.
//!
//! ```text
//!   OUT/scoreboard.json  --keep-->  docs/claims.json   --.
//!   OUT/compare.csv      --keep-->  docs/runs.json     --+
//!   NAME=VALUE           --set--->  docs/figures.toml  --+--fill-->  <!-- made: NAME -->..<!-- end -->
//!                                                        '-------->  docs/img/claims.svg
//! ```
//!
//! Invariants
//!   1. A test finds a page that says anything else than what is stored.
//!   2. A stored figure of the lab names its experiment and a digest of that experiment's lines in
//!      `experiments/hashes.txt`: the test fails once its runs are other runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use experiment::metrics;

use super::board::{Claim, Verdict, figure, published};
use super::scoreboard::Board;
use super::{Asked, Papers, claims_not_run, markdown, picture, plan};

const RUNS: &str = "docs/runs.json";
const CLAIMS: &str = "docs/claims.json";
const FIGURES: &str = "docs/figures.toml";
const PICTURE: &str = "docs/img/claims.svg";
const HASHES: &str = "experiments/hashes.txt";
const BEGIN: &str = "<!-- made: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";
const HEAD: &str = "\
# Figures on pages that no test can repeat, each as it was measured. Pages repeat them between
# `<!-- made: NAME -->` and `<!-- end -->`. Written by `cargo xtask pages NAME=VALUE`.\n\n";

/// A figure, as it was measured.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// With its unit.
    value: String,
    /// The command that measures it.
    command: String,
    /// The machine and its load; `virtual time` for the lab.
    machine: String,
    /// When the figure was measured.
    date: String,
    /// The commit that was measured.
    commit: String,
    /// The experiment of a figure of the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    experiment: Option<String>,
    /// The digest of its traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    traces: Option<String>,
}

/// The claims of one run of `reproduce`, and the digests of its experiments' traces.
#[derive(Deserialize, Serialize)]
struct Claims {
    traces: BTreeMap<String, String>,
    board: Board,
}

/// Means of an experiment's metrics, by `METRIC-ROW COLUMN`, and the digest of its traces.
#[derive(Default, Deserialize, Serialize)]
struct Runs {
    traces: String,
    values: BTreeMap<String, f64>,
}

/// Everything that pages take figures from.
struct Stored {
    claims: Claims,
    runs: BTreeMap<String, Runs>,
    figures: BTreeMap<String, Figure>,
}

impl Stored {
    fn read(root: &Path) -> Result<Self, String> {
        let claims = read(&root.join(CLAIMS))?;
        let runs = read(&root.join(RUNS))?;
        let figures = read(&root.join(FIGURES))?;
        Ok(Self {
            claims: serde_json::from_str(&claims).map_err(|error| format!("{CLAIMS}: {error}"))?,
            runs: serde_json::from_str(&runs).map_err(|error| format!("{RUNS}: {error}"))?,
            figures: toml::from_str(&figures).map_err(|error| format!("{FIGURES}: {error}"))?,
        })
    }

    /// The text of a place that has `inside` now: `claims pN`, `claims in a sentence`,
    /// `claims that can fail`, `claims reproduced`, `runs EXPERIMENT[/ROW] COLUMN..`, or a figure's
    /// name.
    fn made(&self, name: &str, inside: &str) -> Option<String> {
        let board = &self.claims.board;
        match name.split_once(' ').unwrap_or((name, "")) {
            ("claims", "in a sentence") => Some(format!("{}.", board.sum().said())),
            ("claims", "that can fail") => Some(board.sum().counted().to_string()),
            ("claims", "reproduced") => Some(board.sum().reproduced().to_string()),
            ("claims", id) => {
                let paper = board.papers.iter().find(|paper| paper.id == id)?;
                let mut text = "\n\n".to_owned();
                markdown::render_paper(&mut text, paper);
                Some(format!("{}\n\n", text.trim_end()))
            }
            ("runs", of) => self.table(of, inside),
            _ => self.figures.get(name).map(|figure| figure.value.clone()),
        }
    }

    /// A table whose first cells name a metric in code, with the values of the columns in order
    /// behind it. All else stays.
    fn table(&self, of: &str, inside: &str) -> Option<String> {
        let mut columns = of.split(' ');
        let name = columns.next()?;
        let (experiment, row) = name.split_once('/').unwrap_or((name, name));
        let runs = self.runs.get(experiment)?;
        let columns: Vec<&str> = columns.collect();
        let is_known = |column: &&str| {
            runs.values
                .keys()
                .any(|key| key.ends_with(&format!(" {column}")))
        };
        if !columns.iter().all(is_known) {
            return None;
        }
        let line = |line: &str| {
            let mut cells: Vec<String> = line.split('|').map(str::to_owned).collect();
            let label = cells.get(1)?.clone();
            let metric = metrics::by_name(label.split('`').nth(1)?)?;
            for (cell, column) in cells.get_mut(2..)?.iter_mut().zip(&columns) {
                let value = runs.values.get(&format!("{}-{row} {column}", metric.name));
                let text = value.map(|value| figure(value / unit(label.trim(), metric.unit)));
                *cell = format!(" {} ", text.unwrap_or_default());
            }
            Some(cells.join("|"))
        };
        let lines = inside
            .lines()
            .map(|one| line(one).unwrap_or_else(|| one.to_owned()));
        Some(lines.collect::<Vec<String>>().join("\n") + "\n")
    }

    /// A page with all its places filled.
    fn fill(&self, page: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = page;
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (name, after) = after.split_once(CLOSE).unwrap_or_default();
            let Some((inside, after)) = after.split_once(END) else {
                return Err(format!("`{BEGIN}{name}` has no `{END}`"));
            };
            let made = self.made(name, inside).ok_or_else(|| {
                format!("`{BEGIN}{name}{CLOSE}`: not in {FIGURES}, {CLAIMS} or {RUNS}")
            })?;
            filled.extend([before, BEGIN, name, CLOSE, &made, END]);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

/// The size of the unit that ends a label, in the metric's own.
fn unit(label: &str, own: &str) -> f64 {
    match (label.rsplit(", ").next().unwrap_or_default(), own) {
        ("GiB", "KiB") => 1024.0 * 1024.0,
        (said, _) if said.starts_with("million") => 1e6,
        (said, _) if said.starts_with("thousand") => 1e3,
        _ => 1.0,
    }
}

/// Stores the means of an experiment's run, of the metrics that pages name.
fn keep_runs(root: &Path, table: &str) -> Result<(), String> {
    let mut all: BTreeMap<String, Runs> =
        serde_json::from_str(&read(&root.join(RUNS)).unwrap_or_else(|_| "{}".to_owned()))
            .map_err(|error| format!("{RUNS}: {error}"))?;
    let experiment = table.lines().nth(1).and_then(|line| line.split(',').next());
    let experiment = experiment.ok_or("compare.csv has no line: did the run end?")?;
    let mut tables = String::new();
    for path in pages(root)? {
        for part in read(&path)?.split(BEGIN).skip(1) {
            let (name, inside) = part.split_once(CLOSE).unwrap_or_default();
            let of = name
                .strip_prefix("runs ")
                .and_then(|of| of.split([' ', '/']).next());
            if of == Some(experiment) {
                tables.push_str(inside.split(END).next().unwrap_or_default());
            }
        }
    }
    let mut of_one = Runs::default();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, operation, "Amean" | "Hmean", _, column, _, value, ..] = fields[..] else {
            continue;
        };
        let metric = operation.split('-').next().unwrap_or_default();
        if let (true, Ok(value)) = (tables.contains(&format!("`{metric}`")), value.parse()) {
            of_one.values.insert(format!("{operation} {column}"), value);
        }
    }
    of_one.traces = digest(&read(&root.join(HASHES))?, experiment);
    all.insert(experiment.to_owned(), of_one);
    let json = serde_json::to_string_pretty(&all).expect("plain data is JSON");
    write(&root.join(RUNS), &format!("{json}\n"))
}

/// Stores the claims of a run of `reproduce` over all papers.
fn keep(root: &Path, folder: &Path) -> Result<(), String> {
    let at = folder.join(super::BOARD);
    let mut board: Board = serde_json::from_str(&read(&at)?)
        .map_err(|error| format!("{}: {error}; run `tidegate reproduce` again", at.display()))?;
    if !board.missing.is_empty() || board.papers.iter().any(|paper| paper.parts.is_empty()) {
        return Err(format!(
            "{}: not all papers' experiments were run; run `tidegate reproduce` without names",
            at.display()
        ));
    }
    let hashes = read(&root.join(HASHES))?;
    let mut traces = BTreeMap::new();
    for part in board.papers.iter_mut().flat_map(|paper| &mut paper.parts) {
        traces.insert(part.experiment.clone(), digest(&hashes, &part.experiment));
        part.claims.retain(|claim| !claim.own);
        part.trade_offs.clear();
        part.figure = None;
        part.key.clear();
        part.cpu_s = 0.0;
    }
    let json = serde_json::to_string(&Claims { traces, board }).expect("plain data is JSON");
    let lines = json.replace("{\"paper\":", "\n{\"paper\":");
    write(&root.join(CLAIMS), &format!("{lines}\n"))
}

/// Stores values that were measured on the commit that is checked out.
fn set(root: &Path, values: &[&str]) -> Result<(), String> {
    let mut git = std::process::Command::new("git");
    git.current_dir(root).args(["log", "-1", "--format=%h %cs"]);
    let said = git
        .output()
        .map_err(|error| format!("git: {error}"))?
        .stdout;
    let said = String::from_utf8_lossy(&said);
    let (commit, date) = said
        .trim()
        .split_once(' ')
        .ok_or("git log names no commit")?;
    let mut figures = Stored::read(root)?.figures;
    for (name, value) in values.iter().filter_map(|word| word.split_once('=')) {
        let figure = figures.get_mut(name).ok_or_else(|| {
            format!("{FIGURES} has no [{name}]; add it there with its command and machine")
        })?;
        value.clone_into(&mut figure.value);
        (figure.commit, figure.date) = (commit.to_owned(), date.to_owned());
        if let Some(experiment) = &figure.experiment {
            figure.traces = Some(digest(&read(&root.join(HASHES))?, experiment));
        }
    }
    let text = toml::to_string(&figures).expect("plain data is TOML");
    write(&root.join(FIGURES), &format!("{HEAD}{text}"))
}

/// Stores what the words say, and fills all pages and the picture.
fn fill(root: &Path, words: &str) -> Result<(), String> {
    let words = words.split('\n').filter(|word| !word.is_empty());
    let (values, folders): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
    for folder in folders {
        match read(&root.join(folder).join("compare.csv")) {
            Ok(table) => keep_runs(root, &table)?,
            Err(_) => keep(root, &root.join(folder))?,
        }
    }
    if !values.is_empty() {
        set(root, &values)?;
    }
    for (path, text) in stale(root)? {
        write(&path, &text)?;
    }
    Ok(())
}

/// The pages that differ from what is stored, as they should be.
fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let stored = Stored::read(root)?;
    let mut wanted = vec![(root.join(PICTURE), picture::draw(&stored.claims.board))];
    for path in pages(root)? {
        let text = stored.fill(&read(&path)?);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        wanted.push((path, text));
    }
    let is_stale = |(path, text): &(PathBuf, String)| read(path).ok().as_ref() != Some(text);
    wanted.retain(is_stale);
    Ok(wanted)
}

/// README.md and all pages below docs, named as `cargo xtask test --changed` looks for them.
fn pages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let home = root.join("lab/reproduce");
    let mut pages = vec![home.join("../../README.md")];
    let mut folders = vec![home.join("../../docs")];
    while let Some(folder) = folders.pop() {
        let failed = |error| format!("{}: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// A digest of the lines of an experiment in the file of trace hashes.
fn digest(hashes: &str, experiment: &str) -> String {
    let mut hash = hmac_sha256::Hash::new();
    for line in hashes.lines() {
        if line.split(' ').next() == Some(experiment) {
            hash.update(line);
        }
    }
    let bytes = hash.finalize();
    bytes[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of `cargo xtask pages`, a line each. With them, pages are filled.
const WORDS: &str = "TIDEGATE_PAGES";

#[test]
fn pages_are_filled() {
    if let Ok(words) = std::env::var(WORDS) {
        fill(&root(), &words).unwrap();
    }
    let stale: Vec<PathBuf> = stale(&root())
        .unwrap()
        .into_iter()
        .map(|one| one.0)
        .collect();
    assert!(
        stale.is_empty(),
        "not what is stored: {stale:?}; fill them: cargo xtask pages"
    );
}

#[test]
fn stored_figures_of_the_lab_are_of_todays_traces() {
    let stored = Stored::read(&root()).unwrap();
    let hashes = read(&root().join(HASHES)).unwrap();
    let claims = stored.claims.traces.iter();
    let mut kept: Vec<(&str, &str)> = claims.map(|(one, two)| (&**one, &**two)).collect();
    for figure in stored.figures.values() {
        kept.extend(figure.experiment.as_deref().zip(figure.traces.as_deref()));
    }
    kept.extend(
        stored
            .runs
            .iter()
            .map(|(name, runs)| (&**name, &*runs.traces)),
    );
    for (experiment, traces) in kept {
        assert_eq!(
            digest(&hashes, experiment),
            traces,
            "{experiment} has other traces: make its figures again \
             (tidegate reproduce --out DIR, or run; cargo xtask pages DIR)"
        );
    }
}

/// README's figures stand in marks, and each stored figure on a page.
#[test]
fn no_measured_figure_of_readme_is_typed_and_no_stored_one_is_unused() {
    let stored = Stored::read(&root()).unwrap();
    let mut all = String::new();
    for path in pages(&root()).unwrap() {
        all.push_str(&read(&path).unwrap());
    }
    for name in stored.figures.keys() {
        assert!(
            all.contains(&format!("{BEGIN}{name}{CLOSE}")),
            "no page has {name}"
        );
    }
    let readme = read(&root().join("README.md")).unwrap();
    let outside = readme.split(BEGIN).enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once(END).unwrap().1,
    });
    let units = ["ns", "us", "ms", "s", "MB/s", "seconds", "minutes", "%"];
    for text in outside {
        let words: Vec<&str> = text.split_whitespace().collect();
        let typed = words.windows(2).find(|pair| {
            let unit = pair[1].trim_end_matches([',', '.', ';', ':', ')']);
            pair[0].trim_start_matches('(').parse::<f64>().is_ok() && units.contains(&unit)
        });
        assert_eq!(typed, None, "typed into README.md");
    }
}

/// Values are of a run; all else that is stored is what the experiments say today.
#[test]
fn stored_claims_are_those_of_the_experiments() {
    let papers = Papers::read();
    let planned = plan::plan(&papers, &Asked::default()).unwrap();
    let expects = planned.iter().flat_map(|one| &one.scenario.expects);
    let causes: Vec<(&str, &str)> = expects
        .filter_map(|one| Some((&**one.id.get_ref(), &**one.missed.as_ref()?.get_ref())))
        .collect();
    let today: Vec<Claim> = planned.iter().flat_map(claims_not_run).collect();
    let stored = Stored::read(&root()).unwrap();
    let board = &stored.claims.board;
    let is = |one: &Claim, other: &Claim| one.id == other.id && one.experiment == other.experiment;
    for claim in &today {
        // A claim that two experiments have may be judged in one of them alone.
        assert!(
            board.claims().any(|kept| kept.id == claim.id),
            "{} is not stored",
            claim.id
        );
    }
    for kept in board.claims() {
        let claim = today.iter().find(|claim| is(claim, kept));
        let claim = claim.unwrap_or_else(|| panic!("no experiment has {}", kept.id));
        assert_eq!(
            (&claim.claim, &claim.published, &claim.band),
            (&kept.claim, &kept.published, &kept.band)
        );
        if kept.verdict == Verdict::Missed {
            let why = kept.why.as_deref().unwrap_or_default();
            assert!(
                causes.contains(&(&kept.id, why)),
                "{} is not missed by: {why}",
                kept.id
            );
        }
    }
    // A cause begins with a value of its claim, as far as it is written out, unless the
    // experiment's own runs are longer than those here, or the rows of a table have it in common.
    let parts = board.parts().filter(|part| part.set.is_empty());
    for claim in parts.flat_map(|part| part.published()) {
        let Some(why) = claim
            .why
            .as_deref()
            .filter(|_| claim.verdict == Verdict::Missed && !claim.claim.starts_with('`'))
        else {
            continue;
        };
        let end = why.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
        let value: f64 = why[..end.unwrap_or(why.len())].parse().unwrap();
        let (_, digits) = why[..end.unwrap_or(why.len())]
            .split_once('.')
            .unwrap_or_default();
        let step = digits.chars().fold(1.0_f64, |step, _| step / 10.0);
        let near = |ours: &f64| (ours - value).abs() <= (0.02 * ours.abs()).max(0.51 * step);
        let ours = &claim.marks.ours;
        assert!(
            ours.iter().any(near),
            "{}: {ours:?}, and a cause of {value}",
            claim.id
        );
    }
}

#[test]
fn the_band_of_a_published_figure_has_two_sides() {
    for one in plan::plan(&Papers::read(), &Asked::default()).unwrap() {
        for expect in one.scenario.claims() {
            let (_, figures) = published(&one.scenario, expect);
            let is_figure = figures.iter().any(|figure| *figure != 0.0);
            let has_both = expect.min.is_some() && expect.max.is_some();
            assert!(
                !is_figure || has_both,
                "{} {}",
                one.name(),
                expect.id.get_ref()
            );
        }
    }
}

#[test]
fn a_place_without_an_end_or_a_figure_is_named() {
    let stored = Stored::read(&root()).unwrap();
    let error = |page: &str| stored.fill(page).unwrap_err();
    assert!(error("a <!-- made: hit -->38 ns").contains("has no `<!-- end -->`"));
    assert!(error("<!-- made: hti -->1<!-- end -->").contains("hti -->`: not in"));
    let filled = stored
        .fill("<!-- made: claims reproduced -->0<!-- end -->.")
        .unwrap();
    assert!(
        filled.ends_with("<!-- end -->.") && !filled.contains("-->0<"),
        "{filled}"
    );
}
