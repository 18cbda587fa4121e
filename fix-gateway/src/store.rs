//! Numbers and messages of one session, for applications that commit nothing else: in memory, or in PostgreSQL, in the
//! tables the gateway uses.
//!
//! One task writes, in the order of the requests; requests during a transaction are written with the next. A concurrent
//! writer of the session makes the commit fail, and never the numbers wrong: every write names the number it continues.

mod memory;

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, MsgType},
    session::{ResendSlice, Stored},
};
use dvp_store::{
    PgPool, StoreError,
    fix::{
        self, NewFixSession,
        rows::{FixNumbers, FixOutbound, FixReset, FixRows, Renumber},
    },
    partners::registry,
};
use tokio::sync::{mpsc, oneshot};

pub use memory::{Allowance, MemoryStore};

use crate::application::{Commit, Numbers, Unavailable};

/// Commits waiting to be written.
const QUEUE: usize = 1024;
/// Commits in one transaction.
const BATCH: usize = 256;

struct Work {
    numbers: FixNumbers,
    rows: FixRows,
    done: oneshot::Sender<Result<(), String>>,
}

/// The store of one session. Its task ends with it.
pub struct SessionStore {
    pool: PgPool,
    session_id: String,
    queue: mpsc::Sender<Work>,
}

impl SessionStore {
    /// Opens a session's store, and inserts session and partner if they are missing. No peer can log on to such a
    /// session through the gateway: its password hash matches no password.
    pub async fn open(
        pool: PgPool,
        partner: &str,
        begin_string: &str,
        our_comp_id: &str,
        peer_comp_id: &str,
        default_appl_ver_id: Option<&str>,
    ) -> Result<Self, StoreError> {
        let mut tx = pool.begin().await?;
        let partner_id =
            registry::ensure_partner(&mut tx, &format!("ptn_{partner}"), partner, "standard", 100).await?;
        let session = NewFixSession {
            partner_id,
            livemode: false,
            begin_string: begin_string.to_owned(),
            client_comp_id: peer_comp_id.to_owned(),
            service_comp_id: our_comp_id.to_owned(),
            default_appl_ver_id: default_appl_ver_id.map(ToOwned::to_owned),
            username: partner.to_owned(),
            password_hash: [0; 32],
            password_key: "1".into(),
        };
        let session_id = session.session_id();
        if fix::find_session(&mut tx, &session_id).await?.is_none() {
            fix::upsert_session(&mut tx, &session).await?;
        }
        tx.commit().await?;
        let (queue, work) = mpsc::channel(QUEUE);
        tokio::spawn(write(pool.clone(), work));
        Ok(Self { pool, session_id, queue })
    }

    /// Next inbound and next outbound number.
    pub async fn load(&self) -> Result<(SeqNum, SeqNum), Unavailable> {
        let mut conn = self.pool.acquire().await.map_err(|error| Unavailable::new(error.to_string()))?;
        let session = fix::find_session(&mut conn, &self.session_id).await?;
        let session = session.ok_or_else(|| Unavailable::new(format!("no session {}", self.session_id)))?;
        let seq = |number: i64| u64::try_from(number).map(SeqNum).unwrap_or(SeqNum::FIRST);
        Ok((seq(session.next_in), seq(session.next_out)))
    }

    /// Writes numbers and messages in one transaction. The messages may be transmitted once the commit has succeeded.
    pub async fn commit(&self, numbers: Numbers, messages: Vec<Stored>) -> Result<Commit, Unavailable> {
        let rows = FixRows { outbound: messages.iter().map(outbound).collect(), ..FixRows::default() };
        let numbers = FixNumbers {
            session_id: self.session_id.clone(),
            owner: None,
            next_in: numbers.next_in.0,
            next_out_before: numbers.next_out_before.0,
            next_out: numbers.next_out.0,
            seen_out: numbers.reach.seen.0,
            written_out: numbers.reach.written.0,
            feed_position: None,
            renumber: numbers.reset.then(|| Renumber::Reset(FixReset::of_everything())),
        };
        let (done, written) = oneshot::channel();
        let gone = |_| Unavailable::new("the store has stopped".to_owned());
        self.queue.send(Work { numbers, rows, done }).await.map_err(|_| gone(()))?;
        Ok(Commit::under_way(async move {
            written.await.map_err(|_| gone(()))?.map_err(Unavailable::new)?;
            Ok(messages)
        }))
    }

    /// The first stored messages of a range, ascending.
    pub async fn stored(&self, slice: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        let mut conn = self.pool.acquire().await.map_err(|error| Unavailable::new(error.to_string()))?;
        let limit = i64::try_from(slice.limit).unwrap_or(i64::MAX);
        let seqs = slice.from.0..=slice.to.0;
        let messages = fix::list_outbound(&mut conn, &self.session_id, seqs, limit).await?;
        Ok(messages.into_iter().map(stored).collect())
    }
}

fn outbound(message: &Stored) -> FixOutbound {
    FixOutbound {
        seq: message.seq.0,
        msg_type: message.msg_type.as_str().to_owned(),
        body: message.body.as_bytes().to_vec(),
        sending_time: i64::try_from(message.sending_time.0).unwrap_or(i64::MAX),
    }
}

/// A row of a type that cannot have been sent is skipped by a resend.
fn stored(row: FixOutbound) -> Stored {
    let msg_type = MsgType::from_bytes(row.msg_type.as_bytes());
    Stored {
        seq: SeqNum(row.seq),
        msg_type: msg_type.unwrap_or(MsgType::HEARTBEAT),
        body: Body::from_bytes(row.body),
        sending_time: UtcNanos(u64::try_from(row.sending_time).unwrap_or(0)),
        resend: msg_type.is_some(),
    }
}

async fn write(pool: PgPool, mut queue: mpsc::Receiver<Work>) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let parts = batch.iter().map(|work: &Work| (&work.numbers, work.rows.clone())).collect::<Vec<_>>();
        let written = write_batch(&pool, &parts).await.map_err(|error| error.to_string());
        drop(parts);
        for work in batch.drain(..) {
            // The driver has stopped and does not wait any more.
            let _ = work.done.send(written.clone());
        }
    }
}

async fn write_batch(pool: &PgPool, parts: &[(&FixNumbers, FixRows)]) -> Result<(), StoreError> {
    let mut tx = pool.begin().await?;
    fix::apply_parts(&mut tx, parts).await?;
    tx.commit().await?;
    Ok(())
}
