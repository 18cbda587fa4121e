//! `dvp serve` as configured, with an external database and chain.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use dvp_benches::scenes::served::{Parts, market, node, seen};
use dvp_chain_indexer::deploy::Deployment;
use dvp_sandbox::anvil::Anvil;
use dvp_sandbox::bank::Bank;
use dvp_sandbox::embedded::{TestDatabase, random_hex};
use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, Executor as _, FromRow, PgConnection};
use uuid::Uuid;

use crate::partner::Partner;
use crate::wait::{answer, until};

const PATIENCE: Duration = Duration::from_secs(120);

/// The environment of the service: an empty database, a chain with the contracts, a configuration.
pub(crate) struct Ground {
    dir: tempfile::TempDir,
    pub(crate) database: TestDatabase,
    pub(crate) anvil: Anvil,
    pub(crate) deployment: Deployment,
    relayer: PrivateKeySigner,
    /// The node's, funded with the chain's coin.
    pub(crate) accounts: Vec<PrivateKeySigner>,
    pub(crate) wallet: PrivateKeySigner,
    /// Two of them return a filled order's funds.
    pub(crate) operators: [PrivateKeySigner; 2],
    /// Takes connections and says nothing.
    silent: TcpListener,
}

impl Ground {
    pub(crate) async fn prepare() -> Self {
        let (database, (anvil, keys)) = tokio::join!(TestDatabase::create(), node());
        let mut conn = PgConnection::connect(database.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        let [admin, relayer, second, solver, wallet, jo, mika, ..] = keys.as_slice() else {
            panic!("too few accounts")
        };
        let parts = Parts { admin, solver, relayers: &[relayer, second], operators: [jo, mika] };
        let deployment = parts.deploy(&anvil.rpc_url()).await;
        parts.fund(&anvil.rpc_url(), &deployment, std::slice::from_ref(wallet), 1_000_000_000).await;
        let dir = tempfile::tempdir().unwrap();
        let ground = Self {
            database,
            anvil,
            relayer: relayer.clone(),
            wallet: wallet.clone(),
            operators: [jo.clone(), mika.clone()],
            deployment,
            dir,
            accounts: keys.clone(),
            silent: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        ground.write("contracts.json", &serde_json::to_string(&ground.deployment).unwrap());
        ground.write("master", &random_hex(32));
        ground.write("relayer", &hex::encode(second.to_bytes()));
        ground.write("dvp.toml", &(ground.config() + &market(&ground.deployment, solver)));
        ground
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn config(&self) -> String {
        let rpc = self.anvil.rpc_url();
        // A TLS peer that never answers: notifications of blocks only make polls earlier.
        let tls = self.silent.local_addr().unwrap();
        let dir = self.dir.path().display();
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

    /// The configuration with payouts by files of a bank, whose folder it is.
    pub(crate) fn with_bank(&self) -> (String, PathBuf) {
        let (config, folder) = (text(&self.path("dvp.toml")), self.path("bank"));
        let account =
            "name = \"Acme\"\ncurrency = \"USD\"\naccount = \"1\"\nbic = \"COBADEFFXXX\"\ncountry = \"DE\"";
        let bank = format!("[bank]\nfolder = \"{}\"\n[[bank.accounts]]\n{account}\n", folder.display());
        let config = config.replacen("payout = \"simulated\"", "payout = \"bank_files\"", 1);
        (format!("{config}{bank}"), folder)
    }

    /// The same of a live deployment.
    pub(crate) fn live(&self) -> String {
        let live = self.with_bank().0.replacen("environment = \"test\"", "environment = \"live\"", 1);
        live.replacen("offramp = \"simulated\"", "offramp = \"inventory\"", 1)
    }

    /// The first column of the first row.
    pub(crate) async fn one<T>(&self, statement: &'static str) -> T
    where
        (T,): for<'r> FromRow<'r, PgRow>,
        T: Send + Unpin,
    {
        let mut conn = PgConnection::connect(self.database.url()).await.unwrap();
        sqlx::query_as::<_, (T,)>(statement).fetch_one(&mut conn).await.unwrap().0
    }

    /// The fields of a sandbox's ready file.
    pub(crate) fn seen_by_a_partner(&self, http: SocketAddr, keys: &Value) -> Value {
        let wallets = std::slice::from_ref(&self.wallet);
        seen(&format!("http://{http}"), keys, &self.anvil.rpc_url(), &self.deployment, wallets)
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
        until("a ready process", async || {
            let has_ended = self.child.try_wait().unwrap().is_some();
            let is_ready = self.log().contains("dvp::serve: ready");
            assert!(is_ready || !has_ended, "it ended:\n{}", self.log());
            is_ready
        })
        .await;
        self.address("http=Some(")
    }

    /// Where a line of its log says that something is, as in `fix=Some(127.0.0.1:9880)`.
    pub(crate) fn address(&self, before: &str) -> Option<SocketAddr> {
        self.log().split_once(before)?.1.split([')', ' ', '\n']).next()?.parse().ok()
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    pub(crate) async fn ended_well(mut self) {
        let status = answer(async || self.child.try_wait().unwrap(), Option::is_some).await.unwrap();
        let log = self.log();
        assert!(status.success() && !log.contains("panicked"), "{status}\n{log}");
        assert!(log.contains(" INFO ") && !log.contains('\u{1b}'), "colour codes in a file:\n{log}");
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
    partner.settled(&order).await;
    let balance = ground.said(&["provider", "balance", "--provider", "north", "--asset", "USD"]);
    assert_eq!(balance["reservedMinor"], "0");

    let body = json!({"requestId": "r", "actorId": "a", "source": "USDC", "target": "USD", "amount": "1",
                      "side": "sell"})
    .to_string();
    let mut held = half_sent(http, keys["apiKey"].as_str().unwrap(), &body);
    doors.terminate();
    until("the closed door", async || TcpStream::connect(http).is_err()).await;
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
    let (config, folder) = ground.with_bank();
    ground.write("dvp.toml", &config);
    let keys = ground.furnish();
    let (open, closed) = tokio::sync::watch::channel(false);
    tokio::spawn(Bank::open(&folder).await.unwrap().run(closed));
    ground.said(&["bank", "folder", "stamp", "--operator", "jo"]);
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
    ground.write("dvp.toml", &config);
    ground.write("dvp.toml", &ground.live());
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
