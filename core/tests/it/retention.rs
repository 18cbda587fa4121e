//! Rows that are deleted after their retention, and rows that stay.

use std::time::Duration;

use dvp_core::workflow::retention::{Ages, IDEMPOTENCY_LEAST, round};
use dvp_store::database::retention;
use dvp_store::fix::archive;
use dvp_store::orders::feed;
use dvp_store::partners::registry::nonces::{self, NewNonce};
use sqlx::PgPool;

use crate::scenes;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_past_midnight;

/// Rows of every subject, `age` old, named by `name`.
async fn insert(pool: &PgPool, name: &str, age: Duration) {
    let statements = [
        "insert into idempotency (partner_id, livemode, method, path, key, fingerprint, status, body, accepted_at) \
         values ('ptn_1', false, 'POST', $1, gen_random_uuid(), sha256('x'), 200, '', now() - make_interval(secs => $2))",
        "insert into webhook_idempotency (key_id, operation, idempotency_key, fingerprint, status, sealed_body, accepted_at) \
         values ('key_1', 'x', $1, sha256('x'), 200, '', now() - make_interval(secs => $2))",
        "insert into request_nonce (key_id, nonce, partner_id, expires_at) \
         values ('key_1', $1, 'ptn_1', now() - make_interval(secs => $2))",
        "insert into permit_use (chain_id, owner, nonce, token, amount, reference, locked_at) \
         values (1, $1, 0, '0xaa', 1, 'exe_1', now() - make_interval(secs => $2))",
        "insert into permit_published (chain_id, owner, signed, reference, deadline) \
         values (1, $1, sha256('x'), 'exe_1', extract(epoch from now() - make_interval(secs => $2))::int8)",
        "insert into quote_request (partner_id, livemode, request_id, request, response, created_at) \
         select id, false, $1, '{}', '{}', now() - make_interval(secs => $2) from partner limit 1",
        "insert into firm_quote (quote_id, partner_id, livemode, request_id, terms, valid_until) \
         select $1, id, false, 'r', '{}', now() - make_interval(secs => $2) from partner limit 1",
    ];
    for statement in statements {
        sqlx::query(statement).bind(name).bind(age.as_secs_f64()).execute(pool).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_rails_and_messages_of_the_bank_are_kept_for_their_time() {
    let harness = scenes::harness().await;
    let pool = harness.pool();
    for statement in [
        // Made long ago; begun long ago and repeated lately; made lately.
        "insert into rail_call (reference, leg, call, result, times, first_at, last_at, took_ms) \
         select 'exe_' || n, 'payout', 'query', 'in_progress', 1, now() - make_interval(days => a), \
                now() - make_interval(days => b), 1 from (values (1, 401, 401), (2, 401, 1), (3, 1, 1)) v (n, a, b)",
        "insert into bank_message (execution, digest, said, direction, message, file, at) \
         select 'exe_' || n, sha256(n::text::bytea), 'paid', 'in', 'camt.054.001.08', 'f', \
                now() - make_interval(days => a) from (values (1, 401), (2, 1)) v (n, a)",
        "insert into bank_document (digest, content, kept_at) \
         select digest, file, at from bank_message",
    ] {
        sqlx::query(statement).execute(pool).await.unwrap();
    }
    let done = round(pool, &Ages::default()).await;
    assert_eq!(done.failed, Vec::<&str>::new());
    assert_eq!((done.deleted.get("rail_calls"), done.deleted.get("bank_messages")), (Some(&1), Some(&2)));
    for (left, expected) in [
        ("select string_agg(reference, ' ' order by reference) from rail_call", "exe_2 exe_3"),
        ("select string_agg(execution, ' ') from bank_message", "exe_2"),
        ("select count(*)::text from bank_document", "1"),
    ] {
        let found: String = sqlx::query_scalar(left).fetch_one(pool).await.unwrap();
        assert_eq!(found, expected, "{left}");
    }
}

/// Three nonces of a signer: one final long ago, one final now, one long ago that is not final.
async fn insert_transactions(pool: &PgPool) {
    let account = "insert into relayer_account (chain_id, signer, next_nonce) \
                values (31337, decode(repeat('01', 20), 'hex'), 3)";
    sqlx::query(account).execute(pool).await.unwrap();
    for (nonce, state, age) in [(0_i64, "final", 200), (1, "final", 0), (2, "mined", 200)] {
        let slot = "insert into nonce_slot (chain_id, signer, nonce, state, succeeded, block_number, block_hash) \
                    values (31337, decode(repeat('01', 20), 'hex'), $1, $2, true, 1, sha256('b'))";
        let attempt = "insert into tx_attempt (chain_id, signer, nonce, attempt, hash, sealed, max_fee, priority_fee, created_at) \
                       select 31337, decode(repeat('01', 20), 'hex'), $1, 1, sha256($1::text::bytea), '', 1, 1, \
                              now() - make_interval(days => $2)";
        sqlx::query(slot).bind(nonce).bind(state).execute(pool).await.unwrap();
        sqlx::query(attempt).bind(nonce).bind(age).execute(pool).await.unwrap();
    }
}

async fn names(pool: &PgPool) -> Vec<(&'static str, Vec<String>)> {
    let mut found = Vec::new();
    for (table, statement) in [
        ("idempotency", "select path from idempotency where partner_id = 'ptn_1' order by 1"),
        ("webhook_idempotency", "select idempotency_key from webhook_idempotency order by 1"),
        ("request_nonce", "select nonce from request_nonce order by 1"),
        ("permit_use", "select owner from permit_use where locked_at is not null order by 1"),
        ("permit_published", "select owner from permit_published order by 1"),
        ("quote_request", "select request_id from quote_request order by 1"),
        ("firm_quote", "select quote_id from firm_quote order by 1"),
    ] {
        found.push((table, sqlx::query_scalar(statement).fetch_all(pool).await.unwrap()));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chain_side_keeps_of_old_orders_goes_and_events_of_ours_stay() {
    let harness = scenes::harness().await;
    let workers = harness.start_workers();
    let mut references = Vec::new();
    for account in ["000123456789", "000123456780", "000123456781"] {
        let reference = harness.accept(order(account)).await.reference;
        harness.play_chain(&reference).await;
        harness.wait_for_state(&reference, "completed").await;
        references.push(reference);
    }
    let finality = "select count(*) from execution where state ->> 'finality' is null";
    harness.wait_for_count(finality, 0).await;
    workers.abort();
    let pool = harness.pool();
    let carried = "insert into slot_command (chain_id, signer, nonce, command_id) \
                   select 31337, decode(repeat('01', 20), 'hex'), 0, id from chain_command";
    insert_transactions(pool).await;
    for statement in [
        carried,
        "update chain_command set state = 'done', done_at = now() - interval '91 days', \
                created_at = now() - interval '91 days'",
        "update execution set terminal_at = now() - interval '91 days'",
        "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number) \
         values (31337, 100, sha256('h'), 90, 100)",
        // Of a contract: an anchor of ours, three by strangers, two of them younger; a block that was taken back.
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                entity, seq, fact) \
         select 31337, sha256('b'), 0, 10, now() - interval '91 days', sha256('t'), decode(repeat('ee', 20), 'hex'), \
                'Anchored', content_hash, 1, null from receipt order by reference limit 1",
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                entity, seq) \
         select 31337, sha256('b'), n, 10, now() - make_interval(days => 121 - 30 * n), sha256('t'), \
                decode(repeat('ee', 20), 'hex'), 'Anchored', sha256(n::text::bytea), n + 1 from generate_series(1, 3) n",
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                entity, seq, canonical, observed_at) \
         values (31337, sha256('o'), 1, 11, now(), sha256('t'), decode(repeat('ee', 20), 'hex'), 'Anchored', sha256('x'), \
                 9, false, now() - interval '91 days')",
    ] {
        sqlx::query(statement).execute(pool).await.unwrap();
    }
    // The second order ended lately, and an event of the third one is not applied.
    for (statement, reference) in [
        ("update execution set terminal_at = now() where reference = $1", &references[1]),
        (
            "update chain_fact set consumed_at = null where id = (select min(f.id) from chain_fact f \
             join execution e using (entity) where e.reference = $1)",
            &references[2],
        ),
    ] {
        assert_eq!(sqlx::query(statement).bind(reference).execute(pool).await.unwrap().rows_affected(), 1);
    }
    let done = round(pool, &Ages { transactions: Duration::from_secs(86_400), ..Ages::default() }).await;
    assert_eq!(done.failed, Vec::<&str>::new());
    let kept = "select distinct reference from chain_command order by 1";
    let kept: Vec<String> = sqlx::query_scalar(kept).fetch_all(pool).await.unwrap();
    let mut expected = references[1..].to_vec();
    expected.sort();
    assert_eq!(kept, expected, "{done:?}");
    let lone = "select count(*) from slot_command s where not exists (select from chain_command c where c.id = s.command_id)";
    assert_eq!(harness.count(lone).await, 0);
    let facts = "select count(distinct e.reference) from execution e join chain_fact f using (entity)";
    assert_eq!(harness.count(facts).await, 2);
    // Of the strangers' three the first is old enough; the newest event of a contract would stay at any age.
    assert_eq!(done.deleted.get("chain_strangers"), Some(&1), "{done:?}");
    assert_eq!(harness.count("select events from chain_deleted").await, 1);
    assert_eq!(done.deleted.get("chain_orphans"), Some(&1), "{done:?}");
    assert_eq!(harness.count("select count(*) from chain_log where canonical").await, 3);
    let again = round(pool, &Ages::default()).await;
    assert!(again.deleted.keys().all(|subject| !subject.starts_with("chain_")), "{again:?}");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_rows_are_deleted_and_younger_ones_and_orders_stay() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    let pool = harness.pool();
    let day = IDEMPOTENCY_LEAST;
    let ages = Ages { idempotency: day, quotes: day, ..Ages::default() };
    insert(pool, "old", day + Duration::from_secs(60)).await;
    insert(pool, "young", Duration::ZERO).await;
    insert_transactions(pool).await;
    let done = round(pool, &ages).await;
    assert_eq!(done.failed, Vec::<&str>::new());
    assert_eq!(done.deleted.get("transactions"), Some(&1), "{done:?}");
    assert_eq!(harness.count("select count(*) from tx_attempt").await, 2);
    let young = vec!["young".to_owned()];
    for (table, left) in names(pool).await {
        assert_eq!(left, young, "{table}");
    }
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    assert_eq!(harness.count("select count(*) from intent").await, 1);
    assert_eq!(harness.count("select count(*) from permit_use where locked_at is null").await, 1);
    assert_eq!(harness.events(&reference).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rows_than_one_statement_takes_are_deleted_in_one_round() {
    let harness = scenes::harness().await;
    let sql = "insert into request_nonce (key_id, nonce, partner_id, expires_at) \
         select 'key_1', n::text, 'ptn_1', now() - interval '1 day' from generate_series(1, 2500) n";
    harness.run(sql).await;
    round(harness.pool(), &Ages::default()).await;
    assert_eq!(harness.count("select count(*) from request_nonce").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_accepted_while_retention_holds_its_locks() {
    let harness = scenes::harness().await;
    let pool = harness.pool();
    let old = Duration::from_secs(40 * 86_400);
    insert(pool, "old", old).await;
    let ages = Ages::default();
    let mut batch = pool.begin().await.unwrap();
    // Each statement of a round on a table that order entry writes, before its commit.
    assert!(retention::delete(&mut batch, retention::IDEMPOTENCY, ages.idempotency, 1000).await.unwrap() > 0);
    assert!(retention::delete(&mut batch, retention::NONCES, retention::OUTDATED, 1000).await.unwrap() > 0);
    assert!(retention::delete(&mut batch, retention::QUOTE_REQUESTS, ages.quotes, 1000).await.unwrap() > 0);
    assert!(retention::delete(&mut batch, retention::FIRM_QUOTES, ages.quotes, 1000).await.unwrap() > 0);
    feed::trim(&mut batch, 1000).await.unwrap();
    retention::delete(&mut batch, retention::FIX_MESSAGES, ages.fix_messages, 1000).await.unwrap();
    // The writer cancels a statement that waits for a lock for two seconds, so acceptance proves that it waited for
    // none.
    let reference = harness.accept(order("000123456789")).await.reference;
    assert_eq!(harness.events(&reference).await.len(), 1);
    batch.commit().await.unwrap();
    assert_eq!(harness.events(&reference).await.len(), 1);
    assert_eq!(round(pool, &ages).await.failed, Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_is_kept_while_its_timestamp_is_accepted_and_used_once() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let expires_at = chrono::Utc::now() + chrono::TimeDelta::seconds(600);
    let nonce =
        NewNonce { key_id: "key_1".into(), partner_id: "ptn_1".into(), nonce: "n".into(), expires_at };
    assert!(nonces::insert(&mut conn, &nonce).await.unwrap());
    round(harness.pool(), &Ages::default()).await;
    assert!(!nonces::insert(&mut conn, &nonce).await.unwrap());
    assert!(nonces::insert(&mut conn, &NewNonce { key_id: "key_2".into(), ..nonce }).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn days_of_the_fix_archive_are_dropped_when_all_of_them_is_expired() {
    wait_past_midnight().await;
    let harness = scenes::harness().await;
    let pool = harness.pool();
    let mut conn = pool.acquire().await.unwrap();
    let age = Duration::from_secs(3 * 86_400);
    let today = chrono::Utc::now().date_naive();
    for days in [0, 1, 3, 5, 40] {
        let day = today - chrono::Days::new(days);
        archive::create_day(&mut conn, day).await.unwrap();
        // Once more changes nothing.
        archive::create_day(&mut conn, day).await.unwrap();
        let at = (day + chrono::Days::new(1)).and_hms_opt(0, 0, 0).unwrap().and_utc()
            - chrono::TimeDelta::seconds(1);
        let message = archive::NewMessage {
            session_id: "acme".into(),
            at,
            is_outbound: false,
            seq: Some(days),
            msg_type: "0".into(),
            cl_ord_id: None,
            orig_cl_ord_id: None,
            content: String::new(),
        };
        archive::insert_messages(&mut conn, &[message]).await.unwrap();
    }
    let done = round(pool, &Ages { fix_archive: age, ..Ages::default() }).await;
    assert_eq!((done.failed, done.deleted.get("fix_archive")), (Vec::<&str>::new(), Some(&2)));
    let left: Vec<i64> =
        sqlx::query_scalar("select seq from fix_message order by seq").fetch_all(pool).await.unwrap();
    assert_eq!(left, [0, 1, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_creates_the_days_to_come_of_the_webhook_log_and_reports_when_it_cannot() {
    let harness = scenes::harness().await;
    let pool = harness.pool();
    for statement in [
        // Somebody has detached today.
        "select create_day_partition('webhook_delivery_log', (now() at time zone 'UTC')::date, 'endpoint_id, id')",
        "do $$ begin execute format('alter table webhook_delivery_log detach partition %I', \
             'webhook_delivery_log_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')); end $$",
    ] {
        sqlx::query(statement).execute(pool).await.unwrap();
    }
    let ages = Ages::default();
    assert_eq!(round(pool, &ages).await.failed, ["partitions"]);
    let remove = "do $$ begin execute format('drop table %I', \
                      'webhook_delivery_log_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')); end $$";
    sqlx::query(remove).execute(pool).await.unwrap();
    let set_aside = "select count(*) from set_aside where next_attempt_at > clock_timestamp()";
    harness.wait_for_count(set_aside, 0).await;
    for _ in 0..2 {
        assert_eq!(round(pool, &ages).await.failed, Vec::<&str>::new());
        for log in ["webhook_delivery_log", "webhook_attempt_log"] {
            // The database may have been made on an earlier day, which it has as well.
            let days: Vec<i32> = sqlx::query_scalar(
                "select (begins_at at time zone 'UTC')::date - (now() at time zone 'UTC')::date \
                 from partition_days($1) where ends_at = begins_at + interval '1 day' and ends_at > now() order by 1",
            )
            .bind(log)
            .fetch_all(pool)
            .await
            .unwrap();
            assert_eq!(days, (0..=7).collect::<Vec<_>>(), "{log}");
        }
    }
}
