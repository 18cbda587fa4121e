//! An account of the relayer is replaced while orders come, as `docs/keys.md` says: by two processes on one database,
//! which are restarted in turn, and one of which is killed between.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, U256, keccak256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::types::TransactionRequest;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::partner::Partner;
use crate::served::{Ground, ServedProcess};
use crate::wait::{answer, until};

const WALLETS: usize = 4;
/// Between two orders of a wallet.
const PAUSE: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(180);
/// The roles of the two processes, which are the same: the order makes two names of logs.
const PROCESSES: [&str; 2] = ["api,fix,indexer,worker", "worker,indexer,fix,api"];

/// Where the processes serve, as far as they do.
type Doors = Arc<Mutex<[Option<String>; 2]>>;

struct Scene {
    ground: Ground,
    keys: Value,
    processes: [Option<ServedProcess>; 2],
    doors: Doors,
    /// The fields of a sandbox's ready file.
    service: Arc<Value>,
}

impl Scene {
    async fn start() -> Self {
        let ground = Ground::prepare().await;
        let wallets = fund(&ground).await;
        let keys = ground.furnish();
        let mut scene =
            Self { ground, keys, processes: [None, None], doors: Doors::default(), service: Arc::default() };
        for n in 0..2 {
            scene.start_process(n).await;
        }
        let ground = &scene.ground;
        let service = ground.seen("http://127.0.0.1:1", &scene.keys, &ground.deployment, &wallets);
        scene.service = Arc::new(service);
        scene
    }

    async fn start_process(&mut self, n: usize) {
        let mut served = self.ground.serve(PROCESSES[n]);
        let http = served.ready().await.unwrap();
        self.processes[n] = Some(served);
        self.doors.lock().unwrap()[n] = Some(format!("http://{http}"));
    }

    async fn restart(&mut self, n: usize) {
        let served = self.processes[n].take().unwrap();
        served.terminate();
        self.doors.lock().unwrap()[n] = None;
        served.ended_well().await;
        self.start_process(n).await;
    }

    /// Kills a process at once, and starts it again.
    async fn kill(&mut self, n: usize) {
        drop(self.processes[n].take());
        self.doors.lock().unwrap()[n] = None;
        self.start_process(n).await;
    }

    fn node(&self) -> DynProvider {
        ProviderBuilder::new().connect_http(self.ground.anvil.rpc_url().parse().unwrap()).erased()
    }

    /// `dvp chain status` of an account.
    fn account(&self, address: Address) -> Value {
        let status: Value =
            serde_json::from_str(&self.ground.printed(&["chain", "status", "--json"])).unwrap();
        let accounts = status["chains"][0]["accounts"].as_array().cloned().unwrap_or_default();
        let of = |account: &Value| account["address"] == address.to_string();
        accounts.into_iter().find(of).unwrap_or(Value::Null)
    }

    /// Sets the chain's accounts by their keys, which the next start of a process reads.
    fn configure(&self, keys: &[&str]) {
        let config = fs::read_to_string(self.ground.path("dvp.toml")).unwrap();
        let line = config.lines().find(|line| line.starts_with("relayer_keys")).unwrap();
        let listed = keys.iter().map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(", ");
        self.ground.write("dvp.toml", &config.replace(line, &format!("relayer_keys = [{listed}]")));
    }

    /// The nonces of an account whose outcome is open.
    async fn unfinished(&self, account: Address) -> i64 {
        let mut conn = PgConnection::connect(self.ground.database.url()).await.unwrap();
        let sql = "select count(*) from nonce_slot where signer = $1 and (state <> 'final' or not judged)";
        sqlx::query_scalar(sql).bind(account.as_slice()).fetch_one(&mut conn).await.unwrap()
    }

    /// Anchors that an account's transactions carried and that count.
    async fn anchored(&self, account: Address) -> i64 {
        let mut conn = PgConnection::connect(self.ground.database.url()).await.unwrap();
        let sql = "select count(*) from chain_command c join slot_command s on s.command_id = c.id and s.live \
                   where c.kind = 'anchor' and c.state = 'done' and s.signer = $1";
        sqlx::query_scalar(sql).bind(account.as_slice()).fetch_one(&mut conn).await.unwrap()
    }

    /// Commands that are not done. One that was tried again and is done is none of them: a process may be killed between
    /// two of its steps.
    async fn undone(&self) -> Vec<String> {
        let sql = "select coalesce(array_agg(concat_ws(' ', kind, state, tries, trouble)), '{}') \
                   from chain_command where state <> 'done'";
        self.ground.one(sql).await
    }
}

/// Wallets with tokens for many orders.
async fn fund(ground: &Ground) -> Vec<PrivateKeySigner> {
    let wallets: Vec<PrivateKeySigner> = (0..WALLETS).map(|_| PrivateKeySigner::random()).collect();
    let node = ProviderBuilder::new().connect_http(ground.anvil.rpc_url().parse().unwrap());
    let gas = U256::from(10).pow(U256::from(20));
    for wallet in &wallets {
        let _: () = node.raw_request("anvil_setBalance".into(), (wallet.address(), gas)).await.unwrap();
    }
    ground.fund(&ground.deployment, &wallets, 1_000_000_000_000).await;
    wallets
}

/// Orders of all wallets, one after another, until they are requested to stop.
struct Traffic {
    stop: CancellationToken,
    accepted: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(scene: &Scene) -> Self {
        let (stop, accepted) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let tasks = (0..WALLETS)
            .map(|wallet| {
                let (stop, accepted) = (stop.clone(), Arc::clone(&accepted));
                let (service, doors) = (Arc::clone(&scene.service), Arc::clone(&scene.doors));
                tokio::spawn(async move {
                    let mut next_nonce = 0;
                    while !stop.is_cancelled() {
                        let reference = submit(&service, &doors, wallet, &mut next_nonce).await;
                        accepted.lock().unwrap().push(reference);
                        tokio::time::sleep(PAUSE).await;
                    }
                })
            })
            .collect();
        Self { stop, accepted, tasks }
    }

    fn count(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }

    /// Waits for some more orders.
    async fn more(&self, orders: usize) {
        let goal = self.count() + orders;
        until("accepted orders", async || self.count() >= goal).await;
    }

    async fn stop(self) -> Vec<String> {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::try_unwrap(self.accepted).unwrap().into_inner().unwrap()
    }
}

/// Submits an order to any process until one accepts it, under one idempotency key. Returns its reference.
async fn submit(service: &Arc<Value>, doors: &Doors, wallet: usize, next_nonce: &mut u64) -> String {
    let service = Box::new(service.as_ref().clone());
    let partner = Partner::of(&service);
    let body = partner.order_from(&service, wallet, "000123456789", *next_nonce).await;
    *next_nonce = body["permit"]["nonce"].as_str().unwrap().parse::<u64>().unwrap() + 1;
    let operation = Uuid::new_v4();
    let deadline = Instant::now() + PATIENCE;
    for turn in wallet.. {
        let door = doors.lock().unwrap()[turn % 2].clone();
        if let Some(door) = door {
            match partner.at(&door).try_submit(&body, operation).await {
                Some((202, _)) => break,
                // The process starts or ends, or another one had the request and is gone.
                Some((503, _)) | None => {}
                Some((409, answer)) if answer["error"]["code"] == "IDEMPOTENCY_KEY_PROCESSING" => {}
                Some((status, answer)) => panic!("an order is refused: {status} {answer}"),
            }
        }
        assert!(Instant::now() < deadline, "no process accepts an order");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    body["clientReference"].as_str().unwrap().to_owned()
}

/// Takes the role from an account on both contracts, as the administrator.
async fn revoke(scene: &Scene, account: Address) {
    let ground = &scene.ground;
    let admin = ground.accounts[0].clone();
    let from = admin.address();
    let node = ProviderBuilder::new().wallet(admin).connect_http(ground.anvil.rpc_url().parse().unwrap());
    let role = keccak256("RELAYER_ROLE");
    for contract in [ground.deployment.settler, ground.deployment.payouts] {
        let call = IntentSettler::revokeRoleCall { role, account };
        let request = TransactionRequest::default().from(from).to(contract).input(call.abi_encode().into());
        let receipt = node.send_transaction(request).await.unwrap().get_receipt().await.unwrap();
        assert!(receipt.status());
    }
}

async fn all_complete(scene: &Scene, references: &[String]) {
    let door = scene.doors.lock().unwrap()[0].clone().unwrap();
    let partner = Partner::of(&Box::new(scene.service.as_ref().clone())).at(&door);
    for reference in references {
        let execution = partner.wait_until(reference, |execution| !execution["finality"].is_null()).await;
        assert_eq!(execution["status"], "completed", "{execution}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_replaced_while_orders_come() {
    let mut scene = Scene::start().await;
    let [old, staying] = [0, 1].map(|n| scene.ground.deployment.relayers[n]);
    let key = PrivateKeySigner::random();
    let new = key.address();
    let file = |name: &str| format!("file:{}", scene.ground.path(name).display());
    let (old_key, staying_key, new_key) = ("env:SERVED_RELAYER", file("relayer"), file("new"));
    let traffic = Traffic::start(&scene);
    traffic.more(8).await;
    let account = scene.account(old);
    assert_eq!(account["state"], "in_service", "{account}");

    // The new account is admitted, and added to one process after the other.
    scene.ground.write("new", &hex::encode(key.to_bytes()));
    scene.ground.admit(&[new]).await;
    scene.configure(&[old_key, &staying_key, &new_key]);
    assert_eq!(scene.ground.said(&["doctor"])["ok"], true);
    scene.restart(0).await;
    until("the new account sends", async || scene.account(new)["nextNonce"].as_u64() > Some(0)).await;
    // The other process reads the chain meanwhile, with the record of before.
    until("an anchor of the new account counts", async || scene.anchored(new).await > 0).await;
    scene.restart(1).await;

    // In the middle one process is killed.
    traffic.more(4).await;
    scene.kill(0).await;
    traffic.more(4).await;

    // The old one is taken out of one process after the other.
    scene.configure(&[&staying_key, &new_key]);
    scene.restart(1).await;
    traffic.more(4).await;
    scene.restart(0).await;
    let account = answer(async || scene.account(old), |account| account["state"] == "drained").await;
    assert_eq!(account["waiting"], 0, "{account}");
    assert_eq!(scene.unfinished(old).await, 0);
    let sent = scene.node().get_transaction_count(old).await.unwrap();
    assert_eq!(account["nextNonce"].as_u64(), Some(sent), "{account}");

    // The role is taken from it while orders come.
    revoke(&scene, old).await;
    traffic.more(8).await;
    let references = traffic.stop().await;
    all_complete(&scene, &references).await;
    assert_eq!(scene.ground.said(&["doctor"])["ok"], true);
    assert_eq!(scene.node().get_transaction_count(old).await.unwrap(), sent, "it sent more");
    answer(async || scene.undone().await, Vec::is_empty).await;
    // Each order is locked, filled, settled and anchored once, and nothing else is on the contracts.
    until("books that agree", async || scene.ground.did(&["reconcile", "--full"])).await;
    for account in [staying, new] {
        assert!(scene.node().get_transaction_count(account).await.unwrap() > 0, "{account} sent nothing");
    }
    for served in scene.processes.into_iter().flatten() {
        served.terminate();
        served.ended_well().await;
    }
}
