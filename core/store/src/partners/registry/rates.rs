//! The requests of a partner's minute, divided among the processes that answer them.

use std::time::Duration;

use sqlx::PgConnection;

use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateShare {
    /// Tells windows apart: when it opened, in microseconds.
    pub window: i64,
    pub age: Duration,
    /// Requests that this process may answer beside those that it was granted before. 0: none is left.
    pub granted: u64,
    /// What all processes were granted, this share included.
    pub total: u64,
}

/// Takes an eighth of what is left of a partner's window, one request at least, and opens a new window when the present
/// one is older than `length`: little is left to processes that do not use it.
pub async fn take_share(
    conn: &mut PgConnection,
    tenant: &Tenant,
    limit: u64,
    length: Duration,
) -> Result<RateShare, StoreError> {
    loop {
        // The row that is locked is the newest: two processes never take the same share.
        let sql = "with old as ( \
                 select opened_at, case when is_over then 0 else granted end as granted, is_over \
                 from (select *, opened_at + make_interval(secs => $4) <= clock_timestamp() as is_over \
                       from rate_window where partner_id = $1 and livemode = $2 for update) w) \
             update rate_window w \
             set opened_at = case when old.is_over then clock_timestamp() else old.opened_at end, \
                 granted = old.granted \
                           + case when old.granted < $3 then greatest(1, ($3 - old.granted) / 8) else 0 end \
             from old where w.partner_id = $1 and w.livemode = $2 \
             returning (extract(epoch from w.opened_at) * 1000000)::int8, \
                       extract(epoch from clock_timestamp() - w.opened_at)::float8, \
                       w.granted - old.granted, w.granted";
        let parameters = (
            &tenant.partner_id,
            tenant.livemode,
            i64::try_from(limit).unwrap_or(i64::MAX),
            length.as_secs_f64(),
        );
        let row: Option<(i64, f64, i64, i64)> = statement::find(conn, sql, parameters).await?;
        if let Some((window, age, granted, total)) = row {
            return Ok(RateShare {
                window,
                age: Duration::try_from_secs_f64(age).unwrap_or_default(),
                granted: u64::try_from(granted).unwrap_or(0),
                total: u64::try_from(total).unwrap_or(0),
            });
        }
        let sql = "insert into rate_window (partner_id, livemode, opened_at, granted) \
             values ($1, $2, clock_timestamp(), 0) on conflict on constraint rate_window_pkey do nothing";
        statement::execute(conn, sql, (&tenant.partner_id, tenant.livemode)).await?;
    }
}
