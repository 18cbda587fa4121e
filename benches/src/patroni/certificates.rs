//! The certificates of a drill, by an authority of its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// Writes the authority's certificate, and a certificate and key for the servers, for Patroni at etcd, and for the
/// service at the database.
pub(super) fn write(dir: &Path, give: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority of the drill");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        give(&path)
    };
    put("ca.pem", &authority.pem())?;
    // The service's certificate is for the name of its user.
    for (file, name) in [("server", "127.0.0.1"), ("etcd-client", "patroni"), ("dvp", "dvp")] {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        // etcd's members and Patroni's servers are clients of each other.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        put(&format!("{file}.pem"), &params.signed_by(&key, &authority)?.pem())?;
        put(&format!("{file}.key"), &key.serialize_pem())?;
    }
    Ok(())
}
