//! The invariants at the end of a month, to the minor unit.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::ledger::reconciliation::wallets::{InFlight, compare_wallets};
use dvp_core::ledger::reconciliation::{PATIENCE, compare_bank};
use dvp_core::ledger::statements::{
    Heading, Line, Sink, StatementAccount, TimeRange, account_name, accounts_of, balances, parse_account,
    write_statements,
};
use dvp_domain::ledger::Owner;
use dvp_domain::reconcile::OnChain;
use dvp_domain::settlement::{Remedy, State};
use dvp_domain::terms::Terms;
use dvp_rails::iso20022::BankFiles;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::outage::stamp;
use sqlx::Connection as _;
use sqlx::types::Json;

use super::bank::minor;
use super::chain::token;
use super::office::TREASURY;
use super::words::{Said, Word};
use super::{Month, START};
use crate::market::debtors;

type Sums = BTreeMap<(String, String, String, String), String>;

fn whole(text: &str) -> i128 {
    text.split('.').next().unwrap().parse().unwrap()
}

/// Whole minor units, and the fraction in units of 10^-30.
fn parts(text: &str) -> (i128, i128) {
    const DIGITS: usize = 30;
    let (units, fraction) = text.split_once('.').unwrap_or((text, ""));
    assert!(fraction.len() <= DIGITS, "{text}");
    let fraction: i128 = format!("{fraction:0<DIGITS$}").parse().unwrap();
    (units.parse().unwrap(), if text.starts_with('-') { -fraction } else { fraction })
}

/// Whether an amount leads from one balance to another, to the last digit.
fn leads(before: &str, amount: &str, after: &str) -> bool {
    let [before, amount, after] = [before, amount, after].map(parts);
    let (units, fraction) = (before.0 + amount.0 - after.0, before.1 + amount.1 - after.1);
    units.abs() <= 2 && units * 10_i128.pow(30) + fraction == 0
}

/// Every account of the ledger, by kind, owner, part and asset.
async fn accounts(month: &Month) -> Sums {
    let rows = "select owner_kind, owner, part, asset, trim_scale(sum(amount))::text from ledger_entry group by 1, 2, 3, 4";
    let rows: Vec<(String, String, String, String, String)> = month.harness.rows(rows).await;
    rows.into_iter().map(|(kind, owner, part, asset, sum)| ((kind, owner, part, asset), sum)).collect()
}

fn held(sums: &Sums, kind: &str, owner: &str, part: &str, asset: &str) -> i128 {
    let key = (kind.to_owned(), owner.to_owned(), part.to_owned(), asset.to_owned());
    sums.get(&key).map_or(0, |sum| whole(sum))
}

pub(super) async fn check(month: &mut Month) {
    month.harness.check_books().await;
    let sums = accounts(month).await;
    nothing_is_left_open(&sums);
    wallets_agree(month, false).await;
    chain_agrees(month, &sums).await;
    bank_agrees(month).await;
    assert_eq!(month.bank.repeated(), 0, "no payment is ordered twice");
    statements_agree(month).await;
    nobody_from_both_sides(month).await;
    positions_agree(month, &sums).await;
    month.report.ended =
        month.harness.rows("select state_name, count(*) from execution group by 1 order by 1").await;
    let split = "select count(*) from execution where json_array_length(terms #> '{plan,slices}') > 1";
    month.report.split = month.harness.count(split).await;
    month.report.ledger_entries = month.harness.count("select count(*) from ledger_entry").await;
    month.report.bank_entries = month.bank.statement().len();
    month.report.chain_commands = month.chain.commands;
    let start: DateTime<Utc> = START.parse().unwrap();
    month.report.days = month.now().signed_duration_since(start).num_days();
}

/// Of the payments about which the bank changed its word: the beneficiary has the output, or the user the input, and never
/// both nor neither, unless the bank made the payment when the service could not settle any more.
async fn nobody_from_both_sides(month: &mut Month) {
    let rows =
        "select e.reference, e.state from execution e join bank_payment b on b.execution = e.reference";
    let rows: Vec<(String, Json<State>)> = month.harness.rows(rows).await;
    for (reference, Json(state)) in rows {
        let said: Vec<&Said> = month.fickle.said.iter().filter(|one| one.execution == reference).collect();
        let is_with_beneficiary = said.iter().fold(false, |_, one| match one.word {
            Word::Booked | Word::BookedLate | Word::TakenBack => true,
            Word::Refused | Word::Returned | Word::ReturnedShort => false,
        });
        let remedy = match &state {
            State::Completed { reversal: Some(open), .. } => open.resolved.as_ref().map(|one| one.remedy),
            _ => None,
        };
        let is_refunded = state.lock().is_some_and(|lock| lock.refunded);
        let debt_returned = matches!(&state, State::PayoutFailed { debt_returned: Some(_), .. });
        let has_output = is_with_beneficiary || remedy == Some(Remedy::PaidAgain);
        let has_input =
            is_refunded || debt_returned || remedy == Some(Remedy::GivenBack) && !state.was_paid_by_house();
        let settle_at = state.lock().map(|lock| lock.deadlines.settle_at.to_utc());
        let was_late = said.iter().any(|one| {
            one.word == Word::BookedLate && settle_at.is_some_and(|settle_at| one.at >= settle_at)
        });
        let is_the_banks = has_output && has_input && was_late;
        assert!(has_output != has_input || is_the_banks, "{reference}: {state:?}, the bank said {said:?}");
        month.report.fickle += 1;
        month.report.both_by_the_bank += usize::from(is_the_banks);
    }
}

/// The positions are the conversions in the desk's own books that no order has used, less those that were closed.
async fn positions_agree(month: &mut Month, sums: &Sums) {
    let rows = "select reference, state from execution";
    let rows: Vec<(String, Json<State>)> = month.harness.rows(rows).await;
    let states: BTreeMap<String, State> =
        rows.into_iter().map(|(reference, Json(state))| (reference, state)).collect();
    let mut house: BTreeMap<String, i128> = BTreeMap::new();
    for (reference, trade) in month.desk.trades() {
        let is_used = match &states[&reference] {
            State::Completed { reversal: Some(open), .. } => {
                open.resolved.as_ref().is_none_or(|one| one.remedy != Remedy::GivenBack)
            }
            State::Completed { .. } => true,
            _ => false,
        };
        let is_closed = month.closed.contains(&reference);
        let (sold, bought) =
            ((&trade.sold.0, -minor(trade.sold.1)), (&trade.bought.0, minor(trade.bought.1)));
        for (asset, amount) in [sold, bought] {
            let taken_over = if is_closed { amount } else { 0 };
            let expected = if is_used { 0 } else { amount } - taken_over;
            assert_eq!(held(sums, "position", &reference, "total", asset), expected, "{reference} {asset}");
            *house.entry(asset.clone()).or_default() += taken_over;
        }
        month.report.unused += usize::from(!is_used);
    }
    month.report.closed = month.closed.len();
    for (asset, amount) in house {
        let desk: i128 = sums
            .iter()
            .filter(|((kind, .., of), _)| kind == "position" && *of == asset)
            .map(|(_, sum)| whole(sum))
            .sum();
        assert_eq!(held(sums, "desk", "", "total", &asset), -desk - amount, "the desk's {asset}");
    }
    let owners = sums.keys().filter(|(kind, ..)| kind == "position").map(|(_, owner, ..)| owner);
    let trades = month.desk.trades();
    assert!(owners.into_iter().all(|owner| trades.contains_key(owner)), "no position without a trade");
}

/// Every order has ended and every return is resolved: nothing is reserved, on its way or owed.
fn nothing_is_left_open(sums: &Sums) {
    for ((kind, owner, part, asset), sum) in sums {
        let is_open = part == "reserved" || ["escrow", "clearing", "debt"].contains(&kind.as_str());
        assert!(!is_open || sum == "0", "{kind}:{owner}:{part} still holds {sum} of {asset}");
    }
}

/// The balances of providers' wallets and of the escrow are those of the ledger, by the service's own comparison:
/// `with_orders` in progress, what they have moved on the chain and in the ledger so far explains the rest.
pub(super) async fn wallets_agree(month: &mut Month, with_orders: bool) {
    let mut conn = month.harness.pool().acquire().await.unwrap();
    let mut tx = conn.begin_with("begin isolation level repeatable read").await.unwrap();
    let mut in_flight = InFlight::default();
    if with_orders {
        let open: Vec<(Vec<u8>, Json<Terms>)> = sqlx::query_as(
            "select entity, terms from execution \
             where terminal_at is null or terminal_at > now() - interval '24 hours'",
        )
        .fetch_all(&mut *tx)
        .await
        .unwrap();
        let state = |entity: &[u8]| -> OnChain { month.chain.state(entity) };
        let open = open.iter().map(|(entity, Json(terms))| (terms, state(entity)));
        in_flight.add(&mut tx, open).await.unwrap();
    }
    let now = month.harness.clock().now();
    let report = compare_wallets(&mut tx, &month.chain, &in_flight, now).await.unwrap();
    tx.rollback().await.unwrap();
    // The escrow and two wallets, each with two tokens.
    assert!(report.unread.is_empty(), "{:?}", report.unread);
    assert_eq!(report.balances.len(), 6);
    for balance in &report.balances {
        assert_eq!(balance.differs_since, None, "{balance:?}");
    }
    month.report.balances_compared += report.balances.len();
}

/// The balances of users' wallets, of the treasury and of recipients are those of the ledger.
async fn chain_agrees(month: &Month, sums: &Sums) {
    for asset in ["USDC", "WETH"] {
        let token = token(asset).unwrap();
        // The treasury has what was settled of the house's claims, and gave users their inputs back. What is owed to the desk
        // and what it owes moves no tokens here.
        let house = "select trim_scale(coalesce(sum(case when part = 'claim' then -amount else amount end), 0))::text \
                     from ledger_entry \
                     where asset = $1 and (owner_kind in ('fees', 'house', 'position', 'desk', 'residual') or part = 'owed' \
                                           or (owner_kind = 'external' and owner in ('network', 'treasury')))";
        let (house,): (String,) = month.harness.row_of(house, asset).await;
        assert_eq!(month.chain.balance(TREASURY, token).to_string(), house, "the treasury's {asset}");
        // Users' wallets: the amounts that the ledger took from each, and returned.
        for (wallet, of_token, amount) in month.chain.wallets() {
            let is_user = of_token == token
                && sums.contains_key(&(
                    "external".to_owned(),
                    wallet.to_owned(),
                    "total".to_owned(),
                    asset.to_owned(),
                ));
            if is_user {
                assert_eq!(amount, held(sums, "external", wallet, "total", asset), "{wallet} {asset}");
            }
        }
        let users = |(kind, owner, _, of_asset): &(String, String, String, String)| {
            kind == "external" && of_asset == asset && owner.starts_with("0x")
        };
        for ((_, owner, _, _), sum) in sums.iter().filter(|(key, _)| users(key)) {
            assert_eq!(month.chain.balance(owner, token), whole(sum), "{owner} {asset}");
        }
        let moved: i128 =
            month.chain.wallets().filter(|(_, of, _)| *of == token).map(|(_, _, amount)| amount).sum();
        let funded: u128 =
            month.harness.market.funds.iter().filter(|(_, of, _)| of == asset).map(|one| one.2).sum();
        assert_eq!(moved, i128::try_from(funded).unwrap(), "tokens are moved, and none is made");
    }
    for (reference, amount) in month.chain.paid() {
        let booked: i128 =
            ["USDC", "WETH"].iter().map(|asset| held(sums, "external", reference, "total", asset)).sum();
        assert_eq!(booked, *amount, "the recipient of {reference}");
    }
}

/// Each day's statement comes as a file and is imported; every posting has its entry and the other way round, and the
/// balances are the ledger's.
async fn bank_agrees(month: &Month) {
    const ACCOUNTS: [(&str, &str, &str); 2] =
        [("USD", "400500600", "SANDUS33"), ("EUR", "DE89370400440532013000", "SANDDEFF")];
    let dir = tempfile::tempdir().unwrap();
    let pool = month.harness.pool().clone();
    stamp(&mut pool.acquire().await.unwrap(), dir.path(), "jo", true).await.unwrap();
    let files = BankFiles::open(pool.clone(), dir.path(), debtors(ACCOUNTS)).await.unwrap();
    let mut sent = 0;
    for (currency, account, _) in ACCOUNTS {
        for statement in month.bank.statements(currency, account) {
            let name = format!("{}.xml", statement.id);
            drop_into(&files.folder().inbox(), &name, statement.render().as_bytes()).await.unwrap();
            sent += 1;
        }
    }
    assert_eq!(files.take_in().await.unwrap(), sent, "every statement is imported");
    let refused = "select count(*) from bank_file where refusal is not null or unknown > 0";
    assert_eq!(month.harness.count(refused).await, 0);
    let report = compare_bank(&pool, month.harness.clock().now(), PATIENCE).await.unwrap().unwrap();
    assert_eq!(report.breaks, [], "the bank's statements agree with the ledger");
    assert_eq!((report.accounts, report.in_transit), (2, 0));
    assert_eq!(report.pairs, month.bank.statement().len(), "every entry has its posting");
}

/// Adds up the lines of statements.
#[derive(Default)]
struct Totals {
    statements: usize,
    entries: u64,
    /// The last closing balance of each account and asset.
    closing: BTreeMap<(String, String), String>,
    running: Option<String>,
}

impl Sink for Totals {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> std::io::Result<()> {
        let key = (heading.account.to_owned(), heading.asset.to_owned());
        match line {
            Line::Opening { balance } => {
                let before = self.closing.get(&key).map_or("0", String::as_str);
                assert_eq!(balance, before, "{key:?} begins where it ended the day before");
                self.running = Some(balance.to_owned());
            }
            Line::Entry(entry) => {
                self.entries += 1;
                let before = self.running.as_deref().unwrap();
                let (amount, after) = (&entry.amount, &entry.balance);
                assert!(leads(before, amount, after), "{key:?}: {before} and {amount} make {after}");
                self.running = Some(entry.balance.clone());
            }
            Line::Closing { balance, .. } => {
                assert_eq!(self.running.as_deref(), Some(balance), "{key:?}");
                self.statements += 1;
                self.closing.insert(key, balance.to_owned());
            }
        }
        Ok(())
    }
}

/// Every day's statement of every account begins where the last one ended, and the last closing balance is the
/// ledger's.
async fn statements_agree(month: &mut Month) {
    let pool = month.harness.pool().clone();
    let mut conn = pool.acquire().await.unwrap();
    let mut wanted: Vec<StatementAccount> = accounts_of(&month.harness.partner());
    for provider in &month.harness.market.providers {
        wanted.extend(accounts_of(&Owner::Provider(provider.id.clone())));
    }
    let others = ["fees", "house", "house:claim", "escrow", "clearing", "residual", "external:treasury"];
    wanted.extend(others.iter().map(|name| parse_account(name).unwrap()));
    let mut totals = Totals::default();
    let end = month.now() + TimeDelta::days(1);
    // Balances before the first day.
    let mut from: DateTime<Utc> = START.parse().unwrap();
    let first = TimeRange { from: DateTime::UNIX_EPOCH, to: from };
    write_statements(&mut conn, &wanted, None, first, &mut totals).await.unwrap();
    while from < end {
        let to = from + TimeDelta::days(1);
        write_statements(&mut conn, &wanted, None, TimeRange { from, to }, &mut totals).await.unwrap();
        from = to;
    }
    let mut count = 0;
    for one in balances(&mut conn, end).await.unwrap() {
        let key = (account_name(&one.owner_kind, &one.owner, &one.part), one.asset);
        if let Some(closing) = totals.closing.remove(&key) {
            assert_eq!(closing, one.amount, "{key:?}");
            count += 1;
        }
    }
    assert!(count > 10, "{count} accounts");
    assert!(totals.closing.values().all(|balance| balance == "0"), "{:?}", totals.closing);
    (month.report.statements, month.report.statement_entries) = (totals.statements, totals.entries);
}
