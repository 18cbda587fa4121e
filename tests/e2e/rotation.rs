//! An account of the relayer is replaced while orders come, as `docs/keys.md` says: by two processes on one database,
//! which are restarted in turn, and one of which is killed between.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::types::{Filter, TransactionRequest};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_chain_indexer::deploy::{DeployPlan, TokenGrant, deploy, fund_wallets};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::partner::Partner;
use crate::serve::{Ground, Served};
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
    processes: [Option<Served>; 2],
    doors: Doors,
    /// The fields of a sandbox's ready file.
    service: Arc<Value>,
}

/// The accounts of the rotation.
struct Accounts {
    old: Address,
    staying: Address,
    new: PrivateKeySigner,
}

impl Scene {
    async fn start() -> Self {
        let ground = Ground::prepare().await;
        let wallets = fund(&ground).await;
        let config = fs::read_to_string(ground.path("dvp.toml")).unwrap();
        // A third account needs connections of its own.
        ground.write("dvp.toml", &config.replace("max_connections = 20", "max_connections = 24"));
        let keys = ground.furnish();
        let deposit = ["provider", "deposit", "--provider", "north", "--asset", "USD", "--id", "wire-2"];
        ground.said(&[&deposit[..], &["--amount-minor", "100000000"]].concat());
        let mut scene =
            Self { ground, keys, processes: [None, None], doors: Doors::default(), service: Arc::default() };
        for n in 0..2 {
            scene.start_process(n).await;
        }
        let mut service = scene.ground.seen_by_a_partner("127.0.0.1:1".parse().unwrap(), &scene.keys);
        service["chain"]["wallets"] = wallets
            .iter()
            .map(|wallet| json!({"privateKey": format!("0x{}", hex::encode(wallet.to_bytes()))}))
            .collect();
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
        let path = self.ground.path("dvp.toml");
        let config = fs::read_to_string(&path).unwrap();
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
    let rpc = ground.anvil.rpc_url();
    let node = ProviderBuilder::new().connect_http(rpc.parse().unwrap());
    let gas = U256::from(10).pow(U256::from(20));
    for wallet in &wallets {
        let _: () = node.raw_request("anvil_setBalance".into(), (wallet.address(), gas)).await.unwrap();
    }
    let token = ground.deployment.tokens[0].address;
    let grant = TokenGrant { token, amount: U256::from(1_000_000_000_000_u64) };
    let granted =
        fund_wallets(&rpc, &ground.accounts[0], &ground.deployment, &wallets, &[grant]).await.unwrap();
    granted.mined().await.unwrap();
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

/// The new account is a relayer, with gas, and in the record that the processes read.
async fn admit(scene: &Scene, account: Address) {
    let ground = &scene.ground;
    let plan = DeployPlan { relayers: vec![account], ..DeployPlan::default() };
    let record = Some(ground.deployment.clone());
    let deployed = deploy(&ground.anvil.rpc_url(), &ground.accounts[0], &plan, record).await.unwrap();
    ground.write("contracts.json", &serde_json::to_string(&deployed).unwrap());
    let funds = U256::from(10).pow(U256::from(20));
    let _: () = scene.node().raw_request("anvil_setBalance".into(), (account, funds)).await.unwrap();
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

async fn all_complete(scene: &Scene, references: &[String]) -> Vec<Value> {
    let door = scene.doors.lock().unwrap()[0].clone().unwrap();
    let partner = Partner::of(&Box::new(scene.service.as_ref().clone())).at(&door);
    let mut receipts = Vec::with_capacity(references.len());
    for reference in references {
        let execution = partner.wait_until(reference, |execution| !execution["finality"].is_null()).await;
        assert_eq!(execution["status"], "completed", "{execution}");
        let (status, receipt) = partner.get(&format!("/v1/executions/{reference}/receipt")).await;
        assert_eq!(status, 200, "{receipt}");
        receipts.push(receipt);
    }
    receipts
}

/// Each order is locked, filled, settled and anchored once, and nothing else is on the contracts.
async fn each_once_on_the_chain(scene: &Scene, receipts: &[Value]) {
    let deployment = &scene.ground.deployment;
    let filter = Filter::new().address(vec![deployment.settler, deployment.anchor]).from_block(0);
    let mut seen: HashMap<(B256, B256), usize> = HashMap::new();
    for log in scene.node().get_logs(&filter).await.unwrap() {
        if let [event, id, ..] = log.topics() {
            *seen.entry((*event, *id)).or_default() += 1;
        }
    }
    let of = |event: B256| -> HashMap<B256, usize> {
        seen.iter().filter(|((kind, _), _)| *kind == event).map(|((_, id), count)| (*id, *count)).collect()
    };
    for event in [
        IntentSettler::Created::SIGNATURE_HASH,
        IntentSettler::Filled::SIGNATURE_HASH,
        IntentSettler::Settled::SIGNATURE_HASH,
        ReceiptAnchor::Anchored::SIGNATURE_HASH,
    ] {
        let events = of(event);
        assert_eq!(events.len(), receipts.len(), "{event}");
        assert!(events.values().all(|count| *count == 1), "{event}: {events:?}");
    }
    let anchored = of(ReceiptAnchor::Anchored::SIGNATURE_HASH);
    for receipt in receipts {
        let hash: B256 = crate::content_hash(receipt).parse().unwrap();
        assert!(anchored.contains_key(&hash), "{receipt}");
    }
}

/// The transactions of these accounts, as (sender, nonce): each succeeded, and each nonce is there once.
async fn transactions(scene: &Scene, accounts: &[Address]) -> HashSet<(Address, u64)> {
    let node = scene.node();
    let mut sent = HashSet::new();
    for number in 0..=node.get_block_number().await.unwrap() {
        let block = node.get_block_by_number(number.into()).full().await.unwrap().unwrap();
        for transaction in block.transactions.into_transactions() {
            use alloy::consensus::Transaction as _;
            let from = transaction.inner.signer();
            if !accounts.contains(&from) {
                continue;
            }
            let receipt = node.get_transaction_receipt(*transaction.inner.tx_hash()).await.unwrap().unwrap();
            assert!(receipt.status(), "{receipt:?}");
            assert!(sent.insert((from, transaction.nonce())));
        }
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_replaced_while_orders_come() {
    let mut scene = Scene::start().await;
    let staying = PrivateKeySigner::from_slice(
        &hex::decode(fs::read_to_string(scene.ground.path("relayer")).unwrap()).unwrap(),
    )
    .unwrap();
    let accounts = Accounts {
        old: scene.ground.deployment.relayers[0],
        staying: staying.address(),
        new: PrivateKeySigner::random(),
    };
    let file = |name: &str| format!("file:{}", scene.ground.path(name).display());
    let (old_key, staying_key, new_key) = ("env:SERVED_RELAYER", file("relayer"), file("new"));
    let traffic = Traffic::start(&scene);
    traffic.more(8).await;
    let account = scene.account(accounts.old);
    assert_eq!(account["state"], "in_service", "{account}");

    // The new account is admitted, and added to one process after the other.
    let new = accounts.new.address();
    scene.ground.write("new", &hex::encode(accounts.new.to_bytes()));
    admit(&scene, new).await;
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
    let account = answer(async || scene.account(accounts.old), |account| account["state"] == "drained").await;
    assert_eq!(account["waiting"], 0, "{account}");
    assert_eq!(scene.unfinished(accounts.old).await, 0);
    let sent = scene.node().get_transaction_count(accounts.old).await.unwrap();
    assert_eq!(account["nextNonce"].as_u64(), Some(sent), "{account}");

    // The role is taken from it while orders come.
    revoke(&scene, accounts.old).await;
    traffic.more(8).await;
    let references = traffic.stop().await;
    let receipts = all_complete(&scene, &references).await;
    assert_eq!(scene.ground.said(&["doctor"])["ok"], true);
    assert_eq!(scene.node().get_transaction_count(accounts.old).await.unwrap(), sent, "it sent more");
    answer(async || scene.undone().await, Vec::is_empty).await;
    each_once_on_the_chain(&scene, &receipts).await;
    let transactions = transactions(&scene, &[accounts.old, accounts.staying, new]).await;
    let by = |address: Address| transactions.iter().filter(|(from, _)| *from == address).count();
    assert!(by(accounts.old) > 0 && by(accounts.staying) > 0 && by(new) > 0, "{transactions:?}");
    for served in scene.processes.into_iter().flatten() {
        served.terminate();
        served.ended_well().await;
    }
}
