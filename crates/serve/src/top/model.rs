//! What is on the screen: the latest snapshot, and the throughput of the last minutes.

use std::collections::VecDeque;

use crate::snapshot::{Snapshot, Volume};

/// Seconds of throughput that are kept.
const HISTORY: usize = 512;

/// What the reader says.
pub(super) enum News {
    /// The server is like this now.
    Snapshot(Box<Snapshot>),
    /// It does not answer, and why.
    Gone(String),
}

/// What is shown.
pub(super) struct Model {
    pub(super) address: String,
    pub(super) snapshot: Option<Box<Snapshot>>,
    /// Why the snapshot is not of now.
    pub(super) gone: Option<String>,
    /// Bytes a second to and from clients, oldest first.
    pub(super) throughput: VecDeque<u64>,
    /// The first volume shown.
    pub(super) first: usize,
}

impl Model {
    pub(super) fn new(address: String) -> Self {
        Self {
            address,
            snapshot: None,
            gone: None,
            throughput: VecDeque::with_capacity(HISTORY),
            first: 0,
        }
    }

    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Snapshot(snapshot) => {
                self.gone = None;
                if self.throughput.len() == HISTORY {
                    self.throughput.pop_front();
                }
                let moved = snapshot.volumes.iter().map(|volume| bytes_of(volume, None));
                self.throughput.push_back(moved.sum());
                self.snapshot = Some(snapshot);
                self.scroll(0);
            }
            News::Gone(why) => self.gone = Some(why),
        }
    }

    /// Moves the list of volumes by so many.
    pub(super) fn scroll(&mut self, by: isize) {
        let volumes = self
            .snapshot
            .as_ref()
            .map_or(0, |snapshot| snapshot.volumes.len());
        self.first = self
            .first
            .saturating_add_signed(by)
            .min(volumes.saturating_sub(1));
    }
}

/// Bytes a second of a volume's clients, of one command or all.
pub(super) fn bytes_of(volume: &Volume, command: Option<&str>) -> u64 {
    let of = |name: &str| command.is_none_or(|wanted| wanted == name);
    let commands = volume.commands.iter();
    commands
        .filter(|command| {
            matches!(command.command.as_str(), "read" | "write") && of(&command.command)
        })
        .map(|command| command.byte_rate)
        .sum()
}

/// Requests a second of a volume's clients.
pub(super) fn requests_of(volume: &Volume) -> u64 {
    volume
        .commands
        .iter()
        .map(|command| command.request_rate)
        .sum()
}

/// The longest of 99 in a hundred replies to reads and writes of late; `None`: there were none.
pub(super) fn p99_of(volume: &Volume) -> Option<u64> {
    let commands = volume.commands.iter();
    commands
        .filter(|command| matches!(command.command.as_str(), "read" | "write"))
        .filter(|command| command.latency_recent.count > 0)
        .map(|command| command.latency_recent.p99_us)
        .max()
}
