//! The chain's part in a settlement: facts as the indexer reports them.

use dvp_core::chain::expected;
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_store::chain::commands;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use tokio::sync::watch;

use crate::harness::{Database, Harness};
use crate::wait::wait_for;

/// A command to the chain.
#[derive(Debug)]
pub struct Command {
    pub id: i64,
    pub kind: String,
    pub entity: Vec<u8>,
    pub command: ChainCommand,
}

/// The relayer has given a command up.
pub fn failed(command: &str, code: &str) -> ChainFact {
    ChainFact::CommandFailed { command: command.into(), code: code.into(), message: "made up".into() }
}

/// Puts a fact of an entity into the database.
pub async fn report(pool: &PgPool, entity: &[u8], fact: &ChainFact) {
    report_all(pool, &[(entity, fact.clone())]).await;
}

/// Puts facts of entities into the database, on the chain of their commands, in order, and wakes the workers, as the indexer does.
pub async fn report_all(pool: &PgPool, facts: &[(&[u8], ChainFact)]) {
    if facts.is_empty() {
        return;
    }
    let (entities, payloads): (Vec<&[u8]>, Vec<serde_json::Value>) =
        facts.iter().map(|(entity, fact)| (*entity, serde_json::to_value(fact).unwrap())).unzip();
    sqlx::query(
        "with reported as ( \
             insert into chain_fact (chain_id, entity, kind, payload, block_hash, tx_hash, log_index, block_time) \
             select coalesce((select chain_id from chain_command c where c.entity = f.entity \
                              order by (c.kind = 'transfer') <> (f.payload ->> 'kind' = 'transferred' \
                                           or f.payload ->> 'command' is not distinct from 'transfer'), c.id \
                              limit 1), 31337), \
                    entity, 'x', payload, sha256(random()::text::bytea), sha256(random()::text::bytea), 0, now() \
             from unnest($1::bytea[], $2::jsonb[]) with ordinality as f (entity, payload, n) order by n) \
         select pg_notify('dvp_facts', '')",
    )
    .bind(entities)
    .bind(payloads)
    .execute(pool)
    .await
    .unwrap();
}

/// Requests the refunds that are due so many seconds after their timelock. Returns their number.
pub async fn request_refunds(conn: &mut PgConnection, over_secs: i64) -> usize {
    let mut count = 0;
    for reference in commands::list_due_refunds(conn, over_secs, "", 10_000).await.unwrap() {
        count += usize::from(commands::insert_refund(conn, over_secs, &reference).await.unwrap());
    }
    count
}

/// The first command after `id`, of one execution or of all.
async fn next_command(pool: &PgPool, reference: Option<&str>, after: i64) -> sqlx::Result<Option<Command>> {
    let row: Option<(i64, String, Vec<u8>, Json<ChainCommand>)> = sqlx::query_as(
        "select id, kind, entity, payload from chain_command \
         where ($1::text is null or reference = $1) and id > $2 order by id limit 1",
    )
    .bind(reference)
    .bind(after)
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|(id, kind, entity, Json(command))| Command { id, kind, entity, command }))
}

/// Lets every command of every execution succeed until `stop` is set. The database may be dropped before that.
pub async fn succeed_always(pool: PgPool, stop: watch::Receiver<bool>) {
    let mut done = 0;
    while !*stop.borrow() {
        match next_command(&pool, None, done).await {
            Ok(Some(next)) => {
                report(&pool, &next.entity, &expected::goal(&next.command)).await;
                done = next.id;
            }
            Ok(None) | Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

impl<D: Database> Harness<D> {
    /// Puts a fact of an entity into the database.
    pub async fn report_fact(&self, entity: &[u8], fact: &ChainFact) {
        report(self.pool(), entity, fact).await;
    }

    /// A command of an execution, once it is there, with its entity.
    pub async fn command(&self, reference: &str, kind: &str) -> (Vec<u8>, ChainCommand) {
        let (entity, Json(command)) = wait_for(kind, || async {
            sqlx::query_as::<_, (Vec<u8>, Json<ChainCommand>)>(
                "select entity, payload from chain_command where reference = $1 and kind = $2",
            )
            .bind(reference)
            .bind(kind)
            .fetch_optional(self.pool())
            .await
            .unwrap()
        })
        .await;
        (entity, command)
    }

    /// Lets the command of a kind succeed, once it is there. Returns its entity.
    pub async fn play(&self, reference: &str, kind: &str) -> Vec<u8> {
        let (entity, command) = self.command(reference, kind).await;
        self.report_fact(&entity, &expected::goal(&command)).await;
        entity
    }

    /// Lets every command of one execution succeed, to its anchored receipt.
    pub async fn play_chain(&self, reference: &str) {
        self.play_until(reference, |kind| kind == "anchor").await;
    }

    /// Lets the commands of one execution succeed until one of a kind has.
    pub async fn play_until(&self, reference: &str, is_last: impl Fn(&str) -> bool) {
        let mut done = 0;
        loop {
            let next = wait_for("a command", || async {
                next_command(self.pool(), Some(reference), done).await.unwrap()
            });
            let Command { id, kind, entity, command } = next.await;
            done = id;
            self.report_fact(&entity, &expected::goal(&command)).await;
            if is_last(&kind) {
                return;
            }
        }
    }
}
