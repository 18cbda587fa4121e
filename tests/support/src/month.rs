//! A month of business in virtual time: orders of every kind, a chain and a bank that keep books of their own, returns,
//! refusals, cut-offs, weekends and outages; withdrawals, deposits, sweeps of fees and settlements of claims by two
//! operators. At the end ledger, chain, bank and statements are held against each other, to the minor unit.
//!
//! The engine, its workers and the database are the real ones. `chain` stands for the contracts and wallets: it holds
//! balances and follows the contracts' rules. `bank` stands for the bank: it has hours, and a statement of account.

mod bank;
mod chain;
mod check;
mod desk;
mod office;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use chrono::{DateTime, Datelike as _, TimeDelta, Timelike as _, Utc, Weekday};
use dvp_core::writer::Outcome;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::settlement::RailAnswer;
use dvp_domain::windows::{PayoutTime, Windows};
use dvp_rails::iso20022::BankFiles;
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};
use dvp_store::orders::effects;
use dvp_store::reconcile::wallets::register;
use futures_util::future::join_all;

use self::bank::Bank;
pub use self::bank::booked_at;
use self::chain::Chain;
use self::desk::Desk;
use self::words::Fickle;
use crate::chain::request_refunds;
use crate::dice::Dice;
use crate::market::{CHAIN_ID, pair};
use crate::orders::{Terms, order_at};
use crate::{Harness, Market};

/// A Monday, at midnight.
const START: &str = "2032-03-01T00:00:00Z";
const DAY_SECS: u64 = 24 * 60 * 60;
/// The initial balance of each provider, in minor units.
const FUNDS: [(&str, u128); 4] = [
    ("USD", 100_000_000_000),
    ("EUR", 100_000_000_000),
    ("USDC", 100_000_000_000_000),
    ("WETH", 100_000_000_000_000_000_000_000),
];
const PREFUNDED: u128 = 50_000_000_000;

/// A month.
#[derive(Debug, Clone, Copy)]
pub struct MonthPlan {
    pub seed: u64,
    pub orders: u64,
    /// Days on which orders come.
    pub days: u64,
}

/// The report of a run.
#[derive(Debug, Clone, Default)]
pub struct MonthReport {
    pub orders: u64,
    pub rejected: u64,
    /// Executions by the state in which they ended.
    pub ended: Vec<(String, i64)>,
    /// Payments about which the bank changed its word, and those that it made after the input had gone back.
    pub fickle: usize,
    pub both_by_the_bank: usize,
    /// Filled by more than one provider.
    pub split: i64,
    pub operations: u64,
    /// Conversions that their orders did not use; those among them that operators had given up, and closed.
    pub unused: usize,
    pub given_up: usize,
    pub closed: usize,
    pub bank_entries: usize,
    /// Virtual days until everything had ended.
    pub days: i64,
    pub chain_commands: u64,
    pub ledger_entries: i64,
    /// Balances of wallets and of the escrow that were compared with the ledger, every day and at the end.
    pub balances_compared: usize,
    /// Statements of accounts, one a day and asset, and their entries.
    pub statements: usize,
    pub statement_entries: u64,
}

/// Runs a month over a database of its own.
pub async fn run(plan: MonthPlan) -> MonthReport {
    let mut month = Month::begin(plan).await;
    let per_day = plan.orders.div_ceil(plan.days.max(1));
    for _ in 0..plan.days {
        for hour in 0..24 {
            let left = plan.orders - month.report.orders;
            let count = month.share(per_day, hour).min(left);
            month.place(count).await;
            month.pass(Duration::from_secs(3_600)).await;
        }
    }
    let left = plan.orders - month.report.orders;
    month.place(left).await;
    month.end().await;
    check::check(&mut month).await;
    month.report
}

struct Month {
    harness: Harness,
    dice: Dice,
    chain: Chain,
    bank: Arc<Bank>,
    desk: Arc<Desk>,
    /// Executions whose unused conversion two operators have closed.
    closed: BTreeSet<String>,
    fickle: Fickle,
    report: MonthReport,
}

fn market() -> Market {
    let south = LiquidityProvider {
        pairs: vec![
            ("USD".into(), "EUR".into()),
            ("USDC".into(), "USD".into()),
            ("USD".into(), "USDC".into()),
        ],
        ..LiquidityProvider::new("south", "0x0000000000000000000000000000000000000002", 12)
    };
    let pairs = vec![
        pair("USDC", "USD", "1"),
        pair("WETH", "USDC", "2000"),
        pair("USD", "EUR", "0.92"),
        pair("USD", "USDC", "1"),
    ];
    let mut market = Market {
        windows: Windows {
            fill_secs: 3 * DAY_SECS,
            margin_secs: 2 * DAY_SECS,
            payout: PayoutTime::BusinessDays,
            finality_secs: 3_600,
        },
        ..Market::new(pairs).with_provider(south)
    };
    // Beyond ten thousand of money its price is worse than the other's: large orders are filled by both.
    if let Some(north) = market.providers.first_mut() {
        north.tiers = vec![(Minor::new(1_000_000), 40)];
    }
    let funds =
        ["north", "south"].into_iter().flat_map(|id| FUNDS.map(|(asset, amount)| (id, asset, amount)));
    funds.fold(market, |market, (id, asset, amount)| market.with_funds(id, asset, amount))
}

impl Month {
    async fn begin(plan: MonthPlan) -> Self {
        let start: DateTime<Utc> = START.parse().expect("a time");
        let harness = Harness::in_virtual_time(market(), start.into()).await;
        let (mut chain, bank) = (Chain::default(), Arc::new(Bank::new(harness.clock())));
        let wallets: Vec<(String, String)> = harness
            .market
            .providers
            .iter()
            .map(|provider| (provider.id.clone(), provider.wallet.clone()))
            .collect();
        for (id, wallet) in &wallets {
            for (asset, amount) in FUNDS {
                match chain::token(asset) {
                    Some(token) => chain.fund(wallet, token, amount),
                    None => bank.deposit(&format!("opening:{id}:{asset}"), asset, amount),
                }
            }
        }
        for asset in ["USD", "EUR"] {
            let id = harness.deposit(asset, PREFUNDED).await;
            bank.deposit(&id, asset, PREFUNDED);
        }
        let mut conn = harness.pool().acquire().await.expect("a connection");
        let chain_id = i64::try_from(CHAIN_ID).expect("an id");
        let tokens: Vec<(i64, String, String)> = FUNDS
            .iter()
            .filter_map(|(asset, _)| Some((chain_id, (*asset).to_owned(), chain::token(asset)?.to_owned())))
            .collect();
        register(&mut conn, &wallets, &tokens).await.expect("wallets and tokens");
        drop(conn);
        let fickle = Fickle::open(harness.pool().clone()).await;
        let payouts = Payouts { bank: bank.clone(), files: fickle.files.clone() };
        let desk = Arc::new(Desk::new(harness.clock()));
        harness.start_workers_over(desk.clone(), Arc::new(payouts));
        let (dice, report) = (Dice::new(plan.seed), MonthReport::default());
        Self { harness, dice, chain, bank, desk, closed: BTreeSet::new(), fickle, report }
    }

    fn now(&self) -> DateTime<Utc> {
        self.harness.clock().now().to_utc()
    }

    /// How many orders come in an hour: most in the day time, few at weekends.
    fn share(&mut self, per_day: u64, hour: u64) -> u64 {
        let is_weekend = matches!(self.now().weekday(), Weekday::Sat | Weekday::Sun);
        let weight = if (8..20).contains(&hour) { 11 } else { 3 };
        let weight = if is_weekend { weight / 2 } else { weight };
        // 12 hours of 11 and 12 of 3 are 168 a day; weekends are made up for.
        let scaled = per_day * weight * 7;
        scaled / (168 * 6) + u64::from(self.dice.throw(168 * 6) < scaled % (168 * 6))
    }

    async fn place(&mut self, count: u64) {
        let at = self.harness.clock().now();
        if count == 0 {
            return;
        }
        let orders: Vec<_> = (0..count)
            .map(|_| {
                let terms = wanted(&mut self.dice);
                let mut order = order_at(at, &PrivateKeySigner::random(), 0, &terms);
                if let Some(beneficiary) = &mut order.beneficiary {
                    beneficiary.bank = Some("USABA021000021".into());
                }
                order
            })
            .collect();
        let submitted = orders.into_iter().map(|order| self.harness.submit(order));
        for outcome in join_all(submitted).await {
            self.report.orders += 1;
            self.report.rejected += u64::from(!matches!(outcome, Outcome::Accepted(_)));
        }
    }

    /// Lets the workers and the chain do all that is due.
    async fn settle_down(&mut self) {
        let due = "select (select count(*) from effect where run_at <= now()) \
                   + (select count(*) from chain_fact where consumed_at is null and retracted_at is null)";
        loop {
            self.harness.wait_for_count(due, 0).await;
            let now = self.now();
            // An hour in which the chain stands still.
            let is_halted = now.hour() == 3 && now.day().is_multiple_of(5);
            if is_halted || self.chain.turn(self.harness.pool(), now, &mut self.dice).await == 0 {
                return;
            }
        }
    }

    async fn pass(&mut self, by: Duration) {
        self.settle_down().await;
        self.harness.advance(by).await;
        self.bank.turn(self.harness.pool(), self.now(), &mut self.dice).await;
        let now = self.now();
        self.fickle.turn(self.harness.pool(), &self.bank, now, &mut self.dice).await;
        let mut conn = self.harness.pool().acquire().await.expect("a connection");
        request_refunds(&mut conn, 60).await;
        effects::insert_timelocks(&mut conn).await.expect("timelocks");
        drop(conn);
        self.settle_down().await;
        if self.now().hour() == 12 {
            office::noon(self).await;
            self.settle_down().await;
            check::wallets_agree(self, true).await;
            self.tend().await;
        }
    }

    /// What a server's autovacuum does; clusters of tests have none.
    async fn tend(&self) {
        sqlx::query("vacuum (analyze)").execute(self.harness.pool()).await.expect("vacuum");
    }

    /// What has not ended: the states of orders with their due work, and how many locks and contradictions there are.
    async fn open(&self) -> String {
        let states = "select coalesce(string_agg(n || ' ' || what, ', '), '') from ( \
                        select count(*)::text as n, e.state_name || ' ' || (e.terms #>> '{input,asset}') || ' ' \
                          || coalesce((select string_agg(kind, '+') from effect where reference = e.reference), 'idle') as what \
                        from execution e where terminal_at is null or state_name = 'reversed' group by 2) as o";
        let states: String = sqlx::query_scalar(states).fetch_one(self.harness.pool()).await.expect("states");
        let (locked, bank, fickle) = (self.chain.locked(), self.bank.is_idle(), self.fickle.is_idle());
        format!("{states}; {locked} locked; bank idle {bank}, with words {fickle}")
    }

    /// Lets time pass until every order has ended, and everything that came back is resolved.
    async fn end(&mut self) {
        let open = "select (select count(*) from execution where terminal_at is null) \
                    + (select count(*) from effect where kind = 'offramp') \
                    + (select count(*) from execution where state_name = 'reversed' \
                         and state #>> '{reversal,resolved}' is null)";
        let latest = self.now() + TimeDelta::days(60);
        let contradicted =
            "select count(*) from bank_payment where contradicting is not null and closed_at is null";
        while self.harness.count(open).await > 0
            || self.chain.locked() > 0
            || !self.bank.is_idle()
            || !self.fickle.is_idle()
            || self.harness.count(contradicted).await > 0
        {
            assert!(self.now() < latest, "not ended after sixty days: {}", self.open().await);
            self.pass(Duration::from_secs(6 * 3_600)).await;
        }
    }
}

/// The bank, and the one that changes its word, by the account of the recipient.
struct Payouts {
    bank: Arc<Bank>,
    files: BankFiles,
}

impl Payouts {
    fn of(&self, request: &RailRequest) -> &dyn Rail {
        if words::is_fickle(&request.account) { &self.files } else { &*self.bank }
    }
}

impl Rail for Payouts {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        self.of(request).submit(request)
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        self.of(request).status(request)
    }

    /// Both make a payment's work due themselves.
    fn poll_max(&self) -> Duration {
        self.bank.poll_max()
    }
}

/// An order of any kind; its account's last digits select the behaviour of bank and desk.
fn wanted(dice: &mut Dice) -> Terms<'static> {
    const ACCOUNTS: [&str; 16] = [
        "000123456789",
        "000123450001",
        "000123450004",
        "000123450005",
        "000123450006",
        "000123450007",
        "000123450008",
        "000123450009",
        "000123450010",
        "000123450011",
        "000123450012",
        desk::SILENT,
        bank::REFUSED,
        bank::RETURNED,
        desk::UNCONVERTED,
        "000123450015",
    ];
    let account = ACCOUNTS[dice.index(ACCOUNTS.len())];
    let cents = 1_000 + u128::from(dice.throw(3_000_000));
    if dice.throw(8) == 0 {
        let (account, _) = words::SCRIPTS[dice.index(words::SCRIPTS.len())];
        return Terms { input: ("USDC", cents * 10_000), output: "USD", account };
    }
    match dice.throw(20) {
        0..9 => {
            Terms { input: ("USDC", cents * 10_000 + u128::from(dice.throw(10_000))), output: "USD", account }
        }
        9..12 => Terms { input: ("WETH", cents * 1_000_000_000_000 + 7), output: "USDC", account },
        12..17 => Terms { input: ("USD", cents), output: "EUR", account },
        _ => Terms { input: ("USD", cents), output: "USDC", account },
    }
}
