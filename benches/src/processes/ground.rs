//! What the processes share: a database, a chain with the contracts, the bank's folder, a configuration, a partner with
//! its sessions and recipients.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use alloy::primitives::U256;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, ensure};
use dvp_chain_indexer::deploy::{DeployPlan, Deployment, TokenGrant, TokenSpec, deploy, fund_wallets};
use dvp_sandbox::anvil::{Anvil, AnvilOptions};
use dvp_sandbox::embedded::{TestDatabase, random_hex};
use serde_json::{Value, json};

use super::bank::{ACCOUNTS, SharedBank};
use crate::crash::dice::Dice;
use crate::crash::recipients::Recipients;
use crate::crash::rest::text;

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
        let options = AnvilOptions {
            block_time: Some(Duration::from_secs(1)),
            slots_in_an_epoch: 1,
            ..AnvilOptions::default()
        };
        let (database, anvil) = tokio::join!(TestDatabase::try_create(), Anvil::start(options));
        let (database, anvil) = (database?, anvil?);
        let keys = anvil.accounts().iter().map(|account| PrivateKeySigner::from_bytes(&account.private_key));
        let keys: Vec<PrivateKeySigner> = keys.collect::<Result<_, _>>()?;
        let [admin, relayer, solver, jo, mika, wallets @ ..] = keys.as_slice() else {
            anyhow::bail!("too few accounts")
        };
        let wallets = wallets.get(..WALLETS).context("too few accounts")?;
        let plan = DeployPlan {
            tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
            solvers: vec![solver.address()],
            relayers: vec![relayer.address()],
            operators: vec![jo.address(), mika.address()],
            ..DeployPlan::default()
        };
        let rpc = anvil.rpc_url();
        let deployment = deploy(&rpc, admin, &plan, None).await?;
        let token = deployment.tokens.first().context("no token")?.address;
        let grant = TokenGrant { token, amount: U256::from(1_000_000_000_000_u64) };
        fund_wallets(&rpc, admin, &deployment, wallets, &[grant]).await?.mined().await?;
        let (binary, dir) = (binary.to_owned(), dir.to_owned());
        let bank = SharedBank::start(&dir.join("bank"), &DEPOSITS, dice).await?;
        let (relayer, recipients) = (relayer.clone(), Recipients::simulated());
        let mut ground = Self { binary, dir, database, bank, recipients, anvil, relayer, known: Value::Null };
        ground.write("contracts.json", &serde_json::to_string(&deployment)?)?;
        ground.write("master", &random_hex(32))?;
        ground.write("receiver.pem", authority)?;
        ground.write("dvp.toml", &ground.config(&deployment, &solver.address().to_string())?)?;
        ground.known = ground.furnish(&deployment, wallets, sessions)?;
        ground.recipients = Recipients::register(&|words| ground.command(words))?;
        Ok(ground)
    }

    fn write(&self, name: &str, content: &str) -> anyhow::Result<()> {
        let path = self.dir.join(name);
        std::fs::write(&path, content)?;
        Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?)
    }

    fn config(&self, deployment: &Deployment, solver: &str) -> anyhow::Result<String> {
        let (dir, rpc) = (self.dir.display(), self.anvil.rpc_url());
        let account = |(currency, number): (&str, &str)| {
            format!(
                "{{ name = \"DVP Drill\", currency = \"{currency}\", account = \"{number}\", bic = \"SANDDEFF\", \
                 country = \"DE\" }}"
            )
        };
        let accounts = ACCOUNTS.map(account).join(", ");
        let token = deployment.tokens.first().context("no token")?.address;
        Ok(format!(
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
[[assets]]
symbol = "USDC"
exponent = 6
chain = "anvil"
address = "{token}"
[[assets]]
symbol = "USD"
exponent = 2
currency = "USD"
[[assets]]
symbol = "EUR"
exponent = 2
currency = "EUR"
[[pairs]]
base = "USDC"
quote = "USD"
reference_price = "1"
protocol_fee_bps = 5
payout_fee_minor = "50"
[[pairs]]
base = "USD"
quote = "EUR"
reference_price = "0.92"
protocol_fee_bps = 5
payout_fee_minor = "50"
[[liquidity.providers]]
id = "north"
wallet = "{solver}"
spread_bps = 10
"#,
            chain = deployment.chain_id
        ))
    }

    /// Creates the schema, the partner with its key, balances and sessions. Returns what a client knows of them.
    fn furnish(
        &self,
        deployment: &Deployment,
        wallets: &[PrivateKeySigner],
        sessions: usize,
    ) -> anyhow::Result<Value> {
        self.command(&["migrate"])?;
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
        let token = deployment.tokens.first().context("no token")?.address;
        let wallet =
            |key: &PrivateKeySigner| json!({"privateKey": format!("0x{}", hex::encode(key.to_bytes()))});
        Ok(json!({
            "databaseUrl": self.database.url(),
            "partner": {"apiKey": text(&key, "/apiKey")?, "signingSecret": text(&key, "/signingSecret")?},
            "fix": {"sessions": known},
            "chain": {
                "rpcUrl": self.anvil.rpc_url(), "chainId": deployment.chain_id,
                "contracts": {"permit": deployment.permit, "escrow": deployment.escrow},
                "tokens": [{"address": token}], "wallets": wallets.iter().map(wallet).collect::<Vec<_>>(),
            },
        }))
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
