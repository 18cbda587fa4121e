//! The shipped files with the addresses, paths, names and passwords of a drill. Each replaced text must be in the file:
//! a changed file fails the drill until the substitution is changed as well.
//!
//! What is not a name or a place: the watchdog's device is a pipe that the drill reads (`driver: testing`), a repository
//! on this machine takes the place of the object storage, `fsync` is off (processes are killed, no machine is), and
//! the drill has a user of its own that looks at the tables.

use std::path::Path;

use anyhow::ensure;

use super::tools::Ground;

const ETCD: &str = include_str!("../../../deploy/patroni/etcd.conf.yml");
const PATRONI: &str = include_str!("../../../deploy/patroni/patroni.yml");
const PGBACKREST: &str = include_str!("../../../deploy/pgbackrest/pgbackrest.conf");

#[derive(Debug, Clone)]
pub(super) struct Ports {
    pub(super) etcd_clients: u16,
    pub(super) etcd_peers: u16,
    pub(super) rest: u16,
    pub(super) postgres: u16,
}

/// What the other machines, and its own Patroni, reach by ways that can be cut.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    pub(super) rest: u16,
    pub(super) postgres: u16,
    pub(super) etcd: Vec<u16>,
}

pub(super) struct Settings<'a> {
    pub(super) name: &'a str,
    pub(super) root: &'a Path,
    pub(super) ground: &'a Ground,
    pub(super) ports: &'a Ports,
    pub(super) ways: &'a Ways,
    /// Of all machines.
    pub(super) all: &'a [Ports],
}

impl Settings<'_> {
    pub(super) fn etcd(&self) -> anyhow::Result<String> {
        let (ports, root) = (self.ports, self.root.display());
        let mut pairs = vec![
            ("\nname: db1\n".to_owned(), format!("\nname: {}\n", self.name)),
            ("/var/lib/etcd".into(), format!("{root}/etcd")),
            ("0.0.0.0:2380".into(), format!("127.0.0.1:{}", ports.etcd_peers)),
            ("0.0.0.0:2379".into(), format!("127.0.0.1:{}", ports.etcd_clients)),
            ("peer-urls: https://db1.internal:2380".into(), format!("peer-urls: {}", url(ports.etcd_peers))),
            (
                "client-urls: https://db1.internal:2379".into(),
                format!("client-urls: {}", url(ports.etcd_clients)),
            ),
            ("/etc/etcd/".into(), format!("{}/", self.ground.certificates.display())),
        ];
        for (n, port) in (1..).zip(self.all) {
            pairs.push((format!("https://db{n}.internal:2380"), url(port.etcd_peers)));
        }
        replaced(ETCD, &pairs)
    }

    pub(super) fn patroni(&self) -> anyhow::Result<String> {
        let (ports, ways, root) = (self.ports, self.ways, self.root.display());
        let etcd: Vec<String> = ways.etcd.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let pairs = [
            ("\nname: db1\n", format!("\nname: {}\n", self.name)),
            ("db1.internal:2379, db2.internal:2379, db3.internal:2379", etcd.join(", ")),
            ("0.0.0.0:8008", format!("127.0.0.1:{}", ports.rest)),
            ("db1.internal:8008", format!("127.0.0.1:{}", ways.rest)),
            ("0.0.0.0:5432", format!("127.0.0.1:{}", ports.postgres)),
            ("db1.internal:5432", format!("127.0.0.1:{}", ways.postgres)),
            ("/etc/patroni/", format!("{}/", self.ground.certificates.display())),
            ("/var/lib/postgresql/17/main", format!("{root}/data")),
            ("/usr/lib/postgresql/17/bin", self.ground.tools.postgres.display().to_string()),
            ("10.0.0.0/24", "127.0.0.1/32".into()),
            ("10.0.0.0/16", "127.0.0.1/32".into()),
            ("username: postgres", format!("username: {}", self.ground.tools.user)),
            ("local all postgres peer", format!("local all {} peer", self.ground.tools.user)),
            ("password: change-me", format!("password: {}", self.ground.password)),
            ("device: /dev/watchdog", format!("device: {root}/watchdog\n  driver: testing")),
            (
                "    ssl: \"on\"\n",
                format!("    ssl: \"on\"\n    unix_socket_directories: {root}/s\n    fsync: \"off\"\n"),
            ),
            (
                "clientcert=verify-full\n",
                "clientcert=verify-full\n    - local dvp drill scram-sha-256\n".to_owned(),
            ),
        ];
        replaced(PATRONI, &pairs.map(|(from, to)| (from.to_owned(), to)))
    }

    pub(super) fn pgbackrest(&self) -> anyhow::Result<String> {
        let (ports, root) = (self.ports, self.root.display());
        let storage = PGBACKREST.lines().filter(|line| line.starts_with("repo1-s3-"));
        let mut pairs: Vec<(String, String)> =
            storage.map(|line| (format!("{line}\n"), String::new())).collect();
        let more = [
            ("repo1-type=s3", "repo1-type=posix".to_owned()),
            ("repo1-path=/dvp", format!("repo1-path={}", self.ground.repository.display())),
            (
                "spool-path=/var/spool/pgbackrest",
                format!("spool-path={root}/spool\nlock-path={root}/lock\nlog-path={root}/log"),
            ),
            (
                "pg1-path=/var/lib/postgresql/17/main",
                format!("pg1-path={root}/data\npg1-socket-path={root}/s"),
            ),
            ("pg1-port=5432", format!("pg1-port={}\npg1-user={}", ports.postgres, self.ground.tools.user)),
        ];
        pairs.extend(more.map(|(from, to)| (from.to_owned(), to)));
        replaced(PGBACKREST, &pairs)
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

fn replaced(text: &str, pairs: &[(String, String)]) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for (from, to) in pairs {
        ensure!(text.contains(from), "the shipped file has no {from:?}");
        text = text.replace(from, to);
    }
    Ok(text)
}
