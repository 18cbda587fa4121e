//! Directories and files that a crash leaves whole.

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use dvp_store::durable::{self, Readers};

use super::EmbeddedError;

/// A new directory with exactly this mode, regardless of our umask; an error when it exists.
pub(super) fn make_dir(path: &Path, mode: u32) -> Result<(), EmbeddedError> {
    DirBuilder::new().mode(mode & 0o700).create(path).map_err(EmbeddedError::file("create", path))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(EmbeddedError::file("change the mode of", path))
}

/// A directory and those above it; the new ones are open to all.
pub(super) fn make_dirs(path: &Path) -> Result<(), EmbeddedError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.is_dir()).collect();
    for dir in missing.into_iter().rev() {
        match make_dir(dir, 0o755) {
            // Another process was faster.
            Err(_) if dir.is_dir() => {}
            made => made?,
        }
    }
    Ok(())
}

/// Replaces a small file as a whole: after a crash it has the old content or the new.
pub(crate) fn write_durably(path: &Path, content: &[u8], readers: Readers) -> Result<(), EmbeddedError> {
    durable::write(path, content, readers).map_err(EmbeddedError::file("write", path))
}

pub(super) fn sync_dir(path: &Path) -> Result<(), EmbeddedError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(EmbeddedError::file("sync", path))
}
