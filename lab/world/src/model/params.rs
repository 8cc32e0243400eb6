//! Every parameter of every device model: name, value, unit, range, source. Plain data.
//!
//! A scenario names a model and may set any parameter by its name; so a name carries its unit, all
//! values are whole numbers, and each has a range outside of which the model would make no sense.
//!
//! Scaling (experiments A6): when memory shrinks by `s`, what is a volume or a rate of a device
//! shrinks with it and what is a time stays; sizes of requests shrink down to 128 KiB, below which
//! the per-request times would rule. The `Unit` of a parameter says what happens to it.
//!
//! There is a second way (`scaled_whole`), for machines on which one page stands for `s` pages and
//! costs `s` times the CPU time (`CostTable::shrunk`): requests keep their size, and what each
//! takes beside its bytes grows by `s`. Then every stream, of many requests or of one at a time,
//! moves the same share of memory a second as at full size, at any size of its requests. The time
//! of a single request is not kept: with `s = 32` a random access of 0.1 ms takes 3 ms, an access
//! of 12.4 ms 0.4 s, which is no longer short against a timeout of 100 ms. And requests that a
//! scenario shrinks all the same (blocks of 1 MiB taken as 128 KiB) are charged eight times too
//! much of the fixed time: next to nothing for `p0_ssd`, whose commands overlap, but most of the
//! rate of `p0_disk`. So disks that seek want the first way.
//!
//! A third (`scaled_with_requests`) is for such machines with disks that seek: requests shrink as
//! the pages do, down to one page, and a time of a request stays, so that there are as many
//! requests in a run, and each takes as long, as at full size.
//!
//! Evidence is cited as in docs/study/reference/experiments.md: A2, A5, MAIL and so on are its
//! sections and tags; GUESS is an estimate of ours, a free parameter.

use core::fmt;

/// The measure of a parameter, and so its scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes a second: shrinks with the scale.
    BytesPerSec,
    /// Bytes of one request: shrinks with the scale down to 128 KiB.
    RequestBytes,
    /// Bytes of a volume (a disk, an erase unit, a cache): shrinks with the scale, whole pages.
    Bytes,
    /// Bytes moved by an event of which a run has as many at any scale: shrink with it.
    Transfer,
    /// Pages of a run on the disk: shrinks with the scale down to one request's floor.
    Pages,
    /// A time: stays.
    Micros,
    /// A time of every request beside its bytes: stays, or grows where requests keep their size.
    RequestMicros,
    /// A number of things: stays.
    Count,
    /// Requests a second: stays, as the requests shrink.
    PerSec,
    /// Events per tebibyte moved: grows with the scale, so that there are as many in a run.
    PerTib,
    /// 0 or 1.
    Flag,
}

impl Unit {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BytesPerSec => "B/s",
            Self::RequestBytes | Self::Bytes | Self::Transfer => "B",
            Self::Pages => "pages of 4 KiB",
            Self::Micros | Self::RequestMicros => "us",
            Self::Count => "",
            Self::PerSec => "1/s",
            Self::PerTib => "per TiB",
            Self::Flag => "0 or 1",
        }
    }

    /// The value on a machine smaller by `shrink`.
    #[must_use]
    pub fn scaled(self, value: u64, shrink: u64) -> u64 {
        match self {
            _ if shrink == 1 => value,
            Self::BytesPerSec | Self::Transfer => (value / shrink).max(1),
            Self::RequestBytes => (value / shrink).max(REQUEST_FLOOR_BYTES.min(value)),
            Self::Bytes => (value / shrink).next_multiple_of(4096),
            Self::Pages => (value / shrink).max((REQUEST_FLOOR_BYTES / 4096).min(value)),
            Self::Micros | Self::RequestMicros | Self::Count | Self::PerSec | Self::Flag => value,
            Self::PerTib => value.saturating_mul(shrink),
        }
    }

    /// The value on a machine smaller by `shrink` whose requests shrink with it, down to a page.
    #[must_use]
    pub fn scaled_with_requests(self, value: u64, shrink: u64) -> u64 {
        match self {
            Self::RequestBytes => {
                let pages = (value + PAGE_BYTES * shrink / 2) / (PAGE_BYTES * shrink);
                pages.max(1) * PAGE_BYTES
            }
            Self::Pages => (value / shrink).max(1),
            Self::BytesPerSec
            | Self::Bytes
            | Self::Transfer
            | Self::Micros
            | Self::RequestMicros
            | Self::Count
            | Self::PerSec
            | Self::PerTib
            | Self::Flag => self.scaled(value, shrink),
        }
    }

    /// The value on a machine smaller by `shrink` whose requests keep their size.
    #[must_use]
    pub fn scaled_whole(self, value: u64, shrink: u64) -> u64 {
        match self {
            Self::RequestBytes | Self::Pages => value,
            Self::RequestMicros => value.saturating_mul(shrink),
            Self::PerSec => (value / shrink).max(1),
            Self::BytesPerSec
            | Self::Bytes
            | Self::Transfer
            | Self::Micros
            | Self::Count
            | Self::PerTib
            | Self::Flag => self.scaled(value, shrink),
        }
    }
}

const PAGE_BYTES: u64 = 4096;
/// Requests do not shrink below this (experiments A6).
pub const REQUEST_FLOOR_BYTES: u64 = 128 << 10;

/// One parameter, described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in scenarios.
    pub name: &'static str,
    /// Its measure.
    pub unit: Unit,
    /// The least that makes sense.
    pub min: u64,
    /// The most that makes sense.
    pub max: u64,
    /// The source of its default.
    pub source: &'static str,
}

/// Why a parameter was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// The model has no such parameter.
    Unknown {
        /// Which model.
        model: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// The value makes no sense.
    OutOfRange {
        /// Which parameter.
        field: Field,
        /// The value asked for.
        value: u64,
    },
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { model, name, known } => {
                write!(
                    f,
                    "{model} has no parameter `{name}`; it has {}",
                    known.join(", ")
                )
            }
            Self::OutOfRange { field, value } => {
                let Field {
                    name,
                    unit,
                    min,
                    max,
                    ..
                } = field;
                write!(
                    f,
                    "{name} = {value} is out of range: {min} to {max} {}",
                    unit.name()
                )
            }
        }
    }
}

impl std::error::Error for ParamError {}

/// Defines a struct of parameters with its defaults, its description and access by name.
macro_rules! parameters {
    ($(#[$doc:meta])* $name:ident, $model:literal {
        $($(#[$field_doc:meta])* $field:ident: $value:expr, $unit:ident, $range:expr, $source:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* #[doc = concat!("\n\nSource: ", $source, ".")] pub $field: u64,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl $name {
            /// The values of the sources.
            pub const DEFAULT: Self = Self { $($field: $value,)* };

            /// Its parameters, in order.
            pub const FIELDS: &'static [$crate::model::params::Field] = &[$(
                $crate::model::params::Field {
                    name: stringify!($field),
                    unit: $crate::model::params::Unit::$unit,
                    min: *$range.start(),
                    max: *$range.end(),
                    source: $source,
                },
            )*];

            /// The values in the order of `FIELDS`.
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }

            /// Sets a parameter by name.
            ///
            /// # Errors
            /// There is none of that name, or the value is out of its range.
            pub fn set(
                &mut self,
                name: &str,
                value: u64,
            ) -> Result<(), $crate::model::params::ParamError> {
                use $crate::model::params::ParamError;
                let Some(field) = Self::FIELDS.iter().find(|field| field.name == name) else {
                    let known = Self::FIELDS.iter().map(|field| field.name).collect();
                    return Err(ParamError::Unknown { model: $model, name: name.into(), known });
                };
                if !(field.min..=field.max).contains(&value) {
                    return Err(ParamError::OutOfRange { field: *field, value });
                }
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => unreachable!("every field has an arm"),
                }
                Ok(())
            }

            /// The same on a machine smaller by `shrink`, each value as a way of its unit has it.
            ///
            /// # Panics
            /// If `shrink` is zero.
            #[must_use]
            pub fn scaled_by(
                &self,
                way: fn($crate::model::params::Unit, u64, u64) -> u64,
                shrink: u64,
            ) -> Self {
                assert!(shrink > 0, "a machine shrunk to nothing");
                Self { $($field: way($crate::model::params::Unit::$unit, self.$field, shrink),)* }
            }

            /// Descriptions of the parameters.
            #[must_use]
            pub fn fields(&self) -> &'static [$crate::model::params::Field] {
                Self::FIELDS
            }
        }
    };
}
pub(crate) use parameters;

/// A day in microseconds: more than any model waits.
const DAY_US: u64 = 86_400_000_000;
/// Far above any device.
const RATE_MAX: u64 = 1 << 40;

parameters! {
    /// A device that only takes time, or none.
    Null, "null" {
        /// From submission to completion.
        latency_us: 0, RequestMicros, 0..=DAY_US, "none: a device that is never the bottleneck";
        /// Requests under way at once.
        depth: 1024, Count, 1..=65536, "none";
        /// Largest request; longer ones are split.
        request_max_bytes: 1 << 20, RequestBytes, 4096..=1 << 30, "ours: up to 1 MiB";
        /// Volatile cache: writes that completed and are not flushed may be lost. 0: off.
        volatile_cache_bytes: 1 << 40, Bytes, 0..=1 << 50, "worst case for tests of sync";
    }
}

parameters! {
    /// 7200 rpm SATA disk of 2010: its write buffer takes data in ahead of the media, without
    /// queueing in the drive.
    Sata2010, "sata2010" {
        /// Rate at which sectors pass the head.
        media_bytes_per_sec: 61_200_000, BytesPerSec, 4096..=RATE_MAX, "A2 DERIVED: ext4 60.1 MB/s end to end, dd 64.0 without its sync; 57-64 (E)";
        /// Seek to the next track.
        seek_track_us: 800, RequestMicros, 0..=DAY_US, "GUESS: usual for the class";
        /// Mean seek over random places.
        seek_average_us: 8_200, RequestMicros, 0..=DAY_US, "E: HGST Ultrastar 7K4000, Barracuda XT";
        /// One revolution.
        rotation_us: 8_333, RequestMicros, 0..=DAY_US, "E: 7200 rpm, 4.16 ms mean";
        /// Places on the disk.
        span_bytes: 500_000_000_000, Bytes, 1 << 20..=1 << 50, "GUESS: usual size in 2010";
        /// Longest gap between two commands after which the drive still streams.
        stream_gap_us: 1_000, Micros, 0..=DAY_US, "GUESS: the drive's buffer holds the next command's data";
        /// From an idle drive to the start of the command.
        command_us: 100, RequestMicros, 0..=DAY_US, "GUESS";
        /// Largest request.
        request_max_bytes: 512 << 10, RequestBytes, 4096..=1 << 30, "Linux 2.6.36 block/blk-settings.c: BLK_DEF_MAX_SECTORS 1024";
        /// Rate of the interface, at which the write buffer takes data in.
        interface_bytes_per_sec: 250_000_000, BytesPerSec, 4096..=RATE_MAX, "SATA 3 Gbit/s less coding and protocol";
        /// The write buffer, as the time the media need for what it holds; 0: none.
        ///
        /// Both figures of the buffer were chosen so that experiments A7 row 15 holds, that of
        /// 2.6.36: below 130 ms its longest pause is too short; lumps shorter than 68 ms, the 4 MiB
        /// that its writer is charged with at a time, leave it no call without a nap. Row 16, of
        /// p1, was among those that they were chosen by while p1's writer was charged by its CPU;
        /// since it is charged for its own pages, its pauses are 9 to 12 ms with the buffer and 10
        /// without. Row 13 does not care. The table is in docs/study/notebooks/ablations.md.
        write_buffer_us: 160_000, Micros, 0..=DAY_US, "CALIBRATED on A7-15-max, A7-15-zero; a size of 10 MB of a 32 MB cache";
        /// A buffer that was full takes nothing in until it has drained to this.
        write_buffer_low_us: 70_000, Micros, 0..=DAY_US, "CALIBRATED on A7-15-max, A7-15-zero; the lumps in which such disks complete writes";
        /// Shortest flush.
        flush_min_us: 15_000, Micros, 0..=DAY_US, "E GUESS: 15-30 ms";
        /// Longest flush.
        flush_max_us: 30_000, Micros, 0..=DAY_US, "E GUESS: 15-30 ms";
        /// A write that has waited so long goes before reads.
        write_expire_us: 5_000_000, Micros, 0..=DAY_US, "Linux 2.6.36 block/deadline-iosched.c: write_expire 5 s";
        /// Turn of what is waited for, of an I/O scheduler that shares time; 0: there is none, and
        /// reads always go first.
        slice_sync_us: 0, Micros, 0..=DAY_US, "Linux 3.2 block/cfq-iosched.c: cfq_slice_sync 100 ms; 0 is how other experiments were run";
        /// Turn of writeback.
        slice_async_us: 40_000, Micros, 0..=DAY_US, "Linux 3.2 block/cfq-iosched.c: cfq_slice_async 40 ms";
        /// Time that the disk is left idle for the next read of a turn.
        slice_idle_us: 8_000, Micros, 0..=DAY_US, "Linux 3.2 block/cfq-iosched.c: cfq_slice_idle 8 ms";
        /// Volatile cache; off.
        volatile_cache_bytes: 0, Bytes, 0..=1 << 50, "ours: write cache off";
    }
}

parameters! {
    /// USB 2.0 stick of 2011.
    UsbStick, "usb_stick" {
        /// Rate into an open unit.
        write_bytes_per_sec: 6_250_000, BytesPerSec, 4096..=RATE_MAX, "MAIL 47073940234: ext4 6.04 MB/s with one dd; the slower stick of A5 does 2.2-2.5";
        /// Rate of reading.
        read_bytes_per_sec: 20_000_000, BytesPerSec, 4096..=RATE_MAX, "E GUESS: 15-25 MB/s";
        /// Time of every command.
        command_us: 500, RequestMicros, 0..=DAY_US, "E: 0.5-0.9 ms a random read (flashbench)";
        /// A write that does not continue the last one in its unit takes that much longer.
        small_write_us: 2_500, RequestMicros, 0..=DAY_US, "E: 2-4 ms (sami-lehtinen.net)";
        /// Erase unit.
        unit_bytes: 4 << 20, Bytes, 4096..=1 << 30, "E: 4-8 MiB";
        /// Units that may be open at once.
        open_units: 5, Count, 1..=1024, "E GUESS: 2-5 (LWN 428584)";
        /// Least cost of closing an unfinished unit.
        rewrite_min_us: 300_000, Micros, 0..=DAY_US, "E: 0.3-2.5 s worst";
        /// Most.
        rewrite_max_us: 2_500_000, Micros, 0..=DAY_US, "E: 0.3-2.5 s worst";
        /// Size of the stick.
        span_bytes: 8_000_000_000, Bytes, 1 << 20..=1 << 50, "GUESS";
        /// Largest request.
        request_max_bytes: 120 << 10, RequestBytes, 4096..=1 << 30, "usb-storage, 240 sectors: kernel-facts 13";
        /// Turn of what is waited for, of an I/O scheduler that shares time; 0: there is none, and
        /// reads always go first.
        slice_sync_us: 0, Micros, 0..=DAY_US, "Linux 3.2 block/cfq-iosched.c: cfq_slice_sync 100 ms; 0 is how other experiments were run";
        /// Turn of writeback.
        slice_async_us: 40_000, Micros, 0..=DAY_US, "Linux 3.2 block/cfq-iosched.c: cfq_slice_async 40 ms";
        /// Requests that its queue tells of; 0: it does not, and a flusher merges and sends as it
        /// would to any device.
        queue_requests: 0, Count, 0..=65536, "Linux of 2011: 128 (kernel-facts 13); 0 is how other experiments were run";
        /// Flush.
        flush_us: 5_000, Micros, 0..=DAY_US, "GUESS: sticks mostly ignore it";
        /// A write that has waited so long goes before reads.
        write_expire_us: 5_000_000, Micros, 0..=DAY_US, "Linux 2.6.36 block/deadline-iosched.c: write_expire 5 s";
        /// Volatile cache; off.
        volatile_cache_bytes: 0, Bytes, 0..=1 << 50, "GUESS: no room for one";
    }
}

parameters! {
    /// NVMe SSD of p3, Samsung 960 EVO 250 GB.
    Ssd, "ssd" {
        /// Rate of reading.
        read_bytes_per_sec: 3_200_000_000, BytesPerSec, 4096..=RATE_MAX, "E: 3200 MB/s";
        /// Rate of writing into the fast cells.
        write_bytes_per_sec: 1_500_000_000, BytesPerSec, 4096..=RATE_MAX, "E: 1500 MB/s";
        /// Room in the fast cells.
        fast_bytes: 13_000_000_000, Bytes, 0..=1 << 50, "E: about 13 GB";
        /// Rate of writing once the fast cells are full, and of emptying them when idle.
        slow_bytes_per_sec: 300_000_000, BytesPerSec, 4096..=RATE_MAX, "E GUESS: 300 MB/s";
        /// Time of a read beside its transfer.
        read_us: 70, RequestMicros, 0..=DAY_US, "E: 14 k IOPS at depth 1, 71 us";
        /// Time of a write beside its transfer.
        write_us: 17, RequestMicros, 0..=DAY_US, "E: 50 k IOPS at depth 1, 20 us";
        /// Commands a second at most.
        iops_max: 300_000, PerSec, 1..=100_000_000, "E: 4 KiB at depth 32, 300 k";
        /// Commands under way at once.
        depth: 32, Count, 1..=65536, "E: figures are for depth 32";
        /// Garbage collections that hold everything up.
        gc_per_tib: 110, PerTib, 0..=1_000_000_000, "E GUESS: 1e-4 per MB at 80 % full";
        /// Shortest of them.
        gc_min_us: 100_000, Micros, 0..=DAY_US, "E: hundreds of ms, 100-500";
        /// Longest.
        gc_max_us: 500_000, Micros, 0..=DAY_US, "E: hundreds of ms, 100-500";
        /// Largest request.
        request_max_bytes: 512 << 10, RequestBytes, 4096..=1 << 30, "GUESS: MDTS of the time";
        /// Requests that the kernel knows it to take at once, and so throttles writeback by; 0:
        /// nothing is known.
        queue_depth: 0, Count, 0..=65536, "GUESS: as if it were not throttled";
        /// Rate of the interface, at which the write buffer takes data in.
        interface_bytes_per_sec: 3_200_000_000, BytesPerSec, 4096..=RATE_MAX, "E: as fast as it is read";
        /// The write buffer, as the time the cells need for what it holds; 0: none.
        write_buffer_us: 0, Micros, 0..=DAY_US, "GUESS: writes end as fast as they come in, up to fast_bytes";
        /// A buffer that was full takes nothing in until it has drained to this.
        write_buffer_low_us: 0, Micros, 0..=DAY_US, "none, as there is no buffer";
        /// Flush.
        flush_us: 1_500, Micros, 0..=DAY_US, "GUESS: consumer NVMe";
        /// Volatile cache.
        volatile_cache_bytes: 64 << 20, Bytes, 0..=1 << 50, "GUESS";
    }
}

impl Ssd {
    /// The disk of p0's machine, taken for a SATA SSD: linear, and nearly so at random blocks of 1
    /// MiB.
    ///
    /// Rate: INFERRED at 160 MB/s or more (A1: 2093 s hold six runs of 300 s and their warm-ups of
    /// as long as 5 GiB take), DERIVED at 170 (E). Reading, latencies and IOPS: GUESS, usual for
    /// SATA at 6 Gbit/s. Fast cells: none apart, the rate is the sustained one. GC: as in E. Queue:
    /// NCQ has 32 commands, which is what the throttle of writeback goes by (Linux 5.15
    /// block/blk-wbt.c, wbt_init(); blk_queue_depth() of a SCSI disk); requests:
    /// `max_sectors_kb` 1280.
    pub const P0: Self = Self {
        read_bytes_per_sec: 500_000_000,
        write_bytes_per_sec: 170_000_000,
        fast_bytes: 0,
        slow_bytes_per_sec: 170_000_000,
        read_us: 100,
        write_us: 50,
        iops_max: 80_000,
        request_max_bytes: 1280 << 10,
        queue_depth: 32,
        flush_us: 3_000,
        ..Self::DEFAULT
    };

    /// The same with a write buffer.
    ///
    /// CALIBRATED on A7-7-zero, A7-8-timeout, A7-8-zero: the sleeps that end before the next tick.
    /// A disk that answers each request as its last byte is on the medium answers one of 1 MiB in
    /// 7 ms, two ticks, and so nothing ends a sleep sooner; disks answer as fast as their interface
    /// takes data in (SATA at 6 Gbit/s: 500 MB/s) until their buffer is full, and then pause. 80 ms
    /// are 12 MB at 150 MB/s. With 20 ms row 8 is missed, from 40 to 160 ms its zeros hold
    /// (docs/study/notebooks/stutterp-notebook.md).
    pub const P0_BUFFERED: Self = Self {
        interface_bytes_per_sec: 500_000_000,
        write_buffer_us: 80_000,
        write_buffer_low_us: 40_000,
        ..Self::P0
    };
}

impl Sata2010 {
    /// The disk of p0's machine, taken for a disk that seeks: 170 MB/s linear, 12.4 ms and the
    /// transfer for a random block (E, DERIVED), so 57 MB/s at 1 MiB.
    ///
    /// Media rate as `Ssd::P0`; size and interface: GUESS, usual for 2015.
    pub const P0: Self = Self {
        media_bytes_per_sec: 170_000_000,
        interface_bytes_per_sec: 500_000_000,
        span_bytes: 2_000_000_000_000,
        request_max_bytes: 1280 << 10,
        ..Self::DEFAULT
    };
}

parameters! {
    /// NFS client and server over a LAN.
    Nfs, "nfs" {
        /// Rate at which the server takes data in.
        write_bytes_per_sec: 20_800_000, BytesPerSec, 4096..=RATE_MAX, "A2 DERIVED: 16.6-17.1 MB/s with the COMMITs below";
        /// Rate of reading from the server.
        read_bytes_per_sec: 50_000_000, BytesPerSec, 4096..=RATE_MAX, "E: client throughput up to 58 MB/s";
        /// Round trip of a small call.
        round_trip_us: 1_000, RequestMicros, 0..=DAY_US, "GUESS: LAN with a busy server";
        /// Calls under way at once.
        slots: 16, Count, 1..=65536, "Linux 2.6.36 include/linux/sunrpc/xprt.h: RPC_DEF_SLOT_TABLE 16";
        /// Bytes of one WRITE or READ.
        wsize_bytes: 256 << 10, RequestBytes, 4096..=1 << 30, "E: 64 KiB-1 MiB";
        /// Fixed part of a COMMIT.
        commit_us: 45_000, Micros, 0..=DAY_US, "E: t(ms) = 45 + 1000 x size_MB/100";
        /// Rate of the rest of a COMMIT.
        commit_bytes_per_sec: 100_000_000, BytesPerSec, 4096..=RATE_MAX, "E: t(ms) = 45 + 1000 x size_MB/100";
        /// Unstable data at which the server writes out by itself, answering nothing meanwhile.
        server_burst_bytes: 1_000_000_000, Bytes, 4096..=1 << 50, "GUESS: dirty limit of a 2010 server with 8 GB";
        /// 1: a WRITE's pages stay under writeback until a COMMIT, which the client sends once half
        /// of what is under way is unstable. 0: they end with the WRITE.
        commit_by_client: 1, Flag, 0..=1, "mechanisms 6.3: Linux 2.6.36 fs/nfs/write.c, nfs_commit_unstable_pages";
        /// A write that has waited so long goes before reads.
        write_expire_us: 5_000_000, Micros, 0..=DAY_US, "GUESS: as for disks";
    }
}

parameters! {
    /// A slow device of a given rate: what `slow:rate=..,latency=..` is live.
    TokenBucket, "token_bucket" {
        /// Rate.
        rate_bytes_per_sec: 16 << 20, BytesPerSec, 4096..=RATE_MAX, "field recordings: 16 MiB/s";
        /// Time for which unused rate is saved up.
        burst_us: 50_000, Micros, 0..=DAY_US, "field recordings: 50 ms of burst";
        /// Time of every request beside its tokens.
        latency_us: 0, RequestMicros, 0..=DAY_US, "ours: slow:rate=16MB,latency=2ms sets 2000";
        /// Requests whose latencies overlap.
        depth: 1, Count, 1..=65536, "ours: 2 ms per request gives 500 IOPS";
        /// Largest request.
        request_max_bytes: 1 << 20, RequestBytes, 4096..=1 << 30, "ours: up to 1 MiB";
        /// Requests in its queue, of which the task that fills it knows; 0: no bound.
        queue_depth: 0, Count, 0..=65536, "ours: a trace tells it by what is under writeback";
        /// Flush.
        flush_us: 0, Micros, 0..=DAY_US, "an NBD export in memory";
        /// Volatile cache.
        volatile_cache_bytes: 1 << 40, Bytes, 0..=1 << 50, "worst case for tests of sync";
    }
}

parameters! {
    /// Linux's `null_blk` with `mbps` and `max_sectors`, no scheduler.
    NullBlk, "null_blk" {
        /// Rate; whole requests of a 50th of it every 20 ms (`mbps`, there in MiB/s).
        rate_bytes_per_sec: 16 << 20, BytesPerSec, 4096..=RATE_MAX, "field recordings: 16 MiB/s";
        /// Largest request (`max_sectors`).
        request_max_bytes: 64 << 10, RequestBytes, 4096..=1 << 30, "guest: max_sectors=128";
        /// Requests in its queue (`hw_queue_depth`).
        queue_depth: 64, Count, 1..=65536, "Linux 6.12 drivers/block/null_blk/main.c: g_hw_queue_depth 64";
        /// When its ticks are, after each 20 ms.
        tick_phase_us: 2_000, Micros, 0..=20_000, "the moment at which it was made: any; not on the grid of jiffies, so that nothing coincides";
        /// Volatile cache; off, it writes through.
        volatile_cache_bytes: 0, Bytes, 0..=1 << 50, "guest: queue/write_cache says write through";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    #[test]
    fn every_default_is_within_its_own_range_and_has_a_source() {
        for entry in &model::MODELS {
            let params = entry.params();
            for (field, value) in params.fields().iter().zip(params.values()) {
                assert!(
                    (field.min..=field.max).contains(&value),
                    "{}: {field:?}",
                    entry.name
                );
                assert!(!field.source.is_empty());
                assert!(params.clone().set(field.name, value).is_ok());
            }
        }
    }

    #[test]
    fn a_wrong_name_or_value_says_what_would_be_right() {
        let mut disk = Sata2010::default();
        let error = disk.set("media_mbps", 3).unwrap_err().to_string();
        assert!(
            error.contains("sata2010 has no parameter `media_mbps`; it has media_bytes_per_sec")
        );
        let error = disk.set("media_bytes_per_sec", 0).unwrap_err().to_string();
        assert_eq!(
            error,
            "media_bytes_per_sec = 0 is out of range: 4096 to 1099511627776 B/s"
        );
        assert_eq!(disk.set("rotation_us", 5), Ok(()));
        assert_eq!(disk.rotation_us, 5);
    }

    #[test]
    fn scaling_shrinks_rates_and_volumes_and_keeps_times() {
        let disk = Sata2010::DEFAULT.scaled_by(Unit::scaled, 8);
        assert_eq!(disk.media_bytes_per_sec, 61_200_000 / 8);
        assert_eq!(disk.seek_average_us, 8_200);
        assert_eq!(
            disk.request_max_bytes,
            128 << 10,
            "512 KiB / 8 is below the floor"
        );
        assert_eq!(
            Sata2010::DEFAULT
                .scaled_by(Unit::scaled, 2)
                .request_max_bytes,
            256 << 10
        );
        assert_eq!(
            UsbStick::DEFAULT
                .scaled_by(Unit::scaled, 8)
                .request_max_bytes,
            120 << 10,
            "never raised"
        );
        assert_eq!(Ssd::DEFAULT.scaled_by(Unit::scaled, 4).gc_per_tib, 440);
        assert_eq!(
            Sata2010::DEFAULT.scaled_by(Unit::scaled, 1),
            Sata2010::DEFAULT
        );
    }

    #[test]
    fn where_requests_keep_their_size_a_random_access_moves_the_same_share_of_memory() {
        // Bytes a second of random requests, one at a time, times the scale.
        let random = |disk: &Sata2010, request: u64, shrink: u64| {
            let fixed = disk.seek_average_us + disk.rotation_us / 2;
            let moving = request * 1_000_000 / disk.media_bytes_per_sec;
            request * 1_000_000 / (fixed + moving) * shrink
        };
        for request in [4 << 10, 32 << 10, 1 << 20] {
            let full = random(&Sata2010::P0, request, 1);
            let small = random(&Sata2010::P0.scaled_by(Unit::scaled_whole, 32), request, 32);
            assert!(
                full.abs_diff(small) * 100 <= full,
                "{request} B: {full} {small}"
            );
        }
        let mib = random(&Sata2010::P0, 1 << 20, 1);
        assert!(
            (55_000_000..59_000_000).contains(&mib),
            "{mib}: E has 57 MB/s"
        );
        let ssd = Ssd::P0.scaled_by(Unit::scaled_whole, 32);
        assert_eq!((ssd.read_us, ssd.iops_max), (3_200, 2_500));
        assert_eq!(ssd.request_max_bytes, Ssd::P0.request_max_bytes);
        assert_eq!((ssd.gc_min_us, ssd.gc_per_tib), (100_000, 32 * 110));
        assert_eq!(Ssd::P0.scaled_by(Unit::scaled_whole, 1), Ssd::P0);
    }
}
