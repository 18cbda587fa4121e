//! The intents that a partner has ever used: their keys are compared by pages, and those that the other cell does not have
//! are copied.
//!
//! A page has a count and a digest, which the target makes of as many of its own rows after the same key. So a page that is the
//! same in both costs each of them a page of one index, and nothing depends on when a row was written.

use sqlx::PgConnection;

use super::rows::insert_arrays;
use crate::StoreError;

/// The key of an intent among those of its partner. The default is before all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct IntentKey {
    pub livemode: bool,
    pub intent_id: String,
}

/// A page of the keys of a partner's intents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentPage {
    /// The page begins after this key.
    pub after: IntentKey,
    pub last: IntentKey,
    count: i64,
    digest: String,
    seed: i64,
}

/// A random seed of digests, so that nobody can choose ids with equal digests.
pub async fn draw_seed(conn: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar("select hashtextextended(gen_random_uuid()::text, 0)").fetch_one(conn).await?)
}

/// The page after a key; `None`: there is none.
pub async fn find_intent_page(
    conn: &mut PgConnection,
    partner_id: &str,
    after: IntentKey,
    seed: i64,
    limit: i64,
) -> Result<Option<IntentPage>, StoreError> {
    let row: Option<(i64, String, bool, String)> = sqlx::query_as(
        "with page as materialized ( \
             select livemode, intent_id from intent \
             where partner_id = $1 and (livemode, intent_id) > ($2, $3) order by livemode, intent_id limit $4) \
         select (select count(*) from page), \
                (select sum(hashtextextended(livemode::text || intent_id, $5))::text from page), livemode, intent_id \
         from page order by livemode desc, intent_id desc limit 1",
    )
    .bind(partner_id)
    .bind(after.livemode)
    .bind(&after.intent_id)
    .bind(limit)
    .bind(seed)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|(count, digest, livemode, intent_id)| {
        let last = IntentKey { livemode, intent_id };
        IntentPage { after, last, count, digest, seed }
    }))
}

/// Whether this database has exactly the intents of the page in its range. If not, they are compared one
/// by one, since it may have all of them and others, too.
pub async fn has_intent_page(
    conn: &mut PgConnection,
    partner_id: &str,
    page: &IntentPage,
) -> Result<bool, StoreError> {
    // An upper bound that compares rows would not end the scan of the index, so the page is bounded by its count.
    let (count, digest): (i64, Option<String>) = sqlx::query_as(
        "select count(*), sum(hashtextextended(livemode::text || intent_id, $5))::text from ( \
             select livemode, intent_id from intent \
             where partner_id = $1 and (livemode, intent_id) > ($2, $3) order by livemode, intent_id limit $4) page",
    )
    .bind(partner_id)
    .bind(page.after.livemode)
    .bind(&page.after.intent_id)
    .bind(page.count)
    .bind(page.seed)
    .fetch_one(conn)
    .await?;
    Ok(count == page.count && digest.as_deref() == Some(page.digest.as_str()))
}

/// The keys that follow a page's beginning, as many as it has: with those that were added to it since, they end earlier.
pub async fn list_intent_keys(
    conn: &mut PgConnection,
    partner_id: &str,
    page: &IntentPage,
) -> Result<Vec<IntentKey>, StoreError> {
    let rows = sqlx::query_as(
        "select livemode, intent_id from intent \
         where partner_id = $1 and (livemode, intent_id) > ($2, $3) order by livemode, intent_id limit $4",
    );
    let rows = rows.bind(partner_id).bind(page.after.livemode).bind(&page.after.intent_id);
    Ok(rows.bind(page.count).fetch_all(conn).await?)
}

fn columns(keys: &[IntentKey]) -> (Vec<bool>, Vec<&str>) {
    keys.iter().map(|key| (key.livemode, key.intent_id.as_str())).unzip()
}

/// Those of these intents that this database does not have.
pub async fn list_missing_intents(
    conn: &mut PgConnection,
    partner_id: &str,
    keys: &[IntentKey],
) -> Result<Vec<IntentKey>, StoreError> {
    let (modes, ids) = columns(keys);
    let rows = sqlx::query_as(
        "select livemode, intent_id from unnest($2::boolean[], $3::text[]) given (livemode, intent_id) \
         where not exists (select from intent i where i.partner_id = $1 and i.livemode = given.livemode \
                               and i.intent_id = given.intent_id offset 0)",
    );
    Ok(rows.bind(partner_id).bind(modes).bind(ids).fetch_all(conn).await?)
}

/// These intents as JSON. The personal data of rejected ones stays behind.
pub async fn list_intents(
    conn: &mut PgConnection,
    partner_id: &str,
    keys: &[IntentKey],
) -> Result<Vec<String>, StoreError> {
    let (modes, ids) = columns(keys);
    let rows = sqlx::query_scalar(
        "select (to_jsonb(t) || jsonb_build_object('copied_at', now()) || case when reference is null \
                 then jsonb_build_object('request', '{}'::jsonb, 'personal_erased_at', now()) else '{}' end)::text \
         from unnest($2::boolean[], $3::text[]) given (livemode, intent_id) cross join lateral ( \
             select * from intent i where i.partner_id = $1 and i.livemode = given.livemode \
                                      and i.intent_id = given.intent_id limit 1) t",
    );
    Ok(rows.bind(partner_id).bind(modes).bind(ids).fetch_all(conn).await?)
}

/// Inserts copied intents. A client reference that was erased in one cell, and used again, stays with the order that has it
/// here.
pub async fn insert_intents(conn: &mut PgConnection, rows: &[String]) -> Result<(), StoreError> {
    let statement = "insert into intent select i.* from jsonb_array_elements($1::jsonb) one cross join lateral \
             jsonb_populate_record(null::intent, one || case \
                 when exists (select from intent u where u.partner_id = one ->> 'partner_id' \
                                  and u.livemode = (one ->> 'livemode')::boolean \
                                  and u.client_reference = one ->> 'client_reference' and u.reference is not null \
                                  and one ->> 'reference' is not null and u.intent_id <> one ->> 'intent_id' offset 0) \
                 then '{\"client_reference\": null}'::jsonb else '{}' end) i \
         on conflict do nothing";
    insert_arrays(conn, statement, rows).await
}
