//! Range orders: they rest, and are filled, settled or cancelled, over REST and FIX and through a kill.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

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
    let paid =
        "select concat_ws(' ', executed, amount) from simulated_rail where leg = 'payout' and account = $1";
    assert_eq!(sandbox.one_of::<String>(paid, account).await, format!("1 {delivered}"), "{receipt}");
    let types = "select array_agg(type order by sequence) from event where reference = $1";
    let types: Vec<String> = sandbox.one_of(types, reference).await;
    let taken = "select (array_agg(object #>> '{input,amountMinor}' order by sequence desc))[1] \
                 from event where reference = $1";
    let taken: String = sandbox.one_of(taken, reference).await;
    let straight =
        ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"];
    assert_eq!(types, straight);
    assert!(taken.parse::<u64>().unwrap() <= 100_000_000, "{taken}");
    let entity = "select entity from execution where reference = $1";
    let entity: Vec<u8> = sandbox.one_of(entity, reference).await;
    // Created, Filled and Settled, each once.
    assert_eq!(logs(sandbox, "settler", &format!("0x{}", hex::encode(entity))).await, 3);
    delivered
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
    for reference in references {
        let state = "select state_name from execution where reference = $1";
        assert_eq!(sandbox.one_of::<String>(state, reference).await, "resting");
    }

    sandbox.kill_and_start_again().await;
    client.log_on_again(&sandbox).await;
    let partner = Partner::of(&sandbox);
    for (reference, account) in references.into_iter().zip([rest, fix]) {
        settled(&sandbox, &partner, reference, account, falling).await;
    }
    let filled = client.report(|report| report.get(11) == "R-1" && report.get(150) == "F").await;
    // It sells what buys the output, which may be less than its quantity.
    assert_eq!(filled.get(37), new.get(37));
    assert!(["1", "2"].contains(&filled.get(39)), "{}", filled.get(39));
    let fills = "select count(*) from fix_outbound where msg_type = '8' and position('\\x013135303d4601'::bytea in body) > 0";
    assert_eq!(sandbox.one::<i64>(fills).await, 1);
    assert_eq!(sandbox.one::<i64>("select count(*) from receipt").await, 2);
    // A debit and a credit for each of the two.
    assert_eq!(sandbox.one::<i64>("select count(*) from ledger_entry where reason = 'reserve'").await, 4);
    assert_eq!(sandbox.one::<i64>("select count(*) from resting_range").await, 0);
    sandbox.stop().await;
}
