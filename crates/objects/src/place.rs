//! Where a volume is kept: what `dir:PATH`, `mem:` and `s3://BUCKET/PREFIX` stand for.
//!
//! S3 takes its credentials, region and endpoint from the environment, as `AmazonS3Builder::from_env` has them:
//! AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT, AWS_ALLOW_HTTP, and so on.
//!
//! Retries: the client library tries again only for a short while. What is to be done about a store that stays away
//! is decided by the cache's error policy, which must hear of it.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use os::OwnPaths;

use crate::error::Error;
use crate::{Config, local};

/// A store and where in it.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// A local directory, with a lock of the system's.
    pub(crate) directory: Option<PathBuf>,
    /// What of it was made just now.
    pub(crate) made: OwnPaths,
    /// Makes what is in the directory durable.
    pub(crate) settle: fn(&FilePath) -> std::io::Result<()>,
}

impl Place {
    /// The place of a configuration.
    pub(crate) fn of(config: &Config) -> Result<Self, Error> {
        let url = config.url.as_str();
        if let Some(path) = url.strip_prefix("dir:").filter(|path| !path.is_empty()) {
            let path = FilePath::new(path);
            let mut made = OwnPaths::default();
            let creates = config.size.is_some() && !config.read_only;
            let (store, root) = local::open(path, creates.then_some(&mut made))?;
            return Ok(Self {
                store: Arc::new(store),
                prefix: Path::default(),
                directory: Some(root),
                made,
                settle: os::sync_file_system,
            });
        }
        if url == "mem:" {
            return Ok(Self {
                store: Arc::new(InMemory::new()),
                prefix: Path::default(),
                directory: None,
                made: OwnPaths::default(),
                settle: os::sync_file_system,
            });
        }
        if let Some(rest) = url.strip_prefix("s3://") {
            return s3(config, rest);
        }
        Err(wrong(config))
    }
}

fn wrong(config: &Config) -> Error {
    Error::Url {
        url: config.url.clone(),
    }
}

#[cfg(not(feature = "s3"))]
fn s3(config: &Config, _rest: &str) -> Result<Place, Error> {
    Err(Error::NoS3 {
        url: config.url.clone(),
    })
}

#[cfg(feature = "s3")]
fn s3(config: &Config, rest: &str) -> Result<Place, Error> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};
    use std::time::Duration;

    /// Times that the client library tries a call again.
    const RETRIES: usize = 3;

    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(wrong(config));
    }
    let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|_| wrong(config))?;
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.,
        },
        max_retries: RETRIES,
        retry_timeout: config.timeout / 2,
    };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry);
    // One try gets half of the whole bound.
    let once = format!("{} ms", (config.timeout / 2).as_millis());
    for (key, value) in [
        (ClientConfigKey::Timeout, once.as_str()),
        (ClientConfigKey::ConnectTimeout, "5 seconds"),
    ] {
        let key = AmazonS3ConfigKey::Client(key);
        if builder.get_config_value(&key).is_none() {
            builder = builder.with_config(key, value);
        }
    }
    let store = builder.build().map_err(|source| Error::Store {
        place: config.url.clone(),
        what: "set up the client",
        source: Box::new(source),
    })?;
    Ok(Place {
        store: Arc::new(store),
        prefix,
        directory: None,
        made: OwnPaths::default(),
        settle: os::sync_file_system,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_is_refused() {
        for url in ["", "dir:", "mem:x", "http://x", "/path"] {
            let refused = Place::of(&Config::new(url));
            assert!(matches!(refused, Err(Error::Url { .. })), "{url}");
        }
        let missing = Place::of(&Config::new("dir:/nowhere/at/all"));
        assert!(matches!(missing, Err(Error::System { .. })));
        let s3 = Place::of(&Config::new("s3:///prefix"));
        if cfg!(feature = "s3") {
            assert!(matches!(s3, Err(Error::Url { .. })));
        } else {
            assert!(matches!(s3, Err(Error::NoS3 { .. })));
        }
    }
}
