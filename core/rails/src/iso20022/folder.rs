//! The drop folder: files for the bank go to `outbox`, the bank's come to `inbox`. Imported files go to `archive`,
//! invalid ones to `quarantine`, and files not sent yet wait in `staging`. `given` has an empty file for each that was
//! moved to the bank: a database that is restored to an earlier moment has forgotten some of them.
//!
//! Invariants: a file appears completely or not at all in a folder that is read, and survives a power cut (the file is
//! synced, then renamed, then its directory is synced). No file is ever overwritten or deleted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use tokio::fs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The longest file name, in bytes.
const NAME_MAX: usize = 255;
const PARTS: [&str; 6] = ["outbox", "inbox", "archive", "quarantine", "staging", "given"];

/// The folder shared by the bank and the service.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Creates missing folders.
    pub async fn open(root: &Path) -> io::Result<Self> {
        for part in PARTS {
            fs::create_dir_all(root.join(part)).await?;
        }
        Ok(Self { root: root.to_owned() })
    }

    pub fn outbox(&self) -> PathBuf {
        self.root.join("outbox")
    }

    pub fn inbox(&self) -> PathBuf {
        self.root.join("inbox")
    }

    pub fn archive(&self) -> PathBuf {
        self.root.join("archive")
    }

    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// Writes a file to `staging`, under a unique name.
    pub async fn stage(&self, name: &str, content: &str) -> io::Result<()> {
        let path = self.root.join("staging").join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path).await?;
        file.write_all(content.as_bytes()).await?;
        file.sync_all().await?;
        sync(&self.root.join("staging")).await
    }

    /// Moves a staged file to the bank. `false`: it was moved before. A rename succeeds once only, so of several
    /// callers one succeeds. While the file is still staged, an outbox that is not there is an error.
    pub async fn give(&self, staged: &str, name: &str) -> io::Result<bool> {
        // Before the move: whatever the bank may have is known.
        let given = fs::File::create(self.given(name)).await?;
        given.sync_all().await?;
        sync(&self.root.join("given")).await?;
        let moved = fs::rename(self.root.join("staging").join(staged), self.outbox().join(name)).await;
        match moved {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_staged(staged).await? => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        sync(&self.outbox()).await?;
        sync(&self.root.join("staging")).await?;
        Ok(true)
    }

    /// Whether a file of this name was moved to the bank, or is just being moved.
    pub async fn was_given(&self, name: &str) -> io::Result<bool> {
        exists(&self.given(name)).await
    }

    fn given(&self, name: &str) -> PathBuf {
        self.root.join("given").join(name)
    }

    /// The bank's files by time of modification, then by name: a file does not wait for later ones, even when
    /// imports of the whole folder are interrupted again and again. Names beginning with a dot are still being written.
    pub async fn list_inbox(&self) -> io::Result<Vec<String>> {
        let mut entries = fs::read_dir(self.inbox()).await?;
        let mut files = Vec::new();
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            match entry.metadata().await {
                Ok(metadata) if metadata.is_file() => files.push((metadata.modified().ok(), name.to_owned())),
                Ok(_) => {}
                // Another process has archived it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        files.sort();
        Ok(files.into_iter().map(|(_, name)| name).collect())
    }

    pub async fn read_inbox(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.inbox().join(name)).await
    }

    /// A file's size and modification time.
    pub async fn measure(&self, name: &str) -> io::Result<(u64, Option<SystemTime>)> {
        let metadata = fs::metadata(self.inbox().join(name)).await?;
        Ok((metadata.len(), metadata.modified().ok()))
    }

    /// The SHA-256 of a file of any size.
    pub async fn digest(&self, name: &str) -> io::Result<[u8; 32]> {
        let mut file = fs::File::open(self.inbox().join(name)).await?;
        let (mut hash, mut part) = (Sha256::new(), vec![0; 64 * 1024]);
        loop {
            let count = file.read(&mut part).await?;
            match part.get(..count) {
                Some(read) if count > 0 => hash.update(read),
                _ => return Ok(hash.finalize().into()),
            }
        }
    }

    /// Whether a staged file is still there.
    pub async fn is_staged(&self, staged: &str) -> io::Result<bool> {
        exists(&self.root.join("staging").join(staged)).await
    }

    /// Moves an imported file to `archive`, an `unreadable` one to `quarantine`. A name that exists already gets a
    /// number. `false`: the file has another content than the `read` one by now, and stays in the inbox, too.
    pub async fn put_away(&self, name: &str, read: &[u8; 32], unreadable: bool) -> io::Result<bool> {
        let place = if unreadable { self.quarantine() } else { self.archive() };
        let mut to = place.join(name);
        for n in 1_u32.. {
            // A link fails where a name is taken; a rename would overwrite.
            match fs::hard_link(self.inbox().join(name), &to).await {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    to = place.join(numbered(name, n));
                }
                Err(error) => return Err(error),
            }
        }
        sync(&place).await?;
        // As late as possible: the bank may have written another file under the name at any time since the reading.
        if self.digest(name).await? != *read {
            return Ok(false);
        }
        fs::remove_file(self.inbox().join(name)).await?;
        sync(&self.inbox()).await?;
        Ok(true)
    }
}

/// A name with a number, within the length limit of file systems.
fn numbered(name: &str, n: u32) -> String {
    let number = format!(".{n}");
    let end = (0..=NAME_MAX.saturating_sub(number.len()))
        .rev()
        .find(|end| name.is_char_boundary((*end).min(name.len())));
    let base = name.get(..end.unwrap_or(0).min(name.len())).unwrap_or_default();
    format!("{base}{number}")
}

/// Writes a file into a folder that is read: completely or not at all.
pub async fn drop_into(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let hidden = folder.join(format!(".{name}.part"));
    let mut file = fs::File::create(&hidden).await?;
    file.write_all(content).await?;
    file.sync_all().await?;
    fs::rename(&hidden, folder.join(name)).await?;
    sync(folder).await
}

/// Whether a file exists. A folder that is not there itself, because its file system is not mounted, is an error: it
/// says nothing about its files.
async fn exists(file: &Path) -> io::Result<bool> {
    let is_there = fs::try_exists(file).await?;
    if !is_there && let Some(folder) = file.parent() {
        fs::metadata(folder).await?;
    }
    Ok(is_there)
}

/// A renamed file survives a power cut only once its directory is synced.
async fn sync(dir: &Path) -> io::Result<()> {
    fs::File::open(dir).await?.sync_all().await
}
