//! The drop folder: files for the bank go to `outbox`, the bank's come to `inbox`. Imported files go to `archive`,
//! invalid ones to `quarantine`, both by way of `taking`, and files not sent yet wait in `staging`. `given` has a note of
//! each that was moved to the bank: a database that is restored to an earlier moment has forgotten some of them.
//!
//! `dvp-folder` has the folder's id, which `dvp bank folder stamp` writes and the database knows. It is compared before
//! each use: a mistyped path, or the place of a share that is not mounted, is another folder, in which nothing is
//! written and from which nothing is concluded. No folder is ever created by the service.
//!
//! Invariants: a file appears completely or not at all in a folder that is read, and survives a power cut (the file is
//! synced, then renamed, then its directory is synced). No file is ever overwritten or deleted. A process that is killed
//! while it writes leaves a name with a dot at its beginning, which nobody reads.

use std::fs::{self as fs_std, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dvp_store::durable::{self, Readers};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::fs;
use tokio::io::AsyncReadExt as _;
use uuid::Uuid;

/// The longest file name, in bytes.
const NAME_MAX: usize = 255;
const PARTS: [&str; 7] = ["outbox", "inbox", "taking", "archive", "quarantine", "staging", "given"];
/// A file that was taken from the inbox is put away within this time, unless its process was stopped.
const TAKEN_FOR: Duration = Duration::from_secs(60);

const ID_FILE: &str = "dvp-folder";
/// Written beside the service's own files to see whether there is room for a payment.
const PROBE: &str = ".dvp-probe";
const PROBE_BYTES: usize = 16 * 1024;

/// The folder shared by the bank and the service.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    /// The id that it must carry.
    id: Arc<Mutex<Option<Uuid>>>,
}

impl Folder {
    pub fn at(root: &Path, id: Option<Uuid>) -> Self {
        Self { root: root.to_owned(), id: Arc::new(Mutex::new(id)) }
    }

    /// Creates what is missing in the folder, which is there. Not for the service.
    pub fn create_parts(root: &Path) -> io::Result<()> {
        fs_std::metadata(root).map_err(|error| about(root, &error))?;
        PARTS.iter().try_for_each(|part| durable::create_folder(&root.join(part)))
    }

    /// The id that a folder carries. `None`: it carries none.
    pub fn find_id(root: &Path) -> io::Result<Option<Uuid>> {
        fs_std::metadata(root).map_err(|error| about(root, &error))?;
        let path = root.join(ID_FILE);
        match fs_std::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(about(&path, &error)),
            Ok(text) => match text.trim().parse() {
                Ok(id) => Ok(Some(id)),
                Err(_) => Err(wrong(format!("{} holds no id", path.display()))),
            },
        }
    }

    /// Writes the id that a folder carries from now on.
    pub fn write_id(root: &Path, id: Uuid) -> io::Result<()> {
        durable::write(&root.join(ID_FILE), format!("{id}\n").as_bytes(), Readers::Group)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Sets the id that the folder must carry.
    pub fn expect(&self, id: Option<Uuid>) {
        *self.id.lock() = id;
    }

    /// Whether it is the folder that was stamped, and no other one in its place. On a share that hangs no other work
    /// waits for it.
    pub async fn verify(&self) -> io::Result<()> {
        let folder = self.clone();
        tokio::task::spawn_blocking(move || folder.compare()).await.map_err(io::Error::other)?
    }

    fn compare(&self) -> io::Result<()> {
        let expected = *self.id.lock();
        let (found, root) = (Self::find_id(&self.root)?, self.root.display());
        match (expected, found) {
            (Some(expected), Some(found)) if expected == found => Ok(()),
            (None, _) => Err(wrong(format!("{root} is not stamped: dvp bank folder stamp"))),
            (Some(_), None) => Err(wrong(format!(
                "{root} carries no id: it is not the stamped folder, or its share is not mounted"
            ))),
            (Some(expected), Some(found)) => {
                Err(wrong(format!("{root} carries the id {found}, and {expected} was stamped")))
            }
        }
    }

    /// Whether the folder can be used, is one file system, and has room for a payment. `outward`: files are written where the bank looks,
    /// too.
    pub async fn probe(&self, outward: bool) -> io::Result<()> {
        self.verify().await?;
        let device = fs::metadata(&self.root).await.map_err(|error| about(&self.root, &error))?.dev();
        for part in PARTS {
            let path = self.root.join(part);
            let found = fs::metadata(&path).await.map_err(|error| about(&path, &error))?;
            if found.dev() != device {
                let path = path.display();
                return Err(wrong(format!(
                    "{path} is on another file system than the folder: no file can be moved there"
                )));
            }
            if outward || !["outbox", "inbox"].contains(&part) {
                let probe = path.join(PROBE);
                durable::write_async(probe.clone(), vec![0; PROBE_BYTES], Readers::Group).await?;
                fs::remove_file(&probe).await.map_err(|error| about(&probe, &error))?;
            }
        }
        Ok(())
    }

    pub fn outbox(&self) -> PathBuf {
        self.root.join("outbox")
    }

    pub fn inbox(&self) -> PathBuf {
        self.root.join("inbox")
    }

    fn taking(&self) -> PathBuf {
        self.root.join("taking")
    }

    pub fn archive(&self) -> PathBuf {
        self.root.join("archive")
    }

    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// Writes a file to `staging`, under a unique name.
    pub async fn stage(&self, name: &str, content: &str) -> io::Result<()> {
        self.verify().await?;
        drop_into(&self.root.join("staging"), name, content.as_bytes()).await
    }

    /// Moves a staged file to the bank. `false`: it was moved before. A rename succeeds once only, so of several
    /// callers one succeeds. While the file is still staged, an outbox that is not there is an error.
    /// `note` is kept in `given`.
    pub async fn give(&self, staged: &str, name: &str, note: &str) -> io::Result<bool> {
        self.give_as(staged, name, name, note).await
    }

    async fn give_as(&self, staged: &str, name: &str, read: &str, note: &str) -> io::Result<bool> {
        self.verify().await?;
        // Before the move: whatever the bank may have is known.
        drop_into(&self.root.join("given"), name, note.as_bytes()).await?;
        let moved = fs::rename(self.root.join("staging").join(staged), self.outbox().join(read)).await;
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

    /// The same of an order's file, whose staged name ends with the one that the bank reads: `name` is that of its note.
    pub async fn give_order(&self, staged: &str, name: &str, note: &str) -> io::Result<bool> {
        let read = staged.split_once('.').map_or(name, |(_, read)| read);
        self.give_as(staged, name, read, note).await
    }

    /// The note of a file that was moved to the bank, or is just being moved.
    pub async fn find_given(&self, name: &str) -> io::Result<Option<String>> {
        self.verify().await?;
        let file = self.root.join("given").join(name);
        if exists(&file).await? { fs::read_to_string(file).await.map(Some) } else { Ok(None) }
    }

    /// The bank's files by time of modification, then by name: a file does not wait for later ones, even when
    /// imports of the whole folder are interrupted again and again. Names beginning with a dot are still being written.
    pub async fn list_inbox(&self) -> io::Result<Vec<String>> {
        self.verify().await?;
        self.give_back_taken(TAKEN_FOR).await?;
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
        digest_of(&self.inbox().join(name)).await
    }

    /// Whether a staged file is still there.
    pub async fn is_staged(&self, staged: &str) -> io::Result<bool> {
        self.verify().await?;
        exists(&self.root.join("staging").join(staged)).await
    }

    /// Moves an imported file to `archive`, an `unreadable` one to `quarantine`. A name that exists already gets a
    /// number. `false`: the bank has written another file under the name since the reading, which stays in the inbox.
    pub async fn put_away(&self, name: &str, read: &[u8; 32], unreadable: bool) -> io::Result<bool> {
        self.verify().await?;
        // Under a name of its own, since the bank may write another file under this one at any time.
        let taken = self.taking().join(cut(&format!("{}.{name}", Uuid::new_v4().simple()), NAME_MAX));
        fs::rename(self.inbox().join(name), &taken).await?;
        let is_read = digest_of(&taken).await? == *read;
        let place = match (is_read, unreadable) {
            (false, _) => self.inbox(),
            (true, true) => self.quarantine(),
            (true, false) => self.archive(),
        };
        move_into(&place, name, &taken).await?;
        sync(&self.inbox()).await?;
        Ok(is_read)
    }

    /// Gives files back to the inbox that a process took there and did not put away in this time: it was stopped in
    /// between.
    async fn give_back_taken(&self, taken_for: Duration) -> io::Result<()> {
        let mut entries = fs::read_dir(self.taking()).await?;
        while let Some(entry) = entries.next_entry().await? {
            let file_name = entry.file_name();
            let name = file_name.to_str().and_then(|taken| taken.split_once('.'));
            let Some((_, name)) = name else { continue };
            match entry.metadata().await {
                Ok(metadata) if is_named_for(&metadata) >= taken_for => {
                    match move_into(&self.inbox(), name, &entry.path()).await {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        // Its process has put it away, or another has given it back.
                        Ok(()) | Err(_) => {}
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// How long the file has its present name, in whole seconds.
fn is_named_for(metadata: &Metadata) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(now.as_secs().saturating_sub(metadata.ctime().max(0).unsigned_abs()))
}

/// Moves a file whose name is no one else's into a folder, under the name or the name with a number.
async fn move_into(place: &Path, name: &str, file: &Path) -> io::Result<()> {
    let mut to = place.join(name);
    for n in 1_u32.. {
        // A link fails where a name is taken; a rename would overwrite.
        match fs::hard_link(file, &to).await {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => to = place.join(numbered(name, n)),
            Err(error) => return Err(error),
        }
    }
    sync(place).await?;
    fs::remove_file(file).await
}

async fn digest_of(file: &Path) -> io::Result<[u8; 32]> {
    let mut file = fs::File::open(file).await?;
    let (mut hash, mut part) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        let count = file.read(&mut part).await?;
        match part.get(..count) {
            Some(read) if count > 0 => hash.update(read),
            _ => return Ok(hash.finalize().into()),
        }
    }
}

/// A name with a number, within the length limit of file systems.
fn numbered(name: &str, n: u32) -> String {
    let number = format!(".{n}");
    format!("{}{number}", cut(name, NAME_MAX.saturating_sub(number.len())))
}

/// The longest beginning of a name within so many bytes.
fn cut(name: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Writes a file into a folder that is read: completely or not at all.
pub async fn drop_into(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    durable::write_async(folder.join(name), content.to_vec(), Readers::Group).await
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

/// A folder that is not the one that was stamped.
fn wrong(what: String) -> io::Error {
    io::Error::other(what)
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A renamed file survives a power cut only once its directory is synced.
async fn sync(dir: &Path) -> io::Result<()> {
    fs::File::open(dir).await?.sync_all().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(root: &Path) -> Folder {
        let id = Uuid::new_v4();
        Folder::create_parts(root).unwrap();
        Folder::write_id(root, id).unwrap();
        Folder::at(root, Some(id))
    }

    async fn contents(folder: &Path) -> Vec<Vec<u8>> {
        let mut entries = fs::read_dir(folder).await.unwrap();
        let mut contents = Vec::new();
        while let Some(entry) = entries.next_entry().await.unwrap() {
            contents.push(fs::read(entry.path()).await.unwrap());
        }
        contents.sort();
        contents
    }

    /// A bank that gives the name to its next file as soon as it sees the one before in the archive.
    fn send_all(folder: &Folder, count: u64) -> Vec<Vec<u8>> {
        let mut written = Vec::new();
        for n in 0..count {
            let (content, next) = (format!("{n:04}").into_bytes(), folder.inbox().join(".next"));
            std::fs::write(&next, &content).unwrap();
            let before = match n {
                0 => None,
                1 => Some("answer".to_owned()),
                _ => Some(format!("answer.{}", n - 1)),
            };
            let since = std::time::Instant::now();
            while before.as_ref().is_some_and(|before| !folder.archive().join(before).exists()) {
                assert!(since.elapsed() < Duration::from_secs(60), "file {n} is lost");
                std::hint::spin_loop();
            }
            // At each moment of the putting away once.
            std::thread::sleep(Duration::from_micros(10 * n));
            std::fs::rename(&next, folder.inbox().join("answer")).unwrap();
            written.push(content);
        }
        written
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_that_gets_the_name_of_one_that_is_put_away_is_never_lost() {
        const FILES: u64 = 300;
        let root = tempfile::tempdir().unwrap();
        let folder = stamped(root.path());
        let bank = folder.clone();
        let bank = tokio::task::spawn_blocking(move || send_all(&bank, FILES));
        let importing = async {
            while !bank.is_finished() || folder.inbox().join("answer").exists() {
                if let Ok(content) = folder.read_inbox("answer").await {
                    let read = Sha256::digest(&content).into();
                    let _ = folder.put_away("answer", &read, false).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(120), importing).await.expect("all files arrive");
        assert_eq!(contents(&folder.archive()).await, bank.await.unwrap());
    }

    #[tokio::test]
    async fn another_folder_in_its_place_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let folder = stamped(root.path());
        folder.stage("a", "x").await.unwrap();
        folder.probe(true).await.unwrap();
        let id = std::fs::read_to_string(root.path().join(ID_FILE)).unwrap();
        for (content, why) in [(None, "carries no id"), (Some(Uuid::new_v4().to_string()), "was stamped")] {
            match content {
                None => std::fs::remove_file(root.path().join(ID_FILE)).unwrap(),
                Some(id) => std::fs::write(root.path().join(ID_FILE), id).unwrap(),
            }
            for tried in [
                folder.stage("b", "x").await,
                folder.give("a", "a", "").await.map(|_| ()),
                folder.find_given("a").await.map(|_| ()),
                folder.is_staged("a").await.map(|_| ()),
                folder.list_inbox().await.map(|_| ()),
                folder.put_away("a", &[0; 32], false).await.map(|_| ()),
                folder.probe(false).await,
            ] {
                let error = tried.unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
            }
        }
        std::fs::write(root.path().join(ID_FILE), id).unwrap();
        assert!(folder.give("a", "a", "").await.unwrap());
        assert_eq!(contents(&folder.outbox()).await, [b"x".to_vec()]);
    }

    #[tokio::test]
    async fn a_file_whose_process_was_stopped_comes_back_beside_a_later_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = stamped(root.path());
        fs::write(folder.taking().join("0123.answer"), b"first").await.unwrap();
        assert_eq!(folder.list_inbox().await.unwrap(), [""; 0], "its process may still put it away");
        drop_into(&folder.inbox(), "answer", b"second").await.unwrap();
        folder.give_back_taken(Duration::ZERO).await.unwrap();
        assert_eq!(contents(&folder.inbox()).await, [b"first".to_vec(), b"second".to_vec()]);
        assert_eq!(contents(&folder.taking()).await, [[0; 0]; 0]);
    }
}
