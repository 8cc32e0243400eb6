//! Where clients knock: Unix sockets, TCP ports, sockets that systemd passes.
//!
//! A Unix socket gets its permissions before anybody can connect to it. A path that a dead server
//! left behind is taken over; one of a living server, or something else of that name, is not. Of
//! several that start at once, one gets it. `@NAME` is no path: an abstract socket, which has no
//! permissions and goes with its server.

use std::fs::{self, File, TryLockError};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr as IpAddress;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{
    SocketAddr, UnixListener as BlockingUnixListener, UnixStream as BlockingUnixStream,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use os::OwnPath;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::config::ListenConfig;
use crate::connection;
use crate::hub::Hub;
use crate::log::warn;
use crate::refusal::words;

/// Time for which others that bind a socket in the same folder are waited for.
const LOCK_MAX: Duration = Duration::from_secs(1);
/// Between two tries.
const LOCK_AGAIN: Duration = Duration::from_millis(2);
/// Connections that may wait to be taken; the system cuts it to what it allows.
const BACKLOG: i32 = 1024;
/// When descriptors or memory are short: how long nobody is let in.
const SHORTAGE: Duration = Duration::from_millis(100);
/// Interval at which the path of a socket is looked for.
const LOOK: Duration = Duration::from_secs(5);
/// Between two lines in the log about clients that cannot be let in.
const SAID: Duration = Duration::from_secs(10);
/// A TCP client that was silent for so long is asked whether it is still there.
const SILENT: Duration = Duration::from_secs(60);
/// A TCP client that has not taken what was sent for so long is gone.
const GONE: Duration = Duration::from_secs(120);

/// Why there is no listening.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A server is listening there.
    #[error("another server listens on {0}; stop it, or choose another path")]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{0} is there and is not a socket; remove it, or choose another path")]
    NotASocket(PathBuf),
    /// The path does not fit a socket's address.
    #[error("{0} is too long for the path of a socket (at most 107 bytes); choose a shorter one")]
    TooLong(PathBuf),
    /// The system refused.
    #[error("cannot listen on {what}: {}; {}", words(error), way_out(error))]
    System {
        /// The address.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// A passed descriptor is not what clients can connect to.
    #[error("the passed descriptor {0} is not a listening stream socket (Unix or TCP)")]
    Passed(String),
}

/// The way out of the system's error.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "make the folder first, or choose another path",
        io::ErrorKind::NotADirectory => "a part of the path is a file: choose another path",
        io::ErrorKind::PermissionDenied => {
            "choose a path in a folder that this user may write to, or a port above 1023"
        }
        io::ErrorKind::AddrInUse => "another program has the port: end it, or choose another port",
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: choose one of its own (`ip address`)"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a path that can be written to",
        _ => "choose another place with --listen",
    }
}

/// A socket on which clients are accepted.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// Its name for clients.
    name: String,
    /// A descriptor that is given up to turn a client away where there is none left.
    spare: Option<File>,
    own: Option<OwnSocket>,
}

/// A path that was bound here, with its permissions.
#[derive(Debug)]
struct OwnSocket {
    own: OwnPath,
    path: PathBuf,
    mode: u32,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Listens where `config` says. Within a runtime.
///
/// # Errors
/// Why not, and the way out.
pub fn bind(config: &ListenConfig) -> Result<Listener, ListenError> {
    match config {
        ListenConfig::Unix { path, mode } => match abstract_name(path) {
            Some(name) => bind_abstract(path, name),
            None => bind_unix(path, *mode),
        },
        ListenConfig::Tcp(address) => bind_tcp(*address),
    }
}

fn bind_unix(path: &Path, mode: u32) -> Result<Listener, ListenError> {
    let failed = |error: io::Error| ListenError::System {
        what: path.display().to_string(),
        error,
    };
    let address = SocketAddrUnix::new(path).map_err(|_| ListenError::TooLong(path.into()))?;
    let alone = lock_folder_of(path);
    clear(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| failed(error.into()))?;
    rustix::net::bind(&socket, &address).map_err(|error| match error {
        Errno::ADDRINUSE => ListenError::InUse(path.into()),
        error => failed(error.into()),
    })?;
    let own = OwnPath::found(path);
    // Nobody can connect before `listen`.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(|error| failed(error.into()))?;
    drop(alone);
    let socket = UnixListener::from_std(socket.into()).map_err(failed)?;
    Ok(Listener {
        socket: Socket::Unix(socket),
        name: format!("unix:{}", path.display()),
        spare: spare(),
        own: Some(OwnSocket {
            own,
            path: path.into(),
            mode,
        }),
    })
}

/// The name of a socket that is no path.
pub(crate) fn abstract_name(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"@")
}

fn bind_abstract(path: &Path, name: &[u8]) -> Result<Listener, ListenError> {
    let what = format!("unix:{}", path.display());
    let bound = SocketAddr::from_abstract_name(name)
        .and_then(|address| BlockingUnixListener::bind_addr(&address))
        .and_then(|socket| {
            socket.set_nonblocking(true)?;
            UnixListener::from_std(socket)
        });
    let socket = bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse(path.into()),
        _ => ListenError::System {
            what: what.clone(),
            error,
        },
    })?;
    Ok(Listener {
        socket: Socket::Unix(socket),
        name: what,
        spare: spare(),
        own: None,
    })
}

/// Servers that start at the same time come to a path one after the other: what one has bound and
/// does not listen on yet looks to another like what a dead one left, and what that one was about
/// to remove may be the first one's by then. A lock that others hold for long (systemd-tmpfiles(8)
/// lets a folder alone that is locked) or that cannot be taken is done without.
fn lock_folder_of(path: &Path) -> Option<File> {
    let folder = path.parent()?;
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let folder = File::open(folder).ok()?;
    let began = Instant::now();
    while let Err(TryLockError::WouldBlock) = folder.try_lock()
        && began.elapsed() < LOCK_MAX
    {
        std::thread::sleep(LOCK_AGAIN);
    }
    Some(folder)
}

/// Removes what a dead server left at `path`.
fn clear(path: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::System {
        what: path.display().to_string(),
        error,
    };
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !there.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.into()));
    }
    match BlockingUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        // It listens, or cannot be asked: it is not ours to remove.
        _ => Err(ListenError::InUse(path.into())),
    }
}

fn bind_tcp(address: IpAddress) -> Result<Listener, ListenError> {
    let what = || format!("tcp:{address}");
    let failed = |error| ListenError::System {
        what: what(),
        error,
    };
    let socket = std::net::TcpListener::bind(address).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let socket = TcpListener::from_std(socket).map_err(failed)?;
    let name = socket
        .local_addr()
        .map_or_else(|_| what(), |address| format!("tcp:{address}"));
    Ok(Listener {
        socket: Socket::Tcp(socket),
        name,
        spare: spare(),
        own: None,
    })
}

impl Listener {
    /// A socket that listens already. Within a runtime.
    ///
    /// # Errors
    /// It does not, or is of another kind.
    pub fn from_fd(socket: OwnedFd) -> Result<Self, ListenError> {
        let name = format!("{socket:?}");
        let failed = || ListenError::Passed(name.clone());
        let is_ours = sockopt::socket_acceptconn(&socket) == Ok(true)
            && sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
        if !is_ours {
            return Err(failed());
        }
        rustix::io::ioctl_fionbio(&socket, true).map_err(|_| failed())?;
        match sockopt::socket_domain(&socket) {
            Ok(AddressFamily::UNIX) => {
                let socket = UnixListener::from_std(socket.into()).map_err(|_| failed())?;
                let path = socket.local_addr().ok();
                let path = path.as_ref().and_then(|address| address.as_pathname());
                let name = path.map_or(name, |path| format!("unix:{}", path.display()));
                Ok(Self {
                    socket: Socket::Unix(socket),
                    name,
                    spare: spare(),
                    own: None,
                })
            }
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                let socket = TcpListener::from_std(socket.into()).map_err(|_| failed())?;
                let address = socket.local_addr();
                let name = address.map_or(name, |address| format!("tcp:{address}"));
                Ok(Self {
                    socket: Socket::Tcp(socket),
                    name,
                    spare: spare(),
                    own: None,
                })
            }
            _ => Err(failed()),
        }
    }

    /// Its name for clients: `unix:PATH` or `tcp:ADDRESS`, with the port that it got.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address for clients of the socket that was to listen at `asked`: with the port that it
    /// got.
    pub(crate) fn address(&self, asked: &ListenConfig) -> ListenConfig {
        match &self.socket {
            Socket::Tcp(socket) => socket
                .local_addr()
                .map_or_else(|_| asked.clone(), ListenConfig::Tcp),
            Socket::Unix(_) => asked.clone(),
        }
    }

    /// Takes clients until the server drains.
    pub async fn serve(mut self, hub: Arc<Hub>) {
        let mut said: Option<Instant> = None;
        while let Some(next) = self.next(&hub).await {
            match next {
                Ok(Stream::Unix(stream)) => {
                    tokio::spawn(connection::serve(stream, Arc::clone(&hub)));
                }
                Ok(Stream::Tcp(stream)) => {
                    set_up(&stream);
                    tokio::spawn(connection::serve(stream, Arc::clone(&hub)));
                }
                // The client went before it was let in.
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    let refused = self.turn_away(&error, &hub).await;
                    if said.is_none_or(|said| said.elapsed() >= SAID) {
                        said = Some(Instant::now());
                        warn!(socket = %self.name, cause = %error, refused, "cannot let clients in");
                    }
                    tokio::time::sleep(SHORTAGE).await;
                }
            }
        }
    }

    /// The next program of this machine that connects; none: the server drains.
    pub(crate) async fn next_local(&mut self, hub: &Hub) -> Option<UnixStream> {
        loop {
            match self.next(hub).await? {
                Ok(Stream::Unix(stream)) => return Some(stream),
                Ok(Stream::Tcp(_)) => {}
                Err(_) => tokio::time::sleep(SHORTAGE).await,
            }
        }
    }

    /// The next stream, or the system's error; none: the server drains.
    async fn next(&mut self, hub: &Hub) -> Option<io::Result<Stream>> {
        loop {
            let next = poll_fn(|cx| self.socket.poll_accept(cx));
            tokio::select! {
                biased;
                () = hub.drains() => return None,
                next = tokio::time::timeout(LOOK, next) => match next {
                    Ok(next) => return Some(next),
                    Err(_) => self.come_back(),
                },
            }
        }
    }

    /// A socket whose path was removed (programs that clean up folders for temporary files do that)
    /// is bound anew: nobody would reach it any more.
    fn come_back(&mut self) {
        let is_gone = |own: &mut OwnSocket| {
            let there = fs::symlink_metadata(&own.path);
            there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let Some(OwnSocket { own, path, mode }) = self.own.take_if(is_gone) else {
            return;
        };
        // Before there is another file of that name.
        own.keep();
        match bind_unix(&path, mode) {
            Ok(anew) => {
                warn!(socket = %self.name, "somebody removed the socket's path: it is there again");
                *self = anew;
            }
            Err(error) => {
                warn!(socket = %self.name, cause = %error, "somebody removed the socket's path: it is tried again");
                let own = OwnPath::default();
                self.own = Some(OwnSocket { own, path, mode });
            }
        }
    }

    /// Where no descriptor is left, those that knock are let in by the spare one and turned away:
    /// they would wait for a greeting for as long as others stay. Answers how many.
    async fn turn_away(&mut self, why: &io::Error, hub: &Hub) -> u64 {
        let why = why.raw_os_error().map(Errno::from_raw_os_error);
        if !matches!(why, Some(Errno::MFILE | Errno::NFILE)) {
            return 0;
        }
        let mut refused = 0;
        drop(self.spare.take());
        while let Some(Ok(stream)) = poll_fn(|cx| match self.socket.poll_accept(cx) {
            Poll::Ready(next) => Poll::Ready(Some(next)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
        {
            drop(stream);
            refused += 1;
        }
        self.spare = spare();
        hub.counters
            .refused_total
            .fetch_add(refused, Ordering::Relaxed);
        refused
    }
}

/// A descriptor to give up; none: none is left.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Socket {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match self {
            Self::Unix(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Replies go out at once, and a client that is gone without a word is found out.
fn set_up(stream: &TcpStream) {
    // None of it is needed to serve: what the system refuses is done without.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, SILENT);
    let _ = sockopt::set_tcp_keepintvl(stream, SILENT / 4);
    let gone = u32::try_from(GONE.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, gone);
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A folder that is removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("tidegate-listen-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn within<T>(body: impl FnOnce() -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        body()
    }

    fn unix(path: &Path) -> Result<Listener, ListenError> {
        bind(&ListenConfig::Unix {
            path: path.into(),
            mode: 0o600,
        })
    }

    #[test]
    fn a_socket_is_for_its_owner_and_goes_with_its_listener() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        within(|| {
            let listener = unix(&path).unwrap();
            assert_eq!(listener.name(), format!("unix:{}", path.display()));
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            BlockingUnixStream::connect(&path).unwrap();
            drop(listener);
            assert!(!path.exists());
        });
    }

    #[test]
    fn a_path_that_is_cleaned_up_comes_back() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        within(|| {
            let mut listener = unix(&path).unwrap();
            listener.come_back();
            fs::remove_file(&path).unwrap();
            listener.come_back();
            BlockingUnixStream::connect(&path).unwrap();
            // A file that somebody else has put there stays.
            fs::remove_file(&path).unwrap();
            fs::write(&path, "a file").unwrap();
            listener.come_back();
            drop(listener);
            assert_eq!(fs::read(&path).unwrap(), b"a file");
            // The folder, too, is gone for a while.
            fs::remove_file(&path).unwrap();
            let mut listener = unix(&path).unwrap();
            fs::remove_dir_all(&folder.0).unwrap();
            listener.come_back();
            fs::create_dir_all(&folder.0).unwrap();
            listener.come_back();
            BlockingUnixStream::connect(&path).unwrap();
        });
    }

    #[test]
    fn a_name_with_an_at_is_an_abstract_socket() {
        let path = PathBuf::from(format!("@tidegate-{}", std::process::id()));
        within(|| {
            let listener = unix(&path).unwrap();
            assert_eq!(listener.name(), format!("unix:{}", path.display()));
            let address = SocketAddr::from_abstract_name(abstract_name(&path).unwrap());
            let address = address.unwrap();
            BlockingUnixStream::connect_addr(&address).unwrap();
            assert!(!path.exists());
            assert!(matches!(unix(&path), Err(ListenError::InUse(_))));
            drop(listener);
            BlockingUnixStream::connect_addr(&address).unwrap_err();
        });
    }

    #[test]
    fn what_a_dead_server_left_is_taken_over_and_nothing_else() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        within(|| {
            drop(BlockingUnixListener::bind(&path).unwrap());
            assert!(path.exists(), "as after a crash");
            let listener = unix(&path).unwrap();
            assert!(matches!(unix(&path), Err(ListenError::InUse(_))));
            // The refused server has not taken the path with it.
            BlockingUnixStream::connect(&path).unwrap();
            drop(listener);
            fs::write(&path, "a file").unwrap();
            assert!(matches!(unix(&path), Err(ListenError::NotASocket(_))));
            assert_eq!(fs::read(&path).unwrap(), b"a file");
            let missing = folder.0.join("missing").join("socket");
            let error = unix(&missing).unwrap_err();
            assert!(matches!(error, ListenError::System { .. }));
            assert!(
                error.to_string().contains("make the folder first"),
                "{error}"
            );
            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let error = bind(&ListenConfig::Tcp(taken.local_addr().unwrap())).unwrap_err();
            assert!(error.to_string().contains("choose another port"), "{error}");
            let long = folder.0.join("x".repeat(120));
            assert!(matches!(unix(&long), Err(ListenError::TooLong(_))));
        });
    }

    #[test]
    fn of_servers_that_start_together_one_takes_over_what_is_left() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        for round in 0..300 {
            drop(BlockingUnixListener::bind(&path).unwrap());
            let start = Barrier::new(4);
            let bound: Vec<_> = std::thread::scope(|scope| {
                let bind = || {
                    within(|| {
                        start.wait();
                        let bound = unix(&path);
                        // Nobody has gone when the last of them looks.
                        start.wait();
                        bound.map(drop)
                    })
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                threads.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let won = bound.iter().filter(|bound| bound.is_ok()).count();
            assert_eq!(won, 1, "round {round}: {bound:?}");
            for refused in bound.into_iter().filter_map(Result::err) {
                assert!(matches!(refused, ListenError::InUse(_)), "{refused}");
            }
        }
    }

    #[test]
    fn a_port_that_the_system_chose_is_told() {
        within(|| {
            let asked = ListenConfig::Tcp("127.0.0.1:0".parse().unwrap());
            let listener = bind(&asked).unwrap();
            let ListenConfig::Tcp(address) = listener.address(&asked) else {
                panic!("it is another socket");
            };
            std::net::TcpStream::connect(address).unwrap();
        });
    }

    #[test]
    fn a_path_that_was_given_to_somebody_else_is_left_alone() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        within(|| {
            let listener = unix(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let _other = BlockingUnixListener::bind(&path).unwrap();
            drop(listener);
            BlockingUnixStream::connect(&path).unwrap();
        });
    }

    #[test]
    fn passed_sockets_are_taken_if_clients_can_connect_to_them() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        within(|| {
            let passed = BlockingUnixListener::bind(&path).unwrap();
            let listener = Listener::from_fd(passed.into()).unwrap();
            assert_eq!(listener.name(), format!("unix:{}", path.display()));
            drop(listener);
            assert!(path.exists(), "it is whose it was");
            let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = passed.local_addr().unwrap();
            let listener = Listener::from_fd(passed.into()).unwrap();
            assert_eq!(listener.name(), format!("tcp:{address}"));
            let file = File::open("/dev/null").unwrap();
            assert!(matches!(
                Listener::from_fd(file.into()),
                Err(ListenError::Passed(_))
            ));
            let (stream, _other) = BlockingUnixStream::pair().unwrap();
            assert!(Listener::from_fd(stream.into()).is_err());
        });
    }
}
