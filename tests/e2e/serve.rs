//! `dvp serve` as configured, with an external database and chain.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::primitives::U256;
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::{DeployPlan, Deployment, TokenGrant, TokenSpec, deploy, fund_wallets};
use dvp_sandbox::anvil::{Anvil, AnvilOptions};
use dvp_sandbox::bank::Bank;
use dvp_sandbox::embedded::{TestDatabase, random_hex};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::partner::Partner;

const PATIENCE: Duration = Duration::from_secs(120);

/// The environment of the service: an empty database, a chain with the contracts, a configuration.
pub(crate) struct Ground {
    dir: tempfile::TempDir,
    pub(crate) database: TestDatabase,
    pub(crate) anvil: Anvil,
    pub(crate) deployment: Deployment,
    relayer: PrivateKeySigner,
    pub(crate) wallet: PrivateKeySigner,
    /// Two of them return a filled order's funds.
    pub(crate) operators: [PrivateKeySigner; 2],
    /// Takes connections and says nothing.
    silent: TcpListener,
}

impl Ground {
    pub(crate) async fn prepare() -> Self {
        let options = AnvilOptions {
            block_time: Some(Duration::from_secs(1)),
            slots_in_an_epoch: 1,
            ..Default::default()
        };
        let (database, anvil) = tokio::join!(TestDatabase::create(), Anvil::start(options));
        let anvil = anvil.unwrap();
        let mut conn = PgConnection::connect(database.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        let keys: Vec<PrivateKeySigner> = anvil
            .accounts()
            .iter()
            .map(|account| PrivateKeySigner::from_bytes(&account.private_key).unwrap())
            .collect();
        let [admin, relayer, second, solver, wallet, jo, mika, ..] = keys.as_slice() else {
            panic!("too few accounts")
        };
        let plan = DeployPlan {
            tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
            solvers: vec![solver.address()],
            relayers: vec![relayer.address(), second.address()],
            operators: vec![jo.address(), mika.address()],
            ..DeployPlan::default()
        };
        let rpc = anvil.rpc_url();
        let deployment = deploy(&rpc, admin, &plan, None).await.unwrap();
        let grant = TokenGrant { token: deployment.tokens[0].address, amount: U256::from(1_000_000_000_u64) };
        let funded =
            fund_wallets(&rpc, admin, &deployment, std::slice::from_ref(wallet), &[grant]).await.unwrap();
        funded.mined().await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ground = Self {
            database,
            anvil,
            relayer: relayer.clone(),
            wallet: wallet.clone(),
            operators: [jo.clone(), mika.clone()],
            deployment,
            dir,
            silent: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        ground.write("contracts.json", &serde_json::to_string(&ground.deployment).unwrap());
        ground.write("master", &random_hex(32));
        ground.write("relayer", &hex::encode(second.to_bytes()));
        ground.write("dvp.toml", &ground.config(&solver.address().to_string()));
        ground
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn config(&self, solver: &str) -> String {
        let rpc = self.anvil.rpc_url();
        // A TLS peer that never answers: notifications of blocks only make polls earlier.
        let tls = self.silent.local_addr().unwrap();
        let (dir, token) = (self.dir.path().display(), self.deployment.tokens[0].address);
        // Two endpoints, which happen to be one node.
        format!(
            r#"
environment = "test"
[database]
url = "env:SERVED_DATABASE"
max_connections = 20
[secrets]
master_key = "file:{dir}/master"
[api]
listen = "127.0.0.1:0"
[fix]
listen = "127.0.0.1:0"
[metrics]
listen = "127.0.0.1:0"
[settlement]
fill_window = "1h"
timelock_margin = "1d"
[rails]
offramp = "simulated"
payout = "simulated"
[[chains]]
name = "anvil"
chain_id = {chain}
rpc_urls = ["{rpc}", "env:SERVED_NODE"]
ws_url = "wss://{tls}"
deployment = "{dir}/contracts.json"
relayer_keys = ["env:SERVED_RELAYER", "file:{dir}/relayer"]
confirmations = 1
payout_gate = [{{ wait = "1 block" }}]
poll_interval = "200ms"
[[assets]]
symbol = "USDC"
exponent = 6
chain = "anvil"
address = "{token}"
[[assets]]
symbol = "USD"
exponent = 2
currency = "USD"
[[pairs]]
base = "USDC"
quote = "USD"
reference_price = "1"
protocol_fee_bps = 5
payout_fee_minor = "50"
[[liquidity.providers]]
id = "north"
wallet = "{solver}"
spread_bps = 10
"#,
            chain = self.deployment.chain_id
        )
    }

    fn dvp(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dvp"));
        command.args(words).arg("--config").arg(self.path("dvp.toml"));
        command.env("SERVED_DATABASE", self.database.url());
        command.env("SERVED_NODE", self.anvil.rpc_url());
        command.env("SERVED_RELAYER", hex::encode(self.relayer.to_bytes()));
        // Neither a file nor a pipe is a terminal: nothing else keeps colours away.
        command.env_remove("NO_COLOR");
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn said(&self, words: &[&str]) -> Value {
        let output = self.dvp(words).arg("--json").output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.contains(&0x1b), "colour codes in a pipe: {words:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The output of a command, successful or not.
    pub(crate) fn printed(&self, words: &[&str]) -> String {
        String::from_utf8(self.dvp(words).output().unwrap().stdout).unwrap()
    }

    /// Whether a command went well.
    pub(crate) fn did(&self, words: &[&str]) -> bool {
        self.dvp(words).output().unwrap().status.success()
    }

    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let output = self.dvp(words).output().unwrap();
        assert!(!output.status.success(), "{words:?} went well");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Creates the schema, a partner with a key, and the provider's inventory. Returns the key.
    pub(crate) fn furnish(&self) -> Value {
        self.said(&["migrate"]);
        self.said(&["partner", "create", "--name", "acme", "--tier", "enterprise", "--limit", "600000"]);
        let deposit = ["provider", "deposit", "--provider", "north", "--asset", "USD", "--id", "wire-1"];
        let deposit = [&deposit[..], &["--amount-minor", "1000000"]].concat();
        assert_eq!(self.said(&deposit)["repeated"], false);
        assert_eq!(self.said(&deposit)["repeated"], true);
        self.said(&["key", "issue", "--partner", "acme", "--env", "test"])
    }

    /// The fields of a sandbox's ready file.
    pub(crate) fn seen_by_a_partner(&self, http: SocketAddr, keys: &Value) -> Value {
        let (deployment, wallet) = (&self.deployment, &self.wallet);
        json!({
            "http": format!("http://{http}"),
            "partner": {"apiKey": keys["apiKey"], "signingSecret": keys["signingSecret"]},
            "chain": {
                "rpcUrl": self.anvil.rpc_url(), "chainId": deployment.chain_id, "name": "anvil",
                "contracts": {"permit": deployment.permit, "escrow": deployment.escrow},
                "tokens": [{"address": deployment.tokens[0].address}],
                "wallets": [{"privateKey": format!("0x{}", hex::encode(wallet.to_bytes()))}],
            },
        })
    }

    pub(crate) fn serve(&self, roles: &str) -> Served {
        self.serve_over(roles, self.database.url())
    }

    /// The same over a database that is reached by another URL.
    pub(crate) fn serve_over(&self, roles: &str, database: &str) -> Served {
        let log = self.path(&format!("{roles}.log"));
        let file = fs::File::create(&log).unwrap();
        let mut command = self.dvp(&["serve", "--roles", roles]);
        command.env("SERVED_DATABASE", database);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Served { child, log }
    }
}

/// A process of the service.
pub(crate) struct Served {
    child: Child,
    log: PathBuf,
}

pub(crate) fn text(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

impl Served {
    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        text(&self.log)
    }

    /// Waits until it says that it is ready; where REST listens, when it does.
    pub(crate) async fn ready(&mut self) -> Option<SocketAddr> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = text(&self.log);
            if let Some(line) = log.lines().find(|line| line.contains("dvp::serve: ready")) {
                let rest = line.split_once("http=Some(")?.1;
                return rest.split_once(')')?.0.parse().ok();
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it ended:\n{log}");
            assert!(Instant::now() < deadline, "it is not ready:\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    pub(crate) async fn ended_well(mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let log = text(&self.log);
                assert!(status.success() && !log.contains("panicked"), "{status}\n{log}");
                assert!(log.contains(" INFO ") && !log.contains('\u{1b}'), "colour codes in a file:\n{log}");
                return;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", text(&self.log));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}", text(&self.log));
        }
    }
}

/// A request whose body the service is waiting for, so that it is in hand for certain.
fn half_sent(address: SocketAddr, key: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /v1/quotes HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nx-idempotency-key: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        Uuid::new_v4(),
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut go_on = [0; 25];
    socket.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_roles_and_stop_gracefully() {
    let ground = Arc::new(Ground::prepare().await);
    assert!(ground.refused(&["serve"]).contains("run dvp migrate"));
    let keys = ground.furnish();
    assert_eq!(ground.said(&["doctor"])["ok"], true);

    let mut doors = ground.serve("api,fix");
    let mut works = ground.serve("indexer,worker");
    let http = doors.ready().await.unwrap();
    assert_eq!(works.ready().await, None);
    let service = Box::new(ground.seen_by_a_partner(http, &keys));
    let partner = Partner::of(&service);
    let order = partner.order(&service, 0, "000123456789").await;
    let (status, accepted) = partner.submit(&order).await;
    assert_eq!(status, 202, "{accepted}");
    let execution =
        partner.wait_until(order["clientReference"].as_str().unwrap(), |e| !e["finality"].is_null());
    assert_eq!(execution.await["status"], "completed");
    let balance = ground.said(&["provider", "balance", "--provider", "north", "--asset", "USD"]);
    assert_eq!(balance["reservedMinor"], "0");

    let body = json!({"requestId": "r", "actorId": "a", "source": "USDC", "target": "USD", "amount": "1",
                      "side": "sell"})
    .to_string();
    let mut held = half_sent(http, keys["apiKey"].as_str().unwrap(), &body);
    doors.terminate();
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(http).is_ok() {
        assert!(Instant::now() < deadline, "the door stays open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    held.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"candidates\":[{"), "{answer}");
    works.terminate();
    doors.ended_well().await;
    works.ended_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payouts_go_through_bank_files() {
    let ground = Ground::prepare().await;
    let folder = ground.path("bank");
    let config = fs::read_to_string(ground.path("dvp.toml")).unwrap();
    let account =
        "name = \"Acme\"\ncurrency = \"USD\"\naccount = \"1\"\nbic = \"COBADEFFXXX\"\ncountry = \"DE\"";
    let bank = format!("[bank]\nfolder = \"{}\"\n[[bank.accounts]]\n{account}\n", folder.display());
    let config = config.replace("payout = \"simulated\"\n", &format!("payout = \"bank_files\"\n{bank}"));
    ground.write("dvp.toml", &config);
    let keys = ground.furnish();
    let (open, closed) = tokio::sync::watch::channel(false);
    tokio::spawn(Bank::open(&folder).await.unwrap().run(closed));
    let mut served = ground.serve("api,fix,indexer,worker");
    let http = served.ready().await.unwrap();
    let service = Box::new(ground.seen_by_a_partner(http, &keys));
    let partner = Partner::of(&service);
    partner.completed_by_a_bank(&service, "000123456789").await;
    assert_eq!(fs::read_dir(folder.join("quarantine")).unwrap().count(), 0);
    served.terminate();
    served.ended_well().await;
    open.send_replace(true);
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_errors_name_the_key() {
    let ground = Ground::prepare().await;
    ground.said(&["migrate"]);
    let config = fs::read_to_string(ground.path("dvp.toml")).unwrap();
    let with = |piece: &str, by: &str| {
        assert!(config.contains(piece), "{piece}");
        ground.write("dvp.toml", &config.replacen(piece, by, 1));
        ground.refused(&["serve"])
    };
    for (piece, by, said) in [
        ("env:SERVED_DATABASE", "env:NOT_THERE", "database.url: the environment variable NOT_THERE"),
        ("/master\"", "/no-master\"", "secrets.master_key: the file"),
        ("[api]\nlisten = \"127.0.0.1:0\"\n", "", "the role api needs the section [api]"),
        ("contracts.json", "no-contracts.json", "chains.deployment of anvil"),
        ("chain_id = 31337", "chain_id = 1", "is of chain 31337, not 1"),
        ("env:SERVED_RELAYER", "env:NO_RELAYER", "environment variable NO_RELAYER is not set"),
        ("payout = \"simulated\"", "payout = \"bank_files\"", "needs the section [bank]"),
        ("[settlement]", "[settlment]", "unknown field `settlment`"),
    ] {
        let complaint = with(piece, by);
        assert!(complaint.contains(said), "{by}: {complaint}");
    }
    let live = config
        .replacen("environment = \"test\"", "environment = \"live\"", 1)
        .replacen("offramp = \"simulated\"", "offramp = \"inventory\"", 1)
        .replacen("payout = \"simulated\"", "payout = \"bank_files\"", 1);
    ground.write("dvp.toml", &live);
    for words in [&["serve"][..], &["migrate"], &["partner", "list"]] {
        let complaint = ground.refused(words);
        assert!(complaint.contains("belongs to a test deployment"), "{words:?}: {complaint}");
    }
    ground.write("dvp.toml", &config);
    let issue = ["key", "issue", "--partner", "acme", "--env", "live"];
    assert!(ground.refused(&issue).contains("--env live: this is a test deployment"));
    let mut conn = PgConnection::connect(ground.database.url()).await.unwrap();
    let stored = conn.execute("update deployment set environment = 'live'").await.unwrap_err();
    assert!(stored.to_string().contains("never change"), "{stored}");

    // A cell is stamped once, into a database that is in use already.
    let in_cell = |id: &str| ground.write("dvp.toml", &format!("{config}\n[cell]\nid = \"{id}\"\n"));
    in_cell("00A");
    assert!(ground.refused(&["serve"]).contains("three lowercase hex digits"));
    in_cell("00a");
    let said = "the database belongs to no cell yet (dvp migrate stamps it), and the configuration says [cell] id = \"00a\"";
    assert!(ground.refused(&["serve"]).contains(said));
    assert_eq!(ground.said(&["migrate"])["cell"], "00a");
    let issued = ground.said(&["partner", "create", "--name", "cellular", "--tier", "standard"]);
    assert_eq!(&issued["partnerId"].as_str().unwrap()[17..20], "00a", "{issued}");
    in_cell("00b");
    for words in [&["serve"][..], &["migrate"], &["partner", "list"]] {
        let complaint = ground.refused(words);
        assert!(
            complaint.contains("belongs to cell 00a, and the configuration says"),
            "{words:?}: {complaint}"
        );
    }
    ground.write("dvp.toml", &config);
    assert!(ground.refused(&["serve"]).contains("the configuration has no section [cell]"));
    for change in ["update deployment set cell = '00b'", "update deployment set cell = null"] {
        let stored = conn.execute(change).await.unwrap_err();
        assert!(stored.to_string().contains("never change"), "{stored}");
    }
    in_cell("00a");
    conn.execute("delete from _sqlx_migrations where version = 2").await.unwrap();
    let complaint = ground.refused(&["serve"]);
    assert!(complaint.contains("lacks 1 migrations (2 to 2): run dvp migrate"), "{complaint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_the_chain_contradicts_is_refused_at_the_start() {
    let ground = Ground::prepare().await;
    ground.furnish();
    let right = fs::read_to_string(ground.path("dvp.toml")).unwrap();
    let record = fs::read_to_string(ground.path("contracts.json")).unwrap();
    let wrong = |from: &str, to: &str, says: &str| {
        assert!(right.contains(from), "{right}");
        ground.write("dvp.toml", &right.replacen(from, to, 1));
        let said = ground.refused(&["serve"]);
        assert!(said.contains(says), "{said}");
        let report: Value = serde_json::from_str(&ground.printed(&["doctor", "--json"])).unwrap();
        let is_named =
            |check: &Value| check["ok"] == false && check["detail"].as_str().unwrap().contains(says);
        assert!(report["checks"].as_array().unwrap().iter().any(is_named), "{report}");
    };
    wrong("exponent = 6", "exponent = 18", "USDC has 6 decimals, the configuration says 18");
    let token = ground.deployment.tokens[0].address.to_string();
    wrong(&token, &format!("0x{}", "77".repeat(20)), "there is no contract at 0x7777");
    // The addresses of two contracts exchanged.
    let (permit, anchor) = (ground.deployment.permit.to_string(), ground.deployment.anchor.to_string());
    let lower = record.to_lowercase();
    assert!(lower.contains(&permit.to_lowercase()));
    ground.write("contracts.json", &lower.replace(&permit.to_lowercase(), &anchor.to_lowercase()));
    wrong("exponent = 6", "exponent = 6", "is not this version's Permit");
    let accepting = "accept_other_code = true\nconfirmations = 1";
    wrong("confirmations = 1", accepting, "the escrow's permit contract is");
    ground.write("contracts.json", &record);
    ground.write("dvp.toml", &right);
    assert_eq!(ground.said(&["doctor"])["ok"], true);
}
