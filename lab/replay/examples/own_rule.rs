//! `cargo run --release -p tidegate-replay --example own_rule -- TRACE`: a rule of one's own beside
//! those that are there.

use replay::rules::{Access, Rule};
use replay::trace::Trace;
use replay::{Asked, ReplayError, Stop};

/// Evicts any page.
struct Random {
    /// Pages in memory; and by page, its place among them.
    pages: Vec<u32>,
    places: Vec<Option<usize>>,
    capacity: usize,
    state: usize,
}

impl Random {
    fn build(trace: &Trace, pages: u32) -> Box<dyn Rule> {
        Box::new(Self {
            pages: Vec::new(),
            places: vec![None; trace.distinct() as usize], // pages are numbered from 0
            capacity: pages as usize,
            state: 1,
        })
    }

    fn evict(&mut self) -> u32 {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        let place = (self.state >> 33) % self.pages.len();
        let page = self.pages.swap_remove(place);
        if let Some(moved) = self.pages.get(place) {
            self.places[*moved as usize] = Some(place);
        }
        self.places[page as usize] = None;
        page
    }
}

impl Rule for Random {
    fn access(&mut self, page: u32) -> Access {
        if self.places[page as usize].is_some() {
            return Access::Hit;
        }
        let is_full = self.pages.len() == self.capacity;
        let evicted = is_full.then(|| self.evict());
        self.places[page as usize] = Some(self.pages.len());
        self.pages.push(page);
        Access::Miss { evicted }
    }
}

/// The trace under the rule and three others.
pub(crate) fn asked(trace: &str) -> Asked {
    Asked {
        traces: vec![trace.into()],
        own: vec![("random".into(), Random::build)],
        rules: ["random", "lru", "reuse", "belady"].map(Into::into).into(),
        ..Asked::default()
    }
}

fn main() -> Result<(), ReplayError> {
    let trace = std::env::args().nth(1).unwrap_or("-".into());
    replay::main(&asked(&trace), &Stop::default())?;
    Ok(())
}
