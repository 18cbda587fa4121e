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
use super::child::{Launch, Sharing, StopSignal, Supervised};
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
/// All test processes of a checkout share one.
const TEST_CONNECTIONS_MAX: u32 = 500;

/// How to run a private PostgreSQL.
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
    access: Access,
    log: PathBuf,
    _lock: File,
}

/// How to connect to a private cluster.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) socket_dir: PathBuf,
    pub(super) port: u16,
    pub(super) password: String,
}

impl Access {
    /// By the socket, as the superuser, to the database `dvp`.
    pub(super) fn connect_options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.socket_dir)
            .port(self.port)
            .username(NAME)
            .password(&self.password)
            .database(NAME)
            .ssl_mode(PgSslMode::Disable)
    }

    /// The connection string of a database over TCP, with the password, for other programs.
    pub(super) fn url_of(&self, database: &str) -> String {
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }
}

/// Everything the blocking part of a start has found out.
struct Prepared {
    cluster: Cluster,
    programs: PostgresPrograms,
    run_as: Option<Account>,
    lock: File,
}

/// The differences between a sandbox's cluster and a temporary one.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) durable: bool,
    /// For a cluster that is thrown away.
    pub(super) throw_away: Option<ThrowAway>,
    /// Settings of the server beside the usual ones.
    pub(super) settings: Vec<String>,
}

/// A cluster that goes when its last user has ended.
#[derive(Clone, Debug)]
pub(super) struct ThrowAway {
    /// The socket goes here instead of into a directory of its own, and this goes when the server ends.
    pub(super) root: PathBuf,
    pub(super) sharing: Sharing,
}

impl Postgres {
    /// Starts the cluster of a directory, and makes both when they do not exist.
    ///
    /// # Errors
    /// [`EmbeddedError::InUse`] when another process runs it, [`EmbeddedError::Missing`] when there is no
    /// PostgreSQL to run, and what its files or its log say.
    pub async fn start(dir: &Path, options: Options) -> Result<Self, EmbeddedError> {
        let dir = dir.to_owned();
        let durable = options.durable;
        let prepare = move || {
            let prepared = prepare(&dir, &options)?;
            let mut settings = match &options.tls {
                Some(tls) => tls.write(&prepared.cluster, prepared.run_as.as_ref())?,
                None => Vec::new(),
            };
            settings.extend(options.settings);
            Ok::<_, EmbeddedError>((prepared, settings))
        };
        let (prepared, settings) = tokio::task::spawn_blocking(prepare).await??;
        Self::run(prepared, Running { durable, throw_away: None, settings }).await
    }

    /// Starts a cluster that exists and is thrown away afterwards.
    pub(super) async fn start_throw_away(
        throw_away: ThrowAway,
        programs: PostgresPrograms,
        run_as: Option<Account>,
    ) -> Result<Self, EmbeddedError> {
        let lock = cluster::lock(&throw_away.root)?;
        let cluster = Cluster { root: throw_away.root.join("postgres") };
        let running = Running { durable: false, throw_away: Some(throw_away), settings: Vec::new() };
        Self::run(Prepared { cluster, programs, run_as, lock }, running).await
    }

    /// Hands a throw-away cluster over to its users, of which we are one already.
    pub(super) fn share(self) -> Result<Access, EmbeddedError> {
        self.server.share()?;
        Ok(self.access)
    }

    async fn run(prepared: Prepared, running: Running) -> Result<Self, EmbeddedError> {
        let Prepared { cluster, programs, run_as, lock } = prepared;
        let password = cluster.password()?;
        let mut remembered = cluster.port();
        // The files of a throw-away cluster go with its first server.
        let attempts = if running.throw_away.is_some() { 1 } else { PORT_ATTEMPTS };
        for attempt in 1.. {
            let free = FreePort::take_preferably(remembered.take())?;
            let port = free.number();
            let socket_dir = make_socket_dir(running.throw_away.as_ref(), run_as.as_ref())?;
            let launch = launch(&cluster, &programs, run_as.as_ref(), &running, port, &socket_dir);
            let server = tokio::task::spawn_blocking(move || launch.spawn()).await??;
            let access = Access { socket_dir, port, password: password.clone() };
            let mut postgres = Self { server, access, log: cluster.log(), _lock: lock_again(&lock)? };
            match postgres.wait_until_ready().await {
                Ok(()) => {
                    cluster.remember_port(port)?;
                    postgres.ensure_database().await?;
                    return Ok(postgres);
                }
                Err(error) if attempt < attempts && port_was_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The connection string over TCP, with the password, for other programs.
    pub fn url(&self) -> String {
        self.access.url_of(NAME)
    }

    /// How we connect ourselves: by the socket, as the superuser, to the database `dvp`.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.access.connect_options()
    }

    /// What the server logs.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The process id of the postmaster.
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
fn prepare(dir: &Path, options: &Options) -> Result<Prepared, EmbeddedError> {
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
    let programs = options.finder.postgres(major, run_as.as_ref())?;
    if major.is_none() {
        tracing::info!(dir = %cluster.root.display(), version = %programs.version, "creating a database cluster");
        cluster.create(&programs, run_as.as_ref(), options.durable)?;
    }
    cluster.end_predecessor()?;
    Ok(Prepared { cluster, programs, run_as, lock })
}

fn launch(
    cluster: &Cluster,
    programs: &PostgresPrograms,
    run_as: Option<&Account>,
    running: &Running,
    port: u16,
    socket_dir: &Path,
) -> Launch {
    let mut launch = Launch::new(&programs.bin.join("postgres"), &cluster.log());
    launch.run_as = run_as.cloned();
    launch.current_dir = cluster.data();
    launch.env = vec![("LC_ALL".into(), "C".into()), ("TZ".into(), "UTC".into())];
    launch.grace = STOP_GRACE;
    launch.remove_after =
        Some(running.throw_away.as_ref().map_or(socket_dir, |throw_away| &throw_away.root).to_owned());
    launch.args = vec!["-D".into(), cluster.data().into()];
    let mut settings = vec![
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        format!("unix_socket_directories={}", socket_dir.display()),
        "unix_socket_permissions=0700".to_owned(),
        format!(
            "max_connections={}",
            if running.throw_away.is_some() { TEST_CONNECTIONS_MAX } else { CONNECTIONS_MAX }
        ),
        "timezone=UTC".to_owned(),
        "log_timezone=UTC".to_owned(),
        "logging_collector=off".to_owned(),
    ];
    if running.durable {
        // A new database has no statistics until the first round of autovacuum. Until then the planner may read a
        // chain's whole history by an index that leads to it, instead of a few rows by their key.
        settings.extend(["shared_buffers=128MB", "autovacuum_naptime=5s"].map(str::to_owned));
    } else {
        let fast = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB"];
        settings.extend(fast.map(str::to_owned));
    }
    if let Some(throw_away) = &running.throw_away {
        launch.sharing = Some(throw_away.sharing.clone());
        // No replication and no archive, so the least log.
        launch.stop_signal = StopSignal::Quit;
        let least = ["wal_level=minimal", "max_wal_senders=0", "autovacuum=off"];
        settings.extend(least.map(str::to_owned));
        // As the service's connections have it.
        settings.push("jit=off".to_owned());
    }
    settings.extend_from_slice(&running.settings);
    for setting in settings {
        launch.args.extend(["-c".into(), setting.into()]);
    }
    launch
}

/// A private directory for the socket. Its name is short wherever the cluster is: a socket's path has at most 103
/// bytes on some systems.
fn make_socket_dir(
    throw_away: Option<&ThrowAway>,
    run_as: Option<&Account>,
) -> Result<PathBuf, EmbeddedError> {
    let dir = match throw_away {
        Some(throw_away) => throw_away.root.join(format!("s{}", random_hex(2))),
        None => PathBuf::from(format!("{}{}", cluster::SOCKET_DIR, random_hex(8))),
    };
    files::make_dir(&dir, 0o700)?;
    if let Some(account) = run_as {
        account.give(&dir).inspect_err(|_| drop(fs::remove_dir(&dir)))?;
    }
    Ok(dir)
}
