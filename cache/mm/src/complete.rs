//! The one match over requests that have ended.

use env::{Interrupt, IoError, IoOp, IoRequest};

use crate::cache::Cache;
use crate::registry::completions::Completions;
use crate::registry::mapping::Mapping;
use crate::swap;
use crate::swapfile::Area;
use crate::writeback::io::emit_completed;

impl Completions<Mapping> for Cache {
    fn ended(
        &self,
        file: &Mapping,
        context: &Interrupt,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let now = self.env.now();
        emit_completed(self, now, &request, result.is_err());
        match request.op {
            IoOp::Read => file.read_done(self, context, now, request, result),
            _ => file.write_done(self, context, now, request, result),
        }
    }
}

impl Completions<Area> for Cache {
    fn ended(
        &self,
        area: &Area,
        context: &Interrupt,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        emit_completed(self, self.env.now(), &request, result.is_err());
        match request.op {
            IoOp::Read => swap::read::read_done(self, area, context, request, result),
            _ => swap::out::write_done(self, area, context, request, result),
        }
    }
}
