//! The rights of clients to a volume, by the certificate that they show.
//!
//! An entry is the common name of a certificate's subject, or the fingerprint of the certificate;
//! `:ro` behind it: for reading only. A volume without a list is everybody's who is let in.

use core::fmt;

/// The clients of a volume; none: everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access(Option<Vec<Entry>>);

/// A client that may open a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    who: Who,
    reads_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// The common name of its certificate's subject.
    Name(String),
    /// SHA-256 of its certificate.
    Fingerprint([u8; 32]),
}

/// The right of a client to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing: it does not see that it is there.
    None,
    /// Read.
    Read,
    /// All.
    Write,
}

/// A certificate that a client has shown, and proven to be its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The common name of its subject; none: it has none, or several.
    pub name: Option<String>,
    /// SHA-256 of it.
    pub fingerprint: [u8; 32],
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        f.write_str("sha256:")?;
        let mut bytes = self.fingerprint.iter();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The mark of a fingerprint.
const FINGERPRINT: &str = "sha256:";
/// The mark of a client that may only read.
const READS_ONLY: &str = ":ro";

impl Access {
    /// Reads entries.
    ///
    /// # Errors
    /// The fault of the first that is none, and what would be right.
    pub fn read<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let entries: Vec<Entry> = entries.map(entry).collect::<Result<_, _>>()?;
        match entries.is_empty() {
            true => Err("name a client, as in laptop, or leave `clients` away: then each that is let in may open it".to_owned()),
            false => Ok(Self(Some(entries))),
        }
    }

    /// True if it is for some clients alone.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// The most that entries for such a client allow.
    #[must_use]
    pub fn right(&self, shown: Option<&Shown>) -> Right {
        let Some(entries) = &self.0 else {
            return Right::Write;
        };
        let fits = |entry: &&Entry| {
            shown.is_some_and(|shown| match &entry.who {
                Who::Name(name) => shown.name.as_ref() == Some(name),
                Who::Fingerprint(print) => shown.fingerprint == *print,
            })
        };
        let rights = entries
            .iter()
            .filter(fits)
            .map(|entry| match entry.reads_only {
                true => Right::Read,
                false => Right::Write,
            });
        rights.max().unwrap_or(Right::None)
    }
}

fn entry(text: &str) -> Result<Entry, String> {
    let (who, reads_only) = match text.trim().strip_suffix(READS_ONLY) {
        Some(who) => (who.trim_end(), true),
        None => (text.trim(), false),
    };
    let who = match who.strip_prefix(FINGERPRINT) {
        Some(digits) => Who::Fingerprint(fingerprint(digits).ok_or_else(|| {
            format!(
                "`{who}` is no fingerprint: write sha256: and 64 hexadecimal digits, as `openssl x509 -noout -fingerprint \
                 -sha256 -in CERTIFICATE` prints them"
            )
        })?),
        None if who.is_empty() || who.contains(char::is_control) => {
            return Err("a client is the common name of its certificate, as in laptop, or sha256:FINGERPRINT; `:ro` behind it: for reading only".to_owned());
        }
        None => Who::Name(who.to_owned()),
    };
    Ok(Entry { who, reads_only })
}

/// Hexadecimal digits, with colons between them or without.
fn fingerprint(digits: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> = digits
        .chars()
        .filter(|digit| *digit != ':')
        .map(|digit| digit.to_digit(16))
        .collect::<Option<_>>()?;
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    <[u8; 32]>::try_from(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: Option<&str>, first: u8) -> Shown {
        let mut fingerprint = [0xab; 32];
        fingerprint[0] = first;
        Shown {
            name: name.map(str::to_owned),
            fingerprint,
        }
    }

    #[test]
    fn the_most_that_an_entry_allows_is_allowed_and_no_entry_is_nothing() {
        let print = shown(None, 7).to_string();
        let colons = print.trim_start_matches("sha256:").to_uppercase();
        let colons: Vec<&str> = (0..32).map(|at| &colons[2 * at..2 * at + 2]).collect();
        let colons = format!("sha256:{}:ro", colons.join(":"));
        let read = |entries: &[&str]| Access::read(entries.iter().copied()).unwrap();
        let (laptop, other) = (shown(Some("laptop"), 1), shown(Some("Laptop"), 2));
        let (bare, nobody) = (shown(None, 7), None);
        for (entries, wanted) in [
            (&["laptop"][..], [Right::Write, Right::None, Right::None]),
            (&["laptop:ro"], [Right::Read, Right::None, Right::None]),
            (
                &["laptop:ro", "laptop"],
                [Right::Write, Right::None, Right::None],
            ),
            (
                &[" laptop ", &print],
                [Right::Write, Right::None, Right::Write],
            ),
            (
                &["Laptop:ro", &colons],
                [Right::None, Right::Read, Right::Read],
            ),
        ] {
            let access = read(entries);
            assert!(access.is_limited());
            for (client, wanted) in [&laptop, &other, &bare].into_iter().zip(wanted) {
                assert_eq!(access.right(Some(client)), wanted, "{entries:?} {client}");
            }
            assert_eq!(access.right(nobody), Right::None, "{entries:?}");
        }
        assert_eq!(Access::default().right(nobody), Right::Write);
    }

    #[test]
    fn what_is_no_client_is_refused_with_what_would_be_one() {
        for (entries, told) in [
            (&[][..], "name a client"),
            (&["laptop", ""], "common name"),
            (&[":ro"], "common name"),
            (&["a\u{1b}"], "common name"),
            (&["sha256:ab"], "64 hexadecimal"),
            (&["sha256:zz"], "64 hexadecimal"),
        ] {
            let refused = Access::read(entries.iter().copied()).unwrap_err();
            assert!(refused.contains(told), "{entries:?}: {refused}");
        }
    }
}
