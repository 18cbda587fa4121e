//! An item of a worker loop that fails at any step, in any way, holds up no other.

use std::sync::Arc;
use std::time::Duration;

use dvp_core::chain::backlog::Backlog;
use dvp_core::ledger::reconciliation::{self, PATIENCE};
use dvp_core::legacy::Strategy;
use dvp_core::liquidity::{Liquidity, ReferenceSource};
use dvp_core::operators::personal_data::AGE_LEAST;
use dvp_core::workflow;
use dvp_core::workflow::retention::Ages;
use dvp_domain::ids::RecallId;
use dvp_domain::liquidity::Reference;
use dvp_domain::text::{TEXT_MAX, check_line};
use dvp_rails::Rail as _;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::instruction::end_to_end_id;
use dvp_sandbox::bank::statement::StatementOf;
use dvp_store::workers::{Step, Worker, in_database};
use dvp_testing::Harness;
use dvp_testing::chain::succeed_always;
use dvp_testing::failing::{
    FailingScene, NamedScene, Running, each_named_step, each_step, free_leases, named_others_go_on,
    others_go_on, steps,
};
use dvp_testing::market::Price;
use dvp_testing::orders::order;
use sqlx::PgPool;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::bank_files::{BankScene, request};
use crate::older::keep_as;
use crate::ranges::{patient, resting};
use crate::scenes;

/// The interval of loops that a test sets.
const BRIEFLY: Duration = Duration::from_millis(200);

/// Where each loop is tried; `wallets` and the other crates' `failing_items`, `failing` and `apart` try what is not tried
/// here.
const TRIED: [(&str, &[Worker]); 5] = [
    (
        "core/tests/it/failing_items.rs",
        &[
            Worker::Effects,
            Worker::Facts,
            Worker::Figures,
            Worker::Lateness,
            Worker::AuditAnchor,
            Worker::LedgerCheck,
            Worker::LedgerClosings,
            Worker::Retention,
            Worker::BankComparison,
            Worker::BankFiles,
            Worker::BankRecalls,
            Worker::Liquidity,
            Worker::Ranges,
            Worker::Legacy,
            Worker::Halts,
            Worker::Backlog,
        ],
    ),
    ("core/tests/it/wallets.rs", &[Worker::Wallets]),
    (
        "api/tests/it/delivery/failing.rs",
        &[Worker::Dispatcher, Worker::Replays, Worker::Deliveries, Worker::Outcomes],
    ),
    ("fix-gateway/tests/it/failing_items.rs", &[Worker::FixSessions, Worker::FixFeed, Worker::FixStatus]),
    (
        "chain-indexer/tests/it/apart.rs",
        &[Worker::Relayer, Worker::Transactions, Worker::Indexer, Worker::ChainComparison],
    ),
];
/// Loops without items that could be set aside: messages that the archive cannot write are left out and counted,
/// connections are apart from each other, and what is not remembered is read from the database.
const WITHOUT_ITEMS: [Worker; 3] = [Worker::FixArchive, Worker::FixListeners, Worker::Caches];

#[test]
fn every_loop_is_tried_at_every_step() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for worker in Worker::ALL {
        let has_steps = steps(*worker).next().is_some();
        assert_eq!(has_steps, !WITHOUT_ITEMS.contains(worker), "{worker:?}");
        let files: Vec<&str> =
            TRIED.iter().filter(|(_, tried)| tried.contains(worker)).map(|(file, _)| *file).collect();
        assert_eq!(files.len(), usize::from(has_steps), "{worker:?} is tried in {files:?}");
        for file in files {
            let test = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
            let is_named = |name: String| test.contains(&name);
            let are_named = is_named(format!("Worker::{worker:?})"))
                || is_named(format!("== Worker::{worker:?}"))
                || is_named(format!("(Worker::{worker:?}, "))
                || steps(*worker).all(|step| is_named(format!("Step::{step:?}")));
            assert!(are_named, "{file} tries not every step of {worker:?}");
        }
    }
}

/// Orders of a token, from their acceptance to their receipt.
struct Orders(Harness);

impl FailingScene for Orders {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    async fn make(&self) -> String {
        self.0.accept(order("000123456789")).await.reference
    }

    fn start(&self) -> JoinHandle<()> {
        let (workers, pool, stopped) = (self.0.start_workers(), self.pool().clone(), self.0.stopped());
        tokio::spawn(async move {
            let _workers = Running(workers);
            succeed_always(pool, stopped).await;
        })
    }

    async fn is_done(&self, reference: &str) -> bool {
        self.0.state(reference).await == "completed"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn due_work_of_one_order_that_fails_holds_up_no_other_order() {
    each_step(Worker::Effects, &Orders(scenes::harness().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_of_one_order_that_fails_holds_up_no_other_order() {
    each_step(Worker::Facts, &Orders(scenes::harness().await)).await;
}

/// A loop over parts that have names.
struct Parts<S> {
    harness: Harness,
    names: &'static [&'static str],
    start: S,
}

impl<S: Fn(&Harness) -> JoinHandle<()>> NamedScene for Parts<S> {
    fn pool(&self) -> &PgPool {
        self.harness.pool()
    }

    fn items(&self, _: Step) -> Vec<String> {
        self.names.iter().map(|name| in_database(self.pool(), name).to_string()).collect()
    }

    fn start(&self) -> JoinHandle<()> {
        (self.start)(&self.harness)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_figure_that_cannot_be_counted_holds_up_no_other() {
    let start = |harness: &Harness| {
        tokio::spawn(dvp_core::workflow::figures::run(harness.pool().clone(), harness.stopped()))
    };
    let names = &["open amounts", "open orders", "items that are set aside"];
    each_named_step(Worker::Figures, &Parts { harness: scenes::harness().await, names, start }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_late_payouts_that_fails_holds_up_no_other() {
    let engine = |harness: &Harness| (harness.engine.clone(), harness.stopped());
    let start = move |harness: &Harness| {
        let (engine, stopped) = engine(harness);
        tokio::spawn(async move { workflow::lateness::run(&engine, stopped).await })
    };
    let names = &["contradictions of the bank", "overdue payouts", "releases before the timelock"];
    let scene = Parts { harness: scenes::harness().await, names, start };
    named_others_go_on(&scene, Step::LatenessCount).await;
}

/// Failed orders whose timelock is over.
struct Refunds(Orders);

impl FailingScene for Refunds {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    async fn make(&self) -> String {
        let reference = self.0.make().await;
        let workers = Running(self.0.0.start_workers());
        self.0.0.play_until(&reference, |kind| kind == "create").await;
        self.0.0.wait_for_state(&reference, "committing").await;
        drop(workers);
        reference
    }

    fn start(&self) -> JoinHandle<()> {
        let (engine, stopped) = (self.0.0.engine.clone(), self.0.0.stopped());
        let failed = "update execution set state_name = 'payout_failed', \
                          state = jsonb_set(state, '{lock,timelock_expires_at}', '1000') \
                      where state_name = 'committing'";
        tokio::spawn(async move {
            sqlx::query(failed).execute(engine.pool()).await.unwrap();
            // The interval of the loop is long: it is begun again and again.
            loop {
                let pass = workflow::lateness::run(&engine, stopped.clone());
                // Longer than a refund may take.
                let _ = tokio::time::timeout(Duration::from_secs(13), pass).await;
            }
        })
    }

    async fn is_done(&self, reference: &str) -> bool {
        let requested = "select exists (select from chain_command where reference = $1 and kind = 'refund')";
        sqlx::query_scalar(requested).bind(reference).fetch_one(self.pool()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_cannot_be_requested_holds_up_no_other() {
    others_go_on(&Refunds(Orders(scenes::harness().await)), Step::RefundWrite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_anchor_of_the_audit_log_is_listed_while_it_fails() {
    let start = |harness: &Harness| {
        let (engine, stopped) = (harness.engine.clone(), harness.stopped());
        tokio::spawn(async move { dvp_core::workflow::audit::run_every(&engine, BRIEFLY, stopped).await })
    };
    let scene = Parts { harness: scenes::harness().await, names: &["head"], start };
    each_named_step(Worker::AuditAnchor, &scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_and_closings_of_the_ledger_are_listed_while_they_fail() {
    let start = |harness: &Harness| {
        let (engine, stopped) = (harness.engine.clone(), harness.stopped());
        tokio::spawn(async move {
            tokio::join!(
                workflow::ledger_check::run(&engine, stopped.clone()),
                workflow::ledger_closings::run(&engine, stopped),
            );
        })
    };
    for (worker, name) in [(Worker::LedgerCheck, &["ledger"]), (Worker::LedgerClosings, &["hours"])] {
        let scene = Parts { harness: scenes::harness().await, names: name, start };
        each_named_step(worker, &scene).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_chains_is_listed_while_it_cannot_be_read() {
    let halts = |harness: &Harness| {
        let (engine, stopped) = (harness.engine.clone(), harness.stopped());
        tokio::spawn(async move { engine.context().chains.halts().run(engine.pool().clone(), stopped).await })
    };
    let scene = Parts { harness: scenes::harness().await, names: &["chains"], start: halts };
    each_named_step(Worker::Halts, &scene).await;
    let backlog = |harness: &Harness| {
        let chain = |id, name: &str| {
            Backlog::default().run(harness.pool().clone(), id, name.to_owned(), harness.stopped())
        };
        let (one, other) = (chain(1, "one"), chain(2, "other"));
        tokio::spawn(async move {
            let ((), ()) = tokio::join!(one, other);
        })
    };
    let scene = Parts { harness: scenes::harness().await, names: &["one", "other"], start: backlog };
    each_named_step(Worker::Backlog, &scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_fails_holds_up_no_other_of_the_retention() {
    let start = |harness: &Harness| {
        let (pool, stopped) = (harness.pool().clone(), harness.stopped());
        tokio::spawn(async move {
            free_leases(&pool).await;
            dvp_core::workflow::retention::run(pool, Ages::default(), stopped).await;
        })
    };
    let names = &["events", "partitions", "idempotency", "nonces", "set_aside"];
    let scene = Parts { harness: scenes::harness().await, names, start };
    named_others_go_on(&scene, Step::RetentionTrim).await;
}

/// Old orders whose personal data is erased.
struct OldOrders(Harness);

impl FailingScene for OldOrders {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    async fn make(&self) -> String {
        let workers = Running(self.0.start_workers());
        let reference = self.0.accept(order("000123456789")).await.reference;
        self.0.play_chain(&reference).await;
        self.0.wait_for_state(&reference, "completed").await;
        let open = "select count(*) from chain_fact where consumed_at is null";
        self.0.wait_for_count(open, 0).await;
        drop(workers);
        for old in [
            "update execution set terminal_at = now() - interval '401 days' where reference = $1",
            "update chain_command set state = 'done' where reference = $1",
            "delete from effect where reference = $1",
        ] {
            self.0.run_of(old, &reference).await;
        }
        reference
    }

    fn start(&self) -> JoinHandle<()> {
        let ages = Ages { personal_data: Some(AGE_LEAST), ..Ages::default() };
        let (pool, stopped) = (self.pool().clone(), self.0.stopped());
        tokio::spawn(async move {
            loop {
                free_leases(&pool).await;
                // Longer than an order may take.
                let rounds = dvp_core::workflow::retention::run(pool.clone(), ages, stopped.clone());
                let _ = tokio::time::timeout(Duration::from_secs(30), rounds).await;
            }
        })
    }

    async fn is_done(&self, reference: &str) -> bool {
        let erased = "select personal_erased_at is not null from execution where reference = $1";
        sqlx::query_scalar(erased).bind(reference).fetch_one(self.pool()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_erased_holds_up_no_other() {
    others_go_on(&OldOrders(scenes::harness().await), Step::RetentionErase).await;
}

/// Sources of prices that always answer.
struct Fixed(String);

impl ReferenceSource for Fixed {
    fn id(&self) -> &str {
        &self.0
    }

    fn reference(&self, _: &str, _: &str) -> Option<Reference> {
        None
    }

    fn refresh_every(&self) -> Option<Duration> {
        Some(BRIEFLY)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_prices_that_fails_holds_up_no_other() {
    let names = &["one", "two", "balances and controls"];
    let harness = scenes::harness_over(&[], |_| {
        let sources = ["one", "two"].map(|id| Arc::new(Fixed(id.to_owned())) as Arc<dyn ReferenceSource>);
        Liquidity::new(scenes::registry(), Vec::new(), sources.into())
    })
    .await;
    let start = |harness: &Harness| {
        let liquidity = Arc::clone(&harness.engine.context().liquidity);
        tokio::spawn(liquidity.run(harness.pool().clone(), harness.stopped()))
    };
    each_named_step(Worker::Liquidity, &Parts { harness, names, start }).await;
}

/// Files that nobody can read, which go to the quarantine.
struct Files(BankScene);

impl FailingScene for Files {
    fn pool(&self) -> &PgPool {
        self.0.harness.pool()
    }

    async fn make(&self) -> String {
        let name = format!("{}.xml", Uuid::new_v4());
        // Readable, and about nothing of ours.
        let from = chrono::Utc::now();
        let statement = StatementOf {
            account: "999".into(),
            currency: "USD".into(),
            id: "S1".into(),
            from,
            to: from + chrono::TimeDelta::seconds(1),
            opening: 0,
            lines: Vec::new(),
        };
        drop_into(&self.0.files.folder().inbox(), &name, statement.render().as_bytes()).await.unwrap();
        name
    }

    fn start(&self) -> JoinHandle<()> {
        tokio::spawn(self.0.files.clone().run(self.0.harness.stopped()))
    }

    async fn is_done(&self, name: &str) -> bool {
        self.0.files.folder().archive().join(name).exists()
    }

    fn patience(&self) -> Duration {
        // Files keep their order for as long.
        Duration::from_secs(12)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_bank_that_fails_holds_up_no_other() {
    let scene = Files(BankScene::new().await);
    for step in [Step::BankFileRead, Step::BankFileWrite] {
        others_go_on(&scene, step).await;
    }
}

struct Refusals(BankScene);

impl FailingScene for Refusals {
    fn pool(&self) -> &PgPool {
        self.0.harness.pool()
    }

    async fn make(&self) -> String {
        let reference = Uuid::new_v4().simple().to_string();
        let mut request = request("a", false);
        request.reference = format!("{reference}{reference}");
        request.account = "000123450002".into();
        if let Some(beneficiary) = &mut request.beneficiary {
            beneficiary.account = Some("000123450002".into());
        }
        self.0.files.submit(&request).await.unwrap();
        end_to_end_id(&request.reference)
    }

    fn start(&self) -> JoinHandle<()> {
        let bank = Running(tokio::spawn(self.0.bank.clone().run(self.0.stop.subscribe())));
        let files = self.0.files.clone().run(self.0.harness.stopped());
        tokio::spawn(async move {
            let _bank = bank;
            files.await;
        })
    }

    async fn is_done(&self, id: &str) -> bool {
        let refused = "select coalesce(reason_text, '') from bank_payment where end_to_end_id = $1 and status = 'refused'";
        let text: Option<String> =
            sqlx::query_scalar(refused).bind(id).fetch_optional(self.pool()).await.unwrap();
        text.is_some_and(|text| check_line(&text, TEXT_MAX).is_ok())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_reason_of_the_bank_is_cleaned() {
    others_go_on(&Refusals(BankScene::new().await), Step::BankFileText).await;
}

/// Recalls of payments that the bank has.
struct Recalls(Refusals);

impl FailingScene for Recalls {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    async fn make(&self) -> String {
        let payment = self.0.make().await;
        let id = RecallId::from_unique(Uuid::new_v4().simple()).to_string();
        let recall = "insert into bank_recall (id, end_to_end_id, execution, reason, status) \
                      values ($1, $2, 'exe_x', 'DUPL', 'approved')";
        sqlx::query(recall).bind(&id).bind(payment).execute(self.pool()).await.unwrap();
        id
    }

    fn start(&self) -> JoinHandle<()> {
        tokio::spawn(self.0.0.files.clone().run(self.0.0.harness.stopped()))
    }

    async fn is_done(&self, id: &str) -> bool {
        let sent = "select status = 'sent' from bank_recall where id = $1";
        sqlx::query_scalar(sent).bind(id).fetch_one(self.pool()).await.unwrap()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(12)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_cannot_be_sent_holds_up_no_other() {
    each_step(Worker::BankRecalls, &Recalls(Refusals(BankScene::new().await))).await;
}

/// Accounts at the bank, each with a statement.
struct Accounts {
    scene: BankScene,
    names: Vec<String>,
}

impl NamedScene for Accounts {
    fn pool(&self) -> &PgPool {
        self.scene.harness.pool()
    }

    fn items(&self, _: Step) -> Vec<String> {
        self.names.clone()
    }

    fn patience(&self) -> Duration {
        // One snapshot for all accounts: one after the other, each under a limit.
        Duration::from_secs(10)
    }

    fn start(&self) -> JoinHandle<()> {
        let (engine, stopped) = (self.scene.harness.engine.clone(), self.scene.harness.stopped());
        tokio::spawn(async move {
            free_leases(engine.pool()).await;
            reconciliation::run(engine, PATIENCE, stopped).await;
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_at_the_bank_that_cannot_be_compared_holds_up_no_other() {
    let scene = BankScene::new().await;
    let names: Vec<String> = (0..3).map(|_| Uuid::new_v4().simple().to_string()).collect();
    for account in &names {
        let statement = "insert into bank_statement (account, currency, statement, page, begins_at, ends_at, opening, \
                                                     closing, content, file) \
                         values ($1, 'USD', 'S1', 1, now(), now(), 0, 0, sha256('c'), sha256('f'))";
        sqlx::query(statement).bind(account).execute(scene.harness.pool()).await.unwrap();
    }
    each_named_step(Worker::BankComparison, &Accounts { scene, names }).await;
}

/// Resting orders that the market meets.
struct Resting {
    harness: Harness,
    price: Price,
}

impl FailingScene for Resting {
    fn pool(&self) -> &PgPool {
        self.harness.pool()
    }

    async fn make(&self) -> String {
        self.price.set(&self.harness.engine, "1");
        let reference = resting(&self.harness, patient()).await.reference;
        self.price.set(&self.harness.engine, "1.1");
        reference
    }

    fn start(&self) -> JoinHandle<()> {
        let (engine, stopped) = (self.harness.engine.clone(), self.harness.stopped());
        tokio::spawn(async move {
            free_leases(engine.pool()).await;
            dvp_core::ranges::run(engine, stopped).await;
        })
    }

    async fn is_done(&self, reference: &str) -> bool {
        self.harness.state(reference).await != "resting"
    }

    fn patience(&self) -> Duration {
        // Orders that fail together are tried one by one.
        Duration::from_secs(14)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_order_that_fails_holds_up_no_other() {
    let price = Price::of("USDC", "USD", "1");
    let priced = |_: &PgPool| scenes::priced(scenes::registry(), &[&price]);
    let harness = scenes::harness_over(&[("north", 100_000_000)], priced).await;
    each_step(Worker::Ranges, &Resting { harness, price }).await;
}

/// Orders of the older interface that are due.
struct Older(Harness);

impl FailingScene for Older {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    async fn make(&self) -> String {
        let id = Uuid::new_v4().to_string();
        keep_as(&self.0, Strategy::Instant, &id).await;
        id
    }

    fn start(&self) -> JoinHandle<()> {
        let (engine, pool, stopped) = (self.0.engine.clone(), self.pool().clone(), self.0.stopped());
        tokio::spawn(async move {
            let looping = Running(tokio::spawn(dvp_core::legacy::run(engine, stopped)));
            // The leases of attempts that failed last longer than their delays.
            loop {
                let free = "update legacy_intent set claimed_until = null where claimed_until < now() + interval '20 seconds'";
                sqlx::query(free).execute(&pool).await.unwrap();
                tokio::time::sleep(BRIEFLY).await;
                assert!(!looping.0.is_finished());
            }
        })
    }

    async fn is_done(&self, id: &str) -> bool {
        let open = "select stage in ('submitted', 'rejected') from legacy_intent where intent_id = $1";
        sqlx::query_scalar(open).bind(id).fetch_one(self.pool()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_the_older_interface_that_fails_holds_up_no_other() {
    let harness = scenes::harness().await;
    harness.deposit("USD", 100_000_000).await;
    harness.fund("north", "EUR", 100_000_000).await;
    each_step(Worker::Legacy, &Older(harness)).await;
}
