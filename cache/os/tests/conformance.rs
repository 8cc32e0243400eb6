//! `ThreadEnv` passes the suite that every `Env` passes (style A10).

use std::sync::Arc;

use env::{DeviceId, Task};
use os::{Options, ThreadEnv};
use policy::units::Nanos;
use testkit::suite::{Harness, MakeDevice, Timing, World};

struct Live;

struct LiveWorld {
    env: Arc<ThreadEnv>,
    device: DeviceId,
}

impl Harness for Live {
    type World = LiveWorld;

    fn start(&self, _cpus: usize, _seed: u64, device: MakeDevice<'_>) -> LiveWorld {
        let env = ThreadEnv::start(Options::new(1024)).expect("the environment starts");
        let device = env.add_device(device(env.host()));
        LiveWorld { env, device }
    }

    fn timing(&self) -> Timing {
        Timing {
            wakes_at: None,
            slack: Nanos::ZERO,
            deterministic: false,
        }
    }
}

impl World for LiveWorld {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn run<T: Send + 'static>(
        &mut self,
        root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
    ) -> T {
        let answer = root(&mut self.env.enter());
        assert_eq!(
            self.env.panics(),
            0,
            "a task panicked; its message is above"
        );
        answer
    }

    fn shutdown(&mut self) {
        self.env.shutdown();
        assert_eq!(
            self.env.panics(),
            0,
            "a task panicked; its message is above"
        );
    }

    fn tasks(&self) -> usize {
        self.env.tasks()
    }
}

macro_rules! tests {
    ($($module:ident: $($case:ident)+;)+) => { $($(
        #[test]
        fn $case() {
            testkit::suite::$module::$case(&Live);
        }
    )+)+ };
}
testkit::suite_cases!(tests);
