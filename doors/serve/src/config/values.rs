//! Values of options: a text into what is meant by it, or what is allowed.

use std::path::PathBuf;
use std::time::Duration;

use device::{Layer, Stack};
use figures::{decimal, size, size_above_zero, time};
use os::GroupLimit;
use policy::units::Bytes;
use tidegate::{ErrorPolicy, Nodes, Threshold, rule};

use super::WebConfig;
use super::mistake::choices;
use super::units::show_size;
use crate::access::Access;
use crate::log::{Format, Level};

/// Bytes of the most pages that the cache knows of a volume.
pub(crate) const SIZE_MAX: u64 = (u32::MAX as u64) << 12;
/// Most requests of a connection under way: what its table has places for.
pub(crate) const REQUESTS_MOST: u32 = 1 << 14;
/// Smallest request that a client may be held to: what every client is allowed to send.
const REQUEST_LEAST: u32 = 64 << 10;
const REQUEST_MOST: u32 = 64 << 20;
/// Pages have 4096 bytes; larger blocks are of no use to the cache.
const BLOCK_MOST: u32 = 1 << 20;

/// Longest name and description that the protocol has room for, in bytes.
const NAME_MAX: usize = 4096;
/// A text as it is.
pub(super) fn as_it_is<T: for<'a> From<&'a str>>(text: &str) -> Result<T, String> {
    Ok(text.into())
}

/// One of some words.
fn one_of<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let named = all.iter().find(|(name, _)| *name == text);
    let names = all.iter().map(|(name, _)| *name);
    named
        .map(|(_, value)| *value)
        .ok_or_else(|| choices(text, names))
}

/// A limit of dirty data: a share of the cache (`20%`) or a size.
pub(super) fn threshold(text: &str) -> Result<Threshold, String> {
    if let Some(number) = text.strip_suffix('%') {
        let share = number.trim_end().parse::<u8>().ok();
        let share = share.filter(|share| (1..=100).contains(share));
        return share
            .map(Threshold::Percent)
            .ok_or_else(|| "a share is a whole number from 1 to 100 with %, as in 20%".to_owned());
    }
    let bytes = size_above_zero(text).map_err(|error| format!("{error}; or a share, as in 20%"))?;
    Ok(Threshold::Pages(Bytes(bytes).pages_ceil()))
}

/// A share of the dirty limit, in 1/10000: `12.5%`.
pub(super) fn share(text: &str) -> Result<u32, String> {
    text.strip_suffix('%')
        .and_then(|number| decimal(number.trim_end(), 100))
        .and_then(|share| u32::try_from(share).ok())
        .filter(|share| *share <= 10_000)
        .ok_or_else(|| {
            "a share is a number from 0 to 100 with at most two digits after the point and %, as in 12.5%".to_owned()
        })
}

/// Yes or no.
pub(super) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        "yes" | "on" | "1" => Err("did you mean `true`? Allowed: true, false".to_owned()),
        "no" | "off" | "0" => Err("did you mean `false`? Allowed: true, false".to_owned()),
        _ => Err("allowed: true, false".to_owned()),
    }
}

/// A whole number within bounds.
pub(super) fn number(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = text.parse::<u32>().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("a whole number from {least} to {most} belongs here"))
}

/// A memory limit that the control group of the process allows: over that one's limit the kernel
/// kills.
pub(super) fn memory_limit(text: &str, group: Option<&GroupLimit>) -> Result<u64, String> {
    let bytes = size_above_zero(text)?;
    match group {
        Some(GroupLimit { bytes: most, file }) if bytes > *most => Err(format!(
            "the control group of this process allows {} ({}), and over that the kernel kills it: give {}MiB or less, leave \
             it away, or raise the group's limit",
            show_size(*most),
            file.display(),
            (most / 4 * 3) >> 20
        )),
        _ => Ok(bytes),
    }
}

pub(super) fn web_address(text: &str) -> Result<Option<WebConfig>, String> {
    if matches!(text, "off" | "no" | "false") {
        return Ok(None);
    }
    let address = text.parse().map_err(|_| {
        "write an address and a port, as in 127.0.0.1:9321 or [::1]:9321, or off".to_owned()
    })?;
    let insisted = true;
    Ok(Some(WebConfig { address, insisted }))
}

pub(super) fn level(text: &str) -> Result<Level, String> {
    one_of(text, &Level::ALL)
}

pub(super) fn log_format(text: &str) -> Result<Format, String> {
    one_of(text, &[("logfmt", Format::Logfmt), ("json", Format::Json)])
}

pub(super) fn nodes(text: &str) -> Result<Nodes, String> {
    one_of(text, &[("one", Nodes::One), ("system", Nodes::System)])
}

/// `None`: the lists.
pub(super) fn page_rule(text: &str) -> Result<Option<&'static str>, String> {
    const LISTS: &str = "lists";
    let names = rule::ALL.iter().map(|(name, _)| *name);
    match names.clone().find(|name| *name == text) {
        None if text != LISTS => Err(choices(text, names.chain([LISTS]))),
        found => Ok(found),
    }
}

pub(super) fn socket_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o777 && mode & 0o600 == 0o600)
        .ok_or_else(|| {
            "write permissions as octal digits that let the owner read and write, as in 0660"
                .to_owned()
        })
}

/// A path for a Unix socket.
pub(super) fn control(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("unix:").unwrap_or(text) {
        "" => Err("write the path of a socket, as in unix:/run/tidegate/control.sock".to_owned()),
        path => Ok(path.into()),
    }
}

pub(super) fn request_size(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size(text)?).ok();
    bytes
        .filter(|bytes| (REQUEST_LEAST..=REQUEST_MOST).contains(bytes))
        .ok_or_else(|| "a size from 64KiB to 64MiB belongs here".to_owned())
}

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3600);
    let fits = bounds.contains(&time).then_some(time);
    fits.ok_or_else(|| "a time from 100ms to 1h belongs here".to_owned())
}

/// Bytes of a record of requests if nothing else is said: some five million of them; and at least:
/// its head and any line.
pub(super) const RECORD_USUAL: u64 = 256 << 20;
const RECORD_LEAST: u64 = 16 << 10;

pub(super) const RECORD_AS_IN: &str =
    "write the path of a file, as in /var/lib/tidegate/requests.csv, or leave `record` away";

pub(super) fn record_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err(RECORD_AS_IN.to_owned()),
        path => Ok(path.into()),
    }
}

pub(super) fn record_limit(text: &str) -> Result<u64, String> {
    let bytes = size_above_zero(text)?;
    let fits = (bytes >= RECORD_LEAST).then_some(bytes);
    fits.ok_or_else(|| format!("at least {} belong here", show_size(RECORD_LEAST)))
}

pub(super) fn name_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.len() > NAME_MAX {
        return Some(format!(
            "{} bytes long, the protocol has room for {NAME_MAX}",
            name.len()
        ));
    }
    let control = name.chars().any(char::is_control);
    control.then(|| "it has control characters".to_owned())
}

pub(super) fn description(text: &str) -> Result<String, String> {
    match name_problem(text) {
        Some(problem) if !text.is_empty() => Err(problem),
        _ => Ok(text.to_owned()),
    }
}

pub(super) fn on_error(text: &str) -> Result<ErrorPolicy, String> {
    one_of(
        text,
        &[
            ("retry", ErrorPolicy::Retry),
            ("report", ErrorPolicy::Report),
            ("stop", ErrorPolicy::Stop),
        ],
    )
}

pub(super) fn layers(text: &str) -> Result<Vec<Layer>, String> {
    let layers = Layer::parse_stack(text).map_err(|error| error.to_string())?;
    if Stack::frames_needed(&layers) > 0 {
        let problem = "`volatile` keeps copies for tests of crashes and cannot be used here; use slow, faulty or trace";
        return Err(problem.to_owned());
    }
    Ok(layers)
}

pub(super) fn block(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= BLOCK_MOST)
        .ok_or_else(|| "a power of two from 1B to 1MiB belongs here".to_owned())
}

/// Between the entries of a list in a file: no name has it.
pub(super) const LISTED: char = '\u{1f}';

/// Clients: a list in a file, or joined by `+`.
pub(super) fn clients(text: &str) -> Result<Access, String> {
    match text.strip_prefix(LISTED) {
        Some("") => Access::read(core::iter::empty()),
        Some(list) => Access::read(list.split(LISTED)),
        None => Access::read(text.split('+')),
    }
}

pub(super) fn parallel(text: &str) -> Result<u16, String> {
    let number = number(text, 1, 64)?;
    u16::try_from(number).map_err(|error| error.to_string())
}

pub(super) fn volume_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes == 0 {
        return Err("a volume has at least 512 bytes".to_owned());
    }
    if !bytes.is_multiple_of(512) {
        let near = bytes.next_multiple_of(512);
        return Err(format!(
            "a volume's size is a multiple of 512 bytes, as in {near}B"
        ));
    }
    if bytes > SIZE_MAX {
        return Err(format!(
            "a volume has at most {SIZE_MAX}B (16 TiB less 4 KiB)"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use policy::units::Pages;

    use super::*;

    #[test]
    fn shares_and_limits() {
        assert_eq!(share("12.5%"), Ok(1250));
        assert_eq!(share("100%"), Ok(10_000));
        assert!(share("100.01%").is_err() && share("5").is_err());
        assert_eq!(threshold("20%"), Ok(Threshold::Percent(20)));
        assert_eq!(threshold("8K"), Ok(Threshold::Pages(Pages(2))));
        assert!(threshold("0%").is_err() && threshold("0B").is_err() && threshold("20").is_err());
    }
}
