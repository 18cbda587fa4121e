//! The conditions at the end.

use super::super::Broken;
use super::run::Run;
use alloy::primitives::B256;
use sqlx::PgPool;
use std::collections::{BTreeMap, BTreeSet};

type Commands = Vec<(Vec<u8>, String, String)>;

impl Run<'_> {
    /// Every command took effect exactly once, abandoned ones never did, every nonce is used, and nothing was broadcast
    /// that was not committed or offered more than the cap. Returns the numbers of commands and of transactions.
    pub(super) async fn judge(&self) -> Result<(u64, u64), Broken> {
        let pool = &self.database.admin;
        let commands: Commands =
            sqlx::query_as("select entity, kind, state from chain_command").fetch_all(pool).await?;
        let kept: Vec<(Vec<u8>, String)> =
            sqlx::query_as("select hash, max_fee::text from tx_attempt").fetch_all(pool).await?;
        let wrong = {
            let world = self.world();
            let mut effects: BTreeMap<(B256, &str), u32> = BTreeMap::new();
            for (effect, ..) in world.blocks.iter().flat_map(|block| &block.effects) {
                if let Some(kind) = effect.kind {
                    *effects.entry((effect.entity, kind)).or_default() += 1;
                }
            }
            commands.iter().find_map(|(entity, kind, state)| {
                let entity = B256::from_slice(entity);
                let count = effects.get(&(entity, effect_of(kind))).copied().unwrap_or(0);
                let wanted = u32::from(state == "done");
                // Another node may have kept a transaction that a reorganization removed, which cannot be prevented. A
                // holder of a retired account's signed transaction can still broadcast it, and a hash can be anchored
                // twice.
                let forgiven = state == "failed" && world.requeues
                    || self.abandoned_anchors.contains(&entity) && count > 0;
                let is_wrong = count != wanted && !forgiven;
                is_wrong
                    .then(|| (entity, format!("{kind} of {entity} is {state} and took effect {count} times")))
            })
        };
        if let Some((entity, why)) = wrong {
            let carried = carried(pool, entity).await?;
            let by = {
                let world = self.world();
                let effects = world.blocks.iter().flat_map(|block| &block.effects);
                let of_entity =
                    effects.filter(|(effect, ..)| effect.entity == entity && effect.kind.is_some());
                of_entity.map(|(.., tx)| tx.to_vec()).collect::<Vec<_>>()
            };
            let by = attempts(pool, &by).await?;
            return Err(format!("{why}: {carried}; by {by}").into());
        }
        let world = self.world();
        let committed: BTreeSet<B256> = kept.iter().map(|(hash, _)| B256::from_slice(hash)).collect();
        if let Some(hash) = world.received.difference(&committed).next() {
            return Err(format!("transaction {hash} was sent and never committed").into());
        }
        let cap = self.config.fees.cap_wei;
        if let Some((_, fee)) = kept.iter().find(|(_, fee)| fee.parse::<u128>().is_ok_and(|fee| fee > cap)) {
            return Err(format!("a transaction offers {fee}, more than {cap}").into());
        }
        if let Some((sender, nonce)) = world.waiting.keys().next() {
            return Err(format!("nonce {nonce} of {sender} waits for a block for ever").into());
        }
        let transactions = world.blocks.iter().map(|block| block.txs.len()).sum::<usize>();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Ok((number(commands.len()), number(transactions)))
    }

    /// The commands and transactions that have not ended.
    pub(super) async fn stuck(&self) -> Result<String, Broken> {
        let text: Option<String> = sqlx::query_scalar(
            "select concat_ws(' | ',
                 (select string_agg(concat_ws(' ', kind, state, tries, trouble), ', ') from (
                     select * from chain_command where state in ('pending', 'sent') limit 5) c),
                 (select string_agg(concat_ws(' ', 'nonce', nonce, kind, state,
                             (select concat_ws(' ', max(attempt), max(max_fee)) from tx_attempt a
                              where a.signer = s.signer and a.nonce = s.nonce),
                             (select last_error from tx_attempt a where a.signer = s.signer and a.nonce = s.nonce
                              order by attempt desc limit 1)), ', ') from (
                     select * from nonce_slot where state in ('signed', 'broadcast') or not judged
                     order by signer, nonce limit 5) s))",
        )
        .fetch_one(&self.database.admin)
        .await?;
        let world = self.world();
        let waiting: Vec<String> = world
            .waiting
            .iter()
            .map(|((sender, nonce), tx)| format!("{sender} {nonce} {} {}", tx.max_fee, tx.gas))
            .collect();
        let nonces = &world.head().state.nonces;
        Ok(format!(
            "{}; base fee {}, nonces {nonces:?}, waiting {waiting:?}",
            text.unwrap_or_default(),
            world.base_fee
        ))
    }
}

/// The transactions that contained a command.
async fn carried(pool: &PgPool, entity: B256) -> Result<String, sqlx::Error> {
    let rows: Option<String> = sqlx::query_scalar(
        "select string_agg(concat_ws(' ', 'nonce', s.nonce, s.kind, s.state, s.block_number,
                case when c.live then 'live' end, m.trouble), ' | ')
         from slot_command c join nonce_slot s using (chain_id, signer, nonce)
         join chain_command m on m.id = c.command_id where m.entity = $1",
    )
    .bind(entity.as_slice())
    .fetch_one(pool)
    .await?;
    Ok(rows.unwrap_or_default())
}

async fn attempts(pool: &PgPool, hashes: &[Vec<u8>]) -> Result<String, sqlx::Error> {
    let rows: Option<String> = sqlx::query_scalar(
        "select string_agg(concat_ws(' ', 'nonce', nonce, 'of', encode(signer, 'hex'), 'attempt', attempt), ' | ')
         from tx_attempt where hash = any($1)",
    )
    .bind(hashes)
    .fetch_one(pool)
    .await?;
    Ok(rows.unwrap_or_default())
}

fn effect_of(kind: &str) -> &'static str {
    match kind {
        "create" => "created",
        "fill" => "filled",
        "settle" | "swap" => "settled",
        "cancel" => "cancelled",
        "transfer" => "transferred",
        _ => "anchored",
    }
}
