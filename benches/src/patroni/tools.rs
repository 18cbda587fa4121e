//! The programs of the drill, and how to get those that are missing.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use dvp_sandbox::embedded::account::{self, Account};
use dvp_sandbox::embedded::tools::Finder;

/// Where the drill expects Patroni: a virtual environment below the target folder.
const VENV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/patroni");

pub(super) struct Tools {
    pub(super) postgres: PathBuf,
    pub(super) etcd: PathBuf,
    pub(super) patroni: PathBuf,
    pub(super) patronictl: PathBuf,
    pub(super) run_as: Option<Account>,
    /// The name of the account that runs the servers, which is their superuser too.
    pub(super) user: String,
}

impl Tools {
    pub(super) fn find() -> anyhow::Result<Self> {
        let run_as = account::unprivileged()?;
        let postgres = Finder::machine().postgres(None, run_as.as_ref())?.bin;
        let psql = postgres.join("psql");
        if !psql.is_file() {
            bail!("{} is missing: apt-get install postgresql-client", psql.display());
        }
        let etcd = on_path("etcd").context("etcd is missing: apt-get install etcd-server")?;
        on_path("pgbackrest").context("pgbackrest is missing: apt-get install pgbackrest")?;
        let venv = env::var_os("DVP_PATRONI").map_or_else(|| PathBuf::from(VENV), PathBuf::from);
        let (patroni, patronictl) = (venv.join("bin/patroni"), venv.join("bin/patronictl"));
        let runs = run(run_as.as_ref(), &patroni, &["--version"]);
        runs.with_context(|| {
            let venv = venv.display();
            format!(
                "Patroni does not run (DVP_PATRONI names another environment, and the account postgres must be able \
                 to run its Python): /usr/bin/python3 -m venv {venv} && {venv}/bin/pip install 'patroni[etcd3]' \
                 'psycopg[binary]'"
            )
        })?;
        let user = run(run_as.as_ref(), Path::new("id"), &["-un"])?.trim().to_owned();
        Ok(Self { postgres, etcd, patroni, patronictl, run_as, user })
    }
}

/// The same for all machines.
pub(super) struct Ground {
    pub(super) tools: Tools,
    pub(super) certificates: PathBuf,
    pub(super) repository: PathBuf,
    pub(super) password: String,
    pub(super) cipher: String,
}

impl Ground {
    /// Hands a file over to the account that runs the servers.
    pub(super) fn give(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.tools.run_as.as_ref().map_or(Ok(()), |account| account.give(path))?)
    }

    pub(super) fn make_dir(&self, path: &Path) -> anyhow::Result<()> {
        fs::create_dir(path).with_context(|| path.display().to_string())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        self.give(path)
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.is_file())
}

fn run(run_as: Option<&Account>, program: &Path, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir("/");
    if let Some(account) = run_as {
        account.drop_to(&mut command);
    }
    let output = command.output().with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
