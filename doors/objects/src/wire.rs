//! Each request to S3 as it is sent, the client library's own next tries among them, and each
//! answer as it comes.
//!
//! A store, or a gateway in front of it, may answer 200 and mean something else. The client library
//! takes what it needs of an answer, and takes the rest for granted: a list that is an `<Error>` is
//! one without objects, and those would read as zeroes. So an answer of success is held against the
//! request before the library sees it, and is an error (`Lie`) that names the field where it cannot
//! be so:
//!
//! ```text
//!   status   the one that belongs to the operation
//!   list     a list, of this prefix and this page; as many keys as it says, under the prefix and in
//!            order; more of them if and only if it says where, and that is not where it just was
//!   put      an empty body; a version (ETag)
//!   get      a version, a length, and the range that was asked for
//!   head     a version and a length
//! ```
//!
//! Copies, deletes and uploads in parts are never sent. Fields that are believed are listed in
//! docs/serve/serve-s3.md; the content of what was put is held against the ETag in `job.rs`.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use serde::Deserialize;

use crate::clock::Guard;
use crate::error::Lie;
use crate::layout::{self, LEASE, MANIFEST, PROBE};
use crate::request::lock;

/// Bytes of an answer that is no object, at most: a list of 1,000 keys has a sixteenth of it.
const ANSWER_MAX: usize = 8 << 20;
/// Pages without a key, one after the other, after which a list does not go on.
const EMPTY_MAX: u32 = 100;

/// Connects by another connector, and looks at what passes.
#[derive(Debug)]
pub(crate) struct Connector<C> {
    guard: Arc<Guard>,
    inner: C,
    /// Lists are in order.
    ordered: bool,
}

impl<C> Connector<C> {
    pub(crate) fn new(guard: Arc<Guard>, inner: C, ordered: bool) -> Self {
        Self {
            guard,
            inner,
            ordered,
        }
    }
}

impl<C: HttpConnector> HttpConnector for Connector<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Wire {
            guard: Arc::clone(&self.guard),
            client: self.inner.connect(options)?,
            ordered: self.ordered,
            page: Mutex::default(),
        }))
    }
}

/// See the module's header.
#[derive(Debug)]
struct Wire {
    guard: Arc<Guard>,
    client: HttpClient,
    ordered: bool,
    page: Mutex<Page>,
}

/// The last page of a list that was to go on.
#[derive(Debug, Default)]
struct Page {
    next: String,
    last: String,
    empty: u32,
}

/// Nothing was sent: another may have the volume.
#[derive(Debug, thiserror::Error)]
#[error("the lease has run out; it was not sent")]
struct RunOut;

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Wire {
    fn call<'life, 'answer>(&'life self, request: HttpRequest) -> Answer<'answer>
    where
        'life: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            let asked = Asked::of(&request);
            if asked == Some(Asked::Put { is_object: true }) && self.guard.left().is_none() {
                // Not an error that is tried again.
                return Err(HttpError::new(HttpErrorKind::Unknown, RunOut));
            }
            let answer = self.client.execute(request).await?;
            match asked.filter(|_| answer.status().is_success()) {
                Some(asked) => self.checked(&asked, answer).await,
                None => Ok(answer),
            }
        })
    }
}

/// The question that a request is.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    List { prefix: String, token: String },
    Put { is_object: bool },
    Get { range: Option<(u64, u64)> },
    Head,
}

impl Asked {
    /// None: it is not to the store, but about credentials.
    fn of(request: &HttpRequest) -> Option<Self> {
        let query = |key| {
            let query = request.uri().query().unwrap_or_default();
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(name, _)| *name == key)
                .map(|(_, value)| plain(value))
        };
        if query("list-type").is_some() {
            return Some(Self::List {
                prefix: query("prefix").unwrap_or_default(),
                token: query("continuation-token").unwrap_or_default(),
            });
        }
        let name = request.uri().path().rsplit('/').next()?;
        let is_object = layout::object_of(name).is_some();
        if !is_object && ![MANIFEST, LEASE, PROBE].contains(&name) {
            return None;
        }
        match request.method().as_str() {
            "PUT" => Some(Self::Put { is_object }),
            "HEAD" => Some(Self::Head),
            "GET" => {
                let range = request.headers().get("range");
                let range = range.and_then(|range| range.to_str().ok());
                let range = range.and_then(|range| range.strip_prefix("bytes="));
                Some(Self::Get {
                    range: range.and_then(numbers),
                })
            }
            _ => None,
        }
    }
}

/// A value of a query without its escapes.
fn plain(value: &str) -> String {
    let mut rest = value.as_bytes();
    let mut plain = Vec::new();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = if escaped.is_some() {
            &behind[2..]
        } else {
            behind
        };
        let usual = if byte == b'+' { b' ' } else { byte };
        plain.push(escaped.unwrap_or(usual));
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// `FIRST-LAST`.
fn numbers(range: &str) -> Option<(u64, u64)> {
    let (first, last) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

impl Wire {
    async fn checked(
        &self,
        asked: &Asked,
        answer: HttpResponse,
    ) -> Result<HttpResponse, HttpError> {
        let refuse = |lie| HttpError::new(HttpErrorKind::Decode, lie);
        status(asked, &answer).map_err(refuse)?;
        match asked {
            Asked::Head | Asked::Get { .. } => {
                headers(asked, &answer).map_err(refuse)?;
                Ok(answer)
            }
            Asked::Put { .. } => {
                let (parts, body) = answer.into_parts();
                let body = whole(body).await?;
                empty(&body).map_err(refuse)?;
                let answer = HttpResponse::from_parts(parts, body.into());
                version(header(&answer, "etag")).map_err(refuse)?;
                Ok(answer)
            }
            Asked::List { prefix, token } => {
                let (parts, body) = answer.into_parts();
                let body = whole(body).await?;
                let listed = Listed::parse(&body).map_err(refuse)?;
                let mut page = lock(&self.page);
                listed
                    .check(prefix, token, &mut page, self.ordered)
                    .map_err(refuse)?;
                Ok(HttpResponse::from_parts(parts, body.into()))
            }
        }
    }
}

/// The body of an answer that is no object.
async fn whole(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut whole = BytesMut::new();
    let mut pieces = body.bytes_stream();
    while let Some(piece) = pieces.next().await {
        whole.extend_from_slice(&piece?);
        if whole.len() > ANSWER_MAX {
            let lie = Lie::new("body", "is over 8 MiB long");
            return Err(HttpError::new(HttpErrorKind::Decode, lie));
        }
    }
    Ok(whole.into())
}

fn header<'a>(answer: &'a HttpResponse, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

fn status(asked: &Asked, answer: &HttpResponse) -> Result<(), Lie> {
    let wanted: &[u16] = match asked {
        Asked::Put { .. } => &[200, 201, 204],
        Asked::Get { range: Some(_) } => &[206],
        Asked::Get { range: None } | Asked::Head | Asked::List { .. } => &[200],
    };
    let is = answer.status().as_u16();
    match wanted.contains(&is) {
        true => Ok(()),
        false => Err(Lie::new(
            "status",
            format!("is {is}, where {} belongs", wanted[0]),
        )),
    }
}

/// A version by which an object can be told from what it was.
fn version(tag: Option<&str>) -> Result<(), Lie> {
    let inside = tag.map(|tag| tag.trim_start_matches("W/").trim_matches('"').trim());
    match inside {
        Some("") => Err(Lie::new("ETag", "is empty")),
        Some(_) => Ok(()),
        None => Err(Lie::new("ETag", "is missing")),
    }
}

fn headers(asked: &Asked, answer: &HttpResponse) -> Result<(), Lie> {
    version(header(answer, "etag"))?;
    let length = number("Content-Length", header(answer, "content-length"))?;
    let Asked::Get {
        range: Some((first, last)),
    } = *asked
    else {
        return Ok(());
    };
    let Some(told) = header(answer, "content-range") else {
        return Err(Lie::new("Content-Range", "is missing"));
    };
    let range = told.trim().strip_prefix("bytes ");
    let range = range.and_then(|range| range.split_once('/'));
    let range = range.and_then(|(range, size)| Some((numbers(range)?, size.parse().ok()?)));
    let right = range.is_some_and(|((from, to), size): (_, u64)| {
        from == first && to < size && to == last.min(size - 1)
    });
    if !right {
        return Err(Lie::new(
            "Content-Range",
            format!("is `{told}`, where bytes {first}-{last} were asked for"),
        ));
    }
    let wanted = range.map_or(0, |((from, to), _)| to - from + 1);
    if length != wanted {
        return Err(Lie::new(
            "Content-Length",
            format!("is {length}, where the range has {wanted} bytes"),
        ));
    }
    Ok(())
}

fn number(field: &'static str, text: Option<&str>) -> Result<u64, Lie> {
    let Some(text) = text else {
        return Err(Lie::new(field, "is missing"));
    };
    let number = text.trim().parse();
    number.map_err(|_| Lie::new(field, format!("is `{text}`, which is no number")))
}

/// An answer to a put has nothing to say but that it was done.
fn empty(body: &[u8]) -> Result<(), Lie> {
    let body = body.trim_ascii();
    match (body.is_empty(), error_in(body)) {
        (true, _) => Ok(()),
        (false, Some(error)) => Err(Lie::new("body", format!("is an error, {error}"))),
        (false, None) => Err(Lie::new(
            "body",
            format!("has {} bytes, where none belong", body.len()),
        )),
    }
}

#[derive(Deserialize)]
enum Root {
    ListBucketResult(Listed),
    Error(Failure),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The code and words of an error that was sent as success.
fn error_in(body: &[u8]) -> Option<String> {
    match quick_xml::de::from_reader(body) {
        Ok(Root::Error(Failure { code, message })) => Some(format!("{code}: {message}")),
        _ => None,
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    is_truncated: Option<String>,
    prefix: Option<String>,
    key_count: Option<String>,
    continuation_token: Option<String>,
    next_continuation_token: Option<String>,
    #[serde(default)]
    contents: Vec<Content>,
    #[serde(default)]
    common_prefixes: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    key: Option<String>,
    size: Option<String>,
    #[serde(rename = "ETag")]
    tag: Option<String>,
}

impl Listed {
    fn parse(body: &[u8]) -> Result<Self, Lie> {
        match quick_xml::de::from_reader(body) {
            Ok(Root::ListBucketResult(listed)) => Ok(listed),
            Ok(Root::Error(Failure { code, message })) => {
                Err(Lie::new("body", format!("is an error, {code}: {message}")))
            }
            Err(error) => Err(Lie::new("body", format!("is no list: {error}"))),
        }
    }

    /// Holds it against what was asked, and against the page before it.
    fn check(&self, prefix: &str, token: &str, page: &mut Page, ordered: bool) -> Result<(), Lie> {
        let same = |field, told: &Option<String>, asked: &str| match told {
            Some(told) if told != asked => Err(Lie::new(
                field,
                format!("is `{told}`, where `{asked}` was asked for"),
            )),
            _ => Ok(()),
        };
        same("Prefix", &self.prefix, prefix)?;
        same("ContinuationToken", &self.continuation_token, token)?;
        if let Some(told) = &self.key_count {
            let told = number("KeyCount", Some(told))?;
            let has = self.contents.len() + self.common_prefixes.len();
            if told != has as u64 {
                return Err(Lie::new(
                    "KeyCount",
                    format!("is {told}, where {has} keys are listed"),
                ));
            }
        }
        if token.is_empty() || token != page.next {
            *page = Page::default();
        }
        let mut before = page.last.as_str();
        for content in &self.contents {
            let key = content.key.as_deref().unwrap_or_default();
            if !key.starts_with(prefix) || key.is_empty() {
                return Err(Lie::new(
                    "Key",
                    format!("is `{key}`, where keys under `{prefix}` were asked for"),
                ));
            }
            if ordered && key <= before {
                return Err(Lie::new("Key", format!("is `{key}` after `{before}`")));
            }
            number("Size", content.size.as_deref())?;
            version(content.tag.as_deref())?;
            before = key;
        }
        let next = self.next_continuation_token.as_deref().unwrap_or_default();
        match (self.is_truncated.as_deref(), next) {
            (Some("false"), "") => {
                *page = Page::default();
                return Ok(());
            }
            (Some("true"), "") => {
                return Err(Lie::new(
                    "NextContinuationToken",
                    "is missing, where IsTruncated says that there is more",
                ));
            }
            (Some("true"), next) if next == token => {
                return Err(Lie::new(
                    "NextContinuationToken",
                    "is that of the same page again",
                ));
            }
            (Some("true"), _) => {}
            (Some("false"), _) => {
                return Err(Lie::new(
                    "IsTruncated",
                    "is false, where NextContinuationToken says that there is more",
                ));
            }
            (None, _) => return Err(Lie::new("IsTruncated", "is missing")),
            (Some(other), _) => {
                return Err(Lie::new(
                    "IsTruncated",
                    format!("is `{other}`, which is neither true nor false"),
                ));
            }
        }
        let empty = if self.contents.is_empty() {
            page.empty + 1
        } else {
            0
        };
        if empty > EMPTY_MAX {
            return Err(Lie::new(
                "IsTruncated",
                format!("is true of {EMPTY_MAX} pages one after the other that list nothing"),
            ));
        }
        *page = Page {
            next: next.to_owned(),
            last: before.to_owned(),
            empty,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
