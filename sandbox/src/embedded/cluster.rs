//! The files of a private cluster: their paths, their creation, and servers that may still run on them.
//!
//! ```text
//! DIR/postgres.lock        held while a process owns the cluster
//! DIR/postgres/            or, where the account that runs PostgreSQL cannot enter DIR,
//! DIR/postgres.location    the name of a directory under /var/lib/dvp that is used instead
//!     data/                PostgreSQL's own
//!     password             of the superuser, 0600
//!     port                 the one used last
//!     server.log
//! ```
//!
//! The directory is made beside its place and renamed into it, so a cluster is there complete or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dvp_store::durable::Readers;

use super::account::Account;
use super::child::Launch;
use super::files::{make_dir, make_dirs, sync_dir, write_durably};
use super::tools::PostgresPrograms;
use super::{EmbeddedError, orphan, random_hex};

/// The superuser and the database of every private cluster.
pub(super) const NAME: &str = "dvp";

/// How the path of every socket's directory begins.
pub(super) const SOCKET_DIR: &str = "/tmp/dvp-pg-";

const LOCK: &str = "postgres.lock";
const OUTSIDE: &str = "/var/lib/dvp";
const INITDB_DEADLINE: Duration = Duration::from_secs(120);
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) root: PathBuf,
}

/// Takes the directory for ourselves until the returned file is dropped, or our process ends.
pub(super) fn lock(dir: &Path) -> Result<File, EmbeddedError> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(EmbeddedError::file("create", &path))?;
    EmbeddedError::locked(file.try_lock(), &path, dir).map(|()| file)
}

/// Where the cluster of `dir` is or shall be. The caller holds the lock.
pub(super) fn locate(dir: &Path, run_as: Option<&Account>) -> Result<Cluster, EmbeddedError> {
    let inside = dir.join("postgres");
    let pointer = dir.join("postgres.location");
    if let Some(text) = EmbeddedError::if_there(fs::read_to_string(&pointer), "read", &pointer)? {
        return Ok(Cluster { root: outside(dir, Path::new(text.trim_end()))? });
    }
    if inside.is_dir() || run_as.is_none_or(|account| account.can_enter(dir)) {
        return Ok(Cluster { root: inside });
    }
    let elsewhere = Path::new(OUTSIDE).join(random_hex(8)).join("postgres");
    write_durably(&pointer, elsewhere.to_string_lossy().as_bytes(), Readers::Group)?;
    Ok(Cluster { root: outside(dir, &elsewhere)? })
}

/// Makes the parent of a cluster outside of its directory. `owner` names the directory, for people and for
/// [`sweep_outside`].
fn outside(dir: &Path, root: &Path) -> Result<PathBuf, EmbeddedError> {
    let misplaced = || EmbeddedError::Unusable {
        dir: dir.to_owned(),
        reason: format!("`postgres.location` names {}, which is not under {OUTSIDE}", root.display()),
    };
    let parent =
        root.parent().filter(|parent| parent.parent() == Some(Path::new(OUTSIDE))).ok_or_else(misplaced)?;
    if !parent.is_dir() {
        make_dirs(parent)?;
        let dir = dir.canonicalize().map_err(EmbeddedError::file("read", dir))?;
        write_durably(&parent.join("owner"), dir.to_string_lossy().as_bytes(), Readers::Group)?;
    }
    Ok(root.to_owned())
}

/// Removes clusters outside of their directories when those were temporary and are gone. A directory that is
/// elsewhere may be on a disk that is not mounted now, so its cluster stays.
pub(super) fn sweep_outside() {
    for entry in fs::read_dir(OUTSIDE).into_iter().flatten().flatten() {
        let Ok(owner) = fs::read_to_string(entry.path().join("owner")) else { continue };
        let owner = Path::new(owner.trim_end());
        let temporary = [Path::new("/tmp"), Path::new("/var/tmp"), &std::env::temp_dir()];
        let gone = matches!(owner.try_exists(), Ok(false));
        if gone && temporary.iter().any(|temporary| owner.starts_with(temporary)) {
            let cluster = Cluster { root: entry.path().join("postgres") };
            if cluster.postmaster().is_none() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Cluster {
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.root.join("server.log")
    }

    /// The owner of the data, whose account must run the server. `None` when there is no cluster yet.
    pub(super) fn owner(&self) -> Result<Option<Account>, EmbeddedError> {
        if self.root.is_dir() { Account::owner_of(&self.data()) } else { Ok(None) }
    }

    /// The major version that the data is bound to, or `None` when there is no cluster yet. Removes what a killed
    /// run left half-made.
    pub(super) fn major(&self) -> Result<Option<u32>, EmbeddedError> {
        self.remove_half_made()?;
        let path = self.data().join("PG_VERSION");
        let text = EmbeddedError::if_there(fs::read_to_string(&path), "read", &path)?;
        let major = text.map(|text| text.trim().parse()).transpose();
        major.map_err(|_| EmbeddedError::Unusable {
            dir: self.root.clone(),
            reason: format!("{} has no version number", path.display()),
        })
    }

    /// A cluster is complete when it has been renamed into place. An incomplete one has no data: `initdb` had
    /// not finished. Any other irregularity is left for a person to examine.
    fn remove_half_made(&self) -> Result<(), EmbeddedError> {
        if let (Some(parent), Some(name)) = (self.root.parent(), self.root.file_name()) {
            let prefix = format!("{}.new-", name.to_string_lossy());
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(&prefix) {
                    let path = entry.path();
                    fs::remove_dir_all(&path).map_err(EmbeddedError::file("remove", &path))?;
                }
            }
        }
        if !self.root.exists()
            || self.root.join("password").is_file() && self.data().join("PG_VERSION").is_file()
        {
            return Ok(());
        }
        if self.data().join("global/pg_control").exists() {
            return Err(EmbeddedError::Unusable {
                dir: self.root.clone(),
                reason: "it holds a database but lacks its `password` or `data/PG_VERSION`".to_owned(),
            });
        }
        fs::remove_dir_all(&self.root).map_err(EmbeddedError::file("remove", &self.root))
    }

    /// Makes the cluster. Neither locale nor time zone of the machine shows in it.
    pub(super) fn create(
        &self,
        programs: &PostgresPrograms,
        run_as: Option<&Account>,
        durable: bool,
    ) -> Result<(), EmbeddedError> {
        let new = self.root.with_file_name(format!("postgres.new-{}", random_hex(4)));
        make_dir(&new, 0o755)?;
        let data = new.join("data");
        make_dir(&data, 0o700)?;
        let password = random_hex(24);
        write_durably(&new.join("password"), password.as_bytes(), Readers::Owner)?;
        // A second copy that the account may read, for as long as `initdb` runs.
        let handed = new.join("password.initdb");
        write_durably(&handed, password.as_bytes(), Readers::Owner)?;
        if let Some(account) = run_as {
            account.give(&data)?;
            account.give(&handed)?;
        }
        let mut launch = Launch::new(&programs.bin.join("initdb"), &new.join("initdb.log"));
        launch.run_as = run_as.cloned();
        launch.args = [
            "--username=dvp",
            "--encoding=UTF8",
            "--locale=C",
            "--auth-local=scram-sha-256",
            "--auth-host=scram-sha-256",
        ]
        .map(Into::into)
        .to_vec();
        launch.args.push(with_path("--pgdata=", &data));
        launch.args.push(with_path("--pwfile=", &handed));
        if !durable {
            launch.args.push("--no-sync".into());
        }
        launch.env = vec![("LC_ALL".into(), "C".into()), ("TZ".into(), "UTC".into())];
        launch.spawn()?.complete(INITDB_DEADLINE)?;
        fs::remove_file(&handed).map_err(EmbeddedError::file("remove", &handed))?;
        fs::rename(&new, &self.root).map_err(EmbeddedError::file("move into place", &self.root))?;
        if durable {
            sync_dir(&self.root)?;
            sync_dir(self.root.parent().unwrap_or(Path::new("/")))?;
        }
        Ok(())
    }

    pub(super) fn password(&self) -> Result<String, EmbeddedError> {
        let path = self.root.join("password");
        fs::read_to_string(&path).map_err(EmbeddedError::file("read", &path))
    }

    /// The port used last, so that a connection string stays valid over a restart.
    pub(super) fn port(&self) -> Option<u16> {
        fs::read_to_string(self.root.join("port")).ok()?.trim().parse().ok()
    }

    pub(super) fn remember_port(&self, port: u16) -> Result<(), EmbeddedError> {
        write_durably(&self.root.join("port"), port.to_string().as_bytes(), Readers::Group)
    }

    /// The process id of a living postmaster on this data.
    fn postmaster(&self) -> Option<u32> {
        let data = self.data();
        orphan::living(&data.join("postmaster.pid"), &["postgres", &data.to_string_lossy()])
    }

    /// Waits until no server runs on the data any more: a run before us was killed and its watcher is at work, or the
    /// watcher was killed too. Afterwards `postmaster.pid` is gone.
    pub(super) fn end_predecessor(&self) -> Result<(), EmbeddedError> {
        let socket_dir = self.socket_dir();
        orphan::end("postgres", || self.postmaster())?;
        self.remove_pid_file()?;
        if let Some(dir) = socket_dir {
            let _ = fs::remove_dir_all(dir);
        }
        Ok(())
    }

    /// The directory of the predecessor's socket. It outlives a machine that loses its power, and a watcher that was
    /// killed.
    fn socket_dir(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        Some(PathBuf::from(text.lines().nth(4).filter(|dir| dir.starts_with(SOCKET_DIR))?))
    }

    /// PostgreSQL refuses to start when the number in the file is of any living process.
    fn remove_pid_file(&self) -> Result<(), EmbeddedError> {
        let path = self.data().join("postmaster.pid");
        EmbeddedError::if_there(fs::remove_file(&path), "remove", &path).map(drop)
    }
}

fn with_path(option: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(option);
    argument.push(path);
    argument
}
