//! The program's other commands as calls: a recording beside the lab, a trace replayed, all
//! published claims reproduced.

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use recordings::lab::LabError;
use replay::Size;
use replay::trace::Format;

use crate::paths::FsPath;
use crate::run::answer;
use crate::table::{self, Table};
use crate::{VERSION, errors};

/// Sizes of memory as the program takes them: pages of 4 KiB, or a part of a trace's (`5%`).
fn size(py: Python<'_>, is_bytes: bool, text: &str) -> PyResult<Size> {
    let (name, size) = if is_bytes {
        ("memory", Size::of_bytes(text))
    } else {
        ("pages", Size::of_pages(text))
    };
    size.map_err(|error| errors::usage(py, format!("{name}: {error}")))
}

/// Hits of traces under rules and sizes.
#[pyfunction]
pub(crate) fn replay_traces(
    py: Python<'_>,
    traces: Vec<FsPath>,
    rules: Vec<String>,
    pages: Vec<String>,
    memory: Vec<String>,
    readahead: bool,
    format: Option<&str>,
) -> PyResult<Table> {
    let pages = pages.iter().map(|text| size(py, false, text));
    let memory = memory.iter().map(|text| size(py, true, text));
    let asked = replay::Asked {
        traces: traces.into_iter().map(|FsPath(path)| path).collect(),
        rules,
        sizes: pages.chain(memory).collect::<PyResult<_>>()?,
        readahead,
        format: format
            .map(Format::named)
            .transpose()
            .map_err(|error| errors::usage(py, format!("format: {error}")))?,
        ..replay::Asked::default()
    };
    let tables = answer(py, move |stop| replay::tables(&asked, false, stop))?;
    let tables = tables.map_err(|error| errors::usage(py, error.to_string()))?;
    let all: Vec<_> = tables
        .iter()
        .flat_map(|table| table.rows.iter().map(move |row| (table, row)))
        .filter_map(|(table, row)| Some((table, row, row.counts?)))
        .collect();
    let whole = |name, of: fn(&replay::run::Counts) -> u64| {
        table::whole(name, all.iter().map(move |(_, _, counts)| of(counts)))
    };
    Ok(Table::new(
        "replay",
        vec![
            table::words("trace", all.iter().map(|(table, _, _)| table.file.as_str())),
            table::words("rule", all.iter().map(|(_, row, _)| row.rule.as_str())),
            table::whole("pages", all.iter().map(|(_, row, _)| u64::from(row.pages))),
            table::numbers(
                "hit_ratio",
                all.iter().map(|(_, _, counts)| Some(counts.hit_ratio())),
            ),
            whole("accesses", |counts| counts.accesses),
            whole("hits", |counts| counts.hits),
            whole("misses", |counts| counts.misses()),
            whole("refaults", |counts| counts.refaults),
            whole("evicted", |counts| counts.evicted),
            whole("written", |counts| counts.written),
            whole("read_ahead", |counts| counts.read_ahead),
            whole("cached", |counts| counts.cached),
        ],
    ))
}

/// A recording beside the lab, and what changes would do: figures, answers, what is printed.
#[pyfunction]
pub(crate) fn compare_recording(
    py: Python<'_>,
    recording: FsPath,
    set: Vec<String>,
    given: Vec<String>,
    policies: Vec<String>,
    against: Option<FsPath>,
    seed: u64,
) -> PyResult<(Table, Option<Table>, String)> {
    let asked = recordings::Asked {
        recordings: vec![recording.0],
        set,
        given,
        against: against.map(|FsPath(path)| path),
        column: policies,
        seed,
        out: None,
        check: false,
        version: VERSION,
    };
    let made = answer(py, move |stop| recordings::compare(&asked, stop))?;
    let made = made.map_err(|error| match error {
        recordings::CompareError::Lab(LabError::Run(_)) => errors::run(py, error.to_string()),
        _ => errors::usage(py, error.to_string()),
    })?;
    let one = made.into_iter().next();
    let one = one.expect("one recording is of one kind");
    Ok((one.figures.into(), one.answers.map(Into::into), one.text))
}

/// The published claims, and the folder of all results.
#[pyfunction]
pub(crate) fn reproduce_claims(
    py: Python<'_>,
    papers: Vec<String>,
    repetitions: Option<u32>,
    scale: Option<f64>,
    out: Option<FsPath>,
) -> PyResult<(Table, PathBuf)> {
    let asked = reproduce::Asked {
        papers,
        replicas: repetitions,
        scale,
        out: out.map(|FsPath(path)| path),
        version: VERSION,
        ..reproduce::Asked::default()
    };
    let made = answer(py, move |stop| reproduce::reproduce(&asked, stop))?;
    let (board, folder) = made.map_err(|error| match error {
        reproduce::ReproduceError::Load(error) => errors::load(py, error),
        reproduce::ReproduceError::Usage(problem) => errors::usage(py, problem),
        error @ reproduce::ReproduceError::Output(_) => PyOSError::new_err(error.to_string()),
    })?;
    let all = || board.claims();
    let known = |text: &Option<String>| text.clone().unwrap_or_default();
    let claims = Table::new(
        "claims",
        vec![
            table::words("paper", all().map(|claim| claim.paper.as_str())),
            table::words("experiment", all().map(|claim| known(&claim.experiment))),
            table::words("id", all().map(|claim| claim.id.as_str())),
            table::words("claim", all().map(|claim| claim.claim.as_str())),
            table::words("published", all().map(|claim| known(&claim.published))),
            table::words("ours", all().map(|claim| known(&claim.ours))),
            table::words("band", all().map(|claim| claim.band.as_str())),
            table::words("verdict", all().map(|claim| claim.verdict.word())),
            table::words("grade", all().map(reproduce::Claim::word)),
            table::words("why", all().map(|claim| known(&claim.why))),
        ],
    );
    Ok((claims, folder))
}
