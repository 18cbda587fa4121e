//! Moves of partners between cells: their rows in both databases, and what is copied.
//!
//! Batches of orders, deposits and changes of webhook endpoints hold a shared lock, and closing a partner takes it
//! exclusively. So each of them is either committed before the partner is closed, or reads that it is closed.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgTransaction};

use crate::StoreError;

/// Begins a transaction that may accept orders.
pub const BEGIN_ORDERS: &str = "begin; select pg_advisory_xact_lock_shared(hashtext('dvp_partner_close'))";

/// A row of `partner_move`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MoveRow {
    pub id: String,
    pub partner_id: String,
    pub source: String,
    pub target: String,
    pub state: String,
    pub operator: String,
    pub since: DateTime<Utc>,
    /// At the target: the move that had closed the partner here before.
    pub closed_before: Option<String>,
}

/// The closed ones among these partners.
pub async fn list_closed(conn: &mut PgConnection, partner_ids: &[&str]) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar("select id from partner where id = any($1) and closed_by is not null");
    Ok(rows.bind(partner_ids).fetch_all(conn).await?)
}

/// Inserts a move: at its source when two operators have decided it, at its target when the partner arrives.
pub async fn insert(conn: &mut PgConnection, new: &MoveRow) -> Result<(), StoreError> {
    sqlx::query(
        "insert into partner_move (id, partner_id, source, target, state, operator, closed_before) \
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(&new.id)
    .bind(&new.partner_id)
    .bind(&new.source)
    .bind(&new.target)
    .bind(&new.state)
    .bind(&new.operator)
    .bind(&new.closed_before)
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn find(conn: &mut PgConnection, id: &str) -> Result<Option<MoveRow>, StoreError> {
    let row = sqlx::query_as("select * from partner_move where id = $1");
    Ok(row.bind(id).fetch_optional(conn).await?)
}

/// The latest move of a partner in this database that was not cancelled.
pub async fn find_latest(conn: &mut PgConnection, partner_id: &str) -> Result<Option<MoveRow>, StoreError> {
    let row = sqlx::query_as(
        "select * from partner_move where partner_id = $1 and state <> 'cancelled' order by number desc limit 1",
    );
    Ok(row.bind(partner_id).fetch_optional(conn).await?)
}

/// The moves of a partner that are known here, the latest first.
pub async fn list(conn: &mut PgConnection, partner_id: &str, limit: i64) -> Result<Vec<MoveRow>, StoreError> {
    let rows =
        sqlx::query_as("select * from partner_move where partner_id = $1 order by number desc limit $2");
    Ok(rows.bind(partner_id).bind(limit).fetch_all(conn).await?)
}

/// The other cells of a partner's moves, where its keys may be, too.
pub async fn list_other_cells(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select distinct case when state in ('closed', 'moved') then target else source end from partner_move \
         where partner_id = $1 and state not in ('approved', 'cancelled') order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// Takes a move from one state to the next. `false`: it was not in that state.
pub async fn advance(
    conn: &mut PgConnection,
    id: &str,
    [from, to]: [&str; 2],
    operator: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update partner_move set state = $3, operator = $4, since = clock_timestamp() where id = $1 and state = $2",
    )
    .bind(id)
    .bind(from)
    .bind(to)
    .bind(operator)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The target accepts the partner's orders; drop copies that come later report its events from here on. `false`: the move
/// was not in that state.
pub async fn open(
    conn: &mut PgConnection,
    id: &str,
    operator: &str,
    drop_copies: &[String],
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update partner_move set state = 'open', operator = $2, since = clock_timestamp(), \
                feed_position = (select position from feed_counter), drop_copies = $3 \
         where id = $1 and state = 'copied'",
    )
    .bind(id)
    .bind(operator)
    .bind(drop_copies)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Drop copies that a move has not brought to its target yet.
pub async fn list_drop_copies(
    conn: &mut PgConnection,
    MoveRow { id, partner_id, .. }: &MoveRow,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select session_id from fix_session \
         where partner_id = $1 and drop_copy and (enabled or moved_by = $2 and copied_at is null) order by 1",
    );
    Ok(rows.bind(partner_id).bind(id).fetch_all(conn).await?)
}

/// Records at the target which drop copies are still at the source.
pub async fn update_drop_copies(
    conn: &mut PgConnection,
    id: &str,
    drop_copies: &[String],
) -> Result<(), StoreError> {
    let changed = sqlx::query("update partner_move set drop_copies = $2 where id = $1 and drop_copies <> $2");
    changed.bind(id).bind(drop_copies).execute(conn).await?;
    Ok(())
}

/// Drop copies that have not followed the partner to this cell, as texts for an operator; those in the cell `target`
/// excepted, which knows them itself.
pub async fn list_behind(
    conn: &mut PgConnection,
    partner_id: &str,
    target: &str,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select format('drop copy %s is still in cell %s: run the move %s again once all orders there have ended', \
                       session_id, source, id) \
         from (select id, source, drop_copies from partner_move where partner_id = $1 and state = 'open' \
               order by number desc limit 1) came cross join unnest(drop_copies) session_id \
         where source <> $2 order by 1",
    );
    Ok(rows.bind(partner_id).bind(target).fetch_all(conn).await?)
}

/// Drop copies that have not left this cell with the partner, as texts for an operator.
pub async fn list_staying(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select format('drop copy %s is still in cell %s: run the move %s again once all orders there have ended, or \
                        disable it, and it never reports the orders since the move', session_id, source, id) \
         from (select id, source from partner_move where partner_id = $1 and state = 'moved' \
               order by number desc limit 1) went join fix_session on partner_id = $1 and drop_copy and enabled \
         order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// Takes the shared lock: until the end of the transaction no partner is closed.
pub(crate) async fn hold_open(conn: &mut PgConnection) -> Result<(), StoreError> {
    let held = sqlx::query("select pg_advisory_xact_lock_shared(hashtext('dvp_partner_close'))");
    held.execute(conn).await?;
    Ok(())
}

/// The state of the move that has closed a partner here. `None`: the partner is open, until the end of the transaction.
pub async fn hold_open_unless_closed(
    conn: &mut PgConnection,
    partner_id: &str,
) -> Result<Option<String>, StoreError> {
    hold_open(conn).await?;
    let row = sqlx::query_scalar(
        "select coalesce(m.state, 'closed') from partner p left join partner_move m on m.id = p.closed_by \
         where p.id = $1 and p.closed_by is not null",
    );
    Ok(row.bind(partner_id).fetch_optional(conn).await?)
}

/// Waits until the batches in progress have ended. No batch begins before this transaction ends.
pub async fn lock_orders(tx: &mut PgTransaction<'_>) -> Result<(), StoreError> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('dvp_partner_close'))").execute(&mut **tx).await?;
    Ok(())
}

/// The move that has closed a partner here; `None`: there is no such partner.
pub async fn find_closer(
    conn: &mut PgConnection,
    partner_id: &str,
) -> Result<Option<Option<String>>, StoreError> {
    let row = sqlx::query_scalar("select closed_by from partner where id = $1 for update");
    Ok(row.bind(partner_id).fetch_optional(conn).await?)
}

/// Closes a partner, or opens it, for a move.
pub async fn set_closed(
    conn: &mut PgConnection,
    partner_id: &str,
    [before, after]: [Option<&str>; 2],
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("update partner set closed_by = $3 where id = $1 and closed_by is not distinct from $2")
            .bind(partner_id)
            .bind(before)
            .bind(after)
            .execute(conn)
            .await?;
    Ok(done.rows_affected() == 1)
}

/// What keeps a partner from being moved, as texts for an operator.
pub async fn list_obstacles(
    conn: &mut PgConnection,
    partner_id: &str,
    hash_key: &str,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select format('it is the maker of provider %s: end that first', provider_id) \
         from maker where partner_id = $1 and ended_at is null \
         union all select format('key %s has no cell in it, or was not used since shared_key was configured: rotate and \
                                  revoke it first', id) \
         from api_key where partner_id = $1 and revoked_at is null \
                        and (hash_key <> $2 or key_prefix !~ '^svc_(test|live)_c[0-9a-f]{3}_[0-9a-f]{12}$') \
         union all select format('the password of session %s was not used since shared_key was configured: log on, or set \
                                  it anew', session_id) \
         from fix_session where partner_id = $1 and enabled and password_key <> $2",
    );
    Ok(rows.bind(partner_id).bind(hash_key).fetch_all(conn).await?)
}

/// The number of a partner's executions that have not ended.
pub async fn count_open(conn: &mut PgConnection, partner_id: &str) -> Result<i64, StoreError> {
    let row =
        sqlx::query_scalar("select count(*) from execution where partner_id = $1 and terminal_at is null");
    Ok(row.bind(partner_id).fetch_one(conn).await?)
}

/// Rows of a partner that are copied. Rows of a later kind refer to rows of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedRows {
    Partner,
    Intents,
    Keys,
    /// Of a partner that comes back, which the target may have as it left them.
    RevokedKeys,
    Instructions,
    Limits,
    LimitUse,
    Pauses,
    Beneficiaries,
    Destinations,
    Endpoints,
    Answers,
    Nonces,
    Deposits,
}

impl CopiedRows {
    /// Those that belong to the partner as a whole and are copied at once, when it is closed.
    pub const AT_ONCE: [Self; 12] = [
        Self::Keys,
        Self::RevokedKeys,
        Self::Instructions,
        Self::Limits,
        Self::LimitUse,
        Self::Pauses,
        Self::Beneficiaries,
        Self::Destinations,
        Self::Endpoints,
        Self::Answers,
        Self::Nonces,
        Self::Deposits,
    ];

    /// A key of the row, and the row, of one partner after a key.
    const fn list(self) -> &'static str {
        match self {
            Self::Partner => {
                "select id, (to_jsonb(t) - 'closed_by')::text from partner t where id = $1 and id > $2 order by 1 limit $3"
            }
            // The personal data of rejected intents stays behind.
            Self::Intents => {
                "select intent_id, (to_jsonb(t) || jsonb_build_object('copied_at', now()) || case when reference is null \
                        then jsonb_build_object('request', '{}'::jsonb, 'personal_erased_at', now()) else '{}' end)::text \
                 from intent t where partner_id = $1 and intent_id > $2 order by 1 limit $3"
            }
            Self::Keys => {
                "select id, to_jsonb(t)::text from api_key t \
                 where partner_id = $1 and revoked_at is null and id > $2 order by 1 limit $3"
            }
            Self::RevokedKeys => {
                "select id, to_jsonb(t)::text from api_key t \
                 where partner_id = $1 and revoked_at is not null and id > $2 order by 1 limit $3"
            }
            Self::Instructions => {
                "select asset, to_jsonb(t)::text from settlement_instruction t \
                 where partner_id = $1 and asset > $2 order by 1 limit $3"
            }
            Self::Limits => {
                "select asset || ' ' || period, to_jsonb(t)::text from order_limit t \
                 where scope = 'partner' and target = $1 and asset || ' ' || period > $2 order by 1 limit $3"
            }
            Self::LimitUse => {
                "select asset, to_jsonb(t)::text from limit_usage t \
                 where scope = 'partner' and target = $1 and day = (now() at time zone 'UTC')::date and asset > $2 \
                 order by 1 limit $3"
            }
            Self::Pauses => {
                "select scope, to_jsonb(t)::text from pause t \
                 where scope = 'partner' and target = $1 and scope > $2 order by 1 limit $3"
            }
            Self::Beneficiaries => {
                "select id, to_jsonb(t)::text from beneficiary t where partner_id = $1 and id > $2 order by 1 limit $3"
            }
            Self::Destinations => {
                "select d.id, to_jsonb(d)::text from destination d join beneficiary b on b.id = d.beneficiary_id \
                 where b.partner_id = $1 and d.id > $2 order by 1 limit $3"
            }
            Self::Endpoints => {
                "select e.id, (to_jsonb(e) || jsonb_build_object('failing_since', null, 'noticed_at', null))::text \
                 from webhook_endpoint e join api_key k on k.id = e.key_id \
                 where e.partner_id = $1 and k.revoked_at is null and e.id > $2 order by 1 limit $3"
            }
            Self::Answers => {
                "select concat_ws(' ', method, path, key), to_jsonb(t)::text from idempotency t \
                 where partner_id = $1 and concat_ws(' ', method, path, key) > $2 order by 1 limit $3"
            }
            Self::Nonces => {
                "select key_id || ' ' || nonce, to_jsonb(t)::text from request_nonce t \
                 where partner_id = $1 and key_id || ' ' || nonce > $2 order by 1 limit $3"
            }
            Self::Deposits => {
                "select deposit_id, to_jsonb(t)::text from partner_deposit t \
                 where partner_id = $1 and deposit_id > $2 order by 1 limit $3"
            }
        }
    }

    /// Inserts an array of rows. Of a partner that comes back, the target has rows as it left them: what was disabled,
    /// revoked, paused or used up in either cell stays so, and of the rest the source's rows count.
    const fn insert(self) -> &'static str {
        match self {
            Self::Partner => {
                "insert into partner as t select * from jsonb_populate_recordset(null::partner, $1::jsonb) \
                 on conflict (id) do update set name = excluded.name, tier = excluded.tier, \
                     limit_per_minute = excluded.limit_per_minute, \
                     disabled_at = case when exists (select from partner_move m where m.partner_id = t.id and m.state = 'moved') \
                                        then coalesce(t.disabled_at, excluded.disabled_at) else excluded.disabled_at end"
            }
            // A client reference that was erased in one cell, and used again, stays with the order that has it here.
            Self::Intents => {
                "insert into intent select i.* from jsonb_array_elements($1::jsonb) one cross join lateral \
                     jsonb_populate_record(null::intent, one || case \
                         when exists (select from intent u where u.partner_id = one ->> 'partner_id' \
                                          and u.livemode = (one ->> 'livemode')::boolean \
                                          and u.client_reference = one ->> 'client_reference' and u.reference is not null \
                                          and one ->> 'reference' is not null and u.intent_id <> one ->> 'intent_id' offset 0) \
                         then '{\"client_reference\": null}'::jsonb else '{}' end) i \
                 on conflict do nothing"
            }
            // Processes find new keys by their time.
            Self::Keys => {
                "insert into api_key as t select * from jsonb_populate_recordset(null::api_key, \
                     (select jsonb_agg(one || jsonb_build_object('created_at', now())) \
                      from jsonb_array_elements($1::jsonb) one)) \
                 on conflict (id) do update set disabled_at = excluded.disabled_at \
                     where t.disabled_at is null and excluded.disabled_at is not null"
            }
            Self::RevokedKeys => {
                "update api_key t set revoked_at = now(), disabled_at = coalesce(t.disabled_at, now()), sealed_secret = '' \
                 from jsonb_populate_recordset(null::api_key, $1::jsonb) other \
                 where t.id = other.id and t.revoked_at is null"
            }
            Self::Instructions => {
                "insert into settlement_instruction \
                 select * from jsonb_populate_recordset(null::settlement_instruction, $1::jsonb) \
                 on conflict (partner_id, livemode, asset) do update \
                     set account = excluded.account, operator = excluded.operator, reason = excluded.reason, \
                         approval = excluded.approval, set_at = excluded.set_at"
            }
            Self::Limits => {
                "insert into order_limit as t select * from jsonb_populate_recordset(null::order_limit, $1::jsonb) \
                 on conflict (scope, target, asset, period) do update \
                     set amount = excluded.amount, approval = excluded.approval, set_at = excluded.set_at \
                     where excluded.set_at > t.set_at"
            }
            Self::LimitUse => {
                "insert into limit_usage as t select * from jsonb_populate_recordset(null::limit_usage, $1::jsonb) \
                 on conflict (day, scope, target, asset) do update set amount = excluded.amount \
                     where excluded.amount > t.amount"
            }
            Self::Pauses => {
                "insert into pause select * from jsonb_populate_recordset(null::pause, $1::jsonb) on conflict do nothing"
            }
            Self::Beneficiaries => {
                "insert into beneficiary select * from jsonb_populate_recordset(null::beneficiary, $1::jsonb) \
                 on conflict (id) do nothing"
            }
            // Each is verified once and disabled once, wherever that was.
            Self::Destinations => {
                "insert into destination as t select * from jsonb_populate_recordset(null::destination, $1::jsonb) \
                 on conflict (id) do update set \
                     verified_by = coalesce(t.verified_by, excluded.verified_by), \
                     evidence = coalesce(t.evidence, excluded.evidence), \
                     verified_at = coalesce(t.verified_at, excluded.verified_at), \
                     disabled_by = excluded.disabled_by, disabled_reason = excluded.disabled_reason, \
                     disabled_at = excluded.disabled_at \
                 where t.disabled_at is null and (excluded.disabled_at is not null \
                                                  or t.verified_at is null and excluded.verified_at is not null)"
            }
            // A new one, and one that becomes active, has the events of this database from now on. Of a key that has
            // another one here, that one stays.
            Self::Endpoints => {
                "with given as ( \
                     select * from jsonb_populate_recordset(null::webhook_endpoint, (select jsonb_agg( \
                         one || jsonb_build_object('from_position', (select position from feed_counter))) \
                         from jsonb_array_elements($1::jsonb) one)) e \
                     where not exists (select from webhook_endpoint other where other.key_id = e.key_id and other.id <> e.id) \
                 ), new as ( \
                     insert into webhook_endpoint as t select * from given \
                     on conflict (id) do update set \
                         key_id = excluded.key_id, url = excluded.url, subscribed_types = excluded.subscribed_types, \
                         api_version = excluded.api_version, is_active = excluded.is_active, \
                         sealed_secret = excluded.sealed_secret, sealed_next = excluded.sealed_next, \
                         grace_expires_at = excluded.grace_expires_at, rotated_at = excluded.rotated_at, \
                         from_position = case when excluded.is_active and not t.is_active \
                                              then excluded.from_position else t.from_position end, \
                         failing_since = case when excluded.is_active and t.is_active then t.failing_since end, \
                         noticed_at = case when excluded.is_active and t.is_active then t.noticed_at end \
                     returning id \
                 ) \
                 insert into endpoint_lease (endpoint_id) select id from new on conflict do nothing"
            }
            Self::Answers => {
                "insert into idempotency select * from jsonb_populate_recordset(null::idempotency, $1::jsonb) \
                 on conflict do nothing"
            }
            Self::Nonces => {
                "insert into request_nonce select * from jsonb_populate_recordset(null::request_nonce, $1::jsonb) \
                 on conflict do nothing"
            }
            Self::Deposits => {
                "insert into partner_deposit select * from jsonb_populate_recordset(null::partner_deposit, $1::jsonb) \
                 on conflict do nothing"
            }
        }
    }
}

/// Rows of a partner after a key, as JSON, and the last row's key. They stay text: a number of JSON may be an amount.
pub async fn list_rows(
    conn: &mut PgConnection,
    kind: CopiedRows,
    partner_id: &str,
    after: &str,
    limit: i64,
) -> Result<(Vec<String>, Option<String>), StoreError> {
    let rows: Vec<(String, String)> =
        sqlx::query_as(kind.list()).bind(partner_id).bind(after).bind(limit).fetch_all(conn).await?;
    let last = rows.last().map(|(key, _)| key.clone());
    Ok((rows.into_iter().map(|(_, row)| row).collect(), last))
}

/// Inserts copied rows.
pub async fn insert_rows(
    conn: &mut PgConnection,
    kind: CopiedRows,
    rows: &[String],
) -> Result<(), StoreError> {
    sqlx::query(kind.insert()).bind(format!("[{}]", rows.join(","))).execute(conn).await?;
    Ok(())
}

/// The first of these intents that this database does not have.
pub async fn find_missing_intent(
    conn: &mut PgConnection,
    rows: &[String],
) -> Result<Option<String>, StoreError> {
    let row = sqlx::query_scalar(
        "select given.intent_id from jsonb_populate_recordset(null::intent, $1::jsonb) given \
         where not exists (select from intent i where i.partner_id = given.partner_id and i.livemode = given.livemode \
                               and i.intent_id = given.intent_id offset 0) order by 1 limit 1",
    );
    Ok(row.bind(format!("[{}]", rows.join(","))).fetch_optional(conn).await?)
}

/// A FIX session of a partner in the course of its move.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MovingSession {
    pub session_id: String,
    pub enabled: bool,
    pub moved_by: Option<String>,
    /// It has orders that have not ended, or reports that are not made yet.
    pub is_busy: bool,
}

/// The sessions of a partner.
pub async fn list_sessions(
    conn: &mut PgConnection,
    partner_id: &str,
) -> Result<Vec<MovingSession>, StoreError> {
    let rows = sqlx::query_as(
        "select s.session_id, s.enabled, s.moved_by, \
                exists (select from fix_parked p where p.session_id = s.session_id) \
                or s.drop_copy and exists (select from legacy_intent l where l.partner_id = s.partner_id \
                                             and l.stage in ('pending', 'solving', 'queued', 'submitting')) \
                or s.drop_copy and exists (select from execution e where e.partner_id = s.partner_id and terminal_at is null) \
                or s.drop_copy and exists (select from event_record v where v.partner_id = s.partner_id \
                                             and v.livemode = s.livemode and v.position > s.feed_position) \
                or exists (select from fix_order o join execution e on e.reference = o.reference \
                           where o.session_id = s.session_id and e.terminal_at is null) \
                or exists (select from event_record v join fix_order o on o.reference = v.reference \
                           where v.partner_id = s.partner_id and v.livemode = s.livemode \
                             and v.position > s.feed_position and o.session_id = s.session_id) as is_busy \
         from fix_session s where s.partner_id = $1 order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// Sessions of a partner that another cell does not have yet, although a move took them from here.
pub async fn list_between(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select session_id from fix_session where partner_id = $1 and moved_by is not null and copied_at is null \
         order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// Those among these sessions that this cell has and that were not taken from it.
pub async fn list_present(
    conn: &mut PgConnection,
    session_ids: &[String],
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select session_id from fix_session where session_id = any($1) and moved_by is null order by 1",
    );
    Ok(rows.bind(session_ids).fetch_all(conn).await?)
}

/// Takes a session from this cell, unless the partner is back: disables it, and its process lets go of it. Call it in a
/// transaction.
pub async fn take_session(
    conn: &mut PgConnection,
    session_id: &str,
    found: &MoveRow,
) -> Result<Taken, StoreError> {
    let left = sqlx::query("select from partner where id = $1 and closed_by = $2 for share")
        .bind(&found.partner_id)
        .bind(&found.id)
        .execute(&mut *conn)
        .await?;
    if left.rows_affected() == 0 {
        return Ok(Taken::Not);
    }
    let now = sqlx::query(
        "update fix_session set enabled = false, moved_by = $2, copied_at = null \
         where session_id = $1 and enabled and moved_by is null",
    )
    .bind(session_id)
    .bind(&found.id)
    .execute(&mut *conn)
    .await?;
    if now.rows_affected() == 1 {
        return Ok(Taken::Now);
    }
    let before =
        sqlx::query_scalar("select exists (select from fix_session where session_id = $1 and moved_by = $2)");
    let before: bool = before.bind(session_id).bind(&found.id).fetch_one(&mut *conn).await?;
    Ok(if before { Taken::Before } else { Taken::Not })
}

/// Whether a move has taken a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Now,
    /// An earlier run did.
    Before,
    /// The partner has come back, or operators have disabled the session.
    Not,
}

/// Locks a session that the move has taken and that the target does not have yet, while the partner is not back. `false`:
/// there is nothing to copy.
pub async fn lock_taken(
    conn: &mut PgConnection,
    session_id: &str,
    found: &MoveRow,
) -> Result<bool, StoreError> {
    let locked = sqlx::query(
        "select from fix_session s join partner p on p.id = s.partner_id and p.closed_by = $2 \
         where s.session_id = $1 and s.moved_by = $2 and s.copied_at is null for update of s for share of p",
    );
    Ok(locked.bind(session_id).bind(&found.id).execute(conn).await?.rows_affected() == 1)
}

/// Whether a cell has a session that a move brings, or another one under its id.
pub async fn has_session(conn: &mut PgConnection, session_id: &str, id: &str) -> Result<bool, StoreError> {
    let row = sqlx::query_scalar(
        "select exists (select from fix_session where session_id = $1 and (came_by = $2 or moved_by is null))",
    );
    Ok(row.bind(session_id).bind(id).fetch_one(conn).await?)
}

/// Gives a session that a move has taken back to this cell. `enabled`: it may log on again; else it stays as operators
/// have left it. Call it in the transaction that has locked it.
pub async fn give_back(conn: &mut PgConnection, session_id: &str, enabled: bool) -> Result<(), StoreError> {
    let given =
        sqlx::query("update fix_session set enabled = enabled or $2, moved_by = null where session_id = $1");
    given.bind(session_id).bind(enabled).execute(conn).await?;
    Ok(())
}

/// Records that the target has the session.
pub async fn note_copied(conn: &mut PgConnection, session_id: &str) -> Result<(), StoreError> {
    let noted = sqlx::query("update fix_session set copied_at = now() where session_id = $1");
    noted.bind(session_id).execute(conn).await?;
    Ok(())
}

/// A session with its row, messages for resends, orders, and the last event of each order; arrays of JSON.
#[derive(Debug, Clone)]
pub struct SessionRows {
    pub session: String,
    pub messages: String,
    pub orders: String,
    pub events: String,
}

pub async fn load_session(conn: &mut PgConnection, session_id: &str) -> Result<SessionRows, StoreError> {
    let (session, messages, orders, events) = sqlx::query_as(
        "select (to_jsonb(s) - '{moved_by,came_by,copied_at}'::text[])::text, \
                (select coalesce(jsonb_agg(to_jsonb(m)), '[]')::text from fix_outbound m where m.session_id = s.session_id), \
                (select coalesce(jsonb_agg(to_jsonb(o)), '[]')::text from fix_order o where o.session_id = s.session_id), \
                (select coalesce(jsonb_agg(to_jsonb(v)), '[]')::text from fix_order o cross join lateral ( \
                     select reference, type, sequence, object from event_record r where r.reference = o.reference \
                     union all select reference, type, sequence, object from moved_event m where m.reference = o.reference \
                     order by sequence desc limit 1) v where o.session_id = s.session_id) \
         from fix_session s where s.session_id = $1",
    )
    .bind(session_id)
    .fetch_one(conn)
    .await?;
    Ok(SessionRows { session, messages, orders, events })
}

/// Inserts orders that come with their session, and enters those of another cell, whose copies are erased by their age.
const INSERT_ORDERS: &str = "with new as ( \
         insert into fix_order select * from jsonb_populate_recordset(null::fix_order, $1::jsonb) \
         on conflict (session_id, cl_ord_id) do nothing returning session_id, cl_ord_id, reference, created_at) \
     insert into fix_order_copy (session_id, cl_ord_id, reference, ordered_at) \
     select session_id, cl_ord_id, reference, created_at from new \
     where not exists (select from execution e where e.reference = new.reference)";

/// Enters, for erasure, the accounts that a session's orders bring and that were erased here before.
const ERASE_AGAIN: &str = "insert into fix_erasure (session_id, account, until_seq) \
     select distinct t.session_id, given.details ->> 'account', t.next_out \
     from jsonb_populate_recordset(null::fix_order, $1::jsonb) given \
     join fix_order o using (session_id, cl_ord_id) join fix_session s on s.session_id = o.session_id \
     join fix_session t on t.partner_id = s.partner_id and t.livemode = s.livemode \
     where o.details ->> 'account' is null and given.details ->> 'account' not like 'bene\\_%'";

/// Inserts the last events of other cells' orders, without the beneficiary where the order's copy was erased here before.
const INSERT_EVENTS: &str = "insert into moved_event as t \
     select v.reference, v.type, v.sequence, \
            case when exists (select from fix_order_copy c where c.reference = v.reference) then v.object \
                 else jsonb_set(v.object::jsonb, '{beneficiary}', \
                      '{\"nameMasked\": null, \"accountLast4\": null, \"accountHash\": null}', false)::json end \
     from jsonb_populate_recordset(null::moved_event, $1::jsonb) v \
     where not exists (select from execution e where e.reference = v.reference) \
     on conflict (reference) do update set type = excluded.type, sequence = excluded.sequence, object = excluded.object \
         where excluded.sequence > t.sequence";

/// Inserts a session, which reports this database's events from now on; one that an earlier move took from here is
/// replaced. A drop copy reports those since the partner came, or since it was itself here. `false`: this cell has
/// another session under the id. Call it in a transaction.
pub async fn insert_session(
    conn: &mut PgConnection,
    session_id: &str,
    rows: &SessionRows,
    id: &str,
) -> Result<bool, StoreError> {
    let columns: String = sqlx::query_scalar(
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute \
         where attrelid = 'fix_session'::regclass and attnum > 0 and not attisdropped",
    )
    .fetch_one(&mut *conn)
    .await?;
    let statement = format!(
        "insert into fix_session as t select * from jsonb_populate_record(null::fix_session, $1::jsonb || jsonb_build_object( \
             'enabled', true, 'came_by', $2::text, 'feed_position', \
             case when ($1::jsonb -> 'drop_copy')::boolean \
                  then coalesce((select e.feed_position from fix_session e where e.session_id = $1::jsonb ->> 'session_id'), \
                                (select m.feed_position from partner_move m where m.id = $2)) \
                  else (select position from feed_counter) end)) \
         on conflict (session_id) do update set ({columns}) = (select excluded.*) \
             where t.moved_by is not null and t.came_by is distinct from $2"
    );
    let inserted = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(&rows.session).bind(id);
    if inserted.execute(&mut *conn).await?.rows_affected() == 0 {
        let is_known = sqlx::query_scalar(
            "select exists (select from fix_session where session_id = $1 and came_by = $2)",
        );
        return Ok(is_known.bind(session_id).bind(id).fetch_one(&mut *conn).await?);
    }
    // Those of the time before.
    sqlx::query("delete from fix_outbound where session_id = $1")
        .bind(session_id)
        .execute(&mut *conn)
        .await?;
    for (statement, rows) in [
        (
            "insert into fix_outbound select * from jsonb_populate_recordset(null::fix_outbound, $1::jsonb)",
            &rows.messages,
        ),
        (INSERT_ORDERS, &rows.orders),
        (ERASE_AGAIN, &rows.orders),
        // Of its own orders this database has the events.
        (INSERT_EVENTS, &rows.events),
    ] {
        sqlx::query(statement).bind(rows).execute(&mut *conn).await?;
    }
    Ok(true)
}

/// A FIX session that no move has taken from here.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MappedSession {
    pub session_id: String,
    pub enabled: bool,
}

/// The beginnings of the keys that are used here and may have orders in another cell: those that came from one, and all
/// of a partner that has come back. And the sessions of this cell.
pub async fn list_map(conn: &mut PgConnection) -> Result<(Vec<String>, Vec<MappedSession>), StoreError> {
    let keys = sqlx::query_scalar(
        "select key_prefix from api_key k join partner p on p.id = k.partner_id \
         where k.revoked_at is null and p.closed_by is null \
           and (substring(key_prefix from '_c([0-9a-f]{3})_') <> (select cell from deployment) \
                or exists (select from partner_move m where m.partner_id = p.id and m.state = 'moved')) order by 1",
    );
    let keys = keys.fetch_all(&mut *conn).await?;
    let sessions = sqlx::query_as(
        "select session_id, enabled from fix_session where moved_by is null order by session_id",
    );
    Ok((keys, sessions.fetch_all(conn).await?))
}

/// The version of the schema, which both databases of a move must have.
pub async fn schema_version(conn: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar("select max(version) from _sqlx_migrations where success").fetch_one(conn).await?)
}
