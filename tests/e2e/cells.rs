//! Two cells behind haproxy: one address for both, and a cell that fails.

use std::fs;
use std::path::Path;
use std::process::Command;

use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::Deployment;
use dvp_domain::cell::CellId;
use dvp_sandbox::embedded::{FreePort, TestDatabase, random_hex};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::net::TcpStream;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::served::{Ground, ServedProcess, read, replaced};
use crate::wait::until;

const PASSWORD: &str = "secret-1";

struct Cell {
    id: &'static str,
    database: String,
    deployment: Deployment,
    /// REST, FIX and metrics.
    ports: [u16; 3],
    /// The number of its account.
    relayer: usize,
}

struct Scene {
    ground: Ground,
    _second: TestDatabase,
    cells: [Cell; 2],
    wallets: Vec<PrivateKeySigner>,
    /// REST and FIX of the proxy.
    proxy: [u16; 2],
    _held: Vec<FreePort>,
}

impl Scene {
    async fn prepare() -> Self {
        let (ground, second) = tokio::join!(Ground::prepare(), TestDatabase::create());
        let mut conn = PgConnection::connect(second.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        // Contracts of its own for the second cell.
        let deployments = [ground.deployment.clone(), ground.other_contracts(2).await];
        let wallets = [&ground.accounts[4..5], &ground.accounts[7..]].concat();
        for deployment in &deployments {
            ground.fund(deployment, &wallets, 100_000_000_000).await;
        }
        let held: Vec<FreePort> = (0..8).map(|_| FreePort::take().unwrap()).collect();
        let mut free = held.iter().map(FreePort::number);
        let mut port = || free.next().unwrap();
        let [first, other] = deployments;
        let (database, relayer) = (ground.database.url().to_owned(), 1);
        let first = Cell { id: "00a", database, deployment: first, ports: [(); 3].map(|()| port()), relayer };
        let (database, relayer) = (second.url().to_owned(), 2);
        let other = Cell { id: "00b", database, deployment: other, ports: [(); 3].map(|()| port()), relayer };
        let proxy = [(); 2].map(|()| port());
        let scene = Self { _second: second, wallets, proxy, _held: held, cells: [first, other], ground };
        for cell in &scene.cells {
            scene.configure(cell);
        }
        scene
    }

    fn configure(&self, cell: &Cell) {
        let Cell { id, database, deployment, ports: [rest, fix, metrics], relayer } = cell;
        let ground = &self.ground;
        ground.write(&format!("{id}-database"), database);
        ground.write(&format!("{id}-contracts.json"), &serde_json::to_string(deployment).unwrap());
        ground.write(&format!("{id}-master"), &random_hex(32));
        ground.write(&format!("{id}-relayer"), &hex::encode(ground.accounts[*relayer].to_bytes()));
        let own = |name: &str| ground.path(&format!("{id}-{name}")).display().to_string();
        let keys = |keys: &str| format!("relayer_keys = [{keys}]");
        let file = ground.path("relayer").display().to_string();
        let listen = |section: &str| format!("[{section}]\nlisten = \"127.0.0.1:0\"");
        let on = |section: &str, port: &u16| format!("[{section}]\nlisten = \"127.0.0.1:{port}\"");
        let behind = |section: &str, port: &u16| on(section, port) + "\nproxies = [\"127.0.0.0/8\"]";
        let config = ground.configured(&[
            ("[database]", format!("[cell]\nid = \"{id}\"\n[database]")),
            ("env:SERVED_DATABASE", format!("file:{}", own("database"))),
            (&ground.path("master").display().to_string(), own("master")),
            (&ground.path("contracts.json").display().to_string(), own("contracts.json")),
            (
                &keys(&format!("\"env:SERVED_RELAYER\", \"file:{file}\"")),
                keys(&format!("\"file:{}\"", own("relayer"))),
            ),
            (&ground.deployment.tokens[0].address.to_string(), deployment.tokens[0].address.to_string()),
            (&listen("api"), behind("api", rest)),
            (&listen("fix"), behind("fix", fix)),
            (&listen("metrics"), on("metrics", metrics)),
        ]);
        ground.write(&format!("{id}.toml"), &config);
    }

    fn said(&self, id: &str, words: &[&str]) -> Value {
        self.ground.said_by(&format!("{id}.toml"), words)
    }

    fn serve(&self, id: &str) -> ServedProcess {
        let command = self.ground.dvp(&format!("{id}.toml"), &["serve"]);
        ServedProcess::start(command, self.ground.path(&format!("{id}.log")))
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
        let http = format!("http://127.0.0.1:{}", self.proxy[0]);
        self.ground.seen(&http, keys, &self.cells[cell].deployment, &self.wallets)
    }

    /// The committed configuration with the addresses of this test.
    fn haproxy(&self) -> ServedProcess {
        let dir = self.ground.path("haproxy");
        fs::create_dir(&dir).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/haproxy");
        for name in ["unavailable.http", "dvp-cells.map", "dvp-sessions.map"] {
            fs::copy(root.join(name), dir.join(name)).unwrap();
        }
        let shown = dir.display();
        let [rest, fix] = self.proxy;
        let config = replaced(
            &read(&root.join("haproxy.cfg")),
            &[
                ("maxconn 20000", "maxconn 1000".to_owned()),
                ("/run/haproxy/dvp.sock", format!("{shown}/dvp.sock")),
                (" ssl crt /etc/haproxy/dvp.pem", String::new()),
                ("/etc/haproxy", shown.to_string()),
                ("bind :443", format!("bind 127.0.0.1:{rest}")),
                ("bind :9880", format!("bind 127.0.0.1:{fix}")),
            ],
        );
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
            let [rest, fix, _] = cell.ports;
            let rest = (format!("{address}:8080"), format!("127.0.0.1:{rest}"));
            let fix = (format!("{address}:9880"), format!("127.0.0.1:{fix}"));
            text = replaced(&text, &[(&rest.0, rest.1), (&fix.0, fix.1)]);
        }
        let file = dir.join("haproxy.cfg");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-f").arg(&file).arg("-db");
        ServedProcess::start(command, dir.join("log"))
    }

    fn map(&self) -> Value {
        let [other, dir] = ["00b.toml", "haproxy"].map(|name| self.ground.path(name).display().to_string());
        let socket = format!("{dir}/dvp.sock");
        self.said("00a", &["cell", "map", "--config", &other, "--dir", &dir, "--socket", &socket])
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
    let answer = partner.submit_accepted(&body).await;
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
    let disable = ["fix-session", "disable", "--session-id", &old, "--as", "jo", "--reason", "FIX.4.4 now"];
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
    second.signal("-KILL");
    second.ended().await;
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
