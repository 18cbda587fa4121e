//! Parses the URL and the certificate files, and checks that they protect the connection to the host.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;

use super::relay::Upstream;
use super::{AddressError, TlsFiles, tls};

/// The options without protection, and how the relay reaches the host unless it is a Unix socket.
pub(super) fn read(
    url: &str,
    files: &TlsFiles,
) -> Result<(PgConnectOptions, Option<Upstream>), AddressError> {
    let parsed = Url::parse(url).map_err(|error| AddressError::Url(error.to_string()))?;
    if !matches!(parsed.scheme(), "postgres" | "postgresql") {
        return Err(AddressError::Url("is not of the form postgres://user:password@host:port/name".into()));
    }
    let requested = requested(&parsed)?;
    let options: PgConnectOptions =
        url.parse().map_err(|error: sqlx::Error| AddressError::Url(error.to_string()))?;
    if options.get_socket().is_some() || options.get_host().starts_with('/') {
        return Ok((options, None));
    }
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    let tls = if is_protected(requested, &host, files)? { Some(tls::client(&host, files)?) } else { None };
    let upstream = Upstream { host, port: options.get_port(), tls };
    Ok((options, Some(upstream)))
}

/// The same for several servers of one database.
pub(super) fn read_all(
    urls: &[String],
    files: &TlsFiles,
) -> Result<(PgConnectOptions, Vec<Upstream>), AddressError> {
    let (mut servers, mut login): (Vec<Upstream>, Option<(Login, PgConnectOptions)>) = (Vec::new(), None);
    for url in urls {
        let (options, upstream) = read(url, files)?;
        let upstream = upstream.ok_or(AddressError::Several("a unix socket is no server among several"))?;
        if servers.iter().any(|other| (&other.host, other.port) == (&upstream.host, upstream.port)) {
            return Err(AddressError::Several("a server is listed twice"));
        }
        servers.push(upstream);
        let own = Login::of(url)?;
        match &login {
            Some((first, _)) if *first != own => {
                return Err(AddressError::Several("the URLs differ in more than host and port"));
            }
            Some(_) => {}
            None => login = Some((own, options)),
        }
    }
    let (_, options) = login.ok_or(AddressError::Several("no server is listed"))?;
    Ok((options, servers))
}

/// Everything of a URL except the server.
#[derive(PartialEq, Eq)]
struct Login {
    user: String,
    password: Option<String>,
    path: String,
    query: Option<String>,
}

impl Login {
    fn of(url: &str) -> Result<Self, AddressError> {
        let url = Url::parse(url).map_err(|error| AddressError::Url(error.to_string()))?;
        Ok(Self {
            user: url.username().to_owned(),
            password: url.password().map(str::to_owned),
            path: url.path().to_owned(),
            query: url.query().map(str::to_owned),
        })
    }
}

/// The sslmode of the URL; environment variables for other programs are ignored.
fn requested(url: &Url) -> Result<Option<PgSslMode>, AddressError> {
    let mut requested = None;
    for (name, value) in url.query_pairs() {
        let instead = match &*name {
            "sslmode" | "ssl-mode" => {
                let mode =
                    value.parse().map_err(|_| AddressError::Url(format!("sslmode={value} is unknown")))?;
                requested = Some(mode);
                continue;
            }
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => "database.ca",
            "sslcert" | "ssl-cert" => "database.client_certificate",
            "sslkey" | "ssl-key" => "database.client_key",
            _ => continue,
        };
        return Err(AddressError::Parameter { name: name.into_owned(), instead });
    }
    Ok(requested)
}

/// Whether the connection uses TLS, always with full verification.
fn is_protected(requested: Option<PgSslMode>, host: &str, files: &TlsFiles) -> Result<bool, AddressError> {
    let reason = if !is_local(host) {
        format!("{host}, a host that is not local,")
    } else if !files.is_empty() {
        "a configured certificate".to_owned()
    } else {
        // On this machine every mode beyond `disable` means the same.
        return Ok(matches!(
            requested,
            Some(PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull)
        ));
    };
    match requested {
        None | Some(PgSslMode::VerifyFull) => Ok(true),
        Some(mode) => Err(AddressError::Weak { mode: format!("{mode:?}").to_lowercase(), reason }),
    }
}

fn is_local(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read(url: &str) -> Result<Option<bool>, String> {
        let files = TlsFiles::default();
        let read = super::read(url, &files).map_err(|error| error.to_string())?;
        Ok(read.1.map(|upstream| upstream.tls.is_some()))
    }

    #[test]
    fn a_remote_host_is_reached_by_tls_only() {
        for host in ["db.example.com", "10.0.0.7", "[fd00::7]", "db", "localhost.example.com"] {
            for mode in ["", "?sslmode=verify-full"] {
                assert_eq!(read(&format!("postgres://dvp:x@{host}/dvp{mode}")), Ok(Some(true)), "{host}");
            }
            for mode in ["disable", "allow", "prefer", "require", "verify-ca"] {
                let said = read(&format!("postgres://dvp:x@{host}/dvp?sslmode={mode}")).unwrap_err();
                assert!(said.starts_with("database.url: sslmode="), "{said}");
                assert!(
                    said.contains("verify-full") && said.contains(host.trim_matches(['[', ']'])),
                    "{said}"
                );
            }
            let twice = format!("postgres://dvp:x@{host}/dvp?sslmode=verify-full&sslmode=disable");
            assert!(read(&twice).is_err());
        }
    }

    #[test]
    fn a_local_database_uses_tls_when_requested() {
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "LOCALHOST"] {
            for (mode, tls) in [("", false), ("?sslmode=prefer", false), ("?sslmode=require", true)] {
                assert_eq!(
                    read(&format!("postgres://dvp:x@{host}/dvp{mode}")),
                    Ok(Some(tls)),
                    "{host}{mode}"
                );
            }
        }
        assert_eq!(read("postgres://dvp:x@%2Frun%2Fpostgresql/dvp"), Ok(None));
        assert_eq!(read("postgres:///dvp?host=/run/postgresql&user=dvp"), Ok(None));
    }

    #[test]
    fn several_servers_differ_in_host_and_port_only() {
        let read = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let read = super::read_all(&urls, &TlsFiles::default()).map_err(|error| error.to_string())?;
            Ok::<_, String>(read.1.iter().map(Upstream::place).collect::<Vec<_>>())
        };
        let servers = ["postgres://dvp:x@a.example.com/dvp", "postgres://dvp:x@b.example.com:6432/dvp"];
        assert_eq!(read(&servers), Ok(vec!["a.example.com:5432".into(), "b.example.com:6432".into()]));
        for (other, said) in [
            ("postgres://dvp:y@b.example.com/dvp", "differ in more than host and port"),
            ("postgres://app:x@b.example.com/dvp", "differ in more than host and port"),
            ("postgres://dvp:x@b.example.com/other", "differ in more than host and port"),
            ("postgres://dvp:x@a.example.com:5432/dvp", "listed twice"),
            ("postgres://dvp:x@%2Frun%2Fpostgresql/dvp", "unix socket"),
        ] {
            let refused = read(&[servers[0], other]).unwrap_err();
            assert!(refused.starts_with("database.urls: ") && refused.contains(said), "{refused}");
        }
        assert!(read(&[]).unwrap_err().contains("no server"));
    }

    #[test]
    fn an_unusable_setting_is_refused_by_its_name() {
        for (url, said) in [
            ("mysql://x@db/dvp", "database.url: is not of the form"),
            ("postgres://x@db/dvp?sslmode=on", "database.url: sslmode=on is unknown"),
            ("postgres://x@db/dvp?sslrootcert=/ca", "database.url: sslrootcert is not read; set database.ca"),
            ("postgres://x@db/dvp?sslkey=/key", "set database.client_key"),
        ] {
            let error = read(url).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let files = |files: TlsFiles| {
            super::read("postgres://x@db.example.com/dvp", &files).map(drop).unwrap_err().to_string()
        };
        let none = || Some(PathBuf::from("/nowhere/ca.pem"));
        assert!(files(TlsFiles { ca: none(), ..TlsFiles::default() }).starts_with("database.ca: /nowhere"));
        let half = TlsFiles { client_key: none(), ..TlsFiles::default() };
        assert!(files(half).contains("are given together"));
        let client = TlsFiles { client_key: none(), client_certificate: none(), ..TlsFiles::default() };
        assert!(files(client).starts_with("database.client_certificate: /nowhere"));
        let local = TlsFiles { ca: none(), ..TlsFiles::default() };
        let error = super::read("postgres://x@localhost/dvp?sslmode=disable", &local).map(drop).unwrap_err();
        assert!(error.to_string().contains("a configured certificate needs"), "{error}");
    }
}
