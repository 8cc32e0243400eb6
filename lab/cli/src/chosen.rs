//! Of which runs a trace is made: `--trace`, `--trace=ROW`, `--trace=ROW/COLUMN,...`.

use experiment::run::Order;
use experiment::scenario::choices;
use report::output;

/// Traces of one call at most: each may take 100 MB while it is made.
const TRACES_MOST: usize = 12;

/// Marks the orders of the first repetition that the text names: of the first row if it is empty.
///
/// # Errors
/// A row or column that is not run, or too many; with what there is.
pub(crate) fn choose(orders: &mut [Order], text: &str) -> Result<(), String> {
    let Some(first) = orders.first().map(|order| order.cell.case.clone()) else {
        return Ok(());
    };
    for wanted in text.split(',') {
        let wanted = if wanted.is_empty() { &first } else { wanted };
        let is = |order: &Order| {
            let (case, policy) = (&order.cell.case, &order.cell.policy);
            order.replica == 0 && (wanted == case || wanted == format!("{case}/{policy}"))
        };
        let mut found = false;
        for order in orders.iter_mut().filter(|order| is(order)) {
            (order.trace, found) = (true, true);
        }
        if !found {
            let rows = orders.iter().filter(|order| order.replica == 0);
            let known: Vec<String> = rows
                .map(|order| format!("{}/{}", order.cell.case, order.cell.policy))
                .collect();
            let known = choices(wanted, known.iter().map(String::as_str));
            return Err(format!("--trace: no run is called `{wanted}`; {known}"));
        }
    }
    let marked: Vec<&Order> = orders.iter().filter(|order| order.trace).collect();
    if marked.len() > TRACES_MOST {
        return Err(format!(
            "--trace={text}: that would be {} traces; name at most {TRACES_MOST}, as ROW/COLUMN",
            marked.len()
        ));
    }
    let name = |order: &Order| output::trace_of(&order.cell.case, &order.cell.policy);
    for (at, order) in marked.iter().enumerate() {
        if let Some(other) = marked[..at].iter().find(|it| name(it) == name(order)) {
            let run = |order: &Order| format!("{}/{}", order.cell.case, order.cell.policy);
            return Err(format!(
                "--trace={text}: the traces of {} and {} would both be called {}; choose one of them",
                run(other),
                run(order),
                name(order)
            ));
        }
    }
    Ok(())
}
