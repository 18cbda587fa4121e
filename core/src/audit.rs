//! The audit log: every row is checked against the hash before it, and the head is anchored on the chain every day.
//!
//! A row's hash is SHA-256 over the hash before it and the row's number, time, source and text, each on a line of its own;
//! the first row follows 32 zero bytes. A changed, added or missing row makes every later hash wrong, and a log that was
//! rewritten as a whole has other heads than those that were anchored.

use std::time::Duration;

use dvp_domain::chain::ChainCommand;
use dvp_store::audit::{self as store, Anchor};
use dvp_store::chain::commands::{self, NewChainCommand};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::engine::{Engine, EngineError};

const PAGE: i64 = 1_000;
/// How often the day's head is looked for.
const EVERY: Duration = Duration::from_secs(600);

/// A log that holds together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub entries: i64,
    pub head: [u8; 32],
    /// Heads that the chain has.
    pub anchored: u64,
    /// The last of them.
    pub last_anchor: Option<Anchor>,
}

/// Why the log is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("entry {0} is missing")]
    Missing(i64),
    #[error("entry {0} does not follow the one before it")]
    Unlinked(i64),
    #[error("entry {0} is not what its hash was made of")]
    Changed(i64),
    #[error("the log ends at entry {found}, its head says {head}")]
    Head { found: i64, head: i64 },
    #[error("the head that was anchored at entry {0} is another one")]
    Anchor(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn link(previous: &[u8], covered: &str) -> [u8; 32] {
    Sha256::new().chain_update(previous).chain_update(covered.as_bytes()).finalize().into()
}

/// Checks every row, the head and the anchored heads, in one snapshot of the caller's.
pub async fn verify(conn: &mut PgConnection) -> Result<Verified, AuditError> {
    let head = store::load_head(conn).await?;
    let mut anchors = store::list_anchors(conn, 0, i64::MAX).await?.into_iter().peekable();
    let (mut seq, mut last) = (0_i64, [0_u8; 32]);
    let (mut anchored, mut last_anchor) = (0_u64, None);
    loop {
        let page = store::list(conn, seq, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for row in page {
            seq = seq.saturating_add(1);
            if row.seq != seq {
                return Err(AuditError::Missing(seq));
            }
            if row.previous != last {
                return Err(AuditError::Unlinked(seq));
            }
            last = link(&last, &row.covered);
            if row.hash != last {
                return Err(AuditError::Changed(seq));
            }
            while let Some(anchor) = anchors.next_if(|anchor| anchor.seq == seq) {
                if anchor.hash != last {
                    return Err(AuditError::Anchor(seq));
                }
                if anchor.tx_hash.is_some() {
                    anchored = anchored.saturating_add(1);
                    last_anchor = Some(anchor);
                }
            }
        }
    }
    if let Some(anchor) = anchors.next() {
        return Err(AuditError::Anchor(anchor.seq));
    }
    if (head.seq, head.hash.as_slice()) != (seq, last.as_slice()) {
        return Err(AuditError::Head { found: seq, head: head.seq });
    }
    Ok(Verified { entries: seq, head: last, anchored, last_anchor })
}

/// Hands today's head over to be anchored, once a day in whichever process comes first.
pub async fn run(engine: &Engine, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.changed() => return,
        }
        match todays(engine).await {
            Ok(None) => {}
            Ok(Some(anchor)) => info!(entry = anchor.seq, "the head of the audit log is being anchored"),
            Err(error) => {
                warn!(%error, "the head of the audit log was not handed over; tried again in 10 min")
            }
        }
    }
}

async fn todays(engine: &Engine) -> Result<Option<Anchor>, EngineError> {
    let mut conn = engine.pool.acquire().await?;
    Ok(anchor(&mut conn, engine.context.chain.chain_id).await?)
}

/// Hands the head over to be anchored. `None`: today's was, or nothing was done since.
pub async fn anchor(conn: &mut PgConnection, chain_id: i64) -> Result<Option<Anchor>, StoreError> {
    let mut tx = conn.begin().await?;
    let Some(anchor) = store::insert_anchor(&mut tx, chain_id).await? else { return Ok(None) };
    let content_hash = format!("0x{}", hex::encode(&anchor.hash));
    let command = NewChainCommand {
        chain_id,
        reference: format!("audit:{}", anchor.seq),
        intent_id: String::new(),
        entity: content_hash.clone(),
        command: ChainCommand::Anchor { content_hash },
    };
    commands::insert(&mut tx, &[command]).await?;
    tx.commit().await?;
    Ok(Some(anchor))
}
