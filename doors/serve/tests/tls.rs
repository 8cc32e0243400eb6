//! Encrypted connections to a real server: which clients are let in, that others cannot read along,
//! and the clients that people use.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::certificates::{
    Authority, CLIENT, FUTURE, Identity, NOW, PAST, SERVER, authority, client, identity,
    identity_with,
};
use crate::common::{LONG, Server, Setup, bytes, until};
use nbd::client::{Client, ClientError, Handshake, Wishes, give_up_after};
use nbd::wire::{OptionHead, OptionKind, ReplyKind};
use rcgen::{
    CertificateRevocationListParams, DistinguishedName, DnType, KeyIdMethod, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedCipherSuite};
use serve::access::{Access, Right};
use serve::config::ListenConfig;
use serve::export::{About, ExportOptions};

const NAME: &str = "vault";
const DESCRIPTION: &str = "what is in here is nobody's business";

type Encrypted = StreamOwned<ClientConnection, UnixStream>;

/// A server with an authority that signed its certificate, and its clients'.
struct Secured {
    server: Server,
    ours: Authority,
    right: Identity,
}

impl Secured {
    fn start(with_clients: bool, required: bool) -> Self {
        let secured = Self::plain();
        secured.secure(with_clients, required, None);
        secured
    }

    /// Nobody has read its certificates yet.
    fn plain() -> Self {
        let server = Server::start(Setup {
            options: ExportOptions {
                name: NAME.to_owned(),
                about: About {
                    description: DESCRIPTION.to_owned(),
                    ..ExportOptions::default().about
                },
                ..ExportOptions::default()
            },
            ..Setup::default()
        });
        let ours = authority("ours");
        Self {
            right: identity(&ours, CLIENT, NOW),
            server,
            ours,
        }
    }

    /// It reads its certificates, and a list of those that are revoked.
    fn secure(&self, with_clients: bool, required: bool, revoked: Option<&str>) {
        let own = identity(&self.ours, SERVER, NOW);
        let clients = with_clients.then(|| self.ours.pem());
        let of_clients = [clients.as_deref(), revoked];
        self.server
            .secure([&own.certificate, &own.key], of_clients, required);
    }

    fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.server.socket).unwrap();
        give_up_after(&stream, LONG).unwrap();
        stream
    }

    fn handshake(&self) -> Handshake<UnixStream> {
        Handshake::begin(self.stream()).unwrap()
    }

    /// As far as a client gets with this certificate.
    fn connect(&self, config: Arc<ClientConfig>) -> Result<Client<Encrypted>, ClientError> {
        self.encrypted(config)?.go(&Wishes::export(NAME))
    }

    fn encrypted(&self, config: Arc<ClientConfig>) -> Result<Handshake<Encrypted>, ClientError> {
        let stream = self.handshake().start_tls()?;
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(config, name).unwrap();
        Ok(Handshake::resume(StreamOwned::new(session, stream)))
    }

    fn right_client(&self) -> Client<Encrypted> {
        self.connect(client(&self.ours, Some(&self.right))).unwrap()
    }

    fn comes_to_rest(&self) {
        self.server.wait("the server at rest", Server::is_at_rest);
    }
}

fn exercise(client: &mut Client<Encrypted>) {
    let data = bytes(5, 3 << 20);
    client.write(12_345, &data).unwrap();
    client.flush().unwrap();
    let mut back = vec![0; data.len()];
    client.read(12_345, &mut back).unwrap();
    assert!(back == data);
}

#[test]
fn right_certificates_and_every_way_to_leave() {
    for (with_clients, required) in [(true, true), (false, true), (true, false)] {
        let secured = Secured::start(with_clients, required);
        let mut client = secured.right_client();
        exercise(&mut client);
        client.disconnect().unwrap();
        secured.comes_to_rest();
        // Without NBD's goodbye, or TLS's; and in the middle of a request.
        for leave in [0, 1] {
            let mut client = secured.right_client();
            exercise(&mut client);
            if leave == 1 {
                let mut request = nbd::wire::Request {
                    flags: nbd::wire::CommandFlags::NONE,
                    command: nbd::wire::Command::Write,
                    cookie: 1,
                    offset: 0,
                    len: 1 << 20,
                }
                .encode()
                .to_vec();
                request.resize(100_000, 7);
                let mut stream = client.into_stream();
                stream.write_all(&request).unwrap();
                stream.flush().unwrap();
            } else {
                drop(client);
            }
            secured.comes_to_rest();
        }
        exercise(&mut secured.right_client());
    }
}

#[test]
fn a_client_may_go_without_where_it_is_only_offered() {
    let secured = Secured::start(false, false);
    let mut plain = secured.handshake().go(&Wishes::export(NAME)).unwrap();
    plain.write(0, b"in the clear").unwrap();
    let mut back = [0; 12];
    let mut encrypted = secured.connect(client(&secured.ours, None)).unwrap();
    encrypted.read(0, &mut back).unwrap();
    assert_eq!(&back, b"in the clear");
}

#[test]
fn wrong_certificates_are_refused_and_the_next_client_is_served() {
    let secured = Secured::start(true, true);
    let stranger = authority("a stranger");
    let failures = || {
        secured
            .server
            .hub
            .counters
            .handshake_failures_total
            .load(Ordering::SeqCst)
    };
    let cases = [
        ("missing", None),
        ("expired", Some(identity(&secured.ours, CLIENT, PAST))),
        (
            "not valid yet",
            Some(identity(&secured.ours, CLIENT, FUTURE)),
        ),
        ("foreign", Some(identity(&stranger, CLIENT, NOW))),
        ("a server's", Some(identity(&secured.ours, SERVER, NOW))),
    ];
    for (number, (what, own)) in (1..).zip(&cases) {
        let refused = secured.connect(client(&secured.ours, own.as_ref()));
        assert!(refused.is_err(), "{what}: let in");
        until(what, || failures() == number);
        exercise(&mut secured.right_client());
        secured.comes_to_rest();
    }
}

/// An option with its data, as it goes over the wire.
fn option(kind: OptionKind, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    let mut bytes = OptionHead { kind, len }.encode().to_vec();
    bytes.extend(data);
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 2, 0, 1, 0, 2]);
    data
}

#[test]
fn nothing_is_said_in_the_clear_where_tls_is_required() {
    let secured = Secured::start(true, true);
    let mut handshake = secured.handshake();
    let mut contexts = go(NAME);
    contexts.truncate(4 + NAME.len());
    contexts.extend([0; 4]);
    for (kind, data) in [
        (OptionKind::List, vec![]),
        (OptionKind::Info, go(NAME)),
        (OptionKind::Go, go(NAME)),
        (OptionKind::Go, go("there is no such thing")),
        (OptionKind::StructuredReply, vec![]),
        (OptionKind::ListMetaContext, contexts.clone()),
        (OptionKind::SetMetaContext, contexts),
        (OptionKind::Other(77), vec![]),
    ] {
        let replies = handshake.option(kind, &data).unwrap();
        assert_eq!(replies.len(), 1, "{kind:?}");
        assert_eq!(replies[0].kind, ReplyKind::TlsRequired, "{kind:?}");
        let said = String::from_utf8_lossy(&replies[0].data);
        assert!(
            !said.contains(NAME) && !said.contains(DESCRIPTION),
            "{kind:?}: {said}"
        );
    }
    handshake
        .send(OptionKind::ExportName, NAME.as_bytes())
        .unwrap();
    assert!(matches!(
        handshake.option(OptionKind::List, &[]),
        Err(ClientError::Closed | ClientError::Io(_))
    ));
    secured.comes_to_rest();
}

#[test]
fn what_is_put_behind_starttls_is_not_looked_at() {
    for required in [false, true] {
        let secured = Secured::start(false, required);
        // In one piece, so that the server has it all before it answers; and apart, so that TLS
        // gets it.
        for together in [true, false] {
            let mut stream = secured.stream();
            let mut bytes = 3_u32.to_be_bytes().to_vec();
            bytes.extend(option(OptionKind::StartTls, &[]));
            let behind = option(OptionKind::Go, &go(NAME));
            let mut answer = vec![0; 18];
            stream.read_exact(&mut answer).unwrap();
            if together {
                bytes.extend(&behind);
                stream.write_all(&bytes).unwrap();
            } else {
                stream.write_all(&bytes).unwrap();
                stream.read_exact(&mut [0; 20]).unwrap();
                stream.write_all(&behind).unwrap();
            }
            answer.clear();
            // The connection is closed, perhaps with a reset: not all that was sent was read.
            let _ = stream.read_to_end(&mut answer);
            let text = String::from_utf8_lossy(&answer);
            assert!(
                !text.contains(NAME) && !text.contains(DESCRIPTION),
                "{text:?}"
            );
            assert!(
                answer.len() <= 20,
                "an acknowledgement or an alert, and no more: {answer:?}"
            );
            secured.comes_to_rest();
        }
    }
}

#[test]
fn who_does_not_go_on_after_starttls_is_shown_out() {
    let server = Secured::start(false, true);
    let mut limits = server.server.hub.limits();
    limits.handshake = std::time::Duration::from_millis(300);
    server.server.hub.set_limits(limits);
    // A busy machine may need more than one try to come that far in time.
    let mut begun = None;
    until("TLS is begun in time", || {
        let handshake = Handshake::begin(server.stream());
        begun = handshake.and_then(Handshake::start_tls).ok();
        begun.is_some()
    });
    let mut stream = begun.unwrap();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    let gave_up = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!gave_up, "nobody showed it out");
    server.comes_to_rest();
}

/// The server on TCP, with a folder of certificates as libnbd and QEMU want it.
fn on_tcp(secured: &Secured, own: Option<&Identity>, folder: &str) -> (u16, PathBuf) {
    let address = ListenConfig::Tcp("127.0.0.1:0".parse().unwrap());
    let runtime = secured.server.runtime();
    let entered = runtime.enter();
    let listener = serve::listen::bind(&address).unwrap();
    drop(entered);
    let port = listener.name().rsplit(':').next().unwrap().parse().unwrap();
    runtime.spawn(listener.serve(Arc::clone(&secured.server.hub)));
    std::fs::create_dir_all(secured.server.folder.0.join(folder)).unwrap();
    let file = |name: &str, text: &str| secured.server.folder.file(name, text);
    let ca = file(&format!("{folder}/ca-cert.pem"), &secured.ours.pem());
    if let Some(own) = own {
        file(&format!("{folder}/client-cert.pem"), &own.certificate);
        file(&format!("{folder}/client-key.pem"), &own.key);
    }
    (port, ca.parent().unwrap().to_owned())
}

/// Runs a client; nothing if it is not installed. Its output, both kinds, and whether it succeeded.
fn run(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    let Ok(output) = Process::new("timeout")
        .arg("60")
        .arg(program)
        .args(arguments)
        .output()
    else {
        eprintln!("there is no `timeout`: {program} was not run");
        return None;
    };
    if output.status.code() == Some(127) {
        eprintln!("{program} is not installed: nothing was tested with it");
        return None;
    }
    let text = [output.stdout, output.stderr].concat();
    Some((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[test]
fn libnbd_and_qemu_over_tls() {
    let secured = Secured::start(true, true);
    let expired = identity(&secured.ours, CLIENT, PAST);
    let stranger = identity(&authority("a stranger"), CLIENT, NOW);
    for (folder, own, good) in [
        ("right", Some(&secured.right), true),
        ("missing", None, false),
        ("expired", Some(&expired), false),
        ("foreign", Some(&stranger), false),
    ] {
        let (port, folder) = on_tcp(&secured, own, folder);
        let folder = folder.display();
        let uri = format!("nbds://localhost:{port}/{NAME}?tls-certificates={folder}");
        if let Some((succeeded, said)) = run("nbdinfo", &[&uri]) {
            assert_eq!(succeeded, good, "nbdinfo {uri}: {said}");
            assert!(!good || said.contains("newstyle-fixed with TLS"), "{said}");
            assert!(good || !said.contains(DESCRIPTION), "{said}");
        }
        let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={folder}");
        let image = format!(
            "driver=nbd,server.type=inet,server.host=localhost,server.port={port},export={NAME},tls-creds=tls"
        );
        let commands = [
            "-c",
            "write -P 0xab 4096 1M",
            "-c",
            "flush",
            "-c",
            "read -P 0xab 4096 1M",
        ];
        let mut arguments = vec!["--object", &object, "--image-opts", &image];
        arguments.extend(commands);
        if let Some((succeeded, said)) = run("qemu-io", &arguments) {
            assert_eq!(succeeded, good, "qemu-io: {said}");
            assert!(!said.contains("Pattern verification failed"), "{said}");
        }
        let plain = format!("nbd://localhost:{port}/{NAME}");
        if let Some((succeeded, said)) = run("nbdinfo", &[&plain]) {
            assert!(
                !succeeded && !said.contains(DESCRIPTION),
                "nbdinfo {plain}: {said}"
            );
        }
    }
    secured.comes_to_rest();
}

/// A client of the test: its certificate, and the words that stand for it in a list.
struct Known {
    config: Arc<ClientConfig>,
    words: [String; 2],
}

/// Clients of one authority: two with names of their own, another with the name of the first.
fn known(secured: &Secured) -> Vec<Known> {
    let one = |name: &str| {
        let own = identity_with(&secured.ours, CLIENT, |params| {
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params
                .distinguished_name
                .push(DnType::OrganizationName, "acme");
        });
        let der = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
        let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
            panic!("it is one of TLS 1.3");
        };
        let print = suite.common.hash_provider.hash(&der);
        let print: Vec<String> = print
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        Known {
            config: client(&secured.ours, Some(&own)),
            words: [name.to_owned(), format!("sha256:{}", print.join(":"))],
        }
    };
    vec![one("alice"), one("bob the builder"), one("alice")]
}

/// Every list of no, one and two clients, each by name or fingerprint, for writing or reading, on
/// two volumes: each client sees, opens and changes as much as the lists say. A name stands for
/// each certificate that has it.
#[test]
fn a_volume_is_for_the_clients_of_its_list_and_others_do_not_see_it() {
    let secured = Secured::start(true, true);
    let clients = known(&secured);
    let mut entries: Vec<(String, [Right; 3])> = Vec::new();
    for (at, known) in clients.iter().enumerate() {
        for (by_name, words) in [true, false].into_iter().zip(&known.words) {
            for (mark, right) in [("", Right::Write), (":ro", Right::Read)] {
                let fits = |other: usize| {
                    at == other || by_name && known.words[0] == clients[other].words[0]
                };
                let rights = [0, 1, 2].map(|other| if fits(other) { right } else { Right::None });
                entries.push((format!("{words}{mark}"), rights));
            }
        }
    }
    let mut lists = vec![(None, [Right::Write; 3])];
    for (first, rights) in &entries {
        lists.push((Some(first.clone()), *rights));
        for (second, others) in &entries {
            let most = [0, 1, 2].map(|at| rights[at].max(others[at]));
            lists.push((Some(format!("{first}+{second}")), most));
        }
    }
    let name = "other".to_owned();
    let options = ExportOptions {
        name,
        ..ExportOptions::default()
    };
    let (other, _) = secured.server.add(options, 1 << 20, "");
    let mut seen = [0; 3];
    for (number, (list, rights)) in lists.iter().enumerate() {
        // The other volume has another list each time.
        let (other_list, other_rights) = &lists[(number * 37 + 5) % lists.len()];
        for (export, list) in [(&secured.server.export, list), (&other, other_list)] {
            let access = list
                .as_ref()
                .map(|list| Access::read(list.split('+')).unwrap());
            export.set_access(access.unwrap_or_default());
        }
        for (at, known) in clients.iter().enumerate() {
            let mut handshake = secured.encrypted(Arc::clone(&known.config)).unwrap();
            let all = [
                (&secured.server.export, rights[at]),
                (&other, other_rights[at]),
            ];
            let may = all.iter().filter(|(_, right)| *right > Right::None);
            let names: Vec<String> = may.map(|(export, _)| export.name().to_owned()).collect();
            let listed = handshake.list().unwrap().into_iter().map(|one| one.name);
            assert_eq!(
                listed.collect::<Vec<_>>(),
                names,
                "{list:?} {other_list:?} {at}"
            );
            let (export, right) = all[number % 2];
            let opened = handshake.go(&Wishes::export(export.name()));
            let words = || format!("{list:?} {other_list:?}, client {at}, {}", export.name());
            seen[right as usize] += 1;
            match (right, opened) {
                (Right::None, opened) => assert!(opened.is_err(), "{}", words()),
                (right, opened) => {
                    let mut opened = opened.unwrap_or_else(|error| panic!("{}: {error}", words()));
                    opened.read(0, &mut [0; 512]).unwrap();
                    let wrote = opened.write(0, &[1; 512]);
                    assert_eq!(wrote.is_ok(), right == Right::Write, "{}", words());
                }
            }
            // The default export is the only one that the client sees.
            if number % 8 == 0 {
                let default = secured
                    .encrypted(Arc::clone(&known.config))
                    .unwrap()
                    .go(&Wishes::export(""));
                assert_eq!(default.is_ok(), names.len() == 1, "{}", words());
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen > 20), "{seen:?}");
    assert!(
        secured
            .server
            .hub
            .counters
            .denied_total
            .load(Ordering::SeqCst)
            > 20
    );
}

#[test]
fn who_loses_a_right_is_disconnected_and_who_keeps_it_is_not() {
    let secured = Secured::start(true, true);
    let clients = known(&secured);
    let open = |at: usize| secured.connect(Arc::clone(&clients[at].config)).unwrap();
    let [mut alice, mut bob] = [open(0), open(1)];
    let export = &secured.server.export;
    let limit = |list: &str| {
        export.set_access(Access::read(list.split('+')).unwrap());
        secured.server.hub.rights_changed();
    };
    limit("alice+bob the builder");
    exercise(&mut alice);
    exercise(&mut bob);
    limit("alice+bob the builder:ro");
    exercise(&mut alice);
    assert!(bob.write(0, &[1; 512]).is_err(), "it may only read");
    let mut bob = open(1);
    bob.read(0, &mut [0; 512]).unwrap();
    limit("bob the builder:ro");
    bob.read(0, &mut [0; 512]).unwrap();
    assert!(alice.read(0, &mut [0; 512]).is_err(), "it may not see it");
    assert!(secured.connect(Arc::clone(&clients[0].config)).is_err());
}

#[test]
fn a_certificate_that_is_revoked_opens_nothing_and_ends_what_it_had_open() {
    let secured = Secured::plain();
    let serial = |number: u64| SerialNumber::from(number);
    let own = |number| {
        identity_with(&secured.ours, CLIENT, |params| {
            params.serial_number = Some(serial(number))
        })
    };
    let [one, other] = [own(7), own(8)].map(|own| client(&secured.ours, Some(&own)));
    let list = |revoked: &[u64]| {
        let revoked = revoked.iter().map(|number| RevokedCertParams {
            serial_number: serial(*number),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: serial(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&secured.ours).unwrap().pem().unwrap()
    };
    secured.secure(true, true, Some(&list(&[])));
    let [mut first, mut second] =
        [&one, &other].map(|own| secured.connect(Arc::clone(own)).unwrap());
    exercise(&mut first);
    secured.secure(true, true, Some(&list(&[7])));
    assert!(first.read(0, &mut [0; 512]).is_err(), "it goes on");
    exercise(&mut second);
    assert!(secured.connect(Arc::clone(&one)).is_err(), "it is let in");
    exercise(&mut secured.connect(Arc::clone(&other)).unwrap());
}
