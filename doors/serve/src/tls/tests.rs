#[path = "../../tests/common/certificates.rs"]
mod certificates;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use certificates::{
    Authority, CLIENT, FUTURE, Identity, NOW, PAST, SERVER, authority, client, identity,
    identity_with,
};
use rcgen::date_time_ymd;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A folder of its own for a test's files; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("tidegate-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(
    folder: &Folder,
    server: &Identity,
    clients: Option<&Authority>,
) -> Result<Acceptor, TlsError> {
    Acceptor::open(&TlsConfig {
        certificate: folder.file("server.pem", &server.certificate),
        key: folder.file("server-key.pem", &server.key),
        clients: clients.map(|issuer| folder.file("clients.pem", &issuer.pem())),
        revoked: None,
        required: true,
    })
}

/// The outcome of a session: the server echoes until the end, and the client says eight bytes.
fn talk(
    acceptor: &Acceptor,
    client: Arc<ClientConfig>,
    goodbye: bool,
) -> (io::Result<usize>, io::Result<[u8; 8]>) {
    let (near, far) = UnixStream::pair().unwrap();
    let acceptor = acceptor.clone();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            far.set_nonblocking(true).unwrap();
            let far = tokio::net::UnixStream::from_std(far).unwrap();
            let mut stream = acceptor.accept(far).await?;
            let mut room = [0; 64];
            let mut total = 0;
            loop {
                let count = stream.read(&mut room).await?;
                if count == 0 {
                    return Ok(total);
                }
                total += count;
                stream.write_all(&room[..count]).await?;
                stream.flush().await?;
            }
        })
    });
    let heard = (|| {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(client, name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, near);
        stream.write_all(b"request!")?;
        stream.flush()?;
        let mut heard = [0; 8];
        stream.read_exact(&mut heard)?;
        if goodbye {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        Ok(heard)
    })();
    (server.join().unwrap(), heard)
}

#[test]
fn right_certificates_are_let_in_and_any_end_is_an_end() {
    let folder = Folder::new();
    let issuer = authority("ours");
    let server = identity(&issuer, SERVER, NOW);
    let mine = identity(&issuer, CLIENT, NOW);
    for clients in [None, Some(&issuer)] {
        let acceptor = open(&folder, &server, clients).unwrap();
        assert_eq!(acceptor.warnings(), []);
        for goodbye in [false, true] {
            let (served, heard) = talk(&acceptor, client(&issuer, Some(&mine)), goodbye);
            assert_eq!(&heard.unwrap(), b"request!");
            assert_eq!(served.unwrap(), 8, "goodbye: {goodbye}");
        }
    }
    let acceptor = open(&folder, &server, None).unwrap();
    assert!(
        talk(&acceptor, client(&issuer, None), true).1.is_ok(),
        "no client certificate was asked for"
    );
}

#[test]
fn clients_without_a_right_certificate_are_not_let_in() {
    let folder = Folder::new();
    let (issuer, stranger) = (authority("ours"), authority("another"));
    // A stranger that calls itself by our name, too.
    let impostor = authority("ours");
    let server = identity(&issuer, SERVER, NOW);
    let acceptor = open(&folder, &server, Some(&issuer)).unwrap();
    let cases = [
        ("missing", None, "no certificates"),
        ("expired", Some(identity(&issuer, CLIENT, PAST)), "expired"),
        (
            "not valid yet",
            Some(identity(&issuer, CLIENT, FUTURE)),
            "not valid yet",
        ),
        (
            "foreign",
            Some(identity(&stranger, CLIENT, NOW)),
            "unknown issuer",
        ),
        (
            "of an impostor",
            Some(identity(&impostor, CLIENT, NOW)),
            "bad signature",
        ),
        (
            "of a server",
            Some(identity(&issuer, SERVER, NOW)),
            "extended key usage",
        ),
    ];
    for (what, mine, expected) in cases {
        let (served, heard) = talk(&acceptor, client(&issuer, mine.as_ref()), true);
        let error = served.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}: {error}");
        assert!(error.to_string().contains(expected), "{what}: {error}");
        assert!(heard.is_err(), "{what}: the client heard something");
    }
}

#[test]
fn no_fault_of_a_certificate_is_named_as_in_a_source() {
    use rustls::{CertificateError as Fault, OtherError};
    #[derive(Debug)]
    struct MaximumPathDepthExceeded;
    impl fmt::Display for MaximumPathDepthExceeded {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{self:?}")
        }
    }
    impl std::error::Error for MaximumPathDepthExceeded {}
    let other = Fault::Other(OtherError(Arc::new(MaximumPathDepthExceeded)));
    for (fault, words) in [
        (other, "maximum path depth exceeded"),
        (Fault::BadEncoding, "bad encoding"),
        (Fault::Expired, "expired"),
        (Fault::NotValidYet, "not valid yet"),
        (Fault::Revoked, "revoked"),
        (
            Fault::UnhandledCriticalExtension,
            "unhandled critical extension",
        ),
        (Fault::UnknownIssuer, "unknown issuer"),
        (Fault::UnknownRevocationStatus, "unknown revocation status"),
        (Fault::ExpiredRevocationList, "expired revocation list"),
        (Fault::BadSignature, "bad signature"),
        (Fault::InvalidPurpose, "invalid purpose"),
        (
            Fault::ApplicationVerificationFailure,
            "application verification failure",
        ),
    ] {
        let error = io::Error::new(
            io::ErrorKind::InvalidData,
            rustls::Error::InvalidCertificate(fault),
        );
        let said = in_words(error).to_string();
        assert_eq!(said, format!("invalid peer certificate: {words}"));
    }
    for kept in [
        "peer sent no certificates",
        "received fatal alert: the name (of it) is X",
        "Connection reset by peer (os error 104)",
    ] {
        assert_eq!(in_words(io::Error::other(kept)).to_string(), kept);
    }
}

#[test]
fn clients_refuse_a_server_that_is_not_right() {
    let folder = Folder::new();
    let (issuer, stranger) = (authority("ours"), authority("another"));
    for (what, server) in [
        ("foreign", identity(&stranger, SERVER, NOW)),
        ("expired", identity(&issuer, SERVER, PAST)),
    ] {
        let acceptor = open(&folder, &server, None).unwrap();
        let (served, heard) = talk(&acceptor, client(&issuer, None), true);
        assert!(served.is_err() && heard.is_err(), "{what}");
    }
}

#[test]
fn plain_text_where_tls_is_due_is_an_error() {
    let folder = Folder::new();
    let issuer = authority("ours");
    let acceptor = open(&folder, &identity(&issuer, SERVER, NOW), None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime.block_on(async {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0")
            .await
            .unwrap();
        let error = acceptor.accept(far).await.unwrap_err();
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        // A TLS alert, if anything.
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
        error
    });
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

fn error(certificate: &Path, key: &Path, clients: Option<&Path>) -> String {
    let config = TlsConfig {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        clients: clients.map(Path::to_owned),
        revoked: None,
        required: false,
    };
    Acceptor::open(&config).unwrap_err().to_string()
}

#[test]
fn errors_name_the_file_and_what_is_wrong_with_it() {
    let folder = Folder::new();
    let issuer = authority("ours");
    let Identity { certificate, key } = identity(&issuer, SERVER, NOW);
    let other = identity(&issuer, SERVER, NOW);
    let good = folder.file("good.pem", &certificate);
    let good_key = folder.file("good-key.pem", &key);
    let says = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
    };

    let none = folder.0.join("none.pem");
    says(
        error(&none, &good_key, None),
        &["cannot read", "none.pem", "No such file"],
    );
    says(error(&good, &none, None), &["cannot read", "none.pem"]);
    says(
        error(&good, &good_key, Some(&none)),
        &["cannot read", "none.pem"],
    );
    says(
        error(&good_key, &good_key, None),
        &["no certificate in", "good-key.pem"],
    );
    says(
        error(&good, &good, None),
        &["no private key in", "good.pem"],
    );
    says(
        error(&good, &good_key, Some(&good_key)),
        &["no certificate in", "good-key.pem"],
    );

    let empty = folder.file("empty.pem", "");
    says(
        error(&empty, &good_key, None),
        &["no certificate in", "empty.pem"],
    );
    let cut = folder.file("cut.pem", &certificate[..certificate.len() / 2]);
    says(error(&cut, &good_key, None), &["cut.pem", "is not PEM"]);
    let mut wrong = certificate.clone();
    wrong.insert_str(40, "!!!!");
    let wrong = folder.file("wrong.pem", &wrong);
    says(error(&wrong, &good_key, None), &["wrong.pem", "is not PEM"]);
    let fake = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let second = folder.file("second.pem", &format!("{certificate}{fake}"));
    says(
        error(&second, &good_key, None),
        &["certificate 2 in", "second.pem"],
    );
    says(
        error(&good, &good_key, Some(&second)),
        &["certificate 2 in", "second.pem"],
    );
    let large = folder.file("large.pem", &"x".repeat((1 << 20) + 1));
    says(
        error(&large, &good_key, None),
        &["large.pem", "larger than 1 MiB"],
    );

    let other_key = folder.file("other-key.pem", &other.key);
    says(
        error(&good, &other_key, None),
        &["other-key.pem", "is not that of", "good.pem"],
    );
    for text in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ] {
        let locked = folder.file("locked.pem", text);
        says(
            error(&good, &locked, None),
            &["locked.pem", "is encrypted", "openssl pkey"],
        );
    }
}

#[test]
fn certificates_out_of_their_time_are_warned_of() {
    let folder = Folder::new();
    let issuer = authority("ours");
    let warned = |server: &Identity| {
        let acceptor = open(&folder, server, None).unwrap();
        let warnings: Vec<_> = acceptor
            .warnings()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("server.pem: certificate 1 "),
            "{warnings:?}"
        );
        warnings[0].clone()
    };
    let past = warned(&identity(&issuer, SERVER, PAST));
    assert!(
        past.contains("has expired ") && past.contains("days ago"),
        "{past}"
    );
    let future = warned(&identity(&issuer, SERVER, FUTURE));
    assert!(future.contains("is not valid yet"), "{future}");

    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let soon = identity_with(&issuer, SERVER, |params| {
        params.not_after =
            date_time_ymd(1970, 1, 1) + today + std::time::Duration::from_secs(5 * 86_400 + 600);
    });
    assert!(
        warned(&soon).ends_with("expires in 5 days"),
        "{}",
        warned(&soon)
    );
}

#[test]
fn a_clock_before_1970_shows_its_first_second() {
    let before = UNIX_EPOCH - std::time::Duration::from_secs(4 * 3600);
    assert_eq!(since_1970(before).as_secs(), 0);
    let after = UNIX_EPOCH + std::time::Duration::from_secs(7);
    assert_eq!(since_1970(after).as_secs(), 7);
}

/// Runs openssl in a folder; nothing if it is not installed.
fn openssl(folder: &Folder, words: &str) -> Option<String> {
    let mut command = std::process::Command::new("openssl");
    let ran = command
        .current_dir(&folder.0)
        .args(words.split(' '))
        .output()
        .ok()?;
    assert!(
        ran.status.success(),
        "openssl {words}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    Some(String::from_utf8(ran.stdout).unwrap())
}

/// Keys of each kind that openssl makes: those that ring signs with serve, others are named with
/// what works. Name, fingerprint and time are read as openssl reads them.
#[test]
fn keys_that_cannot_be_used_are_named_and_certificates_are_read_as_openssl_reads_them() {
    let folder = Folder::new();
    for (made, kind) in [
        ("RSA -pkeyopt rsa_keygen_bits:2048", "RSA of 2048 bits"),
        ("RSA -pkeyopt rsa_keygen_bits:2432", "RSA of 2432 bits"),
        ("RSA -pkeyopt rsa_keygen_bits:2560", "RSA of 2560 bits"),
        ("RSA -pkeyopt rsa_keygen_bits:3072", "RSA of 3072 bits"),
        ("EC -pkeyopt ec_paramgen_curve:P-256", "EC on P-256"),
        ("EC -pkeyopt ec_paramgen_curve:P-384", "EC on P-384"),
        ("EC -pkeyopt ec_paramgen_curve:P-521", "EC on P-521"),
        ("EC -pkeyopt ec_paramgen_curve:secp256k1", "EC on secp256k1"),
        ("ED25519", "Ed25519"),
        ("ED448", "Ed448"),
    ] {
        let Some(_) = openssl(&folder, &format!("genpkey -out key.pem -algorithm {made}")) else {
            eprintln!("openssl is not installed: nothing was tested with it");
            return;
        };
        openssl(
            &folder,
            "req -x509 -key key.pem -out cert.pem -days 300 -subj /O=acme/CN=the.server",
        );
        let (certificate, key) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
        let chain = files::certificates(&certificate).unwrap();
        assert_eq!(der::kind_of_key(&chain[0]).as_deref(), Some(kind));
        let shown = der::shown(&chain[0]);
        assert_eq!(shown.name.as_deref(), Some("the.server"));
        let print = openssl(&folder, "x509 -in cert.pem -noout -fingerprint -sha256").unwrap();
        let print = print
            .trim()
            .split_once('=')
            .unwrap()
            .1
            .replace(':', "")
            .to_lowercase();
        assert_eq!(shown.to_string(), format!("the.server sha256:{print}"));
        let (from, to) = der::lifetime(&chain[0]).unwrap();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        assert!(
            now - 60 <= from && from <= now && to == from + 300 * 86_400,
            "{from} {to} {now}"
        );
        let config = TlsConfig {
            certificate,
            key,
            clients: None,
            revoked: None,
            required: true,
        };
        let opened = Acceptor::open(&config).map_err(|error| error.to_string());
        match der::KEYS_TAKEN.contains(&kind) {
            true => drop(opened.unwrap()),
            false => {
                let refused = opened.unwrap_err();
                for part in ["key.pem", kind, "P-256", "openssl genpkey"] {
                    assert!(refused.contains(part), "{refused}");
                }
            }
        }
    }
}
