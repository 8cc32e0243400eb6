//! Answers while the clock shows a time that HTTP has no date for: before 1970, or after 9999.
//!
//! hyper writes a `Date` header and panics then, in each connection, before it reads a request. So
//! such a connection is answered here, by the same handlers: one request, no date, and the end.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use futures_util::StreamExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The end of the year 9999, in seconds since 1970.
const LAST: u64 = 253_402_300_800;

/// True if HTTP has a date for it.
pub(super) fn has_date(at: SystemTime) -> bool {
    let since = at.duration_since(UNIX_EPOCH);
    since.is_ok_and(|since| since < Duration::from_secs(LAST))
}

/// Answers one request. Its size and its time are the connection's to bound.
pub(super) async fn answer(
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
    seat: impl Clone + Send + Sync + 'static,
    router: Router,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if connection.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next());
    let request = Request::builder().method(method);
    let request = lines.filter_map(|line| line.split_once(':')).fold(
        request.uri(path.unwrap_or_default()),
        |request, (name, value)| request.header(name, value.trim()),
    );
    let info = ConnectInfo(seat);
    let request = request.extension(info).body(Body::empty());
    let request = request.map_err(io::Error::other)?;
    let has_body = request.method() != Method::HEAD;
    let Ok(answer) = TowerToHyperService::new(router).call(request).await;
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", answer.status()).into_bytes();
    for (name, value) in answer.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    connection.write_all(&head).await?;
    let mut body = answer.into_body().into_data_stream();
    while has_body && let Some(Ok(part)) = body.next().await {
        connection.write_all(&part).await?;
    }
    connection.shutdown().await
}
