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
    // An error: the process has one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
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
    if let Some(profile) = crate::profile::Profile::of_process() {
        builder = builder.with_credentials(Arc::new(profile));
    }
    let guard = Arc::new(Guard::default());
    builder = builder.with_http_connector(guarded::Connector(Arc::clone(&guard)));
    let store = builder.build().map_err(|source| Error::Store {
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
        settle: os::sync_file_system,
    })
}

/// Each request as it is sent, the client library's own next tries among them.
#[cfg(feature = "s3")]
mod guarded {
    use std::pin::Pin;
    use std::sync::Arc;

    use object_store::ClientOptions;
    use object_store::client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpService, ReqwestConnector,
    };

    use crate::clock::Guard;
    use crate::layout;

    #[derive(Debug)]
    pub(super) struct Connector(pub(super) Arc<Guard>);

    impl HttpConnector for Connector {
        fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
            Ok(HttpClient::new(Guarded {
                guard: Arc::clone(&self.0),
                client: ReqwestConnector::default().connect(options)?,
            }))
        }
    }

    #[derive(Debug)]
    pub(super) struct Guarded {
        pub(super) guard: Arc<Guard>,
        pub(super) client: HttpClient,
    }

    /// Nothing was sent: another may have the volume.
    #[derive(Debug, thiserror::Error)]
    #[error("the lease has run out; it was not sent")]
    struct RunOut;

    type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

    impl HttpService for Guarded {
        fn call<'life, 'answer>(&'life self, request: HttpRequest) -> Answer<'answer>
        where
            'life: 'answer,
            Self: 'answer,
        {
            Box::pin(async move {
                let name = request.uri().path().rsplit('/').next();
                let is_object = name.and_then(layout::object_of).is_some();
                if is_object && request.method() == "PUT" && self.guard.left().is_none() {
                    // Not an error that is tried again.
                    return Err(HttpError::new(HttpErrorKind::Unknown, RunOut));
                }
                self.client.execute(request).await
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "s3")]
    #[test]
    fn an_object_is_not_sent_once_the_lease_has_run_out() {
        use object_store::client::{
            HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
        };
        use std::pin::Pin;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::time::Duration;

        #[derive(Debug, Default)]
        struct Store(Arc<AtomicUsize>);

        impl HttpService for Store {
            fn call<'life, 'answer>(
                &'life self,
                _: HttpRequest,
            ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'answer>>
            where
                'life: 'answer,
                Self: 'answer,
            {
                self.0.fetch_add(1, Ordering::SeqCst);
                let error = std::io::Error::other("it has nothing to say");
                let error = HttpError::new(HttpErrorKind::Unknown, error);
                Box::pin(async move { Err(error) })
            }
        }

        let (guard, sent) = (Arc::new(Guard::default()), Arc::default());
        let service = guarded::Guarded {
            guard: Arc::clone(&guard),
            client: HttpClient::new(Store(Arc::clone(&sent))),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let count = |method: &str, name: &str| {
            let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = format!("http://store/bucket/prefix/{name}")
                .parse()
                .unwrap();
            let before = sent.load(Ordering::SeqCst);
            let _ = runtime.block_on(service.call(request));
            sent.load(Ordering::SeqCst) - before
        };
        let object = crate::layout::name_of(3);
        guard.allow(guard.now(), Duration::from_secs(30));
        assert_eq!(count("PUT", &object), 1);
        guard.forbid();
        assert_eq!(count("PUT", &object), 0);
        assert_eq!(count("GET", &object), 1);
        assert_eq!(count("PUT", crate::layout::LEASE), 1);
    }

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
