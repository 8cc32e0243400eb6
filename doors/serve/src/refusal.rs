//! The system's refusal, as people read it: its words without the error's number, and the way out.

use core::fmt;
use std::io;

use rustix::io::Errno;

/// Shows an error of the system about a path: `No space left on device; free some space there, or
/// choose another place`.
pub(crate) struct Refused<'a>(pub(crate) &'a io::Error);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(self.0))?;
        match way_out(self.0) {
            Some(way_out) => write!(f, "; {way_out}"),
            None => Ok(()),
        }
    }
}

/// The words alone.
pub(crate) fn words(error: &impl fmt::Display) -> String {
    let mut text = error.to_string();
    if let Some(number) = text.find(" (os error") {
        text.truncate(number);
    }
    text
}

/// The way out, where that is known.
fn way_out(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::NOSPC | Errno::DQUOT => "free some space there, or choose another place",
        Errno::ACCESS | Errno::PERM => "run as a user who may do that, or choose another place",
        Errno::NOENT => "check the path: it, or a folder on the way to it, is not there",
        Errno::NOTDIR => "a part of the path is a file: choose another path",
        Errno::ISDIR => "that is a folder: name a file in it",
        Errno::ROFS => "choose a place that can be written to",
        Errno::FBIG => {
            "choose a smaller size: the file system there, or `ulimit -f`, allows no such file"
        }
        Errno::NAMETOOLONG => "choose a shorter path",
        Errno::LOOP => "its symbolic links go round in a circle: choose another path",
        Errno::MFILE | Errno::NFILE => "raise `ulimit -n`",
        Errno::NOMEM => "free some memory",
        Errno::IO => "the disk there fails: see `dmesg`",
        Errno::BUSY | Errno::TXTBSY => "end the program that uses it, or choose another place",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_has_words_and_a_way_out_and_no_number() {
        let shown = |errno: Errno| Refused(&errno.into()).to_string();
        assert_eq!(
            shown(Errno::NOSPC),
            "No space left on device; free some space there, or choose another place"
        );
        assert_eq!(shown(Errno::XDEV), "Invalid cross-device link");
        let ours = io::Error::other("odd");
        assert_eq!(Refused(&ours).to_string(), "odd");
    }
}
