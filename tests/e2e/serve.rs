//! `dvp serve` as configured, with an external database and chain.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::partner::Partner;
use crate::served::{Ground, read, replaced};
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(120);

/// The configuration as that of a live deployment, with payouts by files of a bank.
pub(crate) fn live(ground: &Ground) -> String {
    let account =
        "name = \"Acme\"\ncurrency = \"USD\"\naccount = \"1\"\nbic = \"COBADEFFXXX\"\ncountry = \"DE\"";
    let folder = ground.path("bank");
    let bank = format!("[bank]\nfolder = \"{}\"\n[[bank.accounts]]\n{account}\n", folder.display());
    let live = ground.configured(&[
        ("environment = \"test\"", "environment = \"live\"".to_owned()),
        ("offramp = \"simulated\"", "offramp = \"inventory\"".to_owned()),
        ("payout = \"simulated\"", "payout = \"bank_files\"".to_owned()),
    ]);
    live + &bank
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
    // Both run with this configuration, and would not with another one.
    let config = read(&ground.path("dvp.toml"));
    for (window, is_alike) in [("1h", true), ("2h", false)] {
        let changed = ("fill_window = \"1h\"", format!("fill_window = \"{window}\""));
        ground.write("dvp.toml", &replaced(&config, &[changed]));
        let report: Value = serde_json::from_str(&ground.printed(&["doctor", "--json"])).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == "processes").unwrap();
        let detail = check["detail"].as_str().unwrap();
        assert_eq!(check["ok"], is_alike, "{detail}");
        assert!(detail.contains(if is_alike { "2 run" } else { "indexer worker" }), "{detail}");
    }
    ground.write("dvp.toml", &config);

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
async fn configuration_errors_name_the_key() {
    let ground = Ground::prepare().await;
    ground.said(&["migrate"]);
    let config = read(&ground.path("dvp.toml"));
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
        ground.write("dvp.toml", &replaced(&config, &[(piece, by.to_owned())]));
        let complaint = ground.refused(&["serve"]);
        assert!(complaint.contains(said), "{by}: {complaint}");
    }
    ground.write("dvp.toml", &config);
    ground.write("dvp.toml", &live(&ground));
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
    let right = read(&ground.path("dvp.toml"));
    let record = read(&ground.path("contracts.json"));
    let wrong = |from: &str, to: &str, says: &str| {
        ground.write("dvp.toml", &replaced(&right, &[(from, to.to_owned())]));
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
