//! The answers to requests.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use tokio::sync::{Semaphore, watch};

use super::door::Seat;
use super::history::History;
use super::{LISTENERS, SCRAPES};
use crate::snapshot::{Health, Snapshot, Source, health};
use crate::{metrics, top};

/// The page; needs nothing else.
pub(super) const PAGE: &str = include_str!("page.html");

/// The rights of a browser with an answer: run the page's own script, and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// For room to send metrics.
const PATIENCE: Duration = Duration::from_secs(2);

/// The latest snapshot, and its text once somebody wants it.
pub(super) struct Latest {
    snapshot: Snapshot,
    json: OnceLock<Bytes>,
    event: OnceLock<Bytes>,
    top: OnceLock<Bytes>,
}

impl Latest {
    pub(super) fn new(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(Self {
            snapshot,
            json: OnceLock::new(),
            event: OnceLock::new(),
            top: OnceLock::new(),
        })
    }

    fn text(&self) -> String {
        // Plain data with keys of text: there is nothing that it could refuse.
        serde_json::to_string(&self.snapshot).unwrap_or_default()
    }

    fn json(&self) -> Bytes {
        self.json.get_or_init(|| self.text().into()).clone()
    }

    /// For terminals.
    fn top(&self, address: SocketAddr) -> Bytes {
        let make = || top::page(&address, &self.snapshot).into();
        self.top.get_or_init(make).clone()
    }

    /// As a server-sent event. JSON has no line breaks, so it is one line of data.
    fn event(&self) -> Bytes {
        let make = || format!("data: {}\n\n", self.text()).into();
        self.event.get_or_init(make).clone()
    }
}

/// The state that the handlers share.
#[derive(Clone)]
pub(super) struct Shared {
    source: Arc<dyn Source>,
    latest: watch::Receiver<Arc<Latest>>,
    history: Arc<Mutex<History>>,
    listeners: Arc<Semaphore>,
    scrapes: Arc<Semaphore>,
    address: SocketAddr,
}

impl Shared {
    pub(super) fn new(
        source: Arc<dyn Source>,
        latest: watch::Receiver<Arc<Latest>>,
        history: Arc<Mutex<History>>,
        address: SocketAddr,
    ) -> Self {
        Self {
            source,
            latest,
            history,
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            scrapes: Arc::new(Semaphore::new(SCRAPES)),
            address,
        }
    }
}

pub(super) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/history.json", get(history))
        .route("/snapshot.json", get(snapshot))
        .route("/top", get(top))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                "not found: there is /, /top, /events, /history.json, /snapshot.json, /metrics and /healthz\n",
            )
        })
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// Refuses what is not to be answered, and says what browsers may do with the rest.
async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let refused = refusal(request.headers(), shared.address.ip().is_loopback());
    let mut response = match refused {
        Some((status, why)) => {
            let mut response = (status, why).into_response();
            let headers = response.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Why a request is not answered.
pub(super) fn refusal(
    headers: &HeaderMap,
    is_loopback: bool,
) -> Option<(StatusCode, &'static str)> {
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    if has_body {
        return Some((
            StatusCode::PAYLOAD_TOO_LARGE,
            "no request here has a body\n",
        ));
    }
    if is_loopback && !names_loopback(headers) {
        let why = "the Host header has to name a loopback address: this server shows itself to its own machine only\n";
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    let is_foreign = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "cross-site");
    let is_navigation = headers
        .get("sec-fetch-mode")
        .is_some_and(|mode| mode == "navigate");
    if is_foreign && !is_navigation {
        return Some((
            StatusCode::FORBIDDEN,
            "asked for by a page from elsewhere\n",
        ));
    }
    None
}

/// True if the request is for this machine by a name that nobody else can give it.
fn names_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = if let Some(rest) = host.strip_prefix('[') {
        match rest.split_once(']') {
            Some((name, "")) => name,
            Some((name, port)) if is_port(port) => name,
            _ => return false,
        }
    } else {
        match host.find(':') {
            Some(at) if is_port(&host[at..]) => &host[..at],
            Some(_) => return false,
            None => host,
        }
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

async fn page() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE).into_response()
}

async fn snapshot(State(shared): State<Shared>) -> Response {
    let json = shared.latest.borrow().json();
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

async fn top(State(shared): State<Shared>) -> Response {
    let text = shared.latest.borrow().top(shared.address);
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

async fn events(State(shared): State<Shared>, ConnectInfo(seat): ConnectInfo<Seat>) -> Response {
    let Ok(permit) = Arc::clone(&shared.listeners).try_acquire_owned() else {
        let why = "too many listen already; /snapshot.json is free\n";
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "5")],
            why,
        )
            .into_response();
    };
    seat.listens();
    let mut latest = shared.latest;
    latest.mark_changed();
    // A listener that is slow finds the latest one when it comes back: nothing is kept for it.
    let stream = stream::unfold((latest, permit), |(mut latest, permit)| async move {
        latest.changed().await.ok()?;
        let event = latest.borrow_and_update().event();
        Some((Ok::<_, Infallible>(event), (latest, permit)))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(stream)).into_response()
}

async fn metrics(State(shared): State<Shared>, ConnectInfo(seat): ConnectInfo<Seat>) -> Response {
    let make = || metrics::text(shared.source.read()).ok();
    alone(&shared, &seat, metrics::CONTENT_TYPE, make).await
}

async fn history(State(shared): State<Shared>, ConnectInfo(seat): ConnectInfo<Seat>) -> Response {
    let history = &shared.history;
    let make = || {
        let history = history.lock().unwrap_or_else(PoisonError::into_inner);
        Some(history.json())
    };
    alone(&shared, &seat, "application/json", make).await
}

/// Answers with a text that is this client's alone and may be long. Few at once: there is room for
/// the next one when the connection has ended.
async fn alone(
    shared: &Shared,
    seat: &Seat,
    kind: &'static str,
    make: impl FnOnce() -> Option<String>,
) -> Response {
    let scrapes = Arc::clone(&shared.scrapes);
    let Ok(Ok(permit)) = tokio::time::timeout(PATIENCE, scrapes.acquire_owned()).await else {
        let why = "too many ask for that at once\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let Some(text) = make() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    seat.is_the_last_answer(permit);
    let kind = (header::CONTENT_TYPE, kind);
    ([kind, (header::CONNECTION, "close")], text).into_response()
}

async fn healthz(State(shared): State<Shared>) -> Response {
    let Health { ok, reasons } = health(&shared.source.read());
    let status = if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut text = String::from(if ok { "ok\n" } else { "not ok\n" });
    for reason in reasons {
        text.push_str(&reason);
        text.push('\n');
    }
    (status, text).into_response()
}
