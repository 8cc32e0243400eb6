//! The lab's side of a cell: device models on file systems, scaled, and what work costs.

use std::sync::Arc;

use env::{Device, ObjectId};
use lab::fs::Layout;
use lab::model::params::Unit;
use lab::model::{self, Params, Surroundings};
use lab::platter::Platter;
use lab::{CostTable, Lab, fs};
use policy::units::Bytes;

use super::cell::{Cell, DeviceSpec, times};
use super::journal::log_of;
use super::session::RunError;
use super::wrap::{Built, dress};
use crate::catalogue;

/// Version of what a file holds that was there before the run.
const BEFORE: u32 = 1;

/// What work costs: by the file system of the first device; without one, ext4's.
pub(super) fn costs(cell: &Cell) -> Result<CostTable, RunError> {
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
    if let (Some(rate), Some(field)) = (spec.rate, catalogue::rate_field(&params)) {
        params.set(field, rate).map_err(impossible)?;
    }
    for (field, value) in params.fields().iter().zip(params.values()) {
        if field.unit == Unit::BytesPerSec {
            params
                .set(field.name, times(value, spec.rate_factor))
                .map_err(impossible)?;
        }
    }
    Ok(params.scaled(cell.shrink))
}

/// A device in the lab, its files filled, its wrappers around it.
pub(super) fn device(
    lab: &Lab,
    cell: &Cell,
    spec: &DeviceSpec,
    prefilled: &[(ObjectId, Bytes)],
) -> Result<Built, RunError> {
    let params = params(cell, spec)?;
    let mut platter = Platter::new(params.volatile_cache());
    for (object, len) in prefilled {
        platter.prefill(*object, len.pages_ceil(), BEFORE);
    }
    let layout = match &spec.fs {
        Some(name) => {
            let fs = fs::by_name(name).map_err(impossible)?;
            match spec.journal {
                Some(_) => fs.layout_under(log_of(cell), params.span(), cell.shrink),
                None => fs.layout(params.span(), cell.shrink),
            }
        }
        None => Layout::plain(),
    };
    let surroundings = Surroundings {
        host: lab.host(),
        stamps: lab.stamps(),
        platter: Arc::new(std::sync::Mutex::new(platter)),
        layout,
        stable_writes: false,
    };
    let device: Arc<dyn Device> = Arc::new(model::build(&params, surroundings));
    let paced = spec.model == catalogue::WRAPPED;
    dress(device, spec, None, &lab.host(), (paced, cell.shrink))
}

fn impossible(error: impl core::fmt::Display) -> RunError {
    RunError::Impossible(error.to_string())
}
