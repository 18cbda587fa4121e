//! Orders on two chains and across them, in both directions, while one of the chains is frozen, halted, reorganized, out of
//! gas, or served by an endpoint that lies: meanwhile orders of the other chain are settled to their anchored receipts, in
//! the time that they take otherwise, afterwards those of the chain at fault are, too. What was seen of orders and faults
//! is judged by `chain_verdict`.

use std::time::{Duration, Instant};

use alloy::primitives::keccak256;
use dvp_sandbox::embedded::signals::signal;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::chain_verdict::{Effect, End, Order, Turn, breaches};
use super::endpoint::{Endpoint, Lie};
use super::partner::Partner;
use super::sandbox::{Sandbox, ran, said};
use super::wait::{PATIENCE, until};
use crate::figure::within;
use crate::rpc::{Rpc, number};

/// Straight through, and one whose conversion takes about two seconds.
pub const STRAIGHT: &str = "000123456789";
pub const SLOW: &str = "000123450006";
/// The relayer's account on both chains.
const RELAYER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const GAS: &str = "0x21e19e0c9bab2400000";
/// Wallets of each chain that order at a time, one for the order at fault, and one for orders across.
const WALLETS: usize = 4;
const AT_FAULT: usize = 4;
const ACROSS: usize = 5;
/// What the service logs of an endpoint that it does not believe.
const OBJECTIONS: [&str; 5] = [
    "endpoints disagree on a finalized block",
    "endpoints disagree on the events",
    "too few endpoints confirm",
    "switching to another endpoint",
    "indexer step failed",
];
/// How often a frozen chain's last block is waited for.
const SETTLING: usize = 6;
/// How often blocks are replaced at most: on a slow machine the service may not have read the first ones yet.
const FORKS: usize = 10;

/// The ready file of a sandbox with two chains, as a partner of one of them reads it.
pub struct OnChain {
    ready: Value,
    chain: usize,
}

impl AsRef<Value> for OnChain {
    fn as_ref(&self) -> &Value {
        &self.ready
    }
}

impl OnChain {
    pub fn of(sandbox: &Sandbox, chain: usize) -> Self {
        let mut ready = sandbox.as_ref().clone();
        ready["chain"] = ready["chains"][chain].clone();
        Self { ready, chain }
    }

    pub fn chain_id(&self) -> u64 {
        self.ready["chain"]["chainId"].as_u64().unwrap()
    }

    pub fn signal(&self, sandbox: &Sandbox, name: &str) {
        let place = if self.chain == 0 { "anvil/pid" } else { "anvil2/anvil/pid" };
        let pid = std::fs::read_to_string(sandbox.dir().join(place)).unwrap();
        signal(name, &[pid.trim().to_owned()]).unwrap();
    }

    /// Halts the chain as its indexer does, and waits until the service knows.
    pub async fn halt(&self, sandbox: &Sandbox) {
        let noticed = || sandbox.log().matches("chain halted: no order of its tokens is accepted").count();
        let before = noticed();
        let mut conn = sandbox.database().await;
        let halted = sqlx::query(
            "update chain_cursor set halted = 'final_block_changed', halted_detail = 'by the test', \
                    halted_at = now(), version = version + 1 where chain_id = $1",
        );
        let halted = halted.bind(i64::try_from(self.chain_id()).unwrap()).execute(&mut conn).await.unwrap();
        assert_eq!(halted.rows_affected(), 1);
        until("the notice of the halt", async || noticed() != before).await;
    }

    /// Follows it again from its newest block.
    pub async fn resume(&self, sandbox: &Sandbox) {
        let chain_id = i64::try_from(self.chain_id()).unwrap();
        let newest =
            sqlx::query_as("select head_number from chain_cursor where chain_id = $1").bind(chain_id);
        let (shared,): (i64,) = newest.fetch_one(&mut sandbox.database().await).await.unwrap();
        let (chain_id, shared) = (chain_id.to_string(), shared.to_string());
        said(
            sandbox,
            &["chain", "resume", "--chain-id", &chain_id, "--shared-block", &shared, "--reason", "drill"],
        );
    }

    /// Ledger, contracts and wallets of the chain agree, as soon as its node has answered for all of them.
    pub fn agrees(&self, sandbox: &Sandbox) {
        let name = self.ready["chain"]["name"].as_str().unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let compared = ran(sandbox, &["reconcile", "--chain", name]);
            if compared.status.success() {
                return;
            }
            assert!(Instant::now() < until, "{name}: {compared:?}");
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Frozen,
    Halted,
    /// A few blocks are replaced by empty ones, above the depth at which events are reported.
    Reorganized,
    OutOfGas,
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
            Self::Reorganized => fork(chain).await,
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

async fn fork(chain: &OnChain) {
    rpc(chain, "anvil_reorg", json!([3, []])).await;
}

pub async fn rpc(chain: &OnChain, method: &str, params: Value) -> Value {
    Rpc::new(chain.ready["chain"]["rpcUrl"].as_str().unwrap()).one(method, params).await.unwrap()
}

/// What an account has of a chain's first token.
pub async fn token_balance(chain: &OnChain, owner: &str) -> u128 {
    let call = format!("0x70a08231{:0>64}", owner.trim_start_matches("0x").to_lowercase());
    let to = chain.as_ref()["chain"]["tokens"][0]["address"].clone();
    let held = rpc(chain, "eth_call", json!([{"to": to, "data": call}, "latest"])).await;
    u128::from_str_radix(held.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

#[derive(Debug, Clone, Copy)]
pub struct IsolationScale {
    pub faults: usize,
    /// Of each wallet during each fault.
    pub orders: usize,
    /// The longest median time of the other chain's orders during a fault, in hundredths of that without one.
    pub percent_max: u128,
}

struct Drill {
    sandbox: Sandbox,
    endpoint: Endpoint,
    chains: [OnChain; 2],
    partners: [Partner; 2],
    /// The accepted orders' references: those that a rail pays, and those across the chains with what their receipts
    /// say and their recipients received.
    to_rail: Vec<String>,
    across: Vec<(String, (u128, u128))>,
}

pub async fn run(seed: u64, scale: IsolationScale) -> String {
    let endpoint = Endpoint::start().await;
    let sandbox = Sandbox::start_with(&["--chains", "2", "--chain-endpoint", &endpoint.url()]).await;
    endpoint.follow(&sandbox);
    let chains = [0, 1].map(|chain| OnChain::of(&sandbox, chain));
    let partners = [0, 1].map(|chain: usize| Partner::of(&chains[chain]));
    let mut drill = Drill { sandbox, endpoint, chains, partners, to_rail: Vec::new(), across: Vec::new() };
    // The first ones make connections; two windows without a fault show the noise.
    drill.settled(0, 1).await;
    drill.settled(1, 1).await;
    let IsolationScale { faults, orders, percent_max } = scale;
    let mut usual = Vec::new();
    let mut lines = Vec::new();
    for chain in [0, 1] {
        let (first, second) = (drill.settled(chain, orders).await, drill.settled(chain, orders).await);
        lines.push(format!("chain {chain}: {first} and {second} without a fault"));
        usual.push(first.median.max(second.median));
    }
    let seed = usize::try_from(seed).unwrap_or_default();
    let mut turns = Vec::new();
    for turn in 0..faults {
        let fault = FAULTS[(seed + turn) % FAULTS.len()];
        let victim = fault.victim((seed + turn / FAULTS.len()) % 2);
        let other = 1 - victim;
        let (settled, effect) = drill.turn(fault, victim, orders).await;
        let fault = format!("{fault:?} on chain {victim}");
        let turn = Turn { fault, effect, usual: usual[other], during: settled.median };
        let (percent, Turn { fault, effect, .. }) = (turn.percent(), &turn);
        lines.push(format!(
            "{fault}, {effect:?}: {settled} on chain {other}, {percent} % of its usual median"
        ));
        turns.push(turn);
    }
    let observed = drill.observed().await;
    let found = breaches(&observed, &turns, percent_max);
    let summary = lines.join("\n");
    assert!(found.is_empty(), "{}\n{summary}", found.join("\n"));
    for chain in &drill.chains {
        chain.agrees(&drill.sandbox);
    }
    let Drill { sandbox, to_rail, across, .. } = drill;
    sandbox.stop().await;
    format!("{summary}\n{} orders to a rail, {} across, {faults} faults", to_rail.len(), across.len())
}

struct Crossing {
    reference: String,
    recipient: String,
    /// What the recipient had before.
    held: u128,
}

/// What is counted before and during a fault.
struct Counts {
    /// The head that the service has followed to.
    head: i64,
    taken_back: i64,
    told: u64,
    objections: usize,
    /// Transactions of the relayer's account on the chain that is out of gas.
    sent: u64,
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
            let mut done = Vec::new();
            for _ in 0..orders {
                let began = Instant::now();
                let reference = submit(on, partner, wallet, STRAIGHT).await;
                completed(on, partner, &reference).await;
                done.push((reference, began.elapsed()));
            }
            done
        };
        let done = join_all((0..WALLETS).map(of_wallet)).await;
        let (references, mut times): (Vec<String>, Vec<Duration>) = done.into_iter().flatten().unzip();
        times.sort_unstable();
        self.to_rail.extend(references);
        Settled { median: within(&times, 50), longest: within(&times, 100), count: times.len() }
    }

    /// A fault on a chain, with an order of it and orders across in both directions under way. Returns the times of the
    /// other chain's orders, and what was seen of the fault.
    async fn turn(&mut self, fault: Fault, victim: usize, orders: usize) -> (Settled, Effect) {
        let other = 1 - victim;
        let at_fault = submit(&self.chains[victim], &self.partners[victim], AT_FAULT, SLOW).await;
        let mut crossing = Vec::new();
        for from in [victim, other] {
            crossing.push((from, self.submit_across(from).await));
        }
        let before = self.counts(fault, victim).await;
        fault.begin(&self.sandbox, &self.chains[victim], &self.endpoint).await;
        self.shown(fault, victim, &before).await;
        let begun = self.counts(fault, victim).await;
        let settled = self.settled(other, orders).await;
        let effect = self.effect(fault, victim, &before, &begun).await;
        fault.end(&self.sandbox, &self.chains[victim], &self.endpoint).await;
        completed(&self.chains[victim], &self.partners[victim], &at_fault).await;
        self.to_rail.push(at_fault);
        for (from, Crossing { reference, recipient, held }) in crossing {
            completed(&self.chains[from], &self.partners[from], &reference).await;
            let path = format!("/v1/executions/{reference}/receipt");
            let (_, receipt) = self.partners[from].get(&path).await;
            let stated: u128 = receipt["payout"]["amountMinor"].as_str().unwrap().parse().unwrap();
            let received = token_balance(&self.chains[1 - from], &recipient).await - held;
            self.across.push((reference, (stated, received)));
        }
        (settled, effect)
    }

    async fn submit_across(&self, from: usize) -> Crossing {
        let (chain, to) = (&self.chains[from], &self.chains[1 - from]);
        let mut order = self.partners[from].order(chain, ACROSS, STRAIGHT).await;
        order["outputAsset"] = json!({"type": "erc20", "symbol": "USDC", "chain": to.ready["chain"]["name"]});
        // Nobody else's token moves to or from this account.
        let recipient = format!("0x{}", &hex::encode(keccak256(order["intentId"].to_string()))[..40]);
        order["outputRecipient"] = recipient.clone().into();
        let held = token_balance(to, &recipient).await;
        self.partners[from].submit_accepted(&order).await;
        Crossing { reference: order["clientReference"].as_str().unwrap().to_owned(), recipient, held }
    }

    async fn count(&self, sql: &'static str, victim: usize) -> i64 {
        let chain_id = i64::try_from(self.chains[victim].chain_id()).unwrap();
        let counted = sqlx::query_scalar(sql).bind(chain_id);
        counted.fetch_one(&mut self.sandbox.database().await).await.unwrap()
    }

    async fn followed(&self, victim: usize) -> i64 {
        self.count("select head_number from chain_cursor where chain_id = $1", victim).await
    }

    async fn taken_back(&self, victim: usize) -> i64 {
        self.count("select count(*) from chain_block where chain_id = $1 and not canonical", victim).await
    }

    async fn counts(&self, fault: Fault, victim: usize) -> Counts {
        let log = self.sandbox.log();
        Counts {
            head: self.followed(victim).await,
            taken_back: self.taken_back(victim).await,
            told: self.endpoint.told(),
            objections: OBJECTIONS.iter().map(|objection| log.matches(objection).count()).sum(),
            sent: if let Fault::OutOfGas = fault { self.sent(victim).await } else { 0 },
        }
    }

    /// Waits until a fault shows.
    async fn shown(&self, fault: Fault, victim: usize, before: &Counts) {
        match fault {
            Fault::Frozen => {
                // A block that was read before may still be written.
                let mut head = self.followed(victim).await;
                for _ in 0..SETTLING {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    let now = self.followed(victim).await;
                    if now == head {
                        break;
                    }
                    head = now;
                }
            }
            Fault::Reorganized => {
                for _ in 0..FORKS {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    if self.taken_back(victim).await > before.taken_back {
                        break;
                    }
                    fork(&self.chains[victim]).await;
                }
            }
            Fault::Halted | Fault::OutOfGas | Fault::Lying(_) => {}
        }
    }

    async fn sent(&self, victim: usize) -> u64 {
        let count = json!([RELAYER, "latest"]);
        number(&rpc(&self.chains[victim], "eth_getTransactionCount", count).await).unwrap()
    }

    /// What is seen of a fault before it ends.
    async fn effect(&self, fault: Fault, victim: usize, before: &Counts, begun: &Counts) -> Effect {
        let now = self.counts(fault, victim).await;
        match fault {
            Fault::Frozen => Effect::Frozen { followed: now.head - begun.head },
            Fault::Halted => {
                let order = self.partners[victim].order(&self.chains[victim], 0, STRAIGHT).await;
                let (status, answer) = self.partners[victim].submit(&order).await;
                let reason = answer["reason"].as_str().map(str::to_owned);
                Effect::Halted { answer: reason.unwrap_or_else(|| format!("{status}")) }
            }
            Fault::Reorganized => Effect::Reorganized { taken_back: now.taken_back - before.taken_back },
            Fault::OutOfGas => {
                let waiting = "select count(*) from chain_command \
                               where chain_id = $1 and state in ('pending', 'sent')";
                let waiting = self.count(waiting, victim).await;
                Effect::OutOfGas { mined: now.sent - begun.sent, waiting }
            }
            Fault::Lying(_) => Effect::Lying {
                told: now.told - before.told,
                believed: self.believed(victim).await,
                objections: now.objections - before.objections,
            },
        }
    }

    /// Blocks of the service that the chain's own node does not have.
    async fn believed(&self, victim: usize) -> i64 {
        let chain_id = i64::try_from(self.chains[victim].chain_id()).unwrap();
        let newest: Vec<(i64, String)> = sqlx::query_as(
            "select number, '0x' || encode(hash, 'hex') from chain_block where chain_id = $1 and canonical \
             order by number desc limit 64",
        )
        .bind(chain_id)
        .fetch_all(&mut self.sandbox.database().await)
        .await
        .unwrap();
        let mut false_ones = 0;
        for (number, hash) in newest {
            let params = json!([format!("{number:#x}"), false]);
            let block = rpc(&self.chains[victim], "eth_getBlockByNumber", params).await;
            false_ones += i64::from(block["hash"] != hash.as_str());
        }
        false_ones
    }

    async fn observed(&self) -> Vec<Order> {
        let rows = "select e.client_reference, e.state_name, \
                    exists (select from receipt r where r.reference = e.reference), \
                    exists (select from reconciliation_break b where b.reference = e.reference), \
                    coalesce((select sum(executed) from simulated_rail r \
                              where r.leg = 'payout' and r.reference \
                              = encode(sha256(convert_to(e.reference || ':payout', 'UTF8')), 'hex')), 0)::int8 \
                    + (select count(*) from chain_log l \
                       where l.event = 'Paid' and l.canonical and l.entity = e.entity) \
             from execution e where e.client_reference is not null";
        let rows: Vec<(String, String, bool, bool, i64)> = self.sandbox.rows(rows).await;
        let of = |reference: &String, received: Option<(u128, u128)>| {
            let row = rows.iter().find(|row| row.0 == *reference);
            let end = row.map(|(_, state, has_receipt, is_break, _)| match state.as_str() {
                "completed" if *has_receipt => End::Completed,
                "failed" => End::Failed,
                _ if *is_break => End::Paged,
                _ => End::Open,
            });
            Order { reference: reference.clone(), end, payments: row.map_or(0, |row| row.4), received }
        };
        let across = self.across.iter().map(|(reference, amounts)| of(reference, Some(*amounts)));
        self.to_rail.iter().map(|reference| of(reference, None)).chain(across).collect()
    }
}

async fn submit(chain: &OnChain, partner: &Partner, wallet: usize, account: &str) -> String {
    let order = partner.order(chain, wallet, account).await;
    partner.submit_accepted(&order).await;
    order["clientReference"].as_str().unwrap().to_owned()
}

/// Waits for the order's anchored receipt on its chain.
pub async fn completed(chain: &OnChain, partner: &Partner, reference: &str) {
    let execution = partner.wait_until(reference, |e| !e["finality"].is_null()).await;
    assert_eq!(execution["status"], "completed");
    assert_eq!(execution["finality"]["chainId"], chain.chain_id(), "{execution}");
}
