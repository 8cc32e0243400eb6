//! A law at work, with its writers.
//!
//! `Engine` is what `Domain` sees of it: writers are numbers there, and what the law remembers of
//! them stays here, with the law. So a state of another law cannot be handed to it.

use super::limits::bounded;
use super::rules::{DeviceRules, Dirtied, Look, WriterRules};
use super::types::{BalanceTrace, Counts, DeviceIndex, Due, Verdict};
use crate::units::{Instant, Nanos, Pages};

/// Some law at work.
pub trait Engine: Send {
    /// Its rules for devices.
    fn devices(&self) -> &dyn DeviceRules;
    /// The same, to change.
    fn devices_mut(&mut self) -> &mut dyn DeviceRules;
    /// Answers the number of a new writer. The number of a removed writer is used again.
    fn add_writer(&mut self) -> u32;
    /// `WriterRules::remove_writer`; the number is free again.
    fn remove_writer(&mut self, writer: u32, cpu: usize);
    /// `WriterRules::budget`.
    fn budget(&self, writer: u32, device: DeviceIndex, cpu: usize) -> Pages;
    /// `WriterRules::on_dirtied`.
    fn on_dirtied(&mut self, writer: u32, dirtied: &Dirtied) -> Option<Due>;
    /// `WriterRules::untold_max`.
    fn untold_max(&self, writer: u32, now: Instant, device: DeviceIndex) -> Pages;
    /// `WriterRules::begin`.
    fn begin(&mut self, writer: u32, device: DeviceIndex, pages: Pages);
    /// `WriterRules::decide`.
    fn decide(&mut self, writer: u32, now: Instant, counts: &Counts) -> (Verdict, BalanceTrace);
    /// `WriterRules::wrote`.
    fn wrote(&mut self, writer: u32, pages: Pages);
}

/// A law and its writers, by number.
pub struct Running<L: WriterRules> {
    law: L,
    writers: Vec<Option<Entry<L>>>,
    /// Numbers of writers that were removed.
    free: Vec<u32>,
}

/// A writer's place.
struct Entry<L: WriterRules> {
    writer: L::Writer,
    balance: Option<Open<L>>,
}

/// A balance that is not over.
struct Open<L: WriterRules> {
    device: DeviceIndex,
    state: L::Balance,
    paused: Nanos,
}

impl<L: WriterRules + 'static> Running<L> {
    /// Has the law begin its work.
    pub fn start(law: L) -> Box<dyn Engine> {
        Box::new(Self {
            law,
            writers: Vec::new(),
            free: Vec::new(),
        })
    }
}

/// # Panics
/// When there is no such writer.
fn place<L: WriterRules>(writers: &mut [Option<Entry<L>>], writer: u32) -> &mut Entry<L> {
    let place = writers.get_mut(writer as usize).and_then(Option::as_mut);
    place.expect("a writer belongs to the domain that it was added to")
}

impl<L: WriterRules + 'static> Engine for Running<L> {
    fn devices(&self) -> &dyn DeviceRules {
        &self.law
    }

    fn devices_mut(&mut self) -> &mut dyn DeviceRules {
        &mut self.law
    }

    fn add_writer(&mut self) -> u32 {
        let place = Some(Entry {
            writer: self.law.new_writer(),
            balance: None,
        });
        if let Some(number) = self.free.pop() {
            self.writers[number as usize] = place;
            return number;
        }
        self.writers.push(place);
        u32::try_from(self.writers.len() - 1).expect("a domain has fewer than 2^32 writers")
    }

    fn remove_writer(&mut self, writer: u32, cpu: usize) {
        let place = self.writers[writer as usize].take();
        let place = place.expect("a writer is removed once");
        self.free.push(writer);
        self.law.remove_writer(place.writer, cpu);
    }

    fn budget(&self, writer: u32, device: DeviceIndex, cpu: usize) -> Pages {
        let place = self.writers[writer as usize].as_ref();
        let place = place.expect("a writer belongs to the domain that it was added to");
        self.law.budget(&place.writer, device, cpu)
    }

    fn on_dirtied(&mut self, writer: u32, dirtied: &Dirtied) -> Option<Due> {
        let place = place(&mut self.writers, writer);
        self.law.on_dirtied(&mut place.writer, dirtied)
    }

    fn untold_max(&self, writer: u32, now: Instant, device: DeviceIndex) -> Pages {
        let place = self.writers[writer as usize].as_ref();
        let place = place.expect("a writer belongs to the domain that it was added to");
        self.law.untold_max(&place.writer, now, device)
    }

    fn begin(&mut self, writer: u32, device: DeviceIndex, pages: Pages) {
        place(&mut self.writers, writer).balance = Some(Open {
            device,
            state: self.law.begin(bounded(pages)),
            paused: Nanos::ZERO,
        });
    }

    fn decide(&mut self, writer: u32, now: Instant, counts: &Counts) -> (Verdict, BalanceTrace) {
        let place = place(&mut self.writers, writer);
        let open = place.balance.as_mut().expect("a balance has begun");
        let look = Look {
            now,
            device: open.device,
            counts,
        };
        let (verdict, mut trace) = self.law.decide(&mut open.state, &mut place.writer, &look);
        trace.paused = open.paused;
        match verdict {
            Verdict::Done { .. } => place.balance = None,
            Verdict::Pause { pause, .. } => open.paused = open.paused.saturating_add(pause),
            Verdict::WriteYourself { .. } => {}
        }
        (verdict, trace)
    }

    fn wrote(&mut self, writer: u32, pages: Pages) {
        let open = place(&mut self.writers, writer).balance.as_mut();
        self.law
            .wrote(&mut open.expect("a balance has begun").state, pages);
    }
}
