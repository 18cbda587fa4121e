//! The throw-away cluster of a test process.
//!
//! ```text
//! CACHE/pristine/KEY/postgres   a cluster with the migrated template, made once
//! BASE/dvp-test-RANDOM/         the process's copy of it, removed when the process has ended
//! ```
//!
//! KEY stands for the version of PostgreSQL, the user and the migrations.
//!
//! Creating and dropping databases, some 700 files each, is most of a test's time on a disk. So the cluster is in
//! memory where the machine has room, unless `TMPDIR` names a place. Connections over its socket, in a directory that
//! only its account and root can enter, need no password: the key derivation of each would cost a debug build more than
//! most statements.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use dvp_store::MIGRATOR;

use super::account::{self, Account};
use super::cluster::{self, Cluster};
use super::postgres::{PORT_ATTEMPTS, Postgres, port_was_taken};
use super::tools::{self, Finder, PostgresPrograms};
use super::{EmbeddedError, files, random_hex};

const TEMPLATE: &str = "dvp_template";
const PREFIX: &str = "dvp-test-";
const MEMORY: &str = "/dev/shm";
/// The room that it must have left, in KiB. A cluster takes some 300 MiB.
const MEMORY_ROOM_KIB: u64 = 2 << 20;
/// The authentication rules of a temporary cluster.
const ACCESS: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
/// A directory that is younger may belong to a process that is about to lock it.
const YOUNG: Duration = Duration::from_secs(600);
/// A pristine cluster of other migrations is removed after this time.
const OLD: Duration = Duration::from_secs(14 * 24 * 3600);
/// The first version that copies a template through the buffer pool unless the statement names the file copy. With
/// `fsync` off that takes five times as long.
const STRATEGY_MAJOR: u32 = 15;

/// A cluster that this process uses until it ends.
#[derive(Debug)]
pub(super) struct TestCluster {
    postgres: Postgres,
    major: u32,
}

impl TestCluster {
    pub(super) async fn start() -> Result<Self, EmbeddedError> {
        let find = || {
            let run_as = account::unprivileged()?;
            let programs = Finder::machine().postgres(None, run_as.as_ref())?;
            Ok::<_, EmbeddedError>((run_as, programs))
        };
        let (run_as, programs) = tokio::task::spawn_blocking(find).await??;
        let (pristine, _lock) = pristine(&programs, run_as.as_ref()).await?;
        let mut attempts = 1..PORT_ATTEMPTS;
        loop {
            let (pristine, account) = (pristine.clone(), run_as.clone());
            let root = tokio::task::spawn_blocking(move || copy(&pristine, account.as_ref())).await??;
            match Postgres::start_throw_away(&root, programs.clone(), run_as.clone()).await {
                Err(error) if port_was_taken(&error) && attempts.next().is_some() => {}
                started => return Ok(Self { postgres: started?, major: programs.major }),
            }
        }
    }

    pub(super) fn connect_options(&self) -> PgConnectOptions {
        self.postgres.connect_options()
    }

    pub(super) fn url_of(&self, database: &str) -> String {
        self.postgres.url_of(database)
    }

    /// The clause that makes a new database a copy of the migrated one.
    pub(super) fn template(&self) -> String {
        let strategy = if self.major >= STRATEGY_MAJOR { " strategy file_copy" } else { "" };
        format!("template {TEMPLATE}{strategy}")
    }
}

/// The cluster that is copied, with the migrated template, which saves each process seconds; and its lock.
async fn pristine(
    programs: &PostgresPrograms,
    run_as: Option<&Account>,
) -> Result<(Cluster, File), EmbeddedError> {
    let version: String =
        programs.version.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let uid = run_as.map_or_else(|| "own".to_owned(), |account| account.uid.to_string());
    let mut migrations = Sha256::new();
    MIGRATOR.iter().for_each(|migration| migrations.update(&migration.checksum));
    let key = format!("{version}-{uid}-{}", hex::encode(&migrations.finalize()[..6]));
    let parent = tools::machine_cache().join("pristine").join(key);
    let migrated = parent.join("migrated");
    let (account, new) = (run_as.cloned(), programs.clone());
    let prepare = move || {
        files::make_dirs(&parent)?;
        let path = parent.join("lock");
        let lock = File::create(&path).map_err(EmbeddedError::file("create", &path))?;
        lock.lock().map_err(EmbeddedError::file("lock", &path))?;
        let cluster = Cluster { root: parent.join("postgres") };
        if !parent.join("migrated").exists() {
            remove_old(&parent);
            if cluster.root.exists() {
                cluster.end_predecessor()?;
                fs::remove_dir_all(&cluster.root).map_err(EmbeddedError::file("remove", &cluster.root))?;
            }
            // Removes what a killed process has left half made.
            cluster.major()?;
            cluster.create(&new, account.as_ref(), false)?;
        }
        Ok::<_, EmbeddedError>((cluster, lock))
    };
    let (cluster, lock) = tokio::task::spawn_blocking(prepare).await??;
    if !migrated.exists() {
        let postgres = Postgres::start_volatile(&cluster, programs, run_as, &lock).await?;
        let mut admin = PgConnection::connect_with(&postgres.connect_options()).await?;
        admin.execute(AssertSqlSafe(format!("create database {TEMPLATE}"))).await?;
        admin.close().await?;
        let mut template = PgConnection::connect_with(&postgres.connect_options().database(TEMPLATE)).await?;
        MIGRATOR.run(&mut template).await?;
        template.close().await?;
        postgres.stop().await?;
        fs::write(&migrated, "").map_err(EmbeddedError::file("write", &migrated))?;
    }
    Ok((cluster, lock))
}

/// Removes the pristine clusters of earlier migrations.
fn remove_old(parent: &Path) {
    for entry in parent.parent().into_iter().flat_map(fs::read_dir).flatten().flatten() {
        let lock = File::open(entry.path().join("lock")).ok();
        let is_free = lock.as_ref().is_none_or(|lock| lock.try_lock().is_ok());
        if entry.path() != parent && is_older(&entry, OLD) && is_free {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_older(entry: &fs::DirEntry, than: Duration) -> bool {
    let made = entry.metadata().and_then(|metadata| metadata.modified()).ok();
    made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > than)
}

/// A directory with a copy of the pristine cluster, which belongs to the account that will run it.
fn copy(pristine: &Cluster, run_as: Option<&Account>) -> Result<PathBuf, EmbeddedError> {
    let base = temporary_base(run_as);
    sweep(&base);
    let root = base.join(format!("{PREFIX}{}", random_hex(8)));
    files::make_dir(&root, 0o700)?;
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
    if let Some(account) = run_as {
        // The watcher removes everything as this account; it has to own each directory for that.
        account.give(&root)?;
        account.give(&root.join("postgres"))?;
    }
    Ok(root)
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
    let Ok(output) =
        Command::new("df").arg("-Pk").arg(dir).stdin(Stdio::null()).stderr(Stdio::null()).output()
    else {
        return false;
    };
    // The fourth column of the second line, by POSIX.
    let text = String::from_utf8_lossy(&output.stdout);
    let available = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    available.is_some_and(|available| available >= MEMORY_ROOM_KIB)
}

/// Removes clusters whose process and watcher were both killed.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let root = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && is_older(&entry, YOUNG)
            && let Ok(_lock) = cluster::lock(&root)
        {
            let _ = Cluster { root: root.join("postgres") }.end_predecessor();
            let _ = fs::remove_dir_all(root);
        }
    }
}
