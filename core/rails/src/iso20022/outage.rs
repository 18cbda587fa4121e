//! Whether the bank's folder can be used. A process that cannot use it says so in the database, where the acceptance of
//! orders reads it, and tries again by itself.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dvp_store::orders::bank_folder;
use dvp_store::{Acquire as _, PgConnection, StoreError};
use metrics::gauge;
use tracing::{info, warn};
use uuid::Uuid;

use super::folder::Folder;
use super::{BankError, BankFiles};
use crate::RailError;

/// How often a folder that can be used is tried, and one that cannot.
const TRY_EVERY: Duration = Duration::from_secs(15);
const TRY_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// What this process knows of the folder.
#[derive(Debug, Default)]
pub(super) struct Outage {
    pub(super) is_out: bool,
    tried: Option<Instant>,
}

impl Outage {
    fn is_due(&self, is_suspect: bool) -> bool {
        let every = if self.is_out || is_suspect { TRY_AGAIN_EVERY } else { TRY_EVERY };
        self.tried.is_none_or(|at| at.elapsed() >= every)
    }
}

/// Why a folder was not stamped.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    #[error("{0}")]
    Folder(#[from] std::io::Error),
    #[error(
        "another folder was stamped before: --replace makes this one the bank's, and payments that were given to the \
         other one are not known here"
    )]
    Replaces,
    #[error(
        "the folder carries the id {0} of another deployment, or of a database that was restored: --replace takes it over"
    )]
    Carries(Uuid),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes a folder, which is there, the one that payments go into: it gets an id, and what is missing in it.
pub async fn stamp(
    conn: &mut PgConnection,
    root: &Path,
    operator: &str,
    replaces: bool,
) -> Result<Uuid, StampError> {
    let (known, found) = (bank_folder::find_id(conn).await?, Folder::find_id(root)?);
    let id = match (known, found) {
        (Some(known), Some(found)) if known == found => known,
        (_, Some(found)) if !replaces => return Err(StampError::Carries(found)),
        (Some(_), None) if !replaces => return Err(StampError::Replaces),
        (_, Some(found)) => found,
        (_, None) => Uuid::new_v4(),
    };
    Folder::create_parts(root)?;
    Folder::write_id(root, id)?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if known != Some(id) {
        bank_folder::set_id(&mut tx, id, operator).await?;
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(id)
}

impl BankFiles {
    /// The error of a call that did nothing.
    pub(super) fn down(&self, error: &BankError) -> RailError {
        self.suspect(error);
        RailError::Down(error.to_string())
    }

    /// After an error of the folder it is tried soon.
    pub(super) fn suspect(&self, error: &BankError) {
        if matches!(error, BankError::Folder(_)) {
            self.is_suspect.store(true, Ordering::Relaxed);
        }
    }

    /// Tries the folder when it is due. Returns whether it can be used.
    pub(super) async fn watch_folder(&self, outage: &mut Outage) -> Result<bool, BankError> {
        let is_suspect = self.is_suspect.load(Ordering::Relaxed);
        if !outage.is_due(is_suspect) {
            return Ok(!outage.is_out);
        }
        outage.tried = Some(Instant::now());
        let mut conn = self.pool.acquire().await?;
        self.folder.expect(bank_folder::find_id(&mut conn).await?);
        drop(conn);
        match self.folder.probe(is_suspect || outage.is_out).await {
            Ok(()) => {
                self.is_suspect.store(false, Ordering::Relaxed);
                outage.is_out = false;
                self.end_outage().await?;
            }
            Err(error) => {
                outage.is_out = true;
                gauge!("dvp_bank_alarms", "about" => "folder").set(1.0);
                let mut conn = self.pool.acquire().await?;
                let cause = error.to_string();
                if bank_folder::report_outage(&mut conn, self.process, &cause).await? {
                    warn!(
                        cause,
                        "the bank's folder cannot be used: no order for it is accepted, payments wait; trying again"
                    );
                }
            }
        }
        Ok(!outage.is_out)
    }

    pub(super) async fn end_outage(&self) -> Result<(), BankError> {
        gauge!("dvp_bank_alarms", "about" => "folder").set(0.0);
        let mut conn = self.pool.acquire().await?;
        if bank_folder::end_outage(&mut conn, self.process).await? {
            info!("the bank's folder can be used again");
        }
        Ok(())
    }
}
