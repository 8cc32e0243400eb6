//! Guests whose writers are throttled: their scenarios as what every guest is.

use super::image::{self, Programs};
use super::kernel::Kernel;
use super::machine::Memory;
use super::record::{self, Recording, Stream};
use super::scenarios::Scenario;
use super::{Guest, Result};

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
        if self.change.is_empty() {
            Memory::Plain { mib }
        } else {
            Memory::with_doors(mib)
        }
    }

    fn command_line(&self) -> &'static str {
        ""
    }

    fn image(&self, kernel: &Kernel, programs: &Programs) -> Result<Vec<u8>> {
        image::make(self, kernel, programs)
    }

    fn recording(&self, hz: u32, stream: &Stream) -> Result<Recording> {
        record::make(self, hz, stream).map(|(recording, _)| recording)
    }
}
