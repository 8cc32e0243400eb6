//! Calls on files as futures, in a runtime of some lines: nothing waits in a poll, and the answers
//! are those of the calls that block.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tidegate::{Cache, Error, File, OpenOptions};

use crate::dir::Dir;

const PAGE: usize = 4096;

impl Dir {
    /// A file of this many pages, each filled with its number.
    fn filled(&self, pages: usize) -> PathBuf {
        let path = self.0.join("filled");
        let bytes: Vec<u8> = (0..pages * PAGE).map(|at| of_page(at / PAGE)).collect();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn of_page(page: usize) -> u8 {
    u8::try_from(page % 251).unwrap()
}

fn open(cache: &Cache, path: PathBuf) -> Arc<File> {
    Arc::new(cache.open(path, OpenOptions::new().create(true)).unwrap())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls all of them on this thread until each is done; no poll takes long.
fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    while done.iter().any(Option::is_none) {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                let began = Instant::now();
                if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                    *done = Some(answer);
                }
                let took = began.elapsed();
                assert!(took < Duration::from_secs(2), "a poll took {took:?}");
            }
        }
        if done.iter().any(Option::is_none) {
            thread::park_timeout(Duration::from_secs(20));
        }
    }
    done.into_iter().map(Option::unwrap).collect()
}

fn one<T>(future: impl Future<Output = T>) -> T {
    all([future]).remove(0)
}

fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

#[test]
fn one_thread_has_hundreds_of_calls_under_way() {
    for io_uring in [true, false] {
        let dir = Dir::new("many");
        let path = dir.filled(2000);
        let cache = Cache::builder().memory(16 << 20).io_uring(io_uring);
        let cache = cache.layers("slow:latency=2ms").unwrap().build().unwrap();
        let file = open(&cache, path.clone());
        let reads = (0..300).map(|at| {
            let (file, page) = (Arc::clone(&file), at * 389 % 2000);
            async move {
                let offset = (page * PAGE) as u64;
                let (read, bytes) = file.read_async(vec![0; PAGE], offset).await;
                assert_eq!((read.unwrap(), bytes), (PAGE, vec![of_page(page); PAGE]));
                let pin = file.pin_async(u32::try_from(page).unwrap()).await.unwrap();
                assert_eq!(pin[..], [of_page(page); PAGE]);
                let (written, _) = file.write_async([7; 100], offset + 5).await;
                assert_eq!(written.unwrap(), 100);
                assert_eq!(pin[..], [of_page(page); PAGE], "as it was");
                page
            }
        });
        let pages = all(reads);
        one(file.sync_async()).unwrap();
        let there = std::fs::read(&path).unwrap();
        for page in pages {
            assert_eq!(there[page * PAGE + 5..][..100], [7; 100], "page {page}");
        }
        // The owner of the answer may be the only one of the file.
        Arc::try_unwrap(file)
            .ok()
            .expect("nobody else has it")
            .close()
            .unwrap();
        cache.close().unwrap();
    }
}

#[test]
fn a_slow_disk_holds_up_no_poll_and_a_dropped_future_no_data() {
    let dir = Dir::new("slow");
    let path = dir.filled(1000);
    let cache = Cache::builder().memory(16 << 20);
    let cache = cache.layers("slow:latency=25ms").unwrap();
    let cache = cache.build().unwrap();
    let file = open(&cache, path.clone());
    let mut reads: Vec<_> = (0..50_u64)
        .map(|at| Box::pin(file.read_async(vec![0; 10], at * 19 * PAGE as u64)))
        .collect();
    for read in &mut reads {
        assert!(poll_once(read).is_pending());
    }
    // Whole pages need no disk, nor does a read of them.
    let (written, _) = one(file.write_async(vec![9; PAGE], 7 * PAGE as u64));
    assert_eq!(written.unwrap(), PAGE);
    let (read, bytes) = one(file.read_async([0; 10], 7 * PAGE as u64));
    assert_eq!((read.unwrap(), bytes), (10, [9; 10]));
    let mut sync = Box::pin(file.sync_async());
    assert!(poll_once(&mut sync).is_pending());
    // More than memory has room for: it waits, and goes on when nobody does.
    let mut write = Box::pin(file.write_async(vec![8; 6 << 20], 0));
    assert!(poll_once(&mut write).is_pending());
    drop(write);
    drop(reads.split_off(25));
    for (at, (read, bytes)) in all(reads).into_iter().enumerate() {
        assert_eq!(read.unwrap(), 10);
        let seen = [of_page(at * 19), 8];
        assert!(seen.contains(&bytes[0]), "{} of {seen:?}", bytes[0]);
    }
    one(sync).unwrap();
    while file.len() < 6 << 20 {
        thread::sleep(Duration::from_millis(5));
    }
    // It may be at its last piece.
    one(file.write_async([8], 0)).0.unwrap();
    while Arc::strong_count(&file) > 1 {
        thread::sleep(Duration::from_millis(5));
    }
    one(file.sync_async()).unwrap();
    one(cache.sync_async()).unwrap();
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 8));
}

#[test]
fn errors_are_those_of_the_calls_that_block() {
    let dir = Dir::new("errors");
    let path = dir.filled(100);
    let cache = Cache::builder().memory(16 << 20);
    let cache = cache
        .layers("faulty:seed=1,eio_reads=1,eio_writes=1")
        .unwrap();
    let cache = cache.build().unwrap();
    let file = open(&cache, path.clone());
    let name = path.display().to_string();
    let (read, buffer) = one(file.read_async(vec![3; 5000], 40_000));
    let (written, data) = one(file.write_async(vec![1; PAGE], 0));
    assert_eq!((written.unwrap(), data.len()), (PAGE, PAGE));
    let told = [
        read.unwrap_err(),
        one(file.pin_async(50)).unwrap_err(),
        one(file.pin_async(100)).unwrap_err(),
        one(file.sync_async()).unwrap_err(),
        one(file.sync_range_async(0, 10)).unwrap_err(),
    ];
    assert_eq!(buffer.len(), 5000, "it comes back");
    for error in told {
        assert!(error.to_string().starts_with(&name), "{error}");
    }
    cache.release_layers();
    one(file.sync_async()).unwrap();
    cache.close().unwrap();
    let (read, _) = one(file.read_async([0; 1], 0));
    assert!(matches!(read, Err(Error::Closed)));
    let (written, _) = one(file.write_async([0; 1], 0));
    assert!(matches!(written, Err(Error::Closed)));
    assert!(matches!(one(file.pin_async(0)), Err(Error::Closed)));
    assert!(matches!(one(file.sync_async()), Err(Error::Closed)));
    assert!(matches!(one(cache.sync_async()), Err(Error::Closed)));
}
