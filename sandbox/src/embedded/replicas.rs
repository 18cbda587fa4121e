//! Several PostgreSQL servers that replicate, for tests and drills of a fail-over: one primary, standbys, a way to each
//! server that can be cut, and an operator that promotes the right standby.
//!
//! ```text
//! service ── clients' way ──> server <── peers' way ── standbys
//! ```
//!
//! Commits wait for one standby of any (`ANY 1`), so a fail-over must first end the replication of every standby and
//! then promote the one with the most log: a standby that still receives could confirm a commit that the promoted one
//! does not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::account::{self, Account};
use super::black_hole::BlackHole;
use super::child::{Launch, StopSignal, Supervised};
use super::cluster::{self, Cluster, NAME};
use super::free_port::FreePort;
use super::signals::{is_any_alive, processes, signal};
use super::tools::{Finder, PostgresPrograms};
use super::{EmbeddedError, files, random_hex};

/// How the directory of every set begins.
const DIR: &str = "/tmp/dvp-replicas-";
/// A machine that runs many tests takes its time.
const DEADLINE: Duration = Duration::from_secs(180);
const OLD: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The servers. Dropping them ends them and removes their files.
#[derive(Debug)]
pub struct Replicas {
    dir: PathBuf,
    programs: PostgresPrograms,
    run_as: Option<Account>,
    password: String,
    /// Commits wait for a standby.
    synchronous: bool,
    nodes: Vec<Node>,
    primary: usize,
    _lock: fs::File,
}

#[derive(Debug)]
struct Node {
    name: String,
    cluster: Cluster,
    port: FreePort,
    server: Option<Supervised>,
    clients: BlackHole,
    peers: BlackHole,
}

impl Replicas {
    /// Starts a primary and standbys, `servers` together.
    pub async fn start(servers: usize, synchronous: bool) -> Result<Self, EmbeddedError> {
        let prepare = || {
            sweep();
            let run_as = account::unprivileged()?;
            let programs = Finder::machine().postgres(None, run_as.as_ref())?;
            let dir = PathBuf::from(format!("{DIR}{}", random_hex(4)));
            files::make_dir(&dir, 0o755)?;
            let lock = cluster::lock(&dir)?;
            Ok::<_, EmbeddedError>((dir, lock, run_as, programs))
        };
        let (dir, lock, run_as, programs) = tokio::task::spawn_blocking(prepare).await??;
        let mut replicas = Self {
            dir,
            programs,
            run_as,
            password: String::new(),
            synchronous,
            nodes: Vec::new(),
            primary: 0,
            _lock: lock,
        };
        for number in 0..servers {
            let node = replicas.node(number).await?;
            replicas.nodes.push(node);
        }
        replicas.create_primary().await?;
        for standby in 1..servers {
            replicas.copy_primary(standby).await?;
        }
        replicas.wait_for_standbys().await?;
        Ok(replicas)
    }

    async fn node(&self, number: usize) -> Result<Node, EmbeddedError> {
        let root = self.dir.join(format!("n{number}"));
        let port = FreePort::take()?;
        let server = format!("127.0.0.1:{}", port.number());
        let way = || async {
            BlackHole::on_the_way_to(server.clone())
                .await
                .map_err(EmbeddedError::file("listen on", Path::new("127.0.0.1")))
        };
        Ok(Node {
            name: format!("n{number}"),
            cluster: Cluster { root },
            port,
            server: None,
            clients: way().await?,
            peers: way().await?,
        })
    }

    async fn create_primary(&mut self) -> Result<(), EmbeddedError> {
        let (cluster, programs, run_as) =
            (self.nodes[0].cluster.clone(), self.programs.clone(), self.run_as.clone());
        let create = move || {
            cluster.create(&programs, run_as.as_ref(), false)?;
            cluster.password()
        };
        self.password = tokio::task::spawn_blocking(create).await??;
        self.launch(0).await?;
        let mut admin = self.connect(0, "postgres").await?;
        // There is no standby yet.
        admin.execute("set synchronous_commit = local").await?;
        admin.execute(AssertSqlSafe(format!("create database {NAME}"))).await?;
        Ok(())
    }

    /// Makes a server a standby of the primary, from a new base backup.
    async fn copy_primary(&mut self, number: usize) -> Result<(), EmbeddedError> {
        let conninfo = self.conninfo(self.primary, number);
        let node = &self.nodes[number];
        let (root, data) = (node.cluster.root.clone(), node.cluster.data());
        if !root.is_dir() {
            files::make_dir(&root, 0o755)?;
        }
        if data.is_dir() {
            fs::remove_dir_all(&data).map_err(EmbeddedError::file("remove", &data))?;
        }
        files::make_dir(&data, 0o700)?;
        if let Some(account) = &self.run_as {
            account.give(&data)?;
        }
        let mut launch = Launch::new(&self.programs.bin.join("pg_basebackup"), &root.join("backup.log"));
        launch.run_as = self.run_as.clone();
        launch.env = vec![("LC_ALL".into(), "C".into())];
        launch.args =
            ["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--pgdata"].map(Into::into).into();
        launch.args.extend([data.clone().into(), "--dbname".into(), conninfo.clone().into()]);
        tokio::task::spawn_blocking(move || launch.spawn()?.complete(DEADLINE)).await??;
        let write = |name: &str, text: String| {
            let path = data.join(name);
            fs::write(&path, text).map_err(EmbeddedError::file("write", &path))?;
            self.run_as.as_ref().map_or(Ok(()), |account| account.give(&path))
        };
        write("standby.signal", String::new())?;
        write("postgresql.auto.conf", format!("primary_conninfo = '{conninfo}'\n"))?;
        self.launch(number).await
    }

    /// Starts a server on its data and waits until it answers.
    async fn launch(&mut self, number: usize) -> Result<(), EmbeddedError> {
        let node = &self.nodes[number];
        let socket_dir = node.cluster.root.join("s");
        if !socket_dir.is_dir() {
            files::make_dir(&socket_dir, 0o700)?;
            if let Some(account) = &self.run_as {
                account.give(&socket_dir)?;
            }
        }
        // PostgreSQL refuses to start when the number in the file is of any living process.
        let _ = fs::remove_file(node.cluster.data().join("postmaster.pid"));
        let mut launch = Launch::new(&self.programs.bin.join("postgres"), &node.cluster.log());
        launch.run_as = self.run_as.clone();
        launch.current_dir = node.cluster.data();
        launch.env = vec![("LC_ALL".into(), "C".into()), ("TZ".into(), "UTC".into())];
        launch.stop_signal = StopSignal::Quit;
        launch.args = vec!["-D".into(), node.cluster.data().into()];
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let names = if self.synchronous { format!("ANY 1 ({})", names.join(", ")) } else { String::new() };
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", node.port.number()),
            format!("unix_socket_directories={}", socket_dir.display()),
            format!("synchronous_standby_names={names}"),
            format!("cluster_name={}", node.name),
            "max_connections=200".to_owned(),
            "wal_level=replica".to_owned(),
            "max_wal_senders=10".to_owned(),
            "wal_keep_size=256MB".to_owned(),
            "wal_retrieve_retry_interval=100ms".to_owned(),
            "wal_receiver_status_interval=1s".to_owned(),
            // After a cut the other side is given up this soon.
            "wal_receiver_timeout=10s".to_owned(),
            "wal_sender_timeout=10s".to_owned(),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "logging_collector=off".to_owned(),
            "shared_buffers=64MB".to_owned(),
            // A killed server loses nothing that it wrote; only a machine would.
            "fsync=off".to_owned(),
        ];
        launch.args.extend(settings.into_iter().flat_map(|setting| ["-c".into(), setting.into()]));
        let server = tokio::task::spawn_blocking(move || launch.spawn()).await??;
        self.nodes[number].server = Some(server);
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(server) = &mut self.nodes[number].server
                && let Some(status) = server.exit_status()
            {
                return Err(server.exited_error(status));
            }
            match self.connect(number, "postgres").await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    fn conninfo(&self, server: usize, client: usize) -> String {
        let (port, password, name) =
            (self.nodes[server].peers.addr().port(), &self.password, &self.nodes[client].name);
        format!("host=127.0.0.1 port={port} user={NAME} password={password} application_name={name}")
    }

    async fn connect(&self, number: usize, database: &str) -> Result<PgConnection, EmbeddedError> {
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.nodes[number].port.number())
            .username(NAME)
            .password(&self.password)
            .database(database)
            .ssl_mode(PgSslMode::Disable);
        Ok(PgConnection::connect_with(&options).await?)
    }

    /// As the superuser, past the ways.
    pub async fn admin(&self, number: usize) -> Result<PgConnection, EmbeddedError> {
        self.connect(number, NAME).await
    }

    /// The number of the server that commits.
    pub const fn primary(&self) -> usize {
        self.primary
    }

    /// The connection strings of all servers, by the clients' ways.
    pub fn urls(&self) -> Vec<String> {
        let url = |addr| format!("postgres://{NAME}:{}@{addr}/{NAME}", self.password);
        self.nodes.iter().map(|node| url(node.clients.addr().to_string())).collect()
    }

    /// The connection string of a server, past the ways.
    pub fn direct_url(&self, number: usize) -> String {
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{NAME}", self.password, self.nodes[number].port.number())
    }

    /// Sends SIGKILL to all processes of a server, as a loss of power does.
    pub fn kill(&mut self, number: usize) -> Result<(), EmbeddedError> {
        let Some(mut server) = self.nodes[number].server.take() else { return Ok(()) };
        let pids = processes(server.pid())?;
        signal("-KILL", &pids)?;
        server.wait(DEADLINE);
        // The data cannot be opened while one of them still has its shared memory.
        let until = Instant::now() + DEADLINE;
        while is_any_alive(&pids)? && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Starts a killed server on the data that it left, in the role that it had.
    pub async fn restart(&mut self, number: usize) -> Result<(), EmbeddedError> {
        self.launch(number).await
    }

    /// Sends SIGSTOP to all processes of a server.
    pub fn freeze(&self, number: usize) -> Result<(), EmbeddedError> {
        self.signal_all(number, "-STOP")
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self, number: usize) -> Result<(), EmbeddedError> {
        self.signal_all(number, "-CONT")
    }

    fn signal_all(&self, number: usize, name: &str) -> Result<(), EmbeddedError> {
        match &self.nodes[number].server {
            Some(server) => signal(name, &processes(server.pid())?),
            None => Ok(()),
        }
    }

    /// Drops everything between a server and its clients.
    pub fn cut_clients(&self, number: usize) {
        self.nodes[number].clients.swallow();
    }

    /// Drops everything between a server and its standbys.
    pub fn cut_peers(&self, number: usize) {
        self.nodes[number].peers.swallow();
    }

    /// Lets new connections through again.
    pub fn heal(&self, number: usize) {
        self.nodes[number].clients.forward();
        self.nodes[number].peers.forward();
    }

    /// Promotes the standby with the most log; the others follow it. The former primary is not touched.
    pub async fn fail_over(&mut self) -> Result<usize, EmbeddedError> {
        let mut standbys = Vec::new();
        for number in (0..self.nodes.len()).filter(|number| *number != self.primary) {
            let mut admin = self.connect(number, "postgres").await?;
            follow(&mut admin, "").await?;
            standbys.push((number, admin));
        }
        let mut furthest: Option<(i64, usize)> = None;
        for (number, admin) in &mut standbys {
            // No replication slot remembers this; a receiver may still write what it has read.
            until(admin, "select not exists (select from pg_stat_wal_receiver)").await?;
            // The log may end within a record, so that its replay does not reach the end.
            let position =
                "select (greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8";
            let position: i64 = sqlx::query_scalar(position).fetch_one(&mut *admin).await?;
            furthest = furthest.max(Some((position, *number)));
        }
        let Some((_, promoted)) = furthest else { return Ok(self.primary) };
        for (number, admin) in &mut standbys {
            if *number == promoted {
                admin.execute("select pg_promote(true, 180)").await?;
            }
        }
        self.primary = promoted;
        for (number, admin) in &mut standbys {
            if *number != promoted {
                follow(admin, &self.conninfo(promoted, *number)).await?;
            }
        }
        Ok(promoted)
    }

    /// Makes a former primary a standby of the present one.
    pub async fn rebuild(&mut self, number: usize) -> Result<(), EmbeddedError> {
        self.kill(number)?;
        self.heal(number);
        self.copy_primary(number).await
    }

    /// Waits until every standby replicates from the primary.
    pub async fn wait_for_standbys(&self) -> Result<(), EmbeddedError> {
        let mut admin = self.connect(self.primary, "postgres").await?;
        let sql = format!(
            "select count(distinct application_name) = {} from pg_stat_replication \
             where state = 'streaming' and application_name like 'n_'",
            self.nodes.len() - 1
        );
        until(&mut admin, &sql).await
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for number in 0..self.nodes.len() {
            let _ = self.kill(number);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Sets the server that a standby receives from; empty: none.
async fn follow(admin: &mut PgConnection, conninfo: &str) -> Result<(), EmbeddedError> {
    admin.execute(AssertSqlSafe(format!("alter system set primary_conninfo = '{conninfo}'"))).await?;
    admin.execute("select pg_reload_conf()").await?;
    Ok(())
}

async fn until(admin: &mut PgConnection, sql: &str) -> Result<(), EmbeddedError> {
    let deadline = Instant::now() + DEADLINE;
    while !sqlx::query_scalar::<_, bool>(AssertSqlSafe(sql.to_owned())).fetch_one(&mut *admin).await? {
        if Instant::now() >= deadline {
            return Err(EmbeddedError::Unusable {
                dir: PathBuf::from(DIR),
                reason: format!("never true: {sql}"),
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Removes the files of sets whose process was killed. A young one may not have its lock yet.
fn sweep() {
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let path = entry.path();
        let made = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let is_old = made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age >= OLD);
        if path.to_string_lossy().starts_with(DIR) && is_old && cluster::lock(&path).is_ok() {
            let _ = fs::remove_dir_all(path);
        }
    }
}
