//! Personal data is erased from what has ended, wherever it is stored, and the books stay.

use dvp_core::engine::ReceiptLookup;
use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::personal_data::{AGE_LEAST, Erasure, ErasureError, erase_order, request};
use dvp_core::operators::requests::Maker;
use dvp_core::workflow::audit::{AuditError, verify};
use dvp_core::workflow::retention::{Ages, round};
use dvp_domain::beneficiary::BeneficiaryAddress;
use dvp_domain::intent::IntentRequest;
use dvp_domain::receipt;
use dvp_store::orders::executions::RefType;
use dvp_store::partners::beneficiaries::{NewBeneficiary, disable_destination, insert_beneficiary};
use dvp_testing::Harness;
use dvp_testing::orders::order;
use serde_json::{Value, json};

use crate::scenes;

const NAME: &str = "Wilhelmina Featherstone";
const ACCOUNT: &str = "000777666555";
const STREET: &str = "17 Quillon Crescent";
/// What no column may have afterwards, in lower case.
pub(crate) const TRACES: [&str; 7] = [
    "featherstone",
    ACCOUNT,
    "quillon",
    "w********* f",
    "\"6555\"",
    "passport p-4711",
    "aunt of the treasurer",
];
const MAKER: Maker<'_> = Maker { operator: "jo", reason: "asked by mail", evidence: "ticket 17" };

pub(crate) fn personal(reference: &str) -> IntentRequest {
    let mut request = order(ACCOUNT);
    request.client_reference = Some(reference.to_owned());
    let beneficiary = request.beneficiary.as_mut().unwrap();
    beneficiary.name = Some(NAME.into());
    let line = |text: &str| text.to_owned();
    beneficiary.address = Some(BeneficiaryAddress {
        line1: line(STREET),
        city: line("Sutton"),
        state: line("NY"),
        postal_code: line("10001"),
    });
    beneficiary.travel_rule_data = json!({"document": "passport P-4711"}).as_object().cloned();
    request.metadata = json!({"note": "aunt of the treasurer"}).as_object().cloned();
    request
}

async fn completed(harness: &Harness, reference: &str) -> String {
    let accepted = harness.accept(personal(reference)).await;
    complete(harness, &accepted.reference).await;
    accepted.reference
}

/// Settles an order of tokens to its end.
pub(crate) async fn complete(harness: &Harness, reference: &str) {
    harness.play_chain(reference).await;
    harness.wait_for_state(reference, "completed").await;
    // As the indexer does with the anchor's event; before it, the order has not ended.
    let finality =
        "select count(*) from execution where state_name = 'completed' and state ->> 'finality' is null";
    harness.wait_for_count(finality, 0).await;
    run(harness, "update chain_command set state = 'done', done_at = now() where reference = $1", reference)
        .await;
}

async fn run(harness: &Harness, statement: &'static str, reference: &str) {
    harness.run_of(statement, reference).await;
}

/// What operators, the bank, a FIX session and a receiver of webhooks add to an order, each with the name or the account.
async fn surround(harness: &Harness, reference: &str) {
    for statement in [
        "insert into operator_action (reference, action, operator, reason, evidence, version) \
         values ($1, 'note', 'jo', 'Wilhelmina Featherstone called', '{\"from\": \"000777666555\"}', 1)",
        "insert into approval (id, kind, subject, action, details, version, maker, reason, evidence, expires_at) \
         values ('apr_' || $1, 'execution', $1, 'fail', '{\"message\": \"FEATHERSTONE\"}', 1, 'jo', \
                 'wilhelmina featherstone', 'call of 000777666555', now())",
        "update approval set state = 'approved', checker = 'kim', decided_at = now(), \
                note = 'Wilhelmina Featherstone agrees' where id = 'apr_' || $1",
        "insert into idempotency (partner_id, livemode, method, path, key, fingerprint, status, body, accepted_at) \
         select partner_id, livemode, 'POST', '/v1/intents', gen_random_uuid(), sha256('x'), 200, \
                '{\"executionId\": \"' || $1 || '\", \"beneficiaryAccount\": \"000777666555\"}', accepted_at \
         from execution where reference = $1",
        "insert into screening (reference, verdict, source, detail) values ($1, 'hold', 'list', 'FEATHERSTONE, W')",
        "insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, currency, exponent, \
                                   status, staged_file, payee_name, reason_text) \
         values ('e' || $1, $1, $1, 'm' || $1, 'b' || $1, 1, 'USD', 2, 'paid', 'f', 'Featherstone Wilhelmina', 'to Wilhelmina  Featherstone, 000777666555')",
        "insert into bank_message (execution, digest, said, direction, message, file) \
         values ($1, sha256(convert_to($1, 'UTF8')), 'payment ordered', 'out', 'pain.001.001.09', 'f.xml')",
        "insert into bank_document (digest, content) \
         values (sha256(convert_to($1, 'UTF8')), '<Nm>Wilhelmina Featherstone</Nm>' || $1)",
        "with s as (insert into bank_statement (account, currency, statement, page, begins_at, ends_at, opening, closing, \
                                                content, file) \
                    values ('ours', 'USD', $1, 1, now(), now(), 0, 0, sha256('x'), sha256('y')) returning id) \
         insert into bank_entry (statement, line, account, currency, amount, booked_at, refs, subject, paired_at) \
         select id, 1, 'ours', 'USD', -1, now(), array['WILHELMINA FEATHERSTONE', '000777666555'], $1, now() from s",
        "insert into webhook_delivery_log (id, endpoint_id, partner_id, event_id, type, origin, state, ended_at, body_prefix) \
         select position, 'we_1', partner_id, event_id, type, 'feed', 'delivered', now(), 'hi Wilhelmina Featherstone' \
         from event where reference = $1 and sequence = 1",
        "insert into webhook_attempt_log (delivery_id, number, at, latency_ms, body_prefix) \
         select position, 1, now(), 1, 'who is Wilhelmina Featherstone' from event where reference = $1 and sequence = 1",
    ] {
        run(harness, statement, reference).await;
    }
    // Written by hand with two spaces; the words of the order have one.
    run(
        harness,
        "update bank_payment set reason_text = replace(reason_text, '  ', ' ') where execution = $1",
        reference,
    )
    .await;
}

pub(crate) async fn of_session(harness: &Harness, reference: &str) {
    for statement in [
        "insert into fix_session (session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, username, \
                                  password_hash, password_key, next_out) \
         select 'S1', partner_id, livemode, 'FIX.4.4', 'C', 'S', 'u', sha256('x'), '1', 5 from execution where reference = $1",
        "insert into fix_order (session_id, cl_ord_id, reference, intent_id, details) \
         select 'S1', 'c1', $1, intent_id, '{\"kind\": \"order\", \"account\": \"000777666555\"}' from execution \
         where reference = $1",
        "insert into fix_outbound (session_id, seq, msg_type, body, sending_time) \
         select 'S1', n, '8', convert_to('37=' || $1 || E'\\x01' || '1=000777666555' || E'\\x01', 'UTF8'), 1 \
         from generate_series(1, 4) n",
    ] {
        run(harness, statement, reference).await;
    }
}

/// The columns of the whole database that contain one of the words, however they are typed.
pub(crate) async fn columns_with(harness: &Harness, words: &[&str]) -> Vec<String> {
    let sql = "select c.table_name::text, c.column_name::text, c.data_type::text from information_schema.columns c \
         join information_schema.tables t using (table_schema, table_name) \
         where c.table_schema = 'public' and t.table_type = 'BASE TABLE' \
           and c.data_type in ('text', 'json', 'jsonb', 'bytea', 'ARRAY', 'character varying', 'tsvector')";
    let columns: Vec<(String, String, String)> = harness.rows(sql).await;
    assert!(columns.len() > 200, "{} columns", columns.len());
    let mut found = Vec::new();
    for (table, column, kind) in columns {
        let text = match kind.as_str() {
            "bytea" => format!("encode(\"{column}\", 'escape')"),
            _ => format!("\"{column}\"::text"),
        };
        for word in words {
            let statement =
                format!("select count(*) from \"{table}\" where position($1 in lower({text})) > 0");
            let (count,): (i64,) = harness.row_of(sqlx::AssertSqlSafe(statement), word).await;
            if count > 0 {
                found.push(format!("{table}.{column}: {word}"));
            }
        }
    }
    found
}

async fn books(harness: &Harness) -> Vec<String> {
    sqlx::query_scalar(
        "select l::text from (select reference, step, line, owner_kind, owner, part, asset, amount from ledger_entry) l \
         order by 1",
    )
    .fetch_all(harness.pool())
    .await
    .unwrap()
}

pub(crate) async fn erase(harness: &Harness, erasure: &Erasure) -> Result<(), ApprovalError> {
    let mut conn = harness.pool().acquire().await.unwrap();
    let requested = request(&mut conn, erasure, MAKER).await?;
    assert!(!requested.repeated);
    assert!(request(&mut conn, erasure, MAKER).await?.repeated);
    let own = approve(&mut conn, &requested.approval.id, "Jo", "").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)));
    approve(&mut conn, &requested.approval.id, "kim", "").await.map(|_| ())
}

pub(crate) fn of_order(reference: &str, client_reference: bool) -> Erasure {
    Erasure::Order { reference: reference.to_owned(), client_reference }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_erased_by_two_operators_from_every_column_and_the_books_stay() {
    let harness = scenes::harness().await;
    let workers = harness.start_workers();
    let reference = completed(&harness, "for the aunt of the treasurer").await;
    surround(&harness, &reference).await;
    let before = columns_with(&harness, &TRACES).await;
    assert!(before.len() > 15, "the search finds what is there: {before:#?}");
    let books_before = books(&harness).await;

    erase(&harness, &of_order(&reference, true)).await.unwrap();
    assert_eq!(columns_with(&harness, &TRACES).await, Vec::<String>::new());
    assert_eq!(books(&harness).await, books_before);
    harness.check_books().await;

    // The receipt says what is missing, and names the hash that was anchored.
    let found = harness.engine.receipt(&harness.tenant, RefType::ExecutionId, &reference).await.unwrap();
    let ReceiptLookup::Found(body) = found else { panic!("{found:?}") };
    let anchored: Vec<u8> =
        sqlx::query_scalar("select content_hash from receipt").fetch_one(harness.pool()).await.unwrap();
    assert_eq!(receipt::anchored_hash(&body), format!("0x{}", hex::encode(anchored)));
    assert_eq!(body["erased"]["fields"], json!(["clientReference"]));
    assert_eq!(receipt::check(&body), Ok(()), "the amounts still add up");
    let mut put_back = body.clone();
    put_back["clientReference"] = json!("for the aunt of the treasurer");
    assert_eq!(put_back["_schemaVersion"], receipt::ERASED_VERSION);
    put_back["_schemaVersion"] = json!(receipt::SCHEMA_VERSION);
    put_back.as_object_mut().unwrap().remove("erased");
    assert_eq!(receipt::hash(&put_back), receipt::anchored_hash(&body));

    for change in [
        "update receipt set remainder = '{}'",
        "update receipt set body = '{}', remainder = null",
        "update receipt set content_hash = sha256('x')",
        "delete from receipt",
        "truncate receipt",
    ] {
        let refused = sqlx::query(change).execute(harness.pool()).await.unwrap_err().to_string();
        assert!(refused.contains("never changed"), "{change}: {refused}");
    }

    let status = harness.engine.execution(&harness.tenant, RefType::ExecutionId, &reference).await.unwrap();
    let status = serde_json::to_value(status.unwrap()).unwrap();
    assert_eq!((&status["status"], &status["clientReference"]), (&json!("completed"), &Value::Null));

    let again = erase(&harness, &of_order(&reference, true)).await.unwrap_err();
    assert!(matches!(again, ApprovalError::Erasure(ErasureError::Erased(_))), "{again}");
    workers.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_of_an_erased_order_is_verified_and_an_unexplained_erasure_is_found() {
    let harness = scenes::harness().await;
    let workers = harness.start_workers();
    let reference = completed(&harness, "ref-1").await;
    surround(&harness, &reference).await;
    erase(&harness, &of_order(&reference, false)).await.unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let verified = verify(&mut conn).await.unwrap();
    assert_eq!(verified.erased, 3, "an action, a request and its approval");
    for statement in [
        "update audit_entry set entry = 'x', erased_at = now() where seq = 1",
        "update screening set verdict = 'pass'",
        "update operator_action set operator = 'mo'",
        "update approval set checker = 'mo' where kind = 'execution'",
        "delete from audit_erasure",
    ] {
        let refused = sqlx::query(statement).execute(&mut *conn).await;
        assert!(refused.is_err(), "{statement}");
    }
    let mut tx = harness.pool().begin().await.unwrap();
    sqlx::query("set local session_replication_role = replica").execute(&mut *tx).await.unwrap();
    sqlx::query("update audit_entry set entry = '{}', erased_at = now() where seq = 2")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert!(matches!(verify(&mut conn).await, Err(AuditError::Changed(2))));
    workers.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_ended_is_not_erased() {
    let harness = scenes::harness().await;
    let workers = harness.start_workers();
    let open = harness.accept(personal("open")).await.reference;
    let refused = erase(&harness, &of_order(&open, false)).await.unwrap_err();
    assert!(matches!(refused, ApprovalError::Erasure(ErasureError::Unended { .. })), "{refused}");

    let reference = completed(&harness, "ended").await;
    surround(&harness, &reference).await;
    for (begins, ends) in [
        (
            "update bank_payment set contradicting = 'refused' where execution = $1",
            "update bank_payment set closed_at = now() where execution = $1",
        ),
        (
            "insert into effect (reference, kind, run_at) values ($1, 'reversal', now() + interval '1 day')",
            "delete from effect where reference = $1",
        ),
        (
            "insert into bank_recall (id, end_to_end_id, execution, reason, status) \
             values ('rcl_1', 'e' || $1, $1, 'DUPL', 'approved')",
            "update bank_recall set closed_at = now() where execution = $1",
        ),
    ] {
        run(&harness, begins, &reference).await;
        let refused = erase(&harness, &of_order(&reference, false)).await.unwrap_err();
        assert!(
            matches!(refused, ApprovalError::Erasure(ErasureError::Unended { .. })),
            "{begins}: {refused}"
        );
        run(&harness, ends, &reference).await;
    }
    let told = Maker { reason: "Wilhelmina FEATHERSTONE asks", ..MAKER };
    let mut conn = harness.pool().acquire().await.unwrap();
    let refused = request(&mut conn, &of_order(&reference, false), told).await;
    assert!(matches!(refused, Err(ErasureError::Repeated)), "{refused:?}");
    drop(conn);
    erase(&harness, &of_order(&reference, false)).await.unwrap();
    workers.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn old_orders_are_erased_by_age_whole_or_not_at_all_and_once() {
    let harness = scenes::harness().await;
    let workers = harness.start_workers();
    let old = completed(&harness, "old").await;
    surround(&harness, &old).await;
    of_session(&harness, &old).await;
    run(
        &harness,
        "update execution set terminal_at = now() - interval '401 days' where reference = $1",
        &old,
    )
    .await;
    run(
        &harness,
        "insert into intent (partner_id, livemode, intent_id, reason, request, created_at) \
         select partner_id, livemode, 'refused', 'no_liquidity', terms::jsonb -> 'request', now() - interval '401 days' \
         from execution where reference = $1",
        &old,
    )
    .await;
    let young = completed(&harness, "young").await;

    // A process that dies has erased nothing.
    let mut tx = harness.pool().begin().await.unwrap();
    assert!(erase_order(&mut tx, &old, false).await.unwrap());
    tx.rollback().await.unwrap();
    let erased = "select count(*) from execution where personal_erased_at is not null";
    assert_eq!(harness.count(erased).await, 0);

    let kept = round(harness.pool(), &Ages::default()).await;
    assert_eq!(
        (kept.failed, kept.deleted.get("personal_data")),
        (Vec::new(), None),
        "nothing without the setting"
    );
    let ages = Ages { personal_data: Some(AGE_LEAST), ..Ages::default() };
    let done = round(harness.pool(), &ages).await;
    assert_eq!((&done.failed, done.deleted.get("personal_data")), (&Vec::new(), Some(&2)));
    assert_eq!(harness.count(erased).await, 1);
    let again = round(harness.pool(), &ages).await;
    assert_eq!((again.deleted.get("personal_data"), again.deleted.get("fix_accounts")), (None, None));
    assert_eq!(harness.count("select count(*) from fix_erasure").await, 0);
    let bodies = "select count(*) from fix_outbound where position('1=************'::bytea in body) > 0";
    assert_eq!(harness.count(bodies).await, 4, "also what the peer has not received");

    let left = columns_with(&harness, &TRACES).await;
    assert!(!left.is_empty(), "the young order keeps its data");
    erase(&harness, &of_order(&young, false)).await.unwrap();
    assert_eq!(columns_with(&harness, &TRACES).await, Vec::<String>::new());
    harness.check_books().await;
    workers.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_beneficiary_is_erased_with_its_audit_entries() {
    let harness = scenes::harness().await;
    let partner_id = harness.tenant.partner_id.clone();
    let mut conn = harness.pool().acquire().await.unwrap();
    let address = BeneficiaryAddress { line1: STREET.into(), ..BeneficiaryAddress::default() };
    let new = NewBeneficiary {
        id: "bene_1",
        partner_id: &partner_id,
        name: NAME,
        country: "US",
        address: Some(&address),
        operator: "jo",
    };
    insert_beneficiary(&mut conn, &new).await.unwrap();
    scenes::enter_destination(&mut conn, "dest_1", ACCOUNT).await;
    let erasure = Erasure::Beneficiary { id: "bene_1".into() };
    let refused = erase(&harness, &erasure).await.unwrap_err();
    assert!(matches!(refused, ApprovalError::Erasure(ErasureError::Unended { .. })), "{refused}");
    let why = "Wilhelmina Featherstone moved";
    assert!(disable_destination(&mut conn, "dest_1", "kim", why).await.unwrap());
    let traces = &TRACES[..3];
    assert!(columns_with(&harness, traces).await.len() > 4);
    erase(&harness, &erasure).await.unwrap();
    assert_eq!(columns_with(&harness, traces).await, Vec::<String>::new());
    assert_eq!(verify(&mut conn).await.unwrap().erased, 3);
    let unknown = erase(&harness, &of_order("exe_none", false)).await.unwrap_err();
    assert!(matches!(unknown, ApprovalError::Erasure(ErasureError::Unknown(_))), "{unknown}");
}
