//! The jobs of a cell: a scenario's tasks as what the workload crate runs, scaled.
//!
//! Sizes are given in MiB of the full size or as a part of its memory, and are scaled by the run's scale.
//! A block of random I/O shrinks with it as requests do (`request_least`), so that a file of a small part
//! of the memory still has several blocks (experiments A6). A block of a `large_dd` shrinks as a read-ahead window does, of which
//! it is one. What a bystander takes is not scaled: it
//! is a few pages.

use policy::units::{Bytes, Nanos, PAGE_SIZE, Pages};
use workload::{
    Bystander, Cp, Dd, FsMark, Hog, Keep, LargeDd, LightWriter, MakeSmall, MappedWriter, Mapper,
    Pattern, Phase, Phases, Pinner, RandRead, RandWrite, Reader, Revisit, SyncAfter, Thpavail,
    Visit,
};

use super::cell::{PAGES_PER_MIB, device, millis, request_least, seconds, whole};
use super::{runs, small};
use crate::scenario::{CaseEntry, OrderKind, Scenario, SyncKind, TaskEntry, TaskKind};

/// Block of a light writer.
const LIGHT_BLOCK_KIB: f64 = 4.0;
/// Block of all others.
const BLOCK_KIB: f64 = 1024.0;
/// Block of `cp`: coreutils of 2010.
const CP_BLOCK_KIB: f64 = 32.0;
/// Block of a `large_dd`: a read-ahead window of Linux.
const LARGE_DD_BLOCK_KIB: f64 = 128.0;
/// Block of `fs_mark` (its `IO_BUFFER_SIZE`).
const FS_MARK_BLOCK_KIB: f64 = 16.0;
/// How long a mapper sleeps between two mappings (experiments B1).
const MAPPER_THINK_MS: f64 = 5.0;
/// Reads before fio's readers take another file (experiments B1).
const SWITCH_EVERY: u32 = 16;

/// Pages of a small file at most; of one that nothing is said of.
const SMALL_FILE_KIB: f64 = 4.0;
/// Name of the task that keeps small files.
const KEEPER: &str = "keeper";

/// In which phase the tasks of an entry begin, in turn: so that they compete.
const FIRST_PHASES: [Phase; 3] = [Phase::Anonymous, Phase::File, Phase::Pinned];

/// What a job does.
#[derive(Clone, Debug)]
pub enum JobKind {
    /// Writes a file.
    Dd(Dd),
    /// Copies a file.
    Cp(Cp),
    /// Writes a little on a schedule.
    Light(LightWriter),
    /// Reads a file.
    Read(Reader),
    /// Writes to each page of its memory for ever.
    Hog(Hog),
    /// Maps, touches and unmaps.
    Map(Mapper),
    /// Overwrites random blocks of its files.
    RandWrite(RandWrite),
    /// Reads random blocks of its files.
    RandRead(RandRead),
    /// Takes a little memory on a schedule.
    Bystander(Bystander),
    /// Goes through phases.
    Phases(Phases),
    /// Holds pinned pages of a file.
    Pinner(Pinner),
    /// Stores to a file that it maps.
    MappedWriter(MappedWriter),
    /// Downloads, copies and removes.
    LargeDd(LargeDd),
    /// Makes small files.
    FsMark(FsMark),
    /// Makes small files whose inodes take memory.
    MakeSmall(MakeSmall),
    /// Looks at these again.
    Revisit(Revisit),
    /// Keeps them.
    Keep(Keep),
    /// Copies on both sides, and memory touched beside that.
    Thpavail(Thpavail),
}

impl JobKind {
    /// Name in tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Dd(_) => TaskKind::Dd.name(),
            Self::Cp(_) => TaskKind::Cp.name(),
            Self::Light(_) => TaskKind::LightWriter.name(),
            Self::Read(_) => TaskKind::Reader.name(),
            Self::Hog(_) => TaskKind::Hog.name(),
            Self::Map(_) => TaskKind::Mapper.name(),
            Self::RandWrite(_) => TaskKind::RandWrite.name(),
            Self::RandRead(_) => TaskKind::RandRead.name(),
            Self::Bystander(_) => TaskKind::Bystander.name(),
            Self::Phases(_) => TaskKind::Phases.name(),
            Self::Pinner(_) => TaskKind::Pinner.name(),
            Self::MappedWriter(_) => TaskKind::MappedWriter.name(),
            Self::LargeDd(_) => TaskKind::LargeDd.name(),
            Self::FsMark(_) => TaskKind::FsMark.name(),
            Self::MakeSmall(_) => TaskKind::MakeSmall.name(),
            Self::Revisit(revisit) => match revisit.visit {
                Visit::Stat => TaskKind::StatSmall.name(),
                Visit::Read => TaskKind::ReadSmall.name(),
            },
            Self::Keep(_) => KEEPER,
            Self::Thpavail(_) => TaskKind::Thpavail.name(),
        }
    }

    /// It writes files.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Self::Dd(_)
                | Self::Cp(_)
                | Self::Light(_)
                | Self::RandWrite(_)
                | Self::Phases(_)
                | Self::MappedWriter(_)
                | Self::LargeDd(_)
                | Self::FsMark(_)
                | Self::MakeSmall(_)
                | Self::Keep(_)
                | Self::Thpavail(_)
        )
    }

    /// It writes its files front to back, each page once, but for the edges of its calls.
    #[must_use]
    pub const fn writes_once(&self) -> bool {
        matches!(
            self,
            Self::Dd(_)
                | Self::Cp(_)
                | Self::Light(_)
                | Self::MappedWriter(_)
                | Self::LargeDd(_)
                | Self::FsMark(_)
                | Self::MakeSmall(_)
                | Self::Keep(_)
        )
    }

    /// The files that it makes while it runs: how many, and their bytes together.
    #[must_use]
    pub fn makes(&self) -> Option<(u64, Bytes)> {
        match self {
            Self::LargeDd(large) => {
                let bytes = large.bytes();
                Some((bytes.0 / large.source.0, bytes))
            }
            Self::FsMark(mark) => Some((mark.files(), Bytes(mark.files() * mark.file.0))),
            Self::Dd(_)
            | Self::Cp(_)
            | Self::Light(_)
            | Self::Read(_)
            | Self::Hog(_)
            | Self::Map(_)
            | Self::RandWrite(_)
            | Self::RandRead(_)
            | Self::Bystander(_)
            | Self::Phases(_)
            | Self::MappedWriter(_)
            | Self::Pinner(_)
            | Self::MakeSmall(_)
            | Self::Revisit(_)
            | Self::Keep(_)
            | Self::Thpavail(_) => None,
        }
    }

    /// Its files are there, with their content, before the run.
    #[must_use]
    pub const fn finds_files(&self) -> bool {
        matches!(self, Self::Read(_) | Self::RandRead(_) | Self::Pinner(_))
    }

    /// Bytes of one call; nothing for what makes no calls on files.
    #[must_use]
    pub const fn block(&self) -> Bytes {
        match self {
            Self::Dd(dd) => dd.block,
            Self::Cp(cp) => cp.block,
            Self::Light(light) => light.block,
            Self::Read(read) => read.block,
            Self::RandWrite(write) => write.block,
            Self::RandRead(read) => read.block,
            Self::Phases(phases) => phases.block,
            Self::LargeDd(large) => large.block,
            Self::FsMark(mark) => mark.block,
            Self::Thpavail(test) => test.block,
            Self::Hog(_)
            | Self::Map(_)
            | Self::Bystander(_)
            | Self::Pinner(_)
            | Self::MappedWriter(_)
            | Self::MakeSmall(_)
            | Self::Revisit(_)
            | Self::Keep(_) => Bytes::ZERO,
        }
    }
}

/// A job of a cell: one task, its files and its memory.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// Name of the scenario's task that it is one of.
    pub entry: String,
    /// What it does.
    pub kind: JobKind,
    /// Index of the device its files are on, if it has any.
    pub device: Option<usize>,
    /// Index of the device that `cp` reads from.
    pub from: Option<usize>,
    /// How long after the beginning it starts.
    pub start_after: Nanos,
    /// How many files it has before it runs.
    pub files: u32,
    /// Bytes that each of its files will have at most.
    pub file_bytes: Bytes,
}

/// Memory of the machine in a row, before scaling.
pub(super) fn memory_mib(scenario: &Scenario, row: &CaseEntry) -> f64 {
    let own = row.memory_mib.as_ref();
    *own.unwrap_or(&scenario.machine.memory_mib).get_ref()
}

/// The jobs of a row.
pub(super) fn of_row(scenario: &Scenario, row: &CaseEntry) -> Vec<JobSpec> {
    let mut jobs = Vec::new();
    for (index, task) in scenario.tasks.iter().enumerate() {
        let id = task.id.get_ref();
        let chosen = |name: &toml::Spanned<String>| name.get_ref() == id;
        if !row.tasks.is_empty() && !row.tasks.iter().any(chosen) {
            continue;
        }
        let first = index == 0;
        let counts = row.counts.iter().find(|(name, _)| chosen(name));
        let count = counts
            .map(|(_, count)| count)
            .or(row.count.as_ref().filter(|_| first))
            .or(task.count.as_ref());
        let count = count.map_or(1, |count| *count.get_ref());
        let sizes = Sizes::of(scenario, row, task, (first, count));
        for number in 0..count {
            let mut job = job(scenario, task, &sizes);
            if let JobKind::Phases(phases) = &mut job.kind {
                phases.first = FIRST_PHASES[number as usize % FIRST_PHASES.len()];
            }
            if count > 1 {
                job.name = format!("{}-{number}", job.name);
            }
            jobs.push(job);
        }
    }
    jobs.extend(keeper(scenario, &jobs));
    jobs
}

/// Who keeps the small files of these jobs.
fn keeper(scenario: &Scenario, jobs: &[JobSpec]) -> Option<JobSpec> {
    let makers = jobs
        .iter()
        .filter(|job| matches!(job.kind, JobKind::MakeSmall(_)));
    let device = makers.map(|job| job.device).next()?;
    Some(JobSpec {
        name: KEEPER.to_owned(),
        entry: KEEPER.to_owned(),
        kind: JobKind::Keep(small::keeper(whole(1.0 / *scenario.run.scale.get_ref()))),
        device,
        from: None,
        start_after: Nanos::ZERO,
        files: 1,
        file_bytes: Bytes::ZERO,
    })
}

/// Pages of each small file of a scenario.
pub(super) fn pages_a_file(scenario: &Scenario) -> u32 {
    let mut makers = scenario.tasks.iter();
    let maker = makers.find(|task| *task.kind.get_ref() == TaskKind::MakeSmall);
    let kib = maker.and_then(|task| task.file_kib.as_ref());
    let kib = kib.map_or(SMALL_FILE_KIB, |kib| *kib.get_ref());
    u32::try_from(whole(kib / SMALL_FILE_KIB)).expect("a small file is checked")
}

/// Sizes of one task of an entry in a row, before scaling.
struct Sizes {
    /// Of all its files together, MiB.
    file_mib: f64,
    /// Of its memory, MiB.
    region_mib: f64,
    /// `memory_part` of the memory, however many tasks there are, MiB.
    part_mib: f64,
    /// How many files.
    files: u32,
    /// A random block does not shrink below this.
    block_least: Pages,
    scale: f64,
}

impl Sizes {
    fn of(
        scenario: &Scenario,
        row: &CaseEntry,
        task: &TaskEntry,
        (first, count): (bool, u32),
    ) -> Self {
        let number = |value: Option<&toml::Spanned<f64>>| value.map(|v| *v.get_ref());
        let memory = memory_mib(scenario, row);
        let all = number(task.memory_part.as_ref()).map(|part| part * memory / f64::from(count));
        let each = number(task.memory_part_each.as_ref()).map(|part| part * memory);
        let part = all.or(each);
        let own = row.file_mib.as_ref().filter(|_| first);
        let file = number(own.or(task.file_mib.as_ref()));
        let id = task.id.get_ref();
        let files = row.files.iter().find(|(name, _)| name.get_ref() == id);
        let files = files.map(|(_, files)| files).or(task.files.as_ref());
        Self {
            file_mib: file.or(part).unwrap_or(0.0),
            region_mib: number(task.region_mib.as_ref()).or(part).unwrap_or(0.0),
            part_mib: number(task.memory_part.as_ref()).unwrap_or(0.0) * memory,
            files: files.map_or(1, |files| *files.get_ref()),
            block_least: request_least(&scenario.machine),
            scale: *scenario.run.scale.get_ref(),
        }
    }

    /// Whole sectors, and at least one block, however small the scale.
    fn bytes(&self, block: Bytes) -> Bytes {
        Bytes(whole(self.file_mib * self.scale * 2048.0) * 512).at_least(block)
    }

    /// Bytes of each of its files: whole blocks, and at least one.
    fn each(&self, block: Bytes) -> Bytes {
        let mib = self.file_mib / f64::from(self.files);
        let blocks = whole(mib * self.scale * PAGES_PER_MIB / whole_pages(block));
        Bytes(blocks.max(1) * block.0)
    }

    /// Its memory.
    fn region(&self) -> Pages {
        Pages(whole(self.region_mib * PAGES_PER_MIB * self.scale)).at_least(Pages(1))
    }

    /// A random block: scaled, as a request is.
    fn block(&self, full: Bytes) -> Bytes {
        let least = self.block_least.bytes().at_most(full);
        let pages = Pages(whole(whole_pages(full) * self.scale));
        pages.bytes().at_least(least)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "blocks are below 2^26 bytes by scenario::check"
)]
pub(super) fn whole_pages(bytes: Bytes) -> f64 {
    bytes.0 as f64 / PAGE_SIZE as f64
}

fn job(scenario: &Scenario, task: &TaskEntry, sizes: &Sizes) -> JobSpec {
    let number = |value: &Option<toml::Spanned<f64>>| value.as_ref().map(|v| *v.get_ref());
    let kind = *task.kind.get_ref();
    let block = number(&task.block_kib).unwrap_or(match kind {
        TaskKind::LightWriter => LIGHT_BLOCK_KIB,
        TaskKind::Cp | TaskKind::Thpavail => CP_BLOCK_KIB,
        TaskKind::LargeDd => LARGE_DD_BLOCK_KIB,
        TaskKind::FsMark => FS_MARK_BLOCK_KIB,
        // A page is the least that it has.
        TaskKind::MappedWriter => 4.0,
        _ => BLOCK_KIB,
    });
    let block = Bytes(whole(block * 1024.0));
    let bytes = sizes.bytes(block);
    let for_at_most = number(&task.run_s).map(seconds);
    let every = number(&task.every_ms).map(millis);
    let pinned = number(&task.pinned_mib).unwrap_or(0.0) * PAGES_PER_MIB * sizes.scale;
    let pinned = Pages(whole(pinned));
    let kind = match kind {
        TaskKind::Dd => JobKind::Dd(Dd {
            block,
            offset: Bytes::ZERO,
            bytes,
            for_at_most,
            rest: every.unwrap_or(Nanos::ZERO),
            sync: match task.sync.as_ref().map(|sync| *sync.get_ref()) {
                Some(SyncKind::None) | None => SyncAfter::Nothing,
                Some(SyncKind::File) => SyncAfter::File,
                Some(SyncKind::Everything) => SyncAfter::Everything,
            },
        }),
        TaskKind::Cp => JobKind::Cp(Cp {
            block,
            bytes,
            for_at_most,
        }),
        TaskKind::LightWriter => JobKind::Light(LightWriter {
            block,
            every: every.expect("a loaded light writer has its period"),
            lasting: for_at_most.expect("a loaded light writer has its length"),
        }),
        TaskKind::Reader => JobKind::Read(Reader {
            block,
            bytes,
            pattern: match task.order.as_ref().map(|order| *order.get_ref()) {
                Some(OrderKind::Random) => Pattern::Random,
                Some(OrderKind::Sequential) | None => Pattern::Sequential,
            },
            think: every.unwrap_or(Nanos::ZERO),
            for_at_most,
        }),
        TaskKind::Hog => JobKind::Hog(Hog {
            pages: sizes.region(),
            for_at_most,
        }),
        TaskKind::Mapper => JobKind::Map(Mapper {
            pages: sizes.region(),
            think: every.unwrap_or_else(|| millis(MAPPER_THINK_MS)),
            for_at_most,
        }),
        TaskKind::RandWrite => {
            let block = sizes.block(block);
            JobKind::RandWrite(RandWrite {
                block,
                size: sizes.each(block),
                for_at_most,
            })
        }
        TaskKind::RandRead => JobKind::RandRead(RandRead {
            block: sizes.block(block),
            switch_every: task
                .switch_every
                .as_ref()
                .map_or(SWITCH_EVERY, |calls| *calls.get_ref()),
            for_at_most,
        }),
        TaskKind::Bystander => JobKind::Bystander(Bystander {
            pages: Pages(whole(sizes.region_mib * PAGES_PER_MIB)).at_least(Pages(1)),
            every: every.expect("a loaded bystander has its period"),
            for_at_most,
        }),
        TaskKind::Phases => JobKind::Phases(Phases {
            each: seconds(number(&task.phase_s).expect("loaded phases have their length")),
            anon: sizes.region(),
            file: sizes.each(sizes.block(block)),
            pinned,
            block: sizes.block(block),
            first: FIRST_PHASES[0],
            for_at_most,
        }),
        TaskKind::Pinner => JobKind::Pinner(Pinner {
            pages: pinned.at_least(Pages(1)),
            for_at_most,
        }),
        TaskKind::MappedWriter => JobKind::MappedWriter(MappedWriter {
            pages: bytes.pages_ceil().at_least(Pages(1)),
            for_at_most,
        }),
        TaskKind::LargeDd => JobKind::LargeDd(LargeDd {
            block: Pages(whole(whole_pages(block) * sizes.scale))
                .at_least(Pages(1))
                .bytes(),
            source: bytes,
            rate: number(&task.rate_mib).map(|rate| whole(rate * sizes.scale * 1_048_576.0)),
            total: Bytes(whole(
                number(&task.total_mib).expect("a loaded large_dd has its total")
                    * sizes.scale
                    * 1_048_576.0,
            )),
        }),
        TaskKind::Thpavail => JobKind::Thpavail(runs::thpavail(scenario, task, block)),
        TaskKind::FsMark => {
            let number = |value: &Option<toml::Spanned<u32>>| {
                *value
                    .as_ref()
                    .expect("a loaded fs_mark has its numbers")
                    .get_ref()
            };
            let full = f64::from(number(&task.files_per_loop));
            let files = u32::try_from(whole(full * sizes.scale)).expect("fewer than at full size");
            let file = task.file_kib.as_ref().map_or(0.0, |file| *file.get_ref());
            JobKind::FsMark(FsMark {
                files_per_loop: files.max(1),
                loops: number(&task.loops),
                file: Bytes(whole(file * 1024.0)),
                block,
            })
        }
        TaskKind::MakeSmall => {
            let number = |value: &Option<toml::Spanned<u32>>| {
                *value
                    .as_ref()
                    .expect("a loaded make_small has its numbers")
                    .get_ref()
            };
            let full = f64::from(number(&task.files_per_loop));
            let files = u32::try_from(whole(full * sizes.scale)).expect("fewer than at full size");
            // A file stands for as many more of the full size.
            let shrink = if scenario.machine.scale_costs {
                whole(1.0 / sizes.scale)
            } else {
                1
            };
            JobKind::MakeSmall(MakeSmall {
                files_per_loop: files.max(1),
                loops: number(&task.loops),
                think: Nanos(lab::fs::costs::p3::USER.0 * shrink),
            })
        }
        TaskKind::StatSmall | TaskKind::ReadSmall => {
            let bytes = sizes.part_mib * sizes.scale * 1_048_576.0;
            JobKind::Revisit(Revisit {
                visit: if kind == TaskKind::StatSmall {
                    Visit::Stat
                } else {
                    Visit::Read
                },
                files: whole(bytes / small::bytes_a_file(&scenario.machine)).max(1),
                passes: task.loops.as_ref().map_or(1, |loops| *loops.get_ref()),
                after: task.after,
                for_at_most,
            })
        }
    };
    let file_bytes = match &kind {
        JobKind::Light(light) => {
            Bytes(light.block.0 * (light.lasting.0 / light.every.0.max(1) + 1))
        }
        JobKind::Dd(_) | JobKind::Cp(_) | JobKind::Read(_) | JobKind::Thpavail(_) => bytes,
        JobKind::RandWrite(write) => write.size,
        JobKind::RandRead(read) => sizes.each(read.block),
        JobKind::Phases(phases) => phases.file,
        JobKind::Pinner(pinner) => pinner.pages.bytes(),
        JobKind::MappedWriter(writer) => writer.pages.bytes(),
        JobKind::Hog(_)
        | JobKind::Map(_)
        | JobKind::Bystander(_)
        | JobKind::LargeDd(_)
        | JobKind::FsMark(_)
        | JobKind::MakeSmall(_)
        | JobKind::Revisit(_)
        | JobKind::Keep(_) => Bytes::ZERO,
    };
    let has_files = task.kind.get_ref().has_files() && !task.kind.get_ref().makes_files();
    JobSpec {
        name: task.id.get_ref().clone(),
        entry: task.id.get_ref().clone(),
        kind,
        device: task
            .device
            .as_ref()
            .map(|id| device(scenario, id.get_ref())),
        from: task.from.as_ref().map(|id| device(scenario, id.get_ref())),
        start_after: number(&task.start_s).map_or(Nanos::ZERO, seconds),
        files: match task.kind.get_ref() {
            // A directory, and the table of its inodes.
            TaskKind::MakeSmall => 2,
            TaskKind::StatSmall | TaskKind::ReadSmall => 0,
            _ if has_files => sizes.files,
            _ => 0,
        },
        file_bytes,
    }
}
