//! Two cells behind haproxy: one address for both, a partner that moves and inventory that is transferred while orders
//! flow, and a cell that fails.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::U256;
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::{DeployPlan, Deployment, TokenGrant, TokenSpec, deploy, fund_wallets};
use dvp_sandbox::embedded::{FreePort, TestDatabase, random_hex};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::cells_flow::Flow;
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::serve::Ground;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "secret-1";
/// The session that moves.
const ACME: &str = "FIX.4.4:DVP->ACME";

/// A process that is killed when the test ends.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, log: &std::path::Path) -> Self {
        let file = fs::File::create(log).unwrap();
        Self(command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Cell {
    id: &'static str,
    database: String,
    deployment: Deployment,
    /// REST, FIX and metrics.
    ports: [u16; 3],
    relayer: PrivateKeySigner,
}

struct Scene {
    ground: Ground,
    _second: TestDatabase,
    cells: [Cell; 2],
    wallets: Vec<PrivateKeySigner>,
    solver: String,
    /// REST and FIX of the proxy.
    proxy: [u16; 2],
    _held: Vec<FreePort>,
}

impl Scene {
    async fn prepare() -> Self {
        let (ground, second) = tokio::join!(Ground::prepare(), TestDatabase::create());
        let mut conn = PgConnection::connect(second.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        let accounts = ground.anvil.accounts();
        let keys: Vec<PrivateKeySigner> =
            accounts.iter().map(|one| PrivateKeySigner::from_bytes(&one.private_key).unwrap()).collect();
        let [admin, relayer, second_relayer, solver, acme, jo, mika, globex, initech, fix, ..] =
            keys.as_slice()
        else {
            panic!("too few accounts")
        };
        let rpc = ground.anvil.rpc_url();
        // Contracts of its own for the second cell.
        let plan = DeployPlan {
            tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
            solvers: vec![solver.address()],
            relayers: vec![second_relayer.address()],
            operators: vec![jo.address(), mika.address()],
            ..DeployPlan::default()
        };
        let other = deploy(&rpc, admin, &plan, None).await.unwrap();
        let wallets = vec![acme.clone(), globex.clone(), initech.clone(), fix.clone()];
        for deployment in [&ground.deployment, &other] {
            let grant =
                TokenGrant { token: deployment.tokens[0].address, amount: U256::from(100_000_000_000_u64) };
            let funded = fund_wallets(&rpc, admin, deployment, &wallets, &[grant]).await.unwrap();
            funded.mined().await.unwrap();
        }
        let held: Vec<FreePort> = (0..8).map(|_| FreePort::take().unwrap()).collect();
        let mut free = held.iter().map(FreePort::number);
        let mut ports = || [(); 3].map(|()| free.next().unwrap());
        let cells = [
            Cell {
                id: "00a",
                database: ground.database.url().to_owned(),
                deployment: ground.deployment.clone(),
                ports: ports(),
                relayer: relayer.clone(),
            },
            Cell {
                id: "00b",
                database: second.url().to_owned(),
                deployment: other,
                ports: ports(),
                relayer: second_relayer.clone(),
            },
        ];
        let proxy = [(); 2].map(|()| free.next().unwrap());
        let scene = Self {
            _second: second,
            wallets,
            proxy,
            _held: held,
            cells,
            solver: solver.address().to_string(),
            ground,
        };
        let shared = random_hex(32);
        scene.ground.write("shared", &shared);
        for cell in &scene.cells {
            let Cell { id, deployment, relayer, .. } = cell;
            scene.ground.write(&format!("{id}-contracts.json"), &serde_json::to_string(deployment).unwrap());
            scene.ground.write(&format!("{id}-master"), &random_hex(32));
            scene.ground.write(&format!("{id}-signing"), &random_hex(32));
            scene.ground.write(&format!("{id}-relayer"), &hex::encode(relayer.to_bytes()));
            scene.configure(cell, "");
        }
        scene
    }

    fn configure(&self, cell: &Cell, peers: &str) {
        let Cell { id, deployment, ports: [rest, fix, metrics], .. } = cell;
        let dir = self.ground.path("").display().to_string();
        let (rpc, token) = (self.ground.anvil.rpc_url(), deployment.tokens[0].address);
        let config = format!(
            r#"
environment = "test"
[cell]
id = "{id}"
shared_key = "file:{dir}/shared"
signing_key = "file:{dir}/{id}-signing"
{peers}
[database]
url = "env:CELL_DATABASE_{id}"
max_connections = 20
[secrets]
master_key = "file:{dir}/{id}-master"
[api]
listen = "127.0.0.1:{rest}"
proxies = ["127.0.0.0/8"]
[fix]
listen = "127.0.0.1:{fix}"
proxies = ["127.0.0.0/8"]
[metrics]
listen = "127.0.0.1:{metrics}"
[settlement]
fill_window = "1h"
timelock_margin = "1d"
[rails]
offramp = "simulated"
payout = "simulated"
[[chains]]
name = "anvil"
chain_id = {chain}
rpc_urls = ["{rpc}"]
deployment = "{dir}/{id}-contracts.json"
relayer_keys = ["file:{dir}/{id}-relayer"]
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
            chain = deployment.chain_id,
            solver = self.solver
        );
        self.ground.write(&format!("{id}.toml"), &config);
    }

    /// Each cell has the other's public key from now on.
    fn introduce(&self) {
        let [one, other] = &self.cells;
        for (cell, other) in [(one, other), (other, one)] {
            let key = self.said(other.id, &["transfer", "key"])["publicKey"].clone();
            self.configure(cell, &format!("[[cell.peers]]\nid = \"{}\"\npublic_keys = [{key}]", other.id));
        }
    }

    fn dvp(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dvp"));
        command.args(words).env_remove("NO_COLOR").stdin(Stdio::null());
        for cell in &self.cells {
            command.env(format!("CELL_DATABASE_{}", cell.id), &cell.database);
        }
        command
    }

    /// Two operators decide that a partner moves. Returns the words that run the move in its source.
    fn decide(&self, name: &str, [from, to]: [&str; 2]) -> Vec<String> {
        let both = ["--to-config", &self.config(to), "--name", name].map(str::to_owned);
        let run = ["partner", "move", "run", "--operator", "jo"].map(str::to_owned);
        let run: Vec<String> = run.into_iter().chain(both).collect();
        let words: Vec<&str> = run.iter().map(String::as_str).collect();
        assert!(self.refused(from, &words).contains("no move of the partner was approved"));
        let why = ["--operator", "jo", "--reason", "room for others", "--evidence", "plan 3"];
        let request = ["partner", "move", "request", "--name", name, "--to", to];
        let requested = self.said(from, &[&request[..], &why].concat());
        let id = requested["id"].as_str().unwrap();
        assert!(self.refused(from, &words).contains("no move of the partner was approved"));
        let approve = ["approval", "approve", "--id", id, "--operator"];
        assert!(self.refused(from, &[&approve[..], &["Jo"]].concat()).contains("another operator"));
        self.said(from, &[&approve[..], &["kim"]].concat());
        run
    }

    fn config(&self, id: &str) -> String {
        self.ground.path(&format!("{id}.toml")).display().to_string()
    }

    fn said(&self, id: &str, words: &[&str]) -> Value {
        let output = self.dvp(words).args(["--json", "--config", &self.config(id)]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, id: &str, words: &[&str]) -> String {
        let output = self.dvp(words).args(["--config", &self.config(id)]).output().unwrap();
        assert!(!output.status.success(), "{words:?} went well");
        String::from_utf8(output.stderr).unwrap()
    }

    fn serve(&self, id: &str) -> Running {
        let log = self.ground.path(&format!("{id}.log"));
        Running::start(self.dvp(&["serve"]).args(["--config", &self.config(id)]), &log)
    }

    /// A partner of a cell, with its key and its FIX session.
    fn partner(&self, id: &str, name: &str) -> Value {
        self.said(id, &["partner", "create", "--name", name, "--tier", "enterprise", "--limit", "600000"]);
        let add = ["fix-session", "add", "--begin-string", "FIX.4.4", "--sender-comp-id", name];
        self.said(id, &[&add[..], &["--partner", name, "--password", PASSWORD]].concat());
        self.said(id, &["key", "issue", "--partner", name, "--env", "test"])
    }

    /// A further session of a partner. Returns its id.
    fn session(&self, id: &str, partner: &str, [begin, target, sender]: [&str; 3]) -> String {
        let add = [
            "fix-session",
            "add",
            "--begin-string",
            begin,
            "--target-comp-id",
            target,
            "--sender-comp-id",
            sender,
        ];
        let added = self.said(id, &[&add[..], &["--partner", partner, "--password", PASSWORD]].concat());
        added["sessionId"].as_str().unwrap().to_owned()
    }

    /// A partner's view of a cell, through the proxy.
    fn service(&self, cell: usize, keys: &Value) -> Value {
        let deployment = &self.cells[cell].deployment;
        let wallet =
            |one: &PrivateKeySigner| json!({"privateKey": format!("0x{}", hex::encode(one.to_bytes()))});
        json!({
            "http": format!("http://127.0.0.1:{}", self.proxy[0]),
            "partner": {"apiKey": keys["apiKey"], "signingSecret": keys["signingSecret"]},
            "chain": {
                "rpcUrl": self.ground.anvil.rpc_url(), "chainId": deployment.chain_id, "name": "anvil",
                "contracts": {"permit": deployment.permit, "escrow": deployment.escrow},
                "tokens": [{"address": deployment.tokens[0].address}],
                "wallets": self.wallets.iter().map(wallet).collect::<Vec<_>>(),
            },
        })
    }

    /// The committed configuration with the addresses of this test.
    fn haproxy(&self) -> Running {
        let dir = self.ground.path("haproxy");
        fs::create_dir(&dir).unwrap();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/haproxy");
        for name in ["unavailable.http", "dvp-cells.map", "dvp-keys.map", "dvp-sessions.map"] {
            fs::copy(root.join(name), dir.join(name)).unwrap();
        }
        let shown = dir.display();
        let mut config = fs::read_to_string(root.join("haproxy.cfg")).unwrap();
        let [rest, fix] = self.proxy;
        let replace = |config: &mut String, piece: &str, by: &str| {
            assert!(config.contains(piece), "{piece}");
            *config = config.replace(piece, by);
        };
        replace(&mut config, "maxconn 20000", "maxconn 1000");
        replace(&mut config, "/run/haproxy/dvp.sock", &format!("{shown}/dvp.sock"));
        replace(&mut config, " ssl crt /etc/haproxy/dvp.pem", "");
        replace(&mut config, "/etc/haproxy", &shown.to_string());
        replace(&mut config, "bind :443", &format!("bind 127.0.0.1:{rest}"));
        replace(&mut config, "bind :9880", &format!("bind 127.0.0.1:{fix}"));
        let mut text = String::new();
        let mut metrics = 0;
        for line in config.lines() {
            if let Some((_, id)) =
                line.split_once("backend rest_").or_else(|| line.split_once("backend fix_"))
            {
                metrics = self.cells.iter().find(|cell| cell.id == id).map_or(metrics, |cell| cell.ports[2]);
            }
            // One process a cell.
            if !line.trim_start().starts_with("server a2") && !line.trim_start().starts_with("server b2") {
                text.push_str(&line.replace("port 9100", &format!("port {metrics}")));
                text.push('\n');
            }
        }
        for (cell, address) in self.cells.iter().zip(["10.0.10.1", "10.0.11.1"]) {
            replace(&mut text, &format!("{address}:8080"), &format!("127.0.0.1:{}", cell.ports[0]));
            replace(&mut text, &format!("{address}:9880"), &format!("127.0.0.1:{}", cell.ports[1]));
        }
        let file = dir.join("haproxy.cfg");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-f").arg(&file).arg("-db");
        Running::start(&mut command, &dir.join("log"))
    }

    fn map(&self) -> Value {
        let dir = self.ground.path("haproxy");
        let socket = dir.join("dvp.sock");
        let [one, other] = ["00a", "00b"].map(|id| self.config(id));
        let words = ["cell", "map", "--json", "--config", &one, "--config", &other];
        let output = self.dvp(&words).arg("--dir").arg(dir).arg("--socket").arg(socket).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Funds go from the first cell to the second while both serve orders. Returns the second one's side.
    fn transfer(&self, owner: [&str; 2], amount: &str) -> Value {
        let dir = |name: &str| self.ground.path(name).display().to_string();
        let (sent, receipt) = (dir("transfer.json"), dir("receipt.json"));
        let why = ["--operator", "jo", "--reason", "more orders there", "--evidence", "plan 7"];
        let of = ["--to", "00b", "--asset", "USD", "--amount-minor", amount];
        let request = self.said("00a", &[&["transfer", "request", "send"], &of[..], &owner, &why].concat());
        let id = request["subject"].as_str().unwrap();
        let approve = ["transfer", "approve", "--id", id, "--operator", "kim", "--out"];
        self.said("00a", &[&approve[..], &[&sent]].concat());
        self.said("00b", &[&["transfer", "request", "receive", "--document", &sent], &why[..]].concat());
        self.said("00b", &[&approve[..], &[&receipt]].concat());
        self.said("00a", &["transfer", "confirm", "--receipt", &receipt, "--operator", "jo"]);
        self.said("00b", &["transfer", "show", "--id", id])
    }

    /// What both cells' ledgers say of the other: the minor units that are on their way.
    async fn in_transit(&self) -> [String; 2] {
        let mut sums = Vec::new();
        for (cell, other) in self.cells.iter().zip(["00b", "00a"]) {
            let mut conn = PgConnection::connect(&cell.database).await.unwrap();
            let sum = sqlx::query_scalar(
                "select coalesce(sum(amount), 0)::numeric(40, 0)::text from ledger_entry \
                 where owner_kind = 'external' and owner = 'transit:' || $1",
            );
            sums.push(sum.bind(other).fetch_one(&mut conn).await.unwrap());
            assert_eq!(self.said(cell.id, &["ledger", "check"])["ok"], true);
        }
        sums.try_into().unwrap()
    }

    /// How many executions both cells have of each of these intents, and how many of them completed.
    async fn ended(&self, intents: &[String]) -> Vec<(String, usize, usize)> {
        let mut all: Vec<(String, usize, usize)> = intents.iter().map(|id| (id.clone(), 0, 0)).collect();
        for cell in &self.cells {
            let mut conn = PgConnection::connect(&cell.database).await.unwrap();
            let rows: Vec<(String, String)> =
                sqlx::query_as("select intent_id, state_name from execution where intent_id = any($1)")
                    .bind(intents)
                    .fetch_all(&mut conn)
                    .await
                    .unwrap();
            for (id, state) in rows {
                let one = all.iter_mut().find(|(intent, ..)| *intent == id).unwrap();
                (one.1, one.2) = (one.1 + 1, one.2 + usize::from(state == "completed"));
            }
        }
        all
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn log_on(scene: &Scene, name: &str) -> FixClient {
    log_on_to(scene, [name, "DVP"], name).await
}

/// Logs on through the proxy, again while the session is not served yet.
async fn log_on_to(scene: &Scene, [sender, target]: [&str; 2], username: &str) -> FixClient {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let socket = Box::new(TcpStream::connect(("127.0.0.1", scene.proxy[1])).await.unwrap());
        let ids = [sender, target].map(str::to_owned);
        match FixClient::try_log_on(socket, ids, username.to_owned(), PASSWORD.to_owned()).await {
            Some(client) => return client,
            None => assert!(Instant::now() < deadline, "no Logon of {sender} to {target} is answered"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn filled(client: &mut FixClient, cl_ord_id: &str) {
    let last = client.report(|report| report.get(11) == cl_ord_id && report.get(39) != "0").await;
    assert_eq!((last.get(39), last.get(58)), ("2", ""), "{cl_ord_id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_moves_between_cells_while_orders_flow_and_a_failed_cell_fails_alone() {
    let version = Command::new("haproxy").arg("-v").output();
    assert!(version.is_ok_and(|done| done.status.success()), "no haproxy: apt-get install haproxy");
    let scene = Scene::prepare().await;
    for cell in &scene.cells {
        scene.said(cell.id, &["migrate"]);
        let deposit = ["provider", "deposit", "--provider", "north", "--asset", "USD", "--id", "wire-1"];
        scene.said(cell.id, &[&deposit[..], &["--amount-minor", "100000000"]].concat());
    }
    scene.introduce();
    let acme = scene.partner("00a", "ACME");
    let initech = scene.partner("00a", "INITECH");
    let globex = scene.partner("00b", "GLOBEX");
    // Sessions that share a SenderCompID: an old one that stays disabled, and another partner's in another cell.
    let old = scene.session("00a", "ACME", ["FIX.4.2", "DVP", "ACME"]);
    let disable =
        ["fix-session", "disable", "--session-id", &old, "--operator", "jo", "--reason", "FIX.4.4 now"];
    scene.said("00a", &disable);
    scene.session("00a", "INITECH", ["FIX.4.4", "OTHER", "GLOBEX"]);
    let _first = scene.serve("00a");
    let mut second = scene.serve("00b");
    let _proxy = scene.haproxy();
    until("the proxy's socket", async || scene.ground.path("haproxy/dvp.sock").exists()).await;
    let map = scene.map();
    let sessions = json!({
        "FIX.4.2:DVP->ACME": "00a", "FIX.4.4:DVP->ACME": "00a", "FIX.4.4:DVP->GLOBEX": "00b",
        "FIX.4.4:DVP->INITECH": "00a", "FIX.4.4:OTHER->GLOBEX": "00a",
    });
    assert_eq!(map["sessions"], sessions);
    assert_eq!(map["keys"], json!({}));

    // Through one address each partner reaches its own cell, over both interfaces; an unknown key is one anywhere.
    let mut flows = [
        Flow::new(vec![("00a", scene.service(0, &acme)), ("00b", scene.service(1, &acme))], 0),
        Flow::new(vec![("00b", scene.service(1, &globex))], 1),
        Flow::new(vec![("00a", scene.service(0, &initech))], 2),
    ];
    for (flow, cell) in flows.iter_mut().zip(["00a", "00b", "00a"]) {
        flow.partner.is_served().await;
        flow.order().await;
        assert_eq!(flow.cells(), [cell]);
    }
    let unknown = format!("svc_test_c00b_{}", "0".repeat(48));
    let nobody = Partner::with_keys(&Box::new(scene.service(1, &acme)), &unknown, "x");
    assert_eq!(nobody.get("/v1/events").await.0, 401);
    drop(log_on(&scene, "GLOBEX").await);
    drop(log_on_to(&scene, ["GLOBEX", "OTHER"], "INITECH").await);
    let mut acme_fix = log_on(&scene, "ACME").await;
    let view = Box::new(scene.service(0, &acme));
    let order = flows[0].partner.order(&view, 3, "000123456789").await;
    acme_fix.new_order("F-1", "bene_a:dest_10000000", &order["permit"]).await;
    filled(&mut acme_fix, "F-1").await;

    let deposit = |id| {
        let of =
            ["partner", "deposit", "--name", "ACME", "--asset", "USD", "--amount-minor", "500", "--id", id];
        [&of[..], &["--operator", "jo"]].concat()
    };
    scene.said("00a", &deposit("wire-8"));

    // A move needs two operators, and nothing of it happens before.
    let run = scene.decide("ACME", ["00a", "00b"]);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let status = scene.said("00a", &[&run[..], &["--dry-run"]].concat());
    assert_eq!((&status["sourceState"], &status["targetState"]), (&json!("approved"), &Value::Null));
    assert_eq!(status["obstacles"], json!([]));

    // It moves while its own orders and those of others flow.
    let stopped = Arc::new(AtomicBool::new(false));
    let running = flows.map(|flow| tokio::spawn(flow.run(Arc::clone(&stopped))));
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.transfer(["--provider", "north"], "12345");
    let moved = scene.said("00a", &run);
    assert_eq!((&moved["sourceState"], &moved["targetState"]), (&json!("moved"), &json!("open")), "{moved}");
    assert_eq!(
        moved["balances"],
        json!([{"asset": "USD", "availableMinor": "500", "reservedMinor": "0"}]),
        "{moved}"
    );
    // What it has prefunded follows.
    let transferred = scene.transfer(["--partner", "ACME"], "500");
    let (owner, state) = (&transferred["partner"]["livemode"], &transferred["state"]);
    assert_eq!((owner, state), (&json!(false), &json!("received")), "{transferred}");
    let again = scene.said("00a", &run);
    assert_eq!((&again["targetState"], &again["balances"]), (&json!("open"), &json!([])), "{again}");
    // Until the map says it, new orders come to the source, which refuses them.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let map = scene.map();
    assert_eq!(map["keys"].as_object().unwrap().values().collect::<Vec<_>>(), ["00b"], "{map}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    stopped.store(true, Ordering::Relaxed);
    let mut flows = Vec::new();
    for flow in running {
        flows.push(flow.await.unwrap());
    }
    let [acme_flow, globex_flow, initech_flow] = flows.as_mut_slice() else { panic!("three flows") };
    let cells = acme_flow.cells();
    let (at_source, at_target) = cells.split_at(cells.iter().position(|cell| cell == "00b").unwrap());
    assert!(at_source.len() > 1 && at_source.iter().all(|cell| cell == "00a"), "{cells:?}");
    assert!(at_target.len() > 1 && at_target.iter().all(|cell| cell == "00b"), "{cells:?}");
    assert!(acme_flow.refused_as_moving > 0, "no order came while it moved");
    assert_eq!(globex_flow.refused_as_moving + initech_flow.refused_as_moving, 0);

    // Every acknowledged order exists once and ends, where it was accepted.
    let all = [acme_flow.ids(), globex_flow.ids(), initech_flow.ids()].concat();
    until("every order's end", async || {
        let ended = scene.ended(&all).await;
        assert!(ended.iter().all(|(_, count, _)| *count == 1), "{ended:?}");
        ended.iter().all(|(_, _, completed)| *completed == 1)
    })
    .await;
    assert_eq!(scene.in_transit().await, ["12845", "-12845"]);
    // A repeated request is answered as it was by the source; the intentId is used up under any other key.
    let (intent, operation, body, answer) = acme_flow.accepted[0].clone();
    let partner = &acme_flow.partner;
    assert_eq!(partner.try_submit(&body, operation).await, Some((202, answer.clone())));
    let here = Box::new(scene.service(1, &acme));
    let nonce = u64::try_from(at_target.len()).unwrap();
    let mut second_time = Partner::of(&here).order_from(&here, 0, "000123456789", nonce).await;
    second_time["intentId"] = json!(intent);
    let (status, other) = partner.try_submit(&second_time, Uuid::new_v4()).await.unwrap();
    assert_eq!((status, &other["error"]["code"]), (409, &json!("ALREADY_EXISTS")), "{other}");
    assert_eq!(scene.ended(&[intent]).await[0].1, 1);
    // What it had before is read in its cell, by its id.
    let reference = answer["reference"].as_str().unwrap();
    let (status, read) = partner.get(&format!("/v1/executions/{reference}?refType=executionId")).await;
    assert_eq!((status, &read["status"]), (200, &json!("completed")), "{read}");

    // The session follows when its orders have ended, with its numbers and ClOrdIDs.
    until("the session", async || {
        let moved = scene.said("00a", &run);
        moved["sessions"]
            == json!([{"sessionId": old, "state": "disabled"}, {"sessionId": ACME, "state": "moved"}])
    })
    .await;
    let sessions = &scene.map()["sessions"];
    assert_eq!((&sessions[ACME], &sessions[&old]), (&json!("00b"), &json!("00a")));
    drop(acme_fix);
    let listed = scene.said("00b", &["fix-session", "list"]);
    let sessions = listed["sessions"].as_array().unwrap();
    let here = sessions.iter().find(|one| one["sessionId"] == ACME).unwrap();
    assert!(here["nextOut"].as_i64().unwrap() > 2, "{here}");
    let mut acme_fix = log_on(&scene, "ACME").await;
    let view = Box::new(scene.service(1, &acme));
    let order = partner.order(&view, 3, "000123456789").await;
    acme_fix.new_order("F-1", "bene_a:dest_10000000", &order["permit"]).await;
    // Earlier reports of it may come again first.
    let known = acme_fix.report(|report| report.get(11) == "F-1" && report.get(39) == "8").await;
    assert_eq!(known.get(103), "6", "a used ClOrdID is a duplicate");
    acme_fix.new_order("F-2", "bene_a:dest_10000000", &order["permit"]).await;
    filled(&mut acme_fix, "F-2").await;

    // Money for it belongs to its present cell, and no deposit is posted in both.
    assert!(scene.refused("00a", &deposit("wire-9")).contains("has moved to cell 00b"));
    assert_eq!(scene.said("00b", &deposit("wire-8"))["repeated"], true);
    assert_eq!(scene.said("00b", &deposit("wire-9"))["repeated"], false);

    // It comes back, with the session. What it had in either cell is read through the one address.
    let back = scene.decide("ACME", ["00b", "00a"]);
    let back: Vec<&str> = back.iter().map(String::as_str).collect();
    drop(acme_fix);
    until("the session's return", async || {
        let moved = scene.said("00b", &back);
        assert_eq!(
            (&moved["sourceState"], &moved["targetState"]),
            (&json!("moved"), &json!("open")),
            "{moved}"
        );
        moved["sessions"][0]["state"] == "moved"
    })
    .await;
    let map = scene.map();
    assert_eq!(map["sessions"][ACME], "00a");
    assert_eq!(map["keys"].as_object().unwrap().values().collect::<Vec<_>>(), ["00a"], "{map}");
    let mut flow = Flow::new(vec![("00a", scene.service(0, &acme))], 0);
    flow.order().await;
    assert_eq!(flow.cells(), ["00a"]);
    for (_, operation, body, answer) in [&acme_flow.accepted[0], acme_flow.accepted.last().unwrap()] {
        assert_eq!(partner.try_submit(body, *operation).await, Some((202, answer.clone())));
        let reference = answer["reference"].as_str().unwrap();
        let (status, read) = partner.get(&format!("/v1/executions/{reference}?refType=executionId")).await;
        assert_eq!((status, &read["status"]), (200, &json!("completed")), "{read}");
    }
    let mut acme_fix = log_on(&scene, "ACME").await;
    let view = Box::new(scene.service(0, &acme));
    let order = partner.order(&view, 3, "000123456789").await;
    for used in ["F-1", "F-2"] {
        acme_fix.new_order(used, "bene_a:dest_10000000", &order["permit"]).await;
        let known = acme_fix.report(|report| report.get(11) == used && report.get(39) == "8").await;
        assert_eq!(known.get(103), "6", "a used ClOrdID is a duplicate");
    }
    acme_fix.new_order("F-3", "bene_a:dest_10000000", &order["permit"]).await;
    filled(&mut acme_fix, "F-3").await;
    assert_eq!(scene.said("00a", &deposit("wire-9"))["repeated"], true);
    assert!(scene.refused("00b", &deposit("wire-10")).contains("has moved to cell 00a"));

    // What is changed in one cell names the other.
    let why = ["--operator", "jo", "--reason", "letter 7"];
    for action in ["add", "remove"] {
        let pause = ["pause", action, "--scope", "partner", "--target", "ACME"];
        assert_eq!(scene.said("00a", &[&pause[..], &why].concat())["alsoInCells"], json!(["00b"]));
    }
    let instruct = ["partner", "instruct", "--name", "ACME", "--asset", "USD", "--account", "bene_a:dest_1"];
    let left = scene.refused("00b", &[&instruct[..], &why].concat());
    assert!(left.contains("the partner is in cell 00a"), "{left}");
    let set = scene.said("00a", &[&instruct[..], &why].concat());
    assert_eq!((&set["waitingOnly"], &set["alsoInCells"]), (&json!(null), &json!(["00b"])));
    let other = ["partner", "instruct", "--name", "ACME", "--asset", "USD", "--account", "bene_a:dest_2"];
    let requested = scene.said("00a", &[&other[..], &why, &["--evidence", "letter 7"]].concat());
    assert_eq!(requested["alsoInCells"], json!(["00b"]));
    let approve = ["approval", "approve", "--operator", "kim", "--id", requested["id"].as_str().unwrap()];
    assert_eq!(scene.said("00a", &approve)["alsoInCells"], json!(["00b"]));

    // A move that a cell knows is not recorded in it.
    let to = scene.config("00a");
    let record = ["partner", "move", "record", "--name", "ACME", "--to-config", &to, "--evidence", "entry 9"];
    let known = scene.refused("00b", &[&record[..], &why].concat());
    assert!(known.contains("is moved"), "{known}");

    // A key that is stopped works in the other cell still.
    let revoke = ["key", "revoke", "--key-id", acme["keyId"].as_str().unwrap()];
    assert_eq!(scene.said("00b", &revoke)["alsoInCells"], json!(["00a"]));
    let (status, read) = partner.get("/v1/events").await;
    assert_eq!(status, 200, "{read}");
    assert_eq!(scene.said("00a", &revoke)["alsoInCells"], json!(["00b"]));
    until("the key's end", async || partner.get("/v1/events").await.0 == 401).await;

    // A cell that fails: its callers are told so, the other's notice nothing.
    second.kill();
    let (status, down) = globex_flow.partner.get("/v1/events").await;
    assert_eq!((status, &down["error"]["code"]), (503, &json!("SERVICE_UNAVAILABLE")), "{down}");
    let before = initech_flow.accepted.len();
    for _ in 0..3 {
        initech_flow.order().await;
    }
    assert_eq!(initech_flow.accepted.len(), before + 3);
    let _second = scene.serve("00b");
    globex_flow.partner.is_served().await;
    globex_flow.order().await;
    drop(log_on(&scene, "GLOBEX").await);
}
