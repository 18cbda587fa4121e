//! `dvp transfer` between two cells, each with a database of its own and nothing in common but the files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dvp_sandbox::embedded::TestDatabase;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _, PgConnection};

/// A cell, as its operators see it.
struct Cell<'a> {
    id: &'static str,
    database: TestDatabase,
    dir: &'a Path,
}

const BY_JO: [&str; 6] = ["--operator", "jo", "--reason", "more orders there", "--evidence", "plan 7"];

impl<'a> Cell<'a> {
    async fn create(id: &'static str, dir: &'a Path) -> Self {
        let database = TestDatabase::create().await;
        let mut conn = PgConnection::connect(database.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        let cell = Self { id, database, dir };
        cell.write("master", &"4d".repeat(32));
        cell.write("signing", &id.repeat(22)[..64]);
        cell.configure("");
        cell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{}.{name}", self.id))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn configure(&self, peers: &str) {
        let (id, master, signing) =
            (self.id, self.path("master").display().to_string(), self.path("signing").display().to_string());
        let config = format!(
            r#"
environment = "test"
[cell]
id = "{id}"
signing_key = "file:{signing}"
{peers}
[database]
url = "env:CELL_DATABASE"
[secrets]
master_key = "file:{master}"
[[assets]]
symbol = "USD"
exponent = 2
currency = "USD"
[[assets]]
symbol = "EUR"
exponent = 2
currency = "EUR"
[[pairs]]
base = "USD"
quote = "EUR"
reference_price = "0.9"
[[liquidity.providers]]
id = "northwind"
wallet = "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc"
spread_bps = 10
full_depth_bps = 100
pairs = [["USD", "EUR"]]
candidate_ttl = "15s"
firm_ttl = "60s"
"#
        );
        self.write("toml", &config);
    }

    fn peer(&self) -> String {
        let key = self.said(&["transfer", "key"]);
        format!("[[cell.peers]]\nid = \"{}\"\npublic_keys = [{}]\n", self.id, key["publicKey"])
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dvp"));
        command.args(words).arg("--config").arg(self.path("toml")).arg("--json");
        command.env("CELL_DATABASE", self.database.url()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn said(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?} went well");
        String::from_utf8(output.stderr).unwrap()
    }

    fn available(&self) -> Value {
        let balance = ["provider", "balance", "--provider", "northwind", "--asset", "USD"];
        self.said(&balance)["availableMinor"].clone()
    }

    fn request(&self, step: &[&str]) -> Value {
        self.said(&[&["transfer", "request"], step, &BY_JO[..]].concat())
    }

    /// Approves by another operator, with the document in a file.
    fn approve(&self, id: &str, out: &Path) {
        self.said(&["transfer", "approve", "--id", id, "--operator", "kim", "--out", out.to_str().unwrap()]);
    }

    /// The comparison with the other cell's list: whether it went well, and what it said.
    fn compare(&self, other: &Self) -> (bool, Value) {
        let list = other.path("list.json");
        let list = list.to_str().unwrap();
        assert!(other.run(&["transfer", "export", "--cell", self.id, "--out", list]).status.success());
        let output = self.run(&["transfer", "compare", "--list", list]);
        (output.status.success(), serde_json::from_slice(&output.stdout).unwrap())
    }
}

fn receive(file: &str) -> Vec<&str> {
    [&["transfer", "request", "receive", "--document", file], &BY_JO[..]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_cells_transfer_inventory_by_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (Cell::create("00a", dir.path()).await, Cell::create("00b", dir.path()).await);
    for cell in [&a, &b] {
        assert!(cell.run(&["migrate"]).status.success());
    }
    let (key_a, key_b) = (a.peer(), b.peer());
    a.configure(&key_b);
    b.configure(&key_a);
    let deposit = ["provider", "deposit", "--provider", "northwind", "--asset", "USD", "--id", "wire-1"];
    a.said(&[&deposit[..], &["--amount-minor", "1000"]].concat());

    let send = ["send", "--to", "00b", "--provider", "northwind", "--asset", "USD", "--amount-minor", "600"];
    let request = a.request(&send);
    let id = request["subject"].as_str().unwrap();
    let own = a.refused(&["transfer", "approve", "--id", id, "--operator", "JO"]);
    assert!(own.contains("another operator"), "{own}");
    let (sent, again) = (a.path("transfer.json"), a.path("again.json"));
    a.approve(id, &sent);
    let sent_text = sent.to_str().unwrap();
    assert!(a.run(&["transfer", "document", "--id", id, "--out", again.to_str().unwrap()]).status.success());
    assert_eq!(fs::read(&sent).unwrap(), fs::read(&again).unwrap());
    assert_eq!(a.available(), "400");
    assert_eq!(a.said(&["transfer", "list", "--open"])["transfers"][0]["state"], "sent");

    // Somebody has more sent than there is.
    let doctored = fs::read_to_string(&sent).unwrap().replace("\"600\"", "\"6000\"");
    a.write("doctored", &doctored);
    let doctored = a.path("doctored");
    let said = b.refused(&receive(doctored.to_str().unwrap()));
    assert!(said.contains("transfer_signature_wrong"), "{said}");
    let said = a.refused(&receive(sent_text));
    assert!(said.contains("transfer_other_addressee"), "{said}");

    // The ledger of the receiver knows neither provider nor asset: its configuration lists them.
    b.request(&["receive", "--document", sent_text]);
    let (_, said) = b.compare(&a);
    assert_eq!((said["inTransit"].as_i64(), said["cell"].as_str()), (Some(1), Some("00a")), "{said}");
    let receipt = b.path("receipt.json");
    b.approve(id, &receipt);
    assert_eq!(b.available(), "600");
    let repeated = b.request(&["receive", "--document", sent_text]);
    assert_eq!(repeated["state"], "received");
    assert_eq!(b.available(), "600");
    let confirm = ["transfer", "confirm", "--receipt", receipt.to_str().unwrap(), "--operator", "jo"];
    assert_eq!(a.said(&confirm)["state"], "confirmed");
    assert_eq!(a.said(&confirm)["state"], "confirmed");

    // Another one is refused, and taken back.
    let request = a.request(&send[..send.len() - 1].iter().copied().chain(["50"]).collect::<Vec<_>>());
    let refused = request["subject"].as_str().unwrap();
    a.approve(refused, &sent);
    b.request(&["refuse", "--document", sent_text]);
    let refusal = b.path("refusal.json");
    b.approve(refused, &refusal);
    let said = b.refused(&receive(sent_text));
    assert!(said.contains("transfer_ended"), "{said}");
    a.request(&["take-back", "--refusal", refusal.to_str().unwrap()]);
    a.said(&["transfer", "approve", "--id", refused, "--operator", "kim"]);
    assert_eq!((a.available(), b.available()), ("400".into(), "600".into()));

    for (one, other) in [(&a, &b), (&b, &a)] {
        let (is_well, said) = one.compare(other);
        assert!(is_well && said["agreed"] == 2 && said["differences"] == serde_json::json!([]), "{said}");
        assert_eq!(one.said(&["ledger", "check"])["ok"], true);
    }
    let statement = a.said(
        &[
            &["statement", "--account", "external:transit:00b"][..],
            &["--from", "2026-01-01", "--to", "2099-01-01"],
        ]
        .concat(),
    );
    assert!(statement.to_string().contains("transfer_back"), "{statement}");
    let exposure = a.said(&["report", "exposure"]).to_string();
    assert!(exposure.contains("transit:00b"), "{exposure}");

    // The receiver's database is lost, and with it what it has signed.
    let lost = Cell::create("00b", dir.path()).await;
    lost.run(&["migrate"]);
    lost.configure(&key_a);
    let (is_well, said) = lost.compare(&a);
    let kinds: Vec<_> = said["differences"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
    assert!(!is_well && kinds.len() == 2, "{said}");
    assert!(kinds.contains(&&Value::from("receipt_lost")) && kinds.contains(&&Value::from("refusal_lost")));
}
