//! The content of a certificate, as far as the server needs it: its subject's name, its time, its
//! key.
//!
//! Of certificates whose signatures were checked by rustls, or that the operator has named: a part
//! that cannot be read here is `None`, and nothing is let in by it.
//!
//! Source: RFC 5280, 4.1; ITU-T X.690 (DER); RFC 3279, RFC 5480 (kinds of keys).

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;

use crate::access::Shown;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const INTEGER: u8 = 0x02;
/// The version of a certificate: its first field, or left away.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
/// UTF8String, PrintableString, IA5String: all of them are UTF-8.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// id-at-commonName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// rsaEncryption, id-ecPublicKey.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// Other kinds of keys, and curves of EC.
const KINDS: [(&[u8], &str); 6] = [
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], "P-256"),
    (&[0x2b, 0x81, 4, 0, 0x22], "P-384"),
    (&[0x2b, 0x81, 4, 0, 0x23], "P-521"),
    (&[0x2b, 0x81, 4, 0, 0x0a], "secp256k1"),
    (&[0x2b, 0x65, 0x70], "Ed25519"),
    (&[0x2b, 0x65, 0x71], "Ed448"),
];
/// Kinds of keys that ring signs with, as `kind_of_key` names them.
pub(super) const KEYS_TAKEN: [&str; 6] = [
    "RSA of 2048 bits",
    "RSA of 3072 bits",
    "RSA of 4096 bits",
    "EC on P-256",
    "EC on P-384",
    "Ed25519",
];

/// The first value: its tag, its content, and what is behind it.
fn value(from: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = from.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let len = bytes
                .iter()
                .fold(0, |len, byte| len << 8 | usize::from(*byte));
            (len, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// The values of a sequence, one behind the other, up to the first that is none.
fn values(of: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = of;
    core::iter::from_fn(move || {
        let (tag, content, behind) = value(rest)?;
        rest = behind;
        Some((tag, content))
    })
}

/// A field of a certificate: 3 its time, 4 its subject, 5 its key.
fn field<'a>(certificate: &'a CertificateDer<'_>, number: usize) -> Option<&'a [u8]> {
    let (_, whole, _) = value(certificate)?;
    let (_, signed, _) = value(whole)?;
    let mut fields = values(signed).filter(|(tag, _)| *tag != VERSION);
    let (tag, content) = fields.nth(number)?;
    (tag == SEQUENCE).then_some(content)
}

/// The certificate as rights name it.
pub(super) fn shown(certificate: &CertificateDer<'_>) -> Shown {
    let subject = field(certificate, 4).unwrap_or_default();
    let parts = values(subject).filter(|(tag, _)| *tag == SET);
    let mut names = parts
        .flat_map(|(_, set)| values(set))
        .filter_map(|(_, part)| {
            let (tag, name, rest) = value(part)?;
            (tag == OBJECT && name == COMMON_NAME).then_some(rest)
        });
    // With several it would be chance which one counts.
    let name = match (names.next(), names.next()) {
        (Some(name), None) => text(name),
        _ => None,
    };
    let hash = match TLS13_AES_128_GCM_SHA256 {
        rustls::SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider.hash(certificate),
        rustls::SupportedCipherSuite::Tls12(suite) => suite.common.hash_provider.hash(certificate),
    };
    let fingerprint = hash.as_ref().try_into().unwrap_or_default();
    Shown { name, fingerprint }
}

fn text(from: &[u8]) -> Option<String> {
    let (tag, text, _) = value(from)?;
    let text = core::str::from_utf8(text).ok()?;
    (TEXTS.contains(&tag) && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// The first and the last second at which it is valid, since 1970; times before that are 1970.
pub(super) fn lifetime(certificate: &CertificateDer<'_>) -> Option<(u64, u64)> {
    let mut times = values(field(certificate, 3)?).map(|(tag, time)| seconds(tag, time));
    Some((times.next()??, times.next()??))
}

/// Seconds since 1970 of `YYMMDDHHMMSSZ`, or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, time: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let (century, digits) = match tag {
        UTC_TIME => (None, digits),
        _ => (
            Some(digits.get(..2)?.parse::<u64>().ok()?),
            digits.get(2..)?,
        ),
    };
    let part = |at: usize| digits.get(2 * at..2 * at + 2)?.parse::<u64>().ok();
    let (year, month, day) = (part(0)?, part(1)?, part(2)?);
    let century = century.unwrap_or(if year < 50 { 20 } else { 19 });
    let second = (part(3)? * 60 + part(4)?) * 60 + part(5)?;
    // Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil.
    let year = century * 100 + year - u64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + of_year;
    Some(days.saturating_sub(719_468) * 86_400 + second)
}

/// The kind of its key, for people: `RSA of 2432 bits`, `EC on P-521`.
pub(super) fn kind_of_key(certificate: &CertificateDer<'_>) -> Option<String> {
    let mut parts = values(field(certificate, 5)?);
    let ((_, algorithm), (_, key)) = (parts.next()?, parts.next()?);
    let mut algorithm = values(algorithm).map(|(_, name)| name);
    let name = algorithm.next()?;
    let known = |name: &[u8]| KINDS.iter().find(|(known, _)| *known == name);
    if name == RSA {
        // A string of bits, none of them unused: modulus and exponent.
        let (_, numbers, _) = value(key.get(1..)?)?;
        let (tag, modulus, _) = value(numbers)?;
        let leading = modulus.iter().position(|byte| *byte != 0)?;
        let bits = 8 * (modulus.len() - leading) - modulus[leading].leading_zeros() as usize;
        return (tag == INTEGER).then(|| format!("RSA of {bits} bits"));
    }
    if name == EC {
        let curve = known(algorithm.next()?).map_or("another curve", |(_, curve)| *curve);
        return Some(format!("EC on {curve}"));
    }
    known(name).map(|(_, kind)| (*kind).to_owned())
}
