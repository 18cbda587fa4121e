//! The rows of a partner that a move copies, and how the target takes them.

use sqlx::PgConnection;

use crate::StoreError;

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
