//! The answer to each option, once all of its data is there.
//!
//! Source: the specification, "Option types", "Metadata querying".

use super::{Agreed, ExportInfo, Exports, Haggle, HaggleError, Missing, QUERIES_MAX, Step};
use crate::wire::{
    ClientFlags, EXPORT_NAME_ZEROES, ExportFlags, Info, OptionKind, ReplyKind, STRING_MAX,
    option_reply,
};

/// The one context that there is.
pub const ALLOCATION: &str = "base:allocation";
/// The number under which it is selected.
pub const ALLOCATION_ID: u32 = 1;

/// All contexts of the namespace `base`; for lists.
const BASE: &str = "base:";

/// Replies to one option.
pub(super) struct Answer<'a> {
    option: OptionKind,
    out: &'a mut Vec<u8>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(option: OptionKind, out: &'a mut Vec<u8>) -> Self {
        Self { option, out }
    }

    fn reply(&mut self, kind: ReplyKind, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).expect("strings are cut to STRING_MAX");
        self.out
            .extend_from_slice(&option_reply(self.option, kind, len));
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    pub(super) fn ack(&mut self) {
        self.reply(ReplyKind::Ack, &[]);
    }

    pub(super) fn refuse(&mut self, kind: ReplyKind, message: &str) {
        self.reply(kind, &[message.as_bytes()]);
    }

    fn info(&mut self, info: Info, data: &[&[u8]]) {
        let number = info.number().to_be_bytes();
        let parts: Vec<&[u8]> = core::iter::once(&number[..])
            .chain(data.iter().copied())
            .collect();
        self.reply(ReplyKind::Info, &parts);
    }

    fn missing(&mut self, why: Missing) {
        match why {
            Missing::Unknown => self.refuse(ReplyKind::Unknown, "there is no export of that name"),
            Missing::ShuttingDown => {
                self.refuse(ReplyKind::Shutdown, "the server is shutting down")
            }
            Missing::NotNow(why) => self.refuse(ReplyKind::Policy, why),
        }
    }
}

/// Data of an option that is not laid out as it has to be; says what is wrong.
type Malformed = &'static str;

/// Data of an option, read from its beginning.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (now, later) = self
            .0
            .split_at_checked(len)
            .ok_or("the option ends before its data does")?;
        self.0 = later;
        Ok(now)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn string(&mut self) -> Result<&'a str, Malformed> {
        let len = self.u32()? as usize;
        if len > STRING_MAX {
            return Err("a string is longer than 4096 bytes");
        }
        string(self.bytes(len)?).ok_or("a string is not UTF-8 or has a zero in it")
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err("the option goes on after its data")
        }
    }
}

/// A string as the specification has it ("Conventions").
fn string(bytes: &[u8]) -> Option<&str> {
    core::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

impl Haggle {
    pub(super) fn on_option(
        &mut self,
        option: OptionKind,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, HaggleError> {
        if option == OptionKind::ExportName {
            return self.on_export_name(data, exports, out);
        }
        let start = out.len();
        let mut answer = Answer::new(option, out);
        let step = match option {
            OptionKind::Info | OptionKind::Go => self.on_go(data, exports, &mut answer),
            OptionKind::ListMetaContext | OptionKind::SetMetaContext => {
                self.on_contexts(data, exports, &mut answer)
            }
            OptionKind::List => {
                list(exports, &mut answer);
                Ok(Step::More)
            }
            OptionKind::StructuredReply => {
                self.settled.structured = true;
                answer.ack();
                Ok(Step::More)
            }
            OptionKind::StartTls => {
                answer.ack();
                Ok(Step::StartTls)
            }
            // Both were answered by their heads.
            OptionKind::Abort | OptionKind::Other(_) | OptionKind::ExportName => {
                Ok(Step::Disconnect)
            }
        };
        Ok(step.unwrap_or_else(|malformed| {
            out.truncate(start);
            Answer::new(option, out).refuse(ReplyKind::Invalid, malformed);
            Step::More
        }))
    }

    fn on_export_name(
        &mut self,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, HaggleError> {
        let Some(name) = string(data) else {
            // Its length was bounded with its head.
            let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
            return Err(HaggleError::NoName { len });
        };
        let export = exports.find(name).map_err(|why| HaggleError::NoExport {
            name: name.to_owned(),
            why,
        })?;
        let agreed = self.agree(export, false);
        out.extend_from_slice(&agreed.export.size.to_be_bytes());
        out.extend_from_slice(&agreed.flags.bits().to_be_bytes());
        if !self.client.has(ClientFlags::NO_ZEROES) {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(Step::Transmit(Box::new(agreed)))
    }

    fn on_go(
        &self,
        data: &[u8],
        exports: &dyn Exports,
        answer: &mut Answer<'_>,
    ) -> Result<Step, Malformed> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let mut wanted = [false; 4];
        for _ in 0..fields.u16()? {
            // A context that is not understood is ignored.
            if let Some(wanted) = wanted.get_mut(usize::from(fields.u16()?)) {
                *wanted = true;
            }
        }
        fields.end()?;
        let wants = |info: Info| wanted[usize::from(info.number())];
        let export = match exports.find(name) {
            Ok(export) => export,
            Err(why) => {
                answer.missing(why);
                return Ok(Step::More);
            }
        };
        let agreed = self.agree(export, wants(Info::BlockSize));
        let ExportInfo {
            name,
            description,
            size,
            blocks,
            ..
        } = &agreed.export;
        answer.info(
            Info::Export,
            &[&size.to_be_bytes(), &agreed.flags.bits().to_be_bytes()],
        );
        if wants(Info::Name) {
            answer.info(Info::Name, &[name.as_bytes()]);
        }
        if wants(Info::Description) && !description.is_empty() {
            answer.info(Info::Description, &[description.as_bytes()]);
        }
        if wants(Info::BlockSize) {
            let sizes = [blocks.minimum, blocks.preferred, blocks.maximum].map(u32::to_be_bytes);
            answer.info(Info::BlockSize, &[&sizes[0], &sizes[1], &sizes[2]]);
        }
        answer.ack();
        Ok(if answer.option == OptionKind::Go {
            Step::Transmit(Box::new(agreed))
        } else {
            Step::More
        })
    }

    fn on_contexts(
        &mut self,
        data: &[u8],
        exports: &dyn Exports,
        answer: &mut Answer<'_>,
    ) -> Result<Step, Malformed> {
        let select = answer.option == OptionKind::SetMetaContext;
        let mut fields = Fields(data);
        let name = fields.string()?;
        let queries = fields.u32()?;
        if queries > QUERIES_MAX {
            answer.refuse(ReplyKind::TooBig, "too many queries");
            return Ok(Step::More);
        }
        // Without a query a list has everything, and a selection nothing.
        let mut matched = queries == 0 && !select;
        for _ in 0..queries {
            let query = fields.string()?;
            matched |= query == ALLOCATION || (query == BASE && !select);
        }
        fields.end()?;
        let export = match exports.find(name) {
            Ok(export) => export,
            Err(why) => {
                answer.missing(why);
                return Ok(Step::More);
            }
        };
        if matched {
            let id = if select { ALLOCATION_ID } else { 0 };
            answer.reply(
                ReplyKind::MetaContext,
                &[&id.to_be_bytes(), ALLOCATION.as_bytes()],
            );
            if select {
                self.settled.allocation_of = Some(export.name);
            }
        }
        answer.ack();
        Ok(Step::More)
    }

    fn agree(&self, export: ExportInfo, blocks_promised: bool) -> Agreed {
        let structured = self.settled.structured;
        let flags = export.flags.with(ExportFlags::HAS_FLAGS);
        let selected = self.settled.allocation_of.as_ref() == Some(&export.name);
        Agreed {
            flags: if structured {
                flags
            } else {
                flags.without(ExportFlags::SEND_DF)
            },
            structured,
            allocation: selected.then_some(ALLOCATION_ID),
            blocks_promised,
            export,
        }
    }
}

fn list(exports: &dyn Exports, answer: &mut Answer<'_>) {
    exports.list(&mut |name, description| {
        let len = u32::try_from(name.len()).expect("a name is at most STRING_MAX bytes");
        answer.reply(
            ReplyKind::Server,
            &[&len.to_be_bytes(), name.as_bytes(), description.as_bytes()],
        );
    });
    answer.ack();
}
