//! Guests whose memory is short: reclaim, swap, nodes, small files, huge pages.
//!
//! ```text
//! scenarios --> image (disks, sysctls, tracepoints, plan; process 1 is `guest-load`) --> tables
//! ```

mod image;
mod scenario;
mod scenarios;
mod tables;

use super::image::Programs;
use super::kernel::Kernel;
use super::machine::Memory;
use super::record::{Recording, Stream};
use super::{Guest, Result};

pub(super) use scenarios::{Scenario, all};
pub(super) use tables::Measures;

impl Scenario {
    /// The recording, and what a test asks of it.
    ///
    /// # Errors
    /// Something is missing, torn, or not as the scenario says.
    pub(super) fn measured(&self, hz: u32, stream: &Stream) -> Result<(Recording, Measures)> {
        tables::make(self, hz, stream)
    }
}

impl Guest for Scenario {
    fn name(&self) -> &str {
        &self.name
    }

    fn seconds(&self) -> u32 {
        self.seconds
    }

    fn set(&mut self, setting: &str) -> Result<()> {
        self.set(setting)
    }

    fn judge(&self) -> Result<()> {
        self.judge()
    }

    fn memory(&self) -> Memory {
        let mib = self.memory_mib();
        match self.nodes {
            1 => Memory::Plain { mib },
            count => Memory::Nodes {
                count,
                mib: mib / count,
            },
        }
    }

    fn command_line(&self) -> &'static str {
        // Addresses are the same in each guest. A root in ramfs, whose pages are never swapped.
        "norandmaps rootfstype=ramfs"
    }

    fn image(&self, kernel: &Kernel, programs: &Programs) -> Result<Vec<u8>> {
        image::make(self, kernel, programs)
    }

    fn recording(&self, hz: u32, stream: &Stream) -> Result<Recording> {
        self.measured(hz, stream).map(|(recording, _)| recording)
    }
}
