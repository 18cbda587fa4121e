//! Contracts are replaced while orders are open, as `docs/chain.md` says: the old ones end theirs, the new ones take new
//! orders, and the service is killed between.

use std::process::Command;

use alloy::primitives::U256;
use alloy::providers::{Provider, ProviderBuilder};
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::Deployment;
use serde_json::{Value, json};

use crate::partner::Partner;
use crate::sandbox::program;
use crate::served::{Ground, ServedProcess, read};

const WALLETS: usize = 8;
const ROLES: &str = "api,indexer,worker";
/// Paid at once, after a while, and not converted: its lock goes back.
const ACCOUNTS: [(&str, &str); 3] =
    [("000123456789", "completed"), ("000123450001", "completed"), ("000123450003", "failed")];

struct Scene {
    ground: Ground,
    keys: Value,
    wallets: Vec<PrivateKeySigner>,
    service: Option<ServedProcess>,
    /// The orders with the statuses in which they end, and the contracts that took them.
    accepted: Vec<(String, &'static str, Deployment)>,
}

impl Scene {
    async fn prepare() -> Self {
        let ground = Ground::prepare().await;
        let wallets: Vec<PrivateKeySigner> = (0..WALLETS).map(|_| PrivateKeySigner::random()).collect();
        let node = ProviderBuilder::new().connect_http(ground.anvil.rpc_url().parse().unwrap());
        let gas = U256::from(10).pow(U256::from(20));
        for wallet in &wallets {
            let _: () = node.raw_request("anvil_setBalance".into(), (wallet.address(), gas)).await.unwrap();
        }
        ground.fund(&ground.deployment, &wallets, 1_000_000_000).await;
        let keys = ground.furnish();
        Self { ground, keys, wallets, service: None, accepted: Vec::new() }
    }

    /// The record of the contracts.
    fn record(&self) -> Deployment {
        serde_json::from_str(&read(&self.ground.path("contracts.json"))).unwrap()
    }

    /// What a partner sees of the service, with permits for these contracts.
    fn seen(&self, http: &str, contracts: &Deployment) -> Box<Value> {
        Box::new(self.ground.seen(http, &self.keys, contracts, &self.wallets))
    }

    /// Starts the service; where it answers.
    async fn start(&mut self) -> String {
        let mut service = self.ground.serve(ROLES);
        let http = service.ready().await.unwrap();
        self.service = Some(service);
        format!("http://{http}")
    }

    /// Kills it at once.
    fn kill(&mut self) {
        drop(self.service.take());
    }

    /// Orders of these wallets under the contracts that take new ones.
    async fn orders(&mut self, http: &str, wallets: std::ops::Range<usize>) {
        let record = self.record();
        let seen = self.seen(http, &record);
        let partner = Partner::of(&seen);
        for (wallet, (account, ends)) in wallets.zip(ACCOUNTS.iter().cycle()) {
            let order = partner.order(&seen, wallet, account).await;
            partner.submit_accepted(&order).await;
            let reference = order["clientReference"].as_str().unwrap().to_owned();
            self.accepted.push((reference, ends, record.clone()));
        }
    }

    /// `dvp chain deploy --new`, as an operator runs it.
    fn replace(&self) -> Deployment {
        let admin = hex::encode(self.ground.accounts[0].to_bytes());
        let account = |n: usize| self.ground.accounts[n].address().to_string();
        let place = self.ground.path("contracts.json");
        let mut command = Command::new(program());
        command.args([
            "chain",
            "deploy",
            "--new",
            "--rpc-url",
            &self.ground.anvil.rpc_url(),
            "--admin",
            "env:ADMIN",
        ]);
        command.args(["--relayer", &account(1), "--relayer", &account(2), "--solver", &account(3)]);
        command.args(["--operator", &account(5), "--operator", &account(6), "--deployment"]).arg(&place);
        let output = command.env("ADMIN", admin).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.record()
    }

    /// The sets by their escrows: state, open orders.
    fn listed(&self) -> Vec<(String, String, u64)> {
        let listed = self.ground.said(&["chain", "list"]);
        let sets = listed["chains"][0]["sets"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_lowercase();
        sets.iter()
            .map(|set| (text(&set["escrow"]), text(&set["state"]), set["openOrders"].as_u64().unwrap()))
            .collect()
    }
}

fn lower(address: impl ToString) -> String {
    address.to_string().to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn contracts_are_replaced_while_orders_are_open() {
    let mut scene = Scene::prepare().await;
    let http = scene.start().await;
    scene.orders(&http, 0..3).await;
    let old = scene.record();
    // Signed for the old contracts, and submitted when new ones take orders.
    let seen = scene.seen(&http, &old);
    let late = Partner::of(&seen).order(&seen, 7, "000123456789").await;
    scene.kill();

    let new = scene.replace();
    assert_eq!((new.permit, &new.earlier), (old.permit, &vec![old.clone()]));
    let listed = scene.listed();
    assert_eq!(listed[0], (lower(new.escrow), "taking".to_owned(), 0));
    assert_eq!((&listed[1].0, listed[1].1.as_str()), (&lower(old.escrow), "ending"));
    assert!(listed[1].2 > 0, "{listed:?}");
    // A record without the old contracts would leave their orders.
    let whole = read(&scene.ground.path("contracts.json"));
    let alone = Deployment { earlier: Vec::new(), ..new.clone() };
    scene.ground.write("contracts.json", &serde_json::to_string(&alone).unwrap());
    let refused = scene.ground.refused(&["serve", "--roles", ROLES]);
    assert!(refused.contains(&old.escrow.to_string()), "{refused}");
    scene.ground.write("contracts.json", &whole);

    let http = scene.start().await;
    let partner = Partner::of(&scene.seen(&http, &new));
    let (status, answer) = partner.submit(&late).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("INVALID_PERMIT")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains(&lower(new.escrow)), "{answer}");
    scene.orders(&http, 3..7).await;
    // In the middle of both.
    scene.kill();
    let http = scene.start().await;
    let partner = Partner::of(&scene.seen(&http, &new));
    let (_, chains) = partner.get("/v1/chains").await;
    let contracts = &chains["chains"][0]["earlierContracts"][0];
    assert_eq!(lower(contracts["escrow"].as_str().unwrap()), lower(old.escrow));
    for (reference, ends, contracts) in &scene.accepted {
        let is_final =
            |execution: &Value| execution["status"] == "failed" || !execution["finality"].is_null();
        let execution = partner.wait_until(reference, is_final).await;
        assert_eq!(&execution["status"], ends, "{execution}");
        if *ends == "completed" {
            let anchor = execution["finality"]["contractAddress"].as_str().unwrap();
            assert_eq!(lower(anchor), lower(contracts.anchor), "{execution}");
        }
    }
    // The wallet goes on with its next nonce, of the same permit contract, without another approval.
    scene.orders(&http, 0..1).await;
    let (again, ends, _) = scene.accepted.last().unwrap();
    let execution = partner.wait_until(again, |execution| execution["status"] == *ends).await;
    assert_eq!(execution["status"], "completed");

    // What failed goes back to its wallet, and the funds of every order are where they must be.
    crate::wait::until("the old contracts have ended", async || {
        let listed = scene.listed();
        listed[1] == (lower(old.escrow), "ended".to_owned(), 0)
    })
    .await;
    let in_set = "select count(distinct escrow) from chain_command where kind = 'create'";
    assert_eq!(scene.ground.one::<i64>(in_set).await, 2);
    let node = ProviderBuilder::new().connect_http(scene.ground.anvil.rpc_url().parse().unwrap());
    let _: () = node.raw_request("anvil_mine".into(), (8,)).await.unwrap();
    crate::wait::until("ledger, contracts and wallets agree", async || {
        let printed = scene.ground.printed(&["reconcile", "--json", "--full"]);
        let found: Value = serde_json::from_str(&printed).unwrap_or_default();
        let breaks = found["breaks"].as_array().cloned().unwrap_or_default();
        found["breaks"].is_array() && breaks.iter().all(|one| one["type"] == json!("converted_not_used"))
    })
    .await;
    let doctor = scene.ground.printed(&["doctor", "--json"]);
    assert!(doctor.contains("contract sets"), "{doctor}");
    scene.service.take().unwrap().terminate();
}
