//! Where a volume is kept: what `dir:PATH`, `mem:` and `s3://BUCKET/PREFIX` stand for.
//!
//! S3 takes its credentials, region and endpoint from the environment, as
//! `AmazonS3Builder::from_env` has them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
//! AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT, AWS_ALLOW_HTTP, and so on; or from a profile
//! (`profile.rs`).
//!
//! Retries: the client library tries again only for a short while. The cache's error policy decides
//! what is done about a store that stays away, so it must hear of it.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use os::OwnPaths;

use crate::clock::Guard;
use crate::error::Error;
use crate::{Config, local};

/// A store and where in it.
pub(crate) struct Location {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// A local directory, with a lock of the system's.
    pub(crate) directory: Option<PathBuf>,
    /// The paths made just now.
    pub(crate) made: OwnPaths,
    /// The guard that says if puts may be sent.
    pub(crate) guard: Arc<Guard>,
    /// Its list is its own word: of an object that it says is empty, no more has to be asked.
    pub(crate) lists_truly: bool,
    /// Makes what is in the directory durable.
    pub(crate) settle: fn(&FilePath) -> std::io::Result<()>,
}

impl Location {
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
                guard: Arc::default(),
                lists_truly: true,
                settle: os::sync_file_system,
            });
        }
        if url == "mem:" {
            return Ok(Self {
                store: Arc::new(InMemory::new()),
                prefix: Path::default(),
                directory: None,
                made: OwnPaths::default(),
                guard: Arc::default(),
                lists_truly: true,
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
fn s3(config: &Config, _rest: &str) -> Result<Location, Error> {
    Err(Error::NoS3 {
        url: config.url.clone(),
    })
}

#[cfg(feature = "s3")]
fn s3(config: &Config, rest: &str) -> Result<Location, Error> {
    use object_store::aws::AmazonS3Builder;
    use object_store::client::ReqwestConnector;

    // An error: the process has one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let connector = ReqwestConnector::default();
    s3_through(config, rest, AmazonS3Builder::from_env(), connector)
}

/// As `s3`, by a builder and a way to send requests of the caller's.
#[cfg(feature = "s3")]
pub(crate) fn s3_through(
    config: &Config,
    rest: &str,
    builder: object_store::aws::AmazonS3Builder,
    connector: impl object_store::client::HttpConnector,
) -> Result<Location, Error> {
    use object_store::aws::AmazonS3ConfigKey;
    use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};
    use std::time::Duration;

    use crate::wire::Connector;

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
    let mut builder = builder.with_bucket_name(bucket).with_retry(retry);
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
    if let Some(profile) = crate::profile::Profile::of_process() {
        builder = builder.with_credentials(Arc::new(profile));
    }
    let guard = Arc::new(Guard::default());
    // Buckets of this kind list in no order.
    let is_express = builder.get_config_value(&AmazonS3ConfigKey::S3Express);
    let is_express = is_express.is_some_and(|says| says == "true");
    let connector = Connector::new(Arc::clone(&guard), connector, !is_express);
    let store = builder
        .with_http_connector(connector)
        .build()
        .map_err(|source| Error::Store {
            place: config.url.clone(),
            what: "set up the client",
            source: Box::new(source),
        })?;
    Ok(Location {
        store: Arc::new(store),
        prefix,
        directory: None,
        made: OwnPaths::default(),
        guard,
        lists_truly: false,
        settle: os::sync_file_system,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_is_refused() {
        for url in ["", "dir:", "mem:x", "http://x", "/path"] {
            let refused = Location::of(&Config::new(url));
            assert!(matches!(refused, Err(Error::Url { .. })), "{url}");
        }
        let missing = Location::of(&Config::new("dir:/nowhere/at/all"));
        assert!(matches!(missing, Err(Error::System { .. })));
        let s3 = Location::of(&Config::new("s3:///prefix"));
        if cfg!(feature = "s3") {
            assert!(matches!(s3, Err(Error::Url { .. })));
        } else {
            assert!(matches!(s3, Err(Error::NoS3 { .. })));
        }
    }
}
