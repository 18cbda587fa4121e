//! A service without a key of its own: its accounts are in a token and in a remote signer.

use alloy::primitives::Address;
use alloy::providers::{Provider, ProviderBuilder};
use alloy::signers::local::PrivateKeySigner;
use dvp_testing::signer::{Manner, RemoteSigner};
use dvp_testing::softhsm::{self, PIN, with_token};
use serde_json::Value;

use crate::partner::Partner;
use crate::served::{Ground, policy_for, read, replaced};

fn token_section(ground: &Ground, address: Address) -> String {
    let section = softhsm::section("chains.pkcs11_signers", "relayer-1", address, &ground.path("pin"));
    section + "timeout = \"8s\"\n"
}

fn remote_section(signer: &RemoteSigner, address: Address) -> String {
    signer.section("chains.remote_signers", address) + "timeout = \"2s\"\n"
}

/// The signers that `dvp doctor` reports: whether each is well, and the text.
fn signers(doctor: &str) -> Vec<(bool, String)> {
    let report: Value = serde_json::from_str(doctor).unwrap();
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "signer");
    checks.map(|check| (check["ok"] == true, check["detail"].as_str().unwrap().to_owned())).collect()
}

async fn settled_by_signers() {
    let ground = Ground::prepare().await;
    let in_token = softhsm::generate_key("relayer-1");
    let key = PrivateKeySigner::random();
    let deployment = ground.admit(&[in_token, key.address()]).await;
    let signer = RemoteSigner::start(key.clone(), policy_for(&deployment)).await;
    ground.write("pin", PIN);
    let dir = ground.path("");
    let keys = format!("relayer_keys = [\"env:SERVED_RELAYER\", \"file:{}relayer\"]\n", dir.display());
    let config = read(&ground.path("dvp.toml"));
    let assets = "[[assets]]\nsymbol = \"USDC\"";
    let with = |sections: &[String]| {
        let sections = format!("{}{assets}", sections.concat());
        ground.write("dvp.toml", &replaced(&config, &[(&keys, String::new()), (assets, sections)]));
    };
    let both = [token_section(&ground, in_token), remote_section(&signer, key.address())];
    with(&both);
    let credentials = ground.furnish();

    // Mistakes that show at the start.
    let stranger = Address::repeat_byte(0x77);
    with(&[token_section(&ground, stranger)]);
    let said = ground.refused(&["serve"]);
    assert!(said.contains(&format!("the signature is of account {in_token}, not of {stranger}")), "{said}");
    with(&[remote_section(&signer, stranger)]);
    let said = ground.refused(&["serve"]);
    assert!(said.contains(&format!("it does not sign for {stranger}")), "{said}");
    ground.write("pin", "000000");
    with(&both);
    let said = ground.refused(&["serve"]);
    assert!(said.contains("PinIncorrect") && !said.contains("000000"), "{said}");
    ground.write("pin", PIN);
    let report = signers(&ground.printed(&["doctor", "--json"]));
    assert_eq!(report.len(), 2, "{report:?}");
    assert!(report.iter().all(|(ok, _)| *ok), "{report:?}");
    signer.answer(Manner::Hang);
    let report = signers(&ground.printed(&["doctor", "--json"]));
    assert!(report[0].0 && !report[1].0 && report[1].1.contains("did not answer within"), "{report:?}");

    // One that does not answer holds nothing up: the token's account does the work.
    let mut served = ground.serve("api,indexer,worker");
    let http = served.ready().await.unwrap();
    assert!(served.log().contains("the signer does not answer, the relayer will retry"));
    let service = Box::new(ground.seen_by_a_partner(http, &credentials));
    let partner = Partner::of(&service);
    complete(&partner, &service, "000123456789").await;
    let node = ProviderBuilder::new().connect_http(ground.anvil.rpc_url().parse().unwrap());
    assert_eq!(node.get_transaction_count(key.address()).await.unwrap(), 0);
    let by_the_token = node.get_transaction_count(in_token).await.unwrap();
    assert!(by_the_token >= 4, "create, fill, settle and anchor: {by_the_token}");

    // Then the remote signer alone, with the policy that the documentation gives.
    served.terminate();
    served.ended_well().await;
    signer.answer(Manner::Honest);
    with(&[remote_section(&signer, key.address())]);
    let mut served = ground.serve("api,indexer,worker");
    let http = served.ready().await.unwrap();
    let service = Box::new(ground.seen_by_a_partner(http, &credentials));
    complete(&Partner::of(&service), &service, "000123456780").await;
    let by_the_signer = node.get_transaction_count(key.address()).await.unwrap();
    assert!(by_the_signer >= 4, "create, fill, settle and anchor: {by_the_signer}");
    assert_eq!(node.get_transaction_count(in_token).await.unwrap(), by_the_token);
    let log = served.log();
    assert!(!log.contains("the signer refused a transaction"), "{log}");
    for secret in [PIN, hex::encode(key.to_bytes()).as_str()] {
        assert!(!log.contains(secret) && !read(&ground.path("api,indexer,worker.log")).contains(secret));
    }
    served.terminate();
    served.ended_well().await;
}

async fn complete(partner: &Partner, service: &impl AsRef<Value>, account: &str) {
    partner.settled(&partner.order(service, 0, account).await).await;
}

#[test]
fn orders_are_settled_by_a_token_and_by_a_remote_signer() {
    with_token("signers::orders_are_settled_by_a_token_and_by_a_remote_signer", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(settled_by_signers());
    });
}
