//! TLS for FIX: our certificate, and the counterparty's if it presents one.
//!
//! Files are PEM. [`Tls::reload`] reads them again; established connections keep their certificates, and unusable files
//! change nothing.

mod validity;

use std::{
    io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use metrics::gauge;
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig, SupportedProtocolVersion,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often the files are checked for changes.
const WATCH: Duration = Duration::from_secs(10);

/// The oldest TLS version that is accepted. It is never below 1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    #[default]
    Tls12,
    Tls13,
}

/// The name is no supported TLS version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of the TLS versions \"1.2\" and \"1.3\"")]
pub struct UnknownTlsVersion(String);

impl FromStr for TlsVersion {
    type Err = UnknownTlsVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            other => Err(UnknownTlsVersion(other.to_owned())),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// No certificate is requested.
    #[default]
    Ignored,
    /// A certificate is optional, and must be issued by an authority in this file. A session may require one.
    Optional(PathBuf),
    /// A certificate issued by an authority in this file is required.
    Required(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub clients: ClientCertificates,
    pub oldest: TlsVersion,
}

/// The files cannot be used for a TLS server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}")]
    File { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("{0} has no certificate")]
    Empty(PathBuf),
    #[error("certificate and key")]
    Unusable(#[from] rustls::Error),
    #[error("authorities of client certificates")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
}

/// The peer's certificate, with proof of its private key by the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// SHA-256 of the certificate (DER): its fingerprint.
    pub sha256: [u8; 32],
    /// Its DNS names (the subject's common name is ignored, following RFC 9525).
    pub names: Vec<String>,
}

#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(server_config(&files)?));
        Ok(Self { files, current })
    }

    /// Reads the files again. On an error the previous ones stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = Arc::new(server_config(&self.files)?);
        *self.current.write() = fresh;
        Ok(())
    }

    /// Reloads whenever a file has changed, until shutdown is requested.
    pub async fn watch(self: Arc<Self>, shutdown: CancellationToken) {
        let mut known = self.changed_at().await;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(WATCH) => {}
            }
            let found = self.changed_at().await;
            if found == known {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    info!(certificate = %self.files.certificate.display(), "TLS files reloaded");
                    known = found;
                }
                // The files may be half written: retry.
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "TLS files could not be reloaded; the previous ones stay in use"
                ),
            }
        }
    }

    async fn changed_at(&self) -> Vec<Option<std::time::SystemTime>> {
        let mut times = Vec::new();
        let authorities = match &self.files.clients {
            ClientCertificates::Ignored => None,
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => Some(path),
        };
        for path in [&self.files.certificate, &self.files.key].into_iter().chain(authorities) {
            let metadata = tokio::fs::metadata(path).await;
            times.push(metadata.and_then(|metadata| metadata.modified()).ok());
        }
        times
    }

    /// Performs the handshake. The caller limits the time.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<PeerCertificate>)> {
        let config = Arc::clone(&self.current.read());
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(peer_certificate);
        Ok((stream, certificate))
    }
}

fn peer_certificate(der: &CertificateDer<'_>) -> PeerCertificate {
    let parsed = webpki::EndEntityCert::try_from(der);
    let names = parsed.map(|cert| cert.valid_dns_names().map(str::to_owned).collect());
    PeerCertificate { sha256: Sha256::digest(der).into(), names: names.unwrap_or_default() }
}

fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    // Named explicitly, because a process can have several providers and then no default.
    let provider = Arc::new(ring::default_provider());
    let certificates = certificates(&files.certificate)?;
    if let Some(not_after) = certificates.iter().filter_map(|der| validity::not_after(der)).min() {
        gauge!("dvp_tls_certificate_not_after_timestamp_seconds", "listener" => "fix")
            .set(f64::from(u32::try_from(not_after.max(0)).unwrap_or(u32::MAX)));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::File { path: files.key.clone(), source })?;
    let versions: &[&SupportedProtocolVersion] = match files.oldest {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let verifier = client_verifier(&files.clients, &provider)?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)?)
}

fn client_verifier(
    clients: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (path, is_required) = match clients {
        ClientCertificates::Ignored => return Ok(WebPkiClientVerifier::no_client_auth()),
        ClientCertificates::Optional(path) => (path, false),
        ClientCertificates::Required(path) => (path, true),
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if is_required { builder } else { builder.allow_unauthenticated() };
    Ok(builder.build()?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let found = found.map_err(failed)?;
    if found.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tls_version_is_refused() {
        assert_eq!("1.2".parse(), Ok(TlsVersion::Tls12));
        assert_eq!("1.3".parse(), Ok(TlsVersion::Tls13));
        for wrong in ["", "1.0", "1.1", "TLSv1.2", "tls1.3", "13"] {
            assert!(wrong.parse::<TlsVersion>().is_err(), "{wrong}");
        }
    }
}
