//! The beginning and the end of a cache: building it, its devices and files, and the end of all of
//! them.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use env::{DeviceId, DeviceInfo, Env, Interrupt, ObjectId, Signal, Task};
use frames::NodePool;
use policy::dirty::DeviceIndex;
use policy::place::ZONES_MAX;
use policy::reclaim::page::Immediate;
use policy::units::{Bytes, Pages};

use crate::cache::kernel::{Kernel, Make, Place};
use crate::cache::{Cache, FILE_MAX, FRAMES_MIN};
use crate::file::sync::sync_all;
use crate::lists::{Layout, NodeId, Zones};
use crate::memory::{Memory, Shape};
use crate::options::{DeviceOptions, ListsOfCpus, Options, Populate};
use crate::pages::CachedPages;
use crate::registry::Registry;
use crate::registry::device::DeviceState;
use crate::registry::mapping::Mapping;
use crate::registry::writeback::Writeback;
use crate::slabs::SlabCounts;
use crate::vmstat::Counters;
use crate::writeback::balance::tell_the_rest;
use crate::writeback::flush;
use crate::{Error, File, Writer, reclaim, swapfile};

mod limit;
mod trim;

/// The name of a zone with too few frames.
const ZONE_FRAMES: [&str; ZONES_MAX] = [
    "the frames of zone 0 of the machine",
    "the frames of zone 1 of the machine",
    "the frames of zone 2 of the machine",
    "the frames of zone 3 of the machine",
    "the frames of zone 4 of the machine",
    "the frames of zone 5 of the machine",
    "the frames of zone 6 of the machine",
    "the frames of zone 7 of the machine",
    "the frames of zone 8 of the machine",
    "the frames of zone 9 of the machine",
    "the frames of zone 10 of the machine",
    "the frames of zone 11 of the machine",
    "the frames of zone 12 of the machine",
    "the frames of zone 13 of the machine",
    "the frames of zone 14 of the machine",
    "the frames of zone 15 of the machine",
];

impl Cache {
    /// Builds a cache over the frames of `env` and starts its background reclaimer.
    ///
    /// # Errors
    /// `LimitTooSmall`; `BadOption`; `NoMemory` when everything is populated at the start and the
    /// system refuses; `NoThread`.
    pub fn new(env: Arc<dyn Env>, options: Options) -> Result<Arc<Self>, Error> {
        Self::build(env, options, None)
    }

    /// The same with rooms of a kernel, which `make` makes for its place.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_kernel(
        env: Arc<dyn Env>,
        options: Options,
        make: Make<'_>,
    ) -> Result<Arc<Self>, Error> {
        Self::build(env, options, Some(make))
    }

    fn build(
        env: Arc<dyn Env>,
        options: Options,
        make: Option<Make<'_>>,
    ) -> Result<Arc<Self>, Error> {
        let frames = options.frames;
        if frames < FRAMES_MIN {
            return Err(Error::LimitTooSmall {
                frames: Pages(u64::from(frames)),
                least: Pages(u64::from(FRAMES_MIN)),
            });
        }
        options.check(make.is_some())?;
        // Dense files need 1/63 of a node a page; scattered ones up to a leaf and its parents a
        // page. A quarter of the frames lets scattered pages fill a good part of the cache; when
        // nodes run out, reclaim frees both.
        let nodes = NodePool::nodes_for(u64::from(frames)) + frames / 4 + options.files_max / 4;
        let of_zone = (options.reclaim.law.marks)(Pages(u64::from(frames)));
        let marks = options.marks.unwrap_or(of_zone);
        let content = env.content();
        let chunk = content.chunk_frames();
        let machine = options.machine_or_one_node();
        // An empty zone, or one of a few frames, would have no reserve and nothing to reclaim.
        let layout = Layout::new(machine, frames, chunk, FRAMES_MIN).map_err(|(zone, pages)| {
            Error::BadOption {
                what: ZONE_FRAMES[zone.index()],
                value: pages.0,
                allowed: (u64::from(FRAMES_MIN), u64::from(frames)),
            }
        })?;
        let layout = Arc::new(layout);
        let place = Place {
            nodes: layout.nodes().len(),
            zones: layout.zones().count(),
            memory: Pages(u64::from(frames)).saturating_sub(marks.high).bytes(),
            now: env.now(),
        };
        let kernel = make.map(|make| make(&place));
        let runs = kernel.as_ref().and_then(|kernel| kernel.runs());
        if let Some(runs) = runs {
            options.check_runs(runs)?;
        }
        let shape = Shape {
            frames,
            chunk,
            layout: Arc::clone(&layout),
            marks,
            tunables: options.reclaim,
            cpu_lists: options.place.cpu_lists.map(|law| ListsOfCpus {
                law,
                cpus: options.dirty.cpus,
            }),
            apart: options.apart,
            boost: options.boost,
            overhead: kernel.as_ref().and_then(|kernel| kernel.overhead()),
        };
        let cache = Arc::new(Self {
            pages: CachedPages::new(frames, nodes),
            memory: Memory::new(Arc::clone(&env), shape),
            zones: Zones::new(
                frames,
                Arc::clone(&layout),
                (&options.reclaim, options.page_rule.as_ref()),
                runs.map_or(Immediate::Scanned, |runs| runs.immediate),
                kernel.as_ref().and_then(|kernel| kernel.order()),
            ),
            registry: Registry::new(),
            writeback: Writeback::new(&options),
            swap: swapfile::State::new(frames),
            slabs: SlabCounts::new(place.zones),
            counters: Counters::new(),
            kernel,
            runs,
            env,
            content,
            options,
        });
        if cache.options.populate == Populate::AtStart {
            cache.memory.populate_all(&Interrupt::new())?;
        }
        for node in layout.nodes() {
            if layout.zones_of(node).next().is_none() {
                continue;
            }
            cache.start_in_node("reclaimer", node, reclaim::background::background)?;
            if cache.kernel().is_some_and(Kernel::has_compactor) {
                cache.start_in_node("compactor", node, compactor)?;
            }
        }
        Ok(cache)
    }

    /// Starts a task of a node; the first node's has no number in its name.
    fn start_in_node(
        self: &Arc<Self>,
        name: &'static str,
        node: NodeId,
        body: fn(&mut Task<'_>, &Weak<Self>, NodeId),
    ) -> Result<(), Error> {
        let cache = Arc::downgrade(self);
        let numbered = match node.index() {
            0 => name.to_owned(),
            other => format!("{name}-{other}"),
        };
        let body = move |task: &mut Task<'_>| body(task, &cache, node);
        let started = self.env.spawn(&numbered, Box::new(body));
        started.map_err(Error::no_thread(name))
    }

    /// Registers a device that `Env` knows as `id` and starts its flusher.
    ///
    /// # Errors
    /// `TooMany`; `BadOption`; `NoThread`.
    pub fn add_device(
        self: &Arc<Self>,
        task: &mut Task<'_>,
        id: DeviceId,
        info: DeviceInfo,
        options: DeviceOptions,
    ) -> Result<DeviceIndex, Error> {
        options.check()?;
        let limit = self.options.devices_max;
        let (index, device) = {
            // Held throughout: a device's place is its number.
            let mut devices = self.writeback.devices.lock(task);
            let before = devices.iter().find(|device| device.is_retired()).cloned();
            if before.is_none() && devices.len() >= usize::from(limit) {
                return Err(Error::TooMany {
                    what: "devices",
                    limit: u32::from(limit),
                });
            }
            let (index, bandwidth) = {
                let mut domain = self.writeback.domain.lock(task);
                let index = match &before {
                    Some(before) => {
                        domain.renew_device(before.index, options.tunables);
                        before.index
                    }
                    None => domain.add_device(task.now(), options.tunables),
                };
                (index, domain.bandwidth(index).0)
            };
            let places = (index, self.serial());
            let device = Arc::new(DeviceState::new(places, id, info, options, bandwidth));
            if before.is_some() {
                devices[usize::from(index.0)] = Arc::clone(&device);
            } else {
                self.writeback.requests.add_device(task, index);
                devices.push(Arc::clone(&device));
            }
            (index, device)
        };
        let (cache, own) = (Arc::downgrade(self), Arc::clone(&device));
        let started = self.env.spawn(
            &format!("flush-{}", index.0),
            Box::new(move |task| flush::flusher(task, &cache, &own)),
        );
        if let Err(none) = started {
            // Its place is for the next one.
            device.leave();
            self.retire_device(task, &device);
            return Err(Error::no_thread("flusher")(none));
        }
        Ok(index)
    }

    /// Gives up a device whose files are closed; its place is for the next device that is added.
    /// Answers by what `Env` knows it; `None`: something of it is still open or under way. It is
    /// then among `removed_devices` when that has ended.
    ///
    /// # Panics
    /// If `device` is not of this cache.
    pub fn remove_device(&self, task: &mut Task<'_>, device: DeviceIndex) -> Option<DeviceId> {
        let device = self.device(task, device);
        device.leave();
        self.retire_device(task, &device)
    }

    /// Devices that were to be removed when that could not be, and are now: by what `Env` knows
    /// them.
    pub fn removed_devices(&self, task: &mut Task<'_>) -> Vec<DeviceId> {
        let devices = self.writeback.devices.lock(task).clone();
        let leaving = devices.iter().filter(|device| device.is_leaving());
        leaving
            .filter_map(|device| self.retire_device(task, device))
            .collect()
    }

    fn retire_device(&self, task: &Task<'_>, device: &DeviceState) -> Option<DeviceId> {
        // Held meanwhile: nobody takes the place before its share of the dirty limit is given back.
        let _devices = self.writeback.devices.lock(task);
        if !device.retire(task) {
            return None;
        }
        self.writeback.domain.lock(task).remove_device(device.index);
        Some(device.id)
    }

    fn serial(&self) -> u64 {
        self.registry.serials.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From now on the device's share of the dirty limit, and what its writers get while writes
    /// fail, are another.
    ///
    /// # Errors
    /// `BadOption`.
    ///
    /// # Panics
    /// If `device` is not of this cache.
    pub fn set_device(
        &self,
        task: &mut Task<'_>,
        device: DeviceIndex,
        options: DeviceOptions,
    ) -> Result<(), Error> {
        options.check()?;
        self.device(task, device)
            .set_on_error(task, options.on_error);
        self.writeback
            .domain
            .lock(task)
            .set_device(device, options.tunables);
        Ok(())
    }

    /// Opens an object of a device as a file of `len` bytes. They count as not flushed: the first
    /// sync flushes the device.
    ///
    /// # Errors
    /// `TooMany`, `OutOfRange`, `FlushFailed` (the device has to be reopened).
    ///
    /// # Panics
    /// If `device` is not of this cache.
    pub fn open(
        self: &Arc<Self>,
        task: &mut Task<'_>,
        device: DeviceIndex,
        object: ObjectId,
        len: Bytes,
    ) -> Result<Arc<File>, Error> {
        if len.0 > FILE_MAX {
            return Err(Error::beyond_files(len));
        }
        let device = self.device(task, device);
        device.flush_failure(task)?;
        let limit = self.options.files_max;
        let mut files = self.registry.files.lock(task);
        let weak: Weak<Self> = Arc::downgrade(self);
        let mapping = files.add(limit, |id| {
            Mapping::new((id, self.serial()), weak, device, object, len)
        });
        let Some(mapping) = mapping else {
            return Err(Error::TooMany {
                what: "files",
                limit,
            });
        };
        mapping.device.add_file(task);
        drop(files);
        Ok(Arc::new(File::new(Arc::clone(self), mapping)))
    }

    /// A new writer: the task that writes through it is paced by what *it* has dirtied, and told of
    /// errors from now on.
    pub fn writer(&self) -> Writer {
        let context = Interrupt::new();
        let id = self.registry.writers.fetch_add(1, Ordering::Relaxed);
        let seen_errors = {
            let devices = self.writeback.devices.lock(&context);
            let seen = devices.iter();
            seen.map(|device| (device.serial, device.error_seq()))
                .collect()
        };
        Writer::new(
            id,
            self.writeback.domain.lock(&context).add_writer(),
            seen_errors,
        )
    }

    /// A writer is done for good; what it still owes is passed on.
    pub fn retire(&self, task: &mut Task<'_>, mut writer: Writer) {
        let (now, cpu) = (task.now(), task.cpu());
        let mut domain = self.writeback.domain.lock(task);
        tell_the_rest(&mut domain, now, cpu, &mut writer.pacer);
        domain.remove_writer(writer.into_index(), cpu);
    }

    /// Clears a device's failed state: the caller has made sure that it works again.
    pub fn reopen_device(&self, task: &mut Task<'_>, device: DeviceIndex) {
        let device = self.device(task, device);
        device.reopen(task);
        device.kick();
    }

    /// Brings everything written so far to its device and flushes it.
    ///
    /// # Errors
    /// The first file's that failed; the others are synced all the same.
    pub fn sync(self: &Arc<Self>, task: &mut Task<'_>) -> Result<(), Error> {
        sync_all(task, self, Mapping::unflushed)
    }

    /// Takes no more writes, makes those taken durable, stops the flushers and the reclaimer. Files
    /// that were not changed since they were opened are not flushed (`File::close`).
    ///
    /// # Errors
    /// As `sync`; the tasks are stopped all the same.
    pub fn shutdown(self: &Arc<Self>, task: &mut Task<'_>) -> Result<(), Error> {
        self.registry.closing.store(true, Ordering::SeqCst);
        let synced = self
            .let_writers_out(task)
            .and_then(|()| sync_all(task, self, Mapping::unflushed_at_end));
        self.registry.stopping.store(true, Ordering::Release);
        let devices = self.writeback.devices.lock(task).clone();
        for device in devices {
            device.flusher.wait.wake_all(Signal::Shutdown);
            device.writes_inflight.wait.wake_all(Signal::Shutdown);
        }
        for node in self.zones.nodes() {
            node.background().stop();
        }
        if let Some(kernel) = self.kernel() {
            kernel.stop();
        }
        self.memory.wake(Signal::Shutdown);
        synced
    }

    /// Waits for the writes that came before `closing`: the sync after it is to cover them.
    fn let_writers_out(&self, task: &mut Task<'_>) -> Result<(), Error> {
        let files: Vec<_> = self.registry.files.lock(task).iter().cloned().collect();
        for mapping in files {
            drop(mapping.shut_at_the_end(task)?);
        }
        Ok(())
    }
}

/// The task of a node that makes runs in the background.
fn compactor(task: &mut Task<'_>, cache: &Weak<Cache>, node: NodeId) {
    while let Some(cache) = cache.upgrade() {
        if !cache
            .kernel()
            .is_some_and(|kernel| kernel.compact(task, &cache, node))
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
