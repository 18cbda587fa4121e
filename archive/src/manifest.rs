//! A day's manifest: its files with their rows and hashes.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use chrono::{DateTime, NaiveDate, Utc};
use dvp_store::durable::{self, Readers};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ArchiveError;

const NAME: &str = "manifest.json";
/// The name of the file that makes a folder an archive before it has a day.
const MARK: &str = "dvp-archive";
/// Of the files' columns.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    pub version: u32,
    /// UTC.
    pub day: NaiveDate,
    pub exported_at: DateTime<Utc>,
    pub files: Vec<ArchivedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArchivedFile {
    pub name: String,
    pub rows: u64,
    pub bytes: u64,
    pub sha256: String,
}

impl ArchivedFile {
    /// A file as it is on the disk.
    pub fn of(folder: &Path, name: &str, rows: u64) -> Result<Self, ArchiveError> {
        let path = folder.join(name);
        let mut file = File::open(&path).map_err(ArchiveError::file(&path))?;
        let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0_u64, vec![0; 1 << 16]);
        loop {
            let read = file.read(&mut chunk).map_err(ArchiveError::file(&path))?;
            let Some(content) = chunk.get(..read).filter(|content| !content.is_empty()) else { break };
            hash.update(content);
            bytes = bytes.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
        Ok(Self { name: name.to_owned(), rows, bytes, sha256: hex::encode(hash.finalize()) })
    }
}

impl Manifest {
    /// Writes the manifest, on the disk.
    pub fn write(&self, folder: &Path) -> Result<(), ArchiveError> {
        let path = folder.join(NAME);
        let text = serde_json::to_vec_pretty(self).map_err(|error| ArchiveError::changed(&path, error))?;
        durable::write(&path, &text, Readers::Group).map_err(ArchiveError::file(&path))
    }

    /// Reads a day's manifest and compares its files with it. `None`: the day is not in the archive.
    pub fn find(archive: &Path, day: NaiveDate) -> Result<Option<Self>, ArchiveError> {
        let folder = folder(archive, day);
        if !folder.exists() { Ok(None) } else { Self::load(&folder, day).map(Some) }
    }

    pub(crate) fn load(folder: &Path, day: NaiveDate) -> Result<Self, ArchiveError> {
        let path = folder.join(NAME);
        let text = fs::read(&path).map_err(ArchiveError::file(&path))?;
        let found: Self =
            serde_json::from_slice(&text).map_err(|error| ArchiveError::changed(&path, error))?;
        if (found.version, found.day) != (VERSION, day) {
            return Err(ArchiveError::changed(&path, "it is of another day or version"));
        }
        for file in &found.files {
            if ArchivedFile::of(folder, &file.name, file.rows)? != *file {
                return Err(ArchiveError::changed(&folder.join(&file.name), "its SHA-256 is another one"));
            }
        }
        Ok(found)
    }

    pub fn rows(&self, table: &str) -> u64 {
        self.files.iter().find(|file| file.name == format!("{table}.parquet")).map_or(0, |file| file.rows)
    }
}

/// A day's folder.
pub fn folder(archive: &Path, day: NaiveDate) -> PathBuf {
    archive.join(day.to_string())
}

/// Makes a folder an archive.
pub fn begin(archive: &Path) -> Result<(), ArchiveError> {
    durable::create_folder(archive).map_err(ArchiveError::file(archive))?;
    let mark = archive.join(MARK);
    durable::write(&mark, b"", Readers::Group).map_err(ArchiveError::file(&mark))
}

/// The days of an archive, the first one first. Folders that are being written have other names. A folder that has
/// neither a day nor the mark of an archive is an error: it may be the mount point of a disk that is not there.
pub fn days(archive: &Path) -> Result<Vec<NaiveDate>, ArchiveError> {
    let mut days = Vec::new();
    for entry in fs::read_dir(archive).map_err(ArchiveError::file(archive))? {
        let entry = entry.map_err(ArchiveError::file(archive))?;
        days.extend(entry.file_name().to_str().and_then(|name| name.parse::<NaiveDate>().ok()));
    }
    if days.is_empty() && !archive.join(MARK).exists() {
        return Err(ArchiveError::NoArchive(archive.display().to_string()));
    }
    days.sort_unstable();
    Ok(days)
}
