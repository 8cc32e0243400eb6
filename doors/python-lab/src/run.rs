//! Runs of a scenario: all its rows and columns, on all cores, without the interpreter's lock.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use experiment::Stop;
use experiment::expect::{self, Verdict};
use experiment::outcome::Outcome;
use experiment::pool;
use experiment::run::{self, Cell, Column, Order, RunError, Watcher, World};
use experiment::scenario::Override;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use report::Report;
use report::output::{self, About, Folder, Shown};

use crate::paths::FsPath;
use crate::scenario::Scenario;
use crate::table::{self, Table};
use crate::{VERSION, errors};

/// Interval at which a call that waits looks for signals.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(40);

/// Time that runs under way may take to end once they are to stop; after that they are left to end
/// by themselves, and are not in the results.
const ENDS_WITHIN: Duration = Duration::from_millis(350);

/// Does `work` on a thread of its own, without the interpreter's lock, and handles signals
/// meanwhile: an exception of a handler raises `stop`, and is the answer as soon as the work has
/// ended, or a moment later. `tick` is called now and then.
fn beside(
    py: Python<'_>,
    stop: &Stop,
    work: impl FnOnce() + Send + 'static,
    mut tick: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<Option<PyErr>> {
    let (sender, receiver) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("tidegate runs".into());
    os::spawn(thread, move || {
        // Dropped at the end of the work, however it ends.
        let _sender = sender;
        work();
    })?;
    let receiver = Mutex::new(receiver);
    let mut raised: Option<(PyErr, Instant)> = None;
    loop {
        let answer = py.detach(|| lock(&receiver).recv_timeout(LOOK_EVERY));
        if answer != Err(RecvTimeoutError::Timeout) {
            return Ok(raised.map(|(error, _)| error));
        }
        match raised {
            None => {
                if let Err(error) = py.check_signals().and_then(|()| tick(py)) {
                    stop.raise();
                    raised = Some((error, Instant::now()));
                }
            }
            Some((error, at)) if at.elapsed() > ENDS_WITHIN => return Ok(Some(error)),
            Some(_) => {}
        }
    }
}

/// The answer of `work`, done beside the interpreter; an exception of a handler goes first.
pub(crate) fn answer<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> PyResult<T> {
    let (stop, made) = (Stop::default(), Arc::new(Mutex::new(None)));
    let (own, into) = (stop.clone(), Arc::clone(&made));
    let raised = beside(
        py,
        &stop,
        move || {
            let answer = work(&own);
            *lock(&into) = Some(answer);
        },
        |_| Ok(()),
    )?;
    match raised {
        Some(error) => Err(error),
        None => Ok(lock(&made)
            .take()
            .expect("work that was not stopped ends with an answer")),
    }
}

/// Counts the runs that have ended.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn ended(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Watcher for Counted {
    fn ended(&self, _order: &Order, _result: &Result<Outcome, RunError>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The results of the runs of a scenario.
///
/// A notebook shows its bands, figures and plots.
#[pyclass(frozen, module = "tidegate_lab")]
pub(crate) struct Run {
    scenario: Scenario,
    about: About,
    /// The outcomes of the runs, and behind them those of the row of all rows.
    compared: Vec<Outcome>,
    made: usize,
    columns: Vec<String>,
    is_whole: bool,
    verdicts: Vec<Verdict>,
    failed: Vec<(String, String)>,
    tables: OnceLock<Vec<(String, Py<Table>)>>,
}

impl Run {
    fn outcomes(&self) -> &[Outcome] {
        &self.compared[..self.made]
    }

    fn report(&self) -> Report<'_> {
        Report::new(&self.scenario.inner, &self.compared, self.columns.clone())
    }

    fn shown(&self) -> Shown {
        let bands = self.verdicts.iter().filter(|verdict| !verdict.skipped);
        Shown {
            bands: bands.cloned().collect(),
            figures: self.report().figures(),
            ..Shown::default()
        }
    }

    fn all_tables(&self, py: Python<'_>) -> PyResult<&[(String, Py<Table>)]> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let made = py
            .detach(|| output::tables(&self.about, self.outcomes(), &self.report().comparisons()));
        let made: PyResult<Vec<_>> = made
            .into_iter()
            .map(|table| Ok((table.name.to_owned(), Py::new(py, Table::from(table))?)))
            .collect();
        let made = made?;
        Ok(self.tables.get_or_init(|| made))
    }

    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Py<Table>> {
        let tables = self.all_tables(py)?;
        let (_, table) = tables
            .iter()
            .find(|(known, _)| known == name)
            .expect("a table of every run");
        Ok(table.clone_ref(py))
    }
}

#[pymethods]
impl Run {
    /// One row for each run: its row and column, its seed, its hash, and every metric that applies.
    #[getter]
    fn rows(&self) -> Table {
        rows(self.outcomes())
    }

    /// Levels and counters over time, in long form: the program's ``series.csv``.
    #[getter]
    fn timeline(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, "series")
    }

    /// Waits by cause: their number and lengths, of each run.
    #[getter]
    fn waits(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, "waits")
    }

    /// The published claims, and how each came out.
    #[getter]
    fn claims(&self) -> Table {
        let all = || self.verdicts.iter();
        Table::new(
            "claims",
            vec![
                table::words("id", all().map(|one| one.id.clone())),
                table::words("case", all().map(|one| one.case.clone())),
                table::words("what", all().map(|one| one.what.clone())),
                table::numbers("value", all().map(|one| one.value)),
                table::numbers("min", all().map(|one| one.min)),
                table::numbers("max", all().map(|one| one.max)),
                table::words("standing", all().map(|one| one.standing().name())),
                table::words("source", all().map(|one| one.source.clone())),
            ],
        )
    }

    /// All tables that the program writes, by their names.
    #[getter]
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, table) in self.all_tables(py)? {
            dict.set_item(name, table)?;
        }
        Ok(dict)
    }

    /// Fingerprints of the traces by run (``row/column/repetition``), as the program prints them.
    #[getter]
    fn trace_hashes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for outcome in self.outcomes() {
            dict.set_item(outcome.run_id(), format!("{:016x}", outcome.trace_hash))?;
        }
        Ok(dict)
    }

    /// Fingerprint of the trace of a single run.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     There are several; ``trace_hashes`` has them.
    #[getter]
    fn trace_hash(&self) -> PyResult<String> {
        match self.outcomes() {
            [one] => Ok(format!("{:016x}", one.trace_hash)),
            all => Err(PyValueError::new_err(format!(
                "there are {} runs; trace_hashes has their hashes",
                all.len()
            ))),
        }
    }

    /// Runs that failed: (``row/column/repetition``, why).
    #[getter]
    fn failed(&self) -> Vec<(String, String)> {
        self.failed.clone()
    }

    /// True if all runs were made, failed or not.
    #[getter]
    fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The scenario that was run, settings included.
    #[getter]
    fn scenario(&self) -> Scenario {
        self.scenario.clone()
    }

    /// Names of the columns that were run.
    #[getter]
    fn policies(&self) -> Vec<String> {
        self.columns.clone()
    }

    /// Writes what the program writes into a folder: tables, plots, ``report.html``.
    ///
    /// Parameters
    /// ----------
    /// folder : str or os.PathLike
    ///     A new folder, or one with results, which are replaced.
    fn save(&self, py: Python<'_>, folder: FsPath) -> PyResult<PathBuf> {
        py.detach(|| {
            let name = self.scenario.inner.name.get_ref();
            let folder = Folder::make(Some(&folder.0), name, self.about.master_seed)?;
            let report = self.report();
            let tables = output::tables(&self.about, self.outcomes(), &report.comparisons());
            output::write(
                folder.path(),
                &self.about,
                &tables,
                self.outcomes(),
                &report.render(),
                &self.shown(),
            )?;
            Ok(folder.path().to_owned())
        })
        .map_err(|error: output::OutputError| {
            pyo3::exceptions::PyOSError::new_err(error.to_string())
        })
    }

    fn __str__(&self) -> String {
        let mut text = self.report().render();
        for verdict in self.verdicts.iter().filter(|verdict| !verdict.skipped) {
            text.push_str(&format!("  {}\n", verdict.line()));
        }
        text
    }

    fn __repr__(&self) -> String {
        let whole = if self.is_whole { "" } else { ", cut short" };
        format!(
            "<tidegate.Run {}: {} runs of {}{whole}>",
            self.scenario.inner.name.get_ref(),
            self.made,
            self.columns.join(", ")
        )
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| output::part(&self.shown(), self.outcomes()))
    }
}

/// One row for each run.
fn rows(outcomes: &[Outcome]) -> Table {
    use experiment::metrics::METRICS;
    let all = || outcomes.iter();
    let mut columns = vec![
        table::words("run_id", all().map(Outcome::run_id)),
        table::words("case", all().map(|run| run.case.clone())),
        table::words("policy", all().map(|run| run.policy.clone())),
        table::whole("replica", all().map(|run| u64::from(run.replica))),
        table::words("seed", all().map(|run| format!("{:016x}", run.seed))),
        table::words(
            "trace_hash",
            all().map(|run| format!("{:016x}", run.trace_hash)),
        ),
        table::numbers("virt_s", all().map(|run| Some(run.virtual_s))),
        table::numbers("wall_s", all().map(|run| Some(run.wall_s))),
    ];
    for (at, metric) in METRICS.iter().enumerate() {
        if all().any(|run| run.values()[at].is_some()) {
            columns.push(table::numbers(
                metric.name,
                all().map(|run| run.values()[at]),
            ));
        }
    }
    Table::new("rows", columns)
}

/// The runs that are asked for.
struct Planned {
    scenario: Scenario,
    columns: Vec<String>,
    orders: Vec<Order>,
    /// The rows, but for those that stand apart.
    summed: Vec<String>,
}

fn plan(
    py: Python<'_>,
    scenario: &Scenario,
    policies: &[String],
    overrides: &[Override],
) -> PyResult<Planned> {
    let scenario = scenario.overridden(py, overrides)?;
    let inner = &scenario.inner;
    let columns = Column::named(inner, policies).map_err(|problem| errors::usage(py, problem))?;
    let rows = inner.rows();
    let cells: Vec<Cell> = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| (row, column)))
        .map(|(row, column)| Cell::resolve(inner, row, column))
        .collect();
    let summed = rows.iter().filter(|row| !row.apart);
    Ok(Planned {
        columns: columns.iter().map(|column| column.name.clone()).collect(),
        orders: run::orders(&cells, *inner.run.replicas.get_ref(), inner.run.seed),
        summed: summed.map(|row| row.name.get_ref().clone()).collect(),
        scenario,
    })
}

/// The runs of a scenario; `tick(done, all)` is called now and then. With `side_by_side`, as many
/// at a time as there are cores.
#[pyfunction]
#[pyo3(signature = (scenario, policies, repetitions, scale, seed, tick, side_by_side))]
#[expect(
    clippy::too_many_arguments,
    reason = "those of tidegate.run, which it is called by alone"
)]
pub(crate) fn run_scenario(
    py: Python<'_>,
    scenario: &Scenario,
    policies: Vec<String>,
    repetitions: Option<u32>,
    scale: Option<f64>,
    seed: Option<u64>,
    tick: Option<Py<PyAny>>,
    side_by_side: bool,
) -> PyResult<Run> {
    let mut overrides = Vec::new();
    if let Some(scale) = scale {
        let scale = format!("{scale:?}");
        overrides.push(Override::by_option("--scale", &["run", "scale"], scale));
    }
    if let Some(repetitions) = repetitions {
        overrides.push(Override::by_option(
            "--replicas",
            &["run", "replicas"],
            repetitions,
        ));
    }
    if let Some(seed) = seed {
        overrides.push(Override::by_option("--seed", &["run", "seed"], seed));
    }
    let planned = plan(py, scenario, &policies, &overrides)?;
    let orders = planned.orders;
    let shared = Arc::new((orders.clone(), run::no_results(&orders)));
    let (stop, counted) = (Stop::default(), Counted::default());
    let work = {
        let (shared, stop, counted) = (Arc::clone(&shared), stop.clone(), counted.clone());
        move || {
            let (orders, results) = &*shared;
            if side_by_side {
                run::run_into(orders, &World::Lab, &stop, &counted, results);
                return;
            }
            for (at, order) in orders.iter().enumerate() {
                if !stop.is_raised() {
                    let result = run::run_one(order, &World::Lab, &stop);
                    lock(results)[at] = Some(result);
                }
            }
        }
    };
    let mut told = 0;
    let all = orders.len();
    let raised = beside(py, &stop, work, |py| {
        let done = counted.ended();
        match &tick {
            Some(tick) if done > told => {
                told = done;
                tick.call1(py, (done, all)).map(drop)
            }
            _ => Ok(()),
        }
    })?;
    // Runs that still end write into what is left.
    let results: Vec<_> = lock(&shared.1).iter_mut().map(Option::take).collect();
    let is_partial = results.iter().any(Option::is_none);
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for (order, result) in orders.iter().zip(results) {
        match result {
            Some(Ok(outcome)) if !outcome.interrupted => outcomes.push(outcome),
            None | Some(Ok(_) | Err(RunError::Interrupted)) => {}
            Some(Err(error)) => {
                let cell = &order.cell;
                let name = format!("{}/{}/{}", cell.case, cell.policy, order.replica);
                failed.push((name, error.to_string()));
            }
        }
    }
    if raised.is_none()
        && outcomes.is_empty()
        && let Some((name, why)) = failed.first()
    {
        return Err(errors::run(py, format!("{name}: {why}")));
    }
    let scenario = planned.scenario;
    let is_whole = !is_partial && raised.is_none();
    let made = outcomes.len();
    let compared = pool::with_all(&scenario.inner, outcomes, &planned.summed);
    let verdicts = expect::judge(&scenario.inner, &compared, &planned.columns, is_whole);
    let run = Run {
        about: About::of(&scenario.inner, &scenario.source, false, VERSION),
        scenario,
        compared,
        made,
        columns: planned.columns,
        is_whole,
        verdicts,
        failed,
        tables: OnceLock::new(),
    };
    match raised {
        None => Ok(run),
        Some(error) if error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) => {
            let kept = Py::new(py, run)?.into_any();
            Err(errors::interrupted(py, kept))
        }
        Some(error) => Err(error),
    }
}

/// Version and commit, in the words of the program.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    VERSION
}

/// A seed, the hash of its trace, and of one that failed why, and its plan.
type Tried = (u64, String, Option<String>, Option<String>);

/// Runs seeds of the fault campaign, one after the other.
#[pyfunction]
pub(crate) fn campaign_seeds(py: Python<'_>, seeds: Vec<u64>) -> PyResult<Vec<Tried>> {
    answer(py, move |stop| {
        let mut ended = Vec::new();
        for seed in seeds {
            if stop.is_raised() {
                break;
            }
            let plan = campaign::Plan::draw(seed);
            ended.push(match campaign::run(&plan, &campaign::Setup::default()) {
                Ok(outcome) => (seed, format!("{:016x}", outcome.hash), None, None),
                Err(failure) => {
                    let why = format!("{}: {}", failure.kind, failure.message);
                    (seed, String::new(), Some(why), Some(plan.to_toml()))
                }
            });
        }
        ended
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
