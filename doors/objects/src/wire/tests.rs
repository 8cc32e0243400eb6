//! A store over HTTP that lies, in this process: each operation, each field, each lie, told from
//! the start on and while a volume is open, by a store whose versions are MD5s and by one whose are
//! not.
//!
//! For each, content that is read is right or an error, a write that was acknowledged is in the
//! store, and a failure is told with the field.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::panic::AssertUnwindSafe;

use object_store::aws::AmazonS3Builder;
use object_store::client::ReqwestConnector;

use super::*;
use crate::common::{PAGE, Rig};
use crate::{Config, Objects, open, place};

const OBJECT: usize = 256 << 10;
/// Objects of the volume: the last but one is trimmed, the last one was never written.
const OBJECTS: usize = 8;
const BUCKET: &str = "/bucket/";
const PREFIX: &str = "volumes/a b/";
/// Keys of a page.
const PAGE_KEYS: usize = 3;

struct Request {
    op: &'static str,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn is_object(&self) -> bool {
        layout::object_of(self.key.rsplit('/').next().unwrap()).is_some()
    }
}

#[derive(Clone, Debug, Default)]
struct Reply {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    body: Vec<u8>,
}

impl Reply {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = BTreeMap::from([
            ("content-length", body.len().to_string()),
            ("last-modified", "Sat, 28 Nov 2026 12:00:00 GMT".into()),
        ]);
        Self {
            status,
            headers,
            body,
        }
    }

    fn set(&mut self, header: &'static str, value: impl Into<String>) {
        self.headers.insert(header, value.into());
    }

    fn send(&mut self, body: impl Into<Vec<u8>>) {
        self.body = body.into();
        self.set("content-length", self.body.len().to_string());
    }

    /// The text of a list, changed.
    fn text(&mut self, change: impl FnOnce(String) -> String) {
        let text = String::from_utf8(self.body.clone()).unwrap();
        self.send(change(text));
    }
}

/// The change that a lie makes to an honest answer.
type Act = fn(&Request, &mut Reply);

#[derive(Clone, Copy)]
struct Row {
    op: &'static str,
    field: &'static str,
    lie: &'static str,
    /// A put is done before it is lied about.
    done: bool,
    act: Act,
    /// One of these is in what is told; none: all goes as if nothing were.
    told: &'static [&'static str],
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Vec<u8>, String)>,
    are_md5: bool,
    count: u64,
    lie: Option<Row>,
    told: u64,
    sent: BTreeSet<String>,
}

impl State {
    fn tag(&mut self, body: &[u8]) -> String {
        use md5::{Digest as _, Md5};
        self.count += 1;
        let digits = |byte: &u8| format!("{byte:02x}");
        match self.are_md5 {
            true => format!(
                "\"{}\"",
                Md5::digest(body).iter().map(digits).collect::<String>()
            ),
            false => format!("\"{:x}\"", self.count),
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let lie = self.lie.filter(|row| row.op == request.op);
        let is_undone = lie.is_some_and(|row| !row.done && request.is_object());
        let mut reply = match (request.op, self.objects.get(&request.key).cloned()) {
            ("list", _) => self.list(request),
            ("put", there) => {
                let header = |name: &str| request.headers.get(name);
                let is_refused = match (header("if-match"), header("if-none-match"), &there) {
                    (Some(wanted), _, there) => there.as_ref().map(|(_, tag)| tag) != Some(wanted),
                    (_, Some(_), there) => there.is_some(),
                    _ => false,
                };
                if is_refused {
                    return Reply::new(412, "");
                }
                let tag = self.tag(&request.body);
                if !is_undone {
                    let content = (request.body.clone(), tag.clone());
                    self.objects.insert(request.key.clone(), content);
                }
                let mut reply = Reply::new(200, "");
                reply.set("etag", tag);
                reply
            }
            ("get" | "head" | "range", None) => {
                Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>")
            }
            ("range", Some((body, tag))) => {
                let range = request.headers["range"].strip_prefix("bytes=");
                let (first, last) = range.and_then(numbers).unwrap();
                if first >= body.len() as u64 {
                    return Reply::new(416, "<Error><Code>InvalidRange</Code></Error>");
                }
                let last = last.min(body.len() as u64 - 1);
                let part = &body[usize::try_from(first).unwrap()..=usize::try_from(last).unwrap()];
                let mut reply = Reply::new(206, part);
                reply.set(
                    "content-range",
                    format!("bytes {first}-{last}/{}", body.len()),
                );
                reply.set("etag", tag);
                reply
            }
            (_, Some((body, tag))) => {
                let mut reply = Reply::new(200, body);
                reply.set("etag", tag);
                reply
            }
            other => panic!("{other:?} was sent"),
        };
        if let Some(row) = lie {
            (row.act)(request, &mut reply);
            self.told += 1;
        }
        reply
    }

    fn list(&self, request: &Request) -> Reply {
        let query = |key: &str| request.query.get(key).cloned().unwrap_or_default();
        let (prefix, token) = (query("prefix"), query("continuation-token"));
        let after = token.strip_prefix("after ").unwrap_or_default();
        let all = self.objects.iter();
        let mut left = all.filter(|(key, _)| key.starts_with(&prefix) && key.as_str() > after);
        let page: Vec<_> = left.by_ref().take(PAGE_KEYS).collect();
        let more = left.next().is_some();
        let mut text = format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>\
             <Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>{more}</IsTruncated>",
            page.len()
        );
        if !token.is_empty() {
            text += &format!("<ContinuationToken>{token}</ContinuationToken>");
        }
        if more {
            let last = page.last().unwrap().0;
            text += &format!("<NextContinuationToken>after {last}</NextContinuationToken>");
        }
        for (key, (body, tag)) in page {
            text += &format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-28T12:00:00.000Z</LastModified><ETag>{tag}</ETag>\
                 <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                body.len()
            );
        }
        Reply::new(200, text + "</ListBucketResult>")
    }
}

/// The store, listening.
struct Store {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl Store {
    fn start(are_md5: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            are_md5,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        // Ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(client, &state));
            }
        });
        Self { state, port }
    }

    fn open(&self, rig: &Rig, size: Option<u64>) -> Result<Arc<Objects>, crate::Error> {
        let config = Config {
            size,
            object_size: Some(OBJECT as u64),
            ..Config::new(format!("s3://bucket/{}", PREFIX.trim_end_matches('/')))
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_region("here")
            .with_access_key_id("a")
            .with_secret_access_key("b");
        let rest = config.url.strip_prefix("s3://").unwrap();
        let place = || place::s3_through(&config, rest, builder, ReqwestConnector::default());
        let (objects, made) = open::open_at(place, &config, Arc::clone(&rig.arena))?;
        made.keep();
        Ok(objects)
    }

    fn tell(&self, lie: Option<Row>) {
        lock(&self.state).lie = lie;
    }

    fn object(&self, object: usize) -> Option<Vec<u8>> {
        let key = format!("{PREFIX}{}", layout::name_of(object as u64));
        lock(&self.state)
            .objects
            .get(&key)
            .map(|(body, _)| body.clone())
    }
}

fn serve(mut client: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut got = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let end = loop {
        if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let count = client.read(&mut piece).ok().filter(|count| *count > 0)?;
        got.extend_from_slice(&piece[..count]);
    };
    let head = String::from_utf8(got[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?);
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    while got.len() < end + length {
        let count = client.read(&mut piece).ok().filter(|count| *count > 0)?;
        got.extend_from_slice(&piece[..count]);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query: BTreeMap<_, _> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), plain(value)))
        .collect();
    let mut sent = method.clone();
    for sign in ["uploads", "uploadId", "partNumber", "delete"] {
        if query.contains_key(sign) {
            sent += sign;
        }
    }
    if headers.contains_key("x-amz-copy-source") {
        sent += " copy";
    }
    let request = Request {
        op: match method.as_str() {
            "GET" if query.contains_key("list-type") => "list",
            "GET" if headers.contains_key("range") => "range",
            "GET" => "get",
            "HEAD" => "head",
            "PUT" => "put",
            _ => "other",
        },
        key: plain(path)
            .strip_prefix(BUCKET)
            .unwrap_or_default()
            .to_owned(),
        query,
        headers,
        body: got[end..].to_vec(),
    };
    let reply = {
        let mut state = lock(state);
        state.sent.insert(sent);
        state.answer(&request)
    };
    let mut text = format!("HTTP/1.1 {} Words\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        text += &format!("{name}: {value}\r\n");
    }
    client.write_all(text.as_bytes()).ok()?;
    client.write_all(b"\r\n").ok()?;
    if request.op != "head" && reply.status != 204 {
        client.write_all(&reply.body).ok()?;
    }
    Some(())
}

/// The content of an object that was written in this round.
fn content(object: usize, round: u8) -> Vec<u8> {
    (0..OBJECT)
        .map(|at| u8::try_from((at / PAGE * 7 + at % 251 + object) % 200).unwrap() + 1 + round)
        .collect()
}

const FAILURE: &str = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>we met a fault</Message></Error>";

/// The second half of the objects in a page of a list is not told.
fn cut(text: &str, count: bool) -> String {
    let items: Vec<_> = text.match_indices("<Contents>").map(|(at, _)| at).collect();
    let end = text.find("</ListBucketResult>").unwrap();
    let keep = items.len() / 2;
    let at = items.get(keep).copied().unwrap_or(end);
    let cut = format!("{}{}", &text[..at], &text[end..]);
    let has = format!("<KeyCount>{}<", items.len());
    match count {
        true => cut.replace(&has, &format!("<KeyCount>{keep}<")),
        false => cut,
    }
}

fn without(text: &str, element: &str) -> String {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    match text.split_once(&open) {
        Some((before, rest)) => before.to_owned() + rest.split_once(&close).unwrap().1,
        None => text.to_owned(),
    }
}

fn with(text: &str, element: &str, value: &str) -> String {
    without(text, element).replace(
        "<MaxKeys>",
        &format!("<{element}>{value}</{element}><MaxKeys>"),
    )
}

/// The size of each object of the volume.
fn sized(text: &str, size: &str) -> String {
    text.replace(
        &format!("<Size>{OBJECT}</Size>"),
        &format!("<Size>{size}</Size>"),
    )
}

fn rows() -> Vec<Row> {
    let row = |op, field, lie, told, act: Act| Row {
        op,
        field,
        lie,
        done: true,
        act,
        told,
    };
    let undone = |op, field, lie, told, act: Act| Row {
        done: false,
        ..row(op, field, lie, told, act)
    };
    let mut rows = vec![
        row(
            "list",
            "NextContinuationToken",
            "missing",
            &["NextContinuationToken"],
            |_, r| {
                r.text(|t| {
                    with(
                        &without(&cut(&t, true), "NextContinuationToken"),
                        "IsTruncated",
                        "true",
                    )
                })
            },
        ),
        row(
            "list",
            "NextContinuationToken",
            "empty",
            &["NextContinuationToken"],
            |_, r| {
                r.text(|t| {
                    with(
                        &with(&cut(&t, true), "NextContinuationToken", ""),
                        "IsTruncated",
                        "true",
                    )
                })
            },
        ),
        row(
            "list",
            "NextContinuationToken",
            "repeated",
            &["NextContinuationToken", "Key"],
            |_, r| {
                r.text(|t| {
                    with(
                        &with(&t, "NextContinuationToken", "abc"),
                        "IsTruncated",
                        "true",
                    )
                })
            },
        ),
        row(
            "list",
            "NextContinuationToken",
            "of a page further on",
            &["Key", "tells one version"],
            |_, r| {
                r.text(|t| {
                    if t.contains("<ContinuationToken>") {
                        t
                    } else {
                        with(&t, "NextContinuationToken", "after volumes/a b/volume.json")
                    }
                })
            },
        ),
        row(
            "list",
            "NextContinuationToken",
            "passing over a page",
            &["Key"],
            |_, r| {
                r.text(|t| {
                    if t.contains("<ContinuationToken>") {
                        t
                    } else {
                        with(
                            &t,
                            "NextContinuationToken",
                            "after volumes/a b/0000000000000004",
                        )
                    }
                })
            },
        ),
        row(
            "list",
            "Contents",
            "one left out, and not counted",
            &["Key"],
            |_, r| {
                r.text(|t| {
                    let Some((head, rest)) =
                        t.split_once("<Contents><Key>volumes/a b/0000000000000003")
                    else {
                        return t;
                    };
                    (head.to_owned() + rest.split_once("</Contents>").unwrap().1)
                        .replace("<KeyCount>3", "<KeyCount>2")
                })
            },
        ),
        row(
            "list",
            "IsTruncated",
            "missing, and cut",
            &["IsTruncated"],
            |_, r| {
                r.text(|t| {
                    without(
                        &without(&cut(&t, true), "IsTruncated"),
                        "NextContinuationToken",
                    )
                })
            },
        ),
        row("list", "IsTruncated", "maybe", &["IsTruncated"], |_, r| {
            r.text(|t| with(&t, "IsTruncated", "maybe"))
        }),
        row(
            "list",
            "IsTruncated",
            "false, and goes on",
            &["IsTruncated"],
            |_, r| r.text(|t| with(&t, "IsTruncated", "false")),
        ),
        row(
            "list",
            "IsTruncated",
            "false, and cut",
            &["KeyCount", "Key", "tells one version"],
            |_, r| {
                r.text(|t| {
                    with(
                        &without(&cut(&t, true), "NextContinuationToken"),
                        "IsTruncated",
                        "false",
                    )
                })
            },
        ),
        row(
            "list",
            "IsTruncated",
            "true of nothing, for ever",
            &["IsTruncated"],
            |_, r| {
                r.text(|t| {
                    let number: u32 = t
                        .split_once("<ContinuationToken>")
                        .and_then(|(_, rest)| rest.split_once('<'))
                        .and_then(|(number, _)| number.parse().ok())
                        .unwrap_or(0);
                    let nothing = t.split_once("<Contents>").map_or(t.clone(), |(head, _)| {
                        head.to_owned() + "</ListBucketResult>"
                    });
                    with(
                        &with(&with(&nothing, "KeyCount", "0"), "IsTruncated", "true"),
                        "NextContinuationToken",
                        &(number + 1).to_string(),
                    )
                })
            },
        ),
        row(
            "list",
            "KeyCount",
            "more than are told",
            &["KeyCount"],
            |_, r| r.text(|t| cut(&t, false)),
        ),
        row("list", "KeyCount", "no number", &["KeyCount"], |_, r| {
            r.text(|t| with(&t, "KeyCount", "some"))
        }),
        row(
            "list",
            "Prefix",
            "of another volume",
            &["Prefix"],
            |_, r| r.text(|t| with(&t, "Prefix", "volumes/b/")),
        ),
        row(
            "list",
            "ContinuationToken",
            "of another page",
            &["ContinuationToken"],
            |_, r| r.text(|t| with(&t, "ContinuationToken", "abc")),
        ),
        row("list", "Key", "of another volume", &["Key"], |_, r| {
            r.text(|t| t.replace("<Key>volumes/a b/", "<Key>volumes/b/"))
        }),
        row("list", "Key", "twice", &["Key"], |_, r| {
            r.text(|t| t.replace("0000000000000002</Key>", "0000000000000001</Key>"))
        }),
        row("list", "Key", "out of order", &["Key"], |_, r| {
            r.text(|t| t.replace("0000000000000000</Key>", "0000000000000007</Key>"))
        }),
        row("list", "Key", "missing", &["Key", "body"], |_, r| {
            r.text(|t| without(&t, "Key"))
        }),
        // Read as it is, or an error; never as zeroes.
        row(
            "list",
            "Size",
            "nothing",
            &["Size", "Content-Length", ""],
            |_, r| r.text(|t| sized(&t, "0")),
        ),
        row("list", "Size", "half", &["is 131072 bytes long"], |_, r| {
            r.text(|t| sized(&t, "131072"))
        }),
        row("list", "Size", "no number", &["Size"], |_, r| {
            r.text(|t| sized(&t, "x"))
        }),
        row("list", "Size", "missing", &["Size", "body"], |_, r| {
            r.text(|t| without(&t, "Size"))
        }),
        row("list", "ETag", "missing", &["ETag"], |_, r| {
            r.text(|t| without(&t, "ETag"))
        }),
        row("list", "ETag", "empty", &["ETag"], |_, r| {
            r.text(|t| with_tag(&t, "\"\""))
        }),
        row("list", "ETag", "another", &["ETag", "changed"], |_, r| {
            r.text(|t| with_tag(&t, "\"0123\""))
        }),
        row("list", "body", "an error", &["InternalError"], |_, r| {
            r.send(FAILURE)
        }),
        row("list", "body", "empty", &["body"], |_, r| r.send("")),
        row(
            "list",
            "body",
            "a page of another kind",
            &["body"],
            |_, r| r.send("<html><body>Sign in</body></html>"),
        ),
        row("list", "body", "cut", &["body"], |_, r| {
            let half = r.body.len() / 2;
            r.send(r.body[..half].to_vec());
        }),
        row("list", "body", "cut after an object", &["body"], |_, r| {
            r.text(|t| {
                t.split_once("</Contents>")
                    .map_or(String::new(), |(page, _)| page.to_owned() + "</Contents>")
            })
        }),
        row("list", "status", "204", &["status"], |_, r| r.status = 204),
        undone("put", "body", "an error", &["InternalError"], |_, r| {
            r.send(FAILURE)
        }),
        row(
            "put",
            "body",
            "an error, and done",
            &["InternalError"],
            |_, r| r.send(FAILURE),
        ),
        undone("put", "body", "words", &["body"], |_, r| r.send("accepted")),
        undone("put", "status", "202", &["status"], |_, r| r.status = 202),
        undone("put", "status", "203", &["status"], |_, r| r.status = 203),
        undone("put", "ETag", "missing", &["ETag"], |_, r| {
            r.headers.remove("etag");
        }),
        undone("put", "ETag", "empty", &["ETag"], |_, r| {
            r.set("etag", "\"\"")
        }),
        undone("put", "ETag", "of what was replaced", &["ETag"], |q, r| {
            if let Some(old) = q.headers.get("if-match") {
                r.set("etag", old)
            } else {
                r.headers.remove("etag");
            }
        }),
        row(
            "put",
            "ETag",
            "an MD5 of something else, and done",
            &["ETag", "tells one version", "changed"],
            |_, r| r.set("etag", "\"0123456789abcdef0123456789abcdef\""),
        ),
    ];
    for op in ["get", "range"] {
        rows.extend([
            row(op, "ETag", "missing", &["ETag"], |_, r| {
                r.headers.remove("etag");
            }),
            row(op, "ETag", "empty", &["ETag"], |_, r| r.set("etag", "\"\"")),
            row(
                op,
                "ETag",
                "another",
                &["ETag", "changed", "lease"],
                |_, r| r.set("etag", "\"0123\""),
            ),
            row(op, "body", "shorter than it says", &[""], |_, r| {
                r.body.truncate(r.body.len() / 2)
            }),
            row(
                op,
                "body",
                "shorter, and says so",
                &["Content-Length", "changed", "volume.json", "lease"],
                |_, r| {
                    let half = r.body.len() / 2;
                    r.send(r.body[..half].to_vec());
                },
            ),
            row(
                op,
                "body",
                "longer, and says so",
                &["Content-Length", "changed", "volume.json", "lease"],
                |_, r| {
                    let more = [r.body.clone(), vec![1; PAGE]].concat();
                    r.send(more);
                },
            ),
            row(
                op,
                "body",
                "empty",
                &["Content-Length", "volume.json", "lease", "changed"],
                |_, r| r.send(""),
            ),
            row(
                op,
                "body",
                "an error",
                &[
                    "Content-Length",
                    "Content-Range",
                    "changed",
                    "volume.json",
                    "lease",
                ],
                |_, r| r.send(FAILURE),
            ),
            row(
                op,
                "Content-Length",
                "missing",
                &["Content-Length"],
                |_, r| {
                    r.headers.remove("content-length");
                },
            ),
            row(op, "status", "203", &["status"], |_, r| r.status = 203),
        ]);
    }
    rows.extend([
        row(
            "range",
            "status",
            "200, and the range",
            &["status"],
            |_, r| r.status = 200,
        ),
        row(
            "range",
            "Content-Range",
            "missing",
            &["Content-Range"],
            |_, r| {
                r.headers.remove("content-range");
            },
        ),
        row(
            "range",
            "Content-Range",
            "from elsewhere",
            &["Content-Range"],
            |_, r| {
                r.set(
                    "content-range",
                    format!("bytes {PAGE}-{}/{OBJECT}", PAGE + r.body.len() - 1),
                )
            },
        ),
        row(
            "range",
            "Content-Range",
            "of a longer object",
            &["changed", "Content-Range"],
            |_, r| {
                let told = r.headers["content-range"].replace(&format!("/{OBJECT}"), "/999999");
                r.set("content-range", told);
            },
        ),
        row(
            "range",
            "Content-Range",
            "of an object of any length",
            &["Content-Range"],
            |_, r| {
                let told = r.headers["content-range"].replace(&format!("/{OBJECT}"), "/*");
                r.set("content-range", told);
            },
        ),
        row("head", "ETag", "missing", &["ETag"], |_, r| {
            r.headers.remove("etag");
        }),
        row("head", "ETag", "empty", &["ETag"], |_, r| {
            r.set("etag", "\"\"")
        }),
        row(
            "head",
            "ETag",
            "another",
            &["in the version that it has", "tells one version", ""],
            |_, r| r.set("etag", "\"0123\""),
        ),
        row(
            "head",
            "Content-Length",
            "missing",
            &["Content-Length"],
            |_, r| {
                r.headers.remove("content-length");
            },
        ),
        row(
            "head",
            "Content-Length",
            "no number",
            &["Content-Length"],
            |_, r| r.set("content-length", "x"),
        ),
        row("head", "status", "204", &["status"], |_, r| r.status = 204),
    ]);
    rows
}

fn with_tag(text: &str, tag: &str) -> String {
    let mut parts = text.split("<ETag>");
    let mut changed = parts.next().unwrap().to_owned();
    for part in parts {
        let rest = part.split_once("</ETag>").unwrap().1;
        changed += &format!("<ETag>{tag}</ETag>{rest}");
    }
    changed
}

/// Reads and writes everything, and holds it against what was written. Answers what was told of
/// calls that failed.
fn use_it(rig: &Rig, store: &Store, objects: &Objects, row: &Row) -> Vec<String> {
    let mut told = Vec::new();
    let mut note = |result: Result<(), env::IoError>| {
        if let Err(error) = result {
            told.push(format!(
                "{error:?}: {}",
                objects.failure().unwrap_or_default()
            ));
        }
        result.is_ok()
    };
    let wanted = |object: usize| match object {
        0..6 => content(object, 0),
        _ => vec![0; OBJECT],
    };
    let at = |object: usize| (object * OBJECT) as u64;
    for object in 0..OBJECTS {
        for (from, len) in [(0, OBJECT), (2 * PAGE, PAGE)] {
            let read = rig.read(objects, at(object) + from as u64, len);
            if let Ok(read) = &read {
                let right = &wanted(object)[from..from + len];
                assert!(read == right, "{}: object {object} is read wrong", row.lie);
            }
            note(read.map(drop));
        }
    }
    // A part of one, a whole one, a new one, one that goes, and the same again without a change.
    let mut part = wanted(2);
    part[PAGE..2 * PAGE].copy_from_slice(&content(2, 9)[PAGE..2 * PAGE]);
    let part_done = note(rig.write(objects, at(2) + PAGE as u64, &part[PAGE..2 * PAGE]));
    let whole_done = note(rig.write(objects, at(3), &content(3, 9)));
    let new_done = note(rig.write(objects, at(7), &content(7, 9)));
    let gone_done = note(rig.discard(objects, at(4), OBJECT as u64));
    let same_done = note(rig.write(objects, at(5), &wanted(5)));
    note(rig.flush(objects));
    let is = |object, content: Vec<u8>| {
        assert!(
            store.object(object) == Some(content),
            "{}: object {object} was acknowledged, and is not in the store",
            row.lie
        );
    };
    for (done, object, content) in [
        (part_done, 2, part),
        (whole_done, 3, content(3, 9)),
        (new_done, 7, content(7, 9)),
        (gone_done, 4, Vec::new()),
        (same_done, 5, wanted(5)),
    ] {
        if done {
            is(object, content);
        }
    }
    told
}

type Written = [BTreeMap<String, (Vec<u8>, String)>; 2];

/// The objects of a volume in a store whose versions are no MD5s, and in one whose are.
fn written(rig: &Rig) -> Written {
    [false, true].map(|are_md5| {
        let store = Store::start(are_md5);
        let objects = store.open(rig, Some((OBJECTS * OBJECT) as u64)).unwrap();
        for object in 0..7 {
            let written = rig.write(&*objects, (object * OBJECT) as u64, &content(object, 0));
            written.unwrap();
        }
        let gone = rig.discard(&*objects, (6 * OBJECT) as u64, OBJECT as u64);
        gone.unwrap();
        drop(objects);
        core::mem::take(&mut lock(&store.state).objects)
    })
}

/// Tells one lie; answers whether it was told at all.
fn try_one(rig: &Rig, written: &Written, row: &Row, are_md5: bool, at_start: bool) -> bool {
    let store = Store::start(are_md5);
    let written = &written[usize::from(are_md5)];
    lock(&store.state).objects.clone_from(written);
    lock(&store.state).count = 1000;
    store.tell(at_start.then_some(*row));
    let mut told = Vec::new();
    match store.open(rig, None) {
        Err(error) => told.push(error.to_string()),
        Ok(objects) => {
            store.tell(Some(*row));
            told = use_it(rig, &store, &objects, row);
            store.tell(None);
        }
    }
    let state = lock(&store.state);
    assert!(
        state
            .sent
            .iter()
            .all(|sent| ["GET", "HEAD", "PUT"].contains(&sent.as_str())),
        "only gets, heads and puts are looked at: {:?}",
        state.sent
    );
    let name = format!(
        "{} {}: {} (md5 {are_md5}, at the start {at_start})",
        row.op, row.field, row.lie
    );
    let is_told = |words: &String| row.told.iter().any(|word| words.contains(word));
    assert!(told.iter().all(is_told), "{name}: {told:#?}");
    let may_be_harmless = row.told.contains(&"") || row.op == "put" && row.done;
    assert!(
        !told.is_empty() || may_be_harmless || state.told == 0,
        "{name}: nothing was told"
    );
    println!(
        "{name}: told {} times, {} calls failed: {}",
        state.told,
        told.len(),
        told.first().map_or("", String::as_str)
    );
    state.told > 0
}

#[test]
fn no_answer_is_believed_that_cannot_be_so() {
    let rig = Rig::new();
    let written = written(&rig);
    let mut failed = 0;
    for row in rows() {
        let mut was_told = false;
        for are_md5 in [true, false] {
            for at_start in [true, false] {
                if row.op == "list" && !at_start {
                    continue;
                }
                let tried = || try_one(&rig, &written, &row, are_md5, at_start);
                match std::panic::catch_unwind(AssertUnwindSafe(tried)) {
                    Ok(told) => was_told |= told,
                    Err(_) => (was_told, failed) = (true, failed + 1),
                }
            }
        }
        assert!(was_told, "{} {}: {}", row.op, row.field, row.lie);
    }
    assert_eq!(failed, 0, "lies that got through");
}

#[test]
fn an_honest_store_is_believed() {
    let rig = Rig::new();
    let honest = Row {
        op: "none",
        field: "",
        lie: "no lie",
        done: true,
        act: |_, _| {},
        told: &[],
    };
    let written = written(&rig);
    for are_md5 in [true, false] {
        try_one(&rig, &written, &honest, are_md5, true);
    }
}

/// A store that comes to encrypt what it keeps: its versions are no MD5 from then on.
#[test]
fn versions_may_change_their_kind() {
    let (rig, store) = (Rig::new(), Store::start(true));
    let objects = store.open(&rig, Some((OBJECTS * OBJECT) as u64)).unwrap();
    rig.write(&*objects, 0, &content(0, 0)).unwrap();
    lock(&store.state).are_md5 = false;
    for round in 1..4 {
        rig.write(&*objects, 0, &content(0, round)).unwrap();
    }
    assert_eq!(store.object(0), Some(content(0, 3)));
    assert_eq!(objects.failure(), None);
}

#[test]
fn an_object_is_not_sent_once_the_lease_has_run_out() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[derive(Debug, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl HttpService for Counting {
        fn call<'life, 'answer>(
            &'life self,
            _: HttpRequest,
        ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'answer>>
        where
            'life: 'answer,
            Self: 'answer,
        {
            self.0.fetch_add(1, Ordering::SeqCst);
            let error = std::io::Error::other("it has nothing to say");
            let error = HttpError::new(HttpErrorKind::Unknown, error);
            Box::pin(async move { Err(error) })
        }
    }

    let (guard, sent) = (Arc::new(Guard::default()), Arc::default());
    let service = Wire {
        guard: Arc::clone(&guard),
        client: HttpClient::new(Counting(Arc::clone(&sent))),
        ordered: true,
        page: Mutex::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let count = |method: &str, name: &str| {
        let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = format!("http://store/bucket/prefix/{name}")
            .parse()
            .unwrap();
        let before = sent.load(Ordering::SeqCst);
        let _ = runtime.block_on(service.call(request));
        sent.load(Ordering::SeqCst) - before
    };
    let object = layout::name_of(3);
    guard.allow(guard.now(), Duration::from_secs(30));
    assert_eq!(count("PUT", &object), 1);
    guard.forbid();
    assert_eq!(count("PUT", &object), 0);
    assert_eq!(count("GET", &object), 1);
    assert_eq!(count("PUT", LEASE), 1);
}
