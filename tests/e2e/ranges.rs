//! Range orders: they rest, and are filled, settled or cancelled, over REST and FIX and through a kill.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::cli::once_verified;
use crate::fix::{FixClient, Message};
use crate::logs;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

/// An output in cents that falls from a target to a limit until a deadline. 100 USDC give about 99.32 USD.
#[derive(Clone, Copy)]
struct Falling {
    target: u64,
    limit: u64,
    lifetime: TimeDelta,
}

/// Two thirds of an hour until it is met.
const PATIENT: Falling = Falling { target: 10_000, limit: 9_900, lifetime: TimeDelta::hours(1) };
/// Met after about a fourteenth of its lifetime.
const SOON: Falling = Falling { target: 9_950, limit: 9_700, lifetime: TimeDelta::minutes(1) };

/// The body of 100 USDC by one of the sandbox's wallets for an output that falls.
async fn body(sandbox: &Sandbox, partner: &Partner, wallet: usize, account: &str, falling: Falling) -> Value {
    let mut order = partner.order(sandbox, wallet, account).await;
    let fields = order.as_object_mut().unwrap();
    let cap = fields.remove("inputAmountMinor").unwrap();
    fields.remove("minOutputAmountMinor").unwrap();
    fields.insert("input".into(), json!({ "limitAmountMinor": cap }));
    let (target, limit) = (falling.target.to_string(), falling.limit.to_string());
    fields.insert("output".into(), json!({"targetAmountMinor": target, "limitAmountMinor": limit}));
    fields.insert("deadline".into(), (Utc::now() + falling.lifetime).timestamp_millis().into());
    order
}

/// Submits a range, which must be accepted as one that rests.
async fn submitted(partner: &Partner, body: &Value) -> Value {
    let (status, accepted) = partner.submit(body).await;
    assert_eq!((status, &accepted["status"]), (202, &json!("accepted")), "{accepted}");
    assert!(accepted["path"]["estimatedFillTime"].as_u64().unwrap() > 1, "{accepted}");
    assert_eq!(accepted["path"]["expiresAt"], body["deadline"], "{accepted}");
    accepted
}

/// Sends a range as NewOrderSingle(D) with TargetPrice(20030). Returns its report as New.
async fn ordered(
    client: &mut FixClient,
    cl_ord_id: &str,
    account: &str,
    permit: &Value,
    falling: Falling,
) -> Message {
    let price = |cents: u64| format!("{}.{:04}", cents / 10_000, cents % 10_000);
    let (target, limit) = (price(falling.target), price(falling.limit));
    let ends = (Utc::now() + falling.lifetime).format("%Y%m%d-%H:%M:%S%.3f").to_string();
    let range = [(44, limit.as_str()), (59, "6"), (126, &ends), (20030, &target)];
    client.sell(cl_ord_id, account, permit, &range).await;
    let new = client.report(|report| report.get(11) == cl_ord_id).await;
    assert_eq!((new.get(35), new.get(150), new.get(39)), ("8", "0", "0"), "{}", new.get(58));
    assert_eq!((new.get(14), new.get(151)), ("0", "100"));
    new
}

async fn state(conn: &mut PgConnection, reference: &str) -> String {
    let found = "select state_name from execution where reference = $1";
    sqlx::query_scalar(found).bind(reference).fetch_one(conn).await.unwrap()
}

/// How often the bank paid an account, and how much.
async fn paid(conn: &mut PgConnection, account: &str) -> (i32, String) {
    let found = "select executed, amount::text from simulated_rail where leg = 'payout' and account = $1";
    sqlx::query_as(found).bind(account).fetch_one(conn).await.unwrap()
}

/// Minor units of a decimal with at most this many places.
fn minor(text: &str, places: usize) -> u128 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    assert!(part.len() <= places, "{text}");
    format!("{whole}{part:0<places$}").parse().unwrap()
}

/// Waits for the end of a filled range and follows its amounts: from the cap and the line to the bank's books and to the
/// receipt. Returns the delivered cents.
async fn settled(
    sandbox: &Sandbox,
    partner: &Partner,
    reference: &str,
    account: &str,
    falling: Falling,
) -> u64 {
    let execution = format!("/v1/executions/{reference}?refType=executionId");
    let done = partner.wait_for(&execution, |e| !e["finality"].is_null()).await;
    assert_eq!(done["status"], "completed", "{done}");
    let (status, receipt) =
        partner.get(&format!("/v1/executions/{reference}/receipt?refType=executionId")).await;
    assert_eq!(status, 200, "{receipt}");
    let verified = once_verified(sandbox, reference).await;
    assert_eq!(
        (&verified["verified"], &verified["arithmetic"]),
        (&json!(true), &json!("adds up")),
        "{verified}"
    );

    let delivered: u64 = receipt["payout"]["amountMinor"].as_str().unwrap().parse().unwrap();
    assert!((falling.limit..falling.target).contains(&delivered), "{receipt}");
    let mut conn = sandbox.database().await;
    assert_eq!(paid(&mut conn, account).await, (1, delivered.to_string()), "{receipt}");
    let (types, taken): (Vec<String>, String) = sqlx::query_as(
        "select array_agg(type order by sequence), \
                (array_agg(object #>> '{input,amountMinor}' order by sequence desc))[1] \
         from event where reference = $1",
    )
    .bind(reference)
    .fetch_one(&mut conn)
    .await
    .unwrap();
    let straight =
        ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"];
    assert_eq!(types, straight);
    assert!(taken.parse::<u64>().unwrap() <= 100_000_000, "{taken}");
    let entity: Vec<u8> = sqlx::query_scalar("select entity from execution where reference = $1")
        .bind(reference)
        .fetch_one(&mut conn)
        .await
        .unwrap();
    // Created, Filled and Settled, each once.
    assert_eq!(logs(sandbox, "settler", &format!("0x{}", hex::encode(entity))).await, 3);
    delivered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_rests_over_either_interface_until_it_is_cancelled() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let mut client = FixClient::log_on(&sandbox).await;
    let mut conn = sandbox.database().await;

    let order = body(&sandbox, &partner, 0, "bene_rest:dest_10000000", PATIENT).await;
    let accepted = submitted(&partner, &order).await;
    let reference = accepted["reference"].as_str().unwrap();
    assert_eq!(state(&mut conn, reference).await, "resting");
    let path = format!("/v1/intents/{}", order["intentId"].as_str().unwrap());
    let (status, shown) = partner.get(&format!("{path}/status")).await;
    assert_eq!(
        (status, &shown["status"], &shown["phase"]),
        (200, &json!("in_progress"), &json!("intent")),
        "{shown}"
    );
    let (_, page) = partner.get("/v1/events").await;
    let event = &page["data"][0];
    assert_eq!(
        (&event["type"], page["data"].as_array().unwrap().len()),
        (&json!("intent.accepted"), 1),
        "{page}"
    );
    let object = &event["data"]["object"];
    assert_eq!(
        (&object["input"]["amountMinor"], &object["output"]["amountMinor"]),
        (&json!("100000000"), &json!("9900")),
        "{page}"
    );

    let account = "bene_fix:dest_10000000";
    let permit = partner.order(&sandbox, 1, account).await["permit"].clone();
    let new = ordered(&mut client, "R-1", account, &permit, PATIENT).await;
    assert_eq!(state(&mut conn, new.get(37)).await, "resting");
    assert_eq!(sandbox.one::<i64>("select count(*) from resting_range").await, 2);
    // Nothing is reserved or locked for either.
    assert_eq!(sandbox.one::<i64>("select count(*) from account_balance where reserved <> 0").await, 0);
    assert_eq!(sandbox.one::<i64>("select count(*) from chain_command").await, 0);

    for _ in 0..2 {
        let (status, cancelled) = partner.delete(&path).await;
        assert_eq!((status, &cancelled["failure"]["code"]), (200, &json!("cancelled")), "{cancelled}");
    }
    client.cancel("R-2", "R-1").await;
    let cancelled = client.report(|report| report.get(41) == "R-1").await;
    assert_eq!((cancelled.get(35), cancelled.get(150), cancelled.get(39)), ("8", "4", "4"));
    assert_eq!((cancelled.get(37), cancelled.get(14), cancelled.get(151)), (new.get(37), "0", "0"));
    let (_, page) = partner.get("/v1/events").await;
    let types: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["intent.accepted", "intent.accepted", "intent.cancelled", "intent.cancelled"]);
    for left in [
        "select count(*) from resting_range",
        "select count(*) from permit_use",
        "select count(*) from effect",
    ] {
        assert_eq!(sandbox.one::<i64>(left).await, 0, "{left}");
    }
    // The permits were not used: the same nonces are valid in the next orders.
    let order = partner.order(&sandbox, 0, "bene_next:dest_10000000").await;
    partner.submit_accepted(&order).await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_filled_and_settled_once_its_output_has_fallen_to_the_market() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let mut client = FixClient::log_on(&sandbox).await;
    let [rest, fix] = ["bene_rest:dest_10000000", "bene_fix:dest_10000000"];
    let permit = partner.order(&sandbox, 1, fix).await["permit"].clone();
    let order = body(&sandbox, &partner, 0, rest, SOON).await;
    let accepted = submitted(&partner, &order).await;
    let new = ordered(&mut client, "R-1", fix, &permit, SOON).await;

    let delivered = settled(&sandbox, &partner, accepted["reference"].as_str().unwrap(), rest, SOON).await;
    // What the market gave at the acceptance, unless the fill was late.
    let foreseen: u64 = accepted["path"]["outputAmountMinor"].as_str().unwrap().parse().unwrap();
    assert!(delivered <= foreseen + 1, "{delivered}, foreseen {foreseen}");
    let path = format!("/v1/intents/{}", order["intentId"].as_str().unwrap());
    let (status, refused) = partner.delete(&path).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("INTENT_ALREADY_EXECUTING")));

    let filled = client.report(|report| report.get(11) == "R-1" && report.get(150) == "F").await;
    assert_eq!((filled.get(37), filled.get(39), filled.get(151)), (new.get(37), "2", "0"));
    let sold = minor(filled.get(14), 6);
    assert!(sold <= 100_000_000, "{}", filled.get(14));
    let delivered = settled(&sandbox, &partner, new.get(37), fix, SOON).await;
    // LastPx(31) has fifteen places; USDC has six and USD two.
    let value = sold * minor(filled.get(31), 15) / 10_u128.pow(6 + 15 - 2);
    assert_eq!(value, u128::from(delivered));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_rests_survives_a_kill_and_is_filled_once() {
    let mut sandbox = Sandbox::start().await;
    let mut client = FixClient::log_on(&sandbox).await;
    let partner = Partner::of(&sandbox);
    // Time to rest before the kill, and to start again before the deadline.
    let falling = Falling { lifetime: TimeDelta::minutes(4), ..SOON };
    let [rest, fix] = ["bene_rest:dest_10000000", "bene_fix:dest_10000000"];
    let permit = partner.order(&sandbox, 1, fix).await["permit"].clone();
    let order = body(&sandbox, &partner, 0, rest, falling).await;
    let accepted = submitted(&partner, &order).await;
    let new = ordered(&mut client, "R-1", fix, &permit, falling).await;
    let references = [accepted["reference"].as_str().unwrap(), new.get(37)];
    let mut conn = sandbox.database().await;
    for reference in references {
        assert_eq!(state(&mut conn, reference).await, "resting");
    }
    drop(conn);

    sandbox.kill_and_start_again().await;
    client.log_on_again(&sandbox).await;
    let partner = Partner::of(&sandbox);
    for (reference, account) in references.into_iter().zip([rest, fix]) {
        settled(&sandbox, &partner, reference, account, falling).await;
    }
    let filled = client.report(|report| report.get(11) == "R-1" && report.get(150) == "F").await;
    assert_eq!((filled.get(37), filled.get(39)), (new.get(37), "2"));
    let fills = "select count(*) from fix_outbound where msg_type = '8' and position('\\x0133393d3201'::bytea in body) > 0";
    assert_eq!(sandbox.one::<i64>(fills).await, 1);
    assert_eq!(sandbox.one::<i64>("select count(*) from receipt").await, 2);
    // A debit and a credit for each of the two.
    assert_eq!(sandbox.one::<i64>("select count(*) from ledger_entry where reason = 'reserve'").await, 4);
    assert_eq!(sandbox.one::<i64>("select count(*) from resting_range").await, 0);
    sandbox.stop().await;
}
