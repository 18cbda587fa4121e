//! Two cells behind haproxy: one address for both, and a cell that fails.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use alloy::signers::local::PrivateKeySigner;
use dvp_benches::scenes::served::{Parts, market, seen};
use dvp_chain_indexer::deploy::Deployment;
use dvp_domain::cell::CellId;
use dvp_sandbox::embedded::{FreePort, TestDatabase, random_hex};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::net::TcpStream;
use tokio::process::Child;
use uuid::Uuid;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::serve::Ground;
use crate::wait::until;

const PASSWORD: &str = "secret-1";

/// A process that is killed when the test ends.
fn start(command: Command, log: &Path) -> Child {
    let file = fs::File::create(log).unwrap();
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).kill_on_drop(true);
    command.spawn().unwrap()
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
    solver: PrivateKeySigner,
    /// REST and FIX of the proxy.
    proxy: [u16; 2],
    _held: Vec<FreePort>,
}

impl Scene {
    async fn prepare() -> Self {
        let (ground, second) = tokio::join!(Ground::prepare(), TestDatabase::create());
        let mut conn = PgConnection::connect(second.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        let [admin, relayer, second_relayer, solver, acme, jo, mika, globex, initech, fix, ..] =
            ground.accounts.as_slice()
        else {
            panic!("too few accounts")
        };
        let rpc = ground.anvil.rpc_url();
        // Contracts of its own for the second cell.
        let parts = Parts { admin, solver, relayers: &[second_relayer], operators: [jo, mika] };
        let other = parts.deploy(&rpc).await;
        let wallets = vec![acme.clone(), globex.clone(), initech.clone(), fix.clone()];
        for deployment in [&ground.deployment, &other] {
            parts.fund(&rpc, deployment, &wallets, 100_000_000_000).await;
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
        let scene =
            Self { _second: second, wallets, proxy, _held: held, cells, solver: solver.clone(), ground };
        for cell in &scene.cells {
            let Cell { id, deployment, relayer, .. } = cell;
            scene.ground.write(&format!("{id}-contracts.json"), &serde_json::to_string(deployment).unwrap());
            scene.ground.write(&format!("{id}-master"), &random_hex(32));
            scene.ground.write(&format!("{id}-relayer"), &hex::encode(relayer.to_bytes()));
            scene.configure(cell);
        }
        scene
    }

    fn configure(&self, cell: &Cell) {
        let Cell { id, deployment, ports: [rest, fix, metrics], .. } = cell;
        let dir = self.ground.path("").display().to_string();
        let rpc = self.ground.anvil.rpc_url();
        let config = format!(
            r#"
environment = "test"
[cell]
id = "{id}"
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
"#,
            chain = deployment.chain_id
        );
        self.ground.write(&format!("{id}.toml"), &(config + &market(deployment, &self.solver)));
    }

    fn dvp(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dvp"));
        command.args(words).env_remove("NO_COLOR").stdin(Stdio::null());
        for cell in &self.cells {
            command.env(format!("CELL_DATABASE_{}", cell.id), &cell.database);
        }
        command
    }

    fn config(&self, id: &str) -> String {
        self.ground.path(&format!("{id}.toml")).display().to_string()
    }

    fn said(&self, id: &str, words: &[&str]) -> Value {
        let output = self.dvp(words).args(["--json", "--config", &self.config(id)]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn serve(&self, id: &str) -> Child {
        let log = self.ground.path(&format!("{id}.log"));
        start(self.dvp(&["serve", "--config", &self.config(id)]), &log)
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
        let add = ["fix-session", "add", "--begin-string", begin, "--target-comp-id", target];
        let of = ["--sender-comp-id", sender, "--partner", partner, "--password", PASSWORD];
        let added = self.said(id, &[&add[..], &of].concat());
        added["sessionId"].as_str().unwrap().to_owned()
    }

    /// A partner's view of a cell, through the proxy.
    fn service(&self, cell: usize, keys: &Value) -> Value {
        let (http, rpc) = (format!("http://127.0.0.1:{}", self.proxy[0]), self.ground.anvil.rpc_url());
        seen(&http, keys, &rpc, &self.cells[cell].deployment, &self.wallets)
    }

    /// The committed configuration with the addresses of this test.
    fn haproxy(&self) -> Child {
        let dir = self.ground.path("haproxy");
        fs::create_dir(&dir).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/haproxy");
        for name in ["unavailable.http", "dvp-cells.map", "dvp-sessions.map"] {
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
        start(command, &dir.join("log"))
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
}

async fn log_on(scene: &Scene, name: &str) -> FixClient {
    log_on_to(scene, [name, "DVP"], name).await
}

/// Logs on through the proxy, again while the session is not served yet.
async fn log_on_to(scene: &Scene, [sender, target]: [&str; 2], username: &str) -> FixClient {
    let mut client = None;
    until("an answered Logon", async || {
        let socket = Box::new(TcpStream::connect(("127.0.0.1", scene.proxy[1])).await.unwrap());
        let ids = [sender, target].map(str::to_owned);
        client = FixClient::try_log_on(socket, ids, username.to_owned(), PASSWORD.to_owned()).await;
        client.is_some()
    })
    .await;
    client.unwrap()
}

async fn filled(client: &mut FixClient, cl_ord_id: &str) {
    let last = client.report(|report| report.get(11) == cl_ord_id && report.get(39) != "0").await;
    assert_eq!((last.get(39), last.get(58)), ("2", ""), "{cl_ord_id}");
}

/// The cell in which a partner's order is accepted.
async fn accepted(partner: &Partner, view: &impl AsRef<Value>, wallet: usize, nonce: u64) -> String {
    let body = partner.order_from(view, wallet, "000123456789", nonce).await;
    let (status, answer) = partner.try_submit(&body, Uuid::new_v4()).await.unwrap();
    assert_eq!(status, 202, "{answer}");
    CellId::of_id(answer["reference"].as_str().unwrap()).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partner_reaches_its_own_cell_at_one_address_and_a_failed_cell_fails_alone() {
    let version = Command::new("haproxy").arg("-v").output();
    assert!(version.is_ok_and(|done| done.status.success()), "no haproxy: apt-get install haproxy");
    let scene = Scene::prepare().await;
    for cell in &scene.cells {
        scene.said(cell.id, &["migrate"]);
        let deposit = ["provider", "deposit", "--provider", "north", "--asset", "USD", "--id", "wire-1"];
        scene.said(cell.id, &[&deposit[..], &["--amount-minor", "100000000"]].concat());
    }
    let acme = scene.partner("00a", "ACME");
    scene.partner("00a", "INITECH");
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
    let sessions = json!({
        "FIX.4.2:DVP->ACME": "00a", "FIX.4.4:DVP->ACME": "00a", "FIX.4.4:DVP->GLOBEX": "00b",
        "FIX.4.4:DVP->INITECH": "00a", "FIX.4.4:OTHER->GLOBEX": "00a",
    });
    assert_eq!(scene.map()["sessions"], sessions);

    // Through one address each partner reaches its own cell, over both interfaces; an unknown key is one anywhere.
    let views = [Box::new(scene.service(0, &acme)), Box::new(scene.service(1, &globex))];
    let partners = [Partner::of(&views[0]), Partner::of(&views[1])];
    for (n, cell) in ["00a", "00b"].into_iter().enumerate() {
        partners[n].is_served().await;
        assert_eq!(accepted(&partners[n], &views[n], n, 0).await, cell);
    }
    let unknown = format!("svc_test_c00b_{}", "0".repeat(48));
    let nobody = Partner::with_keys(&views[0], &unknown, "x");
    assert_eq!(nobody.get("/v1/events").await.0, 401);
    drop(log_on(&scene, "GLOBEX").await);
    drop(log_on_to(&scene, ["GLOBEX", "OTHER"], "INITECH").await);
    let mut acme_fix = log_on(&scene, "ACME").await;
    let order = partners[0].order(&views[0], 3, "000123456789").await;
    acme_fix.new_order("F-1", "bene_a:dest_10000000", &order["permit"]).await;
    filled(&mut acme_fix, "F-1").await;

    // A cell that fails: its callers are told so, the other's notice nothing.
    second.kill().await.unwrap();
    let (status, down) = partners[1].get("/v1/events").await;
    assert_eq!((status, &down["error"]["code"]), (503, &json!("SERVICE_UNAVAILABLE")), "{down}");
    for nonce in 1..4 {
        assert_eq!(accepted(&partners[0], &views[0], 0, nonce).await, "00a");
    }
    let _second = scene.serve("00b");
    partners[1].is_served().await;
    assert_eq!(accepted(&partners[1], &views[1], 1, 1).await, "00b");
    drop(log_on(&scene, "GLOBEX").await);
}
