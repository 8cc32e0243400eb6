//! Wrappers as the user writes them: `slow:rate=16MB,latency=2ms,depth=1+trace`.
//!
//! ```text
//!   stack = layer ('+' layer)*            the first is the nearest to the cache
//!   layer = name [':' key '=' value (',' key '=' value)*]
//! ```
//!
//! | layer | keys |
//! |---|---|
//! | `slow` | `rate` bytes a second (`/s` may follow), `burst` bytes, `latency` time, `depth` number; `then` `RATE@TIME`, once for each change of the rate; a rate or a latency is needed |
//! | `faulty` | `seed`; `eio_reads`, `eio_writes`, `torn_writes`, `flush_fails`, `length_fails`, `discard_fails`, `no_space`, `hang`: odds from 0 to 1; `eio_read_at`, `eio_write_at`, `flush_fail_at`: which one, from 1; `eio_range` `FROM..TO` bytes; `full_after` bytes; `hang_at`, `hang_for`, `lost_at`, `fails_after`, `lingers`: time |
//! | `volatile` | `size` bytes, `seed`, `latency` time, `survives` odds |
//! | `trace` | `records` number |
//!
//! Bytes and times are those of every option (`figures`, docs/sizes.md). Times of day (`hang_at`,
//! `then`) count from the start of the `Env`. A rate of `0B` stands still.

use core::fmt;
use core::ops::Range;

use figures::{FigureError, decimal};
use policy::units::{Bytes, Instant, Nanos, PAGE_SIZE};

use crate::{BytesPerSec, FaultPlan, Odds, RateStep, SlowOptions, Trace, VolatileOptions};

/// One wrapper and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// `Slow`.
    Slow(SlowOptions),
    /// `Faulty`.
    Faulty(FaultPlan),
    /// `Volatile`.
    Volatile {
        /// Frames of its cache.
        frames: u32,
        /// Its seed, latency and odds.
        options: VolatileOptions,
    },
    /// `Trace`.
    Trace {
        /// Records kept.
        records: usize,
    },
}

/// The fault of a specification. Each names the text at fault and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// Nothing between two `+`, or nothing at all.
    Empty,
    /// No such layer.
    UnknownLayer {
        /// The name as written.
        layer: String,
    },
    /// No such key in this layer.
    UnknownKey {
        /// In which layer.
        layer: &'static str,
        /// The key as written.
        key: String,
        /// The keys that it has.
        allowed: &'static [&'static str],
    },
    /// A part that is not `key=value`.
    NoValue {
        /// In which layer.
        layer: &'static str,
        /// The text as written.
        text: String,
        /// The keys that it has.
        allowed: &'static [&'static str],
    },
    /// A key twice in one layer.
    Twice {
        /// In which layer.
        layer: &'static str,
        /// Which.
        key: String,
    },
    /// A value that cannot be read, or is out of range.
    BadValue {
        /// In which layer.
        layer: &'static str,
        /// Of which key.
        key: String,
        /// The value as written.
        value: String,
        /// An example of a right value.
        expected: String,
    },
    /// A value that is no size, or no time.
    BadFigure {
        /// In which layer.
        layer: &'static str,
        /// Of which key.
        key: String,
        /// The parser's objection.
        error: FigureError,
    },
    /// A layer that would do nothing.
    NoEffect {
        /// Which.
        layer: &'static str,
        /// The missing part, with an example.
        lacks: &'static str,
    },
    /// A key that means nothing without another.
    Needs {
        /// In which layer.
        layer: &'static str,
        /// The key that is there.
        key: &'static str,
        /// The key that has to be there too.
        needs: &'static str,
    },
}

const LAYERS: [&str; 4] = ["slow", "faulty", "volatile", "trace"];
const SLOW_KEYS: &[&str] = &["rate", "then", "burst", "latency", "depth"];
/// Keys that may stand more than once in a layer.
const LIST_KEYS: &[&str] = &["then"];
const FAULTY_KEYS: &[&str] = &[
    "seed",
    "eio_reads",
    "eio_writes",
    "eio_read_at",
    "eio_write_at",
    "eio_range",
    "torn_writes",
    "full_after",
    "hang",
    "hang_at",
    "hang_for",
    "lost_at",
    "flush_fails",
    "flush_fail_at",
    "length_fails",
    "discard_fails",
    "no_space",
    "fails_after",
    "lingers",
];
const VOLATILE_KEYS: &[&str] = &["size", "seed", "latency", "survives"];
const TRACE_KEYS: &[&str] = &["records"];

/// A volatile cache's frames where no size is given: 8 MiB, as much as a small disk has.
const VOLATILE_FRAMES: u32 = 2048;
/// The largest volatile cache: 4 GiB.
const VOLATILE_FRAMES_MAX: u64 = 1 << 20;
/// Records of a trace where no number is given.
const TRACE_RECORDS: usize = 65_536;

impl Layer {
    /// Reads a stack of layers; the first is the nearest to the cache.
    ///
    /// # Errors
    /// The text at fault, and what is allowed in its place.
    pub fn parse_stack(text: &str) -> Result<Vec<Self>, SpecError> {
        text.split('+')
            .map(|layer| Self::parse(layer.trim()))
            .collect()
    }

    /// Reads one layer.
    ///
    /// # Errors
    /// The text at fault, and what is allowed in its place.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        match name.trim() {
            "" => Err(SpecError::Empty),
            "slow" => slow(&Settings::parse("slow", SLOW_KEYS, settings)?),
            "faulty" => faulty(&Settings::parse("faulty", FAULTY_KEYS, settings)?),
            "volatile" => volatile(&Settings::parse("volatile", VOLATILE_KEYS, settings)?),
            "trace" => trace(&Settings::parse("trace", TRACE_KEYS, settings)?),
            other => Err(SpecError::UnknownLayer {
                layer: String::from(other),
            }),
        }
    }
}

fn slow(settings: &Settings<'_>) -> Result<Layer, SpecError> {
    let default = SlowOptions::default();
    let rate = settings.read("rate", a_rate)?;
    for key in ["burst", "then"] {
        if rate.is_none() && settings.get(key).is_some() {
            return Err(SpecError::Needs {
                layer: "slow",
                key,
                needs: "rate",
            });
        }
    }
    let then = steps(settings)?;
    let depth = settings.number("depth", 1, SlowOptions::DEPTH_MAX as u64)?;
    let depth = depth.map_or(default.depth, to_usize);
    let burst = settings.bytes("burst")?.unwrap_or(default.burst);
    let latency = settings.time("latency")?.unwrap_or(default.latency);
    if rate.is_none() && settings.get("latency").is_none() {
        return Err(SpecError::NoEffect {
            layer: "slow",
            lacks: "a rate or a latency, as in slow:rate=16MB or slow:latency=2ms",
        });
    }
    Ok(Layer::Slow(SlowOptions {
        rate,
        burst,
        latency,
        depth,
        then,
    }))
}

fn a_rate(value: &str) -> Result<BytesPerSec, Bad> {
    let bytes = figures::size(value.strip_suffix("/s").unwrap_or(value))?;
    Ok(BytesPerSec(bytes))
}

fn a_time(value: &str) -> Result<Nanos, Bad> {
    let nanos = figures::time(value)?.as_nanos();
    Ok(Nanos(
        u64::try_from(nanos).expect("what was read from 64 bits"),
    ))
}

/// The changes of a slow layer's rate: `8MiB@40s`, each later than the one before it.
fn steps(settings: &Settings<'_>) -> Result<Vec<RateStep>, SpecError> {
    let mut steps: Vec<RateStep> = Vec::new();
    for value in settings.all("then") {
        let read = |value: &str| {
            let (rate, at) = value
                .split_once('@')
                .ok_or_else(|| Bad::new("a rate, @ and a time, with units, as in 8MiB@40s"))?;
            let step = RateStep {
                at: Instant::ZERO + a_time(at)?,
                rate: a_rate(rate.trim())?,
            };
            if steps.last().is_some_and(|last| last.at >= step.at) {
                return Err(Bad::new("a time later than that of the `then` before it"));
            }
            if steps.len() == SlowOptions::STEPS_MAX {
                return Err(Bad::new("at most 1024 changes of the rate"));
            }
            Ok(step)
        };
        let step = read(value).map_err(|bad| settings.wrong("then", value, bad))?;
        steps.push(step);
    }
    Ok(steps)
}

fn faulty(settings: &Settings<'_>) -> Result<Layer, SpecError> {
    let moment = |key| Ok(settings.time(key)?.map(|time| Instant::ZERO + time));
    let odds = |key| Ok(settings.odds(key)?.unwrap_or(Odds::NEVER));
    let nth = |key| settings.number(key, 1, u64::MAX);
    let plan = FaultPlan {
        seed: settings.number("seed", 0, u64::MAX)?.unwrap_or(0),
        eio_reads: odds("eio_reads")?,
        eio_writes: odds("eio_writes")?,
        eio_read_at: nth("eio_read_at")?,
        eio_write_at: nth("eio_write_at")?,
        eio_range: settings.range("eio_range")?,
        torn_writes: odds("torn_writes")?,
        full_after: settings.bytes("full_after")?,
        hang: odds("hang")?,
        hang_at: moment("hang_at")?,
        hang_for: settings.time("hang_for")?,
        lost_at: moment("lost_at")?,
        flush_fails: odds("flush_fails")?,
        flush_fail_at: nth("flush_fail_at")?,
        length_fails: odds("length_fails")?,
        discard_fails: odds("discard_fails")?,
        no_space: odds("no_space")?,
        fails_after: settings.time("fails_after")?.unwrap_or(Nanos::ZERO),
        lingers: settings.time("lingers")?.unwrap_or(Nanos::ZERO),
    };
    let hangs = plan.hang > Odds::NEVER || plan.hang_at.is_some();
    if plan.hang_for.is_some() && !hangs {
        return Err(SpecError::Needs {
            layer: "faulty",
            key: "hang_for",
            needs: "hang or hang_at",
        });
    }
    Ok(Layer::Faulty(plan))
}

fn volatile(settings: &Settings<'_>) -> Result<Layer, SpecError> {
    let frames = settings.read("size", |value| {
        let pages = figures::size(value)? / PAGE_SIZE;
        let fits = (1..=VOLATILE_FRAMES_MAX).contains(&pages);
        let frames = u32::try_from(pages).ok().filter(|_| fits);
        frames.ok_or_else(|| Bad::new("at least one page and at most 4GiB, as in 8MiB"))
    })?;
    let default = VolatileOptions::default();
    let options = VolatileOptions {
        seed: settings
            .number("seed", 0, u64::MAX)?
            .unwrap_or(default.seed),
        latency: settings.time("latency")?.unwrap_or(default.latency),
        survives: settings.odds("survives")?.unwrap_or(default.survives),
    };
    Ok(Layer::Volatile {
        frames: frames.unwrap_or(VOLATILE_FRAMES),
        options,
    })
}

fn trace(settings: &Settings<'_>) -> Result<Layer, SpecError> {
    let records = settings.number("records", 1, Trace::ROOM_MAX as u64)?;
    Ok(Layer::Trace {
        records: records.map_or(TRACE_RECORDS, to_usize),
    })
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("a number that was checked against a limit of type usize")
}

/// Why a value cannot be used.
enum Bad {
    /// It is no size, or no time.
    Figure(FigureError),
    /// A description of right values.
    Expected(String),
}

impl Bad {
    fn new(expected: &str) -> Self {
        Self::Expected(String::from(expected))
    }
}

impl From<FigureError> for Bad {
    fn from(error: FigureError) -> Self {
        Self::Figure(error)
    }
}

/// The `key=value` of one layer.
struct Settings<'t> {
    layer: &'static str,
    pairs: Vec<(&'t str, &'t str)>,
}

impl<'t> Settings<'t> {
    fn parse(
        layer: &'static str,
        allowed: &'static [&'static str],
        text: &'t str,
    ) -> Result<Self, SpecError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let Some((key, value)) = part.split_once('=') else {
                return Err(SpecError::NoValue {
                    layer,
                    text: String::from(part),
                    allowed,
                });
            };
            let (key, value) = (key.trim(), value.trim());
            if !allowed.contains(&key) {
                return Err(SpecError::UnknownKey {
                    layer,
                    key: String::from(key),
                    allowed,
                });
            }
            let again = pairs.iter().any(|(other, _)| *other == key);
            if again && !LIST_KEYS.contains(&key) {
                return Err(SpecError::Twice {
                    layer,
                    key: String::from(key),
                });
            }
            pairs.push((key, value));
        }
        Ok(Self { layer, pairs })
    }

    fn get(&self, key: &str) -> Option<&'t str> {
        self.pairs
            .iter()
            .find(|(other, _)| *other == key)
            .map(|(_, value)| *value)
    }

    /// The values of a key that may stand more than once, in order.
    fn all(&self, key: &str) -> impl Iterator<Item = &'t str> {
        let pairs = self.pairs.iter();
        pairs
            .filter(move |(other, _)| *other == key)
            .map(|(_, value)| *value)
    }

    /// The value of `key` as `read` understands it, if the key is there.
    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, Bad>,
    ) -> Result<Option<T>, SpecError> {
        let read = |value| read(value).map_err(|bad| self.wrong(key, value, bad));
        self.get(key).map(read).transpose()
    }

    fn wrong(&self, key: &str, value: &str, bad: Bad) -> SpecError {
        let (layer, key) = (self.layer, String::from(key));
        match bad {
            Bad::Figure(error) => SpecError::BadFigure { layer, key, error },
            Bad::Expected(expected) => SpecError::BadValue {
                layer,
                key,
                value: String::from(value),
                expected,
            },
        }
    }

    fn bytes(&self, key: &str) -> Result<Option<Bytes>, SpecError> {
        self.read(key, |value| Ok(Bytes(figures::size(value)?)))
    }

    fn time(&self, key: &str) -> Result<Option<Nanos>, SpecError> {
        self.read(key, a_time)
    }

    fn odds(&self, key: &str) -> Result<Option<Odds>, SpecError> {
        self.read(key, |value| {
            decimal(value, 1_000_000_000)
                .and_then(|odds| Odds::from_ppb(u32::try_from(odds).ok()?))
                .ok_or_else(|| {
                    Bad::new("a probability from 0 to 1 with at most nine digits, as in 0.01")
                })
        })
    }

    fn number(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, SpecError> {
        let expected = match most {
            u64::MAX => format!("a whole number from {least}"),
            _ => format!("a whole number from {least} to {most}"),
        };
        let is_plain = |value: &str| value.bytes().all(|byte| byte.is_ascii_digit());
        self.read(key, |value| {
            let number = value.parse().ok().filter(|_| is_plain(value));
            let number = number.filter(|number| (least..=most).contains(number));
            number.ok_or(Bad::Expected(expected))
        })
    }

    fn range(&self, key: &str) -> Result<Option<Range<u64>>, SpecError> {
        self.read(key, |value| {
            let expected =
                || Bad::new("a range of bytes with units, from below to, as in 1MiB..2MiB");
            let (from, to) = value.split_once("..").ok_or_else(expected)?;
            let range = figures::size(from)?..figures::size(to)?;
            if range.is_empty() {
                return Err(expected());
            }
            Ok(range)
        })
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = LAYERS.join(", ");
        match self {
            Self::Empty => write!(f, "a device layer is missing; known are {layers}"),
            Self::UnknownLayer { layer } => {
                write!(f, "unknown device layer `{layer}`; known are {layers}")
            }
            Self::UnknownKey {
                layer,
                key,
                allowed,
            } => {
                let allowed = allowed.join(", ");
                write!(
                    f,
                    "unknown key `{key}` of device layer `{layer}`; it has {allowed}"
                )
            }
            Self::NoValue {
                layer,
                text,
                allowed,
            } => {
                let allowed = allowed.join(", ");
                write!(
                    f,
                    "`{text}` in device layer `{layer}` is not key=value; it has the keys {allowed}"
                )
            }
            Self::Twice { layer, key } => {
                write!(f, "key `{key}` is given twice in device layer `{layer}`")
            }
            Self::BadValue {
                layer,
                key,
                value,
                expected,
            } => write!(
                f,
                "value `{value}` of key `{key}` in device layer `{layer}`: expected {expected}"
            ),
            Self::BadFigure { layer, key, error } => {
                write!(f, "key `{key}` in device layer `{layer}`: {error}")
            }
            Self::NoEffect { layer, lacks } => {
                write!(
                    f,
                    "device layer `{layer}` would do nothing: give it {lacks}"
                )
            }
            Self::Needs { layer, key, needs } => {
                write!(f, "key `{key}` of device layer `{layer}` needs {needs}")
            }
        }
    }
}

impl std::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Layer::parse_stack(text).unwrap_err().to_string()
    }

    #[test]
    fn a_slow_device() {
        let expected = SlowOptions {
            rate: Some(BytesPerSec(16_000_000)),
            latency: Nanos::millis(2),
            ..SlowOptions::default()
        };
        let text = "slow:rate=16MB,latency=2ms,depth=1";
        assert_eq!(
            Layer::parse_stack(text),
            Ok(vec![Layer::Slow(expected.clone())])
        );
        let text = " slow : rate = 16 MB/s , latency=0.002s ";
        assert_eq!(Layer::parse(text), Ok(Layer::Slow(expected)));
        assert_eq!(
            message("slow"),
            "device layer `slow` would do nothing: give it a rate or a latency, as in slow:rate=16MB or \
             slow:latency=2ms"
        );
        assert!(Layer::parse("slow:latency=2ms").is_ok());
    }

    #[test]
    fn a_rate_that_changes() {
        let step = |at_s, rate| RateStep {
            at: Instant::ZERO + Nanos::secs(at_s),
            rate: BytesPerSec(rate),
        };
        let expected = SlowOptions {
            rate: Some(BytesPerSec(32 << 20)),
            then: vec![step(20, 0), step(50, 8 << 20)],
            ..SlowOptions::default()
        };
        let text = "slow:rate=32MiB,then=0B@20s,then=8MiB/s@50s";
        assert_eq!(Layer::parse(text), Ok(Layer::Slow(expected)));
        for (text, part) in [
            ("slow:rate=1MB,then=8MiB", "as in 8MiB@40s"),
            ("slow:rate=1MB,then=8MiB@40", "write 40s or 40ms"),
            ("slow:rate=1MB,then=8@40s", "write 8B, 8MiB or 8GiB"),
            ("slow:rate=1MB,then=1MB@2s,then=1MB@2s", "a time later than"),
            ("slow:latency=1ms,then=1MB@2s", "needs rate"),
            ("slow:rate=1MB,rate=2MB", "given twice"),
        ] {
            assert!(message(text).contains(part), "{text}: {}", message(text));
        }
    }

    #[test]
    fn a_whole_stack_with_every_key() {
        let text = "trace:records=10+faulty:seed=7,eio_reads=0.5,eio_writes=1,eio_read_at=3,\
            eio_write_at=4,eio_range=1MiB..2MiB,torn_writes=0.000000001,full_after=1GB,hang=0.25,\
            hang_at=5s,hang_for=100ms,lost_at=1min,flush_fails=0,flush_fail_at=9,\
            length_fails=0.125,discard_fails=0.0625,no_space=0.5,fails_after=3ms,lingers=50ms\
            +volatile:size=4MiB,seed=3,latency=50us,survives=0.1+slow:rate=1MiB,burst=64KiB,depth=32";
        let plan = FaultPlan {
            seed: 7,
            eio_reads: Odds::from_ppb(500_000_000).unwrap(),
            eio_writes: Odds::ALWAYS,
            eio_read_at: Some(3),
            eio_write_at: Some(4),
            eio_range: Some(1 << 20..2 << 20),
            torn_writes: Odds::from_ppb(1).unwrap(),
            full_after: Some(Bytes(1_000_000_000)),
            hang: Odds::from_ppb(250_000_000).unwrap(),
            hang_at: Some(Instant(5_000_000_000)),
            hang_for: Some(Nanos::millis(100)),
            lost_at: Some(Instant(60_000_000_000)),
            flush_fails: Odds::NEVER,
            flush_fail_at: Some(9),
            length_fails: Odds::from_ppb(125_000_000).unwrap(),
            discard_fails: Odds::from_ppb(62_500_000).unwrap(),
            no_space: Odds::from_ppb(500_000_000).unwrap(),
            fails_after: Nanos::millis(3),
            lingers: Nanos::millis(50),
        };
        let volatile = VolatileOptions {
            seed: 3,
            latency: Nanos::micros(50),
            survives: Odds::from_ppb(100_000_000).unwrap(),
        };
        let slow = SlowOptions {
            rate: Some(BytesPerSec(1 << 20)),
            burst: Bytes(64 << 10),
            latency: Nanos::ZERO,
            depth: 32,
            ..SlowOptions::default()
        };
        let expected = vec![
            Layer::Trace { records: 10 },
            Layer::Faulty(plan),
            Layer::Volatile {
                frames: 1024,
                options: volatile,
            },
            Layer::Slow(slow),
        ];
        assert_eq!(Layer::parse_stack(text), Ok(expected));
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        for (text, expected) in [
            (
                "",
                "a device layer is missing; known are slow, faulty, volatile, trace",
            ),
            (
                "slow:rate=1MB+",
                "a device layer is missing; known are slow, faulty, volatile, trace",
            ),
            (
                "slwo:rate=1MB",
                "unknown device layer `slwo`; known are slow, faulty, volatile, trace",
            ),
            (
                "slow:speed=1MB",
                "unknown key `speed` of device layer `slow`; it has rate, then, burst, latency, \
                 depth",
            ),
            (
                "slow:16MB",
                "`16MB` in device layer `slow` is not key=value; it has the keys rate, then, \
                 burst, latency, depth",
            ),
            (
                "slow:rate=1MB,rate=2MB",
                "key `rate` is given twice in device layer `slow`",
            ),
            (
                "slow:rate=16",
                "key `rate` in device layer `slow`: `16` has no unit: write 16B, 16MiB or 16GiB",
            ),
            (
                "slow:latency=2",
                "key `latency` in device layer `slow`: `2` has no unit: write 2s or 2ms",
            ),
            (
                "slow:depth=0",
                "value `0` of key `depth` in device layer `slow`: expected a whole number from 1 to \
                 1024",
            ),
            (
                "slow:burst=1MB",
                "key `burst` of device layer `slow` needs rate",
            ),
            (
                "faulty:eio_writes=1.01",
                "value `1.01` of key `eio_writes` in device layer `faulty`: expected a probability \
                 from 0 to 1 with at most nine digits, as in 0.01",
            ),
            (
                "faulty:eio_range=2MiB..1MiB",
                "value `2MiB..1MiB` of key `eio_range` in device layer `faulty`: expected a range of \
                 bytes with units, from below to, as in 1MiB..2MiB",
            ),
            (
                "faulty:hang_for=1s",
                "key `hang_for` of device layer `faulty` needs hang or hang_at",
            ),
            (
                "faulty:flush_fail_at=0",
                "value `0` of key `flush_fail_at` in device layer `faulty`: expected a whole number \
                 from 1",
            ),
            (
                "volatile:size=1kB",
                "value `1kB` of key `size` in device layer `volatile`: expected at least one page and \
                 at most 4GiB, as in 8MiB",
            ),
        ] {
            assert_eq!(message(text), expected, "for `{text}`");
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut chance = crate::chance::Chance::new(11);
        let alphabet: Vec<char> = "slow:rate=16MB,+.depth0918446744073709551615faulty\u{b5}é"
            .chars()
            .collect();
        for _ in 0..20_000 {
            let length = chance.below(24);
            let text: String = (0..length)
                .map(|_| alphabet[usize::try_from(chance.below(alphabet.len() as u64)).unwrap()])
                .collect();
            drop(Layer::parse_stack(&text));
            drop(Layer::parse_stack(&format!("slow:rate={text}")));
            drop(Layer::parse_stack(&format!("faulty:eio_writes={text}")));
        }
    }
}
