//! A service on a profile's node, and its orders.

#![expect(clippy::unwrap_used, reason = "a scene that cannot go on has failed; the profile is reported")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::{Deployment, TokenSpec, fund_gas};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::Outcome;
use crate::crash::rest::fiat_order;
use crate::dice::Dice;
use crate::progress;
use crate::rpc::Rpc;
use crate::scenes::endpoint::Endpoint;
use crate::scenes::manners::Manners;
use crate::scenes::partner::Partner;
use crate::scenes::profile::{HashForm, Profile};
use crate::scenes::served::{Ground, ServedProcess};

/// What a run says of its progress: each of `run`'s phases.
pub(super) const STEPS: u32 = 6;
/// Wallets of the burst; each phase has a wallet for each of its orders.
const BURST: usize = 20;
const WALLETS: usize = 48;
const INVENTORY: u64 = 100_000_000_000;
/// How long an order may take to its end, and the receipts of all to their finality.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
/// How long the books may take to agree with the chain.
const AGREED_WITHIN: Duration = Duration::from_secs(120);
/// How long the door may refuse an order for now.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// How long an endpoint stands still: longer than a call may take.
const STILL_FOR: Duration = Duration::from_secs(12);
const DEAR_WEI: u64 = 150_000_000_000;

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Tokens for money, to an account and the status in which its order ends.
    Money(&'static str, &'static str),
    /// Tokens for other tokens.
    Tokens,
    /// Money for tokens.
    FromMoney,
}

const EVERY_KIND: [Kind; 6] = [
    STRAIGHT,
    Kind::Money("000123450002", "failed"),
    Kind::Money("000123450003", "failed"),
    Kind::Money("000123450006", "completed"),
    Kind::Tokens,
    Kind::FromMoney,
];
const STRAIGHT: Kind = Kind::Money("000123456789", "completed");

impl Kind {
    const fn ends(self) -> &'static str {
        match self {
            Self::Money(_, status) => status,
            Self::Tokens | Self::FromMoney => "completed",
        }
    }
}

struct Scene {
    ground: Ground,
    node: Rpc,
    endpoints: [Endpoint; 2],
    deployment: Deployment,
    seen: Box<Value>,
    partner: Partner,
    service: ServedProcess,
    next_wallet: usize,
    accepted: Vec<(String, Kind)>,
    /// How many of them there were at the reorganization.
    before_fork: usize,
    outcome: Outcome,
}

pub(super) async fn run(
    profile: Profile,
    seed: u64,
    (binary, stand_in): (PathBuf, Option<PathBuf>),
    dir: &Path,
) -> Outcome {
    let mut dice = Dice::new(seed);
    let (depth, final_lag) = (profile.reorg_depth, profile.final_lag.unwrap_or_default());
    let name = profile.name;
    let step = |what: &str| progress::done(format!("{name}: {what}"));
    let told = told_by_doctor(&profile, if stand_in.is_some() { "edr" } else { "anvil" });
    let ground = Ground::on(stand_in, binary, dir).await;
    let mut scene = Scene::prepare(profile, seed, ground).await;
    scene.is_told(&told);
    // What a reorganization must not take with it: contracts, wallets, approvals.
    scene.mine(depth + 4).await;
    step("contracts deployed");
    scene.submit(&EVERY_KIND).await;
    scene.all_end().await;
    step("orders of every kind");
    let mut burst = vec![STRAIGHT; BURST - EVERY_KIND.len()];
    burst.extend(EVERY_KIND);
    dice.shuffle(&mut burst);
    scene.submit(&burst).await;
    tokio::time::sleep(dice.millis(3_000)).await;
    step("burst");
    if depth > 0 {
        scene.before_fork = scene.accepted.len();
        scene.call("anvil_reorg", json!([depth, []])).await;
        step("reorganization");
    } else {
        step("no reorganization: its blocks are final at once");
    }
    scene.all_end().await;
    scene.call("anvil_setNextBlockBaseFeePerGas", json!([format!("{DEAR_WEI:#x}")])).await;
    scene.submit(&[STRAIGHT, STRAIGHT, Kind::Tokens, Kind::FromMoney]).await;
    scene.all_end().await;
    step("dear gas");
    scene.endpoints[0].stand_still(true);
    scene.submit(&[STRAIGHT, Kind::Tokens]).await;
    tokio::time::sleep(STILL_FOR).await;
    scene.endpoints[0].stand_still(false);
    scene.all_end().await;
    scene.all_final(final_lag).await;
    step("an endpoint that stands still");
    scene.judged(final_lag).await
}

impl Scene {
    async fn prepare(profile: Profile, seed: u64, ground: Ground) -> Self {
        let url = ground.anvil.rpc_url();
        let settings = profile.settings.clone();
        let endpoints =
            [Endpoint::like(Manners::of(profile.clone())).await, Endpoint::like(Manners::of(profile)).await];
        endpoints.iter().for_each(|endpoint| endpoint.lead_to(&url));
        let tokens = [("USDC", "USD Coin"), ("USDT", "Tether USD")].map(|(symbol, name)| TokenSpec {
            symbol: symbol.into(),
            name: name.into(),
            decimals: 6,
        });
        let first = ground.deployment.tokens[0].address.to_string();
        let deployment = ground.deploy_over(&endpoints[0].url(), tokens, INVENTORY).await;
        let wallet = |n: usize| PrivateKeySigner::from_bytes(&keccak256(format!("{seed}/{n}")));
        let wallets: Vec<PrivateKeySigner> = (0..WALLETS).map(wallet).collect::<Result<_, _>>().unwrap();
        let addresses: Vec<Address> = wallets.iter().map(PrivateKeySigner::address).collect();
        fund_gas(&url, &addresses, "1000000000000000000000".parse().unwrap()).await.unwrap();
        ground.fund(&deployment, &wallets, 1_000_000_000).await;
        let [usdc, usdt] = [0, 1].map(|n| deployment.tokens[n].address.to_string());
        let urls = format!("rpc_urls = [\"{}\", \"{}\"]", endpoints[0].url(), endpoints[1].url());
        let config = ground.configured(&[
            (&format!("rpc_urls = [\"{url}\", \"env:SERVED_NODE\"]"), urls),
            ("poll_interval = \"200ms\"", format!("poll_interval = \"200ms\"\n{settings}")),
            (&first, usdc),
        ]);
        ground.write("dvp.toml", &format!("{config}{}", more_of_the_market(&usdt)));
        let keys = ground.furnish();
        let inventory = INVENTORY.to_string();
        for (owner, asset) in [
            (["provider", "deposit", "--provider", "north"], "USDC"),
            (["provider", "deposit", "--provider", "north"], "USDT"),
            (["partner", "deposit", "--name", "acme"], "USD"),
        ] {
            let id = format!("opening-{asset}");
            let deposit = ["--asset", asset, "--amount-minor", &inventory, "--id", &id];
            ground.said(&[&owner[..], &deposit].concat());
        }
        let mut service = ground.serve("api,indexer,worker");
        let http = service.ready().await.unwrap();
        let seen = Box::new(ground.seen(&format!("http://{http}"), &keys, &deployment, &wallets));
        Self {
            node: Rpc::new(&url),
            partner: Partner::of(&seen),
            ground,
            endpoints,
            deployment,
            seen,
            service,
            next_wallet: 0,
            before_fork: 0,
            accepted: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// `dvp doctor` tells of each endpoint what the profile says.
    fn is_told(&mut self, told: &[String]) {
        let printed = self.ground.printed(&["doctor", "--json"]);
        let found: Value = serde_json::from_str(&printed).unwrap_or_default();
        let checks = found["checks"].as_array().cloned().unwrap_or_default();
        let limits: Vec<&str> = checks
            .iter()
            .filter(|check| check["name"] == "endpoint limits")
            .filter_map(|check| check["detail"].as_str())
            .collect();
        let is_told = |words: &&String| limits.iter().all(|detail| detail.contains(words.as_str()));
        if limits.len() != self.endpoints.len() || !told.iter().all(|words| is_told(&words)) {
            self.outcome.broken.push(format!("doctor tells {limits:?}, not each of {told:?}"));
        }
    }

    async fn call(&self, method: &str, params: Value) {
        self.node.one(method, params).await.unwrap();
    }

    async fn mine(&self, blocks: u64) {
        self.call("anvil_mine", json!([format!("{blocks:#x}")])).await;
    }

    async fn order(&self, wallet: usize, kind: Kind) -> Value {
        let token = |n: usize| {
            let token = &self.deployment.tokens[n];
            json!({"type": "erc20", "symbol": token.symbol, "address": token.address, "chain": "anvil"})
        };
        match kind {
            Kind::Money(account, _) => self.partner.order(&self.seen, wallet, account).await,
            Kind::Tokens => {
                let mut order = self.partner.order(&self.seen, wallet, "").await;
                order.as_object_mut().unwrap().remove("beneficiary");
                order["outputAsset"] = token(1);
                order["minOutputAmountMinor"] = json!("99000000");
                order
            }
            Kind::FromMoney => {
                let mut order = fiat_order("000123456789").unwrap();
                order["outputAsset"] = token(0);
                order["minOutputAmountMinor"] = json!("99000000");
                let receiver = keccak256(order["intentId"].to_string());
                order["outputRecipient"] = json!(Address::from_word(B256::from(receiver)));
                order
            }
        }
    }

    /// Submits orders side by side, each of another wallet. What is refused is counted by its reason.
    async fn submit(&mut self, kinds: &[Kind]) {
        let from = self.next_wallet;
        self.next_wallet += kinds.len();
        assert!(self.next_wallet <= WALLETS, "a wallet for each order");
        let scene = &*self;
        let submitted = kinds.iter().enumerate().map(async |(n, kind)| {
            let order = scene.order(from + n, *kind).await;
            let until = Instant::now() + REFUSED_FOR;
            loop {
                let (status, answer) = scene.partner.submit(&order).await;
                if status == 202 {
                    return Ok((order["clientReference"].as_str().unwrap().to_owned(), *kind));
                }
                if status != 503 || Instant::now() > until {
                    let code = &answer["error"]["code"];
                    return Err((status, code.as_str().map(str::to_owned), answer));
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        for submitted in join_all(submitted).await {
            match submitted {
                Ok(accepted) => self.accepted.push(accepted),
                Err((503, Some(code), _)) => *self.outcome.orders.entry(code).or_default() += 1,
                Err((status, _, answer)) => {
                    self.outcome.broken.push(format!("refused with {status}: {answer}"))
                }
            }
        }
    }

    /// The orders that were accepted and for which this is not so within the time.
    async fn lacking(&self, within: Duration, is_so: impl Fn(&Value) -> bool) -> Vec<(Kind, Value)> {
        let until = Instant::now() + within;
        let looked = self.accepted.iter().map(async |(reference, kind)| {
            loop {
                let (_, execution) = self.partner.get(&format!("/v1/executions/{reference}")).await;
                if is_so(&execution) {
                    return None;
                }
                if Instant::now() > until {
                    return Some((*kind, execution));
                }
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        });
        join_all(looked).await.into_iter().flatten().collect()
    }

    async fn all_end(&self) {
        let open = self.lacking(ENDS_WITHIN, |execution| {
            matches!(execution["status"].as_str(), Some("completed" | "failed"))
        });
        let open = open.await;
        assert!(open.is_empty(), "{} orders do not end, as {:?}", open.len(), open.first());
    }

    /// Makes blocks until the receipts of all that was completed are final.
    async fn all_final(&self, final_lag: u64) {
        let until = Instant::now() + ENDS_WITHIN;
        let is_final =
            |execution: &Value| execution["status"] == "failed" || !execution["finality"].is_null();
        loop {
            self.mine(final_lag + 2).await;
            let open = self.lacking(Duration::from_secs(3), is_final).await;
            let Some(first) = open.first() else { return };
            assert!(Instant::now() < until, "{} receipts are not final, as {first:?}", open.len());
        }
    }

    /// What the comparison of ledger, contracts and wallets finds, but for a conversion whose order failed afterwards: that
    /// is the house's position.
    fn odd_breaks(&self) -> Vec<String> {
        let output = self.ground.ran(&["reconcile", "--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let Some(breaks) = found["breaks"].as_array() else {
            return vec![format!("no comparison: {}", String::from_utf8_lossy(&output.stderr))];
        };
        let odd = breaks.iter().filter(|found| found["type"] != "converted_not_used");
        odd.map(|found| format!("break: {found}")).collect()
    }

    /// Each order has ended as it must, the chain is followed, and ledger, contracts and wallets agree.
    async fn judged(mut self, final_lag: u64) -> Outcome {
        for (n, (reference, kind)) in self.accepted.iter().enumerate() {
            let (_, execution) = self.partner.get(&format!("/v1/executions/{reference}")).await;
            let status = execution["status"].as_str().unwrap_or_default();
            *self.outcome.orders.entry(status.to_owned()).or_default() += 1;
            // A reorganization may take back the lock of an order that was converted and is not committed yet.
            let is_taken_back = n < self.before_fork && execution["failure"]["code"] == "lock_lost";
            if status != kind.ends() && !is_taken_back {
                self.outcome.broken.push(format!("{kind:?} ended otherwise: {execution}"));
            }
        }
        let halted: i64 = self.ground.one("select count(*) from chain_cursor where halted is not null").await;
        if halted > 0 {
            self.outcome.broken.push("the chain is halted".to_owned());
        }
        // What a reorganization took back last is anchored again once its transaction is final.
        let until = Instant::now() + AGREED_WITHIN;
        let mut odd = self.odd_breaks();
        while !odd.is_empty() && Instant::now() < until {
            self.mine(final_lag + 2).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            odd = self.odd_breaks();
        }
        self.outcome.broken.extend(odd);
        for manners in self.endpoints.iter().filter_map(Endpoint::manners) {
            for (reason, count) in manners.refused() {
                *self.outcome.refused.entry(reason).or_default() += count;
            }
        }
        self.service.terminate();
        self.service.ended_well().await;
        self.outcome
    }
}

/// What `dvp doctor` says of a profile's endpoint.
fn told_by_doctor(profile: &Profile, client: &str) -> Vec<String> {
    let mut calls = 100;
    while profile.batch_max.is_some_and(|most| calls > most) {
        calls = usize::div_ceil(calls, 2);
    }
    // EDR has no receipts of blocks under any profile.
    let lacks = |method: &str| {
        profile.no_methods.iter().any(|absent| absent == method)
            || client == "edr" && method == "eth_getBlockReceipts"
    };
    let form = if profile.hash_form == HashForm::Bare { "bare hashes" } else { "blocks by EIP-1898" };
    [
        Some(client),
        Some(form),
        profile.final_lag.is_none().then_some("no `finalized` block"),
        lacks("eth_feeHistory").then_some("no history of fees"),
        lacks("eth_getBlockReceipts").then_some("no receipts of blocks"),
    ]
    .into_iter()
    .flatten()
    .map(str::to_owned)
    .chain([format!("{calls} of 100 calls")])
    .collect()
}

/// Another token, and the pairs that orders of it and of money are of.
fn more_of_the_market(address: &str) -> String {
    format!(
        r#"
[[assets]]
symbol = "USDT"
exponent = 6
chain = "anvil"
address = "{address}"
[[pairs]]
base = "USDC"
quote = "USDT"
reference_price = "1"
protocol_fee_bps = 5
payout_fee_minor = "0"
[[pairs]]
base = "USD"
quote = "USDC"
reference_price = "1"
protocol_fee_bps = 5
payout_fee_minor = "0"
"#
    )
}
