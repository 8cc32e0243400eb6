//! Carrying requests out: what the cache has at once here, what has to wait on a thread of the
//! pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use nbd::transmit::{Limits, Payload, Range, Work, judge};
use nbd::wire::{Command, Request as Asked, State, descriptor};
use tidegate::{Cursor, Error, Mode, PAGE_SIZE, Volume, Writer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::ended::EndedBy;
use super::errors::{LOST, NOT_FAST, SHUTDOWN, Told, told};
use super::hole::{Hole, ZEROES};
use super::input::{Next, Owed};
use super::machine::{Connection, Offload, WriterSlot};
use super::peer::Peer;
use super::prefetch::{Prefetch, Purpose, READY};
use super::table::{Request, into_page};
use crate::counters::Kind;
use crate::durable::Asker;
use crate::export::Export;
use crate::job::{Done, Extent, RequestId};
use crate::mailbox::Promise;
use crate::pool::Sort;
use crate::record::{Recorded, Recorder};

/// The most extents in one answer.
const EXTENTS_MAX: usize = 256;
/// Times in a row that a request waits for room or data and finds them gone again; from then on
/// the waiting is left to a thread that may wait.
pub(super) const PATIENCE: u8 = 6;
/// Bytes that are carried out there at once.
pub(super) const RESCUE: usize = 32 << 10;

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// A request has arrived; answers what comes behind it.
    pub(super) fn begin(&mut self, asked: &Asked, arrived: Instant) -> Result<Next, EndedBy> {
        let judged = judge(asked, &self.agreed, &Limits::default());
        if matches!(judged, Ok(Work::Disconnect)) {
            self.export.clients.says_goodbye(&self.volume);
            return Ok(Next::Closed);
        }
        let mut request = Request {
            cookie: asked.cookie,
            offset: asked.offset,
            arrived,
            failed: None,
            body: None,
            len: asked.len,
            moved: 0,
            promised: 0,
            tries: 0,
            kind: kind_of(asked.command),
            unfragmented: false,
            is_proven: false,
            durable: false,
            fast: false,
            one: false,
        };
        if self.is_draining {
            request.failed = Some(SHUTDOWN);
            let payload = match judged {
                Ok(_) => asked.payload(),
                Err(refusal) => discarded(refusal.payload)?,
            };
            return Ok(self.refuse(request, payload));
        }
        let work = match judged {
            Ok(work) => work,
            Err(refusal) => {
                request.failed = Some((refusal.errno, refusal.why));
                return Ok(self.refuse(request, discarded(refusal.payload)?));
            }
        };
        Ok(self.carry_out(work, request))
    }

    fn refuse(&mut self, request: Request, left: u32) -> Next {
        let id = self.table.insert(request);
        if left > 0 {
            let is_direct = false;
            return Next::Drop(Owed {
                id,
                left,
                is_direct,
            });
        }
        self.output.answer(id);
        Next::Head
    }

    fn carry_out(&mut self, work: Work, mut request: Request) -> Next {
        if let Some(recorder) = self.session.hub().recorder() {
            self.record(recorder, &request);
        }
        let all_durable = self.export.makes_all_durable();
        match work {
            Work::Read { unfragmented, .. } => {
                request.unfragmented = unfragmented;
                let id = self.table.insert(request);
                self.output.answer(id);
            }
            Work::Write { range, durable } => {
                request.durable = durable || all_durable;
                let id = self.table.insert(request);
                let (left, is_direct) = (range.len, self.can_be_direct(range.len as usize));
                return Next::Payload(Owed {
                    id,
                    left,
                    is_direct,
                });
            }
            Work::Nothing => {
                request.len = 0;
                let id = self.table.insert(request);
                self.output.answer(id);
            }
            Work::Flush => {
                let id = self.table.insert(request);
                self.make_durable(id, None);
            }
            Work::Trim { range, durable } => {
                request.durable = durable || all_durable;
                let how = (false, request.durable);
                let id = self.table.insert(request);
                self.punch(id, range, how);
            }
            Work::Zero {
                range,
                durable,
                keep,
                fast,
            } => {
                request.durable = durable || all_durable;
                request.fast = fast;
                let how = (true, request.durable);
                let id = self.table.insert(request);
                let can_punch = self.export.opened.can_punch && !keep;
                if can_punch && (fast || has_whole_page(range)) {
                    self.punch(id, range, how);
                } else if fast {
                    self.fail(id, NOT_FAST);
                } else {
                    self.zeroing.push_back(id);
                }
            }
            Work::Cache { range } => {
                let id = self.table.insert(request);
                let hub = Arc::clone(self.session.hub());
                self.prefetch(id, range, Cursor::default(), Purpose::Advice(hub));
            }
            Work::Status { one, .. } => {
                request.one = one;
                let id = self.table.insert(request);
                self.asking.push_back(id);
                if self.asking.len() == 1 {
                    self.ask_status(id);
                }
            }
            // Seen before it became a request.
            Work::Disconnect => {}
        }
        Next::Head
    }

    /// Records what the cache is asked for.
    fn record(&self, recorder: &Recorder, request: &Request) {
        let writes = matches!(request.kind, Kind::Write | Kind::Zero);
        if writes || request.kind == Kind::Read {
            recorder.note(Recorded {
                volume: self.export.name(),
                writes,
                offset: request.offset,
                len: request.len,
            });
        }
    }

    /// So much of a write was taken in; answers how much is left. All of it: it is answered when
    /// its pause ends, or when it is durable.
    pub(super) fn moved(&mut self, id: RequestId, bytes: usize) -> u32 {
        self.paced.unpaced_bytes += bytes as u64;
        let left = self.table.at(id).take(bytes);
        if left == 0 {
            self.written(id);
        }
        left
    }

    fn written(&mut self, id: RequestId) {
        let request = self.table.at(id);
        if !request.durable {
            self.paced.unpaced.push(id);
            return;
        }
        let part = (request.offset, u64::from(request.len));
        self.make_durable(id, Some(part));
    }

    /// Has a request answered when all of the volume is durable, or a part of it.
    fn make_durable(&self, id: RequestId, part: Option<(u64, u64)>) {
        let promise = Promise::new(&self.session.mailbox, Some(id));
        self.export.make_durable(Asker {
            volume: Arc::clone(&self.volume),
            part,
            tell: self.seen.flushes(promise.of_whole(id)),
        });
    }

    /// Writes zeroes through the cache, a piece at a time. True: it did.
    pub(super) fn write_zeroes(&mut self) -> bool {
        let Some(id) = self.zeroing.front().copied() else {
            return false;
        };
        if self.paced.until.is_some() || !self.has_writer() {
            return false;
        }
        let WriterSlot::Here(writer) = &mut self.writer else {
            return false;
        };
        let request = self.table.at(id);
        let at = request.next();
        let left = (request.len - request.moved) as usize;
        let into_page = into_page(at);
        let piece = (ZEROES.len() - into_page).min(left);
        let zeroes = &ZEROES[..piece];
        let tried = match self.volume.write(writer, zeroes, at, Mode::Nonblocking) {
            Ok(tried) => tried,
            Err(error) => {
                self.zeroing.pop_front();
                self.fail(id, told(&error));
                return true;
            }
        };
        self.zeroes_are_taken(id, tried.bytes);
        if tried.would_block && tried.bytes < left {
            let at = at + tried.bytes as u64;
            let rest = piece - tried.bytes;
            if self.table.at(id).tries <= PATIENCE {
                self.offload_prepare(Offload::Zeroes, at, rest as u64);
            } else {
                self.offload_write(Offload::Zeroes, at, ZEROES[..rest.min(RESCUE)].into());
            }
        }
        true
    }

    fn zeroes_are_taken(&mut self, id: RequestId, bytes: usize) {
        if self.moved(id, bytes) == 0 {
            self.zeroing.pop_front();
        }
    }

    /// The zeroes that were stuck can go on, some of them were written, or it failed.
    pub(super) fn zeroes_can_go_on(&mut self, result: Result<usize, Told>) {
        let Some(id) = self.zeroing.front().copied() else {
            return;
        };
        match result {
            Ok(0) => {}
            Ok(written) => self.zeroes_are_taken(id, written),
            Err(told) => {
                self.zeroing.pop_front();
                self.fail(id, told);
            }
        }
    }

    /// True if the writer is here; made when it is wanted first.
    pub(super) fn has_writer(&mut self) -> bool {
        if matches!(self.writer, WriterSlot::None) {
            self.writer = WriterSlot::Here(Box::new(self.export.cache.writer()));
        }
        matches!(self.writer, WriterSlot::Here(_))
    }

    /// Sends the writer to the pool, to wait for what it needs to write `len` bytes at `offset`.
    pub(super) fn offload_prepare(&mut self, offload: Offload, offset: u64, len: u64) {
        self.offload(offload, move |volume, writer| {
            volume.prepare_write(writer, offset, len).map(|()| 0)
        });
    }

    /// Sends the writer to the pool, to write `data` at `offset`, however long that takes.
    pub(super) fn offload_write(&mut self, offload: Offload, offset: u64, data: Box<[u8]>) {
        self.offload(offload, move |volume, writer| {
            let written = volume.write(writer, &data, offset, Mode::Blocking);
            written.map(|progress| progress.bytes)
        });
    }

    pub(super) fn offload(
        &mut self,
        offload: Offload,
        work: impl FnOnce(&Volume, &mut Writer) -> Result<usize, Error> + Send + 'static,
    ) {
        let WriterSlot::Here(mut writer) =
            core::mem::replace(&mut self.writer, WriterSlot::Away(offload))
        else {
            return;
        };
        self.stuck();
        let promise = Promise::new(&self.session.mailbox, None);
        let volume = Arc::clone(&self.volume);
        let job = move || {
            let result = work(&volume, &mut writer);
            // Before it is told: a connection that hears of it may want the volume for itself.
            drop(volume);
            promise.keep(Done::Write { writer, result });
        };
        let pool = &self.export.opened.pool;
        pool.submit(Sort::Move, &self.session.mailbox, Box::new(job));
    }

    /// Has the pool wait for what a read needs; if it was gone again time after time, fetch it.
    pub(super) fn ask_read(&mut self, id: RequestId) {
        self.stuck();
        let request = self.table.at(id);
        let offset = request.next();
        let left = request.len - request.moved;
        let rescue = (request.tries > PATIENCE).then(|| (left as usize).min(RESCUE));
        let len = u64::from(left).min(READY);
        let mut cursor = self.cursor;
        let promise = Promise::new(&self.session.mailbox, Some(id));
        let volume = Arc::clone(&self.volume);
        let job = move || {
            let result = match rescue {
                None => volume.prepare_read(&mut cursor, offset, len).map(|()| None),
                Some(len) => {
                    let mut data = vec![0; len].into_boxed_slice();
                    let read = volume.read(&mut cursor, &mut data, offset, Mode::Blocking);
                    read.map(|_| Some(data))
                }
            };
            drop(volume);
            promise.keep(Done::Read { id, cursor, result });
        };
        let pool = &self.export.opened.pool;
        pool.submit(Sort::Move, &self.session.mailbox, Box::new(job));
    }

    /// Has the pool read all of what is promised as a whole: a failure can still be told.
    pub(super) fn prove(&mut self, id: RequestId) {
        self.stuck();
        let request = self.table.at(id);
        let range = Range {
            offset: request.offset,
            len: request.len,
        };
        self.prefetch(id, range, self.cursor, Purpose::Proof);
    }

    /// Has the pool bring a range into memory.
    fn prefetch(&self, id: RequestId, range: Range, cursor: Cursor, purpose: Purpose) {
        Prefetch {
            export: Arc::clone(&self.export),
            volume: Arc::clone(&self.volume),
            owner: Arc::clone(&self.session.mailbox),
            cursor,
            at: range.offset,
            end: range.offset + u64::from(range.len),
            purpose,
            id,
            promise: Promise::new(&self.session.mailbox, Some(id)),
        }
        .submit();
    }

    fn stuck(&self) {
        let counter = &self.export.counters.stuck_total;
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the pool punch a hole, which is to read as zeroes or not, and make it durable after that
    /// or not.
    fn punch(&self, id: RequestId, range: Range, how: (bool, bool)) {
        let of = (&self.export, &self.volume, &self.seen);
        Hole::new(of, &self.session.mailbox, range, how, id).submit();
    }

    /// A request was carried out, or failed.
    pub(super) fn is_done(&mut self, id: RequestId, result: Result<(), Error>) {
        let request = self.table.at(id);
        let is_zero = request.kind == Kind::Zero;
        match result {
            Err(error) if is_zero && error.is_unsupported() && request.fast => {
                request.failed = Some(NOT_FAST);
            }
            Err(error) if is_zero && error.is_unsupported() => {
                self.zeroing.push_back(id);
                return;
            }
            Err(error) => request.failed = Some(told(&error)),
            Ok(()) => {}
        }
        self.output.answer(id);
    }

    fn ask_status(&mut self, id: RequestId) {
        let request = self.table.at(id);
        let (offset, len) = (request.offset, u64::from(request.len));
        let most = if request.one { 1 } else { EXTENTS_MAX };
        let promise = Promise::new(&self.session.mailbox, Some(id));
        let volume = Arc::clone(&self.volume);
        let export = Arc::clone(&self.export);
        let job = move || {
            let extents = extents(&volume, &export, offset, len, most);
            drop((volume, export));
            promise.keep(Done::Status { id, extents });
        };
        let pool = &self.export.opened.pool;
        pool.submit(Sort::Move, &self.session.mailbox, Box::new(job));
    }

    /// A request's extents are known, or will not be.
    pub(super) fn status_is_known(&mut self, id: RequestId, extents: Result<Vec<Extent>, Told>) {
        let request = self.table.at(id);
        match extents {
            Ok(extents) => {
                let mut body = Vec::with_capacity(extents.len() * 8);
                for extent in extents {
                    let state = if extent.is_hole {
                        State::HOLE.with(State::ZERO)
                    } else {
                        State::NONE
                    };
                    let len = u32::try_from(extent.len).expect("no longer than was asked for");
                    body.extend_from_slice(&descriptor(len, state));
                }
                request.body = Some(body.into_boxed_slice());
            }
            Err(told) => request.failed = Some(told),
        }
        self.output.answer(id);
    }

    /// A request's answer is out; what waited for that goes on.
    pub(super) fn status_is_sent(&mut self, id: RequestId) {
        if self.asking.front() != Some(&id) {
            return;
        }
        self.asking.pop_front();
        if let Some(next) = self.asking.front().copied() {
            self.ask_status(next);
        }
    }

    /// A job was dropped with all that it had.
    pub(super) fn lose(&mut self, id: RequestId) -> Result<(), EndedBy> {
        match self.table.at(id).kind {
            Kind::Read => return self.read_is_ready(id, Err(LOST)),
            Kind::BlockStatus => self.status_is_known(id, Err(LOST)),
            Kind::Write | Kind::Flush | Kind::Trim | Kind::Zero | Kind::Cache => {
                self.fail(id, LOST);
            }
        }
        Ok(())
    }
}

fn discarded(payload: Payload) -> Result<u32, EndedBy> {
    match payload {
        Payload::None => Ok(0),
        Payload::Discard(len) => Ok(len),
        Payload::HangUp => Err(EndedBy::Payload),
    }
}

/// The kind that a command is counted as. Unknown ones are refused; they count as flushes that
/// failed, which have no range.
pub(super) fn kind_of(command: Command) -> Kind {
    match command {
        Command::Read => Kind::Read,
        Command::Write => Kind::Write,
        Command::Trim => Kind::Trim,
        Command::Cache => Kind::Cache,
        Command::WriteZeroes => Kind::Zero,
        Command::BlockStatus => Kind::BlockStatus,
        Command::Flush | Command::Disconnect | Command::Other(_) => Kind::Flush,
    }
}

fn has_whole_page(range: Range) -> bool {
    let page = PAGE_SIZE as u64;
    let end = range.offset + u64::from(range.len);
    range.offset.next_multiple_of(page) + page <= end
}

/// The extents of a range, at most `most`.
fn extents(
    volume: &Volume,
    export: &Export,
    offset: u64,
    len: u64,
    most: usize,
) -> Result<Vec<Extent>, Error> {
    let mut found: Vec<Extent> = Vec::new();
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let extent = extent_at(volume, export, at, end - at)?;
        at += extent.len;
        let room = found.len() < most;
        match found.last_mut() {
            Some(last) if last.is_hole == extent.is_hole => last.len += extent.len,
            _ if room => found.push(extent),
            _ => break,
        }
    }
    Ok(found)
}

fn extent_at(volume: &Volume, export: &Export, offset: u64, len: u64) -> Result<Extent, Error> {
    let data = |len| Extent {
        len,
        is_hole: false,
    };
    let Some(backing) = &export.opened.extents else {
        return Ok(data(len));
    };
    // Data that are only in memory are asked for first: once they are on their way, the backing
    // knows of them.
    let len = match volume.next_unwritten(offset, offset + len) {
        Some((at, dirty)) if at <= offset => {
            // Whole pages: the range may begin and end inside of one.
            return Ok(data((at + dirty - offset).clamp(1, len)));
        }
        Some((at, _)) => len.min(at - offset),
        None => len,
    };
    // A backing that cannot say has data: that is never wrong.
    let (known, is_hole) = backing.next(offset, len).unwrap_or((len, false));
    let len = known.clamp(1, len);
    Ok(Extent { len, is_hole })
}
