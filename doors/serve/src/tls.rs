//! Encrypted connections: certificates from files, and the step from a plain stream to an encrypted
//! one.
//!
//! The handshake of NBD asks for encryption with STARTTLS (`nbd::haggle`); what follows is TLS 1.2
//! or 1.3 with the server's certificate. With authorities for clients, a client without a
//! certificate of one of them is not let in.
//!
//! Vocabulary: *chain*, the server's certificate followed by those that lead to an authority that
//! clients know; *authority*, a certificate whose key signs others'.
//!
//! Invariants
//!   1. A certificate that cannot be used is found when the server starts, not by its first client.
//!   2. Files are read whole into bounded memory, and the key is not kept apart from rustls.
//!   3. The end of a connection without TLS's goodbye is an end like any other: requests of NBD
//!      carry their lengths, and clients are known to close so after they have said goodbye to NBD.
//!
//! Source: the specification of NBD, "TLS support"; RFC 8446. Provider of the cryptography:
//! ring (ADR 5), which signs with RSA of 2048, 3072 and 4096 bits, on P-256 and P-384, and with
//! Ed25519.

mod der;
mod error;
mod files;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use error::{TlsError, TlsWarning};
pub(crate) use files::lifetime;

use crate::access::Shown;
use crate::config::TlsConfig;

/// Records that were encrypted and not sent yet, bytes of plain text.
const UNSENT_MAX: usize = 32 << 10;

/// The time of day. A clock that stands before 1970 shows its first second: certificates are not
/// valid yet, and nothing panics.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(since_1970(SystemTime::now()))
    }
}

fn since_1970(at: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Turns plain connections into encrypted ones.
#[derive(Clone)]
pub struct Acceptor {
    inner: TlsAcceptor,
    /// Judges clients' certificates; none: nobody has to show one.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    warnings: Arc<[TlsWarning]>,
    ends: Arc<[(&'static str, u64)]>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Reads what `config` names, and sees that it fits together.
    ///
    /// # Errors
    /// `TlsError`, which names the file and what is wrong with it.
    pub fn open(config: &TlsConfig) -> Result<Self, TlsError> {
        let chain = files::certificates(&config.certificate)?;
        let key = files::key(&config.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut warnings = files::judge(&config.certificate, &chain)?;
        let mut ends = vec![("certificate", files::first_end(&chain))];
        let verifier = match &config.clients {
            None => None,
            Some(path) => {
                let (roots, found, end) = files::authorities(path)?;
                warnings.extend(found);
                ends.push(("clients", end));
                let builder = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots),
                    Arc::clone(&provider),
                );
                let (builder, path) = match &config.revoked {
                    None => (builder, path),
                    // Authorities that have revoked nothing have no list.
                    Some(path) => {
                        let lists = files::revoked(path)?;
                        let builder = builder.with_crls(lists);
                        (builder.allow_unknown_revocation_status(), path)
                    }
                };
                Some(builder.build().map_err(|cause| TlsError::Authorities {
                    path: path.clone(),
                    cause: cause.to_string(),
                })?)
            }
        };
        let kind = chain.first().and_then(der::kind_of_key);
        let kind = kind.filter(|kind| !der::KEYS_TAKEN.contains(&kind.as_str()));
        if provider
            .key_provider
            .load_private_key(key.clone_key())
            .is_err()
            && let Some(kind) = kind
        {
            let key = config.key.clone();
            return Err(TlsError::KindOfKey { key, kind });
        }
        let builder = ServerConfig::builder_with_details(provider, Arc::new(Clock))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?;
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        };
        let server = builder
            .with_single_cert(chain, key)
            .map_err(|cause| match cause {
                rustls::Error::InconsistentKeys(_) => TlsError::Mismatch {
                    certificate: config.certificate.clone(),
                    key: config.key.clone(),
                },
                cause => TlsError::Unusable {
                    certificate: config.certificate.clone(),
                    key: config.key.clone(),
                    cause: cause.to_string(),
                },
            })?;
        Ok(Self {
            inner: TlsAcceptor::from(Arc::new(server)),
            verifier,
            warnings: warnings.into(),
            ends: ends.into(),
        })
    }

    /// The first end of a certificate of each file, by the key that names the file, in seconds
    /// since 1970.
    pub(crate) fn ends(&self) -> &[(&'static str, u64)] {
        &self.ends
    }

    /// True if a client that was let in with this certificate, and those behind it, still would be.
    pub(crate) fn still_takes(&self, chain: &[CertificateDer<'_>]) -> bool {
        match (&self.verifier, chain) {
            (None, _) => true,
            (Some(_), []) => false,
            (Some(verifier), [own, behind @ ..]) => verifier
                .verify_client_cert(own, behind, since_1970(SystemTime::now()))
                .is_ok(),
        }
    }

    /// The things that an operator should know, though the server can start.
    #[must_use]
    pub fn warnings(&self) -> &[TlsWarning] {
        &self.warnings
    }

    /// Goes on encrypted on a stream on which STARTTLS was acknowledged. The time that it may take
    /// is the caller's to bound.
    ///
    /// # Errors
    /// Those of the stream; of kind `InvalidData` those of TLS, as a client's certificate that is
    /// missing, expired, or of a foreign authority.
    pub async fn accept<S>(&self, stream: S) -> io::Result<Encrypted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accept = self
            .inner
            .accept_with(stream, |session| session.set_buffer_limit(Some(UNSENT_MAX)));
        accept.await.map(Encrypted).map_err(in_words)
    }
}

/// The error with words in place of a name that is only in the source of rustls:
/// `Other(OtherError(MaximumPathDepthExceeded))` is `maximum path depth exceeded`.
fn in_words(error: io::Error) -> io::Error {
    let text = error.to_string();
    let (before, last) = text.rsplit_once(": ").unwrap_or(("", &text));
    let name = last.rsplit('(').next().unwrap_or(last);
    let name = name.trim_end_matches(')');
    if !name.starts_with(char::is_uppercase) || !name.chars().all(char::is_alphanumeric) {
        return error;
    }
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    let between = if before.is_empty() { "" } else { ": " };
    io::Error::new(error.kind(), format!("{before}{between}{words}"))
}

/// An encrypted stream.
#[derive(Debug)]
pub struct Encrypted<S>(TlsStream<S>);

impl<S> Encrypted<S> {
    /// The certificate that the client has shown, and those behind it, as they came.
    pub(crate) fn certificates(&self) -> Option<(Shown, Vec<CertificateDer<'static>>)> {
        let chain = self.0.get_ref().1.peer_certificates()?;
        Some((der::shown(chain.first()?), chain.to_vec()))
    }

    /// The stream that the encrypted bytes go over.
    pub(crate) fn below(&self) -> &S {
        self.0.get_ref().0
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(context, into) {
            // Closed without a goodbye.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
