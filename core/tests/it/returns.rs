//! A partner comes back to a cell that it has left: what either cell did meanwhile counts in both.

use dvp_core::keys;
use dvp_core::legacy::{Strategy, turns};
use dvp_core::moves::MoveError;
use dvp_core::secrets::Vault;
use dvp_core::webhooks::{Addressed, Command, CommandOutcome, Owner, carry_out, disable};
use dvp_core::writer::{Outcome, Refusal, UsedKey};
use dvp_domain::environment::Environment;
use dvp_domain::intent::IntentRequest;
use dvp_domain::money::Minor;
use dvp_domain::pause::Scope;
use dvp_store::PgConnection;
use dvp_store::beneficiaries::{NewBeneficiary, disable_destination, insert_beneficiary, verify_destination};
use dvp_store::ledger::{Deposited, balances};
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::intents::Tenant;
use dvp_store::pauses::{self, Decided};
use dvp_store::{moves, partners, webhooks};
use dvp_testing::Harness;
use dvp_testing::orders::order;

use crate::moves::{Cells, SHARED, cell, decide, ended_anywhere, key_of, run_between};
use crate::older::keep_for;
use crate::scenes::{enter_destination, fix_session};

const ACCOUNT: &str = "000123456789";
const BY: Decided<'_> = Decided { operator: "jo", reason: "to be sure" };

/// A partner that has moved, before it comes back.
async fn moved(cells: Cells) -> Cells {
    cells.decide().await;
    cells.run().await.unwrap();
    cells.back()
}

async fn texts(at: &Harness, statement: &'static str) -> Vec<String> {
    sqlx::query_scalar(statement).fetch_all(at.pool()).await.unwrap()
}

async fn enter_endpoint(conn: &mut PgConnection, cells: &Cells, [id, key, url]: [&str; 3]) {
    let new = webhooks::NewEndpoint {
        id: id.to_owned(),
        key_id: key.to_owned(),
        tenant: cells.tenant.clone(),
        url: url.to_owned(),
        subscribed_types: vec!["*".to_owned()],
        api_version: "2026-01-01",
        sealed_secret: cells.vaults[0].seal(id, b"secret of the hook").unwrap(),
    };
    webhooks::insert(conn, &new).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_ended_anywhere_is_continued_and_never_are_both_cells_open() {
    let cells = moved(Cells::new().await).await;
    ended_anywhere(&cells).await;
    // And away again.
    ended_anywhere(&cells.back()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_up_in_either_cell_is_used_up_after_a_return() {
    let cells = Cells::new().await;
    let mut tx = cells.source.pool().begin().await.unwrap();
    let deposit = async |conn: &mut PgConnection, id: &str, amount: u128| {
        balances::deposit(conn, id, &cells.owner(), "USD", Minor::new(amount)).await.unwrap()
    };
    assert_eq!(deposit(&mut tx, "wire-1", 500).await, Deposited::Posted);
    tx.commit().await.unwrap();
    let cells = moved(cells).await;
    let (key, there) = (uuid::Uuid::new_v4(), order(ACCOUNT));
    let part = key_of(&cells.tenant, key);
    let accepted = cells.submit(&cells.source, there.clone(), Some(part.clone())).await;
    assert!(matches!(accepted, Outcome::Accepted(_)), "{accepted:?}");
    let deposit = async |at: &Harness, id: &str, amount: u128| {
        let mut tx = at.pool().begin().await.unwrap();
        let noted = balances::deposit(&mut tx, id, &cells.owner(), "USD", Minor::new(amount)).await.unwrap();
        tx.commit().await.unwrap();
        noted
    };
    assert_eq!(deposit(&cells.source, "wire-1", 500).await, Deposited::Repeated, "posted before the move");
    assert_eq!(deposit(&cells.source, "wire-1", 501).await, Deposited::Conflict);
    assert_eq!(deposit(&cells.source, "wire-2", 40).await, Deposited::Posted);

    cells.decide().await;
    let progress = cells.run().await.unwrap();
    assert_eq!((progress.source.as_str(), progress.target.as_str()), ("00b", "00a"));
    assert_eq!((progress.source_state.as_str(), progress.target_state.as_deref()), ("moved", Some("open")));
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
    let again = cells.submit(&cells.target, there.clone(), Some(part)).await;
    assert!(matches!(again, Outcome::KeyUsed(UsedKey::Replayed(_))), "{again:?}");
    let other = key_of(&cells.tenant, uuid::Uuid::new_v4());
    let duplicate = cells.submit(&cells.target, there, Some(other)).await;
    assert!(matches!(duplicate, Outcome::Refused(Refusal::DuplicateIntent)), "{duplicate:?}");
    assert!(cells.intents(&cells.source).await.is_subset(&cells.intents(&cells.target).await));
    for (id, amount) in [("wire-1", 500), ("wire-2", 40)] {
        assert_eq!(deposit(&cells.target, id, amount).await, Deposited::Repeated, "{id}");
    }
    assert_eq!(deposit(&cells.source, "wire-3", 7).await, Deposited::Closed);
    assert_eq!(deposit(&cells.target, "wire-3", 7).await, Deposited::Posted);
    let mut conn = cells.target.pool().acquire().await.unwrap();
    let held = balances::find(&mut conn, &cells.owner(), "USD").await.unwrap();
    assert_eq!(held.available.get(), 507, "what was left here, and the new deposit");
    for at in [&cells.source, &cells.target] {
        at.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_comes_back_to_a_cell_that_has_executed_its_legacy_orders_meanwhile() {
    let cells = Cells::new().await;
    cells.source.fund("north", "EUR", 100_000_000).await;
    let mut tx = cells.source.pool().begin().await.unwrap();
    balances::deposit(&mut tx, "wire-1", &cells.owner(), "USD", Minor::new(1_000_000)).await.unwrap();
    tx.commit().await.unwrap();
    keep_for(&cells.source, &cells.tenant, Strategy::Scheduled).await;
    let cells = moved(cells).await;
    assert!(cells.takes(&cells.source).await);
    // The cell that accepted the order executes it.
    assert_eq!(turns(&cells.target.engine).await.unwrap(), 1);
    assert_eq!(texts(&cells.target, "select stage from legacy_intent").await, ["submitted"]);
    assert!(!cells.intents(&cells.target).await.is_subset(&cells.intents(&cells.source).await));
    cells.decide().await;
    cells.run().await.unwrap();
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
    assert!(cells.intents(&cells.source).await.is_subset(&cells.intents(&cells.target).await));
    // And away again, with what was executed here.
    let cells = moved(cells.back()).await;
    assert!(cells.intents(&cells.target).await.is_subset(&cells.intents(&cells.source).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reference_that_was_erased_and_used_again_moves_and_is_not_accepted_once_more() {
    let cells = Cells::new().await;
    let with_reference =
        || IntentRequest { client_reference: Some("invoice 7".to_owned()), ..order(ACCOUNT) };
    let first = cells.submit(&cells.source, with_reference(), None).await;
    assert!(matches!(first, Outcome::Accepted(_)), "{first:?}");
    // There and back.
    let cells = moved(moved(cells).await).await;
    let erased = "update intent set client_reference = null where client_reference = 'invoice 7'";
    sqlx::query(erased).execute(cells.source.pool()).await.unwrap();
    let again = cells.submit(&cells.source, with_reference(), None).await;
    assert!(matches!(again, Outcome::Accepted(_)), "{again:?}");
    cells.decide().await;
    cells.run().await.unwrap();
    assert_eq!(cells.intents(&cells.source).await, cells.intents(&cells.target).await);
    let once_more = cells.submit(&cells.target, with_reference(), None).await;
    assert!(
        matches!(once_more, Outcome::Refused(Refusal::DuplicateClientReference)),
        "the first order has it here: {once_more:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_present_cell_come_back_and_what_either_stopped_stays_stopped() {
    let cells = Cells::new().await;
    let id = cells.tenant.partner_id.clone();
    let mut first = cells.source.pool().acquire().await.unwrap();
    let mut issued = Vec::new();
    for _ in 0..4 {
        issued.push(keys::issue(&mut first, &cells.vaults[0], &id, Environment::Test, &[]).await.unwrap());
    }
    let [revoked_there, disabled_there, revoked_here, kept] = issued.as_slice() else { panic!("four keys") };
    let new = NewBeneficiary {
        id: "bene_1",
        partner_id: &id,
        name: "Jane Doe",
        country: "US",
        address: None,
        operator: "jo",
    };
    insert_beneficiary(&mut first, &new).await.unwrap();
    for destination in ["dest_1", "dest_2", "dest_3"] {
        enter_destination(&mut first, destination, ACCOUNT).await;
    }
    enter_endpoint(&mut first, &cells, ["whk_1", &kept.key_id, "https://one.example"]).await;
    drop(first);
    let cells = moved(cells).await;

    let mut there = cells.source.pool().acquire().await.unwrap();
    assert!(partners::revoke_key(&mut there, &revoked_there.key_id).await.unwrap());
    assert!(partners::disable_key(&mut there, &disabled_there.key_id).await.unwrap());
    let new = keys::issue(&mut there, &cells.vaults[0], &id, Environment::Test, &[]).await.unwrap();
    assert!(verify_destination(&mut there, "dest_1", "kim", "call").await.unwrap());
    assert!(disable_destination(&mut there, "dest_2", "kim", "closed").await.unwrap());
    enter_destination(&mut there, "dest_4", ACCOUNT).await;
    assert!(pauses::insert(&mut there, Scope::Partner, &id, BY).await.unwrap());
    let mut endpoint = webhooks::find_by_key(&mut there, &kept.key_id).await.unwrap().unwrap();
    endpoint.url = "https://two.example".to_owned();
    webhooks::update(&mut there, &endpoint).await.unwrap();
    enter_endpoint(&mut there, &cells, ["whk_2", &new.key_id, "https://new.example"]).await;
    let mut here = cells.target.pool().acquire().await.unwrap();
    assert!(partners::revoke_key(&mut here, &revoked_here.key_id).await.unwrap());
    assert!(disable_destination(&mut here, "dest_3", "kim", "closed").await.unwrap());

    cells.decide().await;
    cells.run().await.unwrap();
    let keys = "select id || case when revoked_at is not null then ' revoked' when disabled_at is not null then ' disabled' \
                else '' end from api_key order by created_at, id";
    let mut found = texts(&cells.target, keys).await;
    found.sort();
    let mut expected = vec![
        format!("{} revoked", revoked_there.key_id),
        format!("{} disabled", disabled_there.key_id),
        format!("{} revoked", revoked_here.key_id),
        kept.key_id.clone(),
        new.key_id.clone(),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let secret: Vec<u8> = sqlx::query_scalar("select sealed_secret from api_key where id = $1")
        .bind(&new.key_id)
        .fetch_one(cells.target.pool())
        .await
        .unwrap();
    assert_eq!(cells.vaults[1].open(&new.key_id, &secret).unwrap(), new.signing_secret.as_bytes());
    let destinations = "select id || case when disabled_at is not null then ' disabled' \
                        when verified_at is not null then ' verified' else '' end from destination order by id";
    assert_eq!(
        texts(&cells.target, destinations).await,
        ["dest_1 verified", "dest_2 disabled", "dest_3 disabled", "dest_4"]
    );
    assert_eq!(texts(&cells.target, "select target from pause").await, std::slice::from_ref(&id));
    let endpoints = "select w.id || ' ' || url from webhook_endpoint w join endpoint_lease l on l.endpoint_id = w.id \
                     order by 1";
    assert_eq!(
        texts(&cells.target, endpoints).await,
        ["whk_1 https://two.example", "whk_2 https://new.example"]
    );
    let endpoint = webhooks::find_by_key(&mut here, &kept.key_id).await.unwrap().unwrap();
    assert_eq!(
        cells.vaults[1].open("whk_1", &endpoint.secrets.current).unwrap(),
        b"secret of the hook",
        "it is sealed for this cell"
    );
    // Every key that works may have orders in the other cell, also those that this cell had issued.
    let (mapped, _) = moves::list_map(&mut here).await.unwrap();
    assert_eq!(mapped.len(), 3, "{mapped:?}");
    let (mapped, _) = moves::list_map(&mut there).await.unwrap();
    assert_eq!(mapped, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_that_is_cancelled_leaves_the_partner_as_it_had_left() {
    let cells = moved(Cells::new().await).await;
    // A key that cannot move: the return comes as far as its arrival.
    let own = Vault::new([1; 32]);
    let mut there = cells.source.pool().acquire().await.unwrap();
    let id = &cells.tenant.partner_id;
    let old = keys::issue(&mut there, &own, id, Environment::Test, &[]).await.unwrap();
    cells.decide().await;
    for _ in 0..2 {
        assert!(matches!(cells.run().await, Err(MoveError::Obstacles(_))));
        cells.cancel().await.unwrap();
        assert!(cells.takes(&cells.source).await && !cells.takes(&cells.target).await);
        // The move by which it left goes on, with its sessions.
        let away = cells.run_back().await.unwrap();
        assert_eq!((away.source_state.as_str(), away.target_state.as_deref()), ("moved", Some("open")));
        cells.decide().await;
    }
    partners::revoke_key(&mut there, &old.key_id).await.unwrap();
    cells.run().await.unwrap();
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
}

async fn number_of(at: &Harness, tenant: &Tenant) -> Vec<String> {
    let rows = sqlx::query_scalar(
        "select session_id || case when enabled then ' ' || next_out else ' disabled' end from fix_session \
         where partner_id = $1 order by 1",
    );
    rows.bind(&tenant.partner_id).fetch_all(at.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_come_back_with_their_numbers_and_are_enabled_in_one_cell() {
    let cells = Cells::new().await;
    let session = fix_session(&cells.source, &cells.tenant, "MOVER").await;
    let resting = fix_session(&cells.source, &cells.tenant, "RESTING").await;
    for at in [&cells.source, &cells.target] {
        sqlx::query("update fix_session set password_key = 'cells', next_out = 5")
            .execute(at.pool())
            .await
            .unwrap();
    }
    let parked =
        "insert into fix_parked (session_id, cl_ord_id, message, received_at) values ($1, 'C-1', '', now())";
    sqlx::query(parked).bind(&resting).execute(cells.source.pool()).await.unwrap();
    let order = |at: &Harness, id: &'static str| {
        let row =
            "insert into fix_order (session_id, cl_ord_id, intent_id, details) values ($1, $2, $2, '{}')";
        let (pool, session) = (at.pool().clone(), session.clone());
        async move {
            sqlx::query(row).bind(session).bind(id).execute(&pool).await.unwrap();
        }
    };
    let message = |at: &Harness, seq: i64| {
        let row = "insert into fix_outbound (session_id, seq, msg_type, body, sending_time) values ($1, $2, '8', 'x', 0)";
        let (pool, session) = (at.pool().clone(), session.clone());
        async move {
            sqlx::query(row).bind(session).bind(seq).execute(&pool).await.unwrap();
        }
    };
    order(&cells.source, "F-1").await;
    message(&cells.source, 4).await;
    let cells = moved(cells).await;
    assert_eq!(number_of(&cells.source, &cells.tenant).await, [format!("{session} 5")]);
    order(&cells.source, "F-2").await;
    message(&cells.source, 8).await;
    sqlx::query("update fix_session set next_out = 9").execute(cells.source.pool()).await.unwrap();
    cells.decide().await;

    // What the earlier move took and has not written to the other cell yet keeps the partner from coming back.
    let lost = "update fix_session set copied_at = null where moved_by is not null";
    sqlx::query(lost).execute(cells.target.pool()).await.unwrap();
    let between = cells.run().await;
    assert!(
        matches!(&between, Err(MoveError::Between { sessions, .. }) if *sessions == [session.clone()]),
        "{between:?}"
    );
    assert!(cells.takes(&cells.source).await, "what was refused closed nothing");
    cells.run_back().await.unwrap();
    assert_eq!(
        number_of(&cells.source, &cells.tenant).await,
        [format!("{session} 9")],
        "it was there already"
    );

    let progress = cells.run().await.unwrap();
    assert_eq!(progress.sessions.len(), 1);
    assert_eq!(progress.sessions[0].state, "moved");
    assert_eq!(number_of(&cells.source, &cells.tenant).await, [format!("{session} disabled")]);
    let expected = [format!("{session} 9"), format!("{resting} 5")];
    assert_eq!(number_of(&cells.target, &cells.tenant).await, expected, "one never left");
    assert_eq!(texts(&cells.target, "select cl_ord_id from fix_order order by 1").await, ["F-1", "F-2"]);
    assert_eq!(texts(&cells.target, "select seq::text from fix_outbound order by 1").await, ["4", "8"]);
    cells.run().await.unwrap();
    assert_eq!(number_of(&cells.target, &cells.tenant).await, expected);

    // Away again; the one that waited, too.
    let cells = cells.back();
    sqlx::query("delete from fix_parked").execute(cells.source.pool()).await.unwrap();
    cells.decide().await;
    cells.run().await.unwrap();
    assert_eq!(number_of(&cells.target, &cells.tenant).await, expected);
    let disabled = [format!("{session} disabled"), format!("{resting} disabled")];
    assert_eq!(number_of(&cells.source, &cells.tenant).await, disabled);

    // A session that is in both cells keeps the partner where it is.
    let cells = cells.back();
    let other = fix_session(&cells.source, &cells.tenant, "TWICE").await;
    fix_session(&cells.target, &cells.tenant, "TWICE").await;
    sqlx::query("update fix_session set password_key = 'cells'").execute(cells.source.pool()).await.unwrap();
    cells.decide().await;
    let twice = cells.run().await;
    assert!(matches!(&twice, Err(MoveError::Taken(session)) if *session == other), "{twice:?}");
    assert!(cells.takes(&cells.source).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_waits_follows_through_every_cell_and_comes_back() {
    let cells = Cells::new().await;
    let (a, b, c) = (&cells.source, &cells.target, &cell("00c").await);
    let third = Vault::new([3; 32]).with_shared(SHARED);
    let [first, second] = &cells.vaults;
    let session = fix_session(a, &cells.tenant, "WAITING").await;
    sqlx::query("update fix_session set password_key = 'cells', next_out = 5")
        .execute(a.pool())
        .await
        .unwrap();
    let parked =
        "insert into fix_parked (session_id, cl_ord_id, message, received_at) values ($1, 'C-1', '', now())";
    sqlx::query(parked).bind(&session).execute(a.pool()).await.unwrap();
    decide(a, "00b").await;
    run_between([(a, first), (b, second)]).await.unwrap();
    decide(b, "00c").await;
    run_between([(b, second), (c, &third)]).await.unwrap();
    assert_eq!(number_of(a, &cells.tenant).await, [format!("{session} 5")], "it waits");
    // Its orders end after its partner has moved on.
    sqlx::query("delete from fix_parked").execute(a.pool()).await.unwrap();
    run_between([(a, first), (b, second)]).await.unwrap();
    assert_eq!(number_of(b, &cells.tenant).await, [format!("{session} 5")]);
    run_between([(b, second), (c, &third)]).await.unwrap();
    assert_eq!(number_of(c, &cells.tenant).await, [format!("{session} 5")]);
    decide(c, "00a").await;
    let progress = run_between([(c, &third), (a, first)]).await.unwrap();
    assert_eq!(progress.target_state.as_deref(), Some("open"));
    assert_eq!(number_of(a, &cells.tenant).await, [format!("{session} 5")]);
    for left in [b, c] {
        assert_eq!(number_of(left, &cells.tenant).await, [format!("{session} disabled")]);
    }
    for (at, takes) in [(a, true), (b, false), (c, false)] {
        assert_eq!(cells.takes(at).await, takes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_operators_stopped_in_either_cell_stays_stopped_until_its_partner_starts_it() {
    let cells = Cells::new().await;
    let mut first = cells.source.pool().acquire().await.unwrap();
    let mut owners = Vec::new();
    for endpoint in ["whk_1", "whk_2", "whk_3", "whk_4"] {
        let id = &cells.tenant.partner_id;
        let key = keys::issue(&mut first, &cells.vaults[0], id, Environment::Test, &[]).await.unwrap().key_id;
        enter_endpoint(&mut first, &cells, [endpoint, &key, "https://one.example"]).await;
        owners.push(Owner { key_id: key, tenant: cells.tenant.clone() });
    }
    let stop = async |conn: &mut PgConnection, endpoint: &str| {
        let stopped = disable(conn, endpoint, ("jo", "unknown host")).await.unwrap().unwrap();
        assert!(stopped.was_active, "{stopped:?}");
    };
    let start = async |conn: &mut PgConnection, vault: &Vault, owner: &Owner| {
        let change = Command::Update { url: None, subscribed_types: None, is_active: Some(true) };
        let render: fn(&CommandOutcome) -> StoredResponse =
            |_| StoredResponse { status: 200, body: String::new() };
        carry_out(conn, vault, owner, Addressed::PresentCell, change, None, render).await.unwrap();
    };
    stop(&mut first, "whk_1").await;
    drop(first);
    let cells = moved(cells).await;
    const STATES: &str = "select concat_ws(' ', id, case when is_active then 'active' end, stopped_by) \
                          from webhook_endpoint order by 1";
    let expected = ["whk_1 jo", "whk_2 active", "whk_3 active", "whk_4 active"];
    assert_eq!(texts(&cells.source, STATES).await, expected);
    // The partner starts one in its present cell, where operators stop another one; and a third one where it has left.
    let mut there = cells.source.pool().acquire().await.unwrap();
    start(&mut there, &cells.vaults[0], &owners[0]).await;
    stop(&mut there, "whk_2").await;
    let mut here = cells.target.pool().acquire().await.unwrap();
    stop(&mut here, "whk_3").await;
    let expected = ["whk_1 active", "whk_2 jo", "whk_3 active", "whk_4 active"];
    assert_eq!(texts(&cells.source, STATES).await, expected);

    cells.decide().await;
    cells.run().await.unwrap();
    let expected = ["whk_1 jo", "whk_2 jo", "whk_3 jo", "whk_4 active"];
    assert_eq!(texts(&cells.target, STATES).await, expected, "what either cell stopped");
    start(&mut here, &cells.vaults[1], &owners[2]).await;
    let expected = ["whk_1 jo", "whk_2 jo", "whk_3 active", "whk_4 active"];
    assert_eq!(texts(&cells.target, STATES).await, expected);
}
