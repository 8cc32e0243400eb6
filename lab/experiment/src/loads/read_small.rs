//! `read_small`: reads small files again.

use super::stat_small;
use crate::task::{Given, Load, Sizes};
use scenario::kinds::read_small::Keys;
use workload::{Visit, Work};

impl Load for Keys {
    fn work(&self, at: &Sizes, given: Given) -> Work {
        stat_small::work(Visit::Read, (&self.loops, &self.after), at, given)
    }
}
