//! Reads the text of a server's page over HTTP.
//!
//! Invariant: what a server sends is not believed: its head (hyper's bound), the document and the
//! time have bounds.

use std::net::ToSocketAddrs;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest page, in bytes: some thousand volumes.
const PAGE_MAX: usize = 16 << 20;
/// For all of it, from the connection to the last byte.
const SILENCE: Duration = Duration::from_secs(5);

/// The reason why a server's page cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection failed.
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    /// No whole answer in time.
    #[error("silent for {} s", SILENCE.as_secs())]
    Silent,
    /// The server refused.
    #[error("it answered \"{0}\"")]
    Refused(StatusCode),
    /// No tidegate answers there, or it ended in the middle.
    #[error("what it answered is no page of a tidegate server ({0})")]
    Foreign(String),
}

/// The part of an address that is asked: without `http://` and path; with the usual port where
/// there is none.
pub(super) fn host_and_port(address: &str) -> String {
    let rest = address.trim();
    let rest = rest.strip_prefix("http://").unwrap_or(rest);
    let rest = rest.split('/').next().unwrap_or_default();
    let has_port = match rest.strip_prefix('[') {
        Some(inside) => inside.contains("]:"),
        None => rest.contains(':'),
    };
    let port = super::DEFAULT_ADDRESS
        .rsplit(':')
        .next()
        .unwrap_or_default();
    if has_port {
        rest.to_owned()
    } else {
        format!("{rest}:{port}")
    }
}

/// True if it stands for an address.
pub(super) fn is_address(host_and_port: &str) -> bool {
    let resolved = host_and_port.to_socket_addrs();
    resolved.is_ok_and(|mut addresses| addresses.next().is_some())
}

/// The server as it is now.
pub(super) fn page(address: &str) -> Result<String, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asked = async { timeout(SILENCE, ask(address)).await };
    runtime.block_on(asked).unwrap_or(Err(ClientError::Silent))
}

async fn ask(address: &str) -> Result<String, ClientError> {
    let foreign = |error: &dyn core::fmt::Display| ClientError::Foreign(error.to_string());
    let stream = TcpStream::connect(address).await?;
    // By number: a server on a loopback address answers to no other names.
    let host = stream.peer_addr()?.to_string();
    let request = Request::get("/top").header(header::HOST, host);
    let request = request
        .body(Body::empty())
        .map_err(|error| foreign(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| foreign(&error))?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(|error| foreign(&error))?;
    if answer.status() != StatusCode::OK {
        return Err(ClientError::Refused(answer.status()));
    }
    let text = to_bytes(Body::new(answer.into_body()), PAGE_MAX).await;
    let text = text.map_err(|error| foreign(&error))?;
    let is_ours = text.starts_with(b"tidegate ");
    let text = String::from_utf8(text.into()).ok().filter(|_| is_ours);
    // A name that the server passes on draws nothing.
    let plain = |c| if c == '\n' { c } else { super::text::plain(c) };
    let text = text.map(|text| text.chars().map(plain).collect());
    text.ok_or_else(|| foreign(&"not its text"))
}
