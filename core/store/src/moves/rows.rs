//! The rows of a partner that a move copies, and how the target takes them.

use sqlx::PgConnection;

use crate::StoreError;

/// Rows of a partner that are copied. Rows of a later kind refer to rows of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedRows {
    Answers,
    Nonces,
    Deposits,
    LimitUse,
    Partner,
    Keys,
    /// Of a partner that comes back, which the target may have as it left them.
    RevokedKeys,
    Instructions,
    Limits,
    Pauses,
    Beneficiaries,
    Destinations,
    Endpoints,
}

impl CopiedRows {
    /// All of a closed partner. Those whose rows are entries of the audit log come last: from the first entry on, the audit
    /// log of the target waits for the end of the transaction.
    pub const ALL: [Self; 13] = [
        Self::Answers,
        Self::Nonces,
        Self::Deposits,
        Self::LimitUse,
        Self::Partner,
        Self::Keys,
        Self::RevokedKeys,
        Self::Instructions,
        Self::Limits,
        Self::Pauses,
        Self::Beneficiaries,
        Self::Destinations,
        Self::Endpoints,
    ];

    /// Before the key of every row.
    fn first(self) -> Vec<String> {
        let parts: &[&str] = match self {
            Self::Answers => &["false", "", "", "00000000-0000-0000-0000-000000000000"],
            Self::Instructions => &["false", ""],
            Self::Nonces | Self::Limits => &["", ""],
            Self::Deposits
            | Self::LimitUse
            | Self::Partner
            | Self::Keys
            | Self::RevokedKeys
            | Self::Pauses
            | Self::Beneficiaries
            | Self::Destinations
            | Self::Endpoints => &[""],
        };
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    /// The parts of a row's key, and the row, of one partner after a key, in the order of an index.
    const fn list(self) -> &'static str {
        match self {
            Self::Partner => {
                "select array[id], (to_jsonb(t) - 'closed_by')::text from partner t \
                 where id = $1 and id > ($2::text[])[1] order by id limit $3"
            }
            Self::Keys => {
                "select array[id], to_jsonb(t)::text from api_key t \
                 where partner_id = $1 and revoked_at is null and id > ($2::text[])[1] order by id limit $3"
            }
            Self::RevokedKeys => {
                "select array[id], to_jsonb(t)::text from api_key t \
                 where partner_id = $1 and revoked_at is not null and id > ($2::text[])[1] order by id limit $3"
            }
            Self::Instructions => {
                "select array[livemode::text, asset], to_jsonb(t)::text from settlement_instruction t \
                 where partner_id = $1 and (livemode, asset) > (($2::text[])[1]::boolean, ($2::text[])[2]) \
                 order by livemode, asset limit $3"
            }
            Self::Limits => {
                "select array[asset, period], to_jsonb(t)::text from order_limit t \
                 where scope = 'partner' and target = $1 and (asset, period) > (($2::text[])[1], ($2::text[])[2]) \
                 order by asset, period limit $3"
            }
            Self::LimitUse => {
                "select array[asset], to_jsonb(t)::text from limit_usage t \
                 where scope = 'partner' and target = $1 and day = (now() at time zone 'UTC')::date \
                   and asset > ($2::text[])[1] order by asset limit $3"
            }
            Self::Pauses => {
                "select array[scope], to_jsonb(t)::text from pause t \
                 where scope = 'partner' and target = $1 and scope > ($2::text[])[1] order by scope limit $3"
            }
            Self::Beneficiaries => {
                "select array[id], to_jsonb(t)::text from beneficiary t \
                 where partner_id = $1 and id > ($2::text[])[1] order by id limit $3"
            }
            Self::Destinations => {
                "select array[d.id], to_jsonb(d)::text from destination d join beneficiary b on b.id = d.beneficiary_id \
                 where b.partner_id = $1 and d.id > ($2::text[])[1] order by d.id limit $3"
            }
            Self::Endpoints => {
                "select array[e.id], (to_jsonb(e) || jsonb_build_object('failing_since', null, 'noticed_at', null))::text \
                 from webhook_endpoint e join api_key k on k.id = e.key_id \
                 where e.partner_id = $1 and k.revoked_at is null and e.id > ($2::text[])[1] order by e.id limit $3"
            }
            Self::Answers => {
                "select array[livemode::text, method, path, key::text], to_jsonb(t)::text from idempotency t \
                 where partner_id = $1 and (livemode, method, path, key) \
                     > (($2::text[])[1]::boolean, ($2::text[])[2], ($2::text[])[3], ($2::text[])[4]::uuid) \
                 order by livemode, method, path, key limit $3"
            }
            Self::Nonces => {
                "select array[key_id, nonce], to_jsonb(t)::text from request_nonce t \
                 where partner_id = $1 and (key_id, nonce) > (($2::text[])[1], ($2::text[])[2]) \
                 order by key_id, nonce limit $3"
            }
            Self::Deposits => {
                "select array[deposit_id], to_jsonb(t)::text from partner_deposit t \
                 where partner_id = $1 and deposit_id > ($2::text[])[1] order by deposit_id limit $3"
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
            // Processes find new keys by their time.
            Self::Keys => {
                "insert into api_key as t select * from jsonb_populate_recordset(null::api_key, \
                     (select jsonb_agg(one || jsonb_build_object('created_at', clock_timestamp())) \
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
            // another one here, that one stays. What an operator has stopped in either cell stays stopped.
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
                         api_version = excluded.api_version, \
                         is_active = excluded.is_active and t.stopped_by is null, \
                         stopped_by = coalesce(t.stopped_by, excluded.stopped_by), \
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

/// Rows of a partner after a key (`None`: from the first on), as JSON, and the last row's key. They stay text: a number of
/// JSON may be an amount.
pub async fn list_rows(
    conn: &mut PgConnection,
    kind: CopiedRows,
    partner_id: &str,
    after: Option<Vec<String>>,
    limit: i64,
) -> Result<(Vec<String>, Option<Vec<String>>), StoreError> {
    let after = after.unwrap_or_else(|| kind.first());
    let rows: Vec<(Vec<String>, String)> =
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
    insert_arrays(conn, kind.insert(), rows).await
}

/// PostgreSQL refuses an array of JSON above 256 MB.
const ARRAY_BYTES_MAX: usize = 8 << 20;

/// Executes a statement for rows as arrays of JSON, each of a bounded size.
pub(super) async fn insert_arrays(
    conn: &mut PgConnection,
    statement: &'static str,
    mut rows: &[String],
) -> Result<(), StoreError> {
    while !rows.is_empty() {
        let mut bytes = 0_usize;
        let fit = rows.iter().take_while(|row| {
            bytes = bytes.saturating_add(row.len());
            bytes <= ARRAY_BYTES_MAX
        });
        let (array, others) = rows.split_at(fit.count().max(1));
        sqlx::query(statement).bind(format!("[{}]", array.join(","))).execute(&mut *conn).await?;
        rows = others;
    }
    Ok(())
}
