//! Finds the units of a batch whose work was done, or is in progress, before: by an idempotency key (contract section
//! 8), or by a ClOrdID of a FIX session.

use std::collections::{HashMap, HashSet};

use dvp_store::orders::idempotency::{self, RecordId};
use dvp_store::{
    StoreError,
    fix::{self, rows::ClOrdId},
};
use sqlx::PgConnection;

use super::unit::{Outcome, Refusal, Unit, UsedKey, Work};

/// The assumption about the ids of a batch's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Their ids, references, nonces and idempotency keys are new. A unique constraint reports a violation; then
    /// nothing was written ([`is_repeat`](super::batch::is_repeat)).
    New,
    /// No assumption: used ids are looked up first.
    Nothing,
}

/// For each unit the outcome that its key or ClOrdID already determines, if any.
pub(super) async fn decide(
    conn: &mut PgConnection,
    units: &[&Unit],
    trust: Trust,
) -> Result<Vec<Option<Outcome>>, StoreError> {
    let mut decided = decide_keys(conn, units, trust).await?;
    decide_cl_ord_ids(conn, units, trust, &mut decided).await?;
    Ok(decided)
}

/// An order under a ClOrdID that its session has used, for an order or for a request about one, is a duplicate. A
/// settlement's step belongs to a request that was looked up before.
async fn decide_cl_ord_ids(
    conn: &mut PgConnection,
    units: &[&Unit],
    trust: Trust,
    decided: &mut [Option<Outcome>],
) -> Result<(), StoreError> {
    let used_key = |unit: &'_ Unit| -> Option<(String, ClOrdId)> {
        let part = unit.fix.as_ref()?;
        Some((part.numbers.session_id.clone(), part.cl_ord_id.clone()?))
    };
    let keys: Vec<Option<(String, ClOrdId)>> = units.iter().map(|unit| used_key(unit)).collect();
    let requested: Vec<&(String, ClOrdId)> = keys.iter().flatten().collect();
    let mut used: HashSet<(String, ClOrdId)> = HashSet::new();
    if trust == Trust::Nothing && !requested.is_empty() {
        used.extend(fix::list_used_cl_ord_ids(conn, &requested).await?);
    }
    for ((unit, key), decided) in units.iter().zip(keys).zip(decided) {
        let Some(key) = key else { continue };
        let is_order = matches!(unit.work, Work::Submit(_) | Work::Refuse(_) | Work::SessionOnly);
        if !used.insert(key) && is_order && decided.is_none() {
            *decided = Some(Outcome::Refused(Refusal::DuplicateIntent));
        }
    }
    Ok(())
}

/// For each unit the outcome that its idempotency key already determines, if any.
///
/// Under [`Trust::New`] only the batch itself is searched: an existing record then fails the batch. When one key occurs
/// twice in a batch, the later unit finds the first in progress.
async fn decide_keys(
    conn: &mut PgConnection,
    units: &[&Unit],
    trust: Trust,
) -> Result<Vec<Option<Outcome>>, StoreError> {
    let ids: Vec<&RecordId> =
        units.iter().filter_map(|unit| unit.idempotency.as_ref().map(|p| &p.id)).collect();
    if ids.is_empty() {
        return Ok(units.iter().map(|_| None).collect());
    }
    let records = match trust {
        Trust::New => Vec::new(),
        Trust::Nothing => idempotency::list_live(conn, &ids).await?,
    };
    let known: HashMap<&RecordId, _> = records.iter().map(|record| (&record.id, record)).collect();
    let mut under_way: HashMap<&RecordId, [u8; 32]> = HashMap::new();
    let decided = units.iter().map(|unit| {
        let part = unit.idempotency.as_ref()?;
        if let Some(record) = known.get(&part.id) {
            let same = record.fingerprint == part.fingerprint;
            return Some(if same {
                Outcome::KeyUsed(UsedKey::Replayed(record.response.clone()))
            } else {
                Outcome::KeyUsed(UsedKey::Conflict)
            });
        }
        let first = under_way.insert(&part.id, part.fingerprint)?;
        under_way.insert(&part.id, first);
        Some(if first == part.fingerprint {
            Outcome::KeyUsed(UsedKey::Processing)
        } else {
            Outcome::KeyUsed(UsedKey::Conflict)
        })
    });
    Ok(decided.collect())
}
