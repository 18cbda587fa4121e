//! Mutual authentication of processes: TLS 1.3 with raw public keys (RFC 7250).
//!
//! The key pair is derived from the service's master key, so a process proves by its handshake that it has that key, and
//! nothing has to be issued or renewed. A process presents the key of its current master key, and accepts those of all
//! its master keys, so that forwarding works while master keys are rotated.

use std::sync::Arc;

use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key},
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        AlwaysResolvesServerRawPublicKeys,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::{CertifiedKey, SigningKey},
    version::TLS13,
};

/// The protocol of forwarded connections, with its version: processes of different versions do not connect.
const PROTOCOL: &[u8] = b"dvp-fix-forward/1";
/// What precedes the 32 bytes of an Ed25519 private key in PKCS #8 (RFC 8410, section 7).
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// TLS of the forwarding and of the accepting side.
pub(super) fn configs(seeds: &[[u8; 32]]) -> Result<(ClientConfig, ServerConfig), Error> {
    let provider = Arc::new(ring::default_provider());
    let mut keys = Vec::new();
    for seed in seeds {
        let key = PrivatePkcs8KeyDer::from([&PKCS8_ED25519[..], seed].concat());
        keys.push(provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(key))?);
    }
    let accepted = keys.iter().map(public_key).collect::<Result<Vec<_>, _>>()?;
    let first = keys.into_iter().next().ok_or_else(|| Error::General("no key".to_owned()))?;
    let own = Arc::new(CertifiedKey::new(vec![public_key(&first)?], first));
    let verifier = Arc::new(OwnKeys { accepted, algorithms: provider.signature_verification_algorithms });
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&own))));
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Each connection proves the key anew.
    client.resumption = Resumption::disabled();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.send_tls13_tickets = 0;
    Ok((client, server))
}

/// The public key in the place of a certificate.
fn public_key(key: &Arc<dyn SigningKey>) -> Result<CertificateDer<'static>, Error> {
    let key = key.public_key().ok_or_else(|| Error::General("a key without its public key".to_owned()))?;
    Ok(CertificateDer::from(key.to_vec()))
}

/// Accepts the public keys of this service's master keys, and nothing else.
#[derive(Debug)]
struct OwnKeys {
    accepted: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl OwnKeys {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        let is_accepted = self.accepted.iter().any(|key| key.as_ref() == presented.as_ref());
        if is_accepted { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) }
    }
}

/// What both verifiers say of signatures: those of TLS 1.3 with a raw key, and no others.
macro_rules! raw_keys_only {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.2 is not used between processes".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(key.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for OwnKeys {
    raw_keys_only!();

    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }
}

impl ClientCertVerifier for OwnKeys {
    raw_keys_only!();

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector, rustls::RootCertStore};

    use super::*;

    /// Whether a byte passes from a process with the first keys to one with the second.
    async fn passes(client: &[[u8; 32]], server: &[[u8; 32]]) -> bool {
        let (connector, acceptor) = (configs(client).unwrap().0, configs(server).unwrap().1);
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::try_from("dvp").unwrap();
        let connecting = async {
            let mut stream = TlsConnector::from(Arc::new(connector)).connect(name, near).await?;
            stream.write_u8(7).await?;
            stream.flush().await
        };
        let accepting = async {
            let mut stream = TlsAcceptor::from(Arc::new(acceptor)).accept(far).await?;
            stream.read_u8().await
        };
        let (sent, read) = tokio::join!(connecting, accepting);
        sent.is_ok() && read.is_ok_and(|byte| byte == 7)
    }

    #[tokio::test]
    async fn processes_with_a_common_master_key_connect_and_others_do_not() {
        let (old, new, other) = ([1; 32], [2; 32], [3; 32]);
        assert!(passes(&[old], &[old]).await);
        // During a rotation: the first key is presented, all are accepted.
        assert!(passes(&[new, old], &[old, new]).await);
        assert!(passes(&[old, new], &[new, old]).await);
        assert!(!passes(&[other], &[old]).await);
        assert!(!passes(&[old], &[other]).await);
        assert!(!passes(&[new, old], &[old]).await, "the key that is presented is not known");
    }

    #[tokio::test]
    async fn a_client_without_a_key_is_refused() {
        let (mut client, server) = configs(&[[1; 32]]).unwrap();
        let keyless = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        client.client_auth_cert_resolver = keyless.client_auth_cert_resolver;
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::try_from("dvp").unwrap();
        let (_, accepted) = tokio::join!(
            TlsConnector::from(Arc::new(client)).connect(name, near),
            TlsAcceptor::from(Arc::new(server)).accept(far)
        );
        assert!(accepted.is_err());
    }
}
