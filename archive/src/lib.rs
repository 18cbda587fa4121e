//! The archive: ended orders, and closed days of the ledger, as Parquet files that any tool reads.
//!
//! A day (UTC) is a folder: the orders that ended on it with their events and receipts, the ledger's entries of it, what
//! every account held at its beginning, and a manifest with the SHA-256 of each file. A folder is written under another
//! name, synchronized, read back and compared, and only then renamed: what has its name is whole.
//!
//! Architecture invariant: nothing is deleted from the database, and nobody's personal data is in the archive.
//!
//! Reading order: [`table`] (Parquet), [`schema`], [`manifest`], [`export`], [`books`] (receipts and statements from the files).

pub mod amount;
pub mod books;
pub mod export;
pub mod manifest;
pub mod schema;
pub mod table;

/// Why the archive was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{path}: {source}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: {source}")]
    Parquet {
        path: String,
        #[source]
        source: parquet::errors::ParquetError,
    },
    #[error("{path} is not what was written: {why}")]
    Changed { path: String, why: String },
    #[error("{0} is no archive: its disk is not mounted, or it is a new one (`dvp archive export --new`)")]
    NoArchive(String),
    #[error("the archive has no {0}")]
    Missing(String),
    #[error(
        "accounts of single orders and of wallets are sums in the archive: their entries are in postings.parquet"
    )]
    SummedUp,
    #[error(transparent)]
    Store(#[from] dvp_store::StoreError),
}

impl ArchiveError {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        |source| Self::File { path, source }
    }

    pub(crate) fn parquet(path: &std::path::Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.display().to_string();
        |source| Self::Parquet { path, source }
    }

    pub(crate) fn changed(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self::Changed { path: path.display().to_string(), why: why.to_string() }
    }
}
