//! The room of a file where it is kept: the rest of its file system, and the part the file takes of
//! it.
//!
//! A file that is made is sparse, and what several may grow to can be more than there is. The
//! system is asked by a thread that lives as long as the question, for the answer may be that of
//! another machine that does not answer: nobody here waits for it. One question at a time; an
//! answer that is old is none.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::opened::{Room, Space};
use os::LockedFile;

/// Asked again after this, by a caller that wants to know.
const EVERY: Duration = Duration::from_secs(10);
/// An answer older than this says nothing of now.
const OLD: Duration = Duration::from_secs(60);
/// The thread makes two calls of the system.
const STACK: usize = 64 << 10;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

#[derive(Default)]
struct Heard {
    room: Option<(Instant, Room)>,
    asked_at: Option<Instant>,
    is_asking: bool,
}

/// The report on a file's room.
pub(super) fn of(file: &Arc<LockedFile>) -> Space {
    let (file, heard) = (Arc::clone(file), Arc::<Mutex<Heard>>::default());
    Box::new(move || look(&file, &heard, Instant::now()))
}

fn look(file: &Arc<LockedFile>, heard: &Arc<Mutex<Heard>>, now: Instant) -> Option<Room> {
    let mut state = cell(heard);
    let is_due = state
        .asked_at
        .is_none_or(|asked| now.saturating_duration_since(asked) >= EVERY);
    if is_due && !core::mem::replace(&mut state.is_asking, true) {
        state.asked_at = Some(now);
        let (file, heard) = (Arc::clone(file), Arc::clone(heard));
        let asked = os::start_thread("space", STACK, move || {
            let room = ask(&file).map(|room| (Instant::now(), room));
            let mut state = cell(&heard);
            (state.room, state.is_asking) = (room, false);
        });
        // Without a thread it is asked again later.
        state.is_asking = asked.is_ok();
    }
    let (at, room) = state.room?;
    (now.saturating_duration_since(at) < OLD).then_some(room)
}

/// Asks the system, as long as that takes.
fn ask(file: &File) -> Option<Room> {
    let system = rustix::fs::fstatvfs(file).ok()?;
    Some(Room {
        free: system.f_bavail.saturating_mul(system.f_frsize),
        taken: file.metadata().ok()?.blocks() * BLOCK,
    })
}

fn cell(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    fn wait(mut look: impl FnMut() -> Option<Room>, is_right: impl Fn(Room) -> bool) -> Room {
        let began = Instant::now();
        loop {
            if let Some(room) = look().filter(|room| is_right(*room)) {
                return room;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", look());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_sparse_file_takes_what_is_written_and_an_old_answer_is_none() {
        let path = std::env::temp_dir().join(format!("tidegate-space-{}", std::process::id()));
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path);
        let file = Arc::new(LockedFile::new(file.unwrap(), os::Lock::default()));
        std::fs::remove_file(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        let heard = Arc::<Mutex<Heard>>::default();
        let began = Instant::now();
        let room = wait(|| look(&file, &heard, began), |_| true);
        assert!(room.free > 0 && room.taken < 1 << 20, "{room:?}");
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        // Not due yet: nobody is asked.
        assert_eq!(
            look(&file, &heard, began).map(|room| room.taken),
            Some(room.taken)
        );
        wait(
            || look(&file, &heard, began + EVERY),
            |room| room.taken >= 1 << 20,
        );

        let later = Instant::now() + OLD;
        // A question that is not answered: no second thread waits beside it.
        cell(&heard).is_asking = true;
        assert_eq!(look(&file, &heard, later), None);
    }
}
