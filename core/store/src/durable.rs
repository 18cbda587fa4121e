//! Files that others rely on: under its name a file has all of its content, on the disk, or is not there.
//!
//! A file is written beside its name, synced, read back and compared, and only then renamed; an error removes it. No
//! buffer of a runtime is between the content and the disk, so that a full disk is an error here and not later.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Who can read a file, as far as the process's umask allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// The service's own user: keys and tokens.
    Owner,
    /// Its group, too: files with names and accounts.
    Group,
}

impl Readers {
    const fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o640,
        }
    }
}

/// Opens the file that is written first.
type Open = fn(&Path, u32) -> io::Result<File>;

/// Writes a file, or replaces it as a whole. An error names the path and the system's cause; the name then shows what
/// it had before, or the whole new content if only the folder could not be synced.
pub fn write(path: &Path, content: &[u8], readers: Readers) -> io::Result<()> {
    write_by(path, content, readers, open_new)
}

/// [`write()`] for asynchronous callers.
pub async fn write_async(path: PathBuf, content: Vec<u8>, readers: Readers) -> io::Result<()> {
    tokio::task::spawn_blocking(move || write(&path, &content, readers)).await.map_err(io::Error::other)?
}

/// Creates a folder and what is missing above it. Its group can read it.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(|error| named(&error, "create", path))
}

/// Makes the names in a folder durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| named(&error, "sync", path))
}

/// The error with what failed, of the same kind.
fn named(error: &io::Error, doing: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {doing} {}: {error}", path.display()))
}

/// A new file, never one that somebody else has put there, nor the target of a link.
fn open_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// A name of its own beside a file's: several processes may write the file at the same time.
fn beside(name: &str) -> String {
    let begin: String = name.chars().take(40).collect();
    format!(".{begin}.{}.part", Uuid::new_v4().simple())
}

fn write_by(path: &Path, content: &[u8], readers: Readers, open: Open) -> io::Result<()> {
    let invalid = || io::Error::new(ErrorKind::InvalidInput, format!("{} names no file", path.display()));
    let name = path.file_name().ok_or_else(invalid)?.to_string_lossy();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = folder.join(beside(&name));
    let written = write_beside(&beside, content, readers, open)
        .and_then(|()| fs::rename(&beside, path).map_err(|error| named(&error, "name", path)));
    if written.is_err() {
        // The first error counts: on a disk that is gone this fails as well.
        let _ = fs::remove_file(&beside);
        return written;
    }
    sync_folder(folder)
}

fn write_beside(path: &Path, content: &[u8], readers: Readers, open: Open) -> io::Result<()> {
    let mut file = open(path, readers.mode()).map_err(|error| named(&error, "create", path))?;
    file.write_all(content).map_err(|error| named(&error, "write", path))?;
    file.sync_all().map_err(|error| named(&error, "sync", path))?;
    drop(file);
    let found = fs::read(path).map_err(|error| named(&error, "read back", path))?;
    if found != content {
        let (found, wanted) = (found.len(), content.len());
        let differs =
            format!("{} was written and reads differently: {found} bytes of {wanted}", path.display());
        return Err(io::Error::other(differs));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A folder of its own, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("dvp-durable-{name}-{}", std::process::id()));
            create_folder(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A device that behaves like a full disk.
    fn full(_path: &Path, _mode: u32) -> io::Result<File> {
        OpenOptions::new().write(true).open("/dev/full")
    }

    /// Writing to address zero of a process fails like a broken disk.
    fn broken(_path: &Path, _mode: u32) -> io::Result<File> {
        OpenOptions::new().write(true).open("/proc/self/mem")
    }

    /// A disk that takes everything and keeps nothing.
    fn forgetful(path: &Path, mode: u32) -> io::Result<File> {
        open_new(path, mode)?;
        let elsewhere = path.with_extension("elsewhere");
        let file = open_new(&elsewhere, mode)?;
        fs::remove_file(elsewhere)?;
        Ok(file)
    }

    #[test]
    fn a_file_is_there_with_all_of_its_content_and_nothing_beside_it() {
        let place = Place::new("whole");
        let path = place.0.join("a.xml");
        for content in ["first", "", "a longer one"] {
            write(&path, content.as_bytes(), Readers::Group).unwrap();
            assert_eq!(
                (fs::read_to_string(&path).unwrap(), place.names()),
                (content.into(), vec!["a.xml".into()])
            );
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path) & !0o640, mode(&place.0) & !0o750), (0, 0));
        write(&path, b"key", Readers::Owner).unwrap();
        assert_eq!(mode(&path) & !0o600, 0);
    }

    #[test]
    fn several_writers_of_one_file_leave_the_content_of_one_of_them() {
        let place = Place::new("several");
        let path = place.0.join("a");
        let content = |n: u8| vec![n; 10_000];
        std::thread::scope(|scope| {
            for n in 0..8 {
                let path = &path;
                scope.spawn(move || write(path, &content(n), Readers::Group).unwrap());
            }
        });
        let left = fs::read(&path).unwrap();
        assert!((0..8).any(|n| left == content(n)));
        assert_eq!(place.names(), ["a"]);
    }

    #[test]
    fn a_full_a_broken_and_a_forgetful_disk_are_errors_with_their_cause_and_leave_the_old_file() {
        let place = Place::new("faults");
        let path = place.0.join("a");
        for before in [None, Some("before")] {
            if let Some(content) = before {
                write(&path, content.as_bytes(), Readers::Group).unwrap();
            }
            for (open, cause) in [
                (full as Open, "No space left on device"),
                (broken, "Input/output error"),
                (forgetful, "reads differently"),
            ] {
                let error = write_by(&path, b"content", Readers::Group, open).unwrap_err().to_string();
                assert!(error.contains(cause) && error.contains("/.a."), "{error}");
                assert_eq!(fs::read_to_string(&path).ok().as_deref(), before);
                assert_eq!(place.names().len(), usize::from(before.is_some()), "{:?}", place.names());
            }
        }
    }
}
