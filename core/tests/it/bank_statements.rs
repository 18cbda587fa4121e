//! Statements of the bank against the ledger: what is taken in, what is a break, and what resolves it.

use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::ledger::reconciliation::{BankReport, PATIENCE, compare_bank};
use dvp_core::operators::approvals::approve;
use dvp_core::operators::ledger_operations::{LedgerError, request};
use dvp_core::operators::requests::{Maker, RequestedChange};
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use dvp_rails::Rail as _;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::instruction::uetr;
use dvp_sandbox::bank::statement::{Line, StatementOf};
use dvp_store::ledger::balances;
use dvp_store::reconcile::{find_last_run, list_breaks};
use sha2::{Digest as _, Sha256};

use crate::bank_files::{BankScene, count};
use crate::statements::{closable, close, post_at};

fn line(amount: i64, text: &str) -> Line {
    Line {
        currency: "USD".into(),
        amount,
        end_to_end_id: None,
        bank_reference: format!("B{amount}"),
        text: Some(text.to_owned()),
        at: Utc::now(),
    }
}

fn statement(number: u32, opening: i64, lines: Vec<Line>) -> StatementOf {
    // Each after the one before it.
    let from = Utc::now() + TimeDelta::seconds(i64::from(number) - 3_600);
    let (account, currency, to) = ("400500600".into(), "USD".into(), from + TimeDelta::seconds(1));
    StatementOf { account, currency, id: format!("S{number}"), from, to, opening, lines }
}

async fn send(scene: &BankScene, name: &str, content: &str) {
    drop_into(&scene.files.folder().inbox(), name, content.as_bytes()).await.unwrap();
    scene.files.take_in().await.unwrap();
}

async fn compare_at(scene: &BankScene, now: DateTime<Utc>) -> BankReport {
    let report = compare_bank(scene.harness.pool(), Timestamp::from(now), PATIENCE).await.unwrap();
    report.expect("there are statements")
}

/// The breaks found now, as `kind subject difference`.
async fn breaks_at(scene: &BankScene, now: DateTime<Utc>) -> Vec<String> {
    let report = compare_at(scene, now).await;
    let breaks = report.breaks.iter();
    breaks
        .map(|one| {
            let difference = one.difference.as_ref().unwrap();
            assert_eq!((difference.account.as_str(), difference.asset.as_str()), ("bank:400500600", "USD"));
            format!("{} {} {}", one.kind.as_str(), one.reference.as_deref().unwrap_or("-"), difference.minor)
        })
        .collect()
}

async fn breaks(scene: &BankScene) -> Vec<String> {
    breaks_at(scene, Utc::now()).await
}

/// What the market's providers have in USD at the bank, as its first statement.
async fn openings(scene: &BankScene) -> (StatementOf, i64) {
    let rows: Vec<(String, i64)> = scene.harness.rows("select reference, (-amount)::int8 from ledger_entry where owner_kind = 'external' and asset = 'USD'").await;
    let lines: Vec<Line> = rows.iter().map(|(reference, amount)| line(*amount, reference)).collect();
    let statement = statement(1, 0, lines);
    let closing = statement.closing();
    (statement, closing)
}

async fn deposit(scene: &BankScene, id: &str, amount: u128) {
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let owner = Owner::Provider("north".into());
    balances::deposit(&mut conn, id, &owner, "USD", Minor::new(amount)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_agree_with_the_ledger_and_each_planted_difference_is_one_break_until_it_is_explained() {
    let scene = BankScene::new().await;
    let none = compare_bank(scene.harness.pool(), Timestamp::from(Utc::now()), PATIENCE).await.unwrap();
    assert!(none.is_none(), "nothing is compared before the first statement");
    let (first, closing) = openings(&scene).await;
    send(&scene, "1.xml", &first.render()).await;
    assert_eq!(breaks(&scene).await, [""; 0]);
    let mut conn = scene.harness.pool().acquire().await.unwrap();

    // Money of nobody; posted later, it is somebody's.
    let second = statement(2, closing, vec![line(700, "W7")]);
    send(&scene, "2.xml", &second.render()).await;
    assert_eq!(breaks(&scene).await, ["unknown_entry B700 700"]);
    let run = find_last_run(&mut conn, None).await.unwrap().unwrap();
    let found = list_breaks(&mut conn, run.id).await.unwrap();
    assert_eq!(breaks(&scene).await, ["unknown_entry B700 700"], "it stays");
    let run = find_last_run(&mut conn, None).await.unwrap().unwrap();
    let again = list_breaks(&mut conn, run.id).await.unwrap();
    assert_eq!(found[0].first_seen_at, again[0].first_seen_at, "since it was found first");
    deposit(&scene, "W7", 700).await;
    assert_eq!(breaks(&scene).await, [""; 0]);

    // The same twice.
    let third = statement(3, closing + 700, vec![line(700, "W7")]);
    send(&scene, "3.xml", &third.render()).await;
    assert_eq!(breaks(&scene).await, ["duplicate_entry deposit:W7 700"]);
    let fourth = statement(4, closing + 1_400, vec![line(-700, "W7")]);
    send(&scene, "4.xml", &fourth.render()).await;
    assert_eq!(breaks(&scene).await, [""; 0], "the bank has corrected it");

    // Posted and not at the bank: on its way for a while.
    deposit(&scene, "W8", 30).await;
    let report = compare_at(&scene, Utc::now()).await;
    assert_eq!((report.breaks.len(), report.in_transit), (0, 1));
    let later = Utc::now() + PATIENCE + TimeDelta::seconds(60);
    assert_eq!(breaks_at(&scene, later).await, ["missing_at_bank deposit:W8 -30"]);

    // A statement is missing, and comes late.
    let fifth = statement(5, closing + 700, vec![line(30, "W8")]);
    let sixth = statement(6, fifth.closing(), vec![]);
    send(&scene, "6.xml", &sixth.render()).await;
    let found = breaks(&scene).await;
    assert_eq!(found, ["statement_gap - 30"]);
    send(&scene, "5.xml", &fifth.render()).await;
    assert_eq!(breaks(&scene).await, [""; 0]);

    // Another amount.
    deposit(&scene, "W9", 100).await;
    let seventh = statement(7, sixth.closing(), vec![line(99, "W9")]);
    send(&scene, "7.xml", &seventh.render()).await;
    assert_eq!(breaks(&scene).await, ["amount_differs deposit:W9 -1"]);

    // A posting that was never taken in shows in the balance.
    let sql = "update bank_posting set amount = amount + 5 where subject = 'deposit:W9'";
    scene.harness.run(sql).await;
    let found = breaks(&scene).await;
    assert_eq!(found, ["amount_differs deposit:W9 -6", "balance_differs - 5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_statement_counts_once_and_a_wrong_one_not_at_all() {
    let scene = BankScene::new().await;
    let (first, closing) = openings(&scene).await;
    let entries = "select count(*) from bank_entry";
    send(&scene, "1.xml", &first.render()).await;
    let count_before = scene.harness.count(entries).await;
    assert_eq!(usize::try_from(count_before).unwrap(), first.lines.len());
    // The same file; the same statement in another file.
    send(&scene, "1.xml", &first.render()).await;
    send(&scene, "again.xml", &first.render().replace("<MsgId>S1", "<MsgId>S1B")).await;
    assert_eq!(scene.harness.count(entries).await, count_before);
    assert_eq!(count(scene.files.folder().archive()).await, 3);
    // Another statement of the same name.
    let mut other = first.clone();
    other.lines.push(line(5, "five more"));
    send(&scene, "other.xml", &other.render()).await;
    // One whose entries do not lead to its closing balance.
    let wrong = statement(2, closing, vec![line(5, "W1")]);
    let rendered = wrong.render().replacen("<Amt Ccy=\"USD\">0.05</Amt>", "<Amt Ccy=\"USD\">0.06</Amt>", 1);
    send(&scene, "wrong.xml", &rendered).await;
    let refusals: Vec<String> =
        sqlx::query_scalar("select refusal from bank_file where refusal is not null order by name")
            .fetch_all(scene.harness.pool())
            .await
            .unwrap();
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert_eq!(refusals[0], "statement S1 came before and said something else");
    assert!(refusals[1].starts_with("statement S2 opens with"), "{refusals:?}");
    assert_eq!(count(scene.files.folder().quarantine()).await, 2);
    assert_eq!(scene.harness.count(entries).await, count_before);
    // Somebody else's account.
    let foreign = StatementOf { account: "999".into(), ..statement(3, 0, vec![line(1, "x")]) };
    send(&scene, "foreign.xml", &foreign.render()).await;
    assert_eq!(scene.harness.count(entries).await, count_before);
    let digest = hex::encode(Sha256::digest(foreign.render().as_bytes()));
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let alarms = dvp_store::orders::bank::list_alarms(&mut conn, 10).await.unwrap();
    assert!(alarms.iter().any(|alarm| alarm.subject == digest && alarm.alarm == "1 unknown payments"));
    assert_eq!(scene.harness.count("select count(*) from bank_statement").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_which_more_is_read_than_when_it_came_is_the_same_one() {
    let scene = BankScene::new().await;
    let (first, _) = openings(&scene).await;
    send(&scene, "1.xml", &first.render()).await;
    let said = || async {
        let sql = "select refs::text, amount::int8 from bank_entry order by line";
        scene.harness.rows::<(String, i64)>(sql).await
    };
    let before = said().await;
    let read_less = "with s as (update bank_statement set content = sha256('less')) \
                     update bank_entry set refs = refs[2:], end_to_end_id = null";
    let again = first.render().replace("<MsgId>S1", "<MsgId>S1B");
    for (name, content) in [("1.xml", first.render()), ("again.xml", again.clone())] {
        scene.harness.run(read_less).await;
        assert_ne!(said().await, before);
        send(&scene, name, &content).await;
        assert_eq!(scene.harness.count("select count(*) from bank_file where refusal is not null").await, 0);
    }
    assert_eq!(said().await, before, "its entries have what is read now");
    // One reference of it is another one.
    let reference = format!(">{}<", first.lines[0].bank_reference);
    send(&scene, "other.xml", &again.replace(&reference, ">ANOTHER<")).await;
    assert_eq!(scene.harness.count("select count(*) from bank_file where refusal is not null").await, 1);
    assert_eq!(said().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_debit_of_a_payment_is_found_by_its_uetr_and_is_no_fee() {
    let scene = BankScene::new().await;
    let (first, closing) = openings(&scene).await;
    send(&scene, "1.xml", &first.render()).await;
    scene.files.submit(&crate::bank_files::request("a", false)).await.unwrap();
    let id = "A".repeat(32);
    let debit = Line { end_to_end_id: Some(id.clone()), ..line(-9_935, "debited") };
    let named = format!("<EndToEndId>{id}</EndToEndId>");
    let uetr = uetr(&id).unwrap().to_uppercase();
    let content = statement(2, closing, vec![debit])
        .render()
        .replace(&named, &format!("<EndToEndId>NOTPROVIDED</EndToEndId><UETR>{uetr}</UETR>"));
    send(&scene, "2.xml", &content).await;
    let late = Utc::now() + PATIENCE + TimeDelta::seconds(60);
    assert_eq!(breaks_at(&scene, late).await, ["missing_in_ledger exe_x -9935"]);
    let refusal = requested(&scene, "B-9935", &charge("B-9935", 9_935)).await.unwrap_err().to_string();
    assert!(refusal.contains("a payment that was ordered"), "{refusal}");
}

fn charge(entry: &str, amount: u128) -> Operation {
    Operation::Charge { asset: "USD".into(), amount: Minor::new(amount), entry: entry.into() }
}

async fn requested(
    scene: &BankScene,
    id: &str,
    operation: &Operation,
) -> Result<RequestedChange, LedgerError> {
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let maker = Maker { operator: "jo", reason: "fee of November", evidence: "statement 2, line 1" };
    request(&mut conn, id, operation, maker).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fee_of_the_bank_is_a_break_until_two_operators_have_posted_it() {
    let scene = BankScene::new().await;
    let (first, closing) = openings(&scene).await;
    send(&scene, "1.xml", &first.render()).await;
    // A payment of ours, and three fees: one of them names the payment.
    scene.files.submit(&crate::bank_files::request("a", false)).await.unwrap();
    let end_to_end_id = "A".repeat(32);
    let of_payment = |amount| Line {
        end_to_end_id: Some(end_to_end_id.clone()),
        bank_reference: format!("BK{amount}"),
        text: None,
        ..line(amount, "")
    };
    let fees = vec![line(-350, "monthly"), of_payment(-9_935), of_payment(-15)];
    send(&scene, "2.xml", &statement(2, closing, fees).render()).await;
    let late = Utc::now() + PATIENCE + TimeDelta::seconds(60);
    let all = ["unknown_entry B-350 -350", "missing_in_ledger exe_x -9935", "missing_in_ledger exe_x -15"]
        .map(str::to_owned);
    let mut found = breaks_at(&scene, late).await;
    found.sort();
    let mut wanted = all.to_vec();
    wanted.sort();
    assert_eq!(found, wanted);

    let refusal = |id: &'static str, operation: Operation| {
        let scene = &scene;
        async move { requested(scene, id, &operation).await.expect_err("refused").to_string() }
    };
    assert!(refusal("B-1", charge("B-350", 350)).await.contains("the id of a charge"));
    assert!(refusal("B-350", charge("B-350", 351)).await.contains("no statement has a debit"));
    assert!(refusal("nothing", charge("nothing", 350)).await.contains("no statement has a debit"));
    let payment = refusal("BK-9935", charge("BK-9935", 9_935)).await;
    assert!(payment.contains("a payment that was ordered"), "{payment}");

    let mut conn = scene.harness.pool().acquire().await.unwrap();
    for (id, amount) in [("B-350", 350), ("BK-15", 15)] {
        let first = requested(&scene, id, &charge(id, amount)).await.unwrap();
        let again = requested(&scene, id, &charge(id, amount)).await.unwrap();
        assert!(again.repeated && again.approval.id == first.approval.id);
        approve(&mut conn, &first.approval.id, "mika", "seen").await.unwrap();
        assert!(requested(&scene, id, &charge(id, amount)).await.unwrap().repeated, "{id} is posted once");
    }
    // The same entry under another of its references, before the next comparison.
    let other = refusal("monthly", charge("monthly", 350)).await;
    assert!(other.contains("another of its references"), "{other}");
    assert_eq!(breaks_at(&scene, late).await, ["missing_in_ledger exe_x -9935"]);
    let again = refusal("monthly", charge("monthly", 350)).await;
    assert!(again.contains("no statement has a debit"), "{again}");
    let charged =
        "select (-sum(amount))::int8 from ledger_entry where reason = 'charge' and owner_kind = 'house'";
    assert_eq!(scene.harness.count(charged).await, 365);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_earlier_than_the_first_one_finds_its_postings_though_they_were_of_the_opening() {
    let scene = BankScene::new().await;
    deposit(&scene, "W1", 700).await;
    let (all, closing) = openings(&scene).await;
    let posted = i64::try_from(all.lines.len()).unwrap();
    assert!(posted > 1);
    let of_opening = "select count(*) from bank_posting where is_of_opening";
    let (soon, second) = (Utc::now() + TimeDelta::seconds(60), TimeDelta::seconds(1));
    let later = statement(2, closing, vec![]);
    let later = StatementOf { from: soon + second, to: soon + second + second, ..later };
    send(&scene, "2.xml", &later.render()).await;
    let late = Utc::now() + PATIENCE + TimeDelta::seconds(120);
    assert_eq!(breaks_at(&scene, late).await, [""; 0]);
    assert_eq!(scene.harness.count(of_opening).await, posted);
    // Its entries were posted before it begins; one more posting is in its opening balance.
    let mut earlier = StatementOf { from: soon, to: soon + second, ..all };
    earlier.opening = earlier.lines.remove(0).amount;
    assert_eq!(earlier.closing(), closing);
    send(&scene, "1.xml", &earlier.render()).await;
    assert_eq!(breaks_at(&scene, late).await, [""; 0]);
    assert_eq!(scene.harness.count(of_opening).await, 1);
    assert_eq!(breaks_at(&scene, late).await, [""; 0]);
    assert_eq!(scene.harness.count("select count(*) from bank_entry where paired_at is null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_posted_after_the_clock_was_set_back_is_compared_at_once() {
    let scene = BankScene::new().await;
    let (first, _) = openings(&scene).await;
    send(&scene, "1.xml", &first.render()).await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let ahead = Utc::now() + TimeDelta::minutes(40);
    post_at(&mut conn, "op-ahead", &ahead.to_rfc3339(), 3).await.unwrap();
    assert_eq!(breaks(&scene).await, [""; 0]);
    let now = Utc::now();
    post_at(&mut conn, "op-now", &now.to_rfc3339(), 4).await.unwrap();
    assert_eq!(breaks(&scene).await, [""; 0], "it is read, though it is earlier than the newest one");
    // Committed late, or by a clock that was set back a little.
    let before = now - TimeDelta::minutes(9);
    post_at(&mut conn, "op-late", &before.to_rfc3339(), 5).await.unwrap();
    let report = compare_at(&scene, Utc::now()).await;
    assert_eq!((report.breaks, report.in_transit), (vec![], 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_posting_is_compared_when_its_hour_is_closed() {
    let scene = BankScene::new().await;
    let (first, _) = openings(&scene).await;
    send(&scene, "1.xml", &first.render()).await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let hour = closable(&mut conn).await;
    let closed = "insert into ledger_closed (until, announced) values ($1, $1)";
    sqlx::query(closed).bind(hour - TimeDelta::hours(1)).execute(&mut *conn).await.unwrap();
    assert_eq!(breaks(&scene).await, [""; 0]);
    // As after a time without comparisons: no clock tells that it was posted after the others.
    let before = hour - TimeDelta::minutes(30);
    post_at(&mut conn, "op-late", &before.to_rfc3339(), 5).await.unwrap();
    assert_eq!(breaks(&scene).await, ["balance_differs - 5"]);
    close(&scene.harness, &hour.to_rfc3339()).await;
    let report = compare_at(&scene, Utc::now()).await;
    assert_eq!((report.breaks, report.in_transit), (vec![], 1));
    // And is not read again.
    let read =
        "select count(*) from bank_comparison where complete_until = (select until from ledger_closed)";
    assert_eq!(scene.harness.count(read).await, 1);
}
