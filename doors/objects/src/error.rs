//! Errors: typed errors while a volume is opened, and how errors of a store become errors of
//! requests.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use env::IoError;
use policy::units::Bytes;

/// Error numbers of Linux, for errors of requests that have no name of their own.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
const ETIMEDOUT: i32 = 110;

/// The store said something that makes no sense.
pub(crate) const BROKEN: IoError = IoError::Failed { errno: EIO };
/// The directory is not where it was locked.
pub(crate) const AWAY: IoError = IoError::Failed { errno: ENOENT };
/// A write to a volume that was opened for reading.
pub(crate) const READ_ONLY: IoError = IoError::Failed { errno: EROFS };
/// No answer within the bound.
pub(crate) const TIMED_OUT: IoError = IoError::Failed { errno: ETIMEDOUT };

/// Why a volume could not be opened. Each names the thing, the value and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place is not written as it should be.
    #[error("`{url}` is no place for objects; write dir:PATH, mem: or s3://BUCKET/PREFIX")]
    Url {
        /// The text given.
        url: String,
    },
    /// S3 was left out of this program.
    #[error("`{url}`: this program was built without S3; build it with the feature `s3`")]
    NoS3 {
        /// The text given.
        url: String,
    },
    /// An option is outside its range.
    #[error("{name} is {value}; allowed: {allowed}")]
    Option {
        /// Which one.
        name: &'static str,
        /// The value asked for.
        value: u64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// There is no volume, and no size to make one of.
    #[error("{place}: there is no volume; give a size to make one")]
    NoVolume {
        /// The volume's place.
        place: String,
    },
    /// The volume is not what was asked for.
    #[error(
        "{place}: the volume's {what} is {:#}, not {:#}; leave that option out, or name another place",
        Bytes(*has).shown(), Bytes(*wanted).shown()
    )]
    Differs {
        /// The volume's place.
        place: String,
        /// The part of it.
        what: &'static str,
        /// As it is.
        has: u64,
        /// As it was asked for.
        wanted: u64,
    },
    /// A new volume would mix with objects that are there.
    #[error(
        "{place}: no volume.json, but objects like `{found}`: not making a volume over them; name an empty place"
    )]
    NotEmpty {
        /// The volume's place.
        place: String,
        /// One of them.
        found: String,
    },
    /// An object is longer or shorter than it was written.
    #[error(
        "{place}: the object {name} is {has} bytes long, not {wanted}: it was damaged, or is somebody else's; bring it back, or \
         remove it: its part of the volume reads as zeroes then; read only, all but its part can be read"
    )]
    Length {
        /// The volume's place.
        place: String,
        /// Which one.
        name: String,
        /// Its length.
        has: u64,
        /// The value it should have.
        wanted: u64,
    },
    /// The manifest cannot be understood.
    #[error(
        "{place}/volume.json: {why}; it was not written by this version of Tidegate, or was damaged"
    )]
    Manifest {
        /// The volume's place.
        place: String,
        /// Its fault.
        why: String,
    },
    /// The store would let two servers overwrite each other.
    #[error(
        "{place}: the store {what}; without conditional puts two servers could overwrite each other, so it is not used"
    )]
    Conditional {
        /// The volume's place.
        place: String,
        /// Its behaviour.
        what: &'static str,
    },
    /// Another server has the volume.
    #[error("{place}: in use by {owner}{}; {}", left(.remaining), way_out(.remaining))]
    InUse {
        /// The volume's place.
        place: String,
        /// Its owner.
        owner: String,
        /// When its lease runs out if it is not renewed; none for a lock of the system.
        remaining: Option<Duration>,
    },
    /// The store refused or failed.
    #[error("{place}: cannot {what}: {}{}", brief(.source), advice(.source))]
    Store {
        /// The volume's place.
        place: String,
        /// The call.
        what: &'static str,
        /// The store's error.
        source: Box<object_store::Error>,
    },
    /// The store, or something on the way to it, gave an answer that cannot be so.
    #[error(
        "{place}: cannot {what}: the answer's {field} {why}; it is not believed: look at the gateway or proxy in front of the store, \
         or use another"
    )]
    Answer {
        /// The volume's place.
        place: String,
        /// The call that was tried.
        what: &'static str,
        /// The part of the answer: a header, an element of a list, `status`, `body`.
        field: &'static str,
        /// The reason for which it is not believed.
        why: String,
    },
    /// No answer within the bound.
    #[error("{place}: cannot {what}: no answer within {} s; check the endpoint and the network", .after.as_secs())]
    TimedOut {
        /// The volume's place.
        place: String,
        /// The call.
        what: &'static str,
        /// The bound.
        after: Duration,
    },
    /// The local system failed.
    #[error("{}: cannot {what}: {source}", .path.display())]
    System {
        /// Which file.
        path: PathBuf,
        /// The call.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// An answer of a store that cannot be so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer's {field} {why}")]
pub(crate) struct Lie {
    pub(crate) field: &'static str,
    pub(crate) why: String,
}

impl Lie {
    pub(crate) fn new(field: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { field, why }
    }

    /// Finds one among the causes of an error.
    pub(crate) fn in_chain<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(one) = cause {
            if let Some(lie) = one.downcast_ref() {
                return Some(lie);
            }
            cause = one.source();
        }
        None
    }
}

fn left(remaining: &Option<Duration>) -> String {
    remaining.map_or_else(String::new, |left| {
        format!(", whose lease has {} s left", left.as_secs())
    })
}

fn way_out(remaining: &Option<Duration>) -> &'static str {
    match remaining {
        Some(_) => "stop that server, wait, or force it (the other one is then stopped)",
        None => "end that process",
    }
}

/// A store's words without the envelope of its answer.
fn brief(error: &object_store::Error) -> String {
    let words = error.to_string();
    let inside = |tag: &str| {
        let (_, rest) = words.split_once(&format!("<{tag}>"))?;
        rest.split_once('<').map(|(inside, _)| inside.to_owned())
    };
    match (inside("Code"), inside("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => words,
    }
}

fn advice(error: &object_store::Error) -> &'static str {
    let words = error.to_string();
    let says = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    let missing = matches!(error, object_store::Error::NotFound { .. });
    if missing || says(&["NoSuchBucket"]) {
        return "; make the bucket first";
    }
    let denied = matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    );
    // A listing keeps its status to itself.
    if denied || says(&["status code: 403", "status code: 401"]) {
        return "; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy (get, put, list)";
    }
    if says(&["error sending request"]) {
        return "; check AWS_ENDPOINT and the network";
    }
    ""
}

/// The class of a store's error, for the program that made the request.
pub(crate) fn io_error(error: &object_store::Error) -> IoError {
    use object_store::Error as Store;
    let failed = |errno| IoError::Failed { errno };
    match error {
        Store::NotFound { .. } => failed(ENOENT),
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => failed(EACCES),
        _ => {
            let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
            while let Some(one) = cause {
                if let Some(class) = class_of(one) {
                    return class;
                }
                cause = one.source();
            }
            BROKEN
        }
    }
}

/// The class that one error of the chain implies, if any.
fn class_of(error: &(dyn StdError + 'static)) -> Option<IoError> {
    if let Some(system) = error.downcast_ref::<io::Error>() {
        return match system.kind() {
            io::ErrorKind::StorageFull => Some(IoError::NoSpace),
            io::ErrorKind::QuotaExceeded => Some(IoError::OverQuota),
            io::ErrorKind::TimedOut => Some(TIMED_OUT),
            _ => system.raw_os_error().map(|errno| IoError::Failed { errno }),
        };
    }
    #[cfg(feature = "s3")]
    if let Some(http) = error.downcast_ref::<object_store::client::HttpError>() {
        use object_store::client::HttpErrorKind;
        return (http.kind() == HttpErrorKind::Timeout).then_some(TIMED_OUT);
    }
    // The client library keeps the status to itself; its words are "... status code: 507 ...".
    let words = error.to_string();
    let full = ["status code: 507", "QuotaExceeded", "XMinioStorageFull"];
    full.iter()
        .any(|sign| words.contains(sign))
        .then_some(IoError::NoSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl StdError + Send + Sync + 'static) -> object_store::Error {
        object_store::Error::Generic {
            store: "test",
            source: Box::new(source),
        }
    }

    #[test]
    fn errors_have_classes() {
        let full = generic(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(io_error(&full), IoError::NoSpace);
        let quota = generic(io::Error::from(io::ErrorKind::QuotaExceeded));
        assert_eq!(io_error(&quota), IoError::OverQuota);
        let quota = generic(io::Error::other(
            "Server returned non-2xx status code: 507 Insufficient Storage",
        ));
        assert_eq!(io_error(&quota), IoError::NoSpace);
        let late = generic(io::Error::from(io::ErrorKind::TimedOut));
        assert_eq!(io_error(&late), TIMED_OUT);
        let raw = generic(io::Error::from_raw_os_error(24));
        assert_eq!(io_error(&raw), IoError::Failed { errno: 24 });
        let denied = object_store::Error::PermissionDenied {
            path: "x".into(),
            source: "no".into(),
        };
        assert_eq!(io_error(&denied), IoError::Failed { errno: EACCES });
        let other = generic(io::Error::other("status code: 500"));
        assert_eq!(io_error(&other), BROKEN);
    }

    #[test]
    fn a_stores_words_are_brief_and_say_what_to_do() {
        let answer = "GET http://x - status code: 404 Not Found: <?xml?>\n<Error><Code>NoSuchBucket</Code>\
                      <Message>The specified bucket does not exist</Message></Error>";
        let error = Error::Store {
            place: "s3://b/p".into(),
            what: "list the objects",
            source: Box::new(generic(io::Error::other(answer))),
        };
        assert_eq!(
            error.to_string(),
            "s3://b/p: cannot list the objects: NoSuchBucket: The specified bucket does not exist; make the bucket first"
        );
    }

    #[test]
    fn a_lock_has_no_end_and_a_lease_has() {
        let text = |remaining| {
            Error::InUse {
                place: "dir:/x".into(),
                owner: "process 7".into(),
                remaining,
            }
            .to_string()
        };
        assert_eq!(text(None), "dir:/x: in use by process 7; end that process");
        assert!(text(Some(Duration::from_secs(9))).contains("has 9 s left; stop that server"));
    }
}
