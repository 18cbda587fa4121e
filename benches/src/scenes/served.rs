//! Processes of the service as configured, with an external database and chain: what they need around them, and what
//! they say.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use alloy::primitives::aliases::U112;
use alloy::primitives::{Address, U256};
use alloy::providers::{Provider as _, ProviderBuilder};
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::{
    CapSpec, DeployPlan, DeployedToken, Deployment, TokenGrant, TokenSpec, deploy, fund_solvers, fund_wallets,
};
use dvp_chain_indexer::relayer::functions::functions;
use dvp_sandbox::anvil::{Anvil, AnvilOptions, DevAccount};
use dvp_sandbox::embedded::{TestDatabase, random_hex};
use dvp_testing::harness::Selected;
use dvp_testing::signer::Policy;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use super::sandbox::{LOG_LINES, program};
use super::wait::{answer, until};
use crate::drill::tail;

/// The accounts of the node by their parts in the contracts; the rest are users'.
const ADMIN: usize = 0;
const RELAYERS: [usize; 2] = [1, 2];
const SOLVER: usize = 3;
const WALLET: usize = 4;
/// Two operators return a filled order's funds.
const OPERATORS: [usize; 2] = [5, 6];

/// The environment of the service: an empty database, a chain with the contracts, a configuration.
pub struct Ground {
    binary: PathBuf,
    dir: PathBuf,
    _temporary: Option<TempDir>,
    pub database: TestDatabase,
    pub anvil: Anvil,
    pub deployment: Deployment,
    /// The node's, funded with the chain's coin.
    pub accounts: Vec<PrivateKeySigner>,
    pub wallet: PrivateKeySigner,
    pub operators: [PrivateKeySigner; 2],
    /// Takes connections and says nothing.
    silent: TcpListener,
}

impl Ground {
    pub async fn prepare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut ground = Self::at(program(), dir.path()).await;
        ground._temporary = Some(dir);
        ground
    }

    pub async fn at(binary: PathBuf, dir: &Path) -> Self {
        Self::on(None, binary, dir).await
    }

    /// The same on another node than anvil.
    pub async fn on(stand_in: Option<PathBuf>, binary: PathBuf, dir: &Path) -> Self {
        let options = AnvilOptions {
            block_time: Some(Duration::from_secs(1)),
            slots_in_an_epoch: 1,
            stand_in,
            ..AnvilOptions::default()
        };
        let (database, anvil) = tokio::join!(TestDatabase::create(), Anvil::start(options));
        let anvil = anvil.unwrap();
        let mut conn = PgConnection::connect(database.url()).await.unwrap();
        conn.execute("drop schema public cascade; create schema public").await.unwrap();
        let key = |account: &DevAccount| PrivateKeySigner::from_bytes(&account.private_key).unwrap();
        let accounts: Vec<PrivateKeySigner> = anvil.accounts().iter().map(key).collect();
        let deployment = contracts(&anvil, &accounts, &RELAYERS).await;
        let ground = Self {
            binary,
            dir: dir.to_owned(),
            _temporary: None,
            database,
            anvil,
            deployment,
            wallet: accounts[WALLET].clone(),
            operators: OPERATORS.map(|operator| accounts[operator].clone()),
            accounts,
            silent: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        ground.fund(&ground.deployment, std::slice::from_ref(&ground.wallet), 1_000_000_000).await;
        ground.write("contracts.json", &serde_json::to_string(&ground.deployment).unwrap());
        ground.write("master", &random_hex(32));
        ground.write("relayer", &hex::encode(ground.accounts[RELAYERS[1]].to_bytes()));
        ground.write("dvp.toml", &ground.config());
        ground
    }

    /// Contracts beside the first ones, with one relayer.
    pub async fn other_contracts(&self, relayer: usize) -> Deployment {
        contracts(&self.anvil, &self.accounts, &[relayer]).await
    }

    /// Contracts of which the service pays, too, deployed over an endpoint, with so much of each token for the provider.
    /// They take the place of the first ones in the record that processes read.
    pub(crate) async fn deploy_over(&self, rpc: &str, tokens: [TokenSpec; 2], units: u64) -> Deployment {
        let solver = &self.accounts[SOLVER];
        let cap = |token: &TokenSpec| {
            let (payer, token) = (solver.address(), token.symbol.clone());
            CapSpec { payer, token, per_day: U112::from(units) }
        };
        let caps = tokens.iter().map(cap).collect();
        let plan = DeployPlan { tokens: tokens.into(), caps, ..plan(&self.accounts, &RELAYERS) };
        let deployed = deploy(rpc, &self.accounts[ADMIN], &plan, None).await.unwrap();
        let grant = |token: &DeployedToken| TokenGrant { token: token.address, amount: U256::from(units) };
        let grants: Vec<TokenGrant> = deployed.tokens.iter().map(grant).collect();
        let (node, admin, solvers) =
            (self.anvil.rpc_url(), &self.accounts[ADMIN], std::slice::from_ref(solver));
        fund_solvers(&node, admin, &deployed, solvers, &grants).await.unwrap().mined().await.unwrap();
        self.write("contracts.json", &serde_json::to_string(&deployed).unwrap());
        deployed
    }

    /// Makes accounts relayers, with funds for gas, in the record that processes read. Returns it.
    pub async fn admit(&self, relayers: &[Address]) -> Deployment {
        let node = ProviderBuilder::new().connect_http(self.anvil.rpc_url().parse().unwrap());
        let funds = U256::from(10).pow(U256::from(20));
        for relayer in relayers {
            let _: () = node.raw_request("anvil_setBalance".into(), (relayer, funds)).await.unwrap();
        }
        let plan = DeployPlan { relayers: relayers.to_vec(), ..DeployPlan::default() };
        let record = Some(self.deployment.clone());
        let deployed = deploy(&self.anvil.rpc_url(), &self.accounts[ADMIN], &plan, record).await.unwrap();
        self.write("contracts.json", &serde_json::to_string(&deployed).unwrap());
        deployed
    }

    /// Gives the wallets units of the token, with an approval.
    pub async fn fund(&self, deployment: &Deployment, wallets: &[PrivateKeySigner], units: u64) {
        let grant = TokenGrant { token: deployment.tokens[0].address, amount: U256::from(units) };
        let (rpc, admin) = (self.anvil.rpc_url(), &self.accounts[ADMIN]);
        let funded = fund_wallets(&rpc, admin, deployment, wallets, &[grant]).await.unwrap();
        funded.mined().await.unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn config(&self) -> String {
        let (rpc, dir) = (self.anvil.rpc_url(), self.dir.display());
        // A TLS peer that never answers: notifications of blocks only make polls earlier.
        let tls = self.silent.local_addr().unwrap();
        let (token, solver) = (self.deployment.tokens[0].address, self.accounts[SOLVER].address());
        // Two endpoints, which happen to be one node.
        format!(
            r#"
environment = "test"
[database]
url = "env:SERVED_DATABASE"
max_connections = 24
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

    /// The configuration with other texts in place of some of it.
    pub fn configured(&self, pairs: &[(&str, String)]) -> String {
        replaced(&read(&self.path("dvp.toml")), pairs)
    }

    /// A command with the configuration of this name.
    pub fn dvp(&self, config: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--config").arg(self.path(config)).stdin(Stdio::null());
        command.env("SERVED_DATABASE", self.database.url());
        command.env("SERVED_NODE", self.anvil.rpc_url());
        command.env("SERVED_RELAYER", hex::encode(self.accounts[RELAYERS[0]].to_bytes()));
        // Neither a file nor a pipe is a terminal: nothing else keeps colours away.
        command.env_remove("NO_COLOR");
        command
    }

    pub fn ran(&self, words: &[&str]) -> Output {
        self.dvp("dvp.toml", words).output().unwrap()
    }

    /// Starts this program from now on.
    pub fn run(&mut self, binary: PathBuf) {
        self.binary = binary;
    }

    pub fn said(&self, words: &[&str]) -> Value {
        self.said_by("dvp.toml", words)
    }

    pub fn said_by(&self, config: &str, words: &[&str]) -> Value {
        let output = self.dvp(config, words).arg("--json").output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.contains(&0x1b), "colour codes in a pipe: {words:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The output of a command, successful or not.
    pub fn printed(&self, words: &[&str]) -> String {
        String::from_utf8(self.ran(words).stdout).unwrap()
    }

    pub fn did(&self, words: &[&str]) -> bool {
        self.ran(words).status.success()
    }

    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.ran(words);
        assert!(!output.status.success(), "{words:?} went well");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Creates the schema, a partner with a key, and the provider's inventory. Returns the key.
    pub fn furnish(&self) -> Value {
        self.said(&["migrate"]);
        self.said(&["partner", "create", "--name", "acme", "--tier", "enterprise", "--limit", "600000"]);
        let deposit = ["provider", "deposit", "--provider", "north", "--asset", "USD", "--id", "wire-1"];
        let deposit = [&deposit[..], &["--amount-minor", "100000000000"]].concat();
        assert_eq!(self.said(&deposit)["repeated"], false);
        assert_eq!(self.said(&deposit)["repeated"], true);
        self.said(&["key", "issue", "--partner", "acme", "--env", "test"])
    }

    pub async fn one<T>(&self, statement: &'static str) -> T
    where
        (T,): Selected,
    {
        let mut conn = PgConnection::connect(self.database.url()).await.unwrap();
        sqlx::query_as::<_, (T,)>(statement).fetch_one(&mut conn).await.unwrap().0
    }

    /// The fields of a sandbox's ready file.
    pub fn seen(
        &self,
        http: &str,
        keys: &Value,
        deployment: &Deployment,
        wallets: &[PrivateKeySigner],
    ) -> Value {
        let key = |key: &PrivateKeySigner| format!("0x{}", hex::encode(key.to_bytes()));
        json!({
            "http": http,
            "databaseUrl": self.database.url(),
            "partner": {"apiKey": keys["apiKey"], "signingSecret": keys["signingSecret"]},
            "chain": {
                "rpcUrl": self.anvil.rpc_url(), "chainId": deployment.chain_id, "name": "anvil",
                "contracts": {"permit": deployment.permit, "escrow": deployment.escrow},
                "tokens": [{"address": deployment.tokens[0].address}],
                "wallets": wallets.iter().map(|one| json!({"privateKey": key(one)})).collect::<Vec<_>>(),
            },
        })
    }

    /// The same with the wallet alone.
    pub fn seen_by_a_partner(&self, http: SocketAddr, keys: &Value) -> Value {
        self.seen(&format!("http://{http}"), keys, &self.deployment, std::slice::from_ref(&self.wallet))
    }

    pub fn serve(&self, roles: &str) -> ServedProcess {
        self.serve_over(roles, self.database.url())
    }

    /// The same over a database that is reached by another URL.
    pub fn serve_over(&self, roles: &str, database: &str) -> ServedProcess {
        let mut command = self.dvp("dvp.toml", &["serve", "--roles", roles]);
        command.env("SERVED_DATABASE", database);
        ServedProcess::start(command, self.path(&format!("{roles}.log")))
    }
}

fn plan(accounts: &[PrivateKeySigner], relayers: &[usize]) -> DeployPlan {
    let of = |parts: &[usize]| parts.iter().map(|part| accounts[*part].address()).collect();
    DeployPlan {
        tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
        solvers: of(&[SOLVER]),
        relayers: of(relayers),
        operators: of(&OPERATORS),
        ..DeployPlan::default()
    }
}

async fn contracts(anvil: &Anvil, accounts: &[PrivateKeySigner], relayers: &[usize]) -> Deployment {
    deploy(&anvil.rpc_url(), &accounts[ADMIN], &plan(accounts, relayers), None).await.unwrap()
}

/// What a remote signer signs for the contracts, as the documentation says.
pub fn policy_for(deployment: &Deployment) -> Policy {
    let functions = functions(deployment).map(|function| (function.contract, function.selector));
    Policy {
        chain_id: deployment.chain_id,
        functions: functions.into(),
        fee_cap_wei: 500_000_000_000,
        per_minute: 10_000,
    }
}

/// The text with these pieces, each of which it has, replaced.
pub fn replaced(text: &str, pairs: &[(&str, String)]) -> String {
    pairs.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "there is no {from:?} in\n{text}");
        text.replace(from, to)
    })
}

pub struct ServedProcess {
    child: Child,
    log: PathBuf,
}

/// A file; nothing while it is not there.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

impl ServedProcess {
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        let file = fs::File::create(&log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { child, log }
    }

    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Waits until it says that it is ready; where REST listens, when it does.
    pub async fn ready(&mut self) -> Option<SocketAddr> {
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
    pub fn address(&self, before: &str) -> Option<SocketAddr> {
        self.log().split_once(before)?.1.split([')', ' ', '\n']).next()?.parse().ok()
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success(), "kill {signal} {pid}");
    }

    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub async fn ended(&mut self) -> ExitStatus {
        answer(async || self.has_ended(), Option::is_some).await.unwrap()
    }

    pub async fn ended_well(mut self) {
        let (status, log) = (self.ended().await, self.log());
        assert!(status.success() && !log.contains("panicked"), "{status}\n{log}");
        assert!(log.contains(" INFO ") && !log.contains('\u{1b}'), "colour codes in a file:\n{log}");
    }
}

impl Drop for ServedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}", tail(&self.log(), LOG_LINES));
        }
    }
}
