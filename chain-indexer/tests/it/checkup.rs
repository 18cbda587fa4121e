//! The checks of a chain find each mistake of a configuration, and nothing on a chain that is right.

use crate::support::answers::{Answers, forward, serve};
use crate::support::{Scene, raw, set_balance};
use alloy::primitives::{Address, U256};
use alloy::providers::DynProvider;
use dvp_chain_indexer::ChainConfig;
use dvp_chain_indexer::checkup::{Defect, Expected, ExpectedToken, Finding, Payer, check_up, probe};
use dvp_chain_indexer::contracts::{settler::IntentSettler, token::TestToken};
use dvp_chain_indexer::gate::{PayoutGate, Wait};
use serde_json::{Value, json};
use std::sync::Arc;

fn config(scene: &Scene) -> ChainConfig {
    ChainConfig::development(&scene.node.rpc_url(), scene.deployment.clone())
}

fn expected(scene: &Scene) -> Expected {
    let token = ExpectedToken { symbol: "USDC".into(), address: scene.token, decimals: 6 };
    Expected {
        relayers: vec![scene.relayer.address(), scene.other_relayer.address()],
        receivers: vec![scene.solver.address()],
        payers: vec![Payer { wallet: scene.solver.address(), token: token.clone() }],
        tokens: vec![token],
        pools: Vec::new(),
        accept_other_code: false,
        ending: Vec::new(),
    }
}

async fn checked(scene: &Scene, config: &ChainConfig, expected: &Expected) -> Vec<Finding> {
    check_up(config, expected, scene.now().await).await
}

/// What is wrong: about what, and how.
fn defects(findings: Vec<Finding>) -> Vec<(&'static str, Defect)> {
    findings.into_iter().filter_map(|finding| Some((finding.about, finding.found.err()?))).collect()
}

/// The only defect, which is about this and says so.
async fn only(
    scene: &Scene,
    config: &ChainConfig,
    expected: &Expected,
    about: &str,
    says: &str,
    is_contradiction: bool,
) {
    let found = defects(checked(scene, config, expected).await);
    assert_eq!(found.len(), 1, "{about}: {found:?}");
    let (subject, defect) = &found[0];
    assert_eq!(*subject, about, "{defect}");
    assert!(defect.to_string().contains(says), "{defect}");
    assert_eq!(matches!(defect, Defect::Contradiction(_)), is_contradiction, "{defect:?}");
}

async fn funded() -> Scene {
    let scene = Scene::new().await;
    scene.fund_solver(5).await;
    scene
}

#[tokio::test]
async fn a_chain_that_is_as_configured_has_no_defect() {
    let scene = funded().await;
    let mut config = config(&scene);
    config.further_rpc_urls = vec![scene.node.rpc_url()];
    let findings = checked(&scene, &config, &expected(&scene)).await;
    let subjects: Vec<&str> = findings.iter().map(|finding| finding.about).collect();
    let all = [
        "endpoint",
        "endpoint",
        "clock",
        "agreement",
        "contract code",
        "contract wiring",
        "contract pause",
        "contract roles",
        "receivers",
        "tokens",
        "payers",
        "gas",
    ];
    assert_eq!(subjects, all);
    assert_eq!(defects(findings), []);
}

#[tokio::test]
async fn a_configuration_of_another_chain_or_token_is_a_contradiction() {
    let scene = funded().await;
    let (right, expected) = (config(&scene), expected(&scene));

    let other = ChainConfig { chain_id: 1, ..right.clone() };
    let found = defects(checked(&scene, &other, &expected).await);
    let said = "endpoint 1 of 1: its chain is 31337, not 1".to_owned();
    assert_eq!(found, [("endpoint", Defect::Contradiction(said))]);

    let mut decimals = expected.clone();
    decimals.tokens[0].decimals = 18;
    only(&scene, &right, &decimals, "tokens", "USDC has 6 decimals, the configuration says 18", true).await;
    let mut nowhere = expected.clone();
    nowhere.tokens[0].address = Address::repeat_byte(0x77);
    only(&scene, &right, &nowhere, "tokens", "there is no contract", true).await;

    let mut admin = expected.clone();
    admin.relayers[0] = scene.admin.address();
    only(&scene, &right, &admin, "contract roles", "is the administrator", true).await;
    let mut stranger = expected.clone();
    stranger.relayers[0] = scene.maker.address();
    only(&scene, &right, &stranger, "contract roles", "is no relayer of IntentSettler", false).await;
    let mut unlisted = expected.clone();
    unlisted.receivers[0] = scene.maker.address();
    only(&scene, &right, &unlisted, "receivers", "is not on the settler's list", false).await;
    let mut capless = expected.clone();
    capless.payers[0].wallet = scene.maker.address();
    only(&scene, &right, &capless, "payers", "no daily cap of USDC", false).await;
}

#[tokio::test]
async fn other_code_another_settler_and_no_code_are_contradictions() {
    let scene = funded().await;
    let (right, expected) = (config(&scene), expected(&scene));
    let deployment = &scene.deployment;

    // The same contracts of another set.
    let mut mixed = right.clone();
    mixed.deployment.permit = scene.deployment.anchor;
    let found = defects(checked(&scene, &mixed, &expected).await);
    let subjects: Vec<&str> = found.iter().map(|(about, _)| *about).collect();
    assert_eq!(subjects, ["contract code", "contract wiring"], "{found:?}");
    assert!(found[0].1.to_string().contains("is not this version's Permit"), "{found:?}");

    let code: String = raw(&scene.provider, "eth_getCode", json!([deployment.escrow, "latest"])).await;
    let changed = format!("{}00{}", &code[..402], &code[404..]);
    assert_ne!(code, changed);
    let () = raw(&scene.provider, "anvil_setCode", json!([deployment.escrow, changed])).await;
    let found = defects(checked(&scene, &right, &expected).await);
    assert!(found.iter().any(|(about, defect)| *about == "contract code"
        && matches!(defect, Defect::Contradiction(said) if said.contains("is not this version's Escrow"))));
    let accepting = Expected { accept_other_code: true, ..expected.clone() };
    let found = defects(checked(&scene, &right, &accepting).await);
    assert!(found.iter().all(|(about, _)| *about != "contract code"), "{found:?}");
    let () = raw(&scene.provider, "anvil_setCode", json!([deployment.escrow, "0x"])).await;
    let found = defects(checked(&scene, &right, &expected).await);
    assert!(
        found.iter().any(|(_, defect)| defect.to_string().contains("there is no Escrow at")),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_pause_an_empty_account_a_late_clock_and_a_withdrawn_allowance_are_lacks() {
    let scene = funded().await;
    let (right, expected) = (config(&scene), expected(&scene));

    assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &IntentSettler::pauseCall {}).await);
    only(&scene, &right, &expected, "contract pause", "IntentSettler is paused", false).await;
    assert!(scene.succeeds(&scene.admin, scene.deployment.settler, &IntentSettler::unpauseCall {}).await);

    let () = raw(&scene.provider, "anvil_setBalance", json!([scene.relayer.address(), "0x1"])).await;
    only(&scene, &right, &expected, "gas", "has 1 wei, less than", false).await;
    set_balance(&scene.provider, scene.relayer.address()).await;

    let call = TestToken::approveCall { spender: scene.deployment.payouts, value: U256::ZERO };
    assert!(scene.succeeds(&scene.solver, scene.token, &call).await);
    only(&scene, &right, &expected, "payers", "allows the payouts contract", false).await;
    scene.allow_payouts(scene.token, 0).await;
    only(&scene, &right, &expected, "payers", "no daily cap of USDC", false).await;

    let (now, mut aged) = (scene.now().await, right.clone());
    aged.stalled_after = Some(std::time::Duration::from_secs(300));
    for (machine, says) in
        [(now + 301, "301 s old, more than 300 s"), (now - 61, "61 s ahead of this machine's clock")]
    {
        let found = defects(check_up(&aged, &Expected::default(), machine).await);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == "clock" && found[0].1.to_string().contains(says), "{found:?}");
    }
}

#[tokio::test]
async fn endpoints_of_different_chains_disagree_and_a_silent_one_is_named_by_its_number() {
    let one = funded().await;
    // Chains that begin in the same second have the same first blocks.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let other = Scene::new().await;
    let (mut both, expected) = (config(&one), expected(&one));
    both.further_rpc_urls = vec!["http://127.0.0.1:1/key".into()];
    let found = defects(checked(&one, &both, &expected).await);
    assert_eq!(found.len(), 1, "{found:?}");
    let said = found[0].1.to_string();
    assert!(said.contains("endpoint 2 of 2") && !said.contains("/key"), "{said}");

    both.further_rpc_urls = vec![other.node.rpc_url()];
    let found = defects(checked(&one, &both, &expected).await);
    assert!(found.iter().any(|(about, _)| *about == "agreement"), "{found:?}");
}

/// Takes ten calls as one request and logs of eight blocks, and leaves out what small plans and old nodes do.
struct Small(DynProvider);

impl Answers for Small {
    async fn answer(&self, call: &Value) -> Value {
        let refused = |code: i64, message: &str| {
            let error = json!({"code": code, "message": message});
            json!({"jsonrpc": "2.0", "id": call["id"], "error": error})
        };
        let (method, params) = (call["method"].as_str().unwrap_or_default(), &call["params"]);
        let number = |value: &Value| u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok();
        match method {
            "eth_feeHistory" | "eth_getBlockReceipts" => refused(-32601, "the method does not exist"),
            "eth_getBalance" if params[1].is_object() => refused(-32602, "invalid argument 1"),
            "eth_getBlockByNumber" if matches!(params[0].as_str(), Some("finalized" | "safe")) => {
                refused(-32000, "unknown block")
            }
            "eth_getLogs" => match number(&params[0]["fromBlock"]).zip(number(&params[0]["toBlock"])) {
                Some((from, to)) if to - from >= 8 => refused(-32000, "Max range: 8"),
                _ => forward(&self.0, call).await,
            },
            _ => forward(&self.0, call).await,
        }
    }

    fn batch_max(&self) -> usize {
        10
    }
}

#[tokio::test]
async fn what_an_endpoint_is_and_limits_is_told_with_the_setting_that_it_needs() {
    let scene = Scene::new().await;
    for _ in 0..10 {
        scene.mine().await;
    }
    let small = serve(Arc::new(Small(scene.provider.clone()))).await;
    let mut config = config(&scene);
    config.further_rpc_urls = vec![small];
    config.finality_depth = Some(12);
    let told = async |config: &ChainConfig| {
        let findings = probe(config).await;
        assert!(findings.iter().all(|finding| finding.about == "endpoint limits"));
        findings
            .into_iter()
            .map(|finding| finding.found.map_err(|defect| defect.to_string()))
            .collect::<Vec<_>>()
    };
    let [whole, limited] = told(&config).await.try_into().unwrap();
    let (whole, limited) = (whole.unwrap(), limited.unwrap());
    for words in [
        "endpoint 1 of 2: anvil/",
        "chain 31337",
        "100 of 100 calls",
        "logs of 2000 blocks",
        "`finalized`, `safe`",
        "blocks by EIP-1898",
        "; a history of fees",
        "; receipts of blocks",
    ] {
        assert!(whole.contains(words), "{words}: {whole}");
    }
    for words in [
        "endpoint 2 of 2: anvil/",
        "7 of 100 calls",
        "logs of 8 blocks",
        "final 12 blocks below the newest, no `safe` block",
        "bare hashes",
        "no history of fees: the relayer's tip is tip_floor_wei",
        "no receipts of blocks",
    ] {
        assert!(limited.contains(words), "{words}: {limited}");
    }
    config.finality_depth = None;
    let lacking = told(&config).await.pop().unwrap().unwrap_err();
    assert!(lacking.contains("set finality_depth"), "{lacking}");
    config.payout_gate = PayoutGate::always(Wait::Safe);
    let lacking = told(&config).await.pop().unwrap().unwrap_err();
    assert!(lacking.contains("payout_gate"), "{lacking}");
}
