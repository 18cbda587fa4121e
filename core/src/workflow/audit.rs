//! The audit log: every row is checked against the previous hash, and the head is anchored on the chain every day.
//!
//! A row's hash is SHA-256 over the previous hash and the row's number, time, source and text, each on a line of its
//! own; the first row follows 32 zero bytes. A changed, added or missing row makes every later hash wrong, and a log
//! that was rewritten as a whole has other heads than the anchored ones.
//!
//! An entry from which personal data was erased keeps its hash, which no longer follows from its text: a later entry, of
//! the source `audit_erasure`, has to name it with the hash of what is left.

use std::collections::BTreeMap;
use std::time::Duration;

use dvp_domain::chain::ChainCommand;
use dvp_store::chain::commands::NewChainCommand;
use dvp_store::insert_batch::{self, InsertBatch};
use dvp_store::operators::audit::{self as store, Anchor, AuditEntry};
use dvp_store::workers::{self, Apart, Attended, Step, Worker, in_database, pause};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::info;

use crate::engine::{Engine, EngineError};

const PAGE: i64 = 1_000;
/// The interval of checking for a head to anchor.
const EVERY: Duration = Duration::from_secs(600);
/// The same after a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest time for one attempt.
const ANCHOR_MAX: Duration = Duration::from_secs(10);
const HEAD: &str = "head";

/// A valid log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub entries: i64,
    /// Those of which personal data was erased.
    pub erased: u64,
    pub head: [u8; 32],
    /// The number of heads that are anchored on the chain.
    pub anchored: u64,
    /// The last of them.
    pub last_anchor: Option<Anchor>,
}

/// How the log is invalid.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("entry {0} is missing")]
    Missing(i64),
    #[error("entry {0} does not follow the one before it")]
    Unlinked(i64),
    #[error("entry {0} does not match its hash")]
    Changed(i64),
    #[error("the log ends at entry {found}, its head says {head}")]
    Head { found: i64, head: i64 },
    #[error("the head anchored at entry {0} differs")]
    Anchor(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn link(previous: &[u8], covered: &str) -> [u8; 32] {
    Sha256::new().chain_update(previous).chain_update(covered.as_bytes()).finalize().into()
}

fn text_hash(text: &str) -> String {
    format!("\\x{}", hex::encode(Sha256::digest(text.as_bytes())))
}

/// Takes an erased entry off that this entry names, if it names one with the hash of what is left.
fn explain(unexplained: &mut BTreeMap<i64, String>, row: &AuditEntry) {
    #[derive(Deserialize)]
    struct Named {
        seq: i64,
        entry_hash: String,
    }
    if row.source != "audit_erasure" {
        return;
    }
    let Ok(named) = serde_json::from_str::<Named>(&row.entry) else { return };
    if unexplained.get(&named.seq).is_some_and(|hash| *hash == named.entry_hash) {
        unexplained.remove(&named.seq);
    }
}

/// Checks every row, the head and the anchored heads, in one snapshot of the caller's.
pub async fn verify(conn: &mut PgConnection) -> Result<Verified, AuditError> {
    let head = store::load_head(conn).await?;
    let mut anchors = store::list_anchors(conn, 0, i64::MAX).await?.into_iter().peekable();
    let (mut seq, mut last) = (0_i64, [0_u8; 32]);
    let (mut anchored, mut last_anchor) = (0_u64, None);
    let (mut erased, mut unexplained) = (0_u64, BTreeMap::new());
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
            if row.is_erased {
                erased = erased.saturating_add(1);
                unexplained.insert(seq, text_hash(&row.entry));
                last = row.hash.as_slice().try_into().map_err(|_| AuditError::Changed(seq))?;
            } else {
                last = link(&last, &row.covered);
                if row.hash != last {
                    return Err(AuditError::Changed(seq));
                }
                explain(&mut unexplained, &row);
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
    if let Some((seq, _)) = unexplained.first_key_value() {
        return Err(AuditError::Changed(*seq));
    }
    if let Some(anchor) = anchors.next() {
        return Err(AuditError::Anchor(anchor.seq));
    }
    if (head.seq, head.hash.as_slice()) != (seq, last.as_slice()) {
        return Err(AuditError::Head { found: seq, head: head.seq });
    }
    Ok(Verified { entries: seq, erased, head: last, anchored, last_anchor })
}

/// Hands the head to the relayer once a day, from the first process that finds it due.
pub async fn run(engine: &Engine, stop: watch::Receiver<bool>) {
    run_every(engine, EVERY, stop).await;
}

/// The same at another interval.
pub async fn run_every(engine: &Engine, every: Duration, mut stop: watch::Receiver<bool>) {
    let items = Apart::new(engine.pool.clone(), Worker::AuditAnchor, ANCHOR_MAX);
    let mut wait = every;
    while pause(wait, &mut stop).await {
        let anchored = items.attend(HEAD, HEAD, todays(engine.clone())).await;
        // What is set aside is due sooner.
        wait = if matches!(anchored, Attended::Done(())) { every } else { AGAIN };
    }
}

async fn todays(engine: Engine) -> Result<(), EngineError> {
    workers::at(Step::AuditAnchorWrite, in_database(&engine.pool, HEAD)).await?;
    let mut conn = engine.pool.acquire().await?;
    let home = engine.context.chains.home();
    if let Some(anchor) = anchor(&mut conn, home.chain_id, &home.taking.escrow).await? {
        info!(entry = anchor.seq, "anchoring the head of the audit log");
    }
    Ok(())
}

/// Hands the head to the relayer, for the contracts with this escrow. `None`: it was done today, or the log has no new row.
pub async fn anchor(
    conn: &mut PgConnection,
    chain_id: i64,
    escrow: &str,
) -> Result<Option<Anchor>, StoreError> {
    let mut tx = conn.begin().await?;
    let Some(anchor) = store::insert_anchor(&mut tx, chain_id).await? else { return Ok(None) };
    let content_hash = format!("0x{}", hex::encode(&anchor.hash));
    let command = NewChainCommand {
        chain_id,
        reference: format!("audit:{}", anchor.seq),
        intent_id: String::new(),
        entity: content_hash.clone(),
        escrow: escrow.to_owned(),
        command: ChainCommand::Anchor { content_hash },
        trace: None,
    };
    insert_batch::insert(&mut tx, &InsertBatch { commands: &[command], ..InsertBatch::default() }).await?;
    tx.commit().await?;
    Ok(Some(anchor))
}
