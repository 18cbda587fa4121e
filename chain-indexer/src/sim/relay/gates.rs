//! The payout gate: events are published at once, and the endpoints agree on some of them later.

use super::super::Broken;
use super::run::Run;
use dvp_store::chain as store;

/// More facts than wait at the gate.
const GATED: i64 = 10_000;

impl Run<'_> {
    /// The endpoints agree on some of the waiting facts.
    pub(super) async fn lift_gates(&mut self, per_mille: u64) -> Result<(), Broken> {
        let mut tx = self.database.admin.begin().await?;
        let waiting = store::list_new_fills(&mut tx, self.config.chain_id, GATED).await?;
        let ids = waiting.iter().map(|fill| fill.id);
        let agreed: Vec<i64> = ids.filter(|_| self.gate_rng.chance(per_mille)).collect();
        store::lift_gates(&mut tx, &agreed).await?;
        Ok(tx.commit().await?)
    }

    /// The commands in transactions whose event waits at the gate.
    pub(super) async fn gated(&self) -> Result<Vec<i64>, Broken> {
        let gated = sqlx::query_scalar(
            "select command.id
             from chain_command command
             join chain_fact waiting on waiting.entity = command.entity and waiting.gate is not null
             where command.state = 'sent' and waiting.retracted_at is null
               and command.trouble is distinct from 'its transaction left it out'
               and chain_goal_reached(command.kind, waiting.kind)",
        )
        .fetch_all(&self.database.admin)
        .await?;
        Ok(gated)
    }

    /// A turn must not take them for left out by their transactions.
    pub(super) async fn check_gated(&self, gated: &[i64]) -> Result<(), Broken> {
        let left_out: Option<i64> = sqlx::query_scalar(
            "select id from chain_command
             where id = any($1) and state = 'pending' and trouble = 'its transaction left it out' limit 1",
        )
        .bind(gated)
        .fetch_optional(&self.database.admin)
        .await?;
        left_out.map_or(Ok(()), |id| {
            Err(format!("command {id} was reopened while its event waits at the gate").into())
        })
    }
}
