//! Calls of a task that is served: it takes what is available at once, has the waits taken for it,
//! and is held by deadlines, as a client of a server is.

use env::{Cause, Task, Wakeup};
use mm::{Error, File, Progress, Reader, Writer};
use policy::units::Bytes;
use world::Sector;

use crate::failure::fail;
use crate::op::{SECTOR, SECTORS};
use crate::scene::World;

/// Pages that are taken in between two looks at the pace.
const PIECE_PAGES: usize = 32;
const PIECE: usize = PIECE_PAGES * SECTORS_A_PAGE;
const SECTORS_A_PAGE: usize = 8;
const _: () = assert!(SECTORS_A_PAGE as u64 == SECTORS);
/// Calls in a row that move nothing, after which somebody else moves the bytes, as a server has it
/// done.
const TRIES_MAX: u32 = 8;

/// Writes all of `data`; held after each piece.
pub(crate) fn write(
    task: &mut Task<'_>,
    world: &World,
    file: &File,
    writer: &mut Writer,
    offset: Bytes,
    data: &[Sector],
) -> Result<Bytes, Error> {
    let result = write_pieces(task, world, file, writer, offset, data);
    if result.is_err() {
        // The debt is owed to this device: its next error is none of the next write's, which may go
        // to another.
        world.cache.settle(writer);
    }
    result
}

fn write_pieces(
    task: &mut Task<'_>,
    world: &World,
    file: &File,
    writer: &mut Writer,
    offset: Bytes,
    data: &[Sector],
) -> Result<Bytes, Error> {
    let mut done = 0;
    let mut tries = 0;
    while done < data.len() {
        let piece = &data[done..data.len().min(done + PIECE)];
        let from = Bytes(offset.0 + done as u64 * SECTOR);
        let tried = task.nonblocking(|task| file.write_unpaced(task, writer, from, piece))?;
        let moved = sectors("write", tried, piece.len(), &mut tries);
        done += moved;
        if tried.would_block {
            let rest = &piece[moved..];
            let from = Bytes(offset.0 + done as u64 * SECTOR);
            if tries > TRIES_MAX {
                file.write_unpaced(task, writer, from, rest)?;
                done += rest.len();
            } else {
                let len = Bytes(rest.len() as u64 * SECTOR);
                file.prepare_write(task, writer, from, len)?;
            }
        }
        hold(task, world, writer)?;
    }
    Ok(Bytes(data.len() as u64 * SECTOR))
}

/// Fills `data`, less at the end of the file.
pub(crate) fn read(
    task: &mut Task<'_>,
    file: &File,
    reader: &mut Reader,
    offset: Bytes,
    data: &mut [Sector],
) -> Result<Bytes, Error> {
    let mut done = 0;
    let mut tries = 0;
    while done < data.len() {
        let to = data.len().min(done + PIECE);
        let from = Bytes(offset.0 + done as u64 * SECTOR);
        let part = &mut data[done..to];
        let tried = task.nonblocking(|task| file.read(task, reader, from, part))?;
        let moved = sectors("read", tried, to - done, &mut tries);
        done += moved;
        if tried.would_block {
            let rest = &mut data[done..to];
            let from = Bytes(offset.0 + done as u64 * SECTOR);
            if tries > TRIES_MAX {
                let got = file.read(task, reader, from, rest)?.bytes.0 / SECTOR;
                done += usize::try_from(got).unwrap_or(0);
                if done < to {
                    break;
                }
            } else {
                let len = Bytes(rest.len() as u64 * SECTOR);
                file.prepare_read(task, reader, from, len)?;
            }
        } else if done < to {
            // The end of the file.
            break;
        }
    }
    Ok(Bytes(done as u64 * SECTOR))
}

/// Whole sectors that a call has moved, of `asked`.
fn sectors(what: &str, tried: Progress, asked: usize, tries: &mut u32) -> usize {
    let moved = usize::try_from(tried.bytes.0 / SECTOR).unwrap_or(usize::MAX);
    if moved > asked
        || (tried.would_block && moved == asked)
        || !tried.bytes.0.is_multiple_of(SECTOR)
    {
        fail("tried", format!("{what}: {tried:?} of {asked} sectors"));
    }
    *tries = if moved == 0 { *tries + 1 } else { 0 };
    moved
}

/// Waits as long as the writer is held.
fn hold(task: &mut Task<'_>, world: &World, writer: &mut Writer) -> Result<(), Error> {
    while let Some(until) = world.cache.pace(task, writer)? {
        if until <= task.now() {
            fail("pace", format!("held until {until:?}, at {:?}", task.now()));
        }
        if task.sleep_until(Cause::Think, until) == Wakeup::Cancelled {
            return Err(Error::Cancelled);
        }
    }
    Ok(())
}
