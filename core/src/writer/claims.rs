//! Which units of a batch stand for work that was done, or is being done, before (contract section 8).

use std::collections::HashMap;

use sqlx::PgConnection;

use super::batch::Trust;
use super::unit::{Outcome, Unit};
use crate::store::StoreError;
use crate::store::idempotency::{self, RecordId};

/// For each unit the outcome its idempotency key already decides, if it does.
///
/// Whoever trusts that all is new looks only within the batch: a record that is there after all stops the batch.
/// The same key twice in one batch: the later one finds the first under way.
pub(super) async fn decide(
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
                Outcome::Replayed(record.response.clone())
            } else {
                Outcome::KeyConflict
            });
        }
        let first = under_way.insert(&part.id, part.fingerprint)?;
        under_way.insert(&part.id, first);
        Some(if first == part.fingerprint { Outcome::KeyProcessing } else { Outcome::KeyConflict })
    });
    Ok(decided.collect())
}
