//! A draft into a `Config`: every word understood, every rule between them looked at.

use std::net::SocketAddr;
use std::path::Path;

use tidegate::{ErrorPolicy, Threshold};

use super::default::{self, Surroundings};
use super::draft::{Draft, VolumeDraft};
use super::mistake::{ConfigError, Mistake};
use super::options::{ServerOptions, TlsOptions, VolumeOptions};
use super::values::{RECORD_AS_IN, RECORD_USUAL, name_problem, share};
use super::{
    Asked, BackendConfig, BlockConfig, Config, LimitsConfig, ListenConfig, RecordConfig,
    ShareConfig, TlsConfig, VolumeConfig, WebConfig,
};
use crate::access::Access;

/// The value that is wrong, and what is allowed.
type Wrong = (String, String);

pub(super) fn check(
    draft: Draft,
    asked: &Asked,
    surroundings: &Surroundings,
) -> Result<Config, ConfigError> {
    let mut draft = draft;
    let mut mistakes = core::mem::take(&mut draft.mistakes);
    let server = ServerOptions::read(&draft.server, &mut mistakes, surroundings);
    let named = server.memory;
    let (memory, memory_of) = named.map_or_else(|| surroundings.memory(), |named| (named, None));
    let connections = server.max_connections;
    let limits = LimitsConfig::default();
    let limits = LimitsConfig {
        connections: connections
            .unwrap_or_else(|| connections_for(memory, draft.tls_place.is_some())),
        of_one_address: server.max_connections_per_address,
        requests: server.max_requests.unwrap_or(limits.requests),
        request_bytes: server.max_request_size.unwrap_or(limits.request_bytes),
        handshake: server.handshake_timeout.unwrap_or(limits.handshake),
        slow: server.slow_request.unwrap_or(limits.slow),
    };
    let limit = server.record_limit.unwrap_or(RECORD_USUAL);
    let record = server.record.map(|path| RecordConfig { path, limit });
    if let (Some(word), None) = (draft.server.get("record_limit"), draft.server.get("record")) {
        let title = "`record_limit` is given, and `record` is not".to_owned();
        mistakes.push(word.wrong(
            title,
            "there is no record that it bounds",
            "name its file with `record`, or leave this away",
        ));
    }
    let usual = usual_dirty(memory);
    let (dirty, background) = limits_of_dirty(
        &draft,
        (server.dirty, usual),
        server.background,
        &mut mistakes,
    );
    let tls = tls(&draft, &mut mistakes);
    let listen = listeners(&draft, server.socket_mode, surroundings, &mut mistakes);
    let (mut volumes, mut take_out) = (Vec::new(), Vec::new());
    for (place, volume) in draft.volumes.iter().enumerate() {
        let name = &volume.name;
        let twice = draft.volumes[..place]
            .iter()
            .any(|other| other.name.text == name.text);
        if twice {
            let title = format!("there are two volumes `{}`", name.text);
            mistakes.push(name.wrong(title, "the second one", "give each a name of its own"));
        }
        let (volume, is_taken_out) = self::volume(volume, &server.clients, &mut mistakes);
        if let Some(path) = volume.as_ref().and_then(|one| made_twice(&volumes, one)) {
            let title = format!(
                "two volumes are the file {}, which is to be made",
                path.display()
            );
            mistakes.push(name.wrong(title, "the second one", "give each a file of its own"));
        }
        match volume {
            Some(volume) if is_taken_out => take_out.push(volume.name),
            volume => volumes.extend(volume),
        }
    }
    shares_of_all(&draft, &mut mistakes);
    clients_are_asked(&draft, &mut mistakes);
    if let (Some(word), Some(record)) = (draft.server.get("record"), &record) {
        let mut files = volumes
            .iter()
            .filter_map(|one| Some((file_of(&one.backend)?.0, one)));
        if let Some((_, volume)) = files.find(|(path, _)| is_same(path, &record.path)) {
            let title = format!(
                "`record` is {}, the file of the volume `{}`",
                word.text, volume.name
            );
            mistakes.push(word.wrong(
                title,
                "requests cannot be recorded there",
                format!("name another file: {RECORD_AS_IN}"),
            ));
        }
    }
    if !mistakes.is_empty() {
        draft.mistakes = mistakes;
        return Err(draft.refuse());
    }
    if volumes.is_empty() && take_out.is_empty() && asked.file.is_none() {
        volumes.push(VolumeConfig {
            clients: server.clients.unwrap_or_default(),
            ..surroundings.volume()?
        });
    }
    Ok(Config {
        asked: asked.clone(),
        memory,
        memory_given: named.is_some(),
        memory_of,
        dirty,
        background,
        listen,
        web: server.web.unwrap_or(Some(WebConfig {
            address: SocketAddr::from(default::WEB),
            insisted: false,
        })),
        tls,
        limits,
        connections_given: connections.is_some(),
        volumes,
        take_out,
        control: server.control,
        end_idle: server.end_idle,
        take_out_all: server.take_out_all.unwrap_or(false),
        paced: server.paced.unwrap_or(true),
        io_uring: server.io_uring.unwrap_or(true),
        nodes: server.nodes.unwrap_or_default(),
        page_rule: server.page_rule.flatten(),
        record,
        log: server.log.unwrap_or_default(),
        log_format: server.log_format.unwrap_or_default(),
    })
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

/// True if both are the same path, from wherever they begin.
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
        mistakes.push(word.wrong(
            title,
            "with this one it is more than 100%",
            "lower some of them: together they have at most 100% of the dirty limit",
        ));
    }
}

/// Lists of clients are of certificates: clients have to be asked for one.
fn clients_are_asked(draft: &Draft, mistakes: &mut Vec<Mistake>) {
    if draft.tls.contains_key("clients") {
        return;
    }
    let of_volumes = draft.volumes.iter().map(|volume| &volume.keys);
    let mut lists = of_volumes
        .chain([&draft.server])
        .filter_map(|keys| keys.get("clients"));
    if let Some(word) = lists.next() {
        let title = "`clients` names clients by their certificates, and nobody is asked for one";
        let help =
            "add clients = \"AUTHORITIES.pem\" below [tls], or --tls-clients AUTHORITIES.pem";
        mistakes.push(word.wrong(title, "these cannot be told from others", help));
    }
    if let Some(word) = draft.tls.get("revoked") {
        let title = "`revoked` is given, and `clients` is not";
        let help = "name the authorities of clients with `clients`, or leave this away";
        mistakes.push(word.wrong(title, "there are no authorities that revoke", help));
    }
}

/// Connections where none are named: what they hold at most is no more than an eighth of the
/// memory.
pub(crate) fn connections_for(memory: u64, encrypted: bool) -> u32 {
    let most = LimitsConfig::default().connections;
    let room = memory / 8 / crate::limits::connection_bytes(encrypted);
    u32::try_from(room).unwrap_or(most).clamp(16, most)
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
        mistakes.push(word.wrong(
            title,
            "writeback would begin after writers are held back",
            help,
        ));
    }
    (dirty, background)
}

fn tls(draft: &Draft, mistakes: &mut Vec<Mistake>) -> Option<TlsConfig> {
    let place = draft.tls_place.clone()?;
    let tls = TlsOptions::read(&draft.tls, mistakes);
    let (clients, required) = (tls.clients, tls.required.unwrap_or(true));
    match (tls.certificate, tls.key) {
        (Some(certificate), Some(key)) => Some(TlsConfig {
            certificate,
            key,
            clients,
            revoked: tls.revoked,
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
                mistakes.push(word.wrong(title, "the second time", "leave one out"));
            }
            Ok(listen) => all.push(listen),
            Err((label, help)) => {
                let title = format!("`{}` is no place to listen at", word.text);
                mistakes.push(word.wrong(title, label, help));
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

/// Also answers whether it is not to be served any more.
fn volume(
    draft: &VolumeDraft,
    usual_clients: &Option<Access>,
    mistakes: &mut Vec<Mistake>,
) -> (Option<VolumeConfig>, bool) {
    let name = &draft.name;
    let before = mistakes.len();
    if let Some(label) = name_problem(&name.text) {
        let title = format!("`{}` is no name for a volume", name.text.escape_debug());
        let help = "use letters, digits and punctuation, as in data or vm/disk0";
        mistakes.push(name.wrong(title, label, help));
    }
    let options = VolumeOptions::read(&draft.keys, mistakes);
    let share = ShareConfig {
        least: options.dirty_min.unwrap_or(0),
        most: options.dirty_max.unwrap_or(10_000),
    };
    let blocks = BlockConfig::default();
    let blocks = BlockConfig {
        minimum: options.block_min.unwrap_or(blocks.minimum),
        preferred: options.block_preferred.unwrap_or(blocks.preferred),
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
        mistakes.push(word.wrong(title, "of this volume", help));
    }
    if blocks.minimum > blocks.preferred.min(4096)
        && let Some(word) = draft
            .keys
            .get("block_min")
            .or(draft.keys.get("block_preferred"))
    {
        let title = "the smallest block is larger than the preferred one, or than a page";
        let help = "make block_min no more than block_preferred (4KiB if not given) and 4KiB";
        mistakes.push(word.wrong(title, "of this volume", help));
    }
    let backend = backend(draft, &options, mistakes);
    let backend = backend.filter(|_| mistakes.len() == before);
    let volume = backend.map(|backend| VolumeConfig {
        description: options.description.unwrap_or_default(),
        read_only: options.read_only.unwrap_or(false),
        durable: options.durable.unwrap_or(false),
        unlocked: options.unlocked.unwrap_or(false),
        on_error: options.on_error.unwrap_or(ErrorPolicy::Report),
        share,
        layers: options.device.unwrap_or_default(),
        blocks,
        clients: options
            .clients
            .or(usual_clients.clone())
            .unwrap_or_default(),
        ..VolumeConfig::new(&name.text, backend)
    });
    (volume, options.take_out.unwrap_or(false))
}

/// The words before the colon of a backend that is no path.
const KINDS: [&str; 5] = ["PATH", "new:PATH", "dir:PATH", "mem:", "s3://BUCKET/PREFIX"];

fn backend(
    draft: &VolumeDraft,
    options: &VolumeOptions,
    mistakes: &mut Vec<Mistake>,
) -> Option<BackendConfig> {
    let name = &draft.name;
    let is_named = options
        .backend
        .as_ref()
        .is_some_and(|text| !text.is_empty());
    let Some(word) = draft.keys.get("backend").filter(|_| is_named) else {
        let title = format!("the volume `{}` has no backend", name.text);
        let help = format!("give it one of {}", KINDS.join(", "));
        mistakes.push(name.wrong(title, "this volume", help));
        return None;
    };
    let size = options.size;
    let is_bare = options.device.as_ref().is_none_or(Vec::is_empty);
    let needs_size = |mistakes: &mut Vec<Mistake>| {
        if size.is_none() && !draft.keys.contains_key("size") {
            let title = format!("the new volume `{}` has no size", name.text);
            mistakes.push(word.wrong(
                title,
                "it may have to be made",
                "give it one, as in size=10GiB",
            ));
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
        mistakes.push(word.wrong(
            title,
            "this one is a file",
            "leave it out, or use dir:, mem: or s3://",
        ));
        return None;
    }
    if let Some(path) = text.strip_prefix("new:") {
        if options.read_only == Some(true) {
            let title = "a volume that may have to be made cannot be read-only";
            mistakes.push(word.wrong(title, "this one", "name the file without `new:`"));
            return None;
        }
        if path.is_empty() {
            let title = "the path of the new file is missing";
            mistakes.push(word.wrong(
                title,
                "behind `new:`",
                "write new:PATH, as in new:/srv/data.img",
            ));
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
        if text.starts_with("mem:") {
            needs_size(mistakes)?;
        }
        let url = text.to_owned();
        return Some(BackendConfig::Objects {
            url,
            size,
            object_size: options.object_size,
            parallel: options.parallel,
            force: options.force.unwrap_or(false),
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
        mistakes.push(word.wrong(title, "neither a kind nor a path", help));
        return None;
    }
    let path = text.into();
    Some(BackendConfig::File { path, size })
}
