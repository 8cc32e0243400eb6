//! The start: everything is opened before anybody is served.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use os::GroupLimit;
use tidegate::{Cache, OneNode, RuleMaker, Threshold};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::message;
use super::signs::Signs;
use super::{ServeError, Served, Server};
use crate::backend::{self, Backend};
use crate::config::{Config, LimitsConfig, ListenConfig, VolumeConfig, show_size};
use crate::export::{About, Export, ExportOptions};
use crate::hub::{Hub, Limits, OWN_REQUESTS, Security};
use crate::limits;
use crate::listen::{self, Listener};
use crate::log::{info, warn};
use crate::record::{self, Recorder};
use crate::snapshot::{self, Source, Watched};
use crate::systemd::{Notify, Passed};

/// Volumes that there may be more than at the start: places for devices are made then.
pub(super) const ROOM: usize = 16;
/// Volumes that they add at one time for which memory is put aside; for more, and for what their
/// backings take beside that, the cache gives way (`attach.rs`).
const ROOM_AT_ONCE: usize = 2;
/// Memory of threads of pools and of the runtime, allocator and log beside the parts that are
/// counted.
const BESIDE: u64 = 4 << 20;
/// The memory said to be needed is in steps of it, and so much more than was found.
const MARGIN: u64 = 4 << 20;
/// Memory of a volume: eight receive buffers of 128 KiB, stacks of its pool as far as they are
/// touched, counters.
const VOLUME: u64 = 3 << 19;
/// Memory of a request under way: its place in a table, and its part in the pool or among those
/// that wait for a flush. Measured with 128 flushes on each of 330 connections.
const REQUEST: u64 = 384;
/// The part of the memory limit that requests over those that each connection may have take
/// together, at most.
const REQUESTS_PART: u64 = 64;
/// Set to 1 in the environment, core dumps hold the cache, with the clients' data: for a person who
/// debugs the server.
const DUMP: &str = "TIDEGATE_CORE_DUMP_DATA";
/// Permissions of the control socket: for the server's user, and root.
const CONTROL_MODE: u32 = 0o600;
/// A backing that has not been opened for so long is named.
const SILENT: Duration = Duration::from_secs(3);
/// Time for which volumes that are being opened are waited for when one was refused, or the server
/// ends.
pub(super) const OTHERS: Duration = Duration::from_secs(2);

/// Opens all of it and begins to serve.
pub(super) async fn start(config: Config, passed: Vec<Passed>) -> Result<Server, ServeError> {
    if config.listen.is_empty() && passed.is_empty() {
        return Err(ServeError::Nowhere);
    }
    let descriptors = descriptors(&config);
    let room = limits::lift_descriptors(u64::from(config.limits.connections), descriptors);
    let mut limits = limits_of(&config.limits, room, 0);
    limits.in_flight_more = in_flight_more(config.memory, &limits);
    let connections_max = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let cache = cache(&config, &limits)?;
    let notify = Arc::new(Notify::of_process());
    let opened = open_all(&config, &cache, &notify).await?;
    let hub = Arc::new(hub(&config, limits)?);
    // Sockets after volumes: a client that can connect can be served.
    let mut addresses = Vec::new();
    let mut bound = Vec::new();
    for listen in &config.listen {
        let listener = listen::bind(listen).map_err(ServeError::Listen)?;
        addresses.push(listener.address(listen));
        bound.push(listener);
    }
    let is_passed = !passed.is_empty();
    for passed in passed {
        let address = address_of(&passed.socket);
        let listener = Listener::from_fd(passed.socket).map_err(ServeError::Listen)?;
        info!(name = %passed.name, socket = %listener.name(), "took a socket that was passed");
        addresses.extend(address);
        bound.push(listener);
    }
    let control = match &config.control {
        None => None,
        Some(path) => {
            let (path, mode) = (path.clone(), CONTROL_MODE);
            Some(listen::bind(&ListenConfig::Unix { path, mode }).map_err(ServeError::Listen)?)
        }
    };
    let watched: Arc<dyn Source> = Arc::new(Watched::new(&hub, cache.clone()));
    // Events of volumes are logged; ends with the runtime.
    tokio::spawn(snapshot::watch(Arc::clone(&watched)));
    tokio::spawn(watch_system(cache.clone()));
    let web = match &config.web {
        Some(web) => Some(crate::web::start(web, watched).map_err(ServeError::Web)?),
        None => None,
    };
    let web_address = web.as_ref().map(crate::web::Handle::address);
    let mut volumes = Vec::new();
    for (config_of, backend) in opened {
        volumes.push(offer(&config, config_of, backend, &cache, &hub));
    }
    if let Some(control) = control {
        tokio::spawn(crate::hold::serve(control, Arc::clone(&hub)));
    }
    warnings(&config, &addresses);
    let listeners: Vec<JoinHandle<()>> = bound
        .into_iter()
        .map(|listener| tokio::spawn(listener.serve(Arc::clone(&hub))))
        .collect();
    if message::is_for_people(config.log_format) {
        message::say(&message::started(
            &config,
            &addresses,
            &volumes,
            web_address,
        ));
    } else {
        message::announce(&config, &addresses, &volumes);
    }
    let mut uris = String::new();
    for listen in &addresses {
        for volume in &volumes {
            let uri = message::uri(listen, &volume.config.name, config.tls.is_some());
            uris.push_str(&uri);
            uris.push('\n');
        }
    }
    // A program that passes sockets has standard output for itself.
    if !is_passed {
        message::print(&uris);
    }
    Ok(Server {
        beside: cache.stats().beside,
        put_aside: put_aside(&config),
        descriptors,
        memory: config.memory,
        config,
        cache,
        hub,
        volumes,
        leaving: JoinSet::new(),
        coming: Vec::new(),
        opening: JoinSet::new(),
        gone: 0,
        wanted: Vec::new(),
        notify,
        connections_max,
        listeners,
        _web: web,
    })
}

pub(super) fn limits_of(config: &LimitsConfig, room: u64, in_flight_more: usize) -> Limits {
    let connections = u64::from(config.connections).min(room);
    Limits {
        connections: usize::try_from(connections).unwrap_or(usize::MAX),
        of_one_address: of_one_address(config, connections),
        connections_asked: config.connections as usize,
        in_flight: usize::try_from(config.requests).unwrap_or(usize::MAX),
        in_flight_more,
        request: config.request_bytes,
        handshake: config.handshake,
        slow: config.slow,
    }
}

/// Connections that one address may have: others can come, unless a number is given.
fn of_one_address(config: &LimitsConfig, connections: u64) -> usize {
    let usual = connections - connections / 8;
    let most = config.of_one_address.map_or(usual, u64::from);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Requests that connections may have under way together over those that each may have.
fn in_flight_more(memory: u64, limits: &Limits) -> usize {
    let more = limits.in_flight.saturating_sub(OWN_REQUESTS);
    let room = usize::try_from(memory / REQUESTS_PART / REQUEST).unwrap_or(usize::MAX);
    room.min(more.saturating_mul(limits.connections))
}

pub(super) fn cache(config: &Config, limits: &Limits) -> Result<Cache, ServeError> {
    let room = if config.asked.file.is_some() { ROOM } else { 0 };
    let devices = u16::try_from(config.volumes.len() + room).unwrap_or(u16::MAX);
    let mut builder = Cache::builder();
    if let Some(rule) = config.page_rule.and_then(RuleMaker::by_name) {
        builder = builder.page_rule(rule);
    }
    let built = builder
        .memory(config.memory)
        .whole_process(true)
        .beside(beside(config, limits))
        .devices(devices)
        .dirty_limit(config.dirty)
        .background_limit(config.background)
        .io_uring(config.io_uring)
        .nodes(config.nodes)
        .core_dump(std::env::var_os(DUMP).is_some_and(|value| value == "1"))
        .build()
        .map_err(|cause| match cause {
            tidegate::Error::LimitTooSmall { least, .. } => too_small(config, limits, least),
            cause => ServeError::Cache(cause),
        })?;
    let stats = built.stats();
    match &stats.one_node {
        // An operator who asks for them on each machine alike knows that.
        Some(OneNode::Only) => info!("the machine has one node"),
        Some(why) => warn!(cause = %why, "the cache is on one node"),
        None => {}
    }
    if let Some(short) = stats.short_at_start {
        let short = show_size(short);
        warn!(
            help = "a lower --memory, or more memory, where neither swap nor the file system's own cache can make room",
            "the memory limit is {short} more than the system says that it has"
        );
    }
    if let Some(GroupLimit { bytes, file }) = &config.memory_of {
        let (memory, allowed) = (show_size(config.memory), show_size(*bytes));
        info!(
            file = %file.display(),
            "the memory limit is {memory}: three quarters of the {allowed} that the control group allows"
        );
    }
    dirty_fits(config, config.memory, stats.free + stats.cached)?;
    Ok(built)
}

/// Between two looks at what the system does with the cache.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Says in the log when the control group holds the cache below its limit, and when it does no
/// longer; and, once, that there is no io_uring for a device. Ends with the runtime.
async fn watch_system(cache: Cache) {
    let (mut said, mut has_ring, mut refused) = (None, true, 0);
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let stats = cache.stats();
        if let Some(cause) = stats.no_io_uring.filter(|_| has_ring) {
            has_ring = false;
            warn!(cause = %cause, "io_uring cannot be had: threads do what it would, more slowly (--no-io-uring to ask for that)");
        }
        if stats.refused > refused && refused == 0 {
            let (has, less) = (show_size(stats.limit), show_size(stats.refused));
            warn!(
                refused = stats.refused,
                "the system gives no memory for {less} of the memory limit: the server goes on with {has} (ulimit -d, -l and \
                 vm.overcommit_memory can be the cause)"
            );
        }
        refused = stats.refused;
        if stats.ceiling == said {
            continue;
        }
        match stats.ceiling {
            Some(ceiling) if said.is_none_or(|said| ceiling < said) => {
                let group = os::Groups::of_process().limit();
                let file = group.map_or(String::new(), |limit| limit.file.display().to_string());
                let ceiling = show_size(ceiling);
                warn!(file = %file, "the control group is short of memory: the server keeps to {ceiling} now");
            }
            Some(ceiling) => {
                info!(
                    "the control group has memory again: the server keeps to {} now",
                    show_size(ceiling)
                );
            }
            None => info!("the control group has memory again: the memory limit is what it was"),
        }
        said = stats.ceiling;
    }
}

/// Checks that the dirty limits, given in bytes, have room in the `cache` bytes of pages that a
/// memory limit leaves: above that nobody would ever be held back, and writeback would not begin.
pub(super) fn dirty_fits(config: &Config, limit: u64, cache: u64) -> Result<(), ServeError> {
    for (key, threshold) in [("dirty", config.dirty), ("background", config.background)] {
        if let Threshold::Pages(pages) = threshold
            && pages.0 > cache >> 12
        {
            return Err(ServeError::Dirty {
                key,
                // The largest size is one page more than there are bytes for.
                wanted: pages.0.saturating_mul(1 << 12),
                cache,
                limit,
            });
        }
    }
    Ok(())
}

/// The refusal if `least` bytes were needed. Following it has to do: what the process takes at a
/// start wanders by some hundred KiB, and connections that are not named become more with the
/// limit.
fn too_small(config: &Config, limits: &Limits, least: u64) -> ServeError {
    let without = least.saturating_sub(of_clients(config, limits));
    let mut wanted = (least + MARGIN).next_multiple_of(MARGIN);
    let mut bounds = *limits;
    loop {
        if !config.connections_given {
            let of_limit = crate::config::connections_for(wanted, config.tls.is_some());
            bounds.connections = usize::try_from(of_limit).unwrap_or(usize::MAX);
        }
        bounds.in_flight_more = in_flight_more(wanted, &bounds);
        // An eighth and a 64th of the limit at most: it ends.
        let needed = (without + of_clients(config, &bounds) + MARGIN).next_multiple_of(MARGIN);
        if needed <= wanted {
            break;
        }
        wanted = needed;
    }
    let kept = config
        .volumes
        .iter()
        .map(|volume| (volume.name.clone(), backend::memory(volume)))
        .filter(|(_, bytes)| *bytes >= 1 << 20)
        .collect();
    ServeError::Memory {
        limit: config.memory,
        least: wanted,
        beside: beside(config, &bounds),
        connections: bounds.connections,
        kept,
    }
}

/// Most memory that the server takes beside the cache.
fn beside(config: &Config, bounds: &Limits) -> u64 {
    let web = config.web.map_or(0, |_| crate::web::MEMORY);
    let record = config.record.as_ref().map_or(0, |_| record::MEMORY);
    BESIDE + of_clients(config, bounds) + put_aside(config) + web + record
}

/// Of that, what is put aside for volumes: those of the start, and some that come later.
fn put_aside(config: &Config) -> u64 {
    let room = if config.asked.file.is_some() {
        ROOM_AT_ONCE
    } else {
        0
    };
    config.volumes.iter().map(of_volume).sum::<u64>() + room as u64 * VOLUME
}

/// Descriptors of the volumes of the start, and of those that may come later.
fn descriptors(config: &Config) -> u64 {
    let room = if config.asked.file.is_some() { ROOM } else { 0 };
    let volumes = config.volumes.iter().map(backend::descriptors);
    volumes.sum::<u64>() + room as u64 * backend::DESCRIPTORS
}

/// Most memory that a volume takes beside the cache.
pub(super) fn of_volume(config: &VolumeConfig) -> u64 {
    VOLUME + backend::memory(config)
}

/// Of that, what connections take, and their requests.
fn of_clients(config: &Config, bounds: &Limits) -> u64 {
    let connection = limits::connection_bytes(config.tls.is_some());
    bounds.connections as u64 * connection + bounds.in_flight_more as u64 * REQUEST
}

fn hub(config: &Config, limits: Limits) -> Result<Hub, ServeError> {
    let hub = Hub::new(limits, security(config)?);
    let Some(record) = &config.record else {
        return Ok(hub);
    };
    let recorder = Recorder::start(record).map_err(|cause| ServeError::Record {
        path: record.path.clone(),
        cause,
    })?;
    let most = show_size(record.limit);
    info!(file = %record.path.display(), "requests are recorded, up to {most}");
    Ok(hub.with_recorder(recorder))
}

/// Reads the certificates, if there are to be any.
pub(super) fn security(config: &Config) -> Result<Security, ServeError> {
    let Some(tls) = &config.tls else {
        return Ok(Security::Plain);
    };
    let acceptor = crate::tls::Acceptor::open(tls).map_err(ServeError::Tls)?;
    for warning in acceptor.warnings() {
        warn!("{warning}");
    }
    Ok(match tls.required {
        true => Security::Required(acceptor),
        false => Security::Offered(acceptor),
    })
}

/// Warns of options that are allowed and hardly meant.
fn warnings(config: &Config, listen: &[ListenConfig]) {
    if config.volumes.is_empty() {
        // A message has room for a hundred letters, a value for more.
        warn!(
            help = "write [volume.data], backend = \"new:/srv/data.img\" and size = \"10GiB\" into the file, and send HUP",
            "nothing is served: no volume is named"
        );
    }
    if config.tls.as_ref().is_some_and(|tls| tls.required) {
        return;
    }
    for listen in listen {
        match listen {
            ListenConfig::Tcp(address) if !address.ip().is_loopback() => warn!(
                %address,
                help = "require encryption and certificates (--tls-certificate, --tls-clients), or listen at 127.0.0.1",
                "volumes can be read and written by everybody who reaches this address"
            ),
            ListenConfig::Unix { path, .. } if listen::abstract_name(path).is_some() => warn!(
                socket = %path.display(),
                help = "listen at unix:PATH, whose permissions --socket-mode sets",
                "an abstract socket has no permissions: each user of this machine can read and write the volumes"
            ),
            ListenConfig::Tcp(_) | ListenConfig::Unix { .. } => {}
        }
    }
}

/// Where a socket that was passed listens, if a client can name that.
fn address_of(socket: &OwnedFd) -> Option<ListenConfig> {
    let address = rustix::net::getsockname(socket).ok()?;
    if let Ok(tcp) = SocketAddr::try_from(address.clone()) {
        return Some(ListenConfig::Tcp(tcp));
    }
    let unix = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = match unix.abstract_name() {
        Some(name) => [b"@", name].concat(),
        None => unix.path()?.to_bytes().to_vec(),
    };
    let path = PathBuf::from(OsStr::from_bytes(&path));
    Some(ListenConfig::Unix { path, mode: 0 })
}

/// Opens all volumes side by side: one may be far away.
async fn open_all(
    config: &Config,
    cache: &Cache,
    notify: &Arc<Notify>,
) -> Result<Vec<(VolumeConfig, Backend)>, ServeError> {
    let volumes = config.volumes.iter();
    let opened = Arc::new(AtomicUsize::new(0));
    let _signs = Signs::give(notify, &opened, volumes.len());
    let opening = volumes.map(|volume| {
        let (volume, cache, count) = (volume.clone(), cache.clone(), Arc::clone(&opened));
        async move {
            let opened = open(volume, cache).await?;
            count.fetch_add(1, Ordering::Relaxed);
            Ok(opened)
        }
    });
    side_by_side(opening).await
}

/// Does all of it at once. If any is refused the others are waited for, but not for long: their new
/// files are removed again, and a user who mistyped a path is not to wait for a store that is far
/// away.
async fn side_by_side<T, F>(opening: impl Iterator<Item = F>) -> Result<Vec<T>, ServeError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ServeError>> + Send + 'static,
{
    let mut all = JoinSet::new();
    for (place, volume) in opening.enumerate() {
        all.spawn(async move { (place, volume.await) });
    }
    let (mut opened, mut refused) = (BTreeMap::new(), BTreeMap::new());
    let mut until = None;
    loop {
        let ended = match until {
            None => all.join_next().await,
            // Volumes that are still being opened then are dropped.
            Some(until) => timeout_at(until, all.join_next()).await.unwrap_or(None),
        };
        match ended {
            None => break,
            Some(Ok((place, Ok(volume)))) => {
                opened.insert(place, volume);
            }
            Some(Ok((place, Err(error)))) => {
                refused.insert(place, error);
                until.get_or_insert(Instant::now() + OTHERS);
            }
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    let mut refused: Vec<_> = refused.into_values().collect();
    match refused.len() {
        0 => Ok(opened.into_values().collect()),
        1 => Err(refused.remove(0)),
        _ => Err(ServeError::Volumes(refused)),
    }
}

/// Opens one volume on a thread that may wait; says so if it waits for long.
pub(super) async fn open(
    config: VolumeConfig,
    cache: Cache,
) -> Result<(VolumeConfig, Backend), ServeError> {
    let name = config.name.clone();
    let place = message::place(&config.backend);
    let mut opened = crate::aside::run(move || {
        let backend = backend::open(&config, &cache)?;
        Ok((config, backend))
    });
    let opened = match timeout(SILENT, &mut opened).await {
        Ok(opened) => opened,
        Err(_) => {
            let silent = SILENT.as_secs();
            warn!(volume = %name, "still being opened: backing {place} has not answered for {silent} s");
            opened.await
        }
    };
    match opened {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(cause)) => Err(ServeError::Volume { name, cause }),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Offers an open volume to clients.
pub(super) fn offer(
    config: &Config,
    volume: VolumeConfig,
    backend: Backend,
    cache: &Cache,
    hub: &Hub,
) -> Served {
    if !backend.direct {
        warn!(
            volume = %volume.name,
            "no direct I/O there: the system keeps a second copy in its own page cache, which no limit holds"
        );
    }
    let options = ExportOptions {
        name: volume.name.clone(),
        about: about(&volume),
        place: backend::whereabouts(&volume.backend),
        read_only: volume.read_only,
        access: volume.clients.clone(),
        paced: config.paced,
        patient: is_patient(&volume),
        durable: volume.durable,
        ..ExportOptions::default()
    };
    backend.made.keep();
    if let Some(what) = backend.marker.as_ref().and_then(backend::Marker::set) {
        warn!(
            volume = %volume.name,
            help = "restart guests that have gone on meanwhile: their last writes may be gone, and nothing has told them",
            "{what}"
        );
    }
    let export = Arc::new(Export::new(options, cache.clone(), backend.opened));
    // Names are unique in a configuration, and nothing else offers any.
    let is_new = hub.offer(Arc::clone(&export));
    debug_assert!(is_new, "two volumes of one name");
    Served {
        config: volume,
        export,
        file_said: Arc::default(),
        layers: backend.layers,
        closer: Some(backend.closer),
        is_leaving: false,
    }
}

/// The description of a volume for clients.
pub(super) fn about(volume: &VolumeConfig) -> About {
    About {
        description: volume.description.clone(),
        minimum_block: volume.blocks.minimum,
        preferred_block: volume.blocks.preferred,
    }
}

/// True if clients that want something durable are held back while writes fail.
pub(super) fn is_patient(volume: &VolumeConfig) -> bool {
    volume.on_error == tidegate::ErrorPolicy::Retry
}

/// Where connections are taken, for comparisons.
pub(super) fn same_places(before: &[ListenConfig], after: &[ListenConfig]) -> bool {
    let is_same = |one: &ListenConfig, other: &ListenConfig| match (one, other) {
        (ListenConfig::Unix { path: one, .. }, ListenConfig::Unix { path: other, .. }) => {
            one == other
        }
        (one, other) => one == other,
    };
    let is_among = |listen| after.iter().any(|other| is_same(listen, other));
    before.len() == after.len() && before.iter().all(is_among)
}

/// The permissions of Unix sockets, where both have some.
pub(super) fn same_mode(before: &[ListenConfig], after: &[ListenConfig]) -> bool {
    let mode = |all: &[ListenConfig]| {
        all.iter().find_map(|listen| match listen {
            ListenConfig::Unix { mode, .. } => Some(*mode),
            ListenConfig::Tcp(_) => None,
        })
    };
    mode(before)
        .zip(mode(after))
        .is_none_or(|(before, after)| before == after)
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;

    use super::*;

    fn together<T: Send + 'static, F>(all: impl Iterator<Item = F>) -> Result<Vec<T>, ServeError>
    where
        F: Future<Output = Result<T, ServeError>> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let long = Duration::from_mins(1);
        let done = runtime.block_on(async { timeout(long, side_by_side(all)).await });
        done.expect("one waits for another to have ended")
    }

    #[test]
    fn sockets_are_the_same_places_whatever_their_permissions() {
        let unix = |path: &str, mode| ListenConfig::Unix {
            path: path.into(),
            mode,
        };
        let tcp = || ListenConfig::Tcp("127.0.0.1:1".parse().unwrap());
        let before = [unix("/a", 0o600), tcp()];
        assert!(same_places(&before, &[tcp(), unix("/a", 0o660)]));
        assert!(!same_places(&before, &[unix("/b", 0o600), tcp()]));
        assert!(!same_places(&before, &[tcp()]));
        assert!(!same_mode(&before, &[unix("/b", 0o660)]));
        assert!(same_mode(&before, &[unix("/b", 0o600)]));
        assert!(same_mode(&before, &[tcp()]));
    }

    #[test]
    fn volumes_are_opened_side_by_side_and_stand_in_their_order() {
        let all = Arc::new(Barrier::new(3));
        let opened = together((0..3).map(|place| {
            let all = Arc::clone(&all);
            async move {
                // None goes on before all have begun.
                all.wait().await;
                Ok(place)
            }
        }));
        assert_eq!(opened.unwrap(), [0, 1, 2]);
    }

    #[test]
    fn each_that_is_refused_is_named_and_what_was_opened_is_let_go_of() {
        let opened = Arc::new(());
        let refused = together((0..3).map(|place| {
            let opened = Arc::clone(&opened);
            async move {
                match place {
                    1 => Ok(opened),
                    _ => Err(ServeError::Nowhere),
                }
            }
        }));
        assert!(matches!(refused, Err(ServeError::Volumes(all)) if all.len() == 2));
        assert_eq!(Arc::strong_count(&opened), 1);
    }

    #[test]
    fn who_is_refused_does_not_wait_for_one_that_does_not_answer() {
        let refused = together((0..2).map(|place| async move {
            if place == 0 {
                std::future::pending::<()>().await;
            }
            Err::<(), _>(ServeError::Nowhere)
        }));
        assert!(matches!(refused, Err(ServeError::Nowhere)));
    }
}
