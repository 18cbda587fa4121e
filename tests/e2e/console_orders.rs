//! The console in a browser over thousands of orders of every outcome: every screen in light and dark, on a laptop and a
//! phone, and what operators do in it.
//!
//! One order is settled for real, and one waits for a silent bank. The others are copies of the first in our books
//! alone, written in bulk: the chain and the bank know nothing of them. Those that have ended did so days ago, so that
//! the comparison with the chain does not take them up; it reports those that are open.

use std::io::Write as _;

use dvp_sandbox::bank::Bank;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::browser::Browser;
use crate::console::{check, sign_in};
use crate::console_breaks::{
    a_break_is_traced, a_returned_payment_is_traced_and_resolved, find_break, follow,
};
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, said};
use crate::wait::{answer, until};
use crate::webhooks::register;

const ORDERS: i64 = 3000;
/// The account on the screening list.
const HELD: &str = "000123450021";
const SESSION: &str = "/fix/FIX.4.4%3ADVP-%3EACME";

/// Submits an order of a wallet to an account at the bank. Returns its reference.
async fn submit(sandbox: &Sandbox, partner: &Partner, wallet: usize, account: &str) -> String {
    let order = partner.order_at_the_bank(sandbox, wallet, account).await;
    let accepted = partner.submit_accepted(&order).await;
    accepted["reference"].as_str().unwrap().to_owned()
}

/// Waits until a statement about an order gives a text.
pub(crate) async fn text_of(conn: &mut PgConnection, statement: &'static str, reference: &str) -> String {
    let text = async || -> Option<String> {
        let found = sqlx::query_scalar(statement).bind(reference).fetch_optional(&mut *conn).await;
        found.unwrap().flatten()
    };
    answer(text, Option::is_some).await.unwrap()
}

/// The states of the copies, each with how many of a hundred ended orders have it; 0: three in all.
fn states(completed: &Value) -> Vec<(&'static str, i32, Value)> {
    let failure = |stage: &str, code: &str, message: &str| json!({"stage": stage, "code": code, "message": message, "retryable": false});
    let mut lock = completed["lock"].clone();
    lock["refunded"] = true.into();
    let (offramp, payout) = (&completed["offramp"], &completed["payout"]);
    let payout_failed = json!({"state": "payout_failed", "lock": lock, "offramp": offramp, "debt_returned": null,
        "failure": failure("payout", "beneficiary_account_closed", "the beneficiary's account is closed")});
    let conversion_failed = json!({"state": "conversion_failed", "lock": lock,
        "failure": failure("offramp", "conversion_failed", "the conversion was refused")});
    let failed = json!({"state": "failed", "failure": failure("intent", "screening_refused", "a party is on the list")});
    let mut reversed = completed.clone();
    reversed["reversal"] = json!({"returned": payout, "resolved": null,
        "failure": failure("payout", "payment_returned", "the bank returned the payment")});
    let releasing =
        json!({"state": "releasing", "lock": completed["lock"], "offramp": offramp, "payout": payout});
    vec![
        ("completed", 70, completed.clone()),
        ("payout_failed", 8, payout_failed),
        ("conversion_failed", 6, conversion_failed),
        ("cancelled", 6, json!({"state": "cancelled"})),
        ("expired", 5, json!({"state": "expired"})),
        ("failed", 5, failed),
        ("reversed", 0, reversed),
        ("resting", -1, json!({"state": "resting"})),
        ("accepted", -1, json!({"state": "accepted"})),
        ("locking", -1, json!({"state": "locking"})),
        ("releasing", -1, releasing),
    ]
}

/// Copies of a completed order in every other state: most have ended days ago, three of each open state are hours old.
async fn fill(conn: &mut PgConnection, like: &str) {
    let completed: Value = sqlx::query_scalar("select state from execution where reference = $1")
        .bind(like)
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    let states = states(&completed);
    // The copies have the books' own order of keys: references that begin with the number.
    let mut next = 0;
    for (name, share, state) in &states {
        let count = if *share > 0 { ORDERS * i64::from(*share) / 100 } else { 3 };
        sqlx::query(
            "with copies as (select 'exe_' || lpad(to_hex(n), 8, '0') || md5(n::text) as name, n \
                             from generate_series($4, $4 + $5 - 1) n), \
                  intents as (insert into intent (partner_id, livemode, intent_id, client_reference, reference, request) \
                              select i.partner_id, i.livemode, c.name, 'client-' || c.n, c.name, i.request \
                              from intent i, copies c where i.reference = $1) \
             insert into execution (reference, partner_id, livemode, intent_id, client_reference, entity, terms, \
                                    state_name, state, version, last_sequence, accepted_at, terminal_at) \
             select c.name, e.partner_id, e.livemode, c.name, 'client-' || c.n, sha256(convert_to(c.name, 'UTF8')), \
                    jsonb_set(e.terms::jsonb, '{reference}', to_jsonb(c.name)), $2, $3, 1, 0, at.began, \
                    case when $6 then null else at.began + interval '5 minutes' end \
             from execution e, copies c, \
                  lateral (select case when $6 then now() - interval '2 hours' else now() - interval '3 days' end \
                                  - c.n * interval '1 minute' as began) at \
             where e.reference = $1",
        )
        .bind(like)
        .bind(name)
        .bind(state)
        .bind(next)
        .bind(count)
        .bind(*share < 0)
        .execute(&mut *conn)
        .await
        .unwrap();
        next += count;
    }
    sqlx::query("analyze execution, intent").execute(conn).await.unwrap();
}

/// Opens a page by the address bar and waits for a text on it.
pub(crate) async fn open(browser: &Browser, sandbox: &Sandbox, path: &str, text: &str) {
    browser.open(&format!("{}{path}", sandbox.text("/console"))).await;
    browser.wait_for(&format!("document.body.textContent.includes({})", json!(text))).await;
}

async fn every_screen_is_in_order(browser: &Browser, sandbox: &Sandbox, reference: &str) {
    let order = format!("/orders/{reference}");
    let (documents, messages) = (format!("{order}/documents"), format!("{SESSION}/messages"));
    let endpoints = said(sandbox, &["webhook", "endpoints"]);
    let endpoint = format!("/webhooks/{}", endpoints["endpoints"][0]["endpointId"].as_str().unwrap());
    let screens = [
        ("/", "Stuck orders"),
        ("/orders", "client-"),
        ("/orders?view=unfilled&state=payout_failed", "payout failed"),
        (&order, "payout.completed"),
        (&documents, "permit"),
        ("/approvals", "mark paid"),
        ("/reconciliation", "Last runs"),
        ("/treasury", "Balances"),
        ("/treasury/statement?account=provider:northwind:available", "Opening balance"),
        ("/treasury/fees", "Fees from"),
        ("/treasury/exposure", "Exposure"),
        ("/chains", "following"),
        ("/fix", "FIX.4.4:DVP->ACME"),
        (SESSION, "Logon (A)"),
        (&messages, "OrderCancelReject (9)"),
        ("/webhooks", "https://127.0.0.1:9/"),
        (&endpoint, "Resend"),
        ("/partners", "New partner"),
        ("/partners/acme", "Issue a key"),
        ("/operators", "kim"),
        ("/operators/kim", "Roles"),
        ("/account", "Passkeys"),
        ("/audit", "signed in"),
        ("/search?q=beneficiary+closed", "found for"),
    ];
    // The phone in light is in `console.rs`.
    for (width, scheme) in [(1400, "light"), (1400, "dark"), (390, "dark")] {
        browser.resize(width, 900).await;
        browser.prefer(scheme).await;
        for (path, text) in screens {
            open(browser, sandbox, path, text).await;
            check(browser, &format!("{path} at {width}, {scheme}")).await;
            let fits = browser.value("document.documentElement.scrollWidth <= window.innerWidth").await;
            assert_eq!(fits, json!(true), "{path} is wider than {width}");
        }
    }
}

/// An order that waits for the bank is found by the payment's reference; one operator states that it was paid, another
/// one approves it.
async fn a_stuck_order_is_resolved(browser: &Browser, sandbox: &Sandbox, reference: &str) {
    let mut conn = sandbox.database().await;
    let about = "select end_to_end_id from bank_payment where execution = $1";
    let end_to_end_id = text_of(&mut conn, about, reference).await;
    let older = "update execution set accepted_at = accepted_at - interval '20 minutes' where reference = $1";
    sandbox.change(older, reference).await;
    let tokens = ["/operators/0/token", "/operators/1/token"].map(|pointer| sandbox.text(pointer));
    sign_in(browser, sandbox, &tokens[0], "/orders?view=stuck").await;
    browser.begin_task();
    browser.wait_for(&format!("document.body.textContent.includes({})", json!(reference))).await;
    browser.type_keys(&format!("/{end_to_end_id}\u{e007}")).await;
    browser.wait_for(&format!("location.pathname === '/orders/{reference}'")).await;
    browser.task_is_done("find an order by its bank reference");
    let fields = [
        ("provider-reference", "STATEMENT-17"),
        ("reason", "the bank is silent"),
        ("evidence", "statement 17, line 4"),
    ];
    browser.act("The payout was carried out", &fields).await;
    browser.wait_for("location.pathname.startsWith('/approvals/')").await;
    check(browser, "the maker's request").await;
    let request = browser.value("location.pathname").await.as_str().unwrap().to_owned();
    sign_in(browser, sandbox, &tokens[1], &request).await;
    let begun = browser.clicks();
    // While the payment may still be in flight the approval is refused.
    until("the approval", async || {
        browser.count_from(begun);
        browser.press("Approve").await;
        let page = browser.value("document.body.innerText").await;
        let page = page.as_str().unwrap();
        if page.contains("approved") {
            return true;
        }
        assert!(page.contains("still be in flight"), "{page}");
        // The refusal is an answer of its own, which the browser logs.
        browser.complaints().await;
        open(browser, sandbox, &request, "Approve").await;
        false
    })
    .await;
    browser.task_is_done("resolve a stuck payout with two operators");
    let completed = "select state_name from execution where reference = $1 and state_name = 'completed'";
    assert_eq!(text_of(&mut conn, completed, reference).await, "completed");
    open(browser, sandbox, &format!("/orders/{reference}"), "payout.completed").await;
    for shown in ["mark paid", "statement 17, line 4"] {
        browser.wait_for(&format!("document.body.textContent.includes({})", json!(shown))).await;
    }
}

/// The page of a session shows its peer and its gap without a reload. A reset logs the peer out, and begins the numbers
/// anew.
async fn a_session_is_reset(browser: &Browser, sandbox: &Sandbox) {
    // It sends no heartbeats: everything until the reset takes less than their interval.
    let client = &mut FixClient::log_on(sandbox).await;
    let fact = |name: &str, value: &str| {
        format!(
            "[...document.querySelectorAll('.facts > div')].some(fact => \
             fact.querySelector('dt').textContent === {} && fact.querySelector('dd').textContent.startsWith({}))",
            json!(name),
            json!(value)
        )
    };
    open(browser, sandbox, SESSION, "Reset the numbers").await;
    browser.value("(window.isTheSame = true)").await;
    browser.wait_for(&fact("Peer", "127.0.0.1:")).await;
    let next = client.next_out();
    client.beat_as(next + 2).await;
    let missing = format!("{next} to {}", next + 1);
    browser.wait_for(&format!("window.isTheSame && {}", fact("Missing messages", &missing))).await;
    check(browser, "a session with a gap").await;
    open(browser, sandbox, "/fix", &missing).await;
    open(browser, sandbox, SESSION, &missing).await;
    browser.begin_task();
    browser.act("Reset the numbers", &[("reason", "agreed by phone")]).await;
    browser.task_is_done("reset a FIX session");
    browser.wait_for("document.body.textContent.includes('agreed by phone')").await;
    client.report(|message| message.get(35) == "5").await;
    browser.wait_for(&fact("Peer", "not connected")).await;
    browser.wait_for(&fact("Expected MsgSeqNum in", "1")).await;
    check(browser, "the session after its reset").await;
}

async fn a_pair_is_paused(browser: &Browser, sandbox: &Sandbox) {
    open(browser, sandbox, "/treasury", "Balances").await;
    browser.begin_task();
    let pause = [("scope", "pair"), ("target", "USD/EUR"), ("reason", "a feed stands still")];
    browser.act("Pause", &pause).await;
    browser.wait_for("document.body.textContent.includes('a feed stands still')").await;
    browser.task_is_done("pause a pair");
    browser.act("Resume", &[("reason", "it moves again")]).await;
    browser.wait_for("document.body.textContent.includes('Nothing is paused.')").await;
}

async fn webhooks_of_a_range_are_replayed(browser: &Browser, sandbox: &Sandbox) {
    open(browser, sandbox, "/webhooks", "https://127.0.0.1:9/").await;
    browser.begin_task();
    browser.follow_first("main td a.id").await;
    let fields =
        [("from", "2020-01-01T00:00"), ("to", "2020-01-02T00:00"), ("reason", "the receiver was away")];
    browser.act("Replay a range", &fields).await;
    browser.wait_for("location.pathname.startsWith('/webhooks/')").await;
    browser.task_is_done("replay the webhooks of a range");
}

/// What was compared agrees but for what is listed; the day's fees are a file.
async fn a_day_is_closed(browser: &Browser, sandbox: &Sandbox) {
    open(browser, sandbox, "/reconciliation", "Last runs").await;
    browser.begin_task();
    browser.follow_first("nav a[href='/treasury']").await;
    browser.follow("Show the fees of some days").await;
    browser.wait_for("document.querySelector('a[download]') !== null").await;
    check(browser, "the fees of a day").await;
    browser.follow_first("nav a[href='/treasury']").await;
    browser.follow("Show what is reserved or owed").await;
    browser.wait_for("document.querySelector('a[download]') !== null").await;
    browser.task_is_done("close the day");
}

/// Money that a statement has and the ledger has not is a break, whose page offers to credit it, with all but the partner
/// filled in.
async fn an_incoming_payment_is_credited(browser: &Browser, sandbox: &Sandbox) {
    const WIRE: &str = "WIRE-4712";
    let accounts = vec![("USD".to_owned(), "400500600".to_owned())];
    let bank = Bank::open_with_accounts(&sandbox.dir().join("bank"), accounts).await.unwrap();
    bank.deposit(WIRE, "USD", 25_000).await.unwrap();
    let is_it =
        |found: &Value| found["type"] == "unknown_entry" && found["detail"].to_string().contains(WIRE);
    find_break(sandbox, is_it).await;
    let credited = || {
        sandbox.one::<i64>(
        "select count(*) from ledger_entry where reference like '%WIRE-4712' and owner_kind = 'partner' and amount = 25000",
    )
    };
    assert_eq!(credited().await, 0);
    follow(browser, sandbox, WIRE).await;
    browser.begin_task();
    browser.count_from(1);
    check(browser, "the break of an incoming payment").await;
    browser.act("Deposit of a partner", &[("name", "acme")]).await;
    browser.wait_for("document.readyState === 'complete'").await;
    browser.task_is_done("credit a payment from a statement");
    assert_eq!(credited().await, 1);
}

/// A screening list holds an order; one operator releases it, another one approves that.
async fn a_hold_is_released(browser: &Browser, sandbox: &Sandbox, reference: &str) {
    let tokens = ["/operators/0/token", "/operators/1/token"].map(|pointer| sandbox.text(pointer));
    sign_in(browser, sandbox, &tokens[0], &format!("/orders/{reference}")).await;
    browser.begin_task();
    let fields = [("reason", "another person of that name"), ("evidence", "case 17")];
    browser.act("Release: settle although screening holds it", &fields).await;
    browser.wait_for("location.pathname.startsWith('/approvals/')").await;
    let request = browser.value("location.pathname").await.as_str().unwrap().to_owned();
    sign_in(browser, sandbox, &tokens[1], &request).await;
    browser.press("Approve").await;
    browser.wait_for("document.querySelector('.heading .state').textContent === 'approved'").await;
    browser.task_is_done("release a hold of screening");
    let mut conn = sandbox.database().await;
    let completed = "select state_name from execution where reference = $1 and state_name = 'completed'";
    assert_eq!(text_of(&mut conn, completed, reference).await, "completed");
}

/// A chain that was halted is followed again from the block that the page shows as final.
async fn a_chain_is_resumed(browser: &Browser, sandbox: &Sandbox) {
    let halt = "update chain_cursor set halted = 'final_block_changed', halted_detail = 'block 8 is another', \
                                        halted_at = clock_timestamp(), version = version + 1 \
                where chain_id::text = $1";
    sandbox.change(halt, &sandbox.value("/chain/chainId").to_string()).await;
    open(browser, sandbox, "/chains", "Follow again").await;
    check(browser, "a halted chain").await;
    let shared: i64 = sandbox.one("select final_number from chain_cursor").await;
    browser.begin_task();
    let fields = [("shared-block", shared.to_string()), ("reason", "three nodes agree".to_owned())];
    browser.act("Follow again", &fields.each_ref().map(|(name, value)| (*name, value.as_str()))).await;
    browser.task_is_done("resume a chain");
    open(browser, sandbox, "/chains", "following").await;
}

/// The fields of a line of CSV (RFC 4180).
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            // A doubled quote closes and opens: texts with quotes are not in these rows.
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            letter => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

/// The CSV of a page has its rows, and every column of them.
async fn the_csv_has_the_rows_of_the_page(browser: &Browser, sandbox: &Sandbox) {
    let mut conn = sandbox.database().await;
    let mut waiting = 0;
    for (path, expected) in [
        ("/orders", 50),
        ("/orders?view=unfilled", 50),
        ("/orders?state=cancelled&partner=acme", 50),
        // What they wait for, and alarms.
        ("/orders?view=stuck", 0),
        ("/orders?view=alarmed", 0),
    ] {
        open(browser, sandbox, path, "exe_").await;
        let rows = "[...document.querySelectorAll('table.list tbody tr')].map(row => [...row.cells].map(cell => \
                    cell.textContent.trim().replace(/\\s+/g, ' ')))";
        let rows = browser.value(rows).await;
        let address = browser.value("document.querySelector('a[download]').href").await;
        let script = format!("fetch({address}).then(answer => answer.text())");
        let csv = browser.promised(&script).await;
        let lines: Vec<Vec<String>> = csv.as_str().unwrap().lines().skip(1).map(fields).collect();
        let rows = rows.as_array().unwrap();
        assert!(!rows.is_empty() && rows.len() >= expected, "{path}: {} rows", rows.len());
        assert_eq!(rows.len(), lines.len(), "{path}");
        for (row, line) in rows.iter().zip(lines) {
            let cell = |n: usize| row[n].as_str().unwrap();
            assert_eq!((row.as_array().unwrap().len(), line.len()), (8, 12), "{path}");
            assert_eq!(cell(0).replace(' ', "T"), line[1].split('.').next().unwrap(), "{path}");
            assert_eq!([cell(2), cell(3), cell(4)], [&line[0], &line[2], &line[3]], "{path}");
            assert_eq!(cell(1), line[5].replace('_', " "), "{path}");
            assert_eq!(cell(5).replace(',', ""), format!("{} {}", line[6], line[7]), "{path}");
            assert_eq!(cell(6).replace(',', ""), format!("{} {}", line[8], line[9]), "{path}");
            assert_eq!(cell(7), format!("{} {}", line[11], line[10]).trim(), "{path}");
            let intent =
                text_of(&mut conn, "select intent_id from execution where reference = $1", &line[0]).await;
            assert_eq!(line[4], intent, "{path}");
            waiting += usize::from(!line[10].is_empty() || !line[11].is_empty());
        }
    }
    assert!(waiting > 0, "no order waits for anything or has an alarm");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_among_thousands_of_orders() {
    let mut list = tempfile::NamedTempFile::new().unwrap();
    writeln!(list, "account: {HELD}").unwrap();
    let list = list.path().to_str().unwrap();
    let args = ["--bank-files", "--webhook-allow-private", "--screening-list", list];
    let (sandbox, browser) = tokio::join!(Sandbox::start_with(&args), Browser::start());
    let partner = Partner::of(&sandbox);
    // Nobody listens there.
    register(&sandbox, "https://127.0.0.1:9/").await;
    let settled = submit(&sandbox, &partner, 0, "000123456789").await;
    let stuck = submit(&sandbox, &partner, 1, "000123450007").await;
    let returned = submit(&sandbox, &partner, 2, "000123450013").await;
    let held = submit(&sandbox, &partner, 3, HELD).await;
    let mut conn = sandbox.database().await;
    let finished = "select state_name from execution where reference = $1 and state_name = 'completed' \
                      and state ->> 'finality' is not null";
    text_of(&mut conn, finished, &settled).await;
    fill(&mut conn, &settled).await;
    let mut client = FixClient::log_on(&sandbox).await;
    client.cancel("console-1", "unknown").await;
    let archived = "select msg_type from fix_message where cl_ord_id = $1 and is_outbound";
    text_of(&mut conn, archived, "console-1").await;

    a_stuck_order_is_resolved(&browser, &sandbox, &stuck).await;
    a_break_is_traced(&browser, &sandbox).await;
    a_returned_payment_is_traced_and_resolved(&browser, &sandbox, &returned).await;
    a_hold_is_released(&browser, &sandbox, &held).await;
    sign_in(&browser, &sandbox, &sandbox.text("/consoleToken"), "/").await;
    an_incoming_payment_is_credited(&browser, &sandbox).await;
    every_screen_is_in_order(&browser, &sandbox, &settled).await;
    the_csv_has_the_rows_of_the_page(&browser, &sandbox).await;
    a_pair_is_paused(&browser, &sandbox).await;
    webhooks_of_a_range_are_replayed(&browser, &sandbox).await;
    a_day_is_closed(&browser, &sandbox).await;
    a_chain_is_resumed(&browser, &sandbox).await;
    drop(client);
    a_session_is_reset(&browser, &sandbox).await;
    sandbox.stop().await;
}
