//! Orders of tokens of two chains through REST and FIX. A chain at fault holds up its own orders only.

use serde_json::{Value, json};

use crate::chain_isolation::{self, OnChain, STRAIGHT};
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, ran, said};
use crate::wait::answer;

struct Scene {
    sandbox: Sandbox,
    chains: [OnChain; 2],
    partners: [Partner; 2],
    orders: usize,
}

impl Scene {
    async fn start() -> Self {
        let sandbox = Sandbox::start_with(&["--chains", "2"]).await;
        let chains = [0, 1].map(|chain| OnChain::of(&sandbox, chain));
        let partners = [0, 1].map(|chain| Partner::of(&chains[chain]));
        Self { sandbox, chains, partners, orders: 0 }
    }

    /// The body of an order of a chain, by a wallet.
    async fn body(&self, chain: usize, wallet: usize, account: &str) -> Value {
        self.partners[chain].order(&self.chains[chain], wallet, account).await
    }

    /// The body of an order of the home chain's token for the other chain's, by a wallet, which receives it.
    async fn across(&self, wallet: usize) -> Value {
        let mut body = self.body(0, wallet, STRAIGHT).await;
        body["outputAsset"] = json!({"type": "erc20", "symbol": "USDC", "chain": "anvil2"});
        body["outputRecipient"] = body["user"].clone();
        body
    }

    /// Waits for a number in the database.
    async fn counted(&self, sql: &'static str, expected: i64) {
        answer(async || (sql, self.sandbox.one::<i64>(sql).await), |(_, count)| *count == expected).await;
    }

    /// Places an order over FIX. Returns its ClOrdID.
    async fn place(&mut self, client: &mut FixClient, chain: usize, wallet: usize, account: &str) -> String {
        let body = self.body(chain, wallet, account).await;
        self.orders += 1;
        let id = format!("O-{}", self.orders);
        client.sell(&id, account, &body["permit"], &[(55, &self.symbol(chain))]).await;
        id
    }

    /// The symbol of a chain's first token against US dollars.
    fn symbol(&self, chain: usize) -> String {
        let token = &self.chains[chain].as_ref()["chain"]["tokens"][0];
        format!("{}/USD", token["asset"].as_str().unwrap())
    }

    async fn completed(&self, chain: usize, reference: &str) {
        chain_isolation::completed(&self.chains[chain], &self.partners[chain], reference).await;
    }

    /// Every payout was executed once, and every command of an order is on the chain of its token.
    async fn check_books(&self) {
        let twice = "select count(*) from simulated_rail where leg = 'payout' and executed <> 1";
        let twice: i64 = self.sandbox.one(twice).await;
        let strayed: i64 = self
            .sandbox
            .one(
                "select count(*) from chain_command c join execution e on e.reference = c.reference \
                 where (e.terms #>> case c.kind when 'transfer' then '{output,chain}' else '{input,chain}' end::text[] \
                        = 'anvil2') <> (c.chain_id = 31338)",
            )
            .await;
        assert_eq!((twice, strayed), (0, 0));
    }
}

async fn filled(client: &mut FixClient, id: &str) {
    let report = client.report(|r| r.get(11) == id && (r.get(150) == "F" || r.get(150) == "8")).await;
    assert_eq!((report.get(150), report.get(39)), ("F", "2"), "{}", report.get(58));
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_two_chains_settle_each_on_its_own() {
    let mut scene = Scene::start().await;
    let ready = scene.sandbox.as_ref().clone();
    assert_eq!(ready["chain"], ready["chains"][0]);
    let quotes = json!({"requestId": "r1", "actorId": "a", "source": "USDC.anvil2", "target": "USD",
                        "amount": "100", "side": "sell"});
    let (status, quoted) = scene.partners[1].post("/v1/quotes", &quotes).await;
    assert_eq!((status, quoted["candidates"].as_array().unwrap().is_empty()), (200, false), "{quoted}");

    // The same wallets on both chains: the nonces of their permits are each chain's own.
    let mut client = FixClient::log_on(&scene.sandbox).await;
    let mut references = Vec::new();
    for chain in [0, 1] {
        let (status, firm) = scene.partners[chain].firm_quote("100000000").await;
        assert_eq!((status, firm["pair"].as_str()), (201, Some(scene.symbol(chain).as_str())));
        let mut order = scene.body(chain, 0, STRAIGHT).await;
        order["quoteId"] = firm["quoteId"].clone();
        order["minOutputAmountMinor"] = firm["output"]["amountMinor"].clone();
        scene.partners[chain].submit_accepted(&order).await;
        references.push((chain, order["clientReference"].as_str().unwrap().to_owned()));
    }
    for chain in [0, 1] {
        let id = scene.place(&mut client, chain, 1, "bene_a:dest_10000000").await;
        filled(&mut client, &id).await;
        references.push((chain, id));
    }
    for (chain, reference) in &references {
        scene.completed(*chain, reference).await;
    }

    // A permit for the other chain's escrow signs nothing here.
    let mut strayed = scene.body(1, 2, STRAIGHT).await;
    strayed["permit"] = scene.body(0, 2, STRAIGHT).await["permit"].clone();
    let (status, answer) = scene.partners[1].submit(&strayed).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("INVALID_PERMIT")), "{answer}");

    let held =
        "select array_agg(distinct asset order by asset) from ledger_entry where owner_kind = 'escrow'";
    assert_eq!(scene.sandbox.one::<Vec<String>>(held).await, ["USDC", "USDC.anvil2"]);
    scene.check_books().await;
    scene.sandbox.stop().await;
}

/// The network fee of a firm quote, in minor units.
fn network_fee(quote: &Value) -> u64 {
    let fees = quote["fees"].as_array().unwrap();
    let fee = fees.iter().find(|fee| fee["type"] == "network_fee").unwrap();
    assert_eq!(fee["collection"], "absorbed");
    fee["amountMinor"].as_str().unwrap().parse().unwrap()
}

/// What a firm quote's network fee was computed from: chain, use and gas of each part.
fn gas_of(scene: &Scene, quote: &Value) -> Vec<(String, String, u64)> {
    let id = quote["quoteId"].as_str().unwrap();
    let explained = said(&scene.sandbox, &["quote", "explain", "--id", id]);
    let charges = explained["explanation"]["gas"].as_array().unwrap().iter();
    let part = |charge: &Value| {
        assert_eq!((charge["coin"].as_str(), charge["coinPrice"].as_str()), (Some("ETH"), Some("3000")));
        let text = |key: &str| charge[key].as_str().unwrap().to_owned();
        (text("chain"), text("gasUse"), charge["gas"].as_u64().unwrap())
    };
    charges.map(part).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn quotes_have_the_fees_of_their_chains_and_orders_keep_them() {
    let scene = Scene::start().await;
    let quoted = async |chain: usize| {
        let (status, quote) = scene.partners[chain].firm_quote("100000000").await;
        assert_eq!(status, 201, "{quote}");
        quote
    };
    // The second chain's fee is a hundredth once the base fees of nearly empty blocks have fallen: 125,000 gas at 0.01
    // gwei and 3,000 USDC.
    let cheap = answer(async || quoted(1).await, |quote| network_fee(quote) <= 3_750).await;
    assert_eq!(network_fee(&cheap), 3_750, "{cheap}");
    let home = quoted(0).await;
    assert!((375_000..=760_000).contains(&network_fee(&home)), "{home}");
    assert_eq!(gas_of(&scene, &home), [("anvil".into(), "settlement".into(), 125_000)]);
    assert_eq!(gas_of(&scene, &cheap), [("anvil2".into(), "settlement".into(), 125_000)]);

    // The payment of an order across is on the other chain.
    let body = scene.across(0).await;
    let across = json!({"requestId": "across", "actorId": "a", "inputAsset": body["inputAsset"],
                        "outputAsset": body["outputAsset"], "amountMinor": "100000000", "amountType": "source"});
    let (status, across) = scene.partners[0].post("/v1/quotes/firm", &across).await;
    assert_eq!(status, 201, "{across}");
    let parts = gas_of(&scene, &across);
    let [settlement, payment] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(settlement, &("anvil".to_owned(), "settlement".to_owned(), 125_000));
    assert_eq!(payment, &("anvil2".to_owned(), "payment".to_owned(), 50_000));

    // The chain's fee rises between quote and order: the next quote has it, the order does not.
    let dear = json!([format!("{:#x}", 50_000_000_000_u64)]);
    chain_isolation::rpc(&scene.chains[1], "anvil_setNextBlockBaseFeePerGas", dear).await;
    answer(async || quoted(1).await, |quote| network_fee(quote) >= 100_000).await;
    let mut order = scene.body(1, 0, STRAIGHT).await;
    order["quoteId"] = cheap["quoteId"].clone();
    order["minOutputAmountMinor"] = cheap["output"]["amountMinor"].clone();
    scene.partners[1].submit_accepted(&order).await;
    let reference = order["clientReference"].as_str().unwrap();
    scene.completed(1, reference).await;
    let (status, receipt) = scene.partners[1].get(&format!("/v1/executions/{reference}/receipt")).await;
    assert_eq!(status, 200, "{receipt}");
    assert_eq!(receipt["fees"], cheap["fees"]);
    let posted: String = scene
        .sandbox
        .one(
            "select sum(amount)::numeric(39, 0)::text from ledger_entry \
             where owner_kind = 'external' and owner = 'network' and asset = 'USDC.anvil2'",
        )
        .await;
    assert_eq!(posted, "3750");
    scene.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_chain_leaves_the_other_chains_orders_alone() {
    // Frozen, lied about, halted and out of gas.
    // How much slower the other chain's orders are is judged by the long run only: a test asserts no time.
    let scale = chain_isolation::IsolationScale { faults: 4, orders: 1, percent_max: u128::MAX };
    let summary = chain_isolation::run(0, scale).await;
    assert!(summary.contains("8 across, 4 faults"), "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_across_two_chains_is_paid_once_though_the_other_chain_stands_still_past_its_settle_time() {
    let scene = Scene::start().await;
    let mut client = FixClient::log_on(&scene.sandbox).await;
    // Straight through, over REST and FIX.
    let body = scene.across(0).await;
    let recipient = body["user"].as_str().unwrap().to_owned();
    let before = chain_isolation::token_balance(&scene.chains[1], &recipient).await;
    scene.partners[0].submit_accepted(&body).await;
    scene.completed(0, body["clientReference"].as_str().unwrap()).await;
    let received = chain_isolation::token_balance(&scene.chains[1], &recipient).await - before;
    assert!((99_000_000..100_000_000).contains(&received), "{received} for 100 USDC");
    let signed = scene.body(0, 1, STRAIGHT).await;
    let pair = [(55, "USDC/USDC.anvil2")];
    client.sell("X-1", "bene_a:dest_10000000", &signed["permit"], &pair).await;
    filled(&mut client, "X-1").await;

    // The other chain takes the payment and makes no block any more.
    drop(chain_isolation::rpc(&scene.chains[1], "evm_setAutomine", json!([false])).await);
    let body = scene.across(2).await;
    let recipient = body["user"].as_str().unwrap().to_owned();
    let before = chain_isolation::token_balance(&scene.chains[1], &recipient).await;
    scene.partners[0].submit_accepted(&body).await;
    scene.counted("select count(*) from chain_command where kind = 'transfer' and state = 'sent'", 1).await;
    scene.chains[1].signal(&scene.sandbox, "-STOP");
    // Hours pass: the time to settle is now.
    let passed: i64 = scene
        .sandbox
        .one(
            "with late as (
                 update execution set state = jsonb_set(state, '{lock,deadlines,settle_at}', to_jsonb(
                     (extract(epoch from now()) * 1000)::int8))
                 where state_name = 'paying' returning reference)
             , due as (update effect set run_at = now() from late
                       where effect.reference = late.reference and kind = 'timelock' returning effect.id)
             select count(*) from due",
        )
        .await;
    assert_eq!(passed, 1);
    scene
        .counted(
            "select count(*) from execution where state_name = 'owing' and state ->> 'settle_tx' is not null",
            1,
        )
        .await;
    let owed: i64 = scene.sandbox.one("select coalesce(sum(amount), 0)::int8 from ledger_entry where owner_kind = 'debt' and asset = 'USDC.anvil2'")
        .await;
    assert!(owed > 99_000_000, "{owed} are owed");
    let home = ran(&scene.sandbox, &["reconcile", "--chain", "anvil"]);
    let breaks = String::from_utf8_lossy(&home.stdout).into_owned();
    assert!(!home.status.success() && breaks.contains("settled_not_paid"), "the debt pages: {breaks}");

    // It comes back, and makes the block with the payment.
    scene.chains[1].signal(&scene.sandbox, "-CONT");
    drop(chain_isolation::rpc(&scene.chains[1], "evm_setAutomine", json!([true])).await);
    drop(chain_isolation::rpc(&scene.chains[1], "anvil_mine", json!(["0x2"])).await);
    scene.completed(0, body["clientReference"].as_str().unwrap()).await;
    let received = chain_isolation::token_balance(&scene.chains[1], &recipient).await - before;
    assert!((99_000_000..100_000_000).contains(&received), "{received} for 100 USDC, paid once");
    let owed: i64 = scene
        .sandbox
        .one("select coalesce(sum(amount), 0)::int8 from ledger_entry where owner_kind = 'debt'")
        .await;
    assert_eq!(owed, 0);
    scene.check_books().await;
    for chain in &scene.chains {
        chain.agrees(&scene.sandbox);
    }
    scene.sandbox.stop().await;
}
