//! A database of its own for every test, in milliseconds.
//!
//! A test process starts one throw-away cluster at its first [`TestDatabase::create`], a copy of a pristine one that
//! is kept in the cache; every database is a copy of one migrated template in it. When the process ends, in any way,
//! the cluster stops and its files go. A process per test works as well as a process per test binary.
//!
//! A database is some 700 files. Creating and dropping them is most of a test's time on a disk, so the cluster is in
//! memory where the machine has room, unless `TMPDIR` names a place. Connections over its socket, in a directory that
//! only its account and root can enter, need no password: the key derivation of each would cost a debug build more than
//! most statements.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};
use tokio::sync::OnceCell;

use dvp_store::MIGRATOR;
use dvp_store::pool::pool_options;

use super::account::{self, Account};
use super::cluster::{self, Cluster};
use super::postgres::{PORT_ATTEMPTS, Postgres, port_was_taken};
use super::tools::{self, Finder, PostgresPrograms};
use super::{EmbeddedError, random_hex};

const TEMPLATE: &str = "dvp_template";
const PREFIX: &str = "dvp-test-";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// The room that it must have left, in KiB. A cluster takes some 300 MiB.
const MEMORY_ROOM_KIB: u64 = 2 << 20;
/// Who may connect to a throw-away cluster, and how.
const ACCESS: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
/// Long enough for a slow machine under load, short enough that a leaked connection shows.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(30);

/// One cluster a process. Never dropped: statics are not, and the death watch takes care of it.
static CLUSTER: OnceCell<Postgres> = OnceCell::const_new();
/// Databases of finished tests. They are dropped by the next test, because a destructor cannot await.
static FINISHED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// An empty database with all migrations applied, that nobody else uses.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    options: PgConnectOptions,
    pool: PgPool,
}

impl TestDatabase {
    /// Makes one, and the process's cluster with the first.
    ///
    /// # Panics
    /// When there is no PostgreSQL to be had: a test that cannot run has failed. [`Self::try_create`] returns the
    /// error instead.
    pub async fn create() -> Self {
        match Self::try_create().await {
            Ok(database) => database,
            Err(error) => panic!("no database for this test: {}", with_sources(&error)),
        }
    }

    /// Makes one, and the process's cluster with the first.
    ///
    /// # Errors
    /// What stands in the way of a cluster or of a copy of the template.
    pub async fn try_create() -> Result<Self, EmbeddedError> {
        let cluster = CLUSTER.get_or_try_init(start_cluster).await?;
        let name = format!("t_{}", random_hex(8));
        let mut admin = PgConnection::connect_with(&cluster.connect_options()).await?;
        // Our own names of hex digits: nothing to quote. One statement each, for they cannot share a transaction.
        let finished = std::mem::take(&mut *FINISHED.lock().unwrap_or_else(PoisonError::into_inner));
        for old in finished {
            admin.execute(AssertSqlSafe(format!("drop database if exists {old} with (force)"))).await?;
        }
        admin.execute(AssertSqlSafe(format!("create database {name} template {TEMPLATE}"))).await?;
        admin.close().await?;
        let options = cluster.connect_options().database(&name);
        let pool = pool_options()
            .max_connections(10)
            .acquire_timeout(ACQUIRE_DEADLINE)
            .connect_lazy_with(options.clone());
        Ok(Self { url: cluster.url_of(&name), name, options, pool })
    }

    /// A pool of at most 10 connections.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The connection string over TCP, for other processes.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// For a pool of another size.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.options.clone()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        FINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.name));
    }
}

async fn start_cluster() -> Result<Postgres, EmbeddedError> {
    let mut attempts = 1..PORT_ATTEMPTS;
    let postgres = loop {
        let (root, programs, run_as) = tokio::task::spawn_blocking(copy_pristine).await??;
        match Postgres::start_throw_away(root, programs, run_as).await {
            Err(error) if port_was_taken(&error) && attempts.next().is_some() => {}
            started => break started?,
        }
    };
    let mut admin = PgConnection::connect_with(&postgres.connect_options()).await?;
    admin.execute(AssertSqlSafe(format!("create database {TEMPLATE}"))).await?;
    admin.close().await?;
    let mut template = PgConnection::connect_with(&postgres.connect_options().database(TEMPLATE)).await?;
    MIGRATOR.run(&mut template).await?;
    template.close().await?;
    Ok(postgres)
}

/// A directory with a copy of the pristine cluster, which belongs to the account that will run it.
fn copy_pristine() -> Result<(PathBuf, PostgresPrograms, Option<Account>), EmbeddedError> {
    let run_as = account::unprivileged()?;
    let programs = Finder::machine().postgres(None, run_as.as_ref())?;
    let pristine = pristine(&programs, run_as.as_ref())?;
    let base = temporary_base(run_as.as_ref());
    sweep(&base);
    let root = base.join(format!("{PREFIX}{}", random_hex(8)));
    cluster::make_dir(&root, 0o700)?;
    let copied = Command::new("cp")
        .arg("-Rp")
        .arg(&pristine.root)
        .arg(&root)
        .stdin(Stdio::null())
        .status()
        .map_err(|source| EmbeddedError::Run { program: PathBuf::from("cp"), source })?;
    if !copied.success() {
        return Err(EmbeddedError::Unusable { dir: root, reason: format!("cp: {copied}") });
    }
    // The file is there and keeps its owner.
    let access = root.join("postgres/data/pg_hba.conf");
    fs::write(&access, ACCESS).map_err(EmbeddedError::file("write", &access))?;
    if let Some(account) = &run_as {
        // The watcher removes everything as this account; it has to own each directory for that.
        account.give(&root)?;
        account.give(&root.join("postgres"))?;
    }
    Ok((root, programs, run_as))
}

/// A cluster as `initdb` leaves it, made once a machine and version: half a second that each process saves.
fn pristine(programs: &PostgresPrograms, run_as: Option<&Account>) -> Result<Cluster, EmbeddedError> {
    let version: String =
        programs.version.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let uid = run_as.map_or_else(|| "own".to_owned(), |account| account.uid.to_string());
    let parent = tools::machine_cache().join("pristine").join(format!("{version}-{uid}"));
    cluster::make_dirs(&parent)?;
    let lock_path = parent.join("lock");
    let lock = fs::File::create(&lock_path).map_err(EmbeddedError::file("create", &lock_path))?;
    lock.lock().map_err(EmbeddedError::file("lock", &lock_path))?;
    let cluster = Cluster { root: parent.join("postgres") };
    if cluster.major()?.is_none() {
        cluster.create(programs, run_as, false)?;
    }
    Ok(cluster)
}

/// Memory, or the temporary directory where the account can enter it; short enough for a socket either way.
fn temporary_base(run_as: Option<&Account>) -> PathBuf {
    let enters = |dir: &Path| run_as.is_none_or(|account| account.can_enter(dir));
    let memory = PathBuf::from(MEMORY);
    if std::env::var_os("TMPDIR").is_none() && has_room(&memory) && enters(&memory) {
        return memory;
    }
    let usual = std::env::temp_dir();
    let short = usual.as_os_str().len() <= 50;
    if short && enters(&usual) { usual } else { PathBuf::from("/var/tmp") }
}

/// Whether a file system exists and has [`MEMORY_ROOM_KIB`] left.
fn has_room(dir: &Path) -> bool {
    let Ok(told) = Command::new("df").arg("-Pk").arg(dir).stdin(Stdio::null()).stderr(Stdio::null()).output()
    else {
        return false;
    };
    // The fourth column of the second line, by POSIX.
    let text = String::from_utf8_lossy(&told.stdout);
    let available = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    available.is_some_and(|available| available >= MEMORY_ROOM_KIB)
}

/// Removes what was left when a process and its watcher both were killed. A living owner has the lock; one that is
/// about to take it has a young directory.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let age = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .map(|made| SystemTime::now().duration_since(made));
        let old = matches!(age, Ok(Ok(age)) if age > Duration::from_secs(600));
        let root = entry.path();
        if old && let Ok(_lock) = cluster::lock(&root) {
            let _ = Cluster { root: root.join("postgres") }.end_predecessor();
            let _ = fs::remove_dir_all(&root);
        }
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
