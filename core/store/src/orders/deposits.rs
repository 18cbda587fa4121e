//! Orders of a chain's coin that wait for their user's deposit. What an account has deposited is what its last event of the
//! gate leaves, at the confirmation depth.

use std::time::Duration;

use dvp_domain::intent::Bounds;
use dvp_domain::money::Minor;
use dvp_domain::plan::InputFunding;
use dvp_domain::terms::Terms;
use sqlx::PgConnection;

use super::executions::{bytes20, bytes32};
use super::intents::{self, Tenant};
use crate::{StoreError, statement};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDepositWait {
    pub tenant: Tenant,
    pub reference: String,
    pub chain_id: i64,
    pub entity: Vec<u8>,
    pub gate: Vec<u8>,
    pub depositor: String,
    pub least: Minor,
}

impl NewDepositWait {
    /// `None`: its input is no coin, or it is a range, which waits for the market first. `gate`: of the order's contracts.
    pub fn of(terms: &Terms, chain_id: i64, gate: Option<&str>) -> Result<Option<Self>, StoreError> {
        let least = match terms.request.bounds {
            _ if terms.plan.funding != InputFunding::Deposit => return Ok(None),
            Bounds::Range { .. } => return Ok(None),
            Bounds::ExactInput { input, .. } => input,
            Bounds::ExactOutput { .. } => Minor::new(1),
        };
        Ok(Some(Self {
            tenant: Tenant { partner_id: terms.partner_id.to_string(), livemode: terms.livemode },
            reference: terms.reference.to_string(),
            chain_id,
            entity: bytes32(&terms.entity)?,
            gate: gate_bytes(gate)?,
            depositor: terms.request.user.to_ascii_lowercase(),
            least,
        }))
    }
}

/// An order that waits, with what is deposited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullDeposit {
    pub reference: String,
    pub total: Minor,
}

pub async fn insert(conn: &mut PgConnection, new: &[NewDepositWait]) -> Result<(), StoreError> {
    let (partners, modes) = intents::tenants(new.iter().map(|one| &one.tenant));
    let sql = "insert into deposit_wait (reference, partner_id, livemode, chain_id, entity, gate, depositor, least) \
         select r, p, m, c, e, g, d, l::numeric \
         from unnest($1::text[], $2::text[], $3::bool[], $4::int8[], $5::bytea[], $6::bytea[], $7::text[], $8::text[]) \
              as new (r, p, m, c, e, g, d, l)";
    let parameters = (
        new.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>(),
        partners,
        modes,
        new.iter().map(|one| one.chain_id).collect::<Vec<_>>(),
        new.iter().map(|one| one.entity.as_slice()).collect::<Vec<_>>(),
        new.iter().map(|one| one.gate.as_slice()).collect::<Vec<_>>(),
        new.iter().map(|one| one.depositor.as_str()).collect::<Vec<_>>(),
        new.iter().map(|one| one.least.to_string()).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

/// The last order of a page, if there may be more, and those of the page whose deposit may be enough.
pub type Page = (Option<String>, Vec<FullDeposit>);

/// A page of `limit` waiting orders by their references.
pub async fn list(conn: &mut PgConnection, after: &str, limit: i64) -> Result<Page, StoreError> {
    let sql = "select w.reference, case when w.not_before <= now() and log.total >= w.least \
                                   and log.total is distinct from w.tried then log.total::text end \
         from (select * from deposit_wait where reference > $1 order by reference limit $2) w \
         left join chain_cursor cursor on cursor.chain_id = w.chain_id \
         left join lateral ( \
             select (log.deposit ->> 'total')::numeric as total from chain_log log \
             where log.entity = w.entity and log.chain_id + 0 = w.chain_id and log.contract = w.gate and log.canonical \
               and log.deposit ->> 'depositor' = w.depositor and log.block_number <= cursor.facts_number \
             order by log.block_number desc, log.log_index desc limit 1) log on true \
         order by w.reference";
    let rows: Vec<(String, Option<String>)> = statement::list(conn, sql, (after, limit)).await?;
    let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows >= limit);
    let last = rows.last().filter(|_| is_full).map(|(reference, _)| reference.clone());
    let enough = rows.into_iter().filter_map(|(reference, total)| Some((reference, total?)));
    let enough = enough.map(|(reference, total)| Ok(FullDeposit { reference, total: minor(&total)? }));
    Ok((last, enough.collect::<Result<_, StoreError>>()?))
}

fn gate_bytes(gate: Option<&str>) -> Result<Vec<u8>, StoreError> {
    let gate =
        gate.ok_or_else(|| StoreError::corrupt("execution", "a deposit, and contracts without a gate"))?;
    bytes20(gate)
}

/// What is deposited for an order at the gate of its contracts.
pub async fn find_total(
    conn: &mut PgConnection,
    terms: &Terms,
    chain_id: i64,
    gate: Option<&str>,
) -> Result<Minor, StoreError> {
    let sql = "select log.deposit ->> 'total' from chain_log log join chain_cursor cursor on cursor.chain_id = \
         log.chain_id + 0 where log.entity = $1 and log.chain_id + 0 = $2 and log.canonical \
           and log.deposit ->> 'depositor' = $3 and log.block_number <= cursor.facts_number \
           and log.contract = $4 \
         order by log.block_number desc, log.log_index desc limit 1";
    let parameters =
        (bytes32(&terms.entity)?, chain_id, terms.request.user.to_ascii_lowercase(), gate_bytes(gate)?);
    let total: Option<String> = statement::find_value(conn, sql, parameters).await?;
    total.map_or(Ok(Minor::ZERO), |total| minor(&total))
}

/// The order's deposit was not enough: only another one is looked at.
pub async fn mark_tried(conn: &mut PgConnection, tried: &FullDeposit) -> Result<(), StoreError> {
    let sql = "update deposit_wait set tried = $2::numeric where reference = $1";
    statement::execute(conn, sql, (&tried.reference, tried.total.to_string())).await
}

/// The order is looked at again after this time.
pub async fn put_off(conn: &mut PgConnection, reference: &str, by: Duration) -> Result<(), StoreError> {
    let sql = "update deposit_wait set not_before = clock_timestamp() + make_interval(secs => $2) \
         where reference = $1";
    statement::execute(conn, sql, (reference, by.as_secs_f64())).await
}

fn minor(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("chain_log", error))
}
