//! Frames that stand together, as one: taken from what is free, and given back whole.

use env::{Env, Task};
use frames::FrameId;
use policy::compact::suitable::Standing;
use policy::place::mobility::Mobility;
use policy::units::Pages;

use super::Memory;
use super::free::{Free, Pick};
use crate::Error;
use crate::lists::ZoneId;
use crate::memory::chunks::Taken;

impl<E: Env> Memory<E> {
    /// What is free of a zone, and how it stands.
    fn standing_of(&self, free: &Free, zone: ZoneId) -> Standing {
        Standing {
            free: Pages(u64::from(self.free_of(zone))),
            blocks: free.lists.blocks_of(zone.0),
        }
    }

    /// Takes a run of 2^`order` frames of a zone, if there is one and `may` says so of what is free; appends its frames.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(crate) fn take_run(
        &self,
        task: &Task<'_, E>,
        zone: ZoneId,
        order: u8,
        out: &mut Vec<FrameId>,
        may: impl Fn(&Standing) -> bool,
        is_movable: impl Fn(FrameId) -> bool,
    ) -> Result<Taken, Error> {
        let pick = Pick {
            zone,
            mobility: Mobility::Movable,
            frames: 1 << order,
            order,
            wakes: false,
        };
        let mut taken = Taken::default();
        loop {
            let mut free = self.lists.lock(task);
            if !may(&self.standing_of(&free, zone)) {
                return Ok(taken);
            }
            let mut got = free.take(pick, pick.frames, out);
            // A chunk without memory stands together as a whole.
            if got == 0
                && task.may_block()
                && let Some(first) = self.take_absent(&mut free, Some(zone))
            {
                drop(free);
                self.populate(first)?;
                continue;
            }
            if got == 0
                && let Some(apart) = self.apart
            {
                got = free.take_of_others(apart, pick, out, &is_movable, &mut taken.mixed);
                self.boost_for(&mut free, pick, &mut taken.mixed);
            }
            self.now_taken(zone, got);
            taken.frames = got;
            taken.holds = u32::from(got > 0);
            return Ok(taken);
        }
    }
}
