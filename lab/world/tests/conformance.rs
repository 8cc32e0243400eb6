//! The lab passes the conformance suite: with exact waits and free work, with a tick of 250 Hz, and
//! with work that costs time.

use std::sync::Arc;

use env::{DeviceId, Host, Task, Work};
use policy::units::{Instant, Nanos};
use testkit::suite::{Harness, MakeDevice, Timing, World};
use world::{CostTable, Lab, Options};

const TICK_250: u64 = 4_000_000;

#[derive(Clone, Copy)]
struct LabHarness {
    hz: u32,
    costly: bool,
}

struct LabWorld {
    lab: Lab,
    device: DeviceId,
}

/// The cost of a wake-up where work costs anything.
const SWITCH: Nanos = Nanos(1_500);

impl Harness for LabHarness {
    type World = LabWorld;

    fn start(&self, cpus: usize, seed: u64, device: MakeDevice<'_>) -> LabWorld {
        let costs = if self.costly {
            CostTable::zero()
                .with(Work::Switch, SWITCH)
                .with_picos(Work::Scan, 166_667)
        } else {
            CostTable::zero()
        };
        let lab = Lab::new(Options {
            cpus: u32::try_from(cpus).expect("few CPUs"),
            hz: self.hz,
            seed,
            costs,
            ..Options::default()
        });
        let host: Arc<dyn Host> = lab.host();
        let device = lab.add_device(device(host));
        LabWorld { lab, device }
    }

    fn timing(&self) -> Timing {
        let exact: fn(Instant) -> Instant = |at| at;
        let ticked: fn(Instant) -> Instant = |at| Instant(at.0.next_multiple_of(TICK_250));
        Timing {
            wakes_at: Some(if self.hz == 0 { exact } else { ticked }),
            slack: if self.costly { SWITCH } else { Nanos::ZERO },
            deterministic: true,
        }
    }
}

impl World for LabWorld {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn run<T: Send + 'static>(
        &mut self,
        root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
    ) -> T {
        match self.lab.run(root) {
            Ok(answer) => answer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A run cancels and drains by itself.
    fn shutdown(&mut self) {}

    fn tasks(&self) -> usize {
        let reports = self.lab.tasks();
        reports.iter().filter(|task| task.ended.is_none()).count()
    }
}

mod exact {
    macro_rules! tests {
        ($($module:ident: $($case:ident)+;)+) => { $($(
            #[test]
            fn $case() {
                testkit::suite::$module::$case(&super::LabHarness { hz: 0, costly: false });
            }
        )+)+ };
    }
    testkit::suite_cases!(tests);
}

mod ticked {
    macro_rules! tests {
        ($($module:ident: $($case:ident)+;)+) => { $($(
            #[test]
            fn $case() {
                testkit::suite::$module::$case(&super::LabHarness { hz: 250, costly: false });
            }
        )+)+ };
    }
    testkit::suite_cases!(tests);
}

mod costly {
    macro_rules! tests {
        ($($module:ident: $($case:ident)+;)+) => { $($(
            #[test]
            fn $case() {
                testkit::suite::$module::$case(&super::LabHarness { hz: 0, costly: true });
            }
        )+)+ };
    }
    testkit::suite_cases!(tests);
}
