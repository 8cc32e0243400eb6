//! The lab's side of a cell: device models on file systems, scaled, and what work costs.

use std::sync::Arc;

use env::{Host, Interrupt, ObjectId, Work};
use policy::reclaim::scan::CLUSTER;
use policy::units::{Bytes, Nanos};
use world::fs::Layout;
use world::media::Media;
use world::model::params::Unit;
use world::model::{self, Params, Simulated, Surroundings};
use world::{CostTable, Lab, fs};

use super::cell::Cell;
use super::disk::{DeviceSpec, times};
use super::journal::log_of;
use super::session::{Change, RunError};
use super::wrap::{Built, dress};
use scenario::catalogue::{self, WRAPPED};

/// Version of what a file holds that was there before the run.
const BEFORE: u32 = 1;

/// The cost of work: by the machine that the scenario names, else by the file system of the first
/// device, else ext4's.
pub(super) fn costs(cell: &Cell) -> Result<CostTable, RunError> {
    let mut table = named_costs(cell)?;
    if cell.laws.reclaim.allocates_singly() {
        table = table.with_frames_alone();
    }
    if !cell.scale_costs {
        return Ok(table);
    }
    let shrink = u32::try_from(cell.shrink).map_err(impossible)?;
    // Reclaimers meet once a cluster, and a cluster shrinks with the pages.
    let meeting = table.picos(Work::ContendLru);
    let meeting = meeting * cell.shrink * cell.laws.reclaim.cluster().0 / CLUSTER.0;
    Ok(table.shrunk(shrink).with_picos(Work::ContendLru, meeting))
}

fn named_costs(cell: &Cell) -> Result<CostTable, RunError> {
    if let Some(machine) = &cell.costs {
        let found = catalogue::costs(machine);
        return found.ok_or_else(|| impossible(format!("no machine `{machine}`")));
    }
    let name = cell
        .devices
        .first()
        .and_then(|device| device.fs.as_deref())
        .unwrap_or("ext4");
    Ok(fs::by_name(name).map_err(impossible)?.costs)
}

/// The parameters of a device in a cell: its model's, changed by the scenario, then scaled.
pub(super) fn params(cell: &Cell, spec: &DeviceSpec) -> Result<Params, RunError> {
    let mut params = model::by_name(&spec.model).map_err(impossible)?;
    for (name, value) in &spec.params {
        params.set(name, *value).map_err(impossible)?;
    }
    if let Some(rate) = spec.rate
        && spec.model != WRAPPED
    {
        params.set_rate(rate).map_err(impossible)?;
    }
    for (field, value) in params.fields().iter().zip(params.values()) {
        if field.unit == Unit::BytesPerSec {
            params
                .set(field.name, times(value, spec.rate_factor))
                .map_err(impossible)?;
        }
    }
    Ok(if cell.scale_requests {
        params.scaled_with_requests(cell.shrink)
    } else if cell.scale_costs {
        params.scaled_whole(cell.shrink)
    } else {
        params.scaled(cell.shrink)
    })
}

/// A device in the lab, its files filled, its wrappers around it.
pub(super) fn device(
    lab: &Lab,
    cell: &Cell,
    spec: &DeviceSpec,
    prefilled: &[(ObjectId, Bytes)],
) -> Result<Built, RunError> {
    let params = params(cell, spec)?;
    let mut media = Media::new(params.volatile_cache());
    for (object, len) in prefilled {
        media.prefill(*object, len.pages_ceil(), BEFORE);
    }
    let mut layout = match &spec.fs {
        Some(name) => {
            let fs = fs::by_name(name).map_err(impossible)?;
            match spec.journal {
                Some(_) => fs.layout_under(log_of(cell), params.span(), cell.shrink),
                None => fs.layout(params.span(), cell.shrink),
            }
        }
        None => Layout::plain(),
    };
    if spec.placed_files {
        for (object, len) in prefilled {
            layout.place(*object, len.pages_ceil());
        }
    }
    let surroundings = Surroundings {
        host: lab.host(),
        stamps: lab.stamps(),
        media: Arc::new(std::sync::Mutex::new(media)),
        layout,
        stable_writes: false,
    };
    let simulated = Arc::new(model::build(&params, surroundings));
    let device = Arc::<Simulated>::clone(&simulated);
    let (paced, host) = (spec.model == WRAPPED, lab.host());
    let mut built = dress(device, spec, None, &host, (paced, cell.shrink))?;
    let later = spec.rates(cell.shrink).into_iter().skip(1).collect();
    if !paced {
        built.change = Some(changes_of(simulated, later, host));
    }
    Ok(built)
}

/// Sets the changes of a model's own rate.
fn changes_of(device: Arc<Simulated>, later: Vec<(Nanos, u64)>, host: Arc<dyn Host>) -> Change {
    Box::new(move |origin| {
        for (at, rate) in &later {
            let (device, own, rate) = (Arc::clone(&device), Arc::clone(&host), *rate);
            let when = origin + *at;
            let change = move |_: &Interrupt| {
                // A lab that shuts down calls early: nothing is to change any more.
                if own.now() >= when {
                    device
                        .set_rate(rate)
                        .expect("a loaded scenario changes only what has a rate");
                }
            };
            host.at(when, Box::new(change));
        }
    })
}

fn impossible(error: impl core::fmt::Display) -> RunError {
    RunError::Impossible(error.to_string())
}
