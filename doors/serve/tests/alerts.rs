//! Each alert of `docs/serve/tidegate-alerts.yml` fires where it should, on devices that are slow
//! and faulty as the lab has them, and not before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nbd::client::{Client, Wishes};
use rcgen::date_time_ymd;
use serve::access::Access;
use serve::hub::Limits;
use serve::metrics;
use serve::snapshot::{Reading, Source as _, Watched};
use tidegate::{ErrorPolicy, Wait};

use crate::certificates::{SERVER, authority, identity_with};
use crate::common::{LONG, Server, Setup, bytes};
use crate::promql::{Scrape, Value, evaluate};

/// A scrape is the next one's after this.
const APART: Duration = Duration::from_millis(400);
/// Scrapes in a row at which an alert fires, so that it would after its `for`.
const STEADY: usize = 3;
/// A slow disk takes its time to be one.
const PATIENCE: Duration = Duration::from_secs(180);

/// A server, what happens to it, and what is changed of its readings: of faults that are ours.
struct Trouble {
    setup: Setup,
    happens: fn(&Server, &dyn Fn() -> bool),
    change: fn(&mut Reading, u64),
}

fn on(layers: &'static str, happens: fn(&Server, &dyn Fn() -> bool)) -> Trouble {
    Trouble {
        setup: Setup {
            layers,
            ..Setup::default()
        },
        happens,
        change: |_, _| (),
    }
}

/// Writes pieces of 256 KiB one after the other, and has each `flushed` or not.
fn writes(server: &Server, goes_on: &dyn Fn() -> bool, flushed: bool) {
    let data = bytes(3, 256 << 10);
    let mut client = server.client();
    let pieces = server.export.size() / data.len() as u64;
    for piece in (0..pieces).cycle().take_while(|_| goes_on()) {
        let wrote = client.write(piece * data.len() as u64, &data);
        let ended = wrote.and_then(|()| if flushed { client.flush() } else { Ok(()) });
        // Of a device that fails; one that hangs is released at the end.
        if ended.is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Reads pages that nobody has read yet, as long as there are some.
fn reads(server: &Server, goes_on: &dyn Fn() -> bool) {
    let mut client = server.client();
    for piece in (0..256_u64).cycle().take_while(|_| goes_on()) {
        let at = ((piece % 64) << 20) + ((piece / 64) << 18);
        if client.read(at, &mut [0; 4096]).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The troubles that make an alert fire.
fn troubles(alert: &str) -> Vec<Trouble> {
    let unchanged = |happens| on("", happens);
    let ours = |change| Trouble {
        change,
        ..on("", |_, _| ())
    };
    let huge = || Trouble {
        setup: Setup {
            size: (16 << 40) - 4096,
            ..Setup::default()
        },
        ..on("", |_, _| ())
    };
    let hangs = || {
        on("faulty:hang_at=0s", |server, goes_on| {
            writes(server, goes_on, true)
        })
    };
    match alert {
        // Tested without a server.
        "TidegateDown" => vec![],
        "TidegateBackingLost" => vec![unchanged(|server, _| {
            std::fs::remove_file(server.folder.0.join("volume-")).unwrap();
        })],
        "TidegateFlushFailed" => vec![on("faulty:flush_fails=1", |server, goes_on| {
            writes(server, goes_on, true);
        })],
        "TidegateStalled" | "TidegateClientsWait" => vec![hangs()],
        "TidegateRetrying" => {
            let mut retrying = on("faulty:eio_writes=1", |server, goes_on| {
                writes(server, goes_on, true)
            });
            retrying.setup.on_error = ErrorPolicy::Retry;
            vec![retrying]
        }
        "TidegateBackingErrors" => vec![
            on("faulty:eio_writes=0.1", |server, goes_on| {
                writes(server, goes_on, true)
            }),
            on("faulty:eio_reads=0.5", reads),
        ],
        "TidegateBackingNearlyFull" | "TidegateBackingOvercommitted" => vec![huge()],
        "TidegateDirtyAtLimit" => vec![on("slow:rate=4MB", |server, goes_on| {
            writes(server, goes_on, false)
        })],
        "TidegateBackingSlow" => vec![
            on("slow:rate=500KB", |server, goes_on| {
                writes(server, goes_on, false)
            }),
            on("slow:latency=600ms", reads),
        ],
        "TidegateReadsSlow" => vec![on("slow:latency=900ms", reads)],
        "TidegateWritesSlow" => vec![on("slow:rate=100KB", |server, goes_on| {
            writes(server, goes_on, false)
        })],
        "TidegateFlushesSlow" => vec![on("slow:rate=100KB", |server, goes_on| {
            writes(server, goes_on, true)
        })],
        "TidegateErrorsToClients" => vec![on("faulty:eio_reads=1", reads)],
        "TidegateTurnsClientsAway" => {
            let mut full = unchanged(|server, goes_on| {
                let _first = server.client();
                while goes_on() {
                    assert!(Client::unix(&server.socket, &Wishes::export("")).is_err());
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            full.setup.limits = Limits {
                connections: 1,
                ..Limits::default()
            };
            vec![full]
        }
        "TidegateVolumesDenied" => vec![unchanged(|server, goes_on| {
            server
                .export
                .set_access(Access::read(["somebody"].into_iter()).unwrap());
            while goes_on() {
                assert!(
                    Client::unix(&server.socket, &Wishes::export(server.export.name())).is_err()
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        })],
        "TidegateCertificateEnds" => vec![unchanged(|server, _| {
            let issuer = authority("ours");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let own = identity_with(&issuer, SERVER, |params| {
                params.not_after =
                    date_time_ymd(1970, 1, 1) + now + Duration::from_secs(5 * 86_400);
            });
            server.secure([&own.certificate, &own.key], [None, None], true);
        })],
        // Nothing that a device does leads to these: they tell of faults of ours.
        "TidegateMemoryOverLimit" => vec![ours(|reading, _| {
            reading.resident = 2 * reading.stats.limit
        })],
        "TidegateTimeouts" => vec![ours(|reading, scrape| {
            let mut wait = Wait::default();
            (wait.cause, wait.timed_out) = ("a cause", scrape);
            reading.stats.waits.push(wait);
        })],
        other => panic!("no trouble here makes {other} fire: add one"),
    }
}

/// Names and expressions of the rules.
fn rules() -> Vec<(&'static str, &'static str)> {
    let text = include_str!("../../../docs/serve/tidegate-alerts.yml");
    let after = |start: &'static str| {
        text.lines()
            .filter_map(move |line| line.trim().strip_prefix(start))
    };
    let rules: Vec<_> = after("- alert: ").zip(after("expr: ")).collect();
    assert_eq!(
        (rules.len(), rules.len()),
        (after("- alert: ").count(), after("expr: ").count())
    );
    rules
}

fn fires(expression: &str, scrapes: &[Scrape]) -> bool {
    match evaluate(expression, scrapes) {
        Value::Vector(all) => !all.is_empty(),
        Value::Scalar(number) => panic!("{expression} is {number} for everything"),
    }
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

/// Scrapes a server in trouble until the alert fires steadily.
fn is_seen(alert: &str, expression: &str, trouble: Trouble) {
    let server = Server::start(trouble.setup);
    let watched = Watched::new(&server.hub, server.cache.clone());
    let scrape = |number: u64, change: fn(&mut Reading, u64)| {
        let mut reading = watched.read();
        // Of the whole process, with all other tests of it.
        reading.resident = reading.stats.limit / 2;
        change(&mut reading, number);
        Scrape::new(now(), Some(&metrics::text(reading).unwrap()))
    };
    let is_there_at_once =
        alert.starts_with("TidegateBackingNearly") || alert.starts_with("TidegateBackingOver");
    let mut scrapes = vec![scrape(0, |_, _| ())];
    assert!(
        is_there_at_once || !fires(expression, &scrapes),
        "{alert} fires before anything has happened"
    );
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| (trouble.happens)(&server, &|| !is_over.load(Ordering::Relaxed)));
        let (began, mut steady) = (Instant::now(), 0);
        for number in 1.. {
            std::thread::sleep(APART);
            scrapes.push(scrape(number, trouble.change));
            steady = if fires(expression, &scrapes) {
                steady + 1
            } else {
                0
            };
            if steady == STEADY || began.elapsed() > PATIENCE {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        server.layers.release();
        let seen = &watched.read().volumes[0];
        assert_eq!(
            steady, STEADY,
            "{alert} does not fire: {:?}, {:?}, {:?}",
            seen.state, seen.slow, seen.numbers
        );
    });
}

#[test]
fn every_alert_fires_where_it_should_and_not_before() {
    let rules = rules();
    assert!(rules.len() >= 18, "{}", rules.len());
    let (alert, down) = rules[0];
    assert_eq!(alert, "TidegateDown");
    assert!(
        fires(down, &[Scrape::new(now(), None)]) && !fires(down, &[Scrape::new(now(), Some(""))])
    );
    // Side by side: they wait for their devices most of the time.
    let all = rules.into_iter().flat_map(|(alert, expression)| {
        troubles(alert)
            .into_iter()
            .map(move |trouble| (alert, expression, trouble))
    });
    std::thread::scope(|scope| {
        for (alert, expression, trouble) in all {
            scope.spawn(move || is_seen(alert, expression, trouble));
        }
    });
}

/// The cause stands beside the state: the device and its rate.
#[test]
fn a_slow_disk_is_a_state_of_its_own_with_its_cause() {
    let server = Server::start(Setup {
        layers: "slow:rate=500KB",
        ..Setup::default()
    });
    let watched = Watched::new(&server.hub, server.cache.clone());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| writes(&server, &|| !is_over.load(Ordering::Relaxed), false));
        let began = Instant::now();
        let seen = loop {
            let seen = watched.read().volumes.remove(0);
            if seen.slow.is_some() {
                break seen;
            }
            assert!(began.elapsed() < LONG, "{seen:?}");
            std::thread::sleep(APART);
        };
        is_over.store(true, Ordering::Relaxed);
        server.layers.release();
        let why = seen.slow.unwrap();
        assert!(
            why.starts_with("writes wait for its backing, which takes "),
            "{why}"
        );
        assert_eq!(seen.state, serve::snapshot::State::Slow);
        assert!(seen.state_for.unwrap() >= Duration::from_secs(10));
    });
}
