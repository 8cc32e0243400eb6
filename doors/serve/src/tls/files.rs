//! Certificates and keys from PEM files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;

use super::{TlsError, TlsWarning, der};

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
    items(path, |path| TlsError::NoCertificate { path })
}

/// All items of a kind in a file; there is at least one.
fn items<T: PemObject>(path: &Path, none: fn(PathBuf) -> TlsError) -> Result<Vec<T>, TlsError> {
    let bytes = read(path)?;
    let items = T::pem_slice_iter(&bytes).collect::<Result<Vec<T>, _>>();
    let items = items.map_err(|cause| not_pem(path, &cause))?;
    match items.is_empty() {
        true => Err(none(path.to_owned())),
        false => Ok(items),
    }
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

/// Authorities that sign clients' certificates. Only certificates that stand in a chain are checked
/// by time, not those it ends at: so nobody but the warnings tells of theirs.
pub(super) fn authorities(path: &Path) -> Result<(RootCertStore, Vec<TlsWarning>, u64), TlsError> {
    let certificates = certificates(path)?;
    let warnings = warnings(path, "authority", &certificates);
    let ends = first_end(&certificates);
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(certificates) {
        roots
            .add(certificate)
            .map_err(|cause| TlsError::BadCertificate {
                path: path.to_owned(),
                number,
                cause: cause.to_string(),
            })?;
    }
    Ok((roots, warnings, ends))
}

/// The first end of a certificate, in seconds since 1970; the last moment that there is where none
/// can be read.
pub(super) fn first_end(chain: &[CertificateDer<'_>]) -> u64 {
    let ends = chain.iter().filter_map(der::lifetime).map(|(_, end)| end);
    ends.min().unwrap_or(u64::MAX)
}

/// Lists of certificates that their authorities have revoked; there is at least one.
pub(super) fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    items(path, |path| TlsError::NoRevocations { path })
}

/// Sees that each certificate is one, and whether it can serve now.
pub(super) fn judge(
    path: &Path,
    chain: &[CertificateDer<'static>],
) -> Result<Vec<TlsWarning>, TlsError> {
    for (number, certificate) in (1..).zip(chain) {
        ParsedCertificate::try_from(certificate).map_err(|cause| TlsError::BadCertificate {
            path: path.to_owned(),
            number,
            cause: cause.to_string(),
        })?;
    }
    Ok(warnings(path, "certificate", chain))
}

fn warnings(path: &Path, what: &str, chain: &[CertificateDer<'static>]) -> Vec<TlsWarning> {
    let now = super::since_1970(SystemTime::now()).as_secs();
    let warnings = (1..).zip(chain).filter_map(|(number, certificate)| {
        let matter = lifetime(der::lifetime(certificate)?, now)?;
        let what = format!("{what} {number} {matter}");
        let path = path.to_owned();
        Some(TlsWarning { path, what })
    });
    warnings.collect()
}

/// The matter with a certificate's time, if any.
pub(crate) fn lifetime((not_before, not_after): (u64, u64), now: u64) -> Option<String> {
    if now > not_after {
        let days = (now - not_after) / DAY;
        return Some(format!(
            "has expired {days} days ago: clients will refuse it"
        ));
    }
    if now < not_before {
        let days = (not_before - now).div_ceil(DAY);
        return Some(format!(
            "is not valid yet, for {days} days: clients will refuse it"
        ));
    }
    let left = not_after - now;
    (left < SOON).then(|| format!("expires in {} days", left / DAY))
}
