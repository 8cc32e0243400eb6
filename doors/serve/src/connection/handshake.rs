//! The handshake of one connection: the protocol crate's decisions, carried out on a stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nbd::haggle::{Agreed, Encryption, ExportInfo, Exports, Haggle, Missing, Rules, Step};
use nbd::wire::{BlockSizes, ExportFlags};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::ended::EndedBy;
use crate::access::Right;
use crate::export::{About, Export};
use crate::hub::{Hub, Session, Stage};
use crate::log::info;

/// Bytes read at once: several options of the usual size.
const READ: usize = 1024;

/// The result of a handshake, or of its part in the clear.
pub(super) enum Shaken {
    /// Go on in TLS.
    Encrypt(Haggle),
    /// Requests follow; those bytes of them have been read already.
    Agreed(Box<Agreed>, Vec<u8>),
    /// The client wanted nothing more.
    Left,
}

/// A handshake that has not begun.
pub(super) fn begin(hub: &Hub) -> Haggle {
    Haggle::new(Rules {
        encryption: encryption(hub),
        ..Rules::default()
    })
}

fn encryption(hub: &Hub) -> Encryption {
    match &*hub.security() {
        crate::hub::Security::Plain => Encryption::None,
        crate::hub::Security::Offered(_) => Encryption::Offered,
        crate::hub::Security::Required(_) => Encryption::Required,
    }
}

/// Haggles until both sides agree, or the connection is to be encrypted. The greeting was sent.
pub(super) async fn shake<S>(
    stream: &mut S,
    mut haggle: Haggle,
    session: &Session,
) -> Result<Shaken, EndedBy>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut room = [0; READ];
    let mut out = Vec::new();
    loop {
        let count = stream.read(&mut room).await.map_err(EndedBy::Stream)?;
        if count == 0 {
            return Err(EndedBy::Vanished);
        }
        let mut rest = &room[..count];
        loop {
            let fed = haggle.feed(rest, &Offer(session), &mut out);
            if !out.is_empty() {
                stream.write_all(&out).await.map_err(EndedBy::Stream)?;
                out.clear();
            }
            let (consumed, step) = fed.map_err(EndedBy::Haggle)?;
            rest = &rest[consumed..];
            match step {
                Step::More if rest.is_empty() => break,
                Step::More => {}
                Step::StartTls => {
                    stream.flush().await.map_err(EndedBy::Stream)?;
                    return Ok(Shaken::Encrypt(haggle));
                }
                Step::Transmit(agreed) => {
                    stream.flush().await.map_err(EndedBy::Stream)?;
                    return Ok(Shaken::Agreed(agreed, rest.to_vec()));
                }
                Step::Disconnect => {
                    let _ = stream.flush().await;
                    return Ok(Shaken::Left);
                }
            }
        }
    }
}

/// The hub's exports as a handshake of one client asks for them: those that are for it, as if there
/// were no others.
struct Offer<'a>(&'a Session);

impl Offer<'_> {
    fn right(&self, export: &Export) -> Right {
        export.right(self.0.shown.as_ref())
    }

    fn all(&self) -> Vec<Arc<Export>> {
        let mut all = self.0.hub().exports();
        all.retain(|export| self.right(export) > Right::None);
        all
    }
}

impl Exports for Offer<'_> {
    /// The only one is also the default one, which has no name.
    fn find(&self, name: &str) -> Result<ExportInfo, Missing> {
        let hub = self.0.hub();
        if hub.stage() != Stage::Serving {
            return Err(Missing::ShuttingDown);
        }
        let all = self.all();
        let named = all.iter().find(|export| export.name() == name);
        let only = all.first().filter(|_| name.is_empty() && all.len() == 1);
        let Some(export) = named.or(only) else {
            if let Some(export) = hub.find(name) {
                hub.counters.denied_total.fetch_add(1, Ordering::Relaxed);
                let certificate = self.0.shown.as_ref().map(ToString::to_string);
                info!(
                    volume = %export.name().escape_debug(),
                    client = %self.0.address,
                    certificate = certificate.as_deref().unwrap_or("none"),
                    reason = "`clients` of the volume does not name it",
                    "volume refused"
                );
            }
            return Err(Missing::Unknown);
        };
        let can_write = self.right(export) == Right::Write;
        Ok(info_of(export, can_write, hub.limits().request))
    }

    fn list(&self, each: &mut dyn FnMut(&str, &str)) {
        for export in self.all() {
            each(export.name(), &export.about().description);
        }
    }
}

/// The least that the protocol has for a preferred block.
const PREFERRED_LEAST: u32 = 512;

/// Block sizes as the protocol wants them, or clients refuse the export: the largest is a multiple
/// of the smallest, and so is the volume, whose last bytes could not be reached otherwise.
fn blocks(about: &About, size: u64, maximum: u32) -> BlockSizes {
    let whole = 1_u32.checked_shl(size.trailing_zeros());
    let minimum = about.minimum_block.min(whole.unwrap_or(u32::MAX));
    let preferred = about.preferred_block.max(PREFERRED_LEAST);
    let maximum = maximum.max(preferred);
    BlockSizes {
        minimum,
        preferred,
        maximum: maximum - maximum % minimum,
    }
}

/// The announcement of an export.
fn info_of(export: &Export, can_write: bool, maximum: u32) -> ExportInfo {
    let (options, about) = (&export.options, export.about());
    let (can_punch, can_trim) = (export.opened.can_punch, export.opened.can_trim);
    let flags = ExportFlags::HAS_FLAGS
        .with(ExportFlags::SEND_FLUSH)
        .with(ExportFlags::SEND_FUA)
        .with(ExportFlags::SEND_DF)
        .with(ExportFlags::SEND_CACHE)
        .with(ExportFlags::CAN_MULTI_CONN)
        .with_if(!can_write, ExportFlags::READ_ONLY)
        .with_if(can_write, ExportFlags::SEND_WRITE_ZEROES)
        .with_if(can_write && can_trim, ExportFlags::SEND_TRIM)
        .with_if(can_write && can_punch, ExportFlags::SEND_FAST_ZERO);
    ExportInfo {
        name: options.name.clone(),
        size: export.size(),
        flags,
        blocks: blocks(&about, export.size(), maximum),
        description: about.description,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_announced_as_the_protocol_wants_them() {
        for (minimum_block, preferred_block) in [(1, 1), (1, 4096), (512, 512), (4096, 1 << 20)] {
            let about = About {
                description: String::new(),
                minimum_block,
                preferred_block,
            };
            for (size, maximum) in [
                (1 << 30, 32 << 20),
                ((1 << 20) + 512, 100_001),
                (1000, 64 << 10),
                (4097, 65_537),
            ] {
                let blocks = blocks(&about, size, maximum);
                assert!(blocks.are_valid(size), "{blocks:?} of {size}");
                let minimum = u64::from(blocks.minimum);
                assert!(size.is_multiple_of(minimum), "{blocks:?} of {size}");
                assert!(blocks.maximum > maximum - 4096, "{blocks:?}");
            }
        }
    }
}
