//! Stands in for mm::Spill until it is in the tree; goes within the hour.

use std::sync::Arc;

use env::{Env, Task};
use mm::{Cache, Error};
use policy::units::Pages;

/// As `mm::Touched`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) pages: Pages,
    pub(crate) faults: Pages,
    pub(crate) major: Pages,
}

/// As `mm::Spill`.
pub(crate) struct Spill<E: Env>(core::marker::PhantomData<fn() -> E>);

impl<E: Env> Spill<E> {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(crate) fn touch(
        &self,
        _task: &mut Task<'_, E>,
        _first: u32,
        count: u32,
    ) -> Result<Touched, Error> {
        let pages = Pages(u64::from(count));
        Ok(Touched {
            pages,
            faults: pages,
            major: Pages::ZERO,
        })
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(crate) fn discard(
        &self,
        _task: &mut Task<'_, E>,
        _first: u32,
        _count: u32,
    ) -> Result<(), Error> {
        Ok(())
    }
}

/// As `mm::Cache::spill`.
pub(crate) trait Spills<E: Env> {
    fn spill(&self, task: &mut Task<'_, E>, pages: Pages) -> Result<Arc<Spill<E>>, Error>;
}

impl<E: Env> Spills<E> for Arc<Cache<E>> {
    fn spill(&self, _task: &mut Task<'_, E>, _pages: Pages) -> Result<Arc<Spill<E>>, Error> {
        Ok(Arc::new(Spill(core::marker::PhantomData)))
    }
}
