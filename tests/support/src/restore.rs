//! A restore in the middle of business: orders of every kind are settled by the real engine over a real database and
//! through the bank's real folder, while two chains keep what happened on them. The database goes back to an earlier
//! moment, all processes begin anew at other prices, and chains and bank have gone on.
//!
//! At the end every order that the database has is at its end, no fact is left, the bank has one file of each payment,
//! for the amount that its order has, nobody was paid and refunded, no input is kept that nothing was paid for, and the
//! books agree.

mod chain;
pub mod copy;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use chrono::Utc;
use dvp_core::context::now;
use dvp_core::engine::Engine;
use dvp_core::liquidity::{
    BookConfig, ConfiguredProvider, Liquidity, LiquiditySource, OrderBook, ReferenceSource,
};
use dvp_core::operators::operations::Action;
use dvp_core::ranges;
use dvp_core::screening::{ListConfig, Screening};
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::Outcome;
use dvp_domain::asset::Registry;
use dvp_domain::beneficiary::PayoutMethod;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::screening::ScreeningResult;
use dvp_domain::settlement::Remedy;
use dvp_rails::inventory::Inventory;
use dvp_rails::iso20022::{BankFiles, outage};
use dvp_sandbox::bank::Bank;
use dvp_store::orders::resting_orders::{self, NewRestingOrder};
use dvp_store::reconcile::wallets::register;
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::chain::World;
use crate::dice::Dice;
use crate::market::{Price, debtors, north, pair};
use crate::orders::{Terms, of_coin, on_base, order_by, ranged, submit};
use crate::wait::wait_for;
use crate::{Harness, Market};

/// The accounts that a bank pays from: currency, number and BIC.
const ACCOUNTS: [(&str, &str, &str); 2] =
    [("USD", "400500600", "SANDUS33"), ("EUR", "DE89370400440532013000", "SANDDEFF")];
const FUNDS: [(&str, u128); 6] = [
    ("USD", 100_000_000_000),
    ("EUR", 100_000_000_000),
    ("USDC", 100_000_000_000_000),
    ("USDC.base", 100_000_000_000_000),
    ("WETH", 100_000_000_000_000_000_000_000),
    ("ETH", 100_000_000_000_000_000_000_000),
];
/// The pairs, with their prices before the restore and after it.
const PAIRS: [(&str, &str, &str, &str); 10] = [
    ("USDC", "USD", "1", "0.9990"),
    ("WETH", "USDC", "2000", "1990"),
    ("USD", "EUR", "0.92", "0.93"),
    ("USD", "USDC", "1", "1.0010"),
    ("USDC.base", "USD", "1", "0.9990"),
    ("USDC", "USDC.base", "1", "1"),
    ("ETH", "USD", "2000", "2010"),
    ("ETH", "USDC", "2000", "2010"),
    ("USDC", "ETH", "0.0005", "0.0004"),
    ("ETH", "USDC.base", "2000", "2010"),
];
/// The wallet of the maker.
const DESK: &str = "0x0000000000000000000000000000000000000009";
/// Orders come in this interval.
const BETWEEN: Duration = Duration::from_millis(60);
/// What waits for the market or for a deposit ends after this time, for each order of the plan.
const PATIENCE_MS: i64 = 500;
/// Orders that come after the restore.
const AFTERWARDS: u64 = 4;
/// Screening holds the orders of these accounts and of the wallet with this key, and screens them again in this interval.
const HELD_ACCOUNTS: [&str; 2] = ["000123457777", "DE75512108001245126199"];
const HELD_KEY: [u8; 32] = [7; 32];
const HELD_FOR: Duration = Duration::from_millis(500);
/// A maker places an order before every so many.
const MAKER_EVERY: u64 = 6;

#[derive(Debug, Clone, Copy)]
pub struct RestorePlan {
    pub seed: u64,
    pub orders: u64,
}

/// The report of a run.
#[derive(Debug, Clone, Default)]
pub struct RestoreReport {
    /// The kinds and states of the orders at the moment that was restored, and at the end.
    pub restored_as: BTreeMap<String, u64>,
    pub ended_as: BTreeMap<String, u64>,
    /// Orders of which the bank has returned the payment, and that two operators closed.
    pub closed: u64,
    /// Orders of money that operators filled again.
    pub filled_again: u64,
    /// Orders that were accepted after the moment, of which the bank has paid so many.
    pub forgotten: u64,
    pub forgotten_payments: u64,
    /// Payments of the bank, and outputs that the chains paid.
    pub payments: u64,
    pub paid_on_chain: u64,
    /// Facts that came too early and were kept.
    pub kept: i64,
}

/// The workers of one process, and what they work with.
struct Process {
    engine: Engine,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Process {
    async fn start(harness: &Harness, world: &World, prices: &[Price], root: &std::path::Path) -> Self {
        let stop = watch::Sender::new(false);
        let files = BankFiles::open(harness.pool().clone(), root, debtors(ACCOUNTS)).await.unwrap();
        let files = files.settling_after(Duration::from_millis(500));
        let liquidity = liquidity(harness.pool(), harness.market.registry.clone(), prices);
        let list = ListConfig { file: root.join("held"), on_match: ScreeningResult::Hold };
        let screening = Screening::new(Some(list), None, HELD_FOR).unwrap();
        let (engine, writing) = harness.engine_of(liquidity, world.wallets.clone(), screening);
        engine.context().liquidity.refresh().await;
        let payout = RailUse::of(Arc::new(files.clone()));
        let workers =
            workflow::run(engine.clone(), RailUse::of(Arc::new(Inventory)), payout, stop.subscribe());
        let reading = engine.context().liquidity.clone().run(harness.pool().clone(), stop.subscribe());
        let tasks = vec![
            writing,
            tokio::spawn(workers),
            tokio::spawn(files.run(stop.subscribe())),
            tokio::spawn(ranges::run(engine.clone(), stop.subscribe())),
            tokio::spawn(engine.wallets().clone().run(harness.pool().clone(), stop.subscribe())),
            tokio::spawn(reading),
        ];
        Self { engine, stop, tasks }
    }

    /// Ends at any await point.
    async fn kill(self) {
        for task in self.tasks {
            task.abort();
            let _ = task.await;
        }
        drop(self.stop);
    }
}

/// A provider of every pair, and the order book.
fn liquidity(pool: &PgPool, registry: Registry, prices: &[Price]) -> Liquidity {
    let book = OrderBook::new(BookConfig::default(), pool.clone());
    let sources: Vec<Arc<dyn LiquiditySource>> =
        vec![Arc::new(ConfiguredProvider::new(north())), Arc::new(book)];
    let references = prices.iter().map(|price| Arc::new(price.clone()) as Arc<dyn ReferenceSource>);
    Liquidity::new(registry, sources, references.collect())
}

fn market() -> Market {
    let desk = LiquidityProvider::new("desk", DESK, 0);
    let pairs = PAIRS.iter().filter(|(input, output, ..)| ![input, output].contains(&&"USDC.base"));
    let pairs = pairs.map(|(input, output, price, _)| pair(input, output, price)).collect();
    let mut market =
        Market::new(pairs).with_base().with_provider(desk).with_funds("desk", "USD", 100_000_000);
    market.registry.pairs.push(pair("ETH", "USDC.base", "2000"));
    FUNDS.iter().fold(market, |market, (asset, amount)| market.with_funds("north", asset, *amount))
}

/// A maker buys USDC at a better rate than others, for a few orders.
async fn rest(pool: &PgPool) {
    let level = NewRestingOrder {
        provider_id: "desk".into(),
        wallet: DESK.into(),
        input_asset: "USDC".into(),
        output_asset: "USD".into(),
        rate: "0.9995".parse().unwrap(),
        amount: Minor::new(15_000),
        placed_by: None,
    };
    resting_orders::insert(&mut pool.acquire().await.unwrap(), &level).await.unwrap();
}

/// The kinds of orders.
const KINDS: [&str; 15] = [
    "token for money",
    "token for money",
    "money for money",
    "money for token",
    "swap",
    "token across chains",
    "token of the other chain for money",
    "coin for money",
    "coin for token",
    "token for coin",
    "coin across chains",
    "range for money",
    "range for token",
    "range of money for money",
    "range of money for token",
];

/// An order of any kind. Of some the bank answers late, twice, refuses, or books and gives back.
fn any_order(dice: &mut Dice, patience_ms: i64) -> (&'static str, IntentRequest) {
    const ENDINGS: [&str; 8] = ["6789", "6789", "0001", "0002", "0004", "0013", "0008", "7777"];
    const COIN: u128 = 1_000_000_000_000_000_000;
    let account = format!("00012345{}", ENDINGS[dice.index(ENDINGS.len())]);
    let (kind, is_held) = (KINDS[dice.index(KINDS.len())], dice.throw(2) == 0);
    let (input, output) = match kind {
        "money for money" | "range of money for money" => (("USD", 10_000), "EUR"),
        "money for token" | "range of money for token" => (("USD", 10_000), "USDC"),
        "swap" | "range for token" => (("WETH", COIN), "USDC"),
        "token across chains" | "coin across chains" => (("USDC", 100_000_000), "USDC.base"),
        "coin for token" => (("USDC", 100_000_000), "USDC"),
        "token for coin" => (("USDC", 100_000_000), "ETH"),
        _ => (("USDC", 100_000_000), "USD"),
    };
    let account = match output {
        "USD" => account.as_str(),
        "EUR" if is_held => HELD_ACCOUNTS[1],
        "EUR" => "DE89370400440532013000",
        _ => "",
    };
    let held = PrivateKeySigner::from_slice(&HELD_KEY).unwrap();
    let wallet = if is_held && kind == "money for token" { held } else { PrivateKeySigner::random() };
    let mut order = order_by(&wallet, 0, &Terms { input, output, account });
    if let Some(beneficiary) = &mut order.beneficiary {
        match output {
            "USD" => beneficiary.bank = Some("USABA021000021".into()),
            "EUR" => beneficiary.payout_method = Some(PayoutMethod::Sepa),
            _ => {}
        }
    }
    if output == "ETH" {
        order.output_asset = serde_json::from_value(json!({"type": "native", "symbol": "ETH"})).unwrap();
    }
    let least = |output| Bounds::ExactInput { input: Minor::new(COIN), min_output: Minor::new(output) };
    let above = u128::from(dice.throw(4));
    let order = match kind {
        "token of the other chain for money" => on_base(&wallet, order),
        "coin for money" => of_coin(order, least(190_000)),
        "coin for token" | "coin across chains" => of_coin(order, least(1_900_000_000)),
        "range for money" => ranged(order, 9_985 + 100 * above, 9_500, patience_ms),
        "range of money for money" => ranged(order, 9_185 + 100 * above, 8_800, patience_ms),
        "range of money for token" => ranged(order, 99_850_000 + 1_000_000 * above, 95_000_000, patience_ms),
        "range for token" => ranged(order, 1_990_000_000 + 20_000_000 * above, 1_800_000_000, patience_ms),
        _ => order,
    };
    let is_held = HELD_ACCOUNTS.contains(&account) || is_held && kind == "money for token";
    let waits = (is_held && !kind.starts_with("range") || kind.starts_with("coin"))
        .then(|| now().plus_millis(patience_ms));
    (kind, IntentRequest { deadline: waits.unwrap_or(order.deadline), ..order })
}

/// The drill's part in a run.
struct Drill {
    plan: RestorePlan,
    harness: Harness,
    dir: tempfile::TempDir,
    world: World,
    dice: Dice,
    /// The kinds of the accepted orders, by reference.
    kinds: HashMap<String, &'static str>,
    /// Orders whose input operators gave back.
    returned: HashSet<String>,
    /// What orders were filled for when the database was lost, as receipts and the bank's statement show.
    filled: HashMap<String, [Minor; 2]>,
    report: RestoreReport,
}

/// An order of the database: reference, state, entity and output.
type Ended = (String, String, Vec<u8>, String);

impl Drill {
    /// A partner places an order, and cancels some at once.
    async fn submit(&mut self, engine: &Engine) {
        let patience_ms = PATIENCE_MS * i64::try_from(self.plan.orders).unwrap();
        let (kind, request) = any_order(&mut self.dice, patience_ms);
        match submit(engine, &self.harness.tenant, request).await.unwrap() {
            Outcome::Accepted(accepted) => {
                let is_of_maker = accepted.plan.slices.iter().any(|slice| slice.level_id.is_some());
                let kind = match kind {
                    "token for money" if is_of_maker => "token for a maker's money",
                    "range for money" if is_of_maker => "range for a maker's money",
                    other => other,
                };
                self.kinds.insert(accepted.reference.clone(), kind);
                if self.dice.throw(10) == 0 {
                    engine.cancel(&self.harness.tenant, &accepted.reference, None).await.unwrap();
                }
            }
            refused => panic!("seed {}: {kind} is not accepted: {refused:?}", self.plan.seed),
        }
    }

    /// The orders of the database by kind and state.
    async fn states(&self) -> BTreeMap<String, u64> {
        let rows = "select reference, state_name from execution";
        let rows: Vec<(String, String)> = self.harness.rows(rows).await;
        let mut states = BTreeMap::new();
        for (reference, state) in rows {
            *states.entry(format!("{} {state}", self.kinds[&reference])).or_default() += 1;
        }
        states
    }

    /// Partners cancel some of the orders that have not begun as far as the database knows.
    async fn cancel_some(&mut self, engine: &Engine) {
        let open: Vec<String> = sqlx::query_scalar(
            "select reference from execution where state_name in ('resting', 'accepted') order by reference",
        )
        .fetch_all(self.harness.pool())
        .await
        .unwrap();
        for reference in open {
            if self.dice.throw(6) == 0 {
                engine.cancel(&self.harness.tenant, &reference, None).await.unwrap();
            }
        }
    }

    async fn turn(&mut self) -> bool {
        let is_busy = self.world.turn(self.harness.pool()).await;
        tokio::time::sleep(BETWEEN / 4).await;
        is_busy
    }

    /// Until nothing is left to do for anybody.
    async fn end(&mut self) {
        let open = "select count(*) from execution where terminal_at is null";
        let (deadline, mut turns) = (tokio::time::Instant::now() + Duration::from_secs(120), 0);
        let mut idle = 0;
        while idle < 20 {
            self.close_debts().await;
            self.decide_held(1).await;
            self.fill_again().await;
            let is_busy = self.turn().await || self.harness.count(open).await > 0;
            idle = if is_busy { 0 } else { idle + 1 };
            if tokio::time::Instant::now() > deadline {
                let list = "select reference || ' ' || state_name || ' ' || coalesce((select string_agg(differs, ',') \
                            from chain_fact f where f.entity = x.entity), '') || coalesce((select string_agg(last_result, ',') \
                            from effect e where e.reference = x.reference), '') from execution x where terminal_at is null";
                let stuck: Vec<String> =
                    sqlx::query_scalar(list).fetch_all(self.harness.pool()).await.unwrap();
                let stuck: Vec<String> = stuck
                    .into_iter()
                    .map(|one| format!("{} {one}", self.kinds[one.split(' ').next().unwrap_or_default()]))
                    .collect();
                panic!("seed {}: orders do not end: {stuck:#?}", self.plan.seed);
            }
            turns += 1;
            // An answer about a payment that is not remembered yet is read once more.
            if turns % 50 == 0 {
                read_answers_again(self.dir.path());
            }
        }
        let open = "select coalesce(x.reference, '') || ' ' || coalesce(x.state_name, 'forgotten') || ': ' \
                    || coalesce(f.payload ->> 'kind', '') || ', ' || coalesce(f.differs, f.last_error, f.gate, '') \
             from chain_fact f left join execution x on x.entity = f.entity \
             where f.consumed_at is null and f.retracted_at is null";
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let open: Vec<String> = sqlx::query_scalar(open).fetch_all(self.harness.pool()).await.unwrap();
            if open.is_empty() {
                return;
            }
            assert!(tokio::time::Instant::now() < until, "seed {}: facts wait: {open:#?}", self.plan.seed);
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Two operators decide about some of the orders that screening holds.
    async fn decide_held(&mut self, release: u64) {
        let held = "select reference from effect where kind = 'lock' and last_result = 'held by screening' \
                    and verdict is null order by reference";
        let held: Vec<String> = sqlx::query_scalar(held).fetch_all(self.harness.pool()).await.unwrap();
        for reference in held {
            let action = match self.dice.throw(12 + release) {
                0 => Action::Refuse { code: "screening_refused".into() },
                1 => Action::Cancel,
                2..12 => continue,
                _ => Action::Release,
            };
            for operator in ["jo", "mika"] {
                // It may have ended or begun meanwhile.
                let _ = self.harness.decide(operator, &reference, action.clone()).await;
            }
        }
    }

    async fn note_fills(&mut self) {
        let filled = "select reference, terms #>> '{input,amount}', terms #>> '{output,amount}' from execution \
                      where state_name <> 'resting'";
        let filled: Vec<(String, String, String)> = self.harness.rows(filled).await;
        let minor = |text: String| Minor::parse(&text).unwrap();
        self.filled =
            filled.into_iter().map(|(of, input, output)| (of, [minor(input), minor(output)])).collect();
    }

    /// Two operators fill orders of money again that the bank, the desk or the chain knows.
    async fn fill_again(&mut self) {
        let known = "select reference from effect where last_result like 'filled before a restore%' \
                     and verdict is null and claimed_until is null";
        let known: Vec<String> = sqlx::query_scalar(known).fetch_all(self.harness.pool()).await.unwrap();
        for reference in known {
            let [input, output] = self.filled[&reference];
            for operator in ["jo", "mika"] {
                // It may just be asked about again.
                let action = Action::Fill { input, output };
                if self.harness.decide(operator, &reference, action).await.is_err() {
                    break;
                }
                self.report.filled_again += u64::from(operator == "mika");
            }
        }
    }

    /// Two operators give back the input of an order that was released, and whose payment came back before its answer was
    /// read.
    async fn close_debts(&mut self) {
        let unpaid = "select reference from execution where state_name = 'owing' \
                      and state ->> 'failure' is not null and state ->> 'settle_tx' is not null";
        let unpaid: Vec<String> = sqlx::query_scalar(unpaid).fetch_all(self.harness.pool()).await.unwrap();
        for reference in &unpaid {
            let action = Action::ReturnDebt { provider_reference: format!("W{reference}"), at: Utc::now() };
            self.harness.both_decide(reference, action).await;
            self.harness.wait_for_state(reference, "payout_failed").await;
            self.returned.insert(reference.clone());
        }
    }

    /// Two operators close what the bank has returned.
    async fn close_returns(&mut self) {
        let open = "select reference from execution \
                    where state_name = 'reversed' and state #>> '{reversal,resolved}' is null";
        let returned: Vec<String> = sqlx::query_scalar(open).fetch_all(self.harness.pool()).await.unwrap();
        for reference in &returned {
            let provider_reference = format!("W{reference}");
            let remedy = Remedy::GivenBack;
            let action = Action::ResolveReturn { remedy, provider_reference, at: Utc::now() };
            self.harness.both_decide(reference, action).await;
        }
        wait_for("returns to be resolved", || async {
            let left: Vec<String> = sqlx::query_scalar(open).fetch_all(self.harness.pool()).await.unwrap();
            left.is_empty().then_some(())
        })
        .await;
        self.report.closed = (returned.len() + self.returned.len()) as u64;
    }

    async fn check(&mut self) {
        self.report.ended_as = self.states().await;
        let early = "select count(*) from chain_fact where early_at is not null";
        self.report.kept = self.harness.count(early).await;
        let received = received(&self.dir.path().join("bank"));
        assert!(
            received.keys().all(|name| !name.starts_with("again")),
            "a payment was ordered twice: {received:?}"
        );
        self.report.payments = received.len() as u64;
        let differing = "select count(*) from chain_fact where differs is not null";
        assert_eq!(self.harness.count(differing).await, 0, "seed {}: facts differ", self.plan.seed);
        let rows = "select b.end_to_end_id, b.status, e.reference, e.state_name from bank_payment b \
                    join execution e on e.reference = b.execution";
        let rows: Vec<(String, String, String, String)> = self.harness.rows(rows).await;
        let paid = |reference: &str| {
            let mut of_order = rows.iter().filter(|row| row.2 == reference);
            of_order.find(|row| ["paid", "returned"].contains(&row.1.as_str())).map(|row| row.0.clone())
        };
        let is_known = |id: &str| rows.iter().any(|row| row.0 == id);
        self.report.forgotten_payments = received.keys().filter(|id| !is_known(id)).count() as u64;
        let ended = "select reference, state_name, entity, terms #>> '{output,amount}' from execution order by reference";
        let ended: Vec<Ended> = self.harness.rows(ended).await;
        for (reference, state, entity, output) in &ended {
            let about = format!("seed {}: {} {reference} is {state}", self.plan.seed, self.kinds[reference]);
            let (one, by_bank) = (self.world.of(entity), paid(reference));
            // What came back, and was given back by operators, counts as unpaid.
            let is_returned = self.returned.contains(reference);
            let is_paid = is_returned || ["completed", "reversed"].contains(&state.as_str());
            let on_chain = one.and_then(|one| one.paid.as_ref());
            self.report.paid_on_chain += u64::from(on_chain.is_some());
            assert_eq!(is_paid, by_bank.is_some() || on_chain.is_some(), "{about}: {by_bank:?} {on_chain:?}");
            assert!(by_bank.is_none() || on_chain.is_none(), "{about}, and was paid twice");
            assert!(on_chain.is_none_or(|paid| paid == output), "{about} for {output}: {on_chain:?}");
            let ordered = by_bank.map(|id| received[&id].clone());
            assert!(ordered.as_ref().is_none_or(|paid| paid == output), "{about} for {output}: {ordered:?}");
            let Some(one) = one else { continue };
            assert!(!(is_paid && one.gone), "{about}, and its input was returned");
            assert!(is_paid || !one.is_taken(), "{about}, and its input was taken");
            // A filled lock is returned at its timelock.
            assert!(!one.is_locked() || one.is_filled() && !is_paid, "{about}, and its input is locked");
        }
        self.harness.check_books().await;
    }
}

/// Runs a plan.
pub async fn run(plan: RestorePlan) -> RestoreReport {
    let harness = Harness::new(market()).await;
    harness.deposit("USD", 1_000_000_000).await;
    let dir = tempfile::tempdir().unwrap();
    outage::stamp(&mut harness.pool().acquire().await.unwrap(), dir.path(), "jo", false).await.unwrap();
    let wallet = PrivateKeySigner::from_slice(&HELD_KEY).unwrap().address();
    let held = HELD_ACCOUNTS.map(|account| format!("account: {account}\n")).concat();
    std::fs::write(dir.path().join("held"), format!("{held}account: {wallet}\n")).unwrap();
    let bank = Bank::open(dir.path()).await.unwrap();
    let closed = watch::Sender::new(false);
    let banking = tokio::spawn(bank.clone().run(closed.subscribe()));
    let prices = PAIRS.map(|(input, output, price, _)| Price::of(input, output, price));
    let (world, dice) = (World::new(plan.seed), Dice::new(plan.seed));
    let (kinds, returned, filled) = (HashMap::new(), HashSet::new(), HashMap::new());
    let report = RestoreReport::default();
    let mut drill = Drill { plan, harness, dir, world, dice, kinds, returned, filled, report };

    drill.world.begin(drill.harness.pool()).await;
    let wallets = [("north", north().wallet), ("desk", DESK.to_owned())].map(|(id, at)| (id.to_owned(), at));
    register(&mut drill.harness.pool().acquire().await.unwrap(), &wallets, &[]).await.unwrap();
    let process = Process::start(&drill.harness, &drill.world, &prices, drill.dir.path()).await;
    let dumped_at = 1 + drill.dice.throw(plan.orders);
    for n in 1..=plan.orders {
        if n % MAKER_EVERY == 1 {
            rest(drill.harness.pool()).await;
        }
        drill.submit(&process.engine).await;
        for _ in 0..drill.dice.throw(8) {
            drill.turn().await;
        }
        drill.decide_held(4).await;
        if n == dumped_at {
            copy::save(drill.harness.pool()).await;
            drill.report.restored_as = drill.states().await;
        }
    }
    // What was dumped goes on for a while, sometimes to its end.
    for _ in 0..drill.dice.throw(10 * plan.orders) {
        drill.turn().await;
        drill.decide_held(8).await;
    }
    process.kill().await;
    drill.note_fills().await;
    copy::restore(drill.harness.pool()).await;
    let kept: u64 = drill.report.restored_as.values().sum();
    drill.report.forgotten = drill.kinds.len() as u64 - kept;
    read_answers_again(drill.dir.path());
    for (price, (.., after)) in prices.iter().zip(PAIRS) {
        price.change(after);
    }

    let process = Process::start(&drill.harness, &drill.world, &prices, drill.dir.path()).await;
    drill.cancel_some(&process.engine).await;
    for _ in 0..AFTERWARDS {
        drill.submit(&process.engine).await;
        drill.turn().await;
    }
    drill.end().await;
    drill.close_returns().await;
    process.kill().await;
    closed.send_replace(true);
    let _ = banking.await;
    drill.check().await;
    drill.report
}

/// As the page about restores says: the bank's files are imported again.
fn read_answers_again(root: &std::path::Path) {
    for entry in std::fs::read_dir(root.join("archive")).unwrap() {
        let path = entry.unwrap().path();
        let to = root.join("inbox").join(path.file_name().unwrap());
        if !to.exists() {
            std::fs::rename(path, to).unwrap();
        }
    }
}

/// The amounts of the payments that the bank has received, in minor units, by their ids.
fn received(folder: &std::path::Path) -> HashMap<String, String> {
    let mut received = HashMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(id) = name.strip_suffix(".xml") else { continue };
        let order = std::fs::read_to_string(&path).unwrap();
        let amount = order.split_once("<InstdAmt").and_then(|(_, rest)| rest.split(['>', '<']).nth(1));
        received.insert(id.to_owned(), amount.unwrap().replace('.', ""));
    }
    received
}
