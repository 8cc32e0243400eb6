//! Certificates and keys from PEM files.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};

use super::{TlsError, TlsWarning};

/// The largest file of certificates, bytes: some hundred of them.
const FILE_MAX: u64 = 1 << 20;
/// A certificate that ends within this time is warned of, seconds.
const SOON: u64 = 14 * DAY;
const DAY: u64 = 24 * 60 * 60;

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |cause| TlsError::Read {
        path: path.to_owned(),
        cause,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(TlsError::TooLarge {
            path: path.to_owned(),
            limit: FILE_MAX,
        });
    }
    Ok(bytes)
}

fn not_pem(path: &Path, cause: &PemError) -> TlsError {
    TlsError::NotPem {
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

/// All certificates of a file; there is at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|cause| not_pem(path, &cause))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(certificates)
}

/// The first private key of a file.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(path)?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(PemError::NoItemsFound) if is_encrypted(&bytes) => Err(TlsError::EncryptedKey {
            path: path.to_owned(),
        }),
        Err(PemError::NoItemsFound) => Err(TlsError::NoKey {
            path: path.to_owned(),
        }),
        // The old form: a section of its usual name whose first lines are no base64.
        Err(_) if is_encrypted(&bytes) => Err(TlsError::EncryptedKey {
            path: path.to_owned(),
        }),
        Err(cause) => Err(not_pem(path, &cause)),
    }
}

/// True if the file has an encrypted key, in one of the two forms that OpenSSL writes.
fn is_encrypted(bytes: &[u8]) -> bool {
    [
        &b"-----BEGIN ENCRYPTED PRIVATE KEY-----"[..],
        b"Proc-Type: 4,ENCRYPTED",
    ]
    .iter()
    .any(|mark| bytes.windows(mark.len()).any(|window| window == *mark))
}

/// Authorities that sign clients' certificates, and what is the matter with them.
pub(super) fn authorities(path: &Path) -> Result<(RootCertStore, Vec<TlsWarning>), TlsError> {
    let certificates = certificates(path)?;
    let mut roots = RootCertStore::empty();
    let mut warnings = Vec::new();
    for (number, certificate) in (1..).zip(certificates) {
        // Only certificates that stand in a chain are checked by time, not those it ends at: so
        // nobody else warns.
        let time = lifetime(&certificate, &rustls::crypto::ring::default_provider());
        warnings.extend(time.map(|what| TlsWarning {
            path: path.to_owned(),
            what: format!("authority {number} {what}"),
        }));
        roots
            .add(certificate)
            .map_err(|cause| TlsError::BadCertificate {
                path: path.to_owned(),
                number,
                cause: cause.to_string(),
            })?;
    }
    Ok((roots, warnings))
}

/// Sees that each certificate is one, and whether the first can serve now.
pub(super) fn judge(
    path: &Path,
    chain: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Vec<TlsWarning>, TlsError> {
    for (number, certificate) in (1..).zip(chain) {
        ParsedCertificate::try_from(certificate).map_err(|cause| TlsError::BadCertificate {
            path: path.to_owned(),
            number,
            cause: cause.to_string(),
        })?;
    }
    let warnings = (1..).zip(chain).filter_map(|(number, certificate)| {
        lifetime(certificate, provider).map(|what| TlsWarning {
            path: path.to_owned(),
            what: format!("certificate {number} {what}"),
        })
    });
    Ok(warnings.collect())
}

/// The matter with a certificate's time, if any: as a verifier sees it now, and as it will in a
/// while.
fn lifetime(certificate: &CertificateDer<'_>, provider: &CryptoProvider) -> Option<String> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let now = super::since_1970(SystemTime::now()).as_secs();
    let check = |at: u64| {
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        let algorithms = provider.signature_verification_algorithms.all;
        // Nobody is trusted, so this always fails; a verifier looks at the time before it looks for
        // an authority.
        match verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &RootCertStore::empty(),
            &[],
            at,
            algorithms,
        ) {
            Err(rustls::Error::InvalidCertificate(cause)) => Some(cause),
            _ => None,
        }
    };
    match check(now) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => {
            let days = now.saturating_sub(not_after.as_secs()) / DAY;
            Some(format!(
                "has expired {days} days ago: clients will refuse it"
            ))
        }
        Some(CertificateError::NotValidYetContext { not_before, .. }) => {
            let days = not_before.as_secs().saturating_sub(now).div_ceil(DAY);
            Some(format!(
                "is not valid yet, for {days} days: clients will refuse it"
            ))
        }
        _ => match check(now + SOON) {
            Some(CertificateError::ExpiredContext { not_after, .. }) => {
                let days = not_after.as_secs().saturating_sub(now) / DAY;
                Some(format!("expires in {days} days"))
            }
            _ => None,
        },
    }
}
