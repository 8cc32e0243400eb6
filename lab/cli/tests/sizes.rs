//! One grammar of sizes: every option that takes one answers the same bytes, or the same error.

use clap::Parser as _;
use cli::args::{Arguments, Command};
use device::Layer;
use recordings::Change;
use recordings::kind::THROTTLING;

type Read = fn(&str) -> Result<u64, String>;

/// All of 4096 bytes and multiples, and what the narrowest option has room for: 64 KiB to 64 MiB.
const SIZES: [(&str, u64); 14] = [
    ("65536B", 65_536),
    ("512KiB", 524_288),
    ("512K", 524_288),
    ("512k", 524_288),
    ("0.5MiB", 524_288),
    ("4096kB", 4_096_000),
    ("4096KB", 4_096_000),
    ("64MB", 64_000_000),
    ("64MiB", 67_108_864),
    ("64M", 67_108_864),
    ("64m", 67_108_864),
    ("64 MiB", 67_108_864),
    ("0.0625GiB", 67_108_864),
    ("0.00004096TB", 40_960_000),
];

const NO_SIZES: [&str; 12] = [
    "67108864",
    "5",
    "0",
    "16mb",
    "16Mb",
    "-1M",
    "1e6B",
    ".5M",
    "MiB",
    "0.5B",
    "99999999T",
    "1 000kB",
];

fn run_memory(text: &str) -> Result<u64, String> {
    let memory = format!("--memory={text}");
    let arguments = Arguments::try_parse_from(["tidegate", "run", "dd", "--live", "x", &memory]);
    match arguments.map_err(|error| error.to_string())?.command {
        Command::Run(run) => Ok(run.memory.unwrap()),
        _ => unreachable!("run"),
    }
}

/// The value of a change.
fn changed(key: &str, text: &str) -> Result<u64, String> {
    let change = Change::parse(&THROTTLING, &format!("{key}={text}"));
    let change = change.map_err(|error| error.to_string())?;
    Ok(format!("{:.0}", change.value()).parse().unwrap())
}

fn layer(text: String) -> Result<Layer, String> {
    Layer::parse(&text).map_err(|error| error.to_string())
}

fn slow(text: String, read: fn(&device::SlowOptions) -> u64) -> Result<u64, String> {
    match layer(text)? {
        Layer::Slow(options) => Ok(read(&options)),
        other => unreachable!("{other:?}"),
    }
}

fn faulty(text: String, read: fn(&device::FaultPlan) -> u64) -> Result<u64, String> {
    match layer(text)? {
        Layer::Faulty(plan) => Ok(read(&plan)),
        other => unreachable!("{other:?}"),
    }
}

fn volatile(text: &str) -> Result<u64, String> {
    match layer(format!("volatile:size={text}"))? {
        Layer::Volatile { frames, .. } => Ok(u64::from(frames) * 4096),
        other => unreachable!("{other:?}"),
    }
}

const OPTIONS: [(&str, Read); 10] = [
    ("run --memory", run_memory),
    ("compare --set vm.dirty_bytes", |text| {
        changed("vm.dirty_bytes", text)
    }),
    ("compare --set vm.dirty_background_bytes", |text| {
        changed("vm.dirty_background_bytes", text)
    }),
    ("compare --set writer.0.bytes", |text| {
        changed("writer.0.bytes", text)
    }),
    ("slow:rate", |text| {
        slow(format!("slow:rate={text}/s"), |slow| slow.rate.unwrap().0)
    }),
    ("slow:then", |text| {
        slow(format!("slow:rate=1B,then={text}@1s"), |slow| {
            slow.then[0].rate.0
        })
    }),
    ("slow:burst", |text| {
        slow(format!("slow:rate=1B,burst={text}"), |slow| slow.burst.0)
    }),
    ("faulty:full_after", |text| {
        faulty(format!("faulty:full_after={text}"), |plan| {
            plan.full_after.unwrap().0
        })
    }),
    ("faulty:eio_range", |text| {
        faulty(format!("faulty:eio_range=0B..{text}"), |plan| {
            plan.eio_range.clone().unwrap().end
        })
    }),
    ("volatile:size", volatile),
];

#[test]
fn every_option_has_the_same_grammar() {
    hold(&OPTIONS, &SIZES);
}

fn hold(options: &[(&str, Read)], sizes: &[(&str, u64)]) {
    for (option, read) in options {
        for (text, bytes) in sizes {
            assert_eq!(read(text), Ok(*bytes), "{option} {text}");
        }
        for text in NO_SIZES {
            let error = figures::size(text).unwrap_err().to_string();
            let said = read(text).unwrap_err();
            assert!(said.contains(&error), "{option} {text}: {said}");
        }
    }
}

mod serving {
    use policy::units::Pages;
    use serve::config::{Asked, BackendConfig, Config};
    use tidegate::Threshold;

    use super::{Read, SIZES, hold};

    fn config(asked: &Asked) -> Result<Config, String> {
        asked.config().map_err(|error| error.to_string())
    }

    fn with(values: &[(&str, &str)]) -> Result<Config, String> {
        let values = values
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        config(&Asked {
            values: values.collect(),
            volumes: vec!["a=/x".into()],
            ..Asked::default()
        })
    }

    fn volume(words: String) -> Result<serve::config::VolumeConfig, String> {
        let asked = Asked {
            volumes: vec![words],
            ..Asked::default()
        };
        Ok(config(&asked)?.volumes.remove(0))
    }

    fn bytes(limit: Threshold) -> u64 {
        match limit {
            Threshold::Pages(Pages(pages)) => pages << 12,
            Threshold::Percent(_) => unreachable!("a size"),
        }
    }

    const SERVE: [(&str, Read); 5] = [
        ("serve --memory", |text| {
            Ok(with(&[("memory", text)])?.memory)
        }),
        ("serve --dirty", |text| {
            Ok(bytes(with(&[("dirty", text)])?.dirty))
        }),
        ("serve --background", |text| {
            Ok(bytes(
                with(&[("dirty", "1GiB"), ("background", text)])?.background,
            ))
        }),
        ("serve --max-request-size", |text| {
            let limits = with(&[("max_request_size", text)])?.limits;
            Ok(limits.request_bytes.into())
        }),
        ("serve a=new:/x,size", |text| {
            match volume(format!("a=new:/x,size={text}"))?.backend {
                BackendConfig::New { size, .. } => Ok(size),
                other => unreachable!("{other:?}"),
            }
        }),
    ];

    /// These take powers of two alone.
    const POWERS: [(&str, Read); 3] = [
        ("serve a=mem:,object_size", |text| {
            match volume(format!("a=mem:,size=1GiB,object_size={text}"))?.backend {
                BackendConfig::Objects { object_size, .. } => Ok(object_size.unwrap()),
                other => unreachable!("{other:?}"),
            }
        }),
        ("serve a=/x,block_preferred", |text| {
            Ok(volume(format!("a=/x,block_preferred={text}"))?
                .blocks
                .preferred
                .into())
        }),
        ("serve a=/x,device=slow:rate", |text| {
            let layer = volume(format!("a=/x,device=slow:rate={text}"))?
                .layers
                .remove(0);
            match layer {
                device::Layer::Slow(slow) => Ok(slow.rate.unwrap().0),
                other => unreachable!("{other:?}"),
            }
        }),
    ];

    #[test]
    fn every_option_of_the_server_has_it_too() {
        hold(&SERVE, &SIZES);
        hold(&POWERS, &SIZES[..5]);
    }

    #[test]
    fn its_file_has_it_too() {
        let path = std::env::temp_dir().join(format!("tidegate-sizes-{}.toml", std::process::id()));
        let read = |text: &str| {
            std::fs::write(
                &path,
                format!("memory = \"{text}\"\n[volume.a]\nbackend = \"/x\"\n"),
            )
            .unwrap();
            config(&Asked {
                file: Some(path.clone()),
                ..Asked::default()
            })
        };
        for (text, bytes) in SIZES {
            assert_eq!(read(text).map(|config| config.memory), Ok(bytes), "{text}");
        }
        for text in super::NO_SIZES {
            let error = figures::size(text).unwrap_err().to_string();
            assert!(read(text).unwrap_err().contains(&error), "{text}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
