//! The faults of certificates, and the files they are in.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::config::show_size;
use crate::refusal::Refused;

/// Why connections cannot be encrypted as was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {}", .path.display(), Refused(cause))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A file is too large to be one of certificates.
    #[error("{} is larger than {}: it is no file of certificates", .path.display(), show_size(*.limit))]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// The most, bytes.
        limit: u64,
    },
    /// A file is not PEM.
    #[error("{} is not PEM: {cause}", .path.display())]
    NotPem {
        /// Which.
        path: PathBuf,
        /// Its fault.
        cause: String,
    },
    /// There is no certificate in a file.
    #[error("there is no certificate in {} (no section -----BEGIN CERTIFICATE-----)", .path.display())]
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// There is no private key in a file.
    #[error("there is no private key in {} (no section -----BEGIN PRIVATE KEY-----, nor one of RSA or EC)", .path.display())]
    NoKey {
        /// Which.
        path: PathBuf,
    },
    /// The private key is encrypted, and nobody is there to be asked for its password.
    #[error("the private key in {} is encrypted; decrypt it: openssl pkey -in KEY -out PLAIN", .path.display())]
    EncryptedKey {
        /// Its file.
        path: PathBuf,
    },
    /// There is no list of revoked certificates in a file.
    #[error("there is no list of revoked certificates in {} (no section -----BEGIN X509 CRL-----)", .path.display())]
    NoRevocations {
        /// Which.
        path: PathBuf,
    },
    /// The key is of a kind that cannot be used.
    #[error(
        "the private key in {} is {kind}, which cannot be used: RSA of 2048, 3072 or 4096 bits, EC on P-256 or P-384, and \
         Ed25519 can, as from `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY`", .key.display()
    )]
    KindOfKey {
        /// Its file.
        key: PathBuf,
        /// Its kind, for people.
        kind: String,
    },
    /// A certificate is none.
    #[error("certificate {number} in {} cannot be used: {cause}", .path.display())]
    BadCertificate {
        /// Its file.
        path: PathBuf,
        /// Which of the file, from 1.
        number: usize,
        /// Its fault.
        cause: String,
    },
    /// The key is another certificate's.
    #[error("the private key in {} is not that of the first certificate in {}", .key.display(), .certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Certificate and key cannot be used.
    #[error("the certificate in {} and the private key in {} cannot be used: {cause}", .certificate.display(), .key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        cause: String,
    },
    /// The authorities for clients cannot be used.
    #[error("the authorities for clients in {} cannot be used: {cause}", .path.display())]
    Authorities {
        /// Their file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// TLS itself cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// A warning about a certificate for the operator, though a server can start with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsWarning {
    /// The file it is in.
    pub path: PathBuf,
    /// The matter with it.
    pub what: String,
}

impl fmt::Display for TlsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}
