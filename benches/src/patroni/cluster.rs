//! Three machines with PostgreSQL under Patroni and etcd, as the files in `deploy/` set them up.
//!
//! Each machine has its member of etcd, as the shipped file says: a machine that fails takes its member along, and the
//! other two are a majority.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dvp_sandbox::embedded::{FreePort, random_hex};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use tokio::process::Command;

use super::machine::Machine;
use super::settings::Ports;
use super::tools::{Ground, Tools};

const MACHINES: usize = 3;
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
const COMMAND: Duration = Duration::from_secs(60);
const LOG_TAIL: usize = 25;

pub(super) struct Cluster {
    machines: Vec<Machine>,
    ground: Ground,
    dir: PathBuf,
    service_password: String,
    /// The machines' own ports.
    held: Vec<FreePort>,
}

impl Cluster {
    /// Starts the machines, with the service's user and database in them and a first backup.
    pub(super) async fn start(limit: Duration) -> anyhow::Result<Self> {
        let tools = Tools::find()?;
        // A short name: the path of a socket has few bytes.
        let dir = PathBuf::from(format!("/tmp/dvp-patroni-{}", random_hex(4)));
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let (certificates, repository) = (dir.join("certificates"), dir.join("repository"));
        let (password, cipher) = (random_hex(16), random_hex(16));
        let ground = Ground { tools, certificates, repository, password, cipher };
        let service_password = random_hex(16);
        let mut cluster = Self { machines: Vec::new(), ground, dir, service_password, held: Vec::new() };
        let outcome = cluster.set_up(limit).await;
        outcome.map_err(|error| anyhow::anyhow!("{error:#}\n{}", cluster.log_tails()))?;
        Ok(cluster)
    }

    async fn set_up(&mut self, limit: Duration) -> anyhow::Result<()> {
        for dir in [&self.ground.certificates, &self.ground.repository] {
            fs::create_dir(dir)?;
            self.ground.give(dir)?;
        }
        write_certificates(&self.ground.certificates, |path| self.ground.give(path))?;
        let mut all = Vec::new();
        for _ in 0..MACHINES {
            let mut port = || {
                let port = FreePort::take()?;
                let number = port.number();
                self.held.push(port);
                Ok::<_, anyhow::Error>(number)
            };
            let (etcd_clients, etcd_peers) = (port()?, port()?);
            all.push(Ports { etcd_clients, etcd_peers, rest: port()?, postgres: port()? });
        }
        for number in 0..MACHINES {
            let root = self.dir.join(format!("db{}", number + 1));
            self.machines.push(Machine::prepare(&self.ground, root, number, &all).await?);
        }
        for machine in &mut self.machines {
            machine.start(&self.ground)?;
        }
        let leader = self.healthy(limit).await?;
        let (service, drill) = (&self.service_password, &self.ground.password);
        for (database, sql) in [
            ("postgres", format!("create role dvp login password '{service}'")),
            ("postgres", "create database dvp owner dvp".to_owned()),
            ("dvp", format!("create role drill login password '{drill}' in role dvp")),
        ] {
            self.sql(leader, database, &sql).await?;
        }
        for words in [&["stanza-create"][..], &["check"], &["--type=full", "backup"]] {
            self.run(leader, "pgbackrest", [&["--stanza=dvp"], words].concat()).await?;
        }
        Ok(())
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for machine in &self.machines {
            let (password, addr) = (&self.service_password, machine.clients.addr());
            let url = format!("postgres://dvp:{password}@{addr}/dvp?sslmode=verify-full");
            arguments.extend(["--database-url".to_owned(), url]);
        }
        for (name, file) in [
            ("--database-ca", "ca.pem"),
            ("--database-certificate", "dvp.pem"),
            ("--database-key", "dvp.key"),
        ] {
            let file = self.ground.certificates.join(file).display().to_string();
            arguments.extend([name.to_owned(), file]);
        }
        arguments
    }

    /// How the drill reads the tables.
    pub(super) fn url(&self, number: usize) -> anyhow::Result<String> {
        let machine = self.machine(number)?;
        let (password, port, root) = (&self.ground.password, machine.ports.postgres, machine.root.display());
        Ok(format!("postgres://drill:{password}@localhost:{port}/dvp?host={root}/s"))
    }

    pub(super) fn machine(&self, number: usize) -> anyhow::Result<&Machine> {
        self.machines.get(number).context("no such machine")
    }

    pub(super) fn machine_mut(&mut self, number: usize) -> anyhow::Result<&mut Machine> {
        self.machines.get_mut(number).context("no such machine")
    }

    /// Waits, and looks after the watchdogs meanwhile.
    pub(super) async fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.look_after()?;
            tokio::time::sleep(LOOK_EVERY.min(until - Instant::now())).await;
        }
        Ok(())
    }

    pub(super) fn look_after(&mut self) -> anyhow::Result<()> {
        self.machines.iter_mut().try_for_each(|machine| machine.look_after(&self.ground))
    }

    /// Switches on whatever is off, ends every cut, and lets frozen machines go on.
    pub(super) fn restore(&mut self) -> anyhow::Result<()> {
        for machine in &mut self.machines {
            machine.heal();
            if !machine.is_on() {
                machine.start(&self.ground)?;
            } else if !machine.works() {
                machine.thaw()?;
            }
        }
        Ok(())
    }

    /// Cuts a machine off from everything: etcd, the others, the service.
    pub(super) fn isolate(&self, number: usize) -> anyhow::Result<()> {
        let machine = self.machine(number)?;
        machine.cut_etcd();
        machine.cut_database();
        // Its way to the others ends there, so that all of these are cut.
        self.machines.iter().for_each(Machine::cut_rest);
        Ok(())
    }

    /// The machine whose server takes writes, other than `former`.
    pub(super) async fn primary_other_than(
        &mut self,
        former: Option<usize>,
        limit: Duration,
    ) -> anyhow::Result<usize> {
        let deadline = Instant::now() + limit;
        loop {
            for number in (0..MACHINES).filter(|number| Some(*number) != former) {
                if self.machine(number)?.works() && self.asks(number, "select not pg_is_in_recovery()").await
                {
                    return Ok(number);
                }
            }
            ensure!(Instant::now() < deadline, "no server is promoted within {limit:?}");
            self.pause(LOOK_EVERY).await?;
        }
    }

    /// Waits until all machines work, the primary has two standbys, its commits wait for one of them, and Patroni has
    /// recorded which: it promotes no other, and for some rounds after a change it has recorded none.
    pub(super) async fn healthy(&mut self, limit: Duration) -> anyhow::Result<usize> {
        let deadline = Instant::now() + limit;
        let sql = "select not pg_is_in_recovery() and count(*) = 2 and bool_or(sync_state in ('sync', 'quorum')) \
                   from pg_stat_replication where state = 'streaming' and application_name like 'db_'";
        loop {
            for number in 0..MACHINES {
                if self.machine(number)?.works()
                    && self.asks(number, sql).await
                    && self.has_recorded_standby(number).await
                {
                    return Ok(number);
                }
            }
            ensure!(Instant::now() < deadline, "the cluster does not recover within {limit:?}");
            self.restore()?;
            self.pause(LOOK_EVERY * 5).await?;
        }
    }

    /// The runbook's switch to another server, which is the synchronous standby. Patroni refuses one that it has not
    /// recorded as synchronous yet, with a text, and with an exit code that says nothing of it.
    pub(super) async fn switch_over(&mut self, leader: usize) -> anyhow::Result<()> {
        let sql = "select application_name from pg_stat_replication where sync_state = 'sync'";
        let deadline = Instant::now() + COMMAND;
        loop {
            let candidate = self.sql(leader, "postgres", sql).await?;
            let said =
                self.patronictl(leader, &["switchover", "--candidate", candidate.trim(), "--force"]).await?;
            if !said.contains("failed, details") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "Patroni refuses to switch over: {said}");
            self.pause(LOOK_EVERY * 10).await?;
        }
    }

    async fn has_recorded_standby(&self, number: usize) -> bool {
        let listed = self.patronictl(number, &["list", "-f", "json"]).await;
        listed.is_ok_and(|said| said.contains("Sync Standby"))
    }

    async fn patronictl(&self, number: usize, words: &[&str]) -> anyhow::Result<String> {
        let file = self.machine(number)?.root.join("patroni.yml").display().to_string();
        let words = ["-c", &file].into_iter().chain(words.iter().copied());
        self.run(number, &self.ground.tools.patronictl, words).await
    }

    async fn asks(&self, number: usize, sql: &str) -> bool {
        self.sql(number, "postgres", sql).await.is_ok_and(|answer| answer.trim() == "t")
    }

    async fn sql(&self, number: usize, database: &str, sql: &str) -> anyhow::Result<String> {
        let machine = self.machine(number)?;
        let (socket, port) =
            (machine.root.join("s").display().to_string(), machine.ports.postgres.to_string());
        let words = ["-X", "-h", &socket, "-p", &port, "-d", database, "-v", "ON_ERROR_STOP=1", "-Atc", sql];
        self.run(number, self.ground.tools.postgres.join("psql"), words).await
    }

    /// A program as the servers' account, on one of the machines.
    pub(super) async fn run(
        &self,
        number: usize,
        program: impl AsRef<OsStr>,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<String> {
        let mut command = std::process::Command::new(&program);
        command.args(words).envs(self.machine(number)?.environment(&self.ground)).current_dir("/");
        command.stdin(Stdio::null());
        if let Some(account) = &self.ground.tools.run_as {
            account.drop_to(&mut command);
        }
        let name = Path::new(program.as_ref()).display();
        let mut command = Command::from(command);
        let output = tokio::time::timeout(COMMAND, command.kill_on_drop(true).output()).await;
        let output = output.with_context(|| format!("{name} takes too long"))??;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&said));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(super) fn log_tails(&self) -> String {
        let tail = |machine: &Machine| format!("--- {}\n{}", machine.name, machine.log_tail(LOG_TAIL));
        self.machines.iter().map(tail).collect::<Vec<_>>().join("\n")
    }
}

/// Writes the authority's certificate, and a certificate and key for the servers, for Patroni at etcd, and for the
/// service at the database.
fn write_certificates(dir: &Path, give: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
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

impl Drop for Cluster {
    fn drop(&mut self) {
        self.machines.clear();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
