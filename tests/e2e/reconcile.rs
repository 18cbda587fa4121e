//! The books are held against the chain; breaks are planted in both, and all of them are found, and nothing else.

use std::collections::BTreeSet;
use std::process::Output;

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::sol_types::SolValue;
use serde_json::{Value, json};
use sqlx::{Executor as _, PgConnection};

use crate::partner::Partner;
use crate::sandbox::{self, Sandbox};
use crate::wait::answer;

fn dvp(sandbox: &Sandbox, words: &[&str]) -> (Output, Value) {
    let output = sandbox::dvp(sandbox, words);
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, said)
}

/// Breaks as (type, execution).
type Found = BTreeSet<(String, String)>;

fn reconcile(sandbox: &Sandbox, words: &[&str]) -> (Found, Value) {
    let (output, said) = dvp(sandbox, &[&["reconcile"], words].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.is_object(), "{errors}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let breaks = said["breaks"].as_array().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!breaks.is_empty())), "{said}");
    let found = breaks.iter().map(|found| (text(&found["type"]), text(&found["reference"])));
    (found.collect(), said)
}

/// Compares until it comes to this, as the chain's final block moves on.
async fn until_found(sandbox: &Sandbox, expected: &Found) -> Value {
    answer(async || reconcile(sandbox, &[]), |(found, _)| found == expected).await.1
}

/// Takes orders to where the last digits of their account lead them, and gives their references.
async fn orders(sandbox: &Sandbox, partner: &Partner, accounts: &[(usize, &str, &str)]) -> Vec<String> {
    let mut references = Vec::new();
    for (wallet, account, _) in accounts {
        let order = partner.order(sandbox, *wallet, account).await;
        let accepted = partner.submit_accepted(&order).await;
        references.push(accepted["reference"].as_str().unwrap().to_owned());
    }
    for (reference, (_, _, state)) in references.iter().zip(accounts) {
        eventually(sandbox, reference, state).await;
    }
    references
}

async fn eventually(sandbox: &Sandbox, reference: &str, wanted: &str) {
    let sql = "select case when state -> 'finality' is not null and state ->> 'finality' is not null \
                           then 'anchored' else state_name end from execution where reference = $1";
    answer(async || sandbox.one_of::<String>(sql, reference).await, |state| state == wanted).await;
}

/// An execution of our books alone, like another one but for its state.
async fn invent(conn: &mut PgConnection, like: &str, name: &str, state: &Value) -> String {
    let reference = format!("exe_{name}");
    sqlx::query(
        "insert into intent (partner_id, livemode, intent_id, reference, request) \
         select partner_id, livemode, $2::text, $2::text, request from intent where reference = $1",
    )
    .bind(like)
    .bind(&reference)
    .execute(&mut *conn)
    .await
    .unwrap();
    sqlx::query(
        "insert into execution (reference, partner_id, livemode, intent_id, entity, terms, state_name, state, \
                                version, last_sequence, accepted_at, terminal_at) \
         select $2::text, partner_id, livemode, $2::text, sha256(convert_to($2::text, 'UTF8')), jsonb_set(terms::jsonb, '{reference}', to_jsonb($2::text)), \
                $3::jsonb ->> 'state', $3::jsonb, 1, 0, now() - interval '1 hour', \
                case when $3::jsonb ->> 'state' = 'completed' then now() end \
         from execution where reference = $1",
    )
    .bind(like)
    .bind(&reference)
    .bind(state)
    .execute(conn)
    .await
    .unwrap();
    reference
}

fn node(sandbox: &Sandbox) -> DynProvider {
    ProviderBuilder::new().connect_http(sandbox.text("/chain/rpcUrl").parse().unwrap()).erased()
}

/// The escrow's balance of the first token becomes nothing; OpenZeppelin keeps balances in slot 0.
async fn rob_the_escrow(sandbox: &Sandbox) {
    let address = |pointer: &str| -> Address { sandbox.text(pointer).parse().unwrap() };
    let slot = keccak256((address("/chain/contracts/escrow"), U256::ZERO).abi_encode());
    let params = json!([address("/chain/tokens/0/address"), slot, B256::ZERO]);
    let _: Value = node(sandbox).raw_request("anvil_setStorageAt".into(), params).await.unwrap();
}

const COMPLETED: [(usize, &str, &str); 4] = [
    (0, "000123456789", "anchored"),
    (1, "000123456789", "anchored"),
    (2, "000123456789", "anchored"),
    (3, "000123456789", "anchored"),
];
const OPEN: [(usize, &str, &str); 3] =
    [(4, "000123450002", "payout_failed"), (5, "000123450007", "paying"), (6, "000123450007", "paying")];
const OPEN_TOO: [(usize, &str, &str); 2] = [(0, "000123450007", "paying"), (1, "000123450007", "paying")];

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_planted_breaks_of_every_type_are_found() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let done = orders(&sandbox, &partner, &COMPLETED).await;
    let open = orders(&sandbox, &partner, &OPEN).await;
    let more = orders(&sandbox, &partner, &OPEN_TOO).await;
    // Its desk has converted.
    let unused = Found::from([("converted_not_used".to_owned(), open[0].clone())]);
    let said = until_found(&sandbox, &unused).await;
    assert_eq!(said["compared"], 9, "{said}");
    // What agreed is not read again, but on request.
    let (found, said) = reconcile(&sandbox, &[]);
    assert!(found == unused && said["since"].is_number(), "{said}");
    let (found, said) = reconcile(&sandbox, &["--full"]);
    assert!(found == unused && said["since"].is_null(), "{said}");

    let mut conn = sandbox.database().await;
    let mut expected = unused;
    let mut expect = |kind: &str, reference: &str| {
        expected.insert((kind.to_owned(), reference.to_owned()));
    };
    let release = "update execution set state_name = 'payout_failed', state = jsonb_build_object('state', \
                   'payout_failed', 'lock', state -> 'lock', 'offramp', null, 'debt_returned', null, 'failure', \
                   jsonb_build_object('stage', 'payout', 'code', 'c', 'message', 'm', 'retryable', false)) \
                   where reference = $1";
    sandbox.change(release, &done[0]).await;
    expect("settled_not_paid", &done[0]);
    // A receipt that was changed past the service, whose database refuses it.
    conn.execute("alter table receipt disable trigger user").await.unwrap();
    sandbox
        .change("update receipt set body = replace(body, 'USD', 'EUR') where reference = $1", &done[1])
        .await;
    conn.execute("alter table receipt enable trigger user").await.unwrap();
    expect("anchor_mismatch", &done[1]);
    let other_amount = "update execution set terms = jsonb_set(terms::jsonb, '{input,amount}', '\"1\"') where reference = $1";
    sandbox.change(other_amount, &done[2]).await;
    expect("amount_mismatch", &done[2]);
    let omitted = "delete from chain_log where event = 'Filled' and entity = \
                   (select entity from execution where reference = $1)";
    sandbox.change(omitted, &done[3]).await;
    let gave_up = "update execution set state_name = 'cancelled', state = '{\"state\": \"cancelled\"}', \
                   terminal_at = now() where reference = $1";
    sandbox.change(gave_up, &open[1]).await;
    expect("lock_without_execution", &open[1]);
    let leg = json!({"provider_reference": "p", "occurred_at": 0});
    let far = 4_102_444_800_000_i64;
    let deadlines = json!({"begin_before": far, "pay_before": far, "overdue_at": far, "settle_at": far});
    let lock = json!({"tx_hash": "0x01", "timelock_expires_at": far, "deadlines": deadlines, "filled": false,
                      "lost": false, "refunded": false, "refund_tx": null});
    let paid = json!({"state": "completed", "lock": null, "offramp": null, "payout": leg, "settle_tx": null,
                      "finality": null});
    let invented = invent(&mut conn, &done[3], "paid", &paid).await;
    expect("anchor_missing", &invented);
    let converting = json!({"state": "converting", "lock": lock,
                            "leg": {"in_progress": false, "provider_reference": null}});
    let invented = invent(&mut conn, &done[3], "counting", &converting).await;
    expect("execution_without_lock", &invented);
    let invented = invent(&mut conn, &done[3], "idle", &json!({"state": "locking"})).await;
    expect("stuck", &invented);
    let paid = "update execution set state_name = 'completed', terminal_at = now(), state = jsonb_build_object( \
                'state', 'completed', 'lock', state -> 'lock', 'offramp', null, 'settle_tx', '0x02', 'payout', \
                jsonb_build_object('provider_reference', 'p', 'occurred_at', 0), 'finality', null) \
                where reference = $1";
    sandbox.change(paid, &more[0]).await;
    let receipt = "insert into receipt (reference, body, content_hash, issued_at) \
                   values ($1, '{}', sha256('{}'::bytea), now())";
    sandbox.change(receipt, &more[0]).await;
    expect("paid_not_settled", &more[0]);
    rob_the_escrow(&sandbox).await;
    expect("escrow_short", "");
    let said = until_found(&sandbox, &expected).await;
    assert!(said["since"].is_number(), "{said}");
    // An old event that vanished is found when everything is read, and from then on until it is back.
    expected.insert(("index_mismatch".to_owned(), String::new()));
    let (found, said) = reconcile(&sandbox, &["--full"]);
    assert_eq!(found, expected, "{said:#}");
    let (found, said) = reconcile(&sandbox, &[]);
    assert_eq!(found, expected, "{said:#}");
    assert!(said["since"].is_null(), "{said}");

    // Ten minutes before the timelock: failed orders are due, and live ones are urgent.
    let late = json!([25 * 3600 + 60 - 600]);
    let _: Value = node(&sandbox).raw_request("evm_increaseTime".into(), late).await.unwrap();
    for (kind, reference) in
        [("refund_due", &open[0]), ("timelock_expiring", &open[2]), ("timelock_expiring", &more[1])]
    {
        expected.insert((kind.to_owned(), reference.clone()));
    }
    expected.insert(("timelock_expiring".to_owned(), more[0].clone()));
    let said = until_found(&sandbox, &expected).await;
    let action = |kind: &str| {
        let found = said["breaks"].as_array().unwrap().iter().find(|found| found["type"] == kind);
        found.unwrap()["action"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (action("refund_due").as_str(), action("lock_without_execution").as_str()),
        ("return", "page"),
        "the chain is committed: only two operators or the timelock give back"
    );

    // The report names them, and the runs are kept.
    let day: String = sandbox.one("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD')").await;
    let (status, report) = partner.get(&format!("/v1/reconciliation?from={day}&to={day}")).await;
    assert_eq!(status, 200, "{report}");
    let row = report["rows"].as_array().unwrap().iter().find(|row| row["reference"] == json!(done[1]));
    assert_eq!(row.unwrap()["breaks"], json!(["anchor_mismatch"]));
    let (_, runs) = dvp(&sandbox, &["reconcile", "--runs", "2"]);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
    sandbox.stop().await;
}

/// Compares until the bank's statements agree, and returns what was said.
async fn until_the_bank(sandbox: &Sandbox, is_so: impl Fn(&Value) -> bool) -> Value {
    answer(async || dvp(sandbox, &["reconcile"]).1, is_so).await
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_wallets_agree_with_the_ledger_but_for_a_deposit_that_was_never_sent() {
    let sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let partner = Partner::of(&sandbox);
    // Settled, and booked; both are on statements.
    partner.completed_by_a_bank(&sandbox, "000123450001").await;
    let agreed = |said: &Value| {
        said["breaks"] == json!([]) && said["bank"]["accounts"] == 2 && said["bank"]["inTransit"] == 0
    };
    until_the_bank(&sandbox, agreed).await;
    let mut conn = sandbox.database().await;
    let payments = "select count(*) from bank_entry where subject like 'exe\\_%'";
    assert_eq!(sandbox.one::<i64>(payments).await, 1, "the order's payment is on a statement");

    // Wallet and escrow hold what the ledger says, to the unit.
    let balances = "select split_part(account, ':', 1), asset, (held - ledger - in_flight)::text, block_number \
                    from wallet_balance order by 1, 2";
    let balances: Vec<(String, String, String, i64)> = sandbox.rows(balances).await;
    let found: Vec<_> = balances.iter().map(|one| (one.0.as_str(), one.1.as_str(), one.2.as_str())).collect();
    let of = |account: &'static str| ["ETH", "USDC", "WETH"].map(|asset| (account, asset, "0"));
    assert_eq!(found, [of("escrow"), of("wallet")].concat());
    assert!(balances.iter().all(|one| one.3 > 0));
    // A deposit that was never sent is a break once it has lasted, until it is taken back.
    let posted = "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
                  values ('deposit:never-sent', 1, 1, 'deposit', 'external', 'provider:harbour', 'total', 'WETH', -3), \
                         ('deposit:never-sent', 1, 2, 'deposit', 'provider', 'harbour', 'available', 'WETH', 3)";
    sqlx::query(posted).execute(&mut conn).await.unwrap();
    until_the_bank(&sandbox, |said| said["breaks"] == json!([])).await;
    let aged = "update wallet_balance set differs_since = differs_since - interval '16 minutes' \
                where asset = 'WETH' and differs_since is not null";
    assert_eq!(sqlx::query(aged).execute(&mut conn).await.unwrap().rows_affected(), 1);
    let said = until_the_bank(&sandbox, |said| said["breaks"] != json!([])).await;
    assert_eq!(said["breaks"].as_array().unwrap().len(), 1, "{said}");
    assert_eq!(said["breaks"][0]["type"], "balance_differs", "{said}");
    assert_eq!(said["breaks"][0]["difference"]["minor"], "-3");
    let back = "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
                values ('taken-back', 1, 1, 'withdraw', 'external', 'provider:harbour', 'total', 'WETH', 3), \
                       ('taken-back', 1, 2, 'withdraw', 'provider', 'harbour', 'available', 'WETH', -3)";
    sqlx::query(back).execute(&mut conn).await.unwrap();
    until_the_bank(&sandbox, agreed).await;
    sandbox.stop().await;
}
