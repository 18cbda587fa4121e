//! TLS to PostgreSQL: trusted authorities, the client certificate, and explanations of errors.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as TlsError, RootCertStore,
};

use super::{AddressError, TlsFiles};

/// SSLRequest of the protocol: its length, and a number that is no protocol's version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A client's certificate, and its verification of the server.
#[derive(Clone)]
pub(super) struct Client {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A client of the host. The files are read once, here.
pub(super) fn client(host: &str, files: &TlsFiles) -> Result<Client, AddressError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| AddressError::HostName(host.to_owned()))?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| AddressError::Url(error.to_string()))?
        .with_root_certificates(authorities(files.ca.as_deref())?);
    let config = match (&files.client_certificate, &files.client_key) {
        (None, None) => config.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates("database.client_certificate", certificate)?;
            let key_der = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| file("database.client_key", key, &error))?;
            config
                .with_client_auth_cert(chain, key_der)
                .map_err(|error| file("database.client_key", key, &error))?
        }
        (Some(_), None) | (None, Some(_)) => return Err(AddressError::HalfAClient),
    };
    Ok(Client { connector: TlsConnector::from(Arc::new(config)), name })
}

fn file(setting: &'static str, path: &Path, reason: &dyn std::fmt::Display) -> AddressError {
    AddressError::File { setting, path: path.to_owned(), reason: reason.to_string() }
}

fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, AddressError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| file(setting, path, &error))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| file(setting, path, &error))?;
    if found.is_empty() {
        return Err(file(setting, path, &"holds no certificate"));
    }
    Ok(found)
}

/// The authorities of the file only, or the system's.
fn authorities(ca: Option<&Path>) -> Result<RootCertStore, AddressError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates("database.ca", path)? {
            roots.add(certificate).map_err(|error| file("database.ca", path, &error))?;
        }
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(AddressError::NoAuthorities) } else { Ok(roots) }
}

impl Client {
    /// Requests TLS and accepts nothing else.
    pub(super) async fn secure(&self, mut socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        socket.write_all(&SSL_REQUEST).await?;
        let mut answer = [0];
        socket.read_exact(&mut answer).await?;
        // No byte may follow the answer: unencrypted bytes could be injected.
        match answer {
            [b'S'] => self.connector.connect(self.name.clone(), socket).await,
            _ => Err(io::Error::other("the server does not offer TLS")),
        }
    }
}

/// An operator's remedy for a failed connection.
pub(super) fn reported(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match tls {
        Some(TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "the server's certificate is signed by no trusted authority (database.ca)".to_owned(),
        Some(TlsError::InvalidCertificate(
            reason @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        )) => format!("the server's certificate is for another host name: {reason}"),
        Some(TlsError::InvalidCertificate(reason)) => {
            format!("the server's certificate is not valid: {reason}")
        }
        Some(TlsError::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::DecryptError),
        )) => format!("the server refuses our certificate (database.client_certificate): {alert:?}"),
        Some(_) | None => error.to_string(),
    }
}
