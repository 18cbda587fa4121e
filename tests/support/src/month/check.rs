//! What must be so at the end of a month, to the minor unit.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::statements::{
    Heading, Line, Sink, StatementAccount, TimeRange, account_name, accounts_of, balances, parse_account,
    write_statements,
};
use dvp_domain::ledger::Owner;
use dvp_store::ledger;

use super::chain::token;
use super::{Month, START};
use crate::market::ESCROW;

type Sums = BTreeMap<(String, String, String, String), String>;

fn whole(text: &str) -> i128 {
    text.split('.').next().unwrap().parse().unwrap()
}

/// Every account of the ledger, by kind, owner, part and asset.
async fn accounts(month: &Month) -> Sums {
    let rows: Vec<(String, String, String, String, String)> = sqlx::query_as(
        "select owner_kind, owner, part, asset, trim_scale(sum(amount))::text from ledger_entry group by 1, 2, 3, 4",
    )
    .fetch_all(month.harness.pool())
    .await
    .unwrap();
    rows.into_iter().map(|(kind, owner, part, asset, sum)| ((kind, owner, part, asset), sum)).collect()
}

fn held(sums: &Sums, kind: &str, owner: &str, part: &str, asset: &str) -> i128 {
    let key = (kind.to_owned(), owner.to_owned(), part.to_owned(), asset.to_owned());
    sums.get(&key).map_or(0, |sum| whole(sum))
}

pub(super) async fn check(month: &mut Month) {
    let pool = month.harness.pool().clone();
    month.harness.check_books().await;
    let mut conn = pool.acquire().await.unwrap();
    assert_eq!(ledger::list_unbalanced(&mut conn).await.unwrap(), [], "the trial balance is zero");
    let sums = accounts(month).await;
    nothing_is_left_open(&sums);
    chain_agrees(month, &sums);
    bank_agrees(month, &sums);
    assert_eq!(month.bank.repeated(), 0, "no payment is ordered twice");
    statements_agree(month).await;
    month.report.ended = sqlx::query_as("select state_name, count(*) from execution group by 1 order by 1")
        .fetch_all(&pool)
        .await
        .unwrap();
    let split = "select count(*) from execution where json_array_length(terms #> '{plan,slices}') > 1";
    month.report.split = month.harness.count(split).await;
    month.report.ledger_entries = month.harness.count("select count(*) from ledger_entry").await;
    month.report.bank_entries = month.bank.statement().len();
    month.report.chain_commands = month.chain.commands;
}

/// Every order has ended and every return is resolved: nothing is reserved, on its way or owed.
fn nothing_is_left_open(sums: &Sums) {
    for ((kind, owner, part, asset), sum) in sums {
        let is_open = part == "reserved" || ["escrow", "clearing", "debt"].contains(&kind.as_str());
        assert!(!is_open || sum == "0", "{kind}:{owner}:{part} still holds {sum} of {asset}");
    }
}

/// The balances of wallets and of the escrow are those of the ledger.
fn chain_agrees(month: &Month, sums: &Sums) {
    for asset in ["USDC", "WETH"] {
        let token = token(asset).unwrap();
        assert_eq!(
            month.chain.balance(ESCROW, token),
            held(sums, "escrow", "", "total", asset),
            "escrow {asset}"
        );
        for provider in &month.harness.market.providers {
            let of = |part| held(sums, "provider", &provider.id, part, asset);
            let booked = of("available") + of("reserved") - of("claim");
            assert_eq!(month.chain.balance(&provider.wallet, token), booked, "{} {asset}", provider.id);
        }
        // Users' wallets: what the ledger says was taken from each, and given back.
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

/// The bank's statement has the balance of every account that is not a token's, and the same money for each order.
fn bank_agrees(month: &Month, sums: &Sums) {
    let statement = month.bank.statement();
    for currency in ["USD", "EUR"] {
        let at_bank: i128 =
            statement.iter().filter(|entry| entry.currency == currency).map(|entry| entry.amount).sum();
        let outside: i128 = sums
            .iter()
            .filter(|((kind, owner, _, asset), _)| {
                kind == "external" && owner != "network" && asset == currency
            })
            .map(|(_, sum)| whole(sum))
            .sum();
        assert_eq!(at_bank, -outside, "the bank's balance of {currency}");
        let mut by_order: HashMap<&str, i128> = HashMap::new();
        for entry in statement.iter().filter(|entry| entry.currency == currency) {
            if entry.about.starts_with("exe_") {
                *by_order.entry(&entry.about).or_default() -= entry.amount;
            }
        }
        for ((_, owner, _, _), sum) in sums.iter().filter(|((kind, owner, _, asset), _)| {
            kind == "external" && owner.starts_with("exe_") && asset == currency
        }) {
            assert_eq!(by_order.remove(owner.as_str()).unwrap_or(0), whole(sum), "the recipient of {owner}");
        }
        by_order.retain(|_, amount| *amount != 0);
        assert!(by_order.is_empty(), "paid by the bank, and not in the ledger: {by_order:?}");
    }
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
                if !entry.amount.contains('.') && !entry.balance.contains('.') {
                    let before = self.running.as_deref().unwrap();
                    if !before.contains('.') {
                        assert_eq!(whole(before) + whole(&entry.amount), whole(&entry.balance), "{key:?}");
                    }
                }
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

/// Every day's statement of every account begins where the last one ended, and the last closing balance is the ledger's.
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
    // What was there before the first day.
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
