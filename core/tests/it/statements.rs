//! Statements and reports agree with the ledger to the minor unit, over random postings.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use dvp_core::ledger::rebuild;
use dvp_core::ledger::statements::bank::BankStatements;
use dvp_core::ledger::statements::csv::{self, Decimals, StatementCsv};
use dvp_core::ledger::statements::{
    self, BalanceAt, EntryPlace, FeeSum, StatementAccount, StatementEntry, StatementError, TimeRange,
    read_page, write_statements,
};
use dvp_core::workflow::ledger_closings::close_hours;
use dvp_domain::ledger::{Account, Claimant, Move, Owner, Part, Posting, PostingReason, Precise, deposited};
use dvp_domain::money::Minor;
use dvp_rails::iso20022::answers;
use dvp_rails::iso20022::schema::{Message, check};
use dvp_rails::iso20022::xml::Document;
use dvp_store::ledger::{NewPosting, insert_once};
use dvp_testing::Harness;
use dvp_testing::dice::Dice;
use dvp_testing::wait::wait_for;
use expect_test::expect;

use crate::scenes;

const ASSETS: [&str; 2] = ["USD", "WETH"];

fn owners() -> [Owner; 2] {
    [Owner::Provider("north".into()), Owner::Partner { id: "ptn_acme".into(), livemode: false }]
}

/// Every kind of account.
fn accounts() -> Vec<Account> {
    let halves =
        |owner: Owner| [Part::Available, Part::Reserved].map(|part| Account::Balance(owner.clone(), part));
    let mut all: Vec<Account> = owners().into_iter().flat_map(halves).collect();
    all.extend([
        Account::Claim(Claimant::Provider("north".into())),
        Account::Claim(Claimant::House),
        Account::Owed("north".into()),
        Account::External("provider:north".into()),
        Account::External("partner:ptn_acme:test".into()),
        Account::External("exe_1".into()),
        Account::Debt("exe_1".into()),
        Account::Escrow,
        Account::Clearing,
        Account::Fees,
        Account::Residual,
        Account::House,
    ]);
    all
}

fn amount(dice: &mut Dice, from: &Account, to: &Account) -> Precise {
    let may_be_fraction = matches!((from, to), (Account::Owed(_), Account::Residual));
    let minor = Minor::new(u128::from(dice.throw(1_000_000)) * u128::from(dice.throw(1_000_000) + 1) + 1);
    Precise { minor, e18: if may_be_fraction { dice.throw(1_000_000_000_000_000_000) } else { 0 } }
}

/// Posts random moves, each in a transaction of its own; deposits first, so that limited balances suffice.
async fn post(harness: &Harness, dice: &mut Dice, count: usize) {
    let mut conn = harness.pool().acquire().await.unwrap();
    for (number, owner) in owners().into_iter().enumerate() {
        for asset in ASSETS {
            for part in [Part::Available, Part::Reserved] {
                let mut posting = deposited(owner.clone(), asset, Minor::new(1 << 100));
                posting.moves[0].to = Account::Balance(owner.clone(), part);
                let reference = format!("deposit:{number}{asset}{part:?}");
                insert_once(&mut conn, &NewPosting { reference, step: 1, posting }).await.unwrap();
            }
        }
    }
    // One account has more entries than a page.
    let all: Vec<Account> = accounts().into_iter().chain(std::iter::repeat_n(Account::Fees, 6)).collect();
    for number in 0..count {
        let moves = (0..=dice.throw(5))
            .filter_map(|_| {
                let (from, to) = (dice.pick(&all).clone(), dice.pick(&all).clone());
                let asset = (*dice.pick(&ASSETS)).to_owned();
                let amount = amount(dice, &from, &to);
                (from != to).then_some(Move { asset, from, to, amount })
            })
            .collect();
        let reason = *dice.pick(&[PostingReason::Settle, PostingReason::Pay, PostingReason::Adjust]);
        // Accounts of single orders are read by the order's reference.
        let reference = if dice.throw(4) == 0 { format!("op,{number}") } else { "exe_1".to_owned() };
        let is_of_order = |account: &Account| {
            matches!(account, Account::Debt(_)) || *account == Account::External("exe_1".into())
        };
        let moves: Vec<Move> = moves;
        let moves = moves
            .into_iter()
            .filter(|one| reference == "exe_1" || !(is_of_order(&one.from) || is_of_order(&one.to)))
            .collect();
        let step = i64::try_from(number).unwrap() + 2;
        let new = NewPosting { reference, step, posting: Posting { reason, moves } };
        insert_once(&mut conn, &new).await.unwrap();
    }
}

async fn sum(harness: &Harness, account: &StatementAccount, asset: &str, before: DateTime<Utc>) -> String {
    let sum = sqlx::query_scalar(
        "select trim_scale(coalesce(sum(amount), 0))::text from ledger_entry \
         where (owner_kind, owner, part, asset) = ($1, $2, $3, $4) and recorded_at < $5",
    );
    let sum = sum.bind(&account.kind).bind(&account.owner).bind(&account.part).bind(asset).bind(before);
    sum.fetch_one(harness.pool()).await.unwrap()
}

/// Sums numbers exactly, as PostgreSQL does.
async fn add(harness: &Harness, numbers: &[String]) -> String {
    sqlx::query_scalar(
        "select trim_scale(coalesce(sum(n::numeric), 0))::text from unnest($1::text[]) as t (n)",
    )
    .bind(numbers)
    .fetch_one(harness.pool())
    .await
    .unwrap()
}

const HEADER: &str =
    "line,account,asset,decimals,recorded_at,reference,step,reason,amount_minor,balance_minor";

fn decimals() -> Decimals {
    Decimals::from([("USD".to_owned(), 2), ("WETH".to_owned(), 18)])
}

async fn statement(
    harness: &Harness,
    account: &StatementAccount,
    asset: &str,
    range: TimeRange,
) -> Vec<Vec<String>> {
    let decimals = decimals();
    let mut sink = StatementCsv::begin(Vec::new(), &decimals).unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let accounts = std::slice::from_ref(account);
    let count = write_statements(&mut conn, accounts, Some(asset), range, &mut sink).await.unwrap();
    assert_eq!(count, 1);
    let text = String::from_utf8(sink.finish().unwrap()).unwrap();
    let (header, lines) = text.split_once("\r\n").unwrap();
    assert_eq!(header, HEADER);
    // The only quoted field is the reference.
    let fields =
        |line: &str| line.replace("\"op,", "op_").replace('"', "").split(',').map(str::to_owned).collect();
    lines.lines().map(fields).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_random_postings_agree_with_the_ledger_to_the_minor_unit() {
    let harness = scenes::harness_with(0).await;
    let mut dice = Dice(1);
    post(&harness, &mut dice, 2_200).await;
    let times: Vec<DateTime<Utc>> =
        sqlx::query_scalar("select distinct recorded_at from ledger_entry order by 1")
            .fetch_all(harness.pool())
            .await
            .unwrap();
    let end = *times.last().unwrap() + TimeDelta::microseconds(1);
    let cuts = [times[0], times[times.len() / 8], end];
    let (mut entries_seen, mut longest) = (0, 0);
    for account in accounts().iter().map(StatementAccount::from) {
        for asset in ASSETS {
            let mut closing_before = sum(&harness, &account, asset, times[0]).await;
            for cut in cuts.windows(2) {
                let range = TimeRange { from: cut[0], to: cut[1] };
                let lines = statement(&harness, &account, asset, range).await;
                let (first, last) = (&lines[0], &lines[lines.len() - 1]);
                assert_eq!((first[0].as_str(), last[0].as_str()), ("opening", "closing"));
                assert_eq!(first[9], closing_before, "a statement begins where the last one ended");
                let entries = &lines[1..lines.len() - 1];
                let mut parts = vec![first[9].clone()];
                for entry in entries {
                    assert_eq!((entry[0].as_str(), entry[2].as_str()), ("entry", asset));
                    assert_eq!(entry[3], decimals()[asset].to_string());
                    parts.push(entry[8].clone());
                }
                assert_eq!(
                    add(&harness, &parts).await,
                    last[9],
                    "opening and entries are the closing balance"
                );
                if let Some(entry) = entries.last() {
                    assert_eq!(entry[9], last[9]);
                }
                assert_eq!(last[9], sum(&harness, &account, asset, range.to).await);
                closing_before.clone_from(&last[9]);
                entries_seen += entries.len();
                longest = longest.max(entries.len());
            }
        }
    }
    assert!(longest > 1_000, "more than a page: {longest}");
    let all = harness.count("select count(*) from ledger_entry").await;
    assert_eq!(i64::try_from(entries_seen).unwrap(), all, "every entry is on one statement");
}

/// The balances that are reserved, in progress or owed.
fn exposed(mut balances: Vec<BalanceAt>) -> Vec<BalanceAt> {
    balances.retain(|one| {
        ["reserved", "claim", "owed"].contains(&one.part.as_str())
            || ["escrow", "clearing", "debt"].contains(&one.owner_kind.as_str())
    });
    balances
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_random_postings_agree_with_the_ledger_to_the_minor_unit() {
    let harness = scenes::harness_with(0).await;
    post(&harness, &mut Dice(3), 400).await;
    let (from, to) = (DateTime::UNIX_EPOCH, DateTime::<Utc>::MAX_UTC);
    let mut conn = harness.pool().acquire().await.unwrap();

    let balances = statements::balances(&mut conn, to).await.unwrap();
    let mut out = Vec::new();
    csv::write_balances(&mut out, &balances, &decimals()).unwrap();
    let text = String::from_utf8(out).unwrap();
    for asset in ASSETS {
        let column: Vec<String> = text
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .filter(|fields| fields[1] == asset)
            .map(|fields| fields[3].to_owned())
            .collect();
        assert!(column.len() > 10, "{text}");
        assert_eq!(add(&harness, &column).await, "0", "the trial balance");
    }
    for (account, name) in [(Account::Fees, "fees"), (Account::Debt("exe_1".into()), "debt:executions")] {
        let account = StatementAccount::from(&account);
        let line = format!("{name},USD,2,{},1", sum(&harness, &account, "USD", to).await);
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }

    let exposure = statements::exposure(&mut conn, to).await.unwrap();
    assert_eq!(exposure, exposed(balances));
    let held = |kind: &str| exposure.iter().any(|one| one.owner_kind == kind);
    assert!(held("escrow") && held("debt") && held("provider") && !held("fees") && !held("external"));

    let fees = statements::fees(&mut conn, TimeRange { from, to }).await.unwrap();
    let mut out = Vec::new();
    csv::write_fees(&mut out, &fees, &decimals()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let earned: Vec<String> = text
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|fields| fields[1] == "USD")
        .map(|fields| fields[4].to_owned())
        .collect();
    let account = StatementAccount::from(&Account::Fees);
    assert_eq!(add(&harness, &earned).await, sum(&harness, &account, "USD", to).await);

    let empty = statements::fees(&mut conn, TimeRange { from: to, to }).await;
    assert!(matches!(empty, Err(StatementError::EmptyRange)), "{empty:?}");
}

/// Moves a provider's money to fees in a transaction that began at a time.
pub(crate) async fn post_at(
    conn: &mut sqlx::PgConnection,
    reference: &str,
    at: &str,
    amount: i64,
) -> sqlx::Result<()> {
    sqlx::query(
        "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount, recorded_at) \
         values ($1, 1, 1, 'adjust', 'house', '', 'total', 'USD', -$2::numeric, $3::timestamptz), \
                ($1, 1, 2, 'adjust', 'fees', '', 'total', 'USD', $2::numeric, $3::timestamptz), \
                ($1, 1, 3, 'adjust', 'house', '', 'total', 'USD', -$2::numeric, $3::timestamptz), \
                ($1, 1, 4, 'adjust', 'external', 'exe_1', 'total', 'USD', $2::numeric, $3::timestamptz)",
    )
    .bind(reference)
    .bind(amount)
    .bind(at)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Closes the ledger until a time. A transaction of any test holds it back, as any transaction of a server does.
pub(crate) async fn close(harness: &Harness, until: &str) {
    wait_for("the ledger to be closed", || async {
        close_hours(&harness.engine).await.unwrap();
        let closed = "select until >= $1::text::timestamptz and announced = until from ledger_closed";
        let is_closed: bool = sqlx::query_scalar(closed).bind(until).fetch_one(harness.pool()).await.unwrap();
        is_closed.then_some(())
    })
    .await;
}

/// Fees, from the entries alone.
async fn added_up(conn: &mut sqlx::PgConnection, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<FeeSum> {
    sqlx::query_as(
        "select (recorded_at at time zone 'UTC')::date as day, asset, reason, \
                trim_scale(coalesce(sum(amount) filter (where owner_kind = 'fees'), 0))::text as earned, \
                trim_scale(coalesce(sum(-amount) filter (where owner_kind = 'house'), 0))::text as absorbed, \
                count(*) as entries \
         from ledger_entry \
         where recorded_at >= $1 and recorded_at < $2 \
           and (owner_kind = 'fees' or (owner_kind = 'house' and part = 'total' and reason in ('settle', 'charge'))) \
         group by 1, 2, 3 order by 1, 2, 3",
    )
    .bind(from)
    .bind(to)
    .fetch_all(conn)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_as_banks_send_them_are_read_to_the_balances_of_the_ledger() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for (n, amount) in [700, 5, 123_456_789].into_iter().enumerate() {
        post_at(&mut conn, &format!("op_{n}"), &format!("2026-10-0{}T10:00:00Z", n + 1), amount)
            .await
            .unwrap();
    }
    let accounts = [&Account::Fees, &Account::House, &Account::Residual].map(StatementAccount::from);
    let [from, to] = ["2026-10-02T00:00:00Z", "2026-10-04T00:00:00Z"].map(|at| at.parse().unwrap());
    let (range, decimals) = (TimeRange { from, to }, decimals());
    let mut sink = BankStatements::new(&decimals, range);
    write_statements(&mut conn, &accounts[..2], None, range, &mut sink).await.unwrap();
    assert_eq!(sink.left_out, [""; 0]);
    let file = answers::read(sink.camt053().as_bytes(), to).unwrap();
    assert_eq!(file.set_aside, [""; 0]);
    let document = Document::read(sink.camt053().as_bytes()).unwrap();
    assert_eq!(check(Message::Camt053, &document), []);
    let sign = |one: &Account| if *one == Account::Fees { 1 } else { -1 };
    for (read, account) in file.statements.iter().zip([Account::Fees, Account::House]) {
        let of = StatementAccount::from(&account);
        for (balance, at) in [(read.opening, from), (read.closing, to)] {
            assert_eq!(balance.to_string(), sum(&harness, &of, "USD", at).await, "{account:?}");
        }
        let mut entries: Vec<i128> = read.entries.iter().map(|entry| entry.amount * sign(&account)).collect();
        entries.dedup();
        assert_eq!(entries, [5, 123_456_789], "{account:?}");
    }
    expect![[r#"
        :20:261002261003USD
        :25:fees
        :28C:26275/1
        :60F:C261002USD7,00
        :61:2610021002C0,05NTRFop-1
        :86:adjust op-1 1
        :61:2610031003C1234567,89NTRFop-2
        :86:adjust op-2 1
        :62F:C261003USD1234574,94
        :86:fees
        -
        :20:261002261003USD
        :25:house
        :28C:26275/1
        :60F:D261002USD14,00
        :61:2610021002D0,05NTRFop-1
        :86:adjust op-1 1
        :61:2610021002D0,05NTRFop-1
        :86:adjust op-1 1
        :61:2610031003D1234567,89NTRFop-2
        :86:adjust op-2 1
        :61:2610031003D1234567,89NTRFop-2
        :86:adjust op-2 1
        :62F:D261003USD2469149,88
        :86:house
        -
    "#]]
    .assert_eq(&sink.mt940().replace("\r\n", "\n"));
    let mut none = BankStatements::new(&decimals, range);
    write_statements(&mut conn, &accounts, Some("WETH"), range, &mut none).await.unwrap();
    assert!(none.is_empty() && none.left_out[0].contains("no money of ISO 4217"), "{:?}", none.left_out);
}

#[tokio::test(flavor = "multi_thread")]
async fn debits_and_credits_of_each_posting_in_the_journal_add_up_to_the_same() {
    let harness = scenes::harness_with(0).await;
    post(&harness, &mut Dice(3), 300).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let range = TimeRange { from: Utc::now() - TimeDelta::days(1), to: Utc::now() + TimeDelta::days(1) };
    let mut written = Vec::new();
    let lines = statements::write_journal(&mut conn, range, &mut written, &decimals()).await.unwrap();
    let entries = harness.count("select count(*) from ledger_entry").await;
    assert_eq!(lines, u64::try_from(entries).unwrap());
    let text = String::from_utf8(written).unwrap().replace("\"op,", "op_").replace('"', "");
    let mut sums: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, reference, step, _, _, asset, _, debit, credit] = fields[..] else { panic!("{line}") };
        let of = sums.entry(format!("{reference} {step} {asset}")).or_default();
        let side = usize::from(debit.is_empty());
        of[side].push([debit, credit][side].to_owned());
    }
    assert!(sums.len() > 300, "{}", sums.len());
    for (posting, [debits, credits]) in sums {
        assert_eq!(add(&harness, &debits).await, add(&harness, &credits).await, "{posting}");
    }
}

async fn opening(harness: &Harness, account: &StatementAccount, at: DateTime<Utc>) -> String {
    let range = TimeRange { from: at, to: at + TimeDelta::days(400) };
    statement(harness, account, "USD", range).await[0][9].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_begins_with_the_last_closing_and_the_postings_since() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let times = [
        "2026-10-02T23:59:59.999999Z",
        "2026-10-03T00:00:00Z",
        "2026-10-03T23:59:59.999999Z",
        "2026-10-04T00:00:00Z",
        // Two days without a posting.
        "2026-10-07T12:00:00Z",
    ];
    for (n, at) in times.iter().enumerate() {
        post_at(&mut conn, &format!("op-{n}"), at, 1 << n).await.unwrap();
    }
    close(&harness, "2026-10-09").await;
    let today = Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string();
    post_at(&mut conn, "op-today", &today, 1_000).await.unwrap();
    let fees = StatementAccount::from(&Account::Fees);
    let house = StatementAccount::from(&Account::House);
    let cuts = times.map(|at| at.parse::<DateTime<Utc>>().unwrap());
    let micro = TimeDelta::microseconds(1);
    let around = cuts.iter().flat_map(|&at| [at - micro, at, at + micro]);
    for at in around.chain([Utc::now() + TimeDelta::days(1), "2026-10-06T00:00:00Z".parse().unwrap()]) {
        for account in [&fees, &house] {
            assert_eq!(opening(&harness, account, at).await, sum(&harness, account, "USD", at).await, "{at}");
        }
    }
    let ends = [cuts[0] - micro, cuts[1], cuts[2] + micro, cuts[4], "2026-10-05T00:00:00Z".parse().unwrap()];
    for from in ends.into_iter().chain([DateTime::UNIX_EPOCH]) {
        for to in ends.into_iter().chain([Utc::now() + TimeDelta::days(1), DateTime::<Utc>::MAX_UTC]) {
            if from < to {
                let sums = statements::fees(&mut conn, TimeRange { from, to }).await.unwrap();
                assert_eq!(sums, added_up(&mut conn, from, to).await, "{from} to {to}");
            }
        }
    }
    let changed = "update ledger_fee_day set earned = earned + 5 where day = '2026-10-03'";
    assert_eq!(sqlx::query(changed).execute(&mut *conn).await.unwrap().rows_affected(), 1);
    let (from, to) = (cuts[1], "2026-10-04T00:00:00Z".parse().unwrap());
    let day = statements::fees(&mut conn, TimeRange { from, to }).await.unwrap();
    assert_eq!(day[0].earned, "11", "the day's sum is what is read: {day:?}");
    let all = dvp_store::ledger::closings::load_bank_balance(&mut conn, "USD").await.unwrap();
    assert_eq!(all, "-1031", "recipients of all orders are one account");
    // The closing is what is read, not the history.
    let changed =
        "update ledger_closing set amount = amount + 5 where owner_kind = 'fees' and until = '2026-10-04'";
    assert_eq!(sqlx::query(changed).execute(&mut *conn).await.unwrap().rows_affected(), 1);
    let at = "2026-10-04T00:00:00Z".parse().unwrap();
    assert_eq!(opening(&harness, &fees, at).await, "12");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_is_closed_once_nobody_can_post_to_it_any_more() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    post_at(&mut conn, "op-1", "2026-10-02T10:00:00Z", 1).await.unwrap();
    // Somebody has posted to the day, and has not committed.
    let mut late = harness.pool().begin().await.unwrap();
    post_at(&mut late, "op-2", "2026-10-02T23:00:00Z", 2).await.unwrap();
    assert_eq!(close_hours(&harness.engine).await.unwrap(), 0, "its posting is waited for");
    let refused = post_at(&mut conn, "op-3", "2026-10-02T23:30:00Z", 4).await.unwrap_err();
    let constraint = refused.as_database_error().and_then(|error| error.constraint().map(str::to_owned));
    assert_eq!(constraint.as_deref(), Some("ledger_entry_day_closed"), "no more are taken");
    post_at(&mut conn, "op-4", "2026-10-03T00:00:00Z", 8).await.unwrap();
    late.commit().await.unwrap();
    close(&harness, "2026-10-04").await;
    let expected = [("2026-10-02 11:00", "1"), ("2026-10-03 00:00", "3"), ("2026-10-03 01:00", "11")];
    assert_eq!(
        fee_closings(&mut conn).await,
        expected.map(|(at, amount)| (at.to_owned(), amount.to_owned()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_goes_on_page_by_page_over_closed_hours() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let times = [
        "2026-10-02T10:00:00Z",
        "2026-10-02T20:00:00Z",
        "2026-10-03T10:00:00Z",
        "2026-10-03T20:00:00Z",
        "2026-10-04T10:00:00Z",
        "2026-10-04T20:00:00Z",
    ];
    for (n, at) in times.iter().enumerate() {
        post_at(&mut conn, &format!("op-{n}"), at, 1 << n).await.unwrap();
    }
    close(&harness, "2026-10-07").await;
    let fees = StatementAccount::from(&Account::Fees);
    let range = TimeRange {
        from: times[0].parse().unwrap(),
        to: times[5].parse::<DateTime<Utc>>().unwrap() + TimeDelta::days(1),
    };
    let (mut place, mut balances) = (None, Vec::new());
    loop {
        let page = read_page(&mut conn, &fees, "USD", range, place.as_ref(), 1).await.unwrap();
        for StatementEntry { recorded_at, reference, step, line, balance, .. } in page.entries {
            balances.push(balance);
            place = Some(EntryPlace { recorded_at, reference, step, line });
        }
        if !page.has_more {
            break;
        }
    }
    assert_eq!(balances, ["1", "3", "7", "15", "31", "63"], "each page goes on with the balance before it");
    assert_eq!(rebuild::compare(&mut conn).await.unwrap(), []);
}

async fn fee_closings(conn: &mut sqlx::PgConnection) -> Vec<(String, String)> {
    sqlx::query_as(
        "select to_char(until at time zone 'UTC', 'YYYY-MM-DD HH24:MI'), trim_scale(amount)::text \
         from ledger_closing where owner_kind = 'fees' order by until",
    )
    .fetch_all(conn)
    .await
    .unwrap()
}

/// The last hour that a quarter of an hour has passed since; not one that the test would outlive.
pub(crate) async fn closable(conn: &mut sqlx::PgConnection) -> DateTime<Utc> {
    loop {
        let now: DateTime<Utc> = sqlx::query_scalar("select now()").fetch_one(&mut *conn).await.unwrap();
        let (at, hour) = (now - TimeDelta::minutes(15), TimeDelta::hours(1));
        if (at + TimeDelta::seconds(45)).duration_trunc(hour) == at.duration_trunc(hour) {
            return at.duration_trunc(hour).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_day_is_closed_hour_by_hour() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let hour = closable(&mut conn).await;
    let micro = TimeDelta::microseconds(1);
    let times = [
        hour - TimeDelta::hours(3),
        hour - TimeDelta::hours(2) - micro,
        hour - TimeDelta::hours(2),
        hour - TimeDelta::minutes(30),
        hour - micro,
    ];
    for (n, at) in times.iter().enumerate() {
        post_at(&mut conn, &format!("op-{n}"), &at.to_rfc3339(), 1 << n).await.unwrap();
    }
    close(&harness, &hour.to_rfc3339()).await;
    post_at(&mut conn, "op-5", &hour.to_rfc3339(), 1 << 5).await.unwrap();
    let refused = post_at(&mut conn, "op-6", &(hour - micro).to_rfc3339(), 1).await.unwrap_err();
    let constraint = refused.as_database_error().and_then(|error| error.constraint().map(str::to_owned));
    assert_eq!(constraint.as_deref(), Some("ledger_entry_day_closed"));

    let closings: Vec<String> = fee_closings(&mut conn).await.into_iter().map(|(_, amount)| amount).collect();
    assert_eq!(closings, ["3", "7", "31"], "one for each hour that had entries");
    let fees = StatementAccount::from(&Account::Fees);
    let midnight = hour.duration_trunc(TimeDelta::days(1)).unwrap();
    let end = hour + TimeDelta::days(2);
    for at in times.into_iter().flat_map(|at| [at, at + micro]).chain([hour, hour + micro, midnight]) {
        assert_eq!(opening(&harness, &fees, at).await, sum(&harness, &fees, "USD", at).await, "{at}");
        let amounts = |all: Vec<(String, String, i64)>| all.into_iter().map(|(name, sum, _)| (name, sum));
        let (read, posted) = (reported(&mut conn, at).await, summed(&harness, at).await);
        assert!(amounts(read).eq(amounts(posted)), "{at}");
    }
    for from in [DateTime::UNIX_EPOCH, midnight, times[1]] {
        for to in [times[2], hour, hour + micro, end] {
            if from < to {
                let sums = statements::fees(&mut conn, TimeRange { from, to }).await.unwrap();
                assert_eq!(sums, added_up(&mut conn, from, to).await, "{from} to {to}");
            }
        }
    }
    // What is closed is read from its closing, and the day's fees from their sum so far.
    for changed in [
        "update ledger_closing set amount = amount + 500 where owner_kind = 'fees' \
         and until = (select max(until) from ledger_closing where owner_kind = 'fees')",
        "update ledger_fee_day set earned = earned + 500 where day = (select max(day) from ledger_fee_day)",
    ] {
        assert_eq!(sqlx::query(changed).execute(&mut *conn).await.unwrap().rows_affected(), 1);
    }
    assert_eq!(opening(&harness, &fees, end).await, "563");
    let all = statements::fees(&mut conn, TimeRange { from: DateTime::UNIX_EPOCH, to: end }).await.unwrap();
    assert_eq!(all.iter().map(|day| day.earned.parse::<i64>().unwrap()).sum::<i64>(), 563, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_without_postings_are_closed_too() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(close_hours(&harness.engine).await.unwrap(), 0, "nothing has happened yet");
    post_at(&mut conn, "op-1", "2026-10-02T10:00:00Z", 1).await.unwrap();
    let hour = closable(&mut conn).await;
    close(&harness, &hour.to_rfc3339()).await;
    assert_eq!(fee_closings(&mut conn).await.len(), 1);
}

/// Every balance before a time, from all entries; the number of accounts in each.
async fn summed(harness: &Harness, at: DateTime<Utc>) -> Vec<(String, String, i64)> {
    sqlx::query_as(
        "select kind || ':' || account, trim_scale(sum(amount))::text, count(*) \
         from (select owner_kind as kind, ledger_account(owner_kind, owner) as account, sum(amount) as amount \
               from ledger_entry where recorded_at < $1 group by 1, 2, owner having sum(amount) <> 0) each \
         group by kind, account having sum(amount) <> 0 order by kind, account",
    )
    .bind(at)
    .fetch_all(harness.pool())
    .await
    .unwrap()
}

async fn reported(conn: &mut sqlx::PgConnection, at: DateTime<Utc>) -> Vec<(String, String, i64)> {
    let balances = statements::balances(conn, at).await.unwrap();
    balances
        .into_iter()
        .map(|one| (format!("{}:{}", one.owner_kind, one.owner), one.amount, one.accounts))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_balances_reads_closings_and_the_days_since() {
    let harness = scenes::harness_with(0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let mut dice = Dice(5);
    let mut at = "2026-10-02T00:00:00Z".parse::<DateTime<Utc>>().unwrap();
    let mut times = vec![at];
    for step in 0..150_i64 {
        at += TimeDelta::minutes(i64::try_from(1 + dice.throw(180)).unwrap());
        times.push(at);
        let order = format!("exe_{}", dice.throw(9));
        let (one, other) = (format!("0x{:040x}", 1), format!("0x{:040x}", 2));
        let accounts = [
            ("external", order.as_str()),
            ("debt", order.as_str()),
            ("external", one.as_str()),
            ("external", other.as_str()),
            ("fees", ""),
            ("house", ""),
        ];
        let (from, to) = (*dice.pick(&accounts), *dice.pick(&accounts));
        // Few amounts, so that balances come back to zero.
        let amount = i64::try_from(1 + dice.throw(2)).unwrap();
        sqlx::query(
            "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount, recorded_at) \
             values ($1, $2, 1, 'adjust', $3, $4, 'total', 'USD', -$7::int8, $8), \
                    ($1, $2, 2, 'adjust', $5, $6, 'total', 'USD', $7::int8, $8)",
        )
        .bind(&order)
        .bind(step)
        .bind(from.0)
        .bind(from.1)
        .bind(to.0)
        .bind(to.1)
        .bind(amount)
        .bind(at)
        .execute(&mut *conn)
        .await
        .unwrap();
    }
    let midnight = "2026-10-05T00:00:00Z".parse::<DateTime<Utc>>().unwrap();
    let cuts: Vec<_> = times.into_iter().chain([midnight, DateTime::<Utc>::MAX_UTC]).collect();
    for at in &cuts {
        assert_eq!(reported(&mut conn, *at).await, summed(&harness, *at).await, "{at}, no day is closed");
    }
    close(&harness, "2026-11-01").await;
    for at in &cuts {
        assert_eq!(reported(&mut conn, *at).await, summed(&harness, *at).await, "{at}");
        let balances = statements::balances(&mut conn, *at).await.unwrap();
        assert_eq!(statements::exposure(&mut conn, *at).await.unwrap(), exposed(balances), "{at}");
    }
    let range = TimeRange { from: DateTime::UNIX_EPOCH, to: DateTime::<Utc>::MAX_UTC };
    for name in ["fees", "house", "external:0x0000000000000000000000000000000000000001", "debt:exe_1"] {
        let account = statements::parse_account(name).unwrap();
        let decimals = decimals();
        let mut sink = StatementCsv::begin(Vec::new(), &decimals).unwrap();
        let count = write_statements(&mut conn, &[account], None, range, &mut sink).await.unwrap();
        assert_eq!(count, 1, "{name} has had one asset");
    }
    // The closings are what is read, not the history.
    let changed = "update ledger_closing set amount = amount + 5 where owner_kind = 'fees' and until = \
         (select max(until) from ledger_closing where owner_kind = 'fees' and until <= '2026-10-05')";
    assert_eq!(sqlx::query(changed).execute(&mut *conn).await.unwrap().rows_affected(), 1);
    let of = |all: Vec<(String, String, i64)>| {
        all.into_iter()
            .find(|(name, ..)| name == "fees:")
            .map_or(0, |(_, sum, _)| sum.parse::<i64>().unwrap())
    };
    let (read, posted) = (reported(&mut conn, midnight).await, summed(&harness, midnight).await);
    assert_eq!(of(read) - of(posted), 5);
}
