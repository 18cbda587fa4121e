//! What the processes share: a database, a chain with the contracts, the bank's folder, a configuration, a partner with
//! its sessions and recipients.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, ensure};
use dvp_chain_indexer::deploy::Deployment;
use dvp_sandbox::anvil::Anvil;
use dvp_sandbox::embedded::{TestDatabase, random_hex};
use serde_json::{Value, json};

use super::bank::{ACCOUNTS, SharedBank};
use crate::crash::recipients::{Kind, Recipients};
use crate::dice::Dice;
use crate::scenes::served::{Parts, market, node, seen};

/// Connections of one process.
const CONNECTIONS: usize = 24;
const PASSWORD: &str = "a password of the drill";
/// Wallets that order.
const WALLETS: usize = 2;
/// What the provider and the partner have, by the id of the deposit: asset and minor units.
const DEPOSITS: [(&str, &str, i64); 3] = [
    ("opening-usd", "USD", 100_000_000_000),
    ("opening-eur", "EUR", 100_000_000_000),
    ("wire-1", "USD", 100_000_000_000),
];

/// Euros beside the market.
const EUROS: &str = r#"
[[assets]]
symbol = "EUR"
exponent = 2
currency = "EUR"
[[pairs]]
base = "USD"
quote = "EUR"
reference_price = "0.92"
protocol_fee_bps = 5
payout_fee_minor = "50"
"#;

pub(super) struct Ground {
    binary: PathBuf,
    dir: PathBuf,
    pub(super) database: TestDatabase,
    pub(super) bank: SharedBank,
    pub(super) recipients: Recipients,
    anvil: Anvil,
    relayer: PrivateKeySigner,
    /// What a client knows, without the addresses of a process.
    pub(super) known: Value,
}

impl Ground {
    pub(super) async fn prepare(
        binary: &Path,
        dir: &Path,
        sessions: usize,
        authority: &str,
        dice: Dice,
    ) -> anyhow::Result<Self> {
        let (database, (anvil, keys)) = tokio::join!(TestDatabase::try_create(), node());
        let database = database?;
        let [admin, relayer, solver, jo, mika, wallets @ ..] = keys.as_slice() else {
            anyhow::bail!("too few accounts")
        };
        let wallets = wallets.get(..WALLETS).context("too few accounts")?;
        let parts = Parts { admin, solver, relayers: &[relayer], operators: [jo, mika] };
        let deployment = parts.deploy(&anvil.rpc_url()).await;
        parts.fund(&anvil.rpc_url(), &deployment, wallets, 1_000_000_000_000).await;
        let (binary, dir) = (binary.to_owned(), dir.to_owned());
        let bank = SharedBank::start(&dir.join("bank"), &DEPOSITS, dice).await?;
        let (relayer, recipients) = (relayer.clone(), Recipients::simulated());
        let mut ground = Self { binary, dir, database, bank, recipients, anvil, relayer, known: Value::Null };
        ground.write("contracts.json", &serde_json::to_string(&deployment)?)?;
        ground.write("master", &random_hex(32))?;
        ground.write("receiver.pem", authority)?;
        ground.write("dvp.toml", &(ground.config(&deployment) + &market(&deployment, solver) + EUROS))?;
        ground.known = ground.furnish(&deployment, wallets, sessions)?;
        ground.recipients = Recipients::register(Kind::All, &|words| ground.command(words))?;
        Ok(ground)
    }

    fn write(&self, name: &str, content: &str) -> anyhow::Result<()> {
        let path = self.dir.join(name);
        std::fs::write(&path, content)?;
        Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?)
    }

    fn config(&self, deployment: &Deployment) -> String {
        let (dir, rpc) = (self.dir.display(), self.anvil.rpc_url());
        let account = |(currency, number): (&str, &str)| {
            format!(
                "{{ name = \"DVP Drill\", currency = \"{currency}\", account = \"{number}\", bic = \"SANDDEFF\", \
                 country = \"DE\" }}"
            )
        };
        let accounts = ACCOUNTS.map(account).join(", ");
        format!(
            r#"
environment = "test"
roles = ["api", "fix", "indexer", "worker"]
[database]
url = "env:DRILL_DATABASE"
max_connections = {CONNECTIONS}
[secrets]
master_key = "file:{dir}/master"
[api]
listen = "127.0.0.1:0"
[fix]
listen = "127.0.0.1:0"
[fix.forward]
listen = "127.0.0.1:0"
[metrics]
listen = "127.0.0.1:0"
[webhooks]
ca = "{dir}/receiver.pem"
allow_private = true
[settlement]
fill_window = "1h"
timelock_margin = "1d"
[rails]
offramp = "simulated"
payout = "bank_files"
[bank]
folder = "{dir}/bank"
settles_after = "1s"
accounts = [{accounts}]
[[chains]]
name = "anvil"
chain_id = {chain}
rpc_urls = ["{rpc}"]
deployment = "{dir}/contracts.json"
relayer_keys = ["env:DRILL_RELAYER"]
confirmations = 1
payout_gate = [{{ wait = "1 block" }}]
poll_interval = "200ms"
"#,
            chain = deployment.chain_id
        )
    }

    /// Creates the schema, the partner with its key, balances and sessions. Returns what a client knows of them.
    fn furnish(
        &self,
        deployment: &Deployment,
        wallets: &[PrivateKeySigner],
        sessions: usize,
    ) -> anyhow::Result<Value> {
        self.command(&["migrate"])?;
        self.command(&["bank", "folder", "stamp", "--operator", "drill"])?;
        self.command(&["partner", "create", "--name", "acme", "--tier", "enterprise", "--limit", "600000"])?;
        for (id, asset, amount) in DEPOSITS {
            let owner = match id {
                "wire-1" => ["partner", "deposit", "--name", "acme"],
                _ => ["provider", "deposit", "--provider", "north"],
            };
            let deposit = ["--asset", asset, "--amount-minor", &amount.to_string(), "--id", id];
            self.command(&[&owner[..], &deposit].concat())?;
        }
        let key = self.command(&["key", "issue", "--partner", "acme", "--env", "test"])?;
        let mut known = Vec::new();
        for n in 0..sessions {
            let begin_string = if n % 2 == 0 { "FIX.4.4" } else { "FIX.4.2" };
            let comp_id = format!("ACME{n}");
            let add = ["fix-session", "add", "--begin-string", begin_string, "--sender-comp-id", &comp_id];
            let secret = ["--partner", "acme", "--password", "env:DRILL_PASSWORD"];
            self.command(&[&add[..], &secret].concat())?;
            known.push(json!({
                "beginString": begin_string, "senderCompId": comp_id, "username": "acme", "password": PASSWORD,
            }));
        }
        let mut seen = seen("", &key, &self.anvil.rpc_url(), deployment, wallets);
        seen["databaseUrl"] = self.database.url().into();
        seen["fix"] = json!({ "sessions": known });
        Ok(seen)
    }

    fn dvp(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--config").arg(self.dir.join("dvp.toml")).stdin(Stdio::null());
        command.env("DRILL_DATABASE", self.database.url()).env("DRILL_PASSWORD", PASSWORD);
        command.env("DRILL_RELAYER", hex::encode(self.relayer.to_bytes()));
        command
    }

    /// A command of the program, and the JSON that it prints.
    fn command(&self, words: &[&str]) -> anyhow::Result<Value> {
        let output = self.dvp(words).arg("--json").output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dvp {}: {complaint}", words.join(" "));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Starts a process with a log of its own.
    pub(super) fn serve(&self, log: &str) -> anyhow::Result<(Child, PathBuf)> {
        let log = self.dir.join(log);
        let file = std::fs::File::create(&log)?;
        let child = self.dvp(&["serve"]).stdout(Stdio::null()).stderr(file).spawn()?;
        Ok((child, log))
    }
}
