//! The beginning of a thread: without the program's signals, and with the memory that it takes.

use core::convert::Infallible;
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::sys;

/// Bytes of a stack unless a thread needs less, as Rust has it.
pub const STACK: usize = 2 << 20;
/// Memory that a thread takes before it does anything: if it gets none the process ends, also if
/// its stack is one that another thread has left.
pub(crate) const FIRST_MEMORY: usize = 256 << 10;

/// Starts a thread that takes no signal of the program: all are blocked in it but those of its own
/// faults. The program's signals find a thread of the program, or wait until it reads them.
///
/// # Errors
/// The system has no thread.
pub fn spawn<T: Send + 'static>(
    builder: std::thread::Builder,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    sys::without_signals(|| builder.spawn(body))
}

/// Starts a thread, as `spawn` does, that may be wanted when memory is short. Once this answers, it
/// runs, and has what it takes before it does anything.
///
/// # Errors
/// The system has no thread, or not the memory for one.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    sys::has_memory(FIRST_MEMORY)?;
    let builder = std::thread::Builder::new().name(name.to_owned());
    let (begins, begun) = mpsc::channel::<Infallible>();
    let thread = spawn(builder.stack_size(stack), move || {
        drop(begins);
        body()
    })?;
    let _ = begun.recv();
    Ok(thread)
}
