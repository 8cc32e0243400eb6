//! Calls of so many threads at once, through a cache or through the kernel's. `cargo instruments
//! bench scale` runs it, a process for each figure.
//!
//! `scale FOLDER tidegate|kernel read|write own|one BYTES THREADS`: each thread reads or overwrites
//! calls of that many bytes by chance, in a file of its own or in a part of its own of one file,
//! all of it in memory. Prints one line of JSON: bytes a second of all threads, the median of some
//! goes.

use std::fs::{File as Plain, OpenOptions as PlainOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use tidegate::{Cache, File, OpenOptions, Threshold};

/// Bytes of each thread's part: all parts are dirty at once, and stay it.
const PART: u64 = 32 << 20;
const GO: Duration = Duration::from_millis(300);
const GOES: usize = 5;

type Failure = Box<dyn std::error::Error>;

enum Subject {
    Tidegate(Box<File>),
    Kernel(Plain),
}

impl Subject {
    fn write(&self, data: &[u8], at: u64) -> Result<(), Failure> {
        match self {
            Self::Tidegate(file) => file.write_at(data, at).map(drop)?,
            Self::Kernel(file) => file.write_all_at(data, at)?,
        }
        Ok(())
    }

    fn read(&self, data: &mut [u8], at: u64) -> Result<(), Failure> {
        match self {
            Self::Tidegate(file) => file.read_at(data, at).map(drop)?,
            Self::Kernel(file) => file.read_exact_at(data, at)?,
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [folder, subject, what, whose, bytes, threads] = words.as_slice() else {
        return Err("usage: scale FOLDER tidegate|kernel read|write own|one BYTES THREADS".into());
    };
    let (bytes, threads) = (bytes.parse::<u64>()?, threads.parse::<u64>()?);
    if bytes == 0 || bytes > PART || threads == 0 {
        return Err(format!("1 to {PART} bytes, and at least one thread").into());
    }
    let all = threads * PART;
    // Nothing is due to be written back, and no writer to be held.
    let cache = Cache::builder()
        .memory(all * 4 + (64 << 20))
        .dirty_limit(Threshold::Percent(90))
        .background_limit(Threshold::Percent(80));
    let cache = cache.build()?;
    let files = if *whose == "own" { threads } else { 1 };
    let files: Vec<Subject> = (0..files)
        .map(|number| {
            let path = Path::new(folder).join(format!("part-{number}"));
            open(&cache, subject, &path)
        })
        .collect::<Result<_, Failure>>()?;
    let barrier = Barrier::new(usize::try_from(threads)?);
    let mut rates = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let (file, first) = match *whose {
                    "own" => (file_of(&files, number), 0),
                    _ => (&files[0], number * PART),
                };
                let (barrier, is_write) = (&barrier, *what == "write");
                scope.spawn(move || {
                    let goes = one(file, first, bytes, is_write, barrier);
                    goes.map_err(|error| error.to_string())
                })
            })
            .collect();
        let mut sums = vec![0.0; GOES];
        for thread in threads {
            let rates = thread.join().expect("it counts")?;
            sums.iter_mut()
                .zip(rates)
                .for_each(|(sum, rate)| *sum += rate);
        }
        Ok::<_, String>(sums)
    })?;
    rates.sort_by(f64::total_cmp);
    println!("{{\"per_second\": {:.0}}}", rates[GOES / 2]);
    // Nobody wants the data.
    for file in files {
        if let Subject::Tidegate(file) = file {
            file.discard()?;
        }
    }
    Ok(())
}

fn file_of(files: &[Subject], number: u64) -> &Subject {
    &files[usize::try_from(number).expect("a thread")]
}

fn open(cache: &Cache, subject: &str, path: &Path) -> Result<Subject, Failure> {
    Ok(match subject {
        "tidegate" => {
            Subject::Tidegate(Box::new(cache.open(path, OpenOptions::new().create(true))?))
        }
        "kernel" => Subject::Kernel(
            PlainOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?,
        ),
        _ => return Err(format!("'{subject}' is not measured here").into()),
    })
}

/// Bytes a second of one thread, in each of the goes.
fn one(
    file: &Subject,
    first: u64,
    bytes: u64,
    is_write: bool,
    barrier: &Barrier,
) -> Result<Vec<f64>, Failure> {
    let mut data = vec![7_u8; usize::try_from(bytes)?];
    let calls = PART / bytes;
    for call in 0..calls {
        file.write(&data, first + call * bytes)?;
        file.read(&mut data, first + call * bytes)?;
    }
    let mut goes = Vec::new();
    let mut at = 0_u64;
    for _ in 0..GOES {
        barrier.wait();
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < GO {
            for _ in 0..64.min(calls) {
                // In an order that no prefetcher guesses.
                at = at
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let offset = first + (at >> 33) % calls * bytes;
                if is_write {
                    file.write(&data, offset)?;
                } else {
                    file.read(&mut data, offset)?;
                }
                done += bytes;
            }
        }
        goes.push(done as f64 / began.elapsed().as_secs_f64());
    }
    Ok(goes)
}
