//! Orders on two chains and across them while one of the chains is frozen, halted, reorganized, out of gas, or served by
//! an endpoint that lies: meanwhile orders of the other chain are settled to their anchored receipts, in the time that
//! they take otherwise, afterwards those of the chain at fault are, too, and each is paid once.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use serde_json::{Value, json};

use crate::alert_faults::{Endpoint, Lie};
use crate::partner::Partner;
use crate::sandbox::{Sandbox, program};

/// Straight through, and one whose conversion takes about two seconds.
pub(crate) const STRAIGHT: &str = "000123456789";
pub(crate) const SLOW: &str = "000123450006";
/// The relayer's account on both chains.
const RELAYER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const GAS: &str = "0x21e19e0c9bab2400000";
/// Wallets of each chain that order at a time, one for the order at fault, and one for orders across.
const WALLETS: usize = 4;
const AT_FAULT: usize = 4;
const ACROSS: usize = 5;

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
    /// One of its two endpoints lies.
    Lying(Lie),
}

const FAULTS: [Fault; 7] = [
    Fault::Frozen,
    Fault::Lying(Lie::OtherBlocks),
    Fault::Halted,
    Fault::OutOfGas,
    Fault::Reorganized,
    Fault::Lying(Lie::FarHead),
    Fault::Lying(Lie::NoEvents),
];

impl Fault {
    /// The chain that it befalls: events of the home chain are reported one block deep, so that no fork of it is above
    /// that depth, and only the home chain has a second endpoint.
    const fn victim(self, wanted: usize) -> usize {
        match self {
            Self::Reorganized => 1,
            Self::Lying(_) => 0,
            Self::Frozen | Self::Halted | Self::OutOfGas => wanted,
        }
    }

    async fn begin(self, sandbox: &Sandbox, chain: &OnChain, endpoint: &Endpoint) {
        match self {
            Self::Lying(lie) => endpoint.lie(Some(lie)),
            Self::Frozen => chain.signal(sandbox, "-STOP"),
            Self::Halted => chain.halt(sandbox).await,
            Self::Reorganized => drop(rpc(chain, "anvil_reorg", json!([3, []])).await),
            Self::OutOfGas => drop(rpc(chain, "anvil_setBalance", json!([RELAYER, "0x0"])).await),
        }
    }

    async fn end(self, sandbox: &Sandbox, chain: &OnChain, endpoint: &Endpoint) {
        match self {
            Self::Lying(_) => endpoint.lie(None),
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

/// What an account has of a chain's first token.
pub(crate) async fn token_balance(chain: &OnChain, owner: &str) -> u128 {
    let call = format!("0x70a08231{:0>64}", owner.trim_start_matches("0x").to_lowercase());
    let to = chain.as_ref()["chain"]["tokens"][0]["address"].clone();
    let held = rpc(chain, "eth_call", json!([{"to": to, "data": call}, "latest"])).await;
    u128::from_str_radix(held.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// A run's outcome.
pub(crate) struct Isolation {
    pub(crate) summary: String,
    /// The longest median time of the other chain's orders during a fault, in hundredths of that without one.
    pub(crate) worst: u128,
}

struct Drill {
    sandbox: Sandbox,
    endpoint: Endpoint,
    chains: [OnChain; 2],
    partners: [Partner; 2],
    /// Orders that a rail pays, and orders across the chains.
    paid_by_rail: i64,
    paid_across: i64,
}

/// Runs a seed with this many faults, and as many orders of each wallet during each. Panics when a promise is broken.
pub(crate) async fn run(seed: u64, faults: usize, orders: usize) -> Isolation {
    let endpoint = Endpoint::start().await;
    let sandbox = Sandbox::start_with(&["--chains", "2", "--chain-endpoint", &endpoint.url()]).await;
    endpoint.follow(&sandbox);
    let chains = [0, 1].map(|chain| OnChain::of(&sandbox, chain));
    let partners = [0, 1].map(|chain: usize| Partner::of(&chains[chain]));
    let mut drill = Drill { sandbox, endpoint, chains, partners, paid_by_rail: 0, paid_across: 0 };
    // The first ones make connections; two windows without a fault show the noise.
    drill.settled(0, 1).await;
    drill.settled(1, 1).await;
    let mut usual = Vec::new();
    let mut lines = Vec::new();
    for chain in [0, 1] {
        let (first, second) = (drill.settled(chain, orders).await, drill.settled(chain, orders).await);
        lines.push(format!("chain {chain}: {first} and {second} without a fault"));
        usual.push(first.median.max(second.median));
    }
    let seed = usize::try_from(seed).unwrap_or_default();
    let mut worst = 0;
    for turn in 0..faults {
        let fault = FAULTS[(seed + turn) % FAULTS.len()];
        let victim = fault.victim((seed + turn / FAULTS.len()) % 2);
        let other = 1 - victim;
        let settled = drill.turn(fault, victim, orders).await;
        let ratio = settled.median.as_millis() * 100 / usual[other].as_millis().max(1);
        lines.push(format!(
            "{fault:?} on chain {victim}: {settled} on chain {other}, {ratio} % of its usual median"
        ));
        worst = worst.max(ratio);
    }
    drill.check_books().await;
    let Drill { sandbox, paid_by_rail, paid_across, .. } = drill;
    sandbox.stop().await;
    lines.push(format!("{paid_by_rail} orders to a rail, {paid_across} across, {faults} faults"));
    Isolation { summary: lines.join("\n"), worst }
}

/// How long orders took to their anchored receipts.
struct Settled {
    median: Duration,
    longest: Duration,
    count: usize,
}

impl std::fmt::Display for Settled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { median, longest, count } = self;
        write!(f, "{count} orders in {:.2} s (median), {:.2} s", median.as_secs_f64(), longest.as_secs_f64())
    }
}

impl Drill {
    /// So many orders of each wallet of a chain, one after the other, the wallets side by side.
    async fn settled(&mut self, chain: usize, orders: usize) -> Settled {
        let (on, partner) = (&self.chains[chain], &self.partners[chain]);
        let of_wallet = async |wallet: usize| {
            let mut times = Vec::new();
            for _ in 0..orders {
                let began = Instant::now();
                let reference = submit(on, partner, wallet, STRAIGHT).await;
                completed(on, partner, &reference).await;
                times.push(began.elapsed());
            }
            times
        };
        let times = join_all((0..WALLETS).map(of_wallet)).await;
        let mut times: Vec<Duration> = times.into_iter().flatten().collect();
        times.sort_unstable();
        self.paid_by_rail += i64::try_from(times.len()).unwrap();
        Settled { median: times[times.len() / 2], longest: times[times.len() - 1], count: times.len() }
    }

    /// A fault on a chain, with an order of it and one across under way. Returns the times of the other chain's orders.
    async fn turn(&mut self, fault: Fault, victim: usize, orders: usize) -> Settled {
        let other = 1 - victim;
        let at_fault = submit(&self.chains[victim], &self.partners[victim], AT_FAULT, SLOW).await;
        let mut across = self.partners[other].order(&self.chains[other], ACROSS, STRAIGHT).await;
        let name = self.chains[victim].ready["chain"]["name"].clone();
        across["outputAsset"] = json!({"type": "erc20", "symbol": "USDC", "chain": name});
        across["outputRecipient"] = across["user"].clone();
        let recipient = across["user"].as_str().unwrap().to_owned();
        let before = token_balance(&self.chains[victim], &recipient).await;
        self.partners[other].submit_accepted(&across).await;
        let crossing = across["clientReference"].as_str().unwrap();

        fault.begin(&self.sandbox, &self.chains[victim], &self.endpoint).await;
        let settled = self.settled(other, orders).await;
        fault.end(&self.sandbox, &self.chains[victim], &self.endpoint).await;
        completed(&self.chains[victim], &self.partners[victim], &at_fault).await;
        completed(&self.chains[other], &self.partners[other], crossing).await;
        let (_, receipt) = self.partners[other].get(&format!("/v1/executions/{crossing}/receipt")).await;
        let paid: u128 = receipt["payout"]["amountMinor"].as_str().unwrap().parse().unwrap();
        let received = token_balance(&self.chains[victim], &recipient).await - before;
        assert_eq!(received, paid, "{fault:?}: {receipt}");
        self.paid_by_rail += 1;
        self.paid_across += 1;
        settled
    }

    /// Each order is paid once, and ledger, contracts and wallets agree.
    async fn check_books(&self) {
        let (paid, executed, transfers): (i64, i64, i64) = sqlx::query_as(
            "select count(*), sum(executed)::int8, \
                    (select count(*) from chain_log where event = 'Paid' and canonical) \
             from simulated_rail where leg = 'payout'",
        )
        .fetch_one(&mut self.sandbox.database().await)
        .await
        .unwrap();
        let expected = (self.paid_by_rail, self.paid_by_rail, self.paid_across);
        assert_eq!((paid, executed, transfers), expected, "each order is paid once");
        for chain in &self.chains {
            chain.agrees(&self.sandbox);
        }
    }
}

async fn submit(chain: &OnChain, partner: &Partner, wallet: usize, account: &str) -> String {
    let order = partner.order(chain, wallet, account).await;
    partner.submit_accepted(&order).await;
    order["clientReference"].as_str().unwrap().to_owned()
}

/// Waits for the order's anchored receipt on its chain.
pub(crate) async fn completed(chain: &OnChain, partner: &Partner, reference: &str) {
    let execution = partner.wait_until(reference, |e| !e["finality"].is_null()).await;
    assert_eq!(execution["status"], "completed");
    assert_eq!(execution["finality"]["chainId"], chain.chain_id(), "{execution}");
}
