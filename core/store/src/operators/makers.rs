//! The partners that place resting orders for providers.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::orders::resting_orders::{self, Placer};
use crate::{StoreError, statement};

/// A partner that places resting orders for a provider.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Maker {
    pub partner_id: String,
    pub provider_id: String,
    /// The wallet that receives the released funds of its fills.
    pub wallet: String,
    pub approval: String,
    pub set_at: DateTime<Utc>,
}

impl Maker {
    /// Whose orders a maker may read and cancel.
    pub fn placer(&self) -> Placer<'_> {
        Placer { provider_id: &self.provider_id, partner_id: &self.partner_id }
    }
}

/// Makes a partner the maker of a provider, or ends that, as two operators decided. The time is the database's. The
/// wallet stays one of the provider's, whatever follows: fills were released to it. What is
/// open for other terms is cancelled, of a former maker of the provider, too: nobody could cancel it any more, or its
/// fills would be released to a wallet that was given up.
pub async fn set(
    conn: &mut PgConnection,
    partner_id: &str,
    (provider_id, wallet): (&str, &str),
    is_ended: bool,
    approval: &str,
) -> Result<(), StoreError> {
    let sql = "select exists (select from maker where partner_id = $1 and ended_at is null \
                          and not $4 and (provider_id, lower(wallet)) = ($2, lower($3)))";
    let is_kept: bool = statement::load_value(conn, sql, (partner_id, provider_id, wallet, is_ended)).await?;
    if !is_kept {
        // Waits for what is being placed for the earlier terms, or returned to them, so that it is cancelled, too.
        let sql = "select provider_id from maker where partner_id = $1 and ended_at is null for update";
        let left: Option<String> = statement::find_value(conn, sql, (partner_id,)).await?;
        let providers: Vec<&str> = left.as_deref().into_iter().chain([provider_id]).collect();
        // Before the audit log is locked, as the writer does.
        resting_orders::cancel_open(conn, &providers).await?;
    }
    let sql = "with wallet as (insert into provider_wallet (provider_id, address) values ($2, lower($3)) \
                         on conflict on constraint provider_wallet_pkey do nothing) \
         insert into maker (partner_id, provider_id, wallet, approval, ended_at) \
         values ($1, $2, $3, $4, case when $5 then clock_timestamp() end) on conflict on constraint maker_pkey do update \
         set provider_id = excluded.provider_id, wallet = excluded.wallet, approval = excluded.approval, \
             set_at = clock_timestamp(), ended_at = excluded.ended_at";
    statement::execute(conn, sql, (partner_id, provider_id, wallet, approval, is_ended)).await
}

/// The provider that a partner is the maker of, unless the partner is disabled.
pub async fn find(conn: &mut PgConnection, partner_id: &str) -> Result<Option<Maker>, StoreError> {
    let sql = "select m.partner_id, m.provider_id, m.wallet, m.approval, m.set_at \
         from maker m join partner p on p.id = m.partner_id and p.disabled_at is null \
         where m.partner_id = $1 and m.ended_at is null";
    statement::find(conn, sql, (partner_id,)).await
}

/// The partners that are makers.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Maker>, StoreError> {
    let sql = "select partner_id, provider_id, wallet, approval, set_at from maker \
         where ended_at is null order by partner_id";
    statement::list(conn, sql, ()).await
}
