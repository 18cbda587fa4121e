//! One throw-away cluster for all test processes of a checkout.
//!
//! ```text
//! BASE/dvp-tests-KEY        the path of the current cluster; locked while a process joins or starts one
//! BASE/dvp-test-RANDOM/     a cluster, removed when it was unused for a minute
//!     postgres/             a copy of the pristine cluster that is kept in the cache
//!     postgres.lock         shared by its users
//!     users                 the pipe that each user holds open: its watcher learns of the end of the last one
//!     open                  how to connect; exists while the cluster takes users
//!     watcher               the watcher's process id
//!     process-TOKEN         locked by a user; its databases are named after the token
//! ```
//!
//! A process per test works as well as a process per test binary: concurrent ones and those of a later run within the
//! minute share the cluster. KEY stands for the checkout, its migrations, the user and the version of PostgreSQL, so
//! processes that share a cluster mean the same template by it. The kernel releases locks and pipes however a process
//! ends, and the next process drops the databases of one that ended. A cluster that does not answer is replaced.
//!
//! Creating and dropping databases, some 700 files each, is most of a test's time on a disk. So the cluster is in
//! memory where the machine has room, unless `TMPDIR` names a place. Connections over its socket, in a directory that
//! only its account and root can enter, need no password: the key derivation of each would cost a debug build more than
//! most statements.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use dvp_store::MIGRATOR;
use dvp_store::durable::Readers;

use super::account::{self, Account};
use super::child::{Sharing, WATCHER};
use super::cluster::{self, Cluster};
use super::postgres::{Access, PORT_ATTEMPTS, Postgres, ThrowAway, port_was_taken};
use super::tools::{self, Finder, PostgresPrograms};
use super::{EmbeddedError, files, orphan, random_hex};

const TEMPLATE: &str = "dvp_template";
const PREFIX: &str = "dvp-test-";
const USERS: &str = "users";
const OPEN: &str = "open";
const WATCHER_PID: &str = "watcher";
const PROCESS: &str = "process-";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// The room that it must have left, in KiB. A cluster takes some 300 MiB.
const MEMORY_ROOM_KIB: u64 = 2 << 20;
/// The authentication rules of a temporary cluster.
const ACCESS: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
/// The seconds that a cluster waits for another user, unless this variable says otherwise.
const IDLE_SECS: u64 = 60;
const IDLE_VARIABLE: &str = "DVP_TEST_CLUSTER_IDLE_SECS";
/// A directory that is younger may belong to a process that is about to lock it.
const YOUNG: Duration = Duration::from_secs(600);
/// The first version that copies a template through the buffer pool unless the statement names the file copy. With
/// `fsync` off that takes five times as long.
const STRATEGY_MAJOR: u32 = 15;

/// A cluster that this process uses until it ends.
#[derive(Debug)]
pub(super) struct TestCluster {
    access: Access,
    major: u32,
    presence: Presence,
    _lock: File,
}

/// The environment of test clusters on this machine.
#[derive(Clone)]
struct Place {
    base: PathBuf,
    programs: PostgresPrograms,
    run_as: Option<Account>,
    idle: Duration,
}

/// That a process uses a cluster, for as long as it lives.
#[derive(Debug)]
struct Presence {
    token: String,
    _process: File,
    _users: File,
}

impl TestCluster {
    /// The cluster of the test run: the one that is there, or a new one.
    pub(super) async fn obtain() -> Result<Self, EmbeddedError> {
        let (place, mut pointer) = tokio::task::spawn_blocking(|| {
            let place = Place::find()?;
            let pointer = place.lock_pointer()?;
            Ok::<_, EmbeddedError>((place, pointer))
        })
        .await??;
        let mut root = String::new();
        let read = |source| EmbeddedError::file("read", &place.base)(source);
        pointer.read_to_string(&mut root).map_err(read)?;
        if !root.is_empty() {
            let root = PathBuf::from(root);
            if let Some(joined) = Self::join(&root, place.programs.major).await? {
                return Ok(joined);
            }
            tokio::task::spawn_blocking(move || remove_abandoned(&root)).await?;
        }
        let (root, started) = Self::start(&place).await?;
        pointer
            .set_len(0)
            .and_then(|()| pointer.rewind())
            .and_then(|()| pointer.write_all(root.to_string_lossy().as_bytes()))
            .map_err(EmbeddedError::file("write", &place.base))?;
        Ok(started)
    }

    pub(super) fn connect_options(&self) -> PgConnectOptions {
        self.access.connect_options()
    }

    pub(super) fn url_of(&self, database: &str) -> String {
        self.access.url_of(database)
    }

    /// How the name of every database of this process begins.
    pub(super) fn database_prefix(&self) -> String {
        database_prefix(&self.presence.token)
    }

    /// The clause that makes a new database a copy of the migrated one.
    pub(super) fn template(&self) -> String {
        let strategy = if self.major >= STRATEGY_MAJOR { " strategy file_copy" } else { "" };
        format!("template {TEMPLATE}{strategy}")
    }

    /// Becomes a user of a cluster; `None` when it has ended, or is about to.
    async fn join(root: &Path, major: u32) -> Result<Option<Self>, EmbeddedError> {
        let Some(presence) = Presence::announce(root)? else { return Ok(None) };
        // After the announcement: the watcher removes the mark before it looks for users.
        let Some(access) = read_access(root)? else { return Ok(None) };
        let Ok(lock) = cluster::lock_shared(root) else { return Ok(None) };
        if watcher(root).is_none() {
            return Ok(None);
        }
        let mut admin = match PgConnection::connect_with(&access.connect_options()).await {
            Ok(admin) => admin,
            // The server answers: its error would not change with another cluster.
            Err(error @ sqlx::Error::Database(_)) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        for token in ended_processes(root) {
            let names: Vec<String> =
                sqlx::query_scalar("select datname from pg_database where starts_with(datname, $1)")
                    .bind(database_prefix(&token))
                    .fetch_all(&mut admin)
                    .await?;
            for name in names {
                admin.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
            }
            let _ = fs::remove_file(root.join(format!("{PROCESS}{token}")));
        }
        admin.close().await?;
        Ok(Some(Self { access, major, presence, _lock: lock }))
    }

    /// Starts a cluster with the migrated template, for this process and others.
    async fn start(place: &Place) -> Result<(PathBuf, Self), EmbeddedError> {
        let mut attempts = 1..PORT_ATTEMPTS;
        let (root, postgres) = loop {
            let Place { programs, run_as, idle, .. } = place.clone();
            let place = place.clone();
            let root = tokio::task::spawn_blocking(move || copy_pristine(&place)).await??;
            let throw_away = ThrowAway { root: root.clone(), sharing: sharing(&root, idle) };
            match Postgres::start_throw_away(throw_away, programs, run_as).await {
                Err(error) if port_was_taken(&error) && attempts.next().is_some() => {}
                started => break (root, started?),
            }
        };
        let mut admin = PgConnection::connect_with(&postgres.connect_options()).await?;
        admin.execute(AssertSqlSafe(format!("create database {TEMPLATE}"))).await?;
        admin.close().await?;
        let mut template = PgConnection::connect_with(&postgres.connect_options().database(TEMPLATE)).await?;
        MIGRATOR.run(&mut template).await?;
        template.close().await?;
        let presence = Presence::announce(&root)?.ok_or_else(|| EmbeddedError::Unusable {
            dir: root.clone(),
            reason: "its watcher has made no pipe".to_owned(),
        })?;
        let access = postgres.share()?;
        while watcher(&root).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        write_access(&root, &access)?;
        let lock = cluster::lock_shared(&root)?;
        Ok((root, Self { access, major: place.programs.major, presence, _lock: lock }))
    }
}

impl Presence {
    /// Tells the watcher that the cluster has a user; `None` when there is no cluster.
    fn announce(root: &Path) -> Result<Option<Self>, EmbeddedError> {
        let path = root.join(USERS);
        // For reading as well: opening it must not wait for a watcher that is gone.
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let Some(mut users) = EmbeddedError::if_there(opened, "open", &path)? else { return Ok(None) };
        users.write_all(b"user\n").map_err(EmbeddedError::file("write", &path))?;
        let token = random_hex(6);
        let path = root.join(format!("{PROCESS}{token}"));
        let process = File::create(&path).map_err(EmbeddedError::file("create", &path))?;
        process.lock().map_err(EmbeddedError::file("lock", &path))?;
        Ok(Some(Self { token, _process: process, _users: users }))
    }
}

impl Place {
    fn find() -> Result<Self, EmbeddedError> {
        let run_as = account::unprivileged()?;
        let programs = Finder::machine().postgres(None, run_as.as_ref())?;
        let base = temporary_base(run_as.as_ref());
        let set = std::env::var(IDLE_VARIABLE).ok().and_then(|secs| secs.parse().ok());
        Ok(Self { base, programs, run_as, idle: Duration::from_secs(set.unwrap_or(IDLE_SECS)) })
    }

    /// The file that names the current cluster, ours until it is dropped.
    fn lock_pointer(&self) -> Result<File, EmbeddedError> {
        let path = self.base.join(format!("dvp-tests-{}", self.key()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(EmbeddedError::file("open", &path))?;
        file.lock().map_err(EmbeddedError::file("lock", &path))?;
        Ok(file)
    }

    /// The same for processes that can share a cluster.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(env!("CARGO_MANIFEST_DIR"));
        // Root's, or the user's own.
        hash.update(tools::machine_cache().as_os_str().as_encoded_bytes());
        hash.update(&self.programs.version);
        for migration in MIGRATOR.iter() {
            hash.update(&migration.checksum);
        }
        hex::encode(&hash.finalize()[..6])
    }
}

fn database_prefix(token: &str) -> String {
    format!("t_{token}_")
}

fn sharing(root: &Path, idle: Duration) -> Sharing {
    Sharing { users: root.join(USERS), mark: root.join(OPEN), watcher: root.join(WATCHER_PID), idle }
}

/// Opens a cluster to users.
fn write_access(root: &Path, access: &Access) -> Result<(), EmbeddedError> {
    let text = format!("{}\n{}\n{}\n", access.socket_dir.display(), access.port, access.password);
    files::write_durably(&root.join(OPEN), text.as_bytes(), Readers::Owner)
}

/// How to connect to a cluster, if it takes users.
fn read_access(root: &Path) -> Result<Option<Access>, EmbeddedError> {
    let path = root.join(OPEN);
    let text = EmbeddedError::if_there(fs::read_to_string(&path), "read", &path)?;
    let Some(text) = text else { return Ok(None) };
    let lines: Vec<&str> = text.lines().collect();
    if let [socket_dir, port, password] = lines[..]
        && let Ok(port) = port.parse()
    {
        return Ok(Some(Access { socket_dir: socket_dir.into(), port, password: password.to_owned() }));
    }
    Err(EmbeddedError::Unusable { dir: root.to_owned(), reason: format!("`{OPEN}` has no address") })
}

/// The process id of a cluster's living watcher.
fn watcher(root: &Path) -> Option<u32> {
    orphan::living(&root.join(WATCHER_PID), &[WATCHER])
}

/// The tokens of processes that used a cluster and have ended.
fn ended_processes(root: &Path) -> Vec<String> {
    let ended = |entry: fs::DirEntry| {
        let token = entry.file_name().to_str()?.strip_prefix(PROCESS)?.to_owned();
        File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()).then_some(token)
    };
    fs::read_dir(root).into_iter().flatten().flatten().filter_map(ended).collect()
}

/// A directory with a copy of the pristine cluster, which belongs to the account that will run it.
fn copy_pristine(place: &Place) -> Result<PathBuf, EmbeddedError> {
    let run_as = place.run_as.as_ref();
    let pristine = pristine(&place.programs, run_as)?;
    sweep(&place.base);
    let root = place.base.join(format!("{PREFIX}{}", random_hex(8)));
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

/// A cluster as `initdb` leaves it, made once a machine and version: half a second that each run saves.
fn pristine(programs: &PostgresPrograms, run_as: Option<&Account>) -> Result<Cluster, EmbeddedError> {
    let version: String =
        programs.version.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let uid = run_as.map_or_else(|| "own".to_owned(), |account| account.uid.to_string());
    let parent = tools::machine_cache().join("pristine").join(format!("{version}-{uid}"));
    files::make_dirs(&parent)?;
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

/// Removes clusters whose users and watcher all have ended.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let age = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .map(|made| SystemTime::now().duration_since(made));
        if matches!(age, Ok(Ok(age)) if age > YOUNG) {
            remove_abandoned(&entry.path());
        }
    }
}

/// Removes a cluster that neither a user nor a watcher will remove; it may have been killed with both.
fn remove_abandoned(root: &Path) {
    // Exclusive: there are no users.
    if watcher(root).is_none()
        && let Ok(_lock) = cluster::lock(root)
    {
        let _ = Cluster { root: root.join("postgres") }.end_predecessor();
        let _ = fs::remove_dir_all(root);
    }
}
