//! Orders of two chains while one of the chains is frozen, halted, reorganized or out of gas: meanwhile an order of the
//! other chain is settled to its anchored receipt, afterwards the order of the chain at fault is, too, and each is paid
//! once.

use std::process::Command;
use std::time::{Duration, Instant};

use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use serde_json::{Value, json};

use crate::partner::Partner;
use crate::sandbox::{Sandbox, program};

/// Straight through, and one whose conversion takes about two seconds.
pub(crate) const STRAIGHT: &str = "000123456789";
pub(crate) const SLOW: &str = "000123450006";
/// The relayer's account on both chains.
const RELAYER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const GAS: &str = "0x21e19e0c9bab2400000";
/// Wallets of each chain, which order in turn.
const WALLETS: usize = 6;

/// The ready file of a sandbox with two chains, as a partner of one of them reads it.
pub(crate) struct OnChain {
    ready: Value,
    chain: usize,
}

impl AsRef<Value> for OnChain {
    fn as_ref(&self) -> &Value {
        &self.ready
    }
}

impl OnChain {
    pub(crate) fn of(sandbox: &Sandbox, chain: usize) -> Self {
        let mut ready = sandbox.as_ref().clone();
        ready["chain"] = ready["chains"][chain].clone();
        Self { ready, chain }
    }

    pub(crate) fn chain_id(&self) -> u64 {
        self.ready["chain"]["chainId"].as_u64().unwrap()
    }

    fn node(&self) -> DynProvider {
        let url = self.ready["chain"]["rpcUrl"].as_str().unwrap().parse().unwrap();
        ProviderBuilder::new().connect_http(url).erased()
    }

    /// Sends a signal to the chain's node.
    pub(crate) fn signal(&self, sandbox: &Sandbox, signal: &str) {
        let place = if self.chain == 0 { "anvil/pid" } else { "anvil2/anvil/pid" };
        let pid = std::fs::read_to_string(sandbox.dir().join(place)).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    }

    /// Halts the chain as its indexer does, and waits until the service knows.
    pub(crate) async fn halt(&self, sandbox: &Sandbox) {
        let noticed = || sandbox.log().matches("chain halted: no order of its tokens is accepted").count();
        let before = noticed();
        let mut conn = sandbox.database().await;
        let halted = sqlx::query(
            "update chain_cursor set halted = 'final_block_changed', halted_detail = 'by the test', \
                    halted_at = now(), version = version + 1 where chain_id = $1",
        );
        let halted = halted.bind(i64::try_from(self.chain_id()).unwrap()).execute(&mut conn).await.unwrap();
        assert_eq!(halted.rows_affected(), 1);
        let deadline = Instant::now() + Duration::from_secs(30);
        while noticed() == before {
            assert!(Instant::now() < deadline, "the halt is not noticed");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Follows it again from its newest block.
    pub(crate) async fn resume(&self, sandbox: &Sandbox) {
        let chain_id = i64::try_from(self.chain_id()).unwrap();
        let newest =
            sqlx::query_as("select head_number from chain_cursor where chain_id = $1").bind(chain_id);
        let (shared,): (i64,) = newest.fetch_one(&mut sandbox.database().await).await.unwrap();
        let (chain_id, shared) = (chain_id.to_string(), shared.to_string());
        let words = ["chain", "resume", "--chain-id", &chain_id, "--shared-block", &shared, "--dir"];
        let resumed = Command::new(program()).args(words).arg(sandbox.dir()).output().unwrap();
        assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    }

    /// Ledger, contracts and wallets of the chain agree.
    pub(crate) fn agrees(&self, sandbox: &Sandbox) {
        let name = self.ready["chain"]["name"].as_str().unwrap();
        let compared =
            Command::new(program()).args(["reconcile", "--chain", name, "--dir"]).arg(sandbox.dir()).output();
        let compared = compared.unwrap();
        assert!(compared.status.success(), "{name}: {}", String::from_utf8_lossy(&compared.stdout));
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Frozen,
    Halted,
    /// A few blocks are replaced by empty ones, above the depth at which events are reported.
    Reorganized,
    OutOfGas,
}

const FAULTS: [Fault; 4] = [Fault::Frozen, Fault::Halted, Fault::OutOfGas, Fault::Reorganized];

impl Fault {
    async fn begin(self, sandbox: &Sandbox, chain: &OnChain) {
        match self {
            Self::Frozen => chain.signal(sandbox, "-STOP"),
            Self::Halted => chain.halt(sandbox).await,
            Self::Reorganized => drop(rpc(chain, "anvil_reorg", json!([3, []])).await),
            Self::OutOfGas => drop(rpc(chain, "anvil_setBalance", json!([RELAYER, "0x0"])).await),
        }
    }

    async fn end(self, sandbox: &Sandbox, chain: &OnChain) {
        match self {
            Self::Frozen => chain.signal(sandbox, "-CONT"),
            Self::Halted => chain.resume(sandbox).await,
            Self::Reorganized => {}
            Self::OutOfGas => drop(rpc(chain, "anvil_setBalance", json!([RELAYER, GAS])).await),
        }
    }
}

pub(crate) async fn rpc(chain: &OnChain, method: &'static str, params: Value) -> Value {
    chain.node().raw_request(method.into(), params).await.unwrap()
}

/// Runs a seed with this many faults, and panics when a promise is broken. Returns a summary.
pub(crate) async fn run(seed: u64, faults: usize) -> String {
    let sandbox = Sandbox::start_with(&["--chains", "2"]).await;
    let chains = [0, 1].map(|chain| OnChain::of(&sandbox, chain));
    let partners = [0, 1].map(|chain: usize| Partner::of(&chains[chain]));
    let seed = usize::try_from(seed).unwrap_or_default();
    let mut orders = 0;
    for turn in 0..faults {
        let fault = FAULTS[(seed + turn) % FAULTS.len()];
        // Events of the home chain are reported one block deep: no fork is above that depth.
        let victim = if matches!(fault, Fault::Reorganized) { 1 } else { (seed + turn / FAULTS.len()) % 2 };
        let other = 1 - victim;
        let at_fault = submit(&chains[victim], &partners[victim], turn, SLOW).await;
        fault.begin(&sandbox, &chains[victim]).await;
        let meanwhile = submit(&chains[other], &partners[other], turn, STRAIGHT).await;
        completed(&chains[other], &partners[other], &meanwhile).await;
        fault.end(&sandbox, &chains[victim]).await;
        completed(&chains[victim], &partners[victim], &at_fault).await;
        orders += 2;
    }
    let (paid, executed): (i64, i64) =
        sqlx::query_as("select count(*), sum(executed)::int8 from simulated_rail where leg = 'payout'")
            .fetch_one(&mut sandbox.database().await)
            .await
            .unwrap();
    assert_eq!((paid, executed), (orders, orders), "each order is paid once");
    for chain in &chains {
        chain.agrees(&sandbox);
    }
    sandbox.stop().await;
    format!("{orders} orders, {faults} faults")
}

async fn submit(chain: &OnChain, partner: &Partner, turn: usize, account: &str) -> String {
    let order = partner.order(chain, turn % WALLETS, account).await;
    partner.submit_accepted(&order).await;
    order["clientReference"].as_str().unwrap().to_owned()
}

/// Waits for the order's anchored receipt on its chain.
pub(crate) async fn completed(chain: &OnChain, partner: &Partner, reference: &str) {
    let execution = partner.wait_until(reference, |e| !e["finality"].is_null()).await;
    assert_eq!(execution["status"], "completed");
    assert_eq!(execution["finality"]["chainId"], chain.chain_id(), "{execution}");
}
