//! A draft into a `Config`: every word understood, every rule between them looked at.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::{Layer, Stack};
use figures::{size, size_above_zero, time};
use os::GroupLimit;
use tidegate::{ErrorPolicy, Nodes, Threshold, rule};

use crate::log::{Format, Level};

use super::asked::{Asked, Draft, VolumeDraft};
use super::default::{self, Surroundings};
use super::mistake::{ConfigError, Mistake, Word, choices};
use super::units::{number, share, show_size, threshold, truth};
use super::{
    BackendConfig, BlockConfig, Config, LimitsConfig, ListenConfig, RecordConfig, ShareConfig,
    TlsConfig, VolumeConfig, WebConfig,
};

/// Longest name and description that the protocol has room for, in bytes.
const NAME_MAX: usize = 4096;
/// The cache knows so many pages of a volume.
pub(crate) const SIZE_MAX: u64 = (u32::MAX as u64) << 12;
/// Smallest request that a client may be held to: what every client is allowed to send.
const REQUEST_LEAST: u32 = 64 << 10;
const REQUEST_MOST: u32 = 64 << 20;
/// Most requests of a connection under way: what its table has places for.
pub(crate) const REQUESTS_MOST: u32 = 1 << 14;
/// Pages have 4096 bytes; larger blocks are of no use to the cache.
const BLOCK_MOST: u32 = 1 << 20;

type Words = BTreeMap<&'static str, Word>;

/// The value that is wrong, and what is allowed.
type Wrong = (String, String);

pub(super) fn check(
    draft: Draft,
    asked: &Asked,
    surroundings: &Surroundings,
) -> Result<Config, ConfigError> {
    let mut draft = draft;
    let mut mistakes = core::mem::take(&mut draft.mistakes);
    let mut server = Reader {
        words: &draft.server,
        mistakes: &mut mistakes,
    };
    let limits = LimitsConfig::default();
    let group = surroundings.group.as_ref();
    let named = server.read("memory", |text| memory_limit(text, group));
    let (memory, memory_of) = named.map_or_else(|| surroundings.memory(), |named| (named, None));
    let dirty = server.read("dirty", threshold);
    let background = server.read("background", threshold);
    let web = server.read("web", web_address);
    let mode = server.read("socket_mode", socket_mode);
    let limits = LimitsConfig {
        connections: server
            .read("max_connections", |text| number(text, 1, 1 << 20))
            .unwrap_or_else(|| connections_for(memory, draft.tls_place.is_some())),
        requests: server
            .read("max_requests", |text| number(text, 1, REQUESTS_MOST))
            .unwrap_or(limits.requests),
        request_bytes: server
            .read("max_request_size", request_size)
            .unwrap_or(limits.request_bytes),
        handshake: server
            .read("handshake_timeout", patience)
            .unwrap_or(limits.handshake),
        slow: server.read("slow_request", patience).unwrap_or(limits.slow),
    };
    let paced = server.read("paced", truth).unwrap_or(true);
    let io_uring = server.read("io_uring", truth).unwrap_or(true);
    let nodes = server.read("nodes", nodes).unwrap_or_default();
    let page_rule = server.read("page_rule", page_rule).flatten();
    let record_limit = server.read("record_limit", record_limit);
    let record = server.read("record", record_path);
    let record = record.map(|path| RecordConfig {
        path,
        limit: record_limit.unwrap_or(RECORD_USUAL),
    });
    let take_out_all = server.read("take_out_all", truth).unwrap_or(false);
    let log = server.read("log", level).unwrap_or_default();
    let log_format = server.read("log_format", log_format).unwrap_or_default();
    if let (Some(word), None) = (draft.server.get("record_limit"), draft.server.get("record")) {
        let title = "`record_limit` is given, and `record` is not".to_owned();
        mistakes.push(
            word.wrong(title, "there is no record that it bounds")
                .help("name its file with `record`, or leave this away"),
        );
    }
    let usual = usual_dirty(memory);
    let (dirty, background) = limits_of_dirty(&draft, (dirty, usual), background, &mut mistakes);
    let tls = tls(&draft, &mut mistakes);
    let listen = listeners(&draft, mode, surroundings, &mut mistakes);
    let mut volumes = Vec::new();
    for (place, volume) in draft.volumes.iter().enumerate() {
        let name = &volume.name;
        let twice = draft.volumes[..place]
            .iter()
            .any(|other| other.name.text == name.text);
        if twice {
            let title = format!("there are two volumes `{}`", name.text);
            mistakes.push(
                name.wrong(title, "the second one")
                    .help("give each a name of its own"),
            );
        }
        let volume = self::volume(volume, &mut mistakes);
        if let Some(path) = volume.as_ref().and_then(|one| made_twice(&volumes, one)) {
            let title = format!(
                "two volumes are the file {}, which is to be made",
                path.display()
            );
            mistakes.push(
                name.wrong(title, "the second one")
                    .help("give each a file of its own"),
            );
        }
        volumes.extend(volume);
    }
    shares_of_all(&draft, &mut mistakes);
    if let (Some(word), Some(record)) = (draft.server.get("record"), &record) {
        let mut files = volumes
            .iter()
            .filter_map(|one| Some((file_of(&one.backend)?.0, one)));
        if let Some((_, volume)) = files.find(|(path, _)| is_same(path, &record.path)) {
            let title = format!(
                "`record` is {}, the file of the volume `{}`",
                word.text, volume.name
            );
            mistakes.push(
                word.wrong(title, "requests cannot be recorded there")
                    .help(format!("name another file: {RECORD_AS_IN}")),
            );
        }
    }
    if !mistakes.is_empty() {
        draft.mistakes = mistakes;
        return Err(draft.refuse());
    }
    if volumes.is_empty() && asked.file.is_none() {
        volumes.push(surroundings.volume()?);
    }
    Ok(Config {
        asked: asked.clone(),
        memory,
        memory_given: named.is_some(),
        memory_of,
        dirty,
        background,
        listen,
        web: web.unwrap_or(Some(WebConfig {
            address: SocketAddr::from(default::WEB),
            insisted: false,
        })),
        tls,
        limits,
        connections_given: draft.server.contains_key("max_connections"),
        volumes,
        take_out_all,
        paced,
        io_uring,
        nodes,
        page_rule,
        record,
        log,
        log_format,
    })
}

/// A memory limit that the control group of the process allows: over that one's limit the kernel
/// kills.
fn memory_limit(text: &str, group: Option<&GroupLimit>) -> Result<u64, String> {
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

/// The file that `one` and a volume before it both are, if either makes it: which of them did would
/// be chance. Files that are there are found out by their locks, whatever their names.
fn made_twice<'a>(before: &[VolumeConfig], one: &'a VolumeConfig) -> Option<&'a Path> {
    let (path, makes) = file_of(&one.backend)?;
    let is_its = |other: &VolumeConfig| {
        file_of(&other.backend).is_some_and(|(its, made)| (makes || made) && is_same(its, path))
    };
    before.iter().any(is_its).then_some(path)
}

/// Whether both are the same path, from wherever they begin.
fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
    whole(one) == whole(other)
}

/// Its file, and whether it makes it.
fn file_of(backend: &BackendConfig) -> Option<(&Path, bool)> {
    match backend {
        BackendConfig::File { path, .. } => Some((path, false)),
        BackendConfig::Embedded { path, .. } | BackendConfig::New { path, .. } => {
            Some((path, true))
        }
        BackendConfig::Memory { .. } | BackendConfig::Objects { .. } => None,
    }
}

/// The shares that volumes have at least have to fit into the dirty limit, all of them.
fn shares_of_all(draft: &Draft, mistakes: &mut Vec<Mistake>) {
    let mut sum = 0_u64;
    let mut last = None;
    for word in draft
        .volumes
        .iter()
        .filter_map(|volume| volume.keys.get("dirty_min"))
    {
        // A share that cannot be read is a mistake already.
        sum += u64::from(share(word.text.trim()).unwrap_or(0));
        if sum > 10_000 && last.is_none() {
            last = Some(word);
        }
    }
    if let Some(word) = last {
        let shown = match sum % 100 {
            0 => format!("{}%", sum / 100),
            part => format!("{}.{part:02}%", sum / 100),
        };
        let title = format!("`dirty_min` of all volumes together is {shown}");
        mistakes.push(
            word.wrong(title, "with this one it is more than 100%")
                .help("lower some of them: together they have at most 100% of the dirty limit"),
        );
    }
}

/// Reads words, and keeps what is wrong with them.
struct Reader<'a> {
    words: &'a Words,
    mistakes: &'a mut Vec<Mistake>,
}

impl Reader<'_> {
    fn read<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let word = self.words.get(key)?;
        match read(word.text.trim()) {
            Ok(value) => Some(value),
            Err(help) => {
                let title = format!("`{}` is no value for `{key}`", word.text);
                self.mistakes
                    .push(word.wrong(title, "this cannot be used").help(help));
                None
            }
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.words.get(key).map(|word| word.text.clone())
    }
}

fn web_address(text: &str) -> Result<Option<WebConfig>, String> {
    if matches!(text, "off" | "no" | "false") {
        return Ok(None);
    }
    let address = text.parse().map_err(|_| {
        "write an address and a port, as in 127.0.0.1:9321 or [::1]:9321, or off".to_owned()
    })?;
    let insisted = true;
    Ok(Some(WebConfig { address, insisted }))
}

/// Connections where none are named: what they hold at most is no more than an eighth of the
/// memory.
pub(crate) fn connections_for(memory: u64, encrypted: bool) -> u32 {
    let most = LimitsConfig::default().connections;
    let room = memory / 8 / crate::limits::connection_bytes(encrypted);
    u32::try_from(room).unwrap_or(most).clamp(16, most)
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "error" => Ok(Level::Error),
        "warn" => Ok(Level::Warn),
        "info" => Ok(Level::Info),
        "debug" => Ok(Level::Debug),
        other => Err(choices(other, ["error", "warn", "info", "debug"])),
    }
}

fn log_format(text: &str) -> Result<Format, String> {
    match text {
        "logfmt" => Ok(Format::Logfmt),
        "json" => Ok(Format::Json),
        other => Err(choices(other, ["logfmt", "json"])),
    }
}

fn nodes(text: &str) -> Result<Nodes, String> {
    match text {
        "one" => Ok(Nodes::One),
        "system" => Ok(Nodes::System),
        other => Err(choices(other, ["one", "system"])),
    }
}

/// `None`: the lists.
fn page_rule(text: &str) -> Result<Option<&'static str>, String> {
    const LISTS: &str = "lists";
    let names = rule::ALL.iter().map(|(name, _)| *name);
    match names.clone().find(|name| *name == text) {
        None if text != LISTS => Err(choices(text, names.chain([LISTS]))),
        found => Ok(found),
    }
}

fn socket_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o777 && mode & 0o600 == 0o600)
        .ok_or_else(|| {
            "write permissions as octal digits that let the owner read and write, as in 0660"
                .to_owned()
        })
}

fn request_size(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size(text)?).ok();
    bytes
        .filter(|bytes| (REQUEST_LEAST..=REQUEST_MOST).contains(bytes))
        .ok_or_else(|| "a size from 64KiB to 64MiB belongs here".to_owned())
}

fn patience(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3600);
    let fits = bounds.contains(&time).then_some(time);
    fits.ok_or_else(|| "a time from 100ms to 1h belongs here".to_owned())
}

/// Bytes of a record of requests if nothing else is said: some five million of them; and at least:
/// its head and any line.
const RECORD_USUAL: u64 = 256 << 20;
const RECORD_LEAST: u64 = 16 << 10;

const RECORD_AS_IN: &str =
    "write the path of a file, as in /var/lib/tidegate/requests.csv, or leave `record` away";

fn record_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err(RECORD_AS_IN.to_owned()),
        path => Ok(path.into()),
    }
}

fn record_limit(text: &str) -> Result<u64, String> {
    let bytes = size_above_zero(text)?;
    let fits = (bytes >= RECORD_LEAST).then_some(bytes);
    fits.ok_or_else(|| format!("at least {} belong here", show_size(RECORD_LEAST)))
}

/// Writeback begins at this part of the dirty limit if nothing else is said. Clients flush: a
/// device that waits until half of the limit is dirty has the rest of that half to write while they
/// wait (docs/work/bench.md, pacing with flushes).
const BACKGROUND_PART: u8 = 16;

/// The dirty limit where nothing is said, in per cent of the cache, and at most: a flush is as long
/// as the backing takes for it, and clients give up after 30 s. That is 30 s of a disk of 16 MB/s.
const DIRTY_USUAL: u8 = 20;
const DIRTY_USUAL_MOST: u64 = 450 << 20;

fn usual_dirty(memory: u64) -> Threshold {
    match memory / 100 * u64::from(DIRTY_USUAL) > DIRTY_USUAL_MOST {
        true => Threshold::Pages(policy::units::Pages(DIRTY_USUAL_MOST >> 12)),
        false => Threshold::Percent(DIRTY_USUAL),
    }
}

/// The limits of dirty data; a limit that is not given keeps its distance to the other.
fn limits_of_dirty(
    draft: &Draft,
    (dirty, usual): (Option<Threshold>, Threshold),
    background: Option<Threshold>,
    mistakes: &mut Vec<Mistake>,
) -> (Threshold, Threshold) {
    let part = |limit: Threshold| match limit {
        Threshold::Percent(share) => Threshold::Percent((share / BACKGROUND_PART).max(1)),
        Threshold::Pages(pages) => {
            let part = pages.0 / u64::from(BACKGROUND_PART);
            Threshold::Pages(policy::units::Pages(part.max(1)))
        }
    };
    let is_given = dirty.is_some();
    let (dirty, given) = (dirty.unwrap_or(usual), background);
    let background = given.unwrap_or_else(|| part(dirty));
    let is_over = match (background, dirty) {
        (Threshold::Percent(low), Threshold::Percent(high)) => low > high,
        (Threshold::Pages(low), Threshold::Pages(high)) => low > high,
        _ => false,
    };
    if is_over && let Some(word) = draft.server.get("background") {
        let title = "`background` is above `dirty`";
        let help = match draft.server.get("dirty").filter(|_| is_given) {
            Some(dirty) => format!("make it lower than `dirty`, which is {}", dirty.text.trim()),
            None => {
                "make it lower than `dirty`, which is 20% if it is not given, and 450MiB at most"
                    .to_owned()
            }
        };
        mistakes.push(
            word.wrong(title, "writeback would begin after writers are held back")
                .help(help),
        );
    }
    (dirty, background)
}

fn tls(draft: &Draft, mistakes: &mut Vec<Mistake>) -> Option<TlsConfig> {
    let place = draft.tls_place.clone()?;
    let mut reader = Reader {
        words: &draft.tls,
        mistakes,
    };
    let required = reader.read("required", truth).unwrap_or(true);
    let path = |key| reader.text(key).map(PathBuf::from);
    let (certificate, key, clients) = (path("certificate"), path("key"), path("clients"));
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsConfig {
            certificate,
            key,
            clients,
            required,
        }),
        (certificate, _) => {
            let missing = if certificate.is_none() {
                "certificate"
            } else {
                "key"
            };
            let title = format!("TLS needs a certificate and its key: `{missing}` is missing");
            let help =
                format!("add {missing} = \"PATH.pem\" below [tls], or --tls-{missing} PATH.pem");
            mistakes.push(Mistake::new(place, title, "TLS is asked for here").help(help));
            None
        }
    }
}

fn listeners(
    draft: &Draft,
    mode: Option<u32>,
    surroundings: &Surroundings,
    mistakes: &mut Vec<Mistake>,
) -> Vec<ListenConfig> {
    let mode = mode.unwrap_or(default::SOCKET_MODE);
    let mut all: Vec<ListenConfig> = Vec::new();
    for word in &draft.listen {
        match listener(&word.text, mode) {
            Ok(listen) if all.contains(&listen) => {
                let title = format!("`{}` is named twice", word.text);
                mistakes.push(word.wrong(title, "the second time").help("leave one out"));
            }
            Ok(listen) => all.push(listen),
            Err((label, help)) => {
                let title = format!("`{}` is no place to listen at", word.text);
                mistakes.push(word.wrong(title, label).help(help));
            }
        }
    }
    if draft.listen.is_empty() && !surroundings.sockets {
        let mut socket = surroundings.socket();
        if let ListenConfig::Unix { mode: own, .. } = &mut socket {
            *own = mode;
        }
        all.push(socket);
    }
    all
}

/// Bytes of a path that the address of a Unix socket has room for.
const SOCKET_PATH_MAX: usize = 107;

fn listener(text: &str, mode: u32) -> Result<ListenConfig, Wrong> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            let help = "write unix:PATH, as in unix:/run/tidegate/nbd.sock";
            return Err(("the path is missing".into(), help.into()));
        }
        if path == "@" {
            let help = "write unix:@NAME for an abstract socket, or unix:PATH";
            return Err(("the name behind `@` is missing".into(), help.into()));
        }
        if path.len() > SOCKET_PATH_MAX {
            let label = format!("{} bytes long", path.len());
            let help =
                format!("a socket's path has at most {SOCKET_PATH_MAX} bytes; use a shorter one");
            return Err((label, help));
        }
        let path = path.into();
        return Ok(ListenConfig::Unix { path, mode });
    }
    if let Some(address) = text.strip_prefix("tcp:") {
        let address = address.replacen("localhost:", "127.0.0.1:", 1);
        return address.parse().map(ListenConfig::Tcp).map_err(|_| {
            let help = "write tcp:ADDRESS:PORT with a numeric address, as in tcp:127.0.0.1:10809, tcp:[::1]:10809, or \
                        tcp:0.0.0.0:10809 for every one of this machine's";
            ("an address and a port belong here".into(), help.into())
        });
    }
    let label = "neither unix: nor tcp:".into();
    let help = "write unix:PATH or tcp:ADDRESS:PORT, as in unix:/run/tidegate/nbd.sock or tcp:127.0.0.1:10809";
    Err((label, help.into()))
}

fn volume(draft: &VolumeDraft, mistakes: &mut Vec<Mistake>) -> Option<VolumeConfig> {
    let name = &draft.name;
    let before = mistakes.len();
    if let Some(label) = name_problem(&name.text) {
        let title = format!("`{}` is no name for a volume", name.text.escape_debug());
        let help = "use letters, digits and punctuation, as in data or vm/disk0";
        mistakes.push(name.wrong(title, label).help(help));
    }
    let mut reader = Reader {
        words: &draft.keys,
        mistakes,
    };
    let read_only = reader.read("read_only", truth).unwrap_or(false);
    let durable = reader.read("durable", truth).unwrap_or(false);
    let unlocked = reader.read("unlocked", truth).unwrap_or(false);
    let on_error = reader.read("policy", policy).unwrap_or(ErrorPolicy::Report);
    let share = ShareConfig {
        least: reader.read("dirty_min", share).unwrap_or(0),
        most: reader.read("dirty_max", share).unwrap_or(10_000),
    };
    let wanted = reader.read("size", volume_size);
    let objects = ObjectKeys {
        size: reader.read("object_size", |text| Ok(size_above_zero(text)?)),
        parallel: reader.read("parallel", parallel),
        force: reader.read("force", truth).unwrap_or(false),
    };
    let layers = reader.read("device", layers).unwrap_or_default();
    let description = reader.read("description", description).unwrap_or_default();
    let blocks = BlockConfig::default();
    let blocks = BlockConfig {
        minimum: reader.read("block_min", block).unwrap_or(blocks.minimum),
        preferred: reader
            .read("block_preferred", block)
            .unwrap_or(blocks.preferred),
    };
    if share.least > share.most || share.most == 0 {
        let word = &draft.keys[if draft.keys.contains_key("dirty_max") {
            "dirty_max"
        } else {
            "dirty_min"
        }];
        let title =
            "a volume's least share of the dirty limit is above its largest, or that is nothing";
        let help = "make dirty_max more than 0% and no less than dirty_min";
        mistakes.push(word.wrong(title, "of this volume").help(help));
    }
    if blocks.minimum > blocks.preferred.min(4096)
        && let Some(word) = draft
            .keys
            .get("block_min")
            .or(draft.keys.get("block_preferred"))
    {
        let title = "the smallest block is larger than the preferred one, or than a page";
        let help = "make block_min no more than block_preferred (4KiB if not given) and 4KiB";
        mistakes.push(word.wrong(title, "of this volume").help(help));
    }
    let is_bare = layers.is_empty();
    let backend = backend(draft, wanted, &objects, (read_only, is_bare), mistakes);
    let backend = backend.filter(|_| mistakes.len() == before)?;
    Some(VolumeConfig {
        name: name.text.clone(),
        description,
        backend,
        read_only,
        durable,
        unlocked,
        on_error,
        share,
        layers,
        blocks,
    })
}

fn name_problem(name: &str) -> Option<String> {
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

fn description(text: &str) -> Result<String, String> {
    match name_problem(text) {
        Some(problem) if !text.is_empty() => Err(problem),
        _ => Ok(text.to_owned()),
    }
}

fn policy(text: &str) -> Result<ErrorPolicy, String> {
    match text {
        "retry" => Ok(ErrorPolicy::Retry),
        "report" => Ok(ErrorPolicy::Report),
        "stop" => Ok(ErrorPolicy::Stop),
        other => Err(choices(other, ["retry", "report", "stop"])),
    }
}

fn layers(text: &str) -> Result<Vec<Layer>, String> {
    let layers = Layer::parse_stack(text).map_err(|error| error.to_string())?;
    if Stack::frames_needed(&layers) > 0 {
        let problem = "`volatile` keeps copies for tests of crashes and cannot be used here; use slow, faulty or trace";
        return Err(problem.to_owned());
    }
    Ok(layers)
}

fn block(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= BLOCK_MOST)
        .ok_or_else(|| "a power of two from 1B to 1MiB belongs here".to_owned())
}

/// Keys of volumes in object stores.
struct ObjectKeys {
    size: Option<u64>,
    parallel: Option<u16>,
    force: bool,
}

fn parallel(text: &str) -> Result<u16, String> {
    let number = number(text, 1, 64)?;
    u16::try_from(number).map_err(|error| error.to_string())
}

fn volume_size(text: &str) -> Result<u64, String> {
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

/// The words before the colon of a backend that is no path.
const KINDS: [&str; 5] = ["PATH", "new:PATH", "dir:PATH", "mem:", "s3://BUCKET/PREFIX"];

fn backend(
    draft: &VolumeDraft,
    size: Option<u64>,
    object_keys: &ObjectKeys,
    (read_only, is_bare): (bool, bool),
    mistakes: &mut Vec<Mistake>,
) -> Option<BackendConfig> {
    let name = &draft.name;
    let word = draft
        .keys
        .get("backend")
        .filter(|word| !word.text.is_empty());
    let Some(word) = word else {
        let title = format!("the volume `{}` has no backend", name.text);
        let help = format!("give it one of {}", KINDS.join(", "));
        mistakes.push(name.wrong(title, "this volume").help(help));
        return None;
    };
    let needs_size = |mistakes: &mut Vec<Mistake>| {
        if size.is_none() && !draft.keys.contains_key("size") {
            let title = format!("the new volume `{}` has no size", name.text);
            mistakes.push(
                word.wrong(title, "it may have to be made")
                    .help("give it one, as in size=10GiB"),
            );
        }
        size
    };
    let text = word.text.as_str();
    let objects = ["dir:", "mem:", "s3://"]
        .iter()
        .any(|start| text.starts_with(start));
    let only = ["object_size", "parallel", "force"]
        .into_iter()
        .find_map(|key| Some((key, draft.keys.get(key)?)));
    if !objects && let Some((key, word)) = only {
        let title = format!("`{key}` is for volumes in object stores");
        mistakes.push(
            word.wrong(title, "this one is a file")
                .help("leave it out, or use dir:, mem: or s3://"),
        );
        return None;
    }
    if let Some(path) = text.strip_prefix("new:") {
        if read_only {
            let title = "a volume that may have to be made cannot be read-only";
            mistakes.push(
                word.wrong(title, "this one")
                    .help("name the file without `new:`"),
            );
            return None;
        }
        if path.is_empty() {
            let title = "the path of the new file is missing";
            mistakes.push(
                word.wrong(title, "behind `new:`")
                    .help("write new:PATH, as in new:/srv/data.img"),
            );
            return None;
        }
        let path = path.into();
        return needs_size(mistakes).map(|size| BackendConfig::New { path, size });
    }
    // With layers around its device, or with what is said of objects, it is an object store: for
    // trials of one.
    if text == "mem:" && is_bare && only.is_none() {
        return needs_size(mistakes).map(|size| BackendConfig::Memory { size });
    }
    if objects {
        if !cfg!(feature = "objects") {
            let title = "this tidegate was built without object stores";
            mistakes.push(
                word.wrong(title, "needs the feature `objects`")
                    .help("use a file or a block device"),
            );
            return None;
        }
        if text.starts_with("mem:") {
            needs_size(mistakes)?;
        }
        let url = text.to_owned();
        return Some(BackendConfig::Objects {
            url,
            size,
            object_size: object_keys.size,
            parallel: object_keys.parallel,
            force: object_keys.force,
        });
    }
    if let Some((scheme, _)) = text.split_once(':')
        && !scheme.contains('/')
        && !Path::new(text).exists()
    {
        let title = format!("unknown kind of backend `{scheme}:`");
        let help = format!(
            "allowed: {} (a path with a colon: ./{text})",
            KINDS.join(", ")
        );
        mistakes.push(word.wrong(title, "neither a kind nor a path").help(help));
        return None;
    }
    let path = text.into();
    Some(BackendConfig::File { path, size })
}
