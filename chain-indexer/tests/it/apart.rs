//! Commands and transactions that fail: each is set aside by itself, and the others go on.

use crate::support::answers::{Answers, forward, serve};
use crate::support::{Chain, FUNDS, Order, Running, Scene, raw, until, vault};
use alloy::primitives::{Address, B256, U256};
use alloy::providers::DynProvider;
use dvp_chain_indexer::reconcile::{Options, reconcile};
use dvp_chain_indexer::{run_indexer, run_reconciler, run_relayers};
use dvp_domain::chain::ChainCommand;
use dvp_store::PgPool;
use dvp_store::chain as store;
use dvp_store::workers::inject::{FailureKind, InjectedFailure};
use dvp_store::workers::{Step, Worker, set_aside};
use dvp_testing::failing::{
    FailingScene, NamedScene, each_named_step, each_step, free_leases, named_others_go_on,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What a node answers to every simulation with a certain id in it.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// An error with NUL and an embedding of writing direction.
    Text,
    /// A revert with such a message and without data.
    Revert,
    /// A result that is no such answer.
    Garbage,
    /// An answer under an HTTP error, as of a provider's gateway.
    Gateway,
    Silence,
}

struct Poisoned {
    upstream: DynProvider,
    about: B256,
    fault: Fault,
    is_on: AtomicBool,
}

impl Answers for Poisoned {
    async fn answer(&self, call: &Value) -> Value {
        let id = &call["id"];
        let input = call["params"][0]["input"].as_str().unwrap_or_default();
        if self.is_on.load(Ordering::Relaxed) && input.contains(&format!("{:x}", self.about)) {
            return match self.fault {
                Fault::Text => {
                    json!({"jsonrpc": "2.0", "id": id,
                           "error": {"code": -32000, "message": "bad\0 token\u{202e} text"}})
                }
                Fault::Revert => {
                    json!({"jsonrpc": "2.0", "id": id,
                           "error": {"code": 3, "message": "execution reverted: bad\0 token\u{202e} text"}})
                }
                Fault::Garbage => json!({"jsonrpc": "2.0", "id": id, "result": {"no": "bytes"}}),
                Fault::Gateway => json!("no JSON-RPC"),
                Fault::Silence => {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    Value::Null
                }
            };
        }
        forward(&self.upstream, call).await
    }
}

async fn listed(chain: &Chain) -> Vec<store::CommandView> {
    let mut conn = chain.pool().acquire().await.unwrap();
    store::list_commands(&mut conn, store::CommandFilter::Troubled, 10).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_to_nobody_is_set_aside_and_the_locks_go_on() {
    let chain = Chain::new().await;
    chain.scene.fund_solver(100).await;
    let orders = chain.scene.orders(1, 3).await;
    let to_nobody = chain.scene.transfer(B256::repeat_byte(0x71), Address::ZERO, 40);
    chain.command("nobody", ChainCommand::Transfer(Box::new(to_nobody))).await;
    chain.create_all(&orders).await;
    let _running = Running::start(&chain);
    chain.all_created(&orders).await;
    chain.state("nobody", "transfer", "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_no_node_can_simulate_is_set_aside_and_the_others_are_carried_out() {
    for fault in [Fault::Text, Fault::Revert, Fault::Garbage, Fault::Gateway, Fault::Silence] {
        let mut chain = Chain::new().await;
        let orders = chain.scene.orders(1, 6).await;
        let guilty = &orders[2];
        let node = Arc::new(Poisoned {
            upstream: chain.scene.provider.clone(),
            about: guilty.id,
            fault,
            is_on: AtomicBool::new(true),
        });
        chain.config.rpc_url = serve(Arc::clone(&node)).await;
        chain.create_all(&orders).await;
        let _running = Running::start(&chain);
        chain.all_created(orders.iter().filter(|order| order.id != guilty.id)).await;
        let why = chain.troubled(&guilty.id.to_string(), "create").await;
        assert!(!why.contains('\0') && !why.contains('\u{202e}'), "{fault:?}: {why:?}");
        assert_eq!(listed(&chain).await.len(), 1, "{fault:?}: the guilty one alone");
        assert!(chain.attempts().await.len() < 4, "{fault:?}: the others share transactions");
        node.is_on.store(false, Ordering::Relaxed);
        chain.run("update chain_command set not_before = now() where state = 'pending'").await;
        chain.fact(guilty.id, "created").await;
        assert!(listed(&chain).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_row_the_database_refuses_is_set_aside_and_the_others_are_carried_out() {
    let chain = Chain::new().await;
    let orders = chain.scene.orders(1, 6).await;
    chain.create_all(&orders).await;
    let guilty = orders[4].id;
    let refuse = format!(
        "create function refuse() returns trigger language plpgsql as
         $$ begin raise exception 'this row is poison'; end $$;
         create trigger refuse before update on chain_command for each row
         when (old.reference = '{guilty}') execute function refuse()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&chain.pool()).await.unwrap();
    let _running = Running::start(&chain);
    chain.all_created(orders.iter().filter(|order| order.id != guilty)).await;
    chain.run("drop trigger refuse on chain_command").await;
    chain.fact(guilty, "created").await;
}

/// As after a master key was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_stored_bytes_do_not_open_is_signed_again() {
    let chain = Chain::new().await;
    let order = chain.scene.order(1).await;
    chain.automine(false).await;
    let running = Running::start(&chain);
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.state("one", "create", "sent").await;
    running.stop().await;
    chain.run("update tx_attempt set sealed = '\\x00', last_broadcast_at = null").await;
    let first = chain.attempts().await;
    let _: Value = raw(&chain.scene.provider, "anvil_dropTransaction", json!([first[0].hash])).await;
    let _running = Running::start(&chain);
    chain.until_attempts(2).await;
    chain.automine(true).await;
    chain.mined(1).await;
    chain.state("one", "create", "done").await;
}

/// Locks of wallets of their own.
struct Locks {
    chain: Chain,
    pool: PgPool,
    wallets: AtomicU8,
}

impl FailingScene for Locks {
    fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn make(&self) -> String {
        let scene = &self.chain.scene;
        let (template, reference) = (scene.order(1).await, Uuid::new_v4().to_string());
        let id = B256::repeat_byte(self.wallets.fetch_add(1, Ordering::Relaxed));
        let order = Order { id, maker: scene.wallet(id, FUNDS).await, nonce: U256::ZERO, ..template };
        self.chain.command(&reference, scene.create_command(&order)).await;
        reference
    }

    fn start(&self) -> JoinHandle<()> {
        let (pool, config, until) = (self.pool.clone(), self.chain.config.clone(), CancellationToken::new());
        let signer = self.chain.scene.relayer.clone();
        tokio::spawn(async move {
            free_leases(&pool).await;
            let indexing = run_indexer(pool.clone(), config.clone(), until.clone());
            let relaying = run_relayers(pool, config, vec![signer.into()], vault(), until);
            let _ = tokio::join!(indexing, relaying);
        })
    }

    async fn is_done(&self, reference: &str) -> bool {
        let is_done = "select exists (select from chain_command where reference = $1 and state = 'done')";
        sqlx::query_scalar(is_done).bind(reference).fetch_one(&self.pool).await.unwrap()
    }

    fn patience(&self) -> Duration {
        // Of a batch, its parts, and the commands that are alone then.
        Duration::from_secs(3 * 3 + 8)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_command_holds_up_no_other() {
    let chain = Chain::new().await;
    let pool = chain.pool();
    let locks = Locks { chain, pool, wallets: AtomicU8::new(1) };
    each_step(Worker::Relayer, &locks).await;
}

/// A transaction of the account that fails whenever it is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn one_failing_transaction_holds_up_no_other() {
    for kind in FailureKind::ALL.into_iter().filter(|kind| kind.is_of(Step::TransactionSend)) {
        let chain = Chain::new().await;
        // A third transaction would wait for a block, or for more commands (`plan::at_least`).
        let orders = chain.scene.orders(1, 2).await;
        chain.automine(false).await;
        // Other tests of the process have commands of the same names.
        let name = |order: &Order| format!("{} transaction {kind:?}", order.id);
        let injected = InjectedFailure::new(Step::TransactionSend, name(&orders[0]), kind);
        let is_listed = async || {
            let mut conn = chain.pool().acquire().await.unwrap();
            let rows = set_aside::list(&mut conn, 10).await.unwrap();
            rows.iter().any(|row| row.worker == "transactions" && row.about == name(&orders[0]))
        };
        let _running = Running::start(&chain);
        chain.command(&name(&orders[0]), chain.scene.create_command(&orders[0])).await;
        chain.state(&name(&orders[0]), "create", "sent").await;
        until("the transaction is listed", is_listed).await;
        let began = Instant::now();
        chain.command(&name(&orders[1]), chain.scene.create_command(&orders[1])).await;
        chain.state(&name(&orders[1]), "create", "sent").await;
        assert!(began.elapsed() < Duration::from_secs(20), "{kind:?}: {:?}", began.elapsed());
        assert!(injected.hits() > 0, "{kind:?}");
        drop(injected);
        chain.automine(true).await;
        chain.mined(1).await;
        chain.all_created(&orders).await;
    }
}

/// Two chains whose indexers share a database.
struct Chains([Chain; 2], PgPool);

impl NamedScene for Chains {
    fn pool(&self) -> &PgPool {
        &self.1
    }

    fn items(&self, _: Step) -> Vec<String> {
        self.0.iter().map(|chain| chain.config.name.clone()).collect()
    }

    fn start(&self) -> JoinHandle<()> {
        let (pool, until) = (self.1.clone(), CancellationToken::new());
        let [one, other] = [0, 1].map(|at| self.0[at].config.clone());
        tokio::spawn(async move {
            free_leases(&pool).await;
            let one = run_indexer(pool.clone(), one, until.clone());
            let _ = tokio::join!(one, run_indexer(pool, other, until));
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_cannot_be_read_holds_up_no_other() {
    let mut one = Chain::new().await;
    let mut other = one.beside(Scene::on_chain(99_331).await);
    for chain in [&mut one, &mut other] {
        chain.config.name = Uuid::new_v4().to_string();
    }
    let pool = one.pool();
    let chains = Chains([one, other], pool);
    each_named_step(Worker::Indexer, &chains).await;
}

/// Locks in the escrow, compared again and again.
struct Held(Chain, PgPool, Vec<String>);

impl NamedScene for Held {
    fn pool(&self) -> &PgPool {
        &self.1
    }

    fn items(&self, _: Step) -> Vec<String> {
        self.2.clone()
    }

    fn start(&self) -> JoinHandle<()> {
        let (pool, config) = (self.1.clone(), self.0.config.clone());
        tokio::spawn(async move {
            free_leases(&pool).await;
            let every = Duration::from_millis(300);
            run_reconciler(pool, config, Options::default(), every, CancellationToken::new()).await;
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_ends_no_comparison_and_is_told() {
    let mut chain = Chain::new().await;
    chain.config.name = Uuid::new_v4().to_string();
    let template = chain.scene.order(1).await;
    let mut ids = Vec::new();
    for byte in 1..=3 {
        // Other tests of the process have orders of the same ids.
        let id = B256::left_padding_from(Uuid::new_v4().as_bytes());
        let maker = chain.scene.wallet(B256::repeat_byte(byte), FUNDS).await;
        let order = Order { id, maker, nonce: U256::ZERO, ..template.clone() };
        chain.command(&id.to_string(), chain.scene.create_command(&order)).await;
        ids.push(id.to_string());
    }
    let running = Running::start(&chain);
    for id in &ids {
        chain.fact(id.parse().unwrap(), "created").await;
    }
    chain.mined(200).await;
    let pool = chain.pool();
    let compare = async || reconcile(&pool, &chain.config, &Options::default()).await;
    let counted = InjectedFailure::new(Step::ChainCompare, &ids[0], FailureKind::Counted);
    until("the locks are final", async || {
        let _ = compare().await;
        counted.hits() > 0
    })
    .await;
    drop(counted);
    running.stop().await;
    let unread = {
        let _injected = InjectedFailure::new(Step::ChainCompare, &ids[1], FailureKind::Data);
        compare().await.unwrap().unread
    };
    assert_eq!(unread.iter().map(|(what, _)| what).collect::<Vec<_>>(), [&ids[1]]);
    assert!(compare().await.unwrap().unread.is_empty());
    let held = Held(chain, pool.clone(), ids);
    named_others_go_on(&held, Step::ChainCompare).await;
}
