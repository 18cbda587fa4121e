//! A PostgreSQL of our own: one directory, one owner, gone when we are gone, and the same data at the next start.
//!
//! It listens on a unix socket in a directory that only its account may enter, for us, and on a port of 127.0.0.1
//! for other programs; both ask for the password.

use std::fs::{self, DirBuilder, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dvp_store::durable::Readers;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::account::{self, Account};
use super::child::{Launch, StopSignal, Supervised};
use super::cluster::{self, Cluster, NAME};
use super::free_port::FreePort;
use super::tools::{Finder, PostgresPrograms};
use super::{EmbeddedError, files, random_hex};

/// Recovery after a crash counts in; a cluster of ours is small.
const READY_DEADLINE: Duration = Duration::from_secs(120);
const STOP_GRACE: Duration = Duration::from_secs(20);
/// Another process may take a free port between our choice and PostgreSQL's use of it.
pub(super) const PORT_ATTEMPTS: usize = 5;
const CONNECTIONS_MAX: u32 = 200;
/// A test process has a pool for each of its databases.
const TEST_CONNECTIONS_MAX: u32 = 500;

#[derive(Clone, Debug)]
pub struct Options {
    /// Whether a commit survives a power cut. Off, it survives the death of any process but not of the machine.
    pub durable: bool,
    /// Where the programs come from.
    pub finder: Finder,
    /// Over TCP nothing but TLS is taken then.
    pub tls: Option<ServerTls>,
    /// Settings of the server beside the usual ones, as `name=value`.
    pub settings: Vec<String>,
}

/// The TLS material of a server, in PEM.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub certificate: String,
    pub key: String,
    /// Clients show a certificate of this authority for their own user name.
    pub client_ca: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { durable: true, finder: Finder::machine(), tls: None, settings: Vec::new() }
    }
}

/// A running private PostgreSQL. Dropping it stops it.
#[derive(Debug)]
pub struct Postgres {
    // Declared first, dropped first: the directory is ours until the server has stopped.
    server: Supervised,
    socket_dir: PathBuf,
    port: u16,
    password: String,
    log: PathBuf,
    _lock: File,
}

/// A server to start: everything is there but its port and its socket.
struct Plan {
    cluster: Cluster,
    programs: PostgresPrograms,
    run_as: Option<Account>,
    lock: File,
    durable: bool,
    /// Of a cluster that is thrown away: the socket goes here instead of into a directory of its own, and this goes when
    /// the server ends.
    throw_away: Option<PathBuf>,
    /// Settings of the server beside the usual ones.
    settings: Vec<String>,
}

impl Postgres {
    /// Starts the cluster of a directory, and makes both when they do not exist.
    ///
    /// # Errors
    /// [`EmbeddedError::InUse`] when another process runs it, [`EmbeddedError::Missing`] when there is no
    /// PostgreSQL to run, and what its files or its log say.
    pub async fn start(dir: &Path, options: Options) -> Result<Self, EmbeddedError> {
        let dir = dir.to_owned();
        let plan = tokio::task::spawn_blocking(move || prepare(&dir, options)).await??;
        plan.run().await
    }

    /// Starts the cluster in a directory, which is thrown away afterwards.
    pub(super) async fn start_throw_away(
        root: &Path,
        programs: PostgresPrograms,
        run_as: Option<Account>,
    ) -> Result<Self, EmbeddedError> {
        let lock = cluster::lock(root)?;
        let (cluster, throw_away) = (Cluster { root: root.join("postgres") }, Some(root.to_owned()));
        let plan = Plan { cluster, programs, run_as, lock, durable: false, throw_away, settings: Vec::new() };
        plan.run().await
    }

    /// Starts a cluster that is there and locked, without syncs.
    pub(super) async fn start_volatile(
        cluster: &Cluster,
        programs: &PostgresPrograms,
        run_as: Option<&Account>,
        lock: &File,
    ) -> Result<Self, EmbeddedError> {
        let plan = Plan {
            cluster: cluster.clone(),
            programs: programs.clone(),
            run_as: run_as.cloned(),
            lock: lock_again(lock)?,
            durable: false,
            throw_away: None,
            settings: Vec::new(),
        };
        plan.run().await
    }

    /// The connection string over TCP, with the password, for other programs.
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    pub(super) fn url_of(&self, database: &str) -> String {
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// How we connect ourselves: by the socket, as the superuser, to the database `dvp`.
    pub fn connect_options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.socket_dir)
            .port(self.port)
            .username(NAME)
            .password(&self.password)
            .database(NAME)
            .ssl_mode(PgSslMode::Disable)
    }

    /// What the server logs.
    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Whether PostgreSQL has ended without being stopped.
    pub fn has_exited(&mut self) -> bool {
        self.server.exit_status().is_some()
    }

    /// Stops PostgreSQL in good order and waits until it is gone.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        let Self { server, _lock: lock, .. } = self;
        let stopped = server.stop().await;
        drop(lock);
        stopped
    }

    /// A server is ready once it answers a connection; log lines do not count.
    async fn wait_until_ready(&mut self) -> Result<(), EmbeddedError> {
        let until = Instant::now() + READY_DEADLINE;
        let options = self.connect_options().database("postgres");
        loop {
            if let Some(status) = self.server.exit_status() {
                return Err(self.server.exited_error(status));
            }
            match PgConnection::connect_with(&options).await {
                Ok(connection) => {
                    connection.close().await?;
                    return Ok(());
                }
                // Not listening yet, or still recovering. A lasting refusal is reported at the deadline.
                Err(error) if Instant::now() >= until => {
                    tracing::warn!(%error, "embedded PostgreSQL refuses connections");
                    return Err(self.server.not_ready_error(READY_DEADLINE));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn ensure_database(&self) -> Result<(), EmbeddedError> {
        let mut connection = PgConnection::connect_with(&self.connect_options().database("postgres")).await?;
        let there: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
            .bind(NAME)
            .fetch_one(&mut connection)
            .await?;
        if !there {
            // NAME is a constant that needs no quotes.
            connection.execute(AssertSqlSafe(format!("create database {NAME}"))).await?;
        }
        connection.close().await?;
        Ok(())
    }
}

impl ServerTls {
    /// Writes the files where the server finds them, and returns the settings that name them.
    fn write(&self, cluster: &Cluster, run_as: Option<&Account>) -> Result<Vec<String>, EmbeddedError> {
        let dir = cluster.root.join("tls");
        let _ = fs::remove_dir_all(&dir);
        files::make_dir(&dir, 0o755)?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            files::write_durably(&path, text.as_bytes(), Readers::Owner)?;
            run_as.map_or(Ok(()), |account| account.give(&path))?;
            Ok::<_, EmbeddedError>(path.display().to_string())
        };
        let client = if self.client_ca.is_some() { " clientcert=verify-full" } else { "" };
        let access = format!(
            "local all all scram-sha-256\nhostssl all all 127.0.0.1/32 scram-sha-256{client}\n\
             hostnossl all all all reject\n"
        );
        let mut settings = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", write("server.crt", &self.certificate)?),
            format!("ssl_key_file={}", write("server.key", &self.key)?),
            format!("hba_file={}", write("pg_hba.conf", &access)?),
        ];
        if let Some(authority) = &self.client_ca {
            settings.push(format!("ssl_ca_file={}", write("clients.crt", authority)?));
        }
        Ok(settings)
    }
}

/// Whether a start failed only because another process took the port first.
pub(super) fn port_was_taken(error: &EmbeddedError) -> bool {
    matches!(error, EmbeddedError::Exited { log_tail, .. } if log_tail.contains("could not bind"))
}

/// The lock belongs to the open file, which both handles share.
fn lock_again(lock: &File) -> Result<File, EmbeddedError> {
    lock.try_clone().map_err(EmbeddedError::file("lock", Path::new("postgres.lock")))
}

/// Everything up to the start of the server: lock, place, programs, cluster, and no predecessor.
fn prepare(dir: &Path, options: Options) -> Result<Plan, EmbeddedError> {
    let Options { durable, finder, tls, mut settings } = options;
    DirBuilder::new().recursive(true).create(dir).map_err(EmbeddedError::file("create", dir))?;
    let dir = dir.canonicalize().map_err(EmbeddedError::file("read", dir))?;
    let lock = cluster::lock(&dir)?;
    let mut run_as = account::unprivileged()?;
    if run_as.is_some() {
        cluster::sweep_outside();
    }
    let cluster = cluster::locate(&dir, run_as.as_ref())?;
    let major = cluster.major()?;
    if run_as.is_some() {
        // Made by another account than we would choose now: PostgreSQL insists on the owner.
        run_as = cluster.owner()?.or(run_as);
    }
    let programs = finder.postgres(major, run_as.as_ref())?;
    if major.is_none() {
        tracing::info!(dir = %cluster.root.display(), version = %programs.version, "creating a database cluster");
        cluster.create(&programs, run_as.as_ref(), durable)?;
    }
    cluster.end_predecessor()?;
    if let Some(tls) = tls {
        settings.splice(..0, tls.write(&cluster, run_as.as_ref())?);
    }
    Ok(Plan { cluster, programs, run_as, lock, durable, throw_away: None, settings })
}

impl Plan {
    async fn run(self) -> Result<Postgres, EmbeddedError> {
        let password = self.cluster.password()?;
        // The files of a throw-away cluster go with its first server, and its port is of the cluster it is a copy of.
        let (mut remembered, attempts) =
            if self.throw_away.is_some() { (None, 1) } else { (self.cluster.port(), PORT_ATTEMPTS) };
        for attempt in 1.. {
            let free = FreePort::take_preferably(remembered.take())?;
            let port = free.number();
            let socket_dir = self.make_socket_dir()?;
            let launch = self.launch(port, &socket_dir);
            let server = tokio::task::spawn_blocking(move || launch.spawn()).await??;
            let (log, password, lock) = (self.cluster.log(), password.clone(), lock_again(&self.lock)?);
            let mut postgres = Postgres { server, socket_dir, port, password, log, _lock: lock };
            match postgres.wait_until_ready().await {
                Ok(()) => {
                    self.cluster.remember_port(port)?;
                    postgres.ensure_database().await?;
                    return Ok(postgres);
                }
                Err(error) if attempt < attempts && port_was_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn launch(&self, port: u16, socket_dir: &Path) -> Launch {
        let mut launch = Launch::new(&self.programs.bin.join("postgres"), &self.cluster.log());
        launch.run_as = self.run_as.clone();
        launch.current_dir = self.cluster.data();
        launch.env = vec![("LC_ALL".into(), "C".into()), ("TZ".into(), "UTC".into())];
        launch.grace = STOP_GRACE;
        launch.remove_after = Some(self.throw_away.as_deref().unwrap_or(socket_dir).to_owned());
        launch.args = vec!["-D".into(), self.cluster.data().into()];
        let mut settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", socket_dir.display()),
            "unix_socket_permissions=0700".to_owned(),
            format!(
                "max_connections={}",
                if self.throw_away.is_some() { TEST_CONNECTIONS_MAX } else { CONNECTIONS_MAX }
            ),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "logging_collector=off".to_owned(),
        ];
        if self.durable {
            // A new database has no statistics until the first round of autovacuum. Until then the planner may read a
            // chain's whole history by an index that leads to it, instead of a few rows by their key.
            settings.extend(["shared_buffers=128MB", "autovacuum_naptime=5s"].map(str::to_owned));
        } else {
            let fast = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB"];
            settings.extend(fast.map(str::to_owned));
        }
        if self.throw_away.is_some() {
            // No replication and no archive, so the least log.
            launch.stop_signal = StopSignal::Quit;
            let least = ["wal_level=minimal", "max_wal_senders=0", "autovacuum=off"];
            settings.extend(least.map(str::to_owned));
            // As the service's connections have it.
            settings.push("jit=off".to_owned());
        }
        settings.extend_from_slice(&self.settings);
        for setting in settings {
            launch.args.extend(["-c".into(), setting.into()]);
        }
        launch
    }

    /// A private directory for the socket. Its name is short wherever the cluster is: a socket's path has at most 103
    /// bytes on some systems.
    fn make_socket_dir(&self) -> Result<PathBuf, EmbeddedError> {
        let dir = match &self.throw_away {
            Some(throw_away) => throw_away.join(format!("s{}", random_hex(2))),
            None => PathBuf::from(format!("{}{}", cluster::SOCKET_DIR, random_hex(8))),
        };
        files::make_dir(&dir, 0o700)?;
        if let Some(account) = &self.run_as {
            account.give(&dir).inspect_err(|_| drop(fs::remove_dir(&dir)))?;
        }
        Ok(dir)
    }
}
