//! The certificate of the sandbox's FIX listener, by an authority of the sandbox's own.
//!
//! Generated at the first start that requires it and kept, so that clients may keep trusting the authority. The
//! authority's key is discarded, so it can sign nothing else.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use dvp_fix_gateway::ListenerConfig;
use dvp_fix_gateway::tls::{ClientCertificates, Tls, TlsFiles, TlsVersion};
use dvp_store::durable::{self, Readers};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// The door's configuration, and the file with the authority's certificate that clients have to trust.
pub(super) fn listener(dir: &Path, host: IpAddr) -> anyhow::Result<(ListenerConfig, PathBuf)> {
    let dir = dir.join("fix-tls");
    let [authority, certificate, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| dir.join(name));
    // Written last, so that a start that was killed half way begins again.
    if !authority.exists() {
        make(&dir, host, [&authority, &certificate, &key]).context("certificate of the FIX TLS door")?;
    }
    let clients = ClientCertificates::Ignored;
    let files = TlsFiles { certificate, key, clients, oldest: TlsVersion::Tls12 };
    let tls = Tls::load(files).context("certificate of the FIX TLS door")?;
    Ok((ListenerConfig { tls: Some(Arc::new(tls)), ..ListenerConfig::default() }, authority))
}

fn make(dir: &Path, host: IpAddr, [authority, certificate, key]: [&Path; 3]) -> anyhow::Result<()> {
    durable::create_folder(dir)?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "dvp sandbox authority");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), host.to_string()];
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "dvp sandbox FIX");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let server_key = KeyPair::generate()?;
    let server = params.signed_by(&server_key, &issuer)?;

    for (path, text) in
        [(key, server_key.serialize_pem()), (certificate, server.pem()), (authority, issuer.pem())]
    {
        durable::write(path, text.as_bytes(), Readers::Owner)?;
    }
    Ok(())
}
