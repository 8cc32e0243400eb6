//! One client.

mod job;
mod mailbox;

pub(crate) use mailbox::Mailbox;
