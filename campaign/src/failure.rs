//! The failures of a run, by kind, so that shrinking can tell one from another.
//!
//! A check that does not hold raises a `Failure` as a panic: it ends the tasks of the lab as any
//! panic does, and `catch` takes it again. A panic of the code under test becomes a failure whose
//! kind names the place in the source.

use core::fmt;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, set_hook, take_hook};
use std::sync::Once;

use world::LabError;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which check, or where the code panicked. Shrinking keeps it.
    pub kind: String,
    /// Its message.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(crate) fn new(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
        }
    }

    /// Of a lab that could not end.
    pub(crate) fn of_lab(error: &LabError) -> Self {
        let kind = match error {
            LabError::Deadlock { .. } => "deadlock",
            LabError::TimeLimit { .. } => "time-limit",
            LabError::NoProgress { .. } => "no-progress",
            _ => "lab",
        };
        Self::new(kind, error.to_string())
    }

    /// The first line of the message: files keep one line.
    pub(crate) fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}

/// Ends the run: a check did not hold.
#[cold]
pub(crate) fn fail(kind: &str, message: impl Into<String>) -> ! {
    panic_any(Failure::new(kind, message))
}

/// `fail` unless `holds`.
#[macro_export]
#[doc(hidden)]
macro_rules! judge {
    ($holds:expr, $kind:expr, $($message:tt)*) => {
        if !$holds {
            $crate::failure::fail($kind, format!($($message)*));
        }
    };
}

thread_local! {
    /// A run is under way on this thread; where it panicked first.
    static RUNNING: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

/// Runs `body`; a panic in it is a failure and prints nothing.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Failure> {
    install();
    RUNNING.set(Some(None));
    let answer = catch_unwind(AssertUnwindSafe(body));
    let place = RUNNING.take().flatten();
    answer.map_err(|payload| of_payload(payload.as_ref(), place))
}

fn of_payload(payload: &(dyn Any + Send), place: Option<String>) -> Failure {
    if let Some(failure) = payload.downcast_ref::<Failure>() {
        return failure.clone();
    }
    let text = payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
    Failure {
        kind: format!(
            "panic at {}",
            place.unwrap_or_else(|| "an unknown place".into())
        ),
        message: text.unwrap_or_else(|| "a panic without words".into()),
    }
}

/// Panics of runs are noted; all others go where they went.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            let is_ours = RUNNING.with_borrow_mut(|running| match running {
                None => false,
                Some(place) => {
                    if let Some(location) = info.location() {
                        // The same place in every checkout.
                        let file = location.file();
                        let at = ["cache/", "lab/", "campaign/"]
                            .iter()
                            .find_map(|folder| file.find(folder));
                        let file = &file[at.unwrap_or(0)..];
                        place.get_or_insert(format!("{file}:{}", location.line()));
                    }
                    true
                }
            });
            if !is_ours {
                others(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_and_a_panic_become_failures() {
        assert_eq!(catch(|| 3), Ok(3));
        let failure = catch(|| fail("a-check", "does not hold")).unwrap_err();
        assert_eq!(failure.to_string(), "a-check: does not hold");
        let failure = catch(|| panic!("of {}", "ours")).unwrap_err();
        assert_eq!(failure.message, "of ours");
        assert!(
            failure
                .kind
                .starts_with("panic at campaign/src/failure.rs:"),
            "{failure}"
        );
    }
}
