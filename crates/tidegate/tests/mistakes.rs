//! What callers get wrong is told in their words: bytes, and the names of this library.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::path::PathBuf;

use tidegate::{Cache, Error, File, OpenOptions};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-mistakes-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self, cache: &Cache) -> File {
        let options = OpenOptions::new().create(true);
        cache.open(self.0.join("data"), options).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn told<T>(answer: Result<T, Error>) -> String {
    answer.err().unwrap().to_string()
}

#[test]
fn who_goes_beyond_the_end_hears_where_it_is() {
    let dir = Dir::new("end");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = dir.open(&cache);
    let text = "the file ends at byte 0; byte 4096 is beyond it";
    assert_eq!(told(file.pin(0)), text);
    let text = "byte 18446744073709551615 is beyond the largest file (16 TiB)";
    assert_eq!(told(file.write_at(&[1; 8], u64::MAX - 3)), text);
    let region = cache.spill(10_000).unwrap();
    let text = "the region ends at byte 10000; byte 10004 is beyond it";
    assert_eq!(told(region.write_at(&[1; 8], 9996)), text);
    assert_eq!(told(region.read_at(&mut [0; 8], 9996)), text);
    let text = "the region ends at byte 10000; byte 12288 is beyond it";
    assert_eq!(told(region.discard(4096, 8192)), text);
    let text = told(region.discard(1, 10));
    assert!(
        text.starts_with("bytes 1 to 11 are not whole pages"),
        "{text}"
    );
    assert!(matches!(region.touch(0, 10), Err(Error::PartOfPage { .. })));
    region.discard(4096, 10_000 - 4096).unwrap();
}
