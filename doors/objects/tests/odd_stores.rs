//! Stores that are slow or odd in ways that a start has to see: refused then, not in the middle of
//! a guest's writes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::Rig;
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use objects::{Config, Error};

/// A way in which a store is odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    No,
    /// A put that names the version that is there is refused.
    RefusesTheRightVersion,
    /// A list tells versions in other words.
    ListsOtherVersions,
    /// A list begins after so long.
    ListsSlowly(Duration),
}

#[derive(Debug)]
struct Store {
    inner: Arc<InMemory>,
    odd: Odd,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.odd)
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        at: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let names_a_version = matches!(options.mode, PutMode::Update(_));
        if names_a_version && self.odd == Odd::RefusesTheRightVersion {
            return Err(object_store::Error::Precondition {
                path: at.to_string(),
                source: "as if it had changed".into(),
            });
        }
        self.inner.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        at: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(at)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let list = self.inner.list(prefix);
        match self.odd {
            Odd::ListsOtherVersions => list
                .map(|meta| {
                    meta.map(|meta| ObjectMeta {
                        e_tag: meta.e_tag.map(|tag| format!("W/{tag}")),
                        ..meta
                    })
                })
                .boxed(),
            Odd::ListsSlowly(time) => futures_util::stream::once(tokio::time::sleep(time))
                .filter_map(|()| std::future::ready(None))
                .chain(list)
                .boxed(),
            Odd::No | Odd::RefusesTheRightVersion => list,
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn store(inner: &Arc<InMemory>, odd: Odd) -> Arc<dyn ObjectStore> {
    let inner = Arc::clone(inner);
    Arc::new(Store { inner, odd })
}

fn config() -> Config {
    Config {
        size: Some(1 << 20),
        timeout: Duration::from_secs(30),
        lease: Duration::from_millis(600),
        ..Config::new("test")
    }
}

#[test]
fn a_store_that_cannot_be_written_by_versions_is_refused_at_the_start() {
    let rig = Rig::new();
    for (odd, word) in [
        (Odd::RefusesTheRightVersion, "in the version that it has"),
        (Odd::ListsOtherVersions, "tells one version"),
    ] {
        let opened = rig.open(&store(&Arc::default(), odd), &config());
        let Err(error @ Error::Conditional { .. }) = opened else {
            panic!("{odd:?}: {:?}", opened.err());
        };
        assert!(error.to_string().contains(word), "{error}");
    }
    rig.open(&store(&Arc::default(), Odd::No), &config())
        .unwrap();
}

#[test]
fn a_lease_lasts_while_a_large_volume_is_listed() {
    let rig = Rig::new();
    let inner = Arc::default();
    drop(rig.open(&store(&inner, Odd::No), &config()).unwrap());
    let time = Duration::from_millis(3000);
    let slow = store(&inner, Odd::ListsSlowly(time));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| rig.open(&slow, &config()).map(drop));
        // Twice its time, and the same again as a margin: it has run out, were it not renewed.
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(1800));
        let second = rig.open(&store(&inner, Odd::No), &config());
        assert!(
            began.elapsed() < time,
            "the machine is too slow for this test"
        );
        assert!(matches!(second.err(), Some(Error::InUse { .. })));
        first.join().unwrap().unwrap();
    });
}
