//! Contents of frames for tests: words behind atomics, so that no arena is needed.

use core::sync::atomic::{AtomicU64, Ordering};

use frames::{Buffer, Busy, Content, Data, DataMut, FrameId, Pin, PopulateError};

/// Words of 8 bytes in a frame.
const WORDS: usize = 512;
const WORD: usize = 8;

/// Contents of a few frames, in words of 8 bytes. Offsets and lengths must be multiples of 8.
#[derive(Debug)]
pub struct TestContent {
    words: Box<[AtomicU64]>,
}

impl TestContent {
    /// Contents of `frames` frames, all zero.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self {
            words: (0..frames as usize * WORDS)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// The word at `index` (below 512) of `frame`.
    #[must_use]
    pub fn word(&self, frame: FrameId, index: usize) -> u64 {
        self.frame(frame)[index].load(Ordering::Relaxed)
    }

    /// Sets the word at `index` (below 512) of `frame`; for device models.
    pub fn set_word(&self, frame: FrameId, index: usize, value: u64) {
        self.frame(frame)[index].store(value, Ordering::Relaxed);
    }

    /// Copies a whole frame, without a right to either; for device models.
    pub fn copy(&self, to: FrameId, from: FrameId) {
        for (to, from) in self.frame(to).iter().zip(self.frame(from)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn frame(&self, frame: FrameId) -> &[AtomicU64] {
        &self.words[frame.0 as usize * WORDS..][..WORDS]
    }

    fn part(&self, frame: FrameId, offset: usize, len: usize) -> &[AtomicU64] {
        &self.frame(frame)[exact(offset)..][..exact(len)]
    }
}

fn exact(bytes: usize) -> usize {
    assert_eq!(bytes % WORD, 0, "test contents move whole words of 8 bytes");
    bytes / WORD
}

impl Content for TestContent {
    fn chunk_frames(&self) -> u32 {
        1
    }

    fn populate(&self, _first: FrameId) -> Result<(), PopulateError> {
        Ok(())
    }

    fn release(&self, _first: FrameId) {}

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::Bytes(vec![0; bytes].into())
    }

    fn zero(&self, frame: &Busy, offset: usize, len: usize) {
        for word in self.part(frame.frame(), offset, len) {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn zero_all(&self, frames: &[Busy]) {
        for frame in frames {
            self.zero(frame, 0, WORDS * WORD);
        }
    }

    fn copy_in(&self, frame: &Busy, offset: usize, data: Data<'_>, from: usize, len: usize) {
        let (data, _) = data.bytes()[from..][..len].as_chunks();
        for (word, value) in self.part(frame.frame(), offset, len).iter().zip(data) {
            word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
        }
    }

    fn copy_out(&self, frame: &Pin, offset: usize, data: &mut DataMut<'_>, to: usize, len: usize) {
        let (data, _) = data.bytes()[to..][..len].as_chunks_mut();
        for (value, word) in data.iter_mut().zip(self.part(frame.frame(), offset, len)) {
            *value = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }

    fn mark(&self, frame: &Busy, word: u64) {
        self.frame(frame.frame())[0].store(word, Ordering::Relaxed);
    }

    fn copy_frame(&self, to: &Busy, from: &Pin) {
        self.copy(to.frame(), from.frame());
    }

    fn move_frame(&self, to: &Busy, from: &Busy) {
        self.copy(to.frame(), from.frame());
    }
}
