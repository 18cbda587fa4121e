//! Transfers to and from other cells: this cell's side of each.

use chrono::{DateTime, Utc};
use dvp_domain::cell::CellId;
use dvp_domain::ids::TransferId;
use dvp_domain::ledger::{Account, Owner};
use dvp_domain::money::Minor;
use dvp_domain::reconcile::transfers::{KnownTransfer, TransitBalance};
use dvp_domain::transfer::{Transfer, TransferDirection, TransferState};
use sqlx::PgConnection;

use crate::StoreError;
use crate::ledger::closings;

/// A transfer as this cell has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptTransfer {
    pub known: KnownTransfer,
    pub sent_at: DateTime<Utc>,
    /// The receipt or refusal that came, as it was signed.
    pub answer: Option<String>,
}

impl KeptTransfer {
    /// What both cells have, given which of them this is.
    pub fn transfer(&self, here: CellId) -> Transfer {
        let KnownTransfer { id, cell, owner, asset, amount, state, .. } = self.known.clone();
        let (from, to) = match state.direction() {
            TransferDirection::Out => (here, cell),
            TransferDirection::In => (cell, here),
        };
        Transfer { id, from, to, owner, asset, amount_minor: amount, sent_at: self.sent_at.into() }
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    id: String,
    cell: String,
    provider: Option<String>,
    partner_id: Option<String>,
    livemode: Option<bool>,
    asset: String,
    amount: String,
    state: String,
    sent_at: DateTime<Utc>,
    since: DateTime<Utc>,
    answer: Option<String>,
}

impl TryFrom<Row> for KeptTransfer {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let Row { id, cell, provider, partner_id, livemode, asset, amount, state, sent_at, since, answer } =
            row;
        let corrupt = |reason: String| StoreError::corrupt("transfer", format_args!("{id}: {reason}"));
        let owner = match (provider, partner_id, livemode) {
            (Some(provider), None, None) => Owner::Provider(provider),
            (None, Some(id), Some(livemode)) => Owner::Partner { id, livemode },
            _ => return Err(corrupt("the owner".to_owned())),
        };
        let known = KnownTransfer {
            cell: cell.parse().map_err(|error| corrupt(format!("{error}")))?,
            amount: Minor::parse(&amount).map_err(|error| corrupt(format!("{error}")))?,
            state: TransferState::parse(&state).ok_or_else(|| corrupt(format!("state {state}")))?,
            id: id.parse().map_err(|error| corrupt(format!("{error}")))?,
            owner,
            asset,
            since: since.into(),
        };
        Ok(Self { known, sent_at, answer })
    }
}

/// A transfer that the sender posts. Without a time it is sent now, by the database's clock.
#[derive(Debug, Clone)]
pub struct NewTransfer<'a> {
    pub id: &'a TransferId,
    pub to: CellId,
    pub owner: &'a Owner,
    pub asset: &'a str,
    pub amount: Minor,
    pub sent_at: Option<DateTime<Utc>>,
}

/// The owner's columns: `provider`, `partner_id` and `livemode`.
fn columns(owner: &Owner) -> (Option<&str>, Option<&str>, Option<bool>) {
    match owner {
        Owner::Provider(id) => (Some(id), None, None),
        Owner::Partner { id, livemode } => (None, Some(id), Some(*livemode)),
    }
}

/// Inserts a transfer of the sender's side. Returns when it was sent. `None`: the id exists.
pub async fn insert_sent(
    conn: &mut PgConnection,
    new: &NewTransfer<'_>,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let (provider, partner, livemode) = columns(new.owner);
    let sent_at = sqlx::query_scalar(
        "insert into transfer (id, cell, provider, partner_id, livemode, asset, amount, state, sent_at) \
         values ($1, $2, $3, $4, $5, $6, $7::numeric, 'sent', \
                 coalesce($8, date_trunc('milliseconds', clock_timestamp()))) \
         on conflict on constraint transfer_pkey do nothing returning sent_at",
    )
    .bind(new.id.as_str())
    .bind(new.to.to_string())
    .bind(provider)
    .bind(partner)
    .bind(livemode)
    .bind(new.asset)
    .bind(new.amount.to_string())
    .bind(new.sent_at)
    .fetch_optional(conn)
    .await?;
    Ok(sent_at)
}

/// Inserts a transfer of the receiver's side with the sender's document. `false`: the id exists.
pub async fn insert_announced(
    conn: &mut PgConnection,
    transfer: &Transfer,
    document: &str,
) -> Result<bool, StoreError> {
    let (provider, partner, livemode) = columns(&transfer.owner);
    let done = sqlx::query(
        "insert into transfer (id, cell, provider, partner_id, livemode, asset, amount, state, sent_at, document) \
         values ($1, $2, $3, $4, $5, $6, $7::numeric, 'announced', $8, $9) \
         on conflict on constraint transfer_pkey do nothing",
    )
    .bind(transfer.id.as_str())
    .bind(transfer.from.to_string())
    .bind(provider)
    .bind(partner)
    .bind(livemode)
    .bind(&transfer.asset)
    .bind(transfer.amount_minor.to_string())
    .bind(transfer.sent_at.to_utc())
    .bind(document)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Ends a transfer. `false`: it is not in the state that was read.
pub async fn update_state(
    conn: &mut PgConnection,
    id: &TransferId,
    (from, to): (TransferState, TransferState),
    answer: Option<&str>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update transfer set state = $3, answer = $4, since = date_trunc('milliseconds', clock_timestamp()) \
         where id = $1 and state = $2",
    )
    .bind(id.as_str())
    .bind(from.as_str())
    .bind(to.as_str())
    .bind(answer)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

pub async fn find(conn: &mut PgConnection, id: &TransferId) -> Result<Option<KeptTransfer>, StoreError> {
    let row: Option<Row> = sqlx::query_as(
        "select id, cell, provider, partner_id, livemode, asset, amount::text as amount, state, sent_at, since, answer \
         from transfer where id = $1",
    )
    .bind(id.as_str())
    .fetch_optional(conn)
    .await?;
    row.map(KeptTransfer::try_from).transpose()
}

/// The filter of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransferFilter<'a> {
    /// Of one other cell.
    pub cell: Option<CellId>,
    pub is_open: bool,
    /// After this id.
    pub after: Option<&'a TransferId>,
    pub limit: i64,
}

/// Transfers in the order of their ids.
pub async fn list(
    conn: &mut PgConnection,
    filter: &TransferFilter<'_>,
) -> Result<Vec<KeptTransfer>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "select id, cell, provider, partner_id, livemode, asset, amount::text as amount, state, sent_at, since, answer from transfer \
         where ($1::text is null or cell = $1) and (not $2 or state in ('sent', 'announced')) \
           and ($3::text is null or id > $3) \
         order by id limit $4",
    )
    .bind(filter.cell.map(|cell| cell.to_string()))
    .bind(filter.is_open)
    .bind(filter.after.map(TransferId::as_str))
    .bind(filter.limit)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(KeptTransfer::try_from).collect()
}

/// Transfers whose funds may be on their way: open ones, and those that were refused after a time.
pub async fn list_moving(
    conn: &mut PgConnection,
    refused_after: DateTime<Utc>,
) -> Result<Vec<KnownTransfer>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "select id, cell, provider, partner_id, livemode, asset, amount::text as amount, state, sent_at, since, answer from transfer \
         where state in ('sent', 'announced') or (state = 'refused' and since > $1) order by since, id",
    )
    .bind(refused_after)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| KeptTransfer::try_from(row).map(|kept| kept.known)).collect()
}

/// What the ledger has in transit, and what the transfers come to, by the other cell and asset.
pub async fn list_transit(conn: &mut PgConnection) -> Result<Vec<TransitBalance>, StoreError> {
    let sums: Vec<(String, String, String)> = sqlx::query_as(
        "select cell, asset, sum(case when state in ('sent', 'confirmed') then amount \
                                      when state = 'received' then -amount else 0 end)::text \
         from transfer group by cell, asset order by cell, asset",
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut balances = Vec::new();
    for (cell, asset, sum) in sums {
        let cell: CellId = cell.parse().map_err(|error| StoreError::corrupt("transfer", error))?;
        let minor = |text: &str| text.parse().map_err(|error| StoreError::corrupt("transfer", error));
        let account = (&Account::Transit(cell)).into();
        let held = closings::load_balance_before(conn, &account, &asset, DateTime::<Utc>::MAX_UTC).await?;
        balances.push(TransitBalance { cell, asset, ledger: minor(&held)?, transfers: minor(&sum)? });
    }
    Ok(balances)
}

/// The database's time, to the millisecond.
pub async fn now(conn: &mut PgConnection) -> Result<DateTime<Utc>, StoreError> {
    let now = sqlx::query_scalar("select date_trunc('milliseconds', clock_timestamp())");
    Ok(now.fetch_one(conn).await?)
}
