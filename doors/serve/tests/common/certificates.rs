//! Certificates of a test: right ones, expired ones, strangers'.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

pub(crate) const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;
pub(crate) const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;
/// Years from and to which a certificate is valid.
pub(crate) const NOW: (i32, i32) = (2020, 2100);
pub(crate) const PAST: (i32, i32) = (2001, 2002);
pub(crate) const FUTURE: (i32, i32) = (2090, 2100);

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate that signs others; with basic constraints, which QEMU insists on.
pub(crate) fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A certificate for `localhost`.
pub(crate) fn identity(
    issuer: &Authority,
    usage: ExtendedKeyUsagePurpose,
    years: (i32, i32),
) -> Identity {
    identity_with(issuer, usage, |params| {
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
    })
}

/// The same, changed before it is signed.
pub(crate) fn identity_with(
    issuer: &Authority,
    usage: ExtendedKeyUsagePurpose,
    change: impl FnOnce(&mut CertificateParams),
) -> Identity {
    let mut params =
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    Identity {
        certificate: params.signed_by(&key, issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

/// A client that trusts an authority, and shows a certificate of its own if it has one.
pub(crate) fn client(trusted: &Authority, identity: Option<&Identity>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}
